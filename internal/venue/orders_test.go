package venue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-3d0f8764/retry"
	"github.com/seed-3d0f8764/retry/internal/venue"
	"github.com/stretchr/testify/require"
)

// patience is the client's; the venue's answers can be later.
const patience = 400 * time.Millisecond

func sends() *retry.Policy {
	return &retry.Policy{Name: "order", AttemptTimeout: patience, Backoff: retry.Backoff{Base: time.Millisecond}}
}

func looks() *retry.Policy {
	return &retry.Policy{AttemptTimeout: patience, MaxAttempts: -1, MaxElapsed: 3 * time.Second, Backoff: retry.Backoff{Base: 5 * time.Millisecond, Multiplier: 1}}
}

// open starts a venue on loopback, and a client for one market order.
func open(t testing.TB) (*venue.Exchange, *venue.Client) {
	x := &venue.Exchange{Key: "k"}
	s := httptest.NewUnstartedServer(x)
	s.Config.ErrorLog = nil
	s.Start()
	t.Cleanup(s.Close)
	c, err := venue.New(s.URL, venue.Intent{ClientID: "id-1", Side: "BUY", Quantity: 3, Type: "MARKET"})
	require.NoError(t, err)
	c.HTTP = s.Client()
	c.Key, c.Window, c.Since = "k", 300*time.Millisecond, time.Now().Add(-time.Minute)
	return x, c
}

func submit(ctx context.Context, c *venue.Client, p *retry.Policy) (venue.Order, error) {
	return retry.Submit(ctx, p, c.Place, retry.Lookup[venue.Order]{Policy: looks(), Find: c.Find})
}

// Why Submit exists: repeating a market order whose answer came too late buys
// twice, under one id.
func TestBlindRepeatBuysTwice(t *testing.T) {
	x, c := open(t)
	x.Script("POST", venue.Answer{Delay: 3 * patience})
	p := sends()
	p.Effect = retry.Idempotent // which it is not
	_, err := retry.Do(t.Context(), p, c.Place)
	require.NoError(t, err)
	require.Len(t, x.Orders(), 2)
	require.Equal(t, x.Orders()[0].ClientID, x.Orders()[1].ClientID)
}

func TestSubmitLooksUpAnAnswerThatIsTooLate(t *testing.T) {
	x, c := open(t)
	x.Script("POST", venue.Answer{Delay: 3 * patience})
	o, err := submit(t.Context(), c, sends())
	require.NoError(t, err)
	require.Equal(t, "FILLED", o.Status)
	require.Len(t, x.Orders(), 1)
	require.Equal(t, 1, x.Calls("POST"))
	require.Equal(t, 1, x.Calls("GET"))
}

func TestAWrongKeyIsFinalAfterOnePost(t *testing.T) {
	x, c := open(t)
	c.Key = "wrong"
	_, err := submit(t.Context(), c, sends())
	require.ErrorIs(t, err, retry.ErrPermanent)
	require.NotErrorIs(t, err, retry.ErrUnknownOutcome)
	s, _ := errors.AsType[*retry.StatusError](err)
	require.Equal(t, 401, s.Code)
	require.Equal(t, 1, x.Calls("POST"))
	require.Zero(t, x.Calls("GET"))
}

func TestAnIDThatWasUsedBeforeIsForAPerson(t *testing.T) {
	x, c := open(t)
	_, err := c.Place(t.Context()) // filled at once: the id is free again
	require.NoError(t, err)
	x.Script("POST", venue.Answer{LoseAnswer: true})
	_, err = submit(t.Context(), c, sends())
	require.ErrorIs(t, err, retry.ErrUnknownOutcome)
	require.ErrorContains(t, err, "2 orders")
	require.Equal(t, 2, x.Calls("POST"), "no further one")
}

// An older order under a reused id is refused, not returned.
func TestAnOlderOrderUnderTheIDIsNotOurs(t *testing.T) {
	x, c := open(t)
	_, err := c.Place(t.Context())
	require.NoError(t, err)
	c.Since = time.Now()
	x.Script("POST", venue.Answer{LoseRequest: true})
	o, err := submit(t.Context(), c, sends())
	require.ErrorIs(t, err, retry.ErrUnknownOutcome)
	require.ErrorContains(t, err, "is another")
	require.Zero(t, o)
}

func TestAnIDOfSpacesIsRefusedBeforeAnythingIsSent(t *testing.T) {
	_, err := venue.New("http://127.0.0.1:1", venue.Intent{ClientID: "  \t"})
	require.Error(t, err)
	c, err := venue.New("http://127.0.0.1:1", venue.Intent{ClientID: " id "})
	require.NoError(t, err)
	require.Equal(t, "id", c.Intent.ClientID)
}

