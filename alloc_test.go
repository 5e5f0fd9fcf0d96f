package retry_test

import (
	"context"
	"log/slog"
	"testing"
	"time"
	"unsafe"

	"github.com/seed-3d0f8764/retry"
	"github.com/stretchr/testify/require"
)

var noDeadline = &retry.Policy{MaxElapsed: -1}

func noWait(context.Context, time.Duration) error { return nil }

// First-attempt success: nothing is allocated without a deadline, once with
// one. The caller's closure, which captures, stays on its stack.
func TestFirstAttemptAllocations(t *testing.T) {
	cancelable := t.Context()
	timed, cancelTimed := context.WithTimeout(context.Background(), time.Hour)
	defer cancelTimed()
	x := 1
	for _, c := range []struct {
		name   string
		allocs float64
		do     func()
	}{
		{"no deadline", 0, func() {
			retry.Do(context.Background(), noDeadline, func(context.Context) (int, error) { x++; return x, nil })
		}},
		{"no deadline, cancellable", 0, func() {
			retry.Do(cancelable, noDeadline, func(context.Context) (int, error) { x++; return x, nil })
		}},
		{"no deadline, policy literal", 0, func() {
			retry.Do(cancelable, &retry.Policy{MaxElapsed: -1, Effect: retry.ReadOnly}, func(context.Context) (int, error) { x++; return x, nil })
		}},
		{"no deadline, budget", 0, func() {
			retry.Do(cancelable, &retry.Policy{MaxElapsed: -1, Budget: freeBudget{}}, func(context.Context) (int, error) { x++; return x, nil })
		}},
		{"no deadline, nil logger", 0, func() {
			retry.Do(cancelable, &retry.Policy{MaxElapsed: -1, Observe: retry.LogRecords((*slog.Logger)(nil))}, func(context.Context) (int, error) { x++; return x, nil })
		}},
		{"no deadline, Run", 0, func() {
			retry.Run(cancelable, noDeadline, func(context.Context) error { x++; return nil })
		}},
		{"nil policy", 1, func() {
			retry.Do(context.Background(), nil, func(context.Context) (int, error) { x++; return x, nil })
		}},
		{"policy literal", 1, func() {
			retry.Do(context.Background(), &retry.Policy{AttemptTimeout: time.Second}, func(context.Context) (int, error) { x++; return x, nil })
		}},
		{"deadline of ctx", 1, func() {
			retry.Do(timed, noDeadline, func(context.Context) (int, error) { x++; return x, nil })
		}},
	} {
		require.LessOrEqual(t, testing.AllocsPerRun(200, c.do), c.allocs, c.name)
	}
}

// freeBudget is a Budget that says yes.
type freeBudget struct{}

func (freeBudget) Spend(context.Context, retry.Verdict, float64) (float64, error) { return 1, nil }
func (freeBudget) Return(context.Context, float64)                                {}
func (freeBudget) Earn(context.Context, float64)                                  {}

// Three failures, then success: what the operation has gone through is one
// more allocation, whatever the number of attempts.
func TestThreeFailuresAllocations(t *testing.T) {
	failed := retry.Transient(errOp)
	p := &retry.Policy{Sleep: noWait}
	n := 0
	require.LessOrEqual(t, testing.AllocsPerRun(200, func() {
		n = 0
		retry.Do(context.Background(), p, func(context.Context) (int, error) {
			if n++; n < 4 {
				return 0, failed
			}
			return n, nil
		})
	}), 2.0)
	require.Equal(t, 4, n)
}

// A Policy is copied to change a field, and often written in the call.
func TestSizeOfPolicy(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(retry.Policy{}), uintptr(320))
}
