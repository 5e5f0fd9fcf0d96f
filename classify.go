package retry

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Effect is what an operation can change, and so what repeating it can do.
//
// The zero value is Unstated. In a Policy it leaves the question to the error,
// and counts as Mutation where the error does not know either; in a [Verdict]
// it leaves the question to the policy. A value that is no constant below
// counts as Unstated.
type Effect uint8

const (
	Unstated   Effect = iota // not said here
	Mutation                 // each application may change something
	Idempotent               // applied twice is as applied once
	ReadOnly                 // changes nothing: there is no outcome to be unknown
)

// String returns the effect's word: unstated, mutation, idempotent, read-only.
func (e Effect) String() string {
	return word("Effect", uint8(e), "unstated", "mutation", "idempotent", "read-only")
}

// Class is what a failure proves of its attempt. Only three classes let an
// operation be repeated whatever its effect is; ClassUnknown lets those be
// that are safe to repeat. The zero value is ClassUnclassified, and so is a
// value that is no constant below.
type Class uint8

const (
	// ClassUnclassified: no rule knows this failure. It is not repeated, not
	// even where the effect is ReadOnly: what may be repeated is listed, never
	// assumed. It does not say that nothing was applied.
	ClassUnclassified Class = iota

	// ClassPermanent: not applied, and repeating cannot help.
	ClassPermanent

	// ClassTransient: not applied. Any operation may be repeated.
	ClassTransient

	// ClassThrottled: refused for load, not applied. Any operation may be
	// repeated, after the hint at the earliest.
	ClassThrottled

	// ClassSuspended: banned for a while, not applied. The operation stops, and a
	// gate holds all who share it; with a hint the error says in RetryAt when
	// the ban ends.
	ClassSuspended

	// ClassUnknown: may have been applied. Repeated if the effect is Idempotent
	// or ReadOnly. An effect that nobody has stated counts as Mutation: then it
	// is not repeated, and its outcome has to be looked up.
	ClassUnknown
)

// String returns the class's word: unclassified, permanent, transient,
// throttled, suspended, unknown.
func (c Class) String() string {
	return word("Class", uint8(c), "unclassified", "permanent", "transient", "throttled", "suspended", "unknown")
}

// Verdict is what a failure proves, and what it knows of its request. The zero
// Verdict says nothing: the failure is not repeated.
type Verdict struct {
	Class  Class
	After  time.Duration // hint: the least wait that the server asked for, from the attempt's end. 0: none; negative counts as 0
	Effect Effect        // what the error knows of its request. Unstated: nothing. Policy.Effect, if stated, outranks it
}

// Classifier judges a failure of op, as op returned it and never nil. nil
// means [Classify]. Marks outrank it: see [Permanent]. It must be safe for
// concurrent use where its policy is shared.
//
// The rules of one provider are a few lines around Classify, here a status
// that means a ban of the address for ten minutes, and codes in the body:
//
//	func venue(err error) retry.Verdict {
//		v := retry.Classify(err)
//		if _, inner := errors.AsType[*retry.Error](err); inner {
//			return v // see below
//		}
//		if s, ok := errors.AsType[*retry.StatusError](err); ok && s.Code == 403 {
//			v.Class, v.After = retry.ClassSuspended, max(v.After, 10*time.Minute)
//		}
//		if e, ok := errors.AsType[*apiError](err); ok {
//			switch e.Code {
//			case -1003: // too many requests
//				v.Class = retry.ClassThrottled
//			case -1006, -1007: // no answer from the matching engine
//				v.Class = retry.ClassUnknown
//			}
//		}
//		return v
//	}
//
// The error of a loop inside op is an [*Error], and errors.AsType reaches what
// that one's last attempt returned. Leave Classify's verdict on it alone, unless
// you mean to repeat what that loop has given up.
//
// Begin with Classify's verdict, as above, or the effect that the error knows is
// lost: Verdict{Class: ClassUnknown} alone does not repeat a GET.
//
// Let the class follow from what is proven alone. A server's Retry-After says
// when, never whether: it belongs in After, and gives no reason to repeat a
// failure that its class does not let be repeated. ClassPermanent,
// ClassTransient, ClassThrottled and ClassSuspended each say that nothing was
// applied; where that is not certain, the class is ClassUnknown.
type Classifier func(error) Verdict

