package retry_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-3d0f8764/retry"
)

// overrule is a Classifier that repeats an inner loop's error too: without the
// allowance, loops that use it multiply.
func overrule(error) retry.Verdict { return retry.Verdict{Class: retry.ClassTransient} }

// layer is a policy of so many attempts, without waits, that repeats
// everything.
func layer(attempts int) *retry.Policy {
	return &retry.Policy{MaxAttempts: attempts, Classify: overrule, Backoff: retry.Backoff{Base: -1}}
}

// asPassed passes a ctx or an error on as it is.
func asPassed[T any](v T) T { return v }

// hide loses all of err but its text.
func hide(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%v", err)
}

// nest runs op in loops with these policies, the outermost first, each inside the
// one before.
func nest(ctx context.Context, policies []*retry.Policy, pass func(context.Context) context.Context, wrap func(error) error, op func(context.Context) error) error {
	if len(policies) == 0 {
		return op(ctx)
	}
	return retry.Run(ctx, policies[0], func(ctx context.Context) error {
		return wrap(nest(pass(ctx), policies[1:], pass, wrap, op))
	})
}

func layers(attempts ...int) (policies []*retry.Policy) {
	for _, n := range attempts {
		policies = append(policies, layer(n))
	}
	return policies
}

// The worked numbers: what loops multiply to when each has an allowance of its
// own, and what they add up to when they share one (fault B147).
func TestNestedLoopsShareOneAllowance(t *testing.T) {
	for _, test := range []struct {
		name                        string
		attempts                    []int // outermost first
		detached, shared, byDefault int
	}{
		{"three in three", []int{3, 3}, 9, 3, 3},
		{"five deep, three each", []int{3, 3, 3, 3, 3}, 243, 3, 3},
		{"three inside four", []int{4, 3}, 12, 4, 3},
		{"four inside three", []int{3, 4}, 12, 3, 3},
		{"four in four", []int{4, 4}, 16, 4, 4},
		{"one around five", []int{1, 5}, 5, 1, 1},
		{"five around one", []int{5, 1}, 5, 5, 1},
		{"one deep inside", []int{3, 1, 3}, 9, 3, 1},
		{"two around a hundred", []int{2, 100}, 200, 2, 2},
		{"a hundred around two", []int{100, 2}, 200, 100, 2},
	} {
		for way, pass := range map[string]func(context.Context) context.Context{
			"as passed": asPassed[context.Context], "wrapped": wrapCtx, "WithoutCancel": context.WithoutCancel,
		} {
			t.Run(test.name+"/"+way, func(t *testing.T) {
				calls := 0
				op := func(context.Context) error { calls++; return retry.Transient(errOp) }
				run := func(policies []*retry.Policy, pass func(context.Context) context.Context, wrap func(error) error) int {
					calls = 0
					require.Error(t, nest(t.Context(), policies, pass, wrap, op))
					return calls
				}
				policies := layers(test.attempts...)
				detach := func(ctx context.Context) context.Context { return retry.Detach(pass(ctx)) }
				require.Equal(t, test.detached, run(policies, detach, asPassed))
				require.Equal(t, test.shared, run(policies, pass, asPassed))
				require.Equal(t, test.shared, run(policies, pass, hide), "hidden errors")
				for _, p := range policies {
					p.Classify = retry.Always // an inner loop's error is permanent to it
				}
				require.Equal(t, test.byDefault, run(policies, pass, asPassed))
				require.Equal(t, test.attempts[len(test.attempts)-1], run(policies, detach, asPassed), "the innermost alone")
				require.Equal(t, test.shared, run(policies, pass, hide), "hidden errors")
				for _, p := range policies {
					p.Classify = nil // op's error is marked
				}
				require.Equal(t, test.byDefault, run(policies, pass, asPassed))
			})
		}
	}
}

func TestFortyWorkersWithAnSDKInAWrapper(t *testing.T) {
	for _, test := range []struct {
		pass func(context.Context) context.Context
		want int64
	}{{retry.Detach, 640}, {asPassed[context.Context], 160}} {
		var calls atomic.Int64
		var all sync.WaitGroup
		policies := layers(4, 4) // shared by all
		for range 40 {
			all.Go(func() {
				_ = nest(t.Context(), policies, test.pass, hide, func(context.Context) error {
					calls.Add(1)
					return errOp
				})
			})
		}
		all.Wait()
		require.Equal(t, test.want, calls.Load())
	}
}

// An unlimited loop limits nobody, and is limited by who is around it.
func TestUnlimitedLoops(t *testing.T) {
	calls, rounds := 0, 0
	op := func(context.Context) error {
		calls++
		require.Less(t, calls, 1000, "without end")
		return errOp
	}
	require.NoError(t, retry.Run(t.Context(), layer(-1), func(ctx context.Context) error {
		if rounds++; rounds == 5 {
			return nil
		}
		return retry.Run(ctx, layer(3), op)
	}))
	require.Equal(t, 4*3, calls)

	calls = 0
	policies := layers(-1, 3, -1)
	policies[0].Classify = retry.Always // or it would go on for ever
	require.Error(t, nest(t.Context(), policies, asPassed, asPassed, op))
	require.Equal(t, 3, calls)

	calls = 0
	require.Error(t, nest(t.Context(), layers(4, -1, -1), asPassed, asPassed, op))
	require.Equal(t, 4, calls)
}

// An operation without retries leaves the loops in it none, and their error says whose
// allowance that was.
func TestAnOuterOperationOfOneAttemptLeavesInnerLoopsNoRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		err := retry.Run(t.Context(), &retry.Policy{Name: "checkout", MaxAttempts: 1}, func(ctx context.Context) error {
			return retry.Run(ctx, &retry.Policy{Name: "rates"}, func(context.Context) error {
				calls++
				return retry.Transient(errOp)
			})
		})
		require.Equal(t, 1, calls)
		require.Equal(t, retry.ErrAttempts, stopped(t, err).Reason)
		require.EqualError(t, err, "retry: checkout: gave up after 1 attempt in 0s: a loop inside it has given up: "+
			"retry: rates: gave up after 1 attempt in 0s: the allowance of checkout is spent: op failed")
	})
}

