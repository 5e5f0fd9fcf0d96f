package httpretry_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-3d0f8764/retry"
	"github.com/seed-3d0f8764/retry/httpretry"
	"github.com/stretchr/testify/require"
)

// The rules of venues are theirs, and change: each function names the page and
// the day on which it was read. Look again before you rely on it.

// binance judges the responses of Binance Spot REST: any 5xx and the codes
// -1006 and -1007 leave the outcome unknown, 418 is a ban of the address.
// Source: rest-api page of the Spot API, read 6 November 2026.
func binance(resp *http.Response) (retry.Verdict, bool) {
	switch {
	case resp.StatusCode == http.StatusTeapot:
		return retry.Verdict{Class: retry.ClassSuspended}, true // for as long as Retry-After says
	case resp.StatusCode >= 500:
		return retry.Verdict{Class: retry.ClassUnknown}, true
	case resp.StatusCode >= 400:
		var e struct {
			Code int `json:"code"`
		}
		if json.NewDecoder(resp.Body).Decode(&e) == nil && (e.Code == -1006 || e.Code == -1007) {
			return retry.Verdict{Class: retry.ClassUnknown}, true
		}
	}
	return retry.Verdict{}, false
}

// binanceFutures judges the four meanings of a 503 of Binance USD-M futures,
// which its text tells. Source: general-info page, last modified 30 October 2026.
func binanceFutures(resp *http.Response) (retry.Verdict, bool) {
	if resp.StatusCode != http.StatusServiceUnavailable {
		return retry.Verdict{}, false
	}
	body, _ := io.ReadAll(resp.Body)
	switch text := string(body); {
	case strings.Contains(text, "-1008"): // overload: failed, back off and send less
		return retry.Verdict{Class: retry.ClassThrottled}, true
	case strings.Contains(text, "Service Unavailable."), strings.Contains(text, "Internal error"): // failed for certain
		return retry.Verdict{Class: retry.ClassTransient}, true
	}
	return retry.Verdict{Class: retry.ClassUnknown}, true // "Unknown error", and what is not known
}

// futuresPolicy repeats as that page proposes: 200, 400, 800 ms, and no more
// than five attempts.
var futuresPolicy = retry.Policy{
	MaxAttempts: 4,
	Backoff:     retry.Backoff{Base: 200 * time.Millisecond, Jitter: retry.EqualJitter},
}

// bybit judges the responses of Bybit V5: a limit per user comes as retCode
// 10006 in a 200, one per address as a 403 that asks to stop everything for ten
// minutes. Source: rate-limit page, read 6 November 2026.
func bybit(resp *http.Response) (retry.Verdict, bool) {
	if resp.StatusCode == http.StatusForbidden {
		return retry.Verdict{Class: retry.ClassSuspended, After: 10 * time.Minute}, true
	}
	var body struct {
		RetCode int `json:"retCode"`
	}
	if resp.StatusCode != http.StatusOK || json.NewDecoder(resp.Body).Decode(&body) != nil {
		return retry.Verdict{}, false
	}
	switch body.RetCode {
	case 10006: // its hint is the signal BybitReset
		return retry.Verdict{Class: retry.ClassThrottled}, true
	case 10016:
		return retry.Verdict{Class: retry.ClassTransient}, true
	case 10000: // a timeout inside
		return retry.Verdict{Class: retry.ClassUnknown}, true
	}
	return retry.Verdict{}, false
}

func ExampleChecker_binance() {
	check := httpretry.Checker{Classify: binance}
	for _, r := range []*http.Response{
		reply(http.MethodPost, 400, "", `{"code":-1007,"msg":"Timeout waiting for response from backend server."}`),
		reply(http.MethodPost, 400, "", `{"code":-1013,"msg":"Filter failure: LOT_SIZE"}`),
		reply(http.MethodGet, 418, "120", `{"code":-1003,"msg":"banned"}`),
	} {
		fmt.Println(retry.Classify(check.Check(r)))
	}
	// Output:
	// {unknown 0s mutation}
	// {permanent 0s mutation}
	// {suspended 2m0s read-only}
}

