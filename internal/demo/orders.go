package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/seed-3d0f8764/retry"
	"github.com/seed-3d0f8764/retry/internal/venue"
)

const ordersLegend = `A program wants to buy 3 of something, once, at an exchange. The exchange is a mock of the habits of real ones: a market
order is filled the moment it arrives, and the id that the client gave it may then be used again. So nothing but the
client keeps one wish from becoming two orders. A line below is a request: when it was sent, what was asked, when the
client stopped waiting for its answer, and what it knows then.`

const (
	patience = 500 * time.Millisecond // of the client, for one answer
	window   = 600 * time.Millisecond // the venue takes a request so long after it was made
)

// tale is one scene about orders: what becomes of the requests, how the
// client copes, and how it must come out.
type tale struct {
	title string
	says  string
	moral string

	answers []venue.Answer // to the POSTs; then the usual one
	effect  retry.Effect
	submit  bool // by Submit, else by Do

	posts  int   // requests to buy
	orders int   // at the venue, in the end
	reason error // nil: success
}

func tales() []tale {
	late := []venue.Answer{{Delay: 4 * patience}}
	return []tale{{
		title:   "Blind repeat: the answer is late, and the request is sent again",
		says:    "The order is placed at once; its answer would come after 2s, and the client waits 500ms. It takes the timeout for a failure. (retry.Do has to be told that an order is Idempotent to do this, which is not true.)",
		answers: late, effect: retry.Idempotent,
		posts: 2, orders: 2,
		moral: "The client is content and has bought twice.",
	}, {
		title:   "Do, told nothing: the same late answer",
		says:    "A POST that timed out may have been applied. Do stops, and the error says that nobody knows.",
		answers: late,
		posts:   1, orders: 1, reason: retry.ErrUnknownOutcome,
		moral: "Nothing is bought twice, but a person must find out.",
	}, {
		title:   "Submit: the same late answer",
		says:    "After an unknown outcome Submit asks the venue for the order before anything is sent again.",
		answers: late, submit: true,
		posts: 1, orders: 1,
		moral: "Bought once, and the client knows.",
	}, {
		title:   "Submit: the request is lost on its way",
		says:    "Now nothing was placed. That no order is there proves nothing while the request may still arrive: the venue takes it up to 600ms after it was made. Once that has passed it is proof, and only then is it sent again, after a last look.",
		answers: []venue.Answer{{LoseRequest: true}}, submit: true,
		posts: 2, orders: 1,
		moral: "Two requests, one order.",
	}}
}

// runOrders plays all tales and returns what did not come out as it should.
func runOrders(ctx context.Context, w io.Writer) error {
	fmt.Fprintln(w, ordersLegend)
	var failed error
	for i, s := range tales() {
		fmt.Fprintf(w, "\n%d. %s\n%s\n\n", i+1, s.title, wrap(s.says, "   ", 100))
		if err := s.play(ctx, w); err != nil {
			fmt.Fprintf(w, "  NOT AS IT SHOULD BE: %v\n", err)
			failed = errors.Join(failed, fmt.Errorf("scene %d: %w", i+1, err))
		}
	}
	return failed
}

// play opens a venue for one tale, places the order and shows what came of it.
func (s tale) play(ctx context.Context, w io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	x := &venue.Exchange{}
	x.Script(http.MethodPost, s.answers...)
	srv := &http.Server{Handler: x, ReadHeaderTimeout: 5 * time.Second}
	go srv.Serve(l)
	defer srv.Close()

	c, err := venue.New("http://"+l.Addr().String(), venue.Intent{ClientID: "order-1", Side: "BUY", Quantity: 3, Type: "MARKET"})
	if err != nil {
		return err
	}
	b := buyer{client: c, start: time.Now(), w: w}
	c.Window, c.Since = window, b.start
	order, err := s.buy(ctx, &b)

	if err == nil {
		fmt.Fprintf(w, "\n   the client   => bought %d, order %d\n", order.Quantity, order.ID)
	} else {
		fmt.Fprintf(w, "\n   the client   => %v\n", err)
	}
	for _, o := range x.Orders() {
		fmt.Fprintf(w, "   the venue    => order %d: %s %d, %s, at %s\n", o.ID, o.Side, o.Quantity, o.Status, b.since(o.Time))
	}
	fmt.Fprintf(w, "   %s\n", s.moral)
	return s.check(err, x.Calls(http.MethodPost), len(x.Orders()))
}

// buy places the order in the tale's way.
func (s tale) buy(ctx context.Context, b *buyer) (venue.Order, error) {
	p := &retry.Policy{
		Name: "order", Effect: s.effect,
		MaxAttempts: 2, AttemptTimeout: patience,
		Backoff: retry.Backoff{Base: 100 * time.Millisecond, Jitter: retry.NoJitter},
	}
	if !s.submit {
		return retry.Do(ctx, p, b.place)
	}
	looks := &retry.Policy{
		MaxAttempts: 20, MaxElapsed: 4 * time.Second, AttemptTimeout: patience,
		Backoff: retry.Backoff{Base: 250 * time.Millisecond, Multiplier: 1, Jitter: retry.NoJitter},
	}
	return retry.Submit(ctx, p, b.place, retry.Lookup[venue.Order]{Policy: looks, Find: b.find})
}

// check compares the outcome with what it must be.
func (s tale) check(err error, posts, orders int) error {
	switch {
	case posts != s.posts:
		return fmt.Errorf("%d requests to buy, not %d", posts, s.posts)
	case orders != s.orders:
		return fmt.Errorf("%d orders, not %d", orders, s.orders)
	case !errors.Is(err, s.reason):
		return fmt.Errorf("%v, not %v", err, s.reason)
	}
	return nil
}

// buyer tells what its client does.
type buyer struct {
	client *venue.Client
	start  time.Time
	w      io.Writer
}

// since says how long after the start t is, to the hundredth of a second.
func (b *buyer) since(t time.Time) string {
	return fmt.Sprintf("%.2fs", max(0, t.Sub(b.start)).Seconds())
}

func (b *buyer) tell(begun time.Time, request, outcome string) {
	fmt.Fprintf(b.w, "   %s  %-15s %s  %s\n", b.since(begun), request, b.since(time.Now()), outcome)
}

func (b *buyer) place(ctx context.Context) (venue.Order, error) {
	begun := time.Now()
	o, err := b.client.Place(ctx)
	b.tell(begun, "POST  buy 3", known(o, err))
	return o, err
}

func (b *buyer) find(ctx context.Context) (venue.Order, retry.Resolution, error) {
	begun := time.Now()
	o, r, err := b.client.Find(ctx)
	outcome := known(o, err)
	switch {
	case err != nil:
	case r == retry.Unresolved:
		outcome = "not there, but it may still arrive: proves nothing"
	case r == retry.NotApplied:
		outcome = "not there, and too late to arrive: proof"
	}
	b.tell(begun, "GET   order-1", outcome)
	return o, r, err
}

// known says what an answer, or the lack of one, tells the client.
func known(o venue.Order, err error) string {
	switch {
	case err == nil:
		return fmt.Sprintf("order %d, %s", o.ID, o.Status)
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time: placed or not?"
	case strings.HasSuffix(err.Error(), "EOF"):
		return "the connection broke: placed or not?"
	}
	return err.Error()
}
