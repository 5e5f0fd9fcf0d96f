package retry_test

// Faults that other retry libraries have had, each as a test of what it
// guards. Those with a place of their own are elsewhere: of waits and windows
// with Backoff and Jitter, of cancellation and goroutines (B56, B65, B96, B98, B99, B152, B177) in cancel_test.go, of
// clocks, hints and limits (B36, B44, B48, B68, B94, B104) in retry_test.go, of
// classes and marks in classify_test.go. B91, B92 and B175 are of options that
// this package does not have.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3d0f8764/retry"
)

// fault B41: a hint of 0, as a past date gives it, neither bypasses the own
// wait nor resets it.
func TestHintOfZeroNeverUndercutsTheOwnWait(t *testing.T) {
	clock := newClock()
	after, ok := retry.ParseRetryAfter("0", clock.Now())
	require.True(t, ok)
	p := retry.Policy{MaxAttempts: 4, Backoff: retry.Backoff{Base: 100 * ms, Jitter: retry.NoJitter}}
	clock.drive(t, &p, 0, 0, 0)
	_, err := retry.Do(t.Context(), &p, clock.script(failure(0, &retry.StatusError{Code: 429, After: after})).Do)
	require.ErrorIs(t, err, retry.ErrAttempts)
	require.Equal(t, []time.Duration{100 * ms, 200 * ms, 400 * ms}, clock.Slept())
}

// fault B58
func TestCancelledBeforehandNeverCallsOp(t *testing.T) {
	for _, p := range []retry.Policy{{}, {MaxElapsed: -1}, {AttemptTimeout: time.Second}, {Keep: 1}} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := retry.Run(ctx, &p, func(context.Context) error { panic("called") })
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, retry.ErrCanceled, stopped(t, err).Reason)
		require.Equal(t, 0, stopped(t, err).Attempts)
	}
}

// fault B61: a hint beyond the deadline stops at once, and the text says why: the
// deadline, the hint, and what the server said.
func TestHintBeyondTheDeadlineSaysSo(t *testing.T) {
	clock := newClock()
	p := retry.Policy{MaxElapsed: 15 * time.Minute, MaxHint: -1}
	clock.drive(t, &p, 0.5, 0.5)
	op := clock.script(failure(0, &retry.StatusError{Method: "GET", Code: 429, After: 40 * time.Minute}))
	_, err := retry.Do(t.Context(), &p, op.Do)
	require.Equal(t, 1, op.Calls())
	require.Equal(t, retry.ErrDeadline, stopped(t, err).Reason)
	require.Equal(t, clock.start.Add(40*time.Minute), stopped(t, err).RetryAt)
	for _, part := range []string{"25m0s past the deadline", "40m0s", "GET: status 429"} {
		require.ErrorContains(t, err, part)
	}
}

// fault B62: elapsed counts from the start of Do, a long first attempt included.
func TestALongFirstAttemptCounts(t *testing.T) {
	clock := newClock()
	p := retry.Policy{MaxElapsed: time.Second}
	clock.drive(t, &p, 0)
	op := clock.script(failure(2*time.Second, retry.Transient(errOp)))
	_, err := retry.Do(t.Context(), &p, op.Do)
	require.Equal(t, 1, op.Calls())
	require.Equal(t, retry.ErrDeadline, stopped(t, err).Reason)
	require.Equal(t, 2*time.Second, stopped(t, err).Elapsed)
}

// fault B63: the start is read from the clock, not left zero.
func TestLongMaxElapsedIsNotUsedUpAtTheStart(t *testing.T) {
	for _, clockOf := range []func() time.Time{nil, time.Now, func() time.Time { return time.Time{} }} {
		calls := 0
		p := retry.Policy{MaxElapsed: 72 * time.Hour, MaxAttempts: 2, Clock: clockOf, Sleep: newClock().Sleep}
		err := retry.Run(t.Context(), &p, func(context.Context) error { calls++; return retry.Transient(errOp) })
		require.Equal(t, 2, calls)
		require.Equal(t, retry.ErrAttempts, stopped(t, err).Reason)
	}
}

// fault B66: an error that Is DeadlineExceeded is not the caller's own deadline
// while ctx is alive.
func TestForeignDeadlineExceededIsJudgedByTheClassifier(t *testing.T) {
	foreign := fmt.Errorf("rpc: %w", context.DeadlineExceeded)
	for effect, calls := range map[retry.Effect]int{retry.ReadOnly: 2, retry.Idempotent: 2, retry.Mutation: 1, retry.Unstated: 1} {
		clock := newClock()
		op := clock.script(failure(0, foreign), success(0))
		_, err := retry.Do(t.Context(), &retry.Policy{Effect: effect, Clock: clock.Now, Sleep: clock.Sleep}, op.Do)
		require.Equal(t, calls, op.Calls())
		if calls == 2 {
			require.NoError(t, err)
		} else {
			require.Equal(t, retry.ErrUnknownOutcome, stopped(t, err).Reason)
		}
	}
}

// fault B69: with 1s left and a wait of exactly that, the wait is not clipped
// and no attempt starts at the deadline.
func TestNoAttemptStartsAtTheDeadline(t *testing.T) {
	for took, calls := range map[time.Duration]int{9*time.Second - 1: 2, 9 * time.Second: 1, 9*time.Second + 1: 1} {
		clock := newClock()
		p := retry.Policy{MaxElapsed: 10 * time.Second, MaxAttempts: 2, Backoff: retry.Backoff{Base: time.Second, Jitter: retry.NoJitter}}
		clock.drive(t, &p, 0)
		op := clock.script(failure(took, retry.Transient(errOp)), failure(0, retry.Transient(errOp)))
		_, err := retry.Do(t.Context(), &p, op.Do)
		require.Error(t, err)
		require.Equal(t, calls, op.Calls())
		for _, d := range clock.Slept() {
			require.Equal(t, time.Second, d)
		}
	}
}

