package retry_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-3d0f8764/retry"
)

const (
	maxWait  = time.Duration(math.MaxInt64)
	belowOne = 1 - 1.0/(1<<53) // the largest float64 below 1
)

// theStrategies are the five strategies, and what each of their results is bounded by.
var theStrategies = []struct {
	name   string
	jitter retry.Jitter
	bound  func(retry.Step) time.Duration
}{
	{"NoJitter", retry.NoJitter, func(s retry.Step) time.Duration { return s.Window }},
	{"FullJitter", retry.FullJitter, func(s retry.Step) time.Duration { return s.Window }},
	{"EqualJitter", retry.EqualJitter, func(s retry.Step) time.Duration { return s.Window }},
	{"DecorrelatedJitter", retry.DecorrelatedJitter, func(s retry.Step) time.Duration { return s.Cap }},
	{"ElapsedJitter", retry.ElapsedJitter, func(s retry.Step) time.Duration { return s.Cap }},
}

// edgeDurations reach the whole range of an int64, and prefer its edges and every order of magnitude.
func edgeDurations() *rapid.Generator[time.Duration] {
	return rapid.Custom(func(t *rapid.T) time.Duration {
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			return time.Duration(rapid.Int64().Draw(t, "any"))
		case 1:
			return time.Duration(math.MaxInt64 - rapid.Int64Range(0, 2048).Draw(t, "below the top"))
		case 2:
			return time.Duration(math.MinInt64 + rapid.Int64Range(0, 2048).Draw(t, "above the bottom"))
		case 3:
			return time.Duration(rapid.Int64Range(-2, 2).Draw(t, "about 0"))
		}
		power := int64(1) << rapid.IntRange(0, 62).Draw(t, "power")
		return time.Duration(power + rapid.Int64Range(-1024, 1024).Draw(t, "offset"))
	})
}

// edgeDraws are in [0,1) for the most part, and anything a broken random source may give besides.
func edgeDraws() *rapid.Generator[float64] {
	return rapid.OneOf(
		rapid.Float64Range(0, belowOne),
		rapid.SampledFrom([]float64{
			0, math.Copysign(0, -1), math.SmallestNonzeroFloat64, belowOne, 1, math.Nextafter(1, 2), 2,
			-math.SmallestNonzeroFloat64, -1, math.MaxFloat64, -math.MaxFloat64, math.Inf(1), math.Inf(-1), math.NaN(),
		}),
		rapid.Map(rapid.Uint64(), math.Float64frombits),
	)
}

func edgeSteps() *rapid.Generator[retry.Step] {
	return rapid.Custom(func(t *rapid.T) retry.Step {
		return retry.Step{
			Retry:    rapid.Int().Draw(t, "Retry"),
			Base:     edgeDurations().Draw(t, "Base"),
			Cap:      edgeDurations().Draw(t, "Cap"),
			Window:   edgeDurations().Draw(t, "Window"),
			Previous: edgeDurations().Draw(t, "Previous"),
			Elapsed:  edgeDurations().Draw(t, "Elapsed"),
			Draw:     edgeDraws().Draw(t, "Draw"),
		}
	})
}

