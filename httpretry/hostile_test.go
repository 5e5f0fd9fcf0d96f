package httpretry_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
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

// hostile is an http.Transport whose server is speak: it gets each connection
// once the beginning of a request was read, and closes it by returning.
func hostile(t *testing.T, speak func(net.Conn)) *http.Transport {
	n := newNetwork()
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := n.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				defer conn.Close()
				conn.Read(make([]byte, 64<<10))
				speak(conn)
			})
		}
	})
	base := &http.Transport{DialContext: n.Dial}
	t.Cleanup(func() {
		base.CloseIdleConnections()
		n.Close()
		served.Wait()
	})
	return base
}

var everySignal = []httpretry.Signal{httpretry.StripeShouldRetry, httpretry.XShouldRetry, httpretry.RetryAfterMS, httpretry.XMSRetryAfterMS,
	httpretry.RetryAfter, httpretry.RateLimit, httpretry.RateLimitReset, httpretry.GitHubReset, httpretry.BybitReset}

// Values of a megabyte and thousands of lines are read or ignored, and appear
// in no text.
func TestHeadersOfAnyLength(t *testing.T) {
	const lines = 10_000
	for name, values := range map[string][]string{
		"Retry-After":         {strings.Repeat("9", 1<<20) + "x"},
		"Date":                {strings.Repeat(" ", 1<<20)},
		"Retry-After-Ms":      {strings.Repeat("0", 1<<20) + "x"},
		"Ratelimit":           {`"` + strings.Repeat("a", 1<<20)},
		"X-Should-Retry":      {strings.Repeat("true", 1<<18)},
		"Stripe-Should-Retry": {strings.Repeat("false", 1<<18)},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := &watch{}
			base := script(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 503, Header: http.Header{name: values}, Body: http.NoBody}, nil
			})
			tr := &httpretry.Transport{Base: base, Policy: atOnce(3, w), Signals: everySignal}
			resp, err := tr.RoundTrip(request(t, "GET", ""))
			require.NoError(t, err)
			require.Equal(t, 3, httpretry.Attempts(resp), name)
			require.Less(t, len(httpretry.Check(resp).Error()), 200)
			for _, r := range w.records {
				require.Less(t, len(r.LogValue().String()), 1000)
				require.Zero(t, r.Hint)
			}
		})
	}
	many := make([]string, lines)
	for n := range many {
		many[n] = "soon"
	}
	many[lines/2] = "7"
	resp := response(t, 503, "")
	resp.Header["Retry-After"] = many
	require.Equal(t, 7*time.Second, hintOf(httpretry.Check(resp)))
}

// A body that trickles is drained for a tenth of a second, no longer, and the
// next attempt is made.
func TestTricklingBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := hostile(t, func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 503 Down\r\nTransfer-Encoding: chunked\r\n\r\n")
			for {
				if _, err := io.WriteString(c, "1\r\nx\r\n"); err != nil {
					return
				}
				time.Sleep(9 * time.Millisecond)
			}
		})
		start := time.Now()
		tr := &httpretry.Transport{Base: base, Policy: atOnce(3, &watch{})}
		resp, err := tr.RoundTrip(request(t, "GET", ""))
		require.NoError(t, err)
		require.Equal(t, 503, resp.StatusCode)
		require.Equal(t, 3, httpretry.Attempts(resp))
		require.Equal(t, 200*time.Millisecond, time.Since(start))
		require.NoError(t, resp.Body.Close())
	})
}

// 1xx without end is ended by AttemptTimeout, which they do not put off.
func TestEndless1xx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := hostile(t, func(c net.Conn) {
			for {
				if _, err := io.WriteString(c, "HTTP/1.1 103 Early Hints\r\n\r\n"); err != nil {
					return
				}
				time.Sleep(7 * time.Millisecond)
			}
		})
		start := time.Now()
		p := atOnce(3, &watch{})
		p.AttemptTimeout = time.Second
		resp, err := (&httpretry.Transport{Base: base, Policy: p}).RoundTrip(request(t, "GET", ""))
		require.Nil(t, resp)
		require.ErrorIs(t, err, retry.ErrAttempts)
		require.Equal(t, 3*time.Second, time.Since(start))
	})
}

// Retry-After: 0, for ever, is waited for with the own wait, never less (fault B41).
func TestRetryAfterZeroForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, base := time.Now(), script(gives(429, "Retry-After: 0"))
		w := &watch{}
		p := &retry.Policy{MaxAttempts: -1, MaxElapsed: 10 * time.Second, Rand: func() float64 { return 0.5 }, Observe: w.Observe}
		resp, err := (&httpretry.Transport{Base: base, Policy: p}).RoundTrip(request(t, "GET", ""))
		require.NoError(t, err)
		require.ErrorIs(t, httpretry.Check(resp), retry.ErrDeadline)
		require.Less(t, time.Since(start), 10*time.Second)
		require.Less(t, base.calls, 20)
		for _, r := range w.records[:len(w.records)-1] {
			require.GreaterOrEqual(t, r.Wait, r.OwnWait)
			require.Positive(t, r.OwnWait)
		}
	})
}

