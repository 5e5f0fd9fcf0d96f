package main

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed-3d0f8764/retry"
)

// band is elapsed jitter with other constants: (low + (high-low)*u) * min(most, base + growth*elapsed).
type band struct {
	base, most        time.Duration
	growth, low, high float64
}

// shipped is what ElapsedJitter is, with Base 2s and Cap 25s.
var shipped = band{2 * time.Second, 20 * time.Second, 0.75, 0.5, 1.25}

func (b band) backoff() retry.Backoff {
	return retry.Backoff{Base: b.base, Cap: -1, Jitter: func(s retry.Step) time.Duration {
		window := min(float64(b.most), float64(b.base)+b.growth*float64(s.Elapsed))
		return time.Duration((b.low + (b.high-b.low)*s.Draw) * window)
	}}
}

func (b band) String() string {
	return fmt.Sprintf("U(%.2f, %.2f) * min(%.1fs, %.2fs + %.2f*elapsed)", b.low, b.high, b.most.Seconds(), b.base.Seconds(), b.growth)
}

// beside is b's figures as multiples of another's: geometric means over worlds, and the worst of each.
type beside struct {
	calls, last, worstCalls, worstLast float64
}

// score is what is made small: the worse of the two, as one is easily bought with the other.
func (s beside) score() float64 { return max(s.calls, s.last) }

// compare plays both with the same seeds.
func compare(worlds []world, b, with retry.Backoff, calls int) (s beside) {
	for _, w := range worlds {
		n := w.enough(calls)
		got, want := w.bareRuns(b, n, random), w.bareRuns(with, n, random)
		c, l := got.calls.mean()/want.calls.mean(), got.last.mean()/want.last.mean()
		s.calls += math.Log(c)
		s.last += math.Log(l)
		s.worstCalls, s.worstLast = max(s.worstCalls, c), max(s.worstLast, l)
	}
	n := float64(len(worlds))
	s.calls, s.last = math.Exp(s.calls/n), math.Exp(s.last/n)
	return s
}

// searchElapsed looks for better constants over the eleven pairs, and prints what the best of them do in
// the worlds that it has not seen.
func (r *report) searchElapsed() {
	type found struct {
		band
		score float64
	}
	draws := pcg(1 << 20)
	between := func(low, high float64) float64 { return low + (high-low)*draws.Float64() }
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	var all []found
	try := func(b band) {
		all = append(all, found{b, compare(pairs, b.backoff(), shipped.backoff(), 4000).score()})
	}
	first, then := r.runs(20, 150), r.runs(10, 250)
	for range first {
		try(band{seconds(between(1, 4)), seconds(between(10, 40)), between(0.3, 1.5), between(0.2, 0.9), between(1, 2)})
	}
	for range then { // near the best ones
		slices.SortFunc(all, func(a, b found) int { return cmp.Compare(a.score, b.score) })
		b := all[draws.IntN(6)].band
		b.base = seconds(b.base.Seconds() * math.Exp(0.1*draws.NormFloat64()))
		b.most = seconds(b.most.Seconds() * math.Exp(0.1*draws.NormFloat64()))
		b.growth *= math.Exp(0.1 * draws.NormFloat64())
		b.low *= math.Exp(0.1 * draws.NormFloat64())
		b.high *= math.Exp(0.05 * draws.NormFloat64())
		if b.low < b.high {
			try(b)
		}
	}
	slices.SortFunc(all, func(a, b found) int { return cmp.Compare(a.score, b.score) })
	heldOut := append(slices.Clone(laterPairs), otherServers...)
	r.table("Elapsed jitter, other constants", fmt.Sprintf("as multiples of the shipped ones: geometric mean (worst); %d candidates were tried on the eleven pairs", len(all)),
		[]string{"eleven pairs: calls", "last", "held-out worlds: calls", "last"}, func(row func(string, ...string)) {
			calls := r.runs(20_000, 100_000)
			for _, f := range all[:6] {
				var cells []string
				for _, worlds := range [][]world{pairs, heldOut} {
					s := compare(worlds, f.backoff(), shipped.backoff(), calls)
					cells = append(cells, fmt.Sprintf("%.3f (%.2f)", s.calls, s.worstCalls), fmt.Sprintf("%.3f (%.2f)", s.last, s.worstLast))
				}
				row(f.String(), cells...)
			}
		})
}

