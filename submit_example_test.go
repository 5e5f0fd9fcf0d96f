package retry_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/seed-3d0f8764/retry"
	"github.com/seed-3d0f8764/retry/internal/venue"
)

// An order that shall be placed once. Its first answer is lost on the way, so
// Submit looks before it does anything else.
func ExampleSubmit() {
	var market exchange
	market.faults = []string{"answer lost"}

	wish := order{id: "7f3a", side: "BUY", quantity: 3, since: market.now()}
	placed, err := retry.Submit(context.Background(), nil, wish.placeAt(&market), retry.Lookup[order]{
		Find: wish.findAt(&market),
	})
	fmt.Println(placed, err)
	fmt.Println("at the exchange:", market.orders)
	// Output:
	// place 7f3a: connection lost
	// find 7f3a: 1 order
	// 7f3a BUY 3 <nil>
	// at the exchange: [7f3a BUY 3]
}

// A job that outlives its process: its state is in a file (the store, which
// loses nothing when the process is killed at any point, is in internal/venue),
// and its order is made anew as it was. Who resumes it has what was left of its
// attempts and its time, and looks before anything is sent.
func ExampleJournal() {
	dir, _ := os.MkdirTemp("", "")
	defer os.RemoveAll(dir)
	var market exchange

	work := func(ctx context.Context) {
		store, err := venue.Open(filepath.Join(dir, "7f3a"))
		if err != nil {
			fmt.Println(err)
			return
		}
		state, err := store.Load() // the zero State: a new job
		if err != nil {
			fmt.Println(err) // a job that cannot be read is not begun anew
			return
		}
		wish := order{id: "7f3a", side: "BUY", quantity: 3, since: market.now()}
		if state.Attempts > 0 {
			fmt.Printf("resumed after attempt %d, in flight: %t\n", state.Attempts, state.InFlight)
			wish.since = state.Started
		}
		if state.Ended {
			return // with success or without: there is nothing to resume
		}
		policy := &retry.Policy{
			Journal:        &retry.Journal{State: state, Save: store.Save},
			MaxElapsed:     24 * time.Hour, // the life of the job: it runs while no process does
			AttemptTimeout: 10 * time.Second,
		}
		placed, err := retry.Submit(ctx, policy, wish.placeAt(&market), retry.Lookup[order]{Find: wish.findAt(&market)})
		fmt.Println(placed, err)
	}

	market.faults = []string{"power cut"} // in the process, when the request has left
	func() {
		defer func() { fmt.Println(recover()) }()
		work(context.Background())
	}()
	work(context.Background()) // a new process
	fmt.Println("at the exchange:", market.orders)
	// Output:
	// power cut
	// resumed after attempt 1, in flight: true
	// find 7f3a: 1 order
	// 7f3a BUY 3 <nil>
	// at the exchange: [7f3a BUY 3]
}

// After an order of which nobody knows whether it was placed, the account
// takes no new ones, until a person or a reconciliation clears it.
func ExampleSubmit_latch() {
	var market exchange
	var acc account
	buy := func(id string) {
		err := acc.do(func() error {
			wish := order{id: id, side: "BUY", quantity: 3, since: market.now()}
			looks := &retry.Policy{MaxAttempts: 2, Sleep: noSleep}
			_, err := retry.Submit(context.Background(), nil, wish.placeAt(&market), retry.Lookup[order]{Policy: looks, Find: wish.findAt(&market)})
			return err
		})
		switch {
		case errors.Is(err, errLatched):
			fmt.Println(id, "is refused:", err)
		case errors.Is(err, retry.ErrUnknownOutcome):
			fmt.Println(id, "is unknown")
		default:
			fmt.Println(id, "is placed")
		}
	}

	buy("a1")
	market.faults = []string{"answer lost", "down", "down"}
	buy("a2")
	buy("a3")
	acc.clear() // somebody has looked, and booked a2
	buy("a3")
	// Output:
	// place a1: done
	// a1 is placed
	// place a2: connection lost
	// find a2: the exchange is down
	// find a2: the exchange is down
	// a2 is unknown
	// a3 is refused: an outcome on this account is unknown
	// place a3: done
	// a3 is placed
}

