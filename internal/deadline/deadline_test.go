package deadline_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-3d0f8764/retry/internal/deadline"
)

var (
	errParent = errors.New("the parent's deadline")
	errCause  = errors.New("why the parent was cancelled")
)

type key string

// wrapped is a user's context around another one: embedded, as most are.
type wrapped struct{ context.Context }

// foreign is a user's context that the context package does not know: its
// channel is its own.
type foreign struct {
	context.Context
	mu   sync.Mutex
	done chan struct{}
	err  error
}

func newForeign(ctx context.Context) *foreign {
	return &foreign{Context: ctx, done: make(chan struct{})}
}

func (f *foreign) Done() <-chan struct{} { return f.done }
func (f *foreign) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
func (f *foreign) end(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
		close(f.done)
	}
}

// Value hides the standard context behind f, whose Done is not f's.
func (f *foreign) Value(k any) any {
	if k, ok := k.(key); ok {
		return f.Context.Value(k)
	}
	return nil
}

// parents are those that a Context can have. cancel ends one early.
var parents = []struct {
	name     string
	deadline time.Duration // from now; 0: none
	make     func(at time.Time) (ctx context.Context, cancel func())
}{
	{"background", 0, func(time.Time) (context.Context, func()) { return context.Background(), func() {} }},
	{"value", 0, func(time.Time) (context.Context, func()) {
		return context.WithValue(context.Background(), key("k"), "v"), func() {}
	}},
	{"cancel", 0, func(time.Time) (context.Context, func()) {
		ctx, cancel := context.WithCancel(context.WithValue(context.Background(), key("k"), "v"))
		return ctx, cancel
	}},
	{"cancel with a cause, wrapped", 0, func(time.Time) (context.Context, func()) {
		ctx, cancel := context.WithCancelCause(context.Background())
		return wrapped{context.WithValue(wrapped{ctx}, key("k"), "v")}, func() { cancel(errCause) }
	}},
	{"earlier deadline", 4 * time.Second, standardParent(nil)},
	{"earlier deadline with a cause", 4 * time.Second, standardParent(errParent)},
	{"equal deadline with a cause", 5 * time.Second, standardParent(errParent)},
	{"later deadline", 6 * time.Second, standardParent(nil)},
	{"later deadline with a cause", 6 * time.Second, standardParent(errParent)},
	{"deadline in the past, with a cause", -time.Second, standardParent(errParent)},
	{"a lazy one, earlier", 4 * time.Second, func(at time.Time) (context.Context, func()) {
		c := new(deadline.Context)
		c.Init(context.Background(), deadline.At(at), false)
		return c, c.End
	}},
	{"a lazy one, later, wrapped", 6 * time.Second, func(at time.Time) (context.Context, func()) {
		c := new(deadline.Context)
		c.Init(wrapped{context.Background()}, deadline.At(at), false)
		return wrapped{c}, c.End
	}},
	{"foreign", 0, func(time.Time) (context.Context, func()) {
		f := newForeign(context.Background())
		return f, func() { f.end(errCause) }
	}},
}

func standardParent(cause error) func(time.Time) (context.Context, func()) {
	return func(at time.Time) (context.Context, func()) {
		ctx, cancel := context.WithCancelCause(context.WithValue(context.Background(), key("k"), "v"))
		ctx, stop := context.WithDeadlineCause(ctx, at, cause)
		return ctx, func() { cancel(errCause); stop() }
	}
}

// ending is what a context says once it is done.
type ending struct{ err, cause error }

// twins are a lazy Context and a standard one with the same parent and the
// same deadline. Whatever is asked of the one is asked of the other.
type twins struct {
	t      require.TestingT
	parent context.Context
	at     time.Time
	lazy   *deadline.Context
	std    context.Context
	stop   context.CancelFunc
	done   <-chan struct{} // lazy's, once asked for

	foreign bool
	stopped bool
	watched bool     // lazy had a child before it ended: then it must tell what ended it first
	ways    []ending // in which it has ended. Nobody can tell their order where nobody watched
	said    *ending  // what lazy has told: it must tell the same for ever
	kids    []*kid
}