func TestARefusalNamesTheOperationWhoseAllowanceIsSpent(t *testing.T) {
	for _, test := range []struct {
		name     string
		attempts [3]int
		names    [3]string
		wrap     func(error) error
		want     string // of the innermost, then of the one around it …
	}{
		{"the outermost", [3]int{2, 9, 9}, [3]string{"a", "b", "c"}, asPassed[error],
			"retry: c: gave up after 2 attempts in 0s: the allowance of a is spent: op failed"},
		{"the one in the middle", [3]int{9, 2, 9}, [3]string{"a", "b", "c"}, asPassed[error],
			"retry: c: gave up after 2 attempts in 0s: the allowance of b is spent: op failed"},
		{"its own", [3]int{9, 9, 2}, [3]string{"a", "b", "c"}, asPassed[error],
			"retry: c: gave up after 2 attempts in 0s: no attempts left: op failed"},
		{"both: its own", [3]int{9, 2, 2}, [3]string{"a", "b", "c"}, asPassed[error],
			"retry: c: gave up after 2 attempts in 0s: no attempts left: op failed"},
		{"all around: the nearest", [3]int{2, 2, 9}, [3]string{"a", "b", "c"}, asPassed[error],
			"retry: c: gave up after 2 attempts in 0s: the allowance of b is spent: op failed"},
		{"without a name", [3]int{2, 9, 9}, [3]string{"", "b", "c"}, asPassed[error],
			"retry: c: gave up after 2 attempts in 0s: the allowance of an operation without a name is spent: op failed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				policies := layers(test.attempts[:]...)
				for i, p := range policies {
					p.Name, p.Classify = test.names[i], nil
				}
				var innermost error
				err := nest(t.Context(), policies[:2], asPassed, asPassed, func(ctx context.Context) error {
					innermost = retry.Run(ctx, policies[2], func(context.Context) error { return retry.Transient(errOp) })
					return innermost
				})
				require.EqualError(t, innermost, test.want)
				require.Equal(t, retry.ErrAttempts, stopped(t, err).Reason)
				require.ErrorIs(t, err, innermost)
			})
		})
	}

	// Loops inside have spent what the operation would need itself.
	synctest.Test(t, func(t *testing.T) {
		p := layer(3)
		p.Name = "outer"
		err := retry.Run(t.Context(), p, func(ctx context.Context) error {
			_ = retry.Run(ctx, layer(3), func(context.Context) error { return errOp })
			return errOp
		})
		require.EqualError(t, err, "retry: outer: gave up after 1 attempt in 0s: the allowance of outer is spent: op failed")
	})
}

// AttemptsLeft counts the allowances around.
func TestRecordsCountTheAllowancesAround(t *testing.T) {
	watch := &watcher{}
	inner := layer(10)
	inner.Observe = watch.Observe
	require.Error(t, retry.Run(t.Context(), layer(4), func(ctx context.Context) error {
		return retry.Permanent(retry.Run(ctx, inner, func(context.Context) error { return errOp }))
	}))
	var left []int
	for _, r := range watch.Records() {
		left = append(left, r.AttemptsLeft)
	}
	require.Equal(t, []int{3, 2, 1, 0}, left)
}

// A hundred rows in one operation, one retry each: all succeed, because each
// gives back what it has spent.
func TestRowsThatSucceedGiveTheirRetriesBack(t *testing.T) {
	for _, deep := range []int{1, 2, 4} {
		calls := 0
		require.NoError(t, retry.Run(t.Context(), layer(2), func(ctx context.Context) error {
			for range 100 {
				tries := 0
				if err := nest(ctx, layers([]int{5, 4, 3, 2}[:deep]...), asPassed, asPassed, func(context.Context) error {
					calls++
					if tries++; tries == 1 {
						return errOp
					}
					return nil
				}); err != nil {
					return err
				}
			}
			return nil
		}))
		require.Equal(t, 200, calls)
	}
}

// Rows that fail for good keep what they have spent: the allowance bounds them
// all together.
func TestRowsThatFailKeepTheirRetries(t *testing.T) {
	calls, failed := 0, 0
	require.NoError(t, retry.Run(t.Context(), layer(5), func(ctx context.Context) error {
		for range 100 {
			if retry.Run(ctx, layer(3), func(context.Context) error { calls++; return errOp }) != nil {
				failed++
			}
		}
		return nil
	}))
	require.Equal(t, 100, failed)
	require.Equal(t, 100+4, calls)
}

// A first attempt is never refused; of the retries of a fan-out just as many
// are made as there are, at the same time.
func TestAFanOut(t *testing.T) {
	const rows = 100
	for _, test := range []struct {
		name     string
		attempts int
		pass     func(context.Context) context.Context
		want     int64
	}{
		{"outer of one attempt", 1, asPassed[context.Context], rows},
		{"outer of five", 5, asPassed[context.Context], rows + 4},
		{"outer of five, through wrappers", 5, wrapCtx, rows + 4},
		{"outer of two hundred", 200, asPassed[context.Context], 2 * rows},
		{"unlimited outer", -1, asPassed[context.Context], 2 * rows},
		{"detached", 1, retry.Detach, 2 * rows},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls, succeeded atomic.Int64
				inner := layer(3)
				inner.Backoff = retry.Backoff{Base: time.Second, Jitter: retry.NoJitter} // all have failed before one is repeated
				require.NoError(t, retry.Run(t.Context(), layer(test.attempts), func(ctx context.Context) error {
					var all sync.WaitGroup
					for range rows {
						all.Go(func() {
							if retry.Run(test.pass(ctx), inner, func(ctx context.Context) error {
								calls.Add(1)
								if retry.Attempt(ctx) == 1 {
									return errOp
								}
								return nil
							}) == nil {
								succeeded.Add(1)
							}
						})
					}
					all.Wait()
					return nil
				}))
				require.Equal(t, test.want, calls.Load())
				require.Equal(t, test.want-rows, succeeded.Load())
			})
		})
	}
}

// nestNode is an operation in a random tree of operations.
type nestNode struct {
	Max      int // attempts; -1: unlimited
	Detached bool
	Beside   bool   // its kids run side by side
	Swallow  bool   // its kids' errors
	Fails    []bool // what its own part of its nth attempt does, again and again
	Kids     []*nestNode

	calls atomic.Int64
}

