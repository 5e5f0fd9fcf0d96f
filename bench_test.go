package retry_test

import (
	"context"
	"testing"
	"time"

	"github.com/seed-3d0f8764/retry"
)

// The benchmarks stand beside what they are to be compared with, in one run:
//
//	go test -run '^$' -bench 'Success|Failures' -count 5 .

var benchValue int

func BenchmarkSuccess(b *testing.B) {
	ctx := context.Background()
	x := 1
	direct := func(context.Context) (int, error) { return x, nil }
	b.Run("direct", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			benchValue, _ = direct(ctx)
		}
	})
	b.Run("attempts only", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			benchValue, _ = retry.Do(ctx, noDeadline, func(context.Context) (int, error) { return x, nil })
		}
	})
	b.Run("attempts only, literal", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			benchValue, _ = retry.Do(ctx, &retry.Policy{MaxElapsed: -1}, func(context.Context) (int, error) { return x, nil })
		}
	})
	b.Run("deadline", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			benchValue, _ = retry.Do(ctx, nil, func(context.Context) (int, error) { return x, nil })
		}
	})
	b.Run("deadline, context.WithTimeout", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
			benchValue, _ = direct(ctx)
			cancel()
		}
	})
	waits := func(ctx context.Context) (int, error) { ctx.Done(); return x, nil }
	b.Run("deadline, Done", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			benchValue, _ = retry.Do(ctx, nil, waits)
		}
	})
	b.Run("deadline, Done, context.WithTimeout", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
			benchValue, _ = waits(ctx)
			cancel()
		}
	})
}

func BenchmarkThreeFailures(b *testing.B) {
	failed := retry.Transient(errOp)
	run := func(b *testing.B, p *retry.Policy) {
		b.ReportAllocs()
		for b.Loop() {
			n := 0
			benchValue, _ = retry.Do(b.Context(), p, func(context.Context) (int, error) {
				if n++; n < 4 {
					return 0, failed
				}
				return n, nil
			})
		}
	}
	b.Run("no-op sleeper", func(b *testing.B) { run(b, &retry.Policy{Sleep: noWait}) })
	b.Run("real timers of 1ns", func(b *testing.B) {
		run(b, &retry.Policy{Backoff: retry.Backoff{Base: 1, Jitter: retry.NoJitter, Multiplier: 1}})
	})
}
