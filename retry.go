// Package retry repeats calls that failed: only where that is safe, not before
// the server permits it, and within the attempts and the time that are left.
//
//	name, err := retry.Do(ctx, nil, func(ctx context.Context) (string, error) {
//		resp, err := get(ctx, "https://api.example/users/7")
//		if err != nil {
//			return "", err
//		}
//		defer resp.Body.Close()
//		if resp.StatusCode != 200 {
//			return "", &retry.StatusError{Method: "GET", Code: resp.StatusCode}
//		}
//		return readName(resp.Body)
//	})
//
// # What is repeated
//
// A failure's [Class] says what it proves, an [Effect] what the operation can
// change. What is transient or throttled was not applied and is repeated; what
// may have been applied, if it is Idempotent or ReadOnly; nothing else is.
// [Classify] has the rules. Marks ([Permanent], …) and a [Classifier] add yours.
//
// # How long it waits
//
// [Backoff] draws the own wait, by default between 0 and 200ms, 400ms, 800ms
// and so on up to 30s. A server's hint is a minimum: it is never shortened, and
// spread is added so that those who got the same hint part.
//
// # When it stops
//
// By default after 5 attempts, at a deadline in 30 seconds or at that of ctx, and
// at once where a hint is longer than 60 seconds. Whether the next attempt fits
// is asked before the wait, and again after it. The [Error] has the reason.
//
// # Sharing
//
// A [Policy] is plain data and may be shared. Loops nested in an operation share
// its retries, so that they do not multiply, unless [Detach] parts them. A
// [Budget] limits the retries of all operations that share it, a [Gate] says
// when their attempts may leave.
//
// # Testing
//
// With a Clock, Rand and Sleep in its Policy an operation is exact and takes no
// time. In a testing/synctest bubble the real ones do as well.
package retry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/seed-3d0f8764/retry/internal/deadline"
)

// Policy says what an operation may do when an attempt fails: how long it
// waits, when it stops, what a failure proves, and what it shares with others.
//
// The zero Policy, and a nil one, is the wise choice for a call of which
// nothing is known: five attempts in 30 seconds, and only for failures that
// prove that nothing was applied or that the error itself calls harmless.
// In every numeric field zero is the documented default, a negative number
// means off, none or unlimited, and a positive one means itself. So there is no
// invalid Policy; one that switches off the wait and every limit spins because
// it was asked to.
//
// A Policy is plain data. It is only read while in use, may be shared by any
// number of goroutines and is copied to change a field. The functions in one that is
// shared must be safe for concurrent use.
type Policy struct {
	// Name identifies the operation in records and errors.
	Name string
	// Effect is what the operation can change. Stated, it outranks what an
	// error knows of its request. Unstated counts as Mutation unless the
	// error says more.
	Effect Effect

	// Backoff makes the own wait before each retry.
	Backoff Backoff
	// Throttle replaces Backoff after ClassThrottled. All four fields zero:
	// the same as Backoff. Retries are numbered through, whichever is used,
	// and Step.Previous is shared.
	Throttle Backoff
	// Spread is the width of the spread drawn on top of a hint, so that those
	// who got the same hint part. 0: the longer of 1s and a tenth of the
	// hint. <0: none. It is narrowed to what fits before the deadline; the
	// hint is not.
	Spread time.Duration

	// MaxAttempts counts the first one. 0: 5. <0: unlimited. In an operation
	// with MaxAttempts 1, loops nested in op have no retries either: they
	// share its allowance (see Detach).
	MaxAttempts int
	// MaxElapsed is the time from the start of Do to the deadline, at which an
	// attempt must not start. 0: 30s. <0: unlimited. The deadline of ctx
	// counts too, the earlier of both.
	MaxElapsed time.Duration
	// AttemptTimeout bounds one attempt. <=0: only the deadline does, so that a
	// server that hangs takes all the time there is, and no retry follows. An
	// attempt that it ends has an unknown outcome.
	AttemptTimeout time.Duration
	// MinTimeout is the least time worth a retry: one that would have less
	// before the deadline is not made, one that has just as much is. 0:
	// AttemptTimeout (0 where there is none), or half of the time from start
	// to deadline where that is less. <0: any.
	MinTimeout time.Duration
	// MaxHint is the longest hint worth waiting for; a longer one ends the
	// operation at once. 0: 60s. <0: unlimited (the deadline may still end it).
	MaxHint time.Duration

	// Classify says what a failure proves. nil: [Classify]. Marks (Permanent,
	// Transient, …) outrank it.
	Classify Classifier

	// Budget limits the retries of all operations that share it. nil: none.
	Budget Budget
	// Gate says when an attempt may leave, for all operations that share it.
	// The wait at it counts as elapsed, and is bounded by the deadline. nil: none.
	Gate Gate
	// Weight is what an attempt costs at the gate and a retry at the budget.
	// 0, NaN and negative: 1. More than a million counts as a million.
	Weight float64

	// Observe is given a Record after each attempt, before any wait, on the
	// goroutine of Do. nil: nothing is recorded. Two observers are a function of both:
	//
	//	log := retry.LogRecords(logger)
	//	p.Observe = func(ctx context.Context, r retry.Record) { stats.Observe(ctx, r); log(ctx, r) }
	Observe func(context.Context, Record)
	// Keep is how many of the last records an Error carries. <=0: none.
	Keep int
	// Journal keeps the operation's state through a crash. Its deadline runs on
	// while no process does: MaxElapsed is the life of the job. nil: none.
	Journal *Journal

	// Clock, Rand and Sleep replace time.Now, math/rand/v2's Float64 and a
	// timer; nil is the real one. With them a test is exact and takes no time.
	// They do not drive op's ctx, whose timers are real: to test time-outs use
	// testing/synctest.
	//
	// Elapsed time grows by the steps of Clock, by none that is negative, and
	// by at least the wait when Sleep has returned nil: a Clock that stands
	// still or is set back neither extends nor hangs an operation.
	Clock func() time.Time
	// Rand returns draws in [0,1): one per retry for the own wait and, where
	// there is a hint and Spread is not off, a second for the spread. It must
	// be safe for concurrent use if the Policy is shared.
	Rand func() float64
	// Sleep waits for d, 0 included, and returns nil; or returns at once with
	// an error when ctx is done. Another error ends the operation with
	// ErrCanceled.
	Sleep func(ctx context.Context, d time.Duration) error
}

