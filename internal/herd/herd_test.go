package main

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// -full makes as many runs as the figures were published with; without it each test makes as many
// as tell a broken rule from a sound one.
var allRuns = flag.Bool("full", false, "make all runs of the slow tables: minutes, not seconds")

func sample(few, all int) int {
	if *allRuns {
		return all
	}
	return few
}

func TestMTDrawsWhatPythonDraws(t *testing.T) {
	for seed, want := range map[uint64][]float64{
		0:         {0.8444218515250481, 0.7579544029403025, 0.420571580830845},
		199:       {0.3442457820794046, 0.3932187247774147, 0.2768088107347525},
		1<<40 + 7: {0.6137037779936511, 0.8149162973309487, 0.9450115087592873}, // a key of two words
	} {
		m := newMT(seed)
		for i, x := range want {
			require.Equal(t, x, m.Float64(), "seed %d, draw %d", seed, i)
		}
	}
	m := newMT(1)
	for range 1000 { // past the first twist
		m.Float64()
	}
	require.Equal(t, 0.4116430517162146, m.Float64())
}

// The package's own windows and strategies give the published table (10 admitted per second, means
// of 200 runs with Python's generator) to its last digit. Unrounded, the means are those of real-valued
// waits up to what whole nanoseconds move: a single event across a window's edge. With -full, and by the
// command, the loop does the same (TestBareRunsAreThoseOfDo).
func TestPublishedTableDigitForDigit(t *testing.T) {
	for _, row := range []struct {
		clients            int
		st                 strategy
		calls, last        string
		fineCalls, fineEnd float64
	}{
		{100, none, "640", "151.5", 640, 151.5},
		{100, full, "488", "22.1", 488.145, 22.1239},
		{100, equal, "452", "17.6", 451.53, 17.568559},
		{100, decorrelated, "374", "16.1", 374.295, 16.124468},
		{1000, none, "51490", "2851.5", 51490, 2851.5},
		{1000, full, "9133", "117.4", 9132.795, 117.383183},
		{1000, equal, "8288", "127.5", 8288.195, 127.515809},
		{1000, decorrelated, "9549", "123.4", 9549.435, 123.373604},
	} {
		t.Run(fmt.Sprint(row.clients, " ", row.st.name), func(t *testing.T) {
			runs := 200
			if row.st.name == none.name {
				runs = 1 // all are the same: no draw counts
			}
			h := herd{clients: row.clients, server: server{rate: 10}}
			f := h.bareRuns(row.st.Backoff, runs, python)
			if *allRuns {
				f = h.runs(row.st, runs, python)
			}
			require.Equal(t, row.calls, fmt.Sprintf("%.0f", f.calls.mean()))
			require.Equal(t, row.last, fmt.Sprintf("%.1f", f.last.mean()))
			require.InDelta(t, row.fineCalls, f.calls.mean(), 0.05)
			require.InDelta(t, row.fineEnd, f.last.mean(), 0.003)
		})
	}
	for clients, want := range map[int]time.Duration{100: 9 * time.Second, 1000: 99 * time.Second} {
		calls, last := herd{clients: clients, server: server{rate: 10}}.floor()
		require.Equal(t, clients, calls)
		require.Equal(t, want, last)
	}
}

// near requires that the sample's mean is the published one, as far as the sample can tell; half a
// unit of the last published digit is let pass.
func near(t *testing.T, want float64, s stat, digit float64, what string) {
	t.Helper()
	require.InDelta(t, want, s.mean(), 1.6*s.sure()+digit/2, what)
}