// drawNestNode draws a tree. No node is unlimited but in a limited one that
// it is not detached from.
func drawNestNode(t *rapid.T, depth int, allFail bool) *nestNode {
	n := &nestNode{
		Max:      rapid.IntRange(1, 4).Draw(t, "max"),
		Detached: depth > 0 && rapid.IntRange(0, 9).Draw(t, "detached") == 0,
		Beside:   rapid.Bool().Draw(t, "beside"),
		Swallow:  rapid.Bool().Draw(t, "swallow"),
		Fails:    []bool{true},
	}
	if !allFail {
		n.Fails = rapid.SliceOfN(rapid.Bool(), 1, 4).Draw(t, "fails")
	}
	if depth > 0 && !n.Detached && rapid.IntRange(0, 4).Draw(t, "unlimited") == 0 {
		n.Max = -1
	}
	if depth < 3 {
		for range rapid.IntRange(0, 3-depth).Draw(t, "kids") {
			n.Kids = append(n.Kids, drawNestNode(t, depth+1, allFail))
		}
	}
	return n
}

func (n *nestNode) String() string {
	return fmt.Sprintf("{max %d detached %v beside %v swallow %v fails %v %v}", n.Max, n.Detached, n.Beside, n.Swallow, n.Fails, n.Kids)
}

// allowed is how many retries n may make, -1 if any number.
func (n *nestNode) allowed() int {
	if n.Max < 0 {
		return -1
	}
	return n.Max - 1
}

// own says whether n's own part of its next attempt fails.
func (n *nestNode) own() bool {
	call := int(n.calls.Add(1))
	if call > 5000 {
		panic("without end")
	}
	return n.Fails[(call-1)%len(n.Fails)]
}

// run is one operation of n, for real.
func (n *nestNode) run(ctx context.Context, beside bool, parent *nestRun) error {
	if n.Detached {
		ctx = retry.Detach(ctx)
	}
	r := &nestRun{node: n}
	parent.add(r)
	err := retry.Run(ctx, layer(n.Max), func(ctx context.Context) error {
		r.attempts++
		errs := make([]error, len(n.Kids))
		var all sync.WaitGroup
		for i, kid := range n.Kids {
			if beside && n.Beside {
				all.Go(func() { errs[i] = kid.run(ctx, beside, r) })
			} else if errs[i] = kid.run(ctx, beside, r); errs[i] != nil && !n.Swallow {
				break
			}
		}
		all.Wait()
		fails := n.own()
		if err := errors.Join(errs...); err != nil && !n.Swallow {
			return err
		}
		if fails {
			return errOp
		}
		return nil
	})
	r.success = err == nil
	return err
}

// nestRun is what became of one operation.
type nestRun struct {
	node     *nestNode
	attempts int
	success  bool

	mu   sync.Mutex
	kids []*nestRun
}

func (r *nestRun) add(kid *nestRun) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kids = append(r.kids, kid)
}

// held returns how many retries the operation has of the allowances around it when
// all is done: its own and those of the loops in it that failed.
func (r *nestRun) held(t require.TestingT) int {
	held := r.attempts - 1
	for _, kid := range r.kids {
		if h := kid.held(t); !kid.success && !kid.node.Detached {
			held += h
		}
	}
	if most := r.node.allowed(); most >= 0 {
		require.LessOrEqual(t, held, most, "above the allowance of %v", r.node)
	}
	return held
}

// total counts operations and attempts.
func (r *nestRun) total() (operations, attempts int) {
	operations, attempts = 1, r.attempts
	for _, kid := range r.kids {
		o, a := kid.total()
		operations, attempts = operations+o, attempts+a
	}
	return operations, attempts
}

// nestAccount is an allowance in the model: plain sums.
type nestAccount struct{ limit, spent int }

// model does one operation of n as design says, one after the other.
func (n *nestNode) model(around []*nestAccount) (success bool, calls map[*nestNode]int) {
	if n.Detached {
		around = nil
	}
	own := &nestAccount{limit: n.allowed()}
	chain := append(around[:len(around):len(around)], own)
	calls = map[*nestNode]int{}
	for {
		fails := false
		for _, kid := range n.Kids {
			ok, more := kid.model(chain)
			for k, c := range more {
				calls[k] += c
			}
			if !ok && !n.Swallow {
				fails = true
				break
			}
		}
		calls[n]++
		fails = n.own() || fails
		if !fails {
			for _, a := range around {
				a.spent -= own.spent
			}
			return true, calls
		}
		for _, a := range chain {
			if a.limit >= 0 && a.spent >= a.limit {
				return false, calls
			}
		}
		for _, a := range chain {
			a.spent++
		}
	}
}

// reset forgets the calls of n and all below.
func (n *nestNode) reset() {
	n.calls.Store(0)
	for _, kid := range n.Kids {
		kid.reset()
	}
}

// each visits n and all below.
func (n *nestNode) each(visit func(*nestNode)) {
	visit(n)
	for _, kid := range n.Kids {
		kid.each(visit)
	}
}

// One after the other, every tree of operations makes exactly the attempts
// that the allowances permit: none more, and none less.
func TestAnyTreeOfOperationsMakesTheAttemptsOfTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := drawNestNode(t, 0, rapid.Bool().Draw(t, "all fail"))
		want, calls := n.model(nil)
		n.reset()
		var top nestRun
		err := n.run(context.Background(), false, &top)
		require.Equal(t, want, err == nil)
		n.each(func(n *nestNode) {
			require.EqualValues(t, calls[n], n.calls.Load(), "%v", n)
		})
		top.kids[0].held(t)
	})
}

