package retry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3d0f8764/retry"
)

// stopReason is a typed cause, as a program might give its contexts.
type stopReason struct{ signal string }

func (r *stopReason) Error() string { return "stopped by " + r.signal }

var errStopped error = &stopReason{"SIGTERM"}

// callError is op's own, typed error.
type callError struct{ err error }

func (e *callError) Error() string { return "call: " + e.err.Error() }
func (e *callError) Unwrap() error { return e.err }

// endless is a policy that only ctx ends.
func endless() retry.Policy {
	return retry.Policy{MaxAttempts: -1, MaxElapsed: -1, Classify: retry.Always,
		Backoff: retry.Backoff{Base: time.Hour, Cap: -1, Multiplier: 1, Jitter: retry.NoJitter}}
}

// requireEndedByCtx checks that err says at once all that is known of its end:
// the sentinel and no other, ctx.Err(), its cause, and op's last error.
func requireEndedByCtx(t require.TestingT, err error, ctx context.Context, last error) {
	e := stopped(t, err)
	reason, other := retry.ErrCanceled, retry.ErrDeadline
	if ctx.Err() == context.DeadlineExceeded {
		reason, other = other, reason
	}
	require.Equal(t, reason, e.Reason, "%v", err)
	require.ErrorIs(t, err, reason)
	require.NotErrorIs(t, err, other)
	require.ErrorIs(t, err, ctx.Err())
	require.ErrorIs(t, err, context.Cause(ctx))
	require.Equal(t, last, e.Last)
	require.Equal(t, last, errors.Unwrap(err))
	if last != nil {
		require.ErrorIs(t, err, last)
	}
	if want, ok := errors.AsType[*stopReason](context.Cause(ctx)); ok {
		got, ok := errors.AsType[*stopReason](err)
		require.True(t, ok, "the typed cause is not reached")
		require.Same(t, want, got)
	}
	for _, no := range []error{retry.ErrPermanent, retry.ErrUnclassified, retry.ErrAttempts, retry.ErrBudget, retry.ErrHint} {
		require.NotErrorIs(t, err, no)
	}
}

// No other Go library has an error that is all of these at once.
func TestACancelledOperationsErrorIsAllOfItsCauses(t *testing.T) {
	last := &callError{io.ErrUnexpectedEOF}
	ends := map[string]func(context.Context) (context.Context, func()){
		"cancel": func(ctx context.Context) (context.Context, func()) { return context.WithCancel(ctx) },
		"cancel with a cause": func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithCancelCause(ctx)
			return ctx, func() { cancel(errStopped) }
		},
		"cancel of a parent with a wrapped cause": func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithCancelCause(ctx)
			ctx, stop := context.WithTimeout(ctxWrapper{ctx}, 1000*time.Hour)
			return ctx, func() { cancel(fmt.Errorf("shutting down: %w", errStopped)); stop() }
		},
		"deadline": func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithTimeout(ctx, 90*time.Minute)
			return ctx, func() { <-ctx.Done(); cancel() }
		},
		"deadline with a cause": func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithTimeoutCause(ctx, 90*time.Minute, errStopped)
			return ctx, func() { <-ctx.Done(); cancel() }
		},
	}
	for name, end := range ends {
		for _, effect := range []retry.Effect{retry.Unstated, retry.ReadOnly} {
			p := endless()
			p.MinTimeout = -1
			if effect == retry.Unstated {
				p.Classify = func(error) retry.Verdict { return retry.Verdict{Class: retry.ClassTransient} }
			}
			t.Run(name+"/before Do", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := end(t.Context())
					cancel()
					calls := 0
					v, err := retry.Do(ctx, &p, func(context.Context) (int, error) { calls++; return 7, nil })
					requireEndedByCtx(t, err, ctx, nil)
					require.Zero(t, calls)
					require.Zero(t, v)
					require.Zero(t, stopped(t, err).Attempts)
				})
			})
			t.Run(name+"/in attempt 1", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := end(t.Context())
					calls := 0
					_, err := retry.Do(ctx, &p, func(context.Context) (int, error) {
						calls++
						cancel()
						return 7, last
					})
					requireEndedByCtx(t, err, ctx, last)
					require.Equal(t, 1, calls)
				})
			})
			t.Run(name+"/in attempt 2", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := end(t.Context())
					calls := 0
					v, err := retry.Do(ctx, &p, func(context.Context) (int, error) {
						if calls++; calls == 2 {
							cancel()
						}
						return calls, last
					})
					requireEndedByCtx(t, err, ctx, last)
					require.Equal(t, 2, calls)
					require.Equal(t, 2, v, "the last value comes with the error")
					require.Equal(t, 2, stopped(t, err).Attempts)
				})
			})
			t.Run(name+"/in the sleep", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := end(t.Context())
					p := p
					if _, ok := ctx.Deadline(); ok {
						p.MinTimeout = -1
						p.Backoff.Base = 89 * time.Minute // the next fits when it is admitted
						p.Sleep = func(ctx context.Context, d time.Duration) error {
							<-ctx.Done() // overslept
							return ctx.Err()
						}
					}
					go func() {
						time.Sleep(10 * time.Minute)
						cancel()
					}()
					calls := 0
					_, err := retry.Do(ctx, &p, func(context.Context) (int, error) { calls++; return 7, last })
					requireEndedByCtx(t, err, ctx, last)
					require.Equal(t, 1, calls)
				})
			})
			t.Run(name+"/as the sleep ends", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := end(t.Context())
					p := p
					p.Backoff.Base = time.Minute
					p.Sleep = func(context.Context, time.Duration) error { cancel(); return nil }
					calls := 0
					_, err := retry.Do(ctx, &p, func(context.Context) (int, error) { calls++; return 7, last })
					requireEndedByCtx(t, err, ctx, last)
					require.Equal(t, 1, calls)
				})
			})
		}
	}
}