// fault B70: an op that always fails at once never outlives MaxElapsed.
func TestTotalTimeIsAtMostMaxElapsed(t *testing.T) {
	for _, jitter := range jitters {
		clock := newClock()
		p := retry.Policy{MaxAttempts: -1, MaxElapsed: 5 * time.Second, Backoff: retry.Backoff{Cap: time.Second, Jitter: jitter},
			Clock: clock.Now, Sleep: clock.Sleep}
		op := clock.script(failure(ms, retry.Transient(errOp)))
		_, err := retry.Do(t.Context(), &p, op.Do)
		require.Equal(t, retry.ErrDeadline, stopped(t, err).Reason)
		require.LessOrEqual(t, clock.Elapsed(), 5*time.Second)
		require.Greater(t, clock.Elapsed(), 3*time.Second, "and it used what it could")
	}
}

// fault B77: the shape of the error and its reason do not depend on which
// limit would come next.
func TestPermanentIsPermanentAtEveryLimit(t *testing.T) {
	cause := errors.New("cause")
	for limit := 1; limit <= 3; limit++ {
		err := retry.Run(t.Context(), &retry.Policy{MaxAttempts: limit}, func(context.Context) error { return retry.Permanent(cause) })
		require.Equal(t, retry.ErrPermanent, stopped(t, err).Reason)
		require.ErrorIs(t, err, cause)
		require.EqualError(t, err, "retry: stopped after 1 attempt in "+stopped(t, err).Elapsed.String()+": permanent: cause")
	}
}

// faults B78, B79, B81, B186: the error that stopped it is there, whichever it
// was, for Is, As and Unwrap.
func TestTheErrorThatStoppedItIsReachable(t *testing.T) {
	a, b := retry.Transient(errors.New("a")), retry.Throttled(errors.New("b"), 5*time.Second)
	c := &retry.StatusError{Method: "GET", Code: 404}
	clock := newClock()
	p := retry.Policy{MaxAttempts: 10, Clock: clock.Now, Sleep: clock.Sleep}
	_, err := retry.Do(t.Context(), &p, clock.script(failure(0, a), failure(0, b), failure(0, c)).Do)
	require.ErrorIs(t, err, c)
	require.NotErrorIs(t, err, a)
	require.Same(t, c, errors.Unwrap(err))
	status, ok := errors.AsType[*retry.StatusError](err)
	require.True(t, ok)
	require.Same(t, c, status)

	p.MaxAttempts = 2 // exhausted by a hint: the cause and the hint are there
	_, err = retry.Do(t.Context(), &p, clock.script(failure(0, b)).Do)
	require.ErrorIs(t, err, errors.Unwrap(b))
	require.ErrorContains(t, err, "no attempts left: b")
	require.Equal(t, clock.Now().Add(5*time.Second), stopped(t, err).RetryAt)
}

// faults B86, B88, B89, B95, B162: one rule for zero and negative limits;
// attempts are counted, not retries; there is a wait between two attempts,
// none after the last.
func TestZeroIsTheDefaultAndNegativeIsUnlimited(t *testing.T) {
	for _, c := range []struct {
		name   string
		p      retry.Policy
		calls  int // of attempts that take a second each, until 100
		reason error
	}{
		{"zero: five attempts", retry.Policy{}, 5, retry.ErrAttempts},
		{"zero: thirty seconds", retry.Policy{MaxAttempts: -1}, 30, retry.ErrDeadline},
		{"unlimited", retry.Policy{MaxAttempts: -1, MaxElapsed: -1}, 100, nil},
		{"no retries", retry.Policy{MaxAttempts: 1}, 1, retry.ErrAttempts},
		{"three attempts", retry.Policy{MaxAttempts: 3}, 3, retry.ErrAttempts},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := newClock()
			c.p.Backoff = retry.Backoff{Base: 5 * ms, Multiplier: 1, Jitter: retry.NoJitter}
			c.p.Clock, c.p.Sleep = clock.Now, clock.Sleep
			calls := 0
			err := retry.Run(t.Context(), &c.p, func(context.Context) error {
				clock.Advance(time.Second)
				if calls++; calls == 100 {
					return nil
				}
				return retry.Transient(errOp)
			})
			require.Equal(t, c.calls, calls)
			require.Len(t, clock.Slept(), calls-1)
			for _, d := range clock.Slept() {
				require.Equal(t, 5*ms, d)
			}
			if c.reason == nil {
				require.NoError(t, err)
			} else {
				require.Equal(t, c.reason, stopped(t, err).Reason)
			}
		})
	}
}