// defaults is the Policy behind a nil one.
var defaults Policy

// Do calls op until it succeeds, and returns its value. It returns op's last
// value and an [*Error] when p says stop: because the failure is not safe to
// repeat, or the server asks for too long a wait, or attempts, time or budget
// are used up. A nil p is the zero [Policy].
//
// One op is one remote effect: repeat two and the first is repeated because
// the second failed. Read bodies, rows and streams inside op: its ctx carries
// the attempt's deadline and ends with Do, except that one without a deadline
// is never ended. The values of failed attempts are dropped as they are: what
// must be closed, op closes before it returns an error.
//
// Do returns when op returns; it starts no goroutine, and an op that ignores
// its ctx is waited for. A nil error is success even if ctx was cancelled
// meanwhile. An op that succeeds at once costs at most one allocation, and
// none where there is no deadline at all; in that case elapsed time counts
// from the end of attempt 1, and loops inside attempt 1 do not see this one.
//
// A panic in op or in a function of p passes through. A nil ctx or op panics.
func Do[T any](ctx context.Context, p *Policy, op func(context.Context) (T, error)) (T, error) {
	return do(ctx, p, op, nil)
}

// Run is [Do] for an op without a value.
func Run(ctx context.Context, p *Policy, op func(context.Context) error) error {
	if op == nil {
		panic("retry: nil op")
	}
	_, err := Do(ctx, p, func(ctx context.Context) (struct{}, error) { return struct{}{}, op(ctx) })
	return err
}

// Detach returns ctx without the allowance of the operation that it belongs
// to: an operation started with it has all the retries of its own policy. Values, deadline and
// cancellation stay, and so does [Attempt]. It is meant for the independent
// items of a batch that run side by side in one attempt. A nil ctx panics.
func Detach(ctx context.Context) context.Context {
	a := enclosing(ctx)
	if a == nil {
		return ctx
	}
	return &detached{ctx, attempt{timed: a.owner(), number: a.number}}
}

// Attempt returns the number of the attempt that ctx was made for, and 1
// where there is none. A nil ctx panics.
func Attempt(ctx context.Context) int {
	if a := enclosing(ctx); a != nil {
		return a.number
	}
	return 1
}

// Plan is a schedule of attempts, made by [Policy.Plan].
type Plan []Planned

// Planned is one attempt of a [Plan]. Its times count from the start of the
// operation.
type Planned struct {
	Attempt  int
	Window   time.Duration // of the retry that this attempt is; 0 for attempt 1
	Earliest time.Duration // start, if attempts take nothing and waits the least
	Latest   time.Duration // start, if all take the most; the largest duration: any time
	Fits     Fit
}

// Fit says whether an attempt is made if all before it failed.
type Fit uint8

const (
	NeverFits  Fit = iota // even its earliest start is too late
	MayFit                // its latest start is too late
	AlwaysFits            // its latest start is in time
)

// String returns the word of f: never, may, always.
func (f Fit) String() string {
	switch f {
	case NeverFits:
		return "never"
	case MayFit:
		return "may"
	case AlwaysFits:
		return "always"
	}
	return fmt.Sprintf("Fit(%d)", uint8(f))
}

// Plan lists the attempts of an operation under p, as if all before each had
// failed: up to the first that never fits, 1,000 at most, and of an unlimited
// number the first 32. It sleeps and draws nothing: the least and the most of
// a wait are what the strategy makes of the draws 0 and 1. At most, an attempt
// takes its timeout, or all that is left without one. Hints, the gate, Throttle
// and a ctx's deadline are left out.
func (p *Policy) Plan() Plan {
	if p == nil {
		p = &defaults
	}
	l := p.ledger(p.MaxElapsed >= 0, orDefault(p.MaxElapsed, 30*time.Second))
	n := min(p.attempts(), 1000)
	if n == 0 {
		n = 32
	}
	var plan Plan
	var early, late schedule
	for i := range n {
		a := Planned{Attempt: i + 1, Earliest: early.at, Latest: late.at}
		if i > 0 {
			a.Window = p.Backoff.Window(i - 1)
		}
		switch {
		case i == 0 || l.fits(late.at):
			a.Fits = AlwaysFits
		case l.fits(early.at):
			a.Fits = MayFit
		}
		plan = append(plan, a)
		if a.Fits == NeverFits {
			break
		}

		takes := max(0, l.left()-late.at)
		if p.AttemptTimeout > 0 {
			takes = min(takes, p.AttemptTimeout)
		}
		early.next(&p.Backoff, i, 0, 0)
		late.next(&p.Backoff, i, takes, 1)
	}
	return plan
}

// String is a table, a line for each attempt. It does not show that a plan was
// cut at its 32nd or 1,000th line.
func (p Plan) String() string {
	var b strings.Builder
	b.WriteString("attempt  window  earliest  latest  fits\n")
	for _, a := range p {
		latest := "any"
		if a.Latest < math.MaxInt64 {
			latest = a.Latest.String()
		}
		fmt.Fprintf(&b, "%7d  %6v  %8v  %6v  %v\n", a.Attempt, a.Window, a.Earliest, latest, a.Fits)
	}
	b.WriteString("hints and the gate are left out\n")
	return b.String()
}

// schedule walks along the starts of attempts.
type schedule struct{ at, previous time.Duration }

// next goes from the start of the attempt before retry n to that of retry n.
func (s *schedule) next(b *Backoff, n int, takes time.Duration, draw float64) {
	end := saturatingAdd(s.at, takes)
	s.previous = b.Wait(Step{Retry: n, Previous: s.previous, Elapsed: end, Draw: draw})
	s.at = saturatingAdd(end, s.previous)
}

// plain reports whether nothing but a deadline in ctx, or an operation around, needs to be
// set up before attempt 1.
func (p *Policy) plain() bool {
	return p.MaxElapsed < 0 && p.AttemptTimeout <= 0 && !p.involved()
}

