package retry_test

// The loop against a model of it, written from the documents with numbers that
// have no limit. Every operand comes from its full range, or from so few values
// that every limit is met to the nanosecond.

import (
	"context"
	"errors"
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-3d0f8764/retry"
)

// turn is what happens in one attempt and the wait after it.
type turn struct {
	ok        bool
	verdict   retry.Verdict // as a Classifier says it: any numbers
	own       time.Duration // what Jitter returns: any
	u, spread float64       // draws
	ran, rest func(now time.Time, d time.Duration) time.Time
}

// world is an operation and its surroundings.
type world struct {
	policy  retry.Policy  // its numbers
	ctx     time.Duration // the deadline of ctx, from the start
	bounded bool          // it has one
	watched bool
	tokens  int // of its budget; <0: none
	turns   []turn
	start   time.Time // what Clock shows
}

// outcome is what became of it.
type outcome struct {
	calls   int
	slept   []time.Duration
	records []retry.Record
	tokens  int

	reason   error // nil: success
	attempts int
	elapsed  time.Duration
	unknown  bool
	retryAt  time.Time
}

func TestLoopAgreesWithItsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) { // real time stands still
			w := drawWorld(t)
			got, want := w.run(t), w.model()
			require.Equal(t, want, got)
		})
	})
}

// Whatever the numbers of a Policy with the real strategies: it never panics,
// never waits a negative time, keeps to its attempts and its deadline, and
// sleeps what it recorded, bit for bit. On the default clock, too, in fake time.
func TestAnyPolicyKeepsToItsLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			number := rapid.OneOf(rapid.IntRange(-2, 9), rapid.Int())
			backoff := func(name string) retry.Backoff {
				return retry.Backoff{Base: anyDuration(t, name+" Base"), Cap: anyDuration(t, name+" Cap"), Multiplier: rapid.Float64().Draw(t, name), Jitter: drawJitter(t)}
			}
			clock, watch := newClock(), &watcher{}
			p := retry.Policy{
				Effect: retry.ReadOnly, Backoff: backoff("Backoff"), Throttle: backoff("Throttle"),
				Spread: anyDuration(t, "Spread"), MaxAttempts: number.Draw(t, "MaxAttempts"), MaxElapsed: anyDuration(t, "MaxElapsed"),
				AttemptTimeout: anyDuration(t, "AttemptTimeout"), MinTimeout: anyDuration(t, "MinTimeout"), MaxHint: anyDuration(t, "MaxHint"),
				Keep: number.Draw(t, "Keep"), Observe: watch.Observe, Rand: func() float64 { return rapid.Float64().Draw(t, "u") },
			}
			begin, elapsed := time.Now(), clock.Elapsed
			run := func(d time.Duration) { clock.Advance(d) }
			var slept []time.Duration
			if rapid.Bool().Draw(t, "default clock") {
				elapsed = func() time.Duration { return time.Since(begin) }
				run = time.Sleep
				p.Sleep = func(_ context.Context, d time.Duration) error {
					slept = append(slept, d)
					time.Sleep(d)
					return nil
				}
				// A bubble's clock ends in 2262.
				century := time.Duration(876000 * time.Hour)
				p.MaxElapsed = min(max(0, p.MaxElapsed), century)
			} else {
				p.Clock, p.Sleep = clock.Now, func(ctx context.Context, d time.Duration) error {
					slept = append(slept, d)
					return clock.Sleep(ctx, d)
				}
			}
			calls := 0
			_, err := retry.Do(context.Background(), &p, func(ctx context.Context) (int, error) {
				if calls++; calls == 12 {
					return 0, nil
				}
				takes := rapid.SampledFrom([]time.Duration{0, 1, time.Second, math.MaxInt64 / 100}).Draw(t, "takes")
				if until, ok := ctx.Deadline(); ok {
					require.Greater(t, time.Until(until), time.Duration(0))
					takes = min(takes, time.Until(until)) // it keeps to its deadline
				}
				run(takes)
				return 0, retry.Throttled(errOp, anyDuration(t, "hint"))
			})
			require.Equal(t, slept, watch.Waits())
			for _, d := range slept {
				require.GreaterOrEqual(t, d, time.Duration(0))
			}
			for _, r := range watch.Records() {
				require.GreaterOrEqual(t, r.Spread, time.Duration(0))
				if r.Decision == retry.Retrying {
					require.GreaterOrEqual(t, r.Wait, max(r.OwnWait, r.Hint), "neither is shortened")
				}
			}
			if p.MaxElapsed >= 0 {
				require.LessOrEqual(t, elapsed(), or(p.MaxElapsed, 30*time.Second))
			}
			if p.MaxAttempts >= 0 {
				most := p.MaxAttempts
				if most == 0 {
					most = 5
				}
				require.LessOrEqual(t, calls, most)
			}
			if err != nil {
				require.Equal(t, calls, stopped(t, err).Attempts)
			}
		})
	})
}