func ExampleChecker_binanceFutures() {
	check := httpretry.Checker{Classify: binanceFutures}
	for _, text := range []string{
		"Unknown error, please check your request or try again later.",
		"Service Unavailable.",
		"Internal error; unable to process your request. Please try again.",
		`{"code":-1008,"msg":"Request throttled by system-level protection."}`,
	} {
		fmt.Println(retry.Classify(check.Check(reply(http.MethodPost, 503, "", text))).Class)
	}
	for _, a := range futuresPolicy.Plan()[1:] {
		fmt.Print(a.Window, " ")
	}
	// Output:
	// unknown
	// transient
	// transient
	// throttled
	// 200ms 400ms 800ms
}

func ExampleChecker_bybit() {
	now := time.UnixMilli(1672738134000)
	check := httpretry.Checker{
		Classify: bybit,
		Signals:  []httpretry.Signal{httpretry.BybitReset},
		Clock:    func() time.Time { return now },
	}
	limited := reply(http.MethodGet, 200, "", `{"retCode":10006,"retMsg":"Too many visits!"}`)
	limited.Header.Set("X-Bapi-Limit-Status", "0")
	limited.Header.Set("X-Bapi-Limit-Reset-Timestamp", "1672738134824")
	fmt.Println(retry.Classify(check.Check(limited)))
	fmt.Println(retry.Classify(check.Check(reply(http.MethodGet, 403, "", "access too frequent"))))
	fmt.Println(check.Check(reply(http.MethodGet, 200, "", `{"retCode":0}`)))
	// Output:
	// {throttled 824ms read-only}
	// {suspended 10m0s read-only}
	// <nil>
}

// reply is a response as a client would get it.
func reply(method string, status int, retryAfter, body string) *http.Response {
	req, _ := http.NewRequest(method, "https://venue.example/order", nil)
	h := http.Header{}
	if retryAfter != "" {
		h.Set("Retry-After", retryAfter)
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body)), Request: req}
}

// Hints in bodies are a hook's to read; ParseReset and ParseDelay do the
// arithmetic, with the strictness and the saturation of the package.

// wsHint reads retryAfter of Binance's WebSocket API: an instant in
// milliseconds, measured against the serverTime beside it where there is one.
func wsHint(body string, now time.Time) (time.Duration, bool) {
	var m struct {
		Error struct {
			Data struct {
				ServerTime json.Number `json:"serverTime"`
				RetryAfter json.Number `json:"retryAfter"`
			} `json:"data"`
		} `json:"error"`
	}
	if json.Unmarshal([]byte(body), &m) != nil {
		return 0, false
	}
	if at, err := m.Error.Data.ServerTime.Int64(); err == nil {
		now = time.UnixMilli(at)
	}
	return retry.ParseReset(m.Error.Data.RetryAfter.String(), time.Millisecond, now)
}

// bybitWSHint reads the headers that Bybit's WebSocket API puts into its
// message: the fields of the signal BybitReset.
func bybitWSHint(body string, now time.Time) (time.Duration, bool) {
	var m struct {
		Header struct {
			Status string `json:"X-Bapi-Limit-Status"`
			Reset  string `json:"X-Bapi-Limit-Reset-Timestamp"`
		} `json:"header"`
	}
	if json.Unmarshal([]byte(body), &m) != nil || m.Header.Status != "0" {
		return 0, false
	}
	return retry.ParseReset(m.Header.Reset, time.Millisecond, now)
}

// discordHint reads retry_after of Discord: seconds with decimals, beside a
// Retry-After that is the same rounded up. The longer counts.
func discordHint(resp *http.Response) (time.Duration, bool) {
	var m struct {
		RetryAfter json.Number `json:"retry_after"`
	}
	if json.NewDecoder(resp.Body).Decode(&m) != nil {
		return 0, false
	}
	return decimalSeconds(m.RetryAfter.String())
}

