// Command herd simulates many clients at one server, and prints what their strategies cost: calls, and
// the time until the last has succeeded. It drives the package's own code in virtual time (Backoff and
// the Jitter functions, Do, Bucket, PacedGate) and draws the two pictures in docs.
//
// The worlds are in herd.go (a crowd at a rate limit), gate.go (the same for a shared gate), storm.go (an
// outage) and contention.go (a row that all want to change). The tests hold the figures to what was
// published or measured elsewhere.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

const usage = `Usage: go run ./internal/herd [-quick] [-svg folder] [-search]

Simulates herds, hints, gates, storms and contention with the package's own code,
prints what the strategies cost, and draws herd.svg and storm.svg. Takes minutes.

`

func main() {
	quick := flag.Bool("quick", false, "few runs: seconds, and wider intervals; draws nothing unless -svg is given")
	folder := flag.String("svg", "", "where to draw (default docs)")
	search := flag.Bool("search", false, "search for better constants instead, and print how they do in worlds not searched")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "herd: unknown argument %q\n", flag.Arg(0))
		flag.Usage()
		os.Exit(2)
	}
	if *folder == "" && !*quick {
		*folder = "docs"
	}
	// A synctest bubble needs a *testing.T, and only this makes one. It does not return.
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{
		Name: "herd",
		F: func(t *testing.T) {
			r := &report{t: t, out: os.Stdout, news: os.Stderr, quick: *quick}
			var err error
			switch {
			case *search:
				err = r.search()
			default:
				if err = r.all(); err == nil && *folder != "" {
					err = r.draw(*folder)
				}
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, "herd:", err)
				os.Exit(1)
			}
			if !t.Failed() {
				os.Exit(0) // before the testing package says PASS
			}
		},
	}}, nil, nil)
}

// report makes the runs and prints the tables.
type report struct {
	t     *testing.T
	out   io.Writer // tables
	news  io.Writer // progress
	quick bool
	err   error // of out

	crowds map[string][2]figures // of 100 and 1,000 clients, for the picture
	storms map[string][]aftermath
}

func (r *report) runs(few, all int) int {
	if r.quick {
		return few
	}
	return all
}

func (r *report) all() error {
	r.crowds, r.storms = map[string][2]figures{}, map[string][]aftermath{}
	begin := time.Now()
	r.published()
	r.withoutHint()
	r.withHint()
	r.gates()
	r.outages()
	r.rows()
	fmt.Fprintf(r.news, "herd: all tables took %v\n", time.Since(begin).Round(time.Second/10))
	return r.err
}

