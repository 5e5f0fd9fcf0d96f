package httpretry_test

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3d0f8764/retry"
	"github.com/seed-3d0f8764/retry/httpretry"
)

// A GetBody that returns nothing at all must not turn a request into one
// without a body.
func TestAGetBodyThatReturnsNothingSendsNothing(t *testing.T) {
	req := request(t, "PUT", "hello")
	req.GetBody = func() (io.ReadCloser, error) { return nil, nil }
	b := script(gives(503), gives(200))
	_, err := exchange(t, &httpretry.Transport{Base: b, Policy: quick()}, req)
	require.ErrorIs(t, err, retry.ErrPermanent)
	require.ErrorContains(t, err, "GetBody")
	require.Equal(t, []string{"hello"}, b.bodies)
}

// An error of Base that is a nil pointer is an error like any other.
func TestAnErrorOfBaseThatIsANilPointer(t *testing.T) {
	b := script(func(*http.Request) (*http.Response, error) { return nil, (*url.Error)(nil) })
	_, err := exchange(t, &httpretry.Transport{Base: b, Policy: quick()}, request(t, "GET", ""))
	require.Equal(t, 1, b.calls)
	var gaveUp *retry.Error
	require.ErrorAs(t, err, &gaveUp)
	require.Equal(t, retry.ErrUnclassified, gaveUp.Reason)
	require.NotEmpty(t, err.Error())
}

// volatile is a body that cannot be closed.
type volatile struct{ io.Reader }

func (volatile) Close() error { panic("close") }

// A body whose Close panics leaves no context behind.
func TestABodyWhoseClosePanicsReleasesItsContext(t *testing.T) {
	for _, lost := range []error{nil, io.ErrUnexpectedEOF} {
		var sent context.Context
		p := quick()
		p.MaxElapsed = -1
		tr := &httpretry.Transport{Policy: p, Base: roundTripper(func(req *http.Request) (*http.Response, error) {
			sent = req.Context()
			sent.Done()
			return &http.Response{StatusCode: 503, Body: volatile{http.NoBody}}, lost
		})}
		require.PanicsWithValue(t, "close", func() {
			_, _ = tr.RoundTrip(request(t, "GET", ""))
		})
		require.Error(t, sent.Err())
	}
}

// Requests that no net/http would send end with its error.
func TestRequestsThatCannotBeSent(t *testing.T) {
	closed := make(chan struct{})
	close(closed)
	for name, req := range map[string]*http.Request{
		"zero":      {},
		"no header": {URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}},
		"no host":   {URL: &url.URL{Scheme: "http"}, Header: http.Header{}},
		"scheme":    {URL: &url.URL{Scheme: "\x00", Host: "x"}, Header: http.Header{}},
		"method":    {Method: "A B", URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, Header: http.Header{}},
		"header":    {URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, Header: http.Header{"A\r\n": {"b"}}},
		"cancel":    {URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, Header: http.Header{}, Cancel: closed},
	} {
		for _, key := range []func() string{nil, httpretry.NewKey} {
			_, err := exchange(t, &httpretry.Transport{Policy: quick(), Key: key}, req)
			require.ErrorIs(t, err, retry.ErrUnclassified, name)
		}
	}
}