// StatusError is a response that is a failure, told by its status code.
// [Classify] finds it anywhere in an error tree, as errors.As does, and judges
// it by [ClassifyStatus]. Only *StatusError is an error.
type StatusError struct {
	Method string // of the request, as sent: case counts. "": not known
	Code   int

	// Effect of the request. Unstated: what MethodEffect says of Method, and
	// nothing where there is no Method. State it where the method says too
	// little: a POST with an idempotency key is Idempotent.
	Effect Effect

	After time.Duration // hint. 0: none; negative counts as 0
}

// Error returns the method and the code on one line: "GET: status 503". What
// is no method's name is quoted, and cut after 24 bytes.
func (e *StatusError) Error() string {
	switch {
	case e == nil:
		return "no status"
	case e.Method == "":
		return "status " + strconv.Itoa(e.Code)
	case isToken(e.Method) && len(e.Method) <= maxMethod:
		return e.Method + ": status " + strconv.Itoa(e.Code)
	case len(e.Method) <= maxMethod:
		return strconv.QuoteToASCII(e.Method) + ": status " + strconv.Itoa(e.Code)
	}
	return strconv.QuoteToASCII(e.Method[:maxMethod]) + "...: status " + strconv.Itoa(e.Code)
}

// effect returns what e knows of its request.
func (e *StatusError) effect() Effect {
	if stated := e.Effect.known(); stated != Unstated || e.Method == "" {
		return stated
	}
	return MethodEffect(e.Method)
}

// MethodEffect returns the effect of an HTTP method as RFC 9110 9.2 defines it
// (QUERY: the IETF's "The HTTP QUERY Method"): ReadOnly for the safe methods
// GET, HEAD, OPTIONS, TRACE and QUERY, and for "", which net/http sends as GET;
// Idempotent for PUT and DELETE; else Mutation. Methods are case-sensitive (RFC
// 9110 9.1): "get" is a Mutation.
func MethodEffect(method string) Effect {
	switch method {
	case "GET", "HEAD", "OPTIONS", "TRACE", "QUERY", "":
		return ReadOnly
	case "PUT", "DELETE":
		return Idempotent
	}
	return Mutation
}

// Classify is the default Classifier. The first of these rules that fits
// anywhere in the error tree decides:
//
//  1. A mark ([Permanent] and its like), the outermost: its class.
//  2. The error of a loop inside op: ClassPermanent and nothing else. That
//     loop has repeated what there was to repeat.
//  3. A [StatusError]: [ClassifyStatus] of its code. Of several the first
//     counts, unless it says that nothing was applied and a further one does
//     not: then that one.
//  4. context.Canceled: ClassUnclassified. Somebody wanted it to end.
//  5. A timeout, a connection that was reset or broke, io.ErrUnexpectedEOF,
//     and io.EOF in a *url.Error: ClassUnknown. A dial's or a look-up's own
//     timeout belongs to rule 7.
//  6. A host name that does not exist (NXDOMAIN), an unknown network, a bad
//     address or port: ClassPermanent.
//  7. A connection refused, a temporary failure of DNS, a *net.OpError with Op
//     "dial": ClassTransient. Nothing was sent.
//  8. Anything else: ClassUnclassified, so not repeated. Among it are a
//     certificate that is not trusted, an unsupported scheme, too many
//     redirects, and io.EOF on its own.
//
// After is the longest hint of the StatusErrors and marks in the tree, those
// inside an inner loop's error too: a server's wait is a minimum. Effect is
// that of a StatusError; where there is none or it knows nothing, that of the
// *url.Errors around, by their Op as net/http writes it ("Get", "Put"). Where
// the tree holds several requests, the one that can change the most counts.
//
// Rule 5 needs an effect before anything is repeated. An error that reading a
// response's body gave, such as io.ErrUnexpectedEOF, knows of no request: say
// what it was in Policy.Effect, or it counts as Mutation and the operation
// stops with its outcome unknown.
//
// Classify of nil, or of a tree of more than 10,000 errors (one that contains
// itself) without a mark or an inner loop's error, is ClassUnclassified.
func Classify(err error) Verdict {
	if err == nil {
		return Verdict{}
	}
	f := survey(err)
	return f.verdict()
}

