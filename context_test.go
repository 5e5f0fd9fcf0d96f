package retry_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-3d0f8764/retry"
)

var (
	errCtxDeadline = errors.New("the caller's deadline")
	errCtxCause    = errors.New("why the caller cancelled")
)

type ctxKey string

// ctxWrapper is a user's context around another one.
type ctxWrapper struct{ context.Context }

// wrapCtx wraps ctx in every way that keeps its deadline.
func wrapCtx(ctx context.Context) context.Context {
	ctx = context.WithValue(ctxWrapper{ctx}, ctxKey("between"), "between")
	ctx, cancel := context.WithCancelCause(ctxWrapper{ctx})
	_ = cancel // its parent ends it
	return ctxWrapper{ctx}
}

// ctxEnding is what a context says of its end.
type ctxEnding struct{ err, cause error }

func endingOf(ctx context.Context) ctxEnding { return ctxEnding{ctx.Err(), context.Cause(ctx)} }

func ctxClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// settledGoroutines counts them once those of earlier tests have ended. The
// count may still fall, so it is compared with LessOrEqual.
func settledGoroutines() int {
	n := runtime.NumGoroutine()
	for same := 0; same < 100; same++ {
		runtime.Gosched()
		if m := runtime.NumGoroutine(); m != n {
			n, same = m, 0
		}
	}
	return n
}

// ctxParents are the contexts that a caller may pass.
var ctxParents = []struct {
	name     string
	deadline time.Duration // 0: none
	make     func(at time.Time) (context.Context, func())
}{
	{"background", 0, func(time.Time) (context.Context, func()) { return context.Background(), func() {} }},
	{"cancel with a cause, wrapped", 0, func(time.Time) (context.Context, func()) {
		ctx, cancel := context.WithCancelCause(context.WithValue(context.Background(), ctxKey("k"), "v"))
		return ctxWrapper{ctx}, func() { cancel(errCtxCause) }
	}},
	{"deadline with a cause", 7 * time.Second, func(at time.Time) (context.Context, func()) {
		ctx, cancel := context.WithCancelCause(context.WithValue(context.Background(), ctxKey("k"), "v"))
		ctx, stop := context.WithDeadlineCause(ctx, at, errCtxDeadline)
		return ctx, func() { cancel(errCtxCause); stop() }
	}},
	{"deadline, wrapped", 20 * time.Second, func(at time.Time) (context.Context, func()) {
		ctx, cancel := context.WithDeadline(context.Background(), at)
		return wrapCtx(ctx), cancel
	}},
}

// ctxTwins are the context of an attempt and a standard one that is made like
// it. Whatever is asked of the one is asked of the other.
type ctxTwins struct {
	t            require.TestingT
	parent       context.Context
	attempt, std context.Context
	at           time.Time // the deadline; zero: none
	stop         context.CancelFunc
	stopped      bool
	done         <-chan struct{}

	watched bool        // someone waited before it ended: it must say what ended it first
	ways    []ctxEnding // in which it has ended. Where nobody watched, nobody knows their order
	said    *ctxEnding
	kids    [][2]context.Context
	ran     [2]atomic.Int32 // AfterFunc
}

func (w *ctxTwins) happened() {
	note := func(e ctxEnding) {
		if !slices.Contains(w.ways, e) {
			w.ways = append(w.ways, e)
		}
	}
	if w.parent.Err() != nil {
		note(endingOf(w.parent))
	}
	if !w.at.IsZero() && !time.Now().Before(w.at) {
		note(ctxEnding{context.DeadlineExceeded, context.DeadlineExceeded})
	}
	if w.stopped {
		note(ctxEnding{context.Canceled, context.Canceled})
	}
}

func (w *ctxTwins) settle() {
	synctest.Wait()
	w.happened()
}

