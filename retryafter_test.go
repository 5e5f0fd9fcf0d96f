package retry_test

import (
	"math"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-3d0f8764/retry"
	"github.com/seed-3d0f8764/retry/internal/httpdate"
)

// longestHint stands for all that are too long for a Duration.
const longestHint = time.Duration(math.MaxInt64)

// lastUnix is the last second that a time.Time can hold.
const lastUnix = math.MaxInt64 - 62135596800

var retryAfterNow = time.Date(2026, time.June, 15, 12, 0, 0, 0, time.UTC)

func TestParseRetryAfterTable(t *testing.T) {
	rows := retryAfterRows(t)
	require.Len(t, rows, 424)
	for _, row := range rows {
		t.Run(row.id, func(t *testing.T) {
			wait, ok := retry.ParseRetryAfter(row.value, row.now)
			require.Equal(t, row.kind != "invalid", ok, row.reason)
			require.Equal(t, row.wait, wait, row.reason)
		})
	}
}

// The faults of other libraries, and the examples of the documents.
func TestParseRetryAfterFaults(t *testing.T) {
	date := func(year int, month time.Month, day, hour, minute, second int) time.Time {
		return time.Date(year, month, day, hour, minute, second, 0, time.UTC)
	}
	edt := time.FixedZone("EDT", -4*3600)
	for _, tt := range []struct {
		fault string
		value string
		now   time.Time
		wait  time.Duration
		ok    bool
	}{
		{"B29 the last second before the limit", "9223372036", retryAfterNow, 9223372036 * time.Second, true},
		{"B29 the first past it", "9223372037", retryAfterNow, longestHint, true},
		{"B29 would wrap to -1s", "9223372036854775807", retryAfterNow, longestHint, true},
		{"B29 would wrap to 290ms", "18446744074", retryAfterNow, longestHint, true},
		{"B29 would wrap to 2m", "18446744073709551736", retryAfterNow, longestHint, true},
		{"B31 a date", "Fri, 31 Dec 1999 23:59:59 GMT", date(1999, 12, 31, 23, 59, 49), 10 * time.Second, true},
		{"B34 now in another zone", "Thu, 25 Jun 2020 21:30:12 GMT", date(2020, 6, 25, 21, 28, 12).In(edt), 2 * time.Minute, true},
		{"B34 rfc850", "Thursday, 25-Jun-20 21:30:12 GMT", date(2020, 6, 25, 21, 28, 12).In(edt), 2 * time.Minute, true},
		{"B34 asctime", "Thu Jun 25 21:30:12 2020", date(2020, 6, 25, 21, 28, 12).In(edt), 2 * time.Minute, true},
		{"B36 Go duration", "1m0s", retryAfterNow, 0, false},
		{"B36 word", "soon", retryAfterNow, 0, false},
		{"B36 empty", "", retryAfterNow, 0, false},
		{"B36 punctuation", ";", retryAfterNow, 0, false},
		{"B37 fraction", "0.493", retryAfterNow, 0, false},
		{"B37 fraction", "1.5", retryAfterNow, 0, false},
		{"B37 whole, written as a fraction", "2.0", retryAfterNow, 0, false},
		{"B39 superscript digit", "²", retryAfterNow, 0, false},
		{"B39 full-width digits", "１２０", retryAfterNow, 0, false},
		{"B39 Arabic-Indic digit", "١", retryAfterNow, 0, false},
		{"B40 date in the past", "Mon, 15 Jun 2026 11:59:50 GMT", retryAfterNow, 0, true},
		{"B40 date is now", "Mon, 15 Jun 2026 12:00:00 GMT", retryAfterNow, 0, true},
		{"B40 date is next", "Mon, 15 Jun 2026 12:00:01 GMT", retryAfterNow, time.Second, true},
		{"B43 seconds, not milliseconds", "60", retryAfterNow, time.Minute, true},
		{"B52 lower case", "sun, 06 nov 1994 08:49:37 GMT", retryAfterNow, 0, false},
		{"B52 hour of one digit", "Sun, 06 Nov 1994 8:49:37 GMT", retryAfterNow, 0, false},
		{"B52 fraction of a second", "Sun, 06 Nov 1994 08:49:37.999 GMT", retryAfterNow, 0, false},
		{"B52 two spaces", "Sun,  06 Nov 1994 08:49:37 GMT", retryAfterNow, 0, false},
		{"B52 asctime with one space", "Sun Nov 6 08:49:37 1994", retryAfterNow, 0, false},
		{"B52 wrong weekday", "Mon, 06 Nov 1994 08:49:37 GMT", date(1994, 11, 6, 8, 49, 0), 37 * time.Second, true},
		{"B53 blanks around digits", " 120\t", retryAfterNow, 2 * time.Minute, true},
		{"B53 blanks around a date", "\t Fri, 31 Dec 1999 23:59:59 GMT \t", date(1999, 12, 31, 23, 59, 49), 10 * time.Second, true},
		{"B54 by the local clock", "Mon, 15 Jun 2026 10:00:30 GMT", date(2026, 6, 15, 10, 5, 0), 0, true},
		{"B54 by the Date field", "Mon, 15 Jun 2026 10:00:30 GMT", date(2026, 6, 15, 10, 0, 0), 30 * time.Second, true},
		{"delay", "7", retryAfterNow, 7 * time.Second, true},
		{"zero is a hint", "0", retryAfterNow, 0, true},
		{"past, in the RFC's example", "Fri, 31 Dec 1999 23:59:59 GMT", retryAfterNow, 0, true},
		{"exponent", "1e400", retryAfterNow, 0, false},
		{"not a number", "nan", retryAfterNow, 0, false},
		{"negative", "-1", retryAfterNow, 0, false},
		{"huge offset", "1 Jan 2000 0:00 +99999999999999", retryAfterNow, 0, false},
		{"a day", "86400", retryAfterNow, 24 * time.Hour, true},
	} {
		wait, ok := retry.ParseRetryAfter(tt.value, tt.now)
		require.Equal(t, tt.ok, ok, "%s: %q", tt.fault, tt.value)
		require.Equal(t, tt.wait, wait, "%s: %q", tt.fault, tt.value)
	}
}

