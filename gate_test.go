package retry_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-3d0f8764/retry"
)

// counter is a server that takes limit calls in each whole second of its life and
// refuses the rest at once, with the exact time to the next second as the hint.
type counter struct {
	limit  int
	hints  bool
	trip   time.Duration // mean round trip, ±50%
	start  time.Time
	mu     sync.Mutex
	second int64
	taken  int
	calls  int
	last   time.Duration // of the calls taken
}

func newCounter(limit int, hints bool, trip time.Duration) *counter {
	return &counter{limit: limit, hints: hints, trip: trip, start: time.Now(), second: -1}
}

func (c *counter) travel() {
	if c.trip > 0 {
		time.Sleep(time.Duration(float64(c.trip/2) * (0.5 + rand.Float64())))
	}
}

func (c *counter) Call(context.Context) error {
	c.travel()
	err := c.take()
	c.travel()
	if err == nil {
		c.mu.Lock()
		c.last = max(c.last, time.Since(c.start))
		c.mu.Unlock()
	}
	return err
}

func (c *counter) take() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	at := time.Since(c.start)
	if s := int64(at / time.Second); s != c.second {
		c.second, c.taken = s, 0
	}
	if c.taken < c.limit {
		c.taken++
		return nil
	}
	if c.hints {
		return retry.Throttled(errOp, time.Second-at%time.Second)
	}
	return retry.Throttled(errOp, 0)
}

// onlyGate is a policy that has no wait and no limit of its own.
func onlyGate(g retry.Gate) *retry.Policy {
	return &retry.Policy{Backoff: retry.Backoff{Base: -1}, Spread: -1, MaxAttempts: -1, MaxElapsed: -1, MaxHint: -1, Gate: g}
}

// Near the numbers of internal/herd, whose test has all worlds and 200 runs of
// each: means of a few runs, so a little apart.
func TestPacedGateIsNearTheFloor(t *testing.T) {
	for name, w := range map[string]struct {
		workers int
		hints   bool
		trip    time.Duration
		calls   float64
		seconds float64
	}{
		"100 workers, exact hint, no round trip": {100, true, 0, 120, 10},
		"100 workers, exact hint":                {100, true, 100 * ms, 120, 11.5},
		"100 workers, no hint":                   {100, false, 100 * ms, 120, 11.5},
		"1,000 workers, exact hint":              {1000, true, 100 * ms, 1060, 106},
		"1,000 workers, no hint":                 {1000, false, 100 * ms, 1060, 108},
	} {
		t.Run(name, func(t *testing.T) {
			runs := 1000 / w.workers * 2
			var calls, last float64
			for range runs {
				synctest.Test(t, func(t *testing.T) {
					server := newCounter(10, w.hints, w.trip)
					p := onlyGate(new(retry.PacedGate))
					var all sync.WaitGroup
					for range w.workers {
						all.Go(func() { require.NoError(t, retry.Run(t.Context(), p, server.Call)) })
					}
					all.Wait()
					calls += float64(server.calls) / float64(runs)
					last += server.last.Seconds() / float64(runs)
				})
			}
			require.LessOrEqual(t, calls, w.calls)
			require.LessOrEqual(t, last, w.seconds)
		})
	}
}

// free is an entry without limits.
var free = retry.Entry{Weight: 1, Within: math.MaxInt64, MaxHint: math.MaxInt64}

// enter passes g, which must let it.
func enter(t *testing.T, g retry.Gate, e retry.Entry) (leave func(retry.Outcome)) {
	t.Helper()
	leave, err := g.Enter(t.Context(), e)
	require.NoError(t, err)
	return leave
}

var (
	good   = retry.Outcome{Sent: true}
	unsent = retry.Outcome{}
)

// throttle and ban are outcomes of a call.
func throttle(hint time.Duration) retry.Outcome {
	return retry.Outcome{Sent: true, Err: errOp, Verdict: retry.Verdict{Class: retry.ClassThrottled, After: hint}}
}

func ban(hint time.Duration) retry.Outcome {
	return retry.Outcome{Sent: true, Err: errOp, Verdict: retry.Verdict{Class: retry.ClassSuspended, After: hint}}
}

// paced returns a gate that has been throttled: ten calls in a second, then a hint
// of a second. Its pace is 0.95*10/2 = 4.75 per second.
func paced(t *testing.T) *retry.PacedGate {
	g := &retry.PacedGate{Start: 11}
	var last func(retry.Outcome)
	for range 10 {
		enter(t, g, free)(good)
	}
	last = enter(t, g, free)
	time.Sleep(time.Second)
	last(throttle(time.Second))
	return g
}

