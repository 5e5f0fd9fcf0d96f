package httpretry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3d0f8764/retry"
	"github.com/seed-3d0f8764/retry/httpretry"
)

// The contract of http.RoundTripper, kept to the letter, against servers on loopback.

// replies is a server that gives one answer after the other, the last again and
// again, and remembers what it was sent.
type replies struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string
	heads  []http.Header
	conns  atomic.Int64
}

func serve(t *testing.T, steps ...http.HandlerFunc) *replies {
	s := &replies{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.bodies, s.heads = append(s.bodies, string(body)), append(s.heads, r.Header.Clone())
		step := steps[min(len(s.bodies), len(steps))-1]
		s.mu.Unlock()
		step(w, r)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.conns.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func (s *replies) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.bodies)
}

// status replies with code, fields ("Name: value") and its text.
func status(code int, fields ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, f := range fields {
			name, value, _ := strings.Cut(f, ": ")
			w.Header().Add(name, value)
		}
		w.WriteHeader(code)
		fmt.Fprint(w, http.StatusText(code))
	}
}

// retryingClient is one with a Transport of its own, whose waits take no time. It returns the
// waits, too.
func retryingClient(t *testing.T, tr *httpretry.Transport) (*http.Client, *[]time.Duration) {
	var waits []time.Duration
	p := retry.Policy{}
	if tr.Policy != nil {
		p = *tr.Policy
	}
	if p.Sleep == nil {
		p.Sleep = func(ctx context.Context, d time.Duration) error { waits = append(waits, d); return ctx.Err() }
	}
	if p.Rand == nil {
		p.Rand = func() float64 { return 0.5 }
	}
	tr.Policy = &p
	base := &http.Transport{}
	if tr.Base == nil {
		tr.Base = base
	}
	t.Cleanup(base.CloseIdleConnections)
	return &http.Client{Transport: tr}, &waits
}

// acceptance.md: 503 three times: growing windows, 4 calls; always 503: 5 calls;
// 400 and 401: one call. Hints of 0 and of centuries (faults B29, B41).
func TestStatusesOverTheWire(t *testing.T) {
	for name, test := range map[string]struct {
		steps []http.HandlerFunc
		calls int
		code  int
		waits []time.Duration
	}{
		"503 three times": {[]http.HandlerFunc{status(503), status(503), status(503), status(200)}, 4, 200,
			[]time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond}},
		"always 503": {[]http.HandlerFunc{status(503)}, 5, 503,
			[]time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond}},
		"400":                 {[]http.HandlerFunc{status(400)}, 1, 400, nil},
		"401":                 {[]http.HandlerFunc{status(401)}, 1, 401, nil},
		"501":                 {[]http.HandlerFunc{status(501)}, 1, 501, nil},
		"a hint of a day":     {[]http.HandlerFunc{status(503, "Retry-After: 86400")}, 1, 503, nil},
		"a hint of centuries": {[]http.HandlerFunc{status(503, "Retry-After: 99999999999999999999")}, 1, 503, nil},
		"a hint of 0, for ever": {[]http.HandlerFunc{status(429, "Retry-After: 0")}, 5, 429,
			[]time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond}},
		"a hint": {[]http.HandlerFunc{status(429, "Retry-After: 7"), status(200)}, 2, 200, []time.Duration{7500 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, test.steps...)
			c, waits := retryingClient(t, &httpretry.Transport{})
			resp, err := c.Get(s.URL)
			require.NoError(t, err)
			require.Equal(t, test.code, resp.StatusCode)
			require.Equal(t, test.calls, httpretry.Attempts(resp))
			require.Equal(t, http.StatusText(test.code), text(t, resp), "the last answer, unread")
			require.Equal(t, test.calls, s.Calls())
			require.Equal(t, test.waits, *waits)
			require.EqualValues(t, 1, s.conns.Load(), "what came in between was drained: one connection serves all")
		})
	}
}

// acceptance.md, real: 429 with Retry-After: 1, then 503, then 200 under the
// default policy: at least 1 s and under 2.5 s, with draws of 0.5.
func TestAHintThenAFailureInRealTime(t *testing.T) {
	t.Parallel()
	s := serve(t, status(429, "Retry-After: 1"), status(503), status(200))
	c := &http.Client{Transport: &httpretry.Transport{Policy: &retry.Policy{Rand: func() float64 { return 0.5 }}}}
	start := time.Now()
	resp, err := c.Get(s.URL)
	require.NoError(t, err)
	require.Equal(t, "OK", text(t, resp))
	require.Equal(t, 3, s.Calls())
	require.GreaterOrEqual(t, time.Since(start), time.Second)
	require.Less(t, time.Since(start), 2500*time.Millisecond)
}

