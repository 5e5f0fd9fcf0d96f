package retry_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3d0f8764/retry"
)

// gateFunc is a Gate that is one function.
type gateFunc func(context.Context, retry.Entry) (func(retry.Outcome), error)

func (f gateFunc) Enter(ctx context.Context, e retry.Entry) (func(retry.Outcome), error) {
	return f(ctx, e)
}

// A Submit that is refused because its journal is in use does not read what
// the other operation writes there. It is the race detector that fails.
func TestASubmitRefusedByAJournalInUseDoesNotReadIt(t *testing.T) {
	var j retry.Journal
	p := retry.Policy{Journal: &j, Sleep: noSleep, MaxAttempts: 40, MaxElapsed: -1}
	find := func(context.Context) (int, retry.Resolution, error) { return 0, retry.NotApplied, nil }
	var others sync.WaitGroup
	_, err := retry.Do(t.Context(), &p, func(context.Context) (int, error) {
		others.Go(func() {
			_, err := retry.Submit(context.Background(), &p, func(context.Context) (int, error) {
				return 0, errors.New("sent")
			}, retry.Lookup[int]{Find: find})
			require.ErrorIs(t, err, retry.ErrJournal)
		})
		runtime.Gosched()
		return 0, retry.Transient(errOp)
	})
	others.Wait()
	require.ErrorIs(t, err, retry.ErrAttempts)
}

// What was never saved is not in the State: the same Journal serves the next
// operation once its store works again.
func TestAFirstSaveThatFailsLeavesTheJournalNew(t *testing.T) {
	for _, breaks := range []func() error{
		func() error { return errOp },
		func() error { panic(errOp) },
	} {
		down := true
		j := &retry.Journal{Save: func(context.Context, retry.State) error {
			if down {
				return breaks()
			}
			return nil
		}}
		p := retry.Policy{Journal: j}
		calls := 0
		run := func() (err error) {
			defer func() { err = errors.Join(err, asError(recover())) }()
			return retry.Run(t.Context(), &p, func(context.Context) error { calls++; return nil })
		}
		require.ErrorIs(t, run(), errOp)
		require.Zero(t, j.State)
		down = false
		require.NoError(t, run())
		require.Equal(t, 1, calls)
	}
}

func asError(recovered any) error {
	err, _ := recovered.(error)
	return err
}

// Whoever is cancelled while waiting at the gate sends nothing, also where the
// gate has let it pass in the same instant.
func TestCancelledAtTheGateSendsNothing(t *testing.T) {
	for attempt := 1; attempt <= 2; attempt++ {
		ctx, cancel := context.WithCancel(t.Context())
		var outcomes []retry.Outcome
		entered := 0
		gate := gateFunc(func(context.Context, retry.Entry) (func(retry.Outcome), error) {
			if entered++; entered == attempt {
				cancel()
			}
			return func(o retry.Outcome) { outcomes = append(outcomes, o) }, nil
		})
		p := retry.Policy{Gate: gate, Sleep: noSleep, Effect: retry.Mutation}
		calls := 0
		err := retry.Run(ctx, &p, func(ctx context.Context) error {
			calls++
			return cmpOr(ctx.Err(), retry.Transient(errOp))
		})
		require.Equal(t, attempt-1, calls)
		require.Equal(t, retry.ErrCanceled, stopped(t, err).Reason)
		require.NotErrorIs(t, err, retry.ErrUnknownOutcome)
		require.Len(t, outcomes, attempt)
		require.False(t, outcomes[attempt-1].Sent)
	}
}

func cmpOr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// Nor does a Submit that is cancelled while Find looks right before a send.
func TestCancelledInTheLookUpBeforeASendSendsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	sends, finds := 0, 0
	p := retry.Policy{Sleep: noSleep}
	_, err := retry.Submit(ctx, &p, func(context.Context) (int, error) {
		sends++
		return 0, retry.Unknown(errOp)
	}, retry.Lookup[int]{Find: func(context.Context) (int, retry.Resolution, error) {
		if finds++; finds == 2 {
			cancel()
		}
		return 0, retry.NotApplied, nil
	}})
	require.Equal(t, 1, sends)
	require.Equal(t, retry.ErrCanceled, stopped(t, err).Reason)
	require.NotErrorIs(t, err, retry.ErrUnknownOutcome)
}