func (w *ctxTwins) askErr() {
	got, want := endingOf(w.attempt), endingOf(w.std)
	if got.err != nil {
		require.True(w.t, ctxClosed(w.attempt.Done()), "Err is %v, but Done is open", got.err)
	}
	switch {
	case got.err == nil || want.err == nil:
		require.Equal(w.t, want, got)
	case w.said != nil:
		require.Equal(w.t, *w.said, got, "it has said otherwise before")
	default:
		w.said = &got
		if at, ok := w.parent.Deadline(); w.watched && !(ok && at.Equal(w.at)) {
			require.Equal(w.t, want, got)
		}
		require.Contains(w.t, w.ways, got)
	}
	for _, k := range w.kids {
		require.Equal(w.t, k[1].Err() != nil, k[0].Err() != nil, "a derived context")
		if k[0].Err() != nil {
			require.Equal(w.t, endingOf(w.attempt), endingOf(k[0]), "a derived context")
		}
		require.Equal(w.t, ctxClosed(k[1].Done()), ctxClosed(k[0].Done()), "a derived context")
	}
}

func (w *ctxTwins) askDone() {
	w.watched = w.watched || len(w.ways) == 0
	done := w.attempt.Done()
	if w.done != nil {
		require.Equal(w.t, w.done, done, "Done has returned another channel before")
	}
	w.done = done
	require.Equal(w.t, ctxClosed(w.std.Done()), ctxClosed(done))
	require.Equal(w.t, w.attempt.Err() != nil, ctxClosed(done))
}

func (w *ctxTwins) askRest() {
	want, wantOK := w.std.Deadline()
	got, ok := w.attempt.Deadline()
	require.Equal(w.t, wantOK, ok)
	require.True(w.t, got.Equal(want), "deadline %v, not %v", got, want)
	for _, k := range []ctxKey{"k", "none", "between"} {
		require.Equal(w.t, w.std.Value(k), w.attempt.Value(k))
	}
	require.Nil(w.t, w.attempt.Value(nil))
	require.Equal(w.t, w.ran[1].Load(), w.ran[0].Load(), "AfterFunc")
}

// derive derives a child in the nth way and fails if that starts a goroutine.
func (w *ctxTwins) derive(n int) {
	w.watched = w.watched || len(w.ways) == 0 && n%5 != 2 // WithValue asks for nothing
	before := settledGoroutines()
	var k [2]context.Context
	for i, ctx := range []context.Context{w.attempt, w.std} {
		switch n % 5 {
		case 0:
			kid, cancel := context.WithCancelCause(ctx)
			_, k[i] = cancel, kid // its parent ends it
		case 1:
			ctx, stop := context.WithTimeout(ctxWrapper{ctx}, 1000*time.Hour)
			k[i] = ctx
			context.AfterFunc(ctx, stop)
		case 2:
			k[i] = context.WithValue(ctx, ctxKey("own"), "own")
		case 3:
			context.AfterFunc(ctxWrapper{ctx}, func() { w.ran[i].Add(1) })
			k[i] = ctx
		case 4:
			k[i] = wrapCtx(ctx)
		}
		if i == 0 && len(w.ways) == 0 {
			require.LessOrEqual(w.t, runtime.NumGoroutine(), before, "a goroutine was started")
		}
	}
	w.kids = append(w.kids, k)
	w.settle()
}

// end ends the standard one as Do has ended the other.
func (w *ctxTwins) end() {
	if !w.at.IsZero() {
		w.stop()
		w.stopped = true
	}
	w.happened()
}