// A hint of centuries, or of more digits than a number has, ends the call at
// once with the response (faults B29, B44).
func TestHintOfCenturies(t *testing.T) {
	for _, value := range []string{"9999999999", strings.Repeat("9", 1<<20), "Fri, 31 Dec 9999 23:59:59 GMT"} {
		synctest.Test(t, func(t *testing.T) {
			start, base := time.Now(), script(gives(429, "Retry-After: "+value))
			resp, err := (&httpretry.Transport{Base: base}).RoundTrip(request(t, "GET", ""))
			require.NoError(t, err)
			require.Equal(t, "Too Many Requests", text(t, resp))
			require.ErrorIs(t, httpretry.Check(resp), retry.ErrHint)
			require.Equal(t, 1, base.calls)
			require.Equal(t, start, time.Now())
		})
	}
}

// A Content-Length that is not that of the body does no harm to the attempts
// after it, whether the body is drained or the caller's.
func TestContentLengthThatLies(t *testing.T) {
	for name, lie := range map[string]string{
		"too long":  "Content-Length: 100\r\n\r\nhalf",
		"too short": "Content-Length: 1\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged",
		"both":      "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\nhalf",
		"huge":      "Content-Length: 9223372036854775807\r\n\r\nhalf",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var conns atomic.Int64
				base := hostile(t, func(c net.Conn) {
					if conns.Add(1) < 3 {
						io.WriteString(c, "HTTP/1.1 503 Down\r\n"+lie)
					} else {
						io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone")
					}
				})
				p := atOnce(4, &watch{})
				p.Backoff = retry.Backoff{Base: time.Second} // net/http has noticed by then what it was sent too much
				p.Rand = func() float64 { return 0.5 }
				resp, err := (&httpretry.Transport{Base: base, Policy: p}).RoundTrip(request(t, "GET", ""))
				require.NoError(t, err)
				require.Equal(t, "done", text(t, resp))
				require.Equal(t, 3, httpretry.Attempts(resp))
			})
		})
	}
}

// A redirect loop ends as http.Client ends it, and is not gone round again
// (fault B144).
func TestRedirectLoop(t *testing.T) {
	var ran atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ran.Add(1)
		http.Redirect(w, r, "/", http.StatusTemporaryRedirect)
	}))
	defer s.Close()
	c, p := client(t, &httpretry.Transport{})
	w := &watch{}
	err := retry.Run(t.Context(), atOnce(3, w), func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
		require.NoError(t, err)
		resp, err := c.Do(req)
		if resp != nil {
			resp.Body.Close()
		}
		return err
	})
	require.ErrorContains(t, err, "stopped after 10 redirects")
	require.EqualValues(t, 10, ran.Load())
	require.EqualValues(t, 10, p.heads.Load())
	require.Len(t, w.records, 1)
	require.Equal(t, 10, w.records[0].Sends)
}

// Nothing secret of a URL or a header is in an error, a record or a log, of
// the Transport or of a Do around the client (fault B156).
func TestNoSecretsInTexts(t *testing.T) {
	for name, base := range map[string]http.RoundTripper{
		"no connection": &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
		}},
		"a status": script(gives(503, "Set-Cookie: s3cret", "Retry-After: s3cret")),
	} {
		t.Run(name, func(t *testing.T) {
			var logs bytes.Buffer
			observe := retry.LogRecords(slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelDebug})))
			at := func(n int) *retry.Policy {
				return &retry.Policy{MaxAttempts: n, Backoff: retry.Backoff{Base: -1}, Observe: observe, Keep: 9}
			}
			tr := &httpretry.Transport{Base: base, Policy: at(2)}
			request := func(ctx context.Context) *http.Request {
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://s3cret:s3cret@venue.example/order?token=s3cret#s3cret", strings.NewReader("s3cret"))
				require.NoError(t, err)
				req.Header.Set("Authorization", "Bearer s3cret")
				req.Header.Set("Idempotency-Key", "s3cret")
				return req
			}
			texts := func(err error) {
				require.Error(t, err)
				require.NotContains(t, err.Error(), "s3cret")
				if e, ok := errors.AsType[*retry.Error](err); ok {
					for _, r := range e.Records {
						require.NotContains(t, r.LogValue().String(), "s3cret")
					}
				}
			}
			resp, err := tr.RoundTrip(request(t.Context()))
			if err == nil {
				err = httpretry.Check(resp)
				resp.Body.Close()
			}
			texts(err)
			c := &http.Client{Transport: tr}
			texts(retry.Run(t.Context(), at(2), func(ctx context.Context) error {
				resp, err := c.Do(request(ctx))
				if err != nil {
					return err
				}
				defer resp.Body.Close()
				return httpretry.Check(resp)
			}))
			require.NotEmpty(t, logs.String())
			require.NotContains(t, logs.String(), "s3cret")
		})
	}
}