// Side by side, in any order: no operation's allowance is ever exceeded by
// what failed in it, and afterwards the account is right to the unit, as an operation that
// tries until it is refused finds out.
func TestAnyTreeOfOperationsSideBySideStaysInItsAllowances(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		allFail := rapid.Bool().Draw(t, "all fail")
		limit := rapid.IntRange(0, 12).Draw(t, "retries of the outermost")
		forest := make([]*nestNode, rapid.IntRange(1, 6).Draw(t, "operations"))
		for i := range forest {
			forest[i] = drawNestNode(t, 1, allFail)
			forest[i].Detached = false
			forest[i].Max = max(forest[i].Max, rapid.SampledFrom([]int{-1, 2}).Draw(t, "max")) // unlimited too
		}
		outer := nestRun{node: &nestNode{Max: limit + 1}, attempts: 1, success: true}
		probes := 0
		require.NoError(t, retry.Run(context.Background(), layer(limit+1), func(ctx context.Context) error {
			var all sync.WaitGroup
			for _, n := range forest {
				all.Go(func() { _ = n.run(ctx, true, &outer) })
			}
			all.Wait()
			_ = retry.Run(ctx, layer(-1), func(context.Context) error {
				if probes++; probes > 1000 {
					panic("without end")
				}
				return errOp
			})
			return nil
		}))
		held := outer.held(t)
		require.Equal(t, limit-held, probes-1, "the account after all is done")

		detached := false
		for _, n := range forest {
			n.each(func(n *nestNode) { detached = detached || n.Detached })
		}
		if allFail && !detached {
			operations, attempts := outer.total()
			require.LessOrEqual(t, attempts, operations+limit, "first attempts and the outermost allowance")
		}
	})
}

// Operations side by side that fail and then succeed: whoever gets a retry gives
// it back, and the account balances.
func TestTheAccountBalancesUnderContention(t *testing.T) {
	policies := layers(3, 3)
	for _, limit := range []int{0, 1, 3, 50} {
		probes := 0
		require.NoError(t, retry.Run(t.Context(), layer(limit+1), func(ctx context.Context) error {
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					for range 4000 {
						tries := 0
						_ = nest(ctx, policies, asPassed, asPassed, func(context.Context) error {
							if tries++; tries > 1 {
								return nil // whichever loop has repeated it
							}
							return errOp
						})
					}
				})
			}
			all.Wait()
			_ = retry.Run(ctx, layer(-1), func(context.Context) error {
				if probes++; probes > 1000 {
					panic("without end")
				}
				return errOp
			})
			return nil
		}))
		require.Equal(t, limit+1, probes)
	}
}

// A retry that was admitted and is then not sent is there for others, however
// that came about.
func TestARetryThatIsNotSentGoesBack(t *testing.T) {
	boom := errors.New("boom")
	errs := []error{errOp}
	type setup = func(p *retry.Policy, cancel func())
	for name, prepare := range map[string]setup{
		"cancelled in the sleep": func(p *retry.Policy, cancel func()) {
			p.Sleep = func(ctx context.Context, _ time.Duration) error { cancel(); return ctx.Err() }
		},
		"cancelled as the sleep ends": func(p *retry.Policy, cancel func()) {
			p.Sleep = func(context.Context, time.Duration) error { cancel(); return nil }
		},
		"the sleeper fails": func(p *retry.Policy, _ func()) {
			p.Sleep = func(context.Context, time.Duration) error { return boom }
		},
		"refused on waking": func(p *retry.Policy, _ func()) {
			c := newClock()
			p.Clock, p.MaxElapsed = c.Now, 20*time.Second
			p.Sleep = func(context.Context, time.Duration) error { c.Advance(20 * time.Second); return nil }
		},
		"refused on waking, with too little time left": func(p *retry.Policy, _ func()) {
			c := newClock()
			p.Clock, p.MaxElapsed, p.MinTimeout = c.Now, 20*time.Second, 10*time.Second
			p.Sleep = func(context.Context, time.Duration) error { c.Advance(10*time.Second + 1); return nil }
		},
		"does not fit": func(p *retry.Policy, _ func()) {
			p.Backoff, p.MaxElapsed = retry.Backoff{Base: time.Hour, Cap: -1, Jitter: retry.NoJitter}, time.Minute
		},
		"budget refused": func(p *retry.Policy, _ func()) { p.Budget = &purse{} },
		"hint too long": func(p *retry.Policy, _ func()) {
			p.Classify = func(error) retry.Verdict { return retry.Verdict{Class: retry.ClassThrottled, After: time.Hour} }
		},
		"panic in Sleep": func(p *retry.Policy, _ func()) {
			p.Sleep = func(context.Context, time.Duration) error { panic(boom) }
		},
		"panic in Rand": func(p *retry.Policy, _ func()) { p.Rand = func() float64 { panic(boom) } },
		"panic in Jitter": func(p *retry.Policy, _ func()) {
			p.Backoff = retry.Backoff{Jitter: func(retry.Step) time.Duration { panic(boom) }}
		},
		"panic in Observe": func(p *retry.Policy, _ func()) {
			p.Observe = func(context.Context, retry.Record) { panic(boom) }
		},
		"panic in Clock, on waking": func(p *retry.Policy, _ func()) {
			c, slept := newClock(), false
			p.Sleep = func(context.Context, time.Duration) error { slept = true; return nil }
			p.Clock = func() time.Time {
				if slept {
					panic(boom)
				}
				return c.Now()
			}
		},
		"panic in Spend": func(p *retry.Policy, _ func()) { p.Budget = panickingBudget{boom} },
		"Goexit in Sleep": func(p *retry.Policy, _ func()) {
			p.Sleep = func(context.Context, time.Duration) error { runtime.Goexit(); return nil }
		},
	} {
		for _, deep := range []int{0, 1, 3} { // loops between the outer and the one that does not send
			t.Run(fmt.Sprintf("%s/%d between", name, deep), func(t *testing.T) {
				first, second := 0, 0
				between := layers(9, 9, 9)[:deep]
				for _, p := range between {
					p.Classify = func(error) retry.Verdict { return retry.Verdict{Class: retry.ClassPermanent} }
				}
				require.NoError(t, retry.Run(t.Context(), layer(2), func(ctx context.Context) error {
					var all sync.WaitGroup
					all.Go(func() { // Goexit ends it
						defer func() {
							if r := recover(); r != nil {
								require.Equal(t, boom, r)
							}
						}()
						_ = nest(ctx, between, asPassed, asPassed, func(ctx context.Context) error {
							ctx, cancel := context.WithCancel(ctx)
							defer cancel()
							p := layer(9)
							prepare(p, cancel)
							return retry.Run(ctx, p, func(context.Context) error { first++; return errs[0] })
						})
					})
					all.Wait()
					return retry.Run(ctx, layer(2), func(context.Context) error {
						if second++; second == 1 {
							return errOp
						}
						return nil
					})
				}))
				require.Equal(t, 1, first)
				require.Equal(t, 2, second)
			})
		}
	}

	// Sent, it is gone.
	second := 0
	err := retry.Run(t.Context(), layer(2), func(ctx context.Context) error {
		_ = retry.Run(ctx, layer(9), func(context.Context) error { return errOp })
		return retry.Run(ctx, layer(2), func(context.Context) error { second++; return errOp })
	})
	require.Equal(t, retry.ErrAttempts, stopped(t, err).Reason)
	require.Equal(t, 1, second)

	// So it is if the retry itself panics: it was sent.
	second = 0
	_ = retry.Run(t.Context(), layer(2), func(ctx context.Context) error {
		func() {
			defer func() { _ = recover() }()
			_ = retry.Run(ctx, layer(9), func(ctx context.Context) error {
				if retry.Attempt(ctx) == 2 {
					panic(boom)
				}
				return errOp
			})
		}()
		return retry.Run(ctx, layer(2), func(context.Context) error { second++; return errOp })
	})
	require.Equal(t, 1, second)
}

