package retry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/seed-3d0f8764/retry"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The text of an error is a contract (fault B185): one for each reason.
func TestErrorTexts(t *testing.T) {
	canceled, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("shutting down"))
	expired, cancelExpired := context.WithDeadlineCause(t.Context(), time.Unix(0, 0), errors.New("the batch is over"))
	defer cancelExpired()
	busy := &retry.StatusError{Method: "GET", Code: 429, After: 2 * time.Minute}

	for _, c := range []struct {
		name   string
		ctx    context.Context
		policy retry.Policy
		draws  []float64
		err    error
		reason error
		text   string
	}{
		{"unclassified", nil, retry.Policy{}, nil, fmt.Errorf("read: %w", errOp), retry.ErrUnclassified,
			"retry: stopped after 1 attempt in 1.5s: no rule knows *errors.errorString (see retry.ErrUnclassified; retry.Always if harmless): read: op failed"},
		{"unclassified, a status", nil, retry.Policy{}, nil, fmt.Errorf("read: %w", &retry.StatusError{Method: "GET", Code: 501}), retry.ErrUnclassified,
			"retry: stopped after 1 attempt in 1.5s: no rule knows status 501 of *retry.StatusError (see retry.ErrUnclassified; retry.Always if harmless): read: GET: status 501"},
		{"on one line", nil, retry.Policy{}, nil, retry.Permanent(errors.Join(errOp, errors.New("\r\nb\n"))), retry.ErrPermanent,
			"retry: stopped after 1 attempt in 1.5s: permanent: op failed; b"},
		{"permanent", nil, retry.Policy{Name: "balance"}, nil, retry.Permanent(errOp), retry.ErrPermanent,
			"retry: balance: stopped after 1 attempt in 1.5s: permanent: op failed"},
		{"suspended", nil, retry.Policy{}, nil, retry.Suspended(errOp, 10*time.Minute), retry.ErrSuspended,
			"retry: stopped after 1 attempt in 1.5s: suspended for 10m0s: op failed"},
		{"suspended, nobody said for how long", nil, retry.Policy{}, nil, retry.Suspended(errOp, 0), retry.ErrSuspended,
			"retry: stopped after 1 attempt in 1.5s: suspended: op failed"},
		{"unknown", nil, retry.Policy{}, nil, retry.Unknown(errOp), retry.ErrUnknownOutcome,
			"retry: stopped after 1 attempt in 1.5s: outcome unknown, it may have been applied and is not safe to repeat: op failed"},
		{"attempts", nil, retry.Policy{MaxAttempts: 2}, []float64{0}, retry.Transient(errOp), retry.ErrAttempts,
			"retry: gave up after 2 attempts in 3s: no attempts left: op failed"},
		{"hint", nil, retry.Policy{}, nil, busy, retry.ErrHint,
			"retry: gave up after 1 attempt in 1.5s: the server asks for 2m0s, MaxHint is 1m0s: GET: status 429"},
		{"deadline, end", nil, retry.Policy{MaxElapsed: 3 * time.Second, MinTimeout: time.Second, Backoff: retry.Backoff{Base: time.Second, Jitter: retry.NoJitter}},
			[]float64{0}, retry.Transient(errOp), retry.ErrDeadline,
			"retry: gave up after 1 attempt in 1.5s: the next would end 500ms past the deadline: op failed"},
		{"deadline, start", nil, retry.Policy{MaxElapsed: 2 * time.Second, Backoff: retry.Backoff{Base: time.Second, Jitter: retry.NoJitter}},
			[]float64{0}, retry.Transient(errOp), retry.ErrDeadline,
			"retry: gave up after 1 attempt in 1.5s: the next would start 500ms past the deadline: op failed"},
		{"deadline, to the nanosecond", nil, retry.Policy{MaxElapsed: 2500 * time.Millisecond, Backoff: retry.Backoff{Base: time.Second, Jitter: retry.NoJitter}},
			[]float64{0}, retry.Transient(errOp), retry.ErrDeadline,
			"retry: gave up after 1 attempt in 1.5s: the next would start at the deadline: op failed"},
		{"deadline, overrun", nil, retry.Policy{MaxElapsed: time.Second}, []float64{0}, retry.Transient(errOp), retry.ErrDeadline,
			"retry: gave up after 1 attempt in 1.5s: the deadline has passed: op failed"},
		{"deadline of ctx", expired, retry.Policy{}, nil, nil, retry.ErrDeadline,
			"retry: not attempted: the deadline has passed: the batch is over"},
		{"canceled", canceled, retry.Policy{Name: "pay"}, nil, nil, retry.ErrCanceled,
			"retry: pay: not attempted: shutting down"},
		{"budget", nil, retry.Policy{Budget: &purse{}}, []float64{0}, retry.Transient(errOp), retry.ErrBudget,
			"retry: gave up after 1 attempt in 1.5s: the local retry budget refuses: purse is empty: op failed"},
		{"unknown beside another reason", nil, retry.Policy{Effect: retry.Idempotent, MaxAttempts: 1}, nil, retry.Unknown(errOp), retry.ErrAttempts,
			"retry: gave up after 1 attempt in 1.5s: no attempts left; outcome unknown, it may have been applied: op failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := newClock()
			clock.drive(t, &c.policy, c.draws...)
			ctx := c.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			_, err := retry.Do(ctx, &c.policy, clock.script(failure(1500*ms, c.err)).Do)
			require.EqualError(t, err, c.text)
			require.Equal(t, c.reason, stopped(t, err).Reason)
			for _, reason := range allReasons {
				if reason != retry.ErrUnknownOutcome {
					require.Equal(t, reason == c.reason, errors.Is(err, reason), "Is %v", reason)
				}
			}
			require.Equal(t, stopped(t, err).Last, errors.Unwrap(err), "fault B186")
		})
	}
}

