package retry_test

// The loop: what it decides, in which order, on both sides of every limit.
// Helpers are in testhelp_test.go.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3d0f8764/retry"
)

// readBudget is the 12-second read budget: five attempts of 1.5 s, full
// jitter over 0.5, 1, 2 and 4 s, no spread.
func readBudget() retry.Policy {
	return retry.Policy{
		Name:           "balance",
		Effect:         retry.ReadOnly,
		Backoff:        retry.Backoff{Base: 500 * ms, Cap: 4 * time.Second, Multiplier: 2, Jitter: retry.FullJitter},
		Spread:         -1,
		MaxAttempts:    5,
		MaxElapsed:     12 * time.Second,
		AttemptTimeout: 1500 * ms,
	}
}

var (
	errTimedOut  = fmt.Errorf("read balance: %w", context.DeadlineExceeded)
	errThrottled = &retry.StatusError{Method: "GET", Code: 429, After: 2 * time.Second}
)

// readBudgetOutcomes: 1 times out, 2 is throttled after 0.3, the rest time out.
func readBudgetOutcomes(clock *clock) *script {
	return clock.script(failure(1500*ms, errTimedOut), failure(300*ms, errThrottled), failure(1500*ms, errTimedOut))
}

// acceptance.md, "The 12-second read budget": the table, to the digit.
func TestReadBudgetOf12Seconds(t *testing.T) {
	clock, watch := newClock(), &watcher{}
	op := readBudgetOutcomes(clock)
	p := readBudget()
	p.Observe, p.Keep = watch.Observe, 3
	clock.drive(t, &p, 0.8, 0.6, 0.6, 0.6)

	v, err := retry.Do(t.Context(), &p, op.Do)

	at := func(s float64) time.Time { return clock.start.Add(seconds(s)) }
	want := []retry.Record{{
		Operation: "balance", Attempt: 1, Start: at(0), Duration: seconds(1.5), Timeout: seconds(1.5),
		Err: errTimedOut, Class: retry.ClassUnknown, Effect: retry.ReadOnly,
		Window: seconds(0.5), Draw: 0.8, OwnWait: seconds(0.4), Wait: seconds(0.4),
		Elapsed: seconds(1.5), TimeLeft: seconds(10.5), AttemptsLeft: 4, Decision: retry.Retrying,
	}, {
		Operation: "balance", Attempt: 2, Start: at(1.9), Duration: seconds(0.3), Timeout: seconds(1.5),
		Err: errThrottled, Class: retry.ClassThrottled, Effect: retry.ReadOnly,
		Window: seconds(1), Draw: 0.6, OwnWait: seconds(0.6), Hint: seconds(2), Wait: seconds(2),
		Elapsed: seconds(2.2), TimeLeft: seconds(9.8), AttemptsLeft: 3, Decision: retry.Retrying,
	}, {
		Operation: "balance", Attempt: 3, Start: at(4.2), Duration: seconds(1.5), Timeout: seconds(1.5),
		Err: errTimedOut, Class: retry.ClassUnknown, Effect: retry.ReadOnly,
		Window: seconds(2), Draw: 0.6, OwnWait: seconds(1.2), Wait: seconds(1.2),
		Elapsed: seconds(5.7), TimeLeft: seconds(6.3), AttemptsLeft: 2, Decision: retry.Retrying,
	}, {
		Operation: "balance", Attempt: 4, Start: at(6.9), Duration: seconds(1.5), Timeout: seconds(1.5),
		Err: errTimedOut, Class: retry.ClassUnknown, Effect: retry.ReadOnly,
		Window: seconds(4), Draw: 0.6, OwnWait: seconds(2.4), Wait: seconds(2.4),
		Elapsed: seconds(8.4), TimeLeft: seconds(3.6), AttemptsLeft: 1, Decision: retry.GaveUp, Reason: retry.ErrDeadline,
	}}
	require.Equal(t, want, watch.Records())
	require.Equal(t, []time.Duration{0, seconds(1.9), seconds(4.2), seconds(6.9)}, op.Starts())
	require.Equal(t, []time.Duration{seconds(0.4), seconds(2), seconds(1.2)}, clock.Slept())
	require.Equal(t, seconds(8.4), clock.Elapsed(), "it returns at 8.4")

	require.Equal(t, 4, v, "the last value comes with the error")
	e := stopped(t, err)
	require.Equal(t, retry.ErrDeadline, e.Reason)
	require.Equal(t, "balance", e.Operation)
	require.Equal(t, 4, e.Attempts)
	require.Equal(t, seconds(8.4), e.Elapsed)
	require.Zero(t, e.RetryAt, "the last answer had no hint")
	require.Equal(t, errTimedOut, e.Last)
	require.Equal(t, want[1:], e.Records)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, retry.ErrUnknownOutcome, "it is ReadOnly")
	require.EqualError(t, err, "retry: balance: gave up after 4 attempts in 8.4s: "+
		"the next would end 300ms past the deadline: read balance: context deadline exceeded")
}

// With MinTimeout 1, attempt 5 starts at 10.8 and is given the 1.2 that are left.
func TestReadBudgetWithMinTimeoutOfOneSecond(t *testing.T) {
	clock, watch := newClock(), &watcher{}
	op := clock.script(failure(1500*ms, errTimedOut), failure(300*ms, errThrottled),
		failure(1500*ms, errTimedOut), failure(1500*ms, errTimedOut), failure(1200*ms, errTimedOut))
	p := readBudget()
	p.MinTimeout, p.Observe = time.Second, watch.Observe
	clock.drive(t, &p, 0.8, 0.6, 0.6, 0.6)

	_, err := retry.Do(t.Context(), &p, op.Do)

	require.Equal(t, []time.Duration{0, seconds(1.9), seconds(4.2), seconds(6.9), seconds(10.8)}, op.Starts())
	require.Equal(t, seconds(1.2), watch.Last().Timeout)
	require.Equal(t, time.Duration(0), watch.Last().TimeLeft)
	require.EqualError(t, err, "retry: balance: gave up after 5 attempts in 12s: "+
		"no attempts left: read balance: context deadline exceeded")
}

// The same table with the clock and the sleeper that are used by default: the
// attempts time out by their own contexts.
func TestReadBudgetByTheDefaultClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var starts, given []time.Duration
		p := readBudget()
		p.Rand = draws(t, 0.8, 0.6, 0.6, 0.6)
		_, err := retry.Do(t.Context(), &p, func(ctx context.Context) (int, error) {
			starts = append(starts, time.Since(begin))
			until, ok := ctx.Deadline()
			require.True(t, ok)
			given = append(given, time.Until(until))
			require.Equal(t, len(starts), retry.Attempt(ctx))
			if len(starts) == 2 {
				time.Sleep(300 * ms)
				return 0, errThrottled
			}
			<-ctx.Done()
			return 0, ctx.Err()
		})
		require.Equal(t, []time.Duration{0, seconds(1.9), seconds(4.2), seconds(6.9)}, starts)
		require.Equal(t, []time.Duration{seconds(1.5), seconds(1.5), seconds(1.5), seconds(1.5)}, given)
		require.Equal(t, seconds(8.4), time.Since(begin))
		require.EqualError(t, err, "retry: balance: gave up after 4 attempts in 8.4s: "+
			"the next would end 300ms past the deadline: context deadline exceeded")
	})
}

// The attempt's context speaks real time, whatever the injected clock shows:
// what is left on Clock, from the real now.
func TestAttemptDeadlineIsWhatIsLeftOnTheInjectedClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := newClock()
		var given []time.Duration
		p := readBudget()
		p.MinTimeout = time.Second
		clock.drive(t, &p, 0.8, 0.6, 0.6, 0.6)
		op := readBudgetOutcomes(clock)
		_, err := retry.Do(t.Context(), &p, func(ctx context.Context) (int, error) {
			until, _ := ctx.Deadline()
			given = append(given, time.Until(until))
			return op.Do(ctx)
		})
		require.ErrorIs(t, err, retry.ErrAttempts)
		require.Equal(t, []time.Duration{seconds(1.5), seconds(1.5), seconds(1.5), seconds(1.5), seconds(1.2)}, given)
	})
}

// A hint of 60 with 8 left: nothing slept, nothing shortened, and it says
// when to come back.
func TestHintLongerThanTheTimeLeftStopsAtOnce(t *testing.T) {
	clock, watch := newClock(), &watcher{}
	op := clock.script(failure(4*time.Second, &retry.StatusError{Code: 429, After: time.Minute}))
	p := retry.Policy{MaxElapsed: 12 * time.Second, AttemptTimeout: 5 * time.Second, Observe: watch.Observe}
	clock.drive(t, &p, 0.5, 0.9) // the spread is drawn even at width 0

	_, err := retry.Do(t.Context(), &p, op.Do)

	e := stopped(t, err)
	require.Equal(t, 1, op.Calls())
	require.Empty(t, clock.Slept())
	require.Equal(t, retry.ErrDeadline, e.Reason)
	require.Equal(t, clock.start.Add(64*time.Second), e.RetryAt)
	require.EqualError(t, err, "retry: gave up after 1 attempt in 4s: the server asks for 1m0s: the next would end 57s past the deadline: status 429")
	r := watch.Last()
	require.Equal(t, time.Minute, r.Hint)
	require.Equal(t, time.Duration(0), r.Spread)
	require.Equal(t, time.Minute, r.Wait)
	require.Equal(t, 8*time.Second, r.TimeLeft)
}

// RetryAt is the clock at the attempt's end plus the hint, of the last failure
// only; it outlives whatever ends the operation between attempts.
func TestRetryAtIsOfTheLastFailure(t *testing.T) {
	hinted := retry.Throttled(errOp, 3*time.Second)
	for _, c := range []struct {
		name    string
		steps   []step
		retryAt float64 // from the start; <0: none
	}{
		{"hint of the last", []step{failure(time.Second, errTimedOut), failure(time.Second, hinted)}, 5.1},
		{"hint of an earlier one", []step{failure(time.Second, hinted), failure(time.Second, errTimedOut)}, -1},
		{"no hint", []step{failure(time.Second, errTimedOut)}, -1},
		{"permanent with a hint", []step{failure(time.Second, &retry.StatusError{Code: 403, After: 7 * time.Second})}, 8},
		{"suspended", []step{failure(time.Second, retry.Suspended(errOp, time.Hour))}, 3601},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := newClock()
			p := retry.Policy{Effect: retry.ReadOnly, MaxAttempts: 2, Spread: -1, Backoff: retry.Backoff{Base: 100 * ms, Jitter: retry.NoJitter}}
			p.Clock, p.Sleep = clock.Now, clock.Sleep
			_, err := retry.Do(t.Context(), &p, clock.script(c.steps...).Do)
			want := time.Time{}
			if c.retryAt >= 0 {
				want = clock.start.Add(seconds(c.retryAt))
			}
			require.Equal(t, want, stopped(t, err).RetryAt)
		})
	}
	t.Run("wait cancelled", func(t *testing.T) {
		clock := newClock()
		ctx, cancel := context.WithCancel(t.Context())
		p := retry.Policy{Clock: clock.Now, Sleep: func(context.Context, time.Duration) error { cancel(); return context.Canceled }}
		_, err := retry.Do(ctx, &p, clock.script(failure(time.Second, hinted)).Do)
		require.Equal(t, clock.start.Add(4*time.Second), stopped(t, err).RetryAt)
	})
	t.Run("woken late", func(t *testing.T) {
		clock := newClock()
		p := retry.Policy{MaxElapsed: 10 * time.Second, Clock: clock.Now, Sleep: func(context.Context, time.Duration) error { clock.Advance(time.Hour); return nil }}
		_, err := retry.Do(t.Context(), &p, clock.script(failure(time.Second, hinted)).Do)
		require.Equal(t, clock.start.Add(4*time.Second), stopped(t, err).RetryAt)
	})
}