// The attempt's context against the standard one: any policy, attempt, caller's
// context, time, cancellation, question and derived context, in op and after Do.
func TestAttemptsContextAgreesWithTheStandardOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parent := rapid.SampledFrom(ctxParents).Draw(t, "caller's ctx")
		p := retry.Policy{
			MaxElapsed:     rapid.SampledFrom([]time.Duration{-1, 0, 5 * time.Second, 7 * time.Second}).Draw(t, "MaxElapsed"),
			AttemptTimeout: rapid.SampledFrom([]time.Duration{0, 3 * time.Second, 7 * time.Second}).Draw(t, "AttemptTimeout"),
			MinTimeout:     -1,
			Classify:       retry.Always,
			Backoff:        retry.Backoff{Base: time.Second, Multiplier: 1, Jitter: retry.NoJitter},
			Keep:           rapid.IntRange(0, 1).Draw(t, "Keep"),
		}
		number := rapid.IntRange(1, 3).Draw(t, "attempt")
		nested := rapid.Bool().Draw(t, "nested")
		early := rapid.IntRange(0, 3).Draw(t, "earlier attempts ask for Done")
		steps := rapid.SliceOfN(rapid.IntRange(0, 59), 0, 12).Draw(t, "steps")
		inOp := rapid.IntRange(0, len(steps)).Draw(t, "steps in op")
		succeed := rapid.Bool().Draw(t, "success")

		rapid.SyncTest(t, func(t *rapid.T) {
			start := time.Now()
			ctx, cancel := parent.make(start.Add(parent.deadline))
			defer cancel()
			var w *ctxTwins
			step := func(s int) {
				switch s % 10 {
				case 0:
					cancel()
					w.happened()
					w.askErr() // at once
				case 1, 2:
					time.Sleep([]time.Duration{1, time.Second, 3*time.Second - 1, 3 * time.Second, time.Minute}[s/10%5])
				case 3, 4:
					w.derive(s / 10)
				case 5, 6:
					w.askDone()
				case 7:
					w.askErr()
				default:
					w.askRest()
				}
				w.settle()
			}
			op := func(caller context.Context) func(context.Context) error {
				return func(ctx context.Context) error {
					if n := retry.Attempt(ctx); n < number {
						if n <= early {
							ctx.Done()
						}
						return errOp
					}
					if w != nil {
						return retry.Permanent(errOp) // after the one that was looked at
					}
					w = &ctxTwins{t: t, parent: caller, attempt: ctx, std: caller, stop: func() {}}
					if at, ok := earliestDeadline(caller, start, &p); ok {
						w.at = at
						w.std, w.stop = context.WithDeadline(caller, at)
					}
					w.settle()
					for _, s := range steps[:inOp] {
						step(s)
					}
					if succeed {
						return nil
					}
					return retry.Permanent(errOp)
				}
			}
			if nested {
				// The caller's ctx is that of an attempt.
				_ = retry.Run(ctx, &retry.Policy{MaxElapsed: -1, MaxAttempts: -1, Keep: 1}, func(ctx context.Context) error {
					ctx = wrapCtx(ctx)
					_ = retry.Run(ctx, &p, op(ctx))
					w.end()
					for _, s := range steps[inOp:] {
						step(s)
					}
					return nil
				})
			} else {
				_ = retry.Run(ctx, &p, op(ctx))
				w.end()
				for _, s := range steps[inOp:] {
					step(s)
				}
			}
			w.settle()
			w.askErr()
			w.askDone()
			if !nested {
				require.Equal(t, !w.at.IsZero() || ctx.Err() != nil, w.attempt.Err() != nil,
					"after Do, one with a deadline has ended and one without has not")
			}
			w.stop()
			cancel()
		})
	})
}

