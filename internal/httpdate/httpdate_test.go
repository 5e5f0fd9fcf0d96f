package httpdate_test

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-3d0f8764/retry/internal/httpdate"
)

// Layouts of the three forms for time.Time.Format, in UTC.
const (
	fixdate = "Mon, 02 Jan 2006 15:04:05 GMT"
	rfc850  = "Monday, 02-Jan-06 15:04:05 GMT"
	asctime = "Mon Jan _2 15:04:05 2006"
)

// cycle is the length of 400 Gregorian years, after which the calendar repeats.
const cycle = 146097 * 86400

// refused stands for "not an HTTP-date" among Unix times.
const refused = -1 << 63

var now2026 = time.Date(2026, time.June, 15, 12, 0, 0, 0, time.UTC)

// The grammar of RFC 9110 5.6.7, spelt out.
var forms = func() (forms []*regexp.Regexp) {
	for _, form := range []string{
		`WEEKDAY, (?P<day>\d\d) MONTH (?P<year>\d\d\d\d) TIME GMT`,
		`LONGDAY, (?P<day>\d\d)-MONTH-(?P<year>\d\d) TIME GMT`,
		`WEEKDAY MONTH (?P<day>\d\d| \d) TIME (?P<year>\d\d\d\d)`,
	} {
		forms = append(forms, regexp.MustCompile(`\A(?:`+strings.NewReplacer(
			"WEEKDAY", `(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)`,
			"LONGDAY", `(?:Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday)`,
			"MONTH", `(?P<month>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)`,
			"TIME", `(?P<hour>[01]\d|2[0-3]):(?P<minute>[0-5]\d):(?P<second>[0-5]\d|60)`,
		).Replace(form)+`)\z`))
	}
	return forms
}()

// reference is Parse, slow and plain: the grammar as regular expressions, the
// calendar of package time, the century found by trial.
func reference(s string, now time.Time) (time.Time, bool) {
	for _, form := range forms {
		match := form.FindStringSubmatch(s)
		if match == nil {
			continue
		}
		field := func(name string) int {
			n, err := strconv.Atoi(strings.TrimSpace(match[form.SubexpIndex(name)]))
			if err != nil {
				panic(err)
			}
			return n
		}
		first, err := time.Parse("Jan", match[form.SubexpIndex("month")])
		if err != nil {
			panic(err)
		}
		year, month, day := field("year"), first.Month(), field("day")
		in := func(year int) time.Time {
			return time.Date(year, month, day, field("hour"), field("minute"), field("second"), 0, time.UTC)
		}
		if len(match[form.SubexpIndex("year")]) == 2 {
			limit := now.UTC().AddDate(50, 0, 0)
			digits := year
			for year = limit.Year(); (year-digits)%100 != 0 || in(year).After(limit); year-- {
			}
		}
		if midnight := time.Date(year, month, day, 0, 0, 0, 0, time.UTC); midnight.Month() != month || midnight.Day() != day {
			return time.Time{}, false
		}
		return in(year), true
	}
	return time.Time{}, false
}

// requireReference fails unless Parse and reference agree on s.
func requireReference(t require.TestingT, s string, now time.Time) {
	want, wantOK := reference(s, now)
	got, ok := httpdate.Parse(s, now)
	if ok != wantOK || got != want { // != also compares the location
		require.FailNow(t, "not as the reference", "Parse(%q, %v) = %v, %v; want %v, %v", s, now, got, ok, want, wantOK)
	}
}

func TestParseReadsTheThreeForms(t *testing.T) {
	want := time.Date(1994, time.November, 6, 8, 49, 37, 0, time.UTC) // the example of the RFC
	for _, s := range []string{
		"Sun, 06 Nov 1994 08:49:37 GMT",
		"Sunday, 06-Nov-94 08:49:37 GMT",
		"Sun Nov  6 08:49:37 1994",
		"Sun Nov 06 08:49:37 1994", // date3 = month SP ( 2DIGIT / ( SP 1DIGIT ))
		"Tue, 06 Nov 1994 08:49:37 GMT",
		"Wednesday, 06-Nov-94 08:49:37 GMT",
		"Sat Nov  6 08:49:37 1994",
	} {
		got, ok := httpdate.Parse(s, now2026)
		require.True(t, ok, s)
		require.Equal(t, want, got, s)
	}
}

