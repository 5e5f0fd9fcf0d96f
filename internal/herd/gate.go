package main

import (
	"context"
	"math"
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
	processes int // each with a gate of its own, unless shared
	workers   int // of each, a call each
	server
	trip   time.Duration // mean round trip; each way half of it, ±50%, 1ns at least: all leave before the first hears
	shared time.Duration // >0: one gate for all processes, so far away (each way)
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
	awsAdaptive = gated{"AWS adaptive mode", false, func(draw func() float64) retry.Policy {
		p := unhindered(retry.Backoff{Base: time.Second, Cap: 20 * time.Second}, draw)
		p.Gate = newAdaptive()
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
		var far retry.Gate
		for process := range w.processes {
			p := how.new(locked(rand.New(rand.NewPCG(uint64(seed), uint64(process)))))
			if w.shared > 0 && p.Gate != nil {
				if far == nil {
					far = remote{p.Gate, w.shared}
				}
				p.Gate = far
			}
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
	{"100 at 10/s, no round trip, exact hint", 1, 100, server{rate: 10, hint: exact}, 0, 0},
	{"100 at 10/s, no round trip, whole seconds", 1, 100, server{rate: 10, hint: wholeSeconds}, 0, 0},
	{"100 at 10/s, no round trip, no hint", 1, 100, server{rate: 10}, 0, 0},
	{"100 at 10/s, exact hint", 1, 100, server{rate: 10, hint: exact}, trip, 0},
	{"100 at 10/s, whole seconds", 1, 100, server{rate: 10, hint: wholeSeconds}, trip, 0},
	{"100 at 10/s, no hint", 1, 100, server{rate: 10}, trip, 0},
	{"1,000 at 10/s, exact hint", 1, 1000, server{rate: 10, hint: exact}, trip, 0},
	{"1,000 at 10/s, whole seconds", 1, 1000, server{rate: 10, hint: wholeSeconds}, trip, 0},
	{"1,000 at 10/s, no hint", 1, 1000, server{rate: 10}, trip, 0},
	{"10 processes of 10 at 10/s, exact hint", 10, 10, server{rate: 10, hint: exact}, trip, 0},
	{"10 processes of 10 at 10/s, no hint", 10, 10, server{rate: 10}, trip, 0},
	{"10 processes of 100 at 10/s, exact hint", 10, 100, server{rate: 10, hint: exact}, trip, 0},
	{"10 processes of 100 at 10/s, whole seconds", 10, 100, server{rate: 10, hint: wholeSeconds}, trip, 0},
	{"10 processes of 100 at 10/s, no hint", 10, 100, server{rate: 10}, trip, 0},
	{"100 processes of 10 at 10/s, exact hint", 100, 10, server{rate: 10, hint: exact}, trip, 0},
	{"100 processes of 10 at 10/s, no hint", 100, 10, server{rate: 10}, trip, 0},
	{"100 at 10/s, a bucket, exact hint", 1, 100, server{rate: 10, hint: exact, bucket: true}, trip, 0},
	{"100 at 10/s, a bucket, no hint", 1, 100, server{rate: 10, bucket: true}, trip, 0},
	{"1,000 at 100/s, exact hint", 1, 1000, server{rate: 100, hint: exact}, trip, 0},
	{"1,000 at 100/s, no hint", 1, 1000, server{rate: 100}, trip, 0},
	{"1,000 at 10/s, 20/s after 30s, exact hint", 1, 1000, server{rate: 10, hint: exact, double: 30 * time.Second}, trip, 0},
	{"1,000 at 10/s, 20/s after 30s, no hint", 1, 1000, server{rate: 10, double: 30 * time.Second}, trip, 0},
	// That were 22 worlds; those below are in no mean.
	{"1,000 at 100 per 10s, exact hint", 1, 1000, server{rate: 100, window: 10 * time.Second, hint: exact}, trip, 0},
	{"1,000 at 100 per 10s, no hint", 1, 1000, server{rate: 100, window: 10 * time.Second}, trip, 0},
	{"1,000 at 600 per 60s, no hint", 1, 1000, server{rate: 600, window: time.Minute}, trip, 0},
	{"100 at 200/s: no limit is felt", 1, 100, server{rate: 200, hint: exact}, trip, 0},
	{"10 processes of 10 on one gate, exact hint", 10, 10, server{rate: 10, hint: exact}, trip, time.Millisecond},
}

// meanWorlds are how many of them, from the first, are in the mean over the floor.
const meanWorlds = 22

// overFloor is a geometric mean over worlds: calls, and time, as multiples of what is needed at least.
// A second is added to each time, as the floor of some worlds is 0.
type overFloor struct {
	calls, last float64 // sums of logarithms
	n           int
}

func (o *overFloor) add(w gateWorld, f figures) {
	calls, last := w.floor()
	o.calls += math.Log(f.calls.mean() / float64(calls))
	o.last += math.Log((f.last.mean() + 1) / (last.Seconds() + 1))
	o.n++
}

func (o *overFloor) means() (calls, last float64) {
	return math.Exp(o.calls / float64(o.n)), math.Exp(o.last / float64(o.n))
}

// remote is a gate that takes a hop to reach and a hop to hear from, as one behind Redis does.
type remote struct {
	retry.Gate
	hop time.Duration
}

func (g remote) Enter(ctx context.Context, e retry.Entry) (func(retry.Outcome), error) {
	time.Sleep(g.hop)
	leave, err := g.Gate.Enter(ctx, e)
	time.Sleep(g.hop)
	if err != nil {
		return nil, err
	}
	return func(o retry.Outcome) {
		time.Sleep(g.hop)
		leave(o)
	}, nil
}

// adaptive is the rate limiter of the AWS SDKs' adaptive mode: CUBIC, after the first throttle. Those
// who wait for a token do so one by one.
//
// Source: botocore/retries/throttling.py and bucket.py.
type adaptive struct {
	turn chan struct{} // who waits for a token holds it
	news chan struct{} // the fill rate has changed: it looks again

	mu                     sync.Mutex
	start                  time.Time
	enabled                bool
	fill, most, tokens     float64 // per second, at most, now
	filled                 float64 // when, in seconds since start
	wmax, k, throttled     float64
	measured, count, since float64 // calls per second, and since when they are counted, in half seconds
}

func newAdaptive() *adaptive {
	return &adaptive{turn: make(chan struct{}, 1), news: make(chan struct{}, 1), start: time.Now(), fill: 1, most: 1}
}

func (g *adaptive) refill() (now float64) {
	now = time.Since(g.start).Seconds()
	g.tokens = min(g.most, g.tokens+(now-g.filled)*g.fill)
	g.filled = now
	return now
}

func (g *adaptive) Enter(ctx context.Context, _ retry.Entry) (func(retry.Outcome), error) {
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	for {
		g.mu.Lock()
		if !g.enabled {
			break
		}
		g.refill()
		if g.tokens >= 1-1e-6 {
			g.tokens--
			break
		}
		wait := time.Duration((1 - g.tokens) / g.fill * float64(time.Second))
		g.mu.Unlock()
		select {
		case <-time.After(max(wait, 1)):
		case <-g.news:
		}
	}
	g.mu.Unlock()
	return g.settle, ctx.Err()
}

func (g *adaptive) settle(o retry.Outcome) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.refill()
	g.count++
	if half := math.Floor(now*2) / 2; half > g.since {
		g.measured = 0.8*g.count/(half-g.since) + 0.2*g.measured
		g.count, g.since = 0, half
	}
	var rate float64
	if o.Err == nil {
		rate = 0.4*math.Pow(now-g.throttled-g.k, 3) + g.wmax
	} else {
		g.wmax = g.measured
		if g.enabled {
			g.wmax = min(g.wmax, g.fill)
		}
		g.k = math.Cbrt(g.wmax * 0.3 / 0.4)
		g.throttled, g.enabled = now, true
		rate = 0.7 * g.wmax
	}
	rate = min(rate, 2*g.measured)
	g.fill, g.most = max(rate, 0.5), max(rate, 1)
	g.tokens = min(g.tokens, g.most)
	select {
	case g.news <- struct{}{}:
	default:
	}
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
