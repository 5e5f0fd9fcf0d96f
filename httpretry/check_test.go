package httpretry_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-3d0f8764/retry"
	"github.com/seed-3d0f8764/retry/httpretry"
	"github.com/stretchr/testify/require"
)

func TestCheckSaysWhatAResponseProves(t *testing.T) {
	for _, status := range []int{200, 204, 304, 399} {
		require.NoError(t, httpretry.Check(response(t, status, "")))
	}
	for status, class := range map[int]retry.Class{
		400: retry.ClassPermanent, 408: retry.ClassUnknown, 425: retry.ClassTransient, 429: retry.ClassThrottled,
		501: retry.ClassUnclassified, 503: retry.ClassUnknown,
	} {
		err := httpretry.Check(response(t, status, "Retry-After: 7"))
		s, ok := errors.AsType[*retry.StatusError](err)
		require.True(t, ok)
		require.Equal(t, retry.StatusError{Method: "GET", Code: status, Effect: retry.ReadOnly, After: 7 * time.Second}, *s)
		require.Equal(t, retry.Verdict{Class: class, After: 7 * time.Second, Effect: retry.ReadOnly}, retry.Classify(err))
	}
	resp := response(t, 503, "")
	resp.Request = nil
	require.Equal(t, retry.Unstated, retry.Classify(httpretry.Check(resp)).Effect, "nothing is known of its request")
}

// Methods, keys and marks (faults B128, B129).
func TestEffectOfARequest(t *testing.T) {
	for _, c := range []struct {
		method, key, xkey string
		mark              retry.Effect
		want              retry.Effect
	}{
		{"GET", "", "", 0, retry.ReadOnly},
		{"", "", "", 0, retry.ReadOnly},
		{"PUT", "", "", 0, retry.Idempotent},
		{"POST", "", "", 0, retry.Mutation},
		{"get", "", "", 0, retry.Mutation},
		{"POST", "k", "", 0, retry.Idempotent},
		{"PATCH", "", "k", 0, retry.Idempotent},
		{"GET", "k", "", 0, retry.ReadOnly},
		{"POST", "k", "", retry.Mutation, retry.Mutation},
		{"POST", "", "", retry.ReadOnly, retry.ReadOnly},
		{"GET", "", "", retry.Mutation, retry.Mutation},
		{"PUT", "", "", retry.Effect(99), retry.Idempotent},
	} {
		req, err := http.NewRequestWithContext(httpretry.WithEffect(t.Context(), c.mark), c.method, "http://a.example/", nil)
		require.NoError(t, err)
		req.Method = c.method
		req.Header.Set("Idempotency-Key", c.key)
		req.Header.Set("X-Idempotency-Key", c.xkey)
		require.Equal(t, c.want, httpretry.Effect(req), "%+v", c)
	}
}

// The server's yes or no: a yes repeats what is safe to repeat, a no stops
// all, and neither says that nothing was applied (fault B135).
func TestYesAndNoOfTheServer(t *testing.T) {
	c := httpretry.Checker{Signals: []httpretry.Signal{httpretry.XShouldRetry}}
	for _, x := range []struct {
		method, answer string
		status         int
		calls          int
		reason         error
	}{
		{"GET", "true", 400, 2, nil},
		{"GET", "false", 500, 1, retry.ErrPermanent},
		{"POST", "true", 400, 1, retry.ErrUnknownOutcome},
		{"POST", "false", 500, 1, retry.ErrUnknownOutcome},
		{"PUT", "true", 409, 2, nil},
		{"PUT", "false", 500, 1, retry.ErrUnknownOutcome},
		{"PUT", "false", 429, 1, retry.ErrPermanent},
		{"GET", "maybe", 500, 2, nil},
		{"GET", "maybe", 404, 1, retry.ErrPermanent},
	} {
		calls := 0
		err := retry.Run(t.Context(), &retry.Policy{Backoff: retry.Backoff{Base: -1}}, func(context.Context) error {
			if calls++; calls > 1 {
				return nil
			}
			resp := response(t, x.status, "X-Should-Retry: "+x.answer)
			resp.Request.Method = x.method
			return c.Check(resp)
		})
		require.Equal(t, x.calls, calls, "%+v", x)
		if x.reason != nil {
			require.ErrorIs(t, err, x.reason, "%+v", x)
		}
	}
}

// A hook may read the body, 64 KiB of it, and the caller still gets all of it.
func TestHookReadsTheBodyAndPutsItBack(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	for _, body := range []string{"", "short", long} {
		resp := response(t, 200, "\r\n\r\n"+body)
		tracked := track(body)
		resp.Body = tracked
		read := 0
		c := httpretry.Checker{Classify: func(r *http.Response) (retry.Verdict, bool) {
			b, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			require.NoError(t, r.Body.Close())
			read = len(b)
			return retry.Verdict{Class: retry.ClassThrottled, After: time.Second}, true
		}}
		err := c.Check(resp)
		require.Equal(t, min(len(body), 64<<10), read)
		require.Equal(t, retry.ClassThrottled, retry.Classify(err).Class)
		require.Equal(t, time.Second, hintOf(err))
		require.Zero(t, tracked.closed)
		require.Equal(t, body, text(t, resp))
		require.Equal(t, 1, tracked.closed)
	}
}

// Whatever class a hook says arrives at a loop that classifies by itself.
func TestEveryClassOfAHookArrives(t *testing.T) {
	for _, class := range []retry.Class{retry.ClassUnclassified, retry.ClassPermanent, retry.ClassTransient, retry.ClassThrottled,
		retry.ClassSuspended, retry.ClassUnknown} {
		for _, status := range []int{200, 404, 503} {
			c := httpretry.Checker{Classify: func(*http.Response) (retry.Verdict, bool) { return retry.Verdict{Class: class}, true }}
			require.Equal(t, class, retry.Classify(c.Check(response(t, status, ""))).Class)
		}
	}
	c := httpretry.Checker{Classify: func(*http.Response) (retry.Verdict, bool) { return retry.Verdict{}, false }}
	require.NoError(t, c.Check(response(t, 200, "")))
	require.Equal(t, retry.ClassUnknown, retry.Classify(c.Check(response(t, 503, ""))).Class)
}

// A loop in the handler that has given up says so to the loop of the client.
func TestGaveUpIsHonouredByTheMatchingSignal(t *testing.T) {
	inner := retry.Run(t.Context(), &retry.Policy{MaxAttempts: 1}, func(context.Context) error { return retry.Transient(errors.New("down")) })
	h := http.Header{}
	require.True(t, httpretry.GaveUp(h, inner))
	require.Equal(t, http.Header{"X-Should-Retry": {"false"}}, h)
	resp := response(t, 503, "")
	resp.Header = h
	require.Equal(t, retry.ClassUnknown, retry.Classify(httpretry.Check(resp)).Class, "not chosen, not believed")
	chosen := httpretry.Checker{Signals: []httpretry.Signal{httpretry.XShouldRetry}}
	require.Equal(t, retry.ClassPermanent, retry.Classify(chosen.Check(resp)).Class)

	h = http.Header{}
	require.False(t, httpretry.GaveUp(h, errors.New("some other error")))
	require.False(t, httpretry.GaveUp(h, nil))
	require.Empty(t, h)
}

func TestKeysDiffer(t *testing.T) {
	require.NotEqual(t, httpretry.NewKey(), httpretry.NewKey())
	require.Len(t, httpretry.NewKey(), 26)
}
