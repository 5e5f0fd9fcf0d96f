package httpretry

import (
	"context"
	"crypto/rand"
	"net/http"

	"github.com/seed-3d0f8764/retry"
)

// effectKey finds the mark of a request's context.
type effectKey struct{}

// WithEffect marks the requests made with ctx as having effect e, over what
// their method or key says: Idempotent for a POST that may be repeated,
// Mutation for a GET that must not. Unstated takes a mark away.
func WithEffect(ctx context.Context, e retry.Effect) context.Context {
	return context.WithValue(ctx, effectKey{}, e)
}

// Effect returns what a [Transport] takes req for: its mark ([WithEffect]); else
// Idempotent where it has a non-empty Idempotency-Key or X-Idempotency-Key and its
// method says Mutation; else what [retry.MethodEffect] says of its method.
func Effect(req *http.Request) retry.Effect {
	if e, ok := mark(req.Context()); ok {
		return e
	}
	e := retry.MethodEffect(req.Method)
	if e == retry.Mutation && (req.Header.Get("Idempotency-Key") != "" || req.Header.Get("X-Idempotency-Key") != "") {
		return retry.Idempotent
	}
	return e
}

// mark returns the mark of ctx.
func mark(ctx context.Context) (retry.Effect, bool) {
	e, _ := ctx.Value(effectKey{}).(retry.Effect)
	return e, e == retry.Mutation || e == retry.Idempotent || e == retry.ReadOnly
}

func marked(ctx context.Context) bool {
	_, ok := mark(ctx)
	return ok
}

// NewKey returns a random key of 130 bits, for Transport.Key.
func NewKey() string { return rand.Text() }