// fault B93: a million failures keep no more than a thousand do.
func TestUnlimitedAttemptsKeepConstantMemory(t *testing.T) {
	for _, c := range []struct {
		name string
		p    retry.Policy
		many int
	}{
		{"no limit", retry.Policy{MaxElapsed: -1}, 1_000_000},
		{"with records", retry.Policy{MaxElapsed: -1, Keep: 3}, 100_000},
		{"with a timeout", retry.Policy{MaxElapsed: -1, AttemptTimeout: time.Hour}, 100_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, many := c.p, c.many
			if underRace() {
				many /= 20 // it takes ten times as long
			}
			p.MaxAttempts, p.Backoff.Base = -1, -1
			p.Sleep = func(context.Context, time.Duration) error { return nil }
			calls := 0
			var early, late uint64
			begin := time.Now()
			err := retry.Run(t.Context(), &p, func(context.Context) error {
				calls++
				switch calls {
				case 1000:
					early = heapInUse()
				case many:
					late = heapInUse()
					return retry.Permanent(errOp)
				}
				return &retry.StatusError{Code: 429, Method: "GET"}
			})
			require.Less(t, time.Since(begin), time.Minute)
			require.Equal(t, many, stopped(t, err).Attempts)
			require.LessOrEqual(t, late, early+64<<10)
		})
	}
}

// underRace reports whether the race detector watches.
func underRace() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// fault B105: a refusal of the budget comes at once, without a wait, and can
// be told from all else.
func TestBudgetRefusesAtOnce(t *testing.T) {
	clock := newClock()
	for range 100 {
		p := retry.Policy{Budget: &purse{}, Clock: clock.Now, Sleep: clock.Sleep}
		_, err := retry.Do(t.Context(), &p, clock.script(failure(0, retry.Transient(errOp))).Do)
		require.Equal(t, retry.ErrBudget, stopped(t, err).Reason)
	}
	require.Empty(t, clock.Slept())
}

// fault B110: the token of an operation cancelled in its wait serves the next.
func TestTokenOfACancelledRetryServesTheNext(t *testing.T) {
	clock, budget := newClock(), &purse{tokens: 1}
	ctx, cancel := context.WithCancel(t.Context())
	p := retry.Policy{Budget: budget, Clock: clock.Now, Sleep: func(context.Context, time.Duration) error { cancel(); return ctx.Err() }}
	_, err := retry.Do(ctx, &p, clock.script(failure(0, retry.Transient(errOp))).Do)
	require.ErrorIs(t, err, context.Canceled)
	p.Sleep = clock.Sleep
	_, err = retry.Do(t.Context(), &p, clock.script(failure(0, retry.Transient(errOp)), success(0)).Do)
	require.NoError(t, err)
}

// fault B111: the text says that it is the local budget, and has the server's
// last error; the error is both.
func TestBudgetRefusalReadsAsTheLocalBudgets(t *testing.T) {
	clock, answer := newClock(), &retry.StatusError{Method: "GET", Code: 503}
	p := retry.Policy{Name: "balance", Budget: &purse{}, Clock: clock.Now}
	_, err := retry.Do(t.Context(), &p, clock.script(failure(time.Second, answer)).Do)
	require.EqualError(t, err, "retry: balance: gave up after 1 attempt in 1s: the local retry budget refuses: purse is empty: GET: status 503")
	for _, is := range []error{retry.ErrBudget, errEmpty, answer} {
		require.ErrorIs(t, err, is)
	}
}

// faults B147: layers share one allowance, they do not multiply.
func TestLayersDoNotMultiply(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits []int // MaxAttempts, outermost first
		hide   bool  // each layer hides the inner error
		calls  int
	}{
		{"three in three", []int{3, 3}, false, 3},
		{"three in four", []int{4, 3}, false, 3},
		{"three in four, hidden", []int{4, 3}, true, 4},
		{"five deep", []int{3, 3, 3, 3, 3}, false, 3},
		{"five deep, hidden", []int{3, 3, 3, 3, 3}, true, 3},
		{"none outside", []int{1, 3}, false, 1},
		{"four in four", []int{4, 4}, true, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock, calls := newClock(), 0
			op := func(context.Context) error { calls++; return &retry.StatusError{Method: "GET", Code: 503} }
			for _, limit := range slices.Backward(c.limits) {
				inner := op
				p := &retry.Policy{MaxAttempts: limit, Clock: clock.Now, Sleep: clock.Sleep}
				op = func(ctx context.Context) error {
					err := retry.Run(ctx, p, inner)
					if c.hide && err != nil {
						return &retry.StatusError{Method: "GET", Code: 503}
					}
					return err
				}
			}
			require.Error(t, op(t.Context()))
			require.Equal(t, c.calls, calls)
		})
	}
}

// fault B149: two layers on one budget pay once for each retry that is made.
func TestLayersOnOneBudgetPayOnceForEachRetry(t *testing.T) {
	for _, hide := range []bool{false, true} {
		clock, budget, calls := newClock(), &purse{tokens: 5}, 0
		p := retry.Policy{MaxAttempts: 20, MaxElapsed: time.Hour, Budget: budget, Clock: clock.Now, Sleep: clock.Sleep}
		err := retry.Run(t.Context(), &p, func(ctx context.Context) error {
			err := retry.Run(ctx, &p, func(context.Context) error { calls++; return retry.Transient(errOp) })
			if hide {
				return retry.Transient(errors.New("hidden"))
			}
			return err
		})
		require.Equal(t, retry.ErrBudget, stopped(t, err).Reason)
		require.Equal(t, 6, calls)
		require.Equal(t, 0, budget.Tokens())
	}
}

