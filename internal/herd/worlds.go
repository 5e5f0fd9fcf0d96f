package main

import (
	"math"
	"time"

	"github.com/seed-3d0f8764/retry"
)

// world is a herd with a name.
type world struct {
	name string
	herd
}

func crowd(name string, clients, rate int) world {
	return world{name, herd{clients: clients, server: server{rate: rate}}}
}

// pairs are the worlds for which the constants of elapsed jitter were chosen.
var pairs = []world{
	crowd("20@10", 20, 10), crowd("100@10", 100, 10), crowd("300@10", 300, 10), crowd("1000@10", 1000, 10),
	crowd("3000@10", 3000, 10), crowd("100@1", 100, 1), crowd("30@3", 30, 3), crowd("100@50", 100, 50),
	crowd("1000@50", 1000, 50), crowd("1000@100", 1000, 100), crowd("10000@100", 10000, 100),
}

// laterPairs were looked at once, afterwards.
var laterPairs = []world{
	crowd("60@4", 60, 4), crowd("150@7", 150, 7), crowd("400@12", 400, 12), crowd("700@25", 700, 25),
	crowd("2000@30", 2000, 30), crowd("5000@40", 5000, 40), crowd("250@2", 250, 2), crowd("80@40", 80, 40),
	crowd("6000@10", 6000, 10),
}

// otherServers are other windows and other starts.
var otherServers = []world{
	{"100@10, phase .37", herd{clients: 100, server: server{rate: 10, shift: 370 * time.Millisecond}}},
	{"1000@10, phase .37", herd{clients: 1000, server: server{rate: 10, shift: 370 * time.Millisecond}}},
	{"100@10, bucket", herd{clients: 100, server: server{rate: 10, bucket: true}}},
	{"1000@10, bucket", herd{clients: 1000, server: server{rate: 10, bucket: true}}},
	{"100@10 over 1s", herd{clients: 100, server: server{rate: 10}, spread: time.Second}},
	{"1000@10 over 1s", herd{clients: 1000, server: server{rate: 10}, spread: time.Second}},
	{"100@10 over 5s", herd{clients: 100, server: server{rate: 10}, spread: 5 * time.Second}},
	{"100, 1 per .1s", herd{clients: 100, server: server{rate: 1, window: 100 * time.Millisecond}}},
	{"1000, 1 per .1s", herd{clients: 1000, server: server{rate: 1, window: 100 * time.Millisecond}}},
	{"100, 20 per 2s", herd{clients: 100, server: server{rate: 20, window: 2 * time.Second}}},
	{"1000, 20 per 2s", herd{clients: 1000, server: server{rate: 20, window: 2 * time.Second}}},
	{"1000, 50 per 5s", herd{clients: 1000, server: server{rate: 50, window: 5 * time.Second}}},
	{"1000, 100 per 10s", herd{clients: 1000, server: server{rate: 100, window: 10 * time.Second}}},
	{"1000, 600 per 60s", herd{clients: 1000, server: server{rate: 600, window: time.Minute}}},
	{"3000, 600 per 60s", herd{clients: 3000, server: server{rate: 600, window: time.Minute}}},
	crowd("12@10", 12, 10), crowd("50@10", 50, 10), crowd("200@10", 200, 10), crowd("500@10", 500, 10),
}

// hintWorlds are those for the rules about hints.
var hintWorlds = []world{
	pairs[0], pairs[1], pairs[3], pairs[5], pairs[9],
	otherServers[0], otherServers[1], otherServers[2], otherServers[3], otherServers[6],
	otherServers[12], otherServers[13], otherServers[14],
}

// bare is a run without Do: only the waits of b are the package's own. It takes a twentieth of the
// time of run, and where there is no hint it is the same, draw for draw (a test has both).
func (h herd) bare(b retry.Backoff, draws source) (r result) {
	clients := make([]struct {
		began, previous time.Duration
		tries           int
	}, h.clients)
	srv := h.server
	s := &sim{}
	for i := range clients {
		if h.spread > 0 {
			clients[i].began = time.Duration(draws.Float64() * float64(h.spread))
		}
		s.push(event{clients[i].began, &process{number: i}})
	}
	for len(s.queue) > 0 {
		e := s.pop()
		r.calls++
		if ok, _ := srv.call(e.at); ok {
			r.last = e.at
			continue
		}
		c := &clients[e.number]
		c.previous = b.Wait(retry.Step{Retry: c.tries, Previous: c.previous, Elapsed: e.at - c.began, Draw: draws.Float64()})
		c.tries++
		s.push(event{e.at + c.previous, e.process})
	}
	return r
}

func (h herd) bareRuns(b retry.Backoff, n int, draws func(run int) source) figures {
	return collect(repeat(n, func(i int) result { return h.bare(b, draws(i)) }))
}

// published3 are the strategies that others publish.
var published3 = []retry.Backoff{published(retry.FullJitter), published(retry.EqualJitter), published(retry.DecorrelatedJitter)}

// best are the least calls and the shortest time of the published strategies, each for itself.
func (h herd) best(n int) (calls, last stat) {
	calls, last = stat{n: 1, sum: math.Inf(1)}, stat{n: 1, sum: math.Inf(1)}
	for _, b := range published3 {
		f := h.bareRuns(b, n, random)
		if f.calls.mean() < calls.mean() {
			calls = f.calls
		}
		if f.last.mean() < last.mean() {
			last = f.last
		}
	}
	return calls, last
}

// enough is how many runs make about so many calls.
func (h herd) enough(calls int) int {
	_, last := h.floor()
	each := float64(h.clients) * (1 + last.Seconds()/12)
	return int(min(2000, max(4, float64(calls)/each)))
}