// AttemptTimeout 60 with MaxElapsed 30: attempt 1 is made, with 30; a retry
// must have half of the 30.
func TestAttemptTimeoutLongerThanMaxElapsed(t *testing.T) {
	for _, c := range []struct {
		took  time.Duration
		calls int
	}{{15*time.Second - 100*ms, 2}, {15*time.Second - 100*ms + 1, 1}} {
		clock, watch := newClock(), &watcher{}
		op := clock.script(failure(c.took, errTimedOut), failure(time.Second, errTimedOut))
		p := retry.Policy{Effect: retry.ReadOnly, MaxAttempts: 2, AttemptTimeout: time.Minute, Observe: watch.Observe,
			Clock: clock.Now, Sleep: clock.Sleep, Rand: constant(0.5)}
		_, err := retry.Do(t.Context(), &p, op.Do)
		require.Equal(t, c.calls, op.Calls())
		require.Equal(t, 30*time.Second, watch.Records()[0].Timeout)
		if c.calls == 2 {
			require.Equal(t, 15*time.Second, watch.Last().Timeout)
		} else {
			require.ErrorIs(t, err, retry.ErrDeadline)
		}
	}
}

// Woken late: the sleeper overshoots so far that the attempt no longer fits.
func TestWokenTooLateSendsNothing(t *testing.T) {
	for _, c := range []struct {
		name  string
		least time.Duration
		over  time.Duration // beyond the wait of 1s, after an attempt of 1s, deadline at 10s
		calls int
		text  string
	}{
		{"just in time to end", 2 * time.Second, 6 * time.Second, 2, ""},
		{"1ns too late to end", 2 * time.Second, 6*time.Second + 1, 1, "the next would end 1ns past the deadline"},
		{"1ns before the deadline", -1, 8*time.Second - 1, 2, ""},
		{"at the deadline", -1, 8 * time.Second, 1, "the deadline has passed"},
		{"past the deadline", 2 * time.Second, time.Hour, 1, "the deadline has passed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock, watch, budget := newClock(), &watcher{}, &purse{tokens: 1}
			op := clock.script(failure(time.Second, retry.Transient(errOp)), success(0))
			p := retry.Policy{Name: "late", MaxElapsed: 10 * time.Second, MinTimeout: c.least, Observe: watch.Observe, Budget: budget,
				Backoff: retry.Backoff{Base: time.Second, Jitter: retry.NoJitter}}
			clock.drive(t, &p, 0)
			p.Sleep = func(ctx context.Context, d time.Duration) error {
				defer clock.Advance(c.over)
				return clock.Sleep(ctx, d)
			}
			_, err := retry.Do(t.Context(), &p, op.Do)
			require.Equal(t, c.calls, op.Calls())
			if c.calls == 2 {
				require.NoError(t, err)
				return
			}
			e := stopped(t, err)
			require.Equal(t, retry.ErrDeadline, e.Reason)
			require.Equal(t, 1, e.Attempts)
			require.Equal(t, 2*time.Second+c.over, e.Elapsed)
			require.Equal(t, errOp, errors.Unwrap(e.Last))
			require.EqualError(t, err, fmt.Sprintf("retry: late: gave up after 1 attempt in %v: %s: op failed", e.Elapsed.Round(time.Millisecond), c.text))
			require.Equal(t, 1, budget.Tokens(), "the token of the retry that was not sent is back")
			require.Equal(t, retry.Record{
				Operation: "late", Attempt: 1, Start: clock.Now(), Elapsed: e.Elapsed,
				TimeLeft: max(0, 10*time.Second-e.Elapsed), AttemptsLeft: 4, Decision: retry.GaveUp, Reason: retry.ErrDeadline,
			}, watch.Last())
		})
	}
}

// Whatever set of reasons holds at once, the first in this order is the one
// given: ctx done, class, attempts, allowance, hint, deadline, budget. What comes
// after it is not even asked, and nothing is slept, sent or kept.
func TestTheFirstReasonInOrderWins(t *testing.T) {
	const (
		ctxDone = 1 << iota
		class
		attempts
		allowance
		hint
		deadline
		budget
		all
	)
	reasons := []struct {
		reason error
		why    string
	}{
		{retry.ErrCanceled, "context canceled"},
		{retry.ErrPermanent, "permanent"},
		{retry.ErrAttempts, "no attempts left"},
		{retry.ErrAttempts, "the allowance of outer is spent"},
		{retry.ErrHint, "the server asks for 1m1s, MaxHint is 1m0s"},
		{retry.ErrDeadline, "the next would start at the deadline"},
		{retry.ErrBudget, "the local retry budget refuses: purse is empty"},
	}
	for holds := range all {
		clock, watch, purse := newClock(), &watcher{}, &purse{tokens: 1}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		failed := &retry.StatusError{Code: 429, After: 5 * time.Second}
		p := retry.Policy{MaxElapsed: 10 * time.Minute, MaxAttempts: 2, Budget: purse, Observe: watch.Observe}
		outer := retry.Policy{Name: "outer", MaxAttempts: 2, Keep: 1}
		drawn := 0
		p.Clock, p.Sleep = clock.Now, clock.Sleep
		p.Rand = func() float64 { drawn++; return 0.5 }
		if holds&class != 0 {
			failed.Code = 403
		}
		if holds&attempts != 0 {
			p.MaxAttempts = 1
		}
		if holds&allowance != 0 {
			outer.MaxAttempts = 1
		}
		if holds&hint != 0 {
			failed.After = 61 * time.Second
		}
		if holds&deadline != 0 {
			p.MaxElapsed = 5 * time.Second
		}
		if holds&budget != 0 {
			purse.tokens = 0
		}
		calls := 0
		_, outerErr := retry.Do(ctx, &outer, func(ctx context.Context) (int, error) {
			return retry.Do(ctx, &p, func(context.Context) (int, error) {
				calls++
				if calls > 1 {
					return 0, nil
				}
				if holds&ctxDone != 0 {
					cancel()
				}
				return 0, failed
			})
		})
		if holds == 0 {
			require.NoError(t, outerErr)
			require.Equal(t, 2, calls)
			continue
		}
		first := 0
		for holds>>first&1 == 0 {
			first++
		}
		e := stopped(t, outerErr)
		inner, ok := errors.AsType[*retry.Error](e.Last)
		require.True(t, ok)
		require.Equal(t, reasons[first].reason, inner.Reason, "%07b", holds)
		require.Contains(t, inner.Error(), ": "+reasons[first].why+": ", "%07b", holds)
		require.Equal(t, 1, calls, "%07b", holds)
		require.Empty(t, clock.Slept(), "%07b", holds)
		require.Equal(t, clock.start.Add(failed.After), inner.RetryAt, "%07b", holds)
		require.Equal(t, reasons[first].reason, watch.Last().Reason, "%07b", holds)

		wantDrawn, wantLog := 0, []string(nil)
		if first >= 5 {
			wantDrawn = 2
		}
		if first == 6 {
			wantLog = []string{"refuse throttled unstated 5s 1"}
		}
		require.Equal(t, wantDrawn, drawn, "%07b", holds)
		require.Equal(t, wantLog, purse.Log(), "%07b", holds)
		require.Equal(t, outer.MaxAttempts-1, e.Records[0].AttemptsLeft, "no retry of the outer is kept: %07b", holds)
	}
}

// Each class that ends an operation comes before the attempts.
func TestClassOutranksAttempts(t *testing.T) {
	for _, c := range []struct {
		name   string
		effect retry.Effect
		err    error
		reason error
		why    string
	}{
		{"unclassified", retry.ReadOnly, errOp, retry.ErrUnclassified, "no rule knows *errors.errorString (see retry.ErrUnclassified; retry.Always if harmless)"},
		{"permanent", retry.ReadOnly, retry.Permanent(errOp), retry.ErrPermanent, "permanent"},
		{"suspended", retry.ReadOnly, retry.Suspended(errOp, 0), retry.ErrSuspended, "suspended"},
		{"suspended for a time", retry.ReadOnly, retry.Suspended(errOp, time.Hour), retry.ErrSuspended, "suspended for 1h0m0s"},
		{"unknown mutation", retry.Mutation, retry.Unknown(errOp), retry.ErrUnknownOutcome, "outcome unknown, it may have been applied and is not safe to repeat"},
		{"unknown and unstated", retry.Unstated, retry.Unknown(errOp), retry.ErrUnknownOutcome, "outcome unknown, it may have been applied and is not safe to repeat"},
		{"unknown idempotent", retry.Idempotent, retry.Unknown(errOp), retry.ErrAttempts, "no attempts left; outcome unknown, it may have been applied"},
		{"unknown read", retry.ReadOnly, retry.Unknown(errOp), retry.ErrAttempts, "no attempts left"},
		{"transient mutation", retry.Mutation, retry.Transient(errOp), retry.ErrAttempts, "no attempts left"},
		{"throttled mutation", retry.Mutation, retry.Throttled(errOp, 0), retry.ErrAttempts, "no attempts left"},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := newClock()
			for limit := 1; limit <= 3; limit++ {
				op := clock.script(failure(0, c.err))
				p := retry.Policy{Effect: c.effect, MaxAttempts: limit, Clock: clock.Now, Sleep: clock.Sleep, Rand: constant(0)}
				_, err := retry.Do(t.Context(), &p, op.Do)
				calls, attempts := 1, "1 attempt"
				verb := "stopped"
				if c.reason == retry.ErrAttempts {
					verb = "gave up"
					if calls = limit; calls > 1 {
						attempts = fmt.Sprint(calls, " attempts")
					}
				}
				require.Equal(t, calls, op.Calls())
				require.Equal(t, c.reason, stopped(t, err).Reason)
				require.EqualError(t, err, fmt.Sprintf("retry: %s after %s in 0s: %s: op failed", verb, attempts, c.why))
			}
		})
	}
}

