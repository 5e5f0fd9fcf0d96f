package retry_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-3d0f8764/retry"
)

var _ retry.Budget = (*retry.Bucket)(nil)

// spend asks b for a retry after a failure of class c.
func spend(b *retry.Bucket, c retry.Class) (float64, error) {
	return b.Spend(context.Background(), retry.Verdict{Class: c}, 1)
}

// granted asks b for retries until it refuses, 10,000 times at most.
func granted(b *retry.Bucket, c retry.Class) int {
	for n := range 10_000 {
		if _, err := spend(b, c); err != nil {
			return n
		}
	}
	return 10_000
}

func TestZeroBucketIsTenRetriesFedByFifths(t *testing.T) {
	var b retry.Bucket
	require.Equal(t, 10.0, b.Tokens())
	require.Equal(t, 10, granted(&b, retry.ClassTransient))
	require.Equal(t, 0.0, b.Tokens())
	for n := 1; n <= 4; n++ {
		b.Earn(t.Context(), 0)
		_, err := spend(&b, retry.ClassTransient)
		require.Equal(t, retry.EmptyError{Left: float64(n) / 5, Capacity: 10, Cost: 1}, err)
	}
	b.Earn(t.Context(), 1)
	require.Equal(t, 1, granted(&b, retry.ClassTransient), "five successes pay for one retry, whether they were retries or not")
}

// Zero is the default, as NaN is; negative is none; positive is itself, as near
// as a millionth, and a million at most.
func TestBucketFields(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		name     string
		b        *retry.Bucket
		class    retry.Class
		capacity float64
		cost     float64
		first    float64 // earned by a success at once
		retried  float64 // earned by a success after a retry that cost 4
	}{
		{"zero", &retry.Bucket{}, retry.ClassTransient, 10, 1, 0.2, 0.2},
		{"NaN", &retry.Bucket{Capacity: nan, Cost: nan, ThrottledCost: nan, UnknownCost: nan, PerSuccess: nan, Refund: nan}, retry.ClassTransient, 10, 1, 0.2, 0.2},
		{"NaN, throttled", &retry.Bucket{ThrottledCost: nan}, retry.ClassThrottled, 10, 1, 0.2, 0.2},
		{"negative", &retry.Bucket{Capacity: -1, Cost: -1, PerSuccess: -1, Refund: -1}, retry.ClassTransient, inf, 0, 0, 0},
		{"-Inf", &retry.Bucket{Capacity: -inf, Cost: -inf, PerSuccess: -inf, Refund: -inf}, retry.ClassTransient, inf, 0, 0, 0},
		{"itself", &retry.Bucket{Capacity: 20, Cost: 0.6, PerSuccess: 0.3, Refund: 0.5}, retry.ClassTransient, 20, 0.6, 0.3, 2},
		{"+Inf", &retry.Bucket{Capacity: inf, Cost: inf, PerSuccess: inf, Refund: inf}, retry.ClassTransient, 1e6, 1e6, 1e6, 1e6},
		{"huge", &retry.Bucket{Capacity: math.MaxFloat64, Cost: math.MaxFloat64, PerSuccess: math.MaxFloat64, Refund: math.MaxFloat64}, retry.ClassTransient, 1e6, 1e6, 1e6, 1e6},
		{"a million", &retry.Bucket{Capacity: 1e6, Cost: 1e6}, retry.ClassTransient, 1e6, 1e6, 0.2, 0.2},
		{"tiny", &retry.Bucket{Capacity: 1e-300, Cost: 1e-300, PerSuccess: 1e-300, Refund: 1e-300}, retry.ClassTransient, 1e-6, 1e-6, 1e-6, 4e-6},
		{"millionths", &retry.Bucket{Capacity: 0.000003, Cost: 0.0000024, PerSuccess: 0.0000016}, retry.ClassTransient, 0.000003, 0.000002, 0.000002, 0.000002},
		{"throttled as Cost", &retry.Bucket{Cost: 3}, retry.ClassThrottled, 10, 3, 0.2, 0.2},
		{"unknown as Cost", &retry.Bucket{Cost: 3}, retry.ClassUnknown, 10, 3, 0.2, 0.2},
		{"throttled", &retry.Bucket{Cost: 3, ThrottledCost: 2, UnknownCost: 4}, retry.ClassThrottled, 10, 2, 0.2, 0.2},
		{"unknown", &retry.Bucket{Cost: 3, ThrottledCost: 2, UnknownCost: 4}, retry.ClassUnknown, 10, 4, 0.2, 0.2},
		{"transient", &retry.Bucket{Cost: 3, ThrottledCost: 2, UnknownCost: 4}, retry.ClassTransient, 10, 3, 0.2, 0.2},
		{"throttled, free", &retry.Bucket{Cost: 3, ThrottledCost: -1}, retry.ClassThrottled, 10, 0, 0.2, 0.2},
		{"unknown, free", &retry.Bucket{Cost: 3, UnknownCost: -1}, retry.ClassUnknown, 10, 0, 0.2, 0.2},
		{"no refund", &retry.Bucket{Refund: -1}, retry.ClassTransient, 10, 1, 0.2, 0},
		{"the whole refund", &retry.Bucket{Refund: 1}, retry.ClassTransient, 10, 1, 0.2, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.capacity, c.b.Tokens())
			cost, err := spend(c.b, c.class)
			require.NoError(t, err)
			require.Equal(t, c.cost, cost)
			if c.capacity <= 1e6 {
				require.InDelta(t, c.capacity-c.cost, c.b.Tokens(), 1e-9)
			} else {
				require.Equal(t, c.capacity, c.b.Tokens())
			}
			c.b.Return(t.Context(), cost)
			require.Equal(t, c.capacity, c.b.Tokens())

			if c.capacity > 1e6 {
				return
			}
			for cost, earned := range map[float64]float64{0: c.first, nan: c.first, -1: c.first, 4: c.retried} {
				drained := &retry.Bucket{Capacity: 1e6, Cost: 1e6, PerSuccess: c.b.PerSuccess, Refund: c.b.Refund}
				_, err := spend(drained, retry.ClassTransient)
				require.NoError(t, err)
				require.Equal(t, 0.0, drained.Tokens())
				drained.Earn(t.Context(), cost)
				require.Equal(t, earned, drained.Tokens(), "for a retry that cost %v", cost)
			}
		})
	}
}

