package main

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/seed-3d0f8764/retry"
)

// storm is a service with an outage. Requests arrive as a Poisson stream, each at one of its clients'
// processes. The server is one queue, first come first served. In the outage it serves nothing but
// accepts all. A client gives a call up when its time is over; the server does not notice and does
// the work all the same.
type storm struct {
	capacity  float64 // calls per second
	load      float64 // requests, as a share of that
	processes int
	begins    time.Duration
	outage    time.Duration
	end       time.Duration
	timeout   time.Duration
	failing   float64 // share of calls that fail by themselves, once served
}

// weather is the storm of the published table.
var weather = storm{
	capacity: 1000, load: 0.8, processes: 100,
	begins: 30 * time.Second, outage: 10 * time.Second, end: 340 * time.Second, timeout: time.Second,
}

// defence is how the clients retry.
type defence struct {
	name     string
	attempts int                     // in each layer
	layers   int                     // services that call one another, each with its own loop; 0: 1
	budget   func(*sim) retry.Budget // of one process; nil: none
	marked   bool                    // a refusal by the budget is told to the layers above as final
}

var defences = []defence{
	{name: "no retry", attempts: 1},
	{name: "3 attempts, no budget", attempts: 3},
	{name: "AWS bucket 500/5", attempts: 5, budget: func(*sim) retry.Budget { return awsBucket(5) }},
	{name: "AWS bucket 500/14", attempts: 5, budget: func(*sim) retry.Budget { return awsBucket(14) }},
	{name: "10% of requests", attempts: 5, budget: func(s *sim) retry.Budget { return &share{now: &s.now, ratio: 0.1} }},
	{name: "10% of requests + 1/s", attempts: 5, budget: func(s *sim) retry.Budget { return &share{now: &s.now, ratio: 0.1, perSecond: 1} }},
	{name: "Bucket, 10% of successes", attempts: 5, budget: func(*sim) retry.Budget { return &retry.Bucket{PerSuccess: 0.1} }},
	{name: "Bucket (20% of successes)", attempts: 5, budget: func(*sim) retry.Budget { return &retry.Bucket{} }},
	{name: "gRPC 10/0.1", attempts: 5, budget: func(*sim) retry.Budget { return &throttling{10, 10, 0.1} }},
	{name: "3 layers of 3, no budget", attempts: 3, layers: 3},
	{name: "3 layers of 3, Bucket, refusals not marked", attempts: 3, layers: 3, budget: func(*sim) retry.Budget { return &retry.Bucket{} }},
	{name: "3 layers of 3, Bucket, refusals marked", attempts: 3, layers: 3, budget: func(*sim) retry.Budget { return &retry.Bucket{} }, marked: true},
}

// aftermath is what came of one run.
type aftermath struct {
	calls, requests, good []float64 // by second
	requested, failed     int       // in the whole run; of those that have ended

	perRequest float64 // calls per request, from the outage to 60s after it
	peak       float64 // calls in the worst second of that, over the requests of an average one
	recovery   float64 // seconds from the outage's end until 95% of the requests succeed, for good; +Inf: never
}

var (
	errTimeout  = retry.Unknown(errors.New("timeout"))
	errUpstream = retry.Unknown(errors.New("503"))
)

// run is one run. The calls of all layers but the last take no time.
func (w storm) run(d defence, draws *rand.Rand) aftermath {
	s := &sim{draws: draws}
	seconds := int(w.end / time.Second)
	a := aftermath{calls: make([]float64, seconds), requests: make([]float64, seconds), good: make([]float64, seconds)}
	rate := w.load * w.capacity // requests per second

	layers := max(1, d.layers)
	policies := make([]retry.Policy, w.processes*layers)
	for i := range policies {
		p := s.policy(retry.Backoff{Base: 100 * time.Millisecond, Cap: 20 * time.Second})
		p.MaxAttempts = d.attempts
		if d.budget != nil {
			p.Budget = d.budget(s)
		}
		policies[i] = p
	}

	var free time.Duration // when the server has done all that it has accepted
	service := time.Duration(float64(time.Second) / w.capacity)
	served := func() time.Duration {
		begin := max(s.now, free)
		if begin >= w.begins && begin < w.begins+w.outage {
			begin = w.begins + w.outage
		}
		free = begin + service
		if begin < w.begins && free > w.begins {
			free += w.outage
		}
		return free
	}
	call := func(ctx context.Context) error {
		a.calls[s.now/time.Second]++
		takes := served() - s.now
		if err := s.sleep(ctx, min(takes, w.timeout)); err != nil {
			return err
		}
		if takes > w.timeout || w.failing > 0 && draws.Float64() < w.failing {
			return errTimeout
		}
		return nil
	}
	var layer func(process, n int) error
	layer = func(process, n int) error {
		p := &policies[process*layers+n]
		if b, ok := p.Budget.(*share); ok {
			b.request()
		}
		op := call
		if n+1 < layers {
			op = func(context.Context) error { return layer(process, n+1) }
		}
		// Each layer is a service of its own: what it knows of the one below is a status.
		switch err := retry.Run(context.Background(), p, op); {
		case err == nil || errors.Is(err, retry.ErrCanceled):
			return err
		case d.marked && errors.Is(err, retry.ErrBudget):
			return retry.Permanent(retry.ErrBudget)
		case d.marked && errors.Is(err, retry.ErrPermanent):
			return retry.Permanent(retry.ErrPermanent)
		default:
			return errUpstream
		}
	}
	s.start(0, func() {
		for s.sleep(context.Background(), time.Duration(draws.ExpFloat64()/rate*float64(time.Second))) == nil {
			a.requests[s.now/time.Second]++
			a.requested++
			process := draws.IntN(w.processes)
			s.start(s.now, func() {
				switch err := layer(process, 0); {
				case err == nil:
					a.good[s.now/time.Second]++
				case !errors.Is(err, retry.ErrCanceled):
					a.failed++
				}
			})
		}
	})
	s.run(w.end)
	a.sum(w, rate)
	return a
}

func (a *aftermath) sum(w storm, rate float64) {
	over, last := int((w.begins+w.outage)/time.Second), len(a.good)
	var calls, requests float64
	for i := int(w.begins / time.Second); i < min(over+60, last); i++ {
		calls += a.calls[i]
		requests += a.requests[i]
		a.peak = max(a.peak, a.calls[i]/rate)
	}
	a.perRequest = calls / requests
	bad := over - 1 // the beginning of the last five seconds that are below 95%
	for i := over; i+5 <= last; i++ {
		var good, requests float64
		for j := i; j < i+5; j++ {
			good += a.good[j]
			requests += a.requests[j]
		}
		if good < 0.95*requests {
			bad = i
		}
	}
	a.recovery = float64(bad + 1 - over)
	if bad+10 > last {
		a.recovery = math.Inf(1)
	}
}

// toll are the means over runs.
type toll struct{ perRequest, peak, recovery stat }

func (w storm) runs(d defence, n int) toll {
	return total(repeat(n, func(i int) aftermath { return w.run(d, pcg(i)) }))
}

func total(all []aftermath) (t toll) {
	for _, a := range all {
		t.perRequest.add(a.perRequest)
		t.peak.add(a.peak)
		t.recovery.add(a.recovery)
	}
	return t
}