// A retry must start before the deadline and, with the least time that is
// worth it, end at the deadline at the latest.
func TestDeadlineAdmitsOnBothSides(t *testing.T) {
	const limit = 10 * time.Second
	for _, c := range []struct {
		name    string
		timeout time.Duration // AttemptTimeout
		least   time.Duration // MinTimeout
		start   time.Duration // of the retry
		admit   bool
		why     string
	}{
		{"starts 1ns before the deadline", 0, -1, limit - 1, true, ""},
		{"starts at the deadline", 0, -1, limit, false, "the next would start at the deadline"},
		{"starts 1ns past the deadline", 0, -1, limit + 1, false, "the next would start 1ns past the deadline"},
		{"default without timeout: starts 1ns before", 0, 0, limit - 1, true, ""},
		{"default without timeout: starts at it", 0, 0, limit, false, "the next would start at the deadline"},
		{"ends at the deadline", 0, time.Second, limit - time.Second, true, ""},
		{"ends 1ns past the deadline", 0, time.Second, limit - time.Second + 1, false, "the next would end 1ns past the deadline"},
		{"default is AttemptTimeout: ends at it", 3 * time.Second, 0, limit - 3*time.Second, true, ""},
		{"default is AttemptTimeout: 1ns past it", 3 * time.Second, 0, limit - 3*time.Second + 1, false, "the next would end 1ns past the deadline"},
		{"half of the time is less: ends at it", 8 * time.Second, 0, limit / 2, true, ""},
		{"half of the time is less: 1ns past it", 8 * time.Second, 0, limit/2 + 1, false, "the next would end 1ns past the deadline"},
		{"off with a timeout: starts 1ns before", 3 * time.Second, -1, limit - 1, true, ""},
		{"off with a timeout: starts at it", 3 * time.Second, math.MinInt64, limit, false, "the next would start at the deadline"},
		{"stated beside a timeout: ends at it", 3 * time.Second, 4 * time.Second, limit - 4*time.Second, true, ""},
		{"stated beside a timeout: 1ns past it", 3 * time.Second, 4 * time.Second, limit - 4*time.Second + 1, false, "the next would end 1ns past the deadline"},
		{"all of the time: no retry", 0, limit, 1, false, "the next would end 1ns past the deadline"},
		{"all of the time, at once", 0, limit, 0, true, ""},
		{"the longest", 0, math.MaxInt64, 1, false, "the next would end " + (math.MaxInt64 - limit + 1).String() + " past the deadline"},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock, watch := newClock(), &watcher{}
			wait := c.start / 4
			op := clock.script(failure(c.start-wait, retry.Transient(errOp)), success(0))
			base := wait
			if wait == 0 {
				base = -1
			}
			p := retry.Policy{MaxElapsed: limit, AttemptTimeout: c.timeout, MinTimeout: c.least, Observe: watch.Observe,
				Backoff: retry.Backoff{Base: base, Jitter: retry.NoJitter}}
			clock.drive(t, &p, 0)
			_, err := retry.Do(t.Context(), &p, op.Do)
			if c.admit {
				require.NoError(t, err)
				require.Equal(t, []time.Duration{0, c.start}, op.Starts())
				left := limit - c.start
				if c.timeout > 0 {
					left = min(left, c.timeout)
				}
				require.Equal(t, left, watch.Last().Timeout, "attempt 2 is given what is left, or its timeout")
				return
			}
			require.Equal(t, 1, op.Calls())
			require.Empty(t, clock.Slept())
			require.Equal(t, retry.ErrDeadline, stopped(t, err).Reason)
			require.Equal(t, wait, watch.Last().Wait, "what it would have slept")
			require.ErrorContains(t, err, ": "+c.why+": op failed")
		})
	}
}

// Attempt 1 starts whenever there is any time at all: MinTimeout is about retries.
func TestFirstAttemptStartsWheneverThereIsTime(t *testing.T) {
	for _, c := range []struct {
		p     retry.Policy
		given time.Duration
	}{
		{retry.Policy{MaxElapsed: 1}, 1},
		{retry.Policy{MaxElapsed: 1, MinTimeout: time.Hour}, 1},
		{retry.Policy{MaxElapsed: 1, AttemptTimeout: time.Hour}, 1},
		{retry.Policy{MaxElapsed: time.Second, AttemptTimeout: time.Second}, time.Second},
		{retry.Policy{MaxElapsed: -1}, 0},
		{retry.Policy{MaxElapsed: -1, AttemptTimeout: time.Second}, time.Second},
		{retry.Policy{AttemptTimeout: -1}, 30 * time.Second},
		{retry.Policy{AttemptTimeout: 30*time.Second - 1}, 30*time.Second - 1},
		{retry.Policy{AttemptTimeout: math.MaxInt64}, 30 * time.Second},
		{retry.Policy{MaxElapsed: math.MaxInt64}, math.MaxInt64},
	} {
		clock, watch := newClock(), &watcher{}
		c.p.Observe = watch.Observe
		c.p.Clock, c.p.Sleep = clock.Now, clock.Sleep
		op := clock.script(success(0))
		_, err := retry.Do(t.Context(), &c.p, op.Do)
		require.NoError(t, err)
		require.Equal(t, c.given, watch.Last().Timeout)
	}
}

// A hint of MaxHint is waited for, 1ns more ends the operation, whatever the
// time left (fault B165).
func TestMaxHintOnBothSides(t *testing.T) {
	for _, c := range []struct {
		name       string
		most, hint time.Duration
		wait       bool
		why        string
	}{
		{"default", 0, time.Minute, true, ""},
		{"default, 1ns more", 0, time.Minute + 1, false, "the server asks for 1m0.000000001s, MaxHint is 1m0s"},
		{"stated", 7 * time.Second, 7 * time.Second, true, ""},
		{"stated, 1ns more", 7 * time.Second, 7*time.Second + 1, false, "the server asks for 7.000000001s, MaxHint is 7s"},
		{"the least", 1, 1, true, ""},
		{"the least, 1ns more", 1, 2, false, "the server asks for 2ns, MaxHint is 1ns"},
		{"unlimited", -1, 100 * 24 * time.Hour, true, ""},
		{"as unlimited as can be", math.MinInt64, math.MaxInt64, true, ""},
		{"the longest", math.MaxInt64, math.MaxInt64, true, ""},
		{"none is no hint", 1, 0, true, ""},
		{"a negative one is no hint", 1, math.MinInt64, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock, watch := newClock(), &watcher{}
			op := clock.script(failure(time.Second, verdictError{Class: retry.ClassThrottled, After: c.hint}), success(0))
			p := retry.Policy{MaxElapsed: -1, MaxHint: c.most, Spread: -1, Classify: asItSays, Observe: watch.Observe,
				Backoff: retry.Backoff{Base: -1}, Clock: clock.Now, Sleep: clock.Sleep}
			_, err := retry.Do(t.Context(), &p, op.Do)
			if c.wait {
				require.NoError(t, err)
				require.Equal(t, []time.Duration{max(0, c.hint)}, clock.Slept())
				return
			}
			e := stopped(t, err)
			require.Equal(t, retry.ErrHint, e.Reason)
			require.Equal(t, clock.Now().Add(c.hint), e.RetryAt)
			require.Empty(t, clock.Slept())
			require.EqualError(t, err, "retry: gave up after 1 attempt in 1s: "+c.why+": says throttled")
			require.Zero(t, watch.Last().Wait)
			require.Zero(t, watch.Last().Window, "nothing was drawn")
		})
	}
}

// MaxAttempts counts the first; one attempt is no retry, no wait, no draw.
func TestMaxAttemptsCountsTheFirst(t *testing.T) {
	for limit, calls := range map[int]int{
		0: 5, 1: 1, 2: 2, 3: 3, 10: 10, // fault B94: ten are ten
		-1: 50, math.MinInt: 50, math.MaxInt: 50, // then it succeeds
	} {
		clock, watch := newClock(), &watcher{}
		steps := slices.Repeat([]step{failure(0, retry.Transient(errOp))}, 49)
		op := clock.script(append(steps, success(0))...)
		p := retry.Policy{MaxAttempts: limit, MaxElapsed: -1, Clock: clock.Now, Sleep: clock.Sleep, Observe: watch.Observe}
		_, err := retry.Do(t.Context(), &p, op.Do)
		require.Equal(t, calls, op.Calls(), limit)
		require.Len(t, clock.Slept(), calls-1, limit)
		for i, r := range watch.Records() {
			require.Equal(t, i+1, r.Attempt)
			switch {
			case limit < 0:
				require.Equal(t, -1, r.AttemptsLeft)
			case limit == math.MaxInt:
				require.Equal(t, math.MaxInt-1-i, r.AttemptsLeft)
			default:
				require.Equal(t, calls-1-i, r.AttemptsLeft)
			}
		}
		if calls == 50 {
			require.NoError(t, err)
			continue
		}
		require.Equal(t, retry.ErrAttempts, stopped(t, err).Reason)
		require.Equal(t, calls, stopped(t, err).Attempts)
	}
}

// The spread is drawn on top of the hint, within what fits before the
// deadline; neither the hint nor the own wait is ever shortened.
func TestSpreadStandsOnTheHint(t *testing.T) {
	const most = 1 - 1.0/(1<<53) // the largest draw
	for _, c := range []struct {
		name   string
		spread time.Duration // of the Policy
		hint   time.Duration
		own    time.Duration
		left   time.Duration // 0: no deadline
		least  time.Duration
		u      float64
		want   time.Duration // spread
		wait   time.Duration
		admit  bool
	}{
		{name: "default is a second", hint: 5 * time.Second, u: 0.5, want: 500 * ms, wait: 5500 * ms, admit: true},
		{name: "default at ten seconds", hint: 10 * time.Second, u: 0.5, want: 500 * ms, wait: 10500 * ms, admit: true},
		{name: "default is a tenth of more", hint: 30 * time.Second, u: 0.5, want: 1500 * ms, wait: 31500 * ms, admit: true},
		{name: "stated", spread: 4 * time.Second, hint: 5 * time.Second, u: 0.25, want: time.Second, wait: 6 * time.Second, admit: true},
		{name: "least draw", hint: 5 * time.Second, wait: 5 * time.Second, admit: true},
		{name: "largest draw", hint: 5 * time.Second, u: most, want: time.Second, wait: 6 * time.Second, admit: true},
		{name: "own wait longer than both", hint: 5 * time.Second, own: 9 * time.Second, u: 0.5, want: 500 * ms, wait: 9 * time.Second, admit: true},
		{name: "own wait between hint and both", hint: 5 * time.Second, own: 5250 * ms, u: 0.5, want: 500 * ms, wait: 5500 * ms, admit: true},
		{name: "own wait below the hint", hint: 5 * time.Second, own: 4 * time.Second, u: 0, wait: 5 * time.Second, admit: true},
		{name: "narrowed to end at the deadline", hint: 5 * time.Second, left: 8 * time.Second, least: 2500 * ms, u: 0.5, want: 250 * ms, wait: 5250 * ms, admit: true},
		{name: "narrowed, largest draw", hint: 5 * time.Second, left: 8 * time.Second, least: 2500 * ms, u: most, want: 500 * ms, wait: 5500 * ms, admit: true},
		{name: "narrowed to start before the deadline", hint: 5 * time.Second, left: 5500 * ms, least: -1, u: most, want: 500*ms - 1, wait: 5500*ms - 1, admit: true},
		{name: "just wide enough", hint: 5 * time.Second, left: 8 * time.Second, least: 2 * time.Second, u: most, want: time.Second, wait: 6 * time.Second, admit: true},
		{name: "no room", hint: 5 * time.Second, left: 7 * time.Second, least: 2 * time.Second, u: most, wait: 5 * time.Second, admit: true},
		{name: "no room, no least", hint: 5 * time.Second, left: 5*time.Second + 1, least: -1, u: most, wait: 5 * time.Second, admit: true},
		{name: "the hint does not fit", hint: 5 * time.Second, left: 7*time.Second - 1, least: 2 * time.Second, u: most, wait: 5 * time.Second},
		{name: "the hint starts at the deadline", hint: 5 * time.Second, left: 5 * time.Second, least: -1, u: most, wait: 5 * time.Second},
		{name: "the own wait does not fit", hint: 5 * time.Second, own: 7 * time.Second, left: 8 * time.Second, least: 2 * time.Second, u: 0.5, want: 500 * ms, wait: 7 * time.Second},
		{name: "hint and spread saturate", spread: math.MaxInt64, hint: 60 * time.Second, u: most, want: math.MaxInt64 - 60*time.Second, wait: math.MaxInt64, admit: true},
		{name: "a longest hint", hint: math.MaxInt64, u: 0.5, want: 0, wait: math.MaxInt64, admit: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock, watch := newClock(), &watcher{}
			p := retry.Policy{MaxElapsed: -1, MaxHint: -1, MinTimeout: c.least, Spread: c.spread, Observe: watch.Observe,
				Backoff: retry.Backoff{Cap: -1, Jitter: func(retry.Step) time.Duration { return c.own }}}
			if c.left > 0 {
				p.MaxElapsed = c.left + time.Second
			}
			clock.drive(t, &p, 0.125, c.u)
			op := clock.script(failure(time.Second, retry.Throttled(errOp, c.hint)), success(0))
			_, err := retry.Do(t.Context(), &p, op.Do)
			r := watch.Records()[0]
			// Exact, but beyond 2^53, where a float64 is no exact width.
			require.InDelta(t, c.want, r.Spread, float64(c.want)/(1<<50))
			require.InDelta(t, c.wait, r.Wait, float64(c.want)/(1<<50))
			require.Equal(t, c.own, r.OwnWait)
			require.Equal(t, c.hint, r.Hint)
			require.Equal(t, 0.125, r.Draw, "the own wait is drawn first")
			if !c.admit {
				require.Equal(t, retry.ErrDeadline, stopped(t, err).Reason)
				require.Empty(t, clock.Slept())
				return
			}
			require.NoError(t, err)
			require.Equal(t, []time.Duration{r.Wait}, clock.Slept())
		})
	}
}

