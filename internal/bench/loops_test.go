package main_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	avast "github.com/avast/retry-go/v5"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	awsretry "github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go/middleware"
	backoffv5 "github.com/cenkalti/backoff/v5"
	backoffv6 "github.com/cenkalti/backoff/v6"
	"github.com/eapache/go-resiliency/retrier"
	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/failsafe-go/failsafe-go/timeout"
	"github.com/googleapis/gax-go/v2"
	"github.com/seed-3d0f8764/retry"
	sethvargo "github.com/sethvargo/go-retry"
)

// errFlaky is the failure of every operation here. AWS asks it whether it may
// be repeated.
var errFlaky error = flaky{}

type flaky struct{}

func (flaky) Error() string        { return "flaky" }
func (flaky) RetryableError() bool { return true }

// The marks that some libraries want are put on once, before the clock runs.
var (
	transient = retry.Transient(errFlaky)
	retryable = sethvargo.RetryableError(errFlaky)
)

// attempts is the limit of every loop.
const attempts = 5

// work is the operation: it fails a number of times, then gives 1. It is the
// same for all; only the error it is told to fail with differs.
type work struct {
	err   error
	fails int
	calls int
}

func (w *work) do() (int, error) {
	if w.calls++; w.calls <= w.fails {
		return 0, w.err
	}
	return 1, nil
}

// contender runs one operation with one library.
type contender struct {
	name string
	err  error // what its operation fails with
	run  func(ctx context.Context, w *work) (int, error)
}

// race benchmarks the contenders at operations that fail so often before they
// succeed, and checks that each really made all the attempts.
func race(b *testing.B, fails int, contenders []contender) {
	raceIn(b, b.Context(), "", fails, contenders)
}

// raceIn is race in a context other than the usual one, which can be
// cancelled, and with a prefix to the names.
func raceIn(b *testing.B, ctx context.Context, prefix string, fails int, contenders []contender) {
	for _, c := range contenders {
		b.Run(prefix+c.name, func(b *testing.B) {
			w := work{err: c.err, fails: fails}
			b.ReportAllocs()
			for b.Loop() {
				w.calls = 0
				if v, err := c.run(ctx, &w); v != 1 || err != nil {
					b.Fatal(v, err)
				}
			}
			if w.calls != fails+1 {
				b.Fatalf("%d calls, not %d", w.calls, fails+1)
			}
		})
	}
}

func direct(_ context.Context, w *work) (int, error) { return w.do() }

// floorAttempts is the tightest loop that keeps to a number of attempts.
//
//go:noinline
func floorAttempts(ctx context.Context, limit int, op func(context.Context) (int, error)) (int, error) {
	for n := 1; ; n++ {
		v, err := op(ctx)
		if err == nil || n == limit || ctx.Err() != nil {
			return v, err
		}
	}
}

// anchor makes clock a monotonic difference, which is half the price of
// time.Now.
var anchor = time.Now()

func clock() time.Duration { return time.Since(anchor) }

// floorContext is the least that can tell an op about its deadline.
type floorContext struct {
	context.Context
	end time.Duration
}

func (c *floorContext) Deadline() (time.Time, bool) { return anchor.Add(c.end), true }

func (c *floorContext) Err() error {
	if clock() >= c.end {
		return context.DeadlineExceeded
	}
	return c.Context.Err()
}

// floorDeadline is the tightest loop that keeps to attempts and a deadline,
// draws its waits with full jitter, and knows what may be repeated.
//
//go:noinline
func floorDeadline(ctx context.Context, limit int, within, base time.Duration, sleep func(context.Context, time.Duration) error, op func(context.Context) (int, error)) (int, error) {
	c := &floorContext{ctx, clock() + within}
	window := base
	var timer *time.Timer
	for n := 1; ; n++ {
		v, err := op(c)
		if err == nil || n == limit {
			return v, err
		}
		if f, ok := errors.AsType[flaky](err); !ok || !f.RetryableError() {
			return v, err
		}
		if ctx.Err() != nil {
			return v, ctx.Err()
		}
		wait := time.Duration(rand.Float64() * float64(window))
		window = min(2*window, 30*time.Second)
		if clock()+wait >= c.end {
			return v, err
		}
		if sleep != nil {
			if err := sleep(ctx, wait); err != nil {
				return v, err
			}
			continue
		}
		if timer == nil {
			timer = time.NewTimer(wait)
			defer timer.Stop()
		} else {
			timer.Reset(wait)
		}
		select {
		case <-timer.C:
		case <-ctx.Done():
			return v, ctx.Err()
		}
	}
}

