package retry

import (
	"cmp"
	"container/list"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/seed-3d0f8764/retry/internal/deadline"
)

// Gate is shared by all who use one limited thing, such as an IP or an account,
// and says when the next of them may leave. Every attempt passes it, the first
// one too, unless its ctx belongs to an attempt that holds the same Gate
// already. An implementation must be safe for concurrent use. The loop holds no
// lock while it calls one.
type Gate interface {
	// Enter waits until a call may leave. It returns what takes back the
	// outcome of that call, and is called once, from any goroutine, however
	// the attempt ends; nil: nobody is interested.
	//
	// Or it gives up: with ctx's error when ctx is done; with a *[HeldError]
	// where a hint or a ban holds the gate for longer than e allows; with
	// [context.DeadlineExceeded] where the others that wait do. The operation
	// then ends with ErrCanceled, ErrHint or ErrDeadline. Any other error ends it
	// with ErrCanceled. Its error also is this one.
	Enter(ctx context.Context, e Entry) (leave func(Outcome), err error)
}

// Entry is what a [Gate] is asked for.
type Entry struct {
	Weight  float64       // as how many calls this one counts; above 0, finite
	Within  time.Duration // the longest wait that is of use; the largest duration: any
	MaxHint time.Duration // the longest hint or ban that is worth waiting for; the largest duration: any
	// Ahead puts the call before all that wait, and does not let it wait for those
	// in flight: it is a look-up of Submit, and the send that it looks
	// up may be one of them.
	Ahead bool
}

// Outcome is what came of a call that has passed a [Gate].
type Outcome struct {
	Sent    bool    // false: it was not made after all
	Err     error   // op's; nil: success
	Verdict Verdict // on Err
}

// HeldError is the error of a [Gate] that is held for longer than worth waiting for.
type HeldError struct {
	For time.Duration // from now on
}

func (e *HeldError) Error() string { return fmt.Sprintf("retry: the gate is held for %v", e.For) }

// PacedGate is the [Gate] in one process; use one for each limited scope. It
// finds out by itself what the server takes. Until the first throttle it lets a
// few calls be in flight, one more with each that was accepted. A throttle holds
// it until the hint is over; from then on calls leave one by one, first come
// first served, at the pace at which the server has taken them, which grows
// slowly until the next throttle. A ban holds it for all, and teaches no pace.
//
// The wait counts as elapsed: where many wait, MaxElapsed must be at least their
// number divided by the rate of the server.
//
// The zero value is ready for use. Its fields are set before first use. It must
// not be copied, is safe for concurrent use, and starts no goroutine. A nil
// *PacedGate is no gate: it panics. Its algorithm and what it reaches are in
// internal/herd.
type PacedGate struct {
	// Start is how many calls may be in flight before the first throttle. 0: 4.
	// <0: any number, so that those who never meet a limit are never delayed;
	// the price is the first burst of those who do.
	Start int
	// Rand replaces math/rand/v2's Float64, for the spread after throttles
	// that follow one another. It must be safe for concurrent use.
	Rand func() float64

	mu     sync.Mutex
	ahead  list.List // of *waiter
	behind list.List

	begun    bool
	paced    bool          // there was a throttle
	until    time.Duration // nobody leaves before; on the clock of package deadline
	epoch    time.Duration // start of this cycle
	next     time.Duration // departure, once paced
	grown    time.Duration // when the pace last grew
	rate     float64       // calls per second, once paced
	accepted float64       // of the calls that left in this cycle
	barren   int           // cycles in a row without one
	coarse   bool          // the pause before this cycle was for whole seconds
	last     cycle
	calls    int     // in flight
	inFlight float64 // their weight
	room     float64 // for calls in flight, until paced
}

// cycle is one that has ended: late successes still count.
type cycle struct{ accepted, seconds float64 }

// The constants of the paced gate (internal/herd has the search for them).
const (
	paceFactor   = 0.95 // of what the server took
	paceGrowth   = 0.05 // per second, of the pace itself
	paceStep     = 0.1  // per second, in calls per second
	coarseFactor = 0.98 // instead of paceFactor, after a coarse hint
	coarseCalm   = 10.0 // seconds after which the pace grows fully again
	slowestPace  = 0.05 // calls per second
	fastestPace  = 1e9
	firstPause   = time.Second // after a throttle without a hint
	longestPause = 20 * time.Second
)

// waiter is one call that waits.
type waiter struct {
	Entry
	latest  time.Duration // of its departure
	timer   *time.Timer   // at latest, or when it may leave
	decided chan struct{} // closed once pass or refusal is set
	pass    *pass
	refusal error
	queue   *list.List
	place   *list.Element
}