// alone reports whether ctx is alive, has no deadline, and is in no operation.
func alone(ctx context.Context) bool {
	if _, ok := ctx.Deadline(); ok || ctx.Err() != nil {
		return false
	}
	return enclosing(ctx) == nil
}

// do is the one loop. Its first turn begins before an attempt, where err is nil, or
// after one that has failed. o is nil, or an operation that Submit has begun.
//
// Do is inlined, and sleep is called from here: the fewer frames lie between a
// goroutine that sleeps and its start, the smaller its stack.
func do[T any](ctx context.Context, p *Policy, op func(context.Context) (T, error), o *operation) (v T, err error) {
	if ctx == nil {
		panic("retry: nil Context")
	}
	if op == nil {
		panic("retry: nil op")
	}
	if p == nil {
		p = &defaults
	}
	switch {
	case o != nil:
		err = o.interrupted()
	case p.plain() && alone(ctx):
		if v, err = op(ctx); err == nil {
			if p.Budget != nil {
				p.Budget.Earn(ctx, 0)
			}
			return v, nil
		}
		o = begin(ctx, p)
		o.attempts, o.late = 1, true
	default:
		o = begin(ctx, p)
		err = o.interrupted()
	}
	defer o.end(ctx, p)
	for err == nil || o.decide(ctx, p, err) && o.wake(ctx, p, o.sleep(ctx, p.Sleep, o.wait)) {
		attempt := o.enter(ctx, p)
		if attempt == nil {
			break
		}
		v, err = op(attempt)
		if err == nil {
			o.succeed(ctx, p)
			return v, nil
		}
	}
	if o.success { // Submit has found it applied
		return v, nil
	}
	return v, o.failure
}

// operation is one call of Do: what its first attempt needs, in one small
// allocation. The rest is made when that attempt has failed, or at once where
// someone watches or brings a clock of his own.
type operation struct {
	*course
	around   enclosure
	first    timedAttempt
	ending   *deadline.Context // of the current attempt; nil: none
	attempts int               // begun
	tick     time.Duration     // the start, on the real clock
	limit    time.Duration     // from the start to the deadline
	bounded  bool              // there is one
	ctxLimit bool              // it is that of the caller's ctx
	nested   bool              // ctx belongs to an attempt of another operation
	late     bool              // the clock was first read at the end of attempt 1
	looking  bool              // it is the look-up of a Submit
	success  bool
}

// course is what an operation goes through after a failure. Only the goroutine
// of its loop touches it.
type course struct {
	*extras // never nil
	ledger
	spare   [4]attempt  // contexts to come
	further *[4]attempt // those in use: spare, or more of them; nil: none yet
	used    uint8       // of further

	reserved bool // a retry is taken and not yet sent
	charged  bool // and the budget has been charged for it
	earned   bool // the budget was told of the outcome
	sending  bool // the attempt is under way
	definite bool // it has the server's definite answer
	unknown  bool // the outcome, and not cleared
	unproven bool // some attempt did not prove that nothing was applied

	began    time.Duration // elapsed when the attempt began
	timeout  time.Duration // what the attempt was given; 0: no limit
	last     error         // of an attempt
	verdict  Verdict       // on it
	own      time.Duration // wait drawn after it
	wait     time.Duration // to sleep
	previous time.Duration // own wait
	charge   float64       // of the retry reserved
	cost     float64       // of the last retry that was sent
	retryAt  time.Time
	failure  *Error
	timer    *time.Timer
}

// extras is what operations need that are watched, pass a gate, have a journal
// or look-ups, or bring a clock.
type extras struct {
	shared
	leave   func(Outcome) // tells the gate what came of the attempt; nil: nothing to tell
	now     time.Time     // last reading of an injected clock
	inquiry *inquiry      // of Submit; nil: Do

	looked  bool   // success is what Find has said
	resumed bool   // attempts and wait are those of an earlier process
	cut     bool   // and its last attempt has an unknown outcome
	claimed bool   // the journal is this operation's
	refused *Error // why it must not begin

	// The rest is for records.
	turn    turn
	records []Record // the last Keep; a ring once full
	oldest  int      // of the ring
}

// turn is what a record says of one turn of the loop, and nothing else needs.
type turn struct {
	between bool          // there was no attempt: the operation ends before the next
	found   bool          // and by what a look-up has found
	start   time.Time     // of the attempt
	gated   time.Duration // at the gate before it
	sent    int64         // requests before it
	elapsed time.Duration // when it ended
	left    int           // attempts after it
	window  time.Duration // drawn after it
	draw    float64
	spread  time.Duration
}

// noExtras is that of all operations that need none. Nobody writes to it.
var noExtras extras

// inquiry is what Submit adds to the loop: a way to find out what became of
// its sends.
type inquiry struct {
	ask     func(ctx context.Context) (finding, error)
	settle  time.Duration // before the first look after a send
	resends int           // left; <0: unlimited
	used    int
	ever    bool // an outcome was unknown
}

// finding is what a look-up has found; see Resolution.
type finding uint8

const (
	unresolved finding = iota
	applied
	notApplied
	rejected
)

// inquire asks what became of the sends, after one (afresh) or before the
// next. It returns why the operation ends, or nil: then it was applied
// (success) or was not (unknown no more).
func (o *operation) inquire(ctx context.Context, p *Policy, afresh bool) *Error {
	q := o.inquiry
	q.ever = true
	if afresh && q.settle > 0 {
		if f := o.pause(ctx, p, q.settle); f != nil {
			return f
		}
	}
	found, err := q.ask(ctx)
	o.read(p, 0)
	o.unknown = found == unresolved
	switch found {
	case applied:
		o.success, o.looked = true, true
		return nil
	case notApplied:
		if afresh { // what follows a send is not decided yet
			return nil
		}
		return ended(ctx)
	case rejected:
		return &Error{Reason: ErrPermanent, rejected: true, also: err}
	}
	if e, ok := errors.AsType[*Error](err); ok && !e.RetryAt.IsZero() {
		o.retryAt = e.RetryAt
	}
	return cmp.Or(ended(ctx), &Error{Reason: ErrUnknownOutcome, also: err})
}