// Always is a Classifier for an operation that is harmless and has no better
// rule. Never use it for a payment or an order: every failure is
// {ClassUnknown, ReadOnly} with the hint that Classify would find, and so is
// repeated within the policy's limits, a 404 and a bug in op as well. The error
// of a loop inside op is ClassPermanent, and a mark outranks Always as it does
// any Classifier. A Policy.Effect that is stated outranks its ReadOnly. Always
// of nil is the zero Verdict.
func Always(err error) Verdict {
	if err == nil {
		return Verdict{}
	}
	f := survey(err)
	if f.inner != nil {
		return Verdict{Class: ClassPermanent}
	}
	return Verdict{Class: ClassUnknown, After: f.after, Effect: ReadOnly}
}

// Permanent marks err as ClassPermanent: op knows that nothing was applied and
// that repeating cannot help.
//
// Of all marks this holds: the mark of nil is nil. Text and chain stay err's,
// so errors.Is and errors.As find what they found before; two marks are never
// equal. It may be wrapped further. Of several in one tree the outermost
// counts, then the first; one inside the error of an inner loop was that
// loop's, and counts no more. A mark decides the class only, over any
// [Classifier]: the hint is the longest in the tree, the effect is read from
// the tree.
func Permanent(err error) error { return marking(err, ClassPermanent, 0) }

// Transient marks err as ClassTransient: op knows that nothing was applied.
// See [Permanent] for what marks have in common.
func Transient(err error) error { return marking(err, ClassTransient, 0) }

// Throttled marks err as ClassThrottled, with a hint: refused for load, not
// before after. 0 or negative: no hint. See [Permanent] for what marks have in
// common.
func Throttled(err error, after time.Duration) error { return marking(err, ClassThrottled, after) }

// Suspended marks err as ClassSuspended: banned for after. 0 or negative:
// nobody said for how long. See [Permanent] for what marks have in common.
func Suspended(err error, after time.Duration) error { return marking(err, ClassSuspended, after) }

// Unknown marks err as ClassUnknown: it may have been applied. Repeating it
// takes an effect that is Idempotent or ReadOnly, stated in the policy or
// known to err. See [Permanent] for what marks have in common.
func Unknown(err error) error { return marking(err, ClassUnknown, 0) }

// ClassifyStatus returns what an HTTP status code proves by itself. 408, 500,
// 502, 503, 504, 520 to 524 (a proxy that lost its origin) and 529 are
// ClassUnknown; 421 and 425, which were not processed (RFC 9110 15.5.20, RFC
// 8470 5.2), ClassTransient; 429 ClassThrottled; every other 4xx
// ClassPermanent, 413 with a Retry-After too. Everything else is
// ClassUnclassified: other 5xx (501, 505, 511), what is no failure, and what
// is no status.
func ClassifyStatus(code int) Class {
	switch code {
	case 408, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529:
		return ClassUnknown
	case 421, 425:
		return ClassTransient
	case 429:
		return ClassThrottled
	}
	if 400 <= code && code <= 499 {
		return ClassPermanent
	}
	return ClassUnclassified
}

// maxMethod is the longest method that a StatusError prints in full; the
// longest registered one has 17 letters.
const maxMethod = 24

// maxErrors bounds the walk through an error tree. Only a tree that contains
// itself, or one made to do harm, is larger.
const maxErrors = 10_000

// loopError is met by the error of a loop, which is in a file that this one
// must not know.
type loopError interface {
	error
	loopError() (unknown bool) // whether its outcome is unknown
}

// mark is an error with a class that op has given it. Its identity is its
// address: errors.Is must not find one mark to be another, nor panic where
// what it marks cannot be compared.
type mark struct {
	err   error
	class Class
	after time.Duration
}

func (m *mark) Error() string { return textOf(m.err) }
func (m *mark) Unwrap() error { return m.err }

func marking(err error, class Class, after time.Duration) error {
	if err == nil {
		return nil
	}
	return &mark{err, class, after}
}

// definite reports whether v, the verdict on err, is the server's definite
// answer: permanent by a mark or by a StatusError, and not something that an
// inner loop or this side of the connection has said.
func definite(err error, v Verdict) bool {
	if v.Class != ClassPermanent {
		return false
	}
	f := survey(err)
	return f.definite()
}

func (f *findings) definite() bool { return f.inner == nil && (f.mark != nil || f.answered) }

