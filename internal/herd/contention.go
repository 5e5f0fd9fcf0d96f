package main

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/seed-3d0f8764/retry"
)

// contention is the world of the AWS post on jitter: clients change one row, with optimistic
// concurrency. Each reads it, then writes it; the write fails if the row was changed since it was
// read, and then the client waits and reads again. Each of the four hops of that takes
// |Normal(10ms, 2ms)|. There is no limit but the row itself.
//
// Source: Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015, and its
// simulator.
type contention struct{ clients int }

var errStale = retry.Transient(errors.New("changed since it was read"))

// run returns how many writes arrived, and when the last client was done.
func (c contention) run(b retry.Backoff, draws *rand.Rand) (r result) {
	s := &sim{draws: draws}
	p := s.policy(b)
	version := 0
	hop := func(ctx context.Context) error {
		return s.sleep(ctx, time.Duration(math.Abs(10+2*draws.NormFloat64())*float64(time.Millisecond)))
	}
	op := func(ctx context.Context) error {
		if err := hop(ctx); err != nil { // the read arrives
			return err
		}
		read := version
		for range 2 { // its answer; the write arrives
			if err := hop(ctx); err != nil {
				return err
			}
		}
		r.calls++
		fresh := read == version
		if fresh {
			version++
		}
		if err := hop(ctx); err != nil {
			return err
		}
		r.last = s.now
		if !fresh {
			return errStale
		}
		return nil
	}
	for range c.clients {
		s.start(0, func() { retry.Run(context.Background(), &p, op) })
	}
	s.run(math.MaxInt64)
	return r
}

func (c contention) runs(b retry.Backoff, n int) figures {
	return collect(repeat(n, func(i int) result { return c.run(b, pcg(i)) }))
}

// contenders are the strategies of that post: Base 5ms, Cap 2s, and 10ms for the first window, 5ms
// times 2^1.
var contenders = []struct {
	name string
	retry.Backoff
}{
	{"no wait", retry.Backoff{Base: -1}},
	{"exponential", rowBackoff(10*time.Millisecond, retry.NoJitter)},
	{"equal", rowBackoff(10*time.Millisecond, retry.EqualJitter)},
	{"full", rowBackoff(10*time.Millisecond, retry.FullJitter)},
	{"decorrelated", rowBackoff(5*time.Millisecond, retry.DecorrelatedJitter)},
}

func rowBackoff(base time.Duration, j retry.Jitter) retry.Backoff {
	return retry.Backoff{Base: base, Cap: 2 * time.Second, Jitter: j}
}
