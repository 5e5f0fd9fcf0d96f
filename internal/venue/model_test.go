package venue_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-3d0f8764/retry"
	"github.com/seed-3d0f8764/retry/internal/venue"
	"github.com/stretchr/testify/require"
)

// A million runs:
//
//	go test ./internal/venue -run TestModel -timeout 0 -args -runs 1000000
//
// and all runs with up to three things that go wrong:
//
//	go test ./internal/venue -run TestModel -timeout 0 -args -faults 3
var (
	modelRuns   = flag.Int("runs", 10_000, "random runs of the model")
	modelSeed   = flag.Uint64("seed", 1, "of the random runs")
	modelFaults = flag.Int("faults", 2, "the most that goes wrong in a run of the exhaustive walk")
)

const (
	modelPatience = time.Second // of the client, for one answer
	modelWindow   = 3 * time.Second
)

// fate is what becomes of one request.
type fate struct {
	name    string
	lost    bool          // it never arrives
	arrives time.Duration // after it was sent
	silent  bool          // the client never gets the answer
	breaks  bool          // the connection does, at once
	back    time.Duration // the answer takes so long
	half    bool          // of the answer arrives
	status  int           // in place of what the venue answers
	refused bool          // with this status at the door, without effect
	after   string        // Retry-After
}

// fates begins with the one in which nothing goes wrong.
var fates = []fate{
	{name: "answered"},
	{name: "lost request", lost: true, breaks: true},
	{name: "lost answer", breaks: true},
	{name: "slow answer", back: 2 * modelPatience},
	{name: "black hole", lost: true, silent: true},
	{name: "late, connection broken", arrives: modelWindow / 2, breaks: true},
	{name: "late, at the end of its window", arrives: modelWindow, breaks: true},
	{name: "late, after its window", arrives: modelWindow + time.Millisecond, breaks: true},
	{name: "late, long after its window", arrives: modelWindow * 7 / 5, breaks: true},
	{name: "late, after the client's patience", arrives: modelPatience + time.Millisecond, silent: true},
	{name: "in the last moment", arrives: modelPatience / 2, back: modelPatience/2 - 1},
	{name: "half an answer", half: true},
	{name: "503, done", status: 503},
	{name: "503, not done", status: 503, lost: true},
	{name: "429", status: 429, refused: true, after: "1"},
	{name: "429, for long", status: 429, refused: true, after: "120"},
	{name: "418", status: 418, refused: true, after: "2"},
	{name: "418, for long", status: 418, refused: true, after: "120"},
	{name: "403", status: 403, refused: true},
}

// world is one run: a venue, a network, a disk, and processes that place one order
// and may be killed at any step. What goes wrong is asked of choose, which
// returns a number below n; 0 is that nothing does.
type world struct {
	choose func(n int) int
	dies   func() bool    // the same for death
	seen   map[string]int // what has happened, over all runs

	x     *venue.Exchange
	olds  int    // orders under the id, of others
	disk  []byte // JSON of the state
	lives int    // kills and failures of the disk that are still to come at most

	policy  retry.Policy
	lookup  retry.Lookup[venue.Order]
	intent  venue.Intent
	skew    time.Duration // of the client's clock
	posts   int
	doubt   bool // a request to buy has left, and may have been applied
	cleared bool // and since then a look-up was answered, with no request and no wait after it

	wrong error // the first rule that was broken
}

// killed is what a process that is killed panics with.
type killed struct{}

func (w *world) broken(format string, args ...any) {
	if w.wrong == nil {
		w.wrong = fmt.Errorf(format, args...)
	}
}

// mayDie is a point at which a process may be killed.
func (w *world) mayDie() {
	if w.lives > 0 && w.dies() {
		w.lives--
		w.seen["killed"]++
		panic(killed{})
	}
}

