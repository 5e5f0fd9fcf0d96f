package retry_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// arrows are those of the layout: the files whose package-level names a file
// may use, directly or through others.
var arrows = map[string][]string{
	"jitter.go":     nil,
	"backoff.go":    {"jitter.go"},
	"retryafter.go": nil,
	"classify.go":   nil,
	"budget.go":     {"classify.go"},
	"gate.go":       {"classify.go"},
	"record.go":     {"backoff.go", "retryafter.go", "classify.go", "budget.go", "gate.go"},
	"retry.go":      {"record.go"},
	"submit.go":     {"retry.go"},
}

// reach returns all files that name may use.
func reach(name string) []string {
	all := []string{name}
	for _, next := range arrows[name] {
		all = append(all, reach(next)...)
	}
	return all
}

// A file uses package-level names only from itself and from files that its
// arrows come from. Fields and methods go with their type and are not looked at.
func TestFilesKnowOnlyWhatTheirArrowsSay(t *testing.T) {
	fset := token.NewFileSet()
	home := map[string]string{} // package-level name: its file
	files := map[string]*ast.File{}
	for name := range arrows {
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		require.NoError(t, err)
		files[name] = f
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					home[d.Name.Name] = name
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						home[s.Name.Name] = name
					case *ast.ValueSpec:
						for _, n := range s.Names {
							home[n.Name] = name
						}
					}
				}
			}
		}
	}
	for name, f := range files {
		allowed := reach(name)
		for _, id := range f.Unresolved { // not of this file, its imports, or its locals
			if from, ok := home[id.Name]; ok && !slices.Contains(allowed, from) {
				t.Errorf("%s uses %s of %s", fset.Position(id.Pos()), id.Name, from)
			}
		}
	}
	all, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range all {
		if !strings.HasSuffix(name, "_test.go") {
			require.Contains(t, arrows, name, "a file that the layout does not know")
		}
	}
}

// What SDKs copy builds alone, in an empty module of the same path.
func TestCopiedFilesBuildAlone(t *testing.T) {
	for _, files := range [][]string{
		{"jitter.go", "backoff.go"},
		{"retryafter.go", "internal/httpdate/httpdate.go"},
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module github.com/seed-3d0f8764/retry\n\ngo 1.26\n"), 0o600))
		for _, name := range files {
			src, err := os.ReadFile(name)
			require.NoError(t, err)
			to := filepath.Join(dir, name)
			require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o700))
			require.NoError(t, os.WriteFile(to, src, 0o600))
		}
		cmd := exec.Command("go", "vet", "./...")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOPROXY=off", "GOFLAGS=-mod=mod", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%v: %s", files, out)
	}
}

// The root imports the standard library only, and neither net/http nor crypto.
func TestImportsOfTheRoot(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	for dep := range strings.FieldsSeq(string(out)) {
		require.False(t, dep == "net/http" || dep == "crypto" || strings.HasPrefix(dep, "crypto/"), dep)
		first, _, _ := strings.Cut(dep, "/")
		require.True(t, !strings.Contains(first, ".") || strings.HasPrefix(dep, "github.com/seed-3d0f8764/retry"), dep)
	}
	mod, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	direct := regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllSubmatch(mod, -1)
	var names []string
	for _, d := range direct {
		names = append(names, string(d[1]))
	}
	require.ElementsMatch(t, []string{"github.com/stretchr/testify", "pgregory.net/rapid"}, names)
}

// No goroutine, no init, no state behind the caller's back; every exported name
// has a doc; the package doc fits a screen.
func TestFormOfTheSources(t *testing.T) {
	state := map[string]bool{"defaults": true, "noExtras": true, "attemptKey": true} // read only
	for name := range arrows {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		require.NoError(t, err)
		if f.Doc != nil {
			require.LessOrEqual(t, strings.Count(f.Doc.Text(), "\n"), 45, "the package doc")
			require.Equal(t, "retry.go", name)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			_, starts := n.(*ast.GoStmt)
			require.False(t, starts, "%s: a goroutine", fset.Position(token.Pos(1)))
			return true
		})
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				require.NotEqual(t, "init", d.Name.Name)
				if d.Name.IsExported() && d.Recv == nil {
					require.NotNil(t, d.Doc, "%s: %s has no doc", name, d.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						if s.Name.IsExported() {
							require.True(t, d.Doc != nil || s.Doc != nil, "%s: %s has no doc", name, s.Name)
						}
					case *ast.ValueSpec:
						if d.Tok == token.VAR {
							for _, v := range s.Names {
								require.True(t, state[v.Name] || strings.HasPrefix(strings.ToLower(v.Name), "err"), "%s: variable %s", name, v)
							}
						}
					}
				}
			}
		}
	}
}

// The sources name no folder that a clone does not have.
func TestSourcesStandAlone(t *testing.T) {
	var out bytes.Buffer
	for name := range maps.Keys(arrows) {
		src, err := os.ReadFile(name)
		require.NoError(t, err)
		out.Write(src)
	}
	for _, word := range []string{"design.md", "acceptance.md", "herd.md", "shared/"} {
		require.NotContains(t, out.String(), word)
	}
}