// What may be repeated: the method table, a key, a mark; no over yes (faults B128, B129).
func TestWhichRequestsAreRepeated(t *testing.T) {
	for name, test := range map[string]struct {
		method, key, value string
		mark               retry.Effect
		calls              int
	}{
		"GET":                      {"GET", "", "", 0, 2},
		"HEAD":                     {"HEAD", "", "", 0, 2},
		"PUT":                      {"PUT", "", "", 0, 2},
		"DELETE":                   {"DELETE", "", "", 0, 2},
		"POST":                     {"POST", "", "", 0, 1},
		"PATCH":                    {"PATCH", "", "", 0, 1},
		"get in small letters":     {"get", "", "", 0, 1},
		"POST with a key":          {"POST", "Idempotency-Key", "k", 0, 2},
		"POST with an x-key":       {"POST", "X-Idempotency-Key", "k", 0, 2},
		"POST with an empty key":   {"POST", "Idempotency-Key", "", 0, 1},
		"POST, marked":             {"POST", "", "", retry.Idempotent, 2},
		"a search by POST, marked": {"POST", "", "", retry.ReadOnly, 2},
		"GET, marked no":           {"GET", "", "", retry.Mutation, 1},
		"with a key, marked no":    {"POST", "Idempotency-Key", "k", retry.Mutation, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, status(503), status(200))
			c, _ := retryingClient(t, &httpretry.Transport{Policy: &retry.Policy{Effect: retry.ReadOnly}}) // is ignored
			ctx := t.Context()
			if test.mark != 0 {
				ctx = httpretry.WithEffect(ctx, test.mark)
			}
			req, err := http.NewRequestWithContext(ctx, test.method, s.URL, nil)
			require.NoError(t, err)
			if test.key != "" {
				req.Header.Set(test.key, test.value)
			}
			resp, err := c.Do(req)
			require.NoError(t, err)
			text(t, resp)
			require.Equal(t, test.calls, s.Calls())
		})
	}
}

// A key is made once per request, is the same on all its attempts, and never
// replaces the caller's; the caller's request is not touched (faults B114, B124, B132).
func TestKeyIsMadeOncePerRequest(t *testing.T) {
	s := serve(t, status(503), status(503), status(200))
	made := 0
	c, _ := retryingClient(t, &httpretry.Transport{Key: func() string { made++; return fmt.Sprint("key-", made) }})
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL, strings.NewReader("body"))
	require.NoError(t, err)
	resp, err := c.Do(req)
	require.NoError(t, err)
	text(t, resp)
	require.Equal(t, 1, made)
	require.Equal(t, []string{"body", "body", "body"}, s.bodies)
	for _, h := range s.heads {
		require.Equal(t, []string{"key-1"}, h["Idempotency-Key"])
	}
	require.Empty(t, req.Header)

	req.Body, _ = req.GetBody()
	req.Header.Set("Idempotency-Key", "mine")
	resp, err = c.Do(req)
	require.NoError(t, err)
	text(t, resp)
	require.Equal(t, 1, made)
	require.Equal(t, "mine", s.heads[3].Get("Idempotency-Key"))
}

// A body that cannot be replayed is sent once, and what came of it returned.
func TestABodyWithoutGetBodyIsSentOnce(t *testing.T) {
	s := serve(t, status(503), status(200))
	c, _ := retryingClient(t, &httpretry.Transport{})
	req, err := http.NewRequestWithContext(t.Context(), "PUT", s.URL, io.MultiReader(strings.NewReader("body")))
	require.NoError(t, err)
	resp, err := c.Do(req)
	require.NoError(t, err)
	require.Equal(t, 503, resp.StatusCode)
	text(t, resp)
	require.Equal(t, 1, s.Calls())
	require.ErrorIs(t, httpretry.Check(resp), retry.ErrAttempts)
}

// closeCounter counts how often a body is closed.
type closeCounter struct {
	io.Reader
	closed *atomic.Int64
}

func (c closeCounter) Close() error { c.closed.Add(1); return nil }

