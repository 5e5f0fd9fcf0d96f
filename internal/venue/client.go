package venue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3d0f8764/retry"
	"github.com/seed-3d0f8764/retry/httpretry"
)

// Intent is an order that shall be placed once.
type Intent struct {
	ClientID string // made once for this intent and never used again, whatever came of it
	Side     string
	Quantity int
	Type     string
}

// Client is the adapter between an order and [retry.Submit]: what to send, and
// how to find out what became of it. One Client serves one Intent.
type Client struct {
	URL    string
	Key    string
	HTTP   *http.Client
	Intent Intent
	// Window is how long the venue takes a request for good after it was
	// made; one that arrives later is refused.
	Window time.Duration
	// Since is a time not after the first send, by the venue's clock: an older
	// order under the same id is another's. Resuming, it is the first
	// process's.
	Since time.Time
	// Clock is that of the requests. nil: time.Now. One that differs from the
	// venue's costs time, or has requests refused; it proves nothing.
	Clock func() time.Time

	expires time.Time // of the last request; zero: this process has sent none
}

// New checks an intent. The id is trimmed once, so that what is sent is exactly
// what is looked up.
func New(target string, intent Intent) (*Client, error) {
	intent.ClientID = strings.TrimSpace(intent.ClientID)
	if intent.ClientID == "" {
		return nil, errors.New("venue: an order needs a client id")
	}
	return &Client{URL: target, HTTP: http.DefaultClient, Intent: intent, Window: 5 * time.Second}, nil
}

func (c *Client) now() time.Time {
	if c.Clock != nil {
		return c.Clock()
	}
	return time.Now()
}

// Place sends the order: an op for [retry.Submit].
func (c *Client) Place(ctx context.Context) (Order, error) {
	c.expires = c.now().Add(c.Window)
	var o Order
	err := c.call(ctx, http.MethodPost, "/order", url.Values{
		"clientOrderId": {c.Intent.ClientID}, "side": {c.Intent.Side}, "quantity": {strconv.Itoa(c.Intent.Quantity)},
		"type": {c.Intent.Type}, "expires": {strconv.FormatInt(c.expires.UnixMilli(), 10)},
	}, &o)
	return o, err
}

// Find looks for the order of the intent: a Find for [retry.Lookup]. That none
// is there proves nothing before the window of the last request has passed, by
// the venue's clock, which judges it: it may still be on its way. Several, or one that is not what was meant, are for
// a person to look at.
func (c *Client) Find(ctx context.Context) (Order, retry.Resolution, error) {
	if c.expires.IsZero() { // sent by an earlier process, before this one began
		c.expires = c.now().Add(c.Window)
	}
	found, err := c.orders(ctx)
	closed := false
	if err == nil && len(found) == 0 && c.now().After(c.expires) {
		if closed, err = c.closed(ctx); closed {
			found, err = c.orders(ctx) // one may have arrived between the two
		}
	}
	switch {
	case err != nil:
		return Order{}, retry.Unresolved, err
	case len(found) > 1:
		return Order{}, retry.Unresolved, retry.Permanent(fmt.Errorf("venue: %d orders under %q: a person must look", len(found), c.Intent.ClientID))
	case len(found) == 1:
		if o := found[0]; c.meant(o) {
			return o, retry.Applied, nil
		}
		return Order{}, retry.Unresolved, retry.Permanent(fmt.Errorf("venue: the order under %q is another: a person must look", c.Intent.ClientID))
	case closed:
		return Order{}, retry.NotApplied, nil
	}
	return Order{}, retry.Unresolved, nil
}

// ErrNotPlaced is the proof that there is no order, and that none will come.
var ErrNotPlaced = errors.New("venue: there is no such order, and it is too late for it to arrive")

