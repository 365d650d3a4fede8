package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the expected diagnostics")

// TestDiagnostics reads every file in testdata/agent, gang and scenario; each
// is wrong in some way, and the file of the same name with .txt says what its
// author is told.
func TestDiagnostics(t *testing.T) {
	read := map[string]func(name string, src []byte) error{
		"gang/*.hcl":     func(name string, src []byte) error { return only(ParseGangs(name, src)) },
		"scenario/*.hcl": func(name string, src []byte) error { return only(ParseScenario(name, src)) },
		"gang/*.json":    func(name string, src []byte) error { return only(ParseGangsJSON(name, src)) },
		"agent/*.hcl": func(name string, _ []byte) error {
			_, err := LoadAgent(name)
			return err
		},
	}
	for pattern, parse := range read {
		files, err := filepath.Glob("testdata/" + pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no files for %s: %v", pattern, err)
		}
		for _, name := range files {
			t.Run(strings.TrimPrefix(name, "testdata/"), func(t *testing.T) {
				src, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				err = parse(name, src)
				var unreadable *UnreadableError
				if !errors.As(err, &unreadable) {
					t.Fatalf("got %v, want an UnreadableError", err)
				}
				compare(t, name+".txt", unreadable.Error()+"\n")
			})
		}
	}
}

func only[T any](_ T, err error) error { return err }

func compare(t *testing.T, golden, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got:\n%s\nwant (%s):\n%s", got, golden, want)
	}
}
