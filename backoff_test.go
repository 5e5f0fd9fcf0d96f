package retry_test

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-3d0f8764/retry"
)

// edgeMultipliers prefer those near 1, whose powers are the hardest, whole ones, and nonsense.
func edgeMultipliers() *rapid.Generator[float64] {
	return rapid.OneOf(
		rapid.Map(rapid.IntRange(0, 52), func(n int) float64 { return 1 + math.Ldexp(1, -n) }),
		rapid.Float64Range(1, 1+1e-9),
		rapid.Float64Range(1, 4),
		rapid.Map(rapid.IntRange(1, 1000), func(n int) float64 { return float64(n) }),
		rapid.SampledFrom([]float64{
			0, math.Copysign(0, -1), 1, 2, math.Nextafter(1, 0), math.Nextafter(1, 2), math.Nextafter(2, 1), math.Nextafter(2, 3),
			0.5, -1, -2, 1 << 62, 1 << 63, 1 << 64, 1e300, math.SmallestNonzeroFloat64,
			math.MaxFloat64, -math.MaxFloat64, math.Inf(1), math.Inf(-1), math.NaN(),
		}),
		rapid.Map(rapid.Uint64(), math.Float64frombits),
	)
}

// edgeRetries are small, huge, or about where base*m^n passes 2^63.
func edgeRetries(m float64) *rapid.Generator[int] {
	kinds := []*rapid.Generator[int]{
		rapid.IntRange(-1, 130),
		rapid.Int(),
		rapid.IntRange(math.MaxInt-100, math.MaxInt),
		rapid.SampledFrom([]int{math.MinInt, math.MaxInt32, 1e9, 1 << 30}),
	}
	if m > 1 && m < math.MaxFloat64 {
		kinds = append(kinds, rapid.Map(rapid.Float64Range(0, 64), func(doublings float64) int {
			return int(min(doublings*math.Ln2/math.Log1p(m-1), 1<<(bits.UintSize-2)))
		}))
	}
	return rapid.OneOf(kinds...)
}

func edgeBackoffs() *rapid.Generator[retry.Backoff] {
	return rapid.Custom(func(t *rapid.T) retry.Backoff {
		return retry.Backoff{
			Base:       rapid.OneOf(edgeDurations(), rapid.Just(time.Duration(1))).Draw(t, "Base"),
			Cap:        rapid.OneOf(edgeDurations(), rapid.Just(maxWait)).Draw(t, "Cap"),
			Multiplier: edgeMultipliers().Draw(t, "Multiplier"),
		}
	})
}

// inForce are the numbers that the doc of Backoff's fields gives for b.
func inForce(b retry.Backoff) (base, limit time.Duration, m float64) {
	base, limit, m = b.Base, b.Cap, b.Multiplier
	if base == 0 {
		base = 200 * time.Millisecond
	}
	base = max(0, base)
	switch {
	case limit == 0:
		limit = 30 * time.Second
	case limit < 0:
		limit = math.MaxInt64
	}
	switch {
	case m == 0:
		m = 2
	case math.IsNaN(m) || m < 1:
		m = 1
	}
	return min(base, limit), limit, m
}

// exactWindow is min(limit, base*m^n) with 512 bits. One factor after the other would take until tomorrow.
func exactWindow(base, limit time.Duration, m float64, n int) *big.Float {
	wide := func() *big.Float { return new(big.Float).SetPrec(512) }
	most := wide().SetInt64(int64(limit))
	if base == 0 || n <= 0 || m == 1 {
		return wide().SetInt64(int64(min(base, limit)))
	}
	if math.IsInf(m, 1) {
		return most
	}
	power, factor := wide().SetInt64(int64(base)), wide().SetFloat64(m)
	for ; n > 0; n /= 2 {
		if n%2 == 1 {
			power.Mul(power, factor)
		}
		if power.Cmp(most) >= 0 || (n > 1 && factor.Cmp(most) >= 0) {
			return most
		}
		factor.Mul(factor, factor)
	}
	return power
}

