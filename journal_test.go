package retry_test

// An operation with a Journal, step by step on the fake clock. What holds
// wherever a process dies is in crash_test.go.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3d0f8764/retry"
)

// errStale is how a store refuses a worker whose State is not the last.
var errStale = errors.New("a newer revision is stored")

// restored is a Journal of a new process, from the JSON of what was saved last.
func restored(t testing.TB, saved retry.State) *retry.Journal {
	t.Helper()
	text, err := json.Marshal(saved)
	require.NoError(t, err)
	j := new(retry.Journal)
	require.NoError(t, json.Unmarshal(text, &j.State))
	return j
}

// steady is a policy of five attempts in 30s, 4s apart.
func steady(c *clock) retry.Policy {
	return retry.Policy{Backoff: retry.Backoff{Base: 4 * time.Second, Multiplier: 1, Jitter: retry.NoJitter},
		Clock: c.Now, Sleep: c.Sleep}
}

// dieInWait runs an operation of attempts of a second each, of which the nth wait
// ends the process once half of it has passed. It returns what was saved last.
func dieInWait(t testing.TB, c *clock, p retry.Policy, nth int, fails error) retry.State {
	t.Helper()
	var saved retry.State
	p.Journal = &retry.Journal{Save: func(_ context.Context, s retry.State) error { saved = s; return nil }}
	waits := 0
	p.Sleep = func(ctx context.Context, d time.Duration) error {
		if waits++; waits == nth {
			c.Advance(d / 2)
			panic(errDead)
		}
		return c.Sleep(ctx, d)
	}
	require.PanicsWithValue(t, errDead, func() {
		_, _ = retry.Do(t.Context(), &p, c.script(failure(time.Second, fails)).Do)
	})
	return saved
}

// acceptance.md, "Restart during a wait": a new Do with the loaded State makes
// only the attempts that were left, waits only what was left, and keeps the
// first expiry.
func TestRestartDuringAWait(t *testing.T) {
	for _, c := range []struct {
		name  string
		pause time.Duration // between the two processes
		waits []time.Duration
		calls int
		end   time.Duration // of the second operation, from the start of the first
		why   error
	}{
		// Attempts at 0, 5, dead at 8 in the wait to 10.
		{"at once", 0, []time.Duration{2 * time.Second, 4 * time.Second, 4 * time.Second}, 3, 21 * time.Second, retry.ErrAttempts},
		{"during the wait", 1500 * ms, []time.Duration{500 * ms, 4 * time.Second, 4 * time.Second}, 3, 21 * time.Second, retry.ErrAttempts},
		{"as the wait ends", 2 * time.Second, []time.Duration{0, 4 * time.Second, 4 * time.Second}, 3, 21 * time.Second, retry.ErrAttempts},
		{"after the wait", 7 * time.Second, []time.Duration{0, 4 * time.Second, 4 * time.Second}, 3, 26 * time.Second, retry.ErrAttempts},
		{"with time for one more", 17*time.Second + 1, []time.Duration{0}, 1, 26*time.Second + 1, retry.ErrDeadline},
		{"1ns before the expiry", 22*time.Second - 1, []time.Duration{0}, 1, 31*time.Second - 1, retry.ErrDeadline},
		{"at the expiry", 22 * time.Second, nil, 0, 30 * time.Second, retry.ErrDeadline},
		{"much later", time.Hour, nil, 0, time.Hour + 8*time.Second, retry.ErrDeadline},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := newClock()
			p := steady(clock)
			saved := dieInWait(t, clock, p, 2, retry.Transient(errOp))
			require.Equal(t, 2, saved.Attempts)
			require.True(t, saved.Expires.Equal(clock.start.Add(30*time.Second)))
			before := len(clock.Slept())

			clock.Advance(c.pause)
			p.Journal = restored(t, saved)
			op := clock.script(failure(time.Second, retry.Transient(errOp)))
			_, err := retry.Do(t.Context(), &p, op.Do)
			e := stopped(t, err)
			require.Equal(t, c.why, e.Reason)
			require.Equal(t, c.calls, op.Calls())
			require.Equal(t, 2+c.calls, e.Attempts, "those before count")
			require.Equal(t, c.end, clock.Elapsed())
			require.Equal(t, c.waits, append([]time.Duration(nil), clock.Slept()[before:]...))
			require.True(t, p.Journal.State.Expires.Equal(saved.Expires), "the first expiry")
		})
	}
}