// begin starts an operation: its deadline, its place among the operations
// around it, and its clock.
func begin(ctx context.Context, p *Policy) *operation {
	o := new(operation)
	o.around.parent = ctx
	o.around.allowance.name, o.around.allowance.limit = p.Name, int64(p.attempts())-1
	if p.MaxElapsed >= 0 {
		o.bounded, o.limit = true, orDefault(p.MaxElapsed, 30*time.Second)
	}
	at, ok := ctx.Deadline()
	if ok {
		if left := time.Until(at); !o.bounded || left <= o.limit {
			o.bounded, o.ctxLimit, o.limit = true, true, left
		}
	}
	if outer := enclosing(ctx); outer != nil {
		o.nested = true
		o.nest(outer, at)
	}
	if p.Clock == nil {
		o.tick = deadline.Now()
	}
	if p.Clock != nil || p.involved() {
		o.embark(p)
	}
	if p.Journal != nil {
		o.refused = o.resume(p)
	}
	return o
}

// nest places o in the operation around it. at is the deadline of ctx.
func (o *operation) nest(outer *attempt, at time.Time) {
	if outer.around != nil {
		o.around.allowance.outer = outer.around.allowance.open()
	}
	if owner := outer.owner(); owner != nil {
		if theirs, _ := owner.deadline.Deadline(); theirs.Equal(at) {
			o.around.owner = owner
		}
	}
}

// embark makes the course. It starts the clock where begin has read it.
func (o *operation) embark(p *Policy) {
	c := new(course)
	o.course = c
	c.bounded, c.limit, c.least = o.bounded, o.limit, p.least(o.bounded, o.limit)
	c.timeout, _ = o.budgeted(p, o.limit)
	c.extras = &noExtras
	if p.Clock != nil || p.involved() {
		o.equip(p)
	}
}

// equip gives o extras of its own.
func (o *operation) equip(p *Policy) {
	x := new(extras)
	x.watched, x.gate = p.watched(), p.Gate
	if p.Clock != nil {
		x.now = p.Clock()
	}
	o.extras, o.around.shared = x, &x.shared
}

// involved reports whether more than time and attempts is at stake before
// attempt 1.
func (p *Policy) involved() bool { return p.Gate != nil || p.Journal != nil || p.watched() }

// attempts resolves MaxAttempts; 0 is an unlimited number.
func (p *Policy) attempts() int {
	if p.MaxAttempts == 0 {
		return 5
	}
	return max(0, p.MaxAttempts)
}

// ledger resolves the limits of time for an operation with limit to its
// deadline.
func (p *Policy) ledger(bounded bool, limit time.Duration) ledger {
	return ledger{bounded: bounded, limit: limit, least: p.least(bounded, limit)}
}

// least resolves MinTimeout.
func (p *Policy) least(bounded bool, limit time.Duration) time.Duration {
	switch {
	case p.MinTimeout != 0:
		return max(0, p.MinTimeout)
	case bounded:
		return min(max(0, p.AttemptTimeout), max(0, limit/2))
	}
	return max(0, p.AttemptTimeout)
}

// budgeted returns what an attempt is given of the time left, and whether
// that is its own timeout. 0: there is no limit.
func (o *operation) budgeted(p *Policy, left time.Duration) (timeout time.Duration, own bool) {
	if p.AttemptTimeout > 0 && (!o.bounded || p.AttemptTimeout < left) {
		return p.AttemptTimeout, true
	}
	if o.bounded {
		return left, false
	}
	return 0, false
}

// enter admits the next attempt as the clock now is, and returns its context;
// nil: the operation has ended.
func (o *operation) enter(ctx context.Context, p *Policy) context.Context {
	if o.course != nil {
		if f := o.approach(ctx, p); f != nil {
			return o.stop(ctx, p, f)
		}
		if o.success {
			o.found(ctx, p)
			return nil
		}
	} else if f := ended(ctx); f != nil {
		return o.stop(ctx, p, f)
	}
	left := o.limit
	if o.course != nil {
		left = o.left()
	}
	if o.bounded && left <= 0 || o.attempts > 0 && !o.fits(0) {
		return o.stop(ctx, p, o.missed(0))
	}
	if p.Journal != nil {
		f := o.saveSend(ctx, p)
		if f != nil {
			return o.stop(ctx, p, f)
		}
		left = o.left()
	}
	o.attempts++
	timeout, own := o.budgeted(p, left)
	if o.course != nil {
		if o.charged {
			o.cost = o.charge
		}
		o.reserved, o.charged, o.sending = false, false, true
		o.began, o.timeout = o.elapsed, timeout
		if o.watched {
			o.turn.start, o.turn.sent = o.clock(p), o.around.sends.Load()
		}
	}
	return o.attach(ctx, p, timeout, own)
}

// approach does all that comes before admission: the wait that an earlier
// process has left, the gate, and the look-up before a further send.
func (o *operation) approach(ctx context.Context, p *Policy) *Error {
	if o.refused != nil {
		return o.refused
	}
	if o.resumed {
		if f := o.rejoin(ctx, p); f != nil || o.success {
			return f
		}
	}
	if f := ended(ctx); f != nil {
		return f
	}
	if p.Gate != nil && !holds(ctx, p.Gate) {
		if f := o.pass(ctx, p); f != nil {
			return f
		}
	}
	if o.inquiry != nil && o.inquiry.ever {
		return o.inquire(ctx, p, false)
	}
	return nil
}

// pass waits at the gate.
func (o *operation) pass(ctx context.Context, p *Policy) *Error {
	within := o.room()
	if o.attempts == 0 && o.bounded {
		within = max(0, o.left()-1) // the first need not fit whole
	}
	most := orDefault(p.MaxHint, 60*time.Second)
	e := Entry{Weight: weightOr1(p.Weight), Within: within, MaxHint: most, Ahead: o.looking}
	if most < 0 {
		e.MaxHint = math.MaxInt64
	}
	came := o.elapsed
	leave, err := p.Gate.Enter(ctx, e)
	if err == nil {
		o.leave = leave
		o.passed.Store(true)
	}
	o.read(p, 0)
	o.turn.gated = o.elapsed - came
	if f := ended(ctx); f != nil || err == nil {
		return f
	}
	f := &Error{Reason: ErrCanceled, also: err, gate: true}
	if isNilPointer(err) {
		return f
	}
	if h, ok := errors.AsType[*HeldError](err); ok {
		f.Reason, f.hint = ErrDeadline, h.For
		if h.For > e.MaxHint {
			f.Reason, f.maxHint = ErrHint, most
		}
		if at := later(o.clock(p), h.For); at.After(o.retryAt) {
			o.retryAt = at
		}
	} else if errors.Is(err, context.DeadlineExceeded) {
		f.Reason = ErrDeadline
	}
	return f
}

