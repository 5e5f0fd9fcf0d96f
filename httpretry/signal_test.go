package httpretry_test

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/textproto"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-3d0f8764/retry"
	"github.com/seed-3d0f8764/retry/httpretry"
	"github.com/stretchr/testify/require"
)

// response makes a response of a status and header lines, with a blank line
// and a body after them where there is one.
func response(t testing.TB, status int, text string) *http.Response {
	t.Helper()
	head, body, _ := strings.Cut(text, "\r\n\r\n")
	h, err := textproto.NewReader(bufio.NewReader(strings.NewReader(head + "\r\n\r\n"))).ReadMIMEHeader()
	require.NoError(t, err)
	req, err := http.NewRequest(http.MethodGet, "http://venue.example/", nil)
	require.NoError(t, err)
	return &http.Response{StatusCode: status, Header: http.Header(h), Body: io.NopCloser(strings.NewReader(body)), Request: req}
}

// table reads a tsv file without its head line.
func table(t testing.TB, name string) (rows [][]string) {
	t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		rows = append(rows, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
	}
	return rows[1:]
}

// hintOf returns the hint of a Check, 0 where it has none.
func hintOf(err error) time.Duration {
	s, _ := errors.AsType[*retry.StatusError](err)
	return s.After
}

// chosen are the signals that a row of waitsignals.tsv is about; Retry-After
// beside them, so that their order shows.
var chosen = map[string][]httpretry.Signal{
	"retry-after-ms":                       {httpretry.RetryAfter, httpretry.RetryAfterMS},
	"x-ms-retry-after-ms":                  {httpretry.RetryAfter, httpretry.XMSRetryAfterMS},
	"x-ratelimit-reset (GitHub)":           {httpretry.GitHubReset, httpretry.RetryAfter},
	"RateLimit (IETF draft)":               {httpretry.RateLimit, httpretry.RetryAfter},
	"RateLimit-Reset (legacy)":             {httpretry.RateLimitReset, httpretry.RetryAfter},
	"X-Bapi-Limit-Reset-Timestamp (Bybit)": {httpretry.BybitReset},
	"Stripe-Should-Retry":                  {httpretry.RetryAfter, httpretry.StripeShouldRetry},
	"x-should-retry":                       {httpretry.RetryAfter, httpretry.XShouldRetry},
	"Binance REST Retry-After":             {httpretry.RetryAfter},
}

// elsewhere are the carriers that are no signals here: those of other
// protocols and vendors, and those in bodies and messages, which are hooks in
// venue_example_test.go and tested in TestHintsInBodies.
var elsewhere = map[string]bool{
	"x-amz-retry-after": true, "grpc-retry-pushback-ms": true, "x-rate-limit-reset (X/Twitter)": true,
	"Binance WS error.data.retryAfter": true, "Discord retry_after": true, "X-RateLimit-Reset-After (Discord)": true,
	"X-RateLimit-Reset (Discord)": true, "google.rpc.RetryInfo": true, "x-ratelimit-reset-requests (OpenAI)": true,
	"anthropic-ratelimit-requests-reset": true,
}

func TestWaitSignalsOfRealServers(t *testing.T) {
	rows := table(t, "testdata/waitsignals.tsv")
	ran := 0
	for _, row := range rows {
		id, name, carrier, expected := row[0], row[1], row[2], row[7]
		signals, ok := chosen[name]
		if !ok || !strings.HasPrefix(carrier, "response header") {
			require.True(t, elsewhere[name] || strings.HasPrefix(carrier, "WebSocket"), "%s %s is neither tested nor named as not ours", id, name)
			continue
		}
		ran++
		t.Run(id, func(t *testing.T) {
			text, err := strconv.Unquote(row[5])
			require.NoError(t, err)
			now, err := time.Parse(time.RFC3339, row[6])
			require.NoError(t, err)
			c := httpretry.Checker{Signals: signals, Clock: func() time.Time { return now }}
			err = c.Check(response(t, 500, text))
			v := retry.Classify(err)
			switch expected {
			case "ignore":
				require.Zero(t, hintOf(err))
				require.Equal(t, retry.ClassUnknown, v.Class)
			case "saturate":
				require.Equal(t, time.Duration(math.MaxInt64), hintOf(err))
			case "retry":
				require.Equal(t, retry.ClassUnknown, retry.Classify(c.Check(response(t, 400, text))).Class)
			case "stop":
				require.Equal(t, retry.ClassPermanent, v.Class)
			default:
				want, err2 := time.ParseDuration(expected)
				require.NoError(t, err2)
				require.Equal(t, want, hintOf(err))
			}
		})
	}
	require.Equal(t, 41, ran)
	require.Len(t, rows, 69)
}

