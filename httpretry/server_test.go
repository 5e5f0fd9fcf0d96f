package httpretry_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-3d0f8764/retry"
	"github.com/seed-3d0f8764/retry/httpretry"
	"github.com/stretchr/testify/require"
)

// acceptance.md: 503 three times: growing windows, 4 calls; always 503: 5 calls;
// 400 and 401: one call. Hints of 0 and of centuries (faults B29, B41).
func TestStatusesOverTheWire(t *testing.T) {
	for name, test := range map[string]struct {
		steps []http.HandlerFunc
		calls int
		code  int
		body  string
		waits []time.Duration
	}{
		"503 three times": {[]http.HandlerFunc{says(503, "down"), says(503, "down"), says(503, "down"), says(200, "up")}, 4, 200, "up",
			[]time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond}},
		"always 503": {[]http.HandlerFunc{says(503, "down")}, 5, 503, "down",
			[]time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond}},
		"400":                 {[]http.HandlerFunc{says(400, "no")}, 1, 400, "no", nil},
		"401":                 {[]http.HandlerFunc{says(401, "who")}, 1, 401, "who", nil},
		"501":                 {[]http.HandlerFunc{says(501, "what")}, 1, 501, "what", nil},
		"a hint of a day":     {[]http.HandlerFunc{says(503, "down", "Retry-After: 86400")}, 1, 503, "down", nil},
		"a hint of centuries": {[]http.HandlerFunc{says(503, "down", "Retry-After: 99999999999999999999")}, 1, 503, "down", nil},
		"a hint of 0, for ever": {[]http.HandlerFunc{says(429, "busy", "Retry-After: 0")}, 5, 429, "busy",
			[]time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond}},
		"a hint": {[]http.HandlerFunc{says(429, "busy", "Retry-After: 7"), says(200, "up")}, 2, 200, "up", []time.Duration{7500 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			s := host(t, test.steps...)
			p, slept := waits(0.5)
			resp, err := (&http.Client{Transport: &httpretry.Transport{Base: s.base, Policy: p}}).Get(s.URL)
			require.NoError(t, err)
			require.Equal(t, test.code, resp.StatusCode)
			require.Equal(t, test.calls, httpretry.Attempts(resp))
			require.Equal(t, test.body, text(t, resp), "the last answer, unread")
			require.Equal(t, test.calls, s.calls)
			require.Equal(t, test.waits, *slept)
			made, _ := s.open()
			require.Equal(t, 1, made, "what came in between was drained: one connection serves all")
		})
	}
}

// Acceptance: 429 with a hint of a second, then 503, then 200, in real time.
func TestAHintIsWaitedForInRealTime(t *testing.T) {
	t.Parallel()
	s := host(t, says(429, "", "Retry-After: 1"), says(503, ""), says(200, "up"))
	start := time.Now()
	p := &retry.Policy{Rand: func() float64 { return 0.5 }}
	resp, err := (&http.Client{Transport: &httpretry.Transport{Base: s.base, Policy: p}}).Get(s.URL)
	require.NoError(t, err)
	require.Equal(t, "up", text(t, resp))
	require.Equal(t, 3, s.calls)
	require.GreaterOrEqual(t, time.Since(start), time.Second)
	require.Less(t, time.Since(start), 2500*time.Millisecond)
}

// B114, B117: http.Client follows a 307 or 308 with the body, which a
// Transport repeats before and after it.
func TestRedirectsWithABody(t *testing.T) {
	for _, code := range []int{307, 308} {
		s := host(t, says(503, ""), says(code, "", "Location: /elsewhere"), says(503, ""), says(200, "done"))
		client := &http.Client{Transport: &httpretry.Transport{Base: s.base, Policy: quick(), Key: httpretry.NewKey}}
		resp, err := client.Post(s.URL, "text/plain", strings.NewReader("hello"))
		require.NoError(t, err)
		require.Equal(t, "done", text(t, resp))
		require.Equal(t, []string{"hello", "hello", "hello", "hello"}, s.bodies)
		require.Equal(t, "/elsewhere", resp.Request.URL.Path)
		require.Equal(t, 2, httpretry.Attempts(resp), "of the request that it answers")
	}
}

