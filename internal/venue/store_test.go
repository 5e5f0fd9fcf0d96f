package venue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-3d0f8764/retry"
	"github.com/seed-3d0f8764/retry/internal/venue"
	"github.com/stretchr/testify/require"
)

// The test binary is its own worker: see work.
func TestMain(m *testing.M) {
	if dir := os.Getenv("VENUE_JOB"); dir != "" {
		if err := work(dir, os.Getenv("VENUE_URL"), os.Getenv("VENUE_DIE_AT")); err != nil {
			fmt.Println("failed:", err)
		}
		return
	}
	os.Exit(m.Run())
}

func newStore(t testing.TB) (*venue.Store, string) {
	dir := filepath.Join(t.TempDir(), "job")
	s, err := venue.Open(dir)
	require.NoError(t, err)
	return s, dir
}

func TestStoreKeepsTheStateSavedLast(t *testing.T) {
	s, dir := newStore(t)
	none, err := s.Load()
	require.NoError(t, err)
	require.Zero(t, none)
	var want retry.State
	for i := range int64(11) { // 10 is after 9, not after 1
		want = retry.State{Version: 1, Revision: i + 1, Attempts: int(i), Left: time.Duration(i), InFlight: i%2 == 0}
		require.NoError(t, s.Save(t.Context(), want))
		got, err := s.Load()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	again, err := venue.Open(dir)
	require.NoError(t, err)
	got, err := again.Load()
	require.NoError(t, err)
	require.Equal(t, want, got)
	left, err := filepath.Glob(filepath.Join(dir, "unfinished-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// What a killed Save leaves behind, before the link and after it, is not read
// and is in nobody's way.
func TestStoreIgnoresAnUnfinishedSave(t *testing.T) {
	s, dir := newStore(t)
	first := retry.State{Version: 1, Revision: 1, Attempts: 1}
	require.NoError(t, s.Save(t.Context(), first))
	for i, half := range []string{"", `{"version":1,"rev`, `{"version":1,"revision":2}`} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "unfinished-"+strconv.Itoa(i)), []byte(half), 0o600))
	}
	got, err := s.Load()
	require.NoError(t, err)
	require.Equal(t, first, got)
	require.NoError(t, s.Save(t.Context(), retry.State{Version: 1, Revision: 2}))
}

// To take a job for new because its state cannot be read would send it twice.
func TestStoreDoesNotTakeABrokenStateForNone(t *testing.T) {
	s, dir := newStore(t)
	file := filepath.Join(dir, "1")
	for _, broken := range []string{"", "{", `{"version":1,"revision":7}`} {
		require.NoError(t, os.WriteFile(file, []byte(broken), 0o600))
		_, err := s.Load()
		require.ErrorContains(t, err, "venue: loading "+file)
	}
	require.NoError(t, os.RemoveAll(dir))
	_, err := s.Load()
	require.ErrorContains(t, err, "venue: reading a store")
	require.ErrorIs(t, s.Save(t.Context(), retry.State{Revision: 1}), os.ErrNotExist)
	_, err = venue.Open(filepath.Join(dir, "no", "parent"))
	require.ErrorContains(t, err, "venue: opening a store")
}

func TestStoreRefusesEveryRevisionButTheNext(t *testing.T) {
	s, _ := newStore(t)
	for i := range int64(3) {
		require.NoError(t, s.Save(t.Context(), retry.State{Version: 1, Revision: i + 1}))
	}
	for _, revision := range []int64{-1, 0, 1, 2, 3, 5} {
		err := s.Save(t.Context(), retry.State{Version: 1, Revision: revision})
		require.ErrorIs(t, err, venue.ErrStale, revision)
		require.ErrorContains(t, err, "revision 3 is stored")
	}
	got, err := s.Load()
	require.NoError(t, err)
	require.EqualValues(t, 3, got.Revision)
}

// Of workers that save the same revision at once one succeeds, and what is
// stored is that one's.
func TestStoreLetsOneOfManyWorkersSaveARevision(t *testing.T) {
	_, dir := newStore(t)
	for revision := range int64(10) {
		var workers sync.WaitGroup
		var saved, winner atomic.Int64
		for i := range 8 {
			workers.Go(func() {
				s, err := venue.Open(dir) // as another process would
				if err == nil {
					err = s.Save(t.Context(), retry.State{Version: 1, Revision: revision + 1, Attempts: i})
				}
				if err == nil {
					saved.Add(1)
					winner.Store(int64(i))
				} else if !errors.Is(err, venue.ErrStale) {
					t.Error(err)
				}
			})
		}
		workers.Wait()
		require.EqualValues(t, 1, saved.Load())
		s, err := venue.Open(dir)
		require.NoError(t, err)
		got, err := s.Load()
		require.NoError(t, err)
		require.EqualValues(t, winner.Load(), got.Attempts)
	}
}