// Who resumes has the lesser of what the clock gives and what was left at the
// last Save: a clock set back gives no time, and makes no wait longer.
func TestAClockSetBackGivesNothing(t *testing.T) {
	clock := newClock()
	p := steady(clock)
	saved := dieInWait(t, clock, p, 2, retry.Transient(errOp))
	clock.Advance(-1000 * time.Hour)
	at := clock.Now()
	p.Journal, p.MaxAttempts = restored(t, saved), -1
	op := clock.script(failure(time.Second, retry.Transient(errOp)))
	before := len(clock.Slept())
	_, err := retry.Do(t.Context(), &p, op.Do)
	require.Equal(t, retry.ErrDeadline, stopped(t, err).Reason)
	require.Equal(t, 4*time.Second, clock.Slept()[before], "the whole wait, no more")
	// 6s had passed at the last Save: attempts start at 10, 15, 20 and 25, and one at 30 would be too late.
	require.Equal(t, 4, op.Calls())
	require.Equal(t, 20*time.Second, clock.Now().Sub(at))
}

// The own wait before the last attempt is what Jitter goes on from.
func TestAResumedOperationKeepsThePreviousWait(t *testing.T) {
	clock := newClock()
	p := steady(clock)
	p.Backoff.Multiplier, p.Backoff.Jitter = 2, retry.NoJitter
	saved := dieInWait(t, clock, p, 2, retry.Transient(errOp)) // waits 4 and 8
	require.Equal(t, 8*time.Second, saved.Previous)
	p.Journal = restored(t, saved)
	var steps []retry.Step
	p.Backoff.Jitter = func(s retry.Step) time.Duration { steps = append(steps, s); return 0 }
	_, err := retry.Do(t.Context(), &p, clock.script(failure(0, retry.Transient(errOp)), success(0)).Do)
	require.NoError(t, err)
	require.Len(t, steps, 1)
	require.Equal(t, 2, steps[0].Retry)
	require.Equal(t, 8*time.Second, steps[0].Previous)
	require.Equal(t, 16*time.Second, steps[0].Window)
}

// An attempt in flight when the process ended is an unknown outcome: Do
// repeats it only where that is safe, and says so otherwise without sending.
func TestAnAttemptInFlightIsUnknown(t *testing.T) {
	for effect, calls := range map[retry.Effect]int{retry.Unstated: 0, retry.Mutation: 0, retry.Idempotent: 1, retry.ReadOnly: 1} {
		clock := newClock()
		p := steady(clock)
		p.Effect = effect
		var saved retry.State
		p.Journal = &retry.Journal{Save: func(_ context.Context, s retry.State) error { saved = s; return nil }}
		require.Panics(t, func() { _ = retry.Run(t.Context(), &p, func(context.Context) error { panic(errDead) }) })
		require.True(t, saved.InFlight)

		p.Journal = restored(t, saved)
		op := clock.script(success(0))
		v, err := retry.Do(t.Context(), &p, op.Do)
		require.Equal(t, calls, op.Calls(), effect)
		if calls == 1 {
			require.NoError(t, err)
			require.Equal(t, 1, v)
			require.Equal(t, []time.Duration{4 * time.Second}, clock.Slept(), "it backs off as after any failure")
			continue
		}
		require.Equal(t, retry.ErrUnknownOutcome, stopped(t, err).Reason)
		require.ErrorContains(t, err, "interrupted")
		require.Equal(t, 1, stopped(t, err).Attempts)
		require.False(t, p.Journal.State.Ended, "a Submit may still find out")
	}
}

// Save is called before every send, before every wait and at the end, each with
// the next revision; nothing is sent or slept that was not saved before.
func TestSaveComesBeforeEverySendAndWait(t *testing.T) {
	clock := newClock()
	p := steady(clock)
	var states []retry.State
	p.Journal = &retry.Journal{Save: func(_ context.Context, s retry.State) error { states = append(states, s); return nil }}
	_, err := retry.Do(t.Context(), &p, clock.script(failure(time.Second, retry.Transient(errOp)), success(time.Second)).Do)
	require.NoError(t, err)
	at := func(d time.Duration) time.Time { return clock.start.Add(d) }
	whole := retry.State{Version: 1, Started: at(0), Expires: at(30 * time.Second)}
	want := make([]retry.State, 4)
	for i := range want {
		want[i] = whole
		want[i].Revision = int64(i + 1)
	}
	want[0].Attempts, want[0].InFlight, want[0].Left = 1, true, 30*time.Second
	want[1].Attempts, want[1].Left = 1, 29*time.Second
	want[1].NotBefore, want[1].Wait, want[1].Previous = at(5*time.Second), 4*time.Second, 4*time.Second
	want[2].Attempts, want[2].InFlight, want[2].Left, want[2].Previous = 2, true, 25*time.Second, 4*time.Second
	want[3].Attempts, want[3].Left, want[3].Previous, want[3].Ended, want[3].Succeeded = 2, 24*time.Second, 4*time.Second, true, true
	require.Equal(t, want, states)
	require.Equal(t, want[3], p.Journal.State)
}