// earliestDeadline is what design says of an attempt that starts now:
// min(now + AttemptTimeout, start + MaxElapsed, ctx's).
func earliestDeadline(ctx context.Context, start time.Time, p *retry.Policy) (at time.Time, ok bool) {
	least := func(t time.Time) {
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	if d, has := ctx.Deadline(); has {
		least(d)
	}
	switch {
	case p.MaxElapsed == 0:
		least(start.Add(30 * time.Second))
	case p.MaxElapsed > 0:
		least(start.Add(p.MaxElapsed))
	}
	if p.AttemptTimeout > 0 {
		least(time.Now().Add(p.AttemptTimeout))
	}
	return at, ok
}

// Attempt 2 begins 3 s after the start: 2 s in attempt 1, 1 s of wait.
func TestOpsDeadlineIsTheEarlierOfItsTimeoutAndTheDeadline(t *testing.T) {
	const s, none = time.Second, time.Duration(-1)
	for _, test := range []struct {
		name                  string
		elapsed, timeout, ctx time.Duration // ctx 0: no deadline
		first, second         time.Duration // after the start; none: no deadline
	}{
		{"default", 0, 0, 0, 30 * s, 30 * s},
		{"no deadline", -1, 0, 0, none, none},
		{"no deadline, negative timeout", -1, -1, 0, none, none},
		{"MaxElapsed", 12 * s, 0, 0, 12 * s, 12 * s},
		{"timeout only", -1, 5 * s, 0, 5 * s, 8 * s},
		{"timeout in MaxElapsed", 12 * s, 5 * s, 0, 5 * s, 8 * s},
		{"timeout longer than MaxElapsed", 30 * s, 60 * s, 0, 30 * s, 30 * s},
		{"timeout equal to MaxElapsed", 30 * s, 30 * s, 0, 30 * s, 30 * s},
		{"timeout 1ns shorter than MaxElapsed", 30 * s, 30*s - 1, 0, 30*s - 1, 30 * s},
		{"less left than a timeout", 7 * s, 5 * s, 0, 5 * s, 7 * s},
		{"just a timeout left", 8 * s, 5 * s, 0, 5 * s, 8 * s},
		{"ctx only", -1, 0, 9 * s, 9 * s, 9 * s},
		{"ctx before MaxElapsed", 12 * s, 0, 12*s - 1, 12*s - 1, 12*s - 1},
		{"ctx at MaxElapsed", 12 * s, 0, 12 * s, 12 * s, 12 * s},
		{"ctx after MaxElapsed", 12 * s, 0, 12*s + 1, 12 * s, 12 * s},
		{"ctx before the timeout", -1, 5 * s, 5*s - 1, 5*s - 1, 5*s - 1},
		{"ctx after the timeout", -1, 5 * s, 5*s + 1, 5 * s, 5*s + 1},
		{"all three", 7 * s, 3 * s, 5 * s, 3 * s, 5 * s},
		{"the longest duration", math.MaxInt64, 0, 0, math.MaxInt64, math.MaxInt64},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				ctx := t.Context()
				if test.ctx != 0 {
					var cancel func()
					ctx, cancel = context.WithTimeout(ctx, test.ctx)
					defer cancel()
				}
				p := retry.Policy{MaxElapsed: test.elapsed, AttemptTimeout: test.timeout, MinTimeout: -1,
					Backoff: retry.Backoff{Base: s, Jitter: retry.NoJitter}}
				var got []time.Duration
				require.NoError(t, retry.Run(ctx, &p, func(ctx context.Context) error {
					at, ok := ctx.Deadline()
					if !ok {
						got = append(got, none)
					} else {
						got = append(got, at.Sub(start)) // saturates
					}
					if len(got) == 2 {
						return nil
					}
					time.Sleep(2 * s)
					return retry.Transient(errOp)
				}))
				want := []time.Duration{test.first, test.second}
				if test.elapsed == math.MaxInt64 { // the end of time, or what is left on the clock until then
					for i := range got {
						require.Greater(t, got[i], time.Duration(math.MaxInt64-math.MaxInt64/8))
					}
					return
				}
				require.Equal(t, want, got)
			})
		})
	}
}

// The deadline is not only said: that is when op's ctx ends.
func TestOpsContextEndsAtItsDeadline(t *testing.T) {
	for name, p := range map[string]retry.Policy{
		"timeout":    {AttemptTimeout: 3 * time.Second},
		"MaxElapsed": {MaxElapsed: 3 * time.Second},
		"both":       {AttemptTimeout: 3 * time.Second, MaxElapsed: 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				_ = retry.Run(t.Context(), &p, func(ctx context.Context) error {
					<-ctx.Done()
					require.Equal(t, 3*time.Second, time.Since(start))
					require.Equal(t, ctxEnding{context.DeadlineExceeded, context.DeadlineExceeded}, endingOf(ctx))
					return ctx.Err()
				})
			})
		})
	}
}

// Before the deadline and at it, without anyone having asked for Done.
func TestOpsErrIsRightWithoutDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_ = retry.Run(t.Context(), &retry.Policy{AttemptTimeout: 3 * time.Second}, func(ctx context.Context) error {
			time.Sleep(3*time.Second - 1)
			require.NoError(t, ctx.Err())
			time.Sleep(time.Nanosecond)
			require.Equal(t, context.DeadlineExceeded, ctx.Err())
			return ctx.Err()
		})
	})
}

