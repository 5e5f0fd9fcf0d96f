package httpretry_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-3d0f8764/retry"
	"github.com/seed-3d0f8764/retry/httpretry"
	"github.com/stretchr/testify/require"
)

// B120: the last response comes back whole, with a nil error.
func TestTheLastResponseIsReturnedUnread(t *testing.T) {
	last := track("the reason")
	b := script(gives(500), gives(500), func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 500, Body: last}, nil
	})
	p := quick()
	p.MaxAttempts = 3
	req := request(t, "GET", "")
	resp, err := exchange(t, &httpretry.Transport{Base: b, Policy: p}, req)
	require.NoError(t, err)
	eof, closed := last.state()
	require.False(t, eof)
	require.Zero(t, closed)
	require.Equal(t, "the reason", text(t, resp))
	require.Equal(t, 3, b.calls)
	require.Equal(t, 3, httpretry.Attempts(resp))
	_, closed = last.state()
	require.Equal(t, 1, closed)
}

// B121, B144: what does not come back as a response comes back as an error
// that has the reason, and what cannot change is tried once.
func TestAnErrorOfBaseIsReturned(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for name, c := range map[string]struct {
		err    error
		method string
		calls  int
		reason error
	}{
		"B121 connection refused":           {refused, "GET", 5, retry.ErrAttempts},
		"a POST that was never sent":        {refused, "POST", 5, retry.ErrAttempts},
		"reset":                             {syscall.ECONNRESET, "GET", 5, retry.ErrAttempts},
		"reset of a POST":                   {syscall.ECONNRESET, "POST", 1, retry.ErrUnknownOutcome},
		"the answer lost":                   {io.EOF, "GET", 5, retry.ErrAttempts},
		"the answer of a POST lost":         {io.EOF, "POST", 1, retry.ErrUnknownOutcome},
		"idle connection closed":            {errors.New("http: server closed idle connection"), "PUT", 5, retry.ErrAttempts},
		"idle connection closed on a POST":  {errors.New("http: server closed idle connection"), "POST", 1, retry.ErrUnknownOutcome},
		"B144 unknown authority":            {x509.UnknownAuthorityError{}, "GET", 1, retry.ErrUnclassified},
		"B144 unsupported protocol scheme":  {errors.New("unsupported protocol scheme \"ftp\""), "GET", 1, retry.ErrUnclassified},
		"B144 stopped after ten redirects":  {errors.New("stopped after 10 redirects"), "GET", 1, retry.ErrUnclassified},
		"a text that only resembles a loss": {errors.New("proxy: http: server closed idle connection"), "PUT", 1, retry.ErrUnclassified},
	} {
		t.Run(name, func(t *testing.T) {
			b := script(fails(c.err))
			_, err := exchange(t, &httpretry.Transport{Base: b, Policy: quick()}, request(t, c.method, ""))
			require.ErrorIs(t, err, c.err)
			require.ErrorIs(t, err, c.reason)
			require.Equal(t, c.calls, b.calls)
			_, ok := err.(*retry.Error)
			require.True(t, ok)
		})
	}
	_, err := (&http.Client{Transport: &httpretry.Transport{Policy: quick()}}).Get("ftp://a.example/")
	require.ErrorContains(t, err, "unsupported protocol scheme")
	require.ErrorIs(t, err, retry.ErrUnclassified)
}

// A Base that breaks the contract of http.RoundTripper does not break that of
// Transport.
func TestABrokenBase(t *testing.T) {
	t.Run("neither", func(t *testing.T) {
		b := script(func(*http.Request) (*http.Response, error) { return nil, nil })
		_, err := exchange(t, &httpretry.Transport{Base: b, Policy: quick()}, request(t, "GET", ""))
		require.ErrorIs(t, err, retry.ErrUnclassified)
		require.ErrorContains(t, err, "neither")
		require.Equal(t, 1, b.calls)
	})
	t.Run("both", func(t *testing.T) {
		body, lost := track("x"), errors.New("lost")
		b := script(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: body}, lost
		})
		_, err := exchange(t, &httpretry.Transport{Base: b, Policy: quick()}, request(t, "GET", ""))
		require.ErrorIs(t, err, lost)
		_, closed := body.state()
		require.Equal(t, 1, closed)

		b = script(func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: 200}, lost })
		_, err = exchange(t, &httpretry.Transport{Base: b, Policy: quick()}, request(t, "GET", ""))
		require.ErrorIs(t, err, lost)
	})
	t.Run("no body", func(t *testing.T) {
		b := script(func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: 503}, nil })
		resp, err := exchange(t, &httpretry.Transport{Base: b, Policy: quick()}, request(t, "GET", ""))
		require.NoError(t, err)
		require.Empty(t, text(t, resp))
		require.Equal(t, 5, b.calls)
	})
}

// B124: the caller's request is as it was, also with a key added, replays
// stopped, and two goroutines on it.
func TestTheCallersRequestIsNotModified(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		for _, body := range []string{"", "hello"} {
			req := request(t, method, body)
			req.Header.Set("X-Id", "7")
			header, address, before := maps.Clone(req.Header), *req.URL, *req
			tr := &httpretry.Transport{Base: script(gives(503), gives(503), gives(200)), Policy: quick(), Key: httpretry.NewKey, NoReplay: true}
			resp, err := exchange(t, tr, req)
			require.NoError(t, err)
			require.Equal(t, 200, resp.StatusCode)
			require.Equal(t, header, req.Header)
			require.Equal(t, address, *req.URL)
			before.GetBody, req.GetBody = nil, nil // not to be compared
			require.True(t, reflect.DeepEqual(before, *req))
		}
	}

	req := request(t, "POST", "")
	tr := &httpretry.Transport{Base: script(gives(503), gives(503), gives(200)), Policy: quick(), Key: httpretry.NewKey}
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		wg.Go(func() { _, errs[i] = tr.RoundTrip(req) })
	}
	wg.Wait()
	require.Equal(t, []error{nil, nil}, errs)
	require.Empty(t, req.Header)
}