// An error of Save stops the operation before anything is sent or slept:
// ErrJournal, and that error.
func TestAnErrorOfSaveStopsTheOperation(t *testing.T) {
	full := errors.New("disk full")
	for fails, calls := range map[int64]int{1: 0, 2: 1, 3: 1, 4: 2} {
		clock, budget := newClock(), &purse{tokens: 9}
		p := steady(clock)
		p.Budget = budget
		p.Journal = &retry.Journal{Save: func(_ context.Context, s retry.State) error {
			if s.Revision == fails {
				return full
			}
			return nil
		}}
		op := clock.script(failure(time.Second, retry.Transient(errOp)))
		_, err := retry.Do(t.Context(), &p, op.Do)
		require.Equal(t, retry.ErrJournal, stopped(t, err).Reason)
		require.ErrorIs(t, err, full)
		require.ErrorContains(t, err, "the journal could not be saved: disk full")
		require.Equal(t, calls, op.Calls(), fails)
		require.Len(t, clock.Slept(), int(fails-1)/2)
		require.Equal(t, 9-max(0, calls-1), budget.Tokens(), "what was not sent is not paid for")
		require.Equal(t, fails-1, p.Journal.State.Revision, "State is what was saved last")
	}
}

// A Save whose answer is lost has stored what it says failed. Nothing is sent, and
// whoever loads it takes the attempt for one in flight: Submit looks, Do says
// that it is not known.
func TestASaveThatHasStoredAndFails(t *testing.T) {
	lost := errors.New("no answer from the store")
	for _, fails := range []int64{1, 2, 3, 4} {
		w, save := newDesk([]sent{{0, retry.Transient(errOp)}, {0, nil}}, looked{0, retry.Applied, nil}), retry.State{}
		p := w.policy()
		p.Journal = &retry.Journal{Save: func(_ context.Context, s retry.State) error {
			if save = s; s.Revision == fails {
				return lost
			}
			return nil
		}}
		_, err := retry.Submit(t.Context(), &p, w.send, w.lookup())
		require.Equal(t, fails == 4, err == nil, "what Save says at the end changes nothing")
		if err != nil {
			require.Equal(t, retry.ErrJournal, stopped(t, err).Reason)
			require.ErrorIs(t, err, lost)
			require.NotErrorIs(t, err, retry.ErrUnknownOutcome, "each send has proved itself")
		}
		require.Equal(t, fails, save.Revision)
		require.Equal(t, int(fails)/2, w.sent)

		before := w.sent
		w.log = nil
		p.Journal = restored(t, save)
		_, err = retry.Submit(t.Context(), &p, w.send, w.lookup())
		switch fails {
		case 1, 3: // in flight, as far as the store says
			require.NoError(t, err)
			require.Equal(t, "7ms find", w.story())
			require.Equal(t, before, w.sent)

			p.Journal = restored(t, save)
			_, err = retry.Do(t.Context(), &p, w.send)
			require.Equal(t, retry.ErrUnknownOutcome, stopped(t, err).Reason)
			require.Equal(t, before, w.sent)
		case 2: // in its wait
			require.NoError(t, err)
			require.Equal(t, "1s send", w.story())
		case 4:
			require.ErrorContains(t, err, "has ended")
			require.Equal(t, before, w.sent)
		}
	}
}

// Saving takes time: a send that no longer fits, or whose ctx is done, is saved
// as not sent.
func TestASendRefusedAfterItWasSaved(t *testing.T) {
	for name, reason := range map[string]error{"time": retry.ErrDeadline, "ctx": retry.ErrCanceled} {
		t.Run(name, func(t *testing.T) {
			clock := newClock()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			p := steady(clock)
			var states []retry.State
			p.Journal = &retry.Journal{Save: func(_ context.Context, s retry.State) error {
				if states = append(states, s); len(states) == 1 {
					if name == "ctx" {
						cancel()
					} else {
						clock.Advance(30 * time.Second)
					}
				}
				return nil
			}}
			_, err := retry.Do(ctx, &p, func(context.Context) (int, error) { panic("called") })
			require.Equal(t, reason, stopped(t, err).Reason)
			require.Zero(t, stopped(t, err).Attempts)
			require.NotErrorIs(t, err, retry.ErrUnknownOutcome)
			require.True(t, states[0].InFlight)
			require.False(t, states[1].InFlight)
			require.Zero(t, states[1].Attempts)
		})
	}
}

