package httpretry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/seed-3d0f8764/retry"
	"github.com/seed-3d0f8764/retry/internal/wire"
)

// Transport is an [http.RoundTripper] that repeats what is safe to repeat, for
// any [http.Client]:
//
//	client := &http.Client{Transport: &httpretry.Transport{}}
//
// What a request can change is read from its method, from an Idempotency-Key
// or X-Idempotency-Key, or from [WithEffect], the later over the earlier. What
// is proven not to be applied (429, 421, 425, a connection refused) is repeated
// whatever the request is, a POST without a key too. When
// the loop gives up on a response, that response is returned with its body
// unread and a nil error, as an http.RoundTripper must; [Check] makes the
// error of it, and [Attempts] says how many were made. When it gives up
// without a response the error is a [*retry.Error].
//
// Leave http.Client.Timeout 0. It bounds all attempts and waits together, and
// where it ends one in flight, net/http may keep no more than the text of the
// error: neither the *retry.Error nor retry.ErrUnknownOutcome is found in it. Use
// the policy's AttemptTimeout and MaxElapsed, or a ctx. What http.Client returns
// is a *url.Error around the *retry.Error, and prints the query of its URL: log
// the one inside.
//
// AttemptTimeout and the deadline of the policy bound an attempt up to the
// header of its response. After that only the request's own context bounds the
// body: a download longer than both arrives whole. Nothing else ends an attempt
// on a server that refuses every HTTP/2 connection with GOAWAY: net/http opens
// one after the other.
//
// The Sends of a [retry.Record] are the requests that net/http, as Base, has
// written, its own repetitions included. One into a kept-alive connection that
// turns out to be dead before a byte has left counts, too: net/http does not
// tell those apart.
//
// A request's body is repeated through GetBody. One without is sent once, and
// what came of it returned; the error says so.
//
// The zero value is ready for use. A Transport is read-only while in use and
// safe for concurrent use if its functions are.
type Transport struct {
	// Base sends. nil: http.DefaultTransport.
	Base http.RoundTripper
	// Policy is that of each request. nil: the zero one. Its Effect is
	// ignored: the request's own decides (WithEffect). Its Classify sees what Base
	// returned and, where neither signal nor hook has decided, a
	// *retry.StatusError.
	Policy *retry.Policy
	// Signals are those that the servers are believed. nil: RetryAfter;
	// empty: none.
	Signals []Signal
	// Classify judges a response before its status does: see Checker.
	Classify func(*http.Response) (retry.Verdict, bool)
	// Key makes an Idempotency-Key for a request that has none and must not
	// be repeated without, once for all its attempts; [NewKey] is one. A
	// server that does not know such keys takes it for nothing, and may apply
	// a repeated request twice: set it for those that do. nil: none is made.
	Key func() string
	// CoverBody lets AttemptTimeout and deadline cover the body, too.
	CoverBody bool
	// NoReplay stops net/http from repeating a request by itself where a
	// kept-alive connection turns out to be dead, or an HTTP/2 server has reset
	// its stream. What was not written at all may still go out on another
	// connection. A POST with a key and without a body then goes out with an
	// empty chunked body. One without key and body stays as it is, as does any
	// other method that has no body (but GET, HEAD and OPTIONS): should a server
	// reset its stream with PROTOCOL_ERROR, net/http repeats it.
	NoReplay bool
}

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	c := &call{t: t, request: req, policy: *t.policy(), effect: Effect(req), unsent: req.Body}
	defer c.abandon()
	if t.Key != nil && c.effect == retry.Mutation && !marked(req.Context()) {
		c.addKey(t.Key())
	}
	once := hasBody(req) && req.GetBody == nil && c.policy.MaxAttempts != 1
	if once {
		c.policy.MaxAttempts = 1
	}

	resp, err := retry.Do(req.Context(), &c.policy, c.attempt)
	if err == nil {
		return c.hand(resp, nil), nil
	}
	gaveUp, _ := errors.AsType[*retry.Error](err)
	if once && gaveUp.Reason == retry.ErrAttempts && gaveUp.Last != nil { // the limit is not the user's
		gaveUp.Last = fmt.Errorf("%w; its body cannot be sent again (no GetBody)", gaveUp.Last)
	}
	if c.open != nil {
		return c.hand(c.open, gaveUp), nil
	}
	return nil, err
}

// CloseIdleConnections passes to Base what [http.Client.CloseIdleConnections]
// asks for.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

// defaults is the Policy behind a nil one.
var defaults retry.Policy

func (t *Transport) policy() *retry.Policy {
	if t.Policy == nil {
		return &defaults
	}
	return t.Policy
}