// opensIn returns how long the next call has to wait.
func opensIn(t *testing.T, g retry.Gate) time.Duration {
	t.Helper()
	start := time.Now()
	enter(t, g, free)(unsent)
	return time.Since(start)
}

// Slow start: four in flight, one more with each that was accepted, none for
// what failed; and an open start does without.
func TestCallsInFlightBeforeTheFirstThrottle(t *testing.T) {
	fits := func(t *testing.T, g *retry.PacedGate, n int, weight float64) {
		t.Helper()
		e := retry.Entry{Weight: weight, MaxHint: math.MaxInt64} // no wait
		var inside []func(retry.Outcome)
		for range n {
			inside = append(inside, enter(t, g, e))
		}
		_, err := g.Enter(t.Context(), e)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		for _, leave := range inside {
			leave(unsent)
			leave(good) // once only
		}
	}
	synctest.Test(t, func(t *testing.T) {
		g := new(retry.PacedGate)
		fits(t, g, 4, 1)
		fits(t, g, 2, 2)
		fits(t, g, 1, 4.5) // heavier than the room: alone
		fits(t, g, 4, math.NaN())
		fits(t, g, 4, -3)
		enter(t, g, free)(good)
		fits(t, g, 5, 1)
		enter(t, g, free)(retry.Outcome{Sent: true, Err: errOp, Verdict: retry.Verdict{Class: retry.ClassUnknown}})
		fits(t, g, 5, 1)
		refused := &retry.StatusError{Code: 404}
		enter(t, g, free)(retry.Outcome{Sent: true, Err: refused, Verdict: retry.Classify(refused)}) // the server has taken it
		fits(t, g, 6, 1)
		fits(t, &retry.PacedGate{Start: 1}, 1, 1)

		open := &retry.PacedGate{Start: -1}
		for range 10000 {
			enter(t, open, retry.Entry{})
		}
	})
}

// The pace is 0.95 of what the server took over the cycle, pause included.
func TestPaceAfterAThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := paced(t)
		start := time.Now()
		var at []time.Duration
		for range 3 {
			enter(t, g, free)
			at = append(at, time.Since(start))
		}
		require.Equal(t, time.Second, at[0])
		require.InDelta(t, 1/4.75, (at[1] - at[0]).Seconds(), 1e-6)
		require.Less(t, at[2]-at[1], at[1]-at[0]) // it grows
		require.InDelta(t, 1/(4.75+(0.05*4.75+0.1)*(at[1]-at[0]).Seconds()), (at[2] - at[1]).Seconds(), 1e-6)
	})
}

// A hint of whole seconds has been rounded up: from the second throttle on the
// pace is 0.98 of what the server took without the pause, and it grows slowly
// at first. Any other hint is exact, and its pause counts.
func TestPaceAfterACoarseHint(t *testing.T) {
	for hint, pace := range map[time.Duration]func(took float64) float64{
		2 * time.Second:      func(took float64) float64 { return 0.98 * 4 / took },
		2*time.Second - 1:    func(took float64) float64 { return 0.95 * 4 / (took + 2) },
		2*time.Second + 1:    func(took float64) float64 { return 0.95 * 4 / (took + 2) },
		1500 * ms:            func(took float64) float64 { return 0.95 * 4 / (took + 1.5) },
		1000 * time.Second:   func(took float64) float64 { return 0.98 * 4 / took },
		1000*time.Second + 1: func(float64) float64 { return 0.05 }, // the slowest
	} {
		synctest.Test(t, func(t *testing.T) {
			g := paced(t)
			time.Sleep(time.Second) // its pause
			start := time.Now()
			for range 4 {
				enter(t, g, free)(good)
			}
			enter(t, g, free)(throttle(hint))
			took := time.Since(start).Seconds()
			enter(t, g, free)(good)
			begin := time.Now()
			require.Equal(t, hint, begin.Sub(start)-seconds(took), "never before it")
			enter(t, g, free)(good)
			first := time.Since(begin).Seconds()
			require.InDelta(t, 1/pace(took), first, 1e-6, hint)

			before := time.Now()
			enter(t, g, free)(good)
			growth := (0.05*pace(took) + 0.1) * min(first, 1)
			if hint%time.Second == 0 {
				growth *= first * first / 100
			}
			require.InDelta(t, 1/(pace(took)+growth), time.Since(before).Seconds(), 1e-6, hint)

			// Ten seconds into the cycle it grows as ever.
			time.Sleep(10*time.Second - time.Since(begin))
			enter(t, g, free)(good) // a late departure, and the one that is made up for
			enter(t, g, free)(good)
			var apart [2]float64
			for i := range apart {
				before = time.Now()
				enter(t, g, free)(good)
				apart[i] = time.Since(before).Seconds()
			}
			require.InDelta(t, 1/apart[0]+(0.05/apart[0]+0.1)*min(apart[0], 1), 1/apart[1], 1e-5)
		})
	}
}