// Exactly these draws are taken, in this order, and none else.
func TestDrawsAreExactlyTheseOfEachRetry(t *testing.T) {
	throttled := retry.Throttled(errOp, time.Second)
	transient := retry.Transient(errOp)
	for _, c := range []struct {
		name  string
		p     retry.Policy
		errs  []error
		draws []float64
		waits []float64 // in seconds
	}{
		{"success takes none", retry.Policy{}, []error{nil}, nil, nil},
		{"one for each own wait", retry.Policy{}, []error{transient, transient, nil}, []float64{0.5, 0.25}, []float64{0.1, 0.1}},
		{"NoJitter takes one too", retry.Policy{Backoff: retry.Backoff{Jitter: retry.NoJitter}}, []error{transient, transient, nil}, []float64{0.5, 0.25}, []float64{0.2, 0.4}},
		{"no own wait takes one too", retry.Policy{Backoff: retry.Backoff{Base: -1}}, []error{transient, nil}, []float64{0.5}, []float64{0}},
		{"hint: a second one", retry.Policy{}, []error{throttled, nil}, []float64{0.5, 0.25}, []float64{1.25}},
		{"hint, NoJitter", retry.Policy{Backoff: retry.Backoff{Jitter: retry.NoJitter}}, []error{throttled, nil}, []float64{0.5, 0.25}, []float64{1.25}},
		{"hint, own wait far longer", retry.Policy{Backoff: retry.Backoff{Base: 9 * time.Second, Jitter: retry.NoJitter}}, []error{throttled, nil}, []float64{0.5, 0.25}, []float64{9}},
		{"hint without a spread", retry.Policy{Spread: -1}, []error{throttled, nil}, []float64{0.5}, []float64{1}},
		{"throttled without a hint", retry.Policy{}, []error{retry.Throttled(errOp, 0), nil}, []float64{0.5}, []float64{0.1}},
		{"a hint with any class", retry.Policy{}, []error{&retry.StatusError{Method: "GET", Code: 503, After: time.Second}, nil}, []float64{0.5, 0.25}, []float64{1.25}},
		{"mixed", retry.Policy{}, []error{throttled, transient, throttled, nil}, []float64{0, 0.5, 0.5, 0, 0.75}, []float64{1.5, 0.2, 1.75}},
		{"the last attempt takes none", retry.Policy{MaxAttempts: 2}, []error{transient, transient}, []float64{0.5}, []float64{0.1}},
		{"a hint too long takes none", retry.Policy{}, []error{retry.Throttled(errOp, time.Hour)}, nil, nil},
		{"a permanent failure takes none", retry.Policy{}, []error{retry.Permanent(errOp)}, nil, nil},
		{"a deadline missed has drawn", retry.Policy{MaxElapsed: time.Second}, []error{throttled}, []float64{0.5, 0.25}, nil},
		{"strange draws", retry.Policy{Spread: time.Second, Backoff: retry.Backoff{Base: time.Second}}, []error{throttled, throttled, throttled, nil},
			[]float64{math.NaN(), math.NaN(), -1, 7, math.Inf(1), math.Inf(-1)}, []float64{1, 2, 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock, watch := newClock(), &watcher{}
			var steps []step
			for _, err := range c.errs {
				steps = append(steps, step{0, err})
			}
			c.p.Observe = watch.Observe
			clock.drive(t, &c.p, c.draws...)
			_, _ = retry.Do(t.Context(), &c.p, clock.script(steps...).Do)
			var waits []time.Duration
			for _, w := range c.waits {
				waits = append(waits, seconds(w))
			}
			require.Equal(t, waits, clock.Slept())
			require.Equal(t, waits, watch.Waits(), "recorded as slept")
			for _, r := range watch.Records() {
				require.True(t, r.Draw >= 0 && r.Draw < 1, "%v", r.Draw)
			}
		})
	}
}

// Throttle is used after ClassThrottled only; retries are numbered through, and
// the previous own wait is shared.
func TestThrottleSharesNumbersAndThePreviousWait(t *testing.T) {
	clock, watch := newClock(), &watcher{}
	var seen []retry.Step
	own := func(s retry.Step) time.Duration {
		seen = append(seen, s)
		return time.Duration(len(seen)) * time.Second
	}
	p := retry.Policy{MaxAttempts: -1, MaxElapsed: -1, Spread: -1, Observe: watch.Observe,
		Backoff:  retry.Backoff{Base: 100 * ms, Cap: 50 * time.Second, Jitter: own},
		Throttle: retry.Backoff{Base: 1 * time.Second, Cap: 60 * time.Second, Multiplier: 3, Jitter: own}}
	clock.drive(t, &p, 0.1, 0.2, 0.3, 0.4)
	transient, throttled := retry.Transient(errOp), retry.Throttled(errOp, 10*time.Second)
	op := clock.script(failure(10*ms, transient), failure(20*ms, throttled), failure(30*ms, transient), failure(40*ms, throttled), success(0))
	_, err := retry.Do(t.Context(), &p, op.Do)
	require.NoError(t, err)
	require.Equal(t, []retry.Step{
		{Retry: 0, Base: 100 * ms, Cap: 50 * time.Second, Window: 100 * ms, Previous: 100 * ms, Elapsed: 10 * ms, Draw: 0.1},
		{Retry: 1, Base: time.Second, Cap: time.Minute, Window: 3 * time.Second, Previous: time.Second, Elapsed: 1030 * ms, Draw: 0.2},
		{Retry: 2, Base: 100 * ms, Cap: 50 * time.Second, Window: 400 * ms, Previous: 2 * time.Second, Elapsed: 11060 * ms, Draw: 0.3},
		{Retry: 3, Base: time.Second, Cap: time.Minute, Window: 27 * time.Second, Previous: 3 * time.Second, Elapsed: 14100 * ms, Draw: 0.4},
	}, seen, "Previous is the own wait, not the hint")
	require.Equal(t, []time.Duration{time.Second, 10 * time.Second, 3 * time.Second, 10 * time.Second}, clock.Slept())
	require.Equal(t, []time.Duration{100 * ms, 3 * time.Second, 400 * ms, 27 * time.Second, 0},
		[]time.Duration{watch.Records()[0].Window, watch.Records()[1].Window, watch.Records()[2].Window, watch.Records()[3].Window, watch.Records()[4].Window})
}

// All four fields zero is the same as Backoff; any one set is not.
func TestThrottleIsBackoffOnlyWhereAllItsFieldsAreZero(t *testing.T) {
	for _, c := range []struct {
		name     string
		throttle retry.Backoff
		wait     time.Duration
	}{
		{"zero", retry.Backoff{}, 7 * time.Second},
		{"Base", retry.Backoff{Base: 2 * time.Second}, 2 * time.Second},
		{"Cap", retry.Backoff{Cap: 50 * ms}, 50 * ms},
		{"Multiplier", retry.Backoff{Multiplier: 5}, 200 * ms},
		{"Jitter", retry.Backoff{Jitter: retry.NoJitter}, 200 * ms},
		{"no wait", retry.Backoff{Base: -1}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := newClock()
			p := retry.Policy{Backoff: retry.Backoff{Base: 7 * time.Second, Jitter: retry.NoJitter}, Throttle: c.throttle}
			clock.drive(t, &p, 1)
			_, err := retry.Do(t.Context(), &p, clock.script(failure(0, retry.Throttled(errOp, 0)), success(0)).Do)
			require.NoError(t, err)
			require.Equal(t, []time.Duration{c.wait}, clock.Slept())
		})
	}
}

// An outcome that was unknown stays so, whatever ends the operation.
func TestUnknownOutcomeSticks(t *testing.T) {
	timedOut := errTimedOut
	for _, c := range []struct {
		name    string
		effect  retry.Effect
		errs    []error
		reason  error
		unknown bool
	}{
		{"idempotent PUT timed out, then 409", retry.Idempotent, []error{timedOut, &retry.StatusError{Method: "PUT", Code: 409}}, retry.ErrPermanent, true},
		{"its effect known by the error", retry.Unstated, []error{&retry.StatusError{Method: "PUT", Code: 504}, &retry.StatusError{Method: "PUT", Code: 409}}, retry.ErrPermanent, true},
		{"timed out, then throttled to the end", retry.Idempotent, []error{timedOut, retry.Throttled(errOp, time.Hour)}, retry.ErrHint, true},
		{"timed out, then unclassified", retry.Idempotent, []error{timedOut, errOp}, retry.ErrUnclassified, true},
		{"timed out, then banned", retry.Idempotent, []error{timedOut, retry.Suspended(errOp, 0)}, retry.ErrSuspended, true},
		{"timed out, then transient to the end", retry.Idempotent, []error{timedOut, retry.Transient(errOp)}, retry.ErrAttempts, true},
		{"first transient, then timed out to the end", retry.Idempotent, []error{retry.Transient(errOp), timedOut}, retry.ErrAttempts, true},
		{"a mutation", retry.Mutation, []error{timedOut}, retry.ErrUnknownOutcome, true},
		{"nobody knows the effect", retry.Unstated, []error{timedOut}, retry.ErrUnknownOutcome, true},
		{"a read", retry.ReadOnly, []error{timedOut, &retry.StatusError{Code: 409}}, retry.ErrPermanent, false},
		{"a read to the end", retry.ReadOnly, []error{timedOut}, retry.ErrAttempts, false},
		{"a GET by the error's word", retry.Unstated, []error{&retry.StatusError{Method: "GET", Code: 503}}, retry.ErrAttempts, false},
		{"proven not applied", retry.Mutation, []error{retry.Transient(errOp)}, retry.ErrAttempts, false},
		{"permanent", retry.Mutation, []error{retry.Permanent(errOp)}, retry.ErrPermanent, false},
		{"unclassified alone", retry.Mutation, []error{errOp}, retry.ErrUnclassified, false},
		{"a GET, then an error that knows no effect", retry.Unstated, []error{&retry.StatusError{Method: "GET", Code: 503}, timedOut}, retry.ErrUnknownOutcome, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := newClock()
			var steps []step
			for _, err := range c.errs {
				steps = append(steps, step{0, err})
			}
			p := retry.Policy{Effect: c.effect, MaxAttempts: 3, Clock: clock.Now, Sleep: clock.Sleep}
			_, err := retry.Do(t.Context(), &p, clock.script(steps...).Do)
			require.Equal(t, c.reason, stopped(t, err).Reason)
			require.ErrorIs(t, err, c.reason)
			require.Equal(t, c.unknown, errors.Is(err, retry.ErrUnknownOutcome))
			require.Equal(t, c.unknown, strings.Contains(err.Error(), "it may have been applied"))
		})
	}
	t.Run("success clears all", func(t *testing.T) {
		clock := newClock()
		p := retry.Policy{Effect: retry.Idempotent, Clock: clock.Now, Sleep: clock.Sleep}
		_, err := retry.Do(t.Context(), &p, clock.script(failure(0, timedOut), success(0)).Do)
		require.NoError(t, err)
	})
}