// kid is one derivation from both twins.
type kid struct {
	name      string
	lazy, std context.Context
	ran       [2]atomic.Int32 // AfterFunc
	free      bool            // WithoutCancel
	at        time.Time       // a deadline of its own; zero: none
	cancel    []context.CancelFunc
}

// newTwins makes twins with a deadline in after, or with the parent's own.
func newTwins(t require.TestingT, parent context.Context, after time.Duration, inherit bool) *twins {
	w := &twins{t: t, parent: parent, at: time.Now().Add(after), lazy: new(deadline.Context)}
	w.lazy.Init(parent, deadline.Now()+after, inherit)
	if inherit {
		w.at, _ = parent.Deadline()
	}
	_, w.foreign = parent.(*foreign)
	w.std, w.stop = context.WithDeadline(parent, w.at)
	w.happened()
	return w
}

// happened notes in which ways the twins have ended by now.
func (w *twins) happened() {
	note := func(e ending) {
		if !slices.Contains(w.ways, e) {
			w.ways = append(w.ways, e)
		}
	}
	if err := w.parent.Err(); err != nil {
		note(ending{err, context.Cause(w.parent)})
		if _, ok := w.parent.(*foreign); ok {
			note(ending{err, err})
		}
	}
	if !time.Now().Before(w.at) {
		note(ending{context.DeadlineExceeded, context.DeadlineExceeded})
	}
	if w.stopped {
		note(ending{context.Canceled, context.Canceled})
	}
}

// settle lets timers that are due do their work.
func (w *twins) settle() {
	synctest.Wait()
	w.happened()
}

// check compares what ctx says with what its twin says.
func (w *twins) check(name string, lazy, std ending) {
	if std.err == nil || lazy.err == nil {
		require.Equal(w.t, std, lazy, "%s: lazy %v, standard %v", name, lazy, std)
		return
	}
	if w.said != nil {
		require.Equal(w.t, *w.said, lazy, "%s: it has said otherwise before", name)
		return
	}
	w.said = &lazy
	if at, ok := w.parent.Deadline(); w.watched && !(ok && at.Equal(w.at)) {
		require.Equal(w.t, std, lazy, "%s", name)
		return
	}
	require.Contains(w.t, w.ways, lazy, "%s: none of the ways in which it can have ended", name)
}

func (w *twins) watch() {
	w.watched = w.watched || len(w.ways) == 0
}

func (w *twins) askErr() {
	err := w.lazy.Err()
	lazy := ending{err, err}
	if err != nil {
		lazy.cause = context.Cause(w.lazy)
		require.True(w.t, closed(w.lazy.Done()), "Err is %v, but Done is open", err)
	}
	w.check("Err", lazy, of(w.std))
}

func (w *twins) askCause() { w.check("Cause", ofCauseFirst(w.lazy), of(w.std)) }

func (w *twins) askDone() {
	w.watch()
	done := w.lazy.Done()
	if w.done != nil {
		require.Equal(w.t, w.done, done, "Done has returned another channel before")
	}
	w.done = done
	require.Equal(w.t, closed(w.std.Done()), closed(done), "Done")
	if closed(done) {
		require.Error(w.t, w.lazy.Err(), "Done is closed, but Err is nil")
		w.check("Done", of(w.lazy), of(w.std))
	}
}

func (w *twins) askDeadline() {
	want, _ := w.std.Deadline()
	got, ok := w.lazy.Deadline()
	require.True(w.t, ok)
	require.True(w.t, got.Equal(want), "Deadline: got %v, want %v", got, want)
	require.Zero(w.t, time.Until(got)-time.Until(want), "Deadline: the monotonic part")
}

func (w *twins) askValue() {
	require.Equal(w.t, w.std.Value(key("k")), w.lazy.Value(key("k")))
	require.Nil(w.t, w.lazy.Value(key("none")))
	require.Nil(w.t, w.lazy.Value(nil))
}

func (w *twins) end() {
	w.lazy.End()
	w.stop()
	w.stopped = true
	w.happened()
	w.askKids() // at once, before any other goroutine runs
}

// keep keeps cancel for as long as k lives: its parent is to end it.
func (k *kid) keep(ctx context.Context, cancel context.CancelFunc) context.Context {
	k.cancel = append(k.cancel, cancel)
	return ctx
}

