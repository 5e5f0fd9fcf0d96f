package retry_test

// Helpers for every test of this package. With them an operation runs in fake
// time and comes out to the nanosecond:
//
//	clock := newClock()                                // stands still until told
//	watch := &watcher{}                                // keeps the records
//	op := clock.script(failure(1500*ms, errSlow), success(10*ms))
//	p := retry.Policy{Observe: watch.Observe}
//	clock.drive(t, &p, 0.8, 0.6)                       // sets Clock, Sleep and Rand
//	v, err := retry.Do(t.Context(), &p, op.Do)
//
//	clock.Slept()   the waits, as Sleep was given them
//	clock.Elapsed() the fake time that has passed
//	op.Calls()      how often the op was called; op.Starts() when
//	watch.Records() what Observe was given
//	stopped(t, err) err as a *retry.Error; fails the test if it is none
//
// A purse is a Budget of so many tokens that writes down what it is asked; a
// verdictError says its own verdict to asItSays, a Classifier.
//
// seconds(1.5) is a duration to the nearest nanosecond, ms a millisecond.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-3d0f8764/retry"
)

const ms = time.Millisecond

// errOp is what a scripted op fails with if a test does not care.
var errOp = errors.New("op failed")

// seconds returns s seconds to the nearest nanosecond.
func seconds(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }

// stopped returns err as the error of a loop.
func stopped(t require.TestingT, err error) *retry.Error {
	if h, ok := t.(interface{ Helper() }); ok {
		h.Helper()
	}
	require.Error(t, err)
	e, ok := err.(*retry.Error) // not somewhere in a tree: the error of Do itself
	require.Truef(t, ok, "%T is not *retry.Error: %v", err, err)
	return e
}

// clock is a fake clock whose Sleep moves it and records the wait. It is safe
// for concurrent use.
type clock struct {
	mu    sync.Mutex
	start time.Time
	now   time.Time
	slept []time.Duration
}

// newClock returns a clock that shows 1 March 2026, noon UTC.
func newClock() *clock {
	at := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	return &clock{start: at, now: at}
}

// Now is a Policy.Clock.
func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock; backwards where d is negative.
func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Sleep is a Policy.Sleep: it records d and moves the clock by it, or returns
// the error of a ctx that is done.
func (c *clock) Sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slept = append(c.slept, d)
	c.now = c.now.Add(d)
	return nil
}

// Slept returns the waits that Sleep was given, in order.
func (c *clock) Slept() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.slept)
}

// Elapsed returns how far the clock has moved.
func (c *clock) Elapsed() time.Duration { return c.Now().Sub(c.start) }

// drive puts p on the clock and gives it exactly these draws: one more fails
// the test, and so does one that nobody has asked for when it ends.
func (c *clock) drive(t testing.TB, p *retry.Policy, u ...float64) {
	p.Clock, p.Sleep, p.Rand = c.Now, c.Sleep, draws(t, u...)
}

// draws returns a Policy.Rand that gives u in order, and sees to it that the
// test draws exactly these. It is not safe for concurrent use.
func draws(t testing.TB, u ...float64) func() float64 {
	n := 0
	t.Cleanup(func() {
		if n != len(u) && !t.Failed() {
			t.Errorf("%d draws were taken, not the %d listed", n, len(u))
		}
	})
	return func() float64 {
		n++
		if n > len(u) {
			return 0 // reported by Cleanup
		}
		return u[n-1]
	}
}

// constant returns a Policy.Rand that always draws u. Safe for concurrent use.
func constant(u float64) func() float64 { return func() float64 { return u } }

// step is one attempt of a script: how long it takes, and what it returns.
type step struct {
	takes time.Duration
	err   error
}

func success(takes time.Duration) step            { return step{takes, nil} }
func failure(takes time.Duration, err error) step { return step{takes, err} }

// script is an op that does what its steps say, then the last one again and
// again. It moves the clock by what a step takes. Its value is the number of
// the call. It is not safe for concurrent use.
type script struct {
	clock  *clock
	steps  []step
	starts []time.Duration
	ctx    context.Context // of the last call
}

