package httpretry

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3d0f8764/retry"
	"github.com/seed-3d0f8764/retry/internal/httpdate"
)

// Signal is one way in which servers say when the next request may come, or
// whether one may. The user chooses which a server is believed: a field read
// by another API's unit is a wait of centuries, or of none.
//
// Of those chosen the first in the order below that the response carries in
// its exact form counts, whatever their order in a slice; what is not in that
// form is ignored, and the call does not fail for it. A yes or no counts beside
// a wait.
type Signal uint8

const (
	// StripeShouldRetry is "Stripe-Should-Retry: true" or "false", exactly.
	StripeShouldRetry Signal = iota + 1
	// XShouldRetry is "x-should-retry: true" or "false", exactly; see [GaveUp].
	XShouldRetry
	// RetryAfterMS is "retry-after-ms", a delay in milliseconds.
	RetryAfterMS
	// XMSRetryAfterMS is "x-ms-retry-after-ms", a delay in milliseconds.
	XMSRetryAfterMS
	// RetryAfter is the standard field (RFC 9110 10.2.3). A date is measured
	// against the response's own Date where that is valid, which makes the
	// clocks of the two machines cancel out, else against the local clock. Of
	// several lines that differ the longest wait counts.
	RetryAfter
	// RateLimit is the IETF draft's field (draft-ietf-httpapi-ratelimit-headers):
	// the longest t of the items whose r is 0. Items without both count
	// nothing; a field that is no List of RFC 9651 is ignored whole, unless it
	// is the Dictionary of that draft's version 7, "remaining=0, reset=50".
	RateLimit
	// RateLimitReset is the older "RateLimit-Reset": a delay in seconds, which
	// counts only beside "RateLimit-Remaining: 0".
	RateLimitReset
	// GitHubReset is "x-ratelimit-reset": seconds since the Unix epoch, which
	// count only beside "x-ratelimit-remaining: 0".
	GitHubReset
	// BybitReset is "X-Bapi-Limit-Reset-Timestamp": milliseconds since the Unix
	// epoch, which count only beside "X-Bapi-Limit-Status: 0".
	BybitReset
)

// String returns the name of the field that s is read from.
func (s Signal) String() string {
	switch s {
	case StripeShouldRetry:
		return "Stripe-Should-Retry"
	case XShouldRetry:
		return "x-should-retry"
	case RetryAfterMS:
		return "retry-after-ms"
	case XMSRetryAfterMS:
		return "x-ms-retry-after-ms"
	case RetryAfter:
		return "Retry-After"
	case RateLimit:
		return "RateLimit"
	case RateLimitReset:
		return "RateLimit-Reset"
	case GitHubReset:
		return "x-ratelimit-reset"
	case BybitReset:
		return "X-Bapi-Limit-Reset-Timestamp"
	}
	return "Signal(" + strconv.Itoa(int(s)) + ")"
}

// defaultSignals are those of a nil slice.
var defaultSignals = []Signal{RetryAfter}

// answer is what the signals of one response say.
type answer struct {
	after time.Duration
	hint  bool // after was said; it may be 0
	retry bool // a yes
	stop  bool // a no
}

// read reads the chosen signals of a response.
func read(h http.Header, signals []Signal, now func() time.Time) (a answer) {
	if signals == nil {
		signals = defaultSignals
	}
	var chosen [BybitReset + 1]bool
	for _, s := range signals {
		if int(s) < len(chosen) {
			chosen[s] = true
		}
	}
	for s, ok := range chosen {
		if !ok {
			continue
		}
		switch s := Signal(s); s {
		case StripeShouldRetry:
			a.decide(h.Get("Stripe-Should-Retry"))
		case XShouldRetry:
			a.decide(h.Get("X-Should-Retry"))
		default:
			if !a.hint {
				a.after, a.hint = s.wait(h, now)
			}
		}
	}
	return a
}

// decide notes a yes or no; the first counts.
func (a *answer) decide(value string) {
	if a.retry || a.stop {
		return
	}
	a.retry, a.stop = value == "true", value == "false"
}

// wait reads one signal that is a wait.
func (s Signal) wait(h http.Header, now func() time.Time) (time.Duration, bool) {
	switch s {
	case RetryAfterMS:
		return retry.ParseDelay(h.Get("Retry-After-Ms"), time.Millisecond)
	case XMSRetryAfterMS:
		return retry.ParseDelay(h.Get("X-Ms-Retry-After-Ms"), time.Millisecond)
	case RetryAfter:
		return retryAfter(h, now)
	case RateLimit:
		field := strings.Join(h.Values("RateLimit"), ",")
		if d, ok := rateLimit(field); ok {
			return d, true
		}
		return rateLimitDictionary(field)
	case RateLimitReset:
		if none(h.Get("RateLimit-Remaining")) {
			return retry.ParseDelay(h.Get("RateLimit-Reset"), time.Second)
		}
	case GitHubReset:
		if none(h.Get("X-Ratelimit-Remaining")) {
			return retry.ParseReset(h.Get("X-Ratelimit-Reset"), time.Second, now())
		}
	case BybitReset:
		if none(h.Get("X-Bapi-Limit-Status")) {
			return retry.ParseReset(h.Get("X-Bapi-Limit-Reset-Timestamp"), time.Millisecond, now())
		}
	}
	return 0, false
}

// none reports whether a count of what remains is 0.
func none(remaining string) bool {
	n, ok := retry.ParseDelay(remaining, 1)
	return ok && n == 0
}