// Timeouts before, in and after the header, over HTTP/1.1.
func TestWhereATimeoutFalls(t *testing.T) {
	for _, c := range []struct {
		name, sends string
		repeated    bool
	}{
		{"before", "", true},
		{"in", "HTTP/1.1 200 OK\r\nContent-Le", true},
		{"after", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := hostile(t, func(conn net.Conn) {
					io.WriteString(conn, c.sends)
					time.Sleep(time.Minute)
					io.WriteString(conn, "lf")
				})
				p := &retry.Policy{AttemptTimeout: time.Second, MaxElapsed: 10 * time.Second, MaxAttempts: 3, Sleep: noWait}
				tr := &httpretry.Transport{Base: base, Policy: p}
				start := time.Now()
				resp, err := exchange(t, tr, request(t, "GET", ""))
				if c.repeated {
					require.ErrorIs(t, err, retry.ErrAttempts)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.Equal(t, 3*time.Second, time.Since(start))
					return
				}
				require.NoError(t, err)
				require.Equal(t, "half", text(t, resp))
				require.Equal(t, time.Minute, time.Since(start))

				tr.CoverBody = true
				start = time.Now()
				resp, err = exchange(t, tr, request(t, "GET", ""))
				require.NoError(t, err)
				data, err := io.ReadAll(resp.Body)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, "ha", string(data))
				require.Equal(t, time.Second, time.Since(start))
				require.NoError(t, resp.Body.Close())
			})
		})
	}
}

// A download longer than AttemptTimeout and MaxElapsed arrives whole, one that
// the caller cancels does not.
func TestALongDownload(t *testing.T) {
	s := host(t, func(w http.ResponseWriter, r *http.Request) {
		for range 10 {
			io.WriteString(w, "0123456789")
			w.(http.Flusher).Flush()
			select {
			case <-time.After(50 * time.Millisecond):
			case <-r.Context().Done():
				return
			}
		}
	})
	tr := &httpretry.Transport{Base: s.base, Policy: &retry.Policy{AttemptTimeout: 300 * time.Millisecond, MaxElapsed: 400 * time.Millisecond}}
	resp, err := (&http.Client{Transport: tr}).Get(s.URL)
	require.NoError(t, err)
	require.Len(t, text(t, resp), 100)

	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", s.URL, nil)
	require.NoError(t, err)
	resp, err = (&http.Client{Transport: tr}).Do(req)
	require.NoError(t, err)
	_, err = io.ReadFull(resp.Body, make([]byte, 15))
	require.NoError(t, err)
	cancel()
	_, err = io.ReadAll(resp.Body)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, resp.Body.Close())
}

// The body of a 101 is a connection that can be written to, for as long as
// one likes.
func TestAnUpgradedConnection(t *testing.T) {
	s := host(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		rw.Flush()
		line, _ := rw.ReadString('\n')
		fmt.Fprint(rw, line)
		rw.Flush()
	})
	for timeout, cover := range map[time.Duration]bool{200 * time.Millisecond: false, time.Minute: true} {
		hook := func(r *http.Response) (retry.Verdict, bool) {
			data, err := io.ReadAll(r.Body) // of a connection there is nothing to see
			return retry.Verdict{}, len(data) > 0 || err != nil
		}
		tr := &httpretry.Transport{Base: s.base, Policy: &retry.Policy{AttemptTimeout: timeout}, CoverBody: cover, Classify: hook}
		req, err := http.NewRequestWithContext(t.Context(), "GET", s.URL, nil)
		require.NoError(t, err)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "echo")
		resp, err := (&http.Client{Transport: tr}).Do(req)
		require.NoError(t, err)
		require.Equal(t, 101, resp.StatusCode)
		conn, ok := resp.Body.(io.ReadWriteCloser)
		require.True(t, ok)
		if !cover {
			time.Sleep(2 * timeout) // really: the timeout must have passed
		}
		_, err = io.WriteString(conn, "hello\n")
		require.NoError(t, err)
		line, err := bufio.NewReader(conn).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "hello\n", line)
		require.NoError(t, conn.Close())
	}
}

// 1xx before the answer reach the caller's own trace, and are no answer.
func TestEarlyHints(t *testing.T) {
	s := host(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</a.css>")
		w.WriteHeader(103)
		w.WriteHeader(503)
	}, says(200, "up"))
	var codes []int
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
		codes = append(codes, code)
		return nil
	}})
	req, err := http.NewRequestWithContext(ctx, "GET", s.URL, nil)
	require.NoError(t, err)
	p := quick()
	p.Observe = (&watch{}).Observe // it adds a trace of its own
	resp, err := (&http.Client{Transport: &httpretry.Transport{Base: s.base, Policy: p}}).Do(req)
	require.NoError(t, err)
	require.Equal(t, "up", text(t, resp))
	require.Equal(t, []int{103}, codes)
}

// Answers without a body are answers, over a connection that is used again.
func TestAnswersWithoutABody(t *testing.T) {
	s := host(t, says(503, ""), says(204, ""), says(503, ""), says(200, ""), says(304, ""))
	client := &http.Client{Transport: &httpretry.Transport{Base: s.base, Policy: &retry.Policy{AttemptTimeout: time.Minute, Sleep: noWait}}}
	resp, err := client.Get(s.URL)
	require.NoError(t, err)
	require.Equal(t, 204, resp.StatusCode)
	require.Equal(t, http.NoBody, resp.Body)
	require.Equal(t, 2, httpretry.Attempts(resp))
	resp, err = client.Head(s.URL)
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode)
	require.Equal(t, http.NoBody, resp.Body)
	resp, err = client.Get(s.URL)
	require.NoError(t, err)
	require.Equal(t, 304, resp.StatusCode)
	require.NoError(t, httpretry.Check(resp))
	made, _ := s.open()
	require.Equal(t, 1, made)
}