// Heavy calls keep the next ones away for as many departures.
func TestWeightCountsAsThatManyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := paced(t)
		heavy := free
		heavy.Weight = 3
		enter(t, g, heavy)
		start := time.Now()
		enter(t, g, free)
		require.InDelta(t, 3/4.75, time.Since(start).Seconds(), 1e-6)
	})
}

// One reaction in each cycle: a throttle of a call that left before it is old
// news, unless its hint is of another order.
func TestOneReactionPerCycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := new(retry.PacedGate)
		var leave []func(retry.Outcome)
		for range 4 {
			leave = append(leave, enter(t, g, free))
		}
		leave[0](throttle(time.Second))
		time.Sleep(100 * ms)
		leave[1](throttle(time.Second)) // 100ms later: a rounded hint
		start := time.Now()
		leave[2](throttle(2 * time.Second)) // 1.1s later
		require.Equal(t, 2*time.Second, opensIn(t, g))
		require.Equal(t, 2*time.Second, time.Since(start))

		g = new(retry.PacedGate)
		leave[0], leave[1] = enter(t, g, free), enter(t, g, free)
		leave[0](throttle(time.Second))
		time.Sleep(100 * ms)
		leave[1](throttle(time.Second))
		require.Equal(t, 900*ms, opensIn(t, g))
	})
}

// Without a hint: one second the first time, none while calls are accepted, and
// doubling pauses while none are.
func TestPausesWithoutAHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &retry.PacedGate{Rand: func() float64 { return 0.5 }}
		enter(t, g, free)(throttle(0))
		for _, pause := range []float64{1, 1.5, 3, 6, 12, 15, 15} { // 3/4 of the full one
			start := time.Now()
			leave := enter(t, g, free)
			require.Equal(t, seconds(pause), time.Since(start).Round(time.Microsecond))
			leave(throttle(0))
		}
		enter(t, g, free)(good)
		start := time.Now()
		enter(t, g, free)(throttle(0))
		require.Less(t, time.Since(start), 21*time.Second) // one departure at the slowest pace, no pause
	})
}

// With a hint the second barren cycle in a row adds a spread, and the fuller
// the longer it goes on.
func TestBarrenCyclesSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &retry.PacedGate{Rand: func() float64 { return 0.5 }}
		enter(t, g, free)(throttle(100 * ms))
		for _, pause := range []float64{0.1, 0.1 + 1, 0.1 + 2, 0.1 + 4, 0.1 + 8, 0.1 + 10, 0.1 + 10} {
			start := time.Now()
			leave := enter(t, g, free)
			require.Equal(t, seconds(pause), time.Since(start).Round(time.Microsecond))
			leave(throttle(100 * ms))
		}
	})
}

// A ban holds all, teaches no pace, and the start stays a slow one.
func TestABanTeachesNoPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := new(retry.PacedGate)
		enter(t, g, free)(ban(2 * time.Minute))
		require.Equal(t, 2*time.Minute, opensIn(t, g))
		for range 4 {
			require.Zero(t, opensIn(t, g))
			enter(t, g, free)
		}

		g = paced(t)
		enter(t, g, free)
		enter(t, g, free)(ban(time.Minute))
		start := time.Now()
		enter(t, g, free)
		require.Equal(t, time.Minute, time.Since(start))
		enter(t, g, free)
		require.InDelta(t, 60+1/4.8, time.Since(start).Seconds(), 0.02)

		g = new(retry.PacedGate)
		enter(t, g, free)(ban(0)) // like a throttle without a hint
		require.Equal(t, time.Second, opensIn(t, g))
	})
}

// A late success counts into the cycle that it left in.
func TestALateSuccessLiftsThePace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &retry.PacedGate{Start: 20}
		for range 9 {
			enter(t, g, free)(good)
		}
		late := enter(t, g, free)
		last := enter(t, g, free)
		time.Sleep(time.Second)
		last(throttle(time.Second))
		late(good)
		enter(t, g, free)
		start := time.Now()
		enter(t, g, free)
		require.InDelta(t, 1/4.75, time.Since(start).Seconds(), 1e-6)
	})
}