func drawWorld(t *rapid.T) *world {
	duration := rapid.SampledFrom([]func(*rapid.T, string) time.Duration{smallDuration, smallDuration, anyDuration}).Draw(t, "range")
	limit := func(t *rapid.T, name string) time.Duration { // of time: mostly for several attempts
		if rapid.IntRange(0, 2).Draw(t, "wide "+name) > 0 {
			return time.Duration(rapid.Int64Range(10, 80).Draw(t, name))
		}
		return duration(t, name)
	}
	backoff := func(name string) retry.Backoff {
		return retry.Backoff{Base: duration(t, name+" Base"), Cap: duration(t, name+" Cap"),
			Multiplier: rapid.SampledFrom([]float64{0, 1, 3, 1.5, math.NaN(), math.Inf(1), -2}).Draw(t, name+" Multiplier")}
	}
	effects := []int{0, 0, 1, 2, 3, 3, 3, 4, 255}
	classes := []int{2, 2, 3, 3, 3, 5, 5, 0, 1, 4, 6, 255}
	if rapid.IntRange(0, 3).Draw(t, "calm") > 0 { // for more than one attempt
		effects, classes = []int{2, 3}, []int{2, 3, 3, 5}
	}
	number := rapid.SampledFrom([]int{0, 0, 1, 2, 3, 6, -1, math.MaxInt, math.MinInt, math.MaxInt32})
	w := &world{
		policy: retry.Policy{
			Effect:         retry.Effect(rapid.SampledFrom(effects).Draw(t, "Effect")),
			Backoff:        backoff("Backoff"),
			Spread:         duration(t, "Spread"),
			MaxAttempts:    number.Draw(t, "MaxAttempts"),
			MaxElapsed:     limit(t, "MaxElapsed"),
			AttemptTimeout: duration(t, "AttemptTimeout"),
			MinTimeout:     duration(t, "MinTimeout"),
			MaxHint:        limit(t, "MaxHint"),
			Keep:           number.Draw(t, "Keep"),
		},
		bounded: rapid.IntRange(0, 2).Draw(t, "ctx has a deadline") == 0,
		watched: rapid.Bool().Draw(t, "watched"),
		tokens:  rapid.SampledFrom([]int{-1, -1, 0, 1, 2, 9}).Draw(t, "tokens"),
		start:   rapid.SampledFrom(instants).Draw(t, "start"),
	}
	if rapid.Bool().Draw(t, "Throttle") {
		w.policy.Throttle = backoff("Throttle")
	}
	if w.bounded {
		w.ctx = limit(t, "deadline of ctx")
	}
	step := func(name string) func(time.Time, time.Duration) time.Time {
		switch rapid.IntRange(0, 9).Draw(t, name) {
		case 0: // stands still
			return func(now time.Time, _ time.Duration) time.Time { return now }
		case 1: // jumps
			to := rapid.SampledFrom(instants).Draw(t, name+" to")
			return func(time.Time, time.Duration) time.Time { return to }
		case 2, 3, 4: // goes by any step, backwards too
			by := duration(t, name+" by")
			return func(now time.Time, _ time.Duration) time.Time { return now.Add(by) }
		default: // goes by what it should: a wait, or nothing for an attempt
			return func(now time.Time, d time.Duration) time.Time { return now.Add(d) }
		}
	}
	for range rapid.IntRange(1, 7).Draw(t, "turns") {
		w.turns = append(w.turns, turn{
			ok: rapid.IntRange(0, 9).Draw(t, "ok") == 9,
			verdict: retry.Verdict{
				Class:  retry.Class(rapid.SampledFrom(classes).Draw(t, "class")),
				Effect: retry.Effect(rapid.SampledFrom(effects).Draw(t, "effect")),
				After:  duration(t, "hint"),
			},
			own:    duration(t, "own"),
			u:      rapid.SampledFrom([]float64{0, 0.5, 1, math.NaN()}).Draw(t, "u"),
			spread: rapid.SampledFrom([]float64{0, 0.25, 0.5, 1, math.Inf(1), -1}).Draw(t, "spread"),
			ran:    step("ran"),
			rest:   step("rest"),
		})
	}
	w.turns = append(w.turns, turn{ok: true, ran: step("ran")})
	return w
}

