package retry_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-3d0f8764/retry"
)

// What one caller is told stops all who share the gate, before they send.
func ExamplePacedGate() {
	account := new(retry.PacedGate) // one for each limited scope
	p := &retry.Policy{Gate: account}

	err := retry.Run(context.Background(), p, func(context.Context) error {
		return retry.Suspended(errors.New("too many requests from this account"), 10*time.Minute)
	})
	fmt.Println(errors.Is(err, retry.ErrSuspended))

	err = retry.Run(context.Background(), p, func(context.Context) error {
		panic("is not called")
	})
	fmt.Println(err)
	// Output:
	// true
	// retry: not attempted: the gate is held for 10m0s, MaxHint is 1m0s
}

// An exchange counts per IP and per account. A call must pass both gates, each is told
// what came of it, and a gate of one's own in between can tell by the error which is
// meant: here the account's takes only what names the account.
func ExampleGates() {
	ip := new(retry.PacedGate)
	policy := func() *retry.Policy {
		account := new(retry.PacedGate)
		return &retry.Policy{Gate: retry.Gates(ofAccount{account}, ofIP{ip}), MaxAttempts: 1}
	}
	alice, bob := policy(), policy()
	_ = retry.Run(context.Background(), alice, func(context.Context) error {
		return retry.Suspended(errAccountBanned, time.Hour)
	})
	nothing := func(context.Context) error { return nil }
	fmt.Println("alice:", retry.Run(context.Background(), alice, nothing))
	fmt.Println("bob:", retry.Run(context.Background(), bob, nothing))
	// Output:
	// alice: retry: not attempted: the gate is held for 1h0m0s, MaxHint is 1m0s
	// bob: <nil>
}

var errAccountBanned = errors.New("this account is banned")

// ofAccount is a gate that learns only what is meant for an account, ofIP one
// that learns the rest.
type (
	ofAccount struct{ retry.Gate }
	ofIP      struct{ retry.Gate }
)

func (g ofAccount) Enter(ctx context.Context, e retry.Entry) (func(retry.Outcome), error) {
	return enterIf(ctx, g.Gate, e, func(err error) bool { return errors.Is(err, errAccountBanned) })
}

func (g ofIP) Enter(ctx context.Context, e retry.Entry) (func(retry.Outcome), error) {
	return enterIf(ctx, g.Gate, e, func(err error) bool { return !errors.Is(err, errAccountBanned) })
}

// enterIf enters g, and lets it take a failure that is not meant for it as a
// call that was not made.
func enterIf(ctx context.Context, g retry.Gate, e retry.Entry, meant func(error) bool) (func(retry.Outcome), error) {
	leave, err := g.Enter(ctx, e)
	if err != nil {
		return nil, err
	}
	return func(o retry.Outcome) {
		if o.Err != nil && !meant(o.Err) {
			o = retry.Outcome{}
		}
		leave(o)
	}, nil
}

// slots is a Gate of one's own: at most so many in flight.
type slots chan struct{}

func (s slots) Enter(ctx context.Context, e retry.Entry) (func(retry.Outcome), error) {
	if e.Ahead { // a look-up does not wait for those in flight
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.Within)
	defer cancel()
	select {
	case s <- struct{}{}:
		return func(retry.Outcome) { <-s }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func ExampleGate() {
	two := make(slots, 2)
	p := &retry.Policy{Gate: two, MaxElapsed: 20 * time.Millisecond}
	fmt.Println(retry.Run(context.Background(), p, func(context.Context) error {
		fmt.Println(len(two), "in flight")
		return nil
	}))
	two <- struct{}{}
	two <- struct{}{}
	err := retry.Run(context.Background(), p, func(context.Context) error { return nil })
	fmt.Println(errors.Is(err, retry.ErrDeadline))
	// Output:
	// 1 in flight
	// <nil>
	// true
}
