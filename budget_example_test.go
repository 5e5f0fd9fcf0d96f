package retry_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3d0f8764/retry"
)

// All operations that use one service share a Bucket. During an outage twenty
// operations of three attempts make ten retries together, not forty.
func ExampleBucket() {
	var shared retry.Bucket
	p := retry.Policy{Effect: retry.ReadOnly, MaxAttempts: 3, Budget: &shared, Sleep: noSleep}
	var err error
	for range 20 {
		err = retry.Run(context.Background(), &p, func(context.Context) error {
			return &retry.StatusError{Code: 503}
		})
	}
	fmt.Println(errors.Is(err, retry.ErrBudget))
	if empty, ok := errors.AsType[retry.EmptyError](err); ok {
		fmt.Println(empty)
	}

	// The service is up again: five successes pay for the next retry.
	for range 5 {
		retry.Run(context.Background(), &p, func(context.Context) error { return nil })
	}
	counts := shared.Counts()
	fmt.Println(shared.Tokens(), "token,", counts.Retries, "retries,", counts.Ratio(), "for each first attempt")
	// Output:
	// true
	// 0 of 10 tokens left, a retry costs 1
	// 1 token, 10 retries, 0.4 for each first attempt
}

// The retry quota of AWS's SDKs, in standard mode as of 2026: a retry takes 14
// of 500 tokens, or 5 after a throttle. A success gives back what its last retry
// took, or 1 if it needed none. Before, a retry took 5, or 10 after a time-out.
func ExampleBucket_aws() {
	quota := awsBucket()
	p := retry.Policy{MaxAttempts: 3, Budget: quota, Sleep: noSleep}
	run := func(errs ...error) {
		retry.Run(context.Background(), &p, func(ctx context.Context) error { return errs[retry.Attempt(ctx)-1] })
		fmt.Println(quota.Tokens())
	}
	failed, throttled := errors.New("connection refused"), errors.New("slow down")
	run(retry.Transient(failed), retry.Transient(failed), retry.Transient(failed)) // 2 retries, in vain
	run(nil)                                                                       // at once
	run(retry.Throttled(throttled, 0), retry.Transient(failed), nil)               // its last retry comes back
	// Output:
	// 472
	// 473
	// 468
}

func awsBucket() *retry.Bucket {
	return &retry.Bucket{Capacity: 500, Cost: 14, ThrottledCost: 5, PerSuccess: 1, Refund: 1}
}

// olderAWSBucket is that of before 2026. A class does not tell a time-out from
// a 5xx, so these cost 10 too, unless a Classifier calls them transient.
func olderAWSBucket() *retry.Bucket {
	return &retry.Bucket{Capacity: 500, Cost: 5, UnknownCost: 10, PerSuccess: 1, Refund: 1}
}

// A Budget of one's own: gRPC's retry throttling. Failures count, not retries:
// while more than half of the tokens are left every retry is allowed.
func ExampleBudget_grpc() {
	throttle := &grpcThrottle{max: 10, ratio: 0.1}
	p := retry.Policy{Effect: retry.ReadOnly, MaxAttempts: 4, Budget: throttle, Observe: throttle.Observe, Sleep: noSleep}
	for range 3 {
		calls := 0
		retry.Run(context.Background(), &p, func(context.Context) error { calls++; return &retry.StatusError{Code: 503} })
		fmt.Println(calls, "calls,", throttle.tokens(), "tokens")
	}
	// Output:
	// 4 calls, 6 tokens
	// 1 calls, 5 tokens
	// 1 calls, 4 tokens
}

// grpcThrottle is the retry throttling of gRPC (proposal A6): a failed attempt
// takes one token, a success puts in ratio, and there are no retries unless
// more than half of max is left. The zero value allows none.
type grpcThrottle struct {
	max   float64 // tokens it holds, and begins with
	ratio float64 // to three decimals

	mu   sync.Mutex
	lost int64 // thousandths
}