func TestJitterFormulas(t *testing.T) {
	const s, ms, ns = time.Second, time.Millisecond, time.Nanosecond
	type step = retry.Step
	for _, c := range []struct {
		name   string
		jitter retry.Jitter
		step   retry.Step
		want   time.Duration
	}{
		{"none is the window", retry.NoJitter, step{Window: 4 * s, Draw: 0.5}, 4 * s},
		{"none, negative window", retry.NoJitter, step{Window: -s}, 0},

		{"full, no draw", retry.FullJitter, step{Window: 4 * s}, 0},
		{"full, half", retry.FullJitter, step{Window: 250 * ms, Draw: 0.5}, 125 * ms},
		{"full, 0.8 of 500ms", retry.FullJitter, step{Window: 500 * ms, Draw: 0.8}, 400 * ms},
		{"full, 0.6 of 1s", retry.FullJitter, step{Window: s, Draw: 0.6}, 600 * ms},
		{"full, 0.6 of 2s", retry.FullJitter, step{Window: 2 * s, Draw: 0.6}, 1200 * ms},
		{"full, 0.6 of 4s", retry.FullJitter, step{Window: 4 * s, Draw: 0.6}, 2400 * ms},
		{"full, product below a whole number", retry.FullJitter, step{Window: 100, Draw: 0.29}, 29 * ns},
		{"full, rounded up", retry.FullJitter, step{Window: 3, Draw: 0.6}, 2 * ns},
		{"full, rounded down", retry.FullJitter, step{Window: 3, Draw: 0.4}, 1 * ns},
		{"full, negative window", retry.FullJitter, step{Window: -s, Draw: 0.5}, 0},

		{"equal, no draw", retry.EqualJitter, step{Window: s}, 500 * ms},
		{"equal, half", retry.EqualJitter, step{Window: s, Draw: 0.5}, 750 * ms},
		{"equal, rounded up", retry.EqualJitter, step{Window: 5, Draw: 0.5}, 4 * ns},
		{"equal, rounded down", retry.EqualJitter, step{Window: 5, Draw: 0.25}, 3 * ns},
		{"equal, negative window", retry.EqualJitter, step{Window: -s, Draw: 0.5}, 0},

		{"decorrelated, retry 0", retry.DecorrelatedJitter, step{Base: s, Cap: 10 * s, Draw: 0.5}, 2 * s},
		{"decorrelated, no draw", retry.DecorrelatedJitter, step{Base: s, Cap: 10 * s, Previous: 4 * s}, s},
		{"decorrelated, half", retry.DecorrelatedJitter, step{Base: s, Cap: 10 * s, Previous: 2 * s, Draw: 0.5}, 3500 * ms},
		{"decorrelated, capped", retry.DecorrelatedJitter, step{Base: s, Cap: 10 * s, Previous: 10 * s, Draw: 0.5}, 10 * s},
		{"decorrelated, below the cap", retry.DecorrelatedJitter, step{Base: s, Cap: 10 * s, Previous: 10 * s, Draw: 0.25}, 8250 * ms},
		{"decorrelated, short previous", retry.DecorrelatedJitter, step{Base: s, Cap: 10 * s, Previous: 100 * ms, Draw: 0.5}, s},
		{"decorrelated, base above the cap", retry.DecorrelatedJitter, step{Base: 11 * s, Cap: 10 * s, Draw: 0.5}, 10 * s},
		{"decorrelated, rounded up", retry.DecorrelatedJitter, step{Base: 1, Cap: s, Previous: 1, Draw: 0.3}, 2 * ns},
		{"decorrelated, negative base is 0", retry.DecorrelatedJitter, step{Base: -s, Cap: 10 * s, Previous: s, Draw: 0.5}, 1500 * ms},
		{"decorrelated, negative cap", retry.DecorrelatedJitter, step{Base: s, Cap: -s, Draw: 0.5}, 0},
		{"decorrelated, negative previous is base", retry.DecorrelatedJitter, step{Base: s, Cap: 10 * s, Previous: -s, Draw: 0.5}, 2 * s},

		{"elapsed, start, no draw", retry.ElapsedJitter, step{Base: 2 * s, Cap: 25 * s}, s},
		{"elapsed, start, half", retry.ElapsedJitter, step{Base: 2 * s, Cap: 25 * s, Draw: 0.5}, 1750 * ms},
		{"elapsed, 4s, half", retry.ElapsedJitter, step{Base: 2 * s, Cap: 25 * s, Elapsed: 4 * s, Draw: 0.5}, 4375 * ms},
		{"elapsed, 8s, no draw", retry.ElapsedJitter, step{Base: 2 * s, Cap: 25 * s, Elapsed: 8 * s}, 4 * s},
		{"elapsed, last second of growth", retry.ElapsedJitter, step{Base: 2 * s, Cap: 25 * s, Elapsed: 23 * s}, 9625 * ms},
		{"elapsed, long, no draw", retry.ElapsedJitter, step{Base: 2 * s, Cap: 25 * s, Elapsed: time.Hour}, 10 * s},
		{"elapsed, long, half", retry.ElapsedJitter, step{Base: 2 * s, Cap: 25 * s, Elapsed: time.Hour, Draw: 0.5}, 17500 * ms},
		{"elapsed, long, full draw", retry.ElapsedJitter, step{Base: 2 * s, Cap: 25 * s, Elapsed: time.Hour, Draw: belowOne}, 25 * s},
		{"elapsed, rounded once", retry.ElapsedJitter, step{Base: s, Cap: 7, Draw: belowOne}, 7 * ns},
		{"elapsed, clock set back", retry.ElapsedJitter, step{Base: 2 * s, Cap: 25 * s, Elapsed: -time.Hour}, s},
		{"elapsed, negative cap", retry.ElapsedJitter, step{Base: 2 * s, Cap: -7, Draw: belowOne}, 0}, // 5/4*0.8*-7 is below -7
		{"elapsed, negative base is 0", retry.ElapsedJitter, step{Base: -s, Cap: 25 * s, Elapsed: 8 * s}, 3 * s},

		// Fused multiply-adds would give …7872, …9088, …7713, …1491 and …5120 (fault B05).
		{"decorrelated, not fused", retry.DecorrelatedJitter,
			step{Base: 143872406268718496, Cap: maxWait, Previous: 1083398978851083392, Draw: 0.8192750264193612}, 2688806517884688384},
		{"decorrelated, not fused", retry.DecorrelatedJitter,
			step{Base: 962256143501076224, Cap: maxWait, Previous: 609962816193255808, Draw: 0.8614786635986567}, 1709702862175288832},
		{"elapsed, not fused", retry.ElapsedJitter,
			step{Base: 894808119105115, Cap: maxWait, Elapsed: 964246131992370, Draw: 0.7254298618039802}, 1689301534467712},
		{"elapsed, not fused", retry.ElapsedJitter,
			step{Base: 901081023198889, Cap: maxWait, Elapsed: 529309440305602, Draw: 0.9745854890533653}, 1597836650071492},
		{"elapsed, not fused", retry.ElapsedJitter,
			step{Base: 558926595336986560, Cap: maxWait, Elapsed: 1871181658656784896, Draw: 0.31880540630246557}, 1450353376191045376},
	} {
		require.Equal(t, c.want, c.jitter(c.step), "%s: %+v", c.name, c.step)
	}
}

