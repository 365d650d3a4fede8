package member

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"
)

func review(t *testing.T, block string) (Settings, []Fault) {
	t.Helper()
	var values map[string]any
	if err := json.Unmarshal([]byte(block), &values); err != nil {
		t.Fatal(err)
	}
	return Review(values)
}

func TestABlockIsReviewed(t *testing.T) {
	for block, want := range map[string]string{
		`{"command": "sh"}`: "",
		`{"command": "sh", "args": ["-c", 5], "env": [{"A": "1", "B": 2}], "processes": "node", "protocol": "none"}`: "",
		`{"command": "sh", "args": [], "env": {"A": "1"}, "kill_grace": "0s", "ready_timeout": "24h"}`:               "",
		`{"command": "sh", "args": null, "env": [], "ready_timeout": null}`:                                          "",

		`{}`:                                                 "command: it is missing: name the runner's program, by a path or as it is found in the node's PATH",
		`{"command": ""}`:                                    "command: it is missing: name the runner's program, by a path or as it is found in the node's PATH",
		`{"command": "sh", "comand": "x"}`:                   "comand: there is no such attribute: there are args, command, env, kill_grace, processes, protocol, ready_timeout",
		`{"command": ["sh"]}`:                                "command: a text is expected, found a list",
		`{"command": "sh", "args": "-c"}`:                    `args: a list of texts is expected, found "-c"`,
		`{"command": "sh", "args": ["-c", {}]}`:              "args: a list of texts is expected, found a block at index 1",
		`{"command": "sh", "env": "A"}`:                      `env: a block of variables is expected, found "A"`,
		`{"command": "sh", "env": [{"A": []}]}`:              "env: a text is expected for A, found a list",
		`{"command": "sh", "env": [{"A": "1"}, {"B": "2"}]}`: "env: there is more than one such block: join them",
		`{"command": "sh", "env": {"A=B": "1"}}`:             `env: "A=B" is not a variable that a process can have`,
		`{"command": "sh", "processes": "core"}`:             `processes: "core" is neither "gpu" nor "node"`,
		`{"command": "sh", "protocol": "mpi"}`:               `protocol: "mpi" is neither "gangd" nor "none"`,
		`{"command": "sh", "kill_grace": "soon"}`:            `kill_grace: "soon" is not a duration such as "5s"`,
		`{"command": "sh", "kill_grace": "1h"}`:              `kill_grace: "1h" is not between 0s and 10m0s`,
		`{"command": "sh", "ready_timeout": 90}`:             `ready_timeout: "90" is not a duration such as "5s"`,
		`{"command": "sh", "ready_timeout": "0s"}`:           `ready_timeout: "0s" is not between 1s and 24h0m0s`,
	} {
		_, faults := review(t, block)
		if got := told(faults); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", block, got, want)
		}
	}
}

func told(faults []Fault) string {
	var all error
	for _, f := range faults {
		all = errors.Join(all, f)
	}
	if all == nil {
		return ""
	}
	return all.Error()
}

func TestAllFaultsAreToldInOneOrder(t *testing.T) {
	_, faults := review(t, `{"protocol": "mpi", "args": 1, "nice": 1, "kill_grace": "-1s"}`)
	var names []string
	for _, f := range faults {
		names = append(names, f.Attribute)
	}
	if want := []string{"args", "command", "kill_grace", "nice", "protocol"}; !slices.Equal(names, want) {
		t.Errorf("faults of %q, want %q", names, want)
	}
}

// What a variable stands for is known on the node alone; the timeout that gangd
// keeps is not the node's to say.
func TestVariablesAreLeftToTheNode(t *testing.T) {
	for _, block := range []string{
		`{"command": "${NOMAD_TASK_DIR}/run"}`,
		`{"command": "sh", "kill_grace": "${meta.grace}", "protocol": "%{ if true }none%{ endif }", "args": ["${attr.cpu.arch}"]}`,
	} {
		if _, faults := review(t, block); len(faults) != 0 {
			t.Errorf("%s: %v", block, faults)
		}
	}
	_, faults := review(t, `{"command": "sh", "ready_timeout": "${meta.patience}"}`)
	if want := `ready_timeout: "${meta.patience}" has a variable: write the time as it is, since gangd counts it, and not the node`; told(faults) != want {
		t.Errorf("got  %s\nwant %s", told(faults), want)
	}
}

func TestSettingsOfABlock(t *testing.T) {
	for block, want := range map[string]Settings{
		`{"command": "sh"}`: {KillGrace: 5 * time.Second},
		`{"command": "sh", "kill_grace": "1m", "ready_timeout": "20m"}`: {KillGrace: time.Minute, ReadyTimeout: 20 * time.Minute},
	} {
		if got, faults := review(t, block); got != want || len(faults) != 0 {
			t.Errorf("%s: %+v, %v", block, got, faults)
		}
	}
}

// Each attribute has the field of its kind: what the table names can be read.
func TestTheTableAndTheFieldsAgree(t *testing.T) {
	c := Default()
	for _, a := range Attributes {
		if is := c.text(a.Name) != nil; is != (a.Kind == Text) {
			t.Errorf("attribute %s: a text in the table: %v, in Config: %v", a.Name, a.Kind == Text, is)
		}
	}
	if s, faults := c.Settings(); len(faults) != 1 || s.KillGrace != 5*time.Second || c.Processes != PerGPU || c.Protocol != ProtocolGangd {
		t.Errorf("the defaults are %+v, with the faults %v", c, faults)
	}
}
