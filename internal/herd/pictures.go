package main

import "fmt"

// The colours are those of Okabe and Ito, which the colour-blind can tell apart.
const (
	orange = "#c4500a"
	purple = "#9a4f86"
	blue   = "#0067ab"
	green  = "#007a5a"
	grey   = "#6e7781"
)

// mark is one strategy in the picture of herds. Where its label stands is a matter of taste: dx and dy are
// for each panel.
type mark struct {
	name, label, color string
	ours               bool
	anchor             [2]string
	dx, dy             [2]float64
}

var marks = []mark{
	{full.name, "full jitter", orange, false, [2]string{"start", "start"}, [2]float64{9, 9}, [2]float64{4, 12}},
	{equal.name, "equal jitter", orange, false, [2]string{"start", "middle"}, [2]float64{9, 0}, [2]float64{4, -9}},
	{decorrelated.name, "decorrelated jitter", orange, false, [2]string{"start", "start"}, [2]float64{9, 9}, [2]float64{2, 0}},
	{elapsedOnly.name, "ElapsedJitter", orange, true, [2]string{"end", "start"}, [2]float64{-9, 16}, [2]float64{8, 19}},
	{hintAlone.name, "hint alone", purple, false, [2]string{"middle", "end"}, [2]float64{0, 8}, [2]float64{-10, -10}},
	{"max(hint, full)", "longer of hint and full", purple, false, [2]string{"end", "end"}, [2]float64{-9, -9}, [2]float64{4, 12}},
	{hintElapsed.name, "ElapsedJitter, hint + spread", purple, true, [2]string{"start", "start"}, [2]float64{10, 10}, [2]float64{6, 2}},
	{"gate, exact hint", "PacedGate, exact hint", blue, true, [2]string{"start", "start"}, [2]float64{10, 10}, [2]float64{8, 8}},
	{"gate, no hint", "PacedGate, no hint", blue, true, [2]string{"start", "start"}, [2]float64{10, 10}, [2]float64{0, 0}},
	{"gate, whole seconds", "PacedGate, whole seconds", blue, true, [2]string{"start", "start"}, [2]float64{10, 10}, [2]float64{4, 15}},
}

// herdPicture shows calls against completion time of every strategy.
func (r *report) herdPicture(command string) string {
	d := newDrawing(1000, 560, "Calls and time that clients need to get a call each through a rate limit, by strategy")
	d.text(24, 34, "start", ink, "What it costs to get everybody through a limit of 10 calls per second", bold, large)
	d.text(24, 56, "start", faint, "All call at the same instant. Lower and further left is better; nothing can be below the floor. Times do not start at 0.")
	x := 24.0
	for _, group := range []struct{ name, color string }{
		{"each alone, no hint", orange}, {"each alone, Retry-After in whole seconds", purple}, {"a gate that all share, round trip 100 ms", blue}, {"floor", ink},
	} {
		d.dot(x+5, 77, 5, group.color)
		d.text(x+16, 81, "start", ink, group.name)
		x += 40 + 6.7*float64(len(group.name))
	}
	for i, clients := range []int{100, 1000} {
		h := herd{clients: clients, server: server{rate: 10}}
		left := 70 + 490*float64(i)
		across := axis{from: left, to: left + 410, log: true, low: 90, high: 900, ticks: []float64{100, 200, 300, 400, 600, 800}}
		up := axis{from: 484, to: 150, low: 8, high: 24, ticks: []float64{8, 12, 16, 20, 24}, unit: " s"}
		if i == 1 {
			across.low, across.high, across.ticks = 900, 75000, []float64{1000, 2000, 5000, 10000, 20000, 50000}
			up.low, up.high, up.ticks = 96, 132, []float64{100, 105, 110, 115, 120, 125, 130}
		}
		d.text(left-46, 112, "start", ink, number(float64(clients))+" clients", bold)
		d.frame(across, up, "calls in all (log scale)", "time until the last has succeeded")

		calls, last := h.floor()
		fx, fy := across.at(float64(calls)), up.at(last.Seconds())
		d.line(fx, up.from, fx, up.to, ink, 1, `stroke-dasharray="3 4"`)
		d.line(across.from, fy, across.to, fy, ink, 1, `stroke-dasharray="3 4"`)
		d.dot(fx, fy, 5, ink)
		for _, m := range marks {
			f := r.crowds[m.name][i]
			x, y := across.at(f.calls.mean()), up.at(f.last.mean())
			radius, weight := 4.5, ""
			if m.ours {
				radius, weight = 6, bold
			}
			d.dot(x, y, radius, m.color)
			d.text(x+m.dx[i], y+m.dy[i], m.anchor[i], m.color, m.label, small, weight)
		}
		f := r.crowds[none.name][i]
		d.text(across.to, up.to+14, "end", orange, fmt.Sprintf("off the chart, no jitter: %s calls, %s s ↗", number(f.calls.mean()), number(f.last.mean())), small)
	}
	d.text(24, 542, "start", faint, "Means of seeded runs of the package's own code in virtual time. Drawn by: "+command, small)
	return d.done()
}

