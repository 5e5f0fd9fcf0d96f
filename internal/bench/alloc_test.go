package main_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"runtime"
	"testing"

	"github.com/seed-3d0f8764/retry"
	"github.com/seed-3d0f8764/retry/httpretry"
	"github.com/stretchr/testify/require"
)

// What the rows of this module's own library allocate. These are the figures
// that a build fails on; times it never fails on.
func TestAllocations(t *testing.T) {
	noDeadline := &retry.Policy{MaxElapsed: -1}
	for _, c := range []struct {
		name  string
		most  float64
		fails int
		run   func(context.Context, *work) (int, error)
	}{
		{"success", 0, 0, ours(noDeadline)},
		{"success, literal", 0, 0, func(ctx context.Context, w *work) (int, error) {
			return retry.Do(ctx, &retry.Policy{MaxElapsed: -1}, func(context.Context) (int, error) { return w.do() })
		}},
		{"success, deadline", 1, 0, ours(nil)},
		{"success, deadline, Done", 8, 0, func(ctx context.Context, w *work) (int, error) {
			return retry.Do(ctx, nil, func(ctx context.Context) (int, error) { ctx.Done(); return w.do() })
		}},
		{"three failures", 2, 3, ours(&retry.Policy{Sleep: noWait})},
		{"three failures, timers", 5, 3, ours(&retry.Policy{Backoff: retry.Backoff{Base: 1, Multiplier: 1, Jitter: retry.NoJitter}})},
	} {
		w := work{err: transient, fails: c.fails}
		ctx := t.Context()
		require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
			w.calls = 0
			c.run(ctx, &w)
		}), c.most, c.name)
		require.Equal(t, c.fails+1, w.calls, c.name)
	}
}

func TestValueAllocations(t *testing.T) {
	for _, f := range fields {
		require.Zero(t, testing.AllocsPerRun(100, func() { sink, _ = retry.ParseRetryAfter(f.value, now) }), f.name)
	}
	p := retry.Backoff{}
	require.Zero(t, testing.AllocsPerRun(100, func() { sink = p.Wait(retry.Step{Retry: 2, Draw: rand.Float64()}) }))
	require.Zero(t, testing.AllocsPerRun(100, func() { sink = p.Window(1_000_000_000) }))
}

// Through a client, and beyond what net/http's own takes.
func TestHTTPAllocations(t *testing.T) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server.example/", nil)
	require.NoError(t, err)
	allocs := func(fails int, over func(*server) http.RoundTripper) float64 {
		s := &server{fails: fails, header: http.Header{}}
		client := &http.Client{Transport: over(s)}
		return testing.AllocsPerRun(100, func() {
			s.calls = 0
			resp, err := client.Do(req)
			if err != nil || resp.StatusCode != http.StatusOK || s.calls != fails+1 {
				panic("the request did not succeed as it should")
			}
			resp.Body.Close()
		})
	}
	bare := allocs(0, func(s *server) http.RoundTripper { return s })
	with := func(p *retry.Policy) func(*server) http.RoundTripper {
		return func(s *server) http.RoundTripper { return &httpretry.Transport{Base: s, Policy: p} }
	}
	require.LessOrEqual(t, allocs(0, with(&retry.Policy{MaxElapsed: -1}))-bare, 6.0, "success, no deadline")
	require.LessOrEqual(t, allocs(0, with(nil))-bare, 7.0, "success")
	require.LessOrEqual(t, allocs(3, with(&retry.Policy{Sleep: noWait}))-bare, 9.0, "three 503s")
}

// A million failures in one operation leave no more behind than a thousand:
// what is live just before the last attempt does not grow.
func TestMemoryOfManyFailures(t *testing.T) {
	live := func(fails int) int64 {
		var before, after int64
		before, _ = inUse()
		w := work{err: transient, fails: fails}
		_, err := retry.Do(t.Context(), &retry.Policy{MaxAttempts: -1, Backoff: retry.Backoff{Base: -1}, Sleep: noWait, Keep: 10},
			func(context.Context) (int, error) {
				v, err := w.do()
				if err == nil {
					after, _ = inUse()
				}
				return v, err
			})
		require.NoError(t, err)
		runtime.KeepAlive(&w)
		return after - before
	}
	live(10) // what the first use of anything leaves
	few, many := live(1_000), live(1_000_000)
	require.Less(t, many, few+16<<10)
}