// instants are far apart, the zero time among them.
var instants = []time.Time{
	{}, time.Unix(0, 0), time.Unix(1e9, 999999999), newClock().Now(), time.Unix(-1<<62, 0), time.Unix(1<<62, 0),
	time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
}

// run is the loop itself.
func (w *world) run(t *rapid.T) (o outcome) {
	p, now, watch := w.policy, w.start, &watcher{}
	var draws []float64
	p.Clock = func() time.Time { return now }
	p.Classify = asItSays
	p.Rand = func() float64 {
		u := draws[0]
		draws = draws[1:]
		return u
	}
	own := func(retry.Step) time.Duration { return w.turns[o.calls-1].own }
	p.Backoff.Jitter = own
	if differs(p.Throttle) {
		p.Throttle.Jitter = own
	}
	p.Sleep = func(_ context.Context, d time.Duration) error {
		require.GreaterOrEqual(t, d, time.Duration(0))
		o.slept = append(o.slept, d)
		now = w.turns[o.calls-1].rest(now, d)
		return nil
	}
	if p.Observe = watch.Observe; !w.watched {
		p.Observe, p.Keep = nil, 0
	}
	budget := &purse{tokens: w.tokens}
	if w.tokens >= 0 {
		p.Budget = budget
	}
	ctx := context.Background()
	if w.bounded {
		ctx = farCtx{ctx, time.Now().Add(w.ctx)}
	}
	_, err := retry.Do(ctx, &p, func(context.Context) (int, error) {
		o.calls++
		turn := w.turns[o.calls-1]
		draws = []float64{turn.u, turn.spread}
		now = turn.ran(now, 0)
		if turn.ok {
			return 0, nil
		}
		return 0, verdictError(turn.verdict)
	})
	o.records, o.tokens = watch.Records(), budget.tokens
	for i := range o.records {
		o.records[i].Err, o.records[i].Draw, o.records[i].Window = nil, 0, 0 // of others
	}
	if err == nil {
		return o
	}
	e := stopped(t, err)
	o.reason, o.attempts, o.elapsed, o.retryAt = e.Reason, e.Attempts, e.Elapsed, e.RetryAt
	o.unknown = errors.Is(err, retry.ErrUnknownOutcome)
	require.Len(t, e.Records, min(max(0, p.Keep), len(o.records)))
	return o
}

