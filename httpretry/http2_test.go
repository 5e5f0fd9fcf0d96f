package httpretry_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"crypto/tls"
	"github.com/seed-3d0f8764/retry"
	"github.com/seed-3d0f8764/retry/httpretry"
	"github.com/stretchr/testify/require"
)

// A stream that the server says it has not processed is repeated, even for a
// POST (fault B131): one refused, and one beyond the last of a GOAWAY. net/http
// repeats most of these by itself, up to seven times; what the server saw and
// the records' sends agree all the same.
func TestStreamsNotProcessedAreRepeatedEvenForAPost(t *testing.T) {
	refuse := func(c *frameConn, stream uint32) { c.reset(stream, refusedStream) }
	goAway := func(c *frameConn, stream uint32) { c.goAway(stream-1, noError) }
	angry := func(c *frameConn, stream uint32) { c.goAway(stream-1, calm) } // of a first stream net/http repeats none of these
	for _, x := range []struct {
		name     string
		no       func(*frameConn, uint32)
		times    int // how often the server says no, in a row
		noReplay bool
		attempts int // of ours
	}{
		{"refused once", refuse, 1, false, 1},
		{"refused seven times", refuse, 7, false, 1},
		{"refused eight times", refuse, 8, false, 2},
		{"refused once, no replay", refuse, 1, true, 2},
		{"refused four times, no replay", refuse, 4, true, 5},
		{"beyond the last", goAway, 1, false, 1},
		{"beyond the last eight times", goAway, 8, false, 1},
		{"beyond the last, no replay", goAway, 1, true, 2},
		{"beyond the last, with an error", angry, 1, false, 2},
		{"beyond the last, with an error, no replay", angry, 2, true, 3},
	} {
		for _, body := range []string{"", "hello"} {
			if x.noReplay && body == "" {
				continue // NoReplay leaves a POST without body and key as it is
			}
			t.Run(x.name+" "+body, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := &frames{answer: func(c *frameConn, nth int, stream uint32) {
						if nth <= x.times {
							x.no(c, stream)
						} else {
							c.respond(stream, 200, "done")
						}
					}}
					w := &watch{}
					tr := &httpretry.Transport{Base: overFrames(t, f), Policy: atOnce(5, w), NoReplay: x.noReplay}
					resp, err := tr.RoundTrip(request(t, "POST", body))
					require.NoError(t, err)
					require.Equal(t, "done", text(t, resp))
					require.Equal(t, x.attempts, httpretry.Attempts(resp))
					require.Equal(t, x.times+1, f.Heads())
					require.Equal(t, x.times+1, w.Sends())
				})
			})
		}
	}
}

// A server that refuses for ever ends the attempts, and nothing is in doubt.
func TestStreamsRefusedForEver(t *testing.T) {
	for noReplay, heads := range map[bool]int{false: 3 * 8, true: 3} {
		synctest.Test(t, func(t *testing.T) {
			f := &frames{answer: func(c *frameConn, _ int, stream uint32) { c.reset(stream, refusedStream) }}
			w := &watch{}
			tr := &httpretry.Transport{Base: overFrames(t, f), Policy: atOnce(3, w), NoReplay: noReplay}
			resp, err := tr.RoundTrip(request(t, "POST", "hello"))
			require.Nil(t, resp)
			require.ErrorIs(t, err, retry.ErrAttempts)
			require.NotErrorIs(t, err, retry.ErrUnknownOutcome)
			require.Equal(t, heads, f.Heads())
			require.Equal(t, heads, w.Sends())
		})
	}
}