// tell lets the gate know what came of the attempt that has passed it.
func (o *operation) tell(out Outcome) {
	if o.gate != nil {
		o.passed.Store(false)
	}
	if leave := o.leave; leave != nil {
		o.leave = nil
		leave(out)
	}
}

// attach makes the context of the attempt: its deadline and the operation.
// Attempt 1 of an operation without either, that nobody watches, gets the
// caller's as it is.
func (o *operation) attach(ctx context.Context, p *Policy, timeout time.Duration, own bool) context.Context {
	if timeout == 0 && o.attempts == 1 && !o.nested && !p.involved() {
		return ctx
	}
	t := &o.first
	if t.around != nil { // it is in use
		if timeout == 0 || p.shares() {
			a := o.another()
			a.around, a.number = &o.around, o.attempts
			return a
		}
		t = new(timedAttempt)
	}
	t.around, t.number = &o.around, o.attempts
	if timeout > 0 {
		now := o.tick
		if p.Clock != nil {
			now = deadline.Now()
		}
		t.deadline.Init(ctx, saturatingAdd(now, timeout), o.ctxLimit && !own && p.Clock == nil)
		t.timed, t.owns = t, own
		o.ending = &t.deadline
		if p.shares() {
			o.around.parent = &t.deadline
		}
	}
	return &t.attempt
}

// shares reports whether one deadline serves all attempts. With an injected
// clock it does not: what is left on it can be anything by the next attempt.
func (p *Policy) shares() bool { return p.AttemptTimeout <= 0 && p.Clock == nil }

// another returns the context of a further attempt. They are made a few at a
// time, and none is used twice: an op may hold on to one.
func (o *operation) another() *attempt {
	switch {
	case o.further == nil:
		o.further = &o.spare
	case int(o.used) == len(o.further):
		o.further, o.used = new([4]attempt), 0
	}
	a := &o.further[o.used]
	o.used++
	return a
}

// decide settles whether a retry follows, and after which wait.
func (o *operation) decide(ctx context.Context, p *Policy, err error) bool {
	if o.course == nil {
		o.embark(p)
	}
	o.read(p, 0)
	o.last = err
	o.begun(p, false)

	v, inner := o.judge(p, err)
	o.sending = false
	if p.Gate != nil {
		o.tell(Outcome{true, err, o.told(p, v, inner)})
	}
	if o.ending != nil && !p.shares() {
		o.ending.End()
	}
	if o.looking && v.Class == ClassSuspended {
		v.Class = ClassThrottled // a ban while looking up concludes nothing
	}
	o.verdict = v
	o.retryAt = time.Time{}
	if v.After > 0 {
		o.retryAt = later(o.clock(p), v.After)
	}

	f := o.refuse(ctx, p, inner)
	if p.Budget != nil && o.attempts > 1 && o.definite {
		p.Budget.Earn(ctx, o.cost)
		o.earned = true
	}
	if f != nil {
		return o.fail(ctx, p, f)
	}
	if o.success {
		o.conclude(ctx, p)
		return false
	}
	o.previous = o.own
	o.observe(ctx, p, Retrying, nil)
	return true
}

// judge classifies err. Where it is an inner loop's, and no mark or rule of
// the caller's says otherwise, that error is returned too.
func (o *operation) judge(p *Policy, err error) (v Verdict, inner *Error) {
	f := survey(err)
	if p.Classify == nil || f.mark != nil {
		v = f.verdict()
	} else {
		v = p.Classify(err).clean()
	}
	switch {
	case v.Class == ClassUnclassified && !f.answered && o.expired():
		v.Class = ClassUnknown
	case v.Class == ClassPermanent && f.mark == nil && f.inner != nil:
		inner, _ = f.inner.(*Error)
	}
	o.definite = v.Class == ClassPermanent && f.definite()
	if inner != nil && inner.owner != nil && &inner.owner.deadline == o.ending {
		// This attempt's own timeout ended the loop inside it; what the
		// server asked that one for still holds.
		v.Class = ClassTransient
		if !inner.RetryAt.IsZero() {
			v.After = max(v.After, inner.RetryAt.Sub(o.clock(p)))
		}
		inner = nil
		if errors.Is(err, ErrUnknownOutcome) {
			v.Class = ClassUnknown
		}
	}
	switch {
	case o.inquiry != nil:
		v.Effect = Mutation
	case p.Effect.known() != Unstated:
		v.Effect = p.Effect
	}
	return v, inner
}

// told is what the gate learns of a failure: v, or what the last failure was in
// a loop inside, which has passed the gate unasked.
func (o *operation) told(p *Policy, v Verdict, inner *Error) Verdict {
	if inner != nil {
		v.Class = inner.class
		if !inner.RetryAt.IsZero() {
			v.After = max(v.After, inner.RetryAt.Sub(o.clock(p)))
		}
	}
	return v
}

// expired reports whether the attempt's own deadline has passed, on the
// operation's clock or the real one.
func (o *operation) expired() bool {
	return o.timeout > 0 && (o.elapsed-o.began >= o.timeout || o.ending != nil && o.ending.Err() == context.DeadlineExceeded)
}

