package main

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-3d0f8764/retry"
)

// source is where a run's draws come from.
type source interface{ Float64() float64 }

// pcg is the source of the given run, where the draws need not be Python's.
func pcg(run int) *rand.Rand { return rand.New(rand.NewPCG(uint64(run), 0x9e3779b97f4a7c15)) }

// sim runs processes in virtual time: real code, retry.Do and all, that gives way to others
// whenever it sleeps. One runs at a time, in the order of their waking; of those that wake at the
// same instant the one that was started first. So a run is a pure function of its draws.
//
// Code that waits for a channel or a timer of its own cannot run in it: the gate has its worlds in
// gate.go.
type sim struct {
	now     time.Duration // since the start
	draws   source
	queue   []event // a heap
	started int
	current *process
}

type event struct {
	at time.Duration
	*process
}

type process struct {
	number int
	resume func() (time.Duration, bool) // runs it up to its next sleep; false: it has ended
	stop   func()
	yield  func(time.Duration) bool
}

var errStopped = errors.New("the simulation has ended")

// start lets body run at the instant at.
func (s *sim) start(at time.Duration, body func()) {
	p := &process{number: s.started}
	s.started++
	p.resume, p.stop = iter.Pull(func(yield func(time.Duration) bool) {
		p.yield = yield
		body()
	})
	s.push(event{at, p})
}

// sleep suspends the process that calls it. It fits Policy.Sleep.
func (s *sim) sleep(_ context.Context, d time.Duration) error {
	if !s.current.yield(d) {
		return errStopped
	}
	return nil
}

// run plays all that happens before end, and stops what has not ended by then.
func (s *sim) run(end time.Duration) {
	for len(s.queue) > 0 && s.queue[0].at < end {
		e := s.pop()
		s.now, s.current = e.at, e.process
		if d, alive := e.resume(); alive {
			s.push(event{s.now + max(0, d), e.process})
		}
	}
	for _, e := range s.queue {
		s.current = e.process // it runs its last deferred calls
		e.stop()
	}
	s.queue = nil
}

// policy is b without any limit, in this world's time and with its draws.
func (s *sim) policy(b retry.Backoff) retry.Policy {
	return retry.Policy{
		Backoff: b, Effect: retry.ReadOnly,
		MaxAttempts: -1, MaxElapsed: -1, MaxHint: -1,
		Clock: func() time.Time { return time.Unix(0, 0).Add(s.now) },
		Rand:  s.draws.Float64,
		Sleep: s.sleep,
	}
}

func (a event) before(b event) bool {
	return a.at < b.at || a.at == b.at && a.number < b.number
}

func (s *sim) push(e event) {
	s.queue = append(s.queue, e)
	q, i := s.queue, len(s.queue)-1
	for i > 0 && e.before(q[(i-1)/2]) {
		q[i] = q[(i-1)/2]
		i = (i - 1) / 2
	}
	q[i] = e
}

func (s *sim) pop() event {
	first, last := s.queue[0], len(s.queue)-1
	e := s.queue[last]
	s.queue[last] = event{}
	s.queue = s.queue[:last]
	if last == 0 {
		return first
	}
	q, i := s.queue, 0
	for {
		c := 2*i + 1
		if c+1 < last && q[c+1].before(q[c]) {
			c++
		}
		if c >= last || !q[c].before(e) {
			break
		}
		q[i] = q[c]
		i = c
	}
	q[i] = e
	return first
}

// repeat makes the runs 0 to n-1, on all cores, and returns their results in order.
func repeat[T any](n int, run func(int) T) []T {
	results := make([]T, n)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				results[i] = run(i)
			}
		})
	}
	workers.Wait()
	return results
}
