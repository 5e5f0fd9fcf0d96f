package retry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-3d0f8764/retry"
)

// The first call: five attempts in 30 seconds, for failures that are safe to
// repeat. A GET is; a 404 would not be.
func Example() {
	server := httptest.NewServer(answers(503, 200)) // fails once, then works
	defer server.Close()

	price, err := retry.Do(context.Background(), nil, func(ctx context.Context) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		if err != nil {
			return "", err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			after, _ := retry.ParseRetryAfter(resp.Header.Get("Retry-After"), time.Now())
			return "", &retry.StatusError{Method: http.MethodGet, Code: resp.StatusCode, After: after}
		}
		body, err := io.ReadAll(resp.Body) // inside op: ctx ends with Do
		return string(body), err
	})
	fmt.Println(price, err)
	// Output: 101.25 <nil>
}

// Everything that a test needs to be exact and take no time is in the Policy.
// A test of your own copies the policy that is in production, and fills in
// these three.
func Example_deterministicTest() {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	var slept []time.Duration

	p := retry.Policy{Name: "balance", Effect: retry.ReadOnly, MaxAttempts: 4}
	p.Clock = func() time.Time { return now }
	p.Rand = func() float64 { return 0.5 }
	p.Sleep = func(ctx context.Context, d time.Duration) error {
		slept = append(slept, d)
		now = now.Add(d)
		return ctx.Err()
	}

	err := retry.Run(context.Background(), &p, func(context.Context) error {
		now = now.Add(10 * time.Millisecond) // the time that an attempt takes
		return &retry.StatusError{Code: 503}
	})
	fmt.Println(slept)
	fmt.Println(err)
	// Output:
	// [100ms 200ms 400ms]
	// retry: balance: gave up after 4 attempts in 740ms: no attempts left: status 503
}

// Inside a testing/synctest bubble nothing need be injected but the draws,
// or, as here, a strategy without them: real timers take no time there.
func TestFiveAttemptsInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := retry.Policy{Effect: retry.ReadOnly, Backoff: retry.Backoff{Jitter: retry.NoJitter}}
		start, calls := time.Now(), 0
		err := retry.Run(t.Context(), &p, func(context.Context) error {
			calls++
			return &retry.StatusError{Code: 503}
		})
		if !errors.Is(err, retry.ErrAttempts) || calls != 5 {
			t.Errorf("%d calls, %v", calls, err)
		}
		if d := time.Since(start); d != 3*time.Second { // 200ms + 400ms + 800ms + 1.6s
			t.Errorf("took %v", d)
		}
	})
}

// An error of Do says, all at once, why the operation ended, how ctx ended and
// on whose behalf, and what op failed with last.
func ExampleDo_canceled() {
	errShutdown := errors.New("server shutting down")
	ctx, cancel := context.WithCancelCause(context.Background())
	p := retry.Policy{Sleep: func(ctx context.Context, d time.Duration) error {
		cancel(errShutdown) // while it waits
		return ctx.Err()
	}}

	_, err := retry.Do(ctx, &p, func(context.Context) (string, error) {
		return "", &retry.StatusError{Method: "GET", Code: 503}
	})
	status, _ := errors.AsType[*retry.StatusError](err)
	fmt.Println(errors.Is(err, retry.ErrCanceled))
	fmt.Println(errors.Is(err, context.Canceled))
	fmt.Println(errors.Is(err, errShutdown))
	fmt.Println(status.Code)
	// Output:
	// true
	// true
	// true
	// 503
}

// Loops in loops do not multiply: three attempts inside three are three calls,
// not nine. An operation and every loop nested in it share its retries.
func ExampleDo_nested() {
	outer := retry.Policy{Name: "sync", MaxAttempts: 3, Sleep: noSleep}
	inner := retry.Policy{Name: "page", MaxAttempts: 3, Sleep: noSleep}

	calls := 0
	retry.Run(context.Background(), &outer, func(ctx context.Context) error {
		return retry.Run(ctx, &inner, func(context.Context) error {
			calls++
			return &retry.StatusError{Method: "GET", Code: 503}
		})
	})
	fmt.Println(calls, "calls")
	// Output: 3 calls
}

// An order that got no answer may have been placed, so it is not sent again:
// look it up. A timed-out order is not a failed order.
func ExampleRun() {
	err := retry.Run(context.Background(), nil, func(context.Context) error {
		return &retry.StatusError{Method: "POST", Code: 504}
	})
	fmt.Println(errors.Is(err, retry.ErrUnknownOutcome))
	// Output: true
}

