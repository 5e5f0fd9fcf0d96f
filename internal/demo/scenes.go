package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/seed-3d0f8764/retry"
)

// scene is one story: what the server does, what the policy is, and how it
// must come out.
type scene struct {
	title   string
	says    string // what happens, and why that is right
	answers []answer
	policy  retry.Policy

	attempts int
	reason   error // nil: success

	// how it is played; nil: by a real call
	op func(context.Context) (string, error)
	// around runs the call, in a scene that needs more than one.
	around func(ctx context.Context, call func(context.Context) error) error
}

// half makes every draw 1/2, so that the demo takes the same time each run.
func half() float64 { return 0.5 }

func scenes() []scene {
	quick := retry.Backoff{Base: 100 * time.Millisecond}
	seconds := func(n string) func(time.Time) string { return func(time.Time) string { return n } }
	budget := newFake()
	return []scene{{
		title:   "503 three times, then 200",
		says:    "A 503 proves nothing, but a GET changes nothing: it is repeated, in windows that double.",
		answers: []answer{{status: 503}, {status: 503}, {status: 503}, {status: 200}},
		policy:  retry.Policy{Backoff: quick}, attempts: 4,
	}, {
		title:   "429 with Retry-After: 1, then 503, then 200",
		says:    "The server's second is a minimum: the own wait does not shorten it, and a spread parts those who got the same one.",
		answers: []answer{{status: 429, after: seconds("1")}, {status: 503}, {status: 200}},
		policy:  retry.Policy{Backoff: quick, Spread: 200 * time.Millisecond}, attempts: 3,
	}, {
		title:   "401",
		says:    "Repeating cannot help: one call.",
		answers: []answer{{status: 401}},
		policy:  retry.Policy{Backoff: quick}, attempts: 1, reason: retry.ErrPermanent,
	}, {
		title: "a date in Retry-After",
		says:  "The date is up to two seconds ahead, in whole seconds; the hint is what is left until it.",
		answers: []answer{{status: 503, after: func(now time.Time) string {
			return now.Add(2 * time.Second).UTC().Format(http.TimeFormat)
		}}, {status: 200}},
		policy: retry.Policy{Backoff: quick, Spread: -1}, attempts: 2,
	}, {
		title:   "a day-long Retry-After",
		says:    "Longer than MaxHint: it stops at once and says when the server will take the next. Nobody sleeps for a day, nobody calls early.",
		answers: []answer{{status: 503, after: seconds("86400")}},
		policy:  retry.Policy{Backoff: quick}, attempts: 1, reason: retry.ErrHint,
	}, {
		title:   "a server that hangs",
		says:    "Each attempt has 300ms. One that timed out may have been applied; a GET is repeated all the same.",
		answers: []answer{{hangs: true}},
		policy:  retry.Policy{Backoff: quick, AttemptTimeout: 300 * time.Millisecond, MaxAttempts: 3}, attempts: 3, reason: retry.ErrAttempts,
	}, {
		title:   "an interrupt in a wait",
		says:    "The process sends itself SIGINT while it waits. The wait ends, no further call is made, and the error has both: the signal, and what the server said last.",
		answers: []answer{{status: 503}},
		policy:  retry.Policy{Backoff: retry.Backoff{Base: time.Minute, Cap: time.Minute}, MaxElapsed: time.Hour}, attempts: 1, reason: retry.ErrCanceled,
		around: interrupted,
	}, {
		title:  "the 12-second read budget, on a fake clock",
		says:   "Attempt 5 would start at 10.8s and could end at 12.3s. It is not made, and the caller has his answer at 8.4s.",
		policy: budget.policy(), attempts: 4, reason: retry.ErrDeadline,
		op: budget.read,
	}}
}

// play runs the scene and prints it. It returns what did not come out as it
// should.
func (s scene) play(ctx context.Context, w io.Writer, srv *server, number int) error {
	fmt.Fprintf(w, "\n%d. %s\n%s\n\n", number, s.title, wrap(s.says, "   ", 100))
	srv.script.Store(&script{answers: s.answers})

	t := table{}
	p := s.policy
	p.Name = "balance"
	if p.Rand == nil {
		p.Rand = half
	}
	p.Observe = t.add
	op := s.op
	if op == nil {
		op = srv.get
	}
	var value string
	call := func(ctx context.Context) (err error) {
		value, err = retry.Do(ctx, &p, op)
		return err
	}
	var err error
	if s.around != nil {
		err = s.around(ctx, call)
	} else {
		err = call(ctx)
	}
	t.print(w)
	made := 0
	for _, r := range t.records {
		made = max(made, r.Attempt)
	}
	if err == nil {
		fmt.Fprintf(w, "\n   => %s\n", value)
	} else {
		fmt.Fprintf(w, "\n   => %v\n", err)
	}
	return s.check(w, err, made)
}

// check compares the outcome with what it must be.
func (s scene) check(w io.Writer, err error, made int) error {
	if made != s.attempts {
		return fmt.Errorf("%d attempts, not %d", made, s.attempts)
	}
	if s.reason == nil {
		return err
	}
	e, ok := errors.AsType[*retry.Error](err)
	switch {
	case !ok:
		return fmt.Errorf("no failure, but %v", err)
	case e.Reason != s.reason:
		return fmt.Errorf("reason %v, not %v", e.Reason, s.reason)
	}
	if !e.RetryAt.IsZero() {
		fmt.Fprintf(w, "   RetryAt: %s\n", e.RetryAt.Format("2 January 15:04:05"))
	}
	return nil
}

// interrupted runs call, and sends the process a real SIGINT while it waits.
func interrupted(ctx context.Context, call func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	timer := time.AfterFunc(300*time.Millisecond, func() { self.Signal(os.Interrupt) })
	defer timer.Stop()
	err = call(ctx)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, context.Cause(ctx)) {
		return fmt.Errorf("not known as a cancellation: %w", err)
	}
	return err
}

// fake is a world without real time: attempt 1 times out, 2 is throttled, 3
// and 4 time out.
type fake struct {
	now   time.Time
	draws []float64
}

func newFake() *fake {
	return &fake{now: time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC), draws: []float64{0.8, 0.6, 0.6, 0.6}}
}

func (f *fake) policy() retry.Policy {
	return retry.Policy{
		Effect:     retry.ReadOnly,
		Backoff:    retry.Backoff{Base: 500 * time.Millisecond, Cap: 4 * time.Second},
		Spread:     -1,
		MaxElapsed: 12 * time.Second, AttemptTimeout: 1500 * time.Millisecond,
		Clock: func() time.Time { return f.now },
		Rand: func() float64 {
			u := f.draws[0]
			f.draws = f.draws[1:]
			return u
		},
		Sleep: func(ctx context.Context, d time.Duration) error {
			f.now = f.now.Add(d)
			return ctx.Err()
		},
	}
}

func (f *fake) read(ctx context.Context) (string, error) {
	if retry.Attempt(ctx) == 2 {
		f.now = f.now.Add(300 * time.Millisecond)
		return "", &retry.StatusError{Method: http.MethodGet, Code: 429, After: 2 * time.Second}
	}
	f.now = f.now.Add(1500 * time.Millisecond)
	return "", context.DeadlineExceeded
}