// ctx cancelled in flight: the outcome is unknown unless the error proves that
// nothing was applied, or there is no outcome.
func TestCancelledInFlightIsUnknownUnlessProven(t *testing.T) {
	for _, c := range []struct {
		name    string
		effect  retry.Effect
		err     error
		unknown bool
	}{
		{"ctx's own error", retry.Mutation, context.Canceled, true},
		{"effect unstated", retry.Unstated, context.Canceled, true},
		{"idempotent", retry.Idempotent, context.Canceled, true},
		{"no rule knows it", retry.Mutation, errOp, true},
		{"timed out", retry.Mutation, errTimedOut, true},
		{"read-only", retry.ReadOnly, context.Canceled, false},
		{"a GET by the error's word", retry.Unstated, &retry.StatusError{Method: "GET", Code: 501}, false},
		{"transient", retry.Mutation, retry.Transient(context.Canceled), false},
		{"permanent", retry.Mutation, retry.Permanent(context.Canceled), false},
		{"throttled", retry.Mutation, &retry.StatusError{Code: 429}, false},
		{"banned", retry.Mutation, retry.Suspended(errOp, 0), false},
		{"404", retry.Mutation, &retry.StatusError{Code: 404}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			why := errors.New("user went away")
			calls := 0
			err := retry.Run(ctx, &retry.Policy{Effect: c.effect}, func(context.Context) error {
				calls++
				cancel(why)
				return c.err
			})
			require.Equal(t, 1, calls)
			require.Equal(t, retry.ErrCanceled, stopped(t, err).Reason)
			require.Equal(t, c.unknown, errors.Is(err, retry.ErrUnknownOutcome))
			for _, is := range []error{retry.ErrCanceled, context.Canceled, why, c.err} {
				require.ErrorIs(t, err, is)
			}
		})
	}
	t.Run("by the deadline of ctx", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := retry.Run(ctx, nil, func(ctx context.Context) error {
				time.Sleep(time.Second)
				synctest.Wait() // the timer of ctx has done its work
				return errOp
			})
			require.Equal(t, retry.ErrDeadline, stopped(t, err).Reason)
			require.ErrorIs(t, err, retry.ErrUnknownOutcome)
		})
	})
	t.Run("before anything was sent", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := retry.Run(ctx, &retry.Policy{Effect: retry.Mutation}, func(context.Context) error { panic("called") })
		require.NotErrorIs(t, err, retry.ErrUnknownOutcome)
		require.EqualError(t, err, "retry: not attempted: context canceled")
	})
	t.Run("in the wait after a proof", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := retry.Policy{Effect: retry.Mutation, Sleep: func(context.Context, time.Duration) error { cancel(); return ctx.Err() }}
		err := retry.Run(ctx, &p, func(context.Context) error { return retry.Transient(errOp) })
		require.ErrorIs(t, err, retry.ErrCanceled)
		require.NotErrorIs(t, err, retry.ErrUnknownOutcome)
	})
}

// Where no rule knows the error, and the attempt's own deadline has passed, the
// outcome is unknown, by the operation's clock as well as by the real one.
func TestUnclassifiedAfterTheAttemptsDeadlineIsUnknown(t *testing.T) {
	for _, c := range []struct {
		name   string
		p      retry.Policy
		took   time.Duration
		err    error
		reason error
	}{
		{"at the timeout", retry.Policy{AttemptTimeout: time.Second}, time.Second, errOp, retry.ErrUnknownOutcome},
		{"1ns before", retry.Policy{AttemptTimeout: time.Second}, time.Second - 1, errOp, retry.ErrUnclassified},
		{"at the deadline", retry.Policy{MaxElapsed: time.Second}, time.Second, errOp, retry.ErrUnknownOutcome},
		{"1ns before the deadline", retry.Policy{MaxElapsed: time.Second}, time.Second - 1, errOp, retry.ErrUnclassified},
		{"no deadline", retry.Policy{MaxElapsed: -1}, time.Hour, errOp, retry.ErrUnclassified},
		{"a rule knows it", retry.Policy{AttemptTimeout: time.Second}, time.Hour, retry.Permanent(errOp), retry.ErrPermanent},
		{"cancelled by op itself", retry.Policy{AttemptTimeout: time.Second}, time.Second, context.Canceled, retry.ErrUnknownOutcome},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := newClock()
			c.p.Clock = clock.Now
			_, err := retry.Do(t.Context(), &c.p, clock.script(failure(c.took, c.err)).Do)
			require.Equal(t, c.reason, stopped(t, err).Reason)
			synctest.Test(t, func(t *testing.T) {
				c.p.Clock = nil
				err := retry.Run(t.Context(), &c.p, func(ctx context.Context) error {
					time.Sleep(c.took)
					return c.err
				})
				require.Equal(t, c.reason, stopped(t, err).Reason)
			})
		})
	}
	t.Run("the second attempt's own", func(t *testing.T) {
		clock := newClock()
		p := retry.Policy{AttemptTimeout: time.Second, Clock: clock.Now, Sleep: clock.Sleep}
		_, err := retry.Do(t.Context(), &p, clock.script(failure(time.Second, retry.Transient(errOp)), failure(time.Second-1, errOp)).Do)
		require.Equal(t, retry.ErrUnclassified, stopped(t, err).Reason)
	})
	t.Run("real time has passed, the injected clock stands", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := retry.Policy{AttemptTimeout: time.Second, Clock: newClock().Now}
			err := retry.Run(t.Context(), &p, func(ctx context.Context) error {
				<-ctx.Done()
				return errOp
			})
			require.Equal(t, retry.ErrUnknownOutcome, stopped(t, err).Reason)
		})
	})
}

// A per-attempt timeout is an outcome, not the caller's cancellation: it backs
// off like any failure.
func TestAttemptTimeoutIsAnOutcomeThatBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, calls := time.Now(), 0
		p := retry.Policy{Effect: retry.ReadOnly, AttemptTimeout: time.Second, Rand: draws(t, 0.5, 0.5)}
		v, err := retry.Do(t.Context(), &p, func(ctx context.Context) (string, error) {
			if calls++; calls == 3 {
				return "done", nil
			}
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), context.DeadlineExceeded)
			return "", ctx.Err()
		})
		require.NoError(t, err)
		require.Equal(t, "done", v)
		require.Equal(t, 2*time.Second+100*ms+200*ms, time.Since(begin))
	})
}

// The budget is asked last, is told the verdict that counts, and its books are
// right however the operation ends.
func TestBudgetIsSpentReturnedAndEarned(t *testing.T) {
	transient := retry.Transient(errOp)
	for _, c := range []struct {
		name   string
		p      retry.Policy
		tokens int
		errs   []error
		reason error
		log    []string
	}{
		{"success at once", retry.Policy{}, 9, []error{nil}, nil, []string{"earn 0"}},
		{"success at once, on the quick path", retry.Policy{MaxElapsed: -1}, 9, []error{nil}, nil, []string{"earn 0"}},
		{"success after retries", retry.Policy{}, 9, []error{transient, retry.Throttled(errOp, 3*time.Second), nil}, nil,
			[]string{"spend transient unstated 0s 1", "spend throttled unstated 3s 1", "earn 1"}},
		{"success after retries, first on the quick path", retry.Policy{MaxElapsed: -1}, 9, []error{transient, nil}, nil, []string{"spend transient unstated 0s 1", "earn 1"}},
		{"the effect that counts: the policy's", retry.Policy{Effect: retry.Idempotent}, 9, []error{&retry.StatusError{Method: "GET", Code: 503}, nil}, nil,
			[]string{"spend unknown idempotent 0s 1", "earn 1"}},
		{"the effect that counts: the error's", retry.Policy{}, 9, []error{&retry.StatusError{Method: "GET", Code: 503, After: time.Second}, nil}, nil,
			[]string{"spend unknown read-only 1s 1", "earn 1"}},
		{"refused", retry.Policy{}, 1, []error{transient, transient}, retry.ErrBudget, []string{"spend transient unstated 0s 1", "refuse transient unstated 0s 1"}},
		{"attempts used up", retry.Policy{MaxAttempts: 2}, 9, []error{transient, transient}, retry.ErrAttempts, []string{"spend transient unstated 0s 1"}},
		{"one attempt", retry.Policy{MaxAttempts: 1}, 9, []error{transient}, retry.ErrAttempts, nil},
		// fault B104: a definite answer to a retry shows that the server is there.
		{"definite answer after a retry", retry.Policy{}, 9, []error{transient, &retry.StatusError{Code: 404}}, retry.ErrPermanent, []string{"spend transient unstated 0s 1", "earn 1"}},
		{"mark after a retry", retry.Policy{}, 9, []error{transient, retry.Permanent(errOp)}, retry.ErrPermanent, []string{"spend transient unstated 0s 1", "earn 1"}},
		{"definite answer to attempt 1", retry.Policy{}, 9, []error{&retry.StatusError{Code: 404}}, retry.ErrPermanent, nil},
		{"banned after a retry", retry.Policy{}, 9, []error{transient, retry.Suspended(errOp, 0)}, retry.ErrSuspended, []string{"spend transient unstated 0s 1"}},
		{"an unknown outcome after a retry", retry.Policy{}, 9, []error{transient, retry.Unknown(errOp)}, retry.ErrUnknownOutcome, []string{"spend transient unstated 0s 1"}},
		{"unclassified after a retry", retry.Policy{}, 9, []error{transient, errOp}, retry.ErrUnclassified, []string{"spend transient unstated 0s 1"}},
		{"local error after a retry", retry.Policy{Classify: asItSays}, 9, []error{transient, verdictError{Class: retry.ClassPermanent}}, retry.ErrPermanent, []string{"spend transient unstated 0s 1"}},
		{"hint too long after a retry", retry.Policy{}, 9, []error{transient, retry.Throttled(errOp, time.Hour)}, retry.ErrHint, []string{"spend transient unstated 0s 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock, budget := newClock(), &purse{tokens: c.tokens}
			var steps []step
			for _, err := range c.errs {
				steps = append(steps, step{0, err})
			}
			c.p.Budget = budget
			c.p.Clock, c.p.Sleep = clock.Now, clock.Sleep
			_, err := retry.Do(t.Context(), &c.p, clock.script(steps...).Do)
			require.Equal(t, c.log, budget.Log())
			if c.reason == nil {
				require.NoError(t, err)
			} else {
				require.Equal(t, c.reason, stopped(t, err).Reason)
			}
		})
	}
}