// The time to a date is exact whatever now is, and ends at the longest Duration.
func TestParseRetryAfterForAnyNow(t *testing.T) {
	const last = "Fri, 31 Dec 9999 23:59:59 GMT"
	year2026, year9999 := retryAfterNow.Unix(), int64(253402300799)
	for _, tt := range []struct {
		value string
		now   time.Time
		wait  time.Duration
	}{
		{"Mon, 15 Jun 2026 12:00:10 GMT", time.Unix(year2026, 250e6), 9750 * time.Millisecond},
		{"Mon, 15 Jun 2026 12:00:10 GMT", time.Unix(year2026+9, 999999999), time.Nanosecond},
		{"Mon, 15 Jun 2026 12:00:10 GMT", time.Unix(year2026+10, 1), 0},
		{last, time.Unix(year9999-9223372037, 145224193), longestHint},
		{last, time.Unix(year9999-9223372037, 145224194), longestHint - 1},
		{last, time.Unix(year9999-9223372037, 145224192), longestHint},
		{last, time.Time{}, longestHint},
		{last, time.Unix(year9999, 0), 0},
		{last, time.Unix(year9999-1, 0), time.Second},
		{last, time.Unix(lastUnix, 999999999), 0},
		{last, time.Unix(math.MinInt64, 0), longestHint},
		{last, time.Unix(math.MinInt64, 0).Add(-time.Hour), longestHint}, // Unix wraps
		{"Mon, 01 Jan 0001 00:00:00 GMT", time.Time{}, 0},
		{"Mon, 01 Jan 0001 00:00:01 GMT", time.Time{}, time.Second},
		{"Sat, 01 Jan 0000 00:00:00 GMT", time.Time{}, 0},
		{"Sat, 01 Jan 0000 00:00:00 GMT", time.Date(-1, time.December, 31, 23, 59, 59, 0, time.UTC), time.Second},
	} {
		wait, ok := retry.ParseRetryAfter(tt.value, tt.now)
		require.True(t, ok, "%s at %s", tt.value, tt.now)
		require.Equal(t, tt.wait, wait, "%s at %s", tt.value, tt.now)
	}
}

