//go:build !plan9

// Plan 9 has no error numbers to test with. classify.go itself builds there.

package retry_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/seed-3d0f8764/retry"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// opError is what package net makes of a failed system call.
func opError(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Err: os.NewSyscallError(op, err)}
}

var (
	reset   = opError("read", syscall.ECONNRESET)
	refused = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	absent  = &net.DNSError{Err: "no such host", Name: "nosuch.example", IsNotFound: true}
	busyDNS = &net.DNSError{Err: "server misbehaving", Name: "example.com", IsTemporary: true}
)

// lateError is a wrapper that asks what it wraps whether it has timed out, as
// those of package net do.
type lateError struct{ error }

func (e lateError) Unwrap() error { return e.error }
func (e lateError) Timeout() bool { return true }

// isError is an error by its Is method alone.
type isError struct{ target error }

func (e isError) Error() string        { return "is " + e.target.Error() }
func (e isError) Is(target error) bool { return target == e.target }

// apiError is an SDK's own error that offers its status through As.
type apiError struct {
	status *retry.StatusError
	cause  error
}

func (e *apiError) Error() string { return "api" }
func (e *apiError) Unwrap() error { return e.cause }
func (e *apiError) As(target any) bool {
	s, ok := target.(**retry.StatusError)
	if ok {
		*s = e.status
	}
	return ok
}

// asOther has an As for some other type.
type asOther struct{ error }

func (e asOther) Unwrap() error { return e.error }
func (e asOther) As(any) bool   { return false }

// textError and numberError have the kinds of package syscall's errors.
type textError string

func (e textError) Error() string { return string(e) }

type numberError uintptr

func (e numberError) Error() string { return "a number" }

// branches is a tree whose entries may be nil; errors.Join drops those.
type branches []error

func (e branches) Error() string   { return "branches" }
func (e branches) Unwrap() []error { return e }

func TestClassifyStatusTable(t *testing.T) {
	listed := map[int]retry.Class{
		408: retry.ClassUnknown, 500: retry.ClassUnknown, 502: retry.ClassUnknown, 503: retry.ClassUnknown,
		504: retry.ClassUnknown, 520: retry.ClassUnknown, 521: retry.ClassUnknown, 522: retry.ClassUnknown,
		523: retry.ClassUnknown, 524: retry.ClassUnknown, 529: retry.ClassUnknown,
		421: retry.ClassTransient, 425: retry.ClassTransient,
		429: retry.ClassThrottled,
	}
	seen := map[retry.Class]int{}
	check := func(code int) {
		want, ok := listed[code]
		if !ok && code >= 400 && code <= 499 {
			want = retry.ClassPermanent // fault B145: 400, 401, 403, 418 and 422 too
		}
		require.Equal(t, want, retry.ClassifyStatus(code), "status %d", code)
		require.Equal(t, retry.Verdict{Class: want}, retry.Classify(&retry.StatusError{Code: code}), "status %d", code)
		seen[want]++
	}
	for code := -10; code <= 1100; code++ {
		check(code)
	}
	for _, code := range []int{math.MinInt, math.MaxInt, -429, -503, 4290, 5030, 429 << 16} {
		check(code)
	}
	require.Equal(t, 11, seen[retry.ClassUnknown])
	require.Equal(t, 2, seen[retry.ClassTransient])
	require.Equal(t, 1, seen[retry.ClassThrottled])
	require.Equal(t, 96, seen[retry.ClassPermanent])
	require.Equal(t, 0, seen[retry.ClassSuspended], "no status is a ban by itself")
}

// Fault B129.
func TestMethodEffectIsCaseSensitive(t *testing.T) {
	for effect, methods := range map[retry.Effect][]string{
		retry.ReadOnly:   {"GET", "HEAD", "OPTIONS", "TRACE", "QUERY", ""},
		retry.Idempotent: {"PUT", "DELETE"},
		retry.Mutation: {"POST", "PATCH", "CONNECT", "LOCK", "MKCOL", "PROPFIND", "get", "Get", "head", "put", "delete",
			"query", "GET ", " GET", "GETS", "GE", "*"},
	} {
		for _, method := range methods {
			require.Equal(t, effect, retry.MethodEffect(method), "%q", method)
		}
	}
}

func TestEffectAndClassPrintTheirWords(t *testing.T) {
	for want, value := range map[string]fmt.Stringer{
		"unstated": retry.Unstated, "mutation": retry.Mutation, "idempotent": retry.Idempotent, "read-only": retry.ReadOnly,
		"Effect(4)": retry.Effect(4), "Effect(255)": retry.Effect(255),
		"unclassified": retry.ClassUnclassified, "permanent": retry.ClassPermanent, "transient": retry.ClassTransient,
		"throttled": retry.ClassThrottled, "suspended": retry.ClassSuspended, "unknown": retry.ClassUnknown,
		"Class(6)": retry.Class(6), "Class(9)": retry.Class(9), "Class(255)": retry.Class(255),
	} {
		require.Equal(t, want, value.String())
	}
}

func TestStatusErrorPrintsOneLine(t *testing.T) {
	for want, e := range map[string]*retry.StatusError{
		"GET: status 503":                              {Method: "GET", Code: 503},
		"status 429":                                   {Code: 429},
		"status 0":                                     {},
		"POST: status -1":                              {Method: "POST", Code: -1},
		"PUT: status 409":                              {Method: "PUT", Code: 409, Effect: retry.Mutation, After: time.Hour}, // no header's value
		"M-SEARCH: status 500":                         {Method: "M-SEARCH", Code: 500},
		"get|9~: status 500":                           {Method: "get|9~", Code: 500},
		`"GET /?t=1": status 500`:                      {Method: "GET /?t=1", Code: 500},
		`"a\r\nb": status 500`:                         {Method: "a\r\nb", Code: 500},
		`"\x00\u2028": status 500`:                     {Method: "\x00\u2028", Code: 500},
		`" ": status 500`:                              {Method: " ", Code: 500},
		"ABCDEFGHIJKLMNOPQRSTUVWX: status 500":         {Method: "ABCDEFGHIJKLMNOPQRSTUVWX", Code: 500},
		`"ABCDEFGHIJKLMNOPQRSTUVWX"...: status 500`:    {Method: "ABCDEFGHIJKLMNOPQRSTUVWXY", Code: 500},
		`"ABCDEFGHIJKLMNOPQRSTUVW\xc3"...: status 500`: {Method: "ABCDEFGHIJKLMNOPQRSTUVW\u00e9", Code: 500}, // cut within a rune
		"no status":                                    nil,
	} {
		require.Equal(t, want, e.Error())
	}
}