// Each field is tried on both sides of each of its limits.
func TestParseLimitsOfFields(t *testing.T) {
	for _, tt := range []struct {
		s    string
		want int64 // Unix time, or refused
	}{
		{"Sat, 01 Jan 0000 00:00:00 GMT", -62167219200},
		{"Mon, 01 Jan 0001 00:00:00 GMT", -62135596800},
		{"Fri, 31 Dec 9999 23:59:59 GMT", 253402300799},
		{"Fri, 31 Dec 9999 23:59:60 GMT", 253402300800},
		{"Wed, 31 Dec 1969 23:59:59 GMT", -1},
		{"Thu, 01 Jan 1970 00:00:00 GMT", 0},

		{"Mon, 00 Jun 2026 12:00:00 GMT", refused},
		{"Mon, 01 Jun 2026 12:00:00 GMT", 1780315200},
		{"Sun, 31 Jan 2027 00:00:00 GMT", 1801353600},
		{"Sun, 32 Jan 2027 00:00:00 GMT", refused},
		{"Sun, 28 Feb 2027 00:00:00 GMT", 1803772800},
		{"Mon, 29 Feb 2027 00:00:00 GMT", refused},
		{"Tue, 29 Feb 2028 00:00:00 GMT", 1835395200},
		{"Wed, 30 Feb 2028 00:00:00 GMT", refused},
		{"Tue, 29 Feb 2000 00:00:00 GMT", 951782400},
		{"Wed, 30 Feb 2000 00:00:00 GMT", refused},
		{"Sun, 28 Feb 2100 00:00:00 GMT", 4107456000},
		{"Mon, 29 Feb 2100 00:00:00 GMT", refused},
		{"Tue, 29 Feb 0000 00:00:00 GMT", -62162121600},
		{"Fri, 30 Apr 2027 00:00:00 GMT", 1809043200},
		{"Sat, 31 Apr 2027 00:00:00 GMT", refused},
		{"Wed, 30 Jun 2027 00:00:00 GMT", 1814313600},
		{"Thu, 31 Jun 2027 00:00:00 GMT", refused},
		{"Thu, 30 Sep 2027 00:00:00 GMT", 1822262400},
		{"Fri, 31 Sep 2027 00:00:00 GMT", refused},
		{"Tue, 30 Nov 2027 00:00:00 GMT", 1827532800},
		{"Wed, 31 Nov 2027 00:00:00 GMT", refused},
		{"Fri, 31 Dec 2027 00:00:00 GMT", 1830211200},
		{"Fri, 32 Dec 2027 00:00:00 GMT", refused},

		{"Mon, 15 Jun 2026 00:00:00 GMT", 1781481600},
		{"Mon, 15 Jun 2026 23:00:00 GMT", 1781564400},
		{"Mon, 15 Jun 2026 24:00:00 GMT", refused},
		{"Mon, 15 Jun 2026 12:59:00 GMT", 1781528340},
		{"Mon, 15 Jun 2026 12:60:00 GMT", refused},
		{"Mon, 15 Jun 2026 12:00:59 GMT", 1781524859},
		{"Mon, 15 Jun 2026 12:00:60 GMT", 1781524860},
		{"Mon, 15 Jun 2026 12:00:61 GMT", refused},
		{"Mon, 15 Jun 2026 12:59:60 GMT", 1781528400},

		{"Mon Jun  0 12:00:00 2026", refused},
		{"Mon Jun  1 12:00:00 2026", 1780315200},
		{"Tue Jun  9 12:00:00 2026", 1781006400},
		{"Tue Jun 30 12:00:00 2026", 1782820800},
		{"Wed Jun 31 12:00:00 2026", refused},
	} {
		got, ok := httpdate.Parse(tt.s, now2026)
		if tt.want == refused {
			require.False(t, ok, tt.s)
			require.Zero(t, got, tt.s)
			continue
		}
		require.True(t, ok, tt.s)
		require.Equal(t, time.Unix(tt.want, 0).UTC(), got, tt.s)
	}
}