// panickingBudget panics when it is asked.
type panickingBudget struct{ with error }

func (b panickingBudget) Spend(context.Context, retry.Verdict, float64) (float64, error) {
	panic(b.with)
}
func (b panickingBudget) Return(context.Context, float64) {}
func (b panickingBudget) Earn(context.Context, float64)   {}

// A ctx kept from an operation that has returned belongs to none: what is started with it
// has all its own retries.
func TestAnOperationThatHasReturnedEnclosesNothing(t *testing.T) {
	for name, pass := range map[string]func(context.Context) context.Context{
		"as passed": asPassed[context.Context], "wrapped": wrapCtx, "WithoutCancel": context.WithoutCancel,
	} {
		for _, outcome := range []error{nil, errOp} {
			for _, elapsed := range []time.Duration{-1, 0} {
				if elapsed == 0 && name != "WithoutCancel" {
					continue // such a ctx has ended
				}
				t.Run(name, func(t *testing.T) {
					outer := layer(2)
					outer.MaxElapsed = elapsed
					var old context.Context
					calls := 0
					op := func(context.Context) error { calls++; return errOp }
					err := retry.Run(t.Context(), outer, func(ctx context.Context) error {
						if retry.Attempt(ctx) == 1 {
							return errOp
						}
						old = pass(ctx)
						require.Error(t, retry.Run(old, layer(5), op))
						require.Equal(t, 1, calls, "while it runs, it has no retry left")
						return outcome
					})
					require.Equal(t, outcome == nil, err == nil)
					for range 3 {
						calls = 0
						require.Error(t, retry.Run(old, layer(5), op))
						require.Equal(t, 5, calls)
						calls = 0
						require.Error(t, nest(old, layers(3, 3, 3), asPassed, asPassed, op))
						require.Equal(t, 3, calls, "these enclose one another")
					}
				})
			}
		}
	}
}

// If the one around it still runs, it is in that one.
func TestAnOperationThatHasReturnedIsStillInTheOneAroundIt(t *testing.T) {
	calls := 0
	op := func(context.Context) error { calls++; return errOp }
	require.NoError(t, retry.Run(t.Context(), layer(3), func(ctx context.Context) error {
		var old context.Context
		between := layer(2)
		require.NoError(t, retry.Run(ctx, between, func(ctx context.Context) error {
			old = context.WithoutCancel(ctx)
			return nil
		}))
		for range 10 { // rows that succeed, so give back what they took
			require.NoError(t, retry.Run(old, layer(9), func(ctx context.Context) error {
				if retry.Attempt(ctx) < 3 {
					return errOp
				}
				return nil
			}))
		}
		require.Error(t, retry.Run(old, layer(9), op))
		require.Equal(t, 3, calls)
		return nil
	}))
}

// A loop that goes on after the operation around it has returned is limited by that one
// no more, but by those that still run.
func TestALoopThatOutlivesTheOperationAroundIt(t *testing.T) {
	for _, test := range []struct {
		name            string
		attempts        int // of the outermost
		outlivesBoth    bool
		within, outside int // calls
	}{
		{"the nearest", 4, false, 1, 4},
		{"the nearest, and there is nothing left", 1, false, 1, 1},
		{"both", 1, true, 1, 9},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				within, both, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
				inner := layer(9)
				inner.MaxElapsed = -1
				require.NoError(t, retry.Run(t.Context(), layer(test.attempts), func(ctx context.Context) error {
					require.NoError(t, retry.Run(ctx, layer(1), func(ctx context.Context) error {
						go func() {
							defer close(ended)
							_ = retry.Run(context.WithoutCancel(ctx), inner, func(ctx context.Context) error {
								if calls++; calls == 1 {
									<-within
									if test.outlivesBoth {
										<-both
									}
								}
								return errOp
							})
						}()
						synctest.Wait()
						return nil
					}))
					require.Equal(t, test.within, calls)
					close(within)
					if !test.outlivesBoth {
						<-ended
					}
					return nil
				}))
				close(both)
				<-ended
				require.Equal(t, test.outside, calls)
			})
		})
	}
}

