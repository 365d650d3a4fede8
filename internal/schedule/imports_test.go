package schedule

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/gangd/gangd/"

// source is one package of the module, without its tests.
type source struct {
	imports []string
	files   []*ast.File
}

// sources reads the packages below internal, by their path there.
func sources(t *testing.T) map[string]*source {
	t.Helper()
	out := make(map[string]*source)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), ".."+string(filepath.Separator)))
		if out[name] == nil {
			out[name] = &source{}
		}
		p := out[name]
		p.files = append(p.files, file)
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			p.imports = append(p.imports, imported)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The core takes values and gives values: it has no clock, no randomness and
// no way to the outside, and each of its packages sees only those below it.
func TestTheCoreIsPure(t *testing.T) {
	all := sources(t)
	for name, below := range map[string][]string{
		"gang":     nil,
		"cluster":  {"gang"},
		"schedule": {"gang", "cluster"},
	} {
		p := all[name]
		if p == nil {
			t.Fatalf("there is no package %s", name)
		}
		for _, imported := range p.imports {
			if own, ours := strings.CutPrefix(imported, module+"internal/"); ours && slices.Contains(below, own) {
				continue
			}
			if !pure(imported) {
				t.Errorf("%s imports %s", name, imported)
			}
		}
		for _, file := range p.files {
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.SelectorExpr); ok && forbidden(call) {
					t.Errorf("%s uses time.%s: whoever needs a time is given one", name, call.Sel.Name)
				}
				return true
			})
		}
	}
}

// pure reports whether a package of the standard library can do no I/O; of
// other modules the core needs none.
func pure(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	if strings.Contains(first, ".") {
		return false
	}
	for _, outside := range []string{"net", "os", "syscall", "math/rand", "crypto/rand", "io/fs", "io/ioutil", "log", "plugin", "runtime", "testing", "unsafe", "sync"} {
		if imported == outside || strings.HasPrefix(imported, outside+"/") {
			return false
		}
	}
	return true
}

// forbidden reports whether the expression asks the machine for the time.
func forbidden(s *ast.SelectorExpr) bool {
	from, ok := s.X.(*ast.Ident)
	return ok && from.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Sleep"}, s.Sel.Name)
}

// Adapters know the core, and never each other; the coordinator knows none of
// them: it owns the interfaces that it needs.
func TestAdaptersDoNotKnowEachOther(t *testing.T) {
	adapters := []string{"consul", "nomad", "link", "blob", "api"}
	within := func(name string, packages []string) string {
		for _, p := range packages {
			if name == p || strings.HasPrefix(name, p+"/") {
				return p
			}
		}
		return ""
	}
	seen := 0
	for name, p := range sources(t) {
		self := within(name, append([]string{"coordinator"}, adapters...))
		if self == "" {
			continue
		}
		seen++
		for _, imported := range p.imports {
			own, ours := strings.CutPrefix(imported, module+"internal/")
			if !ours {
				continue
			}
			if other := within(own, adapters); other != "" && other != self {
				t.Errorf("%s imports %s", name, own)
			}
		}
	}
	if seen == 0 {
		t.Error("no adapter was found: the test looks in the wrong place")
	}
}
