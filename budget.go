package retry

import (
	"context"
	"fmt"
	"math"
	"math/bits"
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

// Bucket is the [Budget] in one process: a bucket of tokens that retries take
// out and successes put back. It is fed by successes alone, not by time: while
// a service is down its clients make no more than the retries in the bucket,
// and where one attempt in ten fails they are refused none.
//
//	var shared retry.Bucket // of all operations that use one service
//	p := retry.Policy{Budget: &shared}
//
// The zero value is full and ready for use. In every field NaN is the default,
// as 0 is, and more than a million counts as a million. Amounts and shares are held
// in millionths, to the nearest, and above 0 at least one: so 0.6 of a token
// is exactly 6 in 10, however often it is earned. Fields are set before
// first use. A Bucket must not be copied, is safe for concurrent use, and takes
// no lock. A nil *Bucket panics.
type Bucket struct {
	// Capacity is how many tokens it holds, and begins with. 0: 10. <0: no
	// limit; nothing is refused, and all is counted.
	Capacity float64
	// Cost is what a retry takes, times Policy.Weight. 0: 1. <0: nothing. A
	// retry that costs more than Capacity is always refused.
	Cost float64
	// ThrottledCost is the Cost after ClassThrottled. 0: Cost. <0: nothing.
	ThrottledCost float64
	// UnknownCost is the Cost after ClassUnknown, such as a time-out. 0: Cost. <0: nothing.
	UnknownCost float64
	// PerSuccess is what a success earns. 0: 0.2. <0: nothing.
	PerSuccess float64
	// Refund is the share of the last retry's cost that an operation earns, in
	// place of PerSuccess, if it has made one: 1 is the whole. 0: it earns
	// PerSuccess too. <0: nothing.
	Refund float64

	_         [64]byte     // what is written is not on the cache line of what is read only
	state     atomic.Int64 // tokens taken, and above them retries: see bucketState
	successes atomic.Int64 // and definite answers to a retry; beside state, on one cache line
	carried   atomic.Int64 // retries, roughly: see retries
	failures  atomic.Int64 // of other operations
	refusals  atomic.Int64
}

// Counts says how much a [Bucket] or [Stats] has seen.
type Counts struct {
	Operations int64 // that have ended
	Attempts   int64
	Retries    int64 // attempts but the first
	Refusals   int64 // operations that the budget has ended
}

// Ratio returns the ratio of retries to first attempts, 0 where there are none.
func (c Counts) Ratio() float64 {
	if first := c.Attempts - c.Retries; first > 0 {
		return float64(c.Retries) / float64(first)
	}
	return 0
}

// EmptyError is the error of a [Bucket] that refuses a retry. Two of them are
// equal (==) if their amounts are.
type EmptyError struct {
	Left     float64 // tokens
	Capacity float64
	Cost     float64 // of the retry
}

func (e EmptyError) Error() string {
	return fmt.Sprintf("%v of %v tokens left, a retry costs %v", e.Left, e.Capacity, e.Cost)
}

// Spend takes what a retry after v costs, for a weight of 1 times weight, if
// that much is left. If not it takes nothing and returns an [EmptyError], at
// once. A weight that is not above 0 counts as 1.
func (b *Bucket) Spend(_ context.Context, v Verdict, weight float64) (cost float64, err error) {
	c, capacity := b.cost(v.Class, weight), b.capacity()
	takes := c
	if capacity < 0 {
		takes, capacity = 0, 0
	}
	for {
		old := bucketState(b.state.Load())
		if old.taken()+takes > capacity {
			b.refusals.Add(1)
			return 0, EmptyError{tokens(max(0, capacity-old.taken())), tokens(capacity), tokens(c)}
		}
		if b.state.CompareAndSwap(int64(old), int64(old)+oneRetry+takes) {
			if (old.retries()+1)%carry == 0 {
				b.carried.Add(carry)
			}
			return tokens(c), nil
		}
	}
}

// Return puts back the cost of a retry that was not sent, which then does not
// count as one. There are never more tokens than Capacity.
func (b *Bucket) Return(_ context.Context, cost float64) {
	c := int64(0)
	if cost > 0 {
		c = fixed(cost)
	}
	for {
		old := bucketState(b.state.Load())
		if b.state.CompareAndSwap(int64(old), int64(old)-oneRetry-min(c, old.taken())) {
			if old.retries()%carry == 0 {
				b.carried.Add(-carry)
			}
			return
		}
	}
}

// Earn puts in what a success earns: PerSuccess, or Refund of cost where that
// is set and cost, which is that of the operation's last retry, is above 0.
func (b *Bucket) Earn(_ context.Context, cost float64) {
	b.successes.Add(1)
	if bucketState(b.state.Load()).taken() > 0 {
		b.credit(b.earned(cost))
	}
}

// Tokens returns how many tokens are left; +Inf if Capacity is below 0.
func (b *Bucket) Tokens() float64 {
	capacity := b.capacity()
	if capacity < 0 {
		return math.Inf(1)
	}
	return tokens(max(0, capacity-bucketState(b.state.Load()).taken()))
}

// Counts returns what b has seen. A retry counts when it is paid for, an
// operation and its first attempt when it ends (by a panic it does not). While
// operations run the numbers may be from slightly different moments.
func (b *Bucket) Counts() Counts {
	c := Counts{
		Operations: b.successes.Load() + b.failures.Load(),
		Retries:    b.retries(),
		Refusals:   b.refusals.Load(),
	}
	c.Attempts = c.Operations + c.Retries
	return c
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
	//
	// The call when the operation ends has a ctx that is not cancelled with the
	// operation's, and its error is dropped, after a success too: whoever
	// resumes then takes the last attempt as in flight.
	Save func(ctx context.Context, s State) error

	busy atomic.Bool
}

// State is what an operation must not forget. It survives encoding/json. The
// zero State is that of an operation that has not begun. One of another
// version, or that no operation can have saved, is refused.
//
// Times are those of the operation's clock, as wall-clock time. A clock that
// was changed in between cannot give an operation more than it had: what is
// left is the lesser of what the clock gives and what was left at the last
// Save, and so is the wait. The time in which no process runs counts too.
//
// Ended is set after success and failure alike; Succeeded tells them apart.
// Resuming such a State is ErrJournal: look at it first. State holds no result:
// what must not be lost op stores itself, before it returns.
type State struct {
	Version  int   `json:"version"`  // 1
	Revision int64 `json:"revision"` // raised by one with every Save

	Attempts    int  `json:"attempts"`               // begun
	InFlight    bool `json:"in_flight,omitempty"`    // the last of them has not ended
	Unknown     bool `json:"unknown,omitempty"`      // some outcome is unknown and not cleared
	EverUnknown bool `json:"ever_unknown,omitempty"` // one was
	Resends     int  `json:"resends,omitempty"`      // of Submit, used up
	Ended       bool `json:"ended,omitempty"`        // there is nothing to resume: see above
	Succeeded   bool `json:"succeeded,omitempty"`    // and it has succeeded

	Started   time.Time     `json:"started"`
	Expires   time.Time     `json:"expires,omitzero"`    // the deadline; zero: none
	Left      time.Duration `json:"left,omitzero"`       // to it, at the last Save
	NotBefore time.Time     `json:"not_before,omitzero"` // of the next attempt
	Wait      time.Duration `json:"wait,omitzero"`       // to it, at the last Save
	Previous  time.Duration `json:"previous,omitzero"`   // own wait
}

// stateVersion is the version of State that this package writes and reads.
const stateVersion = 1

// sound reports whether s can have been saved. What cannot is not taken for the
// state of an operation: that could send once more. Its counters are so far
// from their ends that none wraps around.
func (s *State) sound() bool {
	begun := s.Attempts > 0
	return s.Version == 0 || s.Revision > 0 && s.Revision < math.MaxInt64/2 &&
		s.Attempts >= 0 && s.Attempts < math.MaxInt/2 &&
		s.Resends >= 0 && s.Resends < math.MaxInt/2 &&
		s.Left >= 0 && s.Wait >= 0 && s.Previous >= 0 &&
		(begun || !s.InFlight && !s.Unknown && !s.EverUnknown) &&
		!(s.Ended && (s.InFlight || s.Unknown)) && (s.Ended || !s.Succeeded)
}

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
		return journalError("the journal is in use by another operation")
	}
	var err error
	switch s := &j.State; {
	case s.Version != stateVersion && *s != State{}:
		err = journalError(fmt.Sprintf("the journal's state has version %d, and this package knows %d", s.Version, stateVersion))
	case !s.sound():
		err = journalError("the journal's state is none that was ever saved")
	case s.Ended:
		err = journalError("the journal's operation has ended")
	}
	if err != nil {
		j.busy.Store(false)
	}
	return err
}

