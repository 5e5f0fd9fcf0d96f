package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchmath"
)

// results are the values of each benchmark and unit, one a pass. The passes
// interleave all benchmarks, so that values of one pass belong together.
type results map[string]map[string][]float64

// time runs the benchmarks of all rows but the sleeping ones once.
func (r results) time(binary, benchtime string, only *regexp.Regexp) error {
	var names []string
	for _, row := range rows {
		name, _, _ := strings.Cut(row.bench, "/")
		if name != "Asleep" && only.MatchString(row.bench) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if names == nil {
		return nil
	}
	return r.collect(binary, "^Benchmark("+strings.Join(names, "|")+")$", benchtime)
}

// sleep runs each sleeping benchmark in a process of its own.
func (r results) sleep(binary string, only *regexp.Regexp) error {
	for _, n := range crowds {
		if !only.MatchString(fmt.Sprintf("Asleep/n=%d", n)) {
			continue
		}
		for _, s := range sleepers {
			if n > 10_000 && !s.many {
				continue
			}
			name := regexp.QuoteMeta(strings.ReplaceAll(s.name, " ", "_"))
			if err := r.collect(binary, fmt.Sprintf("^BenchmarkAsleep$/^n=%d$/^%s$", n, name), "1x"); err != nil {
				return err
			}
		}
	}
	return nil
}

// collect adds what one run of the benchmarks yields.
func (r results) collect(binary, bench, benchtime string) error {
	text, err := output(".", binary, "-test.run", "^$", "-test.bench", bench, "-test.benchtime", benchtime)
	if err != nil {
		return err
	}
	reader := benchfmt.NewReader(strings.NewReader(text), "")
	for reader.Scan() {
		result, ok := reader.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		name := plain(result.Name)
		if r[name] == nil {
			r[name] = map[string][]float64{}
		}
		for _, v := range result.Values {
			r[name][v.Unit] = append(r[name][v.Unit], v.Value)
		}
	}
	return reader.Err()
}

// plain is a benchmark's name as it was written: without the number of
// processors, and with its spaces.
func plain(n benchfmt.Name) string {
	full := string(n.Full())
	if _, parts := n.Parts(); len(parts) > 0 {
		if last := string(parts[len(parts)-1]); last[0] == '-' {
			full = strings.TrimSuffix(full, last)
		}
	}
	return strings.ReplaceAll(full, "_", " ")
}

// entry is one sub-benchmark of a row.
type entry struct {
	name          string
	values        []float64
	allocs, bytes float64
	ratio         benchmath.Summary // to ours, pass by pass
}

// entries returns the sub-benchmarks of a row, the fastest first.
func (r results) entries(w row) []entry {
	units := w.units
	if units == nil {
		units = []string{inTime}
	}
	var found []entry
	for name, by := range r {
		sub, ok := strings.CutPrefix(name, w.bench+"/")
		if !ok || strings.Contains(sub, "/") && !strings.HasPrefix(sub, "net/http") || len(by[units[0]]) == 0 {
			continue
		}
		e := entry{name: sub, values: make([]float64, len(by[units[0]])), allocs: median(by["allocs/op"]), bytes: median(by["B/op"])}
		for _, u := range units {
			for i, v := range by[u] {
				e.values[i] += v
			}
		}
		found = append(found, e)
	}
	slices.SortFunc(found, func(a, b entry) int {
		return cmp.Or(cmp.Compare(median(a.values), median(b.values)), cmp.Compare(a.name, b.name))
	})
	if i := slices.IndexFunc(found, func(e entry) bool { return e.name == w.ours }); i >= 0 {
		own := found[i].values
		for i := range found {
			ratios := make([]float64, min(len(own), len(found[i].values)))
			for n := range ratios {
				ratios[n] = found[i].values[n] / own[n]
			}
			found[i].ratio = summary(ratios)
		}
	}
	return found
}

func summary(values []float64) benchmath.Summary {
	return benchmath.AssumeNothing.Summary(benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds), 0.95)
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	return summary(values).Center
}

// verdict says whether a row's reach is reached, and by how much. Less than
// 15% beyond it is noise.
func verdict(w row, found []entry) string {
	own := slices.IndexFunc(found, func(e entry) bool { return e.name == w.ours })
	if own < 0 {
		return "not measured"
	}
	if w.limits == nil {
		return "–"
	}
	if w.allocs >= 0 && found[own].allocs > float64(w.allocs) {
		return fmt.Sprintf("no: %.0f allocs", found[own].allocs)
	}
	worst, at := 0.0, ""
	for _, l := range w.limits {
		for _, e := range found {
			if e.name == l.of || l.of == "" && e.name != w.ours && !slices.Contains(w.skip, e.name) {
				if beyond := 1 / e.ratio.Center / l.most; beyond > worst {
					worst, at = beyond, fmt.Sprintf("%.2f × %s", 1/e.ratio.Center, e.name)
				}
			}
		}
	}
	switch {
	case at == "":
		return "not measured"
	case worst <= 1:
		return "yes: " + at
	case worst <= 1.15:
		return "within noise: " + at
	}
	return "no: " + at
}