// Look reads what became of the order: an op for [retry.Do]. A job whose state
// says that it has ended does not say how; whoever was to report it asks so.
func (c *Client) Look(ctx context.Context) (Order, error) {
	o, r, err := c.Find(ctx)
	switch {
	case err != nil || r == retry.Applied:
		return o, err
	case r == retry.NotApplied:
		return Order{}, retry.Permanent(ErrNotPlaced)
	}
	return Order{}, retry.Transient(fmt.Errorf("venue: no order under %q, but it may still arrive", c.Intent.ClientID))
}

// meant reports whether o is what the intent says.
func (c *Client) meant(o Order) bool {
	return o.Side == c.Intent.Side && o.Quantity == c.Intent.Quantity && o.Type == c.Intent.Type && !o.Time.Before(c.Since)
}

// Cancel asks to cancel the order: an op for [retry.Submit].
func (c *Client) Cancel(ctx context.Context) (Order, error) {
	var o Order
	err := c.call(ctx, http.MethodDelete, "/order", url.Values{"clientOrderId": {c.Intent.ClientID}}, &o)
	return o, err
}

// ErrFilled is why an order cannot be cancelled any more.
var ErrFilled = errors.New("venue: filled before it could be cancelled")

// FindCanceled looks what became of a cancellation: it reads the order itself.
// One that is still open was not cancelled; one that was filled cannot be. A
// cancellation may still arrive late, so whoever ends with an open order must
// not count on it.
func (c *Client) FindCanceled(ctx context.Context) (Order, retry.Resolution, error) {
	found, err := c.orders(ctx)
	if err != nil {
		return Order{}, retry.Unresolved, err
	}
	if len(found) != 1 || !c.meant(found[0]) {
		return Order{}, retry.Unresolved, retry.Permanent(fmt.Errorf("venue: %d orders under %q, and not one that was meant: a person must look", len(found), c.Intent.ClientID))
	}
	switch o := found[0]; o.Status {
	case "CANCELED":
		return o, retry.Applied, nil
	case "FILLED":
		return o, retry.Rejected, ErrFilled
	default:
		return o, retry.NotApplied, nil // cancelling twice does no harm
	}
}

// orders returns all orders under the id.
func (c *Client) orders(ctx context.Context) (found []Order, err error) {
	err = c.call(ctx, http.MethodGet, "/order", url.Values{"clientOrderId": {c.Intent.ClientID}}, &found)
	return found, err
}

// closed asks the venue whether its time is past the window of the last request.
func (c *Client) closed(ctx context.Context) (bool, error) {
	var t struct {
		ServerTime int64 `json:"serverTime"`
	}
	err := c.call(ctx, http.MethodGet, "/time", nil, &t)
	return err == nil && time.UnixMilli(t.ServerTime).After(c.expires), err
}

// call makes one request and reads its answer whole, inside op.
func (c *Client) call(ctx context.Context, method, path string, q url.Values, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, c.URL+path+"?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("X-Key", c.Key)
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	check := httpretry.Checker{Classify: judge}
	if err := check.Check(resp); err != nil {
		return err
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return retry.Unknown(err) // it was answered, and we do not know with what
	}
	return json.Unmarshal(body, into)
}

// judge has the venue's own rules: 418 is a ban for as long as Retry-After
// says, 403 one of ten minutes. Both are refused at the door. So is what has
// come too late, and the next request has a window of its own.
func judge(resp *http.Response) (retry.Verdict, bool) {
	switch resp.StatusCode {
	case http.StatusTeapot:
		return retry.Verdict{Class: retry.ClassSuspended}, true
	case http.StatusForbidden:
		return retry.Verdict{Class: retry.ClassSuspended, After: 10 * time.Minute}, true
	case http.StatusBadRequest:
		var refusal Error
		if err := json.NewDecoder(resp.Body).Decode(&refusal); err == nil && refusal.Code == CodeTooLate {
			return retry.Verdict{Class: retry.ClassTransient}, true
		}
	}
	return retry.Verdict{}, false
}
