package main

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func defenceNamed(t *testing.T, name string) defence {
	t.Helper()
	for _, d := range defences {
		if d.name == name {
			return d
		}
	}
	require.Fail(t, "no such defence", name)
	return defence{}
}

// What a budget is worth in a storm: within 10% of what was measured with another program. Those that
// never heal are watched for as long as tells.
func TestStorms(t *testing.T) {
	never := math.Inf(1)
	for _, row := range []struct {
		name                       string
		perRequest, peak, recovery float64
		end                        time.Duration
	}{
		{"no retry", 1.00, 1.09, 35, 150 * time.Second},
		{"3 attempts, no budget", 2.95, 3.2, never, 150 * time.Second},
		{"AWS bucket 500/5", 1.18, 4.3, 84, 150 * time.Second},
		{"AWS bucket 500/14", 1.06, 2.9, 52, 150 * time.Second},
		{"10% of requests", 1.10, 1.8, 66, 150 * time.Second},
		{"10% of requests + 1/s", 1.22, 2.3, never, 340 * time.Second},
		{"Bucket, 10% of successes", 1.02, 1.9, 40, 150 * time.Second},
		{"Bucket (20% of successes)", 1.02, 1.9, 40, 150 * time.Second},
		{"gRPC 10/0.1", 1.01, 1.5, 36, 150 * time.Second},
		{"3 layers of 3, no budget", 21.6, 27, never, 101 * time.Second},
		{"3 layers of 3, Bucket, refusals marked", 1.02, 1.9, 40, 150 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := weather
			w.end = row.end
			runs := 2
			if row.perRequest > 10 {
				w.capacity, w.processes, runs = w.capacity/4, w.processes/4, 1 // the same, with a quarter of the work
			}
			if *allRuns {
				w.end = weather.end
			}
			got := w.runs(defenceNamed(t, row.name), sample(runs, 8))
			require.InEpsilon(t, row.perRequest, got.perRequest.mean(), 0.1)
			require.InEpsilon(t, row.peak, got.peak.mean(), 0.1)
			if math.IsInf(row.recovery, 1) {
				require.Equal(t, row.recovery, got.recovery.mean())
			} else {
				require.InEpsilon(t, row.recovery, got.recovery.mean(), 0.1)
			}
		})
	}
}

// The closed form: what waits at the end of the outage, over what is left of the capacity.
func TestStormRecoveryIsWhatTheClosedFormSays(t *testing.T) {
	for _, row := range []struct {
		name           string
		earns, reserve float64 // retries, per request and per process
	}{
		{"no retry", 0, 0},
		{"Bucket (20% of successes)", 0, 10},
	} {
		w := weather
		w.end = 150 * time.Second
		got := w.runs(defenceNamed(t, row.name), 2)
		flow := w.load * w.capacity * (1 + row.earns)
		want := (w.outage.Seconds()*flow + row.reserve*float64(w.processes) - w.capacity*w.timeout.Seconds()) / (w.capacity - flow)
		require.InEpsilon(t, want, got.recovery.mean(), 0.1, row.name)
	}
}

// A refusal that the layers above take for an ordinary failure is repeated by them.
func TestStormRefusalsAreMarked(t *testing.T) {
	w := weather
	w.end = 150 * time.Second
	marked := w.runs(defenceNamed(t, "3 layers of 3, Bucket, refusals marked"), 2)
	not := w.runs(defenceNamed(t, "3 layers of 3, Bucket, refusals not marked"), 2)
	require.Greater(t, not.peak.mean(), 1.3*marked.peak.mean())
	require.Greater(t, not.recovery.mean(), 1.1*marked.recovery.mean())
}

// Where one call in ten fails by itself the Bucket refuses nothing, and gRPC's loses 8%.
func TestBudgetsWithOrdinaryFailures(t *testing.T) {
	w := storm{capacity: 1000, load: 0.5, processes: 5, end: 60 * time.Second, timeout: time.Second, failing: 0.1}
	lost := func(name string) float64 {
		a := w.run(defenceNamed(t, name), pcg(0))
		return float64(a.failed) / float64(a.requested)
	}
	require.Less(t, lost("Bucket (20% of successes)"), 0.001)
	require.InDelta(t, 0.08, lost("gRPC 10/0.1"), 0.01)
}