// best is the fastest of a row's peers.
func best(w row, found []entry) (entry, bool) {
	for _, e := range found {
		if e.name != w.ours && !slices.Contains(w.skip, e.name) {
			return e, true
		}
	}
	return entry{}, false
}

func head(to io.Writer, passes int, benchtime string) error {
	fmt.Fprintf(to, "# Side by side\n\nWritten by `go run .` in internal/bench on %s: %s, %d cores, %d passes of %s each.\n",
		time.Now().UTC().Format(time.DateOnly), runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH, runtime.NumCPU(), passes, benchtime)
	fmt.Fprintln(to, `Only ratios hold from run to run and from machine to machine. A ratio is the other's median to ours; its interval, of
95%, is that of the median of the ratios pass by pass (golang.org/x/perf/benchmath, as benchstat does it; ± of the median likewise).
What each library does, and with which settings, is in the tests.`)
	list, err := output(".", "go", "list", "-m", "-f", "{{if not .Indirect}}{{if not .Main}}{{if not .Replace}}{{.Path}} {{.Version}}{{end}}{{end}}{{end}}", "all")
	if err != nil {
		return err
	}
	fmt.Fprintf(to, "\n%s.\n", strings.Join(slices.DeleteFunc(strings.Split(list, "\n"), func(s string) bool { return s == "" }), " · "))
	return nil
}

// write writes the summary and the table of each row.
func (r results) write(to io.Writer, only *regexp.Regexp) {
	if !slices.ContainsFunc(rows, func(w row) bool { return only.MatchString(w.bench) }) {
		return
	}
	fmt.Fprint(to, "\n## What is to be reached\n\n| what | ours | best other | it is, of ours | to reach | reached |\n|---|---|---|---|---|---|\n")
	for _, w := range rows {
		if !only.MatchString(w.bench) {
			continue
		}
		found := r.entries(w)
		own := slices.IndexFunc(found, func(e entry) bool { return e.name == w.ours })
		if own < 0 {
			fmt.Fprintf(to, "| %s | – | – | – | %s | not measured |\n", w.title, w.reach)
			continue
		}
		other, name, ratio := "–", "", "–"
		if e, ok := best(w, found); ok {
			other, name, ratio = amount(w, e), e.name, interval(e.ratio)
		}
		fmt.Fprintf(to, "| %s | %s | %s | %s | %s | %s |\n", w.title, amount(w, found[own]), strings.TrimSpace(other+" "+name), ratio, w.reach, verdict(w, found))
	}
	for _, w := range rows {
		found := r.entries(w)
		if !only.MatchString(w.bench) || len(found) == 0 {
			continue
		}
		fmt.Fprintf(to, "\n### %s\n\n| %s | median | ± | B | allocs | of ours |\n|---|---|---|---|---|---|\n", strings.ToUpper(w.title[:1])+w.title[1:], w.bench)
		for _, e := range found {
			bold := ""
			if e.name == w.ours {
				bold = "**"
			}
			fmt.Fprintf(to, "| %s%s%s | %s | %s | %s | %s | %s |\n", bold, e.name, bold, amount(w, e), summary(e.values).PctRangeString(), whole(e.bytes), whole(e.allocs), interval(e.ratio))
		}
	}
}

func amount(w row, e entry) string {
	v := median(e.values)
	if w.units != nil {
		return whole(v) + " B"
	}
	switch ns := v * 1e9; {
	case ns < 100:
		return fmt.Sprintf("%.1f ns", ns)
	case ns < 1e6:
		return whole(ns) + " ns"
	default:
		return fmt.Sprintf("%.1f ms", ns/1e6)
	}
}

// whole is a number with its thousands apart.
func whole(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	s := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func interval(s benchmath.Summary) string {
	if math.IsInf(s.Lo, 0) || math.IsInf(s.Hi, 0) {
		return fmt.Sprintf("%.2f", s.Center)
	}
	return fmt.Sprintf("%.2f (%.2f–%.2f)", s.Center, s.Lo, s.Hi)
}

// writeAsleep writes what sleeping operations cost at each number of them.
func (r results) writeAsleep(to io.Writer, only *regexp.Regexp) {
	if !only.MatchString("Asleep") {
		return
	}
	fmt.Fprint(to, "\n## Operations asleep\n\nEach in a goroutine of its own, for an hour, on one cancellable context.\n\n"+
		"| at once | library | until asleep, each | until cancelled, each | heap, each | stack, each |\n|---|---|---|---|---|---|\n")
	for _, n := range crowds {
		for _, s := range sleepers {
			by := r[fmt.Sprintf("Asleep/n=%d/%s", n, s.name)]
			if by == nil {
				continue
			}
			fmt.Fprintf(to, "| %s | %s | %s ns | %s ns | %s B | %s B |\n", whole(float64(n)), s.name,
				whole(median(by["start-sec/op"])*1e9), whole(median(by["cancel-sec/op"])*1e9), whole(median(by[heap])), whole(median(by[stack])))
		}
	}
}