// A Journal in use, one that has ended and a State of another version are
// refused before anything is sent, and left as they are.
func TestAJournalThatCannotBeHad(t *testing.T) {
	clock := newClock()
	p := steady(clock)
	refused := func(why string) {
		t.Helper()
		before := p.Journal.State
		_, err := retry.Do(t.Context(), &p, func(context.Context) (int, error) { panic("called") })
		require.Equal(t, retry.ErrJournal, stopped(t, err).Reason)
		require.EqualError(t, err, "retry: not attempted: the journal"+why)
		require.Equal(t, before, p.Journal.State)
	}
	p.Journal = new(retry.Journal)
	require.NoError(t, retry.Run(t.Context(), &p, func(context.Context) error {
		refused(" is in use by another operation")
		return nil
	}))
	refused("'s operation has ended")
	for _, s := range []retry.State{{Version: 2}, {Version: -1, Attempts: 1}, {Attempts: 1}, {Version: math.MaxInt}} {
		p.Journal = &retry.Journal{State: s}
		version := fmt.Sprintf("'s state has version %d, and this package knows 1", s.Version)
		refused(version)
		refused(version) // and not "in use"
	}

	// One that was not used up serves the next, after a panic too.
	p.Journal = &retry.Journal{}
	require.Panics(t, func() { _ = retry.Run(t.Context(), &p, func(context.Context) error { panic(errDead) }) })
	p.Effect = retry.ReadOnly
	require.NoError(t, retry.Run(t.Context(), &p, func(context.Context) error { return nil }))
}

// The save that follows a success: its ctx is not cancelled with the
// operation's, and its error is dropped. Whoever resumes finds the attempt in flight.
func TestTheLastSaveChangesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := steady(newClock())
	p.Journal = &retry.Journal{Save: func(ctx context.Context, s retry.State) error {
		require.NoError(t, ctx.Err())
		if s.Ended {
			return errors.New("disk full")
		}
		return nil
	}}
	require.NoError(t, retry.Run(ctx, &p, func(context.Context) error { cancel(); return nil }))
	require.True(t, p.Journal.State.InFlight)
	require.False(t, p.Journal.State.Ended)
}

// Cancelled in its wait an operation has not ended: it can be resumed, with what was left.
func TestACancelledOperationCanBeResumed(t *testing.T) {
	clock := newClock()
	ctx, cancel := context.WithCancel(t.Context())
	p := steady(clock)
	p.Journal = new(retry.Journal)
	p.Sleep = func(context.Context, time.Duration) error { clock.Advance(time.Second); cancel(); return ctx.Err() }
	_, err := retry.Do(ctx, &p, clock.script(failure(time.Second, retry.Transient(errOp))).Do)
	require.Equal(t, retry.ErrCanceled, stopped(t, err).Reason)
	require.False(t, p.Journal.State.Ended)

	p.Journal, p.Sleep = restored(t, p.Journal.State), clock.Sleep
	op := clock.script(success(0))
	_, err = retry.Do(t.Context(), &p, op.Do)
	require.NoError(t, err)
	require.Equal(t, []time.Duration{3 * time.Second}, clock.Slept())
	require.Equal(t, 2, p.Journal.State.Attempts)
	require.True(t, p.Journal.State.Ended)
}