// model says what run must come to.
func (w *world) model() (o outcome) {
	p := w.policy
	m := modelled{now: w.start, elapsed: new(big.Int)}
	if p.MaxElapsed >= 0 {
		m.deadline = number(or(p.MaxElapsed, 30*time.Second))
	}
	if w.bounded && (m.deadline == nil || number(w.ctx).Cmp(m.deadline) < 0) {
		m.deadline = number(w.ctx)
	}
	m.least = max(0, p.MinTimeout)
	if p.MinTimeout == 0 {
		m.least = max(0, p.AttemptTimeout)
		if m.deadline != nil {
			half := new(big.Int).Quo(m.deadline, big.NewInt(2))
			if half.Sign() < 0 {
				half.SetInt64(0)
			}
			if number(m.least).Cmp(half) > 0 {
				m.least = time.Duration(half.Int64())
			}
		}
	}
	most := p.MaxAttempts
	if most == 0 {
		most = 5
	}
	left := func() int {
		if most < 0 {
			return -1
		}
		return most - o.calls
	}
	effect := p.Effect
	if effect > retry.ReadOnly {
		effect = retry.Unstated
	}
	// Nobody needs a clock before attempt 1 has failed.
	late := !w.watched && m.deadline == nil && p.AttemptTimeout <= 0
	o.tokens = w.tokens

	end := func(r retry.Record, reason error) outcome {
		r.Decision, r.Reason = retry.GaveUp, reason
		if w.watched {
			o.records = append(o.records, r)
		}
		o.reason, o.attempts, o.elapsed = reason, o.calls, m.shown()
		o.unknown = o.unknown || reason == retry.ErrUnknownOutcome
		return o
	}
	for {
		// Enter.
		between := retry.Record{Attempt: o.calls, Start: m.now, Effect: effect, Elapsed: m.shown(), TimeLeft: m.left(), AttemptsLeft: left()}
		if o.calls == 0 && m.deadline != nil && m.deadline.Sign() <= 0 || o.calls > 0 && !m.fits(new(big.Int)) {
			if o.calls > 0 && w.tokens >= 0 {
				o.tokens++ // the retry is not sent
			}
			return end(between, retry.ErrDeadline)
		}
		turn := w.turns[o.calls]
		o.calls++
		began, start := m.shown(), m.now
		var timeout time.Duration
		if p.AttemptTimeout > 0 {
			timeout = p.AttemptTimeout
		}
		if m.deadline != nil && (timeout == 0 || m.left() < timeout) {
			timeout = m.left()
		}

		// Call.
		after := turn.ran(m.now, 0)
		if late && o.calls == 1 {
			m.now = after
			start = after
		}
		m.read(after, 0)
		r := retry.Record{Attempt: o.calls, Start: start, Duration: m.shown() - began, Timeout: timeout,
			Elapsed: m.shown(), TimeLeft: m.left(), AttemptsLeft: left()}
		if turn.ok {
			if r.Effect, r.Decision = effect, retry.Succeeded; w.watched {
				o.records = append(o.records, r)
			}
			o.unknown, o.retryAt = false, time.Time{}
			return o
		}

		// Classify.
		r.Class, r.Hint = turn.verdict.Class, max(0, turn.verdict.After)
		if r.Class > retry.ClassUnknown {
			r.Class = retry.ClassUnclassified
		}
		if r.Class == retry.ClassUnclassified && timeout > 0 && r.Duration >= timeout {
			r.Class = retry.ClassUnknown
		}
		if r.Effect = effect; effect == retry.Unstated && turn.verdict.Effect <= retry.ReadOnly {
			r.Effect = turn.verdict.Effect
		}
		if o.retryAt = (time.Time{}); r.Hint > 0 {
			o.retryAt = m.now.Add(r.Hint)
		}
		repeatable := r.Effect == retry.Idempotent || r.Effect == retry.ReadOnly
		o.unknown = o.unknown || r.Class == retry.ClassUnknown && r.Effect != retry.ReadOnly

		// Decide.
		switch {
		case r.Class == retry.ClassUnclassified:
			return end(r, retry.ErrUnclassified)
		case r.Class == retry.ClassPermanent:
			return end(r, retry.ErrPermanent)
		case r.Class == retry.ClassSuspended:
			return end(r, retry.ErrSuspended)
		case r.Class == retry.ClassUnknown && !repeatable:
			return end(r, retry.ErrUnknownOutcome)
		case left() == 0:
			return end(r, retry.ErrAttempts)
		case p.MaxHint >= 0 && r.Hint > or(p.MaxHint, time.Minute):
			return end(r, retry.ErrHint)
		}
		wait := m.wait(&p, &turn, &r)
		switch {
		case !m.fits(wait):
			return end(r, retry.ErrDeadline)
		case o.tokens == 0:
			return end(r, retry.ErrBudget)
		}
		if o.tokens > 0 {
			o.tokens--
		}
		if r.Decision = retry.Retrying; w.watched {
			o.records = append(o.records, r)
		}

		// Sleep.
		o.slept = append(o.slept, r.Wait)
		m.read(turn.rest(m.now, r.Wait), r.Wait)
	}
}