// A weight multiplies the cost; one that is none counts as 1.
func TestBucketWeighs(t *testing.T) {
	for _, c := range []struct{ cost, weight, want float64 }{
		{0, 3, 3}, {2, 0.5, 1}, {0.1, 3, 0.3}, {0.7, 0.1, 0.07},
		{2, 0, 2}, {2, -1, 2}, {2, math.NaN(), 2}, {2, math.Inf(-1), 2},
		{2, math.Inf(1), 1e6}, {1e6, 1e6, 1e6}, {-1, math.Inf(1), 0}, {5e-324, 5e-324, 1e-6},
		{0.000249, 0.5, 0.000125}, // a half in floats too small to be rounded up
	} {
		b := retry.Bucket{Capacity: math.Inf(1), Cost: c.cost}
		cost, err := b.Spend(t.Context(), retry.Verdict{}, c.weight)
		require.NoError(t, err)
		require.Equal(t, c.want, cost, "%+v", c)
	}
}

// Both sides of the limits: a retry that costs all that is left is made, one
// that costs a millionth more is not; nothing is put in beyond the capacity.
func TestBucketLimitsToTheMillionth(t *testing.T) {
	for _, c := range []struct {
		capacity, cost float64
		retries        int
	}{
		{10, 10, 1}, {10, 10.000001, 0}, {10, 9.999999, 1}, {10, 5, 2}, {10, 5.000001, 1},
		{0.999999, 1, 0}, {1, 1, 1}, {6, 0.6, 10}, {0.3, 0.1, 3}, {0.7, 0.1, 7}, {1.1, 0.1, 11}, {1e6, 1e6, 1},
	} {
		b := &retry.Bucket{Capacity: c.capacity, Cost: c.cost}
		require.Equal(t, c.retries, granted(b, retry.ClassTransient), "%+v", c)
	}

	b := &retry.Bucket{PerSuccess: 0.999999}
	_, err := spend(b, retry.ClassTransient)
	require.NoError(t, err)
	b.Earn(t.Context(), 0)
	require.Equal(t, 9.999999, b.Tokens())
	for range 3 {
		b.Earn(t.Context(), 0)
		require.Equal(t, 10.0, b.Tokens())
	}
	for _, cost := range []float64{1, 1e9, math.Inf(1), math.NaN(), -1} {
		b.Return(t.Context(), cost)
		require.Equal(t, 10.0, b.Tokens())
	}
}

