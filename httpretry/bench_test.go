package httpretry_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/seed-3d0f8764/retry"
	"github.com/seed-3d0f8764/retry/httpretry"
)

// What a Transport costs stands beside the same client without one:
//
//	go test -run '^$' -bench . -count 5 ./httpretry

// canned answers with the statuses in turn, over and over, and allocates
// nothing for it.
func canned(statuses ...int) http.RoundTripper {
	responses := make([]http.Response, len(statuses))
	calls := 0
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		i := calls % len(statuses)
		calls++
		responses[i] = http.Response{StatusCode: statuses[i], Body: http.NoBody, Request: req}
		return &responses[i], nil
	})
}

func benchmarkClient(b *testing.B, transport http.RoundTripper) {
	client := &http.Client{Transport: transport}
	req, err := http.NewRequest(http.MethodGet, "http://a.example/", nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		resp, err := client.Do(req)
		if err != nil || resp.StatusCode != http.StatusOK {
			b.Fatal(resp, err)
		}
		resp.Body.Close()
	}
}

func BenchmarkSuccess(b *testing.B) {
	b.Run("bare client", func(b *testing.B) { benchmarkClient(b, canned(200)) })
	b.Run("default", func(b *testing.B) { benchmarkClient(b, &httpretry.Transport{Base: canned(200)}) })
	b.Run("attempt timeout", func(b *testing.B) {
		p := retry.Policy{AttemptTimeout: time.Second}
		benchmarkClient(b, &httpretry.Transport{Base: canned(200), Policy: &p})
	})
	b.Run("default, Base asks for Done", func(b *testing.B) {
		base := canned(200)
		asks := roundTripper(func(req *http.Request) (*http.Response, error) {
			req.Context().Done()
			return base.RoundTrip(req)
		})
		benchmarkClient(b, &httpretry.Transport{Base: asks})
	})
}

// Three 503s, then 200.
func BenchmarkFailures(b *testing.B) {
	b.Run("bare client, one call", func(b *testing.B) { benchmarkClient(b, canned(200)) })
	b.Run("no-op sleeper", func(b *testing.B) {
		p := retry.Policy{Sleep: func(context.Context, time.Duration) error { return nil }}
		benchmarkClient(b, &httpretry.Transport{Base: canned(503, 503, 503, 200), Policy: &p})
	})
}