// The caller's body is closed whatever happens: refused before it is sent,
// sent once, sent again, and on a panic.
func TestEveryEarlyReturnClosesTheRequestsBody(t *testing.T) {
	post := func(ctx context.Context) (*http.Request, *tracked) {
		body := track("hello")
		req, err := http.NewRequestWithContext(ctx, "PUT", "http://venue.example/", body)
		require.NoError(t, err)
		return req, body
	}
	t.Run("never sent", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		req, body := post(ctx)
		b := script(gives(200))
		_, err := exchange(t, &httpretry.Transport{Base: b}, req)
		require.ErrorIs(t, err, context.Canceled)
		_, closed := body.state()
		require.Equal(t, 1, closed)
		require.Zero(t, b.calls)
	})
	full := errors.New("full")
	for name, p := range map[string]*retry.Policy{
		"the gate refuses":    {Gate: refusing{full}},
		"the journal refuses": {Journal: &retry.Journal{Save: func(context.Context, retry.State) error { return full }}},
	} {
		t.Run(name, func(t *testing.T) {
			req, body := post(t.Context())
			b := script(gives(200))
			_, err := exchange(t, &httpretry.Transport{Base: b, Policy: p}, req)
			require.ErrorIs(t, err, full)
			_, closed := body.state()
			require.Equal(t, 1, closed)
			require.Zero(t, b.calls)
		})
	}
	t.Run("no connection", func(t *testing.T) {
		req, bodies := request(t, "PUT", ""), &opener{content: "hello"}
		bodies.put(req)
		dial := func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		}
		_, err := exchange(t, &httpretry.Transport{Base: &http.Transport{DialContext: dial}, Policy: quick()}, req)
		require.ErrorIs(t, err, retry.ErrAttempts)
		require.Eventually(t, func() bool { // net/http may close them later
			opened, closed := bodies.count()
			return opened == 5 && closed == 5
		}, 5*time.Second, time.Millisecond)
	})
	t.Run("sent once", func(t *testing.T) {
		req, body := post(t.Context())
		resp, err := exchange(t, &httpretry.Transport{Base: script(gives(503)), Policy: quick()}, req)
		require.NoError(t, err)
		require.Equal(t, 503, resp.StatusCode)
		_, closed := body.state()
		require.Equal(t, 1, closed)
	})
	t.Run("panic of Base", func(t *testing.T) {
		req, body := post(t.Context())
		require.PanicsWithValue(t, "base", func() {
			(&httpretry.Transport{Base: roundTripper(func(*http.Request) (*http.Response, error) { panic("base") })}).RoundTrip(req)
		})
		_, closed := body.state()
		require.Equal(t, 1, closed)
	})
	t.Run("panic of Base in the second attempt", func(t *testing.T) {
		answered := track("x")
		steps := script(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 503, Body: answered}, nil
		}, func(*http.Request) (*http.Response, error) { panic("base") })
		require.PanicsWithValue(t, "base", func() {
			(&httpretry.Transport{Base: steps, Policy: quick()}).RoundTrip(request(t, "GET", ""))
		})
		_, closed := answered.state()
		require.Equal(t, 1, closed)
	})
	t.Run("panic of the hook", func(t *testing.T) {
		answered := track("x")
		tr := &httpretry.Transport{Base: script(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: answered}, nil
		}), Classify: func(*http.Response) (retry.Verdict, bool) { panic("hook") }}
		require.PanicsWithValue(t, "hook", func() { tr.RoundTrip(request(t, "GET", "")) })
		_, closed := answered.state()
		require.Equal(t, 1, closed)
	})
	t.Run("panic of Key", func(t *testing.T) {
		req, body := post(t.Context())
		req.Method = "POST"
		tr := &httpretry.Transport{Base: script(gives(200)), Key: func() string { panic("key") }}
		require.PanicsWithValue(t, "key", func() { tr.RoundTrip(req) })
		_, closed := body.state()
		require.Equal(t, 1, closed)
	})
}

// refusing is a gate that nothing passes.
type refusing struct{ err error }

func (r refusing) Enter(context.Context, retry.Entry) (func(retry.Outcome), error) { return nil, r.err }

// B114, B117: each attempt has a fresh reader of the same body.
func TestEachAttemptHasAFreshBody(t *testing.T) {
	req := request(t, "PUT", "hello")
	original, fresh := req.Body, 0
	get := req.GetBody
	var given []io.ReadCloser
	req.GetBody = func() (io.ReadCloser, error) {
		fresh++
		return get()
	}
	b := script(gives(503), gives(503), gives(200))
	tr := &httpretry.Transport{Policy: quick(), Base: roundTripper(func(r *http.Request) (*http.Response, error) {
		given = append(given, r.Body)
		return b.RoundTrip(r)
	})}
	resp, err := exchange(t, tr, req)
	require.NoError(t, err)
	require.Equal(t, 3, httpretry.Attempts(resp))
	require.Equal(t, []string{"hello", "hello", "hello"}, b.bodies)
	require.Equal(t, 2, fresh)
	require.True(t, given[0] == original)
	require.False(t, given[1] == given[2])
}