// A Policy is plain data. Any number of operations, in any number of
// goroutines, may use one: they share nothing but its values, and each has all
// its attempts. To change a field, copy it.
func ExamplePolicy() {
	read := retry.Policy{
		Name:           "read",
		Effect:         retry.ReadOnly,
		MaxAttempts:    3,
		AttemptTimeout: 2 * time.Second,
		Sleep:          noSleep,
	}
	urgent := read
	urgent.Name, urgent.MaxAttempts = "urgent", 1

	calls := make([]int, 3)
	var wg sync.WaitGroup
	for i, p := range []*retry.Policy{&read, &read, &urgent} {
		wg.Go(func() {
			retry.Run(context.Background(), p, func(context.Context) error {
				calls[i]++
				return &retry.StatusError{Code: 503}
			})
		})
	}
	wg.Wait()
	fmt.Println(calls)
	// Output: [3 3 1]
}

// A worker in the background has all the time that there is; somebody waits
// for the other call. Here the service comes back at the seventh request.
func ExamplePolicy_workerAndClick() {
	worker := retry.Policy{
		Name:           "index",
		Effect:         retry.Idempotent,
		Backoff:        retry.Backoff{Base: time.Second, Cap: 5 * time.Minute},
		MaxAttempts:    -1, // unlimited, as are the next two: only ctx ends it
		MaxElapsed:     -1,
		MaxHint:        -1,
		AttemptTimeout: time.Minute,
		Sleep:          noSleep,
	}
	click := retry.Policy{
		Name:           "search",
		Effect:         retry.ReadOnly,
		Backoff:        retry.Backoff{Base: 50 * time.Millisecond},
		MaxAttempts:    2,
		MaxElapsed:     2 * time.Second,
		AttemptTimeout: 500 * time.Millisecond,
		Sleep:          noSleep,
	}

	requests := 0
	service := func(context.Context) error {
		if requests++; requests < 7 {
			return &retry.StatusError{Code: 502}
		}
		return nil
	}
	err := retry.Run(context.Background(), &click, service)
	fmt.Println(requests, errors.Is(err, retry.ErrAttempts))
	err = retry.Run(context.Background(), &worker, service)
	fmt.Println(requests, err)
	// Output:
	// 2 true
	// 7 <nil>
}

// One policy for each family of endpoints. These are for Binance Spot REST, by
// its rest-api page as read on 6 November 2026. Venues change their rules:
// check before use. README.md has the table that they were written from.
func ExamplePolicy_endpointFamilies() {
	classify := func(err error) retry.Verdict {
		v := retry.Classify(err)
		if _, ok := errors.AsType[*retry.Error](err); ok {
			return v // a loop inside op has given up: leave it at that
		}
		if s, ok := errors.AsType[*retry.StatusError](err); ok {
			switch {
			case s.Code == 418: // the IP is banned; Retry-After says for how long
				v.Class = retry.ClassSuspended
			case s.Code >= 500: // it may have been executed
				v.Class = retry.ClassUnknown
			}
		}
		return v
	}
	ip := new(retry.Bucket) // a ban is the IP's, so all families share a Budget

	publicReads := retry.Policy{
		Name: "klines", Effect: retry.ReadOnly, Classify: classify, Budget: ip,
		Backoff:     retry.Backoff{Base: 200 * time.Millisecond, Cap: 5 * time.Second},
		MaxAttempts: 5, AttemptTimeout: 2 * time.Second, MaxElapsed: 15 * time.Second,
	}
	privateReads := retry.Policy{
		Name: "account", Effect: retry.ReadOnly, Classify: classify, Budget: ip,
		Backoff:     retry.Backoff{Base: 500 * time.Millisecond, Cap: 5 * time.Second},
		MaxAttempts: 3, AttemptTimeout: 5 * time.Second, MaxElapsed: 20 * time.Second,
	}
	mutations := retry.Policy{
		Name: "order", Effect: retry.Mutation, Classify: classify, Budget: ip,
		Backoff:     retry.Backoff{Base: 500 * time.Millisecond, Cap: 5 * time.Second},
		MaxAttempts: 3, AttemptTimeout: 15 * time.Second, MaxElapsed: 30 * time.Second,
	}

	for _, p := range []retry.Policy{publicReads, privateReads, mutations} {
		p.Sleep = noSleep
		for _, code := range []int{429, 501, 418} {
			calls := 0
			err := retry.Run(context.Background(), &p, func(context.Context) error {
				if calls++; calls > 1 {
					return nil
				}
				return &retry.StatusError{Code: code}
			})
			failed, _ := errors.AsType[*retry.Error](err)
			if failed == nil {
				fmt.Println(p.Name, code, "repeated")
			} else {
				fmt.Println(p.Name, code, failed.Reason)
			}
		}
	}
	// Output:
	// klines 429 repeated
	// klines 501 repeated
	// klines 418 retry: suspended
	// account 429 repeated
	// account 501 repeated
	// account 418 retry: suspended
	// order 429 repeated
	// order 501 retry: outcome unknown
	// order 418 retry: suspended
}

