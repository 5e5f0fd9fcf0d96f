package retry_test

// Submit on the fake clock: every sentence of what it promises. The same over
// real HTTP is in internal/venue, at random in submit_model_test.go.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3d0f8764/retry"
)

var (
	errLost   = errors.New("connection lost")
	errFind   = errors.New("find failed")
	errRefuse = errors.New("refused by the venue")
)

// sent is one answer of a desk to send. A ban is a look-up's, or a send's.
type sent struct {
	takes time.Duration
	err   error
}

// looked is one answer of a desk to Find.
type looked struct {
	takes time.Duration
	r     retry.Resolution
	err   error
}

// desk scripts both functions of a Submit and writes down, in order, what it is
// asked and what is slept. The last answer of each kind is given again and
// again. The value of send n is "sent n", of Find n "found n".
type desk struct {
	*clock
	sends []sent
	finds []looked
	log   []string

	sent, looked int
}

func newDesk(sends []sent, finds ...looked) *desk {
	return &desk{clock: newClock(), sends: sends, finds: finds}
}

func (d *desk) note(what string) { d.log = append(d.log, what) }

func (d *desk) send(context.Context) (string, error) {
	d.sent++
	d.note("send")
	s := d.sends[min(d.sent, len(d.sends))-1]
	d.Advance(s.takes)
	return fmt.Sprint("sent ", d.sent), s.err
}

func (d *desk) find(context.Context) (string, retry.Resolution, error) {
	d.looked++
	d.note("find")
	l := d.finds[min(d.looked, len(d.finds))-1]
	d.Advance(l.takes)
	return fmt.Sprint("found ", d.looked), l.r, l.err
}

func (d *desk) sleep(ctx context.Context, wait time.Duration) error {
	d.note(wait.String())
	return d.Sleep(ctx, wait)
}

// policy has waits of 1s between sends, and no other limit than five of them.
func (d *desk) policy() retry.Policy {
	return retry.Policy{
		Backoff:    retry.Backoff{Base: time.Second, Multiplier: 1, Jitter: retry.NoJitter},
		MaxElapsed: -1, Spread: -1,
		Clock: d.Now, Sleep: d.sleep, Rand: constant(0.5),
	}
}

// lookup has waits of 100ms between look-ups, three at most, and settles for 7ms.
func (d *desk) lookup() retry.Lookup[string] {
	return retry.Lookup[string]{
		Settle: 7 * ms,
		Policy: &retry.Policy{
			Backoff:     retry.Backoff{Base: 100 * ms, Multiplier: 1, Jitter: retry.NoJitter},
			MaxAttempts: 3, MaxElapsed: -1, Spread: -1,
		},
		Find: d.find,
	}
}

// story is what the desk has written down.
func (d *desk) story() string { return strings.Join(d.log, " ") }

// always is a classifier that gives every failure this class.
func always(c retry.Class) retry.Classifier {
	return func(error) retry.Verdict { return retry.Verdict{Class: c} }
}

// inner returns the error of a loop of one attempt that failed with err.
func inner(err error) error {
	return retry.Run(context.Background(), &retry.Policy{MaxAttempts: 1, MaxElapsed: -1},
		func(context.Context) error { return err })
}