// pass is one call that has left.
type pass struct {
	gate   *PacedGate
	weight float64
	left   time.Duration
	once   sync.Once
}

// Enter implements [Gate].
func (g *PacedGate) Enter(ctx context.Context, e Entry) (func(Outcome), error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w := g.arrive(e)
	if w.timer == nil { // decided already
		return w.decision()
	}
	defer w.timer.Stop()
	for {
		select {
		case <-w.decided:
			return w.decision()
		case <-w.timer.C:
			g.ring(w)
		case <-ctx.Done():
			g.forget(w, cmp.Or(ctx.Err(), context.Canceled)) // one made by hand may be done and not say why
		}
	}
}

// arrive puts a call into its queue, or decides it at once.
func (g *PacedGate) arrive(e Entry) *waiter {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := deadline.Now()
	if !g.begun {
		g.begun = true
		g.until, g.epoch, g.next, g.grown = now, now, now, now
		g.room = float64(g.Start)
		if g.Start == 0 {
			g.room = 4
		}
	}
	e.Weight = weightOr1(e.Weight)
	e.Within, e.MaxHint = max(0, e.Within), max(0, e.MaxHint)
	w := &waiter{Entry: e, latest: after(now, e.Within)}
	if held := between(now, g.until); held > min(e.Within, e.MaxHint) {
		w.refusal = &HeldError{held}
		return w
	}
	if g.first() == nil || e.Ahead && g.ahead.Len() == 0 {
		if g.opens(w) <= now {
			w.pass = g.depart(w, now)
			return w
		}
	}
	w.queue = &g.behind
	if e.Ahead {
		w.queue = &g.ahead
	}
	w.place = w.queue.PushBack(w)
	w.decided = make(chan struct{})
	w.timer = time.NewTimer(e.Within)
	g.advance(now)
	return w
}

// ring is called when w's timer has rung: w may leave, or has waited too long.
func (g *PacedGate) ring(w *waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := deadline.Now()
	g.advance(now)
	switch {
	case w.place == nil:
	case now >= w.latest:
		g.decide(w, nil, context.DeadlineExceeded)
		g.advance(now)
	case g.first() != w:
		w.timer.Reset(w.latest - now)
	}
}

// forget takes w out of its queue: its ctx is done. Whoever waits behind it
// moves up.
func (g *PacedGate) forget(w *waiter, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w.place == nil { // it has just left
		if w.pass != nil {
			g.end(w.pass)
			g.takeBack(w.pass)
		}
		w.pass, w.refusal = nil, err
	} else {
		g.decide(w, nil, err)
	}
	g.advance(deadline.Now())
}

// advance lets all leave who may, and sets the timer of the first who may not.
func (g *PacedGate) advance(now time.Duration) {
	for {
		w := g.first()
		if w == nil {
			return
		}
		opens := g.opens(w)
		if opens > now {
			w.timer.Reset(between(now, min(opens, w.latest)))
			return
		}
		g.decide(w, g.depart(w, now), nil)
	}
}

// first returns who is next, nil if nobody waits.
func (g *PacedGate) first() *waiter {
	e := g.ahead.Front()
	if e == nil {
		e = g.behind.Front()
	}
	if e == nil {
		return nil
	}
	return e.Value.(*waiter)
}

// opens returns when w may leave if it is the next.
func (g *PacedGate) opens(w *waiter) time.Duration {
	if g.paced {
		return max(g.until, g.next)
	}
	if g.Start >= 0 && !w.Ahead && g.inFlight > 0 && g.inFlight+w.Weight > g.room {
		return math.MaxInt64 // not before another has ended
	}
	return g.until
}

// depart lets w leave now.
func (g *PacedGate) depart(w *waiter, now time.Duration) *pass {
	g.calls++
	g.inFlight += w.Weight
	if g.paced {
		dt := min(between(g.grown, now), time.Second).Seconds()
		if g.coarse {
			dt *= calm(between(g.epoch, now).Seconds())
		}
		g.rate = min(fastestPace, g.rate+(paceGrowth*g.rate+paceStep)*dt)
		g.grown = max(g.grown, now)
		apart := g.apart(w.Weight)
		// A departure that is late is made up for, up to one.
		g.next = max(now, after(max(g.next, now-apart), apart))
	}
	return &pass{gate: g, weight: w.Weight, left: now}
}

// calm is how fast the pace grows, from 0 to 1, so many seconds into a cycle
// that a coarse hint has begun. Such a throttle costs most of a second in which
// the server would have taken calls: the next one is put off.
func calm(t float64) float64 { return min(1, float64(t/coarseCalm)*float64(t/coarseCalm)) }

