package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
	"github.com/gangd/gangd/internal/sim"
)

func TestSim(t *testing.T) {
	text, err := os.ReadFile("testdata/scenario.hcl")
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]session{
		"sim":            {args: []string{"sim", "testdata/scenario.hcl"}},
		"sim-json":       {args: []string{"sim", "-json", "-seed", "7", "testdata/scenario.hcl"}},
		"sim-until":      {args: []string{"sim", "-", "-until", "1.5s"}, stdin: string(text)},
		"sim-unreadable": {args: []string{"sim", "-json", "testdata/wrong-scenario.hcl"}},
		"sim-stdin":      {args: []string{"sim", "-"}, stdin: "cluster {\n"},
		"sim-no-file":    {args: []string{"sim", "testdata/none.hcl"}},
		"sim-two-files":  {args: []string{"sim", "a.hcl", "b.hcl"}},
		"sim-before":     {args: []string{"sim", "-until", "-1s", "testdata/scenario.hcl"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errOut := play(t.Context(), s)
			compare(t, name, transcript(session{args: s.args, address: "no agent"}, code, out, errOut))
		})
	}
}

// A recording is replayed as it was played, looked at, and held against what comes
// out now.
func TestReplay(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "play.jsonl")
	if code, _, errOut := play(t.Context(), session{args: []string{"sim", "-record", file, "testdata/scenario.hcl"}}); code != exitOK {
		t.Fatal(errOut)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	other := write("other.jsonl", bytes.Replace(text, []byte(`"mode":"hard"`), []byte(`"mode":"graceful"`), 1))
	broken := write("broken.jsonl", bytes.Replace(text, []byte(`"withdraw"`), []byte(`"draw"`), 1))
	late := write("late.jsonl", bytes.Replace(bytes.SplitAfter(text, []byte("\n"))[0], []byte("0001-01-01T00:00:00Z"), []byte("2026-12-01T12:00:00Z"), 2))
	windows := write("windows.jsonl", append(bytes.Clone(bytes.SplitAfter(text, []byte("\n"))[0]), []byte(
		`{"n":1,"at":"2026-12-01T12:00:00Z","event":{"window_set":{"window":{"name":"rack","from":"2026-12-01T22:00:00Z","until":"2026-12-02T02:00:00Z","level":"leaf","domain":"l3"}}}}`+"\n"+
			`{"n":2,"at":"2026-12-01T13:00:00Z","event":{"window_gone":{"name":"rack"}}}`+"\n")...))
	cut := write("cut.jsonl", text[:len(text)-9])
	for name, args := range map[string][]string{
		"replay":             {"-replay", file},
		"replay-at":          {"-replay", file, "-at", "3"},
		"replay-at-time":     {"-replay", file, "-at", "1970-01-01T00:00:31Z"},
		"replay-explain":     {"-replay", file, "-at", "7", "-explain", "dropped"},
		"replay-explain-end": {"-replay", cut, "-explain", "film"},
		"replay-explain-run": {"-replay", file, "-at", "2", "-explain", "film"},
		"replay-explain-who": {"-replay", file, "-explain", "nobody"},
		"replay-other":       {"-replay", other, "-at", "9"},
		"replay-unreadable":  {"-replay", broken, "-at", "99"},
		"replay-scenario":    {"-replay", "testdata/scenario.hcl"},
		"replay-nothing":     {"-at", "3", "testdata/scenario.hcl"},
		"replay-wrong-at":    {"-replay", file, "-at", "noon"},
		"replay-past-end":    {"-replay", file, "-at", "999"},
		"replay-before":      {"-replay", late, "-at", "2026-11-30T00:00:00Z"},
		"replay-beginning":   {"-replay", late},
		"replay-intact-part": {"-replay", broken, "-at", "2", "-explain", "film"},
		"replay-no-file":     {"-replay", "none.jsonl"},
		"replay-json-why":    {"-replay", file, "-json", "-explain", "film"},
		"replay-and-play":    {"-replay", file, "-until", "5s"},
		"replay-windows":     {"-replay", windows},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errOut := play(t.Context(), session{args: append([]string{"sim"}, args...)})
			if _, usage, cut := strings.Cut(errOut, "\n\nUsage"); cut && usage != "" {
				errOut, _, _ = strings.Cut(errOut, "\n\nUsage")
				errOut += "\n"
			}
			got := transcript(session{args: append([]string{"sim"}, args...), address: "no agent"}, code, out, errOut)
			compare(t, name, strings.ReplaceAll(got, dir+"/", ""))
		})
	}
	if code, out, _ := play(t.Context(), session{args: []string{"sim", "-json", "-replay", file}}); code != exitOK || !bytes.HasSuffix(text, []byte(out)) || out == "" {
		t.Errorf("exit %d; in JSON it is\n%s", code, out)
	}
	if code, out, _ := play(t.Context(), session{args: []string{"sim", "-json", "-replay", "-", "-at", "2"}, stdin: string(text)}); code != exitOK || strings.Count(out, "\n") != 2 {
		t.Errorf("exit %d; in JSON, up to event 2 of standard input, it is\n%s", code, out)
	}
}

