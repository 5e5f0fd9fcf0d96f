package retry_test

import (
	"context"
	"encoding/json"
	"errors"
	"expvar"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-3d0f8764/retry"
)

var _ expvar.Var = (*retry.Stats)(nil)

// Stats counts all operations whose Policy has its Observe, and can be
// published with package expvar.
func ExampleStats() {
	var stats retry.Stats
	p := retry.Policy{Observe: stats.Observe, MaxAttempts: 3, Sleep: noSleep}
	down := retry.Transient(errors.New("connection refused"))
	for _, answers := range [][]error{{nil}, {nil}, {down, nil}, {down, down, down}, {retry.Permanent(errors.New("no such item"))}} {
		retry.Run(context.Background(), &p, func(ctx context.Context) error { return answers[retry.Attempt(ctx)-1] })
	}
	// expvar.Publish("prices", &stats) shows this under /debug/vars:
	fmt.Println(&stats)

	fmt.Println(stats.Outcomes(nil), "succeeded,", stats.Successes(1), "of them at once")
	fmt.Println(stats.Outcomes(retry.ErrAttempts), "used up its attempts")
	// Output:
	// {"operations":5,"attempts":8,"retries":3,"ratio":0.6,"outcomes":{"succeeded":3,"permanent":1,"attempts":1},"successes":{"1":2,"2":1}}
	// 3 succeeded, 2 of them at once
	// 1 used up its attempts
}

// document is what a reader makes of String.
type document struct {
	Operations, Attempts, Retries int64
	Ratio                         float64
	Outcomes, Successes           map[string]int64
}

func read(t require.TestingT, s *retry.Stats) (d document) {
	require.NoError(t, json.Unmarshal([]byte(s.String()), &d), s.String())
	return d
}

func TestZeroStatsIsReady(t *testing.T) {
	var s retry.Stats
	require.Equal(t, `{"operations":0,"attempts":0,"retries":0,"ratio":0,"outcomes":{},"successes":{}}`, s.String())
	require.Zero(t, s.Counts())
	require.Zero(t, s.Outcomes(nil))
	for _, reason := range append(slices.Clone(allReasons), errOp) {
		require.Zero(t, s.Outcomes(reason))
	}
}

// What is counted is what was done: a retry that was decided on and not sent is
// none, nor is the record of an operation that ends between attempts an attempt.
func TestStatsCountWhatWasDone(t *testing.T) {
	transient := retry.Transient(errOp)
	counts := func(operations, attempts, retries, refusals int64) retry.Counts {
		return retry.Counts{Operations: operations, Attempts: attempts, Retries: retries, Refusals: refusals}
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name   string
		ctx    context.Context
		p      retry.Policy
		errs   []error
		want   retry.Counts
		reason error
	}{
		{"success", nil, retry.Policy{}, []error{nil}, counts(1, 1, 0, 0), nil},
		{"success after two retries", nil, retry.Policy{}, []error{transient, transient, nil}, counts(1, 3, 2, 0), nil},
		{"permanent", nil, retry.Policy{}, []error{retry.Permanent(errOp)}, counts(1, 1, 0, 0), retry.ErrPermanent},
		{"attempts used up", nil, retry.Policy{MaxAttempts: 2}, []error{transient}, counts(1, 2, 1, 0), retry.ErrAttempts},
		{"refused", nil, retry.Policy{Budget: &retry.Bucket{Capacity: 1}}, []error{transient}, counts(1, 2, 1, 1), retry.ErrBudget},
		{"never begun", canceled, retry.Policy{}, []error{nil}, counts(1, 0, 0, 0), retry.ErrCanceled},
		{"cancelled in the first wait", nil, retry.Policy{Sleep: func(context.Context, time.Duration) error { return errOp }}, []error{transient},
			counts(1, 1, 0, 0), retry.ErrCanceled},
		{"refused on waking", nil, retry.Policy{Gate: &turnstile{passes: 2}}, []error{transient}, counts(1, 2, 1, 0), retry.ErrCanceled},
		{"refused by the journal", nil, retry.Policy{Journal: &retry.Journal{Save: func(context.Context, retry.State) error { return errOp }}}, []error{nil},
			counts(1, 0, 0, 0), retry.ErrJournal},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s retry.Stats
			c.p.Observe = s.Observe
			if c.p.Sleep == nil {
				c.p.Sleep = noSleep
			}
			if c.ctx == nil {
				c.ctx = t.Context()
			}
			calls := 0
			_ = retry.Run(c.ctx, &c.p, func(context.Context) error { calls++; return c.errs[min(calls, len(c.errs))-1] })
			require.Equal(t, c.want, s.Counts())
			require.EqualValues(t, calls, s.Counts().Attempts)
			require.EqualValues(t, 1, s.Outcomes(c.reason))
			require.Len(t, read(t, &s).Outcomes, 1)
			if c.reason == nil {
				require.EqualValues(t, 1, s.Successes(calls))
				require.Equal(t, map[string]int64{fmt.Sprint(calls): 1}, read(t, &s).Successes)
			} else {
				require.Empty(t, read(t, &s).Successes)
			}
		})
	}
}

// While an operation waits, the attempts that it has made count already.
func TestStatsCountAnOperationUnderWay(t *testing.T) {
	var s retry.Stats
	var seen []retry.Counts
	p := retry.Policy{Observe: s.Observe, MaxAttempts: 3, Sleep: func(context.Context, time.Duration) error {
		seen = append(seen, s.Counts())
		return nil
	}}
	require.Error(t, retry.Run(t.Context(), &p, func(context.Context) error { return retry.Transient(errOp) }))
	require.Equal(t, []retry.Counts{{Attempts: 1}, {Attempts: 2, Retries: 1}}, seen)
	require.Equal(t, retry.Counts{Operations: 1, Attempts: 3, Retries: 2}, s.Counts())
}