// A date has no monotonic reading, so that of now must not count.
func TestParseRetryAfterAtAMonotonicNow(t *testing.T) {
	now := time.Now()
	require.Contains(t, now.String(), " m=", "this test needs a monotonic reading")
	date := now.Round(0).Add(time.Hour).Truncate(time.Second)
	wait, ok := retry.ParseRetryAfter(date.UTC().Format(http.TimeFormat), now)
	require.True(t, ok)
	require.Equal(t, date.Sub(now.Round(0)), wait)
}

func TestParseDelayLimits(t *testing.T) {
	for _, tt := range []struct {
		value string
		unit  time.Duration
		wait  time.Duration
		ok    bool
	}{
		{"250", time.Millisecond, 250 * time.Millisecond, true},
		{"0", time.Millisecond, 0, true},
		{"007", time.Millisecond, 7 * time.Millisecond, true},
		{" \t250\t ", time.Millisecond, 250 * time.Millisecond, true},
		{"9223372036854775806", 1, longestHint - 1, true},
		{"9223372036854775807", 1, longestHint, true},
		{"9223372036854775808", 1, longestHint, true},
		{"18446744073709551616", 1, longestHint, true}, // 1<<64
		{"11529215046068469760", 1, longestHint, true}, // 10<<60
		{"115292150460684697600000", 1, longestHint, true},
		{"9223372036854", time.Millisecond, 9223372036854 * time.Millisecond, true},
		{"9223372036855", time.Millisecond, longestHint, true},
		{"18446744073710", time.Millisecond, longestHint, true}, // would wrap to 448µs
		{"1", longestHint, longestHint, true},
		{"2", longestHint, longestHint, true},
		{"0", longestHint, 0, true},
		{"3", longestHint / 3, longestHint - 1, true},
		{"4", longestHint / 3, longestHint, true},
		{"000000000000000000000000000000000009", time.Second, 9 * time.Second, true},

		{"250", 0, 0, false},
		{"250", -1, 0, false},
		{"250", math.MinInt64, 0, false},
		{"", time.Millisecond, 0, false},
		{" ", time.Millisecond, 0, false},
		{"-1", time.Millisecond, 0, false},
		{"+1", time.Millisecond, 0, false},
		{"1500.5", time.Millisecond, 0, false},
		{"1 5", time.Millisecond, 0, false},
		{"1_5", time.Millisecond, 0, false},
		{"NaN", time.Millisecond, 0, false},
		{"99999999999999999999999999x", time.Millisecond, 0, false},
		{"Fri, 31 Dec 1999 23:59:59 GMT", time.Millisecond, 0, false},
	} {
		wait, ok := retry.ParseDelay(tt.value, tt.unit)
		require.Equal(t, tt.ok, ok, "%q of %d", tt.value, tt.unit)
		require.Equal(t, tt.wait, wait, "%q of %d", tt.value, tt.unit)
	}
}