// apart is how far a departure of so much weight is from the next.
func (g *PacedGate) apart(weight float64) time.Duration {
	return time.Duration(weight / g.rate * float64(time.Second)) // at most 1e6/0.05 seconds
}

// decide ends the wait of w.
func (g *PacedGate) decide(w *waiter, p *pass, refusal error) {
	w.queue.Remove(w.place)
	w.place = nil
	w.pass, w.refusal = p, refusal
	close(w.decided)
}

// decision is what Enter returns for w.
func (w *waiter) decision() (func(Outcome), error) {
	if w.refusal != nil {
		return nil, w.refusal
	}
	return w.pass.leave, nil
}

// leave takes the outcome of p.
func (p *pass) leave(o Outcome) { p.once.Do(func() { p.gate.settle(p, o) }) }

// settle learns from the outcome of a call.
func (g *PacedGate) settle(p *pass, o Outcome) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now, hint := deadline.Now(), max(0, o.Verdict.After)
	defer g.advance(now) // Rand may panic
	g.end(p)
	switch {
	case !o.Sent:
		g.takeBack(p)
	case o.Err == nil || definite(o.Err, o.Verdict):
		g.accept(p)
	case o.Verdict.Class == ClassThrottled, o.Verdict.Class == ClassSuspended:
		g.slow(p, o.Verdict.Class == ClassThrottled, hint, now)
	}
}

// end takes p out of what is in flight. Weights are floats, whose sum need not
// come back to 0 by itself.
func (g *PacedGate) end(p *pass) {
	g.calls--
	g.inFlight -= p.weight
	if g.calls == 0 {
		g.inFlight = 0
	}
}

// takeBack undoes the departure of a call that was not made.
func (g *PacedGate) takeBack(p *pass) {
	if g.paced && p.left >= g.epoch {
		g.next = max(p.left, g.next-g.apart(p.weight))
	}
}

// accept counts a call that the server has taken.
func (g *PacedGate) accept(p *pass) {
	g.barren = 0
	g.room += p.weight
	switch {
	case !g.paced || p.left >= g.epoch:
		g.accepted += p.weight
	case g.last.seconds > 0:
		g.last.accepted += p.weight
		g.rate = min(fastestPace, max(g.rate, paceFactor*g.last.accepted/g.last.seconds))
	}
}

// slow is the reaction to a throttle or, not learning from it, a ban: one in
// each cycle. Of a call that left before this cycle only a hint counts that
// lasts clearly longer than what the others were told.
func (g *PacedGate) slow(p *pass, learn bool, hint, now time.Duration) {
	if p.left < g.epoch {
		if end := after(now, hint); hint > 0 && (!learn && end > g.until || between(g.until, end) > time.Second) {
			g.hold(end, now)
		}
		return
	}
	if g.accepted == 0 {
		g.barren++
	}
	end := max(g.until, after(now, g.pause(learn, hint)))
	pause := between(now, end)
	if learn {
		g.learn(now, end, pause, hint)
	}
	g.epoch, g.grown, g.accepted = end, end, 0
	g.hold(end, now)
	if learn && pause == 0 {
		g.next = after(now, g.apart(1))
	}
}

// pause is how long a throttle or a ban holds the gate.
func (g *PacedGate) pause(learn bool, hint time.Duration) time.Duration {
	doubled := func(by time.Duration, n int) time.Duration { return min(longestPause, by<<min(n, 5)) }
	switch {
	case hint > 0 && g.barren > 1 && learn: // others are faster than we: spread over later windows too
		return after(hint, part(g.draw(), doubled(min(longestPause, max(hint, firstPause)), g.barren-1)))
	case hint > 0:
		return hint
	case g.accepted == 0 && g.barren > 1:
		d := doubled(firstPause, g.barren-1)
		return d/2 + part(g.draw(), d/2)
	case g.paced && learn && g.accepted > 0:
		return 0
	}
	return firstPause
}

// learn sets the pace from what the server took in the cycle that ends now and
// is paused until end.
func (g *PacedGate) learn(now, end, pause, hint time.Duration) {
	whole := max(between(g.epoch, end).Seconds(), 1e-3)
	atWork := max(between(g.epoch, now).Seconds(), 1e-3)
	// Retry-After is rounded up to whole seconds: the pause is no measure of
	// when the server takes calls again.
	g.coarse = g.paced && g.accepted > 0 && hint > 0 && hint%time.Second == 0
	switch {
	case g.accepted == 0 && g.paced:
		g.rate /= 2
	case g.accepted == 0:
		g.rate = 1 / max(whole, 1)
	case pause == 0 && whole < 1: // too short to measure by
		g.rate *= paceFactor
	case g.coarse:
		g.rate = coarseFactor * min(g.rate, g.accepted/atWork)
	case hint == 0 && g.paced:
		g.rate = paceFactor * min(g.rate, g.accepted/atWork)
	default:
		g.rate = paceFactor * g.accepted / whole
	}
	g.rate = min(fastestPace, max(slowestPace, g.rate))
	g.last = cycle{g.accepted, whole}
	g.paced = true
}

