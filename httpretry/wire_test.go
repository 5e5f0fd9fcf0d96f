package httpretry_test

import (
	"bytes"
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
	"testing/synctest"
	"time"

	"github.com/seed-3d0f8764/retry"
	"github.com/seed-3d0f8764/retry/httpretry"
	"github.com/stretchr/testify/require"
)

// tap counts the request heads that are written to the connections of a client.
type tap struct{ heads atomic.Int64 }

func (p *tap) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &tapped{c, p}, nil
}

type tapped struct {
	net.Conn
	tap *tap
}

// Write counts the first lines of requests: no body of these tests looks like one.
func (c *tapped) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.tap.heads.Add(int64(bytes.Count(b[:n], []byte(" HTTP/1.1\r\n"))))
	return n, err
}

// client is an http.Client over tr, whose connections are tapped.
func client(t *testing.T, tr *httpretry.Transport) (*http.Client, *tap) {
	p := &tap{}
	base := &http.Transport{DialContext: p.Dial}
	t.Cleanup(base.CloseIdleConnections)
	tr.Base = base
	return &http.Client{Transport: tr}, p
}

// All layers on: net/http's own replay on a kept-alive connection that the
// server drops, Transport and a Do around the client. The records' sends equal
// what the tap saw.
func TestSendsEqualWhatTheTapSaw(t *testing.T) {
	for _, x := range []struct {
		method   string
		noReplay bool
		attempts int // of Transport, for the request into the dead connection
	}{
		{http.MethodGet, false, 1}, // the second send is net/http's own
		{http.MethodGet, true, 2},
		{http.MethodPut, false, 2}, // net/http does not replay a PUT
		{http.MethodPut, true, 2},
	} {
		t.Run(fmt.Sprintf("%s %t", x.method, x.noReplay), func(t *testing.T) {
			var ran atomic.Int64
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				switch ran.Add(1) {
				case 2: // on a connection that was used before, which it drops without an answer
					panic(http.ErrAbortHandler)
				case 4:
					w.WriteHeader(503)
				}
			}))
			defer s.Close()
			inner, outer := &watch{}, &watch{}
			c, p := client(t, &httpretry.Transport{Policy: atOnce(3, inner), NoReplay: x.noReplay})
			for n := range 3 {
				attempts, err := retry.Do(t.Context(), atOnce(3, outer), func(ctx context.Context) (int, error) {
					req, err := http.NewRequestWithContext(ctx, x.method, s.URL, strings.NewReader("hello"))
					require.NoError(t, err)
					if x.method == http.MethodGet {
						req.Body, req.GetBody, req.ContentLength = nil, nil, 0
					}
					resp, err := c.Do(req)
					if err != nil {
						return 0, err
					}
					defer resp.Body.Close()
					_, err = io.Copy(io.Discard, resp.Body)
					return httpretry.Attempts(resp), errors.Join(err, httpretry.Check(resp))
				})
				require.NoError(t, err)
				require.Equal(t, []int{1, x.attempts, 2}[n], attempts)
			}
			require.EqualValues(t, 5, p.heads.Load())
			require.EqualValues(t, 5, ran.Load())
			require.Equal(t, 5, inner.Sends())
			require.Equal(t, 5, outer.Sends())
		})
	}
}

// An answer that comes before the request's body was sent: no deadlock, no
// race, and each body is closed (fault B126).
func TestEarly503s(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(503) }))
	defer s.Close()
	w := &watch{}
	c, p := client(t, &httpretry.Transport{Policy: atOnce(2, w)})
	bodies := &opener{content: strings.Repeat("x", 300<<10)}
	for range 500 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL, nil)
		require.NoError(t, err)
		bodies.put(req)
		resp, err := c.Do(req)
		if err != nil { // the connection was reset before the answer was read
			require.ErrorIs(t, err, retry.ErrAttempts)
			continue
		}
		require.Equal(t, 503, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
	}
	c.CloseIdleConnections()
	require.Eventually(t, func() bool {
		opened, closed := bodies.count()
		return opened == 1000 && closed == 1000
	}, 10*time.Second, time.Millisecond)
	require.EqualValues(t, 1000, w.Sends())
	require.EqualValues(t, 1000, p.heads.Load())
}