// A body without GetBody is sent once and what came of it returned; one whose
// GetBody fails ends the operation with that error.
func TestABodyThatCannotBeReplayed(t *testing.T) {
	req := request(t, "PUT", "hello")
	req.GetBody = nil
	b := script(gives(503), gives(200))
	resp, err := exchange(t, &httpretry.Transport{Base: b, Policy: quick()}, req)
	require.NoError(t, err)
	require.Equal(t, 503, resp.StatusCode)
	require.Equal(t, 1, b.calls)
	require.ErrorIs(t, httpretry.Check(resp), retry.ErrAttempts)
	status, _ := errors.AsType[*retry.StatusError](httpretry.Check(resp))
	require.Equal(t, 503, status.Code)
	require.ErrorContains(t, httpretry.Check(resp), "its body cannot be sent again (no GetBody)")

	req = request(t, "PUT", "hello")
	req.GetBody = nil
	single := quick()
	single.MaxAttempts = 1
	resp, err = exchange(t, &httpretry.Transport{Base: script(gives(503)), Policy: single}, req)
	require.NoError(t, err)
	require.NotContains(t, httpretry.Check(resp).Error(), "GetBody", "the limit is the user's")

	req = request(t, "PUT", "hello")
	req.GetBody = nil
	_, err = exchange(t, &httpretry.Transport{Base: script(fails(io.EOF)), Policy: quick()}, req)
	require.ErrorIs(t, err, io.EOF)
	require.ErrorContains(t, err, "its body cannot be sent again (no GetBody)")

	req = request(t, "PUT", "hello")
	gone := errors.New("the file is gone")
	req.GetBody = func() (io.ReadCloser, error) { return nil, gone }
	b = script(gives(503), gives(200))
	_, err = exchange(t, &httpretry.Transport{Base: b, Policy: quick()}, req)
	require.ErrorIs(t, err, gone)
	require.ErrorIs(t, err, retry.ErrPermanent)
	require.ErrorIs(t, err, retry.ErrUnknownOutcome, "what the 503 has left unknown stays so")
	require.Equal(t, 1, b.calls)

	for _, none := range []io.ReadCloser{nil, http.NoBody} {
		req = request(t, "PUT", "")
		req.Body = none
		b = script(gives(503), gives(200))
		resp, err = exchange(t, &httpretry.Transport{Base: b, Policy: quick()}, req)
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode, "no body is one that can be replayed")
	}
}

// B118: responses in between are read and closed before the next attempt.
func TestResponsesInBetweenAreDrained(t *testing.T) {
	bodies := []*tracked{track("first"), track("second"), track("third")}
	calls := 0
	tr := &httpretry.Transport{Policy: quick(), Base: roundTripper(func(*http.Request) (*http.Response, error) {
		for _, b := range bodies[:calls] {
			eof, closed := b.state()
			require.True(t, eof)
			require.Equal(t, 1, closed)
		}
		code := 503
		if calls == 2 {
			code = 200
		}
		calls++
		return &http.Response{StatusCode: code, Body: bodies[calls-1], ContentLength: -1}, nil
	})}
	resp, err := exchange(t, tr, request(t, "GET", ""))
	require.NoError(t, err)
	_, closed := bodies[2].state()
	require.Zero(t, closed)
	require.Equal(t, "third", text(t, resp))
}

// A response in between is read up to 64 KiB, whatever it unpacks to. One that
// says to be longer is not begun, nor is the connection of a 101 that a hook
// calls a failure (fault B165).
func TestWhatIsDrained(t *testing.T) {
	const limit = 64 << 10
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	z.Write(make([]byte, 10<<20))
	require.NoError(t, z.Close())
	unpacked, err := gzip.NewReader(&bomb)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		code int
		says int64 // Content-Length
		body io.Reader
		read int
		eof  bool
	}{
		"the most":        {503, limit, strings.NewReader(strings.Repeat("x", limit)), limit, true},
		"one too many":    {503, limit + 1, zeros{}, 0, false},
		"it does not say": {503, -1, strings.NewReader(strings.Repeat("x", limit)), limit, true},
		"endless":         {503, -1, zeros{}, limit + 1, false},
		"a bomb":          {503, -1, unpacked, limit + 1, false},
		"a connection":    {101, -1, zeros{}, 0, false},
	} {
		body := &tracked{r: c.body}
		tr := &httpretry.Transport{Policy: quick(), Base: script(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: c.code, Body: body, ContentLength: c.says}, nil
		}, gives(200)), Classify: func(r *http.Response) (retry.Verdict, bool) {
			return retry.Verdict{Class: retry.ClassTransient}, r.StatusCode == c.code
		}}
		resp, err := exchange(t, tr, request(t, "GET", ""))
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, c.read, body.read, name)
		require.Equal(t, c.eof, body.eof, name)
		require.Equal(t, 1, body.closed, name)
	}
}

// zeros is a body without an end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A response in between that trickles is read for 100 ms, also where Base lets
// its body know nothing of the request's context.
func TestDrainIsBoundedWithoutTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := &trickle{}
		tr := &httpretry.Transport{Policy: quick(), Base: script(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 503, Body: body, ContentLength: -1}, nil
		}, gives(200))}
		start := time.Now()
		resp, err := exchange(t, tr, request(t, "GET", ""))
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, 120*time.Millisecond, time.Since(start), "the last read began in time")
		require.Equal(t, 4, body.read)
		require.True(t, body.closed)
	})
}

// trickle is a body without an end, a byte every 30 ms.
type trickle struct {
	read   int
	closed bool
}

func (b *trickle) Read([]byte) (int, error) {
	time.Sleep(30 * time.Millisecond)
	b.read++
	return 1, nil
}

func (b *trickle) Close() error { b.closed = true; return nil }