// A date is measured against the response's own Date where that is valid; the
// rows date-015 to date-019 name what comes out then (fault B54).
func TestADateIsMeasuredAgainstTheServersDate(t *testing.T) {
	ran := 0
	for _, row := range table(t, "../testdata/retryafter.tsv") {
		if row[3] == "" {
			continue
		}
		ran++
		t.Run(row[0], func(t *testing.T) {
			value, err := strconv.Unquote(row[1])
			require.NoError(t, err)
			date, err := strconv.Unquote(row[3])
			require.NoError(t, err)
			now, err := time.Parse(time.RFC3339Nano, row[2])
			require.NoError(t, err)
			expected := row[5]
			if _, alternative, ok := strings.Cut(row[6], "alternative against Date: "); ok {
				expected = alternative
			}
			resp := response(t, 503, "")
			resp.Header = http.Header{"Retry-After": {value}, "Date": {date}}
			got := hintOf(httpretry.Checker{Clock: func() time.Time { return now }}.Check(resp))
			want := time.Duration(0)
			if expected != "" {
				want, err = time.ParseDuration(expected)
				require.NoError(t, err)
			}
			require.Equal(t, want, got)
		})
	}
	require.Equal(t, 14, ran)
}

// Of two lines of Retry-After the later time counts, and one that is not valid
// is ignored.
func TestSeveralLinesOfRetryAfter(t *testing.T) {
	for _, c := range []struct {
		lines []string
		want  time.Duration
	}{
		{[]string{"1", "3", "2"}, 3 * time.Second},
		{[]string{"soon", "3"}, 3 * time.Second},
		{[]string{"3", "1, 2"}, 3 * time.Second},
		{[]string{"5", "Mon, 15 Jun 2026 12:00:09 GMT"}, 9 * time.Second},
		{[]string{"soon"}, 0},
		{nil, 0},
	} {
		resp := response(t, 503, "")
		resp.Header["Retry-After"] = c.lines
		now := time.Date(2026, time.June, 15, 12, 0, 0, 0, time.UTC)
		require.Equal(t, c.want, hintOf(httpretry.Checker{Clock: func() time.Time { return now }}.Check(resp)), "%q", c.lines)
	}
}

// An empty list of signals believes nobody, one API's reset is never read as
// another's, and a signal that is no constant is none.
func TestOnlyChosenSignalsAreRead(t *testing.T) {
	all := "Retry-After: 1\r\nRetry-After-Ms: 2\r\nX-Ms-Retry-After-Ms: 3\r\nRateLimit: \"a\";r=0;t=4\r\n" +
		"RateLimit-Remaining: 0\r\nRateLimit-Reset: 5\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 4102444800\r\n" +
		"X-Bapi-Limit-Status: 0\r\nX-Bapi-Limit-Reset-Timestamp: 4102444800000"
	now := time.Unix(4102444800-60, 0)
	for _, c := range []struct {
		signals []httpretry.Signal
		want    time.Duration
	}{
		{nil, time.Second},
		{[]httpretry.Signal{}, 0},
		{[]httpretry.Signal{0, 99, 255}, 0},
		{[]httpretry.Signal{httpretry.RetryAfterMS}, 2 * time.Millisecond},
		{[]httpretry.Signal{httpretry.XMSRetryAfterMS}, 3 * time.Millisecond},
		{[]httpretry.Signal{httpretry.RateLimit}, 4 * time.Second},
		{[]httpretry.Signal{httpretry.RateLimitReset}, 5 * time.Second},
		{[]httpretry.Signal{httpretry.GitHubReset}, time.Minute},
		{[]httpretry.Signal{httpretry.BybitReset}, time.Minute},
		{[]httpretry.Signal{httpretry.RateLimit, httpretry.XMSRetryAfterMS, httpretry.RetryAfter, httpretry.RetryAfterMS}, 2 * time.Millisecond},
		{[]httpretry.Signal{httpretry.BybitReset, httpretry.RetryAfter}, time.Second},
	} {
		check := httpretry.Checker{Signals: c.signals, Clock: func() time.Time { return now }}
		require.Equal(t, c.want, hintOf(check.Check(response(t, 429, all))), "%v", c.signals)
	}
}

