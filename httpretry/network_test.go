package httpretry_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"encoding/binary"
)

// network is one of net.Pipes: a server listens on it, an http.Transport dials
// it, and both can live in a bubble of synctest, with its time.
type network struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once

	mu       sync.Mutex
	accepted []net.Conn
}

func newNetwork() *network {
	return &network{conns: make(chan net.Conn), done: make(chan struct{})}
}

// Dial is a DialContext.
func (n *network) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case n.conns <- server:
		return client, nil
	case <-n.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		n.mu.Lock()
		defer n.mu.Unlock()
		n.accepted = append(n.accepted, c)
		return c, nil
	case <-n.done:
		return nil, net.ErrClosed
	}
}

// Close ends the listener and all its connections.
func (n *network) Close() error {
	n.once.Do(func() { close(n.done) })
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.accepted {
		c.Close()
	}
	return nil
}

func (n *network) Addr() net.Addr { return &net.IPAddr{IP: net.IPv4zero} }

// The kinds of frame and the codes that are needed here (RFC 9113 6 and 7).
const (
	frameData     = 0
	frameHeaders  = 1
	frameReset    = 3
	frameSettings = 4
	framePing     = 6
	frameGoAway   = 7

	endStream, endHeaders, ack = 1, 4, 1

	noError, protocolError, internalError, refusedStream, cancelled, calm = 0, 1, 2, 7, 8, 11
)

// frames is a server of HTTP/2 that does what it is told, frame by frame.
type frames struct {
	// answer is called for every request head, the nth of them all (from 1).
	answer func(c *frameConn, nth int, stream uint32)

	mu    sync.Mutex
	heads int
	conns int
}

// Heads returns how many request heads have arrived.
func (f *frames) Heads() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.heads
}

// Conns returns how many connections were made.
func (f *frames) Conns() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.conns
}

// Listen serves until l is closed, and waits for its connections to end.
func (f *frames) Listen(l net.Listener) {
	var served sync.WaitGroup
	for {
		conn, err := l.Accept()
		if err != nil {
			served.Wait()
			return
		}
		served.Go(func() { f.Serve(conn) })
	}
}

// frameConn is one connection of a frames. What is written goes out in a
// goroutine of its own: neither end of a net.Pipe may write while none reads.
type frameConn struct {
	net.Conn
	out chan []byte // nil: hang up
}

// Serve speaks to one client until it hangs up.
func (f *frames) Serve(conn net.Conn) {
	c := &frameConn{conn, make(chan []byte, 1024)}
	defer conn.Close()
	f.mu.Lock()
	f.conns++
	f.mu.Unlock()
	if _, err := io.CopyN(io.Discard, conn, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
		return
	}
	var writer sync.WaitGroup
	writer.Go(func() {
		for b := range c.out {
			if b == nil {
				conn.Close()
			}
			conn.Write(b) // an error: the reader finds it, too
		}
	})
	defer writer.Wait()
	defer close(c.out)
	c.frame(frameSettings, 0, 0, nil)
	for {
		var head [9]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(conn, payload); err != nil {
			return
		}
		kind, flags, stream := head[3], head[4], binary.BigEndian.Uint32(head[5:])
		switch {
		case kind == frameSettings && flags&ack == 0:
			c.frame(frameSettings, ack, 0, nil)
		case kind == framePing && flags&ack == 0:
			c.frame(framePing, ack, 0, payload)
		case kind == frameHeaders:
			f.mu.Lock()
			f.heads++
			nth := f.heads
			f.mu.Unlock()
			f.answer(c, nth, stream)
		}
	}
}

func (c *frameConn) frame(kind, flags byte, stream uint32, payload []byte) {
	n := len(payload)
	b := []byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags}
	c.out <- append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// reset ends a stream with a code.
func (c *frameConn) reset(stream, code uint32) {
	c.frame(frameReset, 0, stream, binary.BigEndian.AppendUint32(nil, code))
}

// goAway says which stream is the last that is or will be processed.
func (c *frameConn) goAway(last, code uint32) {
	c.frame(frameGoAway, 0, 0, binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, last), code))
}

// head sends the head of a response, in HPACK's literal form (RFC 7541 6.2.2);
// 8 is the index of ":status".
func (c *frameConn) head(stream uint32, status int, flags byte) {
	c.frame(frameHeaders, endHeaders|flags, stream, append([]byte{0x08, 3}, strconv.Itoa(status)...))
}

// respond sends a whole response.
func (c *frameConn) respond(stream uint32, status int, body string) {
	c.head(stream, status, 0)
	c.frame(frameData, endStream, stream, []byte(body))
}

// hangUp closes the connection after what was written.
func (c *frameConn) hangUp() { c.out <- nil }

// overFrames lets f serve a client over HTTP/2 without TLS, in a bubble.
func overFrames(t *testing.T, f *frames) *http.Transport {
	n := newNetwork()
	var served sync.WaitGroup
	served.Go(func() { f.Listen(n) })
	base := &http.Transport{DialContext: n.Dial, Protocols: new(http.Protocols)}
	base.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(func() {
		base.CloseIdleConnections()
		n.Close()
		served.Wait()
	})
	return base
}