// What is no cost puts nothing back.
func TestBucketTakesNothingBackForNothing(t *testing.T) {
	b := &retry.Bucket{Capacity: 1}
	require.Equal(t, 1, granted(b, retry.ClassTransient))
	for _, cost := range []float64{0, -1, math.NaN(), math.Inf(-1)} {
		b.Return(t.Context(), cost)
		require.Equal(t, 0.0, b.Tokens())
	}
}

// 0.6 means 6 in 10: no rounding gathers, however often it is earned.
func TestBucketRatiosAreExact(t *testing.T) {
	for _, ratio := range []float64{0.6, 0.1, 0.2, 0.3, 0.7, 1.1, 0.123456} {
		b := &retry.Bucket{Capacity: 1e6, Cost: 1e6, PerSuccess: ratio}
		_, err := spend(b, retry.ClassTransient)
		require.NoError(t, err)
		for range 10_000 {
			b.Earn(t.Context(), 0)
		}
		require.Equal(t, math.Round(ratio*10_000*1e6)/1e6, b.Tokens())
	}
}

// What one bucket does is what exact arithmetic in rational numbers says.
func TestBucketAgainstExactArithmetic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// An amount is a whole number of millionths, and small ones are frequent.
		amount := rapid.Custom(func(t *rapid.T) int64 {
			return rapid.OneOf(rapid.Int64Range(1, 5), rapid.Int64Range(1, 20_000_000), rapid.SampledFrom([]int64{200_000, 1_000_000, 1e12})).Draw(t, "amount")
		})
		capacity, cost, throttled, success := amount.Draw(t, "capacity"), amount.Draw(t, "cost"), amount.Draw(t, "throttled"), amount.Draw(t, "success")
		refund := rapid.SampledFrom([]float64{0, -1, 0.5, 1}).Draw(t, "refund")
		b := &retry.Bucket{Capacity: float64(capacity) / 1e6, Cost: float64(cost) / 1e6, ThrottledCost: float64(throttled) / 1e6,
			PerSuccess: float64(success) / 1e6, Refund: refund}

		left, full := rat(capacity), rat(capacity)
		put := func(n *big.Rat) {
			if left.Add(left, n); left.Cmp(full) > 0 {
				left.Set(full)
			}
		}
		var out []float64 // costs of the retries that are under way
		take := func(t *rapid.T) (float64, bool) {
			if len(out) == 0 {
				return 0, false
			}
			i := rapid.IntRange(0, len(out)-1).Draw(t, "which")
			cost := out[i]
			out = append(out[:i], out[i+1:]...)
			return cost, true
		}
		var want retry.Counts
		t.Repeat(map[string]func(*rapid.T){
			"spend": func(t *rapid.T) {
				class, price := retry.ClassTransient, rat(cost)
				if rapid.Bool().Draw(t, "throttled") {
					class, price = retry.ClassThrottled, rat(throttled)
				}
				paid, err := spend(b, class)
				if price.Cmp(left) > 0 {
					empty, ok := errors.AsType[retry.EmptyError](err)
					require.True(t, ok)
					require.Zero(t, left.Cmp(decimal(empty.Left)))
					require.Zero(t, price.Cmp(decimal(empty.Cost)))
					want.Refusals++
					return
				}
				require.NoError(t, err)
				require.Zero(t, price.Cmp(decimal(paid)))
				left.Sub(left, price)
				out = append(out, paid)
				want.Retries++
			},
			"return": func(t *rapid.T) {
				if cost, ok := take(t); ok {
					b.Return(context.Background(), cost)
					put(decimal(cost))
					want.Retries--
				}
			},
			"success after a retry": func(t *rapid.T) {
				cost, ok := take(t)
				if !ok {
					return
				}
				b.Earn(context.Background(), cost)
				want.Operations++
				switch refund {
				case 0:
					put(rat(success))
				case 0.5:
					put(rounded(new(big.Rat).Mul(decimal(cost), big.NewRat(1, 2))))
				case 1:
					put(decimal(cost))
				}
			},
			"success at once": func(t *rapid.T) {
				b.Earn(context.Background(), 0)
				want.Operations++
				put(rat(success))
			},
			"": func(t *rapid.T) {
				require.Zero(t, left.Cmp(decimal(b.Tokens())), "%v left, not %v", b.Tokens(), left)
				want.Attempts = want.Operations + want.Retries
				require.Equal(t, want, b.Counts())
			},
		})
	})
}