// A loop inside op that gave up is no answer of the server.
func TestBudgetEarnsNothingFromAnInnerLoopsError(t *testing.T) {
	clock, budget, calls := newClock(), &purse{tokens: 9}, 0
	p := retry.Policy{Budget: budget, Clock: clock.Now, Sleep: clock.Sleep}
	_, err := retry.Do(t.Context(), &p, func(ctx context.Context) (int, error) {
		if calls++; calls == 1 {
			return 0, retry.Transient(errOp)
		}
		return 0, retry.Run(ctx, nil, func(context.Context) error { return &retry.StatusError{Code: 404} })
	})
	require.Equal(t, retry.ErrPermanent, stopped(t, err).Reason)
	require.Equal(t, []string{"spend transient unstated 0s 1"}, budget.Log())
}

// A retry that is not sent gives its token back, once.
func TestBudgetGetsBackWhatWasNotSent(t *testing.T) {
	transient := retry.Transient(errOp)
	for _, c := range []struct {
		name   string
		breaks func(p *retry.Policy, clock *clock, cancel func())
		panics bool
	}{
		{"wait cancelled", func(p *retry.Policy, _ *clock, cancel func()) {
			p.Sleep = func(ctx context.Context, _ time.Duration) error { cancel(); return ctx.Err() }
		}, false},
		{"cancelled as the wait ended", func(p *retry.Policy, _ *clock, cancel func()) {
			p.Sleep = func(context.Context, time.Duration) error { cancel(); return nil }
		}, false},
		{"sleeper failed", func(p *retry.Policy, _ *clock, _ func()) {
			p.Sleep = func(context.Context, time.Duration) error { return errOp }
		}, false},
		{"refused on waking", func(p *retry.Policy, clock *clock, _ func()) {
			p.Sleep = func(context.Context, time.Duration) error { clock.Advance(time.Hour); return nil }
		}, false},
		{"Sleep panics", func(p *retry.Policy, _ *clock, _ func()) {
			p.Sleep = func(context.Context, time.Duration) error { panic("sleep") }
		}, true},
		{"Observe panics", func(p *retry.Policy, _ *clock, _ func()) {
			p.Observe = func(context.Context, retry.Record) { panic("observe") }
		}, true},
		{"Observe cancels", func(p *retry.Policy, _ *clock, cancel func()) {
			p.Observe = func(context.Context, retry.Record) { cancel() }
		}, false},
		{"Clock panics on waking", func(p *retry.Policy, clock *clock, _ func()) {
			p.Sleep = func(context.Context, time.Duration) error {
				p.Clock = func() time.Time { panic("clock") }
				return nil
			}
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock, budget := newClock(), &purse{tokens: 1}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			p := retry.Policy{Budget: budget, Clock: clock.Now, Sleep: clock.Sleep}
			c.breaks(&p, clock, cancel)
			op := clock.script(failure(0, transient))
			do := func() { _, _ = retry.Do(ctx, &p, op.Do) }
			if c.panics {
				require.Panics(t, do)
			} else {
				do()
			}
			require.Equal(t, 1, op.Calls())
			require.Equal(t, []string{"spend transient unstated 0s 1", "return 1"}, budget.Log())
			require.Equal(t, 1, budget.Tokens())
		})
	}
}

// The costs that a Budget names are handed back as they are, the last one to Earn.
func TestBudgetCostsAreHandedBack(t *testing.T) {
	clock, budget := newClock(), &pricedBudget{prices: []float64{2.5, 0.125, 7}}
	p := retry.Policy{Budget: budget, Clock: clock.Now, Sleep: clock.Sleep}
	_, err := retry.Do(t.Context(), &p, clock.script(failure(0, retry.Transient(errOp)), failure(0, retry.Transient(errOp)), success(0)).Do)
	require.NoError(t, err)
	require.Equal(t, []float64{0.125}, budget.earned)

	ctx, cancel := context.WithCancel(t.Context())
	p.Sleep = func(context.Context, time.Duration) error { cancel(); return nil }
	_, err = retry.Do(ctx, &p, clock.script(failure(0, retry.Transient(errOp))).Do)
	require.ErrorIs(t, err, retry.ErrCanceled)
	require.Equal(t, []float64{7}, budget.returned)
	require.Equal(t, []float64{0.125}, budget.earned)
}

// pricedBudget asks a price of its own for each retry.
type pricedBudget struct{ prices, earned, returned []float64 }

func (b *pricedBudget) Spend(context.Context, retry.Verdict, float64) (float64, error) {
	price := b.prices[0]
	b.prices = b.prices[1:]
	return price, nil
}
func (b *pricedBudget) Return(_ context.Context, cost float64) { b.returned = append(b.returned, cost) }
func (b *pricedBudget) Earn(_ context.Context, cost float64)   { b.earned = append(b.earned, cost) }

// The caller's ctx, with its values, is what Budget and Observe are given.
func TestSeamsAreGivenTheCallersContext(t *testing.T) {
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "caller")
	seen := 0
	check := func(ctx context.Context) { seen++; require.Equal(t, "caller", ctx.Value(key{})) }
	p := retry.Policy{Observe: func(ctx context.Context, _ retry.Record) { check(ctx) },
		Sleep: func(ctx context.Context, _ time.Duration) error { check(ctx); return nil }}
	calls := 0
	err := retry.Run(ctx, &p, func(ctx context.Context) error {
		check(ctx)
		if calls++; calls == 2 {
			return nil
		}
		return retry.Transient(errOp)
	})
	require.NoError(t, err)
	require.Equal(t, 5, seen)
}

// A nil error is success even if ctx was cancelled meanwhile.
func TestNilErrorIsSuccessThoughCtxIsDone(t *testing.T) {
	for _, p := range []retry.Policy{{}, {MaxElapsed: -1}, {AttemptTimeout: time.Second}} {
		ctx, cancel := context.WithCancel(t.Context())
		watch, budget := &watcher{}, &purse{}
		p.Observe, p.Budget = watch.Observe, budget
		v, err := retry.Do(ctx, &p, func(context.Context) (int, error) { cancel(); return 42, nil })
		require.NoError(t, err)
		require.Equal(t, 42, v)
		require.Equal(t, retry.Succeeded, watch.Last().Decision)
		require.Equal(t, []string{"earn 0"}, budget.Log())
	}
	synctest.Test(t, func(t *testing.T) {
		p := retry.Policy{MaxElapsed: time.Second, AttemptTimeout: time.Second}
		v, err := retry.Do(t.Context(), &p, func(context.Context) (int, error) { time.Sleep(time.Hour); return 42, nil })
		require.NoError(t, err, "late, but a success")
		require.Equal(t, 42, v)
	})
}

// Successes and refusals on entry are observed; an operation that ends between
// attempts gives one more record.
func TestEveryEndIsObserved(t *testing.T) {
	t.Run("success", func(t *testing.T) {
		clock, watch := newClock(), &watcher{}
		p := retry.Policy{Name: "op", Effect: retry.Idempotent, Observe: watch.Observe, Keep: 9}
		clock.drive(t, &p, 0.5)
		_, err := retry.Do(t.Context(), &p, clock.script(failure(time.Second, retry.Transient(errOp)), success(2*time.Second)).Do)
		require.NoError(t, err)
		require.Len(t, watch.Records(), 2)
		require.Equal(t, retry.Record{Operation: "op", Attempt: 2, Start: clock.start.Add(1100 * ms), Duration: 2 * time.Second,
			Timeout: 28900 * ms, Effect: retry.Idempotent, Elapsed: 3100 * ms, TimeLeft: 26900 * ms, AttemptsLeft: 3,
			Decision: retry.Succeeded}, watch.Last())
	})
	t.Run("ctx done before attempt 1", func(t *testing.T) {
		clock, watch := newClock(), &watcher{}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		p := retry.Policy{Name: "op", Effect: retry.ReadOnly, Observe: watch.Observe, Keep: 9}
		clock.drive(t, &p)
		_, err := retry.Do(ctx, &p, clock.script(success(0)).Do)
		want := []retry.Record{{Operation: "op", Start: clock.start, Effect: retry.ReadOnly, TimeLeft: 30 * time.Second,
			AttemptsLeft: 5, Decision: retry.GaveUp, Reason: retry.ErrCanceled}}
		require.Equal(t, want, watch.Records())
		require.Equal(t, want, stopped(t, err).Records)
		require.Equal(t, 0, stopped(t, err).Attempts)
		require.NoError(t, stopped(t, err).Last)
	})
	t.Run("cancelled in the wait", func(t *testing.T) {
		clock, watch := newClock(), &watcher{}
		ctx, cancel := context.WithCancel(t.Context())
		p := retry.Policy{Name: "op", Observe: watch.Observe, Keep: 9, MaxElapsed: -1}
		clock.drive(t, &p, 0.5)
		p.Sleep = func(ctx context.Context, d time.Duration) error {
			clock.Advance(d / 2)
			cancel()
			return ctx.Err()
		}
		_, err := retry.Do(ctx, &p, clock.script(failure(time.Second, retry.Transient(errOp))).Do)
		require.Len(t, watch.Records(), 2)
		require.Equal(t, retry.Retrying, watch.Records()[0].Decision)
		require.Equal(t, retry.Record{Operation: "op", Attempt: 1, Start: clock.start.Add(1050 * ms), Elapsed: 1050 * ms,
			TimeLeft: -1, AttemptsLeft: 4, Decision: retry.GaveUp, Reason: retry.ErrCanceled}, watch.Last())
		require.Equal(t, watch.Records(), stopped(t, err).Records)
		require.Equal(t, 1050*ms, stopped(t, err).Elapsed)
	})
}

// AttemptsLeft is the lesser of the operation's own and what the operations
// around it still allow; a retry that they have not is no attempt left.
func TestAttemptsLeftCountsTheAllowancesAround(t *testing.T) {
	for _, c := range []struct {
		outer, inner int
		want         []int
	}{
		{3, 5, []int{2, 1, 0}},
		{5, 3, []int{2, 1, 0}},
		{1, 5, []int{0}},
		{3, -1, []int{2, 1, 0}},
		{-1, 3, []int{2, 1, 0}},
		{-1, -1, []int{-1, -1, -1, -1}},
	} {
		clock, watch := newClock(), &watcher{}
		outer := retry.Policy{MaxAttempts: c.outer, Clock: clock.Now, Sleep: clock.Sleep}
		inner := retry.Policy{MaxAttempts: c.inner, Clock: clock.Now, Sleep: clock.Sleep, Observe: watch.Observe}
		calls := 0
		_ = retry.Run(t.Context(), &outer, func(ctx context.Context) error {
			return retry.Run(ctx, &inner, func(context.Context) error {
				if calls++; calls == 4 {
					return nil
				}
				return retry.Transient(errOp)
			})
		})
		var got []int
		for _, r := range watch.Records() {
			got = append(got, r.AttemptsLeft)
		}
		require.Equal(t, c.want, got, "%d around %d", c.outer, c.inner)
	}
}