// account is one at an exchange. Its latch is shared by all who trade on it.
type account struct {
	mu      sync.Mutex
	latched bool
}

var errLatched = errors.New("an outcome on this account is unknown")

// do makes one order after the other: what one of them leaves unknown, the
// next must know.
func (a *account) do(submit func() error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.latched {
		return errLatched
	}
	err := submit()
	a.latched = errors.Is(err, retry.ErrUnknownOutcome) // whatever the Reason
	return err
}

func (a *account) clear() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.latched = false
}

// A cancellation whose answer is lost. The order itself tells what came of it:
// cancelled, filled before that, or still open.
func ExampleSubmit_cancellation() {
	for _, status := range []string{"CANCELED", "FILLED", "NEW"} {
		sent := 0
		cancel := func(context.Context) (string, error) {
			if sent++; sent > 1 {
				return "CANCELED", nil
			}
			return "", retry.Unknown(errors.New("connection lost"))
		}
		read := func(context.Context) (string, retry.Resolution, error) {
			switch status { // of the original order
			case "CANCELED":
				return status, retry.Applied, nil
			case "FILLED":
				return status, retry.Rejected, errors.New("it was filled before")
			}
			return status, retry.NotApplied, nil // cancelling twice does no harm, so this may be called proof
		}
		was, err := retry.Submit(context.Background(), &retry.Policy{Name: "cancel", Sleep: noSleep}, cancel, retry.Lookup[string]{Find: read})
		switch {
		case err == nil:
			fmt.Printf("%s: %s, sent %d times\n", status, was, sent)
		case errors.Is(err, retry.ErrPermanent):
			e, _ := errors.AsType[*retry.Error](err)
			fmt.Printf("%s: too late, sent %d times; unknown: %t\n", status, sent, errors.Is(e, retry.ErrUnknownOutcome))
		}
	}
	// Output:
	// CANCELED: CANCELED, sent 1 times
	// FILLED: too late, sent 1 times; unknown: false
	// NEW: CANCELED, sent 2 times
}

// A look-up whose absence proves nothing: a request that is not there may
// still arrive. Find says Unresolved and is asked again; when its limits end,
// the outcome is unknown, and nothing is sent.
func ExampleLookup() {
	var market exchange
	market.faults = []string{"request lost"}
	wish := order{id: "7f3a", side: "BUY", quantity: 3, since: market.now()}
	_, err := retry.Submit(context.Background(), &retry.Policy{Name: "order"}, wish.placeAt(&market), retry.Lookup[order]{
		Policy: &retry.Policy{MaxAttempts: 3, Sleep: noSleep},
		Find:   wish.findAt(&market),
	})
	e, _ := errors.AsType[*retry.Error](err)
	fmt.Println(e.Reason)
	fmt.Println("sent", market.placed, "times; the look-ups ended because of their", errors.Is(err, retry.ErrAttempts))
	// Output:
	// place 7f3a: connection lost
	// find 7f3a: 0 orders
	// find 7f3a: 0 orders
	// find 7f3a: 0 orders
	// retry: outcome unknown
	// sent 1 times; the look-ups ended because of their true
}

// An absence that is proof, because the exchange takes a request no later than
// a time that was sent along: after that time, one that is not there will
// never be.
func ExampleResolution() {
	var market exchange
	market.faults = []string{"request lost"}
	wish := order{id: "7f3a", side: "BUY", quantity: 3, since: market.now(), window: time.Minute}
	find := wish.findAt(&market)
	wait := func(ctx context.Context, d time.Duration) error {
		market.ahead += 2 * time.Minute // a fake clock
		return ctx.Err()
	}
	placed, err := retry.Submit(context.Background(), &retry.Policy{Sleep: wait}, wish.placeAt(&market), retry.Lookup[order]{Find: find})
	fmt.Println(placed, err)
	// Output:
	// place 7f3a: connection lost
	// find 7f3a: 0 orders
	// find 7f3a: 0 orders
	// find 7f3a: 0 orders
	// place 7f3a: done
	// 7f3a BUY 3 <nil>
}