// Plan shows what a policy comes to before anything is sent: with a timeout of
// 5 seconds a fourth attempt fits into 20 only if those before it failed early.
func ExamplePolicy_Plan() {
	p := retry.Policy{MaxAttempts: 4, AttemptTimeout: 5 * time.Second, MaxElapsed: 20 * time.Second}
	fmt.Print(p.Plan())
	// Output:
	// attempt  window  earliest  latest  fits
	//       1      0s        0s      0s  always
	//       2   200ms        0s    5.2s  always
	//       3   400ms        0s   10.6s  always
	//       4   800ms        0s   16.4s  may
	// hints and the gate are left out
}

// Twenty rows go out side by side in one attempt. Each is an operation of its
// own and may fail on its own, so each gets retries of its own: without Detach
// they would have to share the two of the batch.
func ExampleDetach() {
	batch := retry.Policy{Name: "batch", MaxAttempts: 3, Sleep: noSleep}
	row := retry.Policy{Name: "row", Effect: retry.Idempotent, Sleep: noSleep}

	requests := make([]int, 20)
	err := retry.Run(context.Background(), &batch, func(ctx context.Context) error {
		ctx = retry.Detach(ctx)
		errs := make([]error, len(requests))
		var wg sync.WaitGroup
		for i := range requests {
			wg.Go(func() {
				errs[i] = retry.Run(ctx, &row, func(context.Context) error {
					if requests[i]++; requests[i] < 4 {
						return &retry.StatusError{Code: 503}
					}
					return nil
				})
			})
		}
		wg.Wait()
		return errors.Join(errs...)
	})
	fmt.Println(requests, err)
	// Output: [4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4] <nil>
}

// A server that is told which attempt this is can tell load from retries.
func ExampleAttempt() {
	p := retry.Policy{MaxAttempts: 3, Sleep: noSleep}
	retry.Run(context.Background(), &p, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.example/status", nil)
		if err != nil {
			return err
		}
		req.Header.Set("X-Attempt", strconv.Itoa(retry.Attempt(ctx)))
		fmt.Println(req.Header)
		return &retry.StatusError{Method: req.Method, Code: 503}
	})
	// Output:
	// map[X-Attempt:[1]]
	// map[X-Attempt:[2]]
	// map[X-Attempt:[3]]
}

// A mark says what op knows of its failure. It changes neither the error's text
// nor what errors.Is finds.
func ExamplePermanent() {
	errFunds := errors.New("insufficient funds")
	err := retry.Run(context.Background(), nil, func(context.Context) error {
		return retry.Permanent(errFunds)
	})
	fmt.Println(errors.Is(err, retry.ErrPermanent))
	fmt.Println(errors.Is(err, errFunds))
	// Output:
	// true
	// true
}

// Nothing was sent, so even a mutation may be tried again.
func ExampleTransient() {
	errPool := errors.New("no free connection")
	p := retry.Policy{Effect: retry.Mutation, Sleep: noSleep}
	calls := 0
	err := retry.Run(context.Background(), &p, func(context.Context) error {
		if calls++; calls < 3 {
			return retry.Transient(errPool)
		}
		return nil
	})
	fmt.Println(calls, err)
	// Output: 3 <nil>
}