// What else ends a stream says nothing of whether it was processed: a POST is
// not repeated and its outcome is unknown, a GET is repeated.
func TestStreamsLostOtherwiseAreUnknown(t *testing.T) {
	for name, lose := range map[string]func(c *frameConn, stream uint32){
		"internal error":       func(c *frameConn, stream uint32) { c.reset(stream, internalError) },
		"cancel":               func(c *frameConn, stream uint32) { c.reset(stream, cancelled) },
		"enhance your calm":    func(c *frameConn, stream uint32) { c.reset(stream, calm) },
		"no error":             func(c *frameConn, stream uint32) { c.reset(stream, noError) },
		"code of nobody":       func(c *frameConn, stream uint32) { c.reset(stream, 0xdead) },
		"hung up":              func(c *frameConn, _ uint32) { c.hangUp() },
		"GOAWAY and hung up":   func(c *frameConn, stream uint32) { c.goAway(stream, noError); c.hangUp() },
		"angry and hung up":    func(c *frameConn, stream uint32) { c.goAway(stream, internalError); c.hangUp() },
		"headers on stream 0":  func(c *frameConn, _ uint32) { c.head(0, 200, endStream) },
		"a head that is none":  func(c *frameConn, stream uint32) { c.frame(frameHeaders, endHeaders, stream, []byte{0x08}) },
		"a body without head":  func(c *frameConn, stream uint32) { c.frame(frameData, 0, stream, []byte("x")) },
		"a frame of no length": func(c *frameConn, stream uint32) { c.frame(frameReset, 0, stream, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, method := range []string{http.MethodPost, http.MethodGet} {
				synctest.Test(t, func(t *testing.T) {
					f := &frames{answer: func(c *frameConn, nth int, stream uint32) {
						if nth == 1 {
							lose(c, stream)
						} else {
							c.respond(stream, 200, "done")
						}
					}}
					w := &watch{}
					tr := &httpretry.Transport{Base: overFrames(t, f), Policy: atOnce(3, w)}
					req := request(t, "POST", "")
					req.Method = method
					resp, err := tr.RoundTrip(req)
					if method == http.MethodGet {
						require.NoError(t, err)
						require.Equal(t, "done", text(t, resp))
						require.Equal(t, 2, httpretry.Attempts(resp))
						require.Equal(t, 2, f.Heads())
					} else {
						require.Nil(t, resp)
						require.ErrorIs(t, err, retry.ErrUnknownOutcome)
						require.Equal(t, retry.ErrUnknownOutcome, err.(*retry.Error).Reason)
						require.Equal(t, 1, f.Heads())
					}
					require.Equal(t, f.Heads(), w.Sends())
				})
			}
		})
	}
}

// PROTOCOL_ERROR is repeated by net/http itself, even for a POST (issue
// golang/go#47635). NoReplay stops that where there is a body or a key, and then
// the outcome is unknown.
func TestProtocolErrorOfAStream(t *testing.T) {
	for _, x := range []struct {
		name, body, key string
		noReplay        bool
		heads           int
	}{
		{"hidden", "hello", "", false, 2},
		{"a body", "hello", "", true, 1},
		{"a key", "", "k", true, 1},
		{"neither, as NoReplay's doc says", "", "", true, 2},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &frames{answer: func(c *frameConn, nth int, stream uint32) {
					if nth == 1 {
						c.reset(stream, protocolError)
					} else {
						c.respond(stream, 200, "done")
					}
				}}
				w := &watch{}
				req := request(t, "POST", x.body)
				if x.key != "" {
					req = req.WithContext(httpretry.WithEffect(req.Context(), retry.Mutation))
					req.Header.Set("Idempotency-Key", x.key)
				}
				resp, err := (&httpretry.Transport{Base: overFrames(t, f), Policy: atOnce(3, w), NoReplay: x.noReplay}).RoundTrip(req)
				if x.heads == 1 {
					require.ErrorIs(t, err, retry.ErrUnknownOutcome)
				} else {
					require.NoError(t, err)
					require.Equal(t, "done", text(t, resp))
				}
				require.Equal(t, x.heads, f.Heads())
				require.Equal(t, x.heads, w.Sends())
			})
		})
	}
}

// A GOAWAY that names the stream as processed lets it end; the next request
// takes another connection.
func TestGracefulGoAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &frames{answer: func(c *frameConn, _ int, stream uint32) {
			c.goAway(1<<31-1, noError) // the first of two, as of RFC 9113 6.8
			c.goAway(stream, noError)
			c.respond(stream, 200, "done")
		}}
		w := &watch{}
		tr := &httpretry.Transport{Base: overFrames(t, f), Policy: atOnce(3, w)}
		for n := range 3 {
			resp, err := tr.RoundTrip(request(t, "POST", "hello"))
			require.NoError(t, err)
			require.Equal(t, "done", text(t, resp))
			require.Equal(t, 1, httpretry.Attempts(resp))
			require.Equal(t, n+1, f.Heads())
			require.Equal(t, n+1, f.Conns())
			require.Equal(t, n+1, w.Sends())
		}
	})
}

// A GOAWAY hits one of two streams: that within the last is answered, that
// beyond is sent again.
func TestGoAwayBetweenTwoStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := make(chan struct{})
		f := &frames{answer: func(c *frameConn, nth int, stream uint32) {
			switch nth {
			case 1:
				close(first)
			case 2:
				c.goAway(stream-2, calm)
				c.respond(stream-2, 200, "first")
			default:
				c.respond(stream, 200, "second")
			}
		}}
		w := &watch{}
		tr := &httpretry.Transport{Base: overFrames(t, f), Policy: atOnce(3, w), NoReplay: true}
		got := make(chan string, 1) // no require in another goroutine
		go func() {
			resp, err := tr.RoundTrip(request(t, "POST", "1"))
			if err != nil {
				got <- err.Error()
				return
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			got <- string(body)
		}()
		<-first
		resp, err := tr.RoundTrip(request(t, "POST", "2"))
		require.NoError(t, err)
		require.Equal(t, "second", text(t, resp))
		require.Equal(t, 2, httpretry.Attempts(resp))
		require.Equal(t, "first", <-got)
		require.Equal(t, 3, f.Heads())
		require.Equal(t, 3, w.Sends())
	})
}