// ctx of a user's own type may end with a user's own error.
func TestAForeignCtxEndsAnOperationWithItsOwnError(t *testing.T) {
	ctx := foreignCtx{t.Context(), make(chan struct{}), errStopped}
	close(ctx.done)
	calls := 0
	err := retry.Run(ctx, nil, func(context.Context) error { calls++; return nil })
	requireEndedByCtx(t, err, ctx, nil)
	require.Zero(t, calls)
}

// foreignCtx is a context that the context package does not know.
type foreignCtx struct {
	context.Context
	done chan struct{}
	err  error
}

func (c foreignCtx) Done() <-chan struct{} { return c.done }
func (c foreignCtx) Err() error            { return c.err }
func (c foreignCtx) Value(any) any         { return nil }

// ctx done goes before every other reason: whatever op's error says, nothing
// but ctx has ended the operation (fault B65).
func TestCtxDoneGoesBeforeEveryOtherReason(t *testing.T) {
	for name, err := range map[string]error{
		"permanent":    retry.Permanent(errOp),
		"suspended":    retry.Suspended(errOp, time.Hour),
		"unknown":      retry.Unknown(errOp),
		"unclassified": errOp,
		"hint":         retry.Throttled(errOp, 1000*time.Hour),
		"attempts":     retry.Transient(errOp),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			got := retry.Run(ctx, &retry.Policy{MaxAttempts: 1}, func(context.Context) error {
				cancel(errStopped)
				return err
			})
			requireEndedByCtx(t, got, ctx, err)
		})
	}
}

// A cancelled payment is not a payment that did not happen; a cancelled read
// is nothing at all.
func TestCancelledInFlightIsAnUnknownOutcomeUnlessItIsReadOnly(t *testing.T) {
	for _, test := range []struct {
		effect  retry.Effect
		err     error // nil: ctx.Err()
		unknown bool
	}{
		{retry.Unstated, nil, true},
		{retry.Mutation, nil, true},
		{retry.Idempotent, nil, true},
		{retry.ReadOnly, nil, false},
		{retry.Mutation, errOp, true},                   // proves nothing
		{retry.Mutation, retry.Unknown(errOp), true},    //
		{retry.Mutation, retry.Permanent(errOp), false}, // proves that it was not applied
		{retry.Mutation, retry.Transient(errOp), false}, //
		{retry.Mutation, retry.Throttled(errOp, 0), false},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		err := retry.Run(ctx, &retry.Policy{Effect: test.effect}, func(ctx context.Context) error {
			cancel(errStopped)
			if test.err == nil {
				return ctx.Err()
			}
			return test.err
		})
		require.Equal(t, retry.ErrCanceled, stopped(t, err).Reason)
		require.Equal(t, test.unknown, errors.Is(err, retry.ErrUnknownOutcome), "%v %v", test.effect, test.err)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, errStopped)
	}
	// Cancelled before anything was sent: known to be nothing.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := retry.Run(ctx, &retry.Policy{Effect: retry.Mutation}, func(context.Context) error { return nil })
	require.NotErrorIs(t, err, retry.ErrUnknownOutcome)
}