// Each result is the formula's nearest nanosecond, computed here without rounding on the way.
func TestJitterRoundsToTheNearestNanosecond(t *testing.T) {
	exact := func(x float64) *big.Float { return new(big.Float).SetPrec(512).SetFloat64(x) }
	ns := func(d time.Duration) *big.Float { return exact(float64(d)) }
	mul := func(x, y *big.Float) *big.Float { return exact(0).Mul(x, y) }
	add := func(x, y *big.Float) *big.Float { return exact(0).Add(x, y) }
	sub := func(x, y *big.Float) *big.Float { return exact(0).Sub(x, y) }
	least := func(x, y *big.Float) *big.Float {
		if x.Cmp(y) < 0 {
			return x
		}
		return y
	}
	formulas := map[string]func(retry.Step) *big.Float{
		"NoJitter":   func(s retry.Step) *big.Float { return ns(s.Window) },
		"FullJitter": func(s retry.Step) *big.Float { return mul(exact(s.Draw), ns(s.Window)) },
		"EqualJitter": func(s retry.Step) *big.Float {
			half := mul(exact(0.5), ns(s.Window))
			return add(half, mul(exact(s.Draw), half))
		},
		"DecorrelatedJitter": func(s retry.Step) *big.Float {
			span := sub(mul(exact(3), ns(s.Previous)), ns(s.Base))
			if span.Sign() < 0 {
				span = exact(0)
			}
			return least(ns(s.Cap), add(ns(s.Base), mul(exact(s.Draw), span)))
		},
		"ElapsedJitter": func(s retry.Step) *big.Float {
			window := least(exact(0).Quo(ns(4*s.Cap), exact(5)), add(ns(s.Base), mul(exact(0.75), ns(s.Elapsed))))
			return mul(add(exact(0.5), mul(exact(0.75), exact(s.Draw))), window)
		},
	}
	rapid.Check(t, func(t *rapid.T) {
		upTo := rapid.SampledFrom([]int64{3, 100, 1e9, 1 << 45}).Draw(t, "upTo")
		ns := rapid.Map(rapid.Int64Range(1, upTo), func(n int64) time.Duration { return time.Duration(n) })
		s := retry.Step{
			Base:     ns.Draw(t, "Base"),
			Cap:      ns.Draw(t, "Cap"),
			Window:   ns.Draw(t, "Window"),
			Previous: ns.Draw(t, "Previous"),
			Elapsed:  ns.Draw(t, "Elapsed"),
			Draw:     rapid.Float64Range(0, belowOne).Draw(t, "Draw"),
		}
		for _, j := range theStrategies {
			off, _ := sub(exact(float64(j.jitter(s))), formulas[j.name](s)).Float64()
			require.InDelta(t, 0, off, 0.5+1.0/16, j.name) // 1/16: the roundings to float64, at 2^47
		}
	})
}