// journalError says why a journal cannot be had. It is none of Save's.
type journalError string

func (e journalError) Error() string { return string(e) }

// unclaim lets the next have j. An operation that has saved nothing leaves no
// trace.
func (j *Journal) unclaim() {
	if j.State.Version == 0 {
		j.State = State{}
	}
	j.busy.Store(false)
}

// ledger is the time of one operation: what has passed and what is left. Only
// the goroutine of its loop touches it.
type ledger struct {
	bounded bool          // there is a deadline
	limit   time.Duration // from the start to the deadline
	least   time.Duration // the least time worth a retry
	elapsed time.Duration // since the start; never decreases
}

// left returns the time to the deadline, at least 0, and the largest duration
// where there is none.
func (l *ledger) left() time.Duration { return l.leftAt(l.elapsed) }

// leftAt is left when so much has elapsed.
func (l *ledger) leftAt(elapsed time.Duration) time.Duration {
	if !l.bounded {
		return math.MaxInt64
	}
	if l.limit <= elapsed { // limit may be as low as MinInt64
		return 0
	}
	return l.limit - elapsed
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
	shared    *shared       // nil: neither watched nor gated
	sends     atomic.Int64  // requests on the wire, as far as transports tell
	owner     *timedAttempt // the enclosing attempt whose own timeout is the deadline of the caller's ctx; nil: nobody's
}

