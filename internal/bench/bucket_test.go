package main_test

import (
	"context"
	"sync/atomic"
	"testing"

	avast "github.com/avast/retry-go/v5"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/failsafe-go/failsafe-go/budget"
	"github.com/seed-3d0f8764/retry"
	"golang.org/x/time/rate"
)

// floorBucket is the least that a shared bucket can be: one atomic word.
type floorBucket struct {
	left atomic.Int64
	most int64
}

func (f *floorBucket) take(n int64) bool {
	for {
		left := f.left.Load()
		if left < n {
			return false
		}
		if f.left.CompareAndSwap(left, left-n) {
			return true
		}
	}
}

func (f *floorBucket) give(n int64) {
	for {
		left := f.left.Load()
		if left == f.most || f.left.CompareAndSwap(left, min(left+n, f.most)) {
			return
		}
	}
}

// permits are what failsafe's Budget does; its interface does not export them.
type permits interface {
	TryAcquirePermit() bool
	ReleasePermit()
	RecordExecution()
	ReleaseExecution()
}

// A full bucket is asked for one retry, which it allows, and given it back.
func BenchmarkBucket(b *testing.B) {
	ctx := context.Background()
	bucket := new(retry.Bucket)
	verdict := retry.Verdict{Class: retry.ClassTransient}
	floor := &floorBucket{most: 100}
	floor.give(100)
	throttle := avast.NewFixedTokenBucketThrottle(avast.FixedTokenBucketThrottleConfig{})
	tokens := ratelimit.NewTokenBucket(500)
	failsafe := budget.NewBuilder().WithMaxRate(1).Build().(permits)
	limiter := rate.NewLimiter(1000, 1000)
	for _, c := range []struct {
		name  string
		spend func() bool
	}{
		{"floor", func() bool { ok := floor.take(1); floor.give(1); return ok }},
		{"retry", func() bool {
			cost, err := bucket.Spend(ctx, verdict, 1)
			bucket.Return(ctx, cost)
			return err == nil
		}},
		{"avast", func() bool { ok := throttle.AllowRetry(0, errFlaky); throttle.OnSuccess(1); return ok }},
		{"aws", func() bool { _, ok := tokens.Retrieve(5); tokens.Refund(5); return ok }},
		{"failsafe", func() bool { ok := failsafe.TryAcquirePermit(); failsafe.ReleasePermit(); return ok }},
		{"rate.Limiter", func() bool { r := limiter.Reserve(); r.Cancel(); return r.OK() }},
	} {
		b.Run("Spend/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !c.spend() {
					b.Fatal("refused")
				}
			}
		})
		b.Run("SpendParallel/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if !c.spend() {
						b.Error("refused")
						return
					}
				}
			})
		})
	}
	for _, c := range []struct {
		name string
		earn func()
	}{
		{"floor", func() { floor.give(1) }},
		{"retry", func() { bucket.Earn(ctx, 0) }},
		{"avast", func() { throttle.OnSuccess(0) }},
		{"aws", func() { tokens.Refund(1) }},
		{"failsafe", func() { failsafe.RecordExecution(); failsafe.ReleaseExecution() }},
	} {
		b.Run("Earn/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.earn()
			}
		})
		b.Run("EarnParallel/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					c.earn()
				}
			})
		})
	}
}

// What a bucket takes from its owner, it allocates nothing for.
func TestBucketAllocations(t *testing.T) {
	ctx, bucket := t.Context(), new(retry.Bucket)
	if n := testing.AllocsPerRun(100, func() {
		cost, _ := bucket.Spend(ctx, retry.Verdict{Class: retry.ClassTransient}, 1)
		bucket.Return(ctx, cost)
		bucket.Earn(ctx, 0)
	}); n > 0 {
		t.Fatalf("%v allocations", n)
	}
}