// What is sent is, to the byte, what is looked up and cancelled.
func TestTheIDIsTrimmedOnceForAll(t *testing.T) {
	x, trimmed := open(t)
	c, err := venue.New(trimmed.URL, venue.Intent{ClientID: " \tid 1+&%\u00a0\n", Side: "BUY", Quantity: 3, Type: "LIMIT"})
	require.NoError(t, err)
	var ids []string
	c.Key, c.Since = "k", trimmed.Since
	c.HTTP = &http.Client{Transport: tap(func(r *http.Request) { ids = append(ids, r.Method+" "+r.URL.Query().Get("clientOrderId")) })}
	x.Script("POST", venue.Answer{LoseAnswer: true})
	o, err := submit(t.Context(), c, sends())
	require.NoError(t, err)
	require.Equal(t, "id 1+&%", o.ClientID)
	_, err = c.Cancel(t.Context())
	require.NoError(t, err)
	_, _, err = c.FindCanceled(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"POST id 1+&%", "GET id 1+&%", "DELETE id 1+&%", "GET id 1+&%"}, ids)
}

// tap sees each request on its way.
type tap func(*http.Request)

func (t tap) RoundTrip(r *http.Request) (*http.Response, error) {
	t(r)
	return http.DefaultTransport.RoundTrip(r)
}

// An order under the id is ours only if it is what was meant, and no older than
// the first send.
func TestFindComparesTheIntent(t *testing.T) {
	_, c := open(t)
	placed, err := c.Place(t.Context())
	require.NoError(t, err)
	for name, look := range map[string]struct {
		change func(*venue.Client)
		ours   bool
	}{
		"as meant":             {func(*venue.Client) {}, true},
		"accepted at the send": {func(c *venue.Client) { c.Since = placed.Time }, true},
		"before the send":      {func(c *venue.Client) { c.Since = placed.Time.Add(1) }, false},
		"another side":         {func(c *venue.Client) { c.Intent.Side = "SELL" }, false},
		"another quantity":     {func(c *venue.Client) { c.Intent.Quantity++ }, false},
		"another type":         {func(c *venue.Client) { c.Intent.Type = "LIMIT" }, false},
	} {
		other := venue.Client{URL: c.URL, HTTP: c.HTTP, Key: "k", Intent: c.Intent, Window: time.Minute}
		look.change(&other)
		o, r, err := other.Find(t.Context())
		if look.ours {
			require.NoError(t, err, name)
			require.Equal(t, retry.Applied, r, name)
			require.Equal(t, placed.ID, o.ID, name)
			continue
		}
		require.Equal(t, retry.Unresolved, r, name)
		require.ErrorContains(t, err, "is another", name)
		require.Equal(t, retry.ClassPermanent, retry.Classify(err).Class, name)
		require.Zero(t, o, name)
	}
}

// The venue's clock judges when a request is too late, so it alone proves that
// none will come: a client's that is ahead would send a second order while
// the first may still arrive.
func TestAClockThatIsAheadProvesNothing(t *testing.T) {
	x, c := open(t)
	ahead := time.Hour      // the venue takes the request so long after its window
	var passed atomic.Int64 // of that hour
	x.Clock = func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }
	c.Clock, c.Window = func() time.Time { return time.Now().Add(ahead) }, time.Millisecond
	x.Script("POST", venue.Answer{LoseRequest: true})
	p := looks()
	p.MaxElapsed = 300 * time.Millisecond
	_, err := retry.Submit(t.Context(), sends(), c.Place, retry.Lookup[venue.Order]{Policy: p, Find: c.Find})
	require.Equal(t, retry.ErrUnknownOutcome, reason(t, err))
	require.Equal(t, 1, x.Calls("POST"))

	passed.Store(int64(ahead))
	_, r, err := c.Find(t.Context())
	require.NoError(t, err)
	require.Equal(t, retry.NotApplied, r)

	x, c = open(t) // behind, all requests are refused when they arrive
	c.Clock = func() time.Time { return time.Now().Add(-ahead) }
	_, err = submit(t.Context(), c, sends())
	require.Equal(t, retry.ErrAttempts, reason(t, err))
	require.NotErrorIs(t, err, retry.ErrUnknownOutcome)
	require.Empty(t, x.Orders())
	require.Zero(t, x.Calls("GET"), "a refusal is proof")
}

// Look asks again while an order may still arrive, and has proof once it cannot.
func TestLookSaysWhatBecameOfTheOrder(t *testing.T) {
	x, c := open(t)
	_, err := retry.Do(t.Context(), looks(), c.Look)
	require.ErrorIs(t, err, venue.ErrNotPlaced)
	require.Equal(t, retry.ErrPermanent, reason(t, err))
	require.Greater(t, x.Calls("GET"), 1)

	_, err = c.Place(t.Context())
	require.NoError(t, err)
	o, err := retry.Do(t.Context(), looks(), c.Look)
	require.NoError(t, err)
	require.Equal(t, "FILLED", o.Status)
}