// A retry that was not sent has given its cost back and earns none of it.
func TestARetryThatWasNotSentEarnsNoRefund(t *testing.T) {
	b := &retry.Bucket{Refund: 1, PerSuccess: 1}
	for range 4 { // 4 tokens are out
		_, err := b.Spend(t.Context(), retry.Verdict{}, 1)
		require.NoError(t, err)
	}
	p := retry.Policy{Budget: b, Sleep: noSleep, Weight: 3}
	finds := 0
	_, err := retry.Submit(t.Context(), &p, func(context.Context) (int, error) {
		return 0, retry.Unknown(errOp)
	}, retry.Lookup[int]{Find: func(context.Context) (int, retry.Resolution, error) {
		if finds++; finds == 2 {
			return 0, retry.Applied, nil
		}
		return 0, retry.NotApplied, nil
	}})
	require.NoError(t, err)
	require.Equal(t, 7.0, b.Tokens(), "6 were left, and a success without a retry earns 1")
}

// Weights that do not add up in binary leave nothing in flight behind: a call
// that is heavier than the room goes alone, and goes.
func TestWeightsThatDoNotAddUpLeaveNothingInFlight(t *testing.T) {
	for _, weights := range [][]float64{{0.1, 0.2, 0.3}, {0.3, 0.2, 0.1, 0.7}, {1e6, 1e-11, 1e-11}} {
		synctest.Test(t, func(t *testing.T) {
			var g retry.PacedGate
			var leaves []func(retry.Outcome)
			enter := func(w float64) {
				leave, err := g.Enter(t.Context(), retry.Entry{Weight: w, Within: time.Hour, MaxHint: time.Hour, Ahead: w < 1})
				require.NoError(t, err, "%v after %v", w, weights)
				leaves = append(leaves, leave)
			}
			for _, w := range weights {
				enter(w)
			}
			for _, leave := range leaves {
				leave(retry.Outcome{Sent: true, Err: errOp})
			}
			enter(100)
		})
	}
}

// Rand of a gate that panics loses no place.
func TestARandOfTheGateThatPanicsLosesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := retry.PacedGate{Start: 1, Rand: func() float64 { panic("no draw") }}
		slow := retry.Outcome{Sent: true, Err: errOp, Verdict: retry.Verdict{Class: retry.ClassSuspended}}
		panicked := false
		for range 6 {
			leave, err := g.Enter(t.Context(), retry.Entry{Within: time.Hour, MaxHint: time.Hour})
			require.NoError(t, err)
			func() {
				defer func() { panicked = recover() != nil || panicked }()
				leave(slow)
			}()
		}
		require.True(t, panicked)
	})
}

// Of several gates each is told, also where telling another has panicked.
func TestEachOfTheGatesIsToldThoughOneOfThemPanics(t *testing.T) {
	var told []string
	gate := func(name string) retry.Gate {
		return gateFunc(func(context.Context, retry.Entry) (func(retry.Outcome), error) {
			return func(retry.Outcome) {
				told = append(told, name)
				panic(name)
			}, nil
		})
	}
	p := retry.Policy{Gate: retry.Gates(gate("a"), gate("b"), gate("c"))}
	require.Panics(t, func() { _ = retry.Run(t.Context(), &p, func(context.Context) error { return nil }) })
	require.ElementsMatch(t, []string{"a", "b", "c"}, told)
}

// answering is a ctx that has an answer to every question.
type answering struct{ context.Context }

func (answering) Value(any) any { return "yes" }

// A ctx that answers to any key holds no gate.
func TestACtxThatAnswersToAnyKeyHoldsNoGate(t *testing.T) {
	entered := 0
	gate := gateFunc(func(context.Context, retry.Entry) (func(retry.Outcome), error) {
		entered++
		return nil, nil
	})
	p := retry.Policy{Gate: gate}
	require.NoError(t, retry.Run(answering{t.Context()}, &p, func(context.Context) error { return nil }))
	require.Equal(t, 1, entered)
	p.Gate = retry.Gates(gate, gate)
	require.NoError(t, retry.Run(answering{t.Context()}, &p, func(context.Context) error { return nil }))
	require.Equal(t, 3, entered)
}

