package retry_test

// States that no operation has left, and that a file may hold all the same.

import (
	"context"
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3d0f8764/retry"
)

// What no operation can have saved is not taken for the state of one: to go
// on from it could send once more. Nothing is sent, and it is left as it is.
func TestAStateThatNoOperationHasSaved(t *testing.T) {
	sound := retry.State{Version: 1, Revision: 1, Attempts: 1, Started: newClock().start}
	for name, change := range map[string]func(*retry.State){
		"no revision":              func(s *retry.State) { s.Revision = 0 },
		"a negative revision":      func(s *retry.State) { s.Revision = -1 },
		"the last revision":        func(s *retry.State) { s.Revision = math.MaxInt64 },
		"one that would soon wrap": func(s *retry.State) { s.Revision = math.MaxInt64 / 2 },
		"negative attempts":        func(s *retry.State) { s.Attempts = -1 },
		"attempts that would wrap": func(s *retry.State) { s.Attempts = math.MaxInt / 2 },
		"negative resends":         func(s *retry.State) { s.Resends = -1 },
		"resends that would wrap":  func(s *retry.State) { s.Resends = math.MaxInt / 2 },
		"negative time":            func(s *retry.State) { s.Left = -1 },
		"a negative wait":          func(s *retry.State) { s.Wait = -1 },
		"a negative previous wait": func(s *retry.State) { s.Previous = -1 },
		"in flight before any":     func(s *retry.State) { s.Attempts, s.InFlight = 0, true },
		"unknown before any":       func(s *retry.State) { s.Attempts, s.Unknown = 0, true },
		"once unknown before any":  func(s *retry.State) { s.Attempts, s.EverUnknown = 0, true },
		"ended while in flight":    func(s *retry.State) { s.Ended, s.InFlight = true, true },
		"ended and unknown":        func(s *retry.State) { s.Ended, s.Unknown = true, true },
	} {
		s := sound
		change(&s)
		p := steady(newClock())
		p.Effect, p.Journal = retry.ReadOnly, &retry.Journal{State: s}
		for range 2 { // and not "in use"
			err := retry.Run(t.Context(), &p, func(context.Context) error { panic("called") })
			require.Equal(t, retry.ErrJournal, stopped(t, err).Reason, name)
			require.ErrorContains(t, err, "the journal's state is none that was ever saved", name)
			require.Equal(t, s, p.Journal.State, name)
		}
	}
	for _, s := range []retry.State{sound,
		{Version: 1, Revision: math.MaxInt64/2 - 1, Attempts: math.MaxInt/2 - 1, Resends: math.MaxInt/2 - 1, Started: sound.Started}} {
		p := steady(newClock())
		p.MaxAttempts, p.Journal = -1, &retry.Journal{State: s}
		require.NoError(t, retry.Run(t.Context(), &p, func(context.Context) error { return nil }))
		require.Equal(t, s.Attempts+1, p.Journal.State.Attempts)
	}
}

// A policy that gives less time than the first one had gives no more.
func TestAResumedOperationHasNoMoreThanItsOwnPolicy(t *testing.T) {
	clock := newClock()
	p := steady(clock)
	saved := dieInWait(t, clock, p, 1, retry.Transient(errOp))
	p.MaxElapsed, p.MaxAttempts, p.Journal = 10*time.Second, -1, restored(t, saved)
	from := clock.Elapsed()
	op := clock.script(failure(time.Second, retry.Transient(errOp)))
	_, err := retry.Do(t.Context(), &p, op.Do)
	require.Equal(t, retry.ErrDeadline, stopped(t, err).Reason)
	require.Equal(t, []time.Duration{from + 2*time.Second, from + 7*time.Second}, op.Starts())
	require.True(t, p.Journal.State.Expires.Equal(saved.Expires), "the first expiry")
}