// faults B150, B153: one record for each attempt: it says retrying only if a
// retry follows, and success only of a success.
func TestRecordsSayWhatFollowed(t *testing.T) {
	decisions := func(w *watcher) (d []retry.Decision) {
		for _, r := range w.Records() {
			d = append(d, r.Decision)
		}
		return d
	}
	clock, watch := newClock(), &watcher{}
	p := retry.Policy{MaxAttempts: 3, Observe: watch.Observe, Clock: clock.Now, Sleep: clock.Sleep}
	_, err := retry.Do(t.Context(), &p, clock.script(failure(0, retry.Transient(errOp))).Do)
	require.Error(t, err)
	require.Equal(t, []retry.Decision{retry.Retrying, retry.Retrying, retry.GaveUp}, decisions(watch))
	require.Equal(t, retry.ErrAttempts, watch.Last().Reason)

	*watch = watcher{}
	_, err = retry.Do(t.Context(), &p, clock.script(failure(0, retry.Transient(errOp)), success(0)).Do)
	require.NoError(t, err)
	require.Equal(t, []retry.Decision{retry.Retrying, retry.Succeeded}, decisions(watch))
	require.NoError(t, watch.Last().Reason)
}

// fault B152: what was announced and cancelled is no attempt.
func TestCancelledWaitLeavesNoPhantomAttempt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	watch, calls := &watcher{}, 0
	p := retry.Policy{Observe: watch.Observe, Sleep: func(context.Context, time.Duration) error { cancel(); return ctx.Err() }}
	err := retry.Run(ctx, &p, func(context.Context) error { calls++; return retry.Transient(errOp) })
	require.Equal(t, 1, calls)
	require.Equal(t, 1, stopped(t, err).Attempts)
	for _, r := range watch.Records() {
		require.Equal(t, 1, r.Attempt)
	}
}

// fault B156: no password and no query in any text.
func TestTextsLeaveOutPasswordsAndQueries(t *testing.T) {
	clock, watch := newClock(), &watcher{}
	failed := &url.Error{Op: "Get", URL: "http://user:s3cret@host/path?token=abc", Err: errors.New("broken")}
	p := retry.Policy{MaxAttempts: 1, Observe: watch.Observe, Clock: clock.Now}
	_, err := retry.Do(t.Context(), &p, clock.script(failure(0, fmt.Errorf("fetch: %w", failed))).Do)
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "record", watch.Last())
	for _, text := range []string{err.Error(), log.String()} {
		require.NotContains(t, text, "s3cret")
		require.NotContains(t, text, "abc")
		require.Contains(t, text, "host/path")
		require.Contains(t, text, "broken")
	}
	require.ErrorIs(t, err, failed, "the error itself is as it was")
}

// fault B157: a nil logger and a nil hook are no hook.
func TestNilLoggerAndNilHookAreNoHook(t *testing.T) {
	require.Nil(t, retry.LogRecords(nil))
	var logger *slog.Logger
	p := retry.Policy{Observe: retry.LogRecords(logger), MaxAttempts: 2, Sleep: newClock().Sleep}
	require.Error(t, retry.Run(t.Context(), &p, func(context.Context) error { return retry.Transient(errOp) }))
}

// faults B158, B159: a negative wait is no wait, never a spin that nobody asked for:
// attempts and the deadline still end it.
func TestNegativeWaitsAreNoWaitWithinTheLimits(t *testing.T) {
	for _, b := range []retry.Backoff{
		{Base: -time.Second}, {Base: math.MinInt64}, {Base: -1, Cap: -1, Multiplier: -2},
		{Jitter: func(retry.Step) time.Duration { return -time.Hour }},
	} {
		clock := newClock()
		p := retry.Policy{Backoff: b, Clock: clock.Now, Sleep: clock.Sleep}
		_, err := retry.Do(t.Context(), &p, clock.script(failure(0, retry.Transient(errOp))).Do)
		require.Equal(t, retry.ErrAttempts, stopped(t, err).Reason)
		require.Equal(t, []time.Duration{0, 0, 0, 0}, clock.Slept(), "slept is what was recorded, 0 too")
	}
}

// faults B163, B165: no own wait is longer than Cap, and Cap itself is reached.
func TestCapIsReachedAndNeverPassed(t *testing.T) {
	for name, jitter := range jitters {
		clock := newClock()
		p := retry.Policy{MaxAttempts: 200, MaxElapsed: -1, Backoff: retry.Backoff{Base: time.Second, Cap: 7 * time.Second, Jitter: jitter},
			Clock: clock.Now, Sleep: clock.Sleep, Rand: constant(1)}
		_, err := retry.Do(t.Context(), &p, clock.script(failure(time.Second, retry.Transient(errOp))).Do)
		require.ErrorIs(t, err, retry.ErrAttempts)
		longest := time.Duration(0)
		for _, d := range clock.Slept() {
			longest = max(longest, d)
		}
		require.Equal(t, 7*time.Second, longest, name)
	}
}

