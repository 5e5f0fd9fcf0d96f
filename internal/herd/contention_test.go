package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The order of the strategies that the AWS post found, from 10 to 190 clients: without jitter the waits
// cost time and save little; with it both fall. Full jitter does the least work, equal jitter takes longer
// for the same, and decorrelated jitter pays for its time with more work.
func TestContentionOrder(t *testing.T) {
	calls, last := map[string][]float64{}, map[string][]float64{}
	var clients []int
	for n := 10; n <= 190; n += sample(60, 20) {
		clients = append(clients, n)
		for _, c := range contenders {
			f := contention{n}.runs(c.Backoff, sample(30, 100))
			calls[c.name] = append(calls[c.name], f.calls.mean())
			last[c.name] = append(last[c.name], f.last.mean())
		}
	}
	for i, n := range clients {
		require.Greater(t, last["exponential"][i], 4*last["equal"][i], n)
		require.Greater(t, last["equal"][i], 1.2*last["full"][i], n)
		require.InEpsilon(t, calls["full"][i], calls["equal"][i], 0.12, n)
		require.InEpsilon(t, last["full"][i], last["decorrelated"][i], 0.3, n)
		if n < 60 {
			continue // few get into each other's way
		}
		require.Greater(t, calls["no wait"][i], 1.15*calls["exponential"][i], n)
		require.Greater(t, calls["exponential"][i], 1.6*calls["decorrelated"][i], n)
		require.Greater(t, calls["decorrelated"][i], 1.1*calls["full"][i], n)
	}
	// Without a wait the work is quadratic in the number of clients, with jitter not much more than linear.
	times := func(name string) float64 { c := calls[name]; return c[len(c)-1] / c[0] }
	require.Greater(t, times("no wait"), 19*19/2.5)
	require.Less(t, times("full"), 19*2.6)
}