// The next attempt comes two seconds after the throttled one at the earliest. The
// spread on top, here half of a second's width, keeps those who were told the
// same from coming back together.
func ExampleThrottled() {
	p := retry.Policy{Sleep: printWait, Rand: half}
	retry.Run(context.Background(), &p, func(ctx context.Context) error {
		if retry.Attempt(ctx) > 1 {
			return nil
		}
		return retry.Throttled(errors.New("quota used up"), 2*time.Second)
	})
	// Output: wait 2.5s
}

// A ban ends the operation, and the error says when it will be over.
func ExampleSuspended() {
	p := retry.Policy{Name: "klines", Clock: atNoon}
	err := retry.Run(context.Background(), &p, func(context.Context) error {
		return retry.Suspended(errors.New("access too frequent"), 10*time.Minute)
	})
	failed, _ := errors.AsType[*retry.Error](err)
	fmt.Println(failed.Reason)
	fmt.Println(failed.RetryAt.Format(time.TimeOnly))
	// Output:
	// retry: suspended
	// 12:10:00
}

// A protocol of your own knows when an answer was lost. What it asked for may
// have been done: only what is harmless when done twice is repeated.
func ExampleUnknown() {
	errLost := errors.New("connection closed before the answer")
	for _, effect := range []retry.Effect{retry.Mutation, retry.Idempotent, retry.ReadOnly} {
		p := retry.Policy{Effect: effect, MaxAttempts: 3, Sleep: noSleep}
		calls := 0
		retry.Run(context.Background(), &p, func(context.Context) error {
			calls++
			return retry.Unknown(errLost)
		})
		fmt.Println(effect, calls)
	}
	// Output:
	// mutation 1
	// idempotent 3
	// read-only 3
}

// The default Classifier knows status codes and the errors of package net. What
// it does not know is unclassified, and not repeated.
func ExampleClassify() {
	for _, err := range []error{
		&retry.StatusError{Method: "PUT", Code: 503},
		&net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connect: network is unreachable")},
		io.ErrUnexpectedEOF,
		errors.New("insufficient funds"),
	} {
		v := retry.Classify(err)
		fmt.Printf("%v, %v: %v\n", v.Class, v.Effect, err)
	}
	// Output:
	// unknown, idempotent: PUT: status 503
	// transient, unstated: dial tcp: connect: network is unreachable
	// unknown, unstated: unexpected EOF
	// unclassified, unstated: insufficient funds
}

// Always suits an op that changes nothing and has no better rule, such as one
// that waits for something to be ready.
func ExampleAlways() {
	ready := retry.Policy{Classify: retry.Always, Sleep: noSleep}
	calls := 0
	err := retry.Run(context.Background(), &ready, func(context.Context) error {
		if calls++; calls < 4 {
			return errors.New("index is being built")
		}
		return nil
	})
	fmt.Println(calls, err)
	// Output: 4 <nil>
}

// The rules of a venue are a few lines around Classify. These are Bybit's, V5,
// by its rate-limit page as read on 6 November 2026. Venues change their rules:
// check before use.
func ExampleClassifier() {
	classify := func(err error) retry.Verdict {
		v := retry.Classify(err)
		if _, ok := errors.AsType[*retry.Error](err); ok {
			return v // a loop inside op has given up: leave it at that
		}
		if s, ok := errors.AsType[*retry.StatusError](err); ok && s.Code == 403 {
			// Access too frequent: nothing more from this IP for ten minutes.
			v.Class, v.After = retry.ClassSuspended, max(v.After, 10*time.Minute)
		}
		if e, ok := errors.AsType[*retCodeError](err); ok { // in a body with status 200
			switch e.Code {
			case 10006: // the user's limit
				v.Class, v.After = retry.ClassThrottled, e.After
			case 10000: // a timeout
				v.Class = retry.ClassUnknown
			}
		}
		return v
	}

	for _, err := range []error{
		&retry.StatusError{Code: 403},
		&retCodeError{Code: 10006, After: 208 * time.Millisecond},
		&retCodeError{Code: 10000},
		&retCodeError{Code: 99999}, // no rule knows it
	} {
		v := classify(err)
		fmt.Printf("%v: %v, hint %v\n", err, v.Class, v.After)
	}
	// Output:
	// status 403: suspended, hint 10m0s
	// retCode 10006: throttled, hint 208ms
	// retCode 10000: unknown, hint 0s
	// retCode 99999: unclassified, hint 0s
}

// retCodeError is a failure that a body tells of. After comes from the field
// X-Bapi-Limit-Reset-Timestamp, by retry.ParseReset.
type retCodeError struct {
	Code  int
	After time.Duration
}

