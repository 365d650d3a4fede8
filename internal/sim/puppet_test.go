package sim

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata")

// puppet is an engine that decides what a test says, and writes down what it
// is told.
type puppet struct {
	script []order
	log    *bytes.Buffer
}

// order is a decision, and when it is made.
type order struct {
	at       time.Duration
	decision schedule.Decision
}

// Apply returns the decisions that are due.
func (p *puppet) Apply(event schedule.Event, now time.Time) ([]schedule.Decision, error) {
	p.hear(event, now)
	var out []schedule.Decision
	for len(p.script) > 0 && !epoch.Add(p.script[0].at).After(now) {
		out = append(out, p.script[0].decision)
		p.script = p.script[1:]
	}
	return out, nil
}

func (p *puppet) hear(event schedule.Event, now time.Time) {
	say := func(format string, args ...any) {
		fmt.Fprintf(p.log, "%8s  engine: "+format+"\n", append([]any{now.Sub(epoch)}, args...)...)
	}
	switch e := event.(type) {
	case schedule.Together:
		for _, one := range e {
			p.hear(one, now)
		}
	case schedule.NodeSet:
		if now.After(epoch) {
			say("node %s schedulable=%t draining=%t gone_at=%s (%s)", e.Node.ID, e.Node.Schedulable, e.Node.Draining, sinceEpoch(e.Node.GoneAt), e.Node.Why)
		}
	case schedule.Submit:
		say("submit %s attempt=%d seq=%d done=%s not_before=%s avoid=%v accepted=%t", e.Gang.ID, e.Gang.Attempt, e.Gang.Seq, e.Gang.Done,
			sinceEpoch(e.Gang.NotBefore), e.Gang.Avoid, e.Gang.Accepted)
	case schedule.Withdraw:
		say("withdraw %s", e.ID)
	case schedule.Release:
		say("release %s/%d/%d", e.Seat.ID, e.Seat.Attempt, e.Seat.Member)
	case schedule.Saved:
		say("saved %s/%d %s", e.ID, e.Attempt, e.Done)
	}
}

func sinceEpoch(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Sub(epoch).String()
}

// Next is when the next decision is due.
func (p *puppet) Next() (time.Time, bool) {
	if len(p.script) == 0 {
		return time.Time{}, false
	}
	return epoch.Add(p.script[0].at), true
}

// Reasons gives none.
func (p *puppet) Reasons(ids []gang.ID) []string {
	return slices.Repeat([]string{"it waits"}, len(ids))
}
func (p *puppet) Waits(gang.ID) bool { return true }

