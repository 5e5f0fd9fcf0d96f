package retry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Record is what became of one attempt, and why. Policy.Observe is given one
// after each attempt, decision included and before any wait, and one more
// where an operation ends between attempts: that one has the number of the
// attempt last begun (0 if none), no duration and the reason.
//
// Its texts (String, LogValue) are redacted as an [Error]'s are, so it may be
// printed with %v and logged with slog. Err is not: it is op's error as it was.
type Record struct {
	Operation string        // Policy.Name
	Attempt   int           // the first is 1
	Start     time.Time     // of the attempt, on the operation's clock
	Duration  time.Duration // of the attempt
	Timeout   time.Duration // what the attempt was given; 0: no limit
	Gated     time.Duration // spent at the gate before it
	Sends     int           // requests that went out on the wire in it, where the transport can say (httpretry); else 0

	Err    error  // nil on success
	Class  Class  // of Err
	Effect Effect // the one that counted: the policy's if stated, else the error's

	// The next four are 0 where the decision fell before they were drawn.
	Window  time.Duration // of the retry that would follow
	Draw    float64       // u of its own wait
	OwnWait time.Duration
	Spread  time.Duration // drawn on top of Hint

	Hint time.Duration // what the server asked for; 0: nothing
	Wait time.Duration // the wait after the attempt, as it is slept; set where Decision is Retrying, or had it fitted

	Elapsed      time.Duration // since the operation started, at the attempt's end
	TimeLeft     time.Duration // to the deadline, then; -1: no deadline
	AttemptsLeft int           // after this one, with the allowances of the operations around; -1: unlimited

	Decision Decision
	Reason   error // why it gave up: a sentinel such as ErrDeadline; else nil

	found bool // Succeeded between attempts, by what a look-up has found
}

// Decision is what followed an attempt.
type Decision uint8

const (
	Succeeded Decision = iota + 1 // the operation has its value
	Retrying                      // another follows after the wait
	GaveUp                        // the operation ends without success
)

// String returns the decision's words: succeeded, retrying, gave up.
func (d Decision) String() string {
	switch d {
	case Succeeded:
		return "succeeded"
	case Retrying:
		return "retrying"
	case GaveUp:
		return "gave up"
	}
	return fmt.Sprintf("Decision(%d)", uint8(d))
}

// String is one line of what a person reads first; LogValue has the rest:
//
//	balance: attempt 2 took 31ms: retrying in 250ms: GET: status 503 (unknown, read-only)
func (r Record) String() string {
	var b strings.Builder
	if r.Operation != "" {
		b.WriteString(r.Operation)
		b.WriteString(": ")
	}
	if r.between() {
		fmt.Fprintf(&b, "before attempt %d: %v", r.Attempt+1, r.Decision)
	} else {
		fmt.Fprintf(&b, "attempt %d took %v: %v", r.Attempt, legible(r.Duration), r.Decision)
	}
	if r.Decision == Retrying {
		fmt.Fprintf(&b, " in %v", legible(r.Wait))
	}
	if r.Reason != nil {
		b.WriteString(": ")
		b.WriteString(strings.TrimPrefix(redacted(r.Reason), "retry: "))
	}
	if r.Err != nil {
		fmt.Fprintf(&b, ": %s (%v, %v)", redacted(r.Err), r.Class, r.Effect)
	}
	return b.String()
}

// LogValue groups what a reader of logs needs; what is zero is left out. It
// implements [slog.LogValuer].
func (r Record) LogValue() slog.Value {
	attrs := make([]slog.Attr, 0, 16)
	if r.Operation != "" {
		attrs = append(attrs, slog.String("operation", r.Operation))
	}
	attrs = append(attrs, slog.Int("attempt", r.Attempt), slog.Duration("took", r.Duration))
	if r.Err != nil {
		attrs = append(attrs, slog.String("error", redacted(r.Err)),
			slog.String("class", r.Class.String()), slog.String("effect", r.Effect.String()))
	}
	for _, d := range []struct {
		key   string
		value time.Duration
	}{
		{"gated", r.Gated}, {"timeout", r.Timeout}, {"window", r.Window}, {"own_wait", r.OwnWait},
		{"hint", r.Hint}, {"spread", r.Spread}, {"wait", r.Wait},
	} {
		if d.value != 0 {
			attrs = append(attrs, slog.Duration(d.key, d.value))
		}
	}
	attrs = append(attrs, slog.Duration("elapsed", r.Elapsed))
	if r.TimeLeft >= 0 {
		attrs = append(attrs, slog.Duration("time_left", r.TimeLeft))
	}
	if r.Sends > 0 {
		attrs = append(attrs, slog.Int("sends", r.Sends))
	}
	if r.AttemptsLeft >= 0 {
		attrs = append(attrs, slog.Int("attempts_left", r.AttemptsLeft))
	}
	attrs = append(attrs, slog.String("decision", r.Decision.String()))
	if r.Reason != nil {
		attrs = append(attrs, slog.String("reason", r.Reason.Error()))
	}
	return slog.GroupValue(attrs...)
}