var allReasons = []error{retry.ErrUnclassified, retry.ErrPermanent, retry.ErrSuspended, retry.ErrUnknownOutcome, retry.ErrAttempts,
	retry.ErrHint, retry.ErrDeadline, retry.ErrBudget, retry.ErrCanceled, retry.ErrJournal}

// incomparable is an error that panics if someone compares it by ==.
type incomparable []string

func (e incomparable) Error() string { return strings.Join(e, " ") }

func TestErrorsOfAnyTypeAreFoundWithoutPanic(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	err := retry.Run(ctx, &retry.Policy{Effect: retry.ReadOnly}, func(context.Context) error {
		cancel(incomparable{"why"})
		return incomparable{"what"}
	})
	require.NotErrorIs(t, err, incomparable{"x"})
	require.ErrorIs(t, err, context.Canceled)
	var found incomparable
	require.ErrorAs(t, err, &found)
	require.Equal(t, incomparable{"what"}, found)
	require.NotErrorIs(t, errors.Join(retry.Permanent(incomparable{"a"})), retry.Permanent(incomparable{"a"}))
}

// fault B156: no secret of a URL in any text, however deep and often it stands
// there; host and path stay.
func TestTextsLoseUserinfoAndQuery(t *testing.T) {
	const raw = "http://user:s3cret@host.example/path?token=s3cret#s3cret"
	inner := &url.Error{Op: "Get", URL: raw, Err: errors.New("refused")}
	longer := &url.Error{Op: "Get", URL: raw + "&more=s3cret", Err: errors.New("refused")}
	for name, err := range map[string]error{
		"plain":     inner,
		"wrapped":   fmt.Errorf("call: %w", inner),
		"joined":    errors.Join(errOp, inner, longer),
		"in text":   fmt.Errorf("GET %s and %q: %w", raw, raw, inner),
		"prefix":    errors.Join(longer, inner),
		"nested":    &url.Error{Op: "Post", URL: "https://a:s3cret@b.example/?s3cret", Err: inner},
		"quoted":    &url.Error{Op: "Get", URL: "http://u:s3cret\x00\"@host.example/path?s3cret", Err: errOp},
		"malformed": &url.Error{Op: "parse", URL: "http://us?er:s3cret/#@host.example:x/path?s3cret", Err: errOp},
		"opaque":    &url.Error{Op: "Get", URL: "user:s3cret@host.example/path", Err: errOp},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			logged := retry.LogRecords(slog.New(slog.NewJSONHandler(&log, nil)))
			p := retry.Policy{Name: "call", Observe: logged, Keep: 1, Budget: &purse{}, Classify: retry.Always}
			outer := retry.Policy{Observe: logged}
			got := retry.Run(t.Context(), &outer, func(ctx context.Context) error {
				return retry.Run(ctx, &p, func(context.Context) error { return err })
			})
			text := got.Error() + log.String() + fmt.Sprint(stopped(t, got)) +
				stopped(t, stopped(t, got).Last).Records[0].LogValue().String() +
				fmt.Sprintf("%v %+v", stopped(t, stopped(t, got).Last).Records, stopped(t, stopped(t, got).Last).Records[0])
			require.NotContains(t, text, "s3cret")
			if name != "malformed" { // by the rules of URLs its host is "us"
				require.Contains(t, got.Error(), "host.example")
			}
			require.ErrorIs(t, got, err, "the error itself is as it was")
		})
	}
}