func TestStatusErrorEffect(t *testing.T) {
	for _, c := range []struct {
		err  retry.StatusError
		want retry.Effect
	}{
		{retry.StatusError{}, retry.Unstated}, // no method is not GET here
		{retry.StatusError{Method: "GET"}, retry.ReadOnly},
		{retry.StatusError{Method: "PUT"}, retry.Idempotent},
		{retry.StatusError{Method: "POST"}, retry.Mutation},
		{retry.StatusError{Method: "get"}, retry.Mutation},
		{retry.StatusError{Method: "POST", Effect: retry.Idempotent}, retry.Idempotent},
		{retry.StatusError{Method: "GET", Effect: retry.Mutation}, retry.Mutation},
		{retry.StatusError{Effect: retry.ReadOnly}, retry.ReadOnly},
		{retry.StatusError{Method: "PUT", Effect: 4}, retry.Idempotent},
		{retry.StatusError{Effect: 255}, retry.Unstated},
	} {
		c.err.Code = 503
		require.Equal(t, retry.Verdict{Class: retry.ClassUnknown, Effect: c.want}, retry.Classify(&c.err), "%#v", c.err)
	}
}

func TestDefaultClassifierRules(t *testing.T) {
	const (
		unclassified = retry.ClassUnclassified
		permanent    = retry.ClassPermanent
		transient    = retry.ClassTransient
		throttled    = retry.ClassThrottled
		unknown      = retry.ClassUnknown
	)
	status := func(code int) error { return &retry.StatusError{Code: code} }
	get := func(err error) error { return &url.Error{Op: "Get", URL: "http://example.com", Err: err} }
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	loop := &retry.Error{Reason: retry.ErrAttempts, Last: status(503)}

	for _, c := range []struct {
		name string
		err  error
		want retry.Class
	}{
		// Fault B84.
		{"nil", nil, unclassified},

		{"an error of one's own", errors.New("x"), unclassified},
		{"no rows", fs.ErrNotExist, unclassified},
		{"end of input", io.EOF, unclassified},
		{"closed here", net.ErrClosed, unclassified},
		{"closed here, in use", opError("read", net.ErrClosed), unclassified},
		{"short write", io.ErrShortWrite, unclassified},
		{"errno without a rule", syscall.EINVAL, unclassified},
		{"text is no evidence", errors.New("connection reset by peer"), unclassified},
		{"nor is that of a type of one's own", textError("connection reset by peer"), unclassified},
		{"nor is its number", numberError(10054), unclassified},
		{"text is no evidence of a dial", errors.New("dial tcp: connection refused"), unclassified},

		// Fault B66.
		{"deadline", context.DeadlineExceeded, unknown},
		{"deadline, wrapped", fmt.Errorf("rpc: %w", context.DeadlineExceeded), unknown},
		{"deadline by Is", isError{context.DeadlineExceeded}, unknown},
		{"i/o deadline", os.ErrDeadlineExceeded, unknown},
		{"read timeout", opError("read", os.ErrDeadlineExceeded), unknown},
		{"ETIMEDOUT", opError("read", syscall.ETIMEDOUT), unknown},
		{"timeout of a type of one's own", lateError{errors.New("x")}, unknown},
		{"dns timeout is a look-up's", &net.DNSError{IsTimeout: true}, transient},

		{"canceled", context.Canceled, unclassified},
		{"canceled by Is", isError{context.Canceled}, unclassified},
		{"canceled, and reset", errors.Join(reset, context.Canceled), unclassified},
		{"canceled dial", dial(isError{context.Canceled}), unclassified},

		// Fault B82.
		{"reset", reset, unknown},
		{"reset in a url.Error", &url.Error{Err: &net.OpError{Op: "read", Err: syscall.ECONNRESET}}, unknown},
		{"unexpected EOF in a url.Error", &url.Error{Err: io.ErrUnexpectedEOF}, unknown},
		{"unexpected EOF", fmt.Errorf("body: %w", io.ErrUnexpectedEOF), unknown},
		{"EOF in a url.Error", get(io.EOF), unknown},
		{"EOF deep in a url.Error", get(fmt.Errorf("a: %w", errors.Join(errors.New("b"), io.EOF))), unknown},
		{"EOF beside a url.Error", errors.Join(get(errors.New("x")), io.EOF), unclassified},
		{"EOF around a url.Error", isAround{io.EOF, get(errors.New("x"))}, unclassified},
		{"bare ECONNRESET", syscall.ECONNRESET, unknown},
		{"broken pipe", opError("write", syscall.EPIPE), unknown},
		{"aborted", opError("read", syscall.ECONNABORTED), unknown},
		{"reset network", opError("read", syscall.ENETRESET), unknown},
		{"Windows: WSAENETRESET", opError("wsarecv", syscall.Errno(10052)), unknown},
		{"Windows: WSAECONNABORTED", opError("wsarecv", syscall.Errno(10053)), unknown},
		{"Windows: WSAECONNRESET", opError("wsarecv", syscall.Errno(10054)), unknown},
		{"Windows: WSAETIMEDOUT", opError("wsarecv", syscall.Errno(10060)), unknown},
		{"Windows: WSAECONNREFUSED", syscall.Errno(10061), transient},
		{"Windows: WSAENOBUFS", opError("wsarecv", syscall.Errno(10055)), unclassified},

		{"refused", refused, transient},
		{"refused, in a url.Error", get(refused), transient},
		{"bare ECONNREFUSED", fmt.Errorf("redis: %w", syscall.ECONNREFUSED), transient},
		{"connect refused", os.NewSyscallError("connect", syscall.ECONNREFUSED), transient},
		{"refused on a connection in use", opError("read", syscall.ECONNREFUSED), unknown},
		{"dial, whatever came of it", dial(errors.New("x")), transient},
		{"dial through a proxy", &net.OpError{Op: "proxyconnect", Err: refused}, transient},
		{"dial: EOF", get(dial(io.EOF)), transient},
		{"dial: unexpected EOF", dial(io.ErrUnexpectedEOF), transient},
		{"dial: timeout", dial(os.ErrDeadlineExceeded), transient},
		{"dial: timeout, in wrappers that ask", lateError{get(lateError{dial(lateError{os.ErrDeadlineExceeded})})}, transient},
		{"dial: ctx's deadline", dial(context.DeadlineExceeded), transient},
		{"dial: ETIMEDOUT", dial(os.NewSyscallError("connect", syscall.ETIMEDOUT)), transient},
		{"dial: both families time out", dial(errors.Join(os.ErrDeadlineExceeded, os.ErrDeadlineExceeded)), transient},
		{"refused, in a wrapper that asks", lateError{syscall.ECONNREFUSED}, transient},
		{"look-up, in a wrapper that asks", lateError{busyDNS}, transient},
		{"NXDOMAIN, in a wrapper that asks", lateError{absent}, permanent},
		{"bad address, in a wrapper that asks", lateError{net.InvalidAddrError("x")}, permanent},
		{"Op is exact", &net.OpError{Op: "Dial", Err: errors.New("x")}, unclassified},
		{"accept", &net.OpError{Op: "accept", Err: errors.New("x")}, unclassified},
		{"TLS alert", get(&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}), unclassified},
		{"temporary DNS failure", busyDNS, transient},
		{"temporary DNS failure in a dial", get(dial(busyDNS)), transient},
		{"lasting DNS failure", &net.DNSError{Err: "invalid domain"}, unclassified},

		{"NXDOMAIN", absent, permanent},
		{"NXDOMAIN in a dial", get(dial(absent)), permanent},
		{"NXDOMAIN, called temporary", &net.DNSError{IsNotFound: true, IsTemporary: true}, permanent},
		{"unknown network", dial(net.UnknownNetworkError("tcq")), permanent},
		{"unknown network, bare", net.UnknownNetworkError("tcq"), permanent},
		{"bad port", get(dial(&net.AddrError{Err: "invalid port", Addr: "99999"})), permanent},
		{"bad address", net.InvalidAddrError("x"), permanent},
		{"bad address, parsed", &net.ParseError{Type: "IP address", Text: "x"}, permanent},

		// What one request proves does not speak for another in the same tree.
		{"dial and reset", errors.Join(refused, reset), unknown},
		{"reset and dial", errors.Join(reset, refused), unknown},
		{"reset in a dial", dial(syscall.ECONNRESET), unknown},
		{"dial, and a read timed out", errors.Join(refused, opError("read", os.ErrDeadlineExceeded)), unknown},
		{"a read timed out, and dial", fmt.Errorf("%w: %w", context.DeadlineExceeded, refused), unknown},
		{"dial, and unexpected EOF", errors.Join(refused, io.ErrUnexpectedEOF), unknown},
		{"timeout around two dials", lateError{errors.Join(refused, refused)}, unknown},
		{"NXDOMAIN and reset", errors.Join(absent, reset), unknown},
		{"dial and an error of one's own", errors.Join(refused, errors.New("x")), transient},
		{"NXDOMAIN and dial", errors.Join(refused, absent), permanent},

		// A status outranks what came beside it.
		{"429, body broken", fmt.Errorf("%w: body: %w", status(429), io.ErrUnexpectedEOF), throttled},
		{"404 and canceled", errors.Join(context.Canceled, status(404)), permanent},
		{"503 in a url.Error with a timeout", get(lateError{status(503)}), unknown},
		{"501 and reset", errors.Join(reset, status(501)), unclassified},
		{"404, dial", errors.Join(refused, status(404)), permanent},

		// Of several the first, unless another disproves it.
		{"404 then 429", errors.Join(status(404), status(429)), permanent},
		{"429 then 404", errors.Join(status(429), status(404)), throttled},
		{"429 then 503", errors.Join(status(429), status(503)), unknown},
		{"503 then 429", errors.Join(status(503), status(429)), unknown},
		{"421 then 501", errors.Join(status(421), status(501)), unclassified},
		{"503 then 501", errors.Join(status(503), status(501)), unknown},
		{"501 then 503", errors.Join(status(501), status(503)), unclassified},
		{"by As", &apiError{status: &retry.StatusError{Code: 429}}, throttled},
		{"by As, wrapped", fmt.Errorf("a: %w", &apiError{&retry.StatusError{Code: 404}, reset}), permanent},
		{"As without a status", &apiError{nil, reset}, unknown},
		{"As of another type", asOther{reset}, unknown},

		// An inner loop's error outranks all but marks.
		{"inner loop", loop, permanent},
		{"inner loop, wrapped", fmt.Errorf("a: %w", errors.Join(errors.New("x"), loop)), permanent},
		{"inner loop and 503", errors.Join(status(503), loop), permanent},
		{"inner loop and canceled", errors.Join(context.Canceled, loop), permanent},
		{"inner loop's own mark", &retry.Error{Reason: retry.ErrAttempts, Last: retry.Transient(io.EOF)}, permanent},

		// Fault B144.
		{"untrusted certificate", &url.Error{Err: x509.UnknownAuthorityError{}}, unclassified},
		{"certificate of another", &url.Error{Op: "Get", Err: x509.HostnameError{Certificate: &x509.Certificate{}}}, unclassified},
		{"bad scheme", get(errors.New(`unsupported protocol scheme "foo"`)), unclassified},
		{"redirects", get(errors.New("stopped after 10 redirects")), unclassified},
		{"not implemented", status(501), unclassified},
	} {
		require.Equal(t, c.want.String(), retry.Classify(c.err).Class.String(), c.name)
	}
}