// Parallel requests with distinct ids, each failed once: every response is that
// of its request, and no body is another's (fault B172).
func TestParallelRequestsDoNotMix(t *testing.T) {
	var seen sync.Map
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		id := r.Header.Get("Id")
		if _, again := seen.LoadOrStore(id, true); !again || err != nil {
			w.WriteHeader(503)
		}
		fmt.Fprintf(w, "%s %s", id, body)
	}))
	defer s.Close()
	w := &watch{}
	c, p := client(t, &httpretry.Transport{Policy: atOnce(3, w)})
	got := parallel(100, func(n int) (*http.Response, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL, strings.NewReader(fmt.Sprint("body of ", n)))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Id", fmt.Sprint(n))
		return c.Do(req)
	})
	for n := range got {
		require.Equal(t, fmt.Sprintf("%d body of %d", n, n), got[n])
	}
	require.EqualValues(t, p.heads.Load(), w.Sends())
	require.GreaterOrEqual(t, w.Sends(), 200)
}

// raw is a server that answers each connection's first request with text, and
// hangs up.
func raw(t *testing.T, text string) (url string, conns *atomic.Int64) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	conns = new(atomic.Int64)
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Add(1)
			conn.Read(make([]byte, 4096))
			io.WriteString(conn, text)
			conn.Close()
		}
	})
	t.Cleanup(func() { l.Close(); served.Wait() })
	return "http://" + l.Addr().String(), conns
}

// Half a head is a lost answer: repeated for a GET, unknown for a POST. Half a
// body is the reader's to know (fault B143).
func TestHalfAnAnswer(t *testing.T) {
	for _, text := range []string{"", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n"} {
		for method, conns := range map[string]int64{http.MethodGet: 3, http.MethodPost: 1} {
			url, n := raw(t, text)
			w := &watch{}
			c, p := client(t, &httpretry.Transport{Policy: atOnce(3, w)})
			req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
			require.NoError(t, err)
			_, err = c.Do(req)
			e, ok := errors.AsType[*retry.Error](err)
			require.True(t, ok)
			require.Equal(t, map[string]error{http.MethodGet: retry.ErrAttempts, http.MethodPost: retry.ErrUnknownOutcome}[method], e.Reason, "%s %q: %v", method, text, err)
			require.Equal(t, conns, n.Load())
			require.Equal(t, conns, p.heads.Load())
			require.EqualValues(t, conns, w.Sends())
		}
	}
	url, n := raw(t, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
	c, _ := client(t, &httpretry.Transport{Policy: atOnce(3, &watch{})})
	resp, err := c.Get(url)
	require.NoError(t, err)
	require.NoError(t, httpretry.Check(resp))
	body, err := io.ReadAll(resp.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Equal(t, "half", string(body))
	require.NoError(t, resp.Body.Close())
	require.EqualValues(t, 1, n.Load())
}

// A server that does not read: AttemptTimeout ends an attempt in the middle of
// its request, which may have arrived as far as anyone knows.
func TestTimeoutWhileTheRequestIsWritten(t *testing.T) {
	for method, attempts := range map[string]int{http.MethodPut: 3, http.MethodPost: 1} {
		synctest.Test(t, func(t *testing.T) {
			base := hostile(t, func(c net.Conn) { time.Sleep(time.Hour) }) // it has read 64 KiB at most
			w := &watch{}
			p := atOnce(3, w)
			p.AttemptTimeout = time.Second
			bodies := &opener{content: strings.Repeat("x", 1<<20)}
			req := request(t, method, "")
			bodies.put(req)
			start := time.Now()
			resp, err := (&httpretry.Transport{Base: base, Policy: p}).RoundTrip(req)
			require.Nil(t, resp)
			require.ErrorIs(t, err, retry.ErrUnknownOutcome)
			require.Equal(t, time.Duration(attempts)*time.Second, time.Since(start))
			require.Equal(t, attempts, w.Sends())
			synctest.Wait()
			opened, closed := bodies.count()
			require.Equal(t, []int{attempts, attempts}, []int{opened, closed})
		})
	}
}