func TestNoSecretOfAURLIsEverInAText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret := "Zq" + rapid.StringMatching(`[a-z0-9%/?#@: \\"&=]{0,8}`).Draw(t, "secret") + "qZ"
		raw := rapid.SampledFrom([]string{
			"http://user:" + secret + "@host.example/path",
			"http://" + secret + "@host.example/path",
			"http://host.example/path?key=" + secret,
		}).Draw(t, "url")
		if u, err := url.Parse(raw); err == nil && (strings.Contains(u.Host+u.Path, "Zq") || strings.Contains(u.Host+u.Path, "qZ")) {
			t.Skip("part of it stands in the path, by the rules of URLs")
		}
		err := fmt.Errorf("call: %w", &url.Error{Op: "Get", URL: raw, Err: errOp})
		got := retry.Run(context.Background(), nil, func(context.Context) error { return err })
		text := got.Error()
		if strings.Contains(text, "Zq") || strings.Contains(text, "qZ") {
			t.Fatalf("%q shows %q: %s", raw, secret, text)
		}
	})
}

// The error carries the last Keep records, oldest first.
func TestErrorKeepsTheLastRecords(t *testing.T) {
	for _, c := range []struct{ keep, attempts, from int }{
		{0, 5, 6}, {-1, 5, 6}, {1, 5, 5}, {2, 5, 4}, {4, 5, 2}, {5, 5, 1}, {6, 5, 1}, {math.MaxInt, 5, 1}, {3, 10, 8},
	} {
		clock, watch := newClock(), &watcher{}
		p := retry.Policy{Keep: c.keep, MaxAttempts: c.attempts, Observe: watch.Observe, Backoff: retry.Backoff{Base: -1}}
		p.Clock, p.Sleep, p.Rand = clock.Now, clock.Sleep, constant(0.25)
		_, err := retry.Do(t.Context(), &p, clock.script(failure(ms, retry.Transient(errOp))).Do)
		require.Equal(t, watch.Records()[min(c.from-1, c.attempts):], append([]retry.Record{}, stopped(t, err).Records...), "%+v", c)
	}
}