// Whatever a State's JSON says: no panic; no more attempts and no more time than
// the policy and the State allow; nothing earlier than the State's wait; what
// may have been applied is not sent again without a look; and what is saved
// can be resumed, as the next revision.
func FuzzState(f *testing.F) {
	for _, text := range []string{
		`{}`, `null`, `{"version":2}`, `{"version":1,"revision":1,"started":"2026-11-06T08:49:37Z"}`,
		`{"version":1,"revision":1,"attempts":1,"in_flight":true,"started":"2026-11-06T08:49:37Z","expires":"2026-11-06T08:50:07Z","left":30000000000}`,
		`{"version":1,"revision":2,"attempts":1,"started":"2026-11-06T08:49:37Z","expires":"9999-12-31T23:59:59Z","left":9223372036854775807,"not_before":"2026-11-06T08:49:41Z","wait":4000000000,"previous":4000000000}`,
		`{"version":1,"revision":5,"attempts":2,"unknown":true,"ever_unknown":true,"resends":1,"started":"0001-01-01T00:00:00Z","not_before":"9999-12-31T23:59:59Z","wait":9223372036854775807}`,
		`{"version":1,"revision":9223372036854775807,"attempts":9223372036854775807,"resends":-1,"started":"2026-11-06T08:49:37Z"}`,
		`{"version":1,"revision":7,"attempts":2,"ended":true,"started":"2026-11-06T08:49:37Z"}`,
	} {
		for mode := range byte(4) {
			f.Add([]byte(text), mode, byte(0xb1))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, mode, outcomes byte) {
		var s retry.State
		if json.Unmarshal(text, &s) != nil {
			return
		}
		clock := newClock()
		p := steady(clock)
		p.MaxAttempts, p.Effect = 4, []retry.Effect{retry.Mutation, retry.Idempotent}[mode&1]
		submit := mode&2 != 0
		doubt := s.InFlight || s.Unknown || submit && s.EverUnknown // before a send a look is due
		calls, saved := 0, s
		send := func(context.Context) (string, error) {
			calls++
			require.False(t, s.Ended)
			require.True(t, saved.InFlight, "saved before it was sent")
			require.Equal(t, max(0, s.Attempts)+calls, saved.Attempts)
			require.LessOrEqual(t, saved.Attempts, p.MaxAttempts)
			require.Less(t, clock.Elapsed(), 30*time.Second)
			if s.Version != 0 && !s.Expires.IsZero() {
				require.True(t, clock.Now().Before(s.Expires), "past its expiry")
				require.Less(t, clock.Elapsed(), s.Left)
			}
			if calls == 1 && s.Attempts > 0 && !s.InFlight && s.NotBefore.After(clock.start) {
				require.GreaterOrEqual(t, clock.Elapsed(), min(s.Wait, s.NotBefore.Sub(clock.start)))
			}
			require.False(t, doubt && (submit || p.Effect == retry.Mutation), "sent again without a look")
			clock.Advance(time.Second)
			o := outcomes
			outcomes = outcomes>>2 | outcomes<<6
			switch o & 3 {
			case 0:
				return "sent", nil
			case 1:
				return "", retry.Transient(errOp)
			case 2:
				return "", retry.Throttled(errOp, 3*time.Second)
			}
			doubt = true
			return "", retry.Unknown(errLost)
		}
		p.Journal = &retry.Journal{State: s, Save: func(_ context.Context, next retry.State) error {
			require.Equal(t, saved.Revision+1, next.Revision)
			require.Positive(t, next.Revision)
			saved = restored(t, next).State
			return nil
		}}
		var err error
		if submit {
			_, err = retry.Submit(t.Context(), &p, send, retry.Lookup[string]{Resends: -1, Find: func(context.Context) (string, retry.Resolution, error) {
				doubt = false
				return "", retry.NotApplied, nil
			}})
		} else {
			_, err = retry.Do(t.Context(), &p, send)
		}
		if err != nil {
			_ = err.Error()
		}
		if saved.Revision != s.Revision && !saved.Ended {
			p.Journal = restored(t, saved)
			_, err = retry.Do(t.Context(), &p, send)
			require.NotErrorIs(t, err, retry.ErrJournal, "what was saved can be resumed")
		}
	})
}