// B128, B129, B132, B145 and the table of methods: how often a 503 is sent.
func TestWhatIsRepeatedGoesByTheRequest(t *testing.T) {
	for _, c := range []struct {
		name, method, key, xkey string
		mark                    retry.Effect
		code, calls             int
	}{
		{"GET", "GET", "", "", 0, 503, 5},
		{"HEAD", "HEAD", "", "", 0, 503, 5},
		{"OPTIONS", "OPTIONS", "", "", 0, 503, 5},
		{"TRACE", "TRACE", "", "", 0, 503, 5},
		{"QUERY", "QUERY", "", "", 0, 503, 5},
		{"no method is GET", "", "", "", 0, 503, 5},
		{"PUT", "PUT", "", "", 0, 503, 5},
		{"DELETE", "DELETE", "", "", 0, 503, 5},
		{"B128 POST", "POST", "", "", 0, 503, 1},
		{"PATCH", "PATCH", "", "", 0, 503, 1},
		{"methods are case-sensitive", "get", "", "", 0, 503, 1},
		{"a POST that was not processed", "POST", "", "", 0, 429, 5},
		{"POST with a key", "POST", "k", "", 0, 503, 5},
		{"POST with an X- key", "POST", "", "k", 0, 503, 5},
		{"POST with an empty key", "POST", "", "", 0, 503, 1},
		{"POST marked yes", "POST", "", "", retry.Idempotent, 503, 5},
		{"POST marked as reading", "POST", "", "", retry.ReadOnly, 503, 5},
		{"GET marked no", "GET", "", "", retry.Mutation, 503, 1},
		{"a key marked no", "POST", "k", "", retry.Mutation, 503, 1},
		{"a mark taken away", "GET", "", "", retry.Unstated, 503, 5},
		{"B141 412", "PUT", "", "", 0, 412, 1},
		{"B144 501", "GET", "", "", 0, 501, 1},
		{"B145 418", "GET", "", "", 0, 418, 1},
		{"B145 400", "GET", "", "", 0, 400, 1},
		{"B145 422", "GET", "", "", 0, 422, 1},
		{"B145 401", "GET", "", "", 0, 401, 1},
		{"B145 403", "GET", "", "", 0, 403, 1},
		{"B134 409 is permanent without a hook", "POST", "k", "", 0, 409, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := request(t, "GET", "")
			req = req.WithContext(httpretry.WithEffect(req.Context(), c.mark))
			req.Method = c.method
			if c.key != "" || strings.Contains(c.name, "empty") {
				req.Header.Set("Idempotency-Key", c.key)
			}
			if c.xkey != "" {
				req.Header.Set("X-Idempotency-Key", c.xkey)
			}
			b := script(gives(c.code))
			p := quick()
			p.Effect = []retry.Effect{retry.ReadOnly, retry.Mutation}[c.calls/5] // it is ignored
			resp, err := exchange(t, &httpretry.Transport{Base: b, Policy: p}, req)
			require.NoError(t, err)
			require.Equal(t, c.code, resp.StatusCode)
			require.Equal(t, c.calls, b.calls)
			require.Equal(t, c.calls, httpretry.Attempts(resp))
		})
	}
}

// B128, B147: a response that the Transport gave up on is the end for the loop
// outside, too, with the Transport's reason, whether it shares its allowance or not.
func TestAResponseThatWasGivenUpOnStopsAllLoops(t *testing.T) {
	for method, want := range map[string]struct {
		calls  int
		reason error
		effect retry.Effect
	}{"POST": {1, retry.ErrUnknownOutcome, retry.Mutation}, "GET": {5, retry.ErrAttempts, retry.ReadOnly}} {
		for _, part := range []func(context.Context) context.Context{func(ctx context.Context) context.Context { return ctx }, retry.Detach} {
			b := script(gives(503))
			client := &http.Client{Transport: &httpretry.Transport{Base: b, Policy: quick()}, Timeout: time.Minute}
			outer := 0
			err := retry.Run(t.Context(), &retry.Policy{Sleep: noWait, Effect: retry.ReadOnly}, func(ctx context.Context) error {
				outer++
				resp, err := client.Do(request(t, method, "").WithContext(part(ctx)))
				if err != nil {
					return err
				}
				defer resp.Body.Close()
				return httpretry.Check(resp)
			})
			require.Equal(t, 1, outer)
			require.Equal(t, want.calls, b.calls)
			e, ok := err.(*retry.Error)
			require.True(t, ok)
			require.Equal(t, want.reason, e.Reason)
			s, ok := errors.AsType[*retry.StatusError](err)
			require.True(t, ok)
			require.Equal(t, retry.StatusError{Method: method, Code: 503, Effect: want.effect}, *s)
		}
	}
}

// What a Transport knows of its response survives a client that wraps the
// body, and is not taken for that of another request made in its context.
func TestCheckKnowsWhatTheTransportGaveUpOn(t *testing.T) {
	b := script(gives(503), gives(503), gives(503), gives(200))
	p := quick()
	p.MaxAttempts = 3
	for _, timeout := range []time.Duration{0, time.Minute} {
		b.calls = 0
		client := &http.Client{Transport: &httpretry.Transport{Base: b, Policy: p}, Timeout: timeout}
		resp, err := client.Get("http://venue.example/")
		require.NoError(t, err)
		require.Equal(t, 3, httpretry.Attempts(resp))
		err = httpretry.Check(resp)
		require.ErrorIs(t, err, retry.ErrAttempts)
		require.Equal(t, retry.ClassPermanent, retry.Classify(err).Class)
		require.Equal(t, err, httpretry.Check(resp), "as often as one likes")

		next := request(t, "GET", "").WithContext(resp.Request.Context())
		again, err := client.Do(next)
		require.NoError(t, err)
		require.Equal(t, 1, httpretry.Attempts(again))
		require.NoError(t, httpretry.Check(again))
		again.Request = nil
		require.Equal(t, 1, httpretry.Attempts(again))
	}
}