// now is what dates are measured against.
func (t *Transport) now() time.Time {
	if clock := t.policy().Clock; clock != nil {
		return clock()
	}
	return time.Now()
}

// call is one request with all its attempts.
type call struct {
	t       *Transport
	request *http.Request // the caller's, or that with a key of ours
	policy  retry.Policy  // the Transport's, with effect and functions of this call

	attempts int
	unsent   io.ReadCloser  // the body of a request on which Base has not yet returned
	open     *http.Response // of the last attempt, not yet drained
	sent     *sending       // with which it was made
	first    sending        // that of attempt 1
	wrote    func()         // notes that the attempt's request went out; nil: nobody asks
	effect   retry.Effect   // of the request
	over     bool           // Base has nothing left to do with sent, by its contract
	failed   bool           // some attempt has
	done     bool           // the response is the caller's
}

// sending is what an attempt is sent with.
type sending struct {
	sendContext
	request http.Request
}

// addKey makes the request one that may be repeated.
func (c *call) addKey(key string) {
	if key == "" {
		return
	}
	c.request = c.request.Clone(c.request.Context())
	if c.request.Header == nil {
		c.request.Header = http.Header{}
	}
	c.request.Header.Set("Idempotency-Key", key)
	c.effect = retry.Idempotent
}

// attempt is the op of the loop. A response that is a failure stays open: it
// is the caller's if the loop gives up, and drained if it goes on.
func (c *call) attempt(ctx context.Context) (*http.Response, error) {
	c.attempts++
	c.policy.Effect = c.effect
	resp, err := c.try(ctx)
	if err != nil {
		// The loop reads its policy again after each attempt, and this one is
		// nobody else's.
		if !c.failed {
			c.failed = true
			c.policy.Classify, c.policy.Sleep = c.classify, c.sleep
		}
		if j, ok := err.(*judgement); ok {
			c.policy.Effect = j.status.Effect
		}
	}
	return resp, err
}

// try sends the request once.
func (c *call) try(ctx context.Context) (*http.Response, error) {
	out, err := c.prepare(ctx)
	if err != nil {
		return nil, retry.Permanent(err)
	}
	resp, err := c.t.base().RoundTrip(out)
	c.unsent = nil
	if err == nil && resp == nil {
		err = errors.New("httpretry: Base returned neither a response nor an error")
	}
	if err != nil {
		if resp != nil && resp.Body != nil { // Base must not, and a leak is no help
			resp.Body.Close()
		}
		c.sent.release()
		return nil, err
	}
	c.over = c.wrote == nil && !hasBody(out)
	if c.wrote != nil {
		c.wrote()
	}
	if resp.Body == nil {
		resp.Body = http.NoBody
	}
	resp.Request = c.request
	c.open = resp
	j := judge(resp, c.t.Signals, c.t.Classify, c.t.now)
	if !c.sent.headerArrived() && resp.Body != http.NoBody {
		// The attempt ended meanwhile, and the body with it.
		c.drain()
		return nil, context.Cause(c.sent.inner)
	}
	if j != nil {
		return resp, j
	}
	return resp, nil
}

// prepare makes what the attempt is sent with. Base may go on with those of an
// earlier one until the body of its response is closed, says [http.RoundTripper];
// net/http does even longer, but asks for Done then. Otherwise they serve again.
func (c *call) prepare(ctx context.Context) (*http.Request, error) {
	recorded := ctx.Value(wire.Key{}) != nil
	if c.over && !recorded && c.sent.again(ctx) {
		return &c.sent.request, nil
	}
	s := &c.first
	if c.attempts > 1 {
		s = new(sending)
	}
	c.sent, c.over, c.wrote = s, false, nil
	s.attempt, s.caller, s.cover = ctx, c.request.Context(), c.t.CoverBody
	send := context.Context(&s.sendContext)
	if recorded {
		send = c.trace(ctx, send)
	}
	out := &s.request
	*out = *c.request.WithContext(send)
	if c.attempts > 1 && hasBody(out) {
		body, err := out.GetBody()
		if err == nil && body == nil { // it would be sent without one
			err = errors.New("httpretry: GetBody returned neither a body nor an error")
		}
		if err != nil {
			return nil, err
		}
		out.Body, c.unsent = body, body
	}
	if c.t.NoReplay {
		stopReplay(out)
	}
	return out, nil
}

func hasBody(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }

