package main_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/PuerkitoBio/rehttp"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/seed-3d0f8764/retry"
	"github.com/seed-3d0f8764/retry/httpretry"
)

// server answers every request itself: 503 a number of times, then 200. It
// allocates nothing, so that what is counted is the client's.
type server struct {
	fails, calls int
	header       http.Header
	answer       http.Response
}

func (s *server) RoundTrip(req *http.Request) (*http.Response, error) {
	code := http.StatusOK
	if s.calls++; s.calls <= s.fails {
		code = http.StatusServiceUnavailable
	}
	s.answer = http.Response{StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: s.header, Body: http.NoBody, Request: req}
	return &s.answer, nil
}

// Do makes it a transport of azcore's.
func (s *server) Do(req *http.Request) (*http.Response, error) { return s.RoundTrip(req) }

// browse benchmarks one GET through each client, and checks what reached the
// server.
func browse(b *testing.B, fails int) {
	get := func(name string, client func(*server) func(*http.Request) (*http.Response, error)) {
		b.Run(name, func(b *testing.B) {
			s := &server{fails: fails, header: http.Header{}}
			do := client(s)
			req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://server.example/", nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				s.calls = 0
				resp, err := do(req)
				if err != nil {
					b.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK || s.calls != fails+1 {
					b.Fatal(resp.Status, s.calls)
				}
			}
		})
	}
	if fails == 0 {
		get("net/http", func(s *server) func(*http.Request) (*http.Response, error) {
			return (&http.Client{Transport: s}).Do
		})
		get("net/http, with a deadline", func(s *server) func(*http.Request) (*http.Response, error) {
			return (&http.Client{Transport: s, Timeout: 30 * time.Second}).Do
		})
		get("retry, no deadline", func(s *server) func(*http.Request) (*http.Response, error) {
			return (&http.Client{Transport: &httpretry.Transport{Base: s, Policy: &retry.Policy{MaxElapsed: -1}}}).Do
		})
	}
	get("retry", func(s *server) func(*http.Request) (*http.Response, error) {
		return (&http.Client{Transport: &httpretry.Transport{Base: s, Policy: &retry.Policy{Sleep: noWait}}}).Do
	})
	if fails > 0 {
		get("retry, no deadline", func(s *server) func(*http.Request) (*http.Response, error) {
			return (&http.Client{Transport: &httpretry.Transport{Base: s, Policy: &retry.Policy{MaxElapsed: -1, Sleep: noWait}}}).Do
		})
	}
	get("go-retryablehttp", func(s *server) func(*http.Request) (*http.Response, error) {
		c := retryablehttp.NewClient()
		c.HTTPClient, c.Logger = &http.Client{Transport: s}, nil
		c.Backoff = func(time.Duration, time.Duration, int, *http.Response) time.Duration { return 0 }
		var wrapped *retryablehttp.Request
		return func(req *http.Request) (*http.Response, error) {
			if wrapped == nil {
				wrapped, _ = retryablehttp.FromRequest(req)
			}
			return c.Do(wrapped)
		}
	})
	rehttpd := func(timeout time.Duration) func(s *server) func(*http.Request) (*http.Response, error) {
		return func(s *server) func(*http.Request) (*http.Response, error) {
			t := rehttp.NewTransport(s, rehttp.RetryAll(rehttp.RetryMaxRetries(attempts-1), rehttp.RetryStatuses(http.StatusServiceUnavailable)), rehttp.ConstDelay(0))
			return (&http.Client{Transport: t, Timeout: timeout}).Do
		}
	}
	get("rehttp", rehttpd(0))
	get("rehttp, with a deadline", rehttpd(30*time.Second))
	get("failsafehttp", func(s *server) func(*http.Request) (*http.Response, error) {
		p := failsafehttp.NewRetryPolicyBuilder().WithMaxAttempts(attempts).Build()
		return (&http.Client{Transport: failsafehttp.NewRoundTripper(s, p)}).Do
	})
	get("azcore", func(s *server) func(*http.Request) (*http.Response, error) {
		// Its RetryDelay of -1, which is said to mean none, waits a minute:
		// the zero that it becomes is taken for an overflow.
		p := runtime.NewPipeline("bench", "v0.0.0", runtime.PipelineOptions{}, &policy.ClientOptions{
			Transport: s, Retry: policy.RetryOptions{RetryDelay: 1, MaxRetryDelay: 1}, Telemetry: policy.TelemetryOptions{Disabled: true},
		})
		var wrapped *policy.Request
		return func(req *http.Request) (*http.Response, error) {
			if wrapped == nil {
				wrapped, _ = runtime.NewRequest(req.Context(), req.Method, req.URL.String())
			}
			return p.Do(wrapped)
		}
	})
}

// Success at once through a client.
func BenchmarkHTTP(b *testing.B) { browse(b, 0) }

// Three 503s, then 200, without a wait.
func BenchmarkHTTPFailures(b *testing.B) { browse(b, 3) }