// A stream that ends in the body is the reader's to know: the request was
// answered, and nothing is repeated (fault B143).
func TestStreamResetInTheBody(t *testing.T) {
	for _, code := range []uint32{refusedStream, internalError, cancelled} {
		synctest.Test(t, func(t *testing.T) {
			f := &frames{answer: func(c *frameConn, _ int, stream uint32) {
				c.head(stream, 200, 0)
				c.frame(frameData, 0, stream, []byte("half"))
				c.reset(stream, code)
			}}
			w := &watch{}
			tr := &httpretry.Transport{Base: overFrames(t, f), Policy: atOnce(3, w)}
			req := request(t, "POST", "")
			req.Method = http.MethodGet
			resp, err := tr.RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, httpretry.Check(resp))
			_, err = io.ReadAll(resp.Body)
			require.ErrorContains(t, err, "stream error: ")
			require.NoError(t, resp.Body.Close())
			time.Sleep(time.Hour)
			require.Equal(t, 1, f.Heads())
			require.Equal(t, 1, w.Sends())
		})
	}
}

// An early 503 that ends the stream before the request's body was sent, as
// servers do with RST_STREAM(NO_ERROR) behind it (RFC 9113 8.1).
func TestEarlyAnswerOverHTTP2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &frames{answer: func(c *frameConn, nth int, stream uint32) {
			c.head(stream, 503, endStream)
			c.reset(stream, noError)
		}}
		w := &watch{}
		tr := &httpretry.Transport{Base: overFrames(t, f), Policy: atOnce(3, w)}
		req := request(t, "POST", strings.Repeat("x", 1<<20)) // more than the window that the server ever opens
		req.Method = http.MethodPut
		resp, err := tr.RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, 503, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 3, httpretry.Attempts(resp))
		require.Equal(t, 3, f.Heads())
		require.Equal(t, 3, w.Sends())
	})
}

// The same over TLS and TCP, with the server of net/http: a handler that
// aborts resets its stream, which is unknown, and one that shuts down says
// GOAWAY, which loses nothing.
func TestServerOfHTTP2(t *testing.T) {
	var ran atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch n := ran.Add(1); {
		case n == 1:
			panic(http.ErrAbortHandler)
		case r.Header.Get("Last") != "":
			w.Header().Set("Connection", "close") // a GOAWAY over HTTP/2
		case n == 3:
			w.WriteHeader(503)
		}
		fmt.Fprintf(w, "%s %s", r.Proto, body)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	w := &watch{}
	tr := &httpretry.Transport{Base: s.Client().Transport, Policy: atOnce(3, w)}
	send := func(method, last string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(t.Context(), method, s.URL, strings.NewReader("hello"))
		require.NoError(t, err)
		if last != "" {
			req.Header.Set("Last", last)
		}
		return tr.RoundTrip(req)
	}
	resp, err := send(http.MethodPost, "") // 1: reset
	require.Nil(t, resp)
	require.ErrorIs(t, err, retry.ErrUnknownOutcome)
	for n, last := range []string{"yes", "", "yes", "yes"} { // 2; 3 and 4; 5; 6
		resp, err = send(http.MethodPut, last)
		require.NoError(t, err)
		require.Equal(t, "HTTP/2.0 hello", text(t, resp))
		require.Equal(t, []int{1, 2, 1, 1}[n], httpretry.Attempts(resp))
	}
	require.EqualValues(t, 6, ran.Load())
	require.Equal(t, 6, w.Sends())
}

// Frame by frame over TLS.
func TestRefusedStreamOverTLS(t *testing.T) {
	for noReplay, attempts := range map[bool]int{false: 1, true: 3} {
		f := &frames{answer: func(c *frameConn, nth int, stream uint32) {
			switch nth {
			case 1:
				c.reset(stream, refusedStream)
			case 2:
				c.goAway(stream-1, noError)
			default:
				c.respond(stream, 200, "done")
			}
		}}
		s := httptest.NewUnstartedServer(http.NotFoundHandler())
		s.TLS = &tls.Config{NextProtos: []string{"h2"}}
		s.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
			"h2": func(_ *http.Server, c *tls.Conn, _ http.Handler) { f.Serve(c) },
		}
		s.StartTLS()
		base := s.Client().Transport.(*http.Transport)
		base.ForceAttemptHTTP2 = true
		w := &watch{}
		tr := &httpretry.Transport{Base: base, Policy: atOnce(5, w), NoReplay: noReplay}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, strings.NewReader("hello"))
		require.NoError(t, err)
		resp, err := tr.RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, "done", text(t, resp))
		require.Equal(t, attempts, httpretry.Attempts(resp))
		require.Equal(t, 3, f.Heads())
		require.Equal(t, 3, w.Sends())
		tr.CloseIdleConnections()
		s.Close()
	}
}
