package armada

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/gangd/gangd/internal/config"
)

var update = flag.Bool("update", false, "rewrite the expected files")

// The files hold what simulator.proto asks for: names of fields in camel case,
// quantities and durations as text.
func TestWhatArmadaReads(t *testing.T) {
	src, err := os.ReadFile("testdata/scenario.hcl")
	if err != nil {
		t.Fatal(err)
	}
	s, err := config.ParseScenario("scenario.hcl", src)
	if err != nil {
		t.Fatal(err)
	}
	var out [3]bytes.Buffer
	if err := errors.Join(WriteCluster(&out[0], s), WriteWorkload(&out[1], s, 0), WriteConfig(&out[2], s)); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"cluster", "workload", "config"} {
		golden := "testdata/" + name + ".yaml"
		if *update {
			if err := os.WriteFile(golden, out[i].Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if got := out[i].String(); got != string(want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
		if strings.Contains(out[i].String(), "\t") || !strings.HasSuffix(out[i].String(), "\n") {
			t.Errorf("%s is no YAML", name)
		}
	}
}

// full takes nothing.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }

func TestOutputThatFails(t *testing.T) {
	s := &config.Scenario{}
	for _, err := range []error{WriteCluster(full{}, s), WriteWorkload(full{}, s, 1), WriteConfig(full{}, s)} {
		if err == nil {
			t.Error("it is written to a disk that is full")
		}
	}
}