// A nil error is success even if ctx was cancelled meanwhile.
func TestSuccessWinsOverCancellation(t *testing.T) {
	for _, p := range []retry.Policy{{}, {MaxElapsed: -1}, {AttemptTimeout: time.Hour, Keep: 1}} {
		for n := 1; n <= 2; n++ {
			ctx, cancel := context.WithCancel(t.Context())
			p.Backoff.Base = -1
			v, err := retry.Do(ctx, &p, func(ctx context.Context) (int, error) {
				if retry.Attempt(ctx) < n {
					return 0, retry.Transient(errOp)
				}
				cancel()
				return 7, nil
			})
			require.NoError(t, err)
			require.Equal(t, 7, v)
		}
	}
}

// One that waits for its ctx must not see it end before the caller's has: the
// reason would be another one each time.
func TestCtxEndedByItsDeadlineInOpIsAlwaysErrDeadline(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errStopped)
			defer cancel()
			calls := 0
			var last error
			err := retry.Run(ctx, nil, func(ctx context.Context) error {
				calls++
				<-ctx.Done()
				require.Equal(t, errStopped, context.Cause(ctx))
				last = &callError{ctx.Err()}
				return last
			})
			requireEndedByCtx(t, err, ctx, last)
			require.ErrorIs(t, err, retry.ErrUnknownOutcome)
			require.Equal(t, 1, calls)
		})
	}
}

// countingCtx writes down what the loop asks of the caller's ctx.
type countingCtx struct {
	context.Context
	err  func(error) error
	done func()
}

func (c *countingCtx) Err() error { return c.err(c.Context.Err()) }
func (c *countingCtx) Done() <-chan struct{} {
	c.done()
	return c.Context.Done()
}

// Timer and cancellation are both due when the sleeper looks: whichever it
// takes, there is no further attempt.
func TestCancelledAsTheRealSleepEnds(t *testing.T) {
	for i := range 10_000 {
		inner, cancel := context.WithCancelCause(context.Background())
		calls, last := 0, 1+i%3
		ctx := &countingCtx{inner, func(err error) error { return err }, func() {
			if calls == last {
				cancel(errStopped)
			}
		}}
		p := endless()
		p.Backoff.Base = []time.Duration{-1, 1}[i%2] // waits of nothing, and of next to nothing
		err := retry.Run(ctx, &p, func(context.Context) error {
			require.NoError(t, inner.Err(), "an attempt after ctx was cancelled")
			calls++
			return errOp
		})
		require.Equal(t, last, calls)
		requireEndedByCtx(t, err, inner, errOp)
	}
}

// The clock is read between the sleep and the next attempt: a cancellation in
// there counts too.
func TestCancelledBetweenSleepAndAttempt(t *testing.T) {
	for i := range 1000 {
		ctx, cancel := context.WithCancelCause(t.Context())
		calls, last, slept := 0, 1+i%4, false
		p := endless()
		now := time.Now()
		p.Clock = func() time.Time {
			if slept && calls == last {
				cancel(errStopped)
			}
			return now
		}
		p.Sleep = func(_ context.Context, d time.Duration) error {
			now, slept = now.Add(d), true
			return nil
		}
		err := retry.Run(ctx, &p, func(context.Context) error {
			require.NoError(t, ctx.Err())
			calls++
			slept = false
			return errOp
		})
		require.Equal(t, last, calls)
		requireEndedByCtx(t, err, ctx, errOp)
	}
}

// The real sleeper, and a cancellation at the very instant of its end, in
// virtual time: the scheduler settles which comes first. Before each attempt the loop has
// looked at ctx after the sleep, and it never attempts once it has seen it done.
func TestCancelledAtTheInstantTheSleepEnds(t *testing.T) {
	const perBubble = 100
	calledOnce, calledTwice := 0, 0
	for range 10_000 / perBubble {
		synctest.Test(t, func(t *testing.T) {
			for range perBubble {
				inner, cancel := context.WithCancelCause(context.Background())
				var looked, sawDone atomic.Bool
				ctx := &countingCtx{inner, func(err error) error {
					looked.Store(true)
					if err != nil {
						sawDone.Store(true)
					}
					return err
				}, func() { looked.Store(false) }} // the sleep begins
				stop := time.AfterFunc(time.Second, func() { cancel(errStopped) })

				p := endless()
				p.Backoff.Base = time.Second
				calls, start := 0, time.Now()
				err := retry.Run(ctx, &p, func(context.Context) error {
					require.True(t, looked.Load(), "ctx was not looked at after the sleep")
					require.False(t, sawDone.Load(), "an attempt though ctx was seen done")
					if calls++; calls == 2 {
						<-inner.Done() // due in this instant
					}
					return errOp
				})
				require.Equal(t, time.Second, time.Since(start))
				requireEndedByCtx(t, err, inner, errOp)
				require.LessOrEqual(t, calls, 2)
				if calls == 1 {
					calledOnce++
				} else {
					calledTwice++
				}
				require.False(t, stop.Stop())
			}
		})
	}
	t.Logf("cancelled first: %d, attempted first: %d", calledOnce, calledTwice)
}