// Values of any length and byte are refused or read in linear time, without a
// panic.
func FuzzSignals(f *testing.F) {
	for _, seed := range []string{`"default";r=0;t=30`, "a;r=0;t=-1", `limit=1, remaining=0, reset=5`, `"\\\"";r=0;t=1, b`, "?1", "*a;r;t=1.5", strings.Repeat(",", 9)} {
		f.Add(seed, int64(0))
	}
	f.Fuzz(func(t *testing.T, value string, at int64) {
		resp := &http.Response{StatusCode: 503, Header: http.Header{}, Body: http.NoBody}
		for _, name := range []string{"Retry-After", "Date", "Retry-After-Ms", "X-Ms-Retry-After-Ms", "Ratelimit", "Ratelimit-Reset", "X-Ratelimit-Reset",
			"X-Bapi-Limit-Reset-Timestamp", "X-Should-Retry", "Stripe-Should-Retry"} {
			resp.Header[name] = []string{value}
		}
		for _, name := range []string{"Ratelimit-Remaining", "X-Ratelimit-Remaining", "X-Bapi-Limit-Status"} {
			resp.Header[name] = []string{"0"}
		}
		for s := range httpretry.BybitReset + 2 {
			c := httpretry.Checker{Signals: []httpretry.Signal{s}, Clock: func() time.Time { return time.Unix(at, 0) }}
			require.GreaterOrEqual(t, hintOf(c.Check(resp)), time.Duration(0))
		}
	})
}

// Each signal is named by the field that it is read from.
func TestSignalsHaveTheNamesOfTheirFields(t *testing.T) {
	for s := httpretry.StripeShouldRetry; s <= httpretry.BybitReset; s++ {
		resp := response(t, 400, "x-ratelimit-remaining: 0\r\nratelimit-remaining: 0\r\nx-bapi-limit-status: 0")
		c := httpretry.Checker{Signals: []httpretry.Signal{s}, Clock: func() time.Time { return time.Unix(0, 0) }}
		before := c.Check(resp)
		value := map[httpretry.Signal]string{
			httpretry.StripeShouldRetry: "true", httpretry.XShouldRetry: "true", httpretry.RateLimit: `"a";r=0;t=7`,
		}[s]
		resp.Header.Set(s.String(), cmp.Or(value, "7"))
		require.NotEqual(t, before, c.Check(resp), "%v", s)
	}
	require.Equal(t, "[Retry-After x-should-retry]", fmt.Sprint([]httpretry.Signal{httpretry.RetryAfter, httpretry.XShouldRetry}))
	require.Equal(t, "Signal(0) Signal(10)", fmt.Sprint(httpretry.Signal(0), " ", httpretry.BybitReset+1))
}

func TestHugeRateLimitIsReadInLinearTime(t *testing.T) {
	for _, value := range []string{strings.Repeat(`"a";r=0;t=1,`, 1<<16) + `"b";r=0;t=2`, strings.Repeat("a", 1<<20), `"` + strings.Repeat(`\\`, 1<<19)} {
		resp := response(t, 503, "")
		resp.Header["Ratelimit"] = []string{value}
		start := time.Now()
		_ = httpretry.Checker{Signals: []httpretry.Signal{httpretry.RateLimit}}.Check(resp)
		require.Less(t, time.Since(start), 5*time.Second)
	}
}