// An injected clock may show anything; op's ctx speaks real time: what is left
// on Clock, from the real now.
func TestWithAnInjectedClockOpsContextSpeaksRealTime(t *testing.T) {
	for _, at := range []time.Time{{}, time.Unix(0, 0), time.Date(2140, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)} {
		t.Run(at.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				now, start := at, time.Now()
				p := retry.Policy{
					MaxElapsed: 20 * time.Second, MinTimeout: -1,
					Backoff: retry.Backoff{Base: 2 * time.Second, Jitter: retry.NoJitter},
					Clock:   func() time.Time { return now },
					Sleep:   func(_ context.Context, d time.Duration) error { now = now.Add(d); return nil },
				}
				var got []time.Duration
				run := func(ctx context.Context) {
					got = nil
					require.NoError(t, retry.Run(ctx, &p, func(ctx context.Context) error {
						deadline, ok := ctx.Deadline()
						require.True(t, ok)
						got = append(got, time.Until(deadline))
						if len(got) == 3 {
							return nil
						}
						now = now.Add(3 * time.Second) // on Clock
						time.Sleep(time.Second)        // in real time
						return retry.Transient(errOp)
					}))
				}
				run(t.Context())
				require.Equal(t, []time.Duration{20 * time.Second, 15 * time.Second, 8 * time.Second}, got)

				p.AttemptTimeout = 10 * time.Second
				run(t.Context())
				require.Equal(t, []time.Duration{10 * time.Second, 10 * time.Second, 8 * time.Second}, got)

				// The caller's deadline is real time and counts as such too: it
				// is never outlived.
				p.AttemptTimeout, p.MaxElapsed = 0, -1
				ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
				defer cancel()
				p.Backoff.Base = -1
				run(ctx) // 12 left on both; then 9 on Clock, 11 in truth; then 6
				require.Equal(t, []time.Duration{12 * time.Second, 9 * time.Second, 6 * time.Second}, got)
				require.Equal(t, 6*time.Second, time.Since(start))
			})
		})
	}
}

// A clock that stands still leaves more on it than the caller's ctx has.
func TestWithAnInjectedClockOpsContextNeverOutlivesTheCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, errCtxDeadline)
		defer cancel()
		clock := newClock()
		p := retry.Policy{MinTimeout: -1, Clock: clock.Now, Sleep: clock.Sleep, Backoff: retry.Backoff{Base: -1}}
		want, _ := ctx.Deadline()
		calls := 0
		err := retry.Run(ctx, &p, func(ctx context.Context) error {
			at, _ := ctx.Deadline()
			require.True(t, at.Equal(want))
			if calls++; calls == 1 {
				time.Sleep(2 * time.Second)
				return retry.Transient(errOp)
			}
			<-ctx.Done()
			require.Equal(t, ctxEnding{context.DeadlineExceeded, errCtxDeadline}, endingOf(ctx))
			return ctx.Err()
		})
		require.Equal(t, retry.ErrDeadline, stopped(t, err).Reason)
		require.ErrorIs(t, err, errCtxDeadline)
	})
}

func TestOpsContextAfterDoHasReturned(t *testing.T) {
	boom := errors.New("boom")
	for _, bounded := range []bool{true, false} {
		for _, asked := range []bool{true, false} {
			for name, outcome := range map[string]func() error{
				"success": func() error { return nil },
				"failure": func() error { return retry.Permanent(errOp) },
				"panic":   func() error { panic(boom) },
			} {
				for number := 1; number <= 3; number++ {
					synctest.Test(t, func(t *testing.T) {
						caller, cancel := context.WithCancelCause(context.WithValue(t.Context(), ctxKey("k"), "v"))
						p := retry.Policy{Backoff: retry.Backoff{Base: -1}}
						if !bounded {
							p.MaxElapsed = -1
						}
						var kept, kid context.Context
						func() {
							defer func() {
								if r := recover(); r != nil {
									require.Equal(t, boom, r)
								}
							}()
							_ = retry.Run(caller, &p, func(ctx context.Context) error {
								if retry.Attempt(ctx) < number {
									return retry.Transient(errOp)
								}
								kept = ctx
								if asked {
									var stop func()
									kid, stop = context.WithCancel(ctxWrapper{ctx})
									context.AfterFunc(kid, stop)
									require.NoError(t, kid.Err())
								}
								return outcome()
							})
						}()

						late, stop := context.WithCancel(ctxWrapper{kept}) // derived after the fact
						defer stop()
						if kid == nil {
							kid = late
						}
						require.Equal(t, "v", kept.Value(ctxKey("k")))
						require.Equal(t, number, retry.Attempt(kept))
						for range 2 { // and it stays so
							for _, ctx := range []context.Context{kept, kid, late} {
								if bounded {
									require.Equal(t, ctxEnding{context.Canceled, context.Canceled}, endingOf(ctx), name)
								} else {
									require.Equal(t, ctxEnding{}, endingOf(ctx), name)
								}
								require.Equal(t, bounded, ctxClosed(ctx.Done()), name)
							}
						}
						cancel(errCtxCause)
						if !bounded {
							require.Equal(t, ctxEnding{context.Canceled, errCtxCause}, endingOf(kept))
							require.Equal(t, ctxEnding{context.Canceled, errCtxCause}, endingOf(kid))
						} else {
							require.Equal(t, ctxEnding{context.Canceled, context.Canceled}, endingOf(kept), "it has said otherwise before")
						}
					})
				}
			}
		}
	}
}