func TestWindowTables(t *testing.T) {
	const s, ms, us = time.Second, time.Millisecond, time.Microsecond
	for _, c := range []struct {
		name    string
		backoff retry.Backoff
		want    []time.Duration
	}{
		{"defaults", retry.Backoff{},
			[]time.Duration{200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms, 12800 * ms, 25600 * ms, 30 * s, 30 * s}},
		{"0.25s to 5s", retry.Backoff{Base: 250 * ms, Multiplier: 2, Cap: 5 * s},
			[]time.Duration{250 * ms, 500 * ms, s, 2 * s, 4 * s, 5 * s, 5 * s}},
		{"fault B01: 1s to 30s", retry.Backoff{Base: s, Cap: 30 * s}, []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 30 * s, 30 * s}},
		{"fault B25: Base*2^n, not Base^n", retry.Backoff{Base: 10 * ms}, []time.Duration{10 * ms, 20 * ms, 40 * ms}},
		{"the cap met exactly", retry.Backoff{Base: s, Cap: 4 * s}, []time.Duration{s, 2 * s, 4 * s, 4 * s}},
		{"the cap missed by 1ns", retry.Backoff{Base: s, Cap: 4*s - 1}, []time.Duration{s, 2 * s, 4*s - 1, 4*s - 1}},
		{"the cap not met by 1ns", retry.Backoff{Base: s, Cap: 4*s + 1}, []time.Duration{s, 2 * s, 4 * s, 4*s + 1}},
		{"tripling", retry.Backoff{Base: us, Multiplier: 3}, []time.Duration{us, 3 * us, 9 * us, 27 * us, 81 * us}},
		{"tripling to the cap", retry.Backoff{Base: us, Multiplier: 3, Cap: 27 * us}, []time.Duration{us, 3 * us, 9 * us, 27 * us, 27 * us}},
		{"1.5", retry.Backoff{Base: 8, Multiplier: 1.5}, []time.Duration{8, 12, 18, 27}},
		{"1.6 as float64 has it", retry.Backoff{Base: 2 * s, Multiplier: 1.6, Cap: 20 * s},
			[]time.Duration{2 * s, 3200 * ms, 5120 * ms, 8192 * ms, 13107200 * us, 20 * s}},
		{"rounded to the nearest", retry.Backoff{Base: 10, Multiplier: 1.25}, []time.Duration{10, 13, 16, 20, 24, 31}},
		{"no growth", retry.Backoff{Base: s, Multiplier: 1}, []time.Duration{s, s, s, s}},
		{"below 1", retry.Backoff{Base: s, Multiplier: 0.5}, []time.Duration{s, s, s}},
		{"just below 1", retry.Backoff{Base: s, Multiplier: math.Nextafter(1, 0)}, []time.Duration{s, s, s}},
		{"denormal", retry.Backoff{Base: s, Multiplier: math.SmallestNonzeroFloat64}, []time.Duration{s, s, s}},
		{"fault B159: negative multiplier", retry.Backoff{Base: s, Multiplier: -2}, []time.Duration{s, s, s}},
		{"-Inf", retry.Backoff{Base: s, Multiplier: math.Inf(-1)}, []time.Duration{s, s, s}},
		{"NaN", retry.Backoff{Base: s, Multiplier: math.NaN()}, []time.Duration{s, s, s}},
		{"-0 is 0", retry.Backoff{Base: s, Multiplier: math.Copysign(0, -1)}, []time.Duration{s, 2 * s, 4 * s}},
		{"+Inf", retry.Backoff{Base: s, Multiplier: math.Inf(1)}, []time.Duration{s, 30 * s, 30 * s}},
		{"the largest finite", retry.Backoff{Base: s, Multiplier: math.MaxFloat64}, []time.Duration{s, 30 * s, 30 * s}},
		{"fault B159: negative base", retry.Backoff{Base: -s}, []time.Duration{0, 0, 0}},
		{"negative base, tripling", retry.Backoff{Base: -s, Multiplier: 3}, []time.Duration{0, 0, 0}},
		{"negative base, +Inf", retry.Backoff{Base: math.MinInt64, Multiplier: math.Inf(1)}, []time.Duration{0, 0, 0}},
		{"base above the cap", retry.Backoff{Base: 7 * s, Cap: 5 * s}, []time.Duration{5 * s, 5 * s}},
		{"base above the cap, no growth", retry.Backoff{Base: 7 * s, Cap: 5 * s, Multiplier: 1}, []time.Duration{5 * s, 5 * s}},
		{"default base above the cap", retry.Backoff{Cap: ms}, []time.Duration{ms, ms}},
		{"base above the default cap", retry.Backoff{Base: time.Hour}, []time.Duration{30 * s, 30 * s}},
		{"fault B159: negative cap is none", retry.Backoff{Base: 20 * s, Cap: -s}, []time.Duration{20 * s, 40 * s, 80 * s}},
		{"1ns and nothing above it", retry.Backoff{Base: 1, Cap: 1}, []time.Duration{1, 1, 1}},
	} {
		for n, want := range c.want {
			require.Equal(t, want, c.backoff.Window(n), "%s: window %d", c.name, n)
		}
		for _, n := range []int{-1, math.MinInt} {
			require.Equal(t, c.want[0], c.backoff.Window(n), "%s: window %d", c.name, n)
		}
	}
}

