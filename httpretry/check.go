package httpretry

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net/http"
	"time"

	"github.com/seed-3d0f8764/retry"
)

// Checker turns responses into errors that [retry.Do] understands, for those
// who call an http.Client inside op. The zero value reads Retry-After and goes
// by the status. It is plain data: copy it, and share it between goroutines.
type Checker struct {
	// Signals are those that the server is believed. nil: RetryAfter; empty: none.
	Signals []Signal
	// Classify judges a response before its status does; false leaves it to
	// the status. It may read up to 64 KiB of the body, which is put back, and
	// must not close it. It may fail a 200. nil: none.
	Classify func(*http.Response) (retry.Verdict, bool)
	// Clock is what a date is measured against where the response has no
	// valid Date. nil: time.Now.
	Clock func() time.Time
}

// Check is the zero [Checker]'s Check. A nil resp panics.
func Check(resp *http.Response) error { return Checker{}.Check(resp) }

// Check returns nil for a response that is no failure, else an error with a
// [*retry.StatusError] in its chain, which has the method, the code, the
// effect of the request and the hint. It never closes the body and leaves it
// whole. A nil resp panics: look at the client's error first.
//
// Of a response that a [Transport] gave up on it returns the Transport's own
// [*retry.Error], whatever c says. The loop outside then does not repeat it
// either, and ends with that reason.
func (c Checker) Check(resp *http.Response) error {
	if o := outcomeOf(resp); o != nil && o.gaveUp != nil {
		return o.gaveUp
	}
	now := c.Clock
	if now == nil {
		now = time.Now
	}
	j := judge(resp, c.Signals, c.Classify, now)
	if j == nil {
		return nil
	}
	return j.mark()
}

// Attempts returns how many attempts a [Transport] made for resp, and 1 for a
// response that is no Transport's. A nil resp panics.
func Attempts(resp *http.Response) int {
	if o := outcomeOf(resp); o != nil {
		return o.attempts
	}
	return 1
}

// outcome is what a Transport knows of a response that it has returned, and
// the context of that response's request.
type outcome struct {
	context.Context
	request  http.Request // others may be made with its context
	attempts int
	gaveUp   *retry.Error // nil: it is a success
}

func (o *outcome) Value(key any) any {
	if key == (outcomeKey{}) {
		return o
	}
	return o.Context.Value(key)
}

// outcomeKey finds the outcome in the context of a response's request.
type outcomeKey struct{}

func outcomeOf(resp *http.Response) *outcome {
	if resp.Request == nil {
		return nil
	}
	if o, ok := resp.Request.Context().Value(outcomeKey{}).(*outcome); ok && &o.request == resp.Request {
		return o
	}
	return nil
}

// judgement is what a response that is a failure says of its request, as an
// error.
type judgement struct {
	status retry.StatusError
	marked bool // the class is not what the status says by itself
	class  retry.Class
}

func (j *judgement) Error() string { return j.status.Error() }
func (j *judgement) Unwrap() error { return &j.status }

// judge applies signals, hook and status to a response, in this order of
// weight: a yes or no of the server, the hook, the status. It returns nil if
// that is no failure.
func judge(resp *http.Response, signals []Signal, hook func(*http.Response) (retry.Verdict, bool), now func() time.Time) *judgement {
	failed := resp.StatusCode >= 400
	if !failed && hook == nil {
		return nil
	}
	a := read(resp.Header, signals, now) // before hook takes its time with the body
	j := &judgement{class: retry.ClassifyStatus(resp.StatusCode)}
	j.status.Code, j.status.After = resp.StatusCode, a.after
	if resp.Request != nil {
		j.status.Method, j.status.Effect = cmp.Or(resp.Request.Method, http.MethodGet), Effect(resp.Request)
	}
	if hook != nil {
		if v, ok := peek(resp, hook); ok {
			failed, j.marked, j.class = true, true, v.Class
			j.status.After = max(j.status.After, v.After)
			if v.Effect != retry.Unstated {
				j.status.Effect = v.Effect
			}
		}
	}
	if !failed {
		return nil
	}
	switch {
	case a.retry:
		// It says that repeating is right, not that nothing was applied.
		if j.class != retry.ClassThrottled && j.class != retry.ClassTransient {
			j.marked, j.class = true, retry.ClassUnknown
		}
	case a.stop:
		// Nor does a no say so: what may have been applied stays unknown, and is
		// an effect that must not be repeated.
		j.marked = true
		if j.status.Effect == retry.ReadOnly || j.class != retry.ClassUnknown && j.class != retry.ClassUnclassified {
			j.class = retry.ClassPermanent
		} else {
			j.class, j.status.Effect = retry.ClassUnknown, retry.Mutation
		}
	}
	return j
}

// verdict is j for a loop.
func (j *judgement) verdict() retry.Verdict {
	return retry.Verdict{Class: j.class, After: j.status.After, Effect: j.status.Effect}
}

// mark is j for a loop that classifies by itself.
func (j *judgement) mark() error {
	status := &j.status
	if !j.marked {
		return status
	}
	switch j.class {
	case retry.ClassPermanent:
		return retry.Permanent(status)
	case retry.ClassTransient:
		return retry.Transient(status)
	case retry.ClassThrottled:
		return retry.Throttled(status, status.After)
	case retry.ClassSuspended:
		return retry.Suspended(status, status.After)
	case retry.ClassUnknown:
		return retry.Unknown(status)
	}
	return &unclassified{status}
}

// unclassified is a failure of which the hook says that no rule knows it. It
// hides the status from errors.As: by it Classify would know one.
type unclassified struct{ status *retry.StatusError }

func (u *unclassified) Error() string { return u.status.Error() }

// peekLimit is how much of a body a hook may read.
const peekLimit = 64 << 10

// peek shows resp to hook, and puts back what it has read of the body.
func peek(resp *http.Response, hook func(*http.Response) (retry.Verdict, bool)) (retry.Verdict, bool) {
	original := resp.Body
	shown := *resp
	if original == nil || resp.StatusCode == http.StatusSwitchingProtocols { // that of a 101 is a connection
		shown.Body = http.NoBody
		return hook(&shown)
	}
	var seen bytes.Buffer
	tee := io.TeeReader(io.LimitReader(original, peekLimit), &seen)
	shown.Body = io.NopCloser(tee)
	v, ok := hook(&shown)
	if seen.Len() > 0 {
		resp.Body = &putBack{io.MultiReader(&seen, original), original}
	}
	return v, ok
}

// putBack is a body of which the beginning was read.
type putBack struct {
	io.Reader
	original io.ReadCloser
}

func (b *putBack) Close() error { return b.original.Close() }