func TestSubmitStories(t *testing.T) {
	var (
		lost  = sent{0, retry.Unknown(errLost)}
		fine  = sent{0, nil}
		busy  = sent{0, retry.Throttled(errOp, 0)}
		away  = sent{0, retry.Transient(errOp)}
		wrong = sent{0, retry.Permanent(errOp)}

		open     = looked{0, retry.Unresolved, nil}
		applied  = looked{0, retry.Applied, nil}
		absent   = looked{0, retry.NotApplied, nil}
		rejected = looked{0, retry.Rejected, errRefuse}
	)
	status := func(code int) sent { return sent{0, &retry.StatusError{Method: "POST", Code: code}} }
	tests := []struct {
		name    string
		sends   []sent
		finds   []looked
		change  func(*retry.Policy, *retry.Lookup[string])
		story   string
		value   string
		reason  error // nil: success
		unknown bool
	}{
		{name: "success looks nothing up", sends: []sent{fine},
			story: "send", value: "sent 1"},

		// What counts as unknown.
		{name: "unknown by its class", sends: []sent{lost}, finds: []looked{applied},
			story: "send 7ms find", value: "found 1"},
		{name: "unknown as no rule knows it", sends: []sent{{0, errOp}}, finds: []looked{applied},
			story: "send 7ms find", value: "found 1"},
		{name: "unknown by 408", sends: []sent{status(408)}, finds: []looked{applied},
			story: "send 7ms find", value: "found 1"},
		{name: "unknown by 503", sends: []sent{status(503)}, finds: []looked{applied},
			story: "send 7ms find", value: "found 1"},
		{name: "unknown by 501, an unclassified 5xx", sends: []sent{status(501)}, finds: []looked{applied},
			story: "send 7ms find", value: "found 1"},
		{name: "unknown by Always", sends: []sent{{0, errOp}}, finds: []looked{applied},
			change: func(p *retry.Policy, _ *retry.Lookup[string]) { p.Classify = retry.Always },
			story:  "send 7ms find", value: "found 1"},
		{name: "unknown by a class out of range", sends: []sent{{0, errOp}}, finds: []looked{applied},
			change: func(p *retry.Policy, _ *retry.Lookup[string]) { p.Classify = always(200) },
			story:  "send 7ms find", value: "found 1"},
		{name: "unknown by a cancelled request with a live ctx", sends: []sent{{0, context.Canceled}}, finds: []looked{applied},
			story: "send 7ms find", value: "found 1"},
		{name: "unknown by an inner loop that proved nothing", sends: []sent{{0, inner(errOp)}}, finds: []looked{applied},
			story: "send 7ms find", value: "found 1"},
		{name: "unknown by an inner loop that knows so", sends: []sent{{0, inner(retry.Unknown(errOp))}}, finds: []looked{applied},
			story: "send 7ms find", value: "found 1"},
		{name: "unknown by the attempt's own time", sends: []sent{{2 * time.Second, errOp}}, finds: []looked{applied},
			change: func(p *retry.Policy, _ *retry.Lookup[string]) { p.AttemptTimeout = time.Second },
			story:  "send 7ms find", value: "found 1"},

		// What is proof.
		{name: "a permanent mark is proof", sends: []sent{wrong},
			story: "send", value: "sent 1", reason: retry.ErrPermanent},
		{name: "a suspended mark is proof", sends: []sent{{0, retry.Suspended(errOp, time.Minute)}},
			story: "send", value: "sent 1", reason: retry.ErrSuspended},
		{name: "a transient mark is proof", sends: []sent{away, fine},
			story: "send 1s send", value: "sent 2"},
		{name: "a throttled mark is proof", sends: []sent{busy, fine},
			story: "send 1s send", value: "sent 2"},
		{name: "a 409 is proof", sends: []sent{status(409)},
			story: "send", value: "sent 1", reason: retry.ErrPermanent},
		{name: "a Classifier's permanent is proof", sends: []sent{{0, errOp}},
			change: func(p *retry.Policy, _ *retry.Lookup[string]) { p.Classify = always(retry.ClassPermanent) },
			story:  "send", value: "sent 1", reason: retry.ErrPermanent},
		{name: "a Classifier's transient is proof, of a 503 too", sends: []sent{status(503), fine},
			change: func(p *retry.Policy, _ *retry.Lookup[string]) { p.Classify = always(retry.ClassTransient) },
			story:  "send 1s send", value: "sent 2"},
		{name: "a Classifier's throttled is proof", sends: []sent{{0, errOp}, fine},
			change: func(p *retry.Policy, _ *retry.Lookup[string]) { p.Classify = always(retry.ClassThrottled) },
			story:  "send 1s send", value: "sent 2"},
		{name: "a Classifier's suspended is proof", sends: []sent{{0, errOp}},
			change: func(p *retry.Policy, _ *retry.Lookup[string]) { p.Classify = always(retry.ClassSuspended) },
			story:  "send", value: "sent 1", reason: retry.ErrSuspended},
		{name: "an inner loop all of whose attempts proved it", sends: []sent{{0, inner(retry.Transient(errOp))}},
			story: "send", value: "sent 1", reason: retry.ErrAttempts},
		{name: "a mark on an inner loop's error", sends: []sent{{0, retry.Transient(inner(errOp))}, fine},
			story: "send 1s send", value: "sent 2"},

		// Policy.Effect is ignored.
		{name: "ReadOnly does not repeat", sends: []sent{lost}, finds: []looked{applied},
			change: func(p *retry.Policy, _ *retry.Lookup[string]) { p.Effect = retry.ReadOnly },
			story:  "send 7ms find", value: "found 1"},
		{name: "Idempotent does not repeat", sends: []sent{lost}, finds: []looked{open},
			change: func(p *retry.Policy, _ *retry.Lookup[string]) { p.Effect = retry.Idempotent },
			story:  "send 7ms find 100ms find 100ms find", value: "sent 1", reason: retry.ErrUnknownOutcome, unknown: true},
		{name: "ReadOnly is unknown all the same", sends: []sent{lost}, finds: []looked{open},
			change: func(p *retry.Policy, _ *retry.Lookup[string]) { p.Effect = retry.ReadOnly },
			story:  "send 7ms find 100ms find 100ms find", value: "sent 1", reason: retry.ErrUnknownOutcome, unknown: true},
		{name: "nor does an error's own effect", sends: []sent{{0, &retry.StatusError{Method: "GET", Code: 503}}}, finds: []looked{applied},
			story: "send 7ms find", value: "found 1"},

		// What Find says.
		{name: "Applied after Unresolved", sends: []sent{lost}, finds: []looked{open, open, applied},
			story: "send 7ms find 100ms find 100ms find", value: "found 3"},
		{name: "Rejected", sends: []sent{lost}, finds: []looked{rejected},
			story: "send 7ms find", value: "sent 1", reason: retry.ErrPermanent},
		{name: "Rejected without an error", sends: []sent{lost}, finds: []looked{{0, retry.Rejected, nil}},
			story: "send 7ms find", value: "sent 1", reason: retry.ErrPermanent},
		{name: "Rejected after Unresolved", sends: []sent{lost}, finds: []looked{open, rejected},
			story: "send 7ms find 100ms find", value: "sent 1", reason: retry.ErrPermanent},
		{name: "NotApplied sends again, after a second look", sends: []sent{lost, fine}, finds: []looked{absent},
			story: "send 7ms find 1s find send", value: "sent 2"},
		{name: "the first arrives late: seen right before the send", sends: []sent{lost}, finds: []looked{absent, applied},
			story: "send 7ms find 1s find", value: "found 2"},
		{name: "rejected late", sends: []sent{lost}, finds: []looked{absent, rejected},
			story: "send 7ms find 1s find", value: "sent 1", reason: retry.ErrPermanent},
		{name: "not known any more right before the send", sends: []sent{lost}, finds: []looked{absent, open},
			story: "send 7ms find 1s find 100ms find 100ms find", value: "sent 1", reason: retry.ErrUnknownOutcome, unknown: true},
		{name: "unresolved for a while right before the send", sends: []sent{lost, fine}, finds: []looked{absent, open, absent},
			story: "send 7ms find 1s find 100ms find send", value: "sent 2"},
		{name: "Find fails for good", sends: []sent{lost}, finds: []looked{{0, retry.Unresolved, retry.Permanent(errFind)}},
			story: "send 7ms find", value: "sent 1", reason: retry.ErrUnknownOutcome, unknown: true},
		{name: "Find fails as no rule knows", sends: []sent{lost}, finds: []looked{{0, retry.Unresolved, errFind}},
			story: "send 7ms find", value: "sent 1", reason: retry.ErrUnknownOutcome, unknown: true},
		{name: "Find's time-out is asked again, as looking changes nothing", sends: []sent{lost},
			finds: []looked{{0, retry.Unresolved, retry.Unknown(errFind)}, applied},
			story: "send 7ms find 100ms find", value: "found 2"},
		{name: "whatever its policy says", sends: []sent{lost}, finds: []looked{{0, retry.Unresolved, retry.Unknown(errFind)}, applied},
			change: func(_ *retry.Policy, l *retry.Lookup[string]) { l.Policy.Effect = retry.Mutation },
			story:  "send 7ms find 100ms find", value: "found 2"},
		{name: "Applied with an error is Unresolved", sends: []sent{lost},
			finds: []looked{{0, retry.Applied, retry.Transient(errFind)}, {0, retry.Applied, errFind}},
			story: "send 7ms find 100ms find", value: "sent 1", reason: retry.ErrUnknownOutcome, unknown: true},
		{name: "NotApplied with an error is Unresolved", sends: []sent{lost}, finds: []looked{{0, retry.NotApplied, errFind}},
			story: "send 7ms find", value: "sent 1", reason: retry.ErrUnknownOutcome, unknown: true},
		{name: "a Resolution out of range", sends: []sent{lost}, finds: []looked{{0, 4, nil}},
			story: "send 7ms find", value: "sent 1", reason: retry.ErrUnknownOutcome, unknown: true},

		// Unknown stays so.
		{name: "fault B140: a 412 before the look proves nothing of the first", sends: []sent{lost, status(412)}, finds: []looked{absent, absent, applied},
			story: "send 7ms find 1s find send 7ms find", value: "found 3"},
		{name: "a refused duplicate whose first is absent", sends: []sent{lost, status(409)}, finds: []looked{absent},
			story: "send 7ms find 1s find send 7ms find", value: "sent 2", reason: retry.ErrPermanent},
		{name: "a refused duplicate that nobody can look up", sends: []sent{lost, status(409)}, finds: []looked{absent, absent, open},
			story: "send 7ms find 1s find send 7ms find 100ms find 100ms find", value: "sent 2", reason: retry.ErrUnknownOutcome, unknown: true},
		{name: "Find before a send after a throttle", sends: []sent{lost, busy, fine}, finds: []looked{absent},
			story: "send 7ms find 1s find send 1s find send", value: "sent 3"},
		{name: "which finds the first", sends: []sent{lost, busy}, finds: []looked{absent, absent, applied},
			story: "send 7ms find 1s find send 1s find", value: "found 3"},

		// Resends.
		{name: "one resend by default", sends: []sent{lost}, finds: []looked{absent},
			story: "send 7ms find 1s find send 7ms find", value: "sent 2", reason: retry.ErrAttempts},
		{name: "two resends", sends: []sent{lost}, finds: []looked{absent},
			change: func(_ *retry.Policy, l *retry.Lookup[string]) { l.Resends = 2 },
			story:  "send 7ms find 1s find send 7ms find 1s find send 7ms find", value: "sent 3", reason: retry.ErrAttempts},
		{name: "resends without end are bounded by MaxAttempts", sends: []sent{lost}, finds: []looked{absent},
			change: func(p *retry.Policy, l *retry.Lookup[string]) { p.MaxAttempts, l.Resends = 3, -1 },
			story:  "send 7ms find 1s find send 7ms find 1s find send 7ms find", value: "sent 3", reason: retry.ErrAttempts},
		{name: "MaxAttempts outranks Resends", sends: []sent{lost}, finds: []looked{absent},
			change: func(p *retry.Policy, l *retry.Lookup[string]) { p.MaxAttempts, l.Resends = 1, 9 },
			story:  "send 7ms find", value: "sent 1", reason: retry.ErrAttempts},
		{name: "what proves itself uses none", sends: []sent{busy, away, lost, away, fine}, finds: []looked{absent},
			story: "send 1s send 1s send 7ms find 1s find send 1s find send", value: "sent 5"},

		// Settle.
		{name: "no Settle", sends: []sent{lost, lost}, finds: []looked{absent, absent, applied},
			change: func(_ *retry.Policy, l *retry.Lookup[string]) { l.Settle = 0 },
			story:  "send find 1s find send find", value: "found 3"},
		{name: "a negative Settle is none", sends: []sent{lost}, finds: []looked{applied},
			change: func(_ *retry.Policy, l *retry.Lookup[string]) { l.Settle = math.MinInt64 },
			story:  "send find", value: "found 1"},
		{name: "Settle after each send", sends: []sent{lost, lost}, finds: []looked{absent, absent, applied},
			story: "send 7ms find 1s find send 7ms find", value: "found 3"},

		// The deadline of the sends.
		{name: "deadline: the look-up outlasts it, and it is not unknown any more", sends: []sent{lost}, finds: []looked{open, {5 * time.Second, retry.NotApplied, nil}},
			change: func(p *retry.Policy, _ *retry.Lookup[string]) { p.MaxElapsed = time.Second },
			story:  "send 7ms find 100ms find", value: "sent 1", reason: retry.ErrDeadline},
		{name: "the look-up outlasts it and finds it", sends: []sent{lost}, finds: []looked{{5 * time.Second, retry.Unresolved, nil}, applied},
			change: func(p *retry.Policy, _ *retry.Lookup[string]) { p.MaxElapsed = time.Second },
			story:  "send 7ms find 100ms find", value: "found 2"},
		{name: "the look before the next send takes too long", sends: []sent{lost}, finds: []looked{absent, {5 * time.Second, retry.NotApplied, nil}},
			change: func(p *retry.Policy, _ *retry.Lookup[string]) { p.MaxElapsed = 2 * time.Second },
			story:  "send 7ms find 1s find", value: "sent 1", reason: retry.ErrDeadline},
		{name: "the look-up's own deadline", sends: []sent{lost}, finds: []looked{{5 * time.Second, retry.Unresolved, nil}},
			change: func(_ *retry.Policy, l *retry.Lookup[string]) { l.Policy.MaxElapsed = 5 * time.Second },
			story:  "send 7ms find", value: "sent 1", reason: retry.ErrUnknownOutcome, unknown: true},

		// A throttle and a ban while looking up.
		{name: "a throttle while looking up", sends: []sent{lost}, finds: []looked{{0, retry.Unresolved, retry.Throttled(errFind, time.Second)}, applied},
			story: "send 7ms find 1s find", value: "found 2"},
		{name: "a ban while looking up", sends: []sent{lost}, finds: []looked{{0, retry.Unresolved, retry.Suspended(errFind, 60*time.Second)}, applied},
			story: "send 7ms find 1m0s find", value: "found 2"},
		{name: "a ban without a hint while looking up", sends: []sent{lost}, finds: []looked{{0, retry.Unresolved, retry.Suspended(errFind, 0)}, applied},
			story: "send 7ms find 100ms find", value: "found 2"},
		{name: "a ban longer than the look-up's MaxHint", sends: []sent{lost}, finds: []looked{{0, retry.Unresolved, retry.Suspended(errFind, time.Minute+1)}},
			story: "send 7ms find", value: "sent 1", reason: retry.ErrUnknownOutcome, unknown: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := newDesk(test.sends, test.finds...)
			p, l := d.policy(), d.lookup()
			if test.change != nil {
				test.change(&p, &l)
			}
			v, err := retry.Submit(t.Context(), &p, d.send, l)
			require.Equal(t, test.story, d.story())
			require.Equal(t, test.value, v)
			if test.reason == nil {
				require.NoError(t, err)
				return
			}
			e := stopped(t, err)
			require.Equal(t, test.reason, e.Reason)
			require.Equal(t, test.unknown, errors.Is(err, retry.ErrUnknownOutcome))
			require.Equal(t, d.sent, e.Attempts)
			require.Equal(t, d.Elapsed(), e.Elapsed)
		})
	}
}