// Faults B01, B07, B08 and B10: the saturation value is the cap, not 0, not negative, not the type's maximum; a shift count does not wrap.
func TestWindowSaturatesAtTheCap(t *testing.T) {
	retries := []int{34, 35, 36, 55, 56, 62, 63, 64, 65, 66, 67, 127, 128, 129, 200, 1000, 1024, 1025, 1 << 20, math.MaxInt32, math.MaxInt}
	for _, m := range []float64{0, 2, math.Nextafter(2, 1), math.Nextafter(2, 3), 2.5, 3, 1e9, 1 << 62, 1 << 63, 1 << 64, math.MaxFloat64, math.Inf(1)} {
		for _, c := range []struct{ base, limit, want time.Duration }{
			{time.Second, 30 * time.Second, 30 * time.Second},
			{500 * time.Millisecond, 0, 30 * time.Second},
			{2 * time.Second, 5 * time.Minute, 5 * time.Minute},
			{time.Nanosecond, 1, 1},
			{time.Second, -1, maxWait},
			{time.Second, maxWait, maxWait},
			{-1, time.Minute, 0},
			{-1, -1, 0},
		} {
			for _, n := range retries {
				b := retry.Backoff{Base: c.base, Cap: c.limit, Multiplier: m}
				require.Equal(t, c.want, b.Window(n), "%+v: window %d", b, n)
			}
		}
	}
}

// Faults B05 and B12: without a cap the last window is the largest duration, on both sides of the overflow.
func TestWindowWithoutACapSaturatesBeforeItOverflows(t *testing.T) {
	for _, c := range []struct {
		base time.Duration
		m    float64
		n    int
		want time.Duration
	}{
		{time.Second, 2, 33, time.Second << 33},
		{time.Second, 2, 34, maxWait},
		{time.Second, 2, 70, maxWait},
		{1, 2, 62, 1 << 62},
		{1, 2, 63, maxWait},
		{1 << 62, 2, 0, 1 << 62},
		{1 << 62, 2, 1, maxWait},
		{1 << 62, 2, 2, maxWait},
		{1, 3, 39, 4052555153018976267},
		{1, 3, 40, maxWait},
		{2, 3, 39, 8105110306037952534},
		{3, 3, 39, maxWait},
		{1, 7, 22, 3909821048582988049},
		{1, 7, 23, maxWait},
		{1, 1 << 62, 1, 1 << 62},
		{1, 1 << 62, 2, maxWait},
		{2, 1 << 62, 1, maxWait},
		{1, 1 << 63, 1, maxWait},
		{maxWait, 3, 0, maxWait},
		{maxWait, 3, 1, maxWait},
		{maxWait - 1, math.Nextafter(1, 2), 0, maxWait - 1},
		{1 << 62, math.Nextafter(2, 1), 1, 1<<63 - 1<<10},
		{1<<62 - 1, math.Nextafter(1, 2), 1, 1<<62 + 1023}, // (2^62-1)(1+2^-52) is 1023-2^-52 past 2^62
		{1<<63 - 1<<11, math.Nextafter(1, 2), 1, maxWait},  // 2^-41 short of 2^63, to which it rounds
	} {
		for _, limit := range []time.Duration{-1, math.MinInt64, maxWait} {
			b := retry.Backoff{Base: c.base, Cap: limit, Multiplier: c.m}
			require.Equal(t, c.want, b.Window(c.n), "%+v: window %d", b, c.n)
		}
	}
}