// A look-up that gave up, or was cut short, right before a further send leaves
// an unknown outcome. Whoever resumes asks Find first, also where there is no
// time left for that send: else a success would be lost.
func TestWhoeverResumesAnUnknownOutcomeLooksFirst(t *testing.T) {
	for name, test := range map[string]struct {
		pause time.Duration
		found looked
		story string
		why   error // nil: success
	}{
		"found in time":       {0, looked{0, retry.Applied, nil}, "find", nil},
		"found past the end":  {time.Hour, looked{0, retry.Applied, nil}, "find", nil},
		"absent in time":      {0, looked{0, retry.NotApplied, nil}, "find 0s find send", nil},
		"absent past the end": {time.Hour, looked{0, retry.NotApplied, nil}, "find", retry.ErrDeadline},
		"unknown as before":   {time.Hour, looked{0, retry.Unresolved, errFind}, "find", retry.ErrUnknownOutcome},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk([]sent{{0, errLost}, {0, nil}}, looked{0, retry.NotApplied, nil}, looked{0, retry.Unresolved, errFind})
			p := d.policy()
			p.MaxElapsed, p.Journal = 30*time.Second, new(retry.Journal)
			_, err := retry.Submit(t.Context(), &p, d.send, d.lookup())
			require.ErrorIs(t, err, retry.ErrUnknownOutcome)
			require.Equal(t, "send 7ms find 1s find", d.story())

			d.Advance(test.pause)
			d.log, d.finds = nil, []looked{test.found}
			p.Journal = restored(t, p.Journal.State)
			_, err = retry.Submit(t.Context(), &p, d.send, d.lookup())
			require.Equal(t, test.story, d.story())
			if test.why == nil {
				require.NoError(t, err)
			} else {
				require.Equal(t, test.why, stopped(t, err).Reason)
			}
			require.Equal(t, test.why != retry.ErrUnknownOutcome, p.Journal.State.Ended)
		})
	}
}

// Cancelled in flight, and answered that it is refused for good: there is nothing
// to resume, and the request is not made again.
func TestACancelledOperationThatWasRefusedHasEnded(t *testing.T) {
	for name, test := range map[string]struct {
		err   error
		ended bool
	}{
		"permanent": {retry.Permanent(errOp), true},
		"status":    {&retry.StatusError{Method: "POST", Code: 400}, true},
		"transient": {retry.Transient(errOp), false},
		"unknown":   {retry.Unknown(errOp), false},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		p := retry.Policy{Journal: new(retry.Journal)}
		err := retry.Run(ctx, &p, func(context.Context) error { cancel(); return test.err })
		require.Equal(t, retry.ErrCanceled, stopped(t, err).Reason)
		require.Equal(t, test.ended, p.Journal.State.Ended, name)
		require.Equal(t, name == "unknown", p.Journal.State.EverUnknown, name)
	}

	// What a Submit has left unknown before it could look was unknown ever.
	ctx, cancel := context.WithCancel(t.Context())
	d := newDesk([]sent{{0, errLost}}, looked{0, retry.Applied, nil})
	p := d.policy()
	p.Journal = new(retry.Journal)
	_, err := retry.Submit(ctx, &p, func(ctx context.Context) (string, error) { defer cancel(); return d.send(ctx) }, d.lookup())
	require.ErrorIs(t, err, retry.ErrUnknownOutcome)
	require.True(t, p.Journal.State.EverUnknown)
}

// Cancelled as a loop inside has just failed without proof: what it has left
// is unknown, and whoever resumes does not send again.
func TestACancelledLoopAroundOneWithoutProofIsUnknown(t *testing.T) {
	for effect, unknown := range map[retry.Effect]bool{retry.Unstated: true, retry.Mutation: true, retry.ReadOnly: false} {
		ctx, cancel := context.WithCancel(t.Context())
		p := retry.Policy{Effect: effect, Journal: new(retry.Journal)}
		calls := 0
		op := func(ctx context.Context) error {
			calls++
			defer cancel()
			return retry.Run(ctx, nil, func(context.Context) error { return errOp })
		}
		err := retry.Run(ctx, &p, op)
		require.Equal(t, retry.ErrCanceled, stopped(t, err).Reason)
		require.Equal(t, unknown, errors.Is(err, retry.ErrUnknownOutcome), effect)

		p.Journal = restored(t, p.Journal.State)
		_ = retry.Run(t.Context(), &p, op)
		require.Equal(t, unknown, calls == 1, effect)
	}
}

// Cancelled while a loop inside waits that reads: nothing is unknown.
func TestACancelledLoopAroundOneThatReadsIsNotUnknown(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	read := retry.Policy{Effect: retry.ReadOnly, Sleep: func(ctx context.Context, _ time.Duration) error { cancel(); return ctx.Err() }}
	err := retry.Run(ctx, nil, func(ctx context.Context) error {
		return retry.Run(ctx, &read, func(context.Context) error { return &retry.StatusError{Method: "GET", Code: 503} })
	})
	require.Equal(t, retry.ErrCanceled, stopped(t, err).Reason)
	require.NotErrorIs(t, err, retry.ErrUnknownOutcome)
}