func TestParseResetLimits(t *testing.T) {
	for _, tt := range []struct {
		value string
		unit  time.Duration
		now   time.Time
		wait  time.Duration
		ok    bool
	}{
		{"1781524860", time.Second, retryAfterNow, time.Minute, true},
		{"1781524801", time.Second, retryAfterNow, time.Second, true},
		{"1781524800", time.Second, retryAfterNow, 0, true},
		{"1781524797", time.Second, retryAfterNow, 0, true},
		{"1781524801", time.Second, time.Unix(1781524800, 999999999), 1, true},
		{"1711001595208", time.Millisecond, time.Unix(1711001595, 0), 208 * time.Millisecond, true},
		{"1781524800000000001", 1, retryAfterNow, 1, true},
		{"0", time.Second, retryAfterNow, 0, true},
		{"0", time.Second, time.Unix(-5, 0), 5 * time.Second, true},
		{" \t1781524860\t ", time.Second, retryAfterNow, time.Minute, true},
		{"29692081", time.Minute, retryAfterNow.Add(-time.Second), 61 * time.Second, true},
		{"00000000000000000000000001781524860", time.Second, retryAfterNow, time.Minute, true},

		{"9223372036", time.Second, time.Unix(0, 0), 9223372036 * time.Second, true},
		{"9223372037", time.Second, time.Unix(0, 0), longestHint, true},
		{"9223372037", time.Second, time.Unix(0, 145224193), longestHint, true},
		{"9223372037", time.Second, time.Unix(0, 145224194), longestHint - 1, true},
		{"99999999999999999999", time.Second, retryAfterNow, longestHint, true},
		{"18446744073709551616", time.Second, retryAfterNow, longestHint, true},

		// after 2554 the nanoseconds since the epoch take more than 64 bits
		{"253402300799000000007", 1, time.Unix(253402300799, 0), 7, true},
		{"253402300799000000007", 1, time.Unix(253402300798, 0), time.Second + 7, true},
		{"1000", longestHint, time.Unix(9223372036854, 775807000), 0, true},
		{"1000", longestHint, time.Unix(9223372036854, 775806999), 1, true},
		{"9223371974719179007", time.Second, time.Unix(lastUnix-1, 0), time.Second, true},
		{"9223371974719179008", time.Second, time.Unix(lastUnix-9223372037, 0), longestHint, true},
		{"1152921504606846976", time.Second, time.Unix(1<<60-1, 0), time.Second, true},
		{"1152921504606846977", time.Second, time.Unix(1<<60, 0), time.Second, true},

		{"0", time.Second, time.Unix(math.MinInt64, 0), longestHint, true},
		{"9223372036854775807", time.Second, time.Unix(math.MinInt64, 0), longestHint, true},

		{"1781524860", 0, retryAfterNow, 0, false},
		{"1781524860", -time.Second, retryAfterNow, 0, false},
		{"1781524860", math.MinInt64, retryAfterNow, 0, false},
		{"", time.Second, retryAfterNow, 0, false},
		{"-1", time.Second, retryAfterNow, 0, false},
		{"1470173023.123", time.Second, retryAfterNow, 0, false},
		{"1e9", time.Second, retryAfterNow, 0, false},
		{"Fri, 31 Dec 9999 23:59:59 GMT", time.Second, retryAfterNow, 0, false},
	} {
		wait, ok := retry.ParseReset(tt.value, tt.unit, tt.now)
		require.Equal(t, tt.ok, ok, "%q of %d at %s", tt.value, tt.unit, tt.now)
		require.Equal(t, tt.wait, wait, "%q of %d at %s", tt.value, tt.unit, tt.now)
	}
}

func TestParseRetryAfterIsTheInverseOfFormat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		date := time.Unix(rapid.Int64Range(-62167219200, 253402300799).Draw(t, "date"), 0).UTC()
		now := drawHintNow(t)
		for _, layout := range []string{http.TimeFormat, time.ANSIC} {
			requireHint(t, referenceUntil(date, now), true)(retry.ParseRetryAfter(date.Format(layout), now))
		}
		const fifty = 18261 * 86400 // the fewest seconds of 50 years
		ahead := time.Duration(rapid.Int64Range(1-fifty, fifty).Draw(t, "ahead")) * time.Second
		now = date.Add(-ahead)
		requireHint(t, max(0, ahead), true)(retry.ParseRetryAfter(date.Format("Monday, 02-Jan-06 15:04:05 GMT"), now))
	})
}

func TestParsersAgreeWithBigNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value, unit, now := drawHintDigits(t), drawHintUnit(t), drawHintNow(t)
		delay, ok := referenceDelay(value, unit)
		requireHint(t, delay, ok)(retry.ParseDelay(value, unit))
		reset, ok := referenceReset(value, unit, now)
		requireHint(t, reset, ok)(retry.ParseReset(value, unit, now))
		hint, ok := referenceRetryAfter(value, now)
		requireHint(t, hint, ok)(retry.ParseRetryAfter(value, now))

		// and near now, where a wait is neither 0 nor longestHint
		value = drawResetNear(t, now, unit)
		reset, ok = referenceReset(value, unit, now)
		requireHint(t, reset, ok)(retry.ParseReset(value, unit, now))
	})
}