// Whatever the operands: never negative, never above what bounds the formula.
func TestJitterStaysInItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := edgeSteps().Draw(t, "step")
		for _, j := range theStrategies {
			wait := j.jitter(s)
			require.GreaterOrEqual(t, wait, time.Duration(0), j.name)
			require.LessOrEqual(t, wait, max(0, j.bound(s)), j.name)
		}
		require.GreaterOrEqual(t, retry.EqualJitter(s), max(0, s.Window/2-1024), "EqualJitter: 1024 is float64's step at the top")
		if s.Base <= s.Cap && s.Base <= 1<<53 { // up to here every whole number is a float64
			require.GreaterOrEqual(t, retry.DecorrelatedJitter(s), s.Base, "DecorrelatedJitter")
		}
	})
}

// Near the top float64(Window) and float64(Cap) round up, past the bound and past the type (faults B05, B12).
func TestJitterStaysInItsBoundsWhereFloat64RoundsUp(t *testing.T) {
	for shift := 53; shift <= 63; shift++ {
		for offset := range int64(2050) {
			d := time.Duration(1<<shift - 1 - offset)
			s := retry.Step{Base: d, Cap: d, Window: d, Previous: d, Elapsed: d, Draw: belowOne}
			for _, j := range theStrategies {
				if wait := j.jitter(s); wait < 0 || wait > d {
					require.Failf(t, "out of bounds", "%s: %d, which is not in [0, %d]", j.name, wait, d)
				}
			}
		}
	}
}

func TestJitterCountsABadDrawAsTheNearestGoodOne(t *testing.T) {
	const s = time.Second
	for _, c := range []struct{ draw, counts float64 }{
		{math.NaN(), 0}, {math.Inf(-1), 0}, {-1, 0}, {-math.SmallestNonzeroFloat64, 0},
		{1, belowOne}, {math.Nextafter(1, 2), belowOne}, {17, belowOne}, {math.Inf(1), belowOne},
	} {
		// So long that the last bit of the draw is worth 512ns.
		good := retry.Step{Base: 1 << 61, Cap: maxWait, Window: 1 << 62, Previous: 1 << 60, Elapsed: 100 * s, Draw: c.counts}
		bad := good
		bad.Draw = c.draw
		for _, j := range theStrategies {
			require.Equal(t, j.jitter(good), j.jitter(bad), "%s with draw %v", j.name, c.draw)
		}
	}
	top := retry.FullJitter(retry.Step{Window: 1 << 62, Draw: 1})
	require.Equal(t, time.Duration(1<<62-1<<9), top, "the largest float64 below 1 is 1-2^-53")
}

// Fault B17: as published, decorrelated jitter gives exactly the cap for (30-10)/(30-1) of all draws here, and 2/3 in the limit.
func TestDecorrelatedJitterWeightAtTheCap(t *testing.T) {
	const draws = 29_000
	for _, c := range []struct {
		base  time.Duration
		atCap int
	}{
		{time.Second, draws - 9_000},     // u >= 9/29
		{time.Nanosecond, draws - 9_667}, // u >= 1/3
	} {
		atCap := 0
		for i := range draws {
			d := retry.DecorrelatedJitter(retry.Step{
				Base: c.base, Cap: 10 * time.Second, Previous: 10 * time.Second, Draw: float64(i) / draws,
			})
			require.True(t, c.base <= d && d <= 10*time.Second, "%v", d)
			if d == 10*time.Second {
				atCap++
			}
		}
		require.Equal(t, c.atCap, atCap, "base %v", c.base)
	}
}

// Fault B19: nothing to spread is no reason to panic.
func TestJitterOfNextToNothing(t *testing.T) {
	for _, j := range theStrategies {
		require.Zero(t, j.jitter(retry.Step{}), j.name)
		require.Zero(t, j.jitter(retry.Step{Draw: belowOne}), j.name)
		for n := range time.Duration(10) {
			wait := j.jitter(retry.Step{Base: n, Cap: n, Window: n, Draw: rand.Float64()})
			require.True(t, 0 <= wait && wait <= n, "%s of %d: %d", j.name, n, wait)
		}
	}
}

func TestJitterDoesNotAllocate(t *testing.T) {
	s := retry.Step{Retry: 3, Base: 1e9, Cap: 30e9, Window: 8e9, Previous: 2e9, Elapsed: 5e9, Draw: 0.7}
	for _, j := range theStrategies {
		require.Zero(t, testing.AllocsPerRun(100, func() { j.jitter(s) }), j.name)
	}
}
