package httpretry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/seed-3d0f8764/retry"
	"github.com/seed-3d0f8764/retry/httpretry"
)

// down starts a server that answers n requests with code, then says hello.
func down(n, code int, header ...string) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(strings.TrimSpace("server: " + r.Method + " " + r.Header.Get("Idempotency-Key")))
		if n--; n >= 0 {
			for i := 0; i+1 < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
			return
		}
		io.WriteString(w, "hello")
	}))
}

// instantly has short waits, for the sake of the examples.
var instantly = &retry.Policy{Backoff: retry.Backoff{Base: time.Millisecond}}

func ExampleTransport() {
	server := down(2, 503)
	defer server.Close()

	client := &http.Client{Transport: &httpretry.Transport{Policy: instantly}}
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	if err := httpretry.Check(resp); err != nil {
		fmt.Println(err)
		return
	}
	body, _ := io.ReadAll(resp.Body)
	fmt.Printf("%s after %d attempts\n", body, httpretry.Attempts(resp))
	// Output:
	// server: GET
	// server: GET
	// server: GET
	// hello after 3 attempts
}

// A response that is not worth another attempt is returned as it came. Check
// says why it was given up on, and when the server will take the next.
func ExampleTransport_givingUp() {
	server := down(9, 429, "Retry-After", "3600")
	defer server.Close()

	client := &http.Client{Transport: &httpretry.Transport{}}
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err) // there is no response: no connection, a timeout
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode, httpretry.Attempts(resp))
	gaveUp, ok := errors.AsType[*retry.Error](httpretry.Check(resp))
	if ok && gaveUp.Reason == retry.ErrHint {
		fmt.Println("again in", time.Until(gaveUp.RetryAt).Round(time.Minute))
	}
	// Output:
	// server: GET
	// 429 1
	// again in 1h0m0s
}

// A hook knows the rules of an API: here that a 409 whose body says so is a
// request still in progress.
func ExampleTransport_classify() {
	busy := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if busy {
			busy = false
			http.Error(w, "in progress", http.StatusConflict)
			return
		}
		io.WriteString(w, "done")
	}))
	defer server.Close()

	client := &http.Client{Transport: &httpretry.Transport{
		Policy: instantly,
		Key:    httpretry.NewKey,
		Classify: func(resp *http.Response) (retry.Verdict, bool) {
			if resp.StatusCode != http.StatusConflict {
				return retry.Verdict{}, false // its status decides
			}
			body, err := io.ReadAll(resp.Body)
			inProgress := err == nil && strings.Contains(string(body), "in progress")
			return retry.Verdict{Class: retry.ClassTransient}, inProgress
		},
	}}
	resp, err := client.Post(server.URL, "text/plain", strings.NewReader("buy"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Printf("%s after %d attempts\n", body, httpretry.Attempts(resp))
	// Output:
	// done after 2 attempts
}

// A POST is repeated if it has a key by which the server knows it again.
func ExampleTransport_key() {
	server := down(1, 503)
	defer server.Close()

	client := &http.Client{Transport: &httpretry.Transport{
		Policy: instantly,
		Key:    func() string { return "order-7" }, // httpretry.NewKey makes random ones
	}}
	resp, err := client.Post(server.URL, "text/plain", strings.NewReader("buy"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode)
	// Output:
	// server: POST order-7
	// server: POST order-7
	// 200
}

// A mark says what method and key do not.
func ExampleWithEffect() {
	server := down(9, 503)
	defer server.Close()
	client := &http.Client{Transport: &httpretry.Transport{Policy: instantly}}

	for _, effect := range []retry.Effect{retry.Mutation, retry.ReadOnly} {
		ctx := httpretry.WithEffect(context.Background(), effect)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/search", strings.NewReader("{}"))
		if err != nil {
			fmt.Println(err)
			return
		}
		resp, err := client.Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Println(effect, httpretry.Attempts(resp))
	}
	// Output:
	// server: POST
	// mutation 1
	// server: POST
	// server: POST
	// server: POST
	// server: POST
	// server: POST
	// read-only 5
}

// Which of the server's fields are believed is chosen.
func ExampleSignal() {
	resp := &http.Response{StatusCode: 429, Header: http.Header{
		"Retry-After":           {"1"},
		"Retry-After-Ms":        {"250"},
		"X-Ratelimit-Remaining": {"0"},
		"X-Ratelimit-Reset":     {"1700000060"},
	}}
	for _, signals := range [][]httpretry.Signal{
		nil, // Retry-After
		{httpretry.RetryAfterMS, httpretry.RetryAfter},
		{httpretry.GitHubReset},
		{}, // none
	} {
		c := httpretry.Checker{Signals: signals, Clock: func() time.Time { return time.Unix(1700000000, 0) }}
		fmt.Println(retry.Classify(c.Check(resp)).After)
	}
	// Output:
	// 1s
	// 250ms
	// 1m0s
	// 0s
}

// Who has a client of his own calls it in Do, and gives Do the error of the
// response. The body is read inside.
func ExampleCheck() {
	server := down(1, 429, "Retry-After", "0")
	defer server.Close()

	greeting, err := retry.Do(context.Background(), instantly, func(ctx context.Context) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		if err != nil {
			return "", err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		if err := httpretry.Check(resp); err != nil {
			return "", err
		}
		body, err := io.ReadAll(resp.Body)
		return string(body), err
	})
	fmt.Println(greeting, err)
	// Output:
	// server: GET
	// server: GET
	// hello <nil>
}

// A handler whose own loop has given up says so, and its client does not begin
// another.
func ExampleGaveUp() {
	backend := func(context.Context) error { return retry.Transient(errors.New("backend: too busy")) }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("server:", r.Method)
		if err := retry.Run(r.Context(), instantly, backend); err != nil {
			httpretry.GaveUp(w.Header(), err)
			http.Error(w, "unavailable", http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()

	client := &http.Client{Transport: &httpretry.Transport{
		Policy:  instantly,
		Signals: []httpretry.Signal{httpretry.XShouldRetry, httpretry.RetryAfter},
	}}
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode, httpretry.Attempts(resp))
	// Output:
	// server: GET
	// 503 1
}