// hold lets nobody leave before end, and sends away those for whom that is too
// late or too long.
func (g *PacedGate) hold(end, now time.Duration) {
	g.until = max(g.until, end)
	g.next = g.until
	held := between(now, g.until)
	for _, queue := range []*list.List{&g.ahead, &g.behind} {
		for e := queue.Front(); e != nil; {
			w := e.Value.(*waiter)
			e = e.Next()
			if held > w.MaxHint || g.until > w.latest {
				g.decide(w, nil, &HeldError{held})
			}
		}
	}
}

func (g *PacedGate) draw() float64 {
	if g.Rand != nil {
		return g.Rand()
	}
	return rand.Float64()
}

// Gates is the [Gate] of calls that several limit at once, such as that of an
// IP and that of an account: each call enters one after the other, and each is told the
// outcome, with its error, so that it can tell whether it is meant. If a later one
// has kept a call for longer than a second the earlier are entered again,
// ahead: so what has piled up behind a hold leaves at the pace of all. nil ones
// are left out.
func Gates(g ...Gate) Gate {
	var all gates
	for _, g := range g {
		if g != nil {
			all = append(all, g)
		}
	}
	return &all
}

type gates []Gate

func (all *gates) Enter(ctx context.Context, e Entry) (func(Outcome), error) {
	began := deadline.Now()
	leaves := make([]func(Outcome), len(*all))
	tell := func(o Outcome) {
		for i, leave := range slices.Backward(leaves) {
			if leave != nil {
				leaves[i] = nil
				defer leave(o) // in order, and though one of them panics
			}
		}
	}
	entered := false
	defer func() {
		if !entered { // an error, or a panic
			tell(Outcome{})
		}
	}()
	enter := func(i int, e Entry) error {
		g := (*all)[i]
		if holds(ctx, g) {
			return nil
		}
		e.Within = max(0, e.Within-between(began, deadline.Now()))
		leave, err := g.Enter(ctx, e)
		leaves[i] = leave
		return err
	}
	again := 0 // those before must be entered again
	for i := range *all {
		came := deadline.Now()
		if err := enter(i, e); err != nil {
			return nil, err
		}
		if i > 0 && between(came, deadline.Now()) > time.Second {
			again = i
		}
	}
	for i := range again {
		if leave := leaves[i]; leave != nil {
			leaves[i] = nil
			leave(Outcome{})
			first := e
			first.Ahead = true
			if err := enter(i, first); err != nil {
				return nil, err
			}
		}
	}
	entered = true
	return tell, nil
}

// holds reports whether ctx belongs to an attempt that holds g.
func holds(ctx context.Context, g Gate) bool {
	k := &gateKey{g}
	return ctx.Value(k) == any(k) // some ctx may answer to any key
}

// gateKey asks a context for an attempt that holds a gate.
type gateKey struct{ wanted Gate }

// heldBy reports whether who holds the gate held holds the wanted one, too.
func (k *gateKey) heldBy(held any) bool {
	if same(held, k.wanted) {
		return true
	}
	if all, ok := held.(*gates); ok {
		for _, g := range *all {
			if k.heldBy(g) {
				return true
			}
		}
	}
	return false
}

// same compares gates of any type: one that cannot be compared is no other.
func same(a, b any) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// weightOr1 resolves a weight: 0, negative and NaN are 1, and more than a million is a
// million.
func weightOr1(w float64) float64 {
	if w > 0 {
		return min(w, 1e6)
	}
	return 1
}

// after returns t+d, or the largest duration. d is at least 0; t may be a
// reading of a clock that started after now, and less.
func after(t, d time.Duration) time.Duration {
	if t > 0 && d > math.MaxInt64-t {
		return math.MaxInt64
	}
	return t + d
}

// between returns the time from t to u, 0 if that is none, or the largest
// duration.
func between(t, u time.Duration) time.Duration {
	switch {
	case u <= t:
		return 0
	case t < 0 && u > math.MaxInt64+t:
		return math.MaxInt64
	}
	return u - t
}

// part returns u*d for a draw u, which may be anything.
func part(u float64, d time.Duration) time.Duration {
	if !(u >= 0 && u < 1) {
		return 0
	}
	return time.Duration(u * float64(d))
}