// classify is the loop's Classifier.
func (c *call) classify(err error) retry.Verdict {
	custom := c.t.policy().Classify
	if j, ok := err.(*judgement); ok {
		if !j.marked && custom != nil {
			return custom(&j.status)
		}
		return j.verdict()
	}
	class := textClass(err)
	if class == retry.ClassTransient {
		return retry.Verdict{Class: class}
	}
	if custom != nil {
		return custom(err)
	}
	// As http.Client would wrap it: an io.EOF is the lost end of an answer.
	v := retry.Classify(&url.Error{Err: err})
	if v.Class == retry.ClassUnclassified {
		v.Class = class
	}
	return v
}

// textClass returns what an error of net/http says of its request where it has
// only a text, and no exported error: transient where an HTTP/2 server has not
// processed it, as it refused the stream (RFC 9113 8.7) or named an earlier one
// as the last in a GOAWAY (6.8); unknown where stream or connection were lost
// otherwise; else unclassified.
func textClass(err error) retry.Class {
	for range 100 {
		if v := reflect.ValueOf(err); err == nil || v.Kind() == reflect.Pointer && v.IsNil() {
			break
		}
		// So begins the text of what NoReplay has kept net/http from repeating.
		text := strings.TrimPrefix(err.Error(), "http2: Transport: cannot retry err [")
		switch {
		case strings.HasPrefix(text, "stream error: stream ID "):
			if _, code, _ := strings.Cut(text, "; "); strings.HasPrefix(code, "REFUSED_STREAM") {
				return retry.ClassTransient
			}
			return retry.ClassUnknown
		case strings.HasPrefix(text, "http2: Transport received Server's graceful shutdown GOAWAY"),
			strings.HasPrefix(text, "http2: Transport received GOAWAY from server ErrCode:"):
			return retry.ClassTransient
		case text == "http: server closed idle connection", // and perhaps read the request first
			text == "http2: client connection lost",
			strings.HasPrefix(text, "http2: server sent GOAWAY and closed the connection; "),
			strings.HasPrefix(text, "connection error: ") && strings.HasSuffix(text, "_ERROR"):
			return retry.ClassUnknown
		}
		err = errors.Unwrap(err)
	}
	return retry.ClassUnclassified
}

// sleep drains the response that is not returned, so that its connection can
// be used again, and waits.
func (c *call) sleep(ctx context.Context, d time.Duration) error {
	c.drain()
	if sleep := c.t.policy().Sleep; sleep != nil {
		return sleep(ctx, d)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// trace lets the operations around know what goes out on the wire, where one
// of them keeps records: once for each connection that the request was written
// to. Over HTTP/2 a response may overtake the word that its request went out.
func (c *call) trace(attempt, send context.Context) context.Context {
	var m struct {
		sync.Mutex
		owed bool
	}
	wrote := func() {
		m.Lock()
		defer m.Unlock() // whoever comes second finds it counted
		if m.owed {
			m.owed = false
			wire.Sent(attempt)
		}
	}
	c.wrote = wrote
	return httptrace.WithClientTrace(send, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) {
			m.Lock()
			defer m.Unlock()
			m.owed = true
		},
		WroteHeaders: wrote,
	})
}

// hand gives the response to the caller. What Check and Attempts know of it
// goes along in the context of its request: a client may wrap the body.
func (c *call) hand(resp *http.Response, gaveUp *retry.Error) *http.Response {
	c.done = true
	if c.attempts > 1 || gaveUp != nil {
		o := &outcome{Context: c.request.Context(), attempts: c.attempts, gaveUp: gaveUp}
		o.request = *c.request.WithContext(o)
		resp.Request = &o.request
	}
	switch {
	case resp.Body == http.NoBody:
		c.sent.release()
	case c.sent.used():
		resp.Body = newBody(resp.Body, &c.sent.sendContext)
	}
	return resp
}

// abandon runs in the end, after a panic too: nothing that the caller does not
// get stays open.
func (c *call) abandon() {
	if c.done {
		return
	}
	if c.sent != nil {
		defer c.sent.release() // Close may panic
	}
	c.drain()
	if c.unsent != nil {
		c.unsent.Close()
	}
}

// stopReplay makes net/http think that it could not send out's body again. It
// repeats what is safe by its method or has a key, if the body is none or there
// is a GetBody. An empty body that is not [http.NoBody] is sent as none with
// the methods that seldom have one.
func stopReplay(out *http.Request) {
	out.GetBody = nil
	if hasBody(out) {
		return
	}
	switch out.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions:
		out.Body = noReplay{}
	default:
		if len(out.Header["Idempotency-Key"]) > 0 || len(out.Header["X-Idempotency-Key"]) > 0 {
			out.Body = noReplay{}
		}
	}
}

// noReplay is an empty body that is not http.NoBody.
type noReplay struct{}

func (noReplay) Read([]byte) (int, error) { return 0, io.EOF }
func (noReplay) Close() error             { return nil }
