package httpretry_test

// What the tests of this package share: policies, bodies, a fake Base, a real
// server. Networks of their own have network_test.go.

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-3d0f8764/retry"
	"github.com/stretchr/testify/require"
)

// noWait is a Sleep that does not, for tests of what comes out.
func noWait(ctx context.Context, _ time.Duration) error { return ctx.Err() }

// quick is the default policy without its waits.
func quick() *retry.Policy { return &retry.Policy{Sleep: noWait} }

// atOnce is a policy that never waits and has no deadline.
func atOnce(attempts int, w *watch) *retry.Policy {
	return &retry.Policy{MaxAttempts: attempts, MaxElapsed: -1, Backoff: retry.Backoff{Base: -1 * time.Second}, Observe: w.Observe}
}

// waits is a policy that tells its waits and takes no time for them.
func waits(u float64) (*retry.Policy, *[]time.Duration) {
	var slept []time.Duration
	return &retry.Policy{Rand: func() float64 { return u }, Sleep: func(ctx context.Context, d time.Duration) error {
		slept = append(slept, d)
		return ctx.Err()
	}}, &slept
}

// watch keeps the records of operations.
type watch struct {
	mu      sync.Mutex
	records []retry.Record
}

// Observe is a Policy.Observe.
func (w *watch) Observe(_ context.Context, r retry.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records = append(w.records, r)
}

// Sends returns the sends of all records.
func (w *watch) Sends() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.records {
		n += r.Sends
	}
	return n
}

// tracked is a body that knows what became of it.
type tracked struct {
	mu     sync.Mutex
	r      io.Reader
	read   int // bytes
	eof    bool
	closed int
}

func track(text string) *tracked { return &tracked{r: strings.NewReader(text)} }

func (b *tracked) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed > 0 {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.r.Read(p)
	b.read += n
	b.eof = b.eof || err == io.EOF
	return n, err
}

func (b *tracked) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed++
	return nil
}

func (b *tracked) state() (eof bool, closed int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.eof, b.closed
}

// opener makes the bodies of a request, and knows them all.
type opener struct {
	content string

	mu   sync.Mutex
	made []*tracked
}

// put gives req a body that can be replayed.
func (o *opener) put(req *http.Request) {
	req.ContentLength, req.GetBody = int64(len(o.content)), o.open
	req.Body, _ = o.open()
}

func (o *opener) open() (io.ReadCloser, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := track(o.content)
	o.made = append(o.made, b)
	return b, nil
}

func (o *opener) count() (opened, closed int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, b := range o.made {
		if _, n := b.state(); n > 0 {
			closed++
		}
	}
	return len(o.made), closed
}

// roundTripper is a Base in one function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// step is what a fake Base does with one request.
type step func(*http.Request) (*http.Response, error)

// fails is a step without a response.
func fails(err error) step { return func(*http.Request) (*http.Response, error) { return nil, err } }

// base is a Base that takes its steps in turn, the last for ever. As an
// http.RoundTripper must, it reads and closes the body of each request.
type base struct {
	steps []step

	mu     sync.Mutex
	calls  int
	bodies []string
	heads  []http.Header
}

func script(steps ...step) *base { return &base{steps: steps} }

func (b *base) RoundTrip(req *http.Request) (*http.Response, error) {
	body := ""
	if req.Body != nil {
		data, _ := io.ReadAll(req.Body)
		req.Body.Close()
		body = string(data)
	}
	b.mu.Lock()
	next := b.steps[min(b.calls, len(b.steps)-1)]
	b.calls++
	b.bodies = append(b.bodies, body)
	b.heads = append(b.heads, req.Header.Clone())
	b.mu.Unlock()
	return next(req)
}

// gives is a step with a status and header lines.
func gives(code int, lines ...string) step {
	return func(*http.Request) (*http.Response, error) {
		h := http.Header{}
		for _, line := range lines {
			name, value, _ := strings.Cut(line, ": ")
			h.Add(name, value)
		}
		return &http.Response{StatusCode: code, Header: h, Body: track(http.StatusText(code))}, nil
	}
}

// service is a real server on loopback that takes its handlers in turn, the
// last for ever. It counts calls and connections, and keeps the bodies that
// it has read.
type service struct {
	*httptest.Server
	base *http.Transport // of its own: no other test uses its connections

	mu     sync.Mutex
	calls  int
	conns  map[net.Conn]http.ConnState
	bodies []string
}

func host(t testing.TB, handlers ...http.HandlerFunc) *service {
	t.Helper()
	s := &service{conns: map[net.Conn]http.ConnState{}, base: &http.Transport{}}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		next := handlers[min(s.calls, len(handlers)-1)]
		s.calls++
		s.bodies = append(s.bodies, string(data))
		s.mu.Unlock()
		next(w, r)
	}))
	s.Config.ConnState = func(c net.Conn, state http.ConnState) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.conns[c] = state
	}
	s.Start()
	t.Cleanup(func() {
		s.base.CloseIdleConnections()
		s.Close()
	})
	return s
}

// open returns how many connections were made, and how many are not closed.
func (s *service) open() (made, left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, state := range s.conns {
		if state != http.StateClosed && state != http.StateHijacked {
			left++
		}
	}
	return len(s.conns), left
}

// says is a handler that answers with a status, header lines and a body.
func says(code int, body string, lines ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, line := range lines {
			name, value, _ := strings.Cut(line, ": ")
			w.Header().Add(name, value)
		}
		w.WriteHeader(code)
		io.WriteString(w, body)
	}
}

// request makes one, with a body that can be replayed unless it is "".
func request(t testing.TB, method, body string) *http.Request {
	t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://venue.example/order", r)
	require.NoError(t, err)
	return req
}

// exchange sends req and holds the answer to the first rule of an
// http.RoundTripper: a response or an error, never both or neither (B120, B121).
func exchange(t testing.TB, tr http.RoundTripper, req *http.Request) (*http.Response, error) {
	t.Helper()
	resp, err := tr.RoundTrip(req)
	require.NotEqual(t, resp == nil, err == nil, "both or neither: %v, %v", resp, err)
	if resp != nil {
		require.NotNil(t, resp.Body)
	}
	return resp, err
}

// text reads a body to its end and closes it.
func text(t testing.TB, resp *http.Response) string {
	t.Helper()
	data, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return string(data)
}

// parallel sends n requests at once, and returns the bodies of the answers.
func parallel(n int, send func(n int) (*http.Response, error)) []string {
	got := make([]string, n)
	var all sync.WaitGroup
	for n := range got {
		all.Go(func() { // no require in another goroutine
			resp, err := send(n)
			if err != nil {
				got[n] = err.Error()
				return
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			got[n] = string(body)
		})
	}
	all.Wait()
	return got
}