// The sleep ends when ctx does, in the same instant (fault B56).
func TestCancellationEndsTheSleepAtOnce(t *testing.T) {
	for name, p := range map[string]retry.Policy{
		"no deadline": endless(),
		"deadline": {MaxElapsed: 3 * time.Hour, Classify: retry.Always, MaxAttempts: -1,
			Backoff: retry.Backoff{Base: time.Hour, Cap: -1, Jitter: retry.NoJitter}},
		"a hint": {MaxElapsed: 3 * time.Hour, MaxHint: -1, Classify: func(error) retry.Verdict {
			return retry.Verdict{Class: retry.ClassThrottled, After: time.Hour}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(20*time.Millisecond, func() { cancel(errStopped) })
				start, calls := time.Now(), 0
				err := retry.Run(ctx, &p, func(context.Context) error { calls++; return errOp })
				require.Equal(t, 20*time.Millisecond, time.Since(start))
				require.Equal(t, 1, calls)
				requireEndedByCtx(t, err, ctx, errOp)
				require.Equal(t, 1, stopped(t, err).Attempts, "no phantom attempt (fault B152)")
				require.Equal(t, 20*time.Millisecond, stopped(t, err).Elapsed)
			})
		})
	}
}

// Ten thousand operations that would sleep for an hour, cancelled at once
// (faults B96, B98): what is left is what was there.
func TestCancelledSleepsLeaveNothingBehind(t *testing.T) {
	run := func(n int) {
		for range n {
			ctx, cancel := context.WithCancelCause(context.Background())
			p := endless()
			p.AttemptTimeout = time.Hour
			asleep := false
			c := &countingCtx{ctx, func(err error) error { return err }, func() {
				if asleep { // the sleeper has asked for Done
					cancel(errStopped)
				}
			}}
			calls := 0
			err := retry.Run(c, &p, func(ctx context.Context) error {
				kid, stop := context.WithCancel(ctx)
				defer stop()
				_ = kid.Done()
				calls++
				asleep = true
				return errOp
			})
			if calls != 1 || !errors.Is(err, errStopped) {
				panic(fmt.Sprint(calls, " calls: ", err))
			}
		}
	}
	heap := func() uint64 {
		var m runtime.MemStats
		for range 3 {
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	run(100)
	goroutines, before := settledGoroutines(), heap()
	run(10_000)
	require.LessOrEqual(t, settledGoroutines(), goroutines)
	// A timer with its channel takes over 200 bytes: left behind they would be 2 MB and more.
	require.Less(t, int64(heap())-int64(before), int64(1<<20))
}

// In a bubble anything that still waits when the test ends makes it fail.
func TestManyCancelledInOneInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 1000
		ctx, cancel := context.WithCancelCause(t.Context())
		results, calls := make(chan error, many), new(atomic.Int64)
		for range many {
			go func() {
				p := endless()
				p.MaxElapsed = 100 * time.Hour
				results <- retry.Run(ctx, &p, func(ctx context.Context) error {
					ctx.Done()
					calls.Add(1)
					return errOp
				})
			}()
		}
		synctest.Wait()
		start := time.Now()
		cancel(errStopped)
		for range many {
			requireEndedByCtx(t, <-results, ctx, errOp)
		}
		require.Zero(t, time.Since(start))
		require.EqualValues(t, many, calls.Load())
	})
}