// Keep is the number of the last records that the error carries, oldest first.
func TestKeepCarriesTheLastRecords(t *testing.T) {
	for keep, want := range map[int][]int{
		0: nil, -1: nil, math.MinInt: nil, 1: {6}, 2: {5, 6}, 3: {4, 5, 6}, 4: {3, 4, 5, 6}, 5: {2, 3, 4, 5, 6},
		6: {1, 2, 3, 4, 5, 6}, 7: {1, 2, 3, 4, 5, 6}, math.MaxInt: {1, 2, 3, 4, 5, 6},
	} {
		clock, watch := newClock(), &watcher{}
		p := retry.Policy{MaxAttempts: 6, Keep: keep, Clock: clock.Now, Sleep: clock.Sleep, Observe: watch.Observe}
		_, err := retry.Do(t.Context(), &p, clock.script(failure(time.Second, retry.Transient(errOp))).Do)
		var got []int
		for _, r := range stopped(t, err).Records {
			got = append(got, r.Attempt)
			require.Equal(t, watch.Records()[r.Attempt-1], r)
		}
		require.Equal(t, want, got, "Keep %d", keep)
	}
}

// Where there is no deadline and nobody watches, elapsed counts from the end of
// attempt 1, and the text says so.
func TestElapsedCountsFromTheEndOfTheFirstWhereNothingNeedsAClock(t *testing.T) {
	clock := newClock()
	p := retry.Policy{MaxElapsed: -1, MaxAttempts: 2, Backoff: retry.Backoff{Jitter: retry.NoJitter}}
	clock.drive(t, &p, 0)
	_, err := retry.Do(t.Context(), &p, clock.script(failure(time.Hour, retry.Transient(errOp)), failure(time.Second, retry.Transient(errOp))).Do)
	require.Equal(t, 1200*ms, stopped(t, err).Elapsed)
	require.EqualError(t, err, "retry: gave up after 2 attempts in 1.2s (from the end of the first): no attempts left: op failed")

	p.MaxAttempts = 1
	clock.drive(t, &p)
	_, err = retry.Do(t.Context(), &p, clock.script(failure(time.Hour, retry.Transient(errOp))).Do)
	require.Equal(t, time.Duration(0), stopped(t, err).Elapsed)

	for _, needs := range []func(*retry.Policy){
		func(p *retry.Policy) { p.MaxElapsed = 24 * time.Hour },
		func(p *retry.Policy) { p.AttemptTimeout = 2 * time.Hour },
		func(p *retry.Policy) { p.Keep = 1 },
		func(p *retry.Policy) { p.Observe = func(context.Context, retry.Record) {} },
	} {
		p := p
		p.MaxAttempts = 2
		needs(&p)
		clock.drive(t, &p, 0)
		_, err := retry.Do(t.Context(), &p, clock.script(failure(time.Hour, retry.Transient(errOp)), failure(time.Second, retry.Transient(errOp))).Do)
		require.Equal(t, time.Hour+1200*ms, stopped(t, err).Elapsed)
		require.NotContains(t, err.Error(), "from the end")
	}
}

// The sleeper's own failure ends the operation with its error.
func TestSleepFailingWhileCtxIsAliveEndsTheOperation(t *testing.T) {
	clock, watch := newClock(), &watcher{}
	broken := errors.New("sleeper broken")
	p := retry.Policy{Name: "op", Clock: clock.Now, Observe: watch.Observe, Sleep: func(context.Context, time.Duration) error { return broken }}
	op := clock.script(failure(time.Second, retry.Transient(errOp)))
	_, err := retry.Do(t.Context(), &p, op.Do)
	require.Equal(t, 1, op.Calls())
	require.Equal(t, retry.ErrCanceled, stopped(t, err).Reason)
	require.ErrorIs(t, err, broken)
	require.ErrorIs(t, err, errOp)
	require.NotErrorIs(t, err, context.Canceled)
	require.EqualError(t, err, "retry: op: stopped after 1 attempt in 1s: sleeper broken: op failed")
	require.Len(t, watch.Records(), 2)
	require.Equal(t, retry.ErrCanceled, watch.Last().Reason)
}

// A sleeper that returns nil although ctx is done: no attempt more.
func TestCtxDoneAsTheWaitEndsMakesNoFurtherAttempt(t *testing.T) {
	why := errors.New("shutting down")
	ctx, cancel := context.WithCancelCause(t.Context())
	calls := 0
	p := retry.Policy{Sleep: func(context.Context, time.Duration) error { cancel(why); return nil }}
	err := retry.Run(ctx, &p, func(context.Context) error { calls++; return retry.Transient(errOp) })
	require.Equal(t, 1, calls)
	require.Equal(t, retry.ErrCanceled, stopped(t, err).Reason)
	for _, is := range []error{context.Canceled, why, errOp} {
		require.ErrorIs(t, err, is)
	}
}

// Elapsed grows by at least the wait once the sleeper has returned nil: a
// sleeper that moves no clock, or a clock that stands still, hangs nothing.
func TestElapsedGrowsByTheWaitThoughTheClockStandsStill(t *testing.T) {
	for _, now := range []time.Time{newClock().Now(), {}, time.Unix(1<<62, 0), time.Unix(-1<<62, 0)} {
		watch := &watcher{}
		p := retry.Policy{MaxAttempts: -1, MaxElapsed: 10 * time.Second, Backoff: retry.Backoff{Base: time.Second, Multiplier: 1, Jitter: retry.NoJitter},
			Clock: func() time.Time { return now }, Sleep: func(context.Context, time.Duration) error { return nil }, Observe: watch.Observe}
		calls := 0
		err := retry.Run(t.Context(), &p, func(context.Context) error { calls++; return retry.Transient(errOp) })
		require.Equal(t, 10, calls, "at 0, 1, … 9 s")
		require.Equal(t, retry.ErrDeadline, stopped(t, err).Reason)
		require.Equal(t, 9*time.Second, stopped(t, err).Elapsed)
		for i, r := range watch.Records() {
			require.Equal(t, time.Duration(i)*time.Second, r.Elapsed)
		}
	}
}

// Every step of a clock counts, none that goes back.
func TestClockThatJumps(t *testing.T) {
	for _, c := range []struct {
		name  string
		jump  func(now time.Time) time.Time // while attempt 2 runs
		calls int                           // of attempts a second apart, until the deadline at 10s
	}{
		{"back an hour", func(now time.Time) time.Time { return now.Add(-time.Hour) }, 10}, // fault B68
		{"back to the zero time", func(time.Time) time.Time { return time.Time{} }, 10},
		{"to the far past", func(time.Time) time.Time { return time.Unix(-1<<62, 0) }, 10},
		{"forward 3s", func(now time.Time) time.Time { return now.Add(3 * time.Second) }, 7},
		{"forward to 1ns before the last start", func(now time.Time) time.Time { return now.Add(8*time.Second - 1) }, 3},
		{"to the far future", func(time.Time) time.Time { return time.Unix(1<<62, 0) }, 2},
		{"to where it was, without its monotonic reading", func(now time.Time) time.Time { return now.Round(0) }, 10},
		{"to another zone", func(now time.Time) time.Time { return now.In(time.FixedZone("", -12*3600)) }, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := newClock()
			calls := 0
			p := retry.Policy{MaxAttempts: -1, MaxElapsed: 10 * time.Second, Backoff: retry.Backoff{Base: time.Second, Multiplier: 1, Jitter: retry.NoJitter},
				Clock: clock.Now, Sleep: clock.Sleep}
			err := retry.Run(t.Context(), &p, func(context.Context) error {
				if calls++; calls == 2 {
					clock.now = c.jump(clock.now)
				}
				return retry.Transient(errOp)
			})
			require.Equal(t, retry.ErrDeadline, stopped(t, err).Reason)
			require.Equal(t, c.calls, calls)
			require.GreaterOrEqual(t, stopped(t, err).Elapsed, 8*time.Second, "never negative, the longest at most")
		})
	}
}

// farCtx is a context whose deadline is anything, and which is never done.
type farCtx struct {
	context.Context
	at time.Time
}

func (c farCtx) Deadline() (time.Time, bool) { return c.at, true }

// A deadline of ctx at either end of time.
func TestCtxDeadlineAtTheEndsOfTime(t *testing.T) {
	for _, at := range []time.Time{{}, time.Unix(-1<<62, 0), time.Unix(0, 0)} {
		for _, longest := range []time.Duration{0, -1, math.MaxInt64, math.MinInt64} {
			ctx := farCtx{context.Background(), at}
			watch := &watcher{}
			p := retry.Policy{MaxElapsed: longest, AttemptTimeout: time.Second, Observe: watch.Observe}
			err := retry.Run(ctx, &p, func(context.Context) error { panic("called") })
			require.EqualError(t, err, "retry: not attempted: the deadline has passed")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, time.Duration(0), watch.Last().TimeLeft)
			p.Observe = nil
			require.ErrorIs(t, retry.Run(ctx, &p, func(context.Context) error { panic("called") }), retry.ErrDeadline)
		}
	}
	for _, at := range []time.Time{time.Unix(1<<62, 0), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)} {
		ctx, cancel := context.WithDeadline(t.Context(), at)
		defer cancel()
		clock := newClock()
		for _, longest := range []time.Duration{0, -1, math.MaxInt64} {
			p := retry.Policy{MaxElapsed: longest, Clock: clock.Now, Sleep: clock.Sleep, Rand: constant(0.5)}
			op := clock.script(failure(time.Second, retry.Transient(errOp)), success(0))
			_, err := retry.Do(ctx, &p, op.Do)
			require.NoError(t, err)
			require.Equal(t, 2, op.Calls())
			until, ok := op.ctx.Deadline()
			require.True(t, ok)
			require.False(t, until.Before(time.Now()))
		}
	}
}

// The earlier of MaxElapsed and ctx's deadline counts, whichever it is.
func TestTheEarlierDeadlineCounts(t *testing.T) {
	for _, c := range []struct{ longest, ctx, want time.Duration }{
		{10 * time.Second, 20 * time.Second, 10 * time.Second},
		{20 * time.Second, 10 * time.Second, 10 * time.Second},
		{10 * time.Second, 10 * time.Second, 10 * time.Second},
		{10 * time.Second, 10*time.Second - 1, 10*time.Second - 1},
		{10 * time.Second, 10*time.Second + 1, 10 * time.Second},
		{-1, 10 * time.Second, 10 * time.Second},
		{0, 40 * time.Second, 30 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), c.ctx)
			defer cancel()
			begin := time.Now()
			var last time.Duration
			p := retry.Policy{MaxAttempts: -1, MaxElapsed: c.longest, Backoff: retry.Backoff{Base: 999999937, Multiplier: 1, Jitter: retry.NoJitter}}
			err := retry.Run(ctx, &p, func(ctx context.Context) error {
				until, _ := ctx.Deadline()
				require.Equal(t, c.want, until.Sub(begin))
				last = time.Since(begin)
				return retry.Transient(errOp)
			})
			require.Equal(t, retry.ErrDeadline, stopped(t, err).Reason)
			require.Less(t, last, c.want)
			require.GreaterOrEqual(t, last+999999937, c.want)
			require.Equal(t, last, time.Since(begin), "it did not wait for nothing")
		})
	}
}