// faults B166, B168, B169, B170, B173: one Policy shared by all, the default
// and one with seams: each operation has its own attempts, windows and waits.
func TestOnePolicyServesManyGoroutines(t *testing.T) {
	var source = rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex
	locked := func() float64 { mu.Lock(); defer mu.Unlock(); return source.Float64() }
	for name, p := range map[string]*retry.Policy{
		"default":    {Sleep: func(context.Context, time.Duration) error { return nil }},
		"quick path": {MaxElapsed: -1, Sleep: func(context.Context, time.Duration) error { return nil }},
		"seams": {AttemptTimeout: time.Hour, Budget: &purse{tokens: 1 << 30}, Keep: 2, Rand: locked,
			Sleep: func(context.Context, time.Duration) error { return nil }, Clock: time.Now},
	} {
		t.Run(name, func(t *testing.T) {
			type key struct{}
			var records atomic.Int64
			if name == "seams" {
				p.Observe = func(ctx context.Context, r retry.Record) {
					records.Add(1)
					o := ctx.Value(key{}).(*[]int)
					*o = append(*o, r.Attempt)
					if r.Decision == retry.Retrying && r.Window != (200*ms)<<(r.Attempt-1) {
						panic(fmt.Sprint("window of attempt ", r.Attempt, ": ", r.Window))
					}
				}
			}
			var all sync.WaitGroup
			var failures atomic.Int64
			for g := range 100 {
				all.Go(func() {
					for i := range 100 {
						fails := (g + i) % 4
						var seen []int
						ctx := context.WithValue(context.Background(), key{}, &seen)
						calls := 0
						v, err := retry.Do(ctx, p, func(ctx context.Context) (int, error) {
							calls++
							if a := retry.Attempt(ctx); a != calls {
								failures.Add(1)
							}
							if calls <= fails {
								return 0, retry.Transient(errOp)
							}
							return g*100 + i, nil
						})
						if err != nil || v != g*100+i || calls != fails+1 {
							failures.Add(1)
						}
						for n, a := range seen {
							if a != n+1 {
								failures.Add(1)
							}
						}
					}
				})
			}
			all.Wait()
			require.Zero(t, failures.Load())
			if name == "seams" {
				require.EqualValues(t, 100*(0+1+1+1+2+1+3+1)*100/4, records.Load())
			}
		})
	}
}

// fault B168: an operation starts with the first window, whatever the one
// before came to.
func TestEachOperationStartsWithTheFirstWindow(t *testing.T) {
	clock := newClock()
	p := retry.Policy{MaxAttempts: 7, Backoff: retry.Backoff{Base: 100 * ms, Jitter: retry.DecorrelatedJitter}, Clock: clock.Now, Sleep: clock.Sleep, Rand: constant(0.5)}
	for range 2 {
		_, _ = retry.Do(t.Context(), &p, clock.script(failure(0, retry.Transient(errOp))).Do)
	}
	require.Len(t, clock.Slept(), 12)
	require.Equal(t, clock.Slept()[:6], clock.Slept()[6:])
	require.Equal(t, 200*ms, clock.Slept()[0], "100 ms and half of 3*100-100")
}