// unseen are gate worlds that PacedGate's constants were not searched in: hints in whole seconds, and many
// processes with a gate each.
var unseen = []gateWorld{
	{"1,000 at 100/s, whole seconds", 1, 1000, server{rate: 100, hint: wholeSeconds}, trip, 0},
	{"300 at 10/s, whole seconds", 1, 300, server{rate: 10, hint: wholeSeconds}, trip, 0},
	{"100 at 1/s, whole seconds", 1, 100, server{rate: 1, hint: wholeSeconds}, trip, 0},
	{"100 at 10/s, a bucket, whole seconds", 1, 100, server{rate: 10, hint: wholeSeconds, bucket: true}, trip, 0},
	{"1,000 at 10/s, a bucket, whole seconds", 1, 1000, server{rate: 10, hint: wholeSeconds, bucket: true}, trip, 0},
	{"1,000 at 100 per 10s, whole seconds", 1, 1000, server{rate: 100, window: 10 * time.Second, hint: wholeSeconds}, trip, 0},
	{"1,000 at 600 per 60s, whole seconds", 1, 1000, server{rate: 600, window: time.Minute, hint: wholeSeconds}, trip, 0},
	{"10 processes of 10 at 10/s, whole seconds", 10, 10, server{rate: 10, hint: wholeSeconds}, trip, 0},
	{"100 processes of 10 at 10/s, whole seconds", 100, 10, server{rate: 10, hint: wholeSeconds}, trip, 0},
	{"3 processes of 100 at 10/s, whole seconds", 3, 100, server{rate: 10, hint: wholeSeconds}, trip, 0},
	{"1,000 at 10/s, 20/s after 30s, whole seconds", 1, 1000, server{rate: 10, hint: wholeSeconds, double: 30 * time.Second}, trip, 0},
	{"100 at 10/s, round trip 1s, whole seconds", 1, 100, server{rate: 10, hint: wholeSeconds}, time.Second, 0},
	{"1,000 at 10/s, phase .37, whole seconds", 1, 1000, server{rate: 10, hint: wholeSeconds, shift: 370 * time.Millisecond}, trip, 0},
	{"1,000 at 2 per .2s, whole seconds", 1, 1000, server{rate: 2, window: 200 * time.Millisecond, hint: wholeSeconds}, trip, 0},
	{"400 at 25/s, whole seconds", 1, 400, server{rate: 25, hint: wholeSeconds}, trip, 0},
	{"50 processes of 20 at 10/s, exact hint", 50, 20, server{rate: 10, hint: exact}, trip, 0},
	{"30 processes of 10 at 10/s, exact hint", 30, 10, server{rate: 10, hint: exact}, trip, 0},
	{"200 processes of 5 at 20/s, exact hint", 200, 5, server{rate: 20, hint: exact}, trip, 0},
	{"100 processes of 10 at 100/s, exact hint", 100, 10, server{rate: 100, hint: exact}, trip, 0},
	{"20 processes of 5 at 1/s, exact hint", 20, 5, server{rate: 1, hint: exact}, trip, 0},
	{"300 processes of 3 at 10/s, exact hint", 300, 3, server{rate: 10, hint: exact}, trip, 0},
	{"100 processes of 3 at 5/s, whole seconds", 100, 3, server{rate: 5, hint: wholeSeconds}, trip, 0},
	{"50 processes of 20 at 10/s, no hint", 50, 20, server{rate: 10}, trip, 0},
	{"200 processes of 5 at 20/s, no hint", 200, 5, server{rate: 20}, trip, 0},
	{"20 processes of 5 at 1/s, no hint", 20, 5, server{rate: 1}, trip, 0},
	{"40 processes of 25 at 50/s, no hint", 40, 25, server{rate: 50}, trip, 0},
}