// silent is a ctx that is done and does not say why.
type silent struct{ context.Context }

func (silent) Err() error { return nil }

// The gate refuses who is done, though its ctx gives no reason.
func TestTheGateRefusesACtxThatIsDoneWithoutAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := retry.PacedGate{Start: 1}
		_, err := g.Enter(t.Context(), retry.Entry{Within: time.Hour})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		leave, err := g.Enter(silent{ctx}, retry.Entry{Within: time.Hour})
		require.Error(t, err)
		require.Nil(t, leave)
	})
}

// fickle is a ctx that has a deadline only when asked again.
type fickle struct {
	context.Context
	asked *int
}

func (f fickle) Deadline() (time.Time, bool) {
	*f.asked++
	return time.Now().Add(time.Hour), *f.asked > 1
}

func TestACtxWhoseDeadlineComesLate(t *testing.T) {
	p := retry.Policy{MaxElapsed: -1}
	err := retry.Run(fickle{t.Context(), new(int)}, &p, func(context.Context) error { return errOp })
	require.Equal(t, retry.ErrUnclassified, stopped(t, err).Reason)
}

// Typed nils, the classic mistake, have texts, and end an operation as any
// other error does.
func TestTypedNilsHaveTexts(t *testing.T) {
	for _, nothing := range []error{
		(*url.Error)(nil), (*net.OpError)(nil), (*retry.Error)(nil), (*retry.HeldError)(nil), (*retry.StatusError)(nil),
	} {
		fails := func(context.Context) error { return nothing }
		for name, p := range map[string]retry.Policy{
			"op": {}, "always": {Classify: retry.Always, Sleep: noSleep},
			"spend": {Budget: stingy{nothing}, Classify: retry.Always},
			"save":  {Journal: &retry.Journal{Save: func(context.Context, retry.State) error { return nothing }}},
			"sleep": {Sleep: func(context.Context, time.Duration) error { return nothing }, Classify: retry.Always},
			"gate":  {Gate: gateFunc(func(context.Context, retry.Entry) (func(retry.Outcome), error) { return nil, nothing })},
		} {
			p.Keep = 1
			what := fmt.Sprintf("%T from %s", nothing, name)
			require.NotPanics(t, func() {
				e := stopped(t, retry.Run(t.Context(), &p, fails))
				require.NotEmpty(t, e.Error(), what)
				require.NotEmpty(t, e.Records[0].LogValue().String(), what)
			}, what)
		}
		for _, marked := range []error{retry.Permanent(nothing), retry.Unknown(retry.Transient(nothing))} {
			require.NotPanics(t, func() { require.NotEmpty(t, marked.Error()) }, "%T", nothing)
		}
	}
}

// stingy is a Budget that refuses with its error.
type stingy struct{ err error }

func (s stingy) Spend(context.Context, retry.Verdict, float64) (float64, error) { return 0, s.err }
func (stingy) Return(context.Context, float64)                                  {}
func (stingy) Earn(context.Context, float64)                                    {}