// retryInfo reads the retryDelay of a google.rpc.RetryInfo among the details of
// a JSON error: a protobuf Duration such as "3.500s".
func retryInfo(body string) (time.Duration, bool) {
	var m struct {
		Error struct {
			Details []struct {
				Type       string `json:"@type"`
				RetryDelay string `json:"retryDelay"`
			} `json:"details"`
		} `json:"error"`
	}
	if json.Unmarshal([]byte(body), &m) != nil {
		return 0, false
	}
	for _, d := range m.Error.Details {
		if strings.HasSuffix(d.Type, "/google.rpc.RetryInfo") {
			s, ok := strings.CutSuffix(d.RetryDelay, "s")
			if !ok {
				return 0, false
			}
			return decimalSeconds(s)
		}
	}
	return 0, false
}

// decimalSeconds reads digits with up to nine decimals, without floating point.
func decimalSeconds(s string) (time.Duration, bool) {
	whole, fraction, point := strings.Cut(s, ".")
	if len(fraction) > 9 || point && fraction == "" {
		return 0, false
	}
	seconds, ok := retry.ParseDelay(whole, time.Second)
	if !ok {
		return 0, false
	}
	nanos, ok := retry.ParseDelay("0"+fraction+strings.Repeat("0", 9-len(fraction)), 1)
	switch {
	case !ok:
		return 0, false
	case seconds > math.MaxInt64-nanos:
		return math.MaxInt64, true
	}
	return seconds + nanos, true
}

func TestHintsInBodies(t *testing.T) {
	ran := 0
	for _, row := range table(t, "testdata/waitsignals.tsv") {
		text, err := strconv.Unquote(row[5])
		require.NoError(t, err)
		now, err := time.Parse(time.RFC3339, row[6])
		require.NoError(t, err)
		var got time.Duration
		var ok bool
		switch row[1] {
		case "Binance WS error.data.retryAfter":
			got, ok = wsHint(text, now)
		case "X-Bapi-Limit-Reset-Timestamp (Bybit)":
			if !strings.HasPrefix(row[2], "WebSocket") {
				continue // a signal: TestWaitSignalsOfRealServers
			}
			got, ok = bybitWSHint(text, now)
		case "google.rpc.RetryInfo":
			got, ok = retryInfo(text)
		case "Discord retry_after":
			check := httpretry.Checker{Classify: func(r *http.Response) (retry.Verdict, bool) {
				after, ok := discordHint(r)
				return retry.Verdict{Class: retry.ClassThrottled, After: after}, ok
			}}
			s, is := errors.AsType[*retry.StatusError](check.Check(response(t, 429, text)))
			got, ok = s.After, is
		default:
			continue
		}
		ran++
		switch row[7] {
		case "ignore":
			require.False(t, ok, row[0])
		case "saturate":
			require.Equal(t, time.Duration(math.MaxInt64), got, row[0])
		default:
			want, err := time.ParseDuration(row[7])
			require.NoError(t, err)
			require.True(t, ok, row[0])
			require.Equal(t, want, got, row[0])
		}
	}
	require.Equal(t, 12, ran)

	for s, want := range map[string]time.Duration{
		"9007199254.740993":    9007199254740993000, // not what a float64 makes of it
		"9223372036.854775807": math.MaxInt64,
		"9223372036.854775808": math.MaxInt64,
		"9223372037":           math.MaxInt64,
		"0.000000001":          1,
	} {
		got, ok := decimalSeconds(s)
		require.True(t, ok, s)
		require.Equal(t, want, got, s)
	}
	for _, s := range []string{"", ".", "1.", ".5", "1.-5", "-1.5", "1.0000000001", "1.5.5", "1e3"} {
		got, ok := decimalSeconds(s)
		require.False(t, ok, s)
		require.Zero(t, got, s)
	}
}