// once are worlds of whole-second hints that were looked at once, after all was fixed: the rule for such
// hints was refined over those above.
var once = []gateWorld{
	{"700 at 10/s, whole seconds", 1, 700, server{rate: 10, hint: wholeSeconds}, trip, 0},
	{"150 at 7/s, whole seconds", 1, 150, server{rate: 7, hint: wholeSeconds}, trip, 0},
	{"250 at 2/s, whole seconds", 1, 250, server{rate: 2, hint: wholeSeconds}, trip, 0},
	{"900 at 40/s, whole seconds", 1, 900, server{rate: 40, hint: wholeSeconds}, trip, 0},
	{"400 at 60 per 5s, whole seconds", 1, 400, server{rate: 60, window: 5 * time.Second, hint: wholeSeconds}, trip, 0},
	{"400 at 30 per 2s, whole seconds", 1, 400, server{rate: 30, window: 2 * time.Second, hint: wholeSeconds}, trip, 0},
	{"500 at 20/s, a bucket, whole seconds", 1, 500, server{rate: 20, hint: wholeSeconds, bucket: true}, trip, 0},
	{"500 at 15/s, round trip 10ms, whole seconds", 1, 500, server{rate: 15, hint: wholeSeconds}, trip / 10, 0},
	{"300 at 10/s, round trip 500ms, whole seconds", 1, 300, server{rate: 10, hint: wholeSeconds}, 5 * trip, 0},
	{"600 at 10/s, 20/s after 20s, whole seconds", 1, 600, server{rate: 10, hint: wholeSeconds, double: 20 * time.Second}, trip, 0},
	{"5 processes of 40 at 10/s, whole seconds", 5, 40, server{rate: 10, hint: wholeSeconds}, trip, 0},
	{"25 processes of 8 at 10/s, whole seconds", 25, 8, server{rate: 10, hint: wholeSeconds}, trip, 0},
}

// unseenGates prints what PacedGate does there as it is. Its constants cannot be set from outside: change
// them in gate.go, and run it again.
func (r *report) unseenGates(title string, worlds []gateWorld) {
	var mean overFloor
	r.table("PacedGate in "+title, "calls / last success in s", []string{"floor", pacedGate.name}, func(row func(string, ...string)) {
		for _, w := range worlds {
			runs := r.runs(4, 100)
			if w.processes*w.workers > 100 {
				runs = r.runs(2, 30)
			}
			f := w.runs(r.t, pacedGate, runs)
			mean.add(w, f)
			row(w.name, least(w.floor()), cost(f))
		}
		calls, last := mean.means()
		row("geometric mean over the floor", "1 / 1", fmt.Sprintf("%.3f / %.3f", calls, last))
	})
}

// searchBudget weighs how soon a storm is over against what a Bucket refuses where calls fail now and
// then by themselves: 1 in 10, at processes that are busy, and at many that are not.
func (r *report) searchBudget() {
	seed := func(i int) *rand.Rand { return pcg(1<<20 + i) }
	lost := func(w storm, d defence) string {
		var failed, requested int
		for _, a := range repeat(r.runs(1, 4), func(i int) aftermath { return w.run(d, seed(i)) }) {
			failed += a.failed
			requested += a.requested
		}
		return fmt.Sprintf("%.2f%%", 100*float64(failed)/float64(requested))
	}
	heals := func(w storm, d defence) string {
		s := total(repeat(r.runs(1, 4), func(i int) aftermath { return w.run(d, seed(i)) }))
		return fmt.Sprintf("%.1f", s.recovery.mean())
	}
	storms := []storm{weather, weather, weather}
	storms[1].processes = 300
	storms[2].outage, storms[2].load = 5*time.Second, 0.9
	for i := range storms {
		storms[i].end = 150 * time.Second
	}
	busy := storm{capacity: 1000, load: 0.5, processes: 5, end: 60 * time.Second, timeout: time.Second, failing: 0.1}
	idle := busy
	idle.processes = 250
	worse := busy
	worse.failing = 0.15
	r.table("Bucket, other settings", "seconds until a storm is over; share of requests lost where calls fail by themselves",
		[]string{"100 processes", "300 processes", "5s, 90% load", "10% fail", "10%, idle", "15% fail"}, func(row func(string, ...string)) {
			for _, b := range []struct{ capacity, earns float64 }{
				{10, 0.2}, {3, 0.2}, {5, 0.2}, {7, 0.2}, {20, 0.2}, {10, 0.1}, {10, 0.15}, {10, 0.3}, {5, 0.3}, {5, 0.5}, {3, 0.5},
			} {
				d := defence{attempts: 5, budget: func(*sim) retry.Budget {
					return &retry.Bucket{Capacity: b.capacity, PerSuccess: b.earns}
				}}
				var cells []string
				for _, w := range storms {
					cells = append(cells, heals(w, d))
				}
				row(fmt.Sprintf("reserve %g, %g per success", b.capacity, b.earns), append(cells, lost(busy, d), lost(idle, d), lost(worse, d))...)
			}
		})
}

func (r *report) search() error {
	r.unseenGates("worlds not searched", unseen)
	r.unseenGates("worlds looked at once", once)
	r.searchBudget()
	r.searchElapsed()
	return r.err
}