// Spend takes the token of the failure before the retry, which is not put back
// if the retry is refused or not sent: the failure has been one.
func (g *grpcThrottle) Spend(context.Context, retry.Verdict, float64) (float64, error) {
	if g.fail(); g.tokens() <= g.max/2 {
		return 0, fmt.Errorf("%v of %v tokens left, not more than half", g.tokens(), g.max)
	}
	return 1, nil
}

func (g *grpcThrottle) Return(context.Context, float64) {}

func (g *grpcThrottle) Earn(context.Context, float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lost = max(0, g.lost-int64(g.ratio*1000))
}

// Observe takes the token of a failure that Spend was not asked about, because
// something else had already ended the operation.
func (g *grpcThrottle) Observe(_ context.Context, r retry.Record) {
	if r.Decision != retry.GaveUp || r.Err == nil || r.Reason == retry.ErrBudget {
		return
	}
	switch r.Class {
	case retry.ClassTransient, retry.ClassThrottled, retry.ClassUnknown:
		g.fail()
	}
}

func (g *grpcThrottle) fail() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lost = min(int64(g.max*1000), g.lost+1000)
}

func (g *grpcThrottle) tokens() float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.max - float64(g.lost)/1000
}

// The arithmetic of proposal A6 with its own numbers, maxTokens 10 and
// tokenRatio 0.1.
func TestGRPCThrottleReplaysItsProposal(t *testing.T) {
	g := &grpcThrottle{max: 10, ratio: 0.1}
	fails := func() error { _, err := g.Spend(t.Context(), retry.Verdict{}, 1); return err }
	for _, left := range []float64{9, 8, 7, 6} {
		require.NoError(t, fails())
		require.Equal(t, left, g.tokens())
	}
	require.Error(t, fails(), "half is not more than half")
	require.Equal(t, 5.0, g.tokens())
	for range 10 {
		g.Earn(t.Context(), 0)
	}
	require.Equal(t, 6.0, g.tokens())
	require.Error(t, fails())
	for range 11 { // ten pay for the failure to come, one goes above half
		g.Earn(t.Context(), 0)
	}
	require.NoError(t, fails())
	require.Equal(t, 5.1, g.tokens())
	for range 20 {
		_ = fails()
	}
	require.Equal(t, 0.0, g.tokens())
	for range 1000 {
		g.Earn(t.Context(), 0)
	}
	require.Equal(t, 10.0, g.tokens())

	// A failure counts once, whatever was decided; one that is no matter of the
	// server's load does not.
	for _, c := range []struct {
		p    retry.Policy
		err  error
		left float64
	}{
		{retry.Policy{MaxAttempts: 1}, retry.Transient(errOp), 9},
		{retry.Policy{MaxAttempts: 3}, retry.Transient(errOp), 7},
		{retry.Policy{MaxAttempts: 9}, retry.Transient(errOp), 5},
		{retry.Policy{}, retry.Permanent(errOp), 10},
		{retry.Policy{}, errOp, 10},
		{retry.Policy{}, retry.Unknown(errOp), 9},
		{retry.Policy{}, retry.Throttled(errOp, time.Hour), 9},
	} {
		g := &grpcThrottle{max: 10, ratio: 0.1}
		c.p.Budget, c.p.Observe, c.p.Sleep = g, g.Observe, noSleep
		require.Error(t, retry.Run(t.Context(), &c.p, func(context.Context) error { return c.err }))
		require.Equal(t, c.left, g.tokens(), "%+v", c)
	}
}

// A Budget of one's own: Finagle's. Of the requests of the last ten seconds a
// fifth may be repeated, and ten a second besides. op tells it of requests.
func ExampleBudget_finagle() {
	now := atNoon()
	budget := &finagleBudget{ttl: 10 * time.Second, perSecond: 1, ratio: 0.2, clock: func() time.Time { return now }}
	p := retry.Policy{Effect: retry.ReadOnly, Budget: budget, MaxAttempts: 2, Sleep: noSleep}
	outage := func() (retries int) {
		for range 100 {
			calls := 0
			retry.Run(context.Background(), &p, func(ctx context.Context) error {
				budget.Request(ctx)
				calls++
				return &retry.StatusError{Code: 503}
			})
			retries += calls - 1
		}
		return retries
	}
	fmt.Println(outage(), "retries") // a fifth of 100, and 1/s for 10 s
	fmt.Println(outage(), "retries") // a fifth of 100
	now = now.Add(10 * time.Second)
	fmt.Println(outage(), "retries")
	// Output:
	// 30 retries
	// 20 retries
	// 30 retries
}

