package main_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	avast "github.com/avast/retry-go/v5"
	"github.com/seed-3d0f8764/retry"
	sethvargo "github.com/sethvargo/go-retry"
)

// Operations asleep for an hour, each in a goroutine of its own, on one
// cancellable context. The sizes are only right in a process that measures
// nothing else, as `go run .` sees to: dead goroutines are used again.
//
// start-ns/op is until all of them sleep, cancel-ns/op until all have returned;
// heap-B/op and stack-B/op are what one of them holds.
func BenchmarkAsleep(b *testing.B) {
	const hour = time.Hour
	long := retry.Backoff{Base: hour, Cap: -1, Jitter: retry.NoJitter}
	contenders := []contender{
		{"floor", errFlaky, func(ctx context.Context, w *work) (int, error) {
			v, err := w.do()
			timer := time.NewTimer(hour)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
				err = ctx.Err()
			}
			return v, err
		}},
		{"retry", transient, ours(&retry.Policy{Backoff: long, MaxElapsed: 24 * hour})},
		{"retry, no deadline", transient, ours(&retry.Policy{Backoff: long, MaxElapsed: -1})},
		{"cenkalti v5", errFlaky, cenkaltiV5(hour, 24*hour)},
		{"cenkalti v6", errFlaky, cenkaltiV6(hour, 24*hour)},
		{"avast, per ctx", errFlaky, avastPerContext(avast.Delay(hour))},
		{"sethvargo", sethvargo.RetryableError(errFlaky), seth(hour)},
		{"eapache", errFlaky, eapache(hour)},
		{"gax", errFlaky, gaxed(hour)},
		{"failsafe", errFlaky, failsafed(hour)},
	}
	for _, n := range []int{1, 100, 10_000, 100_000} {
		for _, c := range contenders {
			b.Run(fmt.Sprintf("n=%d/%s", n, c.name), func(b *testing.B) {
				var total nap
				rounds := 0
				for b.Loop() {
					rounds++
					total.add(sleepers(b, n, c))
				}
				per := float64(rounds * n)
				b.ReportMetric(0, "ns/op") // it would hold the pauses, too
				b.ReportMetric(float64(total.start)/per, "start-ns/op")
				b.ReportMetric(float64(total.cancel)/per, "cancel-ns/op")
				if n > 1 {
					b.ReportMetric(float64(total.heap)/per, "heap-B/op")
					b.ReportMetric(float64(total.stack)/per, "stack-B/op")
				}
			})
		}
	}
}

// nap is what a number of sleeping operations took and held.
type nap struct {
	start, cancel time.Duration
	heap, stack   int64
}

func (a *nap) add(b nap) {
	a.start, a.cancel, a.heap, a.stack = a.start+b.start, a.cancel+b.cancel, a.heap+b.heap, a.stack+b.stack
}

func sleepers(b *testing.B, n int, c contender) (took nap) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var (
		done     sync.WaitGroup
		survived atomic.Int64
	)
	heap, stack := inUse()
	began := time.Now()
	for range n {
		done.Go(func() {
			_, err := c.run(ctx, &work{err: c.err, fails: 2})
			if !errors.Is(err, context.Canceled) {
				survived.Add(1)
			}
		})
	}
	for calm := 0; calm < 2; calm++ {
		if busy() {
			calm = -1
		}
		if time.Since(began) > time.Minute {
			b.Fatal("they do not fall asleep")
		}
		runtime.Gosched()
	}
	took.start = time.Since(began)
	heapThen, stackThen := inUse()
	took.heap, took.stack = heapThen-heap, stackThen-stack

	began = time.Now()
	cancel()
	done.Wait()
	took.cancel = time.Since(began)
	if n := survived.Load(); n > 0 {
		b.Fatalf("%d operations did not end as cancelled", n)
	}
	return took
}

// busy says whether any goroutine but this one runs or wants to.
func busy() bool {
	s := []metrics.Sample{{Name: "/sched/goroutines/runnable:goroutines"}, {Name: "/sched/goroutines/running:goroutines"}}
	metrics.Read(s)
	return s[0].Value.Uint64() > 0 || s[1].Value.Uint64() > 1
}

// inUse is what live objects and all stacks take, after two collections: the
// second frees the stacks of dead goroutines.
func inUse() (heap, stack int64) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc), int64(m.StackInuse)
}