// A sleeper that fails while ctx is alive ends the operation with its error.
func TestAFailingSleeperEndsTheOperation(t *testing.T) {
	broken := errors.New("no timers left")
	p := endless()
	p.Sleep = func(context.Context, time.Duration) error { return broken }
	calls := 0
	err := retry.Run(t.Context(), &p, func(context.Context) error {
		calls++
		require.Equal(t, 1, calls)
		return errOp
	})
	require.Equal(t, retry.ErrCanceled, stopped(t, err).Reason)
	require.ErrorIs(t, err, broken)
	require.ErrorIs(t, err, errOp)
	require.NotErrorIs(t, err, context.Canceled)

	// If ctx has ended meanwhile, that is why; the sleeper's own error says no more.
	ctx, cancel := context.WithCancelCause(t.Context())
	p.Sleep = func(context.Context, time.Duration) error { cancel(errStopped); return broken }
	err = retry.Run(ctx, &p, func(context.Context) error { return errOp })
	requireEndedByCtx(t, err, ctx, errOp)
}

// Do waits for op, which may ignore its ctx, and starts nothing meanwhile
// (faults B98, B99).
func TestDoReturnsWhenOpReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		start := time.Now()
		err := retry.Run(ctx, nil, func(context.Context) error { time.Sleep(time.Second); return errOp })
		require.Equal(t, time.Second, time.Since(start))
		requireEndedByCtx(t, err, ctx, errOp)

		start = time.Now()
		require.NoError(t, retry.Run(t.Context(), &retry.Policy{AttemptTimeout: 50 * time.Millisecond},
			func(context.Context) error { time.Sleep(time.Second); return nil }))
		require.Equal(t, time.Second, time.Since(start))
	})
}

// The default clock, random source and sleeper inside a bubble, whose clock
// lies years before the anchor that the package took outside (fault B177).
func TestTheDefaultsInABubble(t *testing.T) {
	for _, test := range []struct {
		name     string
		policy   retry.Policy
		ctx      time.Duration // 0: no deadline
		takes    time.Duration // an attempt
		deadline time.Duration
	}{
		{"MaxElapsed", retry.Policy{MaxElapsed: 5 * time.Second}, 0, 0, 5 * time.Second},
		{"default MaxElapsed", retry.Policy{}, 0, 0, 30 * time.Second},
		{"ctx", retry.Policy{MaxElapsed: -1}, 5 * time.Second, 0, 5 * time.Second},
		{"ctx before MaxElapsed", retry.Policy{}, 5 * time.Second, 10 * time.Millisecond, 5 * time.Second},
		{"MaxElapsed before ctx", retry.Policy{}, time.Hour, 10 * time.Millisecond, 30 * time.Second},
		{"slow attempts", retry.Policy{AttemptTimeout: 400 * time.Millisecond}, 0, time.Second, 30 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			for range 20 { // the draws differ
				synctest.Test(t, func(t *testing.T) {
					ctx := t.Context()
					if test.ctx != 0 {
						var cancel func()
						ctx, cancel = context.WithTimeout(ctx, test.ctx)
						defer cancel()
					}
					p := test.policy
					p.MaxAttempts, p.Classify, p.MinTimeout = -1, retry.Always, -1
					p.Backoff.Cap = time.Second
					start, last, calls := time.Now(), time.Duration(0), 0
					err := retry.Run(ctx, &p, func(ctx context.Context) error {
						calls++
						last = time.Since(start)
						require.Less(t, last, test.deadline, "an attempt at the deadline, or after it")
						at, ok := ctx.Deadline()
						require.True(t, ok)
						require.LessOrEqual(t, at.Sub(start), test.deadline)
						select {
						case <-ctx.Done():
						case <-time.After(test.takes):
						}
						return errOp
					})
					e := stopped(t, err)
					require.Equal(t, retry.ErrDeadline, e.Reason)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.Equal(t, calls, e.Attempts)
					require.Equal(t, time.Since(start), e.Elapsed)
					require.LessOrEqual(t, e.Elapsed, test.deadline, "fault B70")
					require.Greater(t, calls, 4)
					require.Greater(t, last, test.deadline-3*time.Second, "it gave up long before the deadline")
				})
			}
		})
	}
}

// Without any limit of time, and through several bubbles with one policy.
func TestOnePolicyInAndOutOfBubbles(t *testing.T) {
	p := &retry.Policy{Backoff: retry.Backoff{Base: time.Nanosecond}}
	op := func(ctx context.Context) error {
		if retry.Attempt(ctx) < 4 {
			return retry.Transient(errOp)
		}
		return ctx.Err()
	}
	for range 3 {
		require.NoError(t, retry.Run(t.Context(), p, op))
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Duration(rand.Int64N(int64(1000 * time.Hour))))
			require.NoError(t, retry.Run(t.Context(), p, op))
			require.NoError(t, retry.Run(context.Background(), p, op))
		})
	}
}