// fault B173: two interleaved operations number their attempts by themselves.
func TestInterleavedOperationsNumberTheirOwnAttempts(t *testing.T) {
	type key struct{}
	seen := map[string][]int{}
	clock := newClock()
	p := retry.Policy{Clock: clock.Now, Sleep: clock.Sleep, Observe: func(ctx context.Context, r retry.Record) {
		name := ctx.Value(key{}).(string)
		seen[name] = append(seen[name], r.Attempt)
	}}
	with := func(name string) context.Context { return context.WithValue(context.Background(), key{}, name) }
	b := clock.script(failure(0, retry.Transient(errOp)), success(0))
	calls := 0
	err := retry.Run(with("A"), &p, func(context.Context) error {
		calls++
		if calls == 2 { // B runs between A's attempts, in a context of its own
			if _, err := retry.Do(with("B"), &p, b.Do); err != nil {
				return err
			}
		}
		if calls <= 3 {
			return retry.Transient(errOp)
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, map[string][]int{"A": {1, 2, 3, 4}, "B": {1, 2}}, seen)
}

// fault B176: at the ends of the draws the waits are 0 and the whole window,
// and a date is as far away as the clock says, whatever day it is.
func TestExtremesAndDatesAreDeterministic(t *testing.T) {
	for u, want := range map[float64]time.Duration{0: 0, 1: 200 * ms} {
		clock := newClock()
		p := retry.Policy{}
		clock.drive(t, &p, u)
		_, err := retry.Do(t.Context(), &p, clock.script(failure(0, retry.Transient(errOp)), success(0)).Do)
		require.NoError(t, err)
		require.Equal(t, []time.Duration{want}, clock.Slept())
	}
	for _, year := range []int{1970, 1999, 2026, 2400, 9998} {
		clock := newClock()
		clock.now = time.Date(year, 12, 31, 23, 59, 58, 0, time.UTC)
		date := clock.Now().Add(7 * time.Second).Format(http.TimeFormat)
		after, ok := retry.ParseRetryAfter(date, clock.Now())
		require.True(t, ok)
		p := retry.Policy{Spread: -1}
		clock.drive(t, &p, 0)
		_, err := retry.Do(t.Context(), &p, clock.script(failure(0, &retry.StatusError{Code: 429, After: after}), success(0)).Do)
		require.NoError(t, err)
		require.Equal(t, []time.Duration{7 * time.Second}, clock.Slept())
	}
}

// faults B179, B180, B181: a panic passes through as it is, from wherever it
// comes; token and allowance are as if the retry that was not sent had never
// been, and the next operation of the same Policy works.
func TestPanicsPassThroughAndLeaveTheBooksRight(t *testing.T) {
	type boom struct{ where string }
	for _, c := range []struct {
		where  string
		errs   []error // of op; nil: success
		sent   int     // retries that were sent before the panic
		panics func(p *retry.Policy, b *brittle)
	}{
		{"op, attempt 1", nil, 0, func(p *retry.Policy, b *brittle) { b.op = 1 }},
		{"op, attempt 2", []error{retry.Transient(errOp)}, 1, func(p *retry.Policy, b *brittle) { b.op = 2 }},
		{"Classify", []error{errOp}, 0, func(p *retry.Policy, b *brittle) {
			p.Classify = func(error) retry.Verdict { b.panic(); return retry.Verdict{} }
		}},
		{"Observe, retrying", []error{retry.Transient(errOp)}, 0, func(p *retry.Policy, b *brittle) { p.Observe = b.observe(retry.Retrying, 1) }},
		{"Observe, retrying again", []error{retry.Transient(errOp), retry.Transient(errOp)}, 1, func(p *retry.Policy, b *brittle) { p.Observe = b.observe(retry.Retrying, 2) }},
		{"Observe, success", []error{retry.Transient(errOp), nil}, 1, func(p *retry.Policy, b *brittle) { p.Observe = b.observe(retry.Succeeded, 2) }},
		{"Observe, giving up", []error{retry.Permanent(errOp)}, 0, func(p *retry.Policy, b *brittle) { p.Observe = b.observe(retry.GaveUp, 1) }},
		{"Jitter", []error{retry.Transient(errOp)}, 0, func(p *retry.Policy, b *brittle) {
			p.Backoff.Jitter = func(retry.Step) time.Duration { b.panic(); return 0 }
		}},
		{"Rand", []error{retry.Transient(errOp)}, 0, func(p *retry.Policy, b *brittle) { p.Rand = func() float64 { b.panic(); return 0 } }},
		{"Rand for the spread", []error{retry.Throttled(errOp, 1)}, 0, func(p *retry.Policy, b *brittle) {
			n := 0
			p.Rand = func() float64 {
				if n++; n == 2 {
					b.panic()
				}
				return 0
			}
		}},
		{"Sleep", []error{retry.Transient(errOp)}, 0, func(p *retry.Policy, b *brittle) {
			p.Sleep = func(context.Context, time.Duration) error { b.panic(); return nil }
		}},
		{"Clock, at the start", nil, 0, func(p *retry.Policy, b *brittle) { p.Clock = b.clockAt(1) }},
		{"Clock, after attempt 1", []error{retry.Transient(errOp)}, 0, func(p *retry.Policy, b *brittle) { p.Clock = b.clockAt(2) }},
		{"Clock, on waking", []error{retry.Transient(errOp)}, 0, func(p *retry.Policy, b *brittle) { p.Clock = b.clockAt(3) }},
		{"Clock, after attempt 2", []error{retry.Transient(errOp), retry.Transient(errOp)}, 1, func(p *retry.Policy, b *brittle) { p.Clock = b.clockAt(4) }},
		{"Budget.Spend", []error{retry.Transient(errOp)}, 0, func(p *retry.Policy, b *brittle) { b.budget = "spend" }},
		{"Budget.Earn, success", []error{retry.Transient(errOp), nil}, 1, func(p *retry.Policy, b *brittle) { b.budget = "earn" }},
		{"Budget.Earn, answer", []error{retry.Transient(errOp), retry.Permanent(errOp)}, 1, func(p *retry.Policy, b *brittle) { b.budget = "earn" }},
		{"Budget.Return", []error{retry.Transient(errOp)}, 0, func(p *retry.Policy, b *brittle) {
			b.budget = "return"
			p.Sleep = func(context.Context, time.Duration) error { return errOp }
		}},
	} {
		for _, longest := range []time.Duration{0, -1} { // -1: the quick path, where nothing else needs a clock
			t.Run(fmt.Sprint(c.where, " ", longest), func(t *testing.T) {
				want := &boom{c.where}
				b := &brittle{value: want, purse: purse{tokens: 9}}
				good := retry.Policy{MaxElapsed: longest, Budget: b, Sleep: func(context.Context, time.Duration) error { return nil }}
				p := good
				c.panics(&p, b)
				if strings.HasPrefix(c.where, "Clock") && longest < 0 {
					p.Keep = 1 // else the clock is read less often
				}
				do := func(ctx context.Context, p *retry.Policy, errs ...error) error {
					calls := 0
					return retry.Run(ctx, p, func(context.Context) error {
						calls++
						if calls == b.op {
							b.panic()
						}
						return errs[min(calls, len(errs))-1]
					})
				}
				outer := retry.Policy{Name: "outer", MaxAttempts: 1 + c.sent + 1}
				_ = retry.Run(t.Context(), &outer, func(ctx context.Context) error {
					func() {
						defer func() { require.Same(t, want, recover(), "the very value") }()
						_ = do(ctx, &p, c.errs...)
						t.Error("no panic")
					}()
					b.op, b.budget = 0, ""
					spent := c.sent
					if c.where == "Budget.Return" {
						spent++ // it was to take the token back
					}
					require.Equal(t, 9-spent, b.purse.tokens, "tokens")

					// The allowance of the operation around has one retry left, just
					// one; what a success has spent is back, though a seam panicked.
					left := 1
					if strings.HasSuffix(c.where, "success") {
						left += c.sent
					}
					require.NoError(t, do(ctx, &good, append(slices.Repeat([]error{retry.Transient(errOp)}, left), nil)...))
					require.ErrorContains(t, do(ctx, &good, retry.Transient(errOp)), "the allowance of outer is spent")
					require.Equal(t, 9-spent-2*left, b.purse.tokens, "each retry was paid for")
					return nil
				})
				// The same Policy, mended, in a new operation.
				p.Classify, p.Observe, p.Backoff.Jitter, p.Rand, p.Sleep, p.Clock = good.Classify, nil, nil, nil, good.Sleep, nil
				require.NoError(t, do(t.Context(), &p, retry.Transient(errOp), nil))
			})
		}
	}
}

// brittle has seams that panic with value.
type brittle struct {
	purse
	value  any
	op     int    // call of op that panics
	budget string // method that panics
	reads  int    // of the clock
}

func (b *brittle) panic() { panic(b.value) }

func (b *brittle) observe(d retry.Decision, attempt int) func(context.Context, retry.Record) {
	return func(_ context.Context, r retry.Record) {
		if r.Decision == d && r.Attempt == attempt {
			b.panic()
		}
	}
}

// clockAt panics at the n-th reading.
func (b *brittle) clockAt(n int) func() time.Time {
	return func() time.Time {
		if b.reads++; b.reads == n {
			b.panic()
		}
		return time.Unix(0, 0)
	}
}

func (b *brittle) Spend(ctx context.Context, v retry.Verdict, w float64) (float64, error) {
	if b.budget == "spend" {
		b.panic()
	}
	return b.purse.Spend(ctx, v, w)
}

func (b *brittle) Return(ctx context.Context, cost float64) {
	if b.budget == "return" {
		b.panic()
	}
	b.purse.Return(ctx, cost)
}

func (b *brittle) Earn(ctx context.Context, cost float64) {
	if b.budget == "earn" {
		b.panic()
	}
	b.purse.Earn(ctx, cost)
}

// fault B179: not even a classifier that repeats everything sees a panic.
func TestPanicsAreNeverRepeated(t *testing.T) {
	for _, value := range []any{http.ErrAbortHandler, "x", 7} {
		calls := 0
		require.PanicsWithValue(t, value, func() {
			_ = retry.Run(t.Context(), &retry.Policy{Classify: retry.Always}, func(context.Context) error { calls++; panic(value) })
		})
		require.Equal(t, 1, calls)
	}
	// runtime.Goexit, as t.FailNow does it, ends the goroutine through Do.
	done, calls := make(chan struct{}), 0
	budget := &purse{tokens: 1}
	go func() {
		defer close(done)
		_ = retry.Run(context.Background(), &retry.Policy{Budget: budget, Sleep: func(context.Context, time.Duration) error { runtime.Goexit(); return nil }},
			func(context.Context) error { calls++; return retry.Transient(errOp) })
		calls = -1
	}()
	<-done
	require.Equal(t, 1, calls)
	require.Equal(t, 1, budget.Tokens())
}

// faults B183, B184: a value that was bad to the last comes with an error.
func TestABadValueComesWithAnError(t *testing.T) {
	clock, calls := newClock(), 0
	p := retry.Policy{MaxAttempts: 3, Clock: clock.Now, Sleep: clock.Sleep}
	v, err := retry.Do(t.Context(), &p, func(context.Context) (string, error) {
		calls++
		return fmt.Sprint("partial ", calls), retry.Transient(errors.New("not all there"))
	})
	require.Equal(t, "partial 3", v)
	require.ErrorIs(t, err, retry.ErrAttempts)
}

// fault B185: what callers may rely on in an error.
func TestTheErrorsContract(t *testing.T) {
	clock := newClock()
	cause := errors.New("busy")
	p := retry.Policy{Name: "orders", MaxAttempts: 2, Spread: -1, Keep: 1, Clock: clock.Now, Sleep: clock.Sleep}
	_, err := retry.Do(t.Context(), &p, clock.script(failure(time.Second, retry.Throttled(cause, 3*time.Second))).Do)
	e, ok := errors.AsType[*retry.Error](fmt.Errorf("wrapped: %w", err))
	require.True(t, ok)
	require.Equal(t, "orders", e.Operation)
	require.True(t, e.Reason == retry.ErrAttempts, "comparable")
	require.Equal(t, 2, e.Attempts)
	require.Equal(t, 5*time.Second, e.Elapsed)
	require.Equal(t, clock.Now().Add(3*time.Second), e.RetryAt)
	require.Equal(t, cause, errors.Unwrap(e.Last))
	require.Len(t, e.Records, 1)
	require.Equal(t, e.Last, errors.Unwrap(err))
	reasons := []error{retry.ErrUnclassified, retry.ErrPermanent, retry.ErrSuspended, retry.ErrUnknownOutcome, retry.ErrAttempts,
		retry.ErrHint, retry.ErrDeadline, retry.ErrBudget, retry.ErrCanceled, retry.ErrJournal}
	for _, reason := range reasons {
		require.Equal(t, reason == retry.ErrAttempts, errors.Is(err, reason), reason)
	}
	require.NotErrorIs(t, err, context.DeadlineExceeded)
}

// fault B27: two default policies draw from different sequences, and so do two
// operations of one, and two processes: nothing is seeded alike.
func TestDefaultDrawsDiffer(t *testing.T) {
	first, second := defaultDraws(t.Context()), defaultDraws(t.Context())
	require.Len(t, first, 8)
	require.NotEqual(t, first, second)

	const child = "RETRY_TEST_DRAWS"
	if os.Getenv(child) != "" {
		fmt.Println("draws:", first)
		return
	}
	process := func() string {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		c.Env = append(os.Environ(), child+"=1")
		out, err := c.Output()
		require.NoError(t, err)
		_, drawn, ok := strings.Cut(string(out), "draws:")
		require.True(t, ok, "%s", out)
		drawn, _, _ = strings.Cut(drawn, "]")
		return drawn
	}
	require.NotEqual(t, process(), process())
}

// fault B28: what is drawn comes from no clock: while that stands still, the
// draws of operation after operation differ.
func TestDefaultDrawsDoNotComeFromTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, seen := time.Now(), map[float64]bool{}
		for range 100 {
			seen[defaultDraws(t.Context())[0]] = true
		}
		require.Equal(t, start, time.Now())
		require.Len(t, seen, 100)
	})
}