// modelled is the time of an operation, in numbers without limit.
type modelled struct {
	now      time.Time
	elapsed  *big.Int
	deadline *big.Int // from the start; nil: none
	least    time.Duration
}

// read lets elapsed grow by the clock's step, by at least least.
func (m *modelled) read(now time.Time, least time.Duration) {
	step := new(big.Int).Sub(nanoseconds(now), nanoseconds(m.now))
	if step.Cmp(number(math.MaxInt64)) > 0 {
		step = number(math.MaxInt64) // the longest difference of two times that there is
	}
	if step.Cmp(number(least)) < 0 {
		step = number(least)
	}
	m.elapsed.Add(m.elapsed, step)
	m.now = now
}

// fits is the predicate: now + wait + least <= deadline and now + wait < deadline.
func (m *modelled) fits(wait *big.Int) bool {
	if m.deadline == nil {
		return true
	}
	start := new(big.Int).Add(m.elapsed, wait)
	return start.Cmp(m.deadline) < 0 && new(big.Int).Add(start, number(m.least)).Cmp(m.deadline) <= 0
}

// wait fills in the own wait, the spread and the wait of r, and returns it.
func (m *modelled) wait(p *retry.Policy, turn *turn, r *retry.Record) *big.Int {
	b := p.Backoff
	if r.Class == retry.ClassThrottled && differs(p.Throttle) {
		b = p.Throttle
	}
	limit := or(b.Cap, 30*time.Second)
	if limit < 0 {
		limit = math.MaxInt64
	}
	if r.OwnWait = min(max(0, turn.own), limit); b.Base < 0 {
		r.OwnWait = 0
	}
	wait := number(r.OwnWait)
	if r.Hint > 0 {
		if p.Spread >= 0 {
			width := number(or(p.Spread, max(time.Second, r.Hint/10)))
			if most := new(big.Int).Sub(number(math.MaxInt64), number(r.Hint)); width.Cmp(most) > 0 {
				width = most // no wait is longer than the longest duration
			}
			if m.deadline != nil {
				// The largest w with hint + w + least <= left and hint + w < left.
				room := new(big.Int).Sub(m.deadline, m.elapsed)
				room.Sub(room, number(r.Hint))
				room.Sub(room, number(max(m.least, 1)))
				if room.Sign() < 0 {
					room.SetInt64(0)
				}
				if width.Cmp(room) > 0 {
					width = room
				}
			}
			r.Spread = retry.FullJitter(retry.Step{Window: time.Duration(width.Int64()), Draw: turn.spread})
		}
		if hinted := new(big.Int).Add(number(r.Hint), number(r.Spread)); hinted.Cmp(wait) > 0 {
			wait = hinted
		}
	}
	r.Wait = time.Duration(wait.Int64())
	return wait
}

// differs reports whether a Throttle is one of its own.
func differs(b retry.Backoff) bool { return b.Base != 0 || b.Cap != 0 || b.Multiplier != 0 }

// shown is elapsed as a Duration can show it.
func (m *modelled) shown() time.Duration {
	if !m.elapsed.IsInt64() {
		return math.MaxInt64
	}
	return time.Duration(m.elapsed.Int64())
}

// left is Record.TimeLeft.
func (m *modelled) left() time.Duration {
	if m.deadline == nil {
		return -1
	}
	left := new(big.Int).Sub(m.deadline, m.elapsed)
	if left.Sign() < 0 {
		return 0
	}
	return time.Duration(left.Int64())
}

func number(d time.Duration) *big.Int { return big.NewInt(int64(d)) }

func nanoseconds(t time.Time) *big.Int {
	n := new(big.Int).Mul(big.NewInt(t.Unix()), big.NewInt(1e9))
	return n.Add(n, big.NewInt(int64(t.Nanosecond())))
}

// or resolves a field of which zero means the default.
func or(d, byDefault time.Duration) time.Duration {
	if d == 0 {
		return byDefault
	}
	return d
}
