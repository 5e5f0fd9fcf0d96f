package retry

import (
	"math"
	"time"
)

// Step is what a [Jitter] may know of the retry whose own wait it computes. [Backoff.Wait] fills in
// what the Backoff decides and hands on every field in its range. In a Step made by hand 0 means 0,
// not a default, and a negative duration counts as 0.
type Step struct {
	Retry    int           // n, from 0: retry 0 follows attempt 1
	Base     time.Duration // window of retry 0
	Cap      time.Duration // no own wait is longer
	Window   time.Duration // min(Cap, Base*Multiplier^n)
	Previous time.Duration // own wait before the last attempt; 0 at retry 0, and then counts as Base
	Elapsed  time.Duration // since the operation started
	Draw     float64       // u in [0,1). NaN or below 0 counts as 0, from 1 up as the largest below 1
}

// Jitter makes the own wait of a draw. It is a pure function of its Step, and so safe for concurrent
// use; one of your own should be, too.
//
// The five below read as their formulas. Each returns the nearest nanosecond, never below 0 and never
// above Window, or Cap where the formula has no Window, whatever the Step holds. Products are rounded
// to float64 before they are added to anything, so that every platform gives the same.
type Jitter func(Step) time.Duration

// NoJitter is Window. Clients that failed together come back together: it is for a client that is
// alone, and for tests.
func NoJitter(s Step) time.Duration {
	return max(0, s.Window)
}

// FullJitter is u*Window: in [0, Window], on average half of it.
//
// Source: Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
func FullJitter(s Step) time.Duration {
	return full(s.Window, s.Draw)
}

func full(window time.Duration, u float64) time.Duration {
	return nearest(unit(u)*float64(window), window)
}

// EqualJitter is Window/2 + u*Window/2: in [Window/2, Window].
//
// Source: as for [FullJitter].
func EqualJitter(s Step) time.Duration {
	return nearest((1+unit(s.Draw))/2*float64(s.Window), s.Window)
}

// DecorrelatedJitter is min(Cap, Base + u*(3*Previous-Base)), where 3*Previous-Base is at least 0: in
// [Base, Cap]. It grows from its own last wait; Window, and with it Multiplier, plays no part.
//
// It is as published, and so is its weight at the cap: once Previous is a Cap far above Base, about
// 2/3 of all draws give exactly Cap. Source: as for [FullJitter].
func DecorrelatedJitter(s Step) time.Duration {
	base, previous := float64(max(0, s.Base)), float64(s.Previous)
	if previous <= 0 {
		previous = base
	}
	return nearest(base+float64(unit(s.Draw)*max(0, float64(3*previous)-base)), s.Cap)
}

// ElapsedJitter is (1/2 + 3/4*u) * min(4/5*Cap, Base + 3/4*Elapsed): in [2/5*Cap, Cap] in the end. It
// grows with the time that the operation has taken; Window, and with it Multiplier, plays no part. It
// is meant for a Base of about two of the server's rate-limit windows: 2s, with a Cap of 25s, where
// the limit is per second.
//
// Source: this project's own, found by simulation (internal/herd), not published elsewhere.
func ElapsedJitter(s Step) time.Duration {
	base, elapsed, limit := float64(max(0, s.Base)), float64(max(0, s.Elapsed)), float64(max(0, s.Cap))
	window := min(float64(0.8*limit), base+float64(0.75*elapsed))
	return nearest((0.5+float64(0.75*unit(s.Draw)))*window, s.Cap)
}

// unit is u in [0,1).
func unit(u float64) float64 {
	switch {
	case u >= 1:
		return 1 - 1.0/(1<<53)
	case u >= 0:
		return u
	}
	return 0
}

// nearest is the whole number nearest to x, at most most. Callers see to it that x is at least 0 or
// at least most. It compares before it converts: float64(most) may be rounded up, by 512 at most near
// the top of the range, but the next float64 below that is below most.
func nearest(x float64, most time.Duration) time.Duration {
	if x < float64(most) {
		return time.Duration(math.RoundToEven(x))
	}
	return max(0, most)
}
