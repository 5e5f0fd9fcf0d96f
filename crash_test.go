package retry_test

// An operation with a Journal whose process dies, at every single point. Only
// the JSON that Save was given survives; another process goes on with it.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3d0f8764/retry"
)

// fate is what becomes of a request.
type fate uint8

const (
	carriedOut     fate = iota // applied, and its answer arrives
	answerLost                 // applied, and nobody hears of it
	requestLost                // not applied, and nobody hears of it
	turnedAway                 // throttled, with a hint of 2s
	late                       // nobody hears of it, and it arrives 3s later
	refusedForGood             // permanent
)

func (f fate) String() string {
	return []string{"carried out", "answer lost", "request lost", "turned away", "late", "refused"}[f]
}

// sight is what a look-up meets.
type sight uint8

const (
	plain  sight = iota // the truth
	blind               // Unresolved
	dark                // its answer is lost
	barred              // a ban of 2s
)

// errDead is the panic that ends a process.
var errDead = errors.New("the process has died")

// realm is a server, the network before it, and the disk of the processes that
// call it. Its Find is honest: it says NotApplied only where nothing is on its
// way any more.
type realm struct {
	*clock
	fates  func() fate
	sights func() sight
	dies   func(at string) bool // asked at each point of a process
	log    []string

	disk []byte // JSON; nil: empty

	sends   int         // requests that were made
	resends int         // of them those after a request that proved nothing
	applied int         // effects
	onWay   []time.Time // arrivals to come
	open    bool        // the last request has proved nothing
	soonest time.Time   // of the next request, as saved last
	expires time.Time   // of the operation, as saved first
	last    time.Time   // start of the last request
}

func newRealm() *realm { return &realm{clock: newClock()} }

// point is a place where the process may die.
func (w *realm) point(at string) {
	w.log = append(w.log, at)
	if w.dies(at) {
		w.log = append(w.log, "dies")
		panic(errDead)
	}
}

// arrive lets in what has arrived by now.
func (w *realm) arrive() {
	now := w.Now()
	w.onWay = slices.DeleteFunc(w.onWay, func(at time.Time) bool {
		if at.After(now) {
			return false
		}
		w.applied++
		return true
	})
}

func (w *realm) send(context.Context) (string, error) {
	w.point("send")
	w.arrive()
	w.sends++
	if w.open {
		w.resends++
	}
	w.open, w.last = true, w.Now()
	if w.Now().Before(w.soonest) {
		panic(fmt.Sprintf("sent %v too early", w.soonest.Sub(w.Now())))
	}
	f := w.fates()
	w.log = append(w.log, f.String())
	w.Advance(100 * ms)
	switch f {
	case carriedOut, answerLost:
		w.applied++
	case late:
		w.onWay = append(w.onWay, w.Now().Add(3*time.Second))
	}
	w.point("answer")
	switch f {
	case carriedOut:
		return "sent", nil
	case turnedAway:
		w.open = false
		return "", retry.Throttled(errOp, 2*time.Second)
	case refusedForGood:
		w.open = false
		return "", retry.Permanent(errOp)
	}
	return "", retry.Unknown(errLost)
}

func (w *realm) find(context.Context) (string, retry.Resolution, error) {
	w.point("find")
	w.Advance(10 * ms)
	w.arrive()
	s := w.sights()
	w.point("finding")
	switch s {
	case blind:
		return "", retry.Unresolved, nil
	case dark:
		return "", retry.Unresolved, retry.Unknown(errFind)
	case barred:
		return "", retry.Unresolved, retry.Suspended(errFind, 2*time.Second)
	}
	switch {
	case w.applied > 0:
		return "found", retry.Applied, nil
	case len(w.onWay) > 0:
		return "", retry.Unresolved, nil
	}
	return "", retry.NotApplied, nil
}

func (w *realm) sleep(ctx context.Context, d time.Duration) error {
	w.point("wait")
	if err := w.Sleep(ctx, d/2); err != nil {
		return err
	}
	w.point("half of the wait")
	return w.Sleep(ctx, d-d/2)
}

func (w *realm) save(_ context.Context, s retry.State) error {
	w.point("save")
	stored, err := w.load()
	if err != nil {
		return err
	}
	if s.Revision != stored.Revision+1 {
		return errStale
	}
	if w.disk, err = json.Marshal(s); err != nil {
		return err
	}
	w.soonest = s.NotBefore
	if w.expires.IsZero() {
		w.expires = w.Now().Add(crashTime)
	}
	w.point("saved")
	return nil
}

func (w *realm) load() (s retry.State, err error) {
	if w.disk != nil {
		err = json.Unmarshal(w.disk, &s)
	}
	return s, err
}

// process runs the operation from what is on the disk.
func (w *realm) process(t require.TestingT, p retry.Policy, lookup *retry.Lookup[string]) (v string, err error, died bool) {
	defer func() {
		switch r := recover(); r {
		case nil:
		case errDead:
			died = true
		default:
			panic(r)
		}
	}()
	s, err := w.load()
	require.NoError(t, err)
	p.Journal = &retry.Journal{State: s, Save: w.save}
	p.Clock, p.Sleep, p.Rand = w.Now, w.sleep, constant(0.5)
	if lookup == nil {
		v, err = retry.Do(context.Background(), &p, w.send)
	} else {
		l := *lookup
		l.Find = w.find
		v, err = retry.Submit(context.Background(), &p, w.send, l)
	}
	w.point("return")
	return v, err, false
}