// Every day of a whole cycle of the calendar, counted up, and both ends of every
// year that four digits can write.
func TestParseCountsEveryDay(t *testing.T) {
	check := func(day time.Time, want int64) {
		s := day.Format(fixdate)
		if got, ok := httpdate.Parse(s, now2026); !ok || got.Unix() != want {
			require.FailNow(t, "wrong day", "Parse(%q) = %v, %v; want %d", s, got, ok, want)
		}
	}
	want := int64(-11676096000) // 1 January 1600
	for day := time.Date(1600, time.January, 1, 0, 0, 0, 0, time.UTC); day.Year() < 2000; day = day.AddDate(0, 0, 1) {
		check(day, want)
		want += 86400
	}
	for year := range 10000 {
		first := time.Date(year, time.January, 1, 0, 0, 0, 0, time.UTC)
		check(first, first.Unix())
		last := time.Date(year, time.December, 31, 0, 0, 0, 0, time.UTC)
		check(last, last.Unix())
	}
}

// A two-digit year is the latest that is not more than 50 years ahead.
func TestParseTwoDigitYearOnBothSidesOfFiftyYears(t *testing.T) {
	at := func(s string) time.Time {
		now, err := time.Parse(time.RFC3339, s)
		require.NoError(t, err)
		return now
	}
	for _, tt := range []struct {
		now  time.Time
		s    string
		want int // year, or -1: refused
	}{
		{now2026, "Monday, 15-Jun-76 12:00:00 GMT", 2076},
		{now2026, "Monday, 15-Jun-76 12:00:01 GMT", 1976},
		{now2026, "Monday, 15-Jun-76 11:59:60 GMT", 2076},
		{now2026, "Monday, 15-Jun-76 12:00:60 GMT", 1976},
		{now2026, "Monday, 14-Jun-76 23:59:59 GMT", 2076},
		{now2026, "Monday, 16-Jun-76 00:00:00 GMT", 1976},
		{now2026, "Monday, 31-May-76 23:59:59 GMT", 2076},
		{now2026, "Monday, 01-Jul-76 00:00:00 GMT", 1976},
		{now2026, "Monday, 15-Jun-75 12:00:01 GMT", 2075},
		{now2026, "Monday, 15-Jun-77 12:00:00 GMT", 1977},
		{now2026, "Monday, 31-Dec-99 23:59:59 GMT", 1999},
		{now2026, "Monday, 01-Jan-00 00:00:00 GMT", 2000},
		{at("2026-06-15T11:59:59.999999999Z"), "Monday, 15-Jun-76 11:59:59 GMT", 2076},
		{at("2026-06-15T11:59:59.999999999Z"), "Monday, 15-Jun-76 12:00:00 GMT", 1976},

		// fault B34's kind: the zone of now does not count
		{at("2026-06-15T08:00:00-04:00"), "Monday, 15-Jun-76 12:00:00 GMT", 2076},
		{at("2026-06-15T08:00:00-04:00"), "Monday, 15-Jun-76 12:00:01 GMT", 1976},
		{at("2026-12-31T23:00:00-05:00"), "Friday, 01-Jan-77 04:00:00 GMT", 2077},
		{at("2026-12-31T23:00:00-05:00"), "Friday, 01-Jan-77 04:00:01 GMT", 1977},

		// 50 years after 29 February
		{at("2028-02-29T12:00:00Z"), "Monday, 28-Feb-78 23:59:59 GMT", 2078},
		{at("2028-02-29T12:00:00Z"), "Tuesday, 01-Mar-78 12:00:00 GMT", 2078},
		{at("2028-02-29T12:00:00Z"), "Tuesday, 01-Mar-78 12:00:01 GMT", 1978},

		// 29 February of a century's year: first the year, then whether it has one
		{at("2060-01-01T00:00:00Z"), "Monday, 29-Feb-00 00:00:00 GMT", -1},
		{at("2050-02-28T00:00:00Z"), "Tuesday, 29-Feb-00 00:00:00 GMT", 2000},
		{at("1960-01-01T00:00:00Z"), "Tuesday, 29-Feb-00 00:00:00 GMT", 2000},
		{at("1949-01-01T00:00:00Z"), "Thursday, 29-Feb-00 00:00:00 GMT", -1},
		{now2026, "Saturday, 29-Feb-76 00:00:00 GMT", 2076},
		{now2026, "Tuesday, 29-Feb-77 00:00:00 GMT", -1},

		{at("1999-12-31T23:59:50Z"), "Saturday, 01-Jan-00 00:00:10 GMT", 2000},
		{at("9999-12-31T23:59:59Z"), "Friday, 31-Dec-49 23:59:59 GMT", 10049},
		{at("9999-12-31T23:59:59Z"), "Friday, 31-Dec-99 23:59:59 GMT", 9999},
		{at("1969-12-31T23:59:59Z"), "Tuesday, 31-Dec-19 23:59:59 GMT", 2019},
		{at("1969-12-31T23:59:59Z"), "Wednesday, 31-Dec-19 23:59:60 GMT", 1920},
		{at("0000-01-01T00:00:00Z"), "Monday, 01-Jan-50 00:00:00 GMT", 50},
		{time.Time{}, "Monday, 01-Jan-51 00:00:00 GMT", 51},
		{time.Time{}, "Monday, 01-Jan-51 00:00:01 GMT", -49},
	} {
		got, ok := httpdate.Parse(tt.s, tt.now)
		if tt.want == -1 {
			require.False(t, ok, "%s at %s", tt.s, tt.now)
			continue
		}
		require.True(t, ok, "%s at %s", tt.s, tt.now)
		require.Equal(t, tt.want, got.Year(), "%s at %s", tt.s, tt.now)
		requireReference(t, tt.s, tt.now)
	}
}