// defaultDraws returns the eight draws of an operation without a Rand.
func defaultDraws(ctx context.Context) (u []float64) {
	p := retry.Policy{MaxAttempts: 9, MaxElapsed: -1, Sleep: func(context.Context, time.Duration) error { return nil }}
	p.Observe = func(_ context.Context, r retry.Record) {
		if r.Decision == retry.Retrying {
			u = append(u, r.Draw)
		}
	}
	_ = retry.Run(ctx, &p, func(context.Context) error { return retry.Transient(errOp) })
	return u
}

// fault B113, decided: what one operation was told holds back no first attempt
// of another, unless they share a gate.
func TestAHintToOneHoldsBackAnotherOnlyAtAGate(t *testing.T) {
	for _, c := range []struct {
		gate retry.Gate
		wait time.Duration // of B, which comes a second after A was told
	}{{nil, 0}, {new(retry.PacedGate), 59 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			p := retry.Policy{Gate: c.gate, MaxElapsed: 5 * time.Minute, Spread: -1}
			var a sync.WaitGroup
			a.Go(func() {
				_ = retry.Run(t.Context(), &p, func(ctx context.Context) error {
					if retry.Attempt(ctx) == 1 {
						return &retry.StatusError{Code: 429, After: time.Minute}
					}
					return nil
				})
			})
			time.Sleep(time.Second)
			start := time.Now()
			require.NoError(t, retry.Run(t.Context(), &p, func(context.Context) error {
				require.GreaterOrEqual(t, time.Since(start), c.wait)
				if c.gate == nil {
					require.Zero(t, time.Since(start))
				}
				return nil
			}))
			a.Wait()
		})
	}
}