// order is the intent, and as it stands at the exchange. Its id is made once
// and never used again: exchanges keep ids apart among open orders only.
type order struct {
	id       string
	side     string
	quantity int

	since  time.Time     // not after its first request
	window time.Duration // the exchange takes it so long after it was sent; 0: there is no such limit
}

func (o order) String() string {
	if o.id == "" {
		return "none"
	}
	return fmt.Sprintf("%s %s %d", o.id, o.side, o.quantity)
}

// placeAt is what Submit sends. The id is trimmed here, once, so that what is
// looked up is what was sent.
func (o *order) placeAt(market *exchange) func(context.Context) (order, error) {
	o.id = strings.TrimSpace(o.id)
	return func(context.Context) (order, error) {
		if o.id == "" {
			return order{}, retry.Permanent(errors.New("an order needs an id"))
		}
		return market.place(*o)
	}
}

// findAt is what Submit asks. Whatever is not certain is Unresolved or for a person.
func (o *order) findAt(market *exchange) func(context.Context) (order, retry.Resolution, error) {
	return func(context.Context) (order, retry.Resolution, error) {
		asked := market.now()
		found, err := market.find(o.id)
		if err != nil {
			return order{}, retry.Unresolved, err
		}
		switch {
		case len(found) > 1:
			return order{}, retry.Unresolved, retry.Permanent(fmt.Errorf("%d orders under %s", len(found), o.id))
		case len(found) == 1 && (found[0].side != o.side || found[0].quantity != o.quantity || found[0].since.Before(o.since)):
			return order{}, retry.Unresolved, retry.Permanent(fmt.Errorf("the order under %s is another", o.id))
		case len(found) == 1:
			return found[0], retry.Applied, nil
		case o.window > 0 && asked.Sub(market.last) > o.window:
			return order{}, retry.NotApplied, nil
		}
		return order{}, retry.Unresolved, nil
	}
}

// exchange is one in memory that tells what it is asked. In the field faults
// is what becomes of the next requests.
type exchange struct {
	faults []string
	orders []order
	placed int           // requests to place
	last   time.Time     // of them
	ahead  time.Duration // of the real clock
}

func (x *exchange) now() time.Time { return time.Now().Add(x.ahead) }

func (x *exchange) fault() (f string) {
	if len(x.faults) > 0 {
		f, x.faults = x.faults[0], x.faults[1:]
	}
	return f
}

func (x *exchange) place(o order) (order, error) {
	x.placed++
	x.last = x.now()
	f := x.fault()
	if f != "request lost" {
		o.since = x.last // when it was accepted
		x.orders = append(x.orders, o)
	}
	switch f {
	case "power cut":
		panic(f)
	case "request lost", "answer lost":
		fmt.Printf("place %s: connection lost\n", o.id)
		return order{}, retry.Unknown(errors.New("connection lost"))
	}
	fmt.Printf("place %s: done\n", o.id)
	return o, nil
}

func (x *exchange) find(id string) (found []order, err error) {
	if x.fault() == "down" {
		fmt.Printf("find %s: the exchange is down\n", id)
		return nil, retry.Transient(errors.New("the exchange is down"))
	}
	for _, o := range x.orders {
		if o.id == id {
			found = append(found, o)
		}
	}
	noun := "orders"
	if len(found) == 1 {
		noun = "order"
	}
	fmt.Printf("find %s: %d %s\n", id, len(found), noun)
	return found, nil
}