// First come, first served; one that gives up leaves no hole; a look-up goes
// before a thousand; and they cost no goroutine of ours.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := paced(t)
		ctx, cancel := context.WithCancel(t.Context())
		var order []int
		var mu sync.Mutex
		start := time.Now()
		var times []time.Duration
		var all sync.WaitGroup
		goroutines := runtime.NumGoroutine()
		for i := range 1000 {
			all.Go(func() {
				mine, e := t.Context(), free
				if i == 2 || i == 500 {
					mine = ctx
				}
				e.Ahead = i == 999
				leave, err := g.Enter(mine, e)
				if mine == ctx {
					require.Equal(t, context.Canceled, err)
					return
				}
				require.NoError(t, err)
				mu.Lock()
				order, times = append(order, i), append(times, time.Since(start))
				mu.Unlock()
				leave(good)
			})
			synctest.Wait() // in this order
		}
		require.LessOrEqual(t, runtime.NumGoroutine(), goroutines+1000+5)
		cancel()
		all.Wait()
		require.Len(t, order, 998)
		require.Equal(t, 999, order[0])
		require.IsIncreasing(t, order[1:])
		require.IsIncreasing(t, times)
		require.InDelta(t, 1/4.75, (times[3] - times[2]).Seconds(), 0.02, "no hole where 2 was")
	})
}

// Both sides of the limits of an entry, and what they are refused with.
func TestLimitsOfAWait(t *testing.T) {
	const s = time.Second
	for name, test := range map[string]struct {
		within, maxHint time.Duration
		err             error
	}{
		"long enough":       {s, s, nil},
		"past the deadline": {s - 1, math.MaxInt64, &retry.HeldError{For: s}},
		"a hint too long":   {math.MaxInt64, s - 1, &retry.HeldError{For: s}},
		"negative":          {-1, -1, &retry.HeldError{For: s}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := paced(t) // held for a second
				start := time.Now()
				_, err := g.Enter(t.Context(), retry.Entry{Within: test.within, MaxHint: test.maxHint})
				require.Equal(t, test.err, err)
				require.Equal(t, test.err != nil, time.Since(start) == 0, "at once")
			})
		})
	}

	synctest.Test(t, func(t *testing.T) { // they wait already when it comes
		g := &retry.PacedGate{Start: 1}
		leave := enter(t, g, free)
		var all sync.WaitGroup
		start := time.Now()
		for _, e := range []retry.Entry{{Within: 10 * s, MaxHint: s - 1}, {Within: 2*s - 1, MaxHint: 3 * s}, {Within: 2 * s, MaxHint: s}} {
			all.Go(func() {
				leave, err := g.Enter(t.Context(), e)
				if e.Within == 2*s {
					require.NoError(t, err)
					require.Equal(t, 2*s, time.Since(start))
					leave(good)
					return
				}
				require.Equal(t, &retry.HeldError{For: s}, err)
				require.Equal(t, s, time.Since(start))
			})
			synctest.Wait()
		}
		time.Sleep(s)
		leave(throttle(s))
		all.Wait()
	})

	synctest.Test(t, func(t *testing.T) { // a mere queue
		g := &retry.PacedGate{Start: 1}
		enter(t, g, free)
		start := time.Now()
		_, err := g.Enter(t.Context(), retry.Entry{Within: 3 * s, MaxHint: 1})
		require.Equal(t, context.DeadlineExceeded, err)
		require.Equal(t, 3*s, time.Since(start))
	})
}