// A given-up response is no proof that nothing was applied: Submit looks it up.
func TestSubmitLooksUpWhatTheTransportGaveUpOn(t *testing.T) {
	client := &http.Client{Transport: &httpretry.Transport{Base: script(gives(503)), Policy: quick()}}
	asked := 0
	v, err := retry.Submit(t.Context(), &retry.Policy{Sleep: noWait}, func(ctx context.Context) (string, error) {
		resp, err := client.Do(request(t, "POST", "order").WithContext(ctx))
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		return "", httpretry.Check(resp)
	}, retry.Lookup[string]{Find: func(context.Context) (string, retry.Resolution, error) {
		asked++
		return "filled", retry.Applied, nil
	}})
	require.NoError(t, err)
	require.Equal(t, "filled", v)
	require.Equal(t, 1, asked)
}

// B140: a 412 after a lost answer is permanent, and the outcome stays unknown.
func TestAConflictWithOneself(t *testing.T) {
	resp, err := exchange(t, &httpretry.Transport{Base: script(fails(io.ErrUnexpectedEOF), gives(412)), Policy: quick()}, request(t, "PUT", "x"))
	require.NoError(t, err)
	require.Equal(t, 412, resp.StatusCode)
	err = httpretry.Check(resp)
	require.ErrorIs(t, err, retry.ErrPermanent)
	require.ErrorIs(t, err, retry.ErrUnknownOutcome)
}

// B142: the 404 of a repeated DELETE is a response, and the caller can see
// that it was repeated.
func TestARepeatedDeleteThatFindsNothing(t *testing.T) {
	resp, err := exchange(t, &httpretry.Transport{Base: script(fails(syscall.ECONNRESET), gives(404)), Policy: quick()}, request(t, "DELETE", ""))
	require.NoError(t, err)
	require.Equal(t, 404, resp.StatusCode)
	require.Equal(t, 2, httpretry.Attempts(resp))
}

// Policy.Classify sees the error of Base, and the status where nothing else
// has decided (B134: a 409 while the first request is still in progress).
func TestTheClassifierOfThePolicyIsUsed(t *testing.T) {
	odd := errors.New("odd")
	p := quick()
	var seen []string
	p.Classify = func(err error) retry.Verdict {
		seen = append(seen, fmt.Sprintf("%T", err))
		s, ok := errors.AsType[*retry.StatusError](err)
		if errors.Is(err, odd) || ok && s.Code == 409 && s.Effect == retry.Idempotent {
			return retry.Verdict{Class: retry.ClassTransient}
		}
		return retry.Classify(err)
	}
	b := script(fails(odd), gives(409), gives(503), gives(200))
	req := request(t, "POST", "x")
	req.Header.Set("Idempotency-Key", "k")
	resp, err := exchange(t, &httpretry.Transport{Base: b, Policy: p}, req)
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode)
	require.Equal(t, []string{"*errors.errorString", "*retry.StatusError", "*retry.StatusError"}, seen)

	b = script(gives(409), gives(200))
	resp, err = exchange(t, &httpretry.Transport{Base: b, Policy: p}, request(t, "POST", "x"))
	require.NoError(t, err)
	require.Equal(t, 409, resp.StatusCode, "no key")

	seen = nil
	hook := func(r *http.Response) (retry.Verdict, bool) {
		return retry.Verdict{Class: retry.ClassTransient}, r.StatusCode == 409
	}
	b = script(gives(409), gives(200))
	resp, err = exchange(t, &httpretry.Transport{Base: b, Policy: p, Classify: hook}, request(t, "POST", "x"))
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode)
	require.Empty(t, seen, "the hook has decided")
}

// B127: the hook reads the body before it is drained; what it has said of a
// 200 counts, and the caller still gets all of the body.
func TestTheHookOfATransportSeesTheBody(t *testing.T) {
	answer := func(body string) step {
		return func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: track(body)}, nil
		}
	}
	b := script(answer("busy"), answer("done"))
	p, slept := waits(0)
	p.Spread = -1
	tr := &httpretry.Transport{Base: b, Policy: p, Classify: func(r *http.Response) (retry.Verdict, bool) {
		data, _ := io.ReadAll(r.Body)
		return retry.Verdict{Class: retry.ClassThrottled, After: 7 * time.Second}, string(data) == "busy"
	}}
	resp, err := exchange(t, tr, request(t, "POST", "x"))
	require.NoError(t, err)
	require.Equal(t, "done", text(t, resp))
	require.Equal(t, []time.Duration{7 * time.Second}, *slept)

	p.MaxAttempts, b.calls = 1, 0
	resp, err = exchange(t, tr, request(t, "POST", "x"))
	require.NoError(t, err)
	require.ErrorIs(t, httpretry.Check(resp), retry.ErrAttempts, "a 200 that the Transport gave up on")
	require.Equal(t, "busy", text(t, resp))
}

// What a hook says of the effect counts, and for its own attempt only.
func TestTheEffectOfAHookCounts(t *testing.T) {
	tr := func(b *base) *httpretry.Transport {
		return &httpretry.Transport{Base: b, Policy: quick(), Classify: func(r *http.Response) (retry.Verdict, bool) {
			return retry.Verdict{Class: retry.ClassUnknown, Effect: retry.ReadOnly}, r.StatusCode == 500
		}}
	}
	b := script(gives(500), gives(503))
	resp, err := exchange(t, tr(b), request(t, "POST", "x"))
	require.NoError(t, err)
	require.Equal(t, 503, resp.StatusCode)
	require.Equal(t, 2, b.calls)
	b = script(gives(500), fails(syscall.ECONNRESET))
	_, err = exchange(t, tr(b), request(t, "POST", "x"))
	require.ErrorIs(t, err, retry.ErrUnknownOutcome)
	require.Equal(t, 2, b.calls)
}

