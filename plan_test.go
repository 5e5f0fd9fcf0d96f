package retry_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-3d0f8764/retry"
)

// acceptance.md: 4 attempts with a timeout of 5 in 20, default Backoff. A
// fourth attempt must start by 15: the first three always fit.
func TestPlanOfFourAttemptsInTwentySeconds(t *testing.T) {
	p := retry.Policy{MaxAttempts: 4, AttemptTimeout: 5 * time.Second, MaxElapsed: 20 * time.Second}
	require.Equal(t, retry.Plan{
		{Attempt: 1, Fits: retry.AlwaysFits},
		{Attempt: 2, Window: 200 * ms, Latest: seconds(5.2), Fits: retry.AlwaysFits},
		{Attempt: 3, Window: 400 * ms, Latest: seconds(10.6), Fits: retry.AlwaysFits},
		{Attempt: 4, Window: 800 * ms, Latest: seconds(16.4), Fits: retry.MayFit},
	}, p.Plan())
	require.Equal(t, ""+
		"attempt  window  earliest  latest  fits\n"+
		"      1      0s        0s      0s  always\n"+
		"      2   200ms        0s    5.2s  always\n"+
		"      3   400ms        0s   10.6s  always\n"+
		"      4   800ms        0s   16.4s  may\n"+
		"hints and the gate are left out\n", p.Plan().String())
}

