// Command vulndb judges what govulncheck found: it reads the output of
// govulncheck -format json from standard input, lists each vulnerability whose
// code is reached, and fails if a newer version of a dependency would mend one.
//
// What the standard library or a dependency without a mended version brings is
// listed and does not fail: a change of this repository could not mend it.
//
// The format: https://pkg.go.dev/golang.org/x/vuln/internal/govulncheck
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// standardLibrary is the module that govulncheck names for Go itself.
const standardLibrary = "stdlib"

type message struct {
	Config  *config  `json:"config"`
	OSV     *entry   `json:"osv"`
	Finding *finding `json:"finding"`
}

type config struct {
	GoVersion string `json:"go_version"`
}

type entry struct {
	ID      string `json:"id"`
	Summary string `json:"summary"`
}

// finding is one way to one vulnerable symbol, from the symbol outwards. A
// finding about a module or package that is only required or imported has no
// function in its first frame.
type finding struct {
	OSV          string  `json:"osv"`
	FixedVersion string  `json:"fixed_version"`
	Trace        []frame `json:"trace"`
}

type frame struct {
	Module   string `json:"module"`
	Version  string `json:"version"`
	Package  string `json:"package"`
	Function string `json:"function"`
	Receiver string `json:"receiver"`
}

func (f frame) String() string {
	if f.Receiver != "" {
		return f.Package + "." + strings.TrimPrefix(f.Receiver, "*") + "." + f.Function
	}
	return f.Package + "." + f.Function
}

func (f finding) reached() bool { return len(f.Trace) > 0 && f.Trace[0].Function != "" }

// mendable tells whether a newer version of a dependency would mend it.
func (f finding) mendable() bool {
	return f.FixedVersion != "" && f.Trace[0].Module != standardLibrary
}

// report is what a whole run of govulncheck said.
type report struct {
	config    config
	summaries map[string]string
	// reached holds one finding, the first, a vulnerability and module.
	reached []finding
}

func read(r io.Reader) (report, error) {
	out := report{summaries: map[string]string{}}
	seen := map[[2]string]bool{}
	decoder := json.NewDecoder(r)
	for {
		var m message
		if err := decoder.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return report{}, fmt.Errorf("read the output of govulncheck -format json: %w", err)
		}
		switch {
		case m.Config != nil:
			out.config = *m.Config
		case m.OSV != nil:
			out.summaries[m.OSV.ID] = m.OSV.Summary
		case m.Finding != nil && m.Finding.reached():
			key := [2]string{m.Finding.OSV, m.Finding.Trace[0].Module}
			if !seen[key] {
				seen[key] = true
				out.reached = append(out.reached, *m.Finding)
			}
		}
	}
	if out.config.GoVersion == "" {
		return report{}, errors.New("read the output of govulncheck -format json: it has no config message, so nothing was scanned; see what govulncheck itself printed")
	}
	slices.SortFunc(out.reached, func(a, b finding) int { return strings.Compare(a.OSV, b.OSV) })
	return out, nil
}

// write lists the findings and returns how many are to be mended.
func (r report) write(w io.Writer) int {
	fail := 0
	for _, f := range r.reached {
		symbol, entered := f.Trace[0], f.Trace[len(f.Trace)-1]
		fmt.Fprintf(w, "%s %s\n  %s, reached from %s\n", f.OSV, r.summaries[f.OSV], symbol, entered)
		switch {
		case f.mendable():
			fail++
			fmt.Fprintf(w, "  to be mended: go get %s@%s (now %s)\n", symbol.Module, f.FixedVersion, symbol.Version)
		case symbol.Module == standardLibrary && f.FixedVersion != "":
			fmt.Fprintf(w, "  in Go itself (now %s): build with Go %s or newer\n", r.config.GoVersion, strings.TrimPrefix(f.FixedVersion, "v"))
		default:
			fmt.Fprintf(w, "  no version of %s mends it yet\n", symbol.Module)
		}
	}
	fmt.Fprintf(w, "%d known vulnerabilities reached, %d of them mended by a newer dependency (%s)\n",
		len(r.reached), fail, r.config.GoVersion)
	return fail
}

func main() {
	found, err := read(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, "vulndb:", err)
		os.Exit(2)
	}
	if found.write(os.Stdout) > 0 {
		os.Exit(1)
	}
}
