package gang

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var rewrite = flag.Bool("update", false, "rewrite the state charts in ARCHITECTURE.md")

// The charts that people read are those of the tables that the code obeys.
func TestChartsInArchitecture(t *testing.T) {
	const file = "../../ARCHITECTURE.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := string(text)
	for name, chart := range map[string]string{"gang": chart(Transitions()), "lane": chart(LaneTransitions())} {
		if want, err = replaceChart(want, name, chart); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	switch {
	case want == string(text):
	case *rewrite:
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s shows other charts than state.go has: run go test ./internal/gang -update", file)
	}
}

// chart draws a table for Mermaid. A life begins in the first state.
func chart[S ~string](table Table[S]) string {
	var b strings.Builder
	b.WriteString("```mermaid\nstateDiagram-v2\n")
	fmt.Fprintf(&b, "    [*] --> %s\n", table[0].From)
	for _, row := range table {
		for _, to := range row.To {
			fmt.Fprintf(&b, "    %s --> %s\n", row.From, to)
		}
		if len(row.To) == 0 {
			fmt.Fprintf(&b, "    %s --> [*]\n", row.From)
		}
	}
	return b.String() + "```\n"
}

// replaceChart puts a chart between its marks.
func replaceChart(text, name, chart string) (string, error) {
	begin, end := fmt.Sprintf("<!-- states of a %s -->\n", name), fmt.Sprintf("<!-- end of the states of a %s -->\n", name)
	before, rest, found := strings.Cut(text, begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return "", fmt.Errorf("the chart's marks %q and %q are missing", begin, end)
	}
	return before + begin + chart + end + after, nil
}