// A worker that wakes late, with an older state, is refused by the store and
// sends nothing.
func TestAWorkerThatWakesLateSendsNothing(t *testing.T) {
	x, c := open(t)
	s, _ := newStore(t)
	old, err := s.Load()
	require.NoError(t, err)

	p := sends()
	p.Journal = &retry.Journal{State: old, Save: s.Save}
	_, err = submit(t.Context(), c, p)
	require.NoError(t, err)

	late := sends()
	late.Journal = &retry.Journal{State: old, Save: s.Save}
	_, err = submit(t.Context(), c, late)
	require.Equal(t, retry.ErrJournal, reason(t, err))
	require.ErrorIs(t, err, venue.ErrStale)
	require.Equal(t, 1, x.Calls("POST"))
	require.Len(t, x.Orders(), 1)
}

// Nor does one that wakes from its wait after another has gone on with the
// job: where nothing was unknown its save is refused, and where something was
// it looks first, and finds what the other has bought.
func TestAWorkerOvertakenInItsWaitSendsNothing(t *testing.T) {
	for name, test := range map[string]struct {
		fault venue.Answer // of the first request
		posts int
		stale bool
	}{
		"throttled":    {venue.Answer{Status: 429}, 2, true},
		"request lost": {venue.Answer{LoseRequest: true}, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			x, c := open(t)
			s, dir := newStore(t)
			x.Script("POST", test.fault)
			overtaken := false
			slow := sends()
			slow.Journal = &retry.Journal{Save: s.Save}
			slow.Sleep = func(ctx context.Context, d time.Duration) error {
				if slow.Journal.State.Wait == 0 || overtaken { // it is not the wait before a send
					time.Sleep(d)
					return ctx.Err()
				}
				overtaken = true
				store, err := venue.Open(dir) // as another process would
				require.NoError(t, err)
				state, err := store.Load()
				require.NoError(t, err)
				require.Equal(t, 1, state.Attempts)
				other, err := venue.New(c.URL, c.Intent)
				require.NoError(t, err)
				other.Key, other.Window, other.Since = c.Key, c.Window, c.Since
				p := sends()
				p.Journal = &retry.Journal{State: state, Save: store.Save}
				o, err := submit(ctx, other, p)
				require.NoError(t, err)
				require.Equal(t, "FILLED", o.Status)
				return nil
			}
			o, err := submit(t.Context(), c, slow)
			require.True(t, overtaken)
			if test.stale {
				require.Equal(t, retry.ErrJournal, reason(t, err))
				require.ErrorIs(t, err, venue.ErrStale)
			} else {
				require.NoError(t, err)
				require.Equal(t, x.Orders()[0].ID, o.ID)
			}
			require.Equal(t, test.posts, x.Calls("POST"))
			require.Len(t, x.Orders(), 1)
			last, err := s.Load()
			require.NoError(t, err)
			require.True(t, last.Ended)
		})
	}
}

// work places the order of the job in dir, or goes on where a killed process has left it,
// and prints what became of it. dieAt is the number of the step at which the
// process kills itself; empty: at none.
func work(dir, url, dieAt string) error {
	step, last := 0, -1
	if dieAt != "" {
		last, _ = strconv.Atoi(dieAt)
	}
	alive := func() {
		if step == last {
			if self, err := os.FindProcess(os.Getpid()); err == nil {
				self.Kill()
			}
			select {}
		}
		step++
	}

	s, err := venue.Open(dir)
	if err != nil {
		return err
	}
	state, err := s.Load()
	if err != nil {
		return err
	}
	c, err := venue.New(url, venue.Intent{ClientID: "id-1", Side: "BUY", Quantity: 3, Type: "MARKET"})
	if err != nil {
		return err
	}
	c.Key, c.Window, c.Since = "k", 50*time.Millisecond, state.Started
	if state.Version == 0 { // nothing was sent yet
		c.Since = time.Now()
	}
	find := func(ctx context.Context) (venue.Order, retry.Resolution, error) {
		alive()
		defer alive()
		return c.Find(ctx)
	}
	p := &retry.Policy{MaxAttempts: -1, MaxElapsed: time.Minute, AttemptTimeout: time.Second, Backoff: retry.Backoff{Base: time.Millisecond, Multiplier: 1}}
	looks := *p
	looks.Backoff.Base = 20 * time.Millisecond

	var order venue.Order
	if state.Ended { // killed before it could say how
		order, err = retry.Do(context.Background(), &looks, c.Look)
	} else {
		p.Journal = &retry.Journal{State: state, Save: func(ctx context.Context, state retry.State) error {
			alive()
			defer alive()
			return s.Save(ctx, state)
		}}
		order, err = retry.Submit(context.Background(), p, func(ctx context.Context) (venue.Order, error) {
			alive()
			defer alive()
			return c.Place(ctx)
		}, retry.Lookup[venue.Order]{Policy: &looks, Resends: -1, Find: find})
	}
	if err != nil {
		return err
	}
	alive()
	fmt.Printf("order %d %s\n", order.ID, order.Status)
	return nil
}