// A ban proves that nothing was applied, and says when to come back.
func TestABanStopsTheOrder(t *testing.T) {
	for _, ban := range []venue.Answer{{Status: 418, RetryAfter: "600"}, {Status: 403}} {
		x, c := open(t)
		x.Script("POST", ban)
		_, err := submit(t.Context(), c, sends())
		require.Equal(t, retry.ErrSuspended, reason(t, err))
		require.NotErrorIs(t, err, retry.ErrUnknownOutcome)
		e, _ := errors.AsType[*retry.Error](err)
		require.WithinDuration(t, time.Now().Add(10*time.Minute), e.RetryAt, 5*time.Second)
		require.Equal(t, 1, x.Calls("POST"))
		require.Zero(t, x.Calls("GET"))
	}
}

func TestFindThatNeverAnswers(t *testing.T) {
	x, c := open(t)
	x.Script("POST", venue.Answer{LoseRequest: true})
	x.Script("GET", make([]venue.Answer, 3)...)
	p := looks()
	p.MaxAttempts = 3
	find := func(ctx context.Context) (venue.Order, retry.Resolution, error) {
		<-ctx.Done()
		return venue.Order{}, retry.Unresolved, ctx.Err()
	}
	_, err := retry.Submit(t.Context(), sends(), c.Place, retry.Lookup[venue.Order]{Policy: p, Find: find})
	require.Equal(t, retry.ErrUnknownOutcome, reason(t, err))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, retry.ErrAttempts, "the look-up's error is reachable")
	require.Equal(t, 1, x.Calls("POST"))
}

func TestProofOfAbsenceAllowsOneFurtherPost(t *testing.T) {
	x, c := open(t)
	x.Script("POST", venue.Answer{LoseRequest: true})
	o, err := submit(t.Context(), c, sends())
	require.NoError(t, err)
	require.Equal(t, "FILLED", o.Status)
	require.Equal(t, 2, x.Calls("POST"))
	require.Len(t, x.Orders(), 1)

	x, c = open(t)
	x.Script("POST", venue.Answer{LoseRequest: true}, venue.Answer{LoseRequest: true}, venue.Answer{LoseRequest: true})
	_, err = submit(t.Context(), c, sends())
	require.Equal(t, retry.ErrAttempts, reason(t, err))
	require.NotErrorIs(t, err, retry.ErrUnknownOutcome)
	require.Equal(t, 2, x.Calls("POST"), "one further by default")
	require.Empty(t, x.Orders())
}

func TestRejectedIsFinal(t *testing.T) {
	x, c := open(t)
	x.Script("POST", venue.Answer{LoseAnswer: true})
	rejected := errors.New("rejected: no funds")
	find := func(context.Context) (venue.Order, retry.Resolution, error) {
		return venue.Order{}, retry.Rejected, rejected
	}
	_, err := retry.Submit(t.Context(), sends(), c.Place, retry.Lookup[venue.Order]{Policy: looks(), Find: find})
	require.Equal(t, retry.ErrPermanent, reason(t, err))
	require.ErrorIs(t, err, rejected)
	require.NotErrorIs(t, err, retry.ErrUnknownOutcome)
	require.Equal(t, 1, x.Calls("POST"))
}