// Whatever the world tells it, it holds no one for ever who did not hear so,
// and never panics.
func TestPacedGateAgainstNonsense(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			u := rapid.SampledFrom([]float64{0, 0.5, 1, -1, 2, math.NaN(), math.Inf(1), math.Inf(-1), 0.9999999999999999}).Draw(rt, "u")
			g := &retry.PacedGate{Start: rapid.SampledFrom([]int{0, -1, 1, math.MaxInt, math.MinInt}).Draw(rt, "start"), Rand: func() float64 { return u }}
			var inside []func(retry.Outcome)
			until := time.Now()
			for range rapid.IntRange(1, 40).Draw(rt, "steps") {
				time.Sleep(time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(rt, "sleep")))
				if rapid.Bool().Draw(rt, "enter") || len(inside) == 0 {
					e := retry.Entry{
						Weight:  rapid.Float64().Draw(rt, "weight"),
						Within:  time.Duration(rapid.Int64Range(-1, int64(time.Hour)).Draw(rt, "within")),
						MaxHint: time.Duration(rapid.Int64().Draw(rt, "max hint")),
						Ahead:   rapid.Bool().Draw(rt, "ahead"),
					}
					start := time.Now()
					leave, err := g.Enter(t.Context(), e)
					require.LessOrEqual(t, time.Since(start), max(0, e.Within))
					if err == nil {
						require.False(t, time.Now().Before(until), "before the server permits it")
						inside = append(inside, leave)
					}
					continue
				}
				o := retry.Outcome{Sent: rapid.Bool().Draw(rt, "sent"), Verdict: retry.Verdict{
					Class: retry.Class(rapid.IntRange(0, 7).Draw(rt, "class")),
					After: time.Duration(rapid.Int64().Draw(rt, "hint")),
				}}
				if rapid.Bool().Draw(rt, "failed") {
					o.Err = errOp
				}
				if o.Sent && o.Err != nil && o.Verdict.Class == retry.ClassSuspended && o.Verdict.After > 0 {
					if at := time.Now().Add(o.Verdict.After); at.After(until) {
						until = at
					}
				}
				inside[0](o)
				inside = inside[1:]
			}
		})
	})
}

// Many askers, with all that can happen to them: under the race detector.
func TestPacedGateUnderContention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := new(retry.PacedGate)
		server := newCounter(50, true, 10*ms)
		var inside, most atomic.Int64
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				for n := range 5 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+(i*7+n*13)%40)*100*ms)
					p := onlyGate(g)
					p.Weight = float64(1 + i%3)
					_ = retry.Run(ctx, p, func(ctx context.Context) error {
						most.Store(max(most.Load(), inside.Add(1)))
						defer inside.Add(-1)
						return server.Call(ctx)
					})
					cancel()
				}
			})
		}
		all.Wait()
		require.Zero(t, inside.Load())
		time.Sleep(time.Minute)
		require.Zero(t, opensIn(t, g), "nothing is left in it")
	})
}

// door is a Gate that writes down what it is asked and told, and refuses with
// the errors that it is given.
type door struct {
	mu       sync.Mutex
	refusals []error // of the next entries; nil: passes
	entries  []retry.Entry
	outcomes []retry.Outcome
	wait     func(time.Duration)
	takes    time.Duration
}

func (d *door) Enter(_ context.Context, e retry.Entry) (func(retry.Outcome), error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries = append(d.entries, e)
	if d.wait != nil {
		d.wait(d.takes)
	}
	if len(d.refusals) > 0 {
		err := d.refusals[0]
		d.refusals = d.refusals[1:]
		if err != nil {
			return nil, err
		}
	}
	return func(o retry.Outcome) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.outcomes = append(d.outcomes, o)
	}, nil
}

// Each attempt passes the gate, the first too; it is told what came of each; the
// time spent at it is in the record and counts.
func TestEveryAttemptPassesTheGate(t *testing.T) {
	clock, watch := newClock(), &watcher{}
	d := &door{wait: clock.Advance, takes: 2 * time.Second}
	p := retry.Policy{Gate: d, Weight: 2.5, Observe: watch.Observe, Spread: -1, MaxElapsed: 20 * time.Second, MinTimeout: 3 * time.Second}
	op := clock.script(failure(time.Second, retry.Throttled(errOp, 4*time.Second)), success(0))
	clock.drive(t, &p, 0.5)
	_, err := retry.Do(t.Context(), &p, op.Do)
	require.NoError(t, err)
	require.Equal(t, []retry.Entry{
		{Weight: 2.5, Within: 20*time.Second - 1, MaxHint: time.Minute},
		{Weight: 2.5, Within: 10 * time.Second, MaxHint: time.Minute}, // 13 left, 3 of them needed
	}, d.entries)
	require.Len(t, d.outcomes, 2)
	require.True(t, d.outcomes[0].Sent)
	require.ErrorIs(t, d.outcomes[0].Err, errOp)
	require.Equal(t, retry.ClassThrottled, d.outcomes[0].Verdict.Class)
	require.Equal(t, 4*time.Second, d.outcomes[0].Verdict.After)
	require.Equal(t, retry.Outcome{Sent: true}, d.outcomes[1])
	for _, r := range watch.Records() {
		require.Equal(t, 2*time.Second, r.Gated)
	}
	require.Equal(t, 9*time.Second, watch.Records()[1].Elapsed)
}