// Nothing of a failed attempt goes on beside the next one.
func TestWithATimeoutAFailedAttemptsContextEndsBeforeTheNext(t *testing.T) {
	for _, asked := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := retry.Policy{AttemptTimeout: time.Second, MaxAttempts: 4, Observe: nil}
			var before []context.Context
			sleeps := 0
			p.Sleep = func(context.Context, time.Duration) error {
				sleeps++
				require.Error(t, before[len(before)-1].Err(), "it ends before the wait")
				return nil
			}
			_ = retry.Run(t.Context(), &p, func(ctx context.Context) error {
				for _, old := range before {
					require.Equal(t, context.Canceled, old.Err())
					require.True(t, ctxClosed(old.Done()))
				}
				require.NoError(t, ctx.Err())
				if asked {
					require.False(t, ctxClosed(ctx.Done()))
				}
				before = append(before, ctx)
				return retry.Transient(errOp)
			})
			require.Len(t, before, 4)
			require.Equal(t, 3, sleeps)
			require.Equal(t, context.Canceled, before[3].Err())
		})
	}
}

// Without AttemptTimeout a stream that attempt 1 has opened goes on in attempt 2.
func TestWithoutATimeoutAttemptsShareOneDeadline(t *testing.T) {
	for _, elapsed := range []time.Duration{0, -1} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			p := retry.Policy{MaxElapsed: elapsed, MaxAttempts: 12, Backoff: retry.Backoff{Base: time.Second, Multiplier: 1, Jitter: retry.NoJitter}}
			var all []context.Context
			_ = retry.Run(ctx, &p, func(ctx context.Context) error {
				all = append(all, ctx)
				for i, old := range all {
					require.Equal(t, i+1, retry.Attempt(old))
					require.NoError(t, old.Err())
					require.Equal(t, ctx.Done(), old.Done(), "one channel")
					at, _ := ctx.Deadline()
					was, _ := old.Deadline()
					require.Equal(t, at, was)
				}
				return retry.Transient(errOp)
			})
			require.Len(t, all, 12)
			for _, old := range all {
				require.Equal(t, elapsed == 0, old.Err() != nil)
			}
		})
	}
}

// Attempt(ctx) is for ever the number of the attempt that ctx was made for.
func TestAttemptIsTheNumberThatCtxWasMadeFor(t *testing.T) {
	require.Equal(t, 1, retry.Attempt(context.Background()))
	require.Equal(t, 1, retry.Attempt(t.Context()))

	clock := newClock()
	for name, p := range map[string]retry.Policy{
		"default":        {},
		"no deadline":    {MaxElapsed: -1},
		"timeout":        {AttemptTimeout: time.Second},
		"timeout only":   {AttemptTimeout: time.Second, MaxElapsed: -1},
		"watched":        {Keep: 1, MaxElapsed: -1},
		"injected clock": {Clock: clock.Now, Sleep: clock.Sleep},
	} {
		t.Run(name, func(t *testing.T) {
			p.MaxAttempts, p.Backoff.Base = 20, -1
			var all []context.Context
			check := func() {
				for i, ctx := range all {
					require.Equal(t, i+1, retry.Attempt(ctx))
					require.Equal(t, i+1, retry.Attempt(wrapCtx(ctx)))
					require.Equal(t, i+1, retry.Attempt(context.WithoutCancel(ctx)))
					require.Equal(t, i+1, retry.Attempt(retry.Detach(ctx)))
				}
			}
			_ = retry.Run(t.Context(), &p, func(ctx context.Context) error {
				all = append(all, ctx)
				check()
				return retry.Transient(errOp)
			})
			require.Len(t, all, 20)
			check()
		})
	}
}