// Every rounding on the way to a power counts n-fold at its end. (The windows were computed with 600 bits.)
func TestWindowIsRightAfterAnyNumberOfRetries(t *testing.T) {
	for _, c := range []struct {
		base time.Duration
		m    float64
		n    uint64
		want time.Duration
	}{
		{1 << 62, 1 + 0x1p-52, 1 << 30, 4611687117939146752},
		{1e18, 1 + 0x1p-52, 1<<31 - 1, 1000000476837271668},
		{1e9, 1.1, 240, 8594971441069316883},
		{1e9, 1.1, 241, maxWait},
		{1, 1 + 0x1p-52, 1 << 52, 3}, // e
		{1, 1 + 0x1p-52, 1 << 53, 7}, // e²
		{1, 1 + 0x1p-52, 1 << 57, 78962960182680},
		{1, 1 + 0x1p-52, 3<<55 + 12345, 26489122130},
		{1, 1 + 0x1p-52, 196664415197208836, 9223372036854773936},
		{1, 1 + 0x1p-52, 196664415197208837, maxWait},
	} {
		if c.n <= math.MaxInt { // 32 bits cannot count so far
			b := retry.Backoff{Base: c.base, Cap: -1, Multiplier: c.m}
			require.Equal(t, c.want, b.Window(int(c.n)), "%+v: window %d", b, c.n)
		}
	}
}

func TestWindowIsTheExactPower(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := edgeBackoffs().Draw(t, "backoff")
		base, limit, m := inForce(b)
		n := edgeRetries(m).Draw(t, "retry")

		got := b.Window(n)
		off, _ := new(big.Float).Sub(new(big.Float).SetPrec(512).SetInt64(int64(got)), exactWindow(base, limit, m, n)).Float64()
		if m == math.Trunc(m) {
			require.Zero(t, off, "window %d", got)
		}
		require.Less(t, math.Abs(off), 1.0, "window %d", got)
		require.True(t, min(base, 1) <= got && got <= limit, "window %d", got)
	})
}

func TestWindowNeverDecreases(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := edgeBackoffs().Draw(t, "backoff")
		_, _, m := inForce(b)
		n := edgeRetries(m).Draw(t, "retry")
		later := max(n, edgeRetries(m).Draw(t, "later"))
		require.LessOrEqual(t, b.Window(n), b.Window(later))
		if n < math.MaxInt {
			require.LessOrEqual(t, b.Window(n), b.Window(n+1))
		}
	})
}

// Fault B09: a linear window would take a second here; this one takes under a microsecond.
func TestWindowCostsTheSameAtAnyRetry(t *testing.T) {
	for _, m := range []float64{1, 1 + 0x1p-52, 1 + 1e-9, 1.5, 2, 3, math.Inf(1)} {
		b := retry.Backoff{Base: 1, Cap: -1, Multiplier: m}
		fastest := time.Hour
		for range 5 {
			start := time.Now()
			b.Window(1e9)
			fastest = min(fastest, time.Since(start))
		}
		require.Less(t, fastest, time.Millisecond, "Multiplier %v", m)
	}
}