// derivations are the ways to derive a context from another one.
var derivations = []struct {
	name   string
	derive func(k *kid, ctx context.Context, twin int) context.Context
}{
	{"WithCancel", func(k *kid, ctx context.Context, _ int) context.Context {
		return k.keep(context.WithCancel(ctx))
	}},
	{"WithCancelCause of a wrapper", func(k *kid, ctx context.Context, _ int) context.Context {
		ctx, cancel := context.WithCancelCause(wrapped{ctx})
		return k.keep(ctx, func() { cancel(nil) })
	}},
	{"WithDeadline, earlier", func(k *kid, ctx context.Context, _ int) context.Context {
		k.at = time.Now().Add(1500 * time.Millisecond)
		return k.keep(context.WithDeadline(ctx, k.at))
	}},
	{"WithTimeout of a wrapper, later", func(k *kid, ctx context.Context, _ int) context.Context {
		return k.keep(context.WithTimeout(wrapped{ctx}, time.Hour))
	}},
	{"WithValue", func(_ *kid, ctx context.Context, _ int) context.Context {
		return context.WithValue(ctx, key("own"), "own")
	}},
	{"a wrapper's wrapper", func(k *kid, ctx context.Context, _ int) context.Context {
		return k.keep(context.WithCancel(wrapped{context.WithValue(wrapped{ctx}, key("own"), "own")}))
	}},
	{"AfterFunc", func(k *kid, ctx context.Context, twin int) context.Context {
		context.AfterFunc(wrapped{ctx}, func() { k.ran[twin].Add(1) })
		return ctx
	}},
	{"WithoutCancel", func(k *kid, ctx context.Context, _ int) context.Context {
		k.free = true
		return context.WithoutCancel(ctx)
	}},
	{"a lazy one", func(_ *kid, ctx context.Context, _ int) context.Context {
		c := new(deadline.Context)
		c.Init(wrapped{ctx}, deadline.Now()+time.Hour, false)
		return c
	}},
	{"a lazy one that inherits", func(_ *kid, ctx context.Context, _ int) context.Context {
		c := new(deadline.Context)
		c.Init(ctx, 0, true)
		return c
	}},
}

// derive derives the nth way from both, and fails if that started a goroutine.
func (w *twins) derive(n int) {
	d := derivations[n]
	k := &kid{name: d.name}
	before := goroutines()
	k.lazy = d.derive(k, w.lazy, 0)
	if !w.foreign && len(w.ways) == 0 {
		require.LessOrEqual(w.t, runtime.NumGoroutine(), before, "%s: a goroutine was started", d.name)
	}
	k.std = d.derive(k, w.std, 1)
	if !k.free { // askKids asks it for Done, and so its parent
		w.watch()
	}
	w.kids = append(w.kids, k)
	w.settle()
	w.askKids()
}

func (w *twins) askKids() {
	for _, k := range w.kids {
		lazy, std := of(k.lazy), of(k.std)
		require.Equal(w.t, closed(k.std.Done()), closed(k.lazy.Done()), k.name)
		require.Equal(w.t, k.std.Value(key("k")), k.lazy.Value(key("k")), k.name)
		require.Equal(w.t, k.std.Value(key("own")), k.lazy.Value(key("own")), k.name)
		switch {
		case k.free:
			require.Equal(w.t, ending{}, lazy, k.name)
		case !k.at.IsZero():
			require.Equal(w.t, std.err != nil, lazy.err != nil, "%s: lazy %v, standard %v", k.name, lazy, std)
		case std.err == nil || lazy.err == nil:
			require.Equal(w.t, std, lazy, k.name)
		default:
			require.Equal(w.t, of(w.lazy), lazy, "%s: other than the one that it comes from", k.name)
		}
	}
}

// askAll asks everything.
func (w *twins) askAll() {
	w.askValue()
	w.askCause()
	w.askErr()
	w.askDeadline()
	w.askDone()
	w.askKids()
	for _, k := range w.kids {
		require.Equal(w.t, k.ran[1].Load(), k.ran[0].Load(), "%s: AfterFunc", k.name)
	}
}

