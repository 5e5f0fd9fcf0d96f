package main_test

import (
	"math"
	"testing"

	"github.com/seed-3d0f8764/retry"
	"golang.org/x/time/rate"
)

// One call passes a gate that holds nobody, and its outcome is taken back;
// beside it a limiter that is never reached, which wants no outcomes.
func BenchmarkGate(b *testing.B) {
	gate := &retry.PacedGate{Start: -1}
	entry := retry.Entry{Weight: 1, Within: math.MaxInt64, MaxHint: math.MaxInt64}
	limiter := rate.NewLimiter(1e12, math.MaxInt32)
	for _, c := range []struct {
		name string
		pass func() error
	}{
		{"retry", func() error {
			leave, err := gate.Enter(b.Context(), entry)
			if err == nil {
				leave(retry.Outcome{Sent: true})
			}
			return err
		}},
		{"rate.Limiter", func() error { return limiter.Wait(b.Context()) }},
	} {
		b.Run("Enter/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := c.pass(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("EnterParallel/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := c.pass(); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
