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

// Bucket: asked for a retry that is then given back; told of a success while
// it is full, and while it is not. On two cores: -cpu 2.
//
//	go test -run '^$' -bench Bucket -cpu 1,2 -count 5 .
func BenchmarkBucket(b *testing.B) {
	ctx := context.Background()
	v := retry.Verdict{Class: retry.ClassTransient}
	askAndGive := func(b *testing.B, bucket *retry.Bucket) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if cost, err := bucket.Spend(ctx, v, 1); err == nil {
					bucket.Return(ctx, cost)
				}
			}
		})
	}
	b.Run("ask and give back", func(b *testing.B) { askAndGive(b, new(retry.Bucket)) })
	b.Run("ask and give back, AWS", func(b *testing.B) { askAndGive(b, awsBucket()) })
	b.Run("credit when full", func(b *testing.B) {
		bucket := new(retry.Bucket)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				bucket.Earn(ctx, 0)
			}
		})
	})
	b.Run("ask and credit", func(b *testing.B) { // never full
		bucket := &retry.Bucket{PerSuccess: 1, Cost: 1}
		_, _ = bucket.Spend(ctx, v, 1)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if cost, err := bucket.Spend(ctx, v, 1); err == nil {
					bucket.Earn(ctx, cost)
				}
			}
		})
	})
	b.Run("refused", func(b *testing.B) {
		bucket := &retry.Bucket{Cost: 11}
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				_, _ = bucket.Spend(ctx, v, 1)
			}
		})
	})
}
