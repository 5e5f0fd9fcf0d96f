package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// user is a program that makes one call through one library.
type user struct {
	name    string
	modules []string // of the library; the first is asked for by name
	imports []string
	call    string // an expression of two values: the call of op, or of get
}

const own = "github.com/seed-3d0f8764/retry"

// The first of each list is the program without a library.
var (
	callers = []user{
		{"no library", nil, nil, `op(ctx)`},
		{"retry", []string{own}, []string{own}, `retry.Do(ctx, nil, op)`},
		{"sethvargo", []string{"github.com/sethvargo/go-retry"}, []string{"github.com/sethvargo/go-retry"},
			`retry.DoValue(ctx, retry.WithMaxRetries(4, retry.WithFullJitter(retry.NewExponential(1e8))), op)`},
		{"cenkalti v5", []string{"github.com/cenkalti/backoff/v5"}, []string{"github.com/cenkalti/backoff/v5"},
			`backoff.Retry(ctx, func() (int, error) { return op(ctx) })`},
		{"cenkalti v6", []string{"github.com/cenkalti/backoff/v6"}, []string{"github.com/cenkalti/backoff/v6"},
			`backoff.Retry(ctx, func() (int, error) { return op(ctx) })`},
		{"avast", []string{"github.com/avast/retry-go/v5"}, []string{"github.com/avast/retry-go/v5"},
			`retry.NewWithData[int](retry.Context(ctx)).Do(func() (int, error) { return op(ctx) })`},
		{"eapache", []string{"github.com/eapache/go-resiliency"}, []string{"github.com/eapache/go-resiliency/retrier"},
			`0, retrier.New(retrier.ExponentialBackoff(4, 1e8), nil).RunCtx(ctx, func(ctx context.Context) error { _, err := op(ctx); return err })`},
		{"failsafe", []string{"github.com/failsafe-go/failsafe-go"},
			[]string{"github.com/failsafe-go/failsafe-go", "github.com/failsafe-go/failsafe-go/retrypolicy"},
			`failsafe.With(retrypolicy.NewWithDefaults[int]()).Get(func() (int, error) { return op(ctx) })`},
		{"gax", []string{"github.com/googleapis/gax-go/v2"}, []string{"github.com/googleapis/gax-go/v2"},
			`0, gax.Invoke(ctx, func(ctx context.Context, _ gax.CallSettings) error { _, err := op(ctx); return err })`},
		{"aws", []string{"github.com/aws/aws-sdk-go-v2", "github.com/aws/smithy-go"},
			[]string{"github.com/aws/aws-sdk-go-v2/aws/retry", "github.com/aws/smithy-go/middleware"},
			`0, func() error { _, _, err := retry.NewAttemptMiddleware(retry.NewStandard(), func(v any) any { return v }).HandleFinalize(ctx, middleware.FinalizeInput{}, middleware.FinalizeHandlerFunc(func(ctx context.Context, _ middleware.FinalizeInput) (o middleware.FinalizeOutput, m middleware.Metadata, err error) { _, err = op(ctx); return })); return err }()`},
	}
	browsers = []user{
		{"net/http alone", nil, []string{"net/http"}, `http.DefaultClient.Get(url)`},
		{"httpretry", []string{own}, []string{"net/http", own + "/httpretry"},
			`(&http.Client{Transport: &httpretry.Transport{}}).Get(url)`},
		{"go-retryablehttp", []string{"github.com/hashicorp/go-retryablehttp"}, []string{"github.com/hashicorp/go-retryablehttp"},
			`retryablehttp.NewClient().Get(url)`},
		{"rehttp", []string{"github.com/PuerkitoBio/rehttp"}, []string{"net/http", "github.com/PuerkitoBio/rehttp"},
			`(&http.Client{Transport: rehttp.NewTransport(nil, rehttp.RetryAll(rehttp.RetryMaxRetries(4), rehttp.RetryTemporaryErr()), rehttp.ExpJitterDelay(1e8, 1e10))}).Get(url)`},
		{"failsafehttp", []string{"github.com/failsafe-go/failsafe-go"}, []string{"net/http", "github.com/failsafe-go/failsafe-go/failsafehttp"},
			`(&http.Client{Transport: failsafehttp.NewRoundTripper(nil, failsafehttp.NewRetryPolicyBuilder().Build())}).Get(url)`},
		{"azcore", []string{"github.com/Azure/azure-sdk-for-go/sdk/azcore"},
			[]string{"net/http", "github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"},
			`func() (*http.Response, error) { req, _ := runtime.NewRequest(ctx, http.MethodGet, url); return runtime.NewPipeline("m", "v1.0.0", runtime.PipelineOptions{}, nil).Do(req) }()`},
	}
)