// between reports whether r is no attempt's record.
func (r *Record) between() bool { return r.found || r.Decision == GaveUp && r.Err == nil }

// LogRecords makes a Policy.Observe that logs each record under the group
// "retry": a first attempt that succeeds at LevelDebug, a later success at
// LevelInfo, all else at LevelWarn. A nil logger logs nothing and costs
// nothing. Safe for concurrent use.
func LogRecords(l *slog.Logger) func(context.Context, Record) {
	if l == nil {
		return nil
	}
	return func(ctx context.Context, r Record) {
		level := slog.LevelWarn
		if r.Decision == Succeeded {
			level = slog.LevelInfo
			if r.Attempt == 1 {
				level = slog.LevelDebug
			}
		}
		l.LogAttrs(ctx, level, "retry: "+r.Decision.String(), slog.Any("retry", r))
	}
}

// The reasons for which an operation ends without success. Error.Reason is
// one of them, and errors.Is(err, reason) is true for exactly that one; for
// ErrUnknownOutcome it is also true beside another reason (see [Error]).
var (
	// ErrUnclassified: no rule knows the failure, so it is not repeated, even
	// if the operation is ReadOnly. Three ways out: op marks the error
	// ([Transient], [Unknown], …), which is the most exact; a [Classifier] in the
	// policy knows it; or, only where op is harmless, the policy uses [Always].
	ErrUnclassified = errors.New("retry: unclassified error")
	// ErrPermanent: repeating cannot help.
	ErrPermanent = errors.New("retry: permanent error")
	// ErrSuspended: the server has banned the caller for a while.
	ErrSuspended = errors.New("retry: suspended")
	// ErrUnknownOutcome: it may have been applied, and is not safe to repeat.
	ErrUnknownOutcome = errors.New("retry: outcome unknown")
	// ErrAttempts: MaxAttempts, or the allowance of an enclosing operation, is used up.
	ErrAttempts = errors.New("retry: no attempts left")
	// ErrHint: the server asks for a wait longer than MaxHint.
	ErrHint = errors.New("retry: hint too long")
	// ErrDeadline: the next attempt would not fit before the deadline, or the
	// deadline of ctx has passed. It also is [context.DeadlineExceeded].
	ErrDeadline = errors.New("retry: deadline")
	// ErrBudget: the local retry budget refuses. It also is the error of Spend.
	ErrBudget = errors.New("retry: local retry budget refuses")
	// ErrCanceled: ctx was cancelled, or the sleeper or the gate failed.
	ErrCanceled = errors.New("retry: canceled")
	// ErrJournal: the journal could not be saved, so nothing further was sent:
	// it also is the error of Save. Or it could not be had, so nothing was sent:
	// it is in use, its operation has ended, or its State is not known. What
	// another worker has sent that had it is not known.
	ErrJournal = errors.New("retry: journal")
)

// Error is every failure of [Do], [Run] and Submit. errors.Is and errors.As
// see, all at once:
//
//   - Reason, and [context.DeadlineExceeded] where it is ErrDeadline;
//   - the chain of Last, op's own error;
//   - ctx.Err() and context.Cause(ctx), where ctx ended the operation;
//   - the error of Budget.Spend, Gate.Enter, Journal.Save or Policy.Sleep, where that did;
//   - ErrUnknownOutcome, whatever the Reason, where some attempt may have been
//     applied without anyone knowing: its class was unknown (or ctx ended it
//     in flight and its error proves nothing) and its effect was not ReadOnly.
//     A cancelled payment is not a payment that did not happen.
//
// Last of a resumed operation (Journal) is the package's own error "interrupted"
// where an earlier process had left an attempt in flight, until op has failed again.
//
// errors.Unwrap returns Last. In the text the userinfo and query of the URL of
// every *url.Error in the tree are left out, and lines are joined by "; ".
//
// An Error is read-only and safe for concurrent use.
type Error struct {
	Operation string        // Policy.Name
	Reason    error         // one of the sentinels above, comparable
	Attempts  int           // begun, those before a restart too (Journal); 0: op was never called
	Elapsed   time.Duration // since the start of the operation
	RetryAt   time.Time     // when the server will take the next; zero: it has not said
	Last      error         // op's last error as it was; nil: this process has not called op; see below
	Records   []Record      // the last Policy.Keep, oldest first

	unknown  bool
	unproven bool          // some attempt did not prove that nothing was applied
	resends  bool          // ErrAttempts: Resends is used up
	inner    bool          // the reason is that of a loop inside op
	gate     bool          // the gate has not let it pass
	rejected bool          // ErrPermanent: as a look-up found
	class    Class         // of Last
	late     bool          // Elapsed counts from the end of attempt 1
	also     error         // of ctx, Spend, Save, Sleep or the gate
	cause    error         // context.Cause(ctx), where ctx ended it
	miss     time.Duration // ErrDeadline: how far past the deadline the next would end; <0: it has passed
	least    time.Duration // ErrDeadline: the MinTimeout in miss
	hint     time.Duration // ErrHint, ErrSuspended; ErrDeadline: what made the wait too long; of a gate: how long it is held
	maxHint  time.Duration // ErrHint
	shared   bool          // ErrAttempts: an allowance is spent, not MaxAttempts
	spender  string        // and the name of its operation
	owner    *timedAttempt // ErrDeadline: the enclosing attempt whose own timeout that deadline is
}