// Fault B34's kind: neither now's zone nor the machine's may count.
func TestParseIgnoresTheLocalZone(t *testing.T) {
	local := time.Local
	t.Cleanup(func() { time.Local = local })
	for _, hours := range []int{-14, 14} {
		time.Local = time.FixedZone("", hours*3600)
		want := time.Date(2076, time.June, 15, 12, 0, 0, 0, time.UTC)
		for _, s := range []string{want.Format(fixdate), want.Format(rfc850), want.Format(asctime)} {
			got, ok := httpdate.Parse(s, now2026.Local())
			require.True(t, ok, s)
			require.Equal(t, want, got, s)
		}
		for hour := range 96 { // 50 years are a day longer on one side of 29 February
			now := time.Date(2028, time.February, 27, hour, 0, 0, 0, time.UTC)
			for _, ahead := range []time.Duration{0, time.Second} {
				requireReference(t, now.AddDate(50, 0, 0).Add(ahead).Format(rfc850), now.Local())
			}
		}
	}
}

// The calendar repeats, so that a two-digit year moves along with now, even to
// years that no int of 32 bits can hold.
func TestParseTwoDigitYearForAnyNow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawDate(t)
		now := drawNow(t)
		cycles := rapid.Int64Range(-1<<29, 1<<29).Draw(t, "cycles")
		later := time.Unix(now.Unix()+cycles*cycle, int64(now.Nanosecond()))
		near, ok := httpdate.Parse(s, now)
		far, farOK := httpdate.Parse(s, later)
		require.Equal(t, ok, farOK)
		if !ok {
			require.Zero(t, far)
			return
		}
		if strings.Contains(s, "-") {
			require.Equal(t, cycles*cycle, far.Unix()-near.Unix())
		} else {
			require.Equal(t, near, far)
		}
	})
}

func TestParseIsTheInverseOfFormat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := drawNow(t)
		want := time.Unix(rapid.Int64Range(-62167219200, 253402300799).Draw(t, "sec"), 0).UTC()
		for _, layout := range []string{fixdate, asctime} {
			got, ok := httpdate.Parse(want.Format(layout), now)
			require.True(t, ok, layout)
			require.Equal(t, want, got, layout)
		}
		// Less than 50 years from now, two digits say all.
		const fifty = 18261 * 86400 // the fewest days of 50 years
		now = want.Add(-time.Duration(rapid.Int64Range(1-fifty, fifty).Draw(t, "ahead")) * time.Second)
		got, ok := httpdate.Parse(want.Format(rfc850), now)
		require.True(t, ok)
		require.Equal(t, want, got, "now %v", now)
	})
}

func TestParseAgreesWithTheReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		requireReference(t, drawDate(t), drawNow(t))
	})
}

// One byte changed, put in or left out, anywhere: the grammar decides.
func TestParseRefusesEveryOtherByte(t *testing.T) {
	for _, s := range []string{
		"Fri, 06 Nov 2026 08:49:37 GMT",
		"Wednesday, 30-Sep-76 12:00:00 GMT",
		"Thu Dec 31 19:59:60 2037",
	} {
		requireReference(t, s, now2026)
		for i := range s {
			for b := range 256 {
				requireReference(t, s[:i]+string([]byte{byte(b)})+s[i+1:], now2026)
			}
			for _, b := range "0123456789 \t\r\n\x00,-+:.aGS" {
				requireReference(t, s[:i]+string(b)+s[i:], now2026)
				requireReference(t, s+string(b), now2026)
			}
			requireReference(t, s[:i]+s[i+1:], now2026)
			requireReference(t, s[:i], now2026)
			requireReference(t, s[i:], now2026)
		}
	}
}

func TestParseDoesNotAllocate(t *testing.T) {
	for _, s := range []string{
		"Fri, 06 Nov 2026 08:49:37 GMT", "Friday, 06-Nov-26 08:49:37 GMT", "Fri Nov  6 08:49:37 2026", "1e400", "",
	} {
		require.Zero(t, testing.AllocsPerRun(100, func() { httpdate.Parse(s, now2026) }), s)
	}
}

func FuzzParse(f *testing.F) {
	file, err := os.Open("../../testdata/retryafter.tsv")
	require.NoError(f, err)
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Split(lines.Text(), "\t")
		value, err := strconv.Unquote(fields[1])
		if err != nil {
			continue // the heading
		}
		now, err := time.Parse(time.RFC3339Nano, fields[2])
		require.NoError(f, err)
		f.Add(value, now.Unix(), now.Nanosecond())
	}
	f.Fuzz(func(t *testing.T, s string, sec int64, nsec int) {
		requireReference(t, s, time.Unix(sec%maxNow, int64(nsec)))
	})
}

// maxNow bounds a now, as a Unix time, so that package time knows its year where
// an int has 32 bits.
const maxNow = 1 << 55

func drawNow(t *rapid.T) time.Time {
	sec := rapid.OneOf(
		rapid.Int64Range(-62135596800, 253402300799),
		rapid.Int64Range(-maxNow, maxNow),
	).Draw(t, "now")
	nsec := rapid.Int64Range(0, 999999999).Draw(t, "nsec")
	zone := rapid.IntRange(-14*3600, 14*3600).Draw(t, "zone")
	return time.Unix(sec, nsec).In(time.FixedZone("", zone))
}

// drawDate returns what is an HTTP-date or just misses it.
func drawDate(t *rapid.T) string {
	weekday := rapid.SampledFrom([]string{
		"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun", "mon", "Mo",
		"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday", "monday",
	}).Draw(t, "weekday")
	month := rapid.SampledFrom([]string{
		"Jan", "Feb", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "dec", "Foo",
	}).Draw(t, "month")
	day := rapid.IntRange(0, 32).Draw(t, "day")
	year := rapid.IntRange(0, 9999).Draw(t, "year")
	clock := fmt.Sprintf("%02d:%02d:%02d", rapid.IntRange(0, 24).Draw(t, "hour"),
		rapid.IntRange(0, 60).Draw(t, "minute"), rapid.IntRange(0, 61).Draw(t, "second"))
	return rapid.SampledFrom([]string{
		fmt.Sprintf("%.3s, %02d %s %04d %s GMT", weekday, day, month, year, clock),
		fmt.Sprintf("%s, %02d-%s-%02d %s GMT", weekday, day, month, year%100, clock),
		fmt.Sprintf("%.3s %s %2d %s %04d", weekday, month, day, clock, year),
	}).Draw(t, "form")
}
