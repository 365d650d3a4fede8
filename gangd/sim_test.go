package main

import (
	"bytes"
	"errors"
	"os"
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