// shared is what an operation's attempts have in common where it is watched or
// passes a gate.
type shared struct {
	watched bool        // someone sees records
	gate    any         // that the attempts pass; nil: none
	passed  atomic.Bool // an attempt has passed it, and has not ended
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
		if a.around != nil && a.around.shared != nil && a.around.shared.watched {
			return a.around
		}
	case interface{ heldBy(gate any) bool }: // a gate's
		if a.around != nil && a.around.shared != nil && a.around.shared.passed.Load() && key.heldBy(a.around.shared.gate) {
			return key
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

// failed counts an operation that has failed and earned nothing. The loop
// tells it to a Bucket, also to one that a Budget of the caller's embeds.
func (b *Bucket) failed() { b.failures.Add(1) }

// cost resolves what a retry after a failure of class c costs.
func (b *Bucket) cost(c Class, weight float64) int64 {
	cost := b.Cost
	switch {
	case c == ClassThrottled && isSet(b.ThrottledCost):
		cost = b.ThrottledCost
	case c == ClassUnknown && isSet(b.UnknownCost):
		cost = b.UnknownCost
	}
	if !isSet(cost) {
		cost = 1
	}
	if !(weight > 0) {
		weight = 1
	}
	return product(cost, weight)
}

// capacity resolves Capacity; <0: no limit.
func (b *Bucket) capacity() int64 {
	switch {
	case b.Capacity > 0:
		return fixed(b.Capacity)
	case b.Capacity < 0:
		return -1
	}
	return 10 * token
}

// earned resolves what an operation earns whose last retry has cost so much.
func (b *Bucket) earned(cost float64) int64 {
	switch {
	case cost > 0 && isSet(b.Refund):
		return product(cost, b.Refund)
	case isSet(b.PerSuccess):
		return product(b.PerSuccess, 1)
	}
	return token / 5
}

// credit puts in so much, up to the capacity.
func (b *Bucket) credit(amount int64) {
	for {
		old := bucketState(b.state.Load())
		if b.state.CompareAndSwap(int64(old), int64(old)-min(amount, old.taken())) {
			return
		}
	}
}

// retries returns the number of them. State has its lowest bits, and carried
// has it but for less than they can count, even while others are between the
// two: the number is the one nearest to carried that ends in those bits.
func (b *Bucket) retries() int64 {
	near := b.carried.Load()
	rest := bucketState(b.state.Load()).retries() - near
	return near + rest<<takenBits>>takenBits
}

// bucketState is one word, so that a retry and its count cost one swap: tokens
// taken below, and above them the lowest bits of the number of retries.
type bucketState int64

const (
	token     = 1_000_000 // in the unit of amounts
	maxTokens = 1e6
	takenBits = 40 // maxTokens fits
	oneRetry  = 1 << takenBits
	carry     = 1 << 20 // retries; far less than what the bits above can count
)

func (s bucketState) taken() int64   { return int64(s) & (oneRetry - 1) }
func (s bucketState) retries() int64 { return int64(s) >> takenBits }

// fixed returns x tokens, above 0, in millionths: the nearest number, at least 1.
func fixed(x float64) int64 { return max(1, int64(float64(min(x, maxTokens)*token)+0.5)) }

// product returns x*y tokens in millionths, 0 where either is negative. It is
// that of the two in millionths: floats would round some halves down.
func product(x, y float64) int64 {
	switch {
	case x < 0 || y < 0:
		return 0
	case y == 1:
		return fixed(x)
	}
	hi, lo := bits.Mul64(uint64(fixed(x)), uint64(fixed(y)))
	lo, c := bits.Add64(lo, token/2, 0)
	if hi += c; hi >= token {
		return maxTokens * token
	}
	n, _ := bits.Div64(hi, lo, token)
	return int64(min(max(n, 1), maxTokens*token))
}

// isSet reports whether x is neither 0 nor NaN.
func isSet(x float64) bool { return x < 0 || x > 0 }

// tokens is the inverse of fixed, exactly.
func tokens(amount int64) float64 { return float64(amount) / token }

// saturatingAdd returns a+b for a, b >= 0.
func saturatingAdd(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