// Error is one line that says why and what. Its URLs are redacted.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("retry: ")
	if e.Operation != "" {
		b.WriteString(e.Operation)
		b.WriteString(": ")
	}
	switch {
	case e.Attempts == 0:
		b.WriteString("not attempted")
	case e.Reason == ErrAttempts || e.Reason == ErrDeadline || e.Reason == ErrBudget || e.Reason == ErrHint:
		b.WriteString("gave up")
	default:
		b.WriteString("stopped")
	}
	if e.Attempts > 0 {
		fmt.Fprintf(&b, " after %s in %v", count(e.Attempts, "attempt"), legible(e.Elapsed))
		if e.late && e.Attempts > 1 {
			b.WriteString(" (from the end of the first)")
		}
	}
	b.WriteString(": ")
	b.WriteString(e.why())
	if e.unknown && e.Reason != ErrUnknownOutcome {
		b.WriteString("; outcome unknown, it may have been applied")
	}
	if e.Last != nil {
		if e.rejected || e.Reason == ErrUnknownOutcome && e.also != nil {
			b.WriteString("; the send") // else it would run on from the look-up's error
		}
		b.WriteString(": ")
		b.WriteString(redacted(e.Last))
	}
	return b.String()
}

// why says the reason in words.
func (e *Error) why() string {
	if e.inner {
		return "a loop inside it has given up"
	}
	if e.gate {
		return e.whyGate()
	}
	switch e.Reason {
	case ErrUnclassified:
		return fmt.Sprintf("no rule knows %s (see retry.ErrUnclassified; retry.Always if harmless)", typeOf(e.Last))
	case ErrPermanent:
		switch {
		case e.rejected && e.also != nil:
			return "rejected, as the look-up found: " + redacted(e.also)
		case e.rejected:
			return "rejected, as the look-up found"
		}
		return "permanent"
	case ErrSuspended:
		if e.hint > 0 {
			return fmt.Sprintf("suspended for %v", e.hint)
		}
		return "suspended"
	case ErrUnknownOutcome:
		if e.also != nil {
			return "outcome unknown, and looking it up has not settled it: " + redacted(e.also)
		}
		return "outcome unknown, it may have been applied and is not safe to repeat"
	case ErrAttempts:
		if e.resends {
			return "no resends left after proof that it was not applied"
		}
		if !e.shared {
			return "no attempts left"
		}
		return fmt.Sprintf("the allowance of %s is spent", cmp.Or(e.spender, "an operation without a name"))
	case ErrHint:
		return fmt.Sprintf("the server asks for %v, MaxHint is %v", e.hint, e.maxHint)
	case ErrDeadline:
		return e.whyDeadline()
	case ErrBudget:
		return fmt.Sprintf("the local retry budget refuses: %s", redacted(e.also))
	case ErrCanceled:
		return redacted(cmp.Or(e.cause, e.also))
	case ErrJournal:
		if refused, ok := e.also.(journalError); ok {
			return refused.Error()
		}
		return fmt.Sprintf("the journal could not be saved: %s", redacted(e.also))
	}
	return redacted(e.Reason)
}

func (e *Error) whyGate() string {
	switch {
	case e.Reason == ErrHint:
		return fmt.Sprintf("the gate is held for %v, MaxHint is %v", legible(e.hint), e.maxHint)
	case e.hint > 0:
		return fmt.Sprintf("the gate is held for %v, past the deadline", legible(e.hint))
	case e.Reason == ErrDeadline:
		return "others were before it at the gate until the deadline"
	}
	return "the gate: " + redacted(e.also)
}