// save is the journal's: it may fail, before it has stored or after.
func (w *world) save(_ context.Context, s retry.State) error {
	w.mayDie()
	fails := 0
	if w.lives > 0 && w.dies() {
		w.lives--
		w.seen["disk failed"]++
		fails = 1 + w.choose(2)
	}
	if fails == 1 {
		return errors.New("disk full")
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	w.disk = text
	if fails == 2 {
		return errors.New("no answer from the disk")
	}
	w.mayDie()
	return nil
}

func (w *world) load() (s retry.State) {
	if w.disk != nil {
		if err := json.Unmarshal(w.disk, &s); err != nil {
			w.broken("state: %v", err)
		}
	}
	return s
}

// sleep may be cut short by death.
func (w *world) sleep(ctx context.Context, d time.Duration) error {
	w.cleared = false
	w.mayDie()
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return ctx.Err()
	}
	w.mayDie()
	return nil
}

// RoundTrip is the network.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	post := r.Method == http.MethodPost
	if post {
		w.leaves()
	}
	w.cleared = false
	w.mayDie()
	f := fates[w.choose(len(fates))]
	w.seen[r.Method+" "+f.name]++
	doubted := w.doubt
	w.doubt = w.doubt || post
	resp, err := w.carry(r, f)
	w.mayDie()
	if f.refused {
		w.doubt = doubted
	}
	w.cleared = !post && err == nil && resp.StatusCode == http.StatusOK && !f.half
	return resp, err
}

// leaves checks what must hold when a request to buy is sent.
func (w *world) leaves() {
	w.posts++
	if w.policy.MaxAttempts > 0 && w.posts > w.policy.MaxAttempts {
		w.broken("%d requests, and %d attempts allowed", w.posts, w.policy.MaxAttempts)
	}
	if w.doubt && !w.cleared {
		w.broken("sent again without looking right before")
	}
	s := w.load()
	if !s.InFlight {
		w.broken("sent and not saved: %+v", s)
	}
	if late := time.Since(s.Started); late >= w.policy.MaxElapsed {
		w.broken("sent %v after the start", late)
	}
}

// carry takes r to the venue, and the answer back.
func (w *world) carry(r *http.Request, f fate) (*http.Response, error) {
	answers := make(chan *http.Response, 1)
	deliver := func() {
		time.Sleep(f.arrives)
		resp := w.answer(r, f)
		time.Sleep(f.back)
		if !f.silent {
			answers <- resp
		}
	}
	if f.arrives == 0 && f.back == 0 {
		deliver()
	} else {
		go deliver()
	}
	if f.breaks {
		return nil, io.EOF
	}
	select {
	case resp := <-answers:
		return resp, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// answer is what the venue does, or what stands before it.
func (w *world) answer(r *http.Request, f fate) *http.Response {
	rec := httptest.NewRecorder()
	if !f.lost && !f.refused {
		w.x.ServeHTTP(rec, r.WithContext(context.Background()))
	}
	if f.status != 0 {
		rec = httptest.NewRecorder()
		rec.Header().Set("Retry-After", f.after)
		rec.WriteHeader(f.status)
	}
	resp := rec.Result()
	resp.Request = r
	if f.half {
		half := rec.Body.Bytes()[:rec.Body.Len()/2]
		resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(half), cut{}))
	}
	return resp
}

// cut is the end of a connection that broke.
type cut struct{}

func (cut) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// process places the order, or goes on where another process was killed.
func (w *world) process(ctx context.Context) (o venue.Order, err error, dead bool) {
	defer func() {
		if p := recover(); p == (killed{}) {
			dead = true
		} else if p != nil {
			panic(p)
		}
	}()
	s := w.load()
	c, err := venue.New("http://venue", w.intent)
	if err != nil {
		return o, err, false
	}
	c.HTTP, c.Window, c.Since = &http.Client{Transport: w}, modelWindow, s.Started
	c.Clock = func() time.Time { return time.Now().Add(w.skew) }
	if s.Version == 0 {
		c.Since = time.Now()
	}
	if s.Ended { // killed before it could say how
		w.seen["asked how it ended"]++
		o, err = retry.Do(ctx, w.lookup.Policy, c.Look)
		if err != nil && !errors.Is(err, venue.ErrNotPlaced) {
			err = fmt.Errorf("%w (%w)", retry.ErrUnknownOutcome, err)
		}
		return o, err, false
	}
	p, l := w.policy, w.lookup
	p.Journal = &retry.Journal{State: s, Save: w.save}
	l.Find = c.Find
	o, err = retry.Submit(ctx, &p, c.Place, l)
	w.mayDie()
	return o, err, false
}

