package main

// row is one line of the summary and the table behind it: benchmarks of one
// prefix, this module's own against the others.
type row struct {
	bench  string   // the benchmarks whose names begin so
	title  string   // what is done
	ours   string   // the sub-benchmark that is this module's
	units  []string // of the measure, summed; nil: time
	reach  string   // what is to be reached, in words
	limits []limit  // and in figures
	allocs int      // the most that is allowed; -1: any
	skip   []string // sub-benchmarks that are no peers: floors, variants
}

// limit is the most that ours may be of another's median. An empty name stands
// for each of the peers.
type limit struct {
	of   string
	most float64
}

const (
	inTime = "sec/op"
	heap   = "heap-B/op"
	stack  = "stack-B/op"
)

var rows = []row{
	{
		bench: "Success/Background", ours: "retry", title: "first attempt succeeds, attempts only",
		reach: "≤ each; 0 allocs", limits: []limit{{"", 1}}, allocs: 0, skip: []string{"direct", "floor"},
	}, {
		bench: "Success/Cancellable", ours: "retry", title: "same, in a context that can be cancelled",
		reach: "≤ each; 0 allocs", limits: []limit{{"", 1}}, allocs: 0, skip: []string{"direct", "floor"},
	}, {
		bench: "SuccessLiteral", ours: "retry", title: "same, Policy literal in the call",
		reach: "≤ 1.7 × floor; 0 allocs", limits: []limit{{"floor", 12.0 / 7}}, allocs: 0, skip: []string{"floor"},
	}, {
		bench: "SuccessDeadline", ours: "retry", title: "same, default Policy: deadline in force and handed to op",
		reach: "≤ 0.25 × context.WithTimeout; 1 alloc", limits: []limit{{"context.WithTimeout", 0.25}}, allocs: 1, skip: []string{"floor"},
	}, {
		bench: "SuccessDone", ours: "retry", title: "same, and op asks for Done",
		reach: "≤ 1.25 × context.WithTimeout", limits: []limit{{"context.WithTimeout", 1.25}}, allocs: -1,
	}, {
		bench: "Failures", ours: "retry", title: "three failures, then success, no-op sleeper",
		reach: "≤ avast with errors; 2 allocs", limits: []limit{{"avast", 1}}, allocs: 2, skip: []string{"floor"},
	}, {
		bench: "FailuresTimers", ours: "retry", title: "same, real timers of 1 ns",
		reach: "ahead of each", limits: []limit{{"", 1}}, allocs: -1, skip: []string{"floor"},
	}, {
		bench: "MillionFailures", ours: "retry", title: "a million failures in one operation, no-op sleeper",
		reach: "–", allocs: -1,
	}, {
		bench: "Bucket/Spend", ours: "retry", title: "Bucket: ask + give back, one core",
		reach: "≤ 0.75 × the best", limits: []limit{{"", 0.75}}, allocs: 0, skip: []string{"floor"},
	}, {
		bench: "Bucket/SpendParallel", ours: "retry", title: "Bucket: ask + give back, all cores",
		reach: "≤ 0.75 × the best", limits: []limit{{"", 0.75}}, allocs: 0, skip: []string{"floor"},
	}, {
		bench: "Bucket/Earn", ours: "retry", title: "Bucket: credit a success when full, one core",
		reach: "≤ failsafe", limits: []limit{{"failsafe", 1}}, allocs: 0, skip: []string{"floor"},
	}, {
		bench: "Bucket/EarnParallel", ours: "retry", title: "Bucket: credit a success when full, all cores",
		reach: "≤ failsafe", limits: []limit{{"failsafe", 1}}, allocs: 0, skip: []string{"floor"},
	}, {
		bench: "Gate/Enter", ours: "retry", title: "PacedGate: enter and leave, nobody waits, one core",
		reach: "–", allocs: -1,
	}, {
		bench: "Gate/EnterParallel", ours: "retry", title: "PacedGate: enter and leave, nobody waits, all cores",
		reach: "–", allocs: -1,
	}, {
		bench: "RetryAfter/Seconds", ours: "retry", title: `Retry-After "120"`,
		reach: "≤ 1.2 × Atoi; 0 allocs", limits: []limit{{"Atoi", 1.2}}, allocs: 0,
	}, {
		bench: "RetryAfter/IMF", ours: "retry", title: "Retry-After, IMF-fixdate",
		reach: "≤ 0.3 × http.ParseTime; 0 allocs", limits: []limit{{"http.ParseTime", 0.3}}, allocs: 0,
	}, {
		bench: "RetryAfter/RFC850", ours: "retry", title: "Retry-After, RFC 850 date",
		reach: "≤ 0.2 × http.ParseTime; 0 allocs", limits: []limit{{"http.ParseTime", 0.2}}, allocs: 0,
		skip: []string{"go-retryablehttp", "azcore"}, // they do not know it
	}, {
		bench: "RetryAfter/Asctime", ours: "retry", title: "Retry-After, asctime date",
		reach: "≤ 0.2 × http.ParseTime; 0 allocs", limits: []limit{{"http.ParseTime", 0.2}}, allocs: 0,
		skip: []string{"go-retryablehttp", "azcore"},
	}, {
		bench: "RetryAfter/Refused", ours: "retry", title: "Retry-After `1e400`, refused",
		reach: "≤ 0.2 × http.ParseTime; 0 allocs", limits: []limit{{"http.ParseTime", 0.2}}, allocs: 0,
	}, {
		bench: "Wait", ours: "retry", title: "one own wait, full jitter",
		reach: "≤ each", limits: []limit{{"", 1}}, allocs: 0, skip: []string{"floor"},
	}, {
		bench: "Window/Default", ours: "n=1000000000", title: "the window of retry 1e9, default growth",
		reach: "as at retry 10", limits: []limit{{"n=10", 1}}, allocs: 0,
	}, {
		bench: "Window/Slow", ours: "n=1000000000", title: "the window of retry 1e9, growth of a millionth, no cap",
		reach: "as at retry 10", limits: []limit{{"n=10", 1}}, allocs: 0,
	}, {
		bench: "HTTP", ours: "retry", title: "HTTP: success through a client",
		reach: "≤ rehttp with a deadline", limits: []limit{{"rehttp, with a deadline", 1}}, allocs: -1,
		skip: []string{"net/http", "net/http, with a deadline", "retry, no deadline"},
	}, {
		bench: "HTTPFailures", ours: "retry", title: "HTTP: three 503s, then 200",
		reach: "ahead of each", limits: []limit{{"", 1}}, allocs: -1, skip: []string{"retry, no deadline"},
	}, {
		bench: "Asleep/n=10000", ours: "retry", title: "one operation asleep, of 10,000: heap and stack",
		units: []string{heap, stack}, reach: "≤ cenkalti v6", limits: []limit{{"cenkalti v6", 1}}, allocs: -1,
		skip: []string{"floor", "retry, no deadline"},
	}, {
		bench: "Asleep/n=100000", ours: "retry", title: "one operation asleep, of 100,000: heap and stack",
		units: []string{heap, stack}, reach: "≤ cenkalti v6", limits: []limit{{"cenkalti v6", 1}}, allocs: -1,
		skip: []string{"floor", "retry, no deadline"},
	},
}

// sleepers are the sub-benchmarks of Asleep. Those with many run up to
// 100,000 operations.
var sleepers = []struct {
	name string
	many bool
}{
	{"floor", true},
	{"retry", true},
	{"retry, no deadline", true},
	{"cenkalti v5", true},
	{"cenkalti v6", true},
	{"avast, per ctx", true},
	{"sethvargo", true},
	{"eapache", false},
	{"gax", false},
	{"failsafe", false},
}

var crowds = []int{1, 100, 10_000, 100_000}