func TestPlanTables(t *testing.T) {
	fixed := retry.Backoff{Base: 400 * ms, Jitter: retry.NoJitter}
	for _, c := range []struct {
		name   string
		policy *retry.Policy
		want   string
	}{
		// Without a timeout attempt 1 can take all of the 30s.
		{"nil", nil, `
attempt  window  earliest  latest  fits
      1      0s        0s      0s  always
      2   200ms        0s   30.2s  may
      3   400ms        0s   30.6s  may
      4   800ms        0s   31.4s  may
      5    1.6s        0s     33s  may
hints and the gate are left out
`},
		{"no jitter: up to what never fits", &retry.Policy{MaxElapsed: 1200 * ms, AttemptTimeout: 300 * ms, MinTimeout: -1, Backoff: fixed}, `
attempt  window  earliest  latest  fits
      1      0s        0s      0s  always
      2   400ms     400ms   700ms  always
      3   800ms      1.2s    1.8s  never
hints and the gate are left out
`},
		{"1ns more: it may", &retry.Policy{MaxElapsed: 1200*ms + 1, AttemptTimeout: 300 * ms, MinTimeout: -1, Backoff: fixed, MaxAttempts: 3}, `
attempt  window  earliest  latest  fits
      1      0s        0s      0s  always
      2   400ms     400ms   700ms  always
      3   800ms      1.2s    1.8s  may
hints and the gate are left out
`},
		{"ends at the deadline", &retry.Policy{MaxElapsed: time.Second, AttemptTimeout: 300 * ms, Backoff: fixed, MaxAttempts: 2}, `
attempt  window  earliest  latest  fits
      1      0s        0s      0s  always
      2   400ms     400ms   700ms  always
hints and the gate are left out
`},
		{"ends 1ns past the deadline", &retry.Policy{MaxElapsed: time.Second - 1, AttemptTimeout: 300 * ms, Backoff: fixed, MaxAttempts: 2}, `
attempt  window  earliest  latest  fits
      1      0s        0s      0s  always
      2   400ms     400ms   700ms  may
hints and the gate are left out
`},
		{"no deadline, but a timeout", &retry.Policy{MaxElapsed: -1, AttemptTimeout: time.Second, MaxAttempts: 3, Backoff: fixed}, `
attempt  window  earliest  latest  fits
      1      0s        0s      0s  always
      2   400ms     400ms    1.4s  always
      3   800ms      1.2s    3.2s  always
hints and the gate are left out
`},
		{"no limit at all", &retry.Policy{MaxElapsed: -1, MaxAttempts: 3}, `
attempt  window  earliest  latest  fits
      1      0s        0s      0s  always
      2   200ms        0s     any  always
      3   400ms        0s     any  always
hints and the gate are left out
`},
		{"no wait", &retry.Policy{MaxAttempts: 3, AttemptTimeout: time.Second, Backoff: retry.Backoff{Base: -1}}, `
attempt  window  earliest  latest  fits
      1      0s        0s      0s  always
      2      0s        0s      1s  always
      3      0s        0s      2s  always
hints and the gate are left out
`},
		{"equal jitter", &retry.Policy{MaxAttempts: 3, AttemptTimeout: time.Second, Backoff: retry.Backoff{Base: time.Second, Jitter: retry.EqualJitter}}, `
attempt  window  earliest  latest  fits
      1      0s        0s      0s  always
      2      1s     500ms      2s  always
      3      2s      1.5s      5s  always
hints and the gate are left out
`},
		{"decorrelated jitter: from its own last wait", &retry.Policy{MaxAttempts: 4, AttemptTimeout: time.Second, Backoff: retry.Backoff{Base: time.Second, Cap: 5 * time.Second, Jitter: retry.DecorrelatedJitter}}, `
attempt  window  earliest  latest  fits
      1      0s        0s      0s  always
      2      1s        1s      4s  always
      3      2s        2s     10s  always
      4      4s        3s     16s  always
hints and the gate are left out
`},
		// 1/2 and 5/4 of 2s + 3/4 of what has passed.
		{"elapsed jitter", &retry.Policy{MaxAttempts: 3, AttemptTimeout: 4 * time.Second, Backoff: retry.Backoff{Base: 2 * time.Second, Jitter: retry.ElapsedJitter}}, `
attempt  window  earliest  latest  fits
      1      0s        0s      0s  always
      2      2s        1s  10.25s  always
      3      4s    2.375s  30.109375s  may
hints and the gate are left out
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, strings.TrimPrefix(c.want, "\n"), c.policy.Plan().String())
		})
	}
	many := retry.Policy{MaxAttempts: math.MaxInt, Backoff: retry.Backoff{Jitter: retry.NoJitter}}
	require.Len(t, many.Plan(), 9, "0, 0.2, 0.6, 1.4, … 25.4 s, and the first that never fits")
	require.Equal(t, "attempt  window  earliest  latest  fits\nhints and the gate are left out\n", retry.Plan(nil).String())
}

func TestPlanListsAllAttemptsWithinBounds(t *testing.T) {
	for limit, want := range map[int]int{0: 5, 1: 1, 10: 10, 32: 32, 33: 33, 100: 100, -1: 32, math.MinInt: 32,
		999: 999, 1000: 1000, 1001: 1000, math.MaxInt: 1000} {
		p := retry.Policy{MaxAttempts: limit, MaxElapsed: -1, AttemptTimeout: 1, Backoff: retry.Backoff{Base: -1}}
		plan := p.Plan()
		require.Len(t, plan, want, limit)
		for i, a := range plan {
			require.Equal(t, i+1, a.Attempt)
			require.Equal(t, retry.AlwaysFits, a.Fits)
			require.Equal(t, time.Duration(i), a.Latest)
		}
	}
}

func TestFitPrintsItsWord(t *testing.T) {
	require.Equal(t, "never", retry.NeverFits.String())
	require.Equal(t, "may", retry.MayFit.String())
	require.Equal(t, "always", retry.AlwaysFits.String())
	require.Equal(t, "Fit(3)", retry.Fit(3).String())
}

// Plan sleeps and draws nothing, asks nobody, and leaves out hints, Throttle
// and the rest.
func TestPlanTouchesNoSeam(t *testing.T) {
	p := retry.Policy{
		Clock:    func() time.Time { panic("clock") },
		Rand:     func() float64 { panic("rand") },
		Sleep:    func(context.Context, time.Duration) error { panic("sleep") },
		Observe:  func(context.Context, retry.Record) { panic("observe") },
		Classify: func(error) retry.Verdict { panic("classify") },
		Throttle: retry.Backoff{Jitter: func(retry.Step) time.Duration { panic("throttle") }},
		Spread:   time.Hour,
		Budget:   &purse{},
	}
	require.Equal(t, (*retry.Policy)(nil).Plan(), p.Plan())
	require.Empty(t, p.Budget.(*purse).Log())
}

var jitters = map[string]retry.Jitter{
	"default": nil, "none": retry.NoJitter, "full": retry.FullJitter, "equal": retry.EqualJitter,
	"decorrelated": retry.DecorrelatedJitter, "elapsed": retry.ElapsedJitter,
}

func drawJitter(t *rapid.T) retry.Jitter {
	return jitters[rapid.SampledFrom([]string{"default", "none", "full", "equal", "decorrelated", "elapsed"}).Draw(t, "jitter")]
}

// Whatever the Policy holds, a Plan is in order: times grow and are never
// negative, the earliest is not after the latest, and what fits only gets worse.
func TestPlanIsInOrderForAnyPolicy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := retry.Policy{
			Backoff: retry.Backoff{Base: anyDuration(t, "Base"), Cap: anyDuration(t, "Cap"),
				Multiplier: rapid.SampledFrom([]float64{0, 1, 2, 10, 1.5, 1e300, -1, math.NaN(), math.Inf(1), math.Inf(-1)}).Draw(t, "Multiplier"), Jitter: drawJitter(t)},
			MaxAttempts:    rapid.IntRange(-1, 40).Draw(t, "MaxAttempts"),
			MaxElapsed:     anyDuration(t, "MaxElapsed"),
			AttemptTimeout: anyDuration(t, "AttemptTimeout"),
			MinTimeout:     anyDuration(t, "MinTimeout"),
		}
		plan := p.Plan()
		require.Equal(t, retry.Planned{Attempt: 1, Fits: retry.AlwaysFits}, plan[0])
		for i, a := range plan[1:] {
			before := plan[i]
			require.GreaterOrEqual(t, a.Earliest, before.Earliest)
			require.GreaterOrEqual(t, a.Latest, before.Latest)
			require.GreaterOrEqual(t, a.Latest, a.Earliest)
			require.LessOrEqual(t, a.Fits, before.Fits)
			require.NotEqual(t, retry.NeverFits, before.Fits, "nothing is listed after what never fits")
			require.Equal(t, p.Backoff.Window(i), a.Window)
		}
		_ = plan.String()
	})
}

// The loop keeps to the Plan: each attempt starts between its earliest and its
// latest, one that always fits is made, and one that never fits is not.
func TestTheLoopKeepsToThePlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clock := newClock()
		p := retry.Policy{
			Backoff:        retry.Backoff{Base: smallDuration(t, "Base"), Cap: smallDuration(t, "Cap"), Jitter: drawJitter(t)},
			MaxAttempts:    rapid.IntRange(1, 9).Draw(t, "MaxAttempts"),
			MaxElapsed:     smallDuration(t, "MaxElapsed"),
			AttemptTimeout: smallDuration(t, "AttemptTimeout"),
			MinTimeout:     smallDuration(t, "MinTimeout"),
			Clock:          clock.Now, Sleep: clock.Sleep,
			Rand: func() float64 { return rapid.SampledFrom([]float64{0, 0.5, 0.25, 1}).Draw(t, "u") },
		}
		limit := p.MaxElapsed
		if limit == 0 {
			limit = 30 * time.Second
		}
		plan := p.Plan()
		last := plan[len(plan)-1]
		require.True(t, len(plan) == p.MaxAttempts || last.Fits == retry.NeverFits)
		calls := 0
		err := retry.Run(context.Background(), &p, func(context.Context) error {
			calls++
			now := clock.Elapsed()
			a := plan[calls-1]
			require.NotEqual(t, retry.NeverFits, a.Fits)
			require.GreaterOrEqual(t, now, a.Earliest)
			require.LessOrEqual(t, now, a.Latest)
			most := 50 * time.Nanosecond
			if p.AttemptTimeout > 0 {
				most = p.AttemptTimeout
			}
			if limit > 0 {
				most = min(most, limit-now)
			}
			clock.Advance(time.Duration(rapid.SampledFrom([]int64{0, int64(most) / 2, int64(most)}).Draw(t, "takes")))
			return retry.Transient(errOp)
		})
		require.Error(t, err)
		if calls < len(plan) {
			require.NotEqual(t, retry.AlwaysFits, plan[calls].Fits, "attempt %d was not made", calls+1)
		}
	})
}