// What the gate refuses with, and what the error then is and says.
func TestRefusedAtTheGate(t *testing.T) {
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		refusal error
		reason  error
		retryIn time.Duration
		text    string
	}{
		"held for longer than a hint may be": {&retry.HeldError{For: 61 * time.Second}, retry.ErrHint, 61 * time.Second,
			"retry: gave up after 1 attempt in 0s: the gate is held for 1m1s, MaxHint is 1m0s: op failed"},
		"held past the deadline": {&retry.HeldError{For: 40 * time.Second}, retry.ErrDeadline, 40 * time.Second,
			"retry: gave up after 1 attempt in 0s: the gate is held for 40s, past the deadline: op failed"},
		"the queue": {context.DeadlineExceeded, retry.ErrDeadline, 0,
			"retry: gave up after 1 attempt in 0s: others were before it at the gate until the deadline: op failed"},
		"broken": {broken, retry.ErrCanceled, 0, "retry: stopped after 1 attempt in 0s: the gate: broken: op failed"},
	} {
		t.Run(name, func(t *testing.T) {
			clock, purse, watch := newClock(), &purse{tokens: 5}, &watcher{}
			d := &door{refusals: []error{nil, test.refusal}}
			p := retry.Policy{Gate: d, Budget: purse, Observe: watch.Observe, Backoff: retry.Backoff{Base: -1}}
			clock.drive(t, &p, 0)
			calls := 0
			err := retry.Run(t.Context(), &p, func(context.Context) error { calls++; return retry.Transient(errOp) })
			require.Equal(t, 1, calls)
			e := stopped(t, err)
			require.Equal(t, test.reason, e.Reason)
			require.ErrorIs(t, err, test.refusal)
			require.ErrorIs(t, err, errOp)
			require.EqualError(t, err, test.text)
			if test.retryIn > 0 {
				require.Equal(t, clock.Now().Add(test.retryIn), e.RetryAt)
			} else {
				require.True(t, e.RetryAt.IsZero())
			}
			require.Equal(t, []string{"spend transient unstated 0s 1", "return 1"}, purse.Log(), "the retry was not sent")
			require.Len(t, watch.Records(), 2)
			require.Equal(t, retry.GaveUp, watch.Records()[1].Decision)
		})
	}
	e := stopped(t, retry.Run(t.Context(), &retry.Policy{Gate: &door{refusals: []error{broken}}}, func(context.Context) error { panic("called") }))
	require.EqualError(t, e, "retry: not attempted: the gate: broken")

	unlimited := &door{}
	require.NoError(t, retry.Run(t.Context(), &retry.Policy{Gate: unlimited, MaxHint: -1, MaxElapsed: -1, Weight: math.NaN()}, func(context.Context) error { return nil }))
	require.Equal(t, []retry.Entry{{Weight: 1, Within: math.MaxInt64, MaxHint: math.MaxInt64}}, unlimited.entries)
}

// A pass that is not used goes back: refused admission, an end of ctx, a journal.
func TestAPassThatIsNotUsedGoesBack(t *testing.T) {
	clock := newClock()
	d := &door{wait: clock.Advance, takes: 30 * time.Second} // until the deadline
	p := retry.Policy{Gate: d}
	clock.drive(t, &p)
	require.ErrorIs(t, retry.Run(t.Context(), &p, func(context.Context) error { panic("called") }), retry.ErrDeadline)
	require.Equal(t, []retry.Outcome{{}}, d.outcomes)

	d = &door{}
	p = retry.Policy{Gate: d, Journal: &retry.Journal{Save: func(context.Context, retry.State) error { return errOp }}}
	require.ErrorIs(t, retry.Run(t.Context(), &p, func(context.Context) error { panic("called") }), retry.ErrJournal)
	require.Equal(t, []retry.Outcome{{}}, d.outcomes)
}

// A panic passes through and releases.
func TestAPanicReleasesTheGate(t *testing.T) {
	for name, p := range map[string]*retry.Policy{
		"op":       {},
		"Classify": {Classify: func(error) retry.Verdict { panic("boom") }},
		"Observe":  {Observe: func(context.Context, retry.Record) { panic("boom") }},
	} {
		g := &retry.PacedGate{Start: 1}
		p.Gate = g
		require.PanicsWithValue(t, "boom", func() {
			_ = retry.Run(t.Context(), p, func(context.Context) error {
				if name == "op" {
					panic("boom")
				}
				return errOp
			})
		}, name)
		enter(t, g, retry.Entry{})(good)
	}
}