// refuse returns why no retry follows the attempt, or nil. It fills in what it
// draws. Its order is that of the reasons: what is cheapest to say and
// truest comes first, and what spends comes last.
func (o *operation) refuse(ctx context.Context, p *Policy, inner *Error) *Error {
	v, f := &o.verdict, ended(ctx)
	if inner != nil && !inner.RetryAt.IsZero() {
		o.retryAt = inner.RetryAt
	}
	proven := v.Class.provesUnapplied() && (inner == nil || !inner.unproven)
	o.unproven = o.unproven || !proven
	switch {
	case o.inquiry != nil:
		// A refused duplicate may mean that an earlier send was applied.
		o.unknown = o.unknown || !proven || o.inquiry.ever && v.Class == ClassPermanent
	case inner != nil:
		o.unknown = o.unknown || inner.unknown || inner.Reason == ErrUnclassified && f != nil && v.Effect != ReadOnly
	case v.Effect != ReadOnly:
		o.unknown = o.unknown || v.Class == ClassUnknown || v.Class == ClassUnclassified && f != nil
	}
	if f != nil {
		return f
	}
	class := v.Class
	if o.inquiry != nil && o.unknown {
		if f := o.inquire(ctx, p, true); f != nil || o.success {
			return f
		}
		if !proven {
			class, inner = ClassTransient, nil
			if o.inquiry.resends == 0 {
				return &Error{Reason: ErrAttempts, resends: true}
			}
			o.inquiry.resends--
			o.inquiry.used++
		}
	}
	if inner != nil {
		return &Error{Reason: inner.Reason, inner: true, owner: inner.owner}
	}
	switch class {
	case ClassTransient, ClassThrottled:
	case ClassPermanent:
		return &Error{Reason: ErrPermanent}
	case ClassSuspended:
		return &Error{Reason: ErrSuspended, hint: v.After}
	case ClassUnknown:
		if v.Effect != Idempotent && v.Effect != ReadOnly {
			return &Error{Reason: ErrUnknownOutcome}
		}
	default:
		return &Error{Reason: ErrUnclassified}
	}
	if o.attemptsLeft(p) == 0 {
		return &Error{Reason: ErrAttempts}
	}
	if by := o.around.allowance.take(); by != nil {
		return &Error{Reason: ErrAttempts, shared: true, spender: by.name}
	}
	o.reserved = true
	if most := orDefault(p.MaxHint, 60*time.Second); most >= 0 && v.After > most {
		return &Error{Reason: ErrHint, hint: v.After, maxHint: most}
	}
	o.draw(p)
	if !o.fits(o.wait) {
		f := o.missed(o.wait)
		if v.After > o.own {
			f.hint = v.After
		}
		return f
	}
	if p.Budget != nil {
		cost, err := p.Budget.Spend(ctx, Verdict{class, v.After, v.Effect}, weightOr1(p.Weight))
		if err != nil {
			return &Error{Reason: ErrBudget, also: err}
		}
		o.charge, o.charged = cost, true
	}
	if p.Journal != nil {
		return o.saveWait(ctx, p)
	}
	return nil
}

// draw fills in the own wait, the spread and the wait of the turn.
func (o *operation) draw(p *Policy) {
	v, b := &o.verdict, &p.Backoff
	if v.Class == ClassThrottled && !isZero(&p.Throttle) {
		b = &p.Throttle
	}
	draw := p.Rand
	if draw == nil {
		draw = rand.Float64
	}
	n, u := o.attempts-1, unit(draw())
	o.own = b.Wait(Step{Retry: n, Previous: o.previous, Elapsed: o.elapsed, Draw: u})
	o.wait = o.own
	var spread time.Duration
	if v.After > 0 {
		if p.Spread >= 0 {
			width := orDefault(p.Spread, max(time.Second, v.After/10))
			width = max(0, min(width, o.room()-v.After))
			spread = FullJitter(Step{Window: width, Draw: draw()})
		}
		o.wait = max(o.own, saturatingAdd(v.After, spread))
	}
	if o.watched {
		o.turn.window, o.turn.draw, o.turn.spread = b.Window(n), u, spread
	}
}

// pause sleeps wait.
func (o *operation) pause(ctx context.Context, p *Policy, wait time.Duration) *Error {
	return o.woken(ctx, p, wait, o.sleep(ctx, p.Sleep, wait))
}

// wake goes on after the wait of the turn, which err has cut short unless it is nil. The
// loop itself calls sleep and then this, so that few frames lie between a
// goroutine that sleeps and its start: it fits the smallest stack.
func (o *operation) wake(ctx context.Context, p *Policy, err error) bool {
	if f := o.woken(ctx, p, o.wait, err); f != nil {
		o.stop(ctx, p, f)
		return false
	}
	return true
}

// woken reads the clock after wait, or after what err has left of it.
func (o *operation) woken(ctx context.Context, p *Policy, wait time.Duration, err error) *Error {
	if err != nil {
		o.read(p, 0)
		return cmp.Or(ended(ctx), &Error{Reason: ErrCanceled, also: err})
	}
	o.read(p, wait)
	return nil
}

// sleep uses one timer for all waits of the operation. Its frame is small: a
// goroutine that sleeps in it fits the smallest stack.
func (o *operation) sleep(ctx context.Context, sleep func(context.Context, time.Duration) error, wait time.Duration) error {
	if sleep != nil {
		return sleep(ctx, wait)
	}
	done := ctx.Done()
	if done == nil {
		time.Sleep(wait)
		return nil
	}
	if o.timer == nil {
		o.timer = time.NewTimer(wait)
	} else {
		o.timer.Reset(wait)
	}
	select {
	case <-o.timer.C:
		return nil
	case <-done:
		o.timer.Stop()
		return ctx.Err()
	}
}

// succeed settles an attempt that returned no error.
func (o *operation) succeed(ctx context.Context, p *Policy) {
	o.success = true
	if !p.involved() { // no record, no journal
		if p.Budget != nil {
			cost := 0.0
			if o.course != nil {
				cost = o.cost
			}
			p.Budget.Earn(ctx, cost)
		}
		return
	}
	o.unknown, o.sending = false, false
	o.tell(Outcome{Sent: true})
	o.read(p, 0)
	o.last = nil
	o.begun(p, false)
	o.verdict.Effect = p.Effect.known()
	o.conclude(ctx, p)
}

// found settles an operation of which Find, before a further send, has said
// that it was applied.
func (o *operation) found(ctx context.Context, p *Policy) {
	o.tell(Outcome{})
	o.release(ctx, p)
	o.begun(p, true)
	o.verdict.Effect, o.turn.found = Mutation, true
	o.conclude(ctx, p)
}