func TestBackoffWaitIsItsJitterOfItsWindow(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	type step = retry.Step
	returns := func(wait time.Duration) retry.Jitter { return func(step) time.Duration { return wait } }
	previous := func(s step) time.Duration { return s.Previous }
	elapsed := func(s step) time.Duration { return time.Minute - s.Elapsed }
	for _, c := range []struct {
		name    string
		backoff retry.Backoff
		step    retry.Step
		want    time.Duration
	}{
		{"two failures: the first", retry.Backoff{Base: 250 * ms, Cap: 5 * s}, step{Draw: 0.5}, 125 * ms},
		{"two failures: the second", retry.Backoff{Base: 250 * ms, Cap: 5 * s}, step{Retry: 1, Draw: 0.5}, 250 * ms},
		{"read budget, retry 0", retry.Backoff{Base: 500 * ms, Cap: 4 * s}, step{Draw: 0.8}, 400 * ms},
		{"read budget, retry 1", retry.Backoff{Base: 500 * ms, Cap: 4 * s}, step{Retry: 1, Draw: 0.6}, 600 * ms},
		{"read budget, retry 2", retry.Backoff{Base: 500 * ms, Cap: 4 * s}, step{Retry: 2, Draw: 0.6}, 1200 * ms},
		{"read budget, retry 3", retry.Backoff{Base: 500 * ms, Cap: 4 * s}, step{Retry: 3, Draw: 0.6}, 2400 * ms},
		{"default", retry.Backoff{}, step{Retry: 3, Draw: 0.25}, 400 * ms},
		{"negative retry", retry.Backoff{}, step{Retry: -7, Draw: 0.5}, 100 * ms},
		{"the step's own Base, Cap and Window do not count", retry.Backoff{},
			step{Base: 9 * s, Cap: ms, Window: 7 * s, Draw: 0.5}, 100 * ms},
		{"a draw that is NaN", retry.Backoff{}, step{Draw: math.NaN()}, 0},
		{"a draw above 1", retry.Backoff{Base: 1 << 53, Cap: -1}, step{Draw: 3}, 1<<53 - 1},
		{"none", retry.Backoff{Jitter: retry.NoJitter}, step{Retry: 2, Draw: 0.5}, 800 * ms},
		{"equal", retry.Backoff{Jitter: retry.EqualJitter}, step{Retry: 2, Draw: 0.5}, 600 * ms},
		{"decorrelated, retry 0", retry.Backoff{Base: s, Cap: 10 * s, Jitter: retry.DecorrelatedJitter}, step{Draw: 0.5}, 2 * s},
		{"decorrelated, retry 1", retry.Backoff{Base: s, Cap: 10 * s, Jitter: retry.DecorrelatedJitter},
			step{Retry: 1, Previous: 2 * s, Draw: 0.5}, 3500 * ms},
		{"elapsed", retry.Backoff{Base: 2 * s, Cap: 25 * s, Jitter: retry.ElapsedJitter}, step{Elapsed: 8 * s, Draw: 0.5}, 7 * s},
		{"one's own", retry.Backoff{Jitter: returns(7 * s)}, step{}, 7 * s},
		{"one's own, negative", retry.Backoff{Jitter: returns(-1)}, step{}, 0},
		{"one's own, the cap", retry.Backoff{Jitter: returns(30 * s)}, step{}, 30 * s},
		{"one's own, above the cap", retry.Backoff{Jitter: returns(30*s + 1)}, step{}, 30 * s},
		{"one's own sees Base as Previous", retry.Backoff{Jitter: previous}, step{}, 200 * ms},
		{"one's own sees Previous", retry.Backoff{Jitter: previous}, step{Previous: 1}, 1},
		{"one's own sees no time run backwards", retry.Backoff{Cap: -1, Jitter: elapsed}, step{Elapsed: -s}, time.Minute},
		{"fault B159: negative base", retry.Backoff{Base: -s}, step{Retry: 1025, Draw: 0.5}, 0},
		{"fault B08: negative base, one's own", retry.Backoff{Base: -1, Jitter: returns(s)}, step{Retry: 1025}, 0},
	} {
		require.Equal(t, c.want, c.backoff.Wait(c.step), c.name)
	}
}

func TestBackoffGivesJitterAStepInItsRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := edgeBackoffs().Draw(t, "backoff")
		given := edgeSteps().Draw(t, "step")
		base, limit, _ := inForce(b)

		var seen []retry.Step
		b.Jitter = func(s retry.Step) time.Duration { seen = append(seen, s); return 0 }
		b.Wait(given)
		if b.Base < 0 {
			require.Empty(t, seen, "a negative Base means no wait and no jitter")
			return
		}

		want := retry.Step{
			Retry:    max(0, given.Retry),
			Base:     base,
			Cap:      limit,
			Window:   b.Window(given.Retry),
			Previous: given.Previous,
			Elapsed:  max(0, given.Elapsed),
			Draw:     given.Draw,
		}
		if want.Previous <= 0 {
			want.Previous = base
		}
		switch {
		case !(want.Draw >= 0):
			want.Draw = 0
		case want.Draw >= 1:
			want.Draw = belowOne
		}
		require.Equal(t, []retry.Step{want}, seen)
	})
}

// Faults B05, B06 and B163, and whatever else a Jitter may return.
func TestBackoffWaitIsNeverNegativeNorAboveTheCap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := edgeBackoffs().Draw(t, "backoff")
		s := edgeSteps().Draw(t, "step")
		own := edgeDurations().Draw(t, "what a Jitter of one's own returns")
		_, limit, _ := inForce(b)

		check := func(name string, jitter retry.Jitter) time.Duration {
			b.Jitter = jitter
			wait := b.Wait(s)
			require.True(t, 0 <= wait && wait <= limit, "%s: %d is not in [0, %d]", name, wait, limit)
			return wait
		}
		for _, j := range theStrategies {
			check(j.name, j.jitter)
		}
		wait := check("one's own", func(retry.Step) time.Duration { return own })
		if b.Base >= 0 && 0 <= own && own <= limit {
			require.Equal(t, own, wait, "a wait within the bounds is left alone")
		}
		require.Equal(t, check("FullJitter", retry.FullJitter), check("nil", nil), "nil is FullJitter")
	})
}

// Faults B14 and B163, without chance: every jitter, 200 retries, and the draws at both ends.
func TestBackoffCapHoldsForEveryJitterAndRetry(t *testing.T) {
	for _, j := range theStrategies {
		for _, limit := range []time.Duration{1, 7, time.Millisecond, 10 * time.Second, maxWait} {
			for _, draw := range []float64{0, 0.5, belowOne} {
				b := retry.Backoff{Base: time.Second, Cap: limit, Multiplier: 1.7, Jitter: j.jitter}
				var s retry.Step
				for n := range 200 {
					s = retry.Step{Retry: n, Previous: s.Previous, Elapsed: s.Elapsed, Draw: draw}
					wait := b.Wait(s)
					require.True(t, 0 <= wait && wait <= limit, "%s, cap %d, retry %d: %d", j.name, limit, n, wait)
					s.Previous, s.Elapsed = wait, min(s.Elapsed, maxWait-wait)+wait
				}
			}
		}
	}
}

// Fault B06: the cap lives inside, so that nobody has to cap what has overflowed already.
func TestBackoffSumOfAHundredWaits(t *testing.T) {
	b := retry.Backoff{Base: 10 * time.Microsecond, Cap: 10 * time.Millisecond, Jitter: retry.NoJitter}
	var sum time.Duration
	for n := range 100 {
		sum += b.Wait(retry.Step{Retry: n})
	}
	require.Equal(t, 1023*10*time.Microsecond+90*10*time.Millisecond, sum)
}

// waitsOf are n own waits of b before the given retry, drawn from a source of that seed.
func waitsOf(b retry.Backoff, s retry.Step, n int, seed uint64) []time.Duration {
	source := rand.New(rand.NewPCG(seed, 0))
	waits := make([]time.Duration, n)
	for i := range waits {
		s.Draw = source.Float64()
		waits[i] = b.Wait(s)
	}
	return waits
}