// rat returns n millionths.
func rat(n int64) *big.Rat { return big.NewRat(n, 1_000_000) }

// decimal returns the number of six decimals that x is meant to be.
func decimal(x float64) *big.Rat { return rounded(new(big.Rat).SetFloat64(x)) }

// rounded returns x to six decimals, halves up.
func rounded(x *big.Rat) *big.Rat {
	r, _ := new(big.Rat).SetString(x.FloatString(6))
	return r
}

// fault B101: however a bucket was emptied, successes fill it again.
func TestBucketRefillsAfterAnOutage(t *testing.T) {
	for _, b := range []*retry.Bucket{{}, {Refund: 1}, awsBucket(), olderAWSBucket()} {
		require.Positive(t, granted(b, retry.ClassUnknown))
		for range 100 {
			require.NoError(t, retry.Run(t.Context(), &retry.Policy{Budget: b}, func(context.Context) error { return nil }))
		}
		calls, err := budgeted(t, b, retry.Transient(errOp), nil)
		require.NoError(t, err)
		require.Equal(t, 2, calls)
	}
}

// fault B104: a server that answers, though it be with 404, has not run dry the
// budget of those who ask it.
func TestBucketEarnsOnADefiniteAnswer(t *testing.T) {
	b := &retry.Bucket{Capacity: 500, Cost: 5, PerSuccess: 1, Refund: 1}
	for range 200 {
		_, err := budgeted(t, b, &retry.StatusError{Method: "GET", Code: 503}, &retry.StatusError{Method: "GET", Code: 404})
		require.ErrorIs(t, err, retry.ErrPermanent)
		require.Equal(t, 500.0, b.Tokens())
	}
	// An error of this side of the connection is no answer.
	own := errors.New("no such file")
	for n := range 100 {
		_, err := budgeted(t, b, retry.Transient(errOp), own)
		require.ErrorIs(t, err, retry.ErrUnclassified)
		require.Equal(t, 500-5*float64(n+1), b.Tokens())
	}
	require.Equal(t, retry.Counts{Operations: 300, Attempts: 600, Retries: 300}, b.Counts())
}