// Only SP and HTAB are blanks, only around the value, and only ASCII digits count.
func TestParsersRefuseEveryOtherByte(t *testing.T) {
	for i := range len("120") + 1 {
		for b := range 256 {
			value := "120"[:i] + string([]byte{byte(b)}) + "120"[i:]
			want, ok := time.Duration(120), i == 0 || i == len("120")
			if b != ' ' && b != '\t' {
				n, err := strconv.ParseUint(value, 10, 64)
				want, ok = time.Duration(n), err == nil
			}
			if !ok {
				want = 0
			}
			requireHint(t, want*time.Second, ok)(retry.ParseRetryAfter(value, retryAfterNow))
			requireHint(t, want*time.Hour, ok)(retry.ParseDelay(value, time.Hour))
			requireHint(t, want*time.Hour, ok)(retry.ParseReset(value, time.Hour, time.Unix(0, 0)))
		}
	}
}

func TestParsersDoNotAllocate(t *testing.T) {
	for _, value := range []string{
		"120", "  120  ", "1e400", "", strings.Repeat("9", 100),
		"Fri, 06 Nov 2026 08:49:37 GMT", "Friday, 06-Nov-26 08:49:37 GMT", "Fri Nov  6 08:49:37 2026",
	} {
		require.Zero(t, testing.AllocsPerRun(100, func() {
			retry.ParseRetryAfter(value, retryAfterNow)
			retry.ParseDelay(value, time.Millisecond)
			retry.ParseReset(value, time.Millisecond, retryAfterNow)
		}), value)
	}
}

// A hostile value is read in linear time: 32 times the bytes take about 32 times
// as long, where quadratic time would be 1024 times.
func TestParsersTakeLinearTime(t *testing.T) {
	for _, tt := range []struct {
		pattern string // %s is what is repeated
		fill    string
		ok      bool
	}{
		{"%s", "0", true},
		{"%s7", "0", true},
		{"%s", "9", true},
		{"%sx", "9", false},
		{"%s120%s", " ", true},
		{"%s", "\t", false},
		{"%sx%s", "\t ", false},
		{"1%s1", " ", false},
		{"Fri, 06 Nov %s GMT", "2026", false},
		{"%s", "Friday, ", false},
	} {
		fastest := func(size int) time.Duration {
			value := strings.ReplaceAll(tt.pattern, "%s", strings.Repeat(tt.fill, size/len(tt.fill)))
			best := longestHint
			for range 5 {
				start := time.Now()
				_, ok := retry.ParseRetryAfter(value, retryAfterNow)
				_, delayOK := retry.ParseDelay(value, time.Millisecond)
				_, resetOK := retry.ParseReset(value, time.Millisecond, retryAfterNow)
				best = min(best, time.Since(start))
				require.Equal(t, [...]bool{tt.ok, tt.ok, tt.ok}, [...]bool{ok, delayOK, resetOK}, "%s %q", tt.pattern, tt.fill)
			}
			return best
		}
		for _, size := range []int{1 << 15, 1 << 20} { // the first fails soon where the second would take minutes
			small, large := fastest(size/32), fastest(size)
			require.Less(t, large, 256*small+time.Millisecond, "%s %q: %s, then %s", tt.pattern, tt.fill, small, large)
		}
	}
}

// SDK authors copy retryafter.go and its parser.
func TestRetryAfterBuildsAlone(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command")
	}
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "internal", "httpdate"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module github.com/seed-3d0f8764/retry\n\ngo 1.26\n"), 0o644))
	for _, name := range []string{"retryafter.go", "internal/httpdate/httpdate.go"} {
		text, err := os.ReadFile(filepath.FromSlash(name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), text, 0o644))
	}
	build := exec.CommandContext(t.Context(), "go", "build", "./...")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "GOPROXY=off")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
}

func FuzzParseRetryAfter(f *testing.F) {
	for _, row := range retryAfterRows(f) {
		f.Add(row.value, row.now.Unix(), row.now.Nanosecond())
	}
	f.Fuzz(func(t *testing.T, value string, sec int64, nsec int) {
		now := time.Unix(sec%(1<<62), int64(nsec))
		want, ok := referenceRetryAfter(value, now)
		requireHint(t, want, ok)(retry.ParseRetryAfter(value, now))
	})
}