// takenOver says which inner outcomes there are, and what they must make of
// the outer operation.
func TestTheOuterErrorTakesOverWhyTheInnerLoopGaveUp(t *testing.T) {
	type inner struct {
		policy  retry.Policy
		err     error
		reason  error
		hint    time.Duration
		unknown bool
	}
	outcomes := map[string]inner{
		"permanent":    {err: retry.Permanent(errOp), reason: retry.ErrPermanent},
		"suspended":    {err: retry.Suspended(errOp, time.Minute), reason: retry.ErrSuspended, hint: time.Minute},
		"unclassified": {err: errOp, reason: retry.ErrUnclassified},
		"attempts":     {err: retry.Transient(errOp), reason: retry.ErrAttempts},
		"hint":         {err: retry.Throttled(errOp, time.Hour), reason: retry.ErrHint, hint: time.Hour},
		"no hint asked for, attempts": {policy: retry.Policy{MaxAttempts: 1}, err: retry.Throttled(errOp, time.Second),
			reason: retry.ErrAttempts, hint: time.Second},
		"unknown":                   {err: retry.Unknown(errOp), reason: retry.ErrUnknownOutcome, unknown: true},
		"unknown, but harmless":     {policy: retry.Policy{Effect: retry.ReadOnly}, err: retry.Unknown(errOp), reason: retry.ErrAttempts},
		"attempts, and unknown":     {policy: retry.Policy{Effect: retry.Idempotent}, err: retry.Unknown(errOp), reason: retry.ErrAttempts, unknown: true},
		"own deadline":              {policy: retry.Policy{MaxElapsed: 1}, err: retry.Transient(errOp), reason: retry.ErrDeadline},
		"own deadline, and unknown": {policy: retry.Policy{MaxElapsed: 1, Effect: retry.Idempotent}, err: retry.Unknown(errOp), reason: retry.ErrDeadline, unknown: true},
		"budget":                    {policy: retry.Policy{Budget: &purse{}}, err: retry.Transient(errOp), reason: retry.ErrBudget},
		"the sleeper": {policy: retry.Policy{Sleep: func(context.Context, time.Duration) error { return errEmpty }},
			err: retry.Transient(errOp), reason: retry.ErrCanceled},
	}
	wraps := map[string]func(error) error{
		"as passed": asPassed[error],
		"%w":        func(err error) error { return fmt.Errorf("row 7: %w", err) },
		"joined":    func(err error) error { return errors.Join(errors.New("row 7"), err) },
		"typed":     func(err error) error { return &callError{err} },
		"deep":      func(err error) error { return &callError{fmt.Errorf("a: %w", errors.Join(fmt.Errorf("b: %w", err)))} },
	}
	for name, in := range outcomes {
		for way, wrap := range wraps {
			for depth := 1; depth <= 3; depth++ {
				for _, classify := range []retry.Classifier{nil, retry.Always} {
					t.Run(fmt.Sprint(name, "/", way, "/", depth), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							start := time.Now()
							calls, innermost := 0, error(nil)
							policies := layers(9, 9, 9)[:depth]
							for _, p := range policies {
								p.Classify, p.Effect = classify, retry.ReadOnly // would repeat all that is unknown
							}
							err := nest(t.Context(), policies, asPassed, wrap, func(ctx context.Context) error {
								calls++
								p := in.policy
								if p.Backoff.Base == 0 {
									p.Backoff = retry.Backoff{Base: 1, Cap: 1, Jitter: retry.NoJitter}
								}
								innermost = retry.Run(ctx, &p, func(context.Context) error { return in.err })
								return innermost
							})
							require.Equal(t, 1, calls, "the inner loop has repeated what there was to repeat")
							e := stopped(t, err)
							require.Equal(t, in.reason, e.Reason)
							require.Equal(t, in.reason, stopped(t, innermost).Reason)
							require.ErrorIs(t, err, in.reason)
							require.ErrorIs(t, err, innermost)
							require.ErrorIs(t, err, errOp)
							require.Equal(t, in.unknown, errors.Is(err, retry.ErrUnknownOutcome))
							require.Equal(t, in.reason == retry.ErrDeadline, errors.Is(err, context.DeadlineExceeded))
							require.Equal(t, in.hint != 0, !e.RetryAt.IsZero())
							if in.hint != 0 {
								require.Equal(t, stopped(t, innermost).RetryAt, e.RetryAt)
								require.GreaterOrEqual(t, e.RetryAt.Sub(start), in.hint)
							}
							require.Contains(t, err.Error(), "a loop inside it has given up")
							if in.unknown && in.reason != retry.ErrUnknownOutcome {
								require.Contains(t, err.Error(), "a loop inside it has given up; outcome unknown, it may have been applied: ")
							}
						})
					})
				}
			}
		}
	}
}

// Hidden, it is an error like any other: a rule that knows it may repeat it.
func TestAnInnerErrorThatIsHiddenIsNone(t *testing.T) {
	for _, classify := range []retry.Classifier{nil, retry.Always} {
		p := layer(2)
		p.Classify, p.Effect = classify, retry.ReadOnly
		err := retry.Run(t.Context(), p, func(ctx context.Context) error {
			return hide(retry.Run(ctx, layer(1), func(context.Context) error { return errOp }))
		})
		e := stopped(t, err)
		require.NotContains(t, err.Error(), "a loop inside it")
		if classify == nil {
			require.Equal(t, retry.ErrUnclassified, e.Reason)
			require.Equal(t, 1, e.Attempts)
		} else {
			require.Equal(t, retry.ErrAttempts, e.Reason)
			require.Equal(t, 2, e.Attempts)
		}
	}
}

// A mark on an inner loop's error is the caller's word, and stands over it.
func TestAMarkOutranksAnInnerLoopsError(t *testing.T) {
	calls := 0
	p := layer(3)
	p.Classify = nil
	err := retry.Run(t.Context(), p, func(ctx context.Context) error {
		calls++
		return retry.Transient(retry.Run(retry.Detach(ctx), layer(1), func(context.Context) error { return retry.Permanent(errOp) }))
	})
	require.Equal(t, 3, calls)
	require.Equal(t, retry.ErrAttempts, stopped(t, err).Reason)
	require.NotContains(t, err.Error()[:40], "a loop inside it")
}