// faults B105, B111: a refusal comes at once, nothing is slept; it says that it
// is the local budget's, how empty that is, and what the server has said.
func TestBucketRefusal(t *testing.T) {
	clock, b := newClock(), &retry.Bucket{Capacity: 3, Cost: 5}
	answer := &retry.StatusError{Method: "GET", Code: 503}
	p := retry.Policy{Name: "balance", Budget: b, Clock: clock.Now, Sleep: clock.Sleep}
	op := clock.script(failure(time.Second, answer))
	_, err := retry.Do(t.Context(), &p, op.Do)
	require.Equal(t, retry.ErrBudget, stopped(t, err).Reason)
	require.EqualError(t, err, "retry: balance: gave up after 1 attempt in 1s: the local retry budget refuses: "+
		"3 of 3 tokens left, a retry costs 5: GET: status 503")
	for _, is := range []error{retry.ErrBudget, answer, retry.EmptyError{Left: 3, Capacity: 3, Cost: 5}} {
		require.ErrorIs(t, err, is)
	}
	require.NotErrorIs(t, err, retry.EmptyError{Left: 2, Capacity: 3, Cost: 5})
	empty, ok := errors.AsType[retry.EmptyError](err)
	require.True(t, ok)
	require.Equal(t, retry.EmptyError{Left: 3, Capacity: 3, Cost: 5}, empty)
	require.EqualError(t, retry.EmptyError{Left: 0.4, Capacity: 10, Cost: 1}, "0.4 of 10 tokens left, a retry costs 1")
	require.Equal(t, 1, op.Calls())
	require.Empty(t, clock.Slept())
	require.Equal(t, retry.Counts{Operations: 1, Attempts: 1, Refusals: 1}, b.Counts())
}

// A refusal is not repeated by the loops around, though they have attempts
// and a full budget of their own.
func TestOuterLoopsDoNotRepeatABucketsRefusal(t *testing.T) {
	clock, calls := newClock(), 0
	outer := retry.Policy{Budget: new(retry.Bucket), Clock: clock.Now, Sleep: clock.Sleep, Classify: retry.Always}
	inner := retry.Policy{Budget: &retry.Bucket{Cost: 11}, Clock: clock.Now, Sleep: clock.Sleep}
	err := retry.Run(t.Context(), &outer, func(ctx context.Context) error {
		return fmt.Errorf("layer: %w", retry.Run(ctx, &inner, func(context.Context) error { calls++; return retry.Transient(errOp) }))
	})
	require.Equal(t, retry.ErrBudget, stopped(t, err).Reason)
	require.ErrorIs(t, err, errOp)
	require.Equal(t, 1, calls)
	require.Empty(t, clock.Slept())
}

// fault B108: a client that has done nothing yet has all the retries of a full bucket.
func TestFreshBucketAllowsItsCapacity(t *testing.T) {
	calls, err := budgeted(t, &retry.Bucket{Capacity: 3}, retry.Transient(errOp), retry.Transient(errOp), nil)
	require.NoError(t, err)
	require.Equal(t, 3, calls)
}

// fault B110: what was taken for a retry that is not sent comes back, and
// serves the next.
func TestBucketGetsBackWhatWasNotSent(t *testing.T) {
	type breaking func(p *retry.Policy, clock *clock, cancel func())
	for name, breaks := range map[string]breaking{
		"wait cancelled": func(p *retry.Policy, _ *clock, cancel func()) {
			p.Sleep = func(ctx context.Context, _ time.Duration) error { cancel(); return ctx.Err() }
		},
		"cancelled as the wait ended": func(p *retry.Policy, _ *clock, cancel func()) {
			p.Sleep = func(context.Context, time.Duration) error { cancel(); return nil }
		},
		"refused on waking": func(p *retry.Policy, clock *clock, _ func()) {
			p.Sleep = func(context.Context, time.Duration) error { clock.Advance(time.Hour); return nil }
		},
		"sleeper failed": func(p *retry.Policy, _ *clock, _ func()) {
			p.Sleep = func(context.Context, time.Duration) error { return errOp }
		},
		"panic in Sleep": func(p *retry.Policy, _ *clock, _ func()) {
			p.Sleep = func(context.Context, time.Duration) error { panic(errOp) }
		},
		"panic in Observe": func(p *retry.Policy, _ *clock, _ func()) {
			p.Observe = func(context.Context, retry.Record) { panic(errOp) }
		},
		"journal refuses the wait": func(p *retry.Policy, _ *clock, _ func()) {
			p.Journal = &retry.Journal{Save: func(_ context.Context, s retry.State) error {
				if s.Wait > 0 {
					return errOp
				}
				return nil
			}}
		},
		"journal refuses the send": func(p *retry.Policy, _ *clock, _ func()) {
			p.Journal = &retry.Journal{Save: func(_ context.Context, s retry.State) error {
				if s.Attempts == 2 && s.InFlight {
					return errOp
				}
				return nil
			}}
		},
		"gate refuses": func(p *retry.Policy, _ *clock, _ func()) { p.Gate = &turnstile{passes: 1} },
	} {
		t.Run(name, func(t *testing.T) {
			clock, b := newClock(), &retry.Bucket{Capacity: 1, PerSuccess: -1}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			p := retry.Policy{Budget: b, Clock: clock.Now, Sleep: clock.Sleep, Rand: constant(0.5)}
			breaks(&p, clock, cancel)
			op := clock.script(failure(0, retry.Transient(errOp)))
			func() {
				defer func() { _ = recover() }()
				_, err := retry.Do(ctx, &p, op.Do)
				require.Error(t, err)
			}()
			require.Equal(t, 1, op.Calls())
			require.Equal(t, 1.0, b.Tokens())
			require.Zero(t, b.Counts().Retries)

			calls, err := budgeted(t, b, retry.Transient(errOp), nil)
			require.NoError(t, err)
			require.Equal(t, 2, calls)
			require.Equal(t, 0.0, b.Tokens())
		})
	}
}