func (e *retCodeError) Error() string { return fmt.Sprintf("retCode %d", e.Code) }

// A POST with an idempotency key is applied once however often it is sent. The
// method does not say so; the error can.
func ExampleStatusError() {
	p := retry.Policy{MaxAttempts: 3, Sleep: noSleep}
	for _, effect := range []retry.Effect{retry.Unstated, retry.Idempotent} {
		calls := 0
		err := retry.Run(context.Background(), &p, func(context.Context) error {
			calls++
			return &retry.StatusError{Method: "POST", Code: 503, Effect: effect}
		})
		failed, _ := errors.AsType[*retry.Error](err)
		fmt.Println(calls, failed.Reason)
	}
	// Output:
	// 1 retry: outcome unknown
	// 3 retry: no attempts left
}

func ExampleClassifyStatus() {
	for _, code := range []int{404, 425, 429, 503, 501} {
		fmt.Println(code, retry.ClassifyStatus(code))
	}
	// Output:
	// 404 permanent
	// 425 transient
	// 429 throttled
	// 503 unknown
	// 501 unclassified
}

func ExampleMethodEffect() {
	for _, method := range []string{"GET", "PUT", "POST", "get"} {
		fmt.Println(method, retry.MethodEffect(method))
	}
	// Output:
	// GET read-only
	// PUT idempotent
	// POST mutation
	// get mutation
}

// A date in Retry-After is by the server's clock, and so is Date. With the
// response's own Date as now, a local clock that is wrong does no harm.
func ExampleParseRetryAfter() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", "Fri, 31 Dec 1999 23:59:49 GMT")
		w.Header().Set("Retry-After", "Fri, 31 Dec 1999 23:59:59 GMT")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer server.Close()

	p := retry.Policy{MaxAttempts: 2, Spread: -1, Sleep: printWait}
	err := retry.Run(context.Background(), &p, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode < 400 {
			return nil
		}
		now, err := http.ParseTime(resp.Header.Get("Date"))
		if err != nil {
			now = time.Now()
		}
		after, _ := retry.ParseRetryAfter(resp.Header.Get("Retry-After"), now)
		return &retry.StatusError{Method: req.Method, Code: resp.StatusCode, After: after}
	})
	fmt.Println(errors.Is(err, retry.ErrAttempts))
	// Output:
	// wait 10s
	// true
}

// ok tells a hint of 0 from no hint at all.
func ExampleParseDelay() {
	for _, value := range []string{"250", "0", "soon"} { // of a retry-after-ms
		fmt.Println(retry.ParseDelay(value, time.Millisecond))
	}
	// Output:
	// 250ms true
	// 0s true
	// 0s false
}

// The error of Binance's WebSocket API says when the ban ends and, beside it, what
// the server's clock shows, both in milliseconds since the Unix epoch (read on 6
// November 2026). With that clock as now the local one does not matter.
func ExampleParseReset() {
	retryAfter, serverTime := "1659146400000", time.UnixMilli(1659142907531)
	fmt.Println(retry.ParseReset(retryAfter, time.Millisecond, serverTime))
	// Output: 58m12.469s true
}

// A stream that reconnects for ever needs no operation, only the waits. The
// retry number starts over when the stream has stayed up for a minute, and no
// sooner: one that is accepted and dropped at once would be back each second.
func ExampleBackoff_Wait() {
	backoff := retry.Backoff{Base: time.Second, Cap: time.Minute}
	draw := half // outside a test rand.Float64, from math/rand/v2

	ctx, cancel := context.WithCancel(context.Background())
	now := atNoon()
	lasts := []time.Duration{0, 0, 2 * time.Second, 0, 3 * time.Hour, 0}
	stream := func(context.Context) { // connects, and reads until it breaks
		now = now.Add(lasts[0])
		if lasts = lasts[1:]; len(lasts) == 0 {
			cancel()
		}
	}

	var step retry.Step
	for {
		connected := now
		stream(ctx)
		if ctx.Err() != nil {
			return
		}
		up := now.Sub(connected)
		if up >= time.Minute {
			step = retry.Step{}
		}
		step.Draw = draw()
		wait := backoff.Wait(step)
		step.Retry, step.Previous = step.Retry+1, wait
		fmt.Println("was up", up, "wait", wait)
		now = now.Add(wait) // outside a test: sleep, or return when ctx is done
	}
	// Output:
	// was up 0s wait 500ms
	// was up 0s wait 1s
	// was up 2s wait 2s
	// was up 0s wait 4s
	// was up 3h0m0s wait 500ms
}

