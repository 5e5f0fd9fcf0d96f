package main_test

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	avast "github.com/avast/retry-go/v5"
	awsretry "github.com/aws/aws-sdk-go-v2/aws/retry"
	backoffv5 "github.com/cenkalti/backoff/v5"
	backoffv6 "github.com/cenkalti/backoff/v6"
	"github.com/googleapis/gax-go/v2"
	"github.com/seed-3d0f8764/retry"
	"github.com/seed-3d0f8764/retry/internal/bench/unexported"
	sethvargo "github.com/sethvargo/go-retry"
)

// sink keeps results alive.
var sink time.Duration

// fields are the Retry-After values of the rows; now is ten seconds before
// the dates, which all name the same second.
var (
	now    = time.Date(2094, time.November, 6, 8, 49, 27, 0, time.UTC)
	fields = []struct{ name, value string }{
		{"Seconds", "120"},
		{"IMF", "Sat, 06 Nov 2094 08:49:37 GMT"},
		{"RFC850", "Saturday, 06-Nov-94 08:49:37 GMT"},
		{"Asctime", "Sat Nov  6 08:49:37 2094"},
		{"Refused", "1e400"},
	}
)

// The wait that a Retry-After field asks for. The two peers take theirs from
// the header, and have no clock but the real one.
func BenchmarkRetryAfter(b *testing.B) {
	for _, f := range fields {
		ask := func(name string, wants bool, parse func(string) (time.Duration, bool)) {
			b.Run(f.name+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				value := strings.Clone(f.value)
				var ok bool
				for b.Loop() {
					sink, ok = parse(value)
				}
				if ok != wants {
					b.Fatal(sink, ok)
				}
			})
		}
		known := f.name != "Refused"
		ask("retry", known, func(s string) (time.Duration, bool) { return retry.ParseRetryAfter(s, now) })
		if f.name == "Seconds" {
			ask("Atoi", true, func(s string) (time.Duration, bool) {
				n, err := strconv.Atoi(s)
				return time.Duration(n) * time.Second, err == nil
			})
		} else {
			ask("http.ParseTime", known, func(s string) (time.Duration, bool) {
				t, err := http.ParseTime(s)
				return t.Sub(now), err == nil
			})
		}
		header := []string{f.value}
		ask("go-retryablehttp", f.name == "Seconds" || f.name == "IMF", func(string) (time.Duration, bool) {
			return unexported.RetryableHTTP(header)
		})
		resp := &http.Response{Header: http.Header{"Retry-After": header}}
		ask("azcore", f.name == "Seconds" || f.name == "IMF", func(string) (time.Duration, bool) {
			d := unexported.AzcoreRetryAfter(resp)
			return d, d != 0
		})
	}
}

// One own wait, the third of an operation: growing from 100 ms to at most
// 30 s, with the widest jitter that the library has.
func BenchmarkWait(b *testing.B) {
	draw := func(name string, wait func() time.Duration) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sink = wait()
			}
		})
	}
	const base, most = 100 * time.Millisecond, 30 * time.Second
	draw("floor", func() time.Duration { return time.Duration(rand.Float64() * float64(min(base<<2, most))) })
	p := retry.Backoff{Base: base, Cap: most}
	draw("retry", func() time.Duration { return p.Wait(retry.Step{Retry: 2, Draw: rand.Float64()}) })
	v5 := &backoffv5.ExponentialBackOff{InitialInterval: base, MaxInterval: most, Multiplier: 2, RandomizationFactor: 1}
	draw("cenkalti v5", v5.NextBackOff)
	v6 := &backoffv6.ExponentialBackOff{InitialInterval: base, MaxInterval: most, Multiplier: 2, RandomizationFactor: 1}
	draw("cenkalti v6", v6.NextBackOff)
	s := sethvargo.WithFullJitter(sethvargo.WithCappedDuration(most, sethvargo.NewExponential(base)))
	draw("sethvargo", func() time.Duration { d, _ := s.Next(); return d })
	draw("avast", func() time.Duration { return avast.FullJitterBackoffDelay(3, nil, avastDelay{}) })
	g := &gax.Backoff{Initial: base, Max: most, Multiplier: 2}
	draw("gax", g.Pause)
	a := awsretry.NewExponentialJitterBackoff(most)
	draw("aws", func() time.Duration { d, _ := a.BackoffDelay(2, nil); return d })
}

// avastDelay are the settings that its Retrier hands to a delay function.
type avastDelay struct{}

func (avastDelay) Delay() time.Duration     { return 100 * time.Millisecond }
func (avastDelay) MaxJitter() time.Duration { return 100 * time.Millisecond }
func (avastDelay) MaxBackOffN() uint        { return 36 }
func (avastDelay) MaxDelay() time.Duration  { return 30 * time.Second }

// A window costs the same at any attempt: with the default growth, and with
// one so slow that there is no cap in reach.
func BenchmarkWindow(b *testing.B) {
	for _, c := range []struct {
		name string
		p    retry.Backoff
	}{
		{"Default", retry.Backoff{}},
		{"Slow", retry.Backoff{Base: time.Millisecond, Cap: -1, Multiplier: 1.000001}},
	} {
		for _, n := range []int{10, 1_000, 1_000_000, 1_000_000_000} {
			b.Run(c.name+"/n="+strconv.Itoa(n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					sink = c.p.Window(n)
				}
			})
		}
	}
}