// Of nested operations it is the innermost that counts, from its attempt 1 on.
func TestAttemptIsThatOfTheInnermostOperation(t *testing.T) {
	between := map[string]func(context.Context) context.Context{
		"as it is":      func(ctx context.Context) context.Context { return ctx },
		"wrapped":       wrapCtx,
		"Detach":        retry.Detach,
		"WithoutCancel": context.WithoutCancel,
		"Detach of a wrapper of WithoutCancel": func(ctx context.Context) context.Context {
			return retry.Detach(wrapCtx(context.WithoutCancel(ctx)))
		},
	}
	for name, pass := range between {
		for _, outer := range []time.Duration{0, -1} {
			for _, inner := range []time.Duration{0, -1} {
				t.Run(name, func(t *testing.T) {
					p := retry.Policy{MaxElapsed: outer, MaxAttempts: 6, Backoff: retry.Backoff{Base: -1}}
					q := retry.Policy{MaxElapsed: inner, MaxAttempts: 3, Backoff: retry.Backoff{Base: -1}}
					require.NoError(t, retry.Run(t.Context(), &p, func(ctx context.Context) error {
						if retry.Attempt(ctx) < 3 {
							return retry.Transient(errOp)
						}
						var got []int
						_ = retry.Run(pass(ctx), &q, func(ctx context.Context) error {
							got = append(got, retry.Attempt(ctx))
							return retry.Transient(errOp)
						})
						require.Equal(t, []int{1, 2, 3}, got)
						require.Equal(t, 3, retry.Attempt(ctx))
						return nil
					}))
				})
			}
		}
	}
}

// A ctx kept from attempt 3 of an operation that has returned is no attempt of
// the next one.
func TestAttemptOneOfAnOperationStartedWithAnOldContext(t *testing.T) {
	p := retry.Policy{MaxElapsed: -1, Backoff: retry.Backoff{Base: -1}}
	var old context.Context
	require.NoError(t, retry.Run(t.Context(), &p, func(ctx context.Context) error {
		if retry.Attempt(ctx) < 3 {
			return retry.Transient(errOp)
		}
		old = ctx
		return nil
	}))
	var got []int
	_ = retry.Run(old, &p, func(ctx context.Context) error {
		got = append(got, retry.Attempt(ctx))
		return retry.Transient(errOp)
	})
	require.Equal(t, []int{1, 2, 3, 4, 5}, got)
	require.Equal(t, 3, retry.Attempt(old))
}

func TestDetachKeepsAllButTheAllowance(t *testing.T) {
	require.Equal(t, t.Context(), retry.Detach(t.Context()), "there is nothing to leave")

	synctest.Test(t, func(t *testing.T) {
		p := retry.Policy{AttemptTimeout: 3 * time.Second, Effect: retry.ReadOnly, MaxAttempts: 2, Backoff: retry.Backoff{Base: -1}}
		caller := context.WithValue(t.Context(), ctxKey("k"), "v")
		calls := 0
		_ = retry.Run(caller, &p, func(ctx context.Context) error {
			calls++
			for _, detached := range []context.Context{retry.Detach(ctx), retry.Detach(wrapCtx(ctx)), retry.Detach(retry.Detach(ctx))} {
				require.Equal(t, "v", detached.Value(ctxKey("k")))
				require.Equal(t, calls, retry.Attempt(detached))
				want, _ := ctx.Deadline()
				got, ok := detached.Deadline()
				require.True(t, ok)
				require.True(t, got.Equal(want))
				require.NoError(t, detached.Err())
				require.False(t, ctxClosed(detached.Done()))

				before := settledGoroutines()
				for range 100 {
					kid, stop := context.WithCancel(ctxWrapper{detached})
					defer stop()
					require.NoError(t, kid.Err())
				}
				require.LessOrEqual(t, runtime.NumGoroutine(), before)
			}
			if calls == 1 {
				detached := retry.Detach(ctx)
				<-detached.Done()
				require.Equal(t, ctxEnding{context.DeadlineExceeded, context.DeadlineExceeded}, endingOf(detached))
				return ctx.Err()
			}
			return retry.Permanent(errOp)
		})
		require.Equal(t, 2, calls)

		caller, cancel := context.WithCancelCause(t.Context())
		_ = retry.Run(caller, &p, func(ctx context.Context) error {
			detached := retry.Detach(ctx)
			cancel(errCtxCause)
			require.Equal(t, ctxEnding{context.Canceled, errCtxCause}, endingOf(detached))
			return ctx.Err()
		})
	})
}