// The own wait of full jitter lies between 0 and the window.
func ExampleBackoff_Window() {
	b := retry.Backoff{Base: 250 * time.Millisecond, Cap: 5 * time.Second}
	for n := range 7 {
		fmt.Print(b.Window(n), " ")
	}
	fmt.Println(b.Window(1_000_000))
	// Output: 250ms 500ms 1s 2s 4s 5s 5s 5s
}

// A Jitter of your own is one pure function; what it returns is held within
// 0 and Cap. This one keeps to the upper quarter of the window.
func ExampleJitter() {
	b := retry.Backoff{Jitter: func(s retry.Step) time.Duration {
		return s.Window - time.Duration(s.Draw*float64(s.Window/4))
	}}
	fmt.Println(b.Wait(retry.Step{Retry: 2, Draw: 0}), b.Wait(retry.Step{Retry: 2, Draw: 0.5}))
	// Output: 800ms 700ms
}

// The strategies without memory, for the same window and draw.
func ExampleFullJitter() {
	s := retry.Step{Window: time.Second, Draw: 0.6}
	fmt.Println(retry.NoJitter(s), retry.EqualJitter(s), retry.FullJitter(s))
	// Output: 1s 800ms 600ms
}

// Decorrelated jitter grows from its own last wait. The loop keeps track of it;
// used directly, Previous is yours to hand on.
func ExampleDecorrelatedJitter() {
	b := retry.Backoff{Base: 100 * time.Millisecond, Cap: 2 * time.Second, Jitter: retry.DecorrelatedJitter}
	var previous time.Duration
	for n, u := range []float64{0.5, 0.9, 0.1, 0.9} {
		previous = b.Wait(retry.Step{Retry: n, Previous: previous, Draw: u})
		fmt.Println(previous)
	}
	// Output:
	// 200ms
	// 550ms
	// 255ms
	// 698.5ms
}

// A server whose limit is per second needs longer waits than one that has
// stumbled. Throttle has them apart from Backoff, which other failures keep.
func ExampleElapsedJitter() {
	p := retry.Policy{
		Backoff:    retry.Backoff{Base: 100 * time.Millisecond},
		Throttle:   retry.Backoff{Base: 2 * time.Second, Cap: 25 * time.Second, Jitter: retry.ElapsedJitter},
		MaxElapsed: time.Minute,
		Clock:      atNoon, Rand: half, Sleep: printWait,
	}
	codes := []int{503, 429, 429, 429, 200}
	retry.Run(context.Background(), &p, func(ctx context.Context) error {
		code := codes[retry.Attempt(ctx)-1]
		if code == 200 {
			return nil
		}
		return &retry.StatusError{Method: "GET", Code: code}
	})
	// Output:
	// wait 50ms
	// wait 1.7828125s
	// wait 2.952783203s
	// wait 4.89054718s
}

// During an outage every call fails. Twenty operations of three attempts
// would make 60 requests; with a Budget that they share they make 30.
func ExampleBudget() {
	p := retry.Policy{Effect: retry.ReadOnly, MaxAttempts: 3, Budget: new(thrift), Sleep: noSleep}
	requests, refused := 0, 0
	for range 20 {
		err := retry.Run(context.Background(), &p, func(context.Context) error {
			requests++
			return &retry.StatusError{Code: 503}
		})
		if errors.Is(err, retry.ErrBudget) {
			refused++
		}
	}
	fmt.Println(requests, "requests,", refused, "refusals")
	// Output: 30 requests, 15 refusals
}

// thrift is a Budget of ten retries that successes fill up again, by a fifth of
// a retry each. The zero value is full.
type thrift struct {
	mu    sync.Mutex
	spent float64
}

func (b *thrift) Spend(_ context.Context, _ retry.Verdict, weight float64) (float64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.spent+weight > 10 {
		return 0, errors.New("all ten are spent")
	}
	b.spent += weight
	return weight, nil
}

func (b *thrift) Return(_ context.Context, cost float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spent = max(0, b.spent-cost)
}

func (b *thrift) Earn(ctx context.Context, _ float64) { b.Return(ctx, 0.2) }