// Both sides of each limit of a look-up.
func TestSubmitLookUpLimitsAreInclusive(t *testing.T) {
	hint := func(h time.Duration) looked {
		return looked{0, retry.Unresolved, retry.Suspended(errFind, h)}
	}
	tests := []struct {
		name    string
		find    looked
		limit   func(*retry.Policy)
		applied bool
	}{
		{"a hint as long as MaxHint", hint(time.Second), func(p *retry.Policy) { p.MaxHint = time.Second }, true},
		{"one longer", hint(time.Second + 1), func(p *retry.Policy) { p.MaxHint = time.Second }, false},
		{"a look just before the deadline", hint(time.Second - 1), func(p *retry.Policy) { p.MaxElapsed = time.Second }, true},
		{"one at the deadline", hint(time.Second), func(p *retry.Policy) { p.MaxElapsed = time.Second }, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := newDesk([]sent{{0, errLost}}, test.find, looked{0, retry.Applied, nil})
			p, l := d.policy(), d.lookup()
			test.limit(l.Policy)
			at := d.Now().Add(7 * ms)
			_, err := retry.Submit(t.Context(), &p, d.send, l)
			if test.applied {
				require.NoError(t, err)
				return
			}
			e := stopped(t, err)
			require.Equal(t, retry.ErrUnknownOutcome, e.Reason)
			require.Equal(t, at.Add(retry.Classify(test.find.err).After), e.RetryAt)
			require.Equal(t, 1, d.looked)
		})
	}
}