func (e *Error) whyDeadline() string {
	if e.miss < 0 {
		if e.cause != nil && e.cause != context.DeadlineExceeded {
			return "the deadline has passed: " + redacted(e.cause)
		}
		return "the deadline has passed"
	}
	why := fmt.Sprintf("the next would start %v past the deadline", e.miss)
	switch {
	case e.least > 0:
		why = fmt.Sprintf("the next would end %v past the deadline", e.miss)
	case e.miss == 0:
		why = "the next would start at the deadline"
	}
	if e.hint > 0 {
		why = fmt.Sprintf("the server asks for %v: %s", e.hint, why)
	}
	return why
}

// Unwrap returns Last.
func (e *Error) Unwrap() error { return e.Last }

// Is reports what the type's doc lists beside the chain of Last.
func (e *Error) Is(target error) bool {
	switch target {
	case e.Reason:
		return true
	case ErrUnknownOutcome:
		return e.unknown
	case context.DeadlineExceeded:
		if e.Reason == ErrDeadline {
			return true
		}
	}
	return e.also != nil && errors.Is(e.also, target) || e.cause != nil && errors.Is(e.cause, target)
}

// As finds target in the chain of Last, then in the errors that ended the
// operation beside it.
func (e *Error) As(target any) bool {
	for _, err := range []error{e.Last, e.also, e.cause} {
		if err != nil && errors.As(err, target) {
			return true
		}
	}
	return false
}

// loopError lets Classify know the error of a loop without knowing this type.
func (e *Error) loopError() (unknown bool) { return e.unknown }

// Stats counts what its Observe is given: operations, attempts and retries,
// how operations ended, and by which attempt they succeeded. It is an
// expvar.Var.
//
//	var stats retry.Stats // of all operations that use one service
//	p := retry.Policy{Observe: stats.Observe}
//	expvar.Publish("prices", &stats)
//
// The zero value is ready for use. A Stats must not be copied, is safe for
// concurrent use, and takes the same memory whatever it is given.
type Stats struct {
	mu        sync.Mutex
	counts    Counts
	succeeded int64
	outcomes  [len(reasons{})]int64
	successes [lastNumber + 1]int64 // by attempt; those after the last count as 0
}

// lastNumber is the highest attempt whose successes are told apart.
const lastNumber = 9

// Observe is a Policy.Observe. An attempt counts when it has ended, so a
// retry that was decided on and not sent never does; an operation counts when
// it has ended, also one that never began an attempt.
func (s *Stats) Observe(_ context.Context, r Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !r.between() {
		s.counts.Attempts++
		if r.Attempt > 1 {
			s.counts.Retries++
		}
	}
	switch r.Decision {
	case Succeeded:
		s.counts.Operations++
		s.succeeded++
		n := r.Attempt
		if n < 1 || n > lastNumber {
			n = 0
		}
		s.successes[n]++
	case GaveUp:
		s.counts.Operations++
		s.outcomes[reasonNumber(r.Reason)]++
		if r.Reason == ErrBudget {
			s.counts.Refusals++
		}
	}
}

// Counts returns the totals so far.
func (s *Stats) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// Outcomes returns how many operations have ended for reason, a sentinel such
// as ErrDeadline; nil: with success.
func (s *Stats) Outcomes(reason error) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reason == nil {
		return s.succeeded
	}
	return s.outcomes[reasonNumber(reason)]
}

// Successes returns how many operations have succeeded by the given attempt,
// the first being 1. From the tenth on they are counted together.
func (s *Stats) Successes(attempt int) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case attempt < 1:
		return 0
	case attempt > lastNumber:
		attempt = 0
	}
	return s.successes[attempt]
}

// String is a JSON object of it all, as expvar wants it. What is 0 is left out of
// outcomes and successes.
func (s *Stats) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts
	b := fmt.Appendf(nil, `{"operations":%d,"attempts":%d,"retries":%d,"ratio":%s,"outcomes":{`,
		c.Operations, c.Attempts, c.Retries, strconv.FormatFloat(c.Ratio(), 'f', -1, 64))
	b = appendCount(b, "succeeded", s.succeeded)
	for i, r := range allReasons() {
		b = appendCount(b, r.name, s.outcomes[i])
	}
	b = append(b, `},"successes":{`...)
	for n := 1; n <= lastNumber; n++ {
		b = appendCount(b, strconv.Itoa(n), s.successes[n])
	}
	b = appendCount(b, strconv.Itoa(lastNumber+1)+"+", s.successes[0])
	return string(append(b, "}}"...))
}