func FuzzParseDelay(f *testing.F) {
	for _, row := range retryAfterRows(f) {
		f.Add(row.value, int64(time.Millisecond))
	}
	f.Fuzz(func(t *testing.T, value string, unit int64) {
		want, ok := referenceDelay(value, time.Duration(unit))
		requireHint(t, want, ok)(retry.ParseDelay(value, time.Duration(unit)))
	})
}

func FuzzParseReset(f *testing.F) {
	for _, row := range retryAfterRows(f) {
		f.Add(row.value, int64(time.Millisecond), row.now.Unix(), row.now.Nanosecond())
	}
	f.Fuzz(func(t *testing.T, value string, unit, sec int64, nsec int) {
		now := time.Unix(sec%(1<<62), int64(nsec))
		want, ok := referenceReset(value, time.Duration(unit), now)
		requireHint(t, want, ok)(retry.ParseReset(value, time.Duration(unit), now))
	})
}

// To compare medians of one run: -bench ParseRetryAfter -count 20.
func BenchmarkParseRetryAfter(b *testing.B) {
	seconds := func(b *testing.B, value string) {
		b.Run("strconv.Atoi", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = strconv.Atoi(value)
			}
		})
	}
	date := func(b *testing.B, value string) {
		b.Run("http.ParseTime", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = http.ParseTime(value)
			}
		})
	}
	for _, bb := range []struct {
		name      string
		value     string
		reference func(*testing.B, string)
	}{
		{"seconds", "120", seconds},
		{"IMF-fixdate", "Fri, 06 Nov 2026 08:49:37 GMT", date},
		{"rfc850", "Friday, 06-Nov-26 08:49:37 GMT", date},
		{"asctime", "Fri Nov  6 08:49:37 2026", date},
		{"refused", "1e400", date},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.Run("ParseRetryAfter", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					retry.ParseRetryAfter(bb.value, retryAfterNow)
				}
			})
			bb.reference(b, bb.value)
		})
	}
}

func BenchmarkParseDelay(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		retry.ParseDelay("1500", time.Millisecond)
	}
}

func BenchmarkParseReset(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		retry.ParseReset("1781524860000", time.Millisecond, retryAfterNow)
	}
}

// A retryAfterRow is a line of testdata/retryafter.tsv.
type retryAfterRow struct {
	id, value string
	now       time.Time
	kind      string
	wait      time.Duration
	reason    string
}

func retryAfterRows(t testing.TB) (rows []retryAfterRow) {
	text, err := os.ReadFile(filepath.Join("testdata", "retryafter.tsv"))
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	require.Equal(t, "id\theader_value\tnow\tdate_header\texpected_kind\texpected_wait\treason", lines[0])
	for _, line := range lines[1:] {
		fields := strings.Split(line, "\t")
		require.Len(t, fields, 7, line)
		row := retryAfterRow{id: fields[0], kind: fields[4], reason: fields[6]}
		row.value, err = strconv.Unquote(fields[1])
		require.NoError(t, err, line)
		row.now, err = time.Parse(time.RFC3339Nano, fields[2])
		require.NoError(t, err, line)
		switch row.kind {
		case "delay":
			row.wait, err = time.ParseDuration(fields[5])
			require.NoError(t, err, line)
		case "saturate":
			row.wait = longestHint
		default:
			require.Contains(t, []string{"past", "invalid"}, row.kind, line)
		}
		rows = append(rows, row)
	}
	return rows
}

// requireHint returns a check of what a parser returns; what it should be is in
// a Duration's range.
func requireHint(t require.TestingT, want time.Duration, wantOK bool) func(time.Duration, bool) {
	return func(wait time.Duration, ok bool) {
		if wait != want || ok != wantOK {
			require.FailNow(t, "not as the reference", "%d, %v; want %d, %v", wait, ok, want, wantOK)
		}
	}
}

var oneOrMoreDigits = regexp.MustCompile(`\A[0-9]+\z`)

