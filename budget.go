package retry

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/seed-3d0f8764/retry/internal/deadline"
	"github.com/seed-3d0f8764/retry/internal/wire"
)

// Budget is shared by operations that use one service: their retries spend
// from it and their successes earn. First attempts never ask, so an empty
// budget delays and refuses nothing but retries. An implementation must be
// safe for concurrent use. The loop holds no lock while it calls one.
type Budget interface {
	// Spend is asked before each retry, last of all that could refuse it.
	// v is the verdict on the failure, with the effect that counted; weight is
	// above 0. It returns what the retry cost, which the loop hands back to
	// Return or Earn. An error refuses the retry: the operation ends at once
	// with ErrBudget, and its error also is this one.
	Spend(ctx context.Context, v Verdict, weight float64) (cost float64, err error)

	// Return takes back what a retry cost that was not sent after all: its
	// wait was cancelled, or it no longer fitted on waking.
	Return(ctx context.Context, cost float64)

	// Earn is told of each success, and of each definite answer that the
	// server gave to a retry (a permanent status or mark). cost is that of
	// the operation's last retry, 0 if it made none.
	Earn(ctx context.Context, cost float64)
}

// Journal keeps one operation's state through a crash: the policy of the
// operation holds it, and whoever resumes the operation makes a new one with
// the State that was saved last. A Journal serves one operation at a time; a
// second one is refused with ErrJournal.
type Journal struct {
	// State is what was saved last: zero for a new operation.
	State State

	// Save stores s durably before it returns nil. It is called before every
	// send, before every wait and when the operation ends. An error stops the
	// operation before anything is sent. A store that several workers share
	// must refuse an s whose Revision is not one above the stored one: then a
	// worker that wakes late sends nothing. nil: State is kept up, and nothing stored.
	Save func(ctx context.Context, s State) error

	busy atomic.Bool
}

// State is what an operation must not forget. It survives encoding/json. The
// zero State is that of an operation that has not begun.
//
// Times are those of the operation's clock, as wall-clock time. A clock that
// was changed in between cannot give an operation more than it had: what is
// left is the lesser of what the clock gives and what was left at the last
// Save, and so is the wait.
type State struct {
	Version  int   `json:"version"`  // 1; another one is refused
	Revision int64 `json:"revision"` // raised by one with every Save

	Attempts    int  `json:"attempts"`               // begun
	InFlight    bool `json:"in_flight,omitempty"`    // the last of them has not ended
	Unknown     bool `json:"unknown,omitempty"`      // some outcome is unknown and not cleared
	EverUnknown bool `json:"ever_unknown,omitempty"` // one was
	Resends     int  `json:"resends,omitempty"`      // of Submit, used up
	Ended       bool `json:"ended,omitempty"`        // there is nothing to resume

	Started   time.Time     `json:"started"`
	Expires   time.Time     `json:"expires,omitzero"`    // the deadline; zero: none
	Left      time.Duration `json:"left,omitzero"`       // to it, at the last Save
	NotBefore time.Time     `json:"not_before,omitzero"` // of the next attempt
	Wait      time.Duration `json:"wait,omitzero"`       // to it, at the last Save
	Previous  time.Duration `json:"previous,omitzero"`   // own wait
}

// stateVersion is the version of State that this package writes and reads.
const stateVersion = 1

// save stores s as the next revision.
func (j *Journal) save(ctx context.Context, s State) error {
	s.Version, s.Revision = stateVersion, j.State.Revision+1
	if j.Save != nil {
		if err := j.Save(ctx, s); err != nil {
			return err
		}
	}
	j.State = s
	return nil
}

// claim takes j for one operation, or says why it cannot be had.
func (j *Journal) claim() error {
	if !j.busy.CompareAndSwap(false, true) {
		return errors.New("it is in use by another operation")
	}
	var err error
	switch s := &j.State; {
	case s.Version != stateVersion && *s != State{}:
		err = fmt.Errorf("its state has version %d, and this package knows %d", s.Version, stateVersion)
	case s.Ended:
		err = errors.New("its operation has ended")
	}
	if err != nil {
		j.busy.Store(false)
	}
	return err
}

// ledger is the time of one operation: what has passed and what is left. Only
// the goroutine of its loop touches it.
type ledger struct {
	bounded bool          // there is a deadline
	limit   time.Duration // from the start to the deadline
	least   time.Duration // the least time worth a retry
	elapsed time.Duration // since the start; never decreases

	tick time.Duration // last reading of the real clock
	now  time.Time     // last reading of an injected clock
}

// read reads the clock, nil being the real one, and lets elapsed grow by the
// step since the last reading: never by less than least, which is 0 or a wait
// that was slept. So a clock that stands still or is set back neither extends
// a deadline nor shortens it.
func (l *ledger) read(clock func() time.Time, least time.Duration) {
	var step time.Duration
	if clock == nil {
		t := deadline.Now()
		step, l.tick = t-l.tick, t
	} else {
		t := clock()
		step, l.now = t.Sub(l.now), t // Sub saturates
	}
	l.elapsed = saturatingAdd(l.elapsed, max(step, least))
}

// left returns the time to the deadline, at least 0, and the largest duration
// where there is none.
func (l *ledger) left() time.Duration {
	if !l.bounded {
		return math.MaxInt64
	}
	if l.limit <= l.elapsed { // limit may be as low as MinInt64
		return 0
	}
	return l.limit - l.elapsed
}

