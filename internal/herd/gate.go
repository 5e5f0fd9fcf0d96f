package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-3d0f8764/retry"
)

// gateWorld is a herd that takes time to travel, in processes. A PacedGate waits by timers and channels
// of the real clock, so its workers are goroutines in a synctest bubble: virtual time again, but who
// goes first at one instant is the scheduler's choice. Each worker has draws of its own, so little
// depends on that choice.
type gateWorld struct {
	name      string
	processes int // each with a gate of its own
	workers   int // of each, a call each
	server
	trip time.Duration // mean round trip; each way half of it, ±50%, 1ns at least: all leave before the first hears
}

// gated is how the workers of one process hold back.
type gated struct {
	name string
	deaf bool                                   // hints are not listened to
	new  func(draw func() float64) retry.Policy // shared by one process
}

// unhindered is a policy without any wait or limit of its own.
func unhindered(b retry.Backoff, draw func() float64) retry.Policy {
	return retry.Policy{Effect: retry.ReadOnly, Backoff: b, Spread: -1,
		MaxAttempts: -1, MaxElapsed: -1, MaxHint: -1, Rand: draw}
}

var (
	noGate = gated{"no gate, full jitter", true, func(draw func() float64) retry.Policy {
		return unhindered(published(retry.FullJitter), draw)
	}}
	resumeOnly = gated{"shared resume time only", false, func(draw func() float64) retry.Policy {
		p := unhindered(retry.Backoff{Base: -1}, draw)
		p.Gate = new(resumeGate)
		return p
	}}
	pacedGate = gated{"PacedGate", false, func(draw func() float64) retry.Policy {
		p := unhindered(retry.Backoff{Base: -1}, draw)
		p.Gate = &retry.PacedGate{Rand: draw}
		return p
	}}
	openGate = gated{"PacedGate, open start", false, func(draw func() float64) retry.Policy {
		p := unhindered(retry.Backoff{Base: -1}, draw)
		p.Gate = &retry.PacedGate{Rand: draw, Start: -1}
		return p
	}}
)

// locked makes a source that goroutines share.
func locked(r *rand.Rand) func() float64 {
	var mu sync.Mutex
	return func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return r.Float64()
	}
}

// run is one run; seed is its number.
func (w gateWorld) run(t *testing.T, how gated, seed int) (r result) {
	synctest.Test(t, func(t *testing.T) {
		var (
			mu    sync.Mutex // of all below
			start = time.Now()
			srv   = w.server
			all   sync.WaitGroup
		)
		if how.deaf {
			srv.hint = noHint
		}
		call := func() error {
			mu.Lock()
			defer mu.Unlock()
			r.calls++
			ok, next := srv.call(time.Since(start))
			if ok {
				return nil
			}
			_, err := srv.reject(next)
			return err
		}
		for process := range w.processes {
			p := how.new(locked(rand.New(rand.NewPCG(uint64(seed), uint64(process)))))
			for worker := range w.workers {
				draws := rand.New(rand.NewPCG(uint64(seed), 1<<32|uint64(process)<<16|uint64(worker)))
				travel := func() {
					time.Sleep(max(1, time.Duration((0.5+draws.Float64())*float64(w.trip/2))))
				}
				op := func(context.Context) error {
					travel()
					err := call()
					travel()
					return err
				}
				all.Go(func() {
					if retry.Run(t.Context(), &p, op) != nil {
						t.Error("a worker has given up")
					}
					mu.Lock()
					defer mu.Unlock()
					r.last = max(r.last, time.Since(start))
				})
				synctest.Wait() // the workers come in this order
			}
		}
		all.Wait()
	})
	return r
}

// runs makes n runs.
func (w gateWorld) runs(t *testing.T, how gated, n int) figures {
	results := make([]result, n)
	for i := range results {
		results[i] = w.run(t, how, i)
	}
	return collect(results)
}

func (w gateWorld) floor() (calls int, last time.Duration) {
	return herd{clients: w.processes * w.workers, server: w.server}.floor()
}

const trip = 100 * time.Millisecond

var gateWorlds = []gateWorld{
	{"100 at 10/s, no round trip, exact hint", 1, 100, server{rate: 10, hint: exact}, 0},
	{"100 at 10/s, no round trip, no hint", 1, 100, server{rate: 10}, 0},
	{"100 at 10/s, exact hint", 1, 100, server{rate: 10, hint: exact}, trip},
	{"100 at 10/s, whole seconds", 1, 100, server{rate: 10, hint: wholeSeconds}, trip},
	{"100 at 10/s, no hint", 1, 100, server{rate: 10}, trip},
	{"1,000 at 10/s, exact hint", 1, 1000, server{rate: 10, hint: exact}, trip},
	{"1,000 at 10/s, whole seconds", 1, 1000, server{rate: 10, hint: wholeSeconds}, trip},
	{"1,000 at 10/s, no hint", 1, 1000, server{rate: 10}, trip},
	{"1,000 at 100/s, exact hint", 1, 1000, server{rate: 100, hint: exact}, trip},
	{"100 at 10/s, a bucket, exact hint", 1, 100, server{rate: 10, hint: exact, bucket: true}, trip},
	{"1,000 at 100 per 10s, exact hint", 1, 1000, server{rate: 100, window: 10 * time.Second, hint: exact}, trip},
	{"1,000 at 100 per 10s, no hint", 1, 1000, server{rate: 100, window: 10 * time.Second}, trip},
	{"100 at 200/s: no limit is felt", 1, 100, server{rate: 200, hint: exact}, trip},
	{"10 processes of 10 at 10/s, exact hint", 10, 10, server{rate: 10, hint: exact}, trip},
	{"100 processes of 10 at 10/s, exact hint", 100, 10, server{rate: 10, hint: exact}, trip},
}

// resumeGate lets nobody leave before the hint that was heard last is over, and then all at once. It
// stands for what a shared pause alone does.
type resumeGate struct {
	mu    sync.Mutex
	until time.Time
	tries int
}

func (g *resumeGate) Enter(ctx context.Context, _ retry.Entry) (func(retry.Outcome), error) {
	for {
		g.mu.Lock()
		wait := time.Until(g.until)
		g.mu.Unlock()
		if wait <= 0 {
			break
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	left := time.Now()
	return func(o retry.Outcome) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if o.Err != nil && !left.Before(g.until) { // one reaction per round
			wait := o.Verdict.After
			if wait == 0 {
				wait = published(nil).Wait(retry.Step{Retry: g.tries, Draw: rand.Float64()})
				g.tries++
			}
			g.until = time.Now().Add(wait)
		}
	}, nil
}