// A loop inside an attempt that holds the gate passes it unasked, through Gates
// and Detach too; one beside it, or after it, does not. What it was told reaches
// the gate through the attempt around it.
func TestAnAttemptThatHoldsTheGatePassesItUnasked(t *testing.T) {
	a, b, other := &door{}, &door{}, &door{}
	pass := func(ctx context.Context, g retry.Gate) error {
		return retry.Run(ctx, &retry.Policy{Gate: g, MaxAttempts: 1}, func(context.Context) error { return nil })
	}
	var left context.Context
	for _, g := range []retry.Gate{a, retry.Gates(nil, a, b), retry.Gates(retry.Gates(b), a)} {
		a.entries, b.entries, other.entries = nil, nil, nil
		require.NoError(t, retry.Run(t.Context(), &retry.Policy{Gate: g}, func(ctx context.Context) error {
			left = ctx
			require.NoError(t, pass(ctx, a))
			require.NoError(t, pass(ctx, retry.Gates(a)))
			require.NoError(t, pass(retry.Detach(ctx), a))
			require.NoError(t, retry.Run(ctx, &retry.Policy{Gate: other}, func(ctx context.Context) error { return pass(ctx, a) }))
			require.Len(t, a.entries, 1)
			require.Len(t, other.entries, 1)
			return nil
		}))
		require.NoError(t, pass(context.WithoutCancel(left), a))
		require.Len(t, a.entries, 2, "that one has left it")
	}

	clock := newClock()
	d := &door{}
	p := retry.Policy{Gate: d}
	clock.drive(t, &p)
	_ = retry.Run(t.Context(), &p, func(ctx context.Context) error {
		q := retry.Policy{Gate: d, MaxAttempts: 1, Clock: clock.Now}
		return retry.Run(ctx, &q, func(context.Context) error { return retry.Throttled(errOp, 7*time.Second) })
	})
	require.Len(t, d.outcomes, 1)
	require.Equal(t, retry.ClassThrottled, d.outcomes[0].Verdict.Class)
	require.Equal(t, 7*time.Second, d.outcomes[0].Verdict.After)
}

// uncomparable is a Gate that == would panic on.
type uncomparable []*door

func (u uncomparable) Enter(ctx context.Context, e retry.Entry) (func(retry.Outcome), error) {
	_, _ = u[0].Enter(ctx, e)
	return nil, nil // nobody is interested in what comes of it
}

func TestAGateOfAnyType(t *testing.T) {
	d := &door{}
	g := uncomparable{d}
	require.NoError(t, retry.Run(t.Context(), &retry.Policy{Gate: g}, func(ctx context.Context) error {
		return retry.Run(ctx, &retry.Policy{Gate: g}, func(context.Context) error { return nil })
	}))
	require.Len(t, d.entries, 2, "nobody can tell that it is the same")
}

// Gates enters one after the other, tells each, and lets go of those it has
// entered where a later one refuses.
func TestGates(t *testing.T) {
	a, b := &door{}, &door{}
	g := retry.Gates(a, nil, b)
	enter(t, g, free)(good)
	require.Len(t, a.entries, 1)
	require.Equal(t, []retry.Outcome{good}, a.outcomes)
	require.Equal(t, []retry.Outcome{good}, b.outcomes)

	b.refusals = []error{errOp}
	_, err := g.Enter(t.Context(), free)
	require.Equal(t, errOp, err)
	require.Equal(t, []retry.Outcome{good, unsent}, a.outcomes)
	require.Equal(t, []retry.Outcome{good}, b.outcomes)

	enter(t, retry.Gates(), free)(good)

	for held, entries := range map[time.Duration]int{time.Second: 1, time.Second + 1: 2} {
		synctest.Test(t, func(t *testing.T) {
			a, b := &door{}, &door{wait: time.Sleep, takes: held}
			e := retry.Entry{Weight: 1, Within: 5 * time.Second, MaxHint: 1}
			enter(t, retry.Gates(a, b), e)(good)
			require.Len(t, a.entries, entries)
			require.Len(t, b.entries, 1)
			if entries == 2 {
				require.Equal(t, retry.Entry{Weight: 1, Within: 5*time.Second - held, MaxHint: 1, Ahead: true}, a.entries[1])
				require.Equal(t, []retry.Outcome{unsent, good}, a.outcomes)
			}
		})
	}
}

