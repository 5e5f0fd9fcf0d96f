// Package venue is a mock exchange over HTTP, with the habits of real ones
// that make orders hard: client order ids are unique among open orders only,
// market orders are filled at once, answers can be later than the client's
// patience, and a request can be lost before or after it took effect.
package venue

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Order is one that the venue has accepted.
type Order struct {
	ID       int       `json:"orderId"`
	ClientID string    `json:"clientOrderId"`
	Side     string    `json:"side"`
	Quantity int       `json:"quantity"`
	Type     string    `json:"type"` // MARKET or LIMIT
	Status   string    `json:"status"`
	Time     time.Time `json:"time"` // when it was accepted
}

// Error is the body of a refusal.
type Error struct {
	Code int    `json:"code"`
	Msg  string `json:"msg"`
}

func (e *Error) Error() string { return fmt.Sprintf("venue: %d %s", e.Code, e.Msg) }

// Codes of refusals.
const (
	CodeBadKey    = -2015
	CodeTooLate   = -1021 // it arrived after its window
	CodeDuplicate = -2010 // the client id is that of an open order
	CodeUnknown   = -2013 // there is no such order
)

// Answer is what the venue does with one request in place of what it would.
type Answer struct {
	Status      int           // with Body and RetryAfter: refused so, without effect. 0: handled as usual
	Body        string        // of the refusal
	RetryAfter  string        // of the refusal
	LoseRequest bool          // no effect, no answer
	LoseAnswer  bool          // the effect, but no answer
	BreakBody   bool          // the effect, and half an answer
	Delay       time.Duration // the effect at once, the answer later
}

// Exchange is the venue. Its zero value is ready for use, an http.Handler, and
// safe for concurrent use.
type Exchange struct {
	Key   string           // what clients must send as X-Key; empty: anything
	Clock func() time.Time // nil: time.Now

	mu     sync.Mutex
	orders []Order
	script map[string][]Answer // by method
	calls  map[string]int
}

// Script sets what comes of the next requests of a method, one after the other.
func (x *Exchange) Script(method string, answers ...Answer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.script == nil {
		x.script = map[string][]Answer{}
	}
	x.script[method] = append(x.script[method], answers...)
}

// Orders returns all orders ever accepted.
func (x *Exchange) Orders() []Order {
	x.mu.Lock()
	defer x.mu.Unlock()
	return append([]Order{}, x.orders...)
}

// Calls returns how many requests of a method have arrived.
func (x *Exchange) Calls(method string) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.calls[method]
}

// Now is the venue's time.
func (x *Exchange) Now() time.Time {
	if x.Clock != nil {
		return x.Clock()
	}
	return time.Now()
}

// arrive counts a request and takes its answer from the script.
func (x *Exchange) arrive(method string) (a Answer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.calls == nil {
		x.calls = map[string]int{}
	}
	x.calls[method]++
	if s := x.script[method]; len(s) > 0 {
		a, x.script[method] = s[0], s[1:]
	}
	return a
}

func (x *Exchange) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := x.arrive(r.Method)
	switch {
	case a.LoseRequest:
		panic(http.ErrAbortHandler)
	case a.Status != 0:
		if a.RetryAfter != "" {
			w.Header().Set("Retry-After", a.RetryAfter)
		}
		w.WriteHeader(a.Status)
		fmt.Fprint(w, a.Body)
		return
	}
	status, body := x.handle(r)
	switch {
	case a.LoseAnswer:
		panic(http.ErrAbortHandler)
	case a.BreakBody:
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(status)
		w.Write(body[:len(body)/2])
		panic(http.ErrAbortHandler)
	}
	if a.Delay > 0 {
		select {
		case <-time.After(a.Delay):
		case <-r.Context().Done():
			return
		}
	}
	w.WriteHeader(status)
	w.Write(body)
}

// handle applies a request.
func (x *Exchange) handle(r *http.Request) (int, []byte) {
	if r.URL.Path == "/time" {
		return encode(http.StatusOK, map[string]int64{"serverTime": x.Now().UnixMilli()})
	}
	if x.Key != "" && r.Header.Get("X-Key") != x.Key {
		return encode(http.StatusUnauthorized, &Error{CodeBadKey, "Invalid API-key."})
	}
	q := r.URL.Query()
	switch r.Method {
	case http.MethodPost:
		quantity, _ := strconv.Atoi(q.Get("quantity"))
		expires, _ := strconv.ParseInt(q.Get("expires"), 10, 64)
		return x.place(Order{ClientID: q.Get("clientOrderId"), Side: q.Get("side"), Quantity: quantity, Type: q.Get("type")}, time.UnixMilli(expires))
	case http.MethodDelete:
		return x.cancel(q.Get("clientOrderId"))
	}
	return x.find(q.Get("clientOrderId"))
}

// place accepts an order. A request that arrives after expires is refused: so
// a client knows from then on that one not found will not come.
func (x *Exchange) place(o Order, expires time.Time) (int, []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := x.Now()
	if now.After(expires) {
		return encode(http.StatusBadRequest, &Error{CodeTooLate, "Timestamp for this request is outside of the recvWindow."})
	}
	if o.ClientID == "" || o.Quantity <= 0 {
		return encode(http.StatusBadRequest, &Error{-1102, "Mandatory parameter was not sent, was empty or malformed."})
	}
	for _, other := range x.orders {
		if other.ClientID == o.ClientID && other.Status == "NEW" {
			return encode(http.StatusBadRequest, &Error{CodeDuplicate, "Duplicate order sent."})
		}
	}
	o.ID, o.Time, o.Status = len(x.orders)+1, now, "NEW"
	if o.Type == "MARKET" {
		o.Status = "FILLED"
	}
	x.orders = append(x.orders, o)
	return encode(http.StatusOK, o)
}

// cancel ends the open order of a client id.
func (x *Exchange) cancel(clientID string) (int, []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range x.orders {
		if o := &x.orders[i]; o.ClientID == clientID && o.Status == "NEW" {
			o.Status = "CANCELED"
			return encode(http.StatusOK, o)
		}
	}
	return encode(http.StatusBadRequest, &Error{CodeUnknown, "Unknown order sent."})
}

// find returns all orders under a client id: there can be several.
func (x *Exchange) find(clientID string) (int, []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	found := []Order{}
	for _, o := range x.orders {
		if o.ClientID == clientID {
			found = append(found, o)
		}
	}
	return encode(http.StatusOK, found)
}

func encode(status int, v any) (int, []byte) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // the types above all encode
	}
	return status, body
}