// isAround is target by Is, and wraps err.
type isAround struct{ target, err error }

func (e isAround) Error() string        { return "around" }
func (e isAround) Is(target error) bool { return target == e.target }
func (e isAround) Unwrap() error        { return e.err }

// Fault B82's second half, and design of the Op: net/http writes a method with
// all letters small but the first.
func TestURLErrorStatesItsEffectByItsOp(t *testing.T) {
	for op, want := range map[string]retry.Effect{
		"Get": retry.ReadOnly, "Head": retry.ReadOnly, "Options": retry.ReadOnly, "Trace": retry.ReadOnly, "Query": retry.ReadOnly,
		"Put": retry.Idempotent, "Delete": retry.Idempotent,
		"Post": retry.Mutation, "Patch": retry.Mutation, "Connect": retry.Mutation, "M-search": retry.Mutation, "G": retry.Mutation,
		"GET": retry.ReadOnly, "POST": retry.Mutation, // by hand: nothing else could be meant
		"GeT": retry.Mutation, "Get ": retry.Mutation,
		"": retry.Unstated, "parse": retry.Unstated, "get": retry.Unstated, "dial": retry.Unstated, " Get": retry.Unstated, "@": retry.Unstated, "[": retry.Unstated,
	} {
		err := &url.Error{Op: op, Err: reset}
		require.Equal(t, retry.Verdict{Class: retry.ClassUnknown, Effect: want}, retry.Classify(err), "%q", op)
	}
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "QUERY", "LOCK"} {
		req, err := http.NewRequest(method, "foo://x", nil)
		require.NoError(t, err)
		_, err = http.DefaultClient.Do(req)
		require.Equal(t, retry.Verdict{Effect: retry.MethodEffect(method)}, retry.Classify(err), "%v", err)
	}
}