// faults B150, B152, B153: an event for what happened, none for what did not.
func TestRecordsSayWhatHappened(t *testing.T) {
	decisions := func(w *watcher) (d []string) {
		for _, r := range w.Records() {
			d = append(d, fmt.Sprint(r.Attempt, " ", r.Decision))
		}
		return d
	}
	clock, watch := newClock(), &watcher{}
	p := retry.Policy{MaxAttempts: 3, Observe: watch.Observe}
	clock.drive(t, &p, 0.5, 0.5)
	_, err := retry.Do(t.Context(), &p, clock.script(failure(0, retry.Transient(errOp))).Do)
	require.Error(t, err)
	require.Equal(t, []string{"1 retrying", "2 retrying", "3 gave up"}, decisions(watch))

	clock, watch = newClock(), &watcher{}
	ctx, cancel := context.WithCancel(t.Context())
	p = retry.Policy{Observe: watch.Observe}
	clock.drive(t, &p, 0.5)
	p.Sleep = func(ctx context.Context, d time.Duration) error {
		cancel()
		return ctx.Err()
	}
	_, err = retry.Do(ctx, &p, clock.script(failure(0, retry.Transient(errOp))).Do)
	require.Equal(t, 1, stopped(t, err).Attempts)
	require.Equal(t, []string{"1 retrying", "1 gave up"}, decisions(watch))
	require.Zero(t, watch.Last().Duration)
}

// The wait recorded is the wait slept, bit for bit.
func TestTheWaitRecordedIsTheWaitSlept(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		clock, watch := newClock(), &watcher{}
		p := retry.Policy{MaxAttempts: 6, MaxElapsed: -1, MaxHint: -1, Observe: watch.Observe, Throttle: retry.Backoff{Jitter: retry.ElapsedJitter}}
		p.Backoff.Jitter = rapid.SampledFrom([]retry.Jitter{nil, retry.EqualJitter, retry.DecorrelatedJitter, retry.ElapsedJitter, retry.NoJitter}).Draw(rt, "jitter")
		p.Clock, p.Sleep = clock.Now, clock.Sleep
		p.Rand = func() float64 { return rapid.Float64Range(0, 0.999).Draw(rt, "u") }
		hint := rapid.Int64Range(0, math.MaxInt64)
		retry.Run(context.Background(), &p, func(context.Context) error {
			return retry.Throttled(errOp, time.Duration(hint.Draw(rt, "hint")))
		})
		var waits []time.Duration
		for _, r := range watch.Records() {
			if r.Decision == retry.Retrying {
				require.Equal(rt, max(r.OwnWait, r.Hint+min(r.Spread, math.MaxInt64-r.Hint)), r.Wait)
				waits = append(waits, r.Wait)
			}
		}
		require.Equal(rt, clock.Slept(), waits)
	})
}

func TestLogRecordsLevelsAndFields(t *testing.T) {
	var out bytes.Buffer
	h := slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	p := retry.Policy{Name: "balance", Effect: retry.ReadOnly, Observe: retry.LogRecords(slog.New(h))}
	clock := newClock()
	clock.drive(t, &p, 0.5, 0.25)
	_, err := retry.Do(t.Context(), &p, clock.script(
		failure(ms, &retry.StatusError{Code: 429, After: time.Second}), success(2*ms)).Do)
	require.NoError(t, err)
	p.Rand = nil
	_, err = retry.Do(t.Context(), &p, clock.script(success(0)).Do)
	require.NoError(t, err)
	require.Error(t, retry.Run(t.Context(), &p, func(context.Context) error { return errOp }))
	require.Equal(t, `level=WARN msg="retry: retrying" retry.operation=balance retry.attempt=1 retry.took=1ms retry.error="status 429" retry.class=throttled retry.effect=read-only retry.timeout=30s retry.window=200ms retry.own_wait=100ms retry.hint=1s retry.spread=250ms retry.wait=1.25s retry.elapsed=1ms retry.time_left=29.999s retry.attempts_left=4 retry.decision=retrying
level=INFO msg="retry: succeeded" retry.operation=balance retry.attempt=2 retry.took=2ms retry.timeout=28.749s retry.elapsed=1.253s retry.time_left=28.747s retry.attempts_left=3 retry.decision=succeeded
level=DEBUG msg="retry: succeeded" retry.operation=balance retry.attempt=1 retry.took=0s retry.timeout=30s retry.elapsed=0s retry.time_left=30s retry.attempts_left=4 retry.decision=succeeded
level=WARN msg="retry: gave up" retry.operation=balance retry.attempt=1 retry.took=0s retry.error="op failed" retry.class=unclassified retry.effect=read-only retry.timeout=30s retry.elapsed=0s retry.time_left=30s retry.attempts_left=4 retry.decision="gave up" retry.reason="retry: unclassified error"
`, out.String())
}