// table prints a table whose rows come one by one: names to the left, figures to the right.
func (r *report) table(title, note string, head []string, rows func(row func(name string, cells ...string))) {
	all := [][]string{append([]string{""}, head...)}
	rows(func(name string, cells ...string) {
		fmt.Fprintf(r.news, "herd: %s: %s\n", title, name)
		all = append(all, append([]string{name}, cells...))
	})
	width := make([]int, len(all[0]))
	for _, line := range all {
		for i, cell := range line {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s: %s\n\n", title, note)
	for _, line := range all {
		fmt.Fprintf(&b, "%-*s", width[0], line[0])
		for i, cell := range line[1:] {
			fmt.Fprintf(&b, "  %*s", width[i+1], cell)
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(r.out, b.String())
	r.err = errors.Join(r.err, err)
}

// cost is "calls / last success in seconds", each with its 95% interval where there is a sample.
func cost(f figures) string {
	if f.calls.n == 1 {
		return fmt.Sprintf("%.0f / %.1f", f.calls.mean(), f.last.mean())
	}
	return fmt.Sprintf("%.0f±%.1f / %.1f±%.2f", f.calls.mean(), f.calls.sure(), f.last.mean(), f.last.sure())
}

func least(calls int, last time.Duration) string {
	return fmt.Sprintf("%d / %.0f", calls, last.Seconds())
}

func (r *report) published() {
	r.table("Published table", fmt.Sprintf("10 taken per second, Python's draws, %d runs: calls / last success in s", r.runs(20, 200)),
		[]string{"100 clients", "1,000 clients"}, func(row func(string, ...string)) {
			for _, st := range []strategy{none, full, equal, decorrelated} {
				var cells [2]string
				for i, clients := range []int{100, 1000} {
					runs := r.runs(20, 200)
					if st.name == none.name {
						runs = 1 // all are the same
					}
					f := herd{clients: clients, server: server{rate: 10}}.runs(st, runs, python)
					cells[i] = fmt.Sprintf("%.0f / %.1f", f.calls.mean(), f.last.mean())
				}
				row(st.name, cells[:]...)
			}
			var cells [2]string
			for i, clients := range []int{100, 1000} {
				cells[i] = least(herd{clients: clients, server: server{rate: 10}}.floor())
			}
			row("floor", cells[:]...)
		})
}

func (r *report) withoutHint() {
	var head []string
	for _, h := range crowds {
		head = append(head, fmt.Sprintf("%d at %d/s", h.clients, h.rate))
	}
	r.table("No hint", "calls / last success in s", head, func(row func(string, ...string)) {
		for _, st := range []strategy{none, full, equal, decorrelated, elapsedOnly, twin} {
			var cells []string
			for i, h := range crowds {
				runs := r.runs([]int{100, 10, 30, 10, 2}[i], []int{2000, 400, 1000, 400, 100}[i])
				if st.name == none.name {
					runs = 1
				}
				f := h.runs(st, runs, random)
				cells = append(cells, cost(f))
				r.keep(st.name, i, f)
			}
			row(st.name, cells...)
		}
	})
}

// keep keeps the figures of the i-th crowd for the picture, which shows the first two.
func (r *report) keep(name string, i int, f figures) {
	if i < 2 {
		both := r.crowds[name]
		both[i] = f
		r.crowds[name] = both
	}
}

func (r *report) withHint() {
	r.table("Retry-After in whole seconds", "10 taken per second: calls / last success in s, most calls in 1s",
		[]string{"100 clients", "peak", "1,000 clients", "peak"}, func(row func(string, ...string)) {
			for _, st := range []strategy{hintAlone, full, hintFull, hintElapsed} {
				name := st.name
				if name == full.name {
					name = "max(hint, full)"
				}
				var cells []string
				for i, clients := range []int{100, 1000} {
					runs := r.runs([]int{100, 10}[i], []int{2000, 400}[i])
					if name == hintAlone.name {
						runs = 1
					}
					f := herd{clients: clients, server: server{rate: 10, hint: wholeSeconds}}.runs(st, runs, random)
					cells = append(cells, cost(f), fmt.Sprintf("%.0f", f.peak.mean()))
					r.keep(name, i, f)
				}
				row(name, cells...)
			}
		})
}

func (r *report) gates() {
	hows := []gated{noGate, resumeOnly, awsAdaptive, pacedGate, openGate}
	means := make([]overFloor, len(hows))
	head := []string{"floor"}
	for _, how := range hows {
		head = append(head, how.name)
	}
	r.table("Gates", "one for each process, round trip 100ms ± 50% unless said: calls / last success in s", head, func(row func(string, ...string)) {
		for i, w := range gateWorlds {
			cells := []string{least(w.floor())}
			for j, how := range hows {
				runs := r.runs(10, 200)
				if w.processes*w.workers > 100 {
					runs = r.runs(2, 20)
					if how.name == pacedGate.name {
						runs = r.runs(4, 200)
					}
				}
				f := w.runs(r.t, how, runs)
				cells = append(cells, cost(f))
				r.keepGate(w.name, how, f)
				if i < meanWorlds {
					means[j].add(w, f)
				}
			}
			row(w.name, cells...)
		}
		cells := []string{"1 / 1"}
		for _, m := range means {
			calls, last := m.means()
			cells = append(cells, fmt.Sprintf("%.2f / %.2f", calls, last))
		}
		row(fmt.Sprintf("geometric mean of the first %d over the floor", meanWorlds), cells...)
	})
}

func (r *report) keepGate(world string, how gated, f figures) {
	if how.name != pacedGate.name {
		return
	}
	for name, worlds := range map[string][2]string{
		"gate, exact hint":    {"100 at 10/s, exact hint", "1,000 at 10/s, exact hint"},
		"gate, whole seconds": {"100 at 10/s, whole seconds", "1,000 at 10/s, whole seconds"},
		"gate, no hint":       {"100 at 10/s, no hint", "1,000 at 10/s, no hint"},
	} {
		for i := range worlds {
			if worlds[i] == world {
				r.keep(name, i, f)
			}
		}
	}
}

func (r *report) outages() {
	r.table("Storms", "100 processes, a server at 80% load, an outage of 10s, clients give up after 1s",
		[]string{"calls per request", "peak", "recovery in s"}, func(row func(string, ...string)) {
			for _, d := range defences {
				w, runs := weather, r.runs(1, 8)
				if r.quick {
					w.end = 150 * time.Second
				}
				if d.layers > 1 && d.budget == nil { // the same, with a quarter of the work
					w.capacity, w.processes = w.capacity/4, w.processes/4
					w.end, runs = 120*time.Second, r.runs(1, 2)
				}
				all := repeat(runs, func(i int) aftermath { return w.run(d, pcg(i)) })
				r.storms[d.name] = all
				sum := total(all)
				recovery := fmt.Sprintf("%.0f", sum.recovery.mean())
				if sum.recovery.mean() > w.end.Seconds() {
					recovery = "never"
				}
				row(d.name, fmt.Sprintf("%.2f", sum.perRequest.mean()), fmt.Sprintf("%.1f", sum.peak.mean()), recovery)
			}
		})
}

func (r *report) rows() {
	r.table("Contention", "for one row: writes / time until the last client is done in s",
		[]string{"10 clients", "50", "100", "190"}, func(row func(string, ...string)) {
			for _, c := range contenders {
				var cells []string
				for _, n := range []int{10, 50, 100, 190} {
					cells = append(cells, cost(contention{n}.runs(c.Backoff, r.runs(5, 100))))
				}
				row(c.name, cells...)
			}
		})
}

// draw writes the pictures.
func (r *report) draw(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	command := "go run ./internal/herd"
	if r.quick {
		command += " -quick -svg " + folder
	}
	for name, picture := range map[string]string{"herd.svg": r.herdPicture(command), "storm.svg": r.stormPicture(command)} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(picture), 0o644); err != nil {
			return err
		}
	}
	return nil
}