// The exception: the inner loop's deadline is the enclosing attempt's own
// timeout. That attempt has failed, and its operation goes on.
func TestAnInnerDeadlineFromTheEnclosingAttemptsTimeoutIsThatAttemptsFailure(t *testing.T) {
	const s = time.Second
	waits := func(ctx context.Context) error { <-ctx.Done(); return retry.Transient(ctx.Err()) }
	waitsUnknown := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	fails := func(context.Context) error { return retry.Transient(errOp) }
	failsUnknown := func(context.Context) error { return retry.Unknown(errOp) }
	late := retry.Backoff{Base: time.Minute, Cap: -1, Jitter: retry.NoJitter} // never fits
	user := func(d time.Duration) func(context.Context) context.Context {
		return func(ctx context.Context) context.Context {
			ctx, cancel := context.WithTimeout(ctx, d)
			_ = cancel // its parent ends it
			return ctx
		}
	}
	outer := func(timeout, elapsed time.Duration, effect retry.Effect) *retry.Policy {
		return &retry.Policy{Name: "O", AttemptTimeout: timeout, MaxElapsed: elapsed, MinTimeout: -1, MaxAttempts: 3, Effect: effect, Backoff: retry.Backoff{Base: -1}}
	}
	inner := &retry.Policy{Name: "I", Backoff: late}
	idempotent := &retry.Policy{Name: "I", Backoff: late, Effect: retry.Idempotent}
	middle := &retry.Policy{Name: "M", Backoff: late}
	id := asPassed[context.Context]

	for _, test := range []struct {
		name     string
		policies []*retry.Policy
		pass     func(context.Context) context.Context
		op       func(context.Context) error
		calls    int
		reason   error
		unknown  bool
		takes    time.Duration
	}{
		{"refused early", []*retry.Policy{outer(10*s, 0, 0), inner}, id, fails, 3, retry.ErrAttempts, false, 0},
		{"op waits", []*retry.Policy{outer(10*s, -1, 0), inner}, id, waits, 3, retry.ErrAttempts, false, 30 * s},
		{"refused early, through wrappers", []*retry.Policy{outer(10*s, 0, 0), inner}, wrapCtx, fails, 3, retry.ErrAttempts, false, 0},
		{"op waits, through wrappers", []*retry.Policy{outer(10*s, -1, 0), inner}, wrapCtx, waits, 3, retry.ErrAttempts, false, 30 * s},
		{"refused early, detached", []*retry.Policy{outer(10*s, 0, 0), inner}, retry.Detach, fails, 3, retry.ErrAttempts, false, 0},
		{"op waits, detached", []*retry.Policy{outer(10*s, -1, 0), inner}, retry.Detach, waits, 3, retry.ErrAttempts, false, 30 * s},
		{"refused early, a longer deadline between", []*retry.Policy{outer(10*s, 0, 0), inner}, user(10*s + 1), fails, 3, retry.ErrAttempts, false, 0},

		{"a mutation that may have been applied is not repeated", []*retry.Policy{outer(10*s, -1, 0), inner}, id, waitsUnknown, 1, retry.ErrUnknownOutcome, true, 10 * s},
		{"an idempotent one is", []*retry.Policy{outer(10*s, -1, retry.Idempotent), inner}, id, waitsUnknown, 3, retry.ErrAttempts, true, 30 * s},
		{"a harmless one is", []*retry.Policy{outer(10*s, -1, retry.ReadOnly), inner}, id, waitsUnknown, 3, retry.ErrAttempts, true, 30 * s},
		{"unknown and refused early", []*retry.Policy{outer(10*s, 0, 0), idempotent}, id, failsUnknown, 1, retry.ErrUnknownOutcome, true, 0},
		{"unknown and refused early, idempotent", []*retry.Policy{outer(10*s, 0, retry.Idempotent), idempotent}, id, failsUnknown, 3, retry.ErrAttempts, true, 0},

		{"a layer between, refused early", []*retry.Policy{outer(10*s, 0, 0), middle, inner}, id, fails, 3, retry.ErrAttempts, false, 0},
		{"a layer between, op waits", []*retry.Policy{outer(10*s, -1, 0), middle, inner}, id, waits, 3, retry.ErrAttempts, false, 30 * s},
		{"a layer between, wrapped", []*retry.Policy{outer(10*s, 0, 0), middle, inner}, wrapCtx, fails, 3, retry.ErrAttempts, false, 0},
		{"three layers between", []*retry.Policy{outer(10*s, 0, 0), middle, middle, middle, inner}, id, fails, 3, retry.ErrAttempts, false, 0},
		{"three layers between, op waits", []*retry.Policy{outer(10*s, -1, 0), middle, middle, middle, inner}, id, waits, 3, retry.ErrAttempts, false, 30 * s},
		{"a layer between, with a longer timeout", []*retry.Policy{outer(10*s, -1, 0), {Backoff: late, AttemptTimeout: 20 * s}, inner}, id, waits, 3, retry.ErrAttempts, false, 30 * s},
		{"a layer between, unlimited", []*retry.Policy{outer(10*s, 0, 0), {Backoff: late, MaxElapsed: -1}, inner}, id, fails, 3, retry.ErrAttempts, false, 0},
		// M's own attempts time out; it repeats within O's attempt until the next would not fit, then O does.
		{"a layer between, with a shorter timeout", []*retry.Policy{outer(10*s, -1, 0), {AttemptTimeout: 4 * s, MaxAttempts: 50, Backoff: retry.Backoff{Base: -1}}, inner},
			retry.Detach, waits, 6, retry.ErrAttempts, false, 24 * s},

		{"not the operation's own deadline", []*retry.Policy{outer(0, 10*s, retry.ReadOnly), inner}, id, fails, 1, retry.ErrDeadline, false, 0},
		{"not the operation's own deadline, op waits", []*retry.Policy{outer(0, 10*s, retry.ReadOnly), inner}, id, waits, 1, retry.ErrDeadline, false, 10 * s},
		{"not where the timeout is as long as what is left", []*retry.Policy{outer(10*s, 10*s, retry.ReadOnly), inner}, id, fails, 1, retry.ErrDeadline, false, 0},
		{"but where it is 1ns shorter", []*retry.Policy{outer(10*s-1, 10*s, retry.ReadOnly), inner}, id, fails, 3, retry.ErrAttempts, false, 0},
		{"not where the timeout is longer", []*retry.Policy{outer(20*s, 10*s, retry.ReadOnly), inner}, id, fails, 1, retry.ErrDeadline, false, 0},
		{"not the operation's own deadline, a layer between", []*retry.Policy{outer(0, 10*s, retry.ReadOnly), middle, inner}, id, fails, 1, retry.ErrDeadline, false, 0},
		{"not a shorter deadline of the user's", []*retry.Policy{outer(10*s, 0, retry.ReadOnly), inner}, user(10*s - 1), fails, 1, retry.ErrDeadline, false, 0},
		{"not a shorter deadline of the user's, op waits", []*retry.Policy{outer(10*s, 0, retry.ReadOnly), inner}, user(9 * s), waits, 1, retry.ErrDeadline, false, 9 * s},
		{"not the inner loop's own limit", []*retry.Policy{outer(10*s, 0, retry.ReadOnly), {Backoff: late, MaxElapsed: 10*s - 1}}, id, fails, 1, retry.ErrDeadline, false, 0},
		{"but where the inner limit is longer", []*retry.Policy{outer(10*s, 0, retry.ReadOnly), {Backoff: late, MaxElapsed: 10*s + 1}}, id, fails, 3, retry.ErrAttempts, false, 0},
		{"not the limit of a layer between", []*retry.Policy{outer(10*s, 0, retry.ReadOnly), {Backoff: late, MaxElapsed: 5 * s}, inner}, id, fails, 1, retry.ErrDeadline, false, 0},
		{"not a hint that is too long", []*retry.Policy{outer(10*s, 0, retry.ReadOnly), inner}, id,
			func(context.Context) error { return retry.Throttled(errOp, time.Hour) }, 1, retry.ErrHint, false, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			for range 30 { // timers that are due in the same instant run in any order
				synctest.Test(t, func(t *testing.T) {
					start, calls := time.Now(), 0
					err := nest(t.Context(), test.policies, test.pass, func(err error) error { return fmt.Errorf("wrapped: %w", err) },
						func(ctx context.Context) error {
							calls++
							require.LessOrEqual(t, calls, test.calls)
							return test.op(ctx)
						})
					require.Equal(t, test.calls, calls, "%v", err)
					require.Equal(t, test.reason, stopped(t, err).Reason, "%v", err)
					require.Equal(t, test.unknown, errors.Is(err, retry.ErrUnknownOutcome), "%v", err)
					require.Equal(t, test.takes, time.Since(start))
				})
			}
		})
	}
}