func noWait(context.Context, time.Duration) error { return nil }

// at is a timer for avast that has always fired.
type at struct{ c chan time.Time }

func newAt() at {
	c := make(chan time.Time)
	close(c)
	return at{c}
}

func (t at) After(time.Duration) <-chan time.Time { return t.c }

// The libraries, each as its documentation says, with what may be shared
// between operations made beforehand.

func ours(p *retry.Policy) func(context.Context, *work) (int, error) {
	return func(ctx context.Context, w *work) (int, error) {
		return retry.Do(ctx, p, func(context.Context) (int, error) { return w.do() })
	}
}

// seth builds the backoff in the call: its state counts the attempts, so that
// two operations must not share it.
func seth(wait time.Duration) func(context.Context, *work) (int, error) {
	return func(ctx context.Context, w *work) (int, error) {
		b := sethvargo.WithMaxRetries(attempts-1, sethvargo.NewConstant(wait))
		return sethvargo.DoValue(ctx, b, func(context.Context) (int, error) { return w.do() })
	}
}

// sethShared shares one, as it must not be.
func sethShared() func(context.Context, *work) (int, error) {
	b := sethvargo.WithMaxRetries(attempts-1, sethvargo.NewConstant(1))
	return func(ctx context.Context, w *work) (int, error) {
		return sethvargo.DoValue(ctx, b, func(context.Context) (int, error) { return w.do() })
	}
}

func eapache(wait time.Duration) func(context.Context, *work) (int, error) {
	r := retrier.New(retrier.ConstantBackoff(attempts-1, wait), nil)
	return func(ctx context.Context, w *work) (v int, err error) {
		err = r.RunCtx(ctx, func(context.Context) error { v, err = w.do(); return err })
		return v, err
	}
}

// avastShared is made once, as its documentation advises for many operations.
func avastShared(opts ...avast.Option) func(context.Context, *work) (int, error) {
	r := avast.NewWithData[int](avastOptions(opts)...)
	return func(_ context.Context, w *work) (int, error) {
		return r.Do(func() (int, error) { return w.do() })
	}
}

// avastPerContext is made anew because its context is an option.
func avastPerContext(opts ...avast.Option) func(context.Context, *work) (int, error) {
	opts = avastOptions(opts)
	opts = opts[:len(opts):len(opts)]
	return func(ctx context.Context, w *work) (int, error) {
		return avast.NewWithData[int](append(opts, avast.Context(ctx))...).Do(func() (int, error) { return w.do() })
	}
}

func avastOptions(opts []avast.Option) []avast.Option {
	return append([]avast.Option{avast.Attempts(attempts), avast.Delay(1), avast.DelayType(avast.FixedDelay)}, opts...)
}

func gaxed(wait time.Duration) func(context.Context, *work) (int, error) {
	retryer := gax.WithRetry(func() gax.Retryer {
		return gax.OnErrorFunc(gax.Backoff{Initial: wait, Max: wait, Multiplier: 1}, func(err error) bool { return errors.Is(err, errFlaky) })
	})
	return func(ctx context.Context, w *work) (v int, err error) {
		err = gax.Invoke(ctx, func(context.Context, gax.CallSettings) error { v, err = w.do(); return err }, retryer)
		return v, err
	}
}

func cenkaltiV5(wait, within time.Duration) func(context.Context, *work) (int, error) {
	opts := []backoffv5.RetryOption{
		backoffv5.WithBackOff(backoffv5.NewConstantBackOff(wait)),
		backoffv5.WithMaxTries(attempts), backoffv5.WithMaxElapsedTime(within),
	}
	return func(ctx context.Context, w *work) (int, error) {
		return backoffv5.Retry(ctx, func() (int, error) { return w.do() }, opts...)
	}
}