func TestEffectIsReadFromTheTree(t *testing.T) {
	get := func(err error) error { return &url.Error{Op: "Get", Err: err} }
	post := func(err error) error { return &url.Error{Op: "Post", Err: err} }
	keyed := &retry.StatusError{Method: "POST", Code: 503, Effect: retry.Idempotent}
	for _, c := range []struct {
		name string
		err  error
		want retry.Effect
	}{
		{"whatever the class", get(errors.New("x")), retry.ReadOnly},
		{"transient too", get(refused), retry.ReadOnly},
		{"permanent too", get(absent), retry.ReadOnly},
		{"canceled too", post(context.Canceled), retry.Mutation},
		{"under a wrapper", fmt.Errorf("a: %w", get(reset)), retry.ReadOnly},
		{"a status knows better than what is around it", post(keyed), retry.Idempotent},
		{"and where it knows nothing, what is around it does", get(&retry.StatusError{Code: 503}), retry.ReadOnly},
		{"by As, with what it wraps", &apiError{&retry.StatusError{Method: "PUT", Code: 503}, errors.New("x")}, retry.Idempotent},
		{"the riskier of two requests", errors.Join(get(reset), post(reset)), retry.Mutation},
		{"in either order", errors.Join(post(reset), get(reset)), retry.Mutation},
		{"of two statuses", errors.Join(&retry.StatusError{Method: "GET", Code: 503}, keyed), retry.Idempotent},
		{"of a status and another request", errors.Join(keyed, post(reset)), retry.Mutation},
		{"of a request inside another", get(post(reset)), retry.Mutation},
		{"the other way round", post(get(reset)), retry.Mutation},
		{"a status in a tree", post(branches{keyed}), retry.Idempotent},
		{"Unstated takes nothing away", errors.Join(get(reset), errors.New("x")), retry.ReadOnly},
		{"around a tree", get(errors.Join(reset, errors.New("x"))), retry.ReadOnly},
		{"around an empty tree", get(branches{}), retry.ReadOnly},
		{"around nil entries", get(branches{nil, nil}), retry.ReadOnly},
	} {
		require.Equal(t, c.want.String(), retry.Classify(c.err).Effect.String(), c.name)
		require.Equal(t, c.want.String(), retry.Classify(retry.Unknown(c.err)).Effect.String(), "marked: %s", c.name)
	}
}

var allMarks = []struct {
	class retry.Class
	mark  func(error) error
	after time.Duration
}{
	{retry.ClassPermanent, retry.Permanent, 0},
	{retry.ClassTransient, retry.Transient, 0},
	{retry.ClassThrottled, func(err error) error { return retry.Throttled(err, 7*time.Second) }, 7 * time.Second},
	{retry.ClassSuspended, func(err error) error { return retry.Suspended(err, 10*time.Minute) }, 10 * time.Minute},
	{retry.ClassUnknown, retry.Unknown, 0},
}

// Faults B73, B75, B76 and B79.
func TestMarks(t *testing.T) {
	for _, m := range allMarks {
		cause := errors.New("the cause")
		err := m.mark(cause)

		require.True(t, m.mark(nil) == nil, "the mark of nil is nil: no typed nil")
		require.Equal(t, "the cause", err.Error())
		require.ErrorIs(t, err, cause)
		require.True(t, errors.Unwrap(err) == cause)
		require.Equal(t, retry.Verdict{Class: m.class, After: m.after}, retry.Classify(err))

		// B75: by identity, never by type or content.
		require.ErrorIs(t, err, err)
		require.NotErrorIs(t, m.mark(errors.New("a")), m.mark(errors.New("b")))
		require.NotErrorIs(t, m.mark(cause), m.mark(cause))
		require.False(t, m.mark(cause) == m.mark(cause))

		// B73: however it is wrapped, and before every other rule.
		for _, tree := range []error{
			fmt.Errorf("x: %w", err),
			errors.Join(errors.New("x"), err),
			fmt.Errorf("%w and %w", context.Canceled, fmt.Errorf("y: %w", err)),
			errors.Join(&retry.StatusError{Code: 404}, reset, refused, absent, err),
			errors.Join(&retry.Error{Reason: retry.ErrAttempts, Last: reset}, err),
			m.mark(&retry.Error{Reason: retry.ErrAttempts, Last: reset}),
			m.mark(&retry.StatusError{Code: 501}),
			m.mark(context.Canceled),
		} {
			require.Equal(t, retry.Verdict{Class: m.class, After: m.after}, retry.Classify(tree), "%v", tree)
		}

		// The outermost, else the first.
		for _, other := range allMarks {
			require.Equal(t, m.class, retry.Classify(m.mark(other.mark(cause))).Class)
			require.Equal(t, m.class, retry.Classify(fmt.Errorf("a: %w", m.mark(fmt.Errorf("b: %w", other.mark(cause))))).Class)
			require.Equal(t, m.class, retry.Classify(errors.Join(err, other.mark(cause))).Class)
		}

		// An inner loop's own mark does not count outside.
		inner := &retry.Error{Reason: retry.ErrAttempts, Last: err}
		require.Equal(t, retry.Verdict{Class: retry.ClassPermanent}, retry.Classify(inner))
		require.Equal(t, retry.ClassTransient, retry.Classify(errors.Join(inner, retry.Transient(cause))).Class)
	}
}

func TestMarksOfWhatCannotBeCompared(t *testing.T) {
	odd := branches{io.EOF}
	for _, m := range allMarks {
		a, b := m.mark(odd), m.mark(odd)
		require.NotPanics(t, func() {
			require.False(t, a == b)
			require.NotErrorIs(t, a, b)
			require.ErrorIs(t, a, io.EOF)
		})
	}
}

func TestHintIsTheLongestInTheTree(t *testing.T) {
	status := func(after time.Duration) error { return &retry.StatusError{Code: 429, After: after} }
	loop := func(err error) error { return &retry.Error{Reason: retry.ErrHint, Last: err} }
	for _, c := range []struct {
		name string
		err  error
		want retry.Verdict
	}{
		{"status", status(5), retry.Verdict{Class: retry.ClassThrottled, After: 5}},
		{"status, negative", status(-5), retry.Verdict{Class: retry.ClassThrottled}},
		{"whatever the class", &retry.StatusError{Code: 404, After: 5}, retry.Verdict{Class: retry.ClassPermanent, After: 5}},
		{"no limit", status(math.MaxInt64), retry.Verdict{Class: retry.ClassThrottled, After: math.MaxInt64}},
		{"least", status(math.MinInt64), retry.Verdict{Class: retry.ClassThrottled}},
		{"of two statuses", errors.Join(status(5), status(9)), retry.Verdict{Class: retry.ClassThrottled, After: 9}},
		{"mark, longer", retry.Throttled(status(5), 9), retry.Verdict{Class: retry.ClassThrottled, After: 9}},
		{"mark, shorter", retry.Throttled(status(9), 5), retry.Verdict{Class: retry.ClassThrottled, After: 9}},
		{"mark without", retry.Permanent(status(9)), retry.Verdict{Class: retry.ClassPermanent, After: 9}},
		{"mark of a mark", retry.Suspended(retry.Throttled(io.EOF, 9), 5), retry.Verdict{Class: retry.ClassSuspended, After: 9}},
		{"mark of a mark, longer", retry.Suspended(retry.Throttled(io.EOF, 5), 9), retry.Verdict{Class: retry.ClassSuspended, After: 9}},
		{"before the mark", errors.Join(status(9), retry.Throttled(io.EOF, 5)), retry.Verdict{Class: retry.ClassThrottled, After: 9}},
		{"beside the mark", errors.Join(retry.Transient(io.EOF), status(9)), retry.Verdict{Class: retry.ClassTransient, After: 9}},
		{"mark, negative", retry.Throttled(io.EOF, -1), retry.Verdict{Class: retry.ClassThrottled}},
		{"ban, negative", retry.Suspended(io.EOF, math.MinInt64), retry.Verdict{Class: retry.ClassSuspended}},
		{"inside an inner loop's error, marked", retry.Throttled(loop(status(9)), 5), retry.Verdict{Class: retry.ClassThrottled, After: 9}},
		{"an inner loop's mark, marked", retry.Transient(loop(retry.Throttled(io.EOF, 9))), retry.Verdict{Class: retry.ClassTransient, After: 9}},
		{"inside an inner loop's error, unmarked", loop(status(9)), retry.Verdict{Class: retry.ClassPermanent}},
	} {
		require.Equal(t, c.want, retry.Classify(c.err), c.name)
	}
	effect := retry.Transient(loop(&url.Error{Op: "Post", Err: reset}))
	require.Equal(t, retry.Verdict{Class: retry.ClassTransient, Effect: retry.Mutation}, retry.Classify(effect))
}