// finagleBudget is Finagle's RetryBudget: within ttl, retries may be ratio of
// the requests and perSecond besides. Its own defaults are 10 s, 10 and 0.2.
// What was put in or taken counts for ttl, in tenths of it.
type finagleBudget struct {
	ttl       time.Duration
	perSecond float64
	ratio     float64 // above 0
	clock     func() time.Time

	mu     sync.Mutex
	tenths [10]int64 // put in less taken, in units of a thousandth request
	latest int64     // tenth since the epoch
}

// Request puts in a request, if ctx is that of a first attempt.
func (f *finagleBudget) Request(ctx context.Context) {
	if retry.Attempt(ctx) == 1 {
		f.mu.Lock()
		defer f.mu.Unlock()
		*f.now() += 1000
	}
}

func (f *finagleBudget) Spend(context.Context, retry.Verdict, float64) (float64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, price := f.now(), int64(1000/f.ratio)
	left := int64(f.perSecond*f.ttl.Seconds()) * price
	for _, n := range f.tenths {
		left += n
	}
	if left < price {
		return 0, errors.New("retries are used up for now")
	}
	*now -= price
	return 1, nil
}

func (f *finagleBudget) Return(context.Context, float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*f.now() += int64(1000 / f.ratio)
}

func (f *finagleBudget) Earn(context.Context, float64) {}

// now forgets the tenths that have expired, and returns that of now.
func (f *finagleBudget) now() *int64 {
	tenth := f.clock().UnixNano() / int64(f.ttl/10)
	for n := min(10, tenth-f.latest); n > 0; n-- {
		f.tenths[(tenth-n+1)%10] = 0
	}
	f.latest = max(f.latest, tenth)
	return &f.tenths[f.latest%10]
}

// The arithmetic of Finagle's documentation: "about 20% of the total requests
// on top of 10 retries per second", in a window of ten seconds.
func TestFinagleBudgetReplaysItsDocumentation(t *testing.T) {
	now := atNoon()
	f := &finagleBudget{ttl: 10 * time.Second, perSecond: 10, ratio: 0.2, clock: func() time.Time { return now }}
	retries := func() int {
		for n := range 10_000 {
			if _, err := f.Spend(t.Context(), retry.Verdict{}, 1); err != nil {
				return n
			}
		}
		return 10_000
	}
	requests := func(n int) {
		for range n {
			f.Request(t.Context())
		}
	}
	require.Equal(t, 100, retries(), "the reserve of a client that has just started")
	require.Equal(t, 0, retries())
	now = now.Add(9 * time.Second)
	require.Equal(t, 0, retries(), "it was taken within the window")
	now = now.Add(time.Second)
	require.Equal(t, 100, retries(), "it was not")

	requests(4)
	require.Equal(t, 0, retries())
	requests(1)
	require.Equal(t, 1, retries(), "one in five")
	requests(500)
	f.Return(t.Context(), 1)
	require.Equal(t, 101, retries())
	requests(500)
	now = now.Add(9 * time.Second)
	f.Return(t.Context(), 1)
	require.Equal(t, 101, retries(), "requests of nine seconds ago count")
	now = now.Add(time.Hour)
	require.Equal(t, 100, retries(), "those of an hour ago do not")

	// Only first attempts are requests, and a success is none.
	before := f.tenths
	p := retry.Policy{Budget: f, Sleep: noSleep}
	now = now.Add(time.Hour)
	require.NoError(t, retry.Run(t.Context(), &p, func(ctx context.Context) error {
		f.Request(ctx)
		if retry.Attempt(ctx) < 3 {
			return retry.Transient(errOp)
		}
		return nil
	}))
	require.NotEqual(t, before, f.tenths)
	require.EqualValues(t, 1000-2*5000, *f.now())
}