// referenceDelay is ParseDelay in arithmetic without bounds.
func referenceDelay(value string, unit time.Duration) (time.Duration, bool) {
	return referenceReset(value, unit, time.Unix(0, 0))
}

// referenceReset is ParseReset in arithmetic without bounds.
func referenceReset(value string, unit time.Duration, now time.Time) (time.Duration, bool) {
	value = strings.Trim(value, " \t")
	if unit <= 0 || !oneOrMoreDigits.MatchString(value) {
		return 0, false
	}
	n, _ := new(big.Int).SetString(value, 10)
	n.Mul(n, big.NewInt(int64(unit)))
	return asHint(n.Sub(n, unixNanoseconds(now))), true
}

// referenceRetryAfter is ParseRetryAfter in arithmetic without bounds; the dates
// have a reference of their own, in internal/httpdate.
func referenceRetryAfter(value string, now time.Time) (time.Duration, bool) {
	if wait, ok := referenceDelay(value, time.Second); ok {
		return wait, true
	}
	date, ok := httpdate.Parse(strings.Trim(value, " \t"), now)
	if !ok {
		return 0, false
	}
	return referenceUntil(date, now), true
}

func referenceUntil(date, now time.Time) time.Duration {
	n := unixNanoseconds(date)
	return asHint(n.Sub(n, unixNanoseconds(now)))
}

// unixNanoseconds returns the time from the Unix epoch to t.
func unixNanoseconds(t time.Time) *big.Int {
	n := big.NewInt(t.Unix())
	n.Mul(n, big.NewInt(1e9))
	return n.Add(n, big.NewInt(int64(t.Nanosecond())))
}

func asHint(n *big.Int) time.Duration {
	switch {
	case n.Sign() < 0:
		return 0
	case !n.IsInt64():
		return longestHint
	}
	return time.Duration(n.Int64())
}

// drawHintNow returns a time in any zone, of a year of four digits or any other.
func drawHintNow(t *rapid.T) time.Time {
	sec := rapid.OneOf(
		rapid.Int64Range(-62167219200, 253402300799),
		rapid.Int64Range(-1<<62, 1<<62),
	).Draw(t, "now")
	nsec := rapid.Int64Range(0, 999999999).Draw(t, "nsec")
	zone := rapid.IntRange(-14*3600, 14*3600).Draw(t, "zone")
	return time.Unix(sec, nsec).In(time.FixedZone("", zone))
}

func drawHintUnit(t *rapid.T) time.Duration {
	return rapid.OneOf(
		rapid.SampledFrom([]time.Duration{1, time.Microsecond, time.Millisecond, time.Second, time.Minute}),
		rapid.Map(rapid.Int64Min(1), func(n int64) time.Duration { return time.Duration(n) }),
		rapid.Map(rapid.Int64(), func(n int64) time.Duration { return time.Duration(n) }),
	).Draw(t, "unit")
}

func drawHintDigits(t *rapid.T) string {
	return rapid.OneOf(
		rapid.Map(rapid.Uint64(), func(n uint64) string { return strconv.FormatUint(n, 10) }),
		rapid.Custom(func(t *rapid.T) string { // what wraps to a small number in 64 bits
			n := big.NewInt(rapid.Int64Range(1, 1<<40).Draw(t, "wraps"))
			n.Lsh(n, 64)
			return n.Add(n, big.NewInt(rapid.Int64Range(0, 1000).Draw(t, "left"))).String()
		}),
		rapid.StringMatching(`[ \t]{0,2}[0-9]{1,40}[ \t]{0,2}`),
		rapid.StringMatching(`0{0,99}[0-9]{1,20}`),
		rapid.StringMatching(`[0-9]{0,20}[^0-9]?[0-9]{0,20}`),
	).Draw(t, "value")
}

// drawResetNear returns a count of units from the Unix epoch to about now.
func drawResetNear(t *rapid.T, now time.Time, unit time.Duration) string {
	n := unixNanoseconds(now)
	n.Add(n, big.NewInt(rapid.Int64Range(-1<<32, math.MaxInt64).Draw(t, "ahead")))
	if unit > 0 {
		n.Div(n, big.NewInt(int64(unit)))
	}
	return n.String()
}