// Each scenario comes out again as it was recorded.
func TestReplayOfScenarios(t *testing.T) {
	files, err := filepath.Glob("../internal/sim/testdata/*.hcl")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scenarios, %v", len(files), err)
	}
	for _, scenario := range files {
		file := filepath.Join(t.TempDir(), "play.jsonl")
		for _, args := range [][]string{{"-record", file, scenario}, {"-replay", file}} {
			if code, _, errOut := play(t.Context(), session{args: append([]string{"sim"}, args...)}); code != exitOK {
				t.Errorf("gangd sim %v: %s", args, errOut)
			}
		}
	}
}

// What the log says of each fact; the summary is shown in testdata/sim.txt.
func TestSimLog(t *testing.T) {
	s := &config.Scenario{Gangs: []config.ScenarioGang{{ID: "a-long-name"}}}
	many := make(sim.Members, 6)
	for i := range many {
		many[i] = gang.Member{Node: "n", GPUs: []int{0, 1, 2, 5}}
	}
	var out bytes.Buffer
	l := newSimLog(&out, s)
	for _, f := range []sim.Fact{
		sim.Submitted{Tenant: "acme", Tier: "production", GPUs: 16},
		sim.Rejected{Reason: "there is no such GPU"},
		sim.Pending{Code: gang.CodeVictims, Reason: "2 gangs are to stop"},
		sim.Reserved{Start: sim.Seconds(90 * time.Second)},
		sim.Reserved{Start: sim.Seconds(2 * time.Hour), MovedBy: "overrun"},
		sim.Started{Attempt: 2, GPUs: 24, Members: many, Warm: 3, ResumedFrom: sim.Seconds(1500 * time.Millisecond)},
		sim.Preempting{For: "urgent", Mode: schedule.Graceful},
		sim.CalledOff{},
		sim.Checkpointed{Done: sim.Seconds(61 * time.Second)},
		sim.Resizing{From: 16, To: 8},
		sim.Stopped{Cause: schedule.Preempted, Lost: 12.5},
		sim.Finished{Outcome: sim.Failed},
	} {
		if err := l.tell(sim.Record{At: 3661500 * time.Millisecond, Gang: "a-long-name", Fact: f}); err != nil {
			t.Fatal(err)
		}
	}
	compare(t, "sim-log", out.String())
}

// fullDisk takes nothing.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }

func TestSimOutputThatFails(t *testing.T) {
	for _, options := range [][]string{{}, {"-json"}} {
		var errOut bytes.Buffer
		tm := &terminal{out: fullDisk{}, err: &errOut, now: time.Now}
		if code := run(t.Context(), tm, append([]string{"sim", "testdata/scenario.hcl"}, options...)); code != exitRefused || errOut.Len() == 0 {
			t.Errorf("%v: exit %d, %q", options, code, errOut.String())
		}
	}
}