// States that nobody has saved end an operation or let it run; they neither
// panic nor extend it.
func TestAStateOfAnyContentIsSafe(t *testing.T) {
	for _, text := range []string{
		fmt.Sprintf(`{"version":1,"revision":9223372036854775807,"attempts":%d,"unknown":true}`, math.MaxInt),
		fmt.Sprintf(`{"version":1,"revision":-9223372036854775808,"attempts":%d,"resends":%[1]d}`, math.MinInt),
		`{"version":1,"attempts":1,"left":-9223372036854775808,"wait":-9223372036854775808,"previous":-9223372036854775808,"expires":"9999-12-31T23:59:59Z"}`,
		`{"version":1,"attempts":1,"left":9223372036854775807,"wait":9223372036854775807,"previous":9223372036854775807,"expires":"9999-12-31T23:59:59Z","started":"0001-01-01T00:00:00Z","not_before":"9999-12-31T23:59:59Z"}`,
		`{"version":1,"in_flight":true}`,
		`{"version":1,"attempts":2,"in_flight":true,"expires":"0001-01-01T00:00:01Z","started":"9999-12-31T23:59:59Z"}`,
	} {
		for _, max := range []int{-1, 3} {
			j := &retry.Journal{}
			require.NoError(t, json.Unmarshal([]byte(text), &j.State))
			clock := newClock()
			p := retry.Policy{Journal: j, MaxAttempts: max, Effect: retry.Idempotent, Clock: clock.Now, Sleep: clock.Sleep, Observe: func(context.Context, retry.Record) {}}
			calls := 0
			require.NotPanics(t, func() {
				_ = retry.Run(t.Context(), &p, func(context.Context) error {
					calls++
					clock.Advance(time.Second)
					return retry.Unknown(errOp)
				})
			}, text)
			require.LessOrEqual(t, clock.Elapsed(), 32*time.Second, text)
			if max > 0 {
				require.LessOrEqual(t, calls, max, text)
			}
		}
	}
}

// saboteur counts the calls of all seams of an operation, and at one of them
// panics, ends the goroutine or cancels the caller.
type saboteur struct {
	at     int
	act    func()
	calls  int
	struck string // the seam

	spent, returned, retries int
	entered, told            int
	cancelled                bool
	late                     int // sends after the caller was cancelled
}

func (s *saboteur) seam(name string) {
	if s.calls++; s.calls == s.at {
		s.struck = name
		s.act()
	}
}

func (s *saboteur) Enter(context.Context, retry.Entry) (func(retry.Outcome), error) {
	s.seam("enter")
	s.entered++
	return func(retry.Outcome) { s.told++; s.seam("leave") }, nil
}

func (s *saboteur) Spend(context.Context, retry.Verdict, float64) (float64, error) {
	s.seam("spend")
	s.spent++
	return 1, nil
}
func (s *saboteur) Return(context.Context, float64) { s.returned++; s.seam("return") }
func (s *saboteur) Earn(context.Context, float64)   { s.seam("earn") }

func (s *saboteur) send(failure error) func(context.Context) (int, error) {
	sends := 0
	return func(context.Context) (int, error) {
		if s.cancelled {
			s.late++
		}
		if sends++; sends > 1 {
			s.retries++
		}
		s.seam("send")
		if sends < 4 {
			return 0, failure
		}
		return sends, nil
	}
}

// Whatever a function of the caller's does, at whatever moment: no token, no
// place at the gate, no retry of the operation around and no journal is lost or
// given twice, and nobody sends for a caller who is gone.
func TestSabotageAtEverySeam(t *testing.T) {
	for _, how := range []string{"panic", "goexit", "cancel"} {
		for _, submit := range []bool{false, true} {
			for _, failure := range []error{retry.Transient(errOp), retry.Unknown(errOp)} {
				for at := 1; ; at++ {
					s := &saboteur{at: at}
					s.sabotage(t, how, submit, failure)
					if s.struck == "" {
						require.Greater(t, at, 20)
						break
					}
					what := fmt.Sprintf("%s in %s (call %d), submit %v, %v", how, s.struck, at, submit, failure)
					require.Equal(t, s.entered, s.told, what)
					require.Equal(t, s.spent, s.returned+s.retries, what)
					require.Zero(t, s.late, what)
				}
			}
		}
	}
}

