package retry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// Lookup finds out what became of the sends of a [Submit].
type Lookup[T any] struct {
	// Settle is waited before the first look after each send: the provider's
	// processing time. <=0: none.
	Settle time.Duration
	// Resends is how often send is called again after proof that it was not
	// applied. 0: 1. <0: as often as MaxAttempts allows.
	Resends int
	// Policy is that of the look-ups: when to ask again while Find is
	// Unresolved or fails, and for how long. Its limits are its own, and may
	// outlast the deadline of the sends, never ctx. nil: the zero Policy. Its
	// Effect is ignored: looking changes nothing. Where it has no Name, Gate,
	// Clock, Rand or Sleep, those of the sends serve. At the gate a look-up goes
	// before all others that wait.
	Policy *Policy
	// Find looks once. It must not change anything. A row that is missing (a
	// 404) is Unresolved, unless the provider proves that the request can no
	// longer arrive: then it is NotApplied. Its error counts where the
	// Resolution is Unresolved or Rejected; with Applied and NotApplied an
	// error makes them Unresolved, for what is not certain is not found. If it
	// finds several that could be this one, it must refuse: an error marked
	// Permanent.
	Find func(context.Context) (T, Resolution, error)
}

// Resolution is what a look-up has found: Unresolved, which is the zero value,
// Applied, NotApplied or Rejected.
type Resolution uint8

const (
	// Unresolved: it is not known. A missing row proves nothing where the
	// request may still be on its way.
	Unresolved Resolution = Resolution(unresolved)
	// Applied: it was applied; the value is that of a success.
	Applied Resolution = Resolution(applied)
	// NotApplied: it is proven that nothing was applied.
	NotApplied Resolution = Resolution(notApplied)
	// Rejected: it arrived and was refused for good.
	Rejected Resolution = Resolution(rejected)
)

// String returns the resolution's words: unresolved, applied, not applied, rejected.
func (r Resolution) String() string {
	return word("Resolution", uint8(r), "unresolved", "applied", "not applied", "rejected")
}

// errUnresolved stands for a look-up that found nothing out.
var errUnresolved = Transient(errors.New("retry: unresolved"))

// Submit calls send for an effect that must happen once at most, such as an
// order or a payment, and looks up what became of it wherever a failure does
// not prove that nothing was applied.
//
// It is like [Do], except that Policy.Effect is ignored and every failure
// counts as unknown whose class is ClassUnknown or ClassUnclassified, and that
// of an inner loop unless all its attempts have proved it. Unknown stays so
// until Find clears it; no later failure does. A mark or a Classifier that
// says permanent, transient, throttled or suspended is such a proof.
//
// After an unknown outcome Submit waits Settle and asks Find:
//
//   - Applied: success, with Find's value.
//   - Rejected: ErrPermanent, with Find's error too, if there is one.
//   - NotApplied: send is called again, within Resends, the limits of p and
//     after its wait. Find comes right before it once more: the first request
//     may arrive late. Where it may not be called again the outcome is not
//     unknown any more: ErrAttempts, ErrDeadline and so on.
//   - Unresolved: asked again as Lookup.Policy says. When that gives up, or Find
//     has failed for good: ErrUnknownOutcome, with the errors of both.
//
// A failure that proves itself is repeated as in Do and uses none of Resends.
// A permanent one after an unknown outcome is looked up too: a refused
// duplicate may mean that the first was applied.
//
// Find runs outside the allowance of the operations around. The value returned
// with an error is the last of send. A nil ctx, send or Find panics.
func Submit[T any](ctx context.Context, p *Policy, send func(context.Context) (T, error), lookup Lookup[T]) (T, error) {
	if ctx == nil {
		panic("retry: nil Context")
	}
	if send == nil || lookup.Find == nil {
		panic("retry: nil send or Find")
	}
	if p == nil {
		p = &defaults
	}
	var found T
	find := func(ctx context.Context) (Resolution, error) {
		v, r, err := lookup.Find(ctx)
		if err == nil && r == Applied {
			found = v
		}
		return r, err
	}
	o := begin(ctx, p)
	if o.course == nil {
		o.embark(p)
		o.equip(p)
	}
	o.inquiry = o.newInquiry(p, find, lookup.Settle, lookup.Resends, lookup.Policy)
	v, err := do(ctx, p, send, o)
	if err == nil && o.looked {
		return found, nil
	}
	return v, err
}

// newInquiry is what Submit adds to the loop.
func (o *operation) newInquiry(p *Policy, find func(context.Context) (Resolution, error), settle time.Duration, resends int, own *Policy) *inquiry {
	q := &inquiry{settle: settle, resends: cmp.Or(resends, 1)}
	if o.claimed { // else another operation may be writing to it
		s := &p.Journal.State
		q.ever, q.used = s.EverUnknown || s.Unknown || s.InFlight, s.Resends
		if q.resends > 0 {
			q.resends = max(0, q.resends-q.used)
		}
	}
	policy := lookupPolicy(p, own)
	q.ask = func(ctx context.Context) (finding, error) {
		r, err := look(ctx, &policy, find)
		return finding(r), err
	}
	return q
}

// lookupPolicy completes the policy of the look-ups.
func lookupPolicy(p, own *Policy) Policy {
	var l Policy
	if own != nil {
		l = *own
	}
	l.Effect, l.Journal = ReadOnly, nil
	if l.Name == "" && p.Name != "" {
		l.Name = p.Name + ": look-up"
	}
	if l.Gate == nil {
		l.Gate = p.Gate
	}
	if l.Clock == nil {
		l.Clock = p.Clock
	}
	if l.Rand == nil {
		l.Rand = p.Rand
	}
	if l.Sleep == nil {
		l.Sleep = p.Sleep
	}
	return l
}

// look asks until there is an answer or p ends it. A Rejected comes with
// Find's error, an Unresolved with the loop's.
func look(ctx context.Context, p *Policy, find func(context.Context) (Resolution, error)) (Resolution, error) {
	ctx = Detach(ctx)
	var why error
	ask := func(ctx context.Context) (Resolution, error) {
		r, err := find(ctx)
		switch {
		case r == Rejected:
			why = err
			return r, nil
		case err != nil:
			return Unresolved, err
		case r == Applied, r == NotApplied:
			return r, nil
		case r != Unresolved:
			return Unresolved, Permanent(fmt.Errorf("retry: Find returned %v", r))
		}
		return Unresolved, errUnresolved
	}
	o := begin(ctx, p)
	o.looking = true
	r, err := do(ctx, p, ask, o)
	if err != nil {
		return Unresolved, err
	}
	return r, why
}