func (c *clock) script(steps ...step) *script { return &script{clock: c, steps: steps} }

// Do is an op for retry.Do.
func (s *script) Do(ctx context.Context) (int, error) {
	s.starts, s.ctx = append(s.starts, s.clock.Elapsed()), ctx
	next := s.steps[min(len(s.starts), len(s.steps))-1]
	s.clock.Advance(next.takes)
	return len(s.starts), next.err
}

// Run is an op for retry.Run.
func (s *script) Run(ctx context.Context) error {
	_, err := s.Do(ctx)
	return err
}

// Calls returns how often the op was called.
func (s *script) Calls() int { return len(s.starts) }

// Starts returns when, from the clock's start.
func (s *script) Starts() []time.Duration { return s.starts }

// watcher keeps the records that its Observe is given. It is safe for
// concurrent use.
type watcher struct {
	mu      sync.Mutex
	records []retry.Record
}

// Observe is a Policy.Observe.
func (w *watcher) Observe(_ context.Context, r retry.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records = append(w.records, r)
}

// Records returns what Observe was given, in order.
func (w *watcher) Records() []retry.Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.records)
}

// Last returns the last record, the zero Record if there is none.
func (w *watcher) Last() retry.Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.records) == 0 {
		return retry.Record{}
	}
	return w.records[len(w.records)-1]
}

// Waits returns the waits of the records that say Retrying.
func (w *watcher) Waits() []time.Duration {
	var waits []time.Duration
	for _, r := range w.Records() {
		if r.Decision == retry.Retrying {
			waits = append(waits, r.Wait)
		}
	}
	return waits
}

// purse is a Budget in which each retry costs 1, as long as there are tokens.
// It writes down all that it is told. It earns nothing. It is safe for concurrent use.
type purse struct {
	mu     sync.Mutex
	tokens int
	log    []string
}

// errEmpty is what an empty purse refuses with.
var errEmpty = errors.New("purse is empty")

func (b *purse) Spend(_ context.Context, v retry.Verdict, weight float64) (float64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	asked := fmt.Sprintf("%v %v %v %v", v.Class, v.Effect, v.After, weight)
	if b.tokens <= 0 {
		b.log = append(b.log, "refuse "+asked)
		return 0, errEmpty
	}
	b.tokens--
	b.log = append(b.log, "spend "+asked)
	return 1, nil
}

func (b *purse) Return(_ context.Context, cost float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens += int(cost)
	b.log = append(b.log, fmt.Sprint("return ", cost))
}

func (b *purse) Earn(_ context.Context, cost float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, fmt.Sprint("earn ", cost))
}

// Log returns what the purse was told, in order.
func (b *purse) Log() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.log)
}

// Tokens returns what is left.
func (b *purse) Tokens() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tokens
}

// verdictError is an error that says its own verdict to asItSays.
type verdictError retry.Verdict

func (e verdictError) Error() string { return fmt.Sprint("says ", retry.Verdict(e).Class) }

// asItSays is a Policy.Classify.
func asItSays(err error) retry.Verdict {
	e, _ := errors.AsType[verdictError](err)
	return retry.Verdict(e)
}

// anyDuration draws from the full range, its ends and zero more often.
func anyDuration(t *rapid.T, name string) time.Duration {
	return rapid.OneOf(
		rapid.SampledFrom([]time.Duration{0, 1, -1, time.Second, 30 * time.Second, time.Hour,
			math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 / 2, 1 << 62, 1 << 53, 1<<53 + 1, math.MinInt64, math.MinInt64 + 1}),
		rapid.Map(rapid.Int64(), func(n int64) time.Duration { return time.Duration(n) }),
	).Draw(t, name)
}

// smallDuration draws from so few that limits are met to the nanosecond.
func smallDuration(t *rapid.T, name string) time.Duration {
	return time.Duration(rapid.Int64Range(-1, 12).Draw(t, name))
}