// It is known by the attempt, not by the clock: an error kept from an attempt
// before is not this attempt's failure.
func TestAnInnerDeadlineKeptFromAnEarlierAttemptIsNotThisOnesFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &retry.Policy{AttemptTimeout: 10 * time.Second, Backoff: retry.Backoff{Base: -1}}
		var kept error
		err := retry.Run(t.Context(), p, func(ctx context.Context) error {
			if retry.Attempt(ctx) == 2 {
				return kept
			}
			kept = retry.Run(ctx, &retry.Policy{Backoff: retry.Backoff{Base: time.Minute, Cap: -1, Jitter: retry.NoJitter}},
				func(context.Context) error { return retry.Transient(errOp) })
			return retry.Transient(errOp)
		})
		e := stopped(t, err)
		require.Equal(t, 2, e.Attempts)
		require.Equal(t, retry.ErrDeadline, e.Reason)
	})
}

// What the server asked the inner loop for holds for the enclosing operation too:
// its next attempt is not before RetryAt, and is not made where that does not fit.
func TestAnInnerLoopsHintOutlivesTheAttemptThatItEndedIn(t *testing.T) {
	for _, between := range []int{0, 1, 2} { // layers
		for _, test := range []struct {
			name    string
			elapsed time.Duration
			hint    time.Duration
			calls   int
			reason  error
			takes   time.Duration
		}{
			{"fits", -1, 20 * time.Second, 3, retry.ErrAttempts, 43 * time.Second}, // three times 1s in op, two waits of 20s
			{"does not fit", 20 * time.Second, 20 * time.Second, 1, retry.ErrDeadline, time.Second},
			{"just fits", 21*time.Second + 1, 20 * time.Second, 2, retry.ErrDeadline, 21*time.Second + 1},
			{"too long", -1, 61 * time.Second, 1, retry.ErrHint, time.Second},
		} {
			t.Run(test.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := &retry.Policy{AttemptTimeout: 5 * time.Second, MaxElapsed: test.elapsed, MinTimeout: -1, MaxAttempts: 3, Spread: -1, Backoff: retry.Backoff{Base: -1}}
					start, next, calls := time.Now(), time.Time{}, 0
					err := retry.Run(t.Context(), p, func(ctx context.Context) error {
						policies := []*retry.Policy{{}, {}, {MaxHint: -1, MinTimeout: -1}}
						wrap := func(err error) error { return &callError{err} }
						return nest(ctx, policies[2-between:], asPassed, wrap, func(ctx context.Context) error {
							calls++
							require.False(t, time.Now().Before(next), "before the server permits it")
							if at, _ := ctx.Deadline(); time.Until(at) < time.Second {
								<-ctx.Done()
							} else {
								time.Sleep(time.Second)
							}
							next = time.Now().Add(test.hint)
							return retry.Throttled(errOp, test.hint)
						})
					})
					require.Equal(t, test.calls, calls, "%v", err)
					require.Equal(t, test.reason, stopped(t, err).Reason, "%v", err)
					require.Equal(t, test.takes, time.Since(start))
					require.True(t, stopped(t, err).RetryAt.Equal(next), "RetryAt")
				})
			})
		}
	}
}

// The price of a first attempt that costs nothing: layers without any deadline do not
// see the ones inside their first attempt, so d of them with m attempts each may add
// up, but do not multiply.
func TestPlainLayersAddUpAndDoNotMultiply(t *testing.T) {
	for d := 1; d <= 6; d++ {
		for m := 1; m <= 5; m++ {
			for name, wrap := range map[string]func(error) error{"seen": asPassed[error], "hidden": hide} {
				for _, classify := range []retry.Classifier{retry.Always, overrule} {
					policies := make([]*retry.Policy, d)
					for i := range policies {
						policies[i] = &retry.Policy{MaxAttempts: m, MaxElapsed: -1, Classify: classify, Backoff: retry.Backoff{Base: -1}}
					}
					calls := 0
					require.Error(t, nest(context.Background(), policies, asPassed, wrap, func(context.Context) error { calls++; return errOp }))
					require.GreaterOrEqual(t, calls, m)
					require.LessOrEqual(t, calls, (m-1)*d+1, "%s: %d layers of %d", name, d, m)
				}
			}
		}
	}
}
