package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The real gate with the real loop around it, every other wait and limit off, in virtual time.
func TestPacedGateReach(t *testing.T) {
	for _, row := range []struct {
		world       int
		calls, last float64
		few         int // of 200 runs
	}{
		{0, 120, 10, 50},
		{4, 120, 11.5, 50},
		{5, 1060, 105, 10},
		{7, 1060, 105, 10},
		{13, 184, 11.1, 20}, // a gate each: a tenth above 167 / 10.1
	} {
		w := gateWorlds[row.world]
		t.Run(w.name, func(t *testing.T) {
			f := w.runs(t, pacedGate, sample(row.few, 200))
			t.Logf("%.1f±%.1f / %.2f±%.2f", f.calls.mean(), f.calls.sure(), f.last.mean(), f.last.sure())
			require.LessOrEqual(t, f.calls.mean(), row.calls)
			require.LessOrEqual(t, f.last.mean(), row.last)
		})
	}
}