func (s *saboteur) sabotage(t *testing.T, how string, submit bool, failure error) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.act = func() {
		switch how {
		case "panic":
			panic("sabotage")
		case "goexit":
			runtime.Goexit()
		}
		s.cancelled = true
		cancel()
	}
	clock := newClock()
	p := retry.Policy{
		Effect: retry.Idempotent, Gate: s, Budget: s, MaxAttempts: 6, Keep: 2,
		Backoff:  retry.Backoff{Jitter: func(retry.Step) time.Duration { s.seam("jitter"); return time.Second }},
		Classify: func(err error) retry.Verdict { s.seam("classify"); return retry.Classify(err) },
		Observe:  func(context.Context, retry.Record) { s.seam("observe") },
		Journal:  &retry.Journal{Save: func(context.Context, retry.State) error { s.seam("save"); return nil }},
		Clock:    func() time.Time { s.seam("clock"); return clock.Now() },
		Rand:     func() float64 { s.seam("rand"); return 0.5 },
		Sleep: func(ctx context.Context, d time.Duration) error {
			s.seam("sleep")
			return clock.Sleep(ctx, d)
		},
	}
	var left []int
	around := retry.Policy{Name: "around", MaxAttempts: 8, Clock: clock.Now, Sleep: clock.Sleep, Observe: func(context.Context, retry.Record) {}}
	finds := 0
	_ = retry.Run(context.WithoutCancel(ctx), &around, func(outer context.Context) error {
		inner, stop := context.WithCancel(outer)
		defer stop()
		context.AfterFunc(ctx, stop)
		var done sync.WaitGroup
		done.Go(func() {
			defer func() { _ = recover() }()
			send := s.send(failure)
			run := merged{inner, ctx}
			if submit {
				_, _ = retry.Submit(run, &p, send, retry.Lookup[int]{Settle: time.Second, Resends: -1, Find: func(context.Context) (int, retry.Resolution, error) {
					s.seam("find")
					if finds++; finds == 5 {
						return 0, retry.Applied, nil
					}
					return 0, retry.NotApplied, nil
				}, Policy: &retry.Policy{Gate: nobody{}}})
			} else {
				_, _ = retry.Do(run, &p, send)
			}
		})
		done.Wait()
		// What is left of the allowance around: 7 less what was sent, all of it
		// after a success.
		probe := retry.Policy{MaxAttempts: -1, Clock: clock.Now, Sleep: clock.Sleep, Observe: func(_ context.Context, r retry.Record) { left = append(left, r.AttemptsLeft) }}
		_ = retry.Run(outer, &probe, func(context.Context) error { return retry.Permanent(errOp) })
		return nil
	})
	require.Len(t, left, 1)
	if left[0] != 7 { // else it was a success
		require.Equal(t, 7-s.retries, left[0], "%s in %s (call %d), submit %v, %v", how, s.struck, s.at, submit, failure)
	}
	// The journal is free: it refuses nobody for being in use.
	p2 := retry.Policy{Journal: p.Journal, Clock: clock.Now, Sleep: clock.Sleep}
	err := retry.Run(t.Context(), &p2, func(context.Context) error { return retry.Permanent(errOp) })
	require.NotContains(t, err.Error(), "in use")
	s.calls, s.at = 0, 0
}

// merged is inner, and done as soon as ctx is.
type merged struct {
	context.Context
	ctx context.Context
}

func (m merged) Err() error {
	if err := m.ctx.Err(); err != nil {
		return err
	}
	return m.Context.Err()
}

// nobody is a gate that lets everyone pass.
type nobody struct{}

func (nobody) Enter(context.Context, retry.Entry) (func(retry.Outcome), error) { return nil, nil }

// A goroutine that outlives its attempt does not hold the gate any more: what
// it starts asks, as anyone does.
func TestWhoOutlivesAnAttemptDoesNotHoldItsGate(t *testing.T) {
	entered := 0
	gate := new(gateFunc)
	*gate = func(context.Context, retry.Entry) (func(retry.Outcome), error) {
		entered++
		return nil, nil
	}
	var kept context.Context
	nothing := func(context.Context) error { return nil }
	p := retry.Policy{Gate: gate, MaxAttempts: 2}
	p.Sleep = func(context.Context, time.Duration) error {
		require.Equal(t, 1, entered)
		require.NoError(t, retry.Run(kept, &retry.Policy{Gate: gate}, nothing))
		require.Equal(t, 2, entered, "while the operation waits")
		return nil
	}
	require.Error(t, retry.Run(t.Context(), &p, func(ctx context.Context) error {
		if retry.Attempt(ctx) == 1 {
			kept = ctx
		}
		before := entered
		require.NoError(t, retry.Run(ctx, &retry.Policy{Gate: gate}, nothing))
		require.Equal(t, before, entered, "inside")
		return retry.Transient(errOp)
	}))
}