func TestAlways(t *testing.T) {
	harmless := retry.Verdict{Class: retry.ClassUnknown, Effect: retry.ReadOnly}
	for _, err := range []error{
		errors.New("x"), io.EOF, context.Canceled, reset, absent,
		&retry.StatusError{Method: "POST", Code: 404}, &url.Error{Op: "Post", Err: reset}, (*retry.StatusError)(nil),
	} {
		require.Equal(t, harmless, retry.Always(err), "%v", err)
	}
	inner := &retry.Error{Reason: retry.ErrAttempts, Last: &retry.StatusError{Code: 503, After: time.Second}}
	require.Equal(t, retry.Verdict{Class: retry.ClassPermanent}, retry.Always(fmt.Errorf("a: %w", inner)))
	require.Equal(t, retry.Verdict{}, retry.Always(nil))

	harmless.After = 9
	require.Equal(t, harmless, retry.Always(fmt.Errorf("a: %w", &retry.StatusError{Code: 429, After: 9})))
}

// Whatever else the tree holds, these must neither panic nor be evidence.
func TestTypedNilsProveNothing(t *testing.T) {
	for _, err := range []error{
		(*retry.StatusError)(nil), (*url.Error)(nil), (*net.OpError)(nil), (*net.DNSError)(nil), (*net.AddrError)(nil),
		(*net.ParseError)(nil), (*os.SyscallError)(nil), (*fs.PathError)(nil), (*retry.Error)(nil), (*apiError)(nil),
	} {
		for _, tree := range []error{
			err,
			lazyWrap{err},
			branches{nil, err, nil},
			&url.Error{Err: err},
			lazyWrap{branches{lazyWrap{err}}},
		} {
			require.NotPanics(t, func() { require.Equal(t, retry.Verdict{}, retry.Classify(tree), "%T", err) }, "%T in %T", err, tree)
		}
		require.NotPanics(t, func() {
			require.Equal(t, retry.ClassUnknown, retry.Classify(branches{err, reset}).Class, "%T", err)
			require.Equal(t, retry.ClassTransient, retry.Classify(retry.Transient(err)).Class, "%T", err)
			require.Equal(t, retry.ClassUnknown, retry.Always(err).Class, "%T", err)
		})
	}
	require.Equal(t, retry.Verdict{}, retry.Classify(branches(nil)))
	require.Equal(t, retry.Verdict{}, retry.Classify(&apiError{}))
}

// lazyWrap wraps without asking for its text, which a typed nil has not.
type lazyWrap struct{ err error }

func (e lazyWrap) Error() string { return "wrapped" }
func (e lazyWrap) Unwrap() error { return e.err }

// ring wraps itself; bush does so twice over, endlessly.
type ring struct{}

func (ring) Error() string { return "ring" }
func (ring) Unwrap() error { return ring{} }

type bush struct{}

func (bush) Error() string   { return "bush" }
func (bush) Unwrap() []error { return []error{reset, bush{}, bush{}} }

func TestTreesWithoutEnd(t *testing.T) {
	require.Equal(t, retry.Verdict{}, retry.Classify(ring{}))
	require.Equal(t, retry.Verdict{}, retry.Classify(bush{}), "half a tree proves nothing")
	require.Equal(t, retry.Verdict{}, retry.Classify(errors.Join(&retry.StatusError{Code: 429}, bush{})))
	require.Equal(t, retry.Verdict{Class: retry.ClassTransient}, retry.Classify(retry.Transient(ring{})))
	require.Equal(t, retry.ClassPermanent, retry.Classify(errors.Join(retry.Permanent(io.EOF), bush{})).Class)
	require.Equal(t, retry.ClassUnknown, retry.Always(bush{}).Class)
	inner := &retry.Error{Reason: retry.ErrAttempts}
	require.Equal(t, retry.Verdict{Class: retry.ClassPermanent}, retry.Classify(errors.Join(inner, bush{})))

	// The limit itself, on both sides: 10,000 errors, the joint one counted.
	flat := make(branches, 9_999)
	for i := range flat {
		flat[i] = io.EOF
	}
	flat[9_998] = io.ErrUnexpectedEOF
	require.Equal(t, retry.ClassUnknown, retry.Classify(flat).Class)
	require.Equal(t, retry.ClassUnclassified, retry.Classify(lazyWrap{flat}).Class)
}

// A verdict does not depend on how the error came to be wrapped.
func TestWrappingChangesNoVerdict(t *testing.T) {
	leaves := []error{
		io.EOF, io.ErrUnexpectedEOF, context.Canceled, context.DeadlineExceeded, reset, refused, absent, busyDNS,
		syscall.ECONNREFUSED, syscall.EPIPE, &url.Error{Op: "Get", Err: io.EOF}, &url.Error{Op: "Post", Err: refused},
		&retry.StatusError{Method: "PUT", Code: 503, After: 3}, &retry.StatusError{Code: 429},
		retry.Permanent(reset), retry.Throttled(&retry.StatusError{Method: "GET", Code: 404}, 9),
		&retry.Error{Reason: retry.ErrAttempts, Last: reset},
	}
	wrappers := []func(error) error{
		func(err error) error { return fmt.Errorf("a: %w", err) },
		func(err error) error { return errors.Join(err) },
		func(err error) error { return errors.Join(errors.New("x"), err) },
		func(err error) error { return fmt.Errorf("%w: %w", err, fs.ErrNotExist) },
		func(err error) error { return lazyWrap{err} },
		func(err error) error { return branches{nil, err} },
		func(err error) error { return &apiError{nil, err} },
		func(err error) error { return &fs.PathError{Op: "open", Path: "x", Err: err} },
	}
	rapid.Check(t, func(t *rapid.T) {
		leaf := rapid.SampledFrom(leaves).Draw(t, "leaf")
		err := leaf
		for range rapid.IntRange(0, 6).Draw(t, "depth") {
			err = rapid.SampledFrom(wrappers).Draw(t, "wrapper")(err)
		}
		require.Equal(t, retry.Classify(leaf), retry.Classify(err), "%v", leaf)
	})
}

