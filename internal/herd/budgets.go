package main

import (
	"context"
	"errors"
	"time"

	"github.com/seed-3d0f8764/retry"
)

// What others publish, as Budgets. One process of a sim runs at a time: no locks here.

// awsBucket is the token bucket of the AWS SDKs: a retry costs so much, a success after one brings it
// back, a success at the first attempt brings 1.
func awsBucket(cost float64) retry.Budget {
	return &retry.Bucket{Capacity: 500, Cost: cost, PerSuccess: 1, Refund: 1}
}

var errNoBudget = errors.New("the budget is used up")

// share allows so many retries per request, and so many per second whatever is requested, counted over
// the last ten seconds: Finagle's RetryBudget, Linkerd's too.
type share struct {
	now               *time.Duration
	ratio, perSecond  float64
	requests, retries [10]float64 // by second
	second            int
}

func (b *share) roll() int {
	for s := int(*b.now / time.Second); b.second < s; {
		b.second++
		b.requests[b.second%10], b.retries[b.second%10] = 0, 0
	}
	return b.second % 10
}

// request counts a first attempt. A Budget is not told of it.
func (b *share) request() { b.requests[b.roll()]++ }

func (b *share) Spend(context.Context, retry.Verdict, float64) (float64, error) {
	i := b.roll()
	var requests, retries float64
	for j := range b.requests {
		requests += b.requests[j]
		retries += b.retries[j]
	}
	if retries+1 > b.ratio*requests+10*b.perSecond {
		return 0, errNoBudget
	}
	b.retries[i]++
	return 1, nil
}

func (b *share) Return(context.Context, float64) { b.retries[b.roll()]-- }
func (b *share) Earn(context.Context, float64)   {}

// throttling is gRPC's retryThrottling: a failure takes 1, a success gives ratio, and there are retries
// while more than half is left.
type throttling struct{ tokens, most, ratio float64 }

func (b *throttling) Spend(context.Context, retry.Verdict, float64) (float64, error) {
	b.tokens = max(0, b.tokens-1)
	if b.tokens <= b.most/2 {
		return 0, errNoBudget
	}
	return 0, nil
}

func (b *throttling) Return(context.Context, float64) {}
func (b *throttling) Earn(context.Context, float64)   { b.tokens = min(b.most, b.tokens+b.ratio) }