// retryAfter reads the lines of Retry-After, by the server's own clock.
func retryAfter(h http.Header, now func() time.Time) (after time.Duration, ok bool) {
	lines := h["Retry-After"]
	if len(lines) == 0 {
		return 0, false
	}
	from := now()
	if date, valid := httpdate.Parse(strings.Trim(h.Get("Date"), " \t"), from); valid {
		from = date
	}
	for _, line := range lines {
		if d, valid := retry.ParseRetryAfter(line, from); valid {
			after, ok = max(after, d), true
		}
	}
	return after, ok
}

// rateLimit reads a RateLimit field: a List of Items, each a String or Token
// with Integer parameters r (what remains) and t (seconds until more does).
func rateLimit(field string) (after time.Duration, ok bool) {
	p := parser{rest: field}
	p.spaces()
	for p.rest != "" {
		r, t, hasR, hasT := p.item()
		if p.failed {
			return 0, false
		}
		if hasR && hasT && r == 0 && t >= 0 {
			after, ok = max(after, seconds(t)), true
		}
		p.spaces()
		if p.rest == "" {
			break
		}
		if !p.take(',') {
			return 0, false
		}
		p.spaces()
		if p.rest == "" {
			return 0, false // a trailing comma
		}
	}
	return after, ok
}

// rateLimitDictionary reads the older form: "limit=100, remaining=0, reset=50".
func rateLimitDictionary(field string) (after time.Duration, ok bool) {
	p := parser{rest: field}
	var remaining, reset int64
	var hasRemaining, hasReset bool
	for {
		p.spaces()
		key := p.key()
		if p.failed || !p.take('=') {
			return 0, false
		}
		n, isInt := p.value()
		switch key {
		case "remaining":
			remaining, hasRemaining = n, isInt
		case "reset":
			reset, hasReset = n, isInt
		}
		p.spaces()
		if p.failed {
			return 0, false
		}
		if p.rest == "" {
			break
		}
		if !p.take(',') {
			return 0, false
		}
	}
	if !hasRemaining || !hasReset || remaining != 0 || reset < 0 {
		return 0, false
	}
	return seconds(reset), true
}

// seconds saturates.
func seconds(n int64) time.Duration {
	if n > math.MaxInt64/int64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Second
}

// parser reads what RateLimit needs of Structured Fields (RFC 9651 4.2).
type parser struct {
	rest   string
	failed bool
}

func (p *parser) fail() { p.failed, p.rest = true, "" }

func (p *parser) spaces() { p.rest = strings.TrimLeft(p.rest, " \t") }

func (p *parser) take(c byte) bool {
	if p.rest == "" || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// item reads a String or Token and its parameters. Of a parameter that occurs
// twice the last counts; one that is no Integer counts as absent.
func (p *parser) item() (r, t int64, hasR, hasT bool) {
	if p.rest == "" {
		p.fail()
		return
	}
	if c := p.rest[0]; c == '"' || c == '*' || letter(c) {
		p.value()
	} else {
		p.fail()
	}
	for !p.failed && p.take(';') {
		p.rest = strings.TrimLeft(p.rest, " ")
		key := p.key()
		n, isInt := int64(0), false
		if p.take('=') {
			n, isInt = p.value()
		}
		switch key {
		case "r":
			r, hasR = n, isInt
		case "t":
			t, hasT = n, isInt
		}
	}
	return
}

// key reads a key of a parameter.
func (p *parser) key() string {
	i := 0
	for i < len(p.rest) {
		c := p.rest[i]
		lower := 'a' <= c && c <= 'z' || c == '*'
		if !lower && (i == 0 || !digit(c) && c != '_' && c != '-' && c != '.') {
			break
		}
		i++
	}
	if i == 0 {
		p.fail()
		return ""
	}
	key := p.rest[:i]
	p.rest = p.rest[i:]
	return key
}

// value reads a bare item, and returns it if it is an Integer.
func (p *parser) value() (n int64, isInt bool) {
	if p.rest == "" {
		p.fail()
		return 0, false
	}
	switch c := p.rest[0]; {
	case c == '"':
		p.quoted()
	case c == '?':
		if len(p.rest) < 2 || p.rest[1] != '0' && p.rest[1] != '1' {
			p.fail()
			return 0, false
		}
		p.rest = p.rest[2:]
	case c == '-' || digit(c):
		return p.number()
	case c == '*' || letter(c):
		i := 1
		for i < len(p.rest) && (tchar(p.rest[i]) || p.rest[i] == ':' || p.rest[i] == '/') {
			i++
		}
		p.rest = p.rest[i:]
	default:
		p.fail() // byte sequences, dates and display strings do not occur in it
	}
	return 0, false
}

// quoted reads a String.
func (p *parser) quoted() {
	for i := 1; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case c == '"':
			p.rest = p.rest[i+1:]
			return
		case c == '\\':
			i++
			if i >= len(p.rest) || p.rest[i] != '"' && p.rest[i] != '\\' {
				p.fail()
				return
			}
		case c < ' ' || c > '~':
			p.fail()
			return
		}
	}
	p.fail()
}

// number reads an Integer of 15 digits at most, or a Decimal.
func (p *parser) number() (n int64, isInt bool) {
	negative := p.take('-')
	i := 0
	for i < len(p.rest) && digit(p.rest[i]) && i < 16 {
		n = 10*n + int64(p.rest[i]-'0')
		i++
	}
	if i == 0 || i > 15 {
		p.fail()
		return 0, false
	}
	p.rest = p.rest[i:]
	if p.take('.') {
		f := 0
		for f < len(p.rest) && digit(p.rest[f]) {
			f++
		}
		if i > 12 || f == 0 || f > 3 {
			p.fail()
		} else {
			p.rest = p.rest[f:]
		}
		return 0, false
	}
	if negative {
		n = -n
	}
	return n, true
}

func digit(c byte) bool  { return '0' <= c && c <= '9' }
func letter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func tchar(c byte) bool {
	return letter(c) || digit(c) || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