// Whatever is joined with a failure that may have been applied, in whatever
// order: the whole is not said to be unapplied.
func TestJoinedErrorsKeepWhatMayHaveBeenApplied(t *testing.T) {
	requests := []error{
		errors.New("x"), io.EOF, reset, refused, absent, busyDNS, context.DeadlineExceeded, io.ErrUnexpectedEOF,
		syscall.ECONNREFUSED, lateError{refused}, lateError{errors.New("x")}, net.UnknownNetworkError("x"),
		&url.Error{Op: "Get", Err: reset}, &url.Error{Op: "Put", Err: io.EOF}, &url.Error{Op: "Post", Err: refused},
	}
	rapid.Check(t, func(t *rapid.T) {
		joined := rapid.SliceOfN(rapid.SampledFrom(requests), 1, 5).Draw(t, "joined")
		want := retry.Verdict{}
		rank := map[retry.Class]int{retry.ClassTransient: 1, retry.ClassPermanent: 2, retry.ClassUnknown: 3}
		for _, err := range joined {
			v := retry.Classify(err)
			if rank[v.Class] > rank[want.Class] {
				want.Class = v.Class
			}
			if want.Effect == retry.Unstated || v.Effect != retry.Unstated && v.Effect < want.Effect {
				want.Effect = v.Effect
			}
		}
		shuffled := rapid.Permutation(joined).Draw(t, "shuffled")
		require.Equal(t, want, retry.Classify(errors.Join(shuffled...)))
	})
}

// What package net and net/http really return, over loopback.
func TestRealNetworkErrors(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed := listener.Addr().String()
	require.NoError(t, listener.Close())
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	dial := func(ctx context.Context, network, address string) error {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err == nil {
			c.Close()
		}
		return err
	}
	a, b := net.Pipe()
	defer b.Close()
	require.NoError(t, a.SetDeadline(time.Unix(1, 0)))
	_, pipeLate := a.Read(make([]byte, 1))
	a.Close()
	_, pipeClosed := a.Read(make([]byte, 1))

	for _, c := range []struct {
		name string
		err  error
		want retry.Class
	}{
		{"refused", dial(t.Context(), "tcp", closed), retry.ClassTransient},
		{"dial too late", dial(late, "tcp", closed), retry.ClassTransient},
		{"dial canceled", dial(canceled, "tcp", closed), retry.ClassUnclassified},
		{"port out of range", dial(t.Context(), "tcp", "127.0.0.1:99999"), retry.ClassPermanent},
		{"no port", dial(t.Context(), "tcp", "127.0.0.1"), retry.ClassPermanent},
		{"bad address", dial(t.Context(), "tcp", "[::1:80"), retry.ClassPermanent},
		{"unknown network", dial(t.Context(), "tcq", closed), retry.ClassPermanent},
		{"read too late", pipeLate, retry.ClassUnknown},
		{"read after close", pipeClosed, retry.ClassUnclassified},
	} {
		require.Error(t, c.err, c.name)
		require.Equal(t, c.want.String(), retry.Classify(c.err).Class.String(), "%s: %v", c.name, c.err)
	}
}

// Faults B66, B82, B143 and B144 with a server behind them.
func TestRealHTTPErrors(t *testing.T) {
	hijack := func(w http.ResponseWriter, answer string, linger int) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		io.WriteString(c, answer)
		c.(*net.TCPConn).SetLinger(linger)
		c.Close()
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/close":
			hijack(w, "", -1)
		case "/reset":
			hijack(w, "", 0)
		case "/garbage":
			hijack(w, "garbage\r\n\r\n", -1)
		case "/slow":
			<-r.Context().Done()
		case "/short":
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, "half of it")
		case "/around":
			http.Redirect(w, r, "/around", http.StatusFound)
		}
	})
	plain, secure := httptest.NewServer(handler), httptest.NewUnstartedServer(handler)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	// The time runs from when the request is written: what ends is never a dial.
	client := &http.Client{Transport: &http.Transport{ResponseHeaderTimeout: time.Minute}}
	hasty := &http.Client{Transport: &http.Transport{ResponseHeaderTimeout: 10 * time.Millisecond}}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		hasty.CloseIdleConnections()
		plain.Close()
		secure.Close()
	})
	send := func(client *http.Client, method, target string) error {
		req, err := http.NewRequestWithContext(t.Context(), method, target, http.NoBody)
		require.NoError(t, err)
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	_, parse := http.NewRequest("GET", "http://a b/", nil)
	for _, c := range []struct {
		name string
		err  error
		want retry.Verdict
	}{
		{"closed without an answer", send(client, "GET", plain.URL+"/close"), retry.Verdict{Class: retry.ClassUnknown, Effect: retry.ReadOnly}},
		{"closed without an answer", send(client, "POST", plain.URL+"/close"), retry.Verdict{Class: retry.ClassUnknown, Effect: retry.Mutation}},
		{"reset", send(client, "PUT", plain.URL+"/reset"), retry.Verdict{Class: retry.ClassUnknown, Effect: retry.Idempotent}},
		{"timed out", send(hasty, "DELETE", plain.URL+"/slow"), retry.Verdict{Class: retry.ClassUnknown, Effect: retry.Idempotent}},
		{"half a body knows no request", send(client, "GET", plain.URL+"/short"), retry.Verdict{Class: retry.ClassUnknown}},
		{"no HTTP", send(client, "GET", plain.URL+"/garbage"), retry.Verdict{Effect: retry.ReadOnly}},
		{"redirects", send(client, "GET", plain.URL+"/around"), retry.Verdict{Effect: retry.ReadOnly}},
		{"scheme", send(client, "GET", "foo://x"), retry.Verdict{Effect: retry.ReadOnly}},
		{"no host", send(client, "GET", "http:///"), retry.Verdict{Effect: retry.ReadOnly}},
		{"certificate", send(client, "GET", secure.URL), retry.Verdict{Effect: retry.ReadOnly}},
		{"bad port", send(client, "GET", "http://127.0.0.1:99999"), retry.Verdict{Class: retry.ClassPermanent, Effect: retry.ReadOnly}},
		{"no URL", parse, retry.Verdict{}},
	} {
		require.Error(t, c.err, c.name)
		require.Equal(t, c.want, retry.Classify(c.err), "%s: %v", c.name, c.err)
	}
}