// B132: a key is made once for all attempts of what would not be repeated
// without, and never over the caller's.
func TestKeys(t *testing.T) {
	made := 0
	send := func(req *http.Request) []string {
		b := script(gives(503), fails(syscall.ECONNRESET), gives(200))
		tr := &httpretry.Transport{Base: b, Policy: quick(), Key: func() string {
			made++
			return fmt.Sprintf("key-%d", made)
		}}
		resp, err := tr.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		var keys []string
		for _, h := range b.heads {
			keys = append(keys, h.Get("Idempotency-Key"))
		}
		return keys
	}
	require.Equal(t, []string{"key-1", "key-1", "key-1"}, send(request(t, "POST", "x")))
	require.Equal(t, []string{"key-2", "key-2", "key-2"}, send(request(t, "PATCH", "x")), "another request, another key")
	require.Equal(t, []string{"", "", ""}, send(request(t, "PUT", "x")), "it needs none")

	req := request(t, "POST", "x")
	req.Header.Set("Idempotency-Key", "abc")
	require.Equal(t, []string{"abc", "abc", "abc"}, send(req))
	req = request(t, "POST", "x")
	req.Header.Set("X-Idempotency-Key", "abc")
	require.Equal(t, []string{"", "", ""}, send(req))
	req = request(t, "POST", "x")
	req = req.WithContext(httpretry.WithEffect(req.Context(), retry.Mutation))
	require.Equal(t, []string{""}, send(req), "marked no")
	require.Equal(t, 2, made)

	req = request(t, "POST", "x")
	req.Header = nil
	require.Equal(t, []string{"key-3", "key-3", "key-3"}, send(req), "a request without a header map")
	require.Nil(t, req.Header)

	b := script(gives(503))
	resp, err := exchange(t, &httpretry.Transport{Base: b, Policy: quick(), Key: func() string { return "" }}, request(t, "POST", "x"))
	require.NoError(t, err)
	require.Equal(t, 503, resp.StatusCode)
	require.Equal(t, 1, b.calls, "an empty key is none")
	require.NotContains(t, b.heads[0], "Idempotency-Key")

	b = script(gives(503))
	resp, err = exchange(t, &httpretry.Transport{Base: b, Policy: quick(), Key: httpretry.NewKey}, request(t, "POST", "x"))
	require.NoError(t, err)
	s, _ := errors.AsType[*retry.StatusError](httpretry.Check(resp))
	require.Equal(t, retry.Idempotent, s.Effect)
	require.Equal(t, b.heads[0], resp.Request.Header, "the request that was sent")
}

// B55, B135: the signals that a Transport believes are those chosen.
func TestSignalsOfATransport(t *testing.T) {
	for _, c := range []struct {
		name    string
		signals []httpretry.Signal
		first   step
		wait    time.Duration // before the second request; <0: there is none
	}{
		{"Retry-After by default", nil, gives(503, "Retry-After: 3", "Retry-After-Ms: 250"), 3 * time.Second},
		{"B55 milliseconds first", []httpretry.Signal{httpretry.RetryAfter, httpretry.RetryAfterMS}, gives(503, "Retry-After: 1", "Retry-After-Ms: 250"), 250 * time.Millisecond},
		{"none", []httpretry.Signal{}, gives(503, "Retry-After: 3"), 100 * time.Millisecond},
		{"own wait is longer", nil, gives(503, "Retry-After: 0"), 100 * time.Millisecond},
		{"B135 no", []httpretry.Signal{httpretry.XShouldRetry}, gives(500, "X-Should-Retry: false"), -1},
		{"B135 yes", []httpretry.Signal{httpretry.XShouldRetry}, gives(400, "X-Should-Retry: true"), 100 * time.Millisecond},
		{"B135 not chosen", nil, gives(500, "X-Should-Retry: false"), 100 * time.Millisecond},
		{"60s is not too long", nil, gives(429, "Retry-After: 60"), time.Minute},
		{"61s is", nil, gives(429, "Retry-After: 61"), -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, slept := waits(0.5)
			p.Spread, p.MaxElapsed = -1, -1
			b := script(c.first, gives(200))
			resp, err := exchange(t, &httpretry.Transport{Base: b, Policy: p, Signals: c.signals}, request(t, "GET", ""))
			require.NoError(t, err)
			if c.wait < 0 {
				require.Equal(t, 1, b.calls)
				require.Empty(t, *slept)
				require.NotEqual(t, 200, resp.StatusCode)
				require.Equal(t, http.StatusText(resp.StatusCode), text(t, resp))
				return
			}
			require.Equal(t, 200, resp.StatusCode)
			require.Equal(t, []time.Duration{c.wait}, *slept)
		})
	}
}

// A no of the server stops a PUT with the outcome unknown, as Check says it.
func TestANoOfTheServerStopsAPut(t *testing.T) {
	b := script(gives(500, "X-Should-Retry: false"))
	resp, err := exchange(t, &httpretry.Transport{Base: b, Policy: quick(), Signals: []httpretry.Signal{httpretry.XShouldRetry}}, request(t, "PUT", "x"))
	require.NoError(t, err)
	require.Equal(t, 1, b.calls)
	e, _ := errors.AsType[*retry.Error](httpretry.Check(resp))
	require.Equal(t, retry.ErrUnknownOutcome, e.Reason)
}