// The request's body is closed however it ends, and those that GetBody made.
func TestTheRequestsBodyIsAlwaysClosed(t *testing.T) {
	refuse := func() http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			io.Copy(io.Discard, r.Body)
			r.Body.Close()
			return nil, errors.New("no rule knows this")
		})
	}
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	for name, test := range map[string]struct {
		ctx    context.Context
		base   http.RoundTripper
		policy retry.Policy
	}{
		"an error":             {context.Background(), refuse(), retry.Policy{}},
		"ctx is done already":  {canceled, refuse(), retry.Policy{}},
		"the gate refuses":     {context.Background(), refuse(), retry.Policy{Gate: closedGate{}}},
		"the journal refuses":  {context.Background(), refuse(), retry.Policy{Journal: &retry.Journal{Save: func(context.Context, retry.State) error { return errors.New("full") }}}},
		"a nil answer":         {context.Background(), roundTrip(func(r *http.Request) (*http.Response, error) { r.Body.Close(); return nil, nil }), retry.Policy{}},
		"unreachable, retried": {context.Background(), nil, retry.Policy{}},
	} {
		t.Run(name, func(t *testing.T) {
			opened, closed := atomic.Int64{}, atomic.Int64{}
			open := func() (io.ReadCloser, error) {
				opened.Add(1)
				return closeCounter{strings.NewReader("body"), &closed}, nil
			}
			req, err := http.NewRequestWithContext(test.ctx, "PUT", "http://127.0.0.1:1/", nil)
			require.NoError(t, err)
			req.Body, _ = open()
			req.GetBody, req.ContentLength = open, 4
			policy := test.policy
			c, _ := retryingClient(t, &httpretry.Transport{Base: test.base, Policy: &policy})
			resp, err := c.Transport.RoundTrip(req)
			require.Nil(t, resp)
			require.Error(t, err)
			require.Eventually(t, func() bool { return opened.Load() == closed.Load() }, 5*time.Second, time.Millisecond)
			if name == "unreachable, retried" {
				require.EqualValues(t, 5, opened.Load(), "a fresh reader for each")
			}
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type closedGate struct{}

func (closedGate) Enter(context.Context, retry.Entry) (func(retry.Outcome), error) {
	return nil, errors.New("closed")
}

// A response on which the Transport gave up is permanent for a loop around it,
// with its reason (fault B147).
func TestCheckOfAResponseThatWasGivenUpOn(t *testing.T) {
	s := serve(t, status(503))
	c, _ := retryingClient(t, &httpretry.Transport{Policy: &retry.Policy{MaxAttempts: 3}})
	rounds := 0
	err := retry.Run(t.Context(), nil, func(ctx context.Context) error {
		rounds++
		req, err := http.NewRequestWithContext(retry.Detach(ctx), "GET", s.URL, nil)
		require.NoError(t, err)
		resp, err := c.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		return httpretry.Check(resp)
	})
	require.Equal(t, 1, rounds)
	require.Equal(t, 3, s.Calls())
	require.ErrorIs(t, err, retry.ErrAttempts)
	status := new(retry.StatusError)
	require.ErrorAs(t, err, &status)
	require.Equal(t, 503, status.Code)
}

// A timeout bounds the attempt up to the header; a download longer than it, and
// than the deadline, arrives whole. With CoverBody it does not.
func TestADownloadLongerThanTheTimeout(t *testing.T) {
	slow := func(w http.ResponseWriter, r *http.Request) {
		for range 10 {
			if _, err := fmt.Fprint(w, "0123456789"); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	for _, cover := range []bool{false, true} {
		t.Run(fmt.Sprint("cover ", cover), func(t *testing.T) {
			s := serve(t, slow)
			c, _ := retryingClient(t, &httpretry.Transport{CoverBody: cover, Policy: &retry.Policy{AttemptTimeout: 80 * time.Millisecond, MaxElapsed: 100 * time.Millisecond}})
			resp, err := c.Get(s.URL)
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if cover {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Less(t, len(body), 100)
			} else {
				require.NoError(t, err)
				require.Len(t, body, 100)
			}
		})
	}
}

// A server that hangs before the header: attempt timeouts, repeated for a read and
// not for a POST, whose outcome is unknown (fault B136).
func TestAServerThatHangs(t *testing.T) {
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	s := serve(t, hang, status(200))
	c, _ := retryingClient(t, &httpretry.Transport{Policy: &retry.Policy{AttemptTimeout: 50 * time.Millisecond}})
	resp, err := c.Get(s.URL)
	require.NoError(t, err)
	require.Equal(t, "OK", text(t, resp))
	require.Equal(t, 2, httpretry.Attempts(resp))

	s = serve(t, hang, status(200))
	_, err = c.Post(s.URL+"?secret=1", "text/plain", strings.NewReader("order"))
	require.ErrorIs(t, err, retry.ErrUnknownOutcome)
	require.Equal(t, 1, s.Calls())
	e, ok := errors.AsType[*retry.Error](err)
	require.True(t, ok)
	require.NotContains(t, e.Error(), "secret")
}

// The caller's ctx still ends the body that it reads.
func TestCancellingWhileReadingTheBody(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "begin")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	c, _ := retryingClient(t, &httpretry.Transport{})
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", s.URL, nil)
	require.NoError(t, err)
	resp, err := c.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	_, err = io.ReadFull(resp.Body, make([]byte, 5))
	require.NoError(t, err)
	cancel()
	_, err = io.ReadAll(resp.Body)
	require.ErrorIs(t, err, context.Canceled)
}

// Bodies go through 307 and 308, and each hop is a request of its own (fault B117).
func TestARedirectWithABody(t *testing.T) {
	for _, code := range []int{307, 308} {
		var s *replies
		s = serve(t, status(503), func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, s.URL+"/next", code) }, status(503), status(200))
		c, _ := retryingClient(t, &httpretry.Transport{})
		req, err := http.NewRequestWithContext(t.Context(), "PUT", s.URL, strings.NewReader("body"))
		require.NoError(t, err)
		resp, err := c.Do(req)
		require.NoError(t, err)
		require.Equal(t, "OK", text(t, resp))
		require.Equal(t, []string{"body", "body", "body", "body"}, s.bodies)
	}
}
