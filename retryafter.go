package retry

import (
	"math"
	"math/bits"
	"time"

	"github.com/seed-3d0f8764/retry/internal/httpdate"
)

// ParseRetryAfter returns the hint in a Retry-After field's value, exactly as
// RFC 9110 10.2.3 writes it; ok is false, and wait 0, for anything else.
//
// Digits are a delay in whole seconds: "120" is two minutes whatever now is,
// and "0" is a hint of 0 with ok true. "1.5", "-1", "+1", "1e3" are no hints.
//
// An HTTP-date, in any form of RFC 9110 5.6.7, asks for the time from now to
// that date: exact to the nanosecond, 0 once now has reached it. now is the
// time by the server's clock: the local one, or the Date of the response where
// the two may differ. Its location and its monotonic reading do not matter. A
// two-digit year is the latest that is not more than 50 years ahead of now. The
// weekday may be the wrong one, and second 60 is the first of the next minute.
//
// Spaces and tabs around the value are not part of it (RFC 9110 5.5), any other
// character is. A hint too long for a Duration is the longest, 292 years
// ([math.MaxInt64]). ParseRetryAfter is a pure function, allocates nothing and
// takes time linear in the length of value.
func ParseRetryAfter(value string, now time.Time) (wait time.Duration, ok bool) {
	if wait, ok = ParseDelay(value, time.Second); ok {
		return wait, true
	}
	date, ok := httpdate.Parse(trim(value), now)
	if !ok {
		return 0, false
	}
	return max(0, date.Sub(now)), true // Sub saturates
}

// ParseDelay returns the hint in a value that is a delay counted in unit, such
// as a retry-after-ms of "250", which with [time.Millisecond] is 250ms. It reads
// digits (1*DIGIT) only, and is like [ParseRetryAfter] in all else. A unit of 0
// or less counts nothing: (0, false).
func ParseDelay(value string, unit time.Duration) (wait time.Duration, ok bool) {
	value = trim(value)
	if value == "" || unit <= 0 {
		return 0, false
	}
	var n uint64
	for i := range len(value) {
		digit := value[i] - '0'
		if digit > 9 {
			return 0, false
		}
		n = 10*min(n, 1<<60) + uint64(digit) // held at 10<<60, past MaxInt64, once it is too large
	}
	high, low := bits.Mul64(n, uint64(unit))
	if high > 0 || low > math.MaxInt64 {
		return math.MaxInt64, true
	}
	return time.Duration(low), true
}

// ParseReset returns the hint in a value that is an instant, counted in unit
// from the Unix epoch: the time from now to it, as for a date in
// [ParseRetryAfter]. An X-RateLimit-Reset of "1781524860" is such a value, with
// [time.Second]. Digits and unit are as in [ParseDelay].
func ParseReset(value string, unit time.Duration, now time.Time) (wait time.Duration, ok bool) {
	if _, ok := ParseDelay(value, unit); !ok {
		return 0, false
	}
	var sec, nsec uint64 // nanoseconds alone would end in 2554
	for _, c := range []byte(trim(value)) {
		digit := uint64(c - '0')
		nsec = 10*nsec + digit*uint64(unit%time.Second)
		sec = 10*min(sec, 1<<60) + digit*uint64(unit/time.Second) + nsec/1e9
		nsec %= 1e9
	}
	const last = math.MaxInt64 - 62135596800 // of a time.Time, which counts from the year 1
	if sec > last {
		return math.MaxInt64, true
	}
	return max(0, time.Unix(int64(sec), int64(nsec)).Sub(now)), true
}

// trim returns value without the optional whitespace around it.
func trim(value string) string {
	for value != "" && blank(value[0]) {
		value = value[1:]
	}
	for value != "" && blank(value[len(value)-1]) {
		value = value[:len(value)-1]
	}
	return value
}

func blank(c byte) bool { return c == ' ' || c == '\t' }
