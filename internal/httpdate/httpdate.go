// Package httpdate parses the dates of HTTP fields.
package httpdate

import "time"

// Parse reads s as an HTTP-date (RFC 9110 5.6.7), in any of its three forms:
//
//	Sun, 06 Nov 1994 08:49:37 GMT    IMF-fixdate
//	Sunday, 06-Nov-94 08:49:37 GMT   rfc850-date
//	Sun Nov  6 08:49:37 1994         asctime-date
//
// It takes what the grammar gives and nothing more: case counts, and blanks
// around the date, other zones and fractions of a second are refused. The day
// must exist. The weekday must be a weekday, but need not be that day's: the RFC
// asks that of senders only. Second 60 is the first of the next minute.
//
// The result is in UTC. now matters only where the year has two digits: it is
// the latest such year that is not more than 50 years ahead of now, to the
// second; 50 years after 29 February is 1 March, as for [time.Time.AddDate].
//
// Anything but an HTTP-date gives the zero time and false. Parse does not
// allocate.
func Parse(s string, now time.Time) (t time.Time, ok bool) {
	var sec int64
	switch len(s) { // no length is that of two forms
	case len("Sun, 06 Nov 1994 08:49:37 GMT"):
		sec, ok = fixdate(s)
	case len("Sun Nov  6 08:49:37 1994"):
		sec, ok = asctime(s)
	default:
		sec, ok = rfc850(s, now)
	}
	if !ok {
		return time.Time{}, false
	}
	return time.Unix(sec, 0).UTC(), true
}

func fixdate(s string) (sec int64, ok bool) {
	if !weekday(s[:3]) || s[3:5] != ", " || s[7] != ' ' || s[11] != ' ' || s[16] != ' ' || s[25:] != " GMT" {
		return 0, false
	}
	return date(number(s[12:16]), monthNumber(s[8:11]), number(s[5:7]), secondOfDay(s[17:25]))
}

func asctime(s string) (sec int64, ok bool) {
	if !weekday(s[:3]) || s[3] != ' ' || s[7] != ' ' || s[10] != ' ' || s[19] != ' ' {
		return 0, false
	}
	day := s[8:10]
	if day[0] == ' ' {
		day = day[1:]
	}
	return date(number(s[20:]), monthNumber(s[4:7]), number(day), secondOfDay(s[11:19]))
}

func rfc850(s string, now time.Time) (sec int64, ok bool) {
	name := len(s) - len(", 06-Nov-94 08:49:37 GMT") // of the weekday
	if name < 0 || !longWeekday(s[:name]) {
		return 0, false
	}
	s = s[name:]
	if s[:2] != ", " || s[4] != '-' || s[8] != '-' || s[11] != ' ' || s[20:] != " GMT" {
		return 0, false
	}
	year, month, day, second := number(s[9:11]), monthNumber(s[5:8]), number(s[2:4]), secondOfDay(s[12:20])
	if year < 0 {
		return 0, false
	}

	// The calendar repeats every 400 years. Whole cycles are set aside, so that
	// the year of any now is positive and fits an int of 32 bits.
	const cycle = 146097 * 86400
	rest := now.Unix() % cycle
	y, m, d := time.Unix(rest, 0).UTC().Date()
	limit := rest + unix(y+50, int(m), d, 0) - unix(y, int(m), d, 0)
	year = y + 50 - (y+50-year)%100
	if unix(year, month, day, second) > limit {
		year -= 100
	}
	sec, ok = date(year, month, day, second)
	return now.Unix() - rest + sec, ok
}

// weekday reports whether s is a day-name.
func weekday(s string) bool {
	switch s {
	case "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun":
		return true
	}
	return false
}

// longWeekday reports whether s is a day-name-l.
func longWeekday(s string) bool {
	switch s {
	case "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday":
		return true
	}
	return false
}

// monthNumber returns 1 for "Jan" and so on, or 0.
func monthNumber(s string) int {
	switch s {
	case "Jan":
		return 1
	case "Feb":
		return 2
	case "Mar":
		return 3
	case "Apr":
		return 4
	case "May":
		return 5
	case "Jun":
		return 6
	case "Jul":
		return 7
	case "Aug":
		return 8
	case "Sep":
		return 9
	case "Oct":
		return 10
	case "Nov":
		return 11
	case "Dec":
		return 12
	}
	return 0
}

// secondOfDay returns the seconds from midnight to s, a time-of-day, or -1.
func secondOfDay(s string) int {
	hour, minute, second := number(s[:2]), number(s[3:5]), number(s[6:])
	if s[2] != ':' || s[5] != ':' || uint(hour) > 23 || uint(minute) > 59 || uint(second) > 60 {
		return -1
	}
	return hour*3600 + minute*60 + second
}

// number returns the value of a few digits, or -1.
func number(s string) int {
	n := 0
	for i := range len(s) {
		digit := s[i] - '0'
		if digit > 9 {
			return -1
		}
		n = 10*n + int(digit)
	}
	return n
}

// date returns the Unix time of a date, if all of it was read and its day exists.
func date(year, month, day, second int) (sec int64, ok bool) {
	days := 31
	switch month {
	case 2:
		days = 28
		if leap(year) {
			days = 29
		}
	case 4, 6, 9, 11:
		days = 30
	}
	if year < 0 || month < 1 || day < 1 || day > days || second < 0 {
		return 0, false
	}
	return unix(year, month, day, second), true
}

// unix returns the Unix time of a date of the proleptic Gregorian calendar, from
// year 0 on. A day past the end of its month is one of the next. (Reingold and
// Dershowitz, Calendrical Calculations, chapter 2.)
func unix(year, month, day, second int) int64 {
	days := 365*year + (year+3)/4 - (year+99)/100 + (year+399)/400 // before the year
	days += (367*month-362)/12 + day - 1                           // before the day, if February had 30
	if month > 2 {
		days -= 2
		if leap(year) {
			days++
		}
	}
	const epoch = 719528 // days from 1 January 0 to 1 January 1970
	return int64(days-epoch)*86400 + int64(second)
}

func leap(year int) bool {
	return year%4 == 0 && (year%100 != 0 || year%400 == 0)
}