// size is what a program weighs.
type size struct {
	user
	bytes    int64 // of the binary
	stripped int64 // without symbols and debugging information
	linked   int   // modules in it, beyond the library's own
	required int   // modules in the user's go.mod, beyond it
	listed   int   // modules in the user's build list, beyond it
}

// measureSizes builds each program in a module of its own, as a user would:
// the version that is measured here is required, and go mod tidy run.
func measureSizes(temp string) (sizes [][]size, err error) {
	for _, list := range [][]user{callers, browsers} {
		var group []size
		for i, u := range list {
			dir := filepath.Join(temp, fmt.Sprintf("user%d.%d", len(sizes), i))
			s, err := measureSize(dir, u)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", u.name, err)
			}
			group = append(group, s)
		}
		sizes = append(sizes, group)
	}
	return sizes, nil
}

func measureSize(dir string, u user) (s size, err error) {
	s.user = u
	var source strings.Builder
	source.WriteString("package main\n\nimport (\n\t\"context\"\n\t\"fmt\"\n\n")
	for _, path := range u.imports {
		fmt.Fprintf(&source, "\t%q\n", path)
	}
	fmt.Fprintf(&source, ")\n\nconst url = \"http://server.example/\"\n\nfunc op(ctx context.Context) (int, error) { return 1, ctx.Err() }\n\nfunc main() {\n\tctx := context.Background()\n\tv, err := op(ctx)\n\tfmt.Println(v, err)\n\tw, err := %s\n\tfmt.Println(w, err)\n}\n", u.call)
	if strings.HasPrefix(u.call, "0, ") {
		text := strings.Replace(source.String(), "w, err := 0, ", "w, err := 0, error(nil)\n\terr = ", 1)
		source.Reset()
		source.WriteString(text)
	}
	if err := os.Mkdir(dir, 0o777); err != nil {
		return s, err
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source.String()), 0o666); err != nil {
		return s, err
	}
	mod := []string{"module user.example", "go 1.26"}
	for _, m := range u.modules {
		format := "{{.Version}}"
		if m == own {
			format = "{{.Dir}}"
		}
		answer, err := output(".", "go", "list", "-m", "-f", format, m)
		if err != nil {
			return s, err
		}
		answer = strings.TrimSpace(answer)
		if m == own {
			mod = append(mod, fmt.Sprintf("replace %s => %s", own, answer))
			answer = "v0.0.0"
		}
		mod = append(mod, fmt.Sprintf("require %s %s", m, answer))
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(strings.Join(mod, "\n")+"\n"), 0o666); err != nil {
		return s, err
	}
	if _, err := output(dir, "go", "mod", "tidy"); err != nil {
		return s, err
	}
	if s.stripped, err = build(dir, "-ldflags=-s -w"); err != nil {
		return s, err
	}
	if s.bytes, err = build(dir, "-ldflags="); err != nil {
		return s, err
	}
	// The program's own module and the library's are not counted.
	if s.linked, err = lines(dir, "\tdep\t", "go", "version", "-m", "user"); err != nil {
		return s, err
	}
	if s.required, err = lines(dir, "\t\t\t\"Path\":", "go", "mod", "edit", "-json"); err != nil {
		return s, err
	}
	if s.listed, err = lines(dir, "", "go", "list", "-m", "all"); err != nil {
		return s, err
	}
	known := min(len(u.modules), 1) // what else it needs to be called at all is counted
	s.linked, s.required, s.listed = s.linked-known, s.required-known, s.listed-1-known
	return s, nil
}

// build builds the program in dir and returns its size.
func build(dir, flags string) (int64, error) {
	if _, err := output(dir, "go", "build", "-trimpath", flags, "-o", "user", "."); err != nil {
		return 0, err
	}
	info, err := os.Stat(filepath.Join(dir, "user"))
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// lines counts the lines of a command's output that begin with prefix.
func lines(dir, prefix, name string, args ...string) (n int, err error) {
	text, err := output(dir, name, args...)
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n, err
}

func writeSizes(to io.Writer, groups [][]size) {
	fmt.Fprint(to, "\n## What importing it adds\n\nTo the binary of a program that makes one call with it, and to the modules of that program beyond the library's own.\n"+
		"To reach: at most 400 KB, stripped, for the root package, and no module.\n")
	for _, group := range groups {
		fmt.Fprint(to, "\n| library | binary | added | added, stripped (-s -w) | modules linked | in go.mod | in the build list |\n|---|---|---|---|---|---|---|\n")
		for _, s := range group {
			fmt.Fprintf(to, "| %s | %s KB | %s KB | %s KB | %d | %d | %d |\n", s.name, whole(float64(s.bytes)/1000), whole(float64(s.bytes-group[0].bytes)/1000), whole(float64(s.stripped-group[0].stripped)/1000), s.linked, s.required, s.listed)
		}
	}
}