// clean gives what a caller's Classifier returns the meaning that the docs of
// Verdict, Class and Effect promise.
func (v Verdict) clean() Verdict {
	if v.Class > ClassUnknown {
		v.Class = ClassUnclassified
	}
	return Verdict{v.Class, max(0, v.After), v.Effect.known()}
}

func (e Effect) known() Effect {
	if e > ReadOnly {
		return Unstated
	}
	return e
}

// provesUnapplied reports whether c says that nothing was applied.
func (c Class) provesUnapplied() bool { return c != ClassUnknown && c != ClassUnclassified }

// findings is what one walk through an error tree has found.
type findings struct {
	mark   *mark     // first, outside an inner loop's error
	inner  loopError // first
	after  time.Duration
	effect Effect

	answered bool  // a StatusError
	class    Class // by it

	canceled, lost, badAddress, unsent bool

	left int // errors that may still be visited; 0: the tree is too large
}

// place is where in its tree an error stands: what its ancestors say of it.
type place struct {
	within scope
	effect Effect
	late   bool // it, or what wraps it, has timed out
}

type scope uint8

const (
	inRequest scope = 1 << iota // of a *url.Error: io.EOF is the lost end of an answer
	inDial                      // of a connection that never stood: a timeout loses nothing
	inUse                       // of a *net.OpError on a connection that stood
	inLoop                      // of an inner loop's error: its marks do not count
)

// survey walks err's tree once, depth first, each error before what it wraps.
func survey(err error) findings {
	f := findings{left: maxErrors + 1}
	f.walk(err, place{})
	return f
}

// verdict applies the rules of Classify. lost stands before badAddress and
// unsent: where one request of several may have been applied, another that
// never left does not prove the contrary.
func (f *findings) verdict() Verdict {
	v := Verdict{After: f.after, Effect: f.effect}
	switch {
	case f.mark != nil:
		v.Class = f.mark.class
	case f.inner != nil:
		return Verdict{Class: ClassPermanent}
	case f.left == 0: // not all was seen: nothing is proven
	case f.answered:
		v.Class = f.class
	case f.canceled:
	case f.lost:
		v.Class = ClassUnknown
	case f.badAddress:
		v.Class = ClassPermanent
	case f.unsent:
		v.Class = ClassTransient
	}
	return v
}

// walk visits the chain that starts at err, and what branches off its end.
func (f *findings) walk(err error, p place) {
	var branches []error
	for err != nil && f.left > 0 && !isNilPointer(err) {
		f.left--
		f.visit(err, &p)
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			branches, err = e.Unwrap(), nil
		default:
			err = nil
		}
	}
	// Timeout methods ask what they wrap: one above a dial says no more than
	// that the dial has timed out.
	f.lost = f.lost || p.late && p.within&inDial == 0
	if len(branches) == 0 {
		f.effect = riskier(f.effect, p.effect)
	}
	for _, branch := range branches {
		f.walk(branch, p)
	}
}

// visit notes what err says by itself, and for what it wraps.
func (f *findings) visit(err error, p *place) {
	switch e := err.(type) {
	case *StatusError:
		f.status(e, p)
		return
	case *mark:
		if f.mark == nil && p.within&inLoop == 0 {
			f.mark = e
		}
		f.after = max(f.after, e.after)
		return
	case *url.Error:
		p.within |= inRequest
		p.effect = riskier(p.effect, opEffect(e.Op))
		return
	case loopError:
		if f.inner == nil {
			f.inner = e
		}
		p.within |= inLoop
		return
	case interface{ As(any) bool }:
		f.status(statusAs(e), p)
	}
	if !f.network(err, p) {
		f.failure(err, p)
	}
}

// status notes a StatusError; nil is none.
func (f *findings) status(e *StatusError, p *place) {
	if e == nil {
		return
	}
	f.after = max(f.after, e.After)
	if effect := e.effect(); effect != Unstated {
		p.effect = effect // it knows better than the *url.Error around it
	}
	c := ClassifyStatus(e.Code)
	if !f.answered || f.class.provesUnapplied() && !c.provesUnapplied() {
		f.class = c
	}
	f.answered = true
}