// Two scopes at once: what holds one holds only those who share it.
func TestTwoAccountsOfOneIP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ip, one, two := new(retry.PacedGate), new(retry.PacedGate), new(retry.PacedGate)
		enter(t, one, free)(throttle(time.Minute))
		require.Equal(t, time.Minute, opensIn(t, retry.Gates(one, ip)))
		enter(t, one, free)(ban(time.Minute))
		require.Zero(t, opensIn(t, retry.Gates(two, ip)))
	})
}

// Submit's order on waking is gate, Find, admission, Save, send; look-ups go ahead
// of others and do not wait for those in flight.
func TestSubmitAtTheGate(t *testing.T) {
	clock := newClock()
	var did []string
	d := &door{wait: func(time.Duration) { did = append(did, "gate") }}
	p := retry.Policy{Gate: d, MaxAttempts: 3, Backoff: retry.Backoff{Base: -1}}
	p.Journal = &retry.Journal{Save: func(_ context.Context, s retry.State) error {
		if s.InFlight {
			did = append(did, "save")
		}
		return nil
	}}
	clock.drive(t, &p, 0)
	sends := 0
	_, err := retry.Submit(t.Context(), &p, func(context.Context) (int, error) {
		did = append(did, "send")
		if sends++; sends == 1 {
			return 0, errOp
		}
		return 1, nil
	}, retry.Lookup[int]{Find: func(context.Context) (int, retry.Resolution, error) {
		did = append(did, "find")
		return 0, retry.NotApplied, nil
	}})
	require.NoError(t, err)
	require.Equal(t, []string{
		"gate", "save", "send", // unknown
		"gate", "find",
		"gate", "gate", "find", "save", "send",
	}, did)
	ahead := make([]bool, 0, 4)
	for _, e := range d.entries {
		ahead = append(ahead, e.Ahead)
	}
	require.Equal(t, []bool{false, true, false, true}, ahead)
	require.Len(t, d.outcomes, 4)

	synctest.Test(t, func(t *testing.T) { // all that may be in flight are sends that look up
		p := retry.Policy{Gate: &retry.PacedGate{Start: 1}}
		sends := 0
		v, err := retry.Submit(t.Context(), &p, func(context.Context) (int, error) {
			if sends++; sends == 1 {
				return 0, errOp
			}
			return sends, nil
		}, retry.Lookup[int]{Find: func(context.Context) (int, retry.Resolution, error) { return 0, retry.NotApplied, nil }})
		require.NoError(t, err)
		require.Equal(t, 2, v)
	})

	synctest.Test(t, func(t *testing.T) { // before a thousand others
		g := paced(t)
		var all sync.WaitGroup
		gone := atomic.Int64{}
		for range 1000 {
			all.Go(func() { enter(t, g, free)(good); gone.Add(1) })
		}
		synctest.Wait()
		_, err := retry.Submit(t.Context(), &retry.Policy{Gate: new(retry.PacedGate)}, func(context.Context) (int, error) { return 0, errOp },
			retry.Lookup[int]{Policy: &retry.Policy{Gate: g}, Find: func(context.Context) (int, retry.Resolution, error) { return 7, retry.Applied, nil }})
		require.NoError(t, err)
		require.Zero(t, gone.Load())
		all.Wait()
	})
}

// A hint or a ban that one is told stops all who share the gate, whatever became of its
// operation.
func TestWhatOneIsToldStopsAll(t *testing.T) {
	for _, failure := range []error{retry.Throttled(errOp, 20*time.Second), retry.Suspended(errOp, 20*time.Second)} {
		synctest.Test(t, func(t *testing.T) {
			p := &retry.Policy{Gate: new(retry.PacedGate), MaxAttempts: 1}
			_ = retry.Run(t.Context(), p, func(context.Context) error { return failure })
			start := time.Now()
			require.NoError(t, retry.Run(t.Context(), p, func(context.Context) error {
				require.Equal(t, 20*time.Second, time.Since(start))
				return nil
			}))
			p.Gate, p.MaxElapsed = new(retry.PacedGate), 10*time.Second
			_ = retry.Run(t.Context(), p, func(context.Context) error { return failure })
			start = time.Now()
			e := stopped(t, retry.Run(t.Context(), p, func(context.Context) error { panic("called") }))
			require.Equal(t, retry.ErrDeadline, e.Reason)
			require.True(t, e.RetryAt.Equal(start.Add(20*time.Second)))
			require.Equal(t, start, time.Now(), "at once")
		})
	}
}