// live runs processes until one of them reports for good.
func (w *world) live() (venue.Order, error) {
	for {
		ctx, cancel := context.WithCancel(context.Background())
		if d := w.among(0, 300*time.Millisecond, modelPatience+1, 5*time.Second); d > 0 && w.lives > 0 {
			w.lives--
			time.AfterFunc(d, cancel)
		}
		o, err, dead := w.process(ctx)
		cancel()
		if !dead {
			w.report(o, err)
			if err == nil || w.load().Ended || w.lives == 0 || w.choose(2) == 0 {
				return o, err
			}
			w.lives-- // and somebody resumes it
		}
		time.Sleep(w.among(0, time.Millisecond, modelWindow, 15*time.Second, time.Hour)) // no process runs
	}
}

func (w *world) among(d ...time.Duration) time.Duration { return d[w.choose(len(d))] }

// bought returns the orders of the intent.
func (w *world) bought() []venue.Order { return w.x.Orders()[w.olds:] }

// report checks what a process says when it says it.
func (w *world) report(o venue.Order, err error) {
	name := "success"
	if e, ok := errors.AsType[*retry.Error](err); errors.Is(err, venue.ErrNotPlaced) {
		name = "not placed"
	} else if ok {
		name = e.Reason.Error()
	}
	w.seen["=> "+name]++
	switch n := len(w.bought()); {
	case n > 1:
		w.broken("%d orders", n)
	case err == nil && n == 0:
		w.broken("a failure reported as success: %+v", o)
	case err == nil && w.bought()[0].ID != o.ID:
		w.broken("order %d reported, and it is %d", o.ID, w.bought()[0].ID)
	case err != nil && n > 0 && !errors.Is(err, retry.ErrUnknownOutcome):
		w.broken("a success reported as failed for good: %v", err)
	}
}

// play is one run, in a bubble. It returns the first rule that was broken.
func (w *world) play() error {
	w.x, w.lives = &venue.Exchange{}, 8
	w.intent = venue.Intent{ClientID: "id", Side: "BUY", Quantity: 3, Type: []string{"MARKET", "LIMIT"}[w.choose(2)]}
	w.policy = retry.Policy{
		Name: "order", AttemptTimeout: modelPatience, Spread: 100 * time.Millisecond,
		MaxAttempts: []int{4, 1, 2, -1}[w.choose(4)],
		MaxElapsed:  w.among(20*time.Second, 4*time.Second),
		Rand:        func() float64 { return 0.5 },
		Sleep:       w.sleep,
	}
	w.lookup = retry.Lookup[venue.Order]{
		Settle:  w.among(0, 200*time.Millisecond),
		Resends: []int{0, 2, -1}[w.choose(3)],
		Policy: &retry.Policy{
			Effect: retry.ReadOnly, AttemptTimeout: modelPatience, MaxElapsed: 20 * time.Second,
			MaxAttempts: []int{-1, 2}[w.choose(2)],
			Backoff:     retry.Backoff{Base: 2 * time.Second, Multiplier: 1},
			Rand:        w.policy.Rand, Sleep: w.sleep,
		},
	}
	w.skew = w.among(0, modelWindow/2, -modelWindow/2)
	w.before()
	o, err := w.live()
	time.Sleep(2 * modelWindow) // what is still on its way arrives
	synctest.Wait()
	w.report(o, err)
	return w.wrong
}