func TestSubmitErrorsOfBothSides(t *testing.T) {
	find := &retry.StatusError{Method: "GET", Code: 403}
	send := &retry.StatusError{Method: "POST", Code: 504}
	tests := []struct {
		name string
		find looked
		text string
	}{
		{"Find has failed for good", looked{0, retry.Unresolved, find},
			"retry: order: stopped after 1 attempt in 7ms: outcome unknown, and looking it up has not settled it: " +
				"retry: order: look-up: stopped after 1 attempt in 0s: permanent: GET: status 403; the send: POST: status 504"},
		{"it was rejected", looked{0, retry.Rejected, find},
			"retry: order: stopped after 1 attempt in 7ms: rejected, as the look-up found: GET: status 403; the send: POST: status 504"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := newDesk([]sent{{0, send}}, test.find)
			p := d.policy()
			p.Name = "order"
			_, err := retry.Submit(t.Context(), &p, d.send, d.lookup())
			require.ErrorIs(t, err, send)
			require.ErrorIs(t, err, find)
			require.Equal(t, error(send), stopped(t, err).Last)
			require.Equal(t, test.text, err.Error())
		})
	}

	t.Run("a rejection without an error is named", func(t *testing.T) {
		d := newDesk([]sent{{0, send}}, looked{0, retry.Rejected, nil})
		p := d.policy()
		_, err := retry.Submit(t.Context(), &p, d.send, d.lookup())
		require.Equal(t, retry.ErrPermanent, stopped(t, err).Reason)
		require.EqualError(t, err, "retry: stopped after 1 attempt in 7ms: rejected, as the look-up found; the send: POST: status 504")
	})
	t.Run("no limit of Find's is the operation's", func(t *testing.T) {
		d := newDesk([]sent{{0, send}}, looked{0, retry.Unresolved, nil})
		p := d.policy()
		_, err := retry.Submit(t.Context(), &p, d.send, d.lookup())
		require.ErrorIs(t, err, retry.ErrAttempts, "the look-up's own reason can be told")
		require.Equal(t, retry.ErrUnknownOutcome, stopped(t, err).Reason)
	})
	t.Run("a Resolution that is none is named", func(t *testing.T) {
		d := newDesk([]sent{{0, send}}, looked{0, 9, nil})
		p := d.policy()
		_, err := retry.Submit(t.Context(), &p, d.send, d.lookup())
		require.ErrorContains(t, err, "Find returned Resolution(9)")
	})
	t.Run("used-up resends are named", func(t *testing.T) {
		d := newDesk([]sent{{0, send}}, looked{0, retry.NotApplied, nil})
		p := d.policy()
		_, err := retry.Submit(t.Context(), &p, d.send, d.lookup())
		require.EqualError(t, err, "retry: gave up after 2 attempts in 1.014s: no resends left after proof that it was not applied: POST: status 504")
	})
}