// conclude ends the operation with success.
func (o *operation) conclude(ctx context.Context, p *Policy) {
	if p.Budget != nil && !o.earned {
		p.Budget.Earn(ctx, o.cost)
	}
	if p.Journal != nil {
		o.saveEnd(ctx, p, true)
	}
	o.observe(ctx, p, Succeeded, nil)
}

// stop ends the operation between attempts.
func (o *operation) stop(ctx context.Context, p *Policy, f *Error) context.Context {
	if o.course == nil {
		o.embark(p)
	}
	o.tell(Outcome{})
	o.release(ctx, p)
	o.begun(p, true)
	o.verdict.Effect = p.Effect.known()
	o.fail(ctx, p, f)
	return nil
}

// fail ends the operation with f, whose reason and detail are set.
func (o *operation) fail(ctx context.Context, p *Policy, f *Error) bool {
	o.release(ctx, p)
	if b, ok := p.Budget.(interface{ failed() }); ok && o.attempts > 0 && !o.earned {
		b.failed()
	}
	if p.Journal != nil && f.Reason != ErrJournal {
		o.saveEnd(ctx, p, (f.Reason != ErrCanceled || o.definite) && !o.unknown)
	}
	o.observe(ctx, p, GaveUp, f.Reason)

	f.Operation, f.Attempts, f.Elapsed, f.late = p.Name, o.attempts, o.elapsed, o.late
	f.RetryAt, f.Last, f.unknown = o.retryAt, o.last, o.unknown
	f.unproven = o.unknown || o.unproven && o.inquiry == nil
	f.class = o.verdict.Class
	f.Records = append(o.records[o.oldest:], o.records[:o.oldest]...)
	if f.Reason == ErrDeadline && !f.inner && (o.ctxLimit || f.cause != nil) {
		f.owner = o.around.owner
	}
	o.failure = f
	return false
}

// release gives back the retry that was reserved and is not sent.
func (o *operation) release(ctx context.Context, p *Policy) {
	if !o.reserved {
		return
	}
	o.reserved = false
	o.around.allowance.give(1, nil)
	if o.charged {
		o.charged = false
		p.Budget.Return(ctx, o.charge)
	}
}

// end runs however the operation ends, by a panic too.
func (o *operation) end(ctx context.Context, p *Policy) {
	if o.ending != nil {
		o.ending.End()
	}
	defer o.around.allowance.close(o.success)
	if o.course == nil {
		return
	}
	if o.claimed {
		p.Journal.unclaim()
	}
	defer o.release(ctx, p)
	if p.Gate != nil { // a panic, if it was not told
		o.tell(Outcome{o.sending, errPanicked, Verdict{Class: ClassUnknown}})
	}
}

// ended returns the error of an operation whose ctx is done, else nil.
func ended(ctx context.Context) *Error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	f := &Error{Reason: ErrCanceled, also: err, cause: context.Cause(ctx)}
	if errors.Is(err, context.DeadlineExceeded) {
		f.Reason, f.miss = ErrDeadline, -1
	}
	return f
}

// missed returns the error of an operation whose next attempt does not fit
// after wait.
func (o *operation) missed(wait time.Duration) *Error {
	f := &Error{Reason: ErrDeadline, miss: -1}
	if o.course != nil && o.left() > 0 {
		f.least = o.least
		f.miss = saturatingAdd(wait, o.least) - o.left()
	}
	return f
}

// read reads the clock and lets elapsed grow by the step since the last
// reading: never by less than least, which is 0 or a wait that was slept. So a
// clock that stands still or is set back neither extends a deadline nor shortens
// it.
func (o *operation) read(p *Policy, least time.Duration) {
	var step time.Duration
	if p.Clock == nil {
		t := deadline.Now()
		step, o.tick = t-o.tick, t
	} else {
		t := p.Clock()
		step, o.now = t.Sub(o.now), t // Sub saturates
	}
	o.elapsed = saturatingAdd(o.elapsed, max(step, least))
}

// clock returns what the operation's clock shows; an injected one is not read
// again.
func (o *operation) clock(p *Policy) time.Time {
	if p.Clock != nil {
		return o.now
	}
	return time.Now()
}

// watched reports whether anyone will see records.
func (p *Policy) watched() bool { return p.Observe != nil || p.Keep > 0 }

// attemptsLeft returns how many attempts MaxAttempts leaves, -1 for an
// unlimited number.
func (o *operation) attemptsLeft(p *Policy) int {
	most := p.attempts()
	if most == 0 {
		return -1
	}
	return max(0, most-o.attempts)
}

// errPanicked is what a gate is told of an attempt that has not returned.
var errPanicked = errors.New("retry: the attempt has panicked")

// begun begins a turn of the loop: after an attempt, or between two.
func (o *operation) begun(p *Policy, between bool) {
	o.verdict, o.own, o.wait = Verdict{}, 0, 0
	if o.watched {
		t := &o.turn
		t.between, t.elapsed, t.left = between, o.elapsed, o.allowed(p)
		t.window, t.draw, t.spread = 0, 0, 0
	}
}

// allowed returns how many attempts are left, with the allowances of the
// operations around; -1 for an unlimited number.
func (o *operation) allowed(p *Policy) int {
	own, shared := o.attemptsLeft(p), o.around.allowance.left()
	if o.attempts == 0 && shared < math.MaxInt64 {
		shared++ // attempt 1 is no retry
	}
	switch {
	case own >= 0 && int64(own) <= shared:
		return own
	case shared < math.MaxInt:
		return int(shared)
	}
	return -1
}

// observe shows a record of the turn to whoever watches.
func (o *operation) observe(ctx context.Context, p *Policy, d Decision, reason error) {
	if o.watched {
		o.show(ctx, p, d, reason)
	}
}