// Whatever the policy: no goroutine of Do's own in op, in the waits, nor
// afterwards, and none for what op derives (fault B98).
func TestDoStartsNoGoroutine(t *testing.T) {
	parent, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for name, p := range map[string]retry.Policy{
		"default":     {},
		"no deadline": {MaxElapsed: -1},
		"timeout":     {AttemptTimeout: time.Minute},
		"watched":     {Keep: 2, Observe: func(context.Context, retry.Record) {}},
		"sleeping":    {Backoff: retry.Backoff{Base: time.Nanosecond}},
	} {
		for _, ctx := range []context.Context{context.Background(), parent, ctxWrapper{parent}} {
			for _, derive := range []bool{false, true} {
				if name != "sleeping" {
					p.Backoff.Base = -1
				}
				before := settledGoroutines()
				check := func() { require.LessOrEqual(t, runtime.NumGoroutine(), before, name) }
				_ = retry.Run(ctx, &p, func(ctx context.Context) error {
					check()
					if derive {
						for range 20 {
							kid, stop := context.WithTimeout(wrapCtx(ctx), time.Hour)
							defer stop()
							defer context.AfterFunc(kid, func() {})()
						}
					}
					_ = retry.Run(ctx, &p, func(ctx context.Context) error {
						check()
						return retry.Transient(errOp)
					})
					check()
					return retry.Transient(errOp)
				})
				check()
			}
		}
	}
}

// Goroutines that op leaves behind use its ctx while Do goes on and returns.
// What they see is consistent, and the same for all.
func TestOpsContextMayBeUsedByManyWhileDoReturns(t *testing.T) {
	policies := []retry.Policy{{}, {AttemptTimeout: time.Minute}, {AttemptTimeout: 50 * time.Microsecond, Effect: retry.ReadOnly}}
	for i := range 200 {
		p := policies[i%len(policies)]
		p.Backoff.Base, p.MaxAttempts = -1, 3
		caller, cancel := context.WithCancelCause(context.WithValue(t.Context(), ctxKey("k"), "v"))
		var all sync.WaitGroup
		var mu sync.Mutex
		ends := map[int][]ctxEnding{}
		_ = retry.Run(caller, &p, func(ctx context.Context) error {
			number := retry.Attempt(ctx)
			for g := range 4 {
				all.Go(func() {
					for began := time.Now(); ctx.Err() == nil; {
						if time.Since(began) > 10*time.Second {
							panic("Do has left it alive")
						}
						ctx.Deadline()
						if ctx.Value(ctxKey("k")) != "v" || retry.Attempt(ctxWrapper{ctx}) != number {
							panic("the ctx has lost what it had")
						}
						switch g {
						case 0:
							kid, stop := context.WithCancel(wrapCtx(ctx))
							_ = kid.Err()
							stop()
						case 1:
							retry.Detach(ctx).Done()
						case 2:
							_ = retry.Run(ctx, &p, func(context.Context) error { return nil })
						}
						runtime.Gosched()
					}
					if !ctxClosed(ctx.Done()) {
						panic("Err, but Done is open")
					}
					mu.Lock()
					defer mu.Unlock()
					ends[number] = append(ends[number], endingOf(ctx))
				})
			}
			if i%2 == 0 {
				all.Go(func() { cancel(errCtxCause) })
			}
			return retry.Transient(errOp)
		})
		all.Wait()
		cancel(nil)
		for _, same := range ends {
			require.Len(t, same, 4)
			for _, e := range same {
				require.Equal(t, same[0], e)
			}
		}
	}
}