// callsOf runs op under p until it ends, and returns how often it was called.
func callsOf(t *testing.T, p retry.Policy, failures ...error) (int, error) {
	t.Helper()
	p.Sleep = func(context.Context, time.Duration) error { return nil }
	calls := 0
	err := retry.Run(t.Context(), &p, func(context.Context) error {
		calls++
		if calls <= len(failures) {
			return failures[calls-1]
		}
		return nil
	})
	return calls, err
}

func TestLoopAsksMarksBeforeTheCallersClassifier(t *testing.T) {
	cause := errors.New("cause")
	asked := 0
	answer := func(v retry.Verdict) retry.Classifier {
		return func(err error) retry.Verdict {
			require.NotNil(t, err)
			asked++
			return v
		}
	}
	transient, permanent := answer(retry.Verdict{Class: retry.ClassTransient}), answer(retry.Verdict{Class: retry.ClassPermanent})

	calls, err := callsOf(t, retry.Policy{Classify: transient}, cause)
	require.NoError(t, err)
	require.Equal(t, 2, calls)
	calls, err = callsOf(t, retry.Policy{Classify: permanent}, cause)
	require.ErrorIs(t, err, retry.ErrPermanent)
	require.Equal(t, 1, calls)

	asked = 0
	calls, err = callsOf(t, retry.Policy{Classify: transient}, fmt.Errorf("x: %w", retry.Permanent(cause))) // fault B73
	require.ErrorIs(t, err, retry.ErrPermanent)
	require.ErrorIs(t, err, cause)
	require.Equal(t, 1, calls)
	calls, err = callsOf(t, retry.Policy{Classify: permanent}, errors.Join(io.EOF, retry.Transient(cause)))
	require.NoError(t, err)
	require.Equal(t, 2, calls)
	calls, err = callsOf(t, retry.Policy{Classify: retry.Always}, retry.Suspended(cause, 0))
	require.ErrorIs(t, err, retry.ErrSuspended)
	require.Equal(t, 1, calls)
	require.Zero(t, asked, "a mark has decided")

	calls, err = callsOf(t, retry.Policy{Classify: retry.Always}, cause, io.EOF)
	require.NoError(t, err)
	require.Equal(t, 3, calls)
	calls, err = callsOf(t, retry.Policy{}, retry.Permanent(nil)) // fault B76
	require.NoError(t, err)
	require.Equal(t, 1, calls)
}

func TestLoopTakesNonsenseFromAClassifierSafely(t *testing.T) {
	for _, v := range []retry.Verdict{
		{Class: 6, Effect: retry.ReadOnly},
		{Class: 255, Effect: retry.ReadOnly},
	} {
		var seen []retry.Class
		calls, err := callsOf(t, retry.Policy{
			Classify: func(error) retry.Verdict { return v },
			Observe:  func(_ context.Context, r retry.Record) { seen = append(seen, r.Class) },
		}, io.EOF)
		require.ErrorIs(t, err, retry.ErrUnclassified)
		require.Equal(t, []retry.Class{retry.ClassUnclassified}, seen)
		require.Equal(t, 1, calls)
	}
	for _, effect := range []retry.Effect{4, 255} {
		v := retry.Verdict{Class: retry.ClassUnknown, Effect: effect}
		calls, err := callsOf(t, retry.Policy{Classify: func(error) retry.Verdict { return v }}, io.EOF)
		require.ErrorIs(t, err, retry.ErrUnknownOutcome)
		require.Equal(t, 1, calls)
	}
	var waits []time.Duration
	p := retry.Policy{
		Classify: func(error) retry.Verdict { return retry.Verdict{Class: retry.ClassThrottled, After: math.MinInt64} },
		Observe: func(_ context.Context, r retry.Record) {
			require.Zero(t, r.Hint)
			waits = append(waits, r.Wait)
		},
		Rand: func() float64 { return 0.5 },
	}
	_, err := callsOf(t, p, io.EOF)
	require.NoError(t, err)
	require.Equal(t, []time.Duration{100 * time.Millisecond, 0}, waits)
}

// Fault B144, B145 and the warning on effects: how often op is called under
// the default policy.
func TestLoopCallsByDefault(t *testing.T) {
	get := func(err error) error { return &url.Error{Op: "Get", Err: err} }
	for _, c := range []struct {
		name  string
		err   error
		calls int
	}{
		{"certificate", &url.Error{Err: x509.UnknownAuthorityError{}}, 1},
		{"scheme", get(errors.New(`unsupported protocol scheme "foo"`)), 1},
		{"redirects", get(errors.New("stopped after 10 redirects")), 1},
		{"501", &retry.StatusError{Method: "GET", Code: 501}, 1},
		{"418", &retry.StatusError{Method: "GET", Code: 418}, 1},
		{"400", &retry.StatusError{Method: "GET", Code: 400}, 1},
		{"422", &retry.StatusError{Method: "GET", Code: 422}, 1},
		{"401", &retry.StatusError{Method: "GET", Code: 401}, 1},
		{"403", &retry.StatusError{Method: "GET", Code: 403}, 1},
		{"404 with a hint: when, never whether (fault B48)", &retry.StatusError{Method: "GET", Code: 404, After: 1}, 1},
		{"POST, 503 (fault B128)", &retry.StatusError{Method: "POST", Code: 503}, 1},
		{"503 of nobody knows what", &retry.StatusError{Code: 503}, 1},
		{"GET, 503", &retry.StatusError{Method: "GET", Code: 503}, 2},
		{"POST, 429", &retry.StatusError{Method: "POST", Code: 429}, 2},
		{"POST, 425", &retry.StatusError{Method: "POST", Code: 425}, 2},
		{"timeout of nobody knows what", context.DeadlineExceeded, 1},
		{"timeout of a GET", get(context.DeadlineExceeded), 2},
		{"url.Error without Op", &url.Error{Err: io.ErrUnexpectedEOF}, 1},
		{"half a body", io.ErrUnexpectedEOF, 1},
		{"refused", refused, 2},
		{"NXDOMAIN", absent, 1},
	} {
		calls, err := callsOf(t, retry.Policy{}, c.err)
		require.Equal(t, c.calls, calls, c.name)
		require.Equal(t, c.calls == 2, err == nil, c.name)
	}
	calls, err := callsOf(t, retry.Policy{Effect: retry.ReadOnly}, fmt.Errorf("rpc: %w", context.DeadlineExceeded)) // fault B66
	require.NoError(t, err)
	require.Equal(t, 2, calls)
	calls, err = callsOf(t, retry.Policy{Effect: retry.ReadOnly}, errors.New("x"))
	require.ErrorIs(t, err, retry.ErrUnclassified, "not even if ReadOnly")
	require.Equal(t, 1, calls)
	calls, err = callsOf(t, retry.Policy{Effect: retry.Mutation, Classify: retry.Always}, errors.New("x"))
	require.ErrorIs(t, err, retry.ErrUnknownOutcome, "the policy's effect outranks that of Always")
	require.Equal(t, 1, calls)
}

