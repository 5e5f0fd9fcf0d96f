package retry

import (
	"math"
	"math/bits"
	"time"
)

// Backoff says how long to wait before a retry: a window that grows from Base to Cap, and a [Jitter]
// that takes the own wait from it. The zero value is ready for use: full jitter over windows of 200ms,
// 400ms, 800ms and so on up to 30s. It is plain data: copy it, and share it between goroutines.
type Backoff struct {
	Base       time.Duration // window of retry 0. 0: 200ms  <0: every wait is 0, Jitter is not called
	Cap        time.Duration // longest own wait. 0: 30s  <0: no cap. Bounds Base too
	Multiplier float64       // growth per retry. 0: 2  NaN, <0 or <1: 1  +Inf: Base, then Cap
	Jitter     Jitter        // nil: FullJitter
}

// Window is min(Cap, Base*Multiplier^retry), from which the own wait before that retry is drawn: in
// [0, Cap], and never shorter than for the retry before. It is exact for a whole Multiplier, else
// within 1ns of the exact power of that float64. A negative retry counts as 0. Its cost is bounded by
// the number of bits in an int.
func (b Backoff) Window(retry int) time.Duration {
	base, limit, m := b.resolved()
	return window(base, limit, m, uint(max(0, retry)))
}

// Wait is the own wait that Jitter makes of s: in [0, Cap], whatever Jitter returns. It takes Retry,
// Previous, Elapsed and Draw from s, and fills in the rest.
func (b Backoff) Wait(s Step) time.Duration {
	base, limit, m := b.resolved()
	s.Retry = max(0, s.Retry)
	w := window(base, limit, m, uint(s.Retry))
	if b.Jitter == nil { // the usual case: no Step to fill in
		return full(w, s.Draw)
	}
	if base == 0 {
		return 0
	}
	s.Base, s.Cap, s.Window = base, limit, w
	s.Elapsed, s.Draw = max(0, s.Elapsed), unit(s.Draw)
	if s.Previous <= 0 {
		s.Previous = base
	}
	return min(max(0, b.Jitter(s)), limit)
}

// resolved are the fields with their defaults: 0 <= base <= limit, and base is 0 only where Base is
// negative. An m that is no growth is left to grow.
func (b Backoff) resolved() (base, limit time.Duration, m float64) {
	base, limit, m = b.Base, b.Cap, b.Multiplier
	if base == 0 {
		base = 200 * time.Millisecond
	}
	if limit == 0 {
		limit = 30 * time.Second
	} else if limit < 0 {
		limit = math.MaxInt64
	}
	if m == 0 {
		m = 2
	}
	return min(max(0, base), limit), limit, m
}

// window is min(limit, base*m^n) for 0 <= base <= limit: for the usual m a shift, and small enough to
// be inlined.
func window(base, limit time.Duration, m float64, n uint) time.Duration {
	if m != 2 {
		return grow(base, limit, m, n)
	}
	if base > limit>>n {
		return limit
	}
	return base << n
}

// grow is window for any m, to the nearest nanosecond. It squares its way down the bits of n, so p is
// always m to a power of at most n, and once p is 2^63 or more, so is the result.
//
// Each product loses less than 2^-124 of itself, which adds up to less than n times that. The slowest
// m, 1+2^-52, is past 2^63 before n is 2^58: a result below 2^63 is right to 2^-66 of itself. If m is
// whole nothing is lost, for powers below 2^64 need no lo.
func grow(base, limit time.Duration, m float64, n uint) time.Duration {
	if base == 0 || n == 0 || !(m > 1) { // NaN too
		return base
	}
	factor := wideFloat(m)
	p := factor
	for i := bits.Len(n) - 2; i >= 0 && p.exp < 63; i-- {
		p = p.times(p)
		if n>>i&1 == 1 {
			p = p.times(factor)
		}
	}
	p = p.times(wideInt(uint64(base)))
	if p.exp >= 63 {
		return limit
	}
	whole, half := p.hi>>(63-p.exp), p.hi>>(62-p.exp)&1
	return time.Duration(min(whole+half, uint64(limit)))
}

// wide is the number hi.lo * 2^exp: a binary fraction with one bit before its point, hi's highest,
// which is set. A float64 is too narrow to compute powers: its rounding error comes back n-fold.
type wide struct {
	hi, lo uint64
	exp    int
}

// wideInt is for n > 0.
func wideInt(n uint64) wide {
	z := bits.LeadingZeros64(n)
	return wide{hi: n << z, exp: 63 - z}
}

// wideFloat is for x >= 1; +Inf becomes 2^1024, which saturates as well.
func wideFloat(x float64) wide {
	b := math.Float64bits(x)
	return wide{hi: 1<<63 | b<<11, exp: int(b>>52) - 1023}
}

// times is a*b, rounded down.
func (a wide) times(b wide) wide {
	hi, lo := bits.Mul64(a.hi, b.hi)
	x, _ := bits.Mul64(a.hi, b.lo)
	y, _ := bits.Mul64(a.lo, b.hi)
	lo, carry := bits.Add64(lo, x, 0)
	hi += carry
	lo, carry = bits.Add64(lo, y, 0)
	hi += carry
	if hi>>63 == 1 {
		return wide{hi, lo, a.exp + b.exp + 1}
	}
	return wide{hi<<1 | lo>>63, lo << 1, a.exp + b.exp}
}