// Do with all seams left alone, in a bubble: nothing hangs, nothing takes time
// but the waits, which are in their windows.
func TestDefaultsInASyncBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ctx := range []context.Context{t.Context(), context.Background()} {
			begin, calls := time.Now(), 0
			err := retry.Run(ctx, nil, func(context.Context) error { calls++; return retry.Transient(errOp) })
			require.Equal(t, 5, calls)
			require.Equal(t, retry.ErrAttempts, stopped(t, err).Reason)
			took := time.Since(begin)
			require.Equal(t, took, stopped(t, err).Elapsed)
			require.Greater(t, took, time.Duration(0))
			require.LessOrEqual(t, took, seconds(0.2+0.4+0.8+1.6))
		}
	})
	synctest.Test(t, func(t *testing.T) { // draws injected: exact
		for _, ctx := range []context.Context{t.Context(), context.Background()} {
			for _, longest := range []time.Duration{0, -1} {
				begin := time.Now()
				var starts []time.Duration
				p := retry.Policy{MaxElapsed: longest, Rand: draws(t, 0.5, 0.25, 0.75, 0)}
				err := retry.Run(ctx, &p, func(context.Context) error {
					starts = append(starts, time.Since(begin))
					return retry.Transient(errOp)
				})
				require.Equal(t, retry.ErrAttempts, stopped(t, err).Reason)
				require.Equal(t, []time.Duration{0, 100 * ms, 200 * ms, 800 * ms, 800 * ms}, starts)
				require.Equal(t, 800*ms, stopped(t, err).Elapsed)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) { // the deadline holds, by its own context
		begin := time.Now()
		p := retry.Policy{Effect: retry.ReadOnly, MaxElapsed: 10 * time.Second}
		err := retry.Run(t.Context(), &p, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		require.Equal(t, 10*time.Second, time.Since(begin))
		require.EqualError(t, err, "retry: gave up after 1 attempt in 10s: the deadline has passed: context deadline exceeded")
	})
}

// The last value comes with the error, whatever ends the operation.
func TestLastValueComesWithTheError(t *testing.T) {
	clock := newClock()
	late := func(context.Context, time.Duration) error { clock.Advance(time.Hour); return nil }
	for name, p := range map[string]retry.Policy{
		"attempts":   {MaxAttempts: 3, Sleep: clock.Sleep},
		"woken late": {Sleep: late},
		"deadline":   {MaxElapsed: 1},
		"budget":     {Budget: &purse{}},
		"quick path": {MaxElapsed: -1, MaxAttempts: 1},
	} {
		p.Clock, p.Rand = clock.Now, constant(0.5)
		op := clock.script(failure(0, retry.Transient(errOp)))
		v, err := retry.Do(t.Context(), &p, op.Do) // its value is the number of the call
		require.Error(t, err, name)
		require.Equal(t, op.Calls(), v, name)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	v, err := retry.Do(ctx, nil, clock.script(success(0)).Do)
	require.Error(t, err)
	require.Zero(t, v, "op was never called")
}

// Run is Do without a value.
func TestRunIsDoWithoutAValue(t *testing.T) {
	clock := newClock()
	p := retry.Policy{Name: "run"}
	clock.drive(t, &p, 0.5)
	op := clock.script(failure(0, retry.Transient(errOp)), success(0))
	require.NoError(t, retry.Run(t.Context(), &p, op.Run))
	require.Equal(t, []time.Duration{100 * ms}, clock.Slept())
	require.EqualError(t, retry.Run(t.Context(), &p, clock.script(failure(0, retry.Permanent(errOp))).Run),
		"retry: run: stopped after 1 attempt in 0s: permanent: op failed")
}

// A nil op or ctx is a programmer's error; a nil Policy of any make is the zero one.
func TestNilArguments(t *testing.T) {
	op := func(context.Context) (int, error) { return 7, nil }
	run := func(context.Context) error { return nil }
	var none context.Context
	require.PanicsWithValue(t, "retry: nil Context", func() { _, _ = retry.Do(none, nil, op) })
	require.PanicsWithValue(t, "retry: nil Context", func() { _ = retry.Run(none, &retry.Policy{}, run) })
	require.PanicsWithValue(t, "retry: nil op", func() { _, _ = retry.Do[int](t.Context(), nil, nil) })
	require.PanicsWithValue(t, "retry: nil op", func() { _ = retry.Run(t.Context(), nil, nil) })

	var typed *retry.Policy
	v, err := retry.Do(t.Context(), typed, op)
	require.NoError(t, err)
	require.Equal(t, 7, v)
	require.Equal(t, (&retry.Policy{}).Plan(), typed.Plan())
}

// A value of Policy.Effect that is no constant counts as Unstated.
func TestEffectThatIsNoConstantCountsAsUnstated(t *testing.T) {
	clock, watch := newClock(), &watcher{}
	p := retry.Policy{Effect: 77, Clock: clock.Now, Sleep: clock.Sleep, Observe: watch.Observe}
	op := clock.script(failure(0, &retry.StatusError{Method: "GET", Code: 503}), success(0))
	_, err := retry.Do(t.Context(), &p, op.Do)
	require.NoError(t, err)
	require.Equal(t, retry.ReadOnly, watch.Records()[0].Effect, "what the error says")
}

// server answers each request with the next of its answers, then the last
// again, on loopback.
func server(t *testing.T, answers ...answer) (url string, requests *atomic.Int32) {
	requests = new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := int(requests.Add(1))
		a := answers[min(n, len(answers))-1]
		if a.after != "" {
			w.Header().Set("Retry-After", a.after)
		}
		w.WriteHeader(a.code)
	}))
	t.Cleanup(s.Close)
	return s.URL, requests
}

type answer struct {
	code  int
	after string // Retry-After
}

// fetch is an op that gets url and reports a failure as a *StatusError.
func fetch(url string) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return 0, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		if resp.StatusCode < 300 {
			return resp.StatusCode, nil
		}
		after, _ := retry.ParseRetryAfter(resp.Header.Get("Retry-After"), time.Now())
		return resp.StatusCode, &retry.StatusError{Method: req.Method, Code: resp.StatusCode, After: after}
	}
}

// acceptance.md, "Formulas" and "Retry-After", over real HTTP; only the waits
// are not slept.
func TestCallsOverRealHTTP(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers []answer
		calls   int32
		windows []time.Duration
		reason  error
	}{
		{"503 three times, then 200", []answer{{503, ""}, {503, ""}, {503, ""}, {200, ""}}, 4, []time.Duration{200 * ms, 400 * ms, 800 * ms}, nil},
		{"always 503", []answer{{503, ""}}, 5, []time.Duration{200 * ms, 400 * ms, 800 * ms, 1600 * ms}, retry.ErrAttempts},
		{"400", []answer{{400, ""}}, 1, nil, retry.ErrPermanent},
		{"401", []answer{{401, ""}}, 1, nil, retry.ErrPermanent},
		{"429 for a day", []answer{{429, "86400"}}, 1, nil, retry.ErrHint}, // fault B44
		// fault B48: Retry-After says when, never whether.
		{"200 with Retry-After", []answer{{200, "10"}}, 1, nil, nil},
		{"201 with Retry-After", []answer{{201, "10"}}, 1, nil, nil},
		{"400 with Retry-After", []answer{{400, "10"}}, 1, nil, retry.ErrPermanent},
		{"404 with Retry-After", []answer{{404, "10"}}, 1, nil, retry.ErrPermanent},
		// fault B36: a malformed value is no hint, and no failure.
		{"429 with nonsense", []answer{{429, "1m0s"}, {200, ""}}, 2, []time.Duration{200 * ms}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			url, requests := server(t, c.answers...)
			var slept []time.Duration
			watch := &watcher{}
			p := retry.Policy{Observe: watch.Observe, Rand: constant(0.5), Sleep: func(_ context.Context, d time.Duration) error {
				slept = append(slept, d)
				return nil
			}}
			begin := time.Now()
			v, err := retry.Do(t.Context(), &p, fetch(url))
			require.Equal(t, c.calls, requests.Load())
			var windows, own []time.Duration
			for _, r := range watch.Records() {
				if r.Decision == retry.Retrying {
					windows, own = append(windows, r.Window), append(own, r.Window/2)
				}
			}
			require.Equal(t, c.windows, windows)
			require.Equal(t, own, slept)
			require.Equal(t, c.answers[min(int(c.calls), len(c.answers))-1].code, v)
			if c.reason == nil {
				require.NoError(t, err)
				return
			}
			e := stopped(t, err)
			require.Equal(t, c.reason, e.Reason)
			if c.reason == retry.ErrHint {
				require.WithinRange(t, e.RetryAt, begin.Add(24*time.Hour), time.Now().Add(24*time.Hour), "a day ahead")
			}
		})
	}
}

// acceptance.md: 429 with Retry-After: 1, then 503, then 200, under the default
// policy, draws 0.5. This one test takes real time: 1.7 s.
func TestRetryAfterOverRealHTTPInRealTime(t *testing.T) {
	t.Parallel()
	url, requests := server(t, answer{429, "1"}, answer{503, ""}, answer{200, ""})
	begin := time.Now()
	v, err := retry.Do(t.Context(), &retry.Policy{Rand: constant(0.5)}, fetch(url))
	took := time.Since(begin)
	require.NoError(t, err)
	require.Equal(t, 200, v)
	require.Equal(t, int32(3), requests.Load())
	require.GreaterOrEqual(t, took, 1700*ms, "1 and a half of the spread's second, then half of 0.4")
	require.Less(t, took, 2500*ms)
}

// acceptance.md, "Formulas".
func TestWaitsOfTwoFailuresThenSuccess(t *testing.T) {
	clock, watch := newClock(), &watcher{}
	p := retry.Policy{Backoff: retry.Backoff{Base: 250 * ms, Multiplier: 2, Cap: 5 * time.Second}, Observe: watch.Observe}
	clock.drive(t, &p, 0.5, 0.5)
	_, err := retry.Do(t.Context(), &p, clock.script(failure(0, retry.Transient(errOp)), failure(0, retry.Transient(errOp)), success(0)).Do)
	require.NoError(t, err)
	require.Equal(t, []time.Duration{125 * ms, 250 * ms}, clock.Slept())

	clock, watch = newClock(), &watcher{}
	p.MaxAttempts, p.Observe = 8, watch.Observe
	clock.drive(t, &p, 0, 0, 0, 0, 0, 0, 0)
	_, err = retry.Do(t.Context(), &p, clock.script(failure(0, retry.Transient(errOp))).Do)
	require.ErrorIs(t, err, retry.ErrAttempts)
	var windows []time.Duration
	for _, r := range watch.Records()[:7] {
		windows = append(windows, r.Window)
	}
	require.Equal(t, []time.Duration{250 * ms, 500 * ms, time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second}, windows)
}
