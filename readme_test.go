package retry_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3d0f8764/retry"
)

// The first block is the whole body of Example, and the others stand in
// example_test.go too: what README teaches compiles and does what it says.
func TestReadmeCodeIsThatOfTheExamples(t *testing.T) {
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(textOf(t, "README.md"), -1)
	require.NotEmpty(t, blocks)
	examples := textOf(t, "example_test.go")
	_, body, found := strings.Cut(examples, "\nfunc Example() {\n")
	require.True(t, found)
	body, _, _ = strings.Cut(body, "\n}\n")
	require.Equal(t, body+"\n", tabbed(blocks[0][1]))
	for _, block := range blocks {
		require.Contains(t, examples, tabbed(block[1]))
	}
}

// CI runs the commands that README gives, and finds them by these lines.
func TestReadmeGivesTheTwoCommands(t *testing.T) {
	var commands []string
	for line := range strings.Lines(textOf(t, "README.md")) {
		if strings.HasPrefix(line, "    ") {
			commands = append(commands, line)
		}
	}
	require.Equal(t, []string{"    go run ./internal/demo\n", "    go test ./...\n"}, commands)
}

// README has the numbers of the code, and every field that has numbers.
func TestReadmeTableOfDefaultsIsTrue(t *testing.T) {
	var none retry.Policy
	var first retry.Record
	p := retry.Policy{Observe: func(_ context.Context, r retry.Record) { first = r }, Clock: atNoon}
	require.NoError(t, retry.Run(t.Context(), &p, func(context.Context) error { return nil }))
	b := none.Backoff
	zeros := map[string]string{
		"Backoff.Base":       b.Window(0).String(),
		"Backoff.Cap":        b.Window(math.MaxInt).String(),
		"Backoff.Multiplier": strconv.Itoa(int(b.Window(1) / b.Window(0))),
		"MaxAttempts":        strconv.Itoa(len(none.Plan())),
		"MaxElapsed":         first.TimeLeft.String(),
	}

	readme := textOf(t, "README.md")
	hint := regexp.MustCompile("`MaxHint` \\| (\\S+) \\|").FindStringSubmatch(readme)
	require.NotNil(t, hint)
	longest, err := time.ParseDuration(hint[1])
	require.NoError(t, err)
	require.NotErrorIs(t, throttledFor(t, longest), retry.ErrHint)
	require.ErrorIs(t, throttledFor(t, longest+1), retry.ErrHint)

	for _, f := range append(fieldKinds("", reflect.TypeFor[retry.Policy]()), fieldKinds("Backoff.", reflect.TypeFor[retry.Backoff]())...) {
		switch f.kind {
		case reflect.Int, reflect.Int64, reflect.Float64:
			require.Contains(t, readme, "\n| `"+f.name+"` | "+zeros[f.name])
		default:
			require.Regexp(t, "`"+regexp.QuoteMeta(f.name)+"[`.]", readme)
		}
	}
}

// README names no test, and nothing of the package, that does not exist.
func TestReadmeNamesOnlyWhatExists(t *testing.T) {
	declared := declaredNames(t)
	readme := textOf(t, "README.md")
	for _, pattern := range []string{
		`\b((?:Example|Test)[A-Z]\w*)`,
		`\bretry\.([A-Z]\w*)`,
		"`([A-Z]\\w*)`",
	} {
		for _, name := range regexp.MustCompile(pattern).FindAllStringSubmatch(readme, -1) {
			require.Truef(t, declared[name[1]], "README.md names %s", name[0])
		}
	}
}

// Each status that README lists in a class is of that class.
func TestReadmeTableOfClassesIsTrue(t *testing.T) {
	readme := textOf(t, "README.md")
	for class := retry.ClassUnclassified; class <= retry.ClassUnknown; class++ {
		row := regexp.MustCompile(`(?m)^\| ` + class.String() + ` \|[^|]*\|([^|]*)\|`).FindStringSubmatch(readme)
		require.NotNilf(t, row, "%v", class)
		for _, code := range regexp.MustCompile(`\b\d{3}\b`).FindAllString(row[1], -1) {
			n, err := strconv.Atoi(code)
			require.NoError(t, err)
			require.Equal(t, class, retry.ClassifyStatus(n), code)
		}
	}
}

// throttledFor runs an op that is throttled with a hint, under the default
// MaxHint alone.
func throttledFor(t *testing.T, hint time.Duration) error {
	p := retry.Policy{MaxAttempts: 2, MaxElapsed: -1, Sleep: noSleep}
	return retry.Run(t.Context(), &p, func(context.Context) error {
		return retry.Throttled(errOp, hint)
	})
}

func textOf(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

// tabbed puts a tab before each line that is not empty.
func tabbed(block string) string {
	return regexp.MustCompile(`(?m)^(.)`).ReplaceAllString(block, "\t$1")
}

type fieldKind struct {
	name string
	kind reflect.Kind
}

// fieldKinds lists the exported fields of a struct. An enumeration is no number.
func fieldKinds(prefix string, t reflect.Type) []fieldKind {
	var all []fieldKind
	for f := range t.Fields() {
		if f.IsExported() {
			all = append(all, fieldKind{prefix + f.Name, f.Type.Kind()})
		}
	}
	return all
}

// declaredNames returns the names of all functions, types, constants,
// variables and exported struct fields in the folder, tests included.
func declaredNames(t *testing.T) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				names[n.Name.Name] = true
				return false
			case *ast.TypeSpec:
				names[n.Name.Name] = true
			case *ast.ValueSpec:
				for _, name := range n.Names {
					names[name.Name] = true
				}
			case *ast.Field:
				for _, name := range n.Names {
					names[name.Name] = true
				}
			}
			return true
		})
	}
	return names
}