// reasons are the sentinels with their names in JSON, and one for all else.
type reasons [11]struct {
	err  error
	name string
}

func allReasons() reasons {
	return reasons{
		{ErrUnclassified, "unclassified"},
		{ErrPermanent, "permanent"},
		{ErrSuspended, "suspended"},
		{ErrUnknownOutcome, "unknown outcome"},
		{ErrAttempts, "attempts"},
		{ErrHint, "hint"},
		{ErrDeadline, "deadline"},
		{ErrBudget, "budget"},
		{ErrCanceled, "canceled"},
		{ErrJournal, "journal"},
		{nil, "other"},
	}
}

// reasonNumber returns the place of reason among allReasons.
func reasonNumber(reason error) int {
	all := allReasons()
	for i, r := range all {
		if r.err == reason {
			return i
		}
	}
	return len(all) - 1
}

// appendCount appends a member of a JSON object to b, unless n is 0.
func appendCount(b []byte, name string, n int64) []byte {
	if n == 0 {
		return b
	}
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	return fmt.Appendf(b, "%q:%d", name, n)
}

// count writes n of a thing.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}

// legible rounds d to what a person reads.
func legible(d time.Duration) time.Duration {
	switch {
	case d >= time.Second:
		return d.Round(time.Millisecond)
	case d >= time.Millisecond:
		return d.Round(time.Microsecond)
	}
	return d
}

// typeOf names the innermost type of err's chain, and the code of a status:
// the type of a wrapper such as fmt.Errorf's says nothing.
func typeOf(err error) string {
	for range maxErrors {
		if isNilPointer(err) {
			break
		}
		if inner := errors.Unwrap(err); inner != nil {
			err = inner
		}
	}
	if s, ok := err.(*StatusError); ok && s != nil {
		return fmt.Sprintf("status %d of %T", s.Code, err)
	}
	return fmt.Sprintf("%T", err)
}

// redacted returns err's text on one line, in which each URL of a *url.Error of
// its tree has lost its userinfo and query, plain or quoted as url.Error prints it.
func redacted(err error) string {
	if err == nil {
		return "no reason" // an Error that no loop has made
	}
	text := textOf(err)
	urls := urlsIn(err, nil, new(int))
	if len(urls) == 0 {
		return oneLine(text)
	}
	// The longest first: one may be the beginning of another.
	slices.SortFunc(urls, func(a, b string) int { return len(b) - len(a) })
	for _, u := range urls {
		safe := redactURL(u)
		text = strings.ReplaceAll(text, quoted(u), quoted(safe))
		text = strings.ReplaceAll(text, u, safe)
	}
	return oneLine(text)
}

// oneLine joins the lines of text, as those of errors.Join are, by "; ".
func oneLine(text string) string {
	if !strings.ContainsAny(text, "\n\r") {
		return text
	}
	lines := strings.FieldsFunc(text, func(c rune) bool { return c == '\n' || c == '\r' })
	return strings.Join(lines, "; ")
}

// urlsIn appends to urls those of the *url.Errors in err's tree, of which it
// visits at most maxErrors.
func urlsIn(err error, urls []string, visited *int) []string {
	for err != nil && *visited < maxErrors && !isNilPointer(err) {
		*visited++
		switch e := err.(type) {
		case *url.Error:
			if e.URL != "" {
				urls = append(urls, e.URL)
			}
			err = e.Err
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			for _, branch := range e.Unwrap() {
				urls = urlsIn(branch, urls, visited)
			}
			return urls
		default:
			return urls
		}
	}
	return urls
}

func quoted(s string) string {
	q := strconv.Quote(s)
	return q[1 : len(q)-1]
}

// redactURL cuts userinfo, query and fragment from s. Of one that does not
// parse nobody knows where they end: a password may hold a "?", a query an "@".
func redactURL(s string) string {
	u, err := url.Parse(s)
	if err == nil && u.Opaque == "" {
		u.User, u.RawQuery, u.ForceQuery = nil, "", false
		u.Fragment, u.RawFragment = "", ""
		return u.String()
	}
	at, end := strings.LastIndexByte(s, '@'), strings.IndexAny(s, "?#")
	switch {
	case end < 0:
		return s[at+1:]
	case at < 0:
		return s[:end]
	case at < end:
		return s[at+1 : end]
	}
	if scheme, _, ok := strings.Cut(s, "://"); ok {
		return scheme + "://***"
	}
	return "***"
}