// process starts a worker. Its process is killed after fuse; 0: never.
func process(t testing.TB, dir, url, dieAt string, fuse time.Duration) (out string, killed bool) {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "VENUE_JOB="+dir, "VENUE_URL="+url, "VENUE_DIE_AT="+dieAt,
		"GORACE=atexit_sleep_ms=0") // under -race a process would take a second to end
	var text strings.Builder
	cmd.Stdout, cmd.Stderr = &text, &text
	require.NoError(t, cmd.Start())
	if fuse > 0 {
		defer time.AfterFunc(fuse, func() { cmd.Process.Kill() }).Stop()
	}
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == -1 {
		return "", true
	}
	require.NoError(t, err, text.String())
	return text.String(), false
}

// placedOnce requires one order, and a last process that has reported it.
func placedOnce(t testing.TB, x *venue.Exchange, out, how string) {
	orders := x.Orders()
	require.Len(t, orders, 1, how)
	require.Equal(t, fmt.Sprintf("order %d FILLED\n", orders[0].ID), out, how)
}

// The process kills itself (SIGKILL) at each step of the operation: before and
// after each save, send and look-up. The next one finishes the job, or the one
// after that.
func TestAProcessKilledAtEachStepLeavesOneOrder(t *testing.T) {
	kills := 0
	for _, c := range []struct {
		fault venue.Answer // of the first request
		twice bool         // the second process dies too
	}{
		{fault: venue.Answer{}},
		{fault: venue.Answer{LoseAnswer: true}},
		{fault: venue.Answer{LoseRequest: true}, twice: true},
	} {
		for step, past := 0, false; !past; step++ {
			x := &venue.Exchange{Key: "k"}
			x.Script("POST", c.fault)
			s := httptest.NewServer(x)
			dir := filepath.Join(t.TempDir(), "job")
			out, killed := process(t, dir, s.URL, strconv.Itoa(step), 0)
			past = !killed // the operation has fewer steps
			if killed && c.twice {
				kills++
				out, killed = process(t, dir, s.URL, strconv.Itoa(step), 0)
			}
			if killed {
				kills++
				out, killed = process(t, dir, s.URL, "", 0)
			}
			s.Close()
			require.False(t, killed)
			placedOnce(t, x, out, fmt.Sprintf("%+v, step %d", c.fault, step))
		}
	}
	t.Logf("%d kills", kills)
	require.Greater(t, kills, 30)
}

// Processes are killed from outside, at random times, again and again: inside
// of a save too.
func TestProcessesKilledAtRandomLeaveOneOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	faults := []venue.Answer{{}, {Delay: 5 * time.Millisecond}, {LoseAnswer: true}, {LoseRequest: true}, {BreakBody: true}, {Status: 429}, {Status: 503}}
	kills := 0
	for i := range 12 {
		x := &venue.Exchange{Key: "k"}
		for range 3 {
			x.Script("POST", faults[r.IntN(len(faults))])
			x.Script("GET", faults[r.IntN(len(faults))])
		}
		s := httptest.NewServer(x)
		dir := filepath.Join(t.TempDir(), "job")
		out, killed := "", true
		for n := 0; killed; n++ {
			var fuse time.Duration
			if n < 10 {
				fuse = 5*time.Millisecond + time.Duration(r.Int64N(int64(40*time.Millisecond)))
			}
			if out, killed = process(t, dir, s.URL, "", fuse); killed {
				kills++
			}
		}
		s.Close()
		placedOnce(t, x, out, fmt.Sprintf("job %d", i))
	}
	t.Logf("%d kills", kills)
}