// turnstile is a Gate that lets so many pass, then fails.
type turnstile struct{ passes int }

func (g *turnstile) Enter(context.Context, retry.Entry) (func(retry.Outcome), error) {
	if g.passes--; g.passes < 0 {
		return nil, errOp
	}
	return func(retry.Outcome) {}, nil
}

// fault B112: a thousand who ask at once never get more than there is.
func TestBucketIsNeverOverspent(t *testing.T) {
	for _, b := range []*retry.Bucket{{}, {Capacity: 1, Cost: 0.1}, {Capacity: 149, Cost: 14, UnknownCost: 14}} {
		var granted atomic.Int64
		together(1000, func(int) {
			if _, err := spend(b, retry.ClassUnknown); err == nil {
				granted.Add(1)
			}
		})
		require.EqualValues(t, 10, granted.Load())
		require.Equal(t, retry.Counts{Attempts: 10, Retries: 10, Refusals: 990}, b.Counts())
	}
}

// However many use it at once, nothing is lost and nothing is made.
func TestBucketAddsUpUnderConcurrentUse(t *testing.T) {
	const each, workers = 1000, 8
	b := &retry.Bucket{Capacity: 10, Cost: 1, PerSuccess: 0.1, Refund: 1}
	var out, most, retries, refused, earned atomic.Int64
	together(workers, func(worker int) {
		for n := range each {
			cost, err := spend(b, retry.ClassTransient)
			if err != nil {
				refused.Add(1)
				continue
			}
			now := out.Add(1)
			for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
			}
			out.Add(-1)
			if (n+worker)%2 == 0 {
				b.Return(context.Background(), cost)
				continue
			}
			retries.Add(1)
			earned.Add(1)
			b.Earn(context.Background(), cost)
		}
	})
	require.LessOrEqual(t, most.Load(), int64(10))
	require.Equal(t, 10.0, b.Tokens(), "all is back")
	require.Equal(t, retry.Counts{Operations: earned.Load(), Attempts: earned.Load() + retries.Load(),
		Retries: retries.Load(), Refusals: refused.Load()}, b.Counts())
}

// The number of retries has no end: it is right far beyond what fits in a few bits.
func TestBucketCountsManyRetries(t *testing.T) {
	if testing.Short() || underRace() {
		t.Skip("counts to 20 million")
	}
	b, n := &retry.Bucket{Cost: -1}, int64(0)
	const step, end = 1 << 20, 20 << 20
	for n < end {
		for range step {
			_, _ = spend(b, retry.ClassTransient)
		}
		n += step
		require.Equal(t, n, b.Counts().Retries)
		for _, back := range []int64{1, 2} { // across the carry, and again
			for range back {
				b.Return(t.Context(), 0)
			}
			require.Equal(t, n-back, b.Counts().Retries)
			for range back {
				_, _ = spend(b, retry.ClassTransient)
			}
			require.Equal(t, n, b.Counts().Retries)
		}
	}
	require.Equal(t, 10.0, b.Tokens())
}