// fits is the predicate of admission: after wait, the next attempt starts
// before the deadline (the deadline itself is too late) and has the least
// time worth it (ending at the deadline is in time).
func (l *ledger) fits(wait time.Duration) bool {
	return !l.bounded || wait < l.left() && l.least <= l.left()-wait
}

// room returns the longest wait that fits, 0 where none does.
func (l *ledger) room() time.Duration {
	if !l.bounded {
		return math.MaxInt64
	}
	return max(0, l.left()-max(l.least, 1))
}

// allowance counts the retries that an operation and every loop nested in it
// have taken. A retry is taken from the operation that makes it and from each
// one around it. Safe for concurrent use, without locks: an op may run nested
// loops side by side.
type allowance struct {
	name  string
	outer *allowance   // of the operation around; nil: none
	limit int64        // retries; <0: unlimited
	spent atomic.Int64 // or closed
}

// closed is the mark of an operation that has returned: it encloses nothing,
// and its account is settled.
const closed = -1

// take takes one retry from a and all around it. It returns nil, or the one
// whose allowance is spent, and then has taken nothing.
func (a *allowance) take() (refused *allowance) {
	for b := a; b != nil; b = b.outer {
		if !b.add(1) {
			a.give(1, b)
			return b
		}
	}
	return nil
}

// give returns n retries to a and the operations around it, up to but not
// including end. It stops at one that has returned: that one has settled with
// those around it already.
func (a *allowance) give(n int64, end *allowance) {
	for b := a; b != end && b != nil && b.add(-n); b = b.outer {
	}
}

// add adds n to what is spent and reports whether it could: not above the
// limit. An operation that has returned counts nothing: it lets others take,
// and takes nothing back.
func (a *allowance) add(n int64) bool {
	for {
		spent := a.spent.Load()
		if spent == closed {
			return n > 0
		}
		if n > 0 && a.limit >= 0 && spent >= a.limit {
			return false
		}
		if a.spent.CompareAndSwap(spent, max(0, spent+n)) {
			return true
		}
	}
}

// close ends a. A success gives what was spent below it back to the
// operations around it.
func (a *allowance) close(success bool) {
	if spent := a.spent.Swap(closed); success && spent > 0 && a.outer != nil {
		a.outer.give(spent, nil)
	}
}

// left returns how many retries a and all around it still allow, the largest
// number where none limits them.
func (a *allowance) left() int64 {
	least := int64(math.MaxInt64)
	for b := a; b != nil; b = b.outer {
		if spent := b.spent.Load(); spent != closed && b.limit >= 0 {
			least = min(least, max(0, b.limit-spent))
		}
	}
	return least
}

// open returns the innermost of a and those around it whose operation has not
// returned: one that has encloses nothing.
func (a *allowance) open() *allowance {
	for a != nil && a.spent.Load() == closed {
		a = a.outer
	}
	return a
}

// enclosure is what the attempts of one operation share, and what loops nested in
// it find through ctx.
type enclosure struct {
	parent    context.Context // of the attempts: the caller's, or the deadline that they share
	allowance allowance
	watched   bool          // someone sees records
	gate      any           // that the attempts pass; nil: none
	sends     atomic.Int64  // requests on the wire, as far as transports tell
	owner     *timedAttempt // the enclosing attempt whose own timeout is the deadline of the caller's ctx; nil: nobody's
}

// Sent counts a request on the wire, here and in the operations around.
func (e *enclosure) Sent() {
	e.sends.Add(1)
	wire.Sent(e.parent)
}

// attempt is the context of one attempt.
type attempt struct {
	around *enclosure    // nil after Detach
	timed  *timedAttempt // itself, where it has a deadline of its own; after Detach, owner
	number int
}

// timedAttempt is an attempt with a deadline of its own.
type timedAttempt struct {
	attempt
	deadline deadline.Context
	owns     bool // the deadline comes from the attempt's own timeout
}

func (a *attempt) base() context.Context {
	if a.timed != nil {
		return &a.timed.deadline
	}
	return a.around.parent
}

func (a *attempt) Deadline() (time.Time, bool) { return a.base().Deadline() }
func (a *attempt) Done() <-chan struct{}       { return a.base().Done() }
func (a *attempt) Err() error                  { return a.base().Err() }

// Value finds the attempt itself, then what the caller's ctx has.
func (a *attempt) Value(key any) any {
	switch key := key.(type) {
	case attemptKey:
		return a
	case wire.Key:
		if a.around != nil && a.around.watched {
			return a.around
		}
	case interface{ heldBy(gate any) bool }: // a gate's
		if a.around != nil && a.around.gate != nil && a.around.allowance.spent.Load() != closed && key.heldBy(a.around.gate) {
			return a
		}
	}
	return a.base().Value(key)
}

// owner returns the attempt whose own timeout is a's deadline: a itself, or
// one around it; nil: there is none.
func (a *attempt) owner() *timedAttempt {
	switch {
	case a.around == nil || a.timed != nil && a.timed.owns:
		return a.timed
	default:
		return a.around.owner
	}
}

// detached is the caller's ctx without the allowance of its operation.
type detached struct {
	context.Context
	attempt attempt
}

func (d *detached) Value(key any) any {
	if _, ok := key.(attemptKey); ok {
		return &d.attempt
	}
	return d.Context.Value(key)
}

// attemptKey finds the nearest attempt in a context.
type attemptKey struct{}

// enclosing returns the attempt that ctx belongs to, or nil.
func enclosing(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}

// saturatingAdd returns a+b for a, b >= 0.
func saturatingAdd(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