// NoReplay changes nothing of what the server sees, but for a POST with a key
// and without a body.
func TestNoReplayOnTheWire(t *testing.T) {
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "POST", "PATCH"} {
		for _, body := range []string{"", "hello"} {
			var seen []string
			s := host(t, func(_ http.ResponseWriter, r *http.Request) {
				seen = append(seen, fmt.Sprint(r.ContentLength, r.TransferEncoding, r.Header))
			})
			for _, no := range []bool{false, true} {
				req, err := http.NewRequestWithContext(t.Context(), method, s.URL, strings.NewReader(body))
				require.NoError(t, err)
				resp, err := (&http.Client{Transport: &httpretry.Transport{Base: s.base, NoReplay: no}}).Do(req)
				require.NoError(t, err)
				text(t, resp)
			}
			require.Equal(t, seen[0], seen[1], method)
		}
	}
}

// No goroutine and no connection is left behind, whatever becomes of the
// requests, many times over.
func TestNothingIsLeftBehind(t *testing.T) {
	before := runtime.NumGoroutine()
	long := strings.Repeat("x", 100<<10)
	s := host(t, func(w http.ResponseWriter, r *http.Request) {
		first := r.Header.Get("Nth") == "1"
		switch path := r.URL.Path; {
		case path == "/stuck":
			<-r.Context().Done()
		case path == "/dropped" && first:
			panic(http.ErrAbortHandler)
		case path == "/upgraded":
			conn, rw, err := w.(http.Hijacker).Hijack()
			if err == nil {
				fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
				rw.Flush()
				conn.Close()
			}
		case path == "/down" || first:
			w.WriteHeader(503)
			io.WriteString(w, long)
		default:
			io.WriteString(w, long)
		}
	})
	p := &retry.Policy{AttemptTimeout: time.Minute, MaxAttempts: 3, Backoff: retry.Backoff{Base: -1}}
	quickly := *p
	quickly.AttemptTimeout = 5 * time.Millisecond
	nth := roundTripper(func(req *http.Request) (*http.Response, error) {
		req = req.Clone(req.Context())
		req.Header.Set("Nth", fmt.Sprint(retry.Attempt(req.Context())))
		return s.base.RoundTrip(req)
	})
	parent, cancel := context.WithCancel(t.Context()) // a long life, on which nothing may hang
	defer cancel()
	send := func(ctx context.Context, p *retry.Policy, method, path string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, method, s.URL+path, strings.NewReader("hello"))
		require.NoError(t, err)
		return (&http.Client{Transport: &httpretry.Transport{Base: nth, Policy: p}}).Do(req)
	}
	returned := func(method, path string, code int, read int64) {
		resp, err := send(parent, p, method, path)
		require.NoError(t, err)
		require.Equal(t, code, resp.StatusCode)
		_, err = io.CopyN(io.Discard, resp.Body, read)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	stop := errors.New("stop")
	for range 20 {
		returned("PUT", "/", 200, 100<<10)
		returned("PUT", "/dropped", 200, 10)
		returned("PUT", "/down", 503, 0)
		returned("POST", "/down", 503, 10)
		returned("GET", "/upgraded", 101, 0)

		_, err := send(parent, &quickly, "PUT", "/stuck")
		require.ErrorIs(t, err, retry.ErrAttempts)
		ctx, cancelOne := context.WithCancelCause(parent)
		time.AfterFunc(2*time.Millisecond, func() { cancelOne(stop) })
		_, err = send(ctx, p, "PUT", "/stuck")
		require.ErrorIs(t, err, stop)
		_, err = send(ctx, p, "PUT", "/")
		require.ErrorIs(t, err, stop)
	}

	s.base.CloseIdleConnections()
	require.Eventually(t, func() bool {
		_, left := s.open()
		return left == 0
	}, 5*time.Second, time.Millisecond)
	s.Close()
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+2 }, 5*time.Second, time.Millisecond) // Eventually has two of its own
}

// An attempt that times out over HTTP/2 fails with a timeout, as over HTTP/1.1.
func TestATimeoutOverHTTP2IsATimeout(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	tr := &httpretry.Transport{Base: s.Client().Transport, Policy: &retry.Policy{AttemptTimeout: 50 * time.Millisecond, MaxAttempts: 2, Sleep: noWait}}
	_, err := (&http.Client{Transport: tr}).Get(s.URL)
	require.ErrorIs(t, err, retry.ErrAttempts)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, context.Canceled)
}
