// Package wire lets a transport tell the operations around a request how often
// it really went out: net/http repeats some requests by itself.
package wire

import "context"

// Key finds the nearest Sender in a context.
type Key struct{}

// Sender counts requests sent, for itself and for those around it.
type Sender interface{ Sent() }

// Sent tells the operations that ctx belongs to that a request was sent.
func Sent(ctx context.Context) {
	if s, ok := ctx.Value(Key{}).(Sender); ok {
		s.Sent()
	}
}