func of(ctx context.Context) ending {
	err := ctx.Err()
	return ending{err, context.Cause(ctx)}
}

func ofCauseFirst(ctx context.Context) ending {
	cause := context.Cause(ctx)
	return ending{ctx.Err(), cause}
}

// goroutines counts them once those of earlier tests have ended, as far as
// they do: the count may still fall, so compare it with LessOrEqual.
func goroutines() int {
	n := runtime.NumGoroutine()
	for same := 0; same < 100; same++ {
		runtime.Gosched()
		if m := runtime.NumGoroutine(); m != n {
			n, same = m, 0
		}
	}
	return n
}

func closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// questions are what can be asked of a context.
var questions = []struct {
	name string
	ask  func(*twins)
}{
	{"nothing", func(*twins) {}},
	{"Done", (*twins).askDone},
	{"Err", (*twins).askErr},
	{"Cause", (*twins).askCause},
	{"Value", (*twins).askValue},
	{"Deadline", (*twins).askDeadline},
	{"all", (*twins).askAll},
}

// Each parent, each question before, each event, each question first after it.
func TestAgreesWithTheStandardContext(t *testing.T) {
	type history func(w *twins, cancelParent func())
	pass := func(d time.Duration) history {
		return func(w *twins, _ func()) { time.Sleep(d); w.settle() }
	}
	cancel := func(w *twins, cancelParent func()) { cancelParent(); w.settle() }
	end := func(w *twins, _ func()) { w.end(); w.settle() }
	events := []struct {
		name string
		do   []history
	}{
		{"alive", []history{pass(time.Second)}},
		{"the last nanosecond", []history{pass(5*time.Second - 1)}},
		{"deadline", []history{pass(5 * time.Second)}},
		{"long after the deadline", []history{pass(time.Hour)}},
		{"parent cancelled", []history{cancel}},
		{"End", []history{end}},
		{"End twice", []history{end, end}},
		{"parent cancelled, then deadline", []history{cancel, pass(5 * time.Second)}},
		{"deadline, then parent cancelled", []history{pass(5 * time.Second), cancel}},
		{"End, then deadline", []history{end, pass(5 * time.Second)}},
		{"deadline, then End", []history{pass(5 * time.Second), end}},
		{"End, then parent cancelled", []history{end, cancel}},
		{"parent cancelled, then End", []history{cancel, end}},
	}
	for _, p := range parents {
		for _, event := range events {
			t.Run(p.name+"/"+event.name, func(t *testing.T) {
				for _, before := range questions {
					for _, between := range questions[:2] {
						for _, after := range questions[:4] {
							synctest.Test(t, func(t *testing.T) {
								parent, cancelParent := p.make(time.Now().Add(p.deadline))
								w := newTwins(t, parent, 5*time.Second, false)
								before.ask(w)
								for i, do := range event.do {
									if i > 0 {
										between.ask(w)
									}
									do(w, cancelParent)
								}
								after.ask(w)
								w.askAll()
								w.askAll()
								cancelParent()
								w.end()
							})
						}
						if len(event.do) == 1 {
							break // nothing is between
						}
					}
				}
			})
		}
	}
}

// Any sequence of events and questions, with the Context's own deadline before, at
// and after the parent's, or the parent's own.
func TestAgreesWithTheStandardContextInAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom(parents).Draw(t, "parent")
		inherit := p.deadline != 0 && rapid.Bool().Draw(t, "inherit")
		after := rapid.SampledFrom([]time.Duration{-time.Hour, 0, 1, 3 * time.Second, 4*time.Second - 1, 4 * time.Second,
			4*time.Second + 1, 5 * time.Second, 6 * time.Second, 24 * time.Hour}).Draw(t, "deadline")
		type step struct{ kind, n int }
		steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
			return step{rapid.IntRange(0, 9).Draw(t, "kind"), rapid.IntRange(0, 59).Draw(t, "n")}
		}), 1, 12).Draw(t, "steps")

		rapid.SyncTest(t, func(t *rapid.T) {
			parent, cancelParent := p.make(time.Now().Add(p.deadline))
			w := newTwins(t, parent, after, inherit)
			defer func() { cancelParent(); w.end() }()
			sleeps := []time.Duration{1, time.Second, 2 * time.Second, 4*time.Second - 1, time.Minute}
			for _, s := range steps {
				switch s.kind {
				case 0:
					cancelParent()
					w.happened()
					if !w.foreign {
						w.askKids() // at once
					}
				case 1:
					w.end()
				case 2, 3:
					time.Sleep(sleeps[s.n%len(sleeps)])
				case 4, 5:
					w.derive(s.n % len(derivations))
				default:
					w.settle()
					questions[s.n%len(questions)].ask(w)
				}
				w.settle()
				if s.n < 20 {
					w.askKids()
				}
			}
			w.askAll()
			w.askAll()
		})
	})
}