// A Submit that a look-up settles has made as many attempts as it has sent,
// whether the look-up came right after the last send or before the next.
func TestStatsCountASubmitFoundOut(t *testing.T) {
	for _, finds := range [][]retry.Resolution{
		{retry.Applied},
		{retry.NotApplied, retry.Applied},
		{retry.NotApplied, retry.NotApplied, retry.Applied},
	} {
		var s retry.Stats
		clock, sends := newClock(), 0
		p := retry.Policy{Observe: s.Observe, MaxElapsed: -1, Clock: clock.Now, Sleep: clock.Sleep}
		left := finds
		_, err := retry.Submit(t.Context(), &p, func(context.Context) (int, error) { sends++; return 0, retry.Unknown(errOp) },
			retry.Lookup[int]{Find: func(context.Context) (int, retry.Resolution, error) {
				found := left[0]
				left = left[1:]
				return 0, found, nil
			}})
		require.NoError(t, err)
		require.Equal(t, retry.Counts{Operations: 1, Attempts: int64(sends), Retries: int64(sends - 1)}, s.Counts(), "%v", finds)
		require.EqualValues(t, 1, s.Successes(sends))
	}
}

// From the tenth on, successes are counted together: memory does not grow.
func TestStatsCountLateSuccessesTogether(t *testing.T) {
	var s retry.Stats
	for _, n := range []int{1, 9, 10, 11, 1 << 30} {
		s.Observe(t.Context(), retry.Record{Attempt: n, Decision: retry.Succeeded})
	}
	require.Equal(t, map[string]int64{"1": 1, "9": 1, "10+": 3}, read(t, &s).Successes)
	for n, want := range map[int]int64{-1: 0, 0: 0, 1: 1, 2: 0, 9: 1, 10: 3, 11: 3, 1 << 30: 3} {
		require.Equal(t, want, s.Successes(n), n)
	}
}

// Every reason has a name of its own; what no loop says is "other".
func TestStatsNameEveryReason(t *testing.T) {
	var s retry.Stats
	for i, reason := range append(slices.Clone(allReasons), errOp) {
		for range i + 1 {
			s.Observe(t.Context(), retry.Record{Attempt: 1, Err: errOp, Decision: retry.GaveUp, Reason: reason})
		}
		require.EqualValues(t, i+1, s.Outcomes(reason))
	}
	require.Equal(t, map[string]int64{"unclassified": 1, "permanent": 2, "suspended": 3, "unknown outcome": 4, "attempts": 5,
		"hint": 6, "deadline": 7, "budget": 8, "canceled": 9, "journal": 10, "other": 11}, read(t, &s).Outcomes)
	require.EqualValues(t, 8, s.Counts().Refusals)
}

// However operations end, the numbers are those of the calls, and agree with a
// Bucket's.
func TestStatsAgreeWithTheCalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s retry.Stats
		b := new(retry.Bucket)
		var want retry.Counts
		for range rapid.IntRange(1, 20).Draw(t, "operations") {
			failures := rapid.SliceOfN(rapid.SampledFrom([]error{retry.Transient(errOp), retry.Transient(errOp), retry.Throttled(errOp, 1),
				retry.Unknown(errOp), retry.Permanent(errOp), errOp}), 0, 4).Draw(t, "failures")
			sleeps := rapid.IntRange(0, 4).Draw(t, "sleeps")
			p := retry.Policy{Observe: s.Observe, Budget: b, Effect: retry.ReadOnly, MaxAttempts: rapid.IntRange(1, 5).Draw(t, "attempts"),
				Sleep: func(context.Context, time.Duration) error {
					if sleeps--; sleeps < 0 {
						return errOp
					}
					return nil
				}}
			calls := 0
			err := retry.Run(context.Background(), &p, func(context.Context) error {
				if calls++; calls <= len(failures) {
					return failures[calls-1]
				}
				return nil
			})
			want.Operations++
			want.Attempts += int64(calls)
			want.Retries += int64(calls - 1)
			if errors.Is(err, retry.ErrBudget) {
				want.Refusals++
			}
		}
		require.Equal(t, want, s.Counts())
		require.Equal(t, want, b.Counts())
		d := read(t, &s)
		require.Equal(t, want, retry.Counts{Operations: d.Operations, Attempts: d.Attempts, Retries: d.Retries, Refusals: d.Outcomes["budget"]})
		require.Equal(t, want.Ratio(), d.Ratio)
	})
}

func TestStatsAddUpUnderConcurrentUse(t *testing.T) {
	var s retry.Stats
	p := retry.Policy{Observe: s.Observe, Sleep: noSleep}
	together(100, func(int) {
		calls := 0
		_ = retry.Run(context.Background(), &p, func(context.Context) error {
			if calls++; calls < 3 {
				return retry.Transient(errOp)
			}
			return nil
		})
		c := s.Counts()
		_ = s.String()
		if c.Retries > 2*(c.Attempts-c.Retries) || c.Operations > c.Attempts {
			t.Errorf("not of one moment: %+v", c)
		}
	})
	require.Equal(t, retry.Counts{Operations: 100, Attempts: 300, Retries: 200}, s.Counts())
	require.EqualValues(t, 100, s.Successes(3))
	require.Equal(t, 2.0, read(t, &s).Ratio)
}