// Dates count from the response's own Date, else from the policy's clock as
// the response arrived (fault B54): a hook that reads for long, or a Check made much
// later, changes nothing.
func TestADateCountsFromTheArrivalOfTheResponse(t *testing.T) {
	now := time.Date(2026, time.June, 15, 12, 0, 0, 0, time.UTC)
	p, slept := waits(0)
	p.Spread = -1
	p.Clock = func() time.Time { return now }
	slow := func(*http.Response) (retry.Verdict, bool) {
		now = now.Add(time.Second)
		return retry.Verdict{}, false
	}
	skewed := gives(503, "Retry-After: Mon, 15 Jun 2026 09:00:07 GMT", "Date: Mon, 15 Jun 2026 09:00:00 GMT")
	local := gives(503, "Retry-After: Mon, 15 Jun 2026 12:00:10 GMT")
	resp, err := exchange(t, &httpretry.Transport{Base: script(skewed, local, gives(200)), Policy: p, Classify: slow}, request(t, "GET", ""))
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode)
	require.Equal(t, []time.Duration{7 * time.Second, 9 * time.Second}, *slept)

	p.MaxAttempts = 1
	resp, err = exchange(t, &httpretry.Transport{Base: script(gives(503, "Retry-After: Mon, 15 Jun 2026 12:00:33 GMT")), Policy: p}, request(t, "GET", ""))
	require.NoError(t, err)
	now = now.Add(time.Hour)
	s, _ := errors.AsType[*retry.StatusError](httpretry.Checker{Clock: p.Clock}.Check(resp))
	require.Equal(t, 30*time.Second, s.After)
}

// B136: AttemptTimeout ends an attempt that has no answer; B115: the next has the
// whole body all the same.
func TestAttemptTimeoutBeforeTheHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, context.Cause(req.Context())
		}
		p := &retry.Policy{AttemptTimeout: 2 * time.Second, Backoff: retry.Backoff{Base: -1}}
		b := script(stuck, gives(503), stuck, gives(200))
		start := time.Now()
		resp, err := exchange(t, &httpretry.Transport{Base: b, Policy: p}, request(t, "PUT", "hello"))
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, 4*time.Second, time.Since(start))
		require.Equal(t, []string{"hello", "hello", "hello", "hello"}, b.bodies)
		require.Equal(t, 4, httpretry.Attempts(resp))

		b = script(stuck)
		_, err = exchange(t, &httpretry.Transport{Base: b, Policy: p}, request(t, "POST", "order"))
		require.ErrorIs(t, err, retry.ErrUnknownOutcome)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 1, b.calls)
	})
}

// streaming answers 200 with a body of n letters, one per pause, that ends when
// the request's context does.
func streaming(n int, pause time.Duration) step {
	return func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, ContentLength: -1, Body: &stream{ctx: req.Context(), left: n, pause: pause}}, nil
	}
}

type stream struct {
	ctx   context.Context
	left  int
	pause time.Duration
}

func (s *stream) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	select {
	case <-s.ctx.Done():
		return 0, context.Cause(s.ctx)
	case <-time.After(s.pause):
	}
	s.left--
	return copy(p, "x"), nil
}

func (s *stream) Close() error { return nil }

// After the header only the caller's context bounds the body, unless
// CoverBody says otherwise.
func TestTimeoutsAndTheBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &retry.Policy{AttemptTimeout: 2 * time.Second, MaxElapsed: 3 * time.Second}
		download := script(streaming(100, time.Second))
		tr := &httpretry.Transport{Base: download, Policy: p}
		resp, err := exchange(t, tr, request(t, "GET", ""))
		require.NoError(t, err)
		require.Len(t, text(t, resp), 100, "longer than both, and whole")

		// The caller's cancellation, in the middle.
		ctx, cancel := context.WithCancelCause(t.Context())
		resp, err = exchange(t, tr, request(t, "GET", "").WithContext(ctx))
		require.NoError(t, err)
		enough := errors.New("enough")
		time.AfterFunc(10500*time.Millisecond, func() { cancel(enough) })
		data, err := io.ReadAll(resp.Body)
		require.ErrorIs(t, err, enough)
		require.Len(t, data, 10)
		resp.Body.Close()

		// The caller's deadline.
		ctx, stop := context.WithTimeout(t.Context(), 5500*time.Millisecond)
		defer stop()
		resp, err = exchange(t, tr, request(t, "GET", "").WithContext(ctx))
		require.NoError(t, err)
		data, err = io.ReadAll(resp.Body)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Len(t, data, 5)

		tr.CoverBody = true
		for timeout, n := range map[time.Duration]int{2500 * time.Millisecond: 2, -1: 3} {
			p.AttemptTimeout, p.MaxElapsed = timeout, 3500*time.Millisecond
			resp, err = exchange(t, tr, request(t, "GET", ""))
			require.NoError(t, err)
			data, err = io.ReadAll(resp.Body)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Len(t, data, n)
			require.NoError(t, resp.Body.Close())
		}
		p.AttemptTimeout, p.MaxElapsed = -1, -1
		resp, err = exchange(t, tr, request(t, "GET", ""))
		require.NoError(t, err)
		require.Len(t, text(t, resp), 100, "nothing to cover it with")
	})
}

// What an attempt was sent with ends with its response: at the end of the body,
// when it is closed, and at once where there is none.
func TestTheContextOfAnAttemptEndsWithItsBody(t *testing.T) {
	var ctx context.Context
	body := io.ReadCloser(http.NoBody)
	tr := &httpretry.Transport{Base: roundTripper(func(req *http.Request) (*http.Response, error) {
		ctx = req.Context()
		require.NotNil(t, ctx.Done())
		return &http.Response{StatusCode: 200, Body: body}, nil
	})}
	_, err := exchange(t, tr, request(t, "GET", ""))
	require.NoError(t, err)
	require.ErrorIs(t, ctx.Err(), context.Canceled)

	body = track("x")
	resp, err := exchange(t, tr, request(t, "GET", ""))
	require.NoError(t, err)
	require.NoError(t, ctx.Err())
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	require.ErrorIs(t, ctx.Err(), context.Canceled)

	body = track("x")
	resp, err = exchange(t, tr, request(t, "GET", ""))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.ErrorIs(t, ctx.Err(), context.Canceled)
}