func TestCancelledInFlightIsUnknownToo(t *testing.T) {
	x, c := open(t)
	x.Script("POST", venue.Answer{Delay: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	p := sends()
	p.AttemptTimeout = 0
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err := submit(ctx, c, p)
	require.Equal(t, retry.ErrCanceled, reason(t, err))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, retry.ErrUnknownOutcome)
	require.Equal(t, 1, x.Calls("POST"))
}

// fault B143: a 200 with a broken body was placed, and is never reported as
// failed.
func TestABrokenBodyAfterTheOrderWasPlaced(t *testing.T) {
	x, c := open(t)
	x.Script("POST", venue.Answer{BreakBody: true})
	o, err := submit(t.Context(), c, sends())
	require.NoError(t, err)
	require.Equal(t, "FILLED", o.Status)
	require.Equal(t, 1, x.Calls("POST"))
}

// A throttle proves that nothing was applied, and uses no resend; one while
// looking up concludes nothing, a ban neither.
func TestThrottlesAndBansConcludeNothing(t *testing.T) {
	x, c := open(t)
	x.Script("POST", venue.Answer{Status: 429, RetryAfter: "0"}, venue.Answer{Status: 429}, venue.Answer{LoseAnswer: true})
	x.Script("GET", venue.Answer{Status: 429}, venue.Answer{Status: 418, RetryAfter: "0"}, venue.Answer{Status: 503})
	o, err := submit(t.Context(), c, sends())
	require.NoError(t, err)
	require.Equal(t, "FILLED", o.Status)
	require.Equal(t, 3, x.Calls("POST"))
	require.Equal(t, 4, x.Calls("GET"))
	require.Len(t, x.Orders(), 1)

	x, c = open(t)
	x.Script("POST", venue.Answer{LoseAnswer: true})
	x.Script("GET", venue.Answer{Status: 418, RetryAfter: "120"})
	_, err = submit(t.Context(), c, sends())
	require.Equal(t, retry.ErrUnknownOutcome, reason(t, err))
	e, _ := errors.AsType[*retry.Error](err)
	require.WithinDuration(t, time.Now().Add(2*time.Minute), e.RetryAt, 5*time.Second)
}

// A cancellation whose answer is lost: the order itself tells.
func TestALostCancellation(t *testing.T) {
	x, c := open(t)
	c.Intent.Type = "LIMIT"
	_, err := c.Place(t.Context())
	require.NoError(t, err)
	x.Script("DELETE", venue.Answer{LoseAnswer: true})
	o, err := retry.Submit(t.Context(), sends(), c.Cancel, retry.Lookup[venue.Order]{Policy: looks(), Find: c.FindCanceled})
	require.NoError(t, err)
	require.Equal(t, "CANCELED", o.Status)
	require.Equal(t, 1, x.Calls("DELETE"))
}

// One that is still open is cancelled again; one that was filled is not, and
// the error is final.
func TestACancellationOfAnOrderThatIsOpenOrFilled(t *testing.T) {
	x, c := open(t)
	c.Intent.Type = "LIMIT"
	_, err := c.Place(t.Context())
	require.NoError(t, err)
	x.Script("DELETE", venue.Answer{LoseRequest: true})
	lookup := retry.Lookup[venue.Order]{Policy: looks(), Find: c.FindCanceled}
	o, err := retry.Submit(t.Context(), sends(), c.Cancel, lookup)
	require.NoError(t, err)
	require.Equal(t, "CANCELED", o.Status)
	require.Equal(t, 2, x.Calls("DELETE"))

	x, c = open(t) // a market order: filled
	_, err = c.Place(t.Context())
	require.NoError(t, err)
	x.Script("DELETE", venue.Answer{LoseAnswer: true})
	lookup.Find = c.FindCanceled
	_, err = retry.Submit(t.Context(), sends(), c.Cancel, lookup)
	require.Equal(t, retry.ErrPermanent, reason(t, err))
	require.ErrorIs(t, err, venue.ErrFilled)
	require.NotErrorIs(t, err, retry.ErrUnknownOutcome)
	require.Equal(t, 1, x.Calls("DELETE"))

	c.Intent.Quantity++ // it is another's
	_, r, err := c.FindCanceled(t.Context())
	require.Equal(t, retry.Unresolved, r)
	require.ErrorContains(t, err, "a person must look")
}

// 200 orders over loopback, each with faults drawn at random: never two for one
// intent, never one that was placed reported as failed for good.
func TestRandomFaultsOverLoopback(t *testing.T) {
	if testing.Short() {
		t.Skip("two hundred orders in real time")
	}
	r := rand.New(rand.NewPCG(1, 2))
	faults := []venue.Answer{{}, {}, {LoseRequest: true}, {LoseAnswer: true}, {BreakBody: true}, {Status: 429}, {Status: 503}, {Delay: 30 * time.Millisecond}}
	for i := range 200 {
		x, c := open(t)
		c.Window = 5 * time.Millisecond
		p := sends()
		p.AttemptTimeout = 20 * time.Millisecond
		for range 3 {
			x.Script("POST", faults[r.IntN(len(faults))])
			x.Script("GET", faults[r.IntN(len(faults)-1)])
		}
		_, err := retry.Submit(t.Context(), p, c.Place, retry.Lookup[venue.Order]{Policy: looks(), Find: c.Find})
		placed := len(x.Orders())
		require.LessOrEqual(t, placed, 1, i)
		if err == nil {
			require.Equal(t, 1, placed, i)
		} else if !errors.Is(err, retry.ErrUnknownOutcome) {
			require.Zero(t, placed, fmt.Sprint(i, err))
		}
	}
}

func reason(t testing.TB, err error) error {
	t.Helper()
	e, ok := errors.AsType[*retry.Error](err)
	require.True(t, ok, "%v", err)
	return e.Reason
}

var _ http.Handler = (*venue.Exchange)(nil)