func TestResolutionString(t *testing.T) {
	for r, want := range []string{"unresolved", "applied", "not applied", "rejected", "Resolution(4)"} {
		require.Equal(t, want, retry.Resolution(r).String())
	}
	var zero retry.Resolution
	require.Equal(t, retry.Unresolved, zero)
}

// The hint of a ban while looking up is the caller's to re-queue by, also where
// the send had one of its own.
func TestSubmitRetryAtIsTheLookUps(t *testing.T) {
	d := newDesk([]sent{{0, &retry.StatusError{Code: 503, After: time.Second}}}, looked{0, retry.Unresolved, retry.Suspended(errFind, time.Hour)})
	p := d.policy()
	_, err := retry.Submit(t.Context(), &p, d.send, d.lookup())
	require.Equal(t, d.start.Add(7*ms+time.Hour), stopped(t, err).RetryAt)
}

func TestSubmitCancelled(t *testing.T) {
	cause := errors.New("the user has left")
	tests := []struct {
		name    string
		err     error // of the send that is cancelled; nil: cancelled elsewhere
		at      string
		story   string
		unknown bool
	}{
		{"in flight", context.Canceled, "send", "send", true},
		{"in flight, and the answer proves it", retry.Permanent(errOp), "send", "send", false},
		{"in flight, as no rule knows", errOp, "send", "send", true},
		{"while it settles", errLost, "7ms", "send 7ms", true},
		{"while Find looks", errLost, "find", "send 7ms find", true},
		{"between look-ups", errLost, "100ms", "send 7ms find 100ms", true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			d := newDesk([]sent{{0, test.err}}, looked{0, retry.Unresolved, nil})
			meet := func() {
				if d.log[len(d.log)-1] == test.at {
					cancel(cause)
				}
			}
			p, l := d.policy(), d.lookup()
			p.Sleep = func(ctx context.Context, wait time.Duration) error {
				d.note(wait.String())
				meet()
				return d.Sleep(ctx, wait)
			}
			l.Find = func(ctx context.Context) (string, retry.Resolution, error) {
				v, r, err := d.find(ctx)
				meet()
				return v, r, err
			}
			v, err := retry.Submit(ctx, &p, func(ctx context.Context) (string, error) {
				v, err := d.send(ctx)
				meet()
				return v, err
			}, l)
			require.Equal(t, "sent 1", v)
			require.Equal(t, test.story, d.story())
			require.Equal(t, retry.ErrCanceled, stopped(t, err).Reason)
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, cause)
			require.ErrorIs(t, err, test.err)
			require.Equal(t, test.unknown, errors.Is(err, retry.ErrUnknownOutcome))
		})
	}
}