// An operation counts once, however it ends, and a retry once it is sent.
func TestBucketCountsWhatTheLoopDoes(t *testing.T) {
	transient, status := retry.Transient(errOp), &retry.StatusError{Code: 404}
	for _, c := range []struct {
		name string
		p    retry.Policy
		errs []error
		want retry.Counts
	}{
		{"success", retry.Policy{}, []error{nil}, retry.Counts{Operations: 1, Attempts: 1}},
		{"success, on the quick path", retry.Policy{MaxElapsed: -1}, []error{nil}, retry.Counts{Operations: 1, Attempts: 1}},
		{"failure", retry.Policy{}, []error{errOp}, retry.Counts{Operations: 1, Attempts: 1}},
		{"failure, on the quick path", retry.Policy{MaxElapsed: -1}, []error{errOp}, retry.Counts{Operations: 1, Attempts: 1}},
		{"success after retries", retry.Policy{}, []error{transient, transient, nil}, retry.Counts{Operations: 1, Attempts: 3, Retries: 2}},
		{"attempts used up", retry.Policy{MaxAttempts: 2}, []error{transient}, retry.Counts{Operations: 1, Attempts: 2, Retries: 1}},
		{"definite answer to attempt 1", retry.Policy{}, []error{status}, retry.Counts{Operations: 1, Attempts: 1}},
		{"definite answer to a retry", retry.Policy{}, []error{transient, status}, retry.Counts{Operations: 1, Attempts: 2, Retries: 1}},
		{"refused", retry.Policy{MaxAttempts: -1, MaxElapsed: -1}, []error{transient}, retry.Counts{Operations: 1, Attempts: 11, Retries: 10, Refusals: 1}},
		{"not sent", retry.Policy{Sleep: func(context.Context, time.Duration) error { return errOp }}, []error{transient}, retry.Counts{Operations: 1, Attempts: 1}},
		{"not attempted", retry.Policy{Gate: &turnstile{}}, []error{nil}, retry.Counts{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, embedded := range []bool{false, true} {
				b, p, calls := new(retry.Bucket), c.p, 0
				p.Budget = b
				if embedded {
					p.Budget = struct{ *retry.Bucket }{b}
				}
				if p.Sleep == nil {
					p.Sleep = noSleep
				}
				_ = retry.Run(t.Context(), &p, func(context.Context) error {
					calls++
					return c.errs[min(calls, len(c.errs))-1]
				})
				require.Equal(t, c.want, b.Counts())
			}
		})
	}
}

// A Submit that is found to have been applied earns once, and counts once, also
// where the last send was answered for good ("duplicate").
func TestBucketEarnsOnceFromASubmitFoundApplied(t *testing.T) {
	for name, last := range map[string]error{
		"duplicate": &retry.StatusError{Method: "POST", Code: 409},
		"unknown":   retry.Unknown(errOp),
	} {
		b := &retry.Bucket{Capacity: 100, Cost: 10, PerSuccess: 1}
		p := retry.Policy{Budget: b, Sleep: noSleep}
		finds := []retry.Resolution{retry.NotApplied, retry.NotApplied, retry.Applied}
		_, err := retry.Submit(t.Context(), &p, func(ctx context.Context) (int, error) {
			if retry.Attempt(ctx) == 1 {
				return 0, retry.Unknown(errOp)
			}
			return 0, last
		}, retry.Lookup[int]{Find: func(context.Context) (int, retry.Resolution, error) {
			found := finds[0]
			finds = finds[1:]
			return 0, found, nil
		}})
		require.NoError(t, err, name)
		require.Equal(t, 91.0, b.Tokens(), name)
		require.Equal(t, retry.Counts{Operations: 1, Attempts: 2, Retries: 1}, b.Counts(), name)
	}
}