// A Record prints as one line, in %v and %+v and in a slice of them.
func TestRecordStrings(t *testing.T) {
	clock, watch := newClock(), &watcher{}
	p := retry.Policy{Name: "balance", MaxAttempts: 2, Observe: watch.Observe, Keep: 2}
	clock.drive(t, &p, 0.5, 0.5)
	err := errors.Join(&retry.StatusError{Method: "GET", Code: 503}, errOp)
	_, got := retry.Do(t.Context(), &p, clock.script(failure(31*ms, err)).Do)
	first := "balance: attempt 1 took 31ms: retrying in 100ms: GET: status 503; op failed (unknown, read-only)"
	last := "balance: attempt 2 took 31ms: gave up: no attempts left: GET: status 503; op failed (unknown, read-only)"
	require.Equal(t, first, watch.Records()[0].String())
	require.Equal(t, "["+first+" "+last+"]", fmt.Sprintf("%+v", stopped(t, got).Records))

	p.Name = ""
	_, got = retry.Do(t.Context(), &p, clock.script(success(2*ms)).Do)
	require.NoError(t, got)
	require.Equal(t, "attempt 1 took 2ms: succeeded", watch.Last().String())
	ctx, cancel := context.WithCancel(t.Context())
	p.Sleep = func(context.Context, time.Duration) error { cancel(); return ctx.Err() }
	_, got = retry.Do(ctx, &p, clock.script(failure(0, retry.Transient(errOp))).Do)
	require.ErrorIs(t, got, retry.ErrCanceled)
	require.Equal(t, "before attempt 2: gave up: canceled", watch.Last().String())
	require.Equal(t, "attempt 0 took 0s: Decision(0)", fmt.Sprint(retry.Record{}))
}

// fault B157: a nil logger is no logger.
func TestNilLoggerIsNoObserver(t *testing.T) {
	require.Nil(t, retry.LogRecords(nil))
}

func TestDecisionsAndFitsHaveNames(t *testing.T) {
	require.Equal(t, "succeeded retrying gave up Decision(0) Decision(9)",
		fmt.Sprint(retry.Succeeded, " ", retry.Retrying, " ", retry.GaveUp, " ", retry.Decision(0), " ", retry.Decision(9)))
	require.Equal(t, "never may always Fit(9)", fmt.Sprint(retry.NeverFits, " ", retry.MayFit, " ", retry.AlwaysFits, " ", retry.Fit(9)))
}

// fault B93: a million failures keep nothing but the last.
func TestAMillionFailuresKeepNothing(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	n := 0
	var before, during uint64
	p := retry.Policy{MaxAttempts: -1, MaxElapsed: -1, Keep: 3, Backoff: retry.Backoff{Base: -1}, Sleep: func(context.Context, time.Duration) error { return nil }}
	before = heap()
	require.NoError(t, retry.Run(t.Context(), &p, func(context.Context) error {
		if n++; n <= 1_000_000 {
			return retry.Transient(errors.New("a new one each time"))
		}
		during = heap()
		return nil
	}))
	require.Less(t, int64(during)-int64(before), int64(1<<20))
}

// fault B162: an Error and a Record that nobody has filled in have a text, too.
func TestZeroErrorAndRecordHaveTexts(t *testing.T) {
	require.EqualError(t, &retry.Error{}, "retry: not attempted: no reason")
	for _, reason := range allReasons {
		require.NotPanics(t, func() { _ = (&retry.Error{Reason: reason, Attempts: 1}).Error() })
	}
	require.False(t, errors.Is(&retry.Error{}, nil))
	require.NotPanics(t, func() { _ = retry.Record{}.LogValue().String() })
}
