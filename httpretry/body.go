package httpretry

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// What is read of a response that is dropped: enough for an error page, not
// enough for a trap.
const (
	drainBytes = 64 << 10
	drainTime  = 100 * time.Millisecond
)

// drain reads the open response to its end, if that is near, and closes it.
func (c *call) drain() {
	resp := c.open
	if resp == nil {
		return
	}
	c.open = nil
	if resp.Body != http.NoBody && resp.ContentLength <= drainBytes && resp.StatusCode != http.StatusSwitchingProtocols {
		timer := time.AfterFunc(drainTime, c.sent.release)
		io.CopyN(io.Discard, until{resp.Body, time.Now().Add(drainTime)}, drainBytes+1)
		timer.Stop()
	}
	resp.Body.Close()
	c.sent.release()
}

// until reads no more after end.
type until struct {
	io.Reader
	end time.Time
}

func (u until) Read(p []byte) (int, error) {
	if !time.Now().Before(u.end) {
		return 0, io.EOF
	}
	return u.Reader.Read(p)
}

// body is that of a response which a Transport has returned. Its end releases
// what the attempt was sent with.
type body struct {
	io.ReadCloser
	send *sendContext
}

// upgraded is the body of a 101, which is a connection.
type upgraded struct {
	*body
	io.Writer
}

func newBody(b io.ReadCloser, send *sendContext) io.ReadCloser {
	wrapped := &body{b, send}
	if w, ok := b.(io.Writer); ok {
		return &upgraded{wrapped, w}
	}
	return wrapped
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.send.release()
	}
	return n, err
}

func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.send.release()
	return err
}

// sendContext is the context that an attempt is sent with. It ends as the
// attempt's does until the header of the response has arrived, and from then on
// as the caller's does, or, covering the body, at the attempt's deadline as
// well. It costs little until somebody asks for Done.
type sendContext struct {
	attempt, caller context.Context
	cover           bool

	mu      sync.Mutex
	arrived bool
	inner   context.Context // made by a Done before the header has arrived
	cancel  context.CancelCauseFunc
	stop    func() bool // what ends inner
	timer   *time.Timer // the deadline over a body that is covered
}

// again makes s that of the next attempt, unless somebody has asked for Done
// and may wait for the end of this one.
func (s *sendContext) again(attempt context.Context) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inner != nil {
		return false
	}
	s.attempt, s.arrived = attempt, false
	return true
}

// used reports whether something must be released.
func (s *sendContext) used() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inner != nil || s.cover
}

// follow lets inner end as ctx does.
func (s *sendContext) follow(ctx context.Context) {
	s.stop = context.AfterFunc(ctx, func() { s.cancel(context.Cause(ctx)) })
}

// headerArrived hands inner over from the attempt to the caller. It returns
// false if it has ended before.
func (s *sendContext) headerArrived() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrived = true
	if s.inner == nil && !s.cover {
		return true
	}
	s.make()
	if !s.stop() {
		<-s.inner.Done()
		return false
	}
	s.follow(s.caller)
	if at, ok := s.attempt.Deadline(); ok && s.cover {
		s.timer = time.AfterFunc(time.Until(at), func() { s.cancel(context.DeadlineExceeded) })
	}
	return true
}

// make makes inner. s.mu is held.
func (s *sendContext) make() {
	if s.inner != nil {
		return
	}
	s.inner, s.cancel = context.WithCancelCause(context.WithoutCancel(s.attempt))
	s.follow(s.attempt)
}

// release ends s and gives up what it holds.
func (s *sendContext) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inner == nil {
		return
	}
	s.stop()
	if s.timer != nil {
		s.timer.Stop()
	}
	s.cancel(context.Canceled)
}

// phase is the context that s stands for as long as there is no inner one.
func (s *sendContext) phase() context.Context {
	if s.arrived && !s.cover {
		return s.caller
	}
	return s.attempt
}

func (s *sendContext) Deadline() (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase().Deadline()
}

func (s *sendContext) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inner == nil && s.arrived && !s.cover {
		return s.caller.Done() // nobody would release an inner one
	}
	s.make()
	return s.inner.Done()
}

func (s *sendContext) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inner == nil {
		return s.phase().Err()
	}
	err := s.inner.Err()
	if err != nil && context.Cause(s.inner) == context.DeadlineExceeded {
		return context.DeadlineExceeded
	}
	return err
}

func (s *sendContext) Value(key any) any {
	s.mu.Lock()
	ctx := s.inner
	if ctx == nil {
		ctx = s.phase()
	}
	s.mu.Unlock()
	return ctx.Value(key)
}
