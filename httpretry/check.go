package httpretry

import (
	"bytes"
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

// Check is the zero [Checker]'s Check.
func Check(resp *http.Response) error { return Checker{}.Check(resp) }

// Check returns nil for a response that is no failure, else an error with a
// [*retry.StatusError] in its chain, which has the method, the code, the
// effect of the request and the hint. It never closes the body and leaves it
// whole.
//
// A response that a [Transport] gave up on is permanent for the loop outside:
// its error also is the Transport's reason, such as [retry.ErrAttempts].
func (c Checker) Check(resp *http.Response) error {
	now := time.Now
	if c.Clock != nil {
		now = c.Clock
	}
	j := judge(resp, c.Signals, c.Classify, now())
	if !j.failed {
		return nil
	}
	if b, ok := resp.Body.(outcome); ok {
		if _, gaveUp := b.outcome(); gaveUp != nil {
			return retry.Permanent(&givenUp{j.status, gaveUp})
		}
	}
	return j.err()
}

// Attempts returns how many attempts a [Transport] made for resp, and 1 for a
// response that is no Transport's.
func Attempts(resp *http.Response) int {
	if b, ok := resp.Body.(outcome); ok {
		attempts, _ := b.outcome()
		return attempts
	}
	return 1
}

// outcome is met by the body of a Transport's response.
type outcome interface {
	outcome() (attempts int, gaveUp *retry.Error)
}

// givenUp is the failure of a response on which a Transport has given up.
type givenUp struct {
	status *retry.StatusError
	reason *retry.Error
}

func (g *givenUp) Error() string        { return g.status.Error() + " (" + g.reason.Reason.Error() + ")" }
func (g *givenUp) Unwrap() error        { return g.status }
func (g *givenUp) Is(target error) bool { return g.reason.Is(target) }

// judgement is what a response says of its request.
type judgement struct {
	failed bool
	status *retry.StatusError
	marked bool // the class is not what the status says by itself
	class  retry.Class
}

// judge applies signals, hook and status to a response, in this order of
// weight: a yes or no of the server, the hook, the status.
func judge(resp *http.Response, signals []Signal, hook func(*http.Response) (retry.Verdict, bool), now time.Time) judgement {
	a := read(resp.Header, signals, now)
	s := &retry.StatusError{Code: resp.StatusCode, After: a.after}
	if resp.Request != nil {
		s.Method, s.Effect = resp.Request.Method, Effect(resp.Request)
		if s.Method == "" {
			s.Method = http.MethodGet
		}
	}
	j := judgement{failed: resp.StatusCode >= 400, status: s, class: retry.ClassifyStatus(resp.StatusCode)}
	if hook != nil {
		if v, ok := peek(resp, hook); ok {
			j.failed, j.marked, j.class = true, true, v.Class
			s.After = max(s.After, v.After)
			if v.Effect != retry.Unstated {
				s.Effect = v.Effect
			}
		}
	}
	switch {
	case !j.failed:
	case a.retry:
		// It says that repeating is right, not that nothing was applied.
		if j.class != retry.ClassThrottled && j.class != retry.ClassTransient {
			j.marked, j.class = true, retry.ClassUnknown
		}
	case a.stop:
		// Nor does a no say so: what may have been applied stays unknown, and is
		// an effect that must not be repeated.
		j.marked = true
		if s.Effect == retry.ReadOnly || j.class != retry.ClassUnknown && j.class != retry.ClassUnclassified {
			j.class = retry.ClassPermanent
		} else {
			j.class, s.Effect = retry.ClassUnknown, retry.Mutation
		}
	}
	return j
}

// verdict is j for a loop.
func (j judgement) verdict() retry.Verdict {
	return retry.Verdict{Class: j.class, After: j.status.After, Effect: j.status.Effect}
}

// err is j as an error for a loop that classifies by itself.
func (j judgement) err() error {
	if !j.marked {
		return j.status
	}
	switch j.class {
	case retry.ClassPermanent:
		return retry.Permanent(j.status)
	case retry.ClassTransient:
		return retry.Transient(j.status)
	case retry.ClassThrottled:
		return retry.Throttled(j.status, j.status.After)
	case retry.ClassSuspended:
		return retry.Suspended(j.status, j.status.After)
	case retry.ClassUnknown:
		return retry.Unknown(j.status)
	}
	return &unclassified{j.status}
}

// unclassified is a failure of which the hook says that no rule knows it. It
// hides the status from errors.As: by it Classify would know one.
type unclassified struct{ status *retry.StatusError }

func (u *unclassified) Error() string { return u.status.Error() }

// peekLimit is how much of a body a hook may read.
const peekLimit = 64 << 10

// peek shows resp to hook, and puts back what it has read of the body.
func peek(resp *http.Response, hook func(*http.Response) (retry.Verdict, bool)) (retry.Verdict, bool) {
	if resp.Body == nil || resp.StatusCode == http.StatusSwitchingProtocols {
		return hook(resp)
	}
	original := resp.Body
	var seen bytes.Buffer
	tee := io.TeeReader(io.LimitReader(original, peekLimit), &seen)
	shown := *resp
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

func (b *putBack) outcome() (int, *retry.Error) {
	if o, ok := b.original.(outcome); ok {
		return o.outcome()
	}
	return 1, nil
}