// After proof of absence a cancelled wait leaves nothing unknown.
func TestSubmitCancelledAfterProof(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d := newDesk([]sent{{0, errLost}}, looked{0, retry.NotApplied, nil})
	p := d.policy()
	p.Sleep = func(ctx context.Context, wait time.Duration) error {
		if wait == time.Second {
			cancel()
		}
		return d.sleep(ctx, wait)
	}
	_, err := retry.Submit(ctx, &p, d.send, d.lookup())
	require.Equal(t, "send 7ms find 1s", d.story())
	require.Equal(t, retry.ErrCanceled, stopped(t, err).Reason)
	require.NotErrorIs(t, err, retry.ErrUnknownOutcome)
}

// A duplicate that is refused after an unknown outcome may mean that the first
// send was applied. Where nobody could look any more that is unknown, and the
// journal does not end.
func TestSubmitRefusedDuplicateThatNobodyCouldLookUp(t *testing.T) {
	for _, at := range []string{"send", "7ms"} {
		ctx, cancel := context.WithCancel(t.Context())
		d := newDesk([]sent{{0, errLost}, {0, &retry.StatusError{Method: "POST", Code: 409}}}, looked{0, retry.NotApplied, nil})
		meet := func() {
			if d.sent == 2 && d.log[len(d.log)-1] == at {
				cancel()
			}
		}
		p := d.policy()
		p.Journal = new(retry.Journal)
		p.Sleep = func(ctx context.Context, wait time.Duration) error {
			d.note(wait.String())
			meet()
			return d.Sleep(ctx, wait)
		}
		_, err := retry.Submit(ctx, &p, func(ctx context.Context) (string, error) {
			v, err := d.send(ctx)
			meet()
			return v, err
		}, d.lookup())
		require.Equal(t, 2, d.sent)
		require.Equal(t, 2, d.looked)
		require.Equal(t, retry.ErrCanceled, stopped(t, err).Reason)
		require.ErrorIs(t, err, retry.ErrUnknownOutcome)
		require.False(t, p.Journal.State.Ended)

		// Whoever resumes finds the first.
		d.finds = []looked{{0, retry.Applied, nil}}
		p.Journal = restored(t, p.Journal.State)
		v, err := retry.Submit(t.Context(), &p, d.send, d.lookup())
		require.NoError(t, err)
		require.Equal(t, "found 3", v)
		require.Equal(t, 2, d.sent)
	}
}

// A ctx whose deadline has passed ends the look-up too, and leaves the outcome
// unknown.
func TestSubmitLookUpNeverOutlastsCtx(t *testing.T) {
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	d := newDesk([]sent{{0, errLost}}, looked{0, retry.Applied, nil})
	p, l := d.policy(), d.lookup()
	alive, kill := context.WithTimeout(t.Context(), time.Hour)
	defer kill()
	_, err := retry.Submit(later{alive, ctx, d}, &p, d.send, l)
	require.Equal(t, "send", d.story())
	require.Equal(t, retry.ErrDeadline, stopped(t, err).Reason)
	require.ErrorIs(t, err, retry.ErrUnknownOutcome)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// later is alive until its desk has seen a send, then as the other.
type later struct {
	context.Context
	then context.Context
	d    *desk
}

func (l later) Err() error {
	if l.d.sent > 0 {
		return l.then.Err()
	}
	return l.Context.Err()
}

// Find gets the caller's ctx: its values, its deadline, and neither the
// deadline of the send nor its own allowance's.
func TestSubmitFindsContext(t *testing.T) {
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "mine")
	d := newDesk([]sent{{0, errLost}}, looked{0, retry.Unresolved, nil})
	p, l := d.policy(), d.lookup()
	p.MaxElapsed = time.Second
	l.Policy.MaxElapsed = time.Hour
	var numbers []int
	l.Find = func(ctx context.Context) (string, retry.Resolution, error) {
		require.Equal(t, "mine", ctx.Value(key{}))
		at, ok := ctx.Deadline()
		require.True(t, ok)
		require.Greater(t, time.Until(at), 50*time.Minute)
		numbers = append(numbers, retry.Attempt(ctx))
		return d.find(ctx)
	}
	_, err := retry.Submit(ctx, &p, d.send, l)
	require.ErrorIs(t, err, retry.ErrUnknownOutcome)
	require.Equal(t, []int{1, 2, 3}, numbers)
}

// An operation with one attempt encloses the Submit: it has no retry, and Find
// may be asked again all the same. A loop inside Find has an allowance of its own.
func TestSubmitFindRunsOutsideTheAllowance(t *testing.T) {
	d := newDesk([]sent{{0, errLost}}, looked{0, retry.Unresolved, nil}, looked{0, retry.Unresolved, nil}, looked{0, retry.Applied, nil})
	p := d.policy()
	outer := retry.Policy{MaxAttempts: 1}
	v, err := retry.Do(t.Context(), &outer, func(ctx context.Context) (string, error) {
		return retry.Submit(ctx, &p, d.send, d.lookup())
	})
	require.NoError(t, err)
	require.Equal(t, "found 3", v)

	// Its sends spend it.
	d = newDesk([]sent{{0, errLost}}, looked{0, retry.NotApplied, nil})
	p = d.policy()
	_, err = retry.Do(t.Context(), &outer, func(ctx context.Context) (string, error) {
		return retry.Submit(ctx, &p, d.send, d.lookup())
	})
	require.Equal(t, "send 7ms find", d.story())
	require.ErrorIs(t, err, retry.ErrAttempts)
	require.NotErrorIs(t, err, retry.ErrUnknownOutcome)
}