// A Record says what became of an attempt, and why: enough for a table, or for
// metrics.
func ExampleRecord() {
	p := retry.Policy{Rand: half, Sleep: noSleep, Observe: func(_ context.Context, r retry.Record) {
		fmt.Println(r.Attempt, r.Class, r.Window, r.Draw, r.Hint, r.Wait, r.Decision)
	}}
	answers := []error{
		&retry.StatusError{Method: "GET", Code: 503},
		&retry.StatusError{Method: "GET", Code: 429, After: time.Second},
		&retry.StatusError{Method: "GET", Code: 401},
	}
	retry.Run(context.Background(), &p, func(ctx context.Context) error {
		return answers[retry.Attempt(ctx)-1]
	})
	// Output:
	// 1 unknown 200ms 0.5 0s 100ms retrying
	// 2 throttled 400ms 0.5 1s 1.5s retrying
	// 3 permanent 0s 0 0s 0s gave up
}

// LogRecords logs each attempt with package log/slog. URLs lose their query
// and password on the way.
func ExampleLogRecords() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{} // so that the output is the same each time
			}
			return a
		},
	}))
	p := retry.Policy{
		Name: "balance", Observe: retry.LogRecords(logger),
		Clock: atNoon, Rand: half, Sleep: noSleep,
	}
	retry.Run(context.Background(), &p, func(ctx context.Context) error {
		if retry.Attempt(ctx) == 1 {
			return &retry.StatusError{Method: "GET", Code: 503}
		}
		return nil
	})
	// Output:
	// level=WARN msg="retry: retrying" retry.operation=balance retry.attempt=1 retry.took=0s retry.error="GET: status 503" retry.class=unknown retry.effect=read-only retry.timeout=30s retry.window=200ms retry.own_wait=100ms retry.wait=100ms retry.elapsed=0s retry.time_left=30s retry.attempts_left=4 retry.decision=retrying
	// level=INFO msg="retry: succeeded" retry.operation=balance retry.attempt=2 retry.took=0s retry.timeout=29.9s retry.elapsed=100ms retry.time_left=29.9s retry.attempts_left=3 retry.decision=succeeded
}

// A job that failed goes to a dead-letter queue, with all that whoever takes it
// up again must know: why, from when on, and whether to look first.
func ExampleError() {
	type letter struct {
		job      string
		reason   error
		notUntil time.Time
		look     bool // it may have been done
	}
	var queue []letter

	p := retry.Policy{Clock: atNoon, Sleep: noSleep}
	work := map[string]error{
		"refund 7": &retry.StatusError{Method: "POST", Code: 504},
		"report 8": &retry.StatusError{Method: "POST", Code: 429, After: 24 * time.Hour},
	}
	for _, job := range []string{"refund 7", "report 8"} {
		err := retry.Run(context.Background(), &p, func(context.Context) error { return work[job] })
		if failed, ok := errors.AsType[*retry.Error](err); ok {
			queue = append(queue, letter{job, failed.Reason, failed.RetryAt, errors.Is(err, retry.ErrUnknownOutcome)})
		}
	}
	for _, l := range queue {
		fmt.Printf("%s: %v; look first: %v; not until: %s\n", l.job, l.reason, l.look, l.notUntil.Format(time.DateTime))
	}
	// Output:
	// refund 7: retry: outcome unknown; look first: true; not until: 0001-01-01 00:00:00
	// report 8: retry: hint too long; look first: false; not until: 2026-03-02 12:00:00
}

// noSleep is a Policy.Sleep that takes no time.
func noSleep(ctx context.Context, _ time.Duration) error { return ctx.Err() }

// printWait is noSleep that says what it was asked for.
func printWait(ctx context.Context, d time.Duration) error {
	fmt.Println("wait", d)
	return ctx.Err()
}

// half is a Policy.Rand, safe for concurrent use.
func half() float64 { return 0.5 }

// atNoon is a Policy.Clock that stands still. Elapsed time is then that of the
// waits alone.
func atNoon() time.Time { return time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC) }

// answers is a server that answers with these codes in turn, and with a price
// where it is 200.
func answers(codes ...int) http.Handler {
	var mu sync.Mutex
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		code := codes[0]
		codes = codes[min(1, len(codes)-1):]
		w.WriteHeader(code)
		if code == http.StatusOK {
			io.WriteString(w, "101.25")
		}
	})
}