// Five crowds without a hint: means that were measured with other programs and other draws.
func TestCrowdsWithoutHint(t *testing.T) {
	for _, row := range []struct {
		st   strategy
		want [5][2]float64
	}{
		{full, [5][2]float64{{488, 21.5}, {9132, 118.1}, {1952, 49.1}, {5898, 40.7}, {47635, 318}}},
		{equal, [5][2]float64{{452, 17.5}, {8287, 127.1}, {1884, 56.8}, {5611, 45.5}, {38293, 325}}},
		{decorrelated, [5][2]float64{{374, 16.2}, {9552, 123.3}, {1794, 50.4}, {5043, 37.9}, {47232, 324}}},
		{elapsedOnly, [5][2]float64{{294, 14.4}, {6919, 115.2}, {1335, 43.9}, {3816, 28.0}, {38282, 315}}},
		{twin, [5][2]float64{{299, 16.3}, {7049, 114.9}, {1373, 50.3}, {3922, 33.9}, {38691, 315}}},
	} {
		for i, h := range crowds {
			runs := []int{1000, 100, 300, 100, 20}[i]
			f := h.bareRuns(row.st.Backoff, sample(runs, 12*runs), random)
			what := fmt.Sprintf("%s, %d at %d/s: %.1f±%.1f / %.2f±%.2f", row.st.name, h.clients, h.rate, f.calls.mean(), f.calls.sure(), f.last.mean(), f.last.sure())
			t.Log(what)
			near(t, row.want[i][0], f.calls, 1, what)
			digit := 0.1
			if row.want[i][1] > 300 {
				digit = 1
			}
			near(t, row.want[i][1], f.last, digit, what)
		}
	}
}

// What elapsed jitter is there for: it takes less time and fewer calls than any published strategy.
func TestElapsedJitterReach(t *testing.T) {
	h := herd{clients: 100, server: server{rate: 10}}
	f := h.runs(elapsedOnly, sample(400, 2000), random)
	require.LessOrEqual(t, f.calls.mean(), 300.0)
	require.LessOrEqual(t, f.last.mean(), 15.0)

	h.clients = 1000
	f = h.runs(elapsedOnly, sample(40, 400), random)
	require.LessOrEqual(t, f.calls.mean(), 7050.0)
	require.LessOrEqual(t, f.last.mean(), 116.5)
}

// What the rule for hints is there for.
func TestHintsReach(t *testing.T) {
	h := herd{clients: 100, server: server{rate: 10, hint: wholeSeconds}}
	f := h.runs(hintElapsed, sample(400, 2000), random)
	require.LessOrEqual(t, f.calls.mean(), 300.0)
	require.LessOrEqual(t, f.last.mean(), 15.0)

	h.clients = 1000
	f = h.runs(hintElapsed, sample(40, 400), random)
	require.LessOrEqual(t, f.calls.mean(), 7000.0)
	require.LessOrEqual(t, f.last.mean(), 117.0)
}

// Hints of whole seconds: heard alone they keep the crowd together.
func TestCrowdsWithHint(t *testing.T) {
	for _, row := range []struct {
		st   strategy
		want [2][2]float64
		peak float64 // 1,000 clients
	}{
		{hintAlone, [2][2]float64{{550, 9}, {50500, 99}}, 990},
		{full, [2][2]float64{{432, 19}, {8974, 118.1}}, 990},
		{hintFull, [2][2]float64{{376, 15.3}, {8517, 118.3}}, 0},
		{hintElapsed, [2][2]float64{{293, 14.7}, {6865, 115.7}}, 659},
	} {
		for i, clients := range []int{100, 1000} {
			h := herd{clients: clients, server: server{rate: 10, hint: wholeSeconds}}
			runs := []int{200, 20}[i]
			if row.st.name == hintAlone.name {
				runs = 1 // no draw counts
			}
			f := h.runs(row.st, sample(runs, 10*runs), random)
			what := fmt.Sprintf("%s, %d: %.1f±%.1f / %.2f±%.2f, peak %.0f", row.st.name, clients, f.calls.mean(), f.calls.sure(), f.last.mean(), f.last.sure(), f.peak.mean())
			t.Log(what)
			near(t, row.want[i][0], f.calls, 1, what)
			near(t, row.want[i][1], f.last, 0.1, what)
			if clients == 1000 && row.peak > 0 {
				near(t, row.peak, f.peak, 1, what)
			}
		}
	}
}