func TestRatioOfRetriesToFirstAttempts(t *testing.T) {
	for _, c := range []struct {
		counts retry.Counts
		want   float64
	}{
		{retry.Counts{}, 0},
		{retry.Counts{Operations: 4, Attempts: 5, Retries: 1}, 0.25},
		{retry.Counts{Operations: 2, Attempts: 6, Retries: 4}, 2},
		{retry.Counts{Operations: 9, Attempts: 5, Retries: 1}, 0.25}, // not all were attempted
		{retry.Counts{Attempts: 3, Retries: 3}, 0},
	} {
		require.Equal(t, c.want, c.counts.Ratio(), "%+v", c.counts)
	}
}

// AWS's standard mode, replayed by what its SDKs document: 500 tokens; a retry
// takes 14, or 5 after a throttle; a success gives back what its last retry
// took, or 1 if it needed none. Before 2026: 5, or 10 after a time-out.
func TestBucketReplaysAWSStandardMode(t *testing.T) {
	transient, throttled, timeout := retry.Transient(errOp), retry.Throttled(errOp, 0), retry.Unknown(errOp)
	for _, c := range []struct {
		name   string
		bucket func() *retry.Bucket
		ops    [][]error // of each operation, what its attempts return
		left   []float64 // after each
	}{
		{"2026", awsBucket, [][]error{
			{nil},                  // full: it stays so
			{transient, nil},       // -14 +14
			{throttled, nil},       // -5 +5
			{timeout, nil},         // as any other
			{transient, transient}, // -14, and the third is not made: MaxAttempts 2
			{transient, nil},
			{nil}, // +1
			{throttled, throttled},
			{timeout, timeout},
			{nil},
		}, []float64{500, 500, 500, 500, 486, 486, 487, 482, 468, 469}},
		{"before", olderAWSBucket, [][]error{
			{nil},
			{transient, nil},
			{timeout, nil},
			{transient, transient},
			{throttled, throttled},
			{timeout, timeout},
			{nil},
			{timeout, nil},
		}, []float64{500, 500, 500, 495, 490, 480, 481, 481}},
	} {
		b := c.bucket()
		for i, errs := range c.ops {
			p, calls := retry.Policy{Budget: b, Effect: retry.ReadOnly, MaxAttempts: 2, Sleep: noSleep}, 0
			_ = retry.Run(t.Context(), &p, func(context.Context) error { calls++; return errs[calls-1] })
			require.Equal(t, c.left[i], b.Tokens(), "%s: operation %d", c.name, i)
		}
	}

	// Of two retries only the last one's cost comes back.
	b := awsBucket()
	_, err := budgeted(t, b, throttled, transient, nil)
	require.NoError(t, err)
	require.Equal(t, 495.0, b.Tokens())

	// An outage: 35 retries, with 10 tokens left over; or 100, with none.
	require.Equal(t, 35, granted(awsBucket(), retry.ClassTransient))
	require.Equal(t, 100, granted(awsBucket(), retry.ClassThrottled))
	require.Equal(t, 100, granted(olderAWSBucket(), retry.ClassTransient))
	require.Equal(t, 50, granted(olderAWSBucket(), retry.ClassUnknown))

	// After it, 4 successes pay for the next retry.
	b = awsBucket()
	require.Equal(t, 35, granted(b, retry.ClassTransient))
	for range 3 {
		b.Earn(t.Context(), 0)
	}
	_, err = spend(b, retry.ClassTransient)
	require.Equal(t, retry.EmptyError{Left: 13, Capacity: 500, Cost: 14}, err)
	b.Earn(t.Context(), 0)
	_, err = spend(b, retry.ClassTransient)
	require.NoError(t, err)
}

// budgeted runs one operation on b whose attempts return errs in turn, and says
// how many there were.
func budgeted(t *testing.T, b retry.Budget, errs ...error) (calls int, err error) {
	p := retry.Policy{Budget: b, Sleep: noSleep}
	err = retry.Run(t.Context(), &p, func(context.Context) error { calls++; return errs[calls-1] })
	return calls, err
}

// together calls f n times at once and waits for all.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}