// An enclosing loop takes the unknown outcome over, and does not repeat.
func TestSubmitInsideDo(t *testing.T) {
	d := newDesk([]sent{{0, errLost}}, looked{0, retry.Unresolved, errFind})
	p := d.policy()
	_, err := retry.Do(t.Context(), &retry.Policy{Effect: retry.Idempotent}, func(ctx context.Context) (string, error) {
		return retry.Submit(ctx, &p, d.send, d.lookup())
	})
	require.Equal(t, retry.ErrUnknownOutcome, stopped(t, err).Reason)
	require.Equal(t, 1, d.sent)
	require.ErrorIs(t, err, errFind)
}

// Submit inside Submit: what Find has cleared inside is proof outside.
func TestSubmitInsideSubmit(t *testing.T) {
	for _, test := range []struct {
		name  string
		find  looked
		outer string
	}{
		{"absent inside", looked{0, retry.NotApplied, nil}, ""},
		{"unknown inside", looked{0, retry.Unresolved, errFind}, "find"},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, out := newDesk([]sent{{0, errLost}}, test.find), newDesk(nil, looked{0, retry.Applied, nil})
			p, q, l := d.policy(), out.policy(), out.lookup()
			l.Settle = 0
			_, _ = retry.Submit(t.Context(), &q, func(ctx context.Context) (string, error) {
				return retry.Submit(ctx, &p, d.send, d.lookup())
			}, l)
			require.Equal(t, test.outer, out.story())
		})
	}
}

// fault B181: a panic passes through, the books are right, and the next operation works.
func TestSubmitPanics(t *testing.T) {
	d := newDesk([]sent{{0, errLost}, {0, nil}}, looked{0, retry.NotApplied, nil})
	p := d.policy()
	purse := &purse{tokens: 3}
	p.Budget = purse
	p.Journal = new(retry.Journal)

	t.Run("in send", func(t *testing.T) {
		require.PanicsWithValue(t, "send", func() {
			_, _ = retry.Submit(t.Context(), &p, func(context.Context) (string, error) { panic("send") }, d.lookup())
		})
		require.True(t, p.Journal.State.InFlight, "what became of it is not known")
	})
	t.Run("in Find", func(t *testing.T) {
		l := d.lookup()
		l.Find = func(context.Context) (string, retry.Resolution, error) { panic("find") }
		require.PanicsWithValue(t, "find", func() { _, _ = retry.Submit(t.Context(), &p, d.send, l) })
		require.Zero(t, d.sent, "what is in flight is looked up first")
	})
	t.Run("in Save", func(t *testing.T) {
		p.Journal.Save = func(context.Context, retry.State) error { panic("save") }
		require.PanicsWithValue(t, "save", func() { _, _ = retry.Submit(t.Context(), &p, d.send, d.lookup()) })
		require.Equal(t, 3, purse.Tokens(), "the retry was not sent")
		p.Journal.Save = nil
	})
	t.Run("the next works", func(t *testing.T) {
		v, err := retry.Submit(t.Context(), &p, func(ctx context.Context) (string, error) { return "new", nil }, d.lookup())
		require.NoError(t, err)
		require.Equal(t, "new", v)
		require.Equal(t, 2, p.Journal.State.Attempts)
	})
	t.Run("nil", func(t *testing.T) {
		require.Panics(t, func() { _, _ = retry.Submit(t.Context(), nil, d.send, retry.Lookup[string]{}) })
		require.Panics(t, func() { _, _ = retry.Submit(t.Context(), nil, nil, d.lookup()) })
		var none context.Context
		require.Panics(t, func() { _, _ = retry.Submit(none, nil, d.send, d.lookup()) })
	})
}

// The zero Policy and the zero Lookup but for Find: five look-ups in 30 seconds.
func TestSubmitDefaults(t *testing.T) {
	v, err := retry.Submit(t.Context(), nil, func(context.Context) (int, error) { return 7, nil },
		retry.Lookup[int]{Find: func(context.Context) (int, retry.Resolution, error) { return 0, retry.Applied, nil }})
	require.NoError(t, err)
	require.Equal(t, 7, v)

	d := newDesk([]sent{{0, errLost}}, looked{0, retry.Unresolved, nil})
	p := retry.Policy{Clock: d.Now, Sleep: d.sleep, Rand: constant(0.5)}
	_, err = retry.Submit(t.Context(), &p, d.send, retry.Lookup[string]{Find: d.find})
	require.Equal(t, "send find 100ms find 200ms find 400ms find 800ms find", d.story())
	require.ErrorIs(t, err, retry.ErrUnknownOutcome)
}

// The look-ups use their own Clock, Rand and Sleep where they have some.
func TestSubmitLookUpOwnClock(t *testing.T) {
	d, own := newDesk([]sent{{0, errLost}}, looked{0, retry.Unresolved, nil}, looked{0, retry.Applied, nil}), newClock()
	p, l := d.policy(), d.lookup()
	l.Policy.Clock, l.Policy.Sleep = own.Now, own.Sleep
	l.Policy.Backoff.Jitter, l.Policy.Rand = retry.FullJitter, constant(0.25)
	_, err := retry.Submit(t.Context(), &p, d.send, l)
	require.NoError(t, err)
	require.Equal(t, []time.Duration{25 * ms}, own.Slept())
	require.Equal(t, []time.Duration{7 * ms}, d.Slept())
	require.Empty(t, l.Policy.Name, "the caller's policy stays as it is")
	require.Zero(t, l.Policy.Effect)
}