// Who asks for Done only after the response was returned waits for the end of
// the caller's context, and nothing hangs on that for longer than he does.
func TestTheContextOfAnAttemptAskedLate(t *testing.T) {
	caller, cancel := context.WithCancel(t.Context())
	hooks := &hooked{Context: caller}
	var ctx context.Context
	tr := &httpretry.Transport{Base: roundTripper(func(req *http.Request) (*http.Response, error) {
		ctx = req.Context()
		return &http.Response{StatusCode: 200, Body: track("x")}, nil
	})}
	resp, err := exchange(t, tr, request(t, "GET", "").WithContext(hooks))
	require.NoError(t, err)
	require.Equal(t, ctx.Done(), caller.Done())
	derived, stop := context.WithCancel(ctx)
	stop()
	require.NoError(t, resp.Body.Close())
	require.Error(t, derived.Err())
	require.Zero(t, hooks.n)
	require.NoError(t, ctx.Err())
	require.NoError(t, context.Cause(ctx))
	cancel()
	require.ErrorIs(t, ctx.Err(), context.Canceled)
}

// hooked is a context that counts the functions that wait for its end.
type hooked struct {
	context.Context
	n int
}

func (h *hooked) AfterFunc(f func()) func() bool {
	h.n++
	stop := context.AfterFunc(h.Context, f)
	return func() bool {
		h.n--
		return stop()
	}
}

// Value hides the standard context, so that AfterFunc is used.
func (h *hooked) Value(any) any { return nil }

// Base may still hold what an attempt was sent with: if it has failed without an
// answer, if it had a body, if Base waits for its end. Otherwise it serves again,
// for the next attempt's number and time.
func TestWhatAnAttemptIsSentWith(t *testing.T) {
	for name, c := range map[string]struct {
		body   string
		waits  bool
		first  step
		shared bool
	}{
		"an answer":       {"", false, gives(503), true},
		"no answer":       {"", false, fails(syscall.ECONNRESET), false},
		"a body":          {"hello", false, gives(503), false},
		"Base waits":      {"", true, gives(503), false},
		"Base has waited": {"hello", true, fails(syscall.ECONNRESET), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sent []*http.Request
				b := script(c.first, gives(200))
				base := roundTripper(func(req *http.Request) (*http.Response, error) {
					sent = append(sent, req)
					ctx := req.Context()
					require.Equal(t, len(sent), retry.Attempt(ctx))
					at, _ := ctx.Deadline()
					require.Equal(t, time.Second, time.Until(at))
					if c.waits {
						require.NotNil(t, ctx.Done())
					}
					require.NoError(t, ctx.Err())
					return b.RoundTrip(req)
				})
				p := &retry.Policy{AttemptTimeout: time.Second, Backoff: retry.Backoff{Base: 2 * time.Second, Jitter: retry.NoJitter}}
				resp, err := exchange(t, &httpretry.Transport{Base: base, Policy: p}, request(t, "PUT", c.body))
				require.NoError(t, err)
				require.Equal(t, 200, resp.StatusCode)
				require.Equal(t, c.shared, sent[0] == sent[1])
				if c.waits {
					require.Error(t, sent[0].Context().Err(), "attempt 1 has ended")
				}
			})
		})
	}
}

// B143: a body that breaks is no failure of the request: it was answered.
func TestABodyThatBreaksIsNotRepeated(t *testing.T) {
	b := script(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Body: &tracked{r: io.MultiReader(strings.NewReader("ha"), broken{})}}, nil
	})
	resp, err := exchange(t, &httpretry.Transport{Base: b, Policy: quick()}, request(t, "POST", "x"))
	require.NoError(t, err)
	data, err := io.ReadAll(resp.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Equal(t, "ha", string(data))
	require.NoError(t, httpretry.Check(resp))
	require.Equal(t, 1, b.calls)
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// A hook reads within the attempt's timeout, and a body that the timeout has
// cut off is no success.
func TestATimeoutWhileTheHookReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := script(streaming(100, time.Second), gives(200))
		tr := &httpretry.Transport{Base: b, Policy: &retry.Policy{AttemptTimeout: 2500 * time.Millisecond, Backoff: retry.Backoff{Base: -1}},
			Classify: func(r *http.Response) (retry.Verdict, bool) {
				io.ReadAll(r.Body)
				return retry.Verdict{}, false
			}}
		start := time.Now()
		resp, err := exchange(t, tr, request(t, "GET", ""))
		require.NoError(t, err)
		require.Equal(t, 2500*time.Millisecond, time.Since(start))
		require.Equal(t, "OK", text(t, resp))
		require.Equal(t, 2, httpretry.Attempts(resp))
	})
}

// The idle connections of Base are closed through http.Client.
func TestCloseIdleConnectionsReachesBase(t *testing.T) {
	closed := 0
	(&http.Client{Transport: &httpretry.Transport{Base: idler{closed: &closed}}}).CloseIdleConnections()
	require.Equal(t, 1, closed)
	(&httpretry.Transport{Base: script()}).CloseIdleConnections() // has none
}

type idler struct {
	http.RoundTripper
	closed *int
}

func (i idler) CloseIdleConnections() { *i.closed++ }
