package main

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/seed-3d0f8764/retry"
)

// hinting is what a server says with a rejection.
type hinting int

const (
	noHint       hinting = iota
	wholeSeconds         // Retry-After: the time to the next free place, rounded up, 1 at least
	exact                // that time to the nanosecond, 1ms at least
)

// server takes so many calls per window of its clock and rejects the rest.
type server struct {
	rate   int
	window time.Duration // 0: 1s
	shift  time.Duration // a window begins at shift
	hint   hinting
	bucket bool          // instead of windows: a bucket of rate tokens that fills in one window
	double time.Duration // >0: when the rate doubles

	begun  bool
	index  time.Duration // of the current window
	used   int
	tokens float64
	filled time.Duration
}

// call is one call at the instant now. Where it is rejected, next is the time to the next place.
func (s *server) call(now time.Duration) (ok bool, next time.Duration) {
	window := s.window
	if window == 0 {
		window = time.Second
	}
	if s.double > 0 && now >= s.double {
		s.rate, s.double = 2*s.rate, 0
	}
	if s.bucket {
		if !s.begun {
			s.begun, s.tokens = true, float64(s.rate)
		}
		speed := float64(s.rate) / float64(window)
		s.tokens = min(float64(s.rate), s.tokens+float64(now-s.filled)*speed)
		s.filled = now
		if s.tokens >= 1 {
			s.tokens--
			return true, 0
		}
		return false, time.Duration(math.Ceil((1 - s.tokens) / speed))
	}
	index := (now - s.shift) / window
	if now < s.shift { // division rounds towards 0
		index = (now-s.shift+1)/window - 1
	}
	if !s.begun || index != s.index {
		s.begun, s.index, s.used = true, index, 0
	}
	if s.used < s.rate {
		s.used++
		return true, 0
	}
	return false, (index+1)*window + s.shift - now
}

var errBusy = errors.New("429")

// reject is the error of a rejection, and the hint in it.
func (s *server) reject(next time.Duration) (time.Duration, error) {
	switch s.hint {
	case wholeSeconds:
		next = max(1, (next+time.Second-1)/time.Second) * time.Second
	case exact:
		next = max(next, time.Millisecond)
	default:
		return 0, busy
	}
	return next, retry.Throttled(errBusy, next)
}

var busy = retry.Throttled(errBusy, 0)

// herd is a crowd of clients that call a server once each, all at the same instant.
type herd struct {
	clients int
	server
	spread time.Duration // >0: instead, each at a random instant of this time
}

// crowds are those of the tables.
var crowds = []herd{
	{clients: 100, server: server{rate: 10}},
	{clients: 1000, server: server{rate: 10}},
	{clients: 300, server: server{rate: 10}},
	{clients: 1000, server: server{rate: 50}},
	{clients: 3000, server: server{rate: 10}},
}

// result is what came of one run.
type result struct {
	calls int
	last  time.Duration // success
	peak  int           // most calls in one second, the first second apart
}

// strategy is how clients wait. hint points to the hint of the last rejection in this world, for
// rules that a Policy cannot say.
type strategy struct {
	name          string
	policy        func(s *sim, hint *time.Duration) retry.Policy
	retry.Backoff // if that is all
}

// run is one run, in which all clients draw from one source.
func (h herd) run(st strategy, draws source) result {
	var r result
	s := &sim{draws: draws}
	srv := h.server
	var hint time.Duration
	policy := st.policy(s, &hint)
	second, calls := time.Duration(0), 0
	op := func(context.Context) error {
		r.calls++
		if now := s.now / time.Second; now != second {
			second, calls = now, 0
		}
		calls++
		if second > 0 {
			r.peak = max(r.peak, calls)
		}
		ok, next := srv.call(s.now)
		if ok {
			r.last = s.now
			return nil
		}
		var err error
		hint, err = srv.reject(next)
		return err
	}
	for range h.clients {
		at := time.Duration(0)
		if h.spread > 0 {
			at = time.Duration(draws.Float64() * float64(h.spread))
		}
		s.start(at, func() { retry.Run(context.Background(), &policy, op) })
	}
	s.run(math.MaxInt64)
	return r
}

// floor is what a herd needs at least: a call each, at the full rate from the first window on.
func (h herd) floor() (calls int, last time.Duration) {
	window := h.server.window
	if window == 0 {
		window = time.Second
	}
	windows := (h.clients - 1) / h.server.rate
	if before := int(h.server.double / window); before > 0 && windows > before {
		windows = before + (h.clients-1-before*h.server.rate)/(2*h.server.rate)
	}
	return h.clients, time.Duration(windows) * window
}

// figures are the means over runs.
type figures struct{ calls, last, peak stat } // last in seconds

func (h herd) runs(st strategy, n int, draws func(run int) source) figures {
	return collect(repeat(n, func(i int) result { return h.run(st, draws(i)) }))
}

func collect(results []result) (f figures) {
	for _, r := range results {
		f.calls.add(float64(r.calls))
		f.last.add(r.last.Seconds())
		f.peak.add(float64(r.peak))
	}
	return f
}

func python(run int) source { return newMT(uint64(run)) }
func random(run int) source { return pcg(run) }

// ---- strategies ----

// waits is the strategy of a Backoff; a hint, if there is one, is the least that is waited.
func waits(name string, b retry.Backoff) strategy {
	return strategy{name, func(s *sim, _ *time.Duration) retry.Policy {
		p := s.policy(b)
		p.Spread = -1
		return p
	}, b}
}

// published is a Backoff with the figures of the published table.
func published(j retry.Jitter) retry.Backoff {
	return retry.Backoff{Base: 500 * time.Millisecond, Cap: 30 * time.Second, Jitter: j}
}

func elapsed() retry.Backoff {
	return retry.Backoff{Base: 2 * time.Second, Cap: 25 * time.Second, Jitter: retry.ElapsedJitter}
}

// geometric is the twin of elapsed jitter that counts retries instead of time.
func geometric() retry.Backoff {
	return retry.Backoff{Base: 2 * time.Second, Cap: 25 * time.Second, Multiplier: 1.6,
		Jitter: func(s retry.Step) time.Duration {
			window := min(20*time.Second, s.Window)
			return time.Duration((0.5 + float64(0.75*s.Draw)) * float64(window))
		}}
}

var (
	none         = waits("none", published(retry.NoJitter))
	full         = waits("full", published(retry.FullJitter))
	equal        = waits("equal", published(retry.EqualJitter))
	decorrelated = waits("decorrelated", published(retry.DecorrelatedJitter))
	elapsedOnly  = waits("elapsed", elapsed())
	twin         = waits("geometric twin", geometric())

	hintAlone = waits("hint alone", retry.Backoff{Base: -1})
	hintFull  = strategy{name: "hint + full", policy: func(s *sim, hint *time.Duration) retry.Policy {
		b := published(retry.FullJitter)
		p := s.policy(retry.Backoff{Cap: -1, Jitter: func(s retry.Step) time.Duration { return *hint + b.Wait(s) }})
		p.Spread = -1
		return p
	}}
	hintElapsed = strategy{name: "max(elapsed, hint + spread)", policy: func(s *sim, _ *time.Duration) retry.Policy {
		return s.policy(elapsed())
	}}
)