func cenkaltiV6(wait, within time.Duration) func(context.Context, *work) (int, error) {
	opts := []backoffv6.RetryOption{
		backoffv6.WithBackOff(backoffv6.NewConstantBackOff(wait)),
		backoffv6.WithMaxTries(attempts), backoffv6.WithMaxElapsedTime(within),
	}
	return func(ctx context.Context, w *work) (int, error) {
		return backoffv6.Retry(ctx, func() (int, error) { return w.do() }, opts...)
	}
}

func failsafed(wait time.Duration, more ...failsafe.Policy[int]) func(context.Context, *work) (int, error) {
	b := retrypolicy.NewBuilder[int]().WithMaxAttempts(attempts)
	if wait > 0 {
		b = b.WithDelay(wait)
	}
	e := failsafe.With(append(more, b.Build())...)
	return func(ctx context.Context, w *work) (int, error) {
		return e.WithContext(ctx).Get(w.do)
	}
}

func awsed(wait time.Duration) func(context.Context, *work) (int, error) {
	m := awsretry.NewAttemptMiddleware(awsretry.NewStandard(func(o *awsretry.StandardOptions) {
		o.MaxAttempts, o.RateLimiter = attempts, ratelimit.None
		o.Backoff = awsretry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return wait, nil })
	}), func(req any) any { return req })
	return func(ctx context.Context, w *work) (int, error) {
		out, _, err := m.HandleFinalize(ctx, middleware.FinalizeInput{}, middleware.FinalizeHandlerFunc(
			func(context.Context, middleware.FinalizeInput) (out middleware.FinalizeOutput, _ middleware.Metadata, err error) {
				out.Result, err = w.do()
				return out, middleware.Metadata{}, err
			}))
		v, _ := out.Result.(int)
		return v, err
	}
}

// within puts a deadline around a library that has none of its own.
func within(run func(context.Context, *work) (int, error)) func(context.Context, *work) (int, error) {
	return func(ctx context.Context, w *work) (int, error) {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		return run(ctx, w)
	}
}

// First-attempt success, a limit of attempts only, the policy in a variable:
// in a context that nothing ends, and in one that can be cancelled, which costs
// those who look at it before they begin.
func BenchmarkSuccess(b *testing.B) {
	contenders := []contender{
		{"direct", nil, direct},
		{"floor", nil, func(ctx context.Context, w *work) (int, error) {
			return floorAttempts(ctx, attempts, func(context.Context) (int, error) { return w.do() })
		}},
		{"retry", nil, ours(&retry.Policy{MaxElapsed: -1})},
		{"sethvargo, shared (wrong)", nil, sethShared()},
		{"sethvargo", nil, seth(1)},
		{"eapache", nil, eapache(1)},
		{"avast", nil, avastShared()},
		{"avast, per ctx", nil, avastPerContext()},
		{"gax", nil, gaxed(1)},
		{"cenkalti v5", nil, cenkaltiV5(1, 0)},
		{"cenkalti v6", nil, cenkaltiV6(1, 0)},
		{"failsafe", nil, failsafed(0)},
		{"aws", nil, awsed(0)},
	}
	raceIn(b, context.Background(), "Background/", 0, contenders)
	raceIn(b, b.Context(), "Cancellable/", 0, contenders)
}

// The same with the policy written in the call, as first examples do.
func BenchmarkSuccessLiteral(b *testing.B) {
	race(b, 0, []contender{
		{"floor", nil, func(ctx context.Context, w *work) (int, error) {
			return floorAttempts(ctx, attempts, func(context.Context) (int, error) { return w.do() })
		}},
		{"retry", nil, func(ctx context.Context, w *work) (int, error) {
			return retry.Do(ctx, &retry.Policy{MaxElapsed: -1}, func(context.Context) (int, error) { return w.do() })
		}},
	})
}