// start puts a gang on the first so many GPUs of some nodes.
func start(id gang.ID, attempt, each int, nodes ...string) schedule.Start {
	d := schedule.Start{ID: id, Attempt: attempt, GPUs: each * len(nodes)}
	for _, n := range nodes {
		m := gang.Member{Node: n}
		for g := range each {
			m.GPUs = append(m.GPUs, g)
		}
		d.Placement = append(d.Placement, m)
	}
	return d
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func by(s float64) time.Time { return epoch.Add(seconds(s)) }

const saves = "checkpoint {\n every = \"10s\"\n cost = \"2s\"\n restore = \"5s\"\n }\n"

// gangs of the stories: a block of HCL for one of 8 GPUs and 60 s.
func one(more string) string {
	return "gang \"A\" {\n gpus = 8\n duration = \"60s\"\n " + more + "}\n"
}

func happens(at, kind, more string) string {
	return fmt.Sprintf("event {\n at = %q\n kind = %q\n %s\n}\n", at, kind, more)
}

// What the world makes of decisions, of each kind and at awkward times. What
// the engine is told, and the records, are in testdata/world.
func TestWorld(t *testing.T) {
	on := func(node string) string { return fmt.Sprintf("node = %q", node) }
	first := order{0, start("A", 1, 8, "n-0")}
	preempt := func(mode schedule.Mode, until time.Time) schedule.Stop {
		return schedule.Stop{ID: "A", Attempt: 1, Cause: schedule.Preempted, Mode: mode, For: "B", By: until}
	}
	for name, c := range map[string]struct {
		scenario string
		script   []order
	}{
		"graceful":             {one(saves), []order{first, {seconds(25), preempt(schedule.Graceful, by(35))}, {seconds(40), start("A", 2, 8, "n-1")}}},
		"graceful-too-late":    {one(saves), []order{first, {seconds(25), preempt(schedule.Graceful, by(26))}, {seconds(40), start("A", 2, 8, "n-1")}}},
		"graceful-in-no-time":  {one("checkpoint {}\n"), []order{first, {seconds(25), preempt(schedule.Graceful, by(25))}, {seconds(26), start("A", 2, 8, "n-1")}}},
		"hard":                 {one(saves), []order{first, {seconds(25), preempt(schedule.Hard, by(25))}, {seconds(25), start("A", 2, 8, "n-1")}}},
		"hard-at-a-checkpoint": {one(saves), []order{first, {seconds(30), preempt(schedule.Hard, by(30))}, {seconds(30), start("A", 2, 8, "n-1")}}},
		"no-checkpoints":       {one(""), []order{first, {seconds(25), preempt(schedule.Graceful, by(35))}, {seconds(25), start("A", 2, 8, "n-1")}}},
		"stopped-as-it-loads": {model("40s", "") + one("model = \"wan\"\n"+saves),
			[]order{first, {seconds(25), preempt(schedule.Graceful, by(35))}, {seconds(25), start("A", 2, 8, "n-1")}}},
		"loads-and-restores": {model("40s", "") + one("model = \"wan\"\n"+saves), []order{
			first, {seconds(60), preempt(schedule.Hard, by(60))}, {seconds(60), start("A", 2, 8, "n-1")},
			{seconds(105), schedule.Stop{ID: "A", Attempt: 2, Cause: schedule.Drained, Mode: schedule.Graceful}}, {seconds(107), warm(start("A", 3, 8, "n-1"))}}},
		"called-off": {one(saves), []order{first, {seconds(25), preempt(schedule.Graceful, by(35))}, {seconds(26.5), schedule.CallOff{ID: "A", Attempt: 1}}}},
		"second-order": {one(saves), []order{first, {seconds(25), preempt(schedule.Graceful, by(35))},
			{seconds(26), schedule.Stop{ID: "A", Attempt: 1, Cause: schedule.Spot, Mode: schedule.Graceful}}, {seconds(40), start("A", 2, 8, "n-1")}}},
		"resized": {"gang \"A\" {\n gpus = 16\n duration = \"60s\"\n elastic = { \"8\" = \"100s\", \"16\" = \"60s\" }\n" + saves + "}\n", []order{
			{0, start("A", 1, 8, "n-0", "n-1")},
			{seconds(25), schedule.Stop{ID: "A", Attempt: 1, Cause: schedule.Resized, Mode: schedule.Graceful, To: 8}}, {seconds(27), start("A", 2, 8, "n-1")},
			{seconds(47), schedule.Stop{ID: "A", Attempt: 2, Cause: schedule.Resized, Mode: schedule.Hard, To: 16}}, {seconds(47), start("A", 3, 8, "n-0", "n-1")}}},
		"speed": {model("0s", `speed = { "H100-80GB" = 0.3 }`) + one("model = \"wan\"\n"+saves),
			[]order{first, {seconds(25), preempt(schedule.Hard, by(25))}, {seconds(25), start("A", 2, 8, "n-1")}}},
		"slow": {one(saves) + happens("15s", "slow", on("n-0")+"\n factor = 3") + happens("45s", "slow", on("n-0")+"\n factor = 1"), []order{
			first, {seconds(55), preempt(schedule.Hard, by(55))}, {seconds(55), start("A", 2, 8, "n-0")}}},
		"node-down-as-it-saves": {one(saves) + happens("26s", "node_down", on("n-0")), []order{
			first, {seconds(25), preempt(schedule.Graceful, by(35))}, {seconds(26), start("A", 2, 8, "n-1")}}},
		"ends-as-the-node-is-lost": {one("") + happens("60s", "node_down", on("n-0")), []order{first}},
		"other-gpu-is-bad":         {one("gpus_per_node = 4\n") + happens("20s", "gpu_bad", on("n-0")+"\n gpu = 7"), []order{{0, start("A", 1, 4, "n-0", "n-1")}}},
		"gpu-is-bad": {one("gpus_per_node = 4\n") + happens("20s", "gpu_bad", on("n-1")+"\n gpu = 3") + happens("30s", "gpu_ok", on("n-1")+"\n gpu = 3"),
			[]order{{0, start("A", 1, 4, "n-0", "n-1")}, {seconds(30), start("A", 2, 4, "n-0", "n-1")}}},
		"retries-run-out": {one("infra_retries = 2\n") + happens("10s", "node_down", on("n-0")) + happens("20s", "node_down", on("n-1")) +
			happens("30s", "node_up", on("n-0")) + happens("40s", "node_down", on("n-0")),
			[]order{first, {seconds(10), start("A", 2, 8, "n-1")}, {seconds(30), start("A", 3, 8, "n-0")}}},
		"spot-runs-out": {one("infra_retries = 0\n"+saves) + happens("20s", "spot_notice", on("n-0")+"\n notice = \"5s\""),
			[]order{first, {seconds(25), start("A", 2, 8, "n-1")}}},
		"spot-is-taken-back": {one("") + happens("20s", "spot_notice", on("n-0")+"\n notice = \"5s\"") + happens("22s", "node_up", on("n-0")), []order{first}},
		"spot-has-longer": {one("") + happens("20s", "spot_notice", on("n-0")+"\n notice = \"5s\"") + happens("23s", "spot_notice", on("n-0")+"\n notice = \"9s\""),
			[]order{first, {seconds(32), start("A", 2, 8, "n-1")}}},
		"slow-as-it-saves": {one(saves) + happens("26s", "slow", on("n-0")+"\n factor = 0.5"), []order{
			first, {seconds(25), preempt(schedule.Graceful, by(35))}, {seconds(40), start("A", 2, 8, "n-1")}}},
		"drained": {one("") + happens("20s", "drain", on("n-0")) + happens("22s", "undrain", on("n-0")), []order{first}},
		"max-run": {one("max_run = \"50s\"\n"), []order{first, {seconds(20), preempt(schedule.Hard, by(20))}, {seconds(25), start("A", 2, 8, "n-1")}}},
		"exit": {one("gpus_per_node = 4\nexit {\n after = \"30s\"\n member = 1\n retryable = true\n }\n" + saves), []order{
			{0, start("A", 1, 4, "n-0", "n-1")}, {seconds(25), preempt(schedule.Graceful, by(35))}, {seconds(27), start("A", 2, 4, "n-0", "n-1")},
			{seconds(40), start("A", 3, 4, "n-0", "n-1")}}},
		"exit-for-good":      {one("exit {\n after = \"30s\"\n }\n"), []order{first}},
		"cancelled-at-once":  {one("") + happens("0s", "cancel", "gang = \"A\""), nil},
		"cancelled-waiting":  {one("") + happens("9s", "cancel", "gang = \"A\""), nil},
		"cancelled-running":  {one(saves) + happens("19s", "cancel", "gang = \"A\""), []order{first}},
		"cancelled-requeued": {one("") + happens("19s", "node_down", on("n-0")) + happens("19s", "cancel", "gang = \"A\""), []order{first}},
		"no-time-at-all":     {"gang \"A\" {\n gpus = 8\n duration = \"0s\"\n}\n", []order{first}},
	} {
		t.Run(name, func(t *testing.T) {
			s := read(t, "cluster {\n node \"n\" {\n count = 2\n }\n}\n"+c.scenario)
			var out bytes.Buffer
			checker, write := NewChecker(s), WriteJSON(&out)
			_, err := Run(s, &puppet{c.script, &out}, Options{Until: Forever}, func(r Record) error {
				if err := checker.Take(r); err != nil {
					t.Error(err)
				}
				return write(r)
			})
			if err != nil {
				t.Fatal(err)
			}
			compare(t, filepath.Join("testdata/world", name+".txt"), out.String())
		})
	}
}

func model(load, more string) string {
	return fmt.Sprintf("model \"wan\" {\n load = %q\n %s\n}\n", load, more)
}

func warm(d schedule.Start) schedule.Start {
	d.Warm = len(d.Placement)
	return d
}

func read(t *testing.T, src string) *config.Scenario {
	t.Helper()
	s, err := config.ParseScenario("scenario.hcl", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func compare(t *testing.T, golden, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(text) {
		return
	}
	want := strings.Split(string(text), "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(want) || line != want[i] {
			t.Fatalf("%s:%d: got\n\t%s\nwant\n\t%s\nthe whole:\n%s", golden, i+1, line, strings.Join(want[min(i, len(want)):min(i+1, len(want))], ""), got)
		}
	}
	t.Fatalf("%s ends too early:\n%s", golden, got)
}