// live runs processes, each of them after such a pause, until one comes to an
// end. It returns what that one has returned; lost: the answer of one that had ended for good.
func (w *realm) live(t require.TestingT, pause time.Duration, p retry.Policy, lookup *retry.Lookup[string]) (err error, lost bool) {
	for range 20 {
		v, err, died := w.process(t, p, lookup)
		if died {
			w.Advance(pause)
			continue
		}
		s, e := w.load()
		require.NoError(t, e)
		if errors.Is(err, retry.ErrJournal) {
			require.True(t, s.Ended, err)
			return nil, true
		}
		w.must(t, s.Ended != errors.Is(err, retry.ErrUnknownOutcome), "what is known has ended", err)
		w.must(t, err != nil || v != "", "success without its value", err)
		return err, false
	}
	require.Fail(t, "it never ends")
	return nil, false
}

// verify checks what must hold whatever has died when.
func (w *realm) verify(t require.TestingT, p retry.Policy, lookup *retry.Lookup[string], err error, lost bool) {
	w.Advance(time.Hour)
	w.arrive()
	w.must(t, w.sends <= p.MaxAttempts, "attempts", err)
	w.must(t, w.sends == 0 || w.last.Before(w.expires), "past its expiry", err)
	w.must(t, lookup == nil || w.applied <= 1, "two effects", err)
	w.must(t, lookup == nil || w.resends <= max(1, lookup.Resends), "resends", err)
	switch {
	case lost:
	case err == nil:
		w.must(t, w.applied > 0, "a failure reported as success", err)
	case !errors.Is(err, retry.ErrUnknownOutcome):
		w.must(t, w.applied == 0, "a success reported as failed", err)
	}
}

// must fails the test with the whole story, which is put together for nothing else.
func (w *realm) must(t require.TestingT, ok bool, what string, err error) {
	if !ok {
		require.FailNow(t, what, "%v\n%v", w.log, err)
	}
}

// crashTime is the operation's, from its start on.
const crashTime = 10 * time.Second

// crashPolicy has room for three sends and their waits, and for no fourth.
func crashPolicy() (retry.Policy, *retry.Lookup[string]) {
	p := retry.Policy{
		Backoff:     retry.Backoff{Base: time.Second, Multiplier: 1, Jitter: retry.NoJitter},
		MaxAttempts: 3, MaxElapsed: crashTime, Spread: -1,
	}
	return p, &retry.Lookup[string]{Settle: 50 * ms, Policy: &retry.Policy{MaxAttempts: -1, MaxElapsed: 20 * time.Second}}
}

// Every sequence of three fates, every point and every pair of points at which a
// process dies, and a next one that comes at once, during the wait, or too late.
func TestCrashAtEveryPoint(t *testing.T) {
	p, lookup := crashPolicy()
	pauses := []time.Duration{0, 700 * ms, 20 * time.Second}
	for _, test := range []struct {
		name   string
		effect retry.Effect
		lookup *retry.Lookup[string]
		fates  []fate
		truth  bool // what has happened is known in the end
	}{
		{"Submit", retry.Unstated, lookup, []fate{carriedOut, answerLost, requestLost, turnedAway}, true},
		{"Submit, late and refused", retry.Unstated, lookup, []fate{late, turnedAway, refusedForGood}, true},
		{"Do, idempotent", retry.Idempotent, nil, []fate{carriedOut, answerLost, requestLost, turnedAway}, false},
		{"Do, a mutation", retry.Mutation, nil, []fate{carriedOut, answerLost, turnedAway}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := p
			p.Effect = test.effect
			runs, n := 0, len(test.fates)
			for script := range n * n * n {
				fates := []fate{test.fates[script%n], test.fates[script/n%n], test.fates[script/n/n]}
				// run dies at these points and returns how many there were.
				run := func(pause time.Duration, points ...int) (reached int) {
					w := newRealm()
					w.fates = func() fate { return fates[w.sends-1] }
					w.sights = func() sight { return plain }
					w.dies = func(string) bool {
						reached++
						return slices.Contains(points, reached-1)
					}
					err, lost := w.live(t, pause, p, test.lookup)
					w.verify(t, p, test.lookup, err, lost)
					w.must(t, !test.truth || lost || w.applied == 0 || err == nil, "not found out", err)
					w.must(t, test.effect != retry.Mutation || w.applied <= 1, "two effects", err)
					runs++
					return reached
				}
				for first := range run(0) {
					for _, pause := range pauses {
						run(pause, first)
					}
					pause := pauses[first%len(pauses)]
					for second := range run(pause, first) - first - 1 {
						run(pause, first, first+1+second)
					}
				}
			}
			require.Greater(t, runs, 1000)
		})
	}
}

// Without a death the points are these: nothing is sent or slept before it is saved.
func TestCrashPoints(t *testing.T) {
	p, lookup := crashPolicy()
	w := newRealm()
	fates := []fate{requestLost, turnedAway, carriedOut}
	w.fates = func() fate { return fates[w.sends-1] }
	w.sights = func() sight { return plain }
	w.dies = func(string) bool { return false }
	err, _ := w.live(t, 0, p, lookup)
	require.NoError(t, err)
	require.Equal(t, []string{
		"save", "saved", "send", "request lost", "answer",
		"wait", "half of the wait", "find", "finding", // settled
		"save", "saved", "wait", "half of the wait", "find", "finding",
		"save", "saved", "send", "turned away", "answer",
		"save", "saved", "wait", "half of the wait", "find", "finding",
		"save", "saved", "send", "carried out", "answer",
		"save", "saved", "return",
	}, w.log)
}