// The same with a deadline that is in force and that op is given.
func BenchmarkSuccessDeadline(b *testing.B) {
	race(b, 0, []contender{
		{"context.WithTimeout", nil, within(direct)},
		{"floor", nil, func(ctx context.Context, w *work) (int, error) {
			return floorDeadline(ctx, attempts, 30*time.Second, 1, nil, func(context.Context) (int, error) { return w.do() })
		}},
		{"retry", nil, ours(nil)},
		{"eapache", nil, within(eapache(1))},
		{"avast, per ctx", nil, within(avastPerContext())},
		{"sethvargo", nil, within(seth(1))},
		{"cenkalti v6", nil, within(cenkaltiV6(1, 0))},
		{"failsafe, its Timeout", nil, failsafed(0, timeout.New[int](30*time.Second))},
	})
}

// The same, and op asks its context for Done, as any network call does.
func BenchmarkSuccessDone(b *testing.B) {
	race(b, 0, []contender{
		{"context.WithTimeout", nil, func(ctx context.Context, w *work) (int, error) {
			ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			ctx.Done()
			return w.do()
		}},
		{"retry", nil, func(ctx context.Context, w *work) (int, error) {
			return retry.Do(ctx, nil, func(ctx context.Context) (int, error) { ctx.Done(); return w.do() })
		}},
		{"eapache", nil, func(ctx context.Context, w *work) (v int, err error) {
			ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			err = eapacheRetrier.RunCtx(ctx, func(ctx context.Context) error { ctx.Done(); v, err = w.do(); return err })
			return v, err
		}},
	})
}

var eapacheRetrier = retrier.New(retrier.ConstantBackoff(attempts-1, 1), nil)

// Three failures, then success, and nothing sleeps. Only avast lets its
// sleeper be replaced; it has attempts alone, ours and the floor a deadline,
// too.
func BenchmarkFailures(b *testing.B) {
	race(b, 3, []contender{
		{"floor", errFlaky, func(ctx context.Context, w *work) (int, error) {
			return floorDeadline(ctx, attempts, 30*time.Second, 200*time.Millisecond, noWait, func(context.Context) (int, error) { return w.do() })
		}},
		{"retry", transient, ours(&retry.Policy{Sleep: noWait})},
		{"avast, last error only", errFlaky, avastShared(avast.WithTimer(newAt()), avast.LastErrorOnly(true))},
		{"avast", errFlaky, avastShared(avast.WithTimer(newAt()))},
	})
}

// The same with the real timers of each, of 1 ns.
func BenchmarkFailuresTimers(b *testing.B) {
	race(b, 3, []contender{
		{"floor", errFlaky, func(ctx context.Context, w *work) (int, error) {
			return floorDeadline(ctx, attempts, 30*time.Second, 1, nil, func(context.Context) (int, error) { return w.do() })
		}},
		{"retry", transient, ours(&retry.Policy{Backoff: retry.Backoff{Base: 1, Multiplier: 1, Jitter: retry.NoJitter}})},
		{"eapache", errFlaky, eapache(1)},
		{"avast", errFlaky, avastShared()},
		{"cenkalti v5", errFlaky, cenkaltiV5(1, 30*time.Second)},
		{"cenkalti v6", errFlaky, cenkaltiV6(1, 30*time.Second)},
		{"sethvargo", retryable, seth(1)},
		{"gax", errFlaky, gaxed(1)},
		{"failsafe", errFlaky, failsafed(1)},
		{"aws", errFlaky, awsed(1)},
	})
}

// A million failures in one operation.
func BenchmarkMillionFailures(b *testing.B) {
	const fails = 1_000_000
	race(b, fails, []contender{
		{"retry", transient, ours(&retry.Policy{MaxAttempts: -1, Backoff: retry.Backoff{Base: -1}, Sleep: noWait})},
		{"avast, last error only", errFlaky, avastShared(avast.Attempts(fails+1), avast.WithTimer(newAt()), avast.LastErrorOnly(true))},
		{"avast", errFlaky, avastShared(avast.Attempts(fails+1), avast.WithTimer(newAt()))},
	})
}
