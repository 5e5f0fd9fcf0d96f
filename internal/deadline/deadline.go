// Package deadline has a context with a deadline that costs nothing until
// somebody waits for it: no timer, no goroutine, no allocation of its own.
//
// Most operations succeed long before their deadline and never ask for Done.
// The first call of Done makes one child with [context.WithDeadline], and from
// then on the child answers everything. The context package therefore sees a
// context of its own kind in it, and starts no goroutine for those derived
// from it, however they are wrapped.
package deadline

import (
	"context"
	"sync/atomic"
	"time"
)

// anchor is where Now counts from. Only differences between two readings mean
// anything: they stay right inside a testing/synctest bubble, whose clock lies
// years before an anchor taken outside.
var anchor = time.Now()

// Now returns a reading of the monotonic clock. It costs half of time.Now.
func Now() time.Duration { return time.Since(anchor) }

// At returns t, a time from time.Now, as Now would have read it.
func At(t time.Time) time.Duration { return t.Sub(anchor) }

// Context is a context with a deadline. The zero value is not usable: call
// Init before anyone else can see it. It must not be copied, and is safe for
// concurrent use.
type Context struct {
	parent  context.Context
	end     time.Duration // on the clock of Now
	inherit bool          // the deadline is the parent's own

	at    atomic.Pointer[time.Time] // the deadline as a time, once someone asked
	child atomic.Pointer[child]     // nil, then a real child; or &ended first
}

// child is the standard context that takes over once someone needs one.
type child struct {
	context.Context
	cancel context.CancelFunc
	at     time.Time // room for the deadline of the Context, if nobody asked before
}

// ended marks a Context that ended before anyone needed its child. It is only
// compared, never used.
var ended child

// Init makes c a child of parent that is done at end, a reading of [Now].
// With inherit the deadline is the parent's, to the nanosecond, and end is
// not used.
func (c *Context) Init(parent context.Context, end time.Duration, inherit bool) {
	c.parent, c.end, c.inherit = parent, end, inherit
}

// End cancels c, as the CancelFunc of context.WithDeadline would.
func (c *Context) End() {
	if c.child.CompareAndSwap(nil, &ended) {
		return
	}
	if ch := c.child.Load(); ch != &ended {
		ch.cancel()
	}
}

// Deadline returns the earlier of c's own deadline and its parent's. Its
// wall-clock part is taken when it is first asked for.
func (c *Context) Deadline() (time.Time, bool) {
	if c.inherit {
		return c.parent.Deadline()
	}
	if at := c.at.Load(); at != nil {
		return *at, true
	}
	return *c.settle(new(time.Time)), true
}

// settle takes the deadline as a time, once and for all. It is kept in at,
// unless somebody else was first.
func (c *Context) settle(at *time.Time) *time.Time {
	now := time.Now()
	*at = now.Add(c.end - At(now))
	if d, ok := c.parent.Deadline(); ok && d.Before(*at) {
		*at = d
	}
	if c.at.CompareAndSwap(nil, at) {
		return at
	}
	return c.at.Load()
}

// Done makes the child on its first call.
func (c *Context) Done() <-chan struct{} { return c.standard().Done() }

// Err is consistent with Done: whoever sees an error finds Done closed, and
// the error never changes.
func (c *Context) Err() error {
	if c.child.Load() == nil && c.parent.Err() == nil && (c.inherit || Now() < c.end) {
		return nil
	}
	return c.standard().Err()
}

// Value answers through the child once there is one, so that the context
// package finds its own kind behind Done.
func (c *Context) Value(key any) any {
	if c.child.Load() == nil {
		return c.parent.Value(key)
	}
	return c.standard().Value(key)
}

// standard returns the child, making it if need be. One that is made after c
// has ended is born cancelled.
func (c *Context) standard() *child {
	for {
		old := c.child.Load()
		if old != nil && old != &ended {
			return old
		}
		ch := new(child)
		ch.Context, ch.cancel = c.derive(&ch.at)
		if old == &ended {
			ch.cancel()
		}
		if c.child.CompareAndSwap(old, ch) {
			return ch
		}
		ch.cancel()
	}
}

// derive makes the child. A deadline that is the parent's gets no timer of its
// own: the two would race, and the parent's has the cause.
func (c *Context) derive(room *time.Time) (context.Context, context.CancelFunc) {
	d, ok := c.parent.Deadline()
	if c.inherit && ok {
		return context.WithCancel(c.parent)
	}
	at := c.at.Load()
	if at == nil {
		at = c.settle(room)
	}
	if ok && !d.After(*at) {
		return context.WithCancel(c.parent)
	}
	return context.WithDeadline(c.parent, *at)
}
