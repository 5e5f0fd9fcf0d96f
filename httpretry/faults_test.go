package httpretry_test

// Faults of other libraries whose guard has no place of its own in the other
// files; those name theirs in a comment.

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-3d0f8764/retry"
	"github.com/seed-3d0f8764/retry/httpretry"
	"github.com/stretchr/testify/require"
)

// fault B170: the first calls of a zero Transport may come all at once.
func TestAZeroTransportIsReadyForManyAtOnce(t *testing.T) {
	s := host(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) })
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections() // it is what a zero Transport sends through
	client := &http.Client{Transport: new(httpretry.Transport)}
	got := parallel(50, func(n int) (*http.Response, error) { return client.Get(fmt.Sprint(s.URL, "/", n)) })
	for n, path := range got {
		require.Equal(t, fmt.Sprint("/", n), path)
	}
}

// fault B181: a panic of any function that a Transport calls passes through, and
// leaves Transport, budget and gate as they were.
func TestATransportWorksAfterAPanic(t *testing.T) {
	for name, breaks := range map[string]func(tr *httpretry.Transport, boom func()){
		"Key": func(tr *httpretry.Transport, boom func()) { tr.Key = func() string { boom(); return "k" } },
		"hook": func(tr *httpretry.Transport, boom func()) {
			tr.Classify = func(*http.Response) (retry.Verdict, bool) { boom(); return retry.Verdict{}, false }
		},
		"Policy.Classify": func(tr *httpretry.Transport, boom func()) {
			tr.Policy.Classify = func(err error) retry.Verdict { boom(); return retry.Classify(err) }
		},
		"Observe": func(tr *httpretry.Transport, boom func()) {
			tr.Policy.Observe = func(context.Context, retry.Record) { boom() }
		},
		"Sleep": func(tr *httpretry.Transport, boom func()) {
			tr.Policy.Sleep = func(context.Context, time.Duration) error { boom(); return nil }
		},
		"Base": func(tr *httpretry.Transport, boom func()) {
			tr.Base = roundTripper(func(*http.Request) (*http.Response, error) { boom(); return nil, nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			budget := &retry.Bucket{Capacity: 1, PerSuccess: -1, Refund: -1}
			p := quick()
			p.Budget, p.Gate = budget, &retry.PacedGate{Start: 1}
			p.Backoff = retry.Backoff{Base: -1}
			tr := &httpretry.Transport{Base: script(gives(503), gives(200)), Policy: p, Key: func() string { return "k" }}
			broken := true
			breaks(tr, func() {
				if broken {
					panic(name)
				}
			})
			var body *tracked
			send := func() (*http.Response, error) {
				body = track("order")
				req := request(t, "POST", "order")
				req.Body = body
				return tr.RoundTrip(req)
			}
			require.PanicsWithValue(t, name, func() { send() })
			_, closed := body.state()
			require.Equal(t, 1, closed)
			require.Equal(t, 1.0, budget.Tokens(), "nothing was paid for")

			broken = false
			tr.Base = script(gives(503), gives(200))
			resp, err := send()
			require.NoError(t, err)
			require.Equal(t, 200, resp.StatusCode)
			require.Equal(t, 2, httpretry.Attempts(resp))
			require.Zero(t, budget.Tokens())
		})
	}
}

// faults B36, B53: blanks around the value of a header that was set past net/http
// are not part of it, and one that is malformed is no hint and no failure.
func TestABlankOrBadRetryAfterIsStillRepeated(t *testing.T) {
	for value, wait := range map[string]time.Duration{
		" 7\t": 7 * time.Second, "\t Thu, 01 Jan 1970 00:00:00 GMT ": 0,
		"1m0s": 0, "soon": 0, "": 0, ";": 0, "1.5": 0, "-1": 0, "²": 0, "１２０": 0, strings.Repeat("x", 1<<16): 0,
	} {
		p, slept := waits(0)
		p.Spread = -1
		b := script(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {value}}, Body: track("busy")}, nil
		}, gives(200))
		resp, err := exchange(t, &httpretry.Transport{Base: b, Policy: p}, request(t, "GET", ""))
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode, "%q", value)
		require.Equal(t, []time.Duration{wait}, *slept, "%q", value)
	}
}

// fault B48: Retry-After says when, never whether: a success is not sent again, nor
// is a refusal.
func TestRetryAfterNeverRepeatsAnything(t *testing.T) {
	for _, code := range []int{200, 201, 202, 301, 304, 400, 404, 413} {
		for _, method := range []string{"GET", "POST"} {
			p, slept := waits(0)
			b := script(gives(code, "Retry-After: 10"))
			resp, err := exchange(t, &httpretry.Transport{Base: b, Policy: p}, request(t, method, ""))
			require.NoError(t, err)
			require.Equal(t, code, resp.StatusCode)
			require.Equal(t, 1, b.calls)
			require.Empty(t, *slept)
		}
	}
}