func distinctWaits(waits []time.Duration) int {
	seen := map[time.Duration]bool{}
	for _, wait := range waits {
		seen[wait] = true
	}
	return len(seen)
}

// Fault B16: clients whose windows have all reached the cap still part. (Two thirds of decorrelated jitter are the cap: B17.)
func TestBackoffIsStillJitteredAtTheCap(t *testing.T) {
	for _, j := range theStrategies[1:] {
		b := retry.Backoff{Base: time.Second, Cap: 10 * time.Second, Jitter: j.jitter}
		s := retry.Step{Retry: 50, Previous: 10 * time.Second, Elapsed: time.Hour}
		one, other := waitsOf(b, s, 100, 1), waitsOf(b, s, 100, 2)
		require.NotEqual(t, one, other, j.name)
		require.Greater(t, distinctWaits(one), 20, j.name)
	}
}

// Faults B20 and B22: retry 0 is jittered like the others, from the first draw on.
func TestBackoffFirstRetryIsJittered(t *testing.T) {
	for _, j := range theStrategies[1:] {
		b := retry.Backoff{Base: 500 * time.Millisecond, Cap: 30 * time.Second, Jitter: j.jitter}
		waits := waitsOf(b, retry.Step{}, 1000, 1)
		require.Greater(t, distinctWaits(waits), 990, j.name)
		for _, wait := range waits {
			require.True(t, 0 <= wait && wait <= 1500*time.Millisecond, "%s: %v", j.name, wait)
		}
	}
}

// Fault B23: what is drawn grows with the window.
func TestBackoffSpreadGrowsWithTheWindow(t *testing.T) {
	b := retry.Backoff{Base: 50 * time.Millisecond, Cap: 5 * time.Second}
	for n, least := range map[int]time.Duration{0: 40 * time.Millisecond, 3: 320 * time.Millisecond, 7: 4 * time.Second} {
		lowest, highest := maxWait, time.Duration(0)
		for _, wait := range waitsOf(b, retry.Step{Retry: n}, 1000, 1) {
			lowest, highest = min(lowest, wait), max(highest, wait)
		}
		require.Greater(t, highest-lowest, least, "retry %d", n)
	}
}

// Fault B28: the wait comes from the draw and from no clock.
func TestBackoffWaitDoesNotComeFromTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, j := range theStrategies[1:] {
			b := retry.Backoff{Jitter: j.jitter}
			require.Greater(t, distinctWaits(waitsOf(b, retry.Step{}, 100, 1)), 90, "%s: the clock stands still, the draws do not", j.name)

			s := retry.Step{Retry: 3, Elapsed: time.Second, Draw: 0.3}
			before := b.Wait(s)
			time.Sleep(time.Hour + time.Nanosecond)
			require.Equal(t, before, b.Wait(s), "%s: the clock moved, the draw did not", j.name)
		}
	})
}

func TestBackoffDoesNotAllocate(t *testing.T) {
	for _, jitter := range []retry.Jitter{nil, retry.ElapsedJitter} {
		for _, m := range []float64{2, 1.5} {
			b := retry.Backoff{Multiplier: m, Jitter: jitter}
			require.Zero(t, testing.AllocsPerRun(100, func() { b.Wait(retry.Step{Retry: 3, Draw: rand.Float64()}) }))
		}
	}
}

func BenchmarkBackoffWait(b *testing.B) {
	b.ReportAllocs()
	var sum time.Duration
	for b.Loop() {
		sum += retry.Backoff{}.Wait(retry.Step{Retry: 3, Draw: rand.Float64()})
	}
	_ = sum
}

func BenchmarkWindow(b *testing.B) {
	for _, m := range []float64{2, 1.5} {
		for _, n := range []int{10, 1e9} {
			b.Run(fmt.Sprintf("Multiplier=%v/retry=%d", m, n), func(b *testing.B) {
				backoff := retry.Backoff{Multiplier: m}
				b.ReportAllocs()
				for b.Loop() {
					backoff.Window(n)
				}
			})
		}
	}
}
