package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/seed-3d0f8764/retry"
)

const legend = `Each line is an attempt. start: since the operation began. class: what the failure proves.
window: the own wait is drawn from it; draw: u in [0,1); hint: what the server asked for;
wait: what is slept, at least the hint; left: to the deadline, when the attempt has ended.`

// table collects the records of one operation.
type table struct {
	records []retry.Record
}

// add is a Policy.Observe.
func (t *table) add(_ context.Context, r retry.Record) { t.records = append(t.records, r) }

func (t *table) print(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "   #\tstart\toutcome\tclass\twindow\tdraw\thint\twait\tleft\tdecision")
	for _, r := range t.records {
		start := r.Elapsed - r.Duration
		fmt.Fprintf(tw, "   %d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Attempt, short(start), outcome(r), class(r),
			orDash(r.Window), draw(r), orDash(r.Hint), orDash(r.Wait), short(r.TimeLeft), decision(r))
	}
	tw.Flush()
}

// outcome says what came of an attempt, in a word or two.
func outcome(r retry.Record) string {
	if r.Err == nil {
		if r.Decision == retry.Succeeded {
			return "200"
		}
		return "(in the wait)"
	}
	if s, ok := errors.AsType[*retry.StatusError](r.Err); ok {
		return fmt.Sprint(s.Code)
	}
	if errors.Is(r.Err, context.DeadlineExceeded) {
		return "timed out after " + short(r.Duration)
	}
	if u, ok := errors.AsType[*url.Error](r.Err); ok {
		return u.Err.Error()
	}
	return r.Err.Error()
}

func class(r retry.Record) string {
	if r.Err == nil {
		return "-"
	}
	return r.Class.String()
}

func draw(r retry.Record) string {
	if r.Window == 0 {
		return "-"
	}
	return fmt.Sprint(r.Draw)
}

func decision(r retry.Record) string {
	if r.Reason == nil {
		return r.Decision.String()
	}
	return r.Decision.String() + ": " + strings.TrimPrefix(r.Reason.Error(), "retry: ")
}

func orDash(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return short(d)
}

// short rounds to what a person reads.
func short(d time.Duration) string { return d.Round(time.Millisecond).String() }

// wrap breaks text into lines of at most width, each after indent.
func wrap(text, indent string, width int) string {
	var b strings.Builder
	line := indent
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > width && line != indent {
			b.WriteString(line + "\n")
			line = indent
		}
		if line != indent {
			line += " "
		}
		line += word
	}
	return b.String() + line
}