func TestSubmitRecords(t *testing.T) {
	d := newDesk([]sent{{ms, errLost}, {2 * ms, retry.Throttled(errOp, 3*time.Second)}},
		looked{0, retry.NotApplied, nil}, looked{0, retry.NotApplied, nil}, looked{0, retry.Applied, nil})
	var watch, looks watcher
	p, l := d.policy(), d.lookup()
	p.Name, p.Observe, l.Policy.Observe = "order", watch.Observe, looks.Observe
	_, err := retry.Submit(t.Context(), &p, d.send, l)
	require.NoError(t, err)
	require.Equal(t, "send 7ms find 1s find send 3s find", d.story())

	type line struct {
		attempt  int
		class    retry.Class
		effect   retry.Effect
		duration time.Duration
		wait     time.Duration
		decision retry.Decision
	}
	lines := func(w *watcher) (all []line) {
		for _, r := range w.Records() {
			all = append(all, line{r.Attempt, r.Class, r.Effect, r.Duration, r.Wait, r.Decision})
		}
		return all
	}
	require.Equal(t, []line{
		{1, retry.ClassUnclassified, retry.Mutation, ms, time.Second, retry.Retrying},
		{2, retry.ClassThrottled, retry.Mutation, 2 * ms, 3 * time.Second, retry.Retrying},
		{2, 0, retry.Mutation, 0, 0, retry.Succeeded}, // found before the third send
	}, lines(&watch))
	require.Equal(t, []line{
		{1, 0, retry.ReadOnly, 0, 0, retry.Succeeded},
		{1, 0, retry.ReadOnly, 0, 0, retry.Succeeded},
		{1, 0, retry.ReadOnly, 0, 0, retry.Succeeded},
	}, lines(&looks))
	require.Equal(t, "order: look-up", looks.Last().Operation)

	// Found right after the send: its own record says so, with its error.
	d = newDesk([]sent{{0, errLost}}, looked{0, retry.Applied, nil})
	p, watch = d.policy(), watcher{}
	p.Observe = watch.Observe
	_, err = retry.Submit(t.Context(), &p, d.send, d.lookup())
	require.NoError(t, err)
	require.Len(t, watch.Records(), 1)
	require.Equal(t, retry.Succeeded, watch.Last().Decision)
	require.Equal(t, errLost, watch.Last().Err)

	// And what gives up says why.
	d = newDesk([]sent{{0, errLost}}, looked{0, retry.Unresolved, nil})
	p, watch = d.policy(), watcher{}
	p.Observe, p.Keep = watch.Observe, 5
	_, err = retry.Submit(t.Context(), &p, d.send, d.lookup())
	require.Equal(t, retry.GaveUp, watch.Last().Decision)
	require.Equal(t, retry.ErrUnknownOutcome, watch.Last().Reason)
	require.Equal(t, watch.Records(), stopped(t, err).Records)
}

// A resend spends from the budget as any retry does; what Find settles earns.
func TestSubmitBudget(t *testing.T) {
	tests := []struct {
		name   string
		tokens int
		finds  []looked
		story  string
		log    []string
		reason error
	}{
		{"a resend is spent", 1, []looked{{0, retry.NotApplied, nil}}, "send 7ms find 1s find send",
			[]string{"spend transient mutation 0s 1", "earn 1"}, nil},
		{"refused after proof: not unknown", 0, []looked{{0, retry.NotApplied, nil}}, "send 7ms find",
			[]string{"refuse transient mutation 0s 1"}, retry.ErrBudget},
		{"found before the resend: it goes back", 1, []looked{{0, retry.NotApplied, nil}, {0, retry.Applied, nil}}, "send 7ms find 1s find",
			[]string{"spend transient mutation 0s 1", "return 1", "earn 0"}, nil},
		{"rejected before the resend: it goes back", 1, []looked{{0, retry.NotApplied, nil}, {0, retry.Rejected, nil}}, "send 7ms find 1s find",
			[]string{"spend transient mutation 0s 1", "return 1"}, retry.ErrPermanent},
		{"found at once: earned", 0, []looked{{0, retry.Applied, nil}}, "send 7ms find", []string{"earn 0"}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := newDesk([]sent{{0, errLost}, {0, nil}}, test.finds...)
			purse := &purse{tokens: test.tokens}
			p := d.policy()
			p.Budget = purse
			_, err := retry.Submit(t.Context(), &p, d.send, d.lookup())
			require.Equal(t, test.story, d.story())
			require.Equal(t, test.log, purse.Log())
			if test.reason == nil {
				require.NoError(t, err)
				return
			}
			require.Equal(t, test.reason, stopped(t, err).Reason)
			require.NotErrorIs(t, err, retry.ErrUnknownOutcome)
		})
	}
}

// A cancelled answer may hold a value: the last of send comes with the error,
// not one that Find gave before it was sure.
func TestSubmitValueWithAnError(t *testing.T) {
	d := newDesk([]sent{{0, errLost}, {0, retry.Permanent(errOp)}}, looked{0, retry.NotApplied, nil})
	p := d.policy()
	v, err := retry.Submit(t.Context(), &p, d.send, d.lookup())
	require.ErrorIs(t, err, retry.ErrPermanent)
	require.Equal(t, "sent 2", v)
}
