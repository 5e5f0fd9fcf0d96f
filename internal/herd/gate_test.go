package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The real gate with the real loop around it, every other wait and limit off, in virtual time.
func TestPacedGateReach(t *testing.T) {
	for _, row := range []struct {
		world       string
		calls, last float64
		few         int // of 200 runs
	}{
		{"100 at 10/s, no round trip, exact hint", 120, 10, 50},
		{"100 at 10/s, exact hint", 120, 10.3, 50},
		{"100 at 10/s, no hint", 120, 11.5, 50},
		{"1,000 at 10/s, exact hint", 1060, 105, 10},
		{"1,000 at 10/s, no hint", 1060, 105, 10},
		{"1,000 at 100/s, exact hint", 1.02 * 1091, 1.02 * 10.4, 10},
		{"10 processes of 10 at 10/s, exact hint", 1.05 * 167, 1.05 * 10.1, 50}, // a gate each
		{"100 processes of 10 at 10/s, exact hint", 1.1 * 2141, 1.1 * 131, 4},
	} {
		t.Run(row.world, func(t *testing.T) {
			f := gateWorldNamed(t, row.world).runs(t, pacedGate, sample(row.few, 200))
			t.Logf("%.1f±%.1f / %.2f±%.2f", f.calls.mean(), f.calls.sure(), f.last.mean(), f.last.sure())
			require.LessOrEqual(t, f.calls.mean(), row.calls)
			require.LessOrEqual(t, f.last.mean(), row.last)
		})
	}
}

// Where no limit is felt the gate costs the slow start, five round trips for 100 calls, and an open
// start nothing.
func TestPacedGateWithoutALimit(t *testing.T) {
	w := gateWorldNamed(t, "100 at 200/s: no limit is felt")
	f := w.runs(t, pacedGate, 20)
	require.Equal(t, 100.0, f.calls.most)
	require.LessOrEqual(t, f.last.most, 5*1.5*trip.Seconds())

	f = w.runs(t, openGate, 20)
	require.Equal(t, 100.0, f.calls.most)
	require.Equal(t, w.runs(t, noGate, 20).last.most, f.last.most)
}

// A pause that all share, alone, is the stampede: the whole crowd calls in each window.
func TestSharedPauseAloneIsAStampede(t *testing.T) {
	f := gateWorldNamed(t, "100 at 10/s, exact hint").runs(t, resumeOnly, 3)
	require.Equal(t, 550.0, f.calls.mean()) // 100 + 90 + 80 + …
}

func gateWorldNamed(t *testing.T, name string) gateWorld {
	t.Helper()
	for _, w := range gateWorlds {
		if w.name == name {
			return w
		}
	}
	require.Fail(t, "no such world", name)
	return gateWorld{}
}