// fault B162: the zero value of every struct that an operation uses is ready,
// and stops by itself.
func TestZeroValuesAreReadyAndStop(t *testing.T) {
	type seams struct {
		budget  retry.Bucket
		gate    retry.PacedGate
		journal retry.Journal
		stats   retry.Stats
	}
	for _, failure := range []error{retry.Transient(errOp), retry.Throttled(errOp, 0), retry.Suspended(errOp, 0), errOp, nil} {
		synctest.Test(t, func(t *testing.T) {
			var s seams
			p := retry.Policy{Backoff: retry.Backoff{}, Budget: &s.budget, Gate: &s.gate, Journal: &s.journal, Observe: s.stats.Observe}
			start, calls := time.Now(), 0
			err := retry.Run(t.Context(), &p, func(context.Context) error { calls++; return failure })
			require.Equal(t, failure == nil, err == nil)
			require.Less(t, time.Since(start), 31*time.Second)
			require.LessOrEqual(t, calls, 5)
			require.Equal(t, calls, s.journal.State.Attempts)
			require.True(t, s.journal.State.Ended)
			require.EqualValues(t, 1, s.budget.Counts().Operations)
			require.NotEmpty(t, s.stats.String())
		})
	}
	require.Equal(t, 200*ms, retry.Backoff{}.Window(0))
	require.Equal(t, 100*ms, retry.Backoff{}.Wait(retry.Step{Draw: 0.5}))
	require.Equal(t, retry.ClassUnclassified, retry.Classify(&retry.StatusError{}).Class)
	for _, p := range []*retry.Policy{nil, {}} {
		require.Len(t, p.Plan(), 5)
	}
	// Without Find there is nothing to look up with: refused at once.
	require.PanicsWithValue(t, "retry: nil send or Find", func() {
		_, _ = retry.Submit(t.Context(), nil, func(context.Context) (int, error) { return 0, nil }, retry.Lookup[int]{})
	})
}

// fault B49, decided: a 413 is permanent, with or without a hint, and the error
// says when the server would take it.
func TestTooLargeIsPermanentWithOrWithoutAHint(t *testing.T) {
	for _, after := range []time.Duration{0, 5 * time.Second} {
		clock := newClock()
		p := retry.Policy{}
		clock.drive(t, &p)
		op := clock.script(failure(0, &retry.StatusError{Method: "GET", Code: 413, After: after}))
		_, err := retry.Do(t.Context(), &p, op.Do)
		require.Equal(t, 1, op.Calls())
		require.Equal(t, retry.ErrPermanent, stopped(t, err).Reason)
		require.Equal(t, after == 0, stopped(t, err).RetryAt.IsZero())
	}
}

// fault B136: an order that timed out is not sent again, and the error says
// that its outcome is unknown.
func TestAMutationThatTimedOutIsNotRepeated(t *testing.T) {
	clock := newClock()
	p := retry.Policy{Effect: retry.Mutation, AttemptTimeout: time.Second}
	clock.drive(t, &p)
	op := clock.script(failure(time.Second, context.DeadlineExceeded))
	_, err := retry.Do(t.Context(), &p, op.Do)
	require.Equal(t, 1, op.Calls())
	require.Equal(t, retry.ErrUnknownOutcome, stopped(t, err).Reason)
}

// A status that the table knows and does not repeat stays so, however late it
// came; an error that no rule knows is that of a timeout.
func TestALateStatusIsWhatTheTableSays(t *testing.T) {
	for _, c := range []struct {
		err   error
		calls int
	}{
		{&retry.StatusError{Method: "GET", Code: 501}, 1},
		{errOp, 2},
	} {
		clock := newClock()
		p := retry.Policy{Effect: retry.ReadOnly, AttemptTimeout: time.Second}
		if c.calls == 2 {
			clock.drive(t, &p, 0)
		} else {
			clock.drive(t, &p)
		}
		op := clock.script(failure(time.Second, c.err), success(0))
		_, _ = retry.Do(t.Context(), &p, op.Do)
		require.Equal(t, c.calls, op.Calls(), "%v", c.err)
	}
}