// show is apart from observe for its frame, which holds a Record.
func (o *operation) show(ctx context.Context, p *Policy, d Decision, reason error) {
	x, t := o.extras, &o.turn
	r := Record{
		Operation: p.Name, Attempt: o.attempts, Gated: t.gated,
		Class: o.verdict.Class, Effect: o.verdict.Effect, Hint: o.verdict.After,
		Window: t.window, Draw: t.draw, OwnWait: o.own, Spread: t.spread, Wait: o.wait,
		Elapsed: t.elapsed, TimeLeft: -1, AttemptsLeft: t.left,
		Decision: d, Reason: reason, found: t.found,
	}
	if o.bounded {
		r.TimeLeft = o.leftAt(t.elapsed)
	}
	if t.between {
		r.Start = o.clock(p)
	} else {
		r.Err, r.Start, r.Duration, r.Timeout = o.last, t.start, t.elapsed-o.began, o.timeout
		r.Sends = int(o.around.sends.Load() - t.sent)
	}
	if p.Keep > 0 {
		if len(x.records) < p.Keep {
			x.records = append(x.records, r)
		} else {
			x.records[x.oldest] = r
			x.oldest = (x.oldest + 1) % p.Keep
		}
	}
	if p.Observe != nil {
		p.Observe(ctx, r)
	}
}

// later returns t+d, or the last time that there is.
func later(t time.Time, d time.Duration) time.Time {
	if u := t.Add(d); !u.Before(t) {
		return u
	}
	return t
}

// orDefault resolves a field of which zero means the default.
func orDefault(d, byDefault time.Duration) time.Duration {
	if d == 0 {
		return byDefault
	}
	return d
}

// isZero reports whether no field of b is set.
func isZero(b *Backoff) bool {
	return b.Base == 0 && b.Cap == 0 && b.Multiplier == 0 && b.Jitter == nil
}

// errInterrupted stands for an attempt whose process ended before it did.
var errInterrupted = Unknown(errors.New("retry: interrupted: the process ended while an attempt was in flight"))

// interrupted returns the error of an attempt that an earlier process has left
// with an unknown outcome, or nil.
func (o *operation) interrupted() error {
	if o.course != nil && o.cut {
		return errInterrupted
	}
	return nil
}

// resume takes the journal and goes on where its state says.
func (o *operation) resume(p *Policy) *Error {
	if err := p.Journal.claim(); err != nil {
		return &Error{Reason: ErrJournal, also: err}
	}
	o.claimed = true
	s, now := &p.Journal.State, o.clock(p).Round(0)
	if s.Version == 0 {
		s.Started = now
		if o.bounded {
			s.Expires = later(now, o.limit)
		}
		return nil
	}
	past, left := max(0, now.Sub(s.Started)), o.limit
	if !s.Expires.IsZero() {
		whole := max(0, s.Expires.Sub(s.Started))
		rest := max(0, min(whole, s.Left, s.Expires.Sub(now)))
		past = whole - rest
		if !o.bounded || rest < left { // MaxElapsed may be less than it was
			o.ctxLimit, left = false, rest
		}
		o.bounded = true
	}
	o.ledger = p.ledger(o.bounded, saturatingAdd(past, max(0, left)))
	o.elapsed = past
	o.attempts, o.previous, o.unknown = s.Attempts, s.Previous, s.Unknown
	o.around.allowance.spent.Store(int64(max(0, o.attempts-1)))
	switch {
	case o.attempts == 0:
	case s.InFlight || s.Unknown && s.NotBefore.IsZero():
		o.cut = true
	default:
		o.resumed = true
		o.wait = max(0, min(s.NotBefore.Sub(now), s.Wait))
	}
	return nil
}

// rejoin takes the retry that an earlier process was waiting for, and waits
// for what is left of it.
func (o *operation) rejoin(ctx context.Context, p *Policy) *Error {
	o.resumed = false
	if o.inquiry != nil && o.unknown { // also where nothing may be sent any more
		if f := o.inquire(ctx, p, false); f != nil || o.success {
			return f
		}
	}
	if o.attemptsLeft(p) == 0 {
		return &Error{Reason: ErrAttempts}
	}
	if by := o.around.allowance.take(); by != nil {
		return &Error{Reason: ErrAttempts, shared: true, spender: by.name}
	}
	o.reserved = true
	if !o.fits(o.wait) {
		return o.missed(o.wait)
	}
	return o.pause(ctx, p, o.wait)
}

// state is what the journal should hold now.
func (o *operation) state(p *Policy) State {
	s := p.Journal.State
	s.Attempts, s.InFlight, s.Unknown, s.Previous = o.attempts, false, o.unknown, o.previous
	if o.ledger.bounded {
		s.Left = o.left()
	}
	if o.inquiry != nil {
		s.EverUnknown, s.Resends = o.inquiry.ever, o.inquiry.used
	}
	s.EverUnknown = s.EverUnknown || o.unknown
	return s
}

// saveSend saves that the next attempt is in flight, then looks once more
// whether it may be: saving takes time.
func (o *operation) saveSend(ctx context.Context, p *Policy) *Error {
	s := o.state(p)
	s.Attempts, s.InFlight = o.attempts+1, true
	s.NotBefore, s.Wait = time.Time{}, 0
	if err := p.Journal.save(ctx, s); err != nil {
		return &Error{Reason: ErrJournal, also: err}
	}
	o.read(p, 0)
	f := ended(ctx)
	if f == nil && o.left() == 0 {
		f = o.missed(0)
	}
	if f != nil {
		// If this fails the attempt stays in flight: a look-up too many, at worst.
		_ = p.Journal.save(context.WithoutCancel(ctx), o.state(p))
	}
	return f
}

// saveWait saves the wait that the turn has settled.
func (o *operation) saveWait(ctx context.Context, p *Policy) *Error {
	s := o.state(p)
	s.NotBefore, s.Wait, s.Previous = later(o.clock(p), o.wait).Round(0), o.wait, o.own
	if err := p.Journal.save(ctx, s); err != nil {
		return &Error{Reason: ErrJournal, also: err}
	}
	return nil
}

// saveEnd saves that the operation has returned: for good, or such that
// another may resume it. An error changes nothing any more: whoever resumes
// finds the attempt in flight.
func (o *operation) saveEnd(ctx context.Context, p *Policy, forGood bool) {
	s := o.state(p)
	s.Ended, s.Succeeded = forGood, o.success
	if !forGood {
		if s.NotBefore.IsZero() && !o.unknown {
			s.NotBefore, s.Wait = o.retryAt, math.MaxInt64
		}
		s.Wait = max(0, min(s.Wait, s.NotBefore.Sub(o.clock(p))))
	}
	_ = p.Journal.save(context.WithoutCancel(ctx), s)
}