// before places orders of others under the id, of which none is open, or one
// is, or one is like ours.
func (w *world) before() {
	c, _ := venue.New("http://venue", w.intent)
	switch w.choose(4) {
	case 0:
		return
	case 1:
		c.Intent.Type = "LIMIT"
	case 2:
		c.Intent.Type = "MARKET"
	case 3:
		c.Intent.Type, c.Intent.Quantity = "MARKET", 4
	}
	w.seen["the id was used before"]++
	c.HTTP = &http.Client{Transport: direct{w.x}}
	if _, err := c.Place(context.Background()); err != nil {
		w.broken("%v", err)
	}
	w.olds = 1
	time.Sleep(time.Second)
}

// direct is a network without faults.
type direct struct{ http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	rec := httptest.NewRecorder()
	d.ServeHTTP(rec, r)
	return rec.Result(), nil
}

// Random runs: never two orders for one intent, never a placed one reported
// as failed for good, never a failure as success.
func TestModelRandomRuns(t *testing.T) {
	seen := map[string]int{}
	start := time.Now()
	for run := range *modelRuns {
		r := rand.New(rand.NewPCG(*modelSeed, uint64(run)))
		rate, deaths := []float64{0.05, 0.3, 0.6}[r.IntN(3)], []float64{0, 0.02, 0.2}[r.IntN(3)]
		w := &world{seen: seen, dies: func() bool { return r.Float64() < deaths }, choose: func(n int) int {
			if r.Float64() >= rate {
				return 0
			}
			return 1 + r.IntN(n-1)
		}}
		synctest.Test(t, func(t *testing.T) {
			require.NoError(t, w.play(), "-args -seed %d: run %d", *modelSeed, run)
		})
	}
	t.Logf("%d runs in %v: %v", *modelRuns, time.Since(start).Round(time.Millisecond), seen)
	if *modelRuns >= 10_000 { // else it can be that something has not happened
		for _, f := range fates {
			require.Positive(t, seen["POST "+f.name], f.name)
			require.Positive(t, seen["GET "+f.name], f.name)
		}
		for _, reason := range []error{retry.ErrPermanent, retry.ErrSuspended, retry.ErrUnknownOutcome, retry.ErrAttempts,
			retry.ErrDeadline, retry.ErrCanceled, retry.ErrJournal, errors.New("success")} {
			require.Positive(t, seen["=> "+reason.Error()], reason)
		}
	}
}

// Every run in which not more than so many things go wrong: each fate of each
// request, each step at which a process may be killed, each limit.
func TestModelEveryRunWithFewFaults(t *testing.T) {
	seen := map[string]int{}
	start, runs := time.Now(), 0
	var tape, options []int // what was chosen, of how many
	for more := true; more; runs++ {
		at := 0
		w := &world{seen: seen, choose: func(n int) int {
			if at == len(tape) {
				tape, options = append(tape, 0), append(options, n)
			}
			at++
			return tape[at-1]
		}}
		w.dies = func() bool { return w.choose(2) == 1 }
		options = options[:len(tape)]
		synctest.Test(t, func(t *testing.T) {
			require.NoError(t, w.play(), "choices %v", tape)
		})
		tape, more = next(tape[:at], options, *modelFaults)
		options = options[:len(tape)]
	}
	t.Logf("%d runs in %v: %v", runs, time.Since(start).Round(time.Millisecond), seen)
	require.Greater(t, runs, 1000)
}

// next returns the tape that follows in the order of all with at most faults
// choices that are not 0.
func next(tape, options []int, faults int) ([]int, bool) {
	for i := len(tape) - 1; i >= 0; i-- {
		used := 0
		for _, c := range tape[:i] {
			used += min(c, 1)
		}
		if used < faults && tape[i]+1 < options[i] {
			tape[i]++
			return tape[:i+1], true
		}
	}
	return nil, false
}
