package httpretry

import (
	"errors"
	"net/http"

	"github.com/seed-3d0f8764/retry"
)

// GaveUp tells the client of a handler whether to repeat its request: where
// err is the failure of a loop that has given up, it sets "x-should-retry:
// false" in h, and reports that it did. A client that has chosen the signal
// [XShouldRetry] then does not repeat what was repeated behind the handler, so
// that loops in several processes do not multiply. Call it before WriteHeader.
func GaveUp(h http.Header, err error) bool {
	_, ok := errors.AsType[*retry.Error](err)
	if ok {
		h.Set("X-Should-Retry", "false")
	}
	return ok
}