// Where the deadline is the parent's, two timers would race for the cause.
func TestAnInheritedDeadlineKeepsTheParentsCause(t *testing.T) {
	for name, later := range map[string]struct {
		after   time.Duration
		inherit bool
	}{"inherited": {0, true}, "equal": {time.Second, false}, "own is later": {2 * time.Second, false}} {
		t.Run(name, func(t *testing.T) {
			for range 50 {
				synctest.Test(t, func(t *testing.T) {
					parent, cancel := context.WithTimeoutCause(t.Context(), time.Second, errParent)
					defer cancel()
					var c deadline.Context
					c.Init(parent, deadline.Now()+later.after, later.inherit)
					defer c.End()
					<-c.Done()
					require.Equal(t, context.DeadlineExceeded, parent.Err(), "it ended before its parent")
					require.Equal(t, context.DeadlineExceeded, c.Err())
					require.Equal(t, errParent, context.Cause(&c))
				})
			}
		})
	}
}

func TestDerivedContextsEndAtTheSameInstant(t *testing.T) {
	for n, d := range derivations {
		for _, how := range []string{"deadline", "parent", "End"} {
			t.Run(d.name+"/"+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					parent, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					w := newTwins(t, parent, time.Second, false)
					defer w.end()
					w.derive(n)
					k := w.kids[0]
					start := time.Now()
					switch how {
					case "deadline":
						if !k.free {
							<-k.lazy.Done()
						}
						time.Sleep(time.Until(start.Add(time.Second)))
						require.Equal(t, time.Second, time.Since(start))
						w.settle()
					case "parent":
						cancel(errCause)
						w.happened()
					case "End":
						w.lazy.End()
						w.stop()
						w.stopped = true
						w.happened()
					}
					w.askKids() // before anything else runs
					synctest.Wait()
					w.askAll()
					if d.name == "AfterFunc" {
						require.EqualValues(t, 1, k.ran[0].Load())
					}
				})
			})
		}
	}
}

// A thousand children cost no goroutine, whatever lies between; nor does
// deriving from one whose Done nobody has asked for.
func TestDerivedContextsStartNoGoroutine(t *testing.T) {
	parent, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, p := range []context.Context{context.Background(), parent, wrapped{parent}} {
		for _, d := range derivations {
			var c deadline.Context
			c.Init(wrapped{context.WithValue(p, key("k"), "v")}, deadline.Now()+time.Hour, false)
			before, k := goroutines(), new(kid)
			for range 1000 {
				d.derive(k, &c, 0)
			}
			require.LessOrEqual(t, runtime.NumGoroutine(), before, d.name)
			c.End()
		}
	}
}

// A parent that the context package does not know costs the one goroutine that
// it costs the standard context too, however many children there are, and none
// once the Context has ended.
func TestAForeignParentCostsOneGoroutineAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForeign(context.Background())
		before := goroutines()
		var c deadline.Context
		c.Init(f, deadline.Now()+time.Hour, false)
		require.NoError(t, c.Err())
		require.LessOrEqual(t, runtime.NumGoroutine(), before, "nobody has asked for Done")
		for range 100 {
			ctx, cancel := context.WithCancel(wrapped{&c})
			defer cancel()
			require.NoError(t, ctx.Err())
		}
		require.LessOrEqual(t, runtime.NumGoroutine(), before+1)
		c.End()
		synctest.Wait()
		require.LessOrEqual(t, runtime.NumGoroutine(), before)
	})
}

func TestEndedBeforeAnyoneAskedLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForeign(context.Background()) // not ended: a goroutine that waits for it would hang the bubble
		var c deadline.Context
		c.Init(f, deadline.Now()+time.Hour, false)
		c.End()
		require.Equal(t, context.Canceled, c.Err())
		require.True(t, closed(c.Done()))
		require.Equal(t, context.Canceled, context.Cause(&c))
	})
}

// Past the year 2262 and before an anchor nothing may wrap around.
func TestFarAndPastDeadlines(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for name, test := range map[string]struct {
		end  time.Duration
		done bool
	}{
		"the last instant":   {math.MaxInt64, false},
		"almost":             {math.MaxInt64 - 1, false},
		"a century from now": {deadline.Now() + 100*year, false},
		"an hour from now":   {deadline.Now() + time.Hour, false},
		"now":                {deadline.Now(), true},
		"just missed":        {deadline.Now() - 1, true},
		"the anchor":         {0, true},
		"before the anchor":  {-1, true},
		"long before":        {-200 * year, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, doneFirst := range []bool{false, true} {
				var c deadline.Context
				c.Init(context.Background(), test.end, false)
				defer c.End()
				if doneFirst {
					require.Equal(t, test.done, closed(c.Done()))
				}
				require.Equal(t, test.done, c.Err() != nil)
				require.Equal(t, test.done, closed(c.Done()))
				at, ok := c.Deadline()
				require.True(t, ok)
				require.Equal(t, test.done, time.Until(at) <= 0)
				// Beyond 2157 a time has no monotonic part, so clocks that drift show.
				require.Less(t, (deadline.At(at) - test.end).Abs(), time.Second)
			}
		})
	}
}

// The clock of a synctest bubble lies years before an anchor taken outside.
func TestNowCountsInsideABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, at := deadline.Now(), time.Now()
		require.Equal(t, before, deadline.At(at))
		time.Sleep(time.Hour)
		require.Equal(t, time.Hour, deadline.Now()-before)
		require.Equal(t, time.Hour, deadline.At(time.Now())-deadline.At(at))
	})
}

// Many goroutines ask at once while the Context ends in every way at once.
func TestConcurrentUse(t *testing.T) {
	for i := range 300 {
		parent, cancel := context.WithCancelCause(context.WithValue(context.Background(), key("k"), "v"))
		var c deadline.Context
		c.Init(parent, deadline.Now()+time.Duration(i%3)*20*time.Microsecond, false)
		start := make(chan struct{})
		var all sync.WaitGroup
		ends := make([]ending, 8)
		dones := make([]<-chan struct{}, 8)
		for g := range 8 {
			all.Go(func() {
				<-start
				for began := time.Now(); c.Err() == nil; {
					if time.Since(began) > 10*time.Second {
						panic("it has not ended")
					}
					c.Deadline()
					if c.Value(key("k")) != "v" {
						panic("value lost")
					}
					if (g+i)%2 == 0 {
						ctx, stop := context.WithCancel(wrapped{&c})
						_ = ctx.Err()
						stop()
					}
				}
				if !closed(c.Done()) {
					panic("Err, but Done is open")
				}
				ends[g], dones[g] = of(&c), c.Done()
			})
		}
		all.Go(func() { <-start; c.End() })
		all.Go(func() { <-start; cancel(errCause) })
		close(start)
		all.Wait()
		for g := range ends {
			require.Equal(t, ends[0], ends[g])
			require.Equal(t, dones[0], dones[g])
		}
		require.Contains(t, []ending{{context.Canceled, context.Canceled}, {context.Canceled, errCause},
			{context.DeadlineExceeded, context.DeadlineExceeded}}, ends[0])
	}
}

// What the type is for: nothing is paid for before somebody waits.
func TestCostsNothingUntilSomebodyWaits(t *testing.T) {
	parent, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := new(deadline.Context)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		*c = deadline.Context{}
		c.Init(parent, deadline.Now()+time.Hour, false)
		if c.Err() != nil || c.Value(key("k")) != nil {
			panic("ended")
		}
		c.End()
	}))
}
