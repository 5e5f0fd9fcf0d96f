package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/seed-3d0f8764/retry/httpretry"
)

// server answers what the scene in play says.
type server struct {
	url    string
	http   *http.Server
	script atomic.Pointer[script]
}

// script is a list of answers, one for each request; the last serves all that
// follow.
type script struct {
	answers []answer
	next    atomic.Int64
}

// answer is one response.
type answer struct {
	status int
	after  func(now time.Time) string // Retry-After; nil: none
	hangs  bool                       // until the client gives up
}

func serve() (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{url: "http://" + l.Addr().String() + "/balance"}
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second}
	go s.http.Serve(l)
	return s, nil
}

func (s *server) close() { s.http.Close() }

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	script := s.script.Load()
	n := min(int(script.next.Add(1)), len(script.answers))
	a := script.answers[n-1]
	if a.hangs {
		<-r.Context().Done()
		return
	}
	if a.after != nil {
		w.Header().Set("Retry-After", a.after(time.Now()))
	}
	w.WriteHeader(a.status)
	fmt.Fprint(w, "100.25 EUR")
}

// get is the op of every scene: one GET. httpretry.Check makes of its status and
// Retry-After an error that package retry understands. The body is read inside op.
func (s *server) get(ctx context.Context) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
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
}