// stormPicture shows goodput and load through an outage.
func (r *report) stormPicture(command string) string {
	d := newDrawing(1000, 690, "Answered requests and calls per second through an outage, with and without a budget")
	d.text(24, 34, "start", ink, "An outage of 10 s, with and without a retry budget", bold, large)
	d.text(24, 56, "start", faint, "100 processes ask for 80% of what one queue serves. Clients give a call up after 1 s; the server does the work all the same.")

	across := axis{from: 76, to: 976, low: -10, high: 110, ticks: []float64{-10, 0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110}, unit: " s"}
	share := axis{from: 340, to: 110, low: 0, high: 140, ticks: []float64{0, 25, 50, 75, 100, 125}, unit: "%"}
	load := axis{from: 600, to: 420, low: 0, high: 4.5, ticks: []float64{0, 1, 2, 3, 4}, unit: "×"}
	for _, up := range []axis{share, load} {
		d.rect(across.at(0), up.to, across.at(10)-across.at(0), up.from-up.to, "#fbe9e7")
	}
	d.frame(across, share, "", "requests answered in each second, share of those that come in")
	d.frame(across, load, "time since the outage began", "calls sent, as a multiple of the requests that come in")
	d.text(across.at(5), share.to+16, "middle", orange, "outage", small)

	for _, s := range []struct {
		name, label, color string
		width              float64
		good, peak         [2]float64 // places of the labels: time, value
		anchor             [2]string
	}{
		{"AWS bucket 500/5", "AWS bucket 500/5", purple, 2, [2]float64{94.5, 62}, [2]float64{8, 4.1}, [2]string{"end", "start"}},
		{"10% of requests", "10% of requests", green, 2, [2]float64{69, 40}, [2]float64{22.5, 1.9}, [2]string{"end", "start"}},
		{"no retry", "no retry", grey, 2, [2]float64{44, 62}, [2]float64{}, [2]string{"end"}},
		{"Bucket (20% of successes)", "Bucket", blue, 3, [2]float64{51.5, 62}, [2]float64{3, 1.9}, [2]string{"start", "start"}},
		{"3 attempts, no budget", "3 attempts, no budget", orange, 2.5, [2]float64{12.5, 20}, [2]float64{109.5, 3.25}, [2]string{"start", "end"}},
	} {
		all := r.storms[s.name]
		good, calls := []([2]float64){}, []([2]float64){}
		begins := int(weather.begins.Seconds())
		for i := begins - 10; i < begins+110; i++ {
			var g, in, c float64
			for _, a := range all {
				g += a.good[i]
				in += a.requests[i]
				c += a.calls[i] / float64(len(all))
			}
			t := float64(i-begins) + 0.5
			good = append(good, [2]float64{across.at(t), share.at(100 * g / in)})
			calls = append(calls, [2]float64{across.at(t), load.at(c / (weather.load * weather.capacity))})
		}
		d.path(good, s.color, s.width)
		d.path(calls, s.color, s.width)
		sum := total(all)
		heals := "never"
		if t := sum.recovery.mean(); t < 1000 {
			heals = fmt.Sprintf("after %.0f s", t)
		}
		x, y := across.at(s.good[0]), share.at(s.good[1])
		d.text(x, y, s.anchor[0], s.color, s.label, bold)
		d.text(x, y+17, s.anchor[0], s.color, heals)
		if s.peak[0] != 0 {
			d.text(across.at(s.peak[0]), load.at(s.peak[1]), s.anchor[1], s.color, fmt.Sprintf("%s: up to %.1f×", s.label, sum.peak.mean()), small, bold)
		}
	}
	d.text(24, 660, "start", faint, "Times count from the end of the outage until 95% are answered, for good. 125% is all that the server can do. Bucket: its zero value.", small)
	d.text(24, 677, "start", faint, "Means of seeded runs of the package's own code in virtual time. Drawn by: "+command, small)
	return d.done()
}