// network notes an error of package net or syscall, and reports whether err
// was one.
func (f *findings) network(err error, p *place) bool {
	switch e := err.(type) {
	case *net.OpError:
		if e.Op == "dial" {
			f.unsent = true
			p.within |= inDial
		} else {
			p.within |= inUse
		}
		return true
	case *net.DNSError:
		if e.IsNotFound {
			f.badAddress = true
			p.within |= inDial
		} else if e.Temporary() {
			f.unsent = true
			p.within |= inDial
		}
		return true
	case *net.AddrError, *net.ParseError, net.UnknownNetworkError, net.InvalidAddrError:
		f.badAddress = true
		p.within |= inDial
		return true
	}
	switch socketError(err) {
	case "refused":
		// On a connection in use (UDP, and TCP on Plan 9) it is what a reset is.
		if p.within&(inUse|inDial) == inUse {
			f.lost = true
		} else {
			f.unsent = true
			p.within |= inDial
		}
		return true
	case "reset":
		f.lost = true // in a dial too: data may have left with its first packet
		return true
	case "timeout":
		p.late = true
		return true
	}
	return false
}

// failure notes what err is by equality, by its Is, or by its Timeout.
func (f *findings) failure(err error, p *place) {
	equal, _ := err.(interface{ Is(error) bool })
	is := func(target error) bool { return err == target || equal != nil && equal.Is(target) }
	switch t, _ := err.(interface{ Timeout() bool }); {
	case is(context.Canceled):
		f.canceled = true
	case t != nil && t.Timeout(), is(context.DeadlineExceeded):
		p.late = true
	case p.within&inDial != 0:
	case is(io.ErrUnexpectedEOF), p.within&inRequest != 0 && is(io.EOF):
		f.lost = true
	}
}

// socketError names what the error number err says of a connection: "refused",
// "reset", "timeout", or "" for anything else.
//
// It goes by the text that package syscall gives its numbers, because their
// names are not to be had everywhere: Plan 9 has strings instead, and what
// syscall calls ECONNRESET on Windows is invented there and never returned.
// What Windows returns goes by number, for its texts are the system's.
func socketError(err error) string {
	v := reflect.ValueOf(err)
	if k := v.Kind(); k != reflect.Uintptr && k != reflect.String || v.Type().PkgPath() != "syscall" {
		return ""
	}
	if v.Kind() == reflect.Uintptr {
		switch v.Uint() {
		case 10052, 10053, 10054: // WSAENETRESET, WSAECONNABORTED, WSAECONNRESET
			return "reset"
		case 10060: // WSAETIMEDOUT
			return "timeout"
		case 10061: // WSAECONNREFUSED
			return "refused"
		}
	}
	switch strings.ToLower(err.Error()) {
	case "connection refused":
		return "refused"
	case "connection reset by peer", "broken pipe",
		"software caused connection abort", "connection aborted",
		"network dropped connection on reset", "network dropped connection because of reset":
		return "reset"
	}
	return ""
}

// statusAs asks an error's own As method for a StatusError.
func statusAs(err interface{ As(any) bool }) *StatusError {
	var s *StatusError
	if !err.As(&s) {
		return nil
	}
	return s
}

// opEffect returns what the Op of a *url.Error says of its request. net/http
// writes a method there with all letters small but the first; an Op that
// starts otherwise ("parse") is no method.
func opEffect(op string) Effect {
	switch op {
	case "Get", "Head", "Options", "Trace", "Query":
		return ReadOnly
	case "Put", "Delete":
		return Idempotent
	}
	if op == "" || op[0] < 'A' || op[0] > 'Z' {
		return Unstated
	}
	return MethodEffect(op)
}

// riskier returns the effect of the two that can change more. Unstated says
// nothing of either.
func riskier(a, b Effect) Effect {
	if a == Unstated || b == Unstated {
		return max(a, b)
	}
	return min(a, b)
}

// isNilPointer reports whether err holds a nil pointer. Such an error says
// nothing, and its methods may panic.
func isNilPointer(err error) bool {
	v := reflect.ValueOf(err)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// textOf returns err's text. That of a nil pointer whose method panics is what
// fmt makes of it: <nil>.
func textOf(err error) string {
	if isNilPointer(err) {
		return fmt.Sprint(err)
	}
	return err.Error()
}

// isToken reports whether s has only the characters of a token (RFC 9110
// 5.6.2), which is what a method is.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return true
}

// word returns the name of an enumeration's value, or type and number where it
// has none.
func word(kind string, value uint8, words ...string) string {
	if int(value) < len(words) {
		return words[value]
	}
	return kind + "(" + strconv.Itoa(int(value)) + ")"
}