// tally is a Budget that refuses nothing and counts what was earned.
type tally struct{ earned int }

func (b *tally) Spend(context.Context, retry.Verdict, float64) (float64, error) { return 1, nil }
func (b *tally) Return(context.Context, float64)                                {}
func (b *tally) Earn(context.Context, float64)                                  { b.earned++ }

// Fault B104: a definite answer of the server after a retry earns; a refusal
// by anybody else does not.
func TestLoopEarnsOnADefiniteAnswer(t *testing.T) {
	loop := &retry.Error{Reason: retry.ErrPermanent, Last: &retry.StatusError{Code: 404}}
	permanent := func(error) retry.Verdict { return retry.Verdict{Class: retry.ClassPermanent} }
	for _, c := range []struct {
		name     string
		err      error
		classify retry.Classifier
		earned   int
	}{
		{"a permanent status", fmt.Errorf("a: %w", &retry.StatusError{Code: 404}), nil, 1},
		{"a mark", fmt.Errorf("a: %w", retry.Permanent(io.EOF)), nil, 1},
		{"a status that the caller's rule calls permanent", &retry.StatusError{Code: 503}, permanent, 1},
		{"this side of the connection", absent, nil, 0},
		{"an error of one's own", errors.New("x"), permanent, 0},
		{"an answer that proves nothing", &retry.StatusError{Code: 501}, nil, 0},
		{"a ban", retry.Suspended(io.EOF, 0), nil, 0},
		{"an inner loop", loop, nil, 0},
		{"an inner loop, marked", retry.Permanent(loop), nil, 0},
		{"an inner loop beside a status", errors.Join(&retry.StatusError{Code: 404}, loop), nil, 0},
	} {
		budget := &tally{}
		calls, err := callsOf(t, retry.Policy{Budget: budget, Classify: c.classify}, retry.Transient(io.EOF), c.err)
		require.Error(t, err, c.name)
		require.Equal(t, 2, calls, c.name)
		require.Equal(t, c.earned, budget.earned, c.name)
	}
}

func TestLoopTakesOverTheFirstInnerError(t *testing.T) {
	first := &retry.Error{Reason: retry.ErrHint, Last: &retry.Error{Reason: retry.ErrDeadline}}
	tree := fmt.Errorf("a: %w", errors.Join(io.EOF, first, &retry.Error{Reason: retry.ErrAttempts}))
	for _, classify := range []retry.Classifier{nil, retry.Classify, retry.Always} {
		calls, err := callsOf(t, retry.Policy{Classify: classify}, tree)
		require.Equal(t, 1, calls)
		outer, ok := errors.AsType[*retry.Error](err)
		require.True(t, ok)
		require.Equal(t, retry.ErrHint, outer.Reason)
	}
	calls, err := callsOf(t, retry.Policy{}, retry.Transient(tree))
	require.NoError(t, err, "a mark around it outranks it")
	require.Equal(t, 2, calls)
	calls, err = callsOf(t, retry.Policy{Classify: func(error) retry.Verdict { return retry.Verdict{Class: retry.ClassTransient} }}, tree)
	require.NoError(t, err, "the caller's rule may overrule it")
	require.Equal(t, 2, calls)
}

// bodyError is what the doc of Classifier calls apiError.
type bodyError struct{ Code int }

func (e *bodyError) Error() string { return fmt.Sprintf("code %d", e.Code) }

// The example in the doc of Classifier, word for word.
func TestClassifierOfTheDoc(t *testing.T) {
	type apiError = bodyError
	venue := func(err error) retry.Verdict {
		v := retry.Classify(err)
		if s, ok := errors.AsType[*retry.StatusError](err); ok && s.Code == 403 {
			v.Class, v.After = retry.ClassSuspended, max(v.After, 10*time.Minute)
		}
		if e, ok := errors.AsType[*apiError](err); ok {
			switch e.Code {
			case -1003: // too many requests
				v.Class = retry.ClassThrottled
			case -1006, -1007: // no answer from the matching engine
				v.Class = retry.ClassUnknown
			}
		}
		return v
	}
	for want, err := range map[retry.Verdict]error{
		{Class: retry.ClassSuspended, After: 10 * time.Minute, Effect: retry.ReadOnly}: &retry.StatusError{Method: "GET", Code: 403},
		{Class: retry.ClassSuspended, After: time.Hour}:                                &retry.StatusError{Code: 403, After: time.Hour},
		{Class: retry.ClassThrottled, After: 3}:                                        errors.Join(&retry.StatusError{Code: 400, After: 3}, &bodyError{-1003}),
		{Class: retry.ClassUnknown}:                                                    &bodyError{-1007},
		{Class: retry.ClassUnclassified}:                                               &bodyError{-1},
		{Class: retry.ClassPermanent}:                                                  &retry.StatusError{Code: 404},
	} {
		require.Equal(t, want, venue(err), "%v", err)
	}
}

func TestClassifyAllocatesNothing(t *testing.T) {
	status := &retry.StatusError{Method: "GET", Code: 503, After: time.Second}
	for name, err := range map[string]error{
		"status":             status,
		"wrapped status":     fmt.Errorf("a: %w", status),
		"joined status":      errors.Join(io.EOF, status),
		"mark":               retry.Transient(io.EOF),
		"mark of a status":   retry.Throttled(status, time.Second),
		"wrapped mark":       fmt.Errorf("a: %w", retry.Permanent(io.EOF)),
		"reset":              &url.Error{Op: "Get", Err: reset},
		"refused":            &url.Error{Op: "Get", Err: refused},
		"deadline":           &url.Error{Op: "Get", Err: context.DeadlineExceeded},
		"known by no rule":   bytes.ErrTooLarge,
		"inner loop's error": &retry.Error{Reason: retry.ErrAttempts, Last: status},
	} {
		var v retry.Verdict
		require.Zero(t, testing.AllocsPerRun(100, func() { v = retry.Classify(err) }), name)
		require.Zero(t, testing.AllocsPerRun(100, func() { v = retry.Always(err) }), name)
		_ = v
	}
}

func BenchmarkClassify(b *testing.B) {
	status := &retry.StatusError{Method: "GET", Code: 503}
	deep := errors.New("x")
	for range 9 {
		deep = fmt.Errorf("a: %w", deep)
	}
	for _, c := range []struct {
		name string
		err  error
	}{
		{"status", status},
		{"wrapped status", fmt.Errorf("a: %w", status)},
		{"mark", retry.Transient(io.EOF)},
		{"mark of a status", retry.Transient(status)},
		{"reset", &url.Error{Op: "Get", Err: reset}},
		{"refused", &url.Error{Op: "Get", Err: refused}},
		{"deadline", &url.Error{Op: "Get", Err: context.DeadlineExceeded}},
		{"no rule", errors.New("x")},
		{"ten deep", deep},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				retry.Classify(c.err)
			}
		})
	}
}
