package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
	"github.com/gangd/gangd/internal/soak"
)

// drawScenario writes the HCL of a random cluster, workload and set of
// troubles. In the end all that broke is in order again.
func drawScenario(t *rapid.T) string {
	var b strings.Builder
	add := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	draw := func(name string, low, high int) int { return rapid.IntRange(low, high).Draw(t, name) }
	chance := func(name string, percent int) bool { return draw(name, 1, 100) <= percent }

	nodes := draw("nodes", 1, 6)
	add("cluster {\n levels = [\"spine\", \"leaf\"]\n node \"n\" {\n count = %d\n fanout = { leaf = %d, spine = 2 }\n spot = true\n nvlink = [[0, 1, 2, 3], [4, 5, 6, 7]]\n}", nodes, draw("leaf", 1, 3))
	if chance("second block", 30) {
		add(" node \"l\" {\n gpus = 4\n gpu = \"L40S-48GB\"\n gpu_memory = \"48GiB\"\n warm = [\"wan\"]\n}")
	}
	add("}\nmodel \"wan\" {\n load = \"%ds\"\n speed = { \"L40S-48GB\" = 0.3 }\n}", draw("load", 0, 30))
	add("tier \"production\" {\n target_wait = \"30s\"\n protected = \"%ds\"\n}", draw("protected", 0, 5))
	add("tier \"background\" {\n min_share = %g\n}", rapid.SampledFrom([]float64{0, 0.05, 0.3}).Draw(t, "min_share"))
	add("tenant \"a\" {\n weight = %d\n guaranteed = %d\n}", draw("weight", 1, 3), rapid.SampledFrom([]int{0, 8, 16}).Draw(t, "guaranteed"))
	add("fairness {\n half_life = \"%dm\"\n preemption_plans_per_minute = %d\n}", draw("half_life", 0, 2), draw("plans", 0, 2))
	gangs := draw("gangs", 1, 8)
	for i := range gangs {
		perNode := rapid.SampledFrom([]int{1, 2, 3, 4, 8}).Draw(t, "per_node")
		members := draw("members", 1, 4)
		add("gang \"g%d\" {\n count = %d\n at = \"%ds\"\n every = \"%ds\"\n gpus = %d\n gpus_per_node = %d\n duration = \"%dms\"", i, draw("count", 1, 3),
			draw("at", 0, 60), draw("every", 0, 9), perNode*members, perNode, draw("duration", 0, 90_000))
		add(" tier = %q\n tenant = %q", rapid.SampledFrom([]string{"interactive", "production", "background"}).Draw(t, "tier"),
			rapid.SampledFrom([]string{"a", "b"}).Draw(t, "tenant"))
		if chance("elastic", 25) && members > 1 {
			add(" elastic = { \"%d\" = \"%ds\", \"%d\" = \"60s\" }", perNode, draw("small", 60, 200), perNode*members)
		}
		if chance("estimate", 20) {
			add(" estimate = \"%ds\"", draw("guess", 1, 90))
		}
		if chance("model", 40) {
			add(" model = \"wan\"")
		}
		if chance("saves", 60) {
			add(" checkpoint {\n every = \"%ds\"\n cost = \"%ds\"\n restore = \"%ds\"\n}", draw("period", 0, 20), draw("cost", 0, 5), draw("restore", 0, 9))
		}
		if chance("max_run", 20) {
			add(" max_run = \"%ds\"", draw("limit", 1, 90))
		}
		if chance("exit", 20) {
			add(" exit {\n member = %d\n after = \"%ds\"\n retryable = %t\n}", draw("member", 0, members-1), draw("after", 0, 60), chance("retryable", 70))
		}
		if chance("topology", 30) {
			add(" topology {\n require = %q\n}", rapid.SampledFrom([]string{"leaf", "spine"}).Draw(t, "level"))
		}
		add(" infra_retries = %d\n preemptible = %t\n}", draw("retries", 0, 3), chance("preemptible", 80))
	}
	drawTroubles(t, add, nodes)
	return b.String()
}

func drawTroubles(t *rapid.T, add func(string, ...any), nodes int) {
	undo := map[string]string{"node_down": "node_up", "gpu_bad": "gpu_ok", "drain": "undrain", "spot_notice": "node_up", "slow": "slow"}
	for i := range rapid.IntRange(0, 8).Draw(t, "troubles") {
		kind := rapid.SampledFrom([]string{"node_down", "gpu_bad", "drain", "spot_notice", "slow", "cancel"}).Draw(t, "kind")
		at, lasts := rapid.IntRange(0, 150).Draw(t, "begins"), rapid.IntRange(0, 60).Draw(t, "lasts")
		where := fmt.Sprintf("node = \"n-%d\"", rapid.IntRange(0, nodes-1).Draw(t, "node"))
		more, after := "", ""
		switch kind {
		case "cancel":
			add("gang \"c%d\" {\n gpus = 8\n duration = \"60s\"\n at = \"%ds\"\n}", i, at)
			add("event {\n at = \"%ds\"\n kind = \"cancel\"\n gang = \"c%d\"\n}", at+lasts, i)
			continue
		case "gpu_bad":
			more = fmt.Sprintf("gpu = %d", rapid.IntRange(0, 7).Draw(t, "gpu"))
			after = more
		case "spot_notice":
			more = fmt.Sprintf("notice = \"%ds\"", rapid.IntRange(0, 30).Draw(t, "notice"))
		case "slow":
			more, after = fmt.Sprintf("factor = %g", rapid.Float64Range(0.5, 4).Draw(t, "factor")), "factor = 1"
		}
		add("event {\n at = \"%ds\"\n kind = %q\n %s\n %s\n}", at, kind, where, more)
		add("event {\n at = \"%ds\"\n kind = %q\n %s\n %s\n}", at+lasts, undo[kind], where, after)
		add("event {\n at = \"300s\"\n kind = %q\n %s\n %s\n}", undo[kind], where, after)
	}
}

// counter is the engine, and counts the events that it is told of.
type counter struct {
	*schedule.Engine
	events int
}

// Apply counts.
func (c *counter) Apply(event schedule.Event, now time.Time) ([]schedule.Decision, error) {
	if all, together := event.(schedule.Together); together {
		c.events += len(all)
	} else {
		c.events++
	}
	return c.Engine.Apply(event, now)
}

// meddler is the engine, in whose place attempts are ordered to stop, to be
// resized, and to carry on, as a test draws it.
type meddler struct {
	counter
	t       *rapid.T
	at      time.Time
	left    int
	running []schedule.Start
	pinned  map[gang.ID]bool
	ordered map[schedule.Seat]bool
}

// Apply adds orders to what the engine decides.
func (m *meddler) Apply(event schedule.Event, now time.Time) ([]schedule.Decision, error) {
	m.forget(event)
	out, err := m.counter.Apply(event, now)
	out = slices.DeleteFunc(out, func(d schedule.Decision) bool { _, stops := d.(schedule.Stop); return stops })
	for _, d := range out {
		if s, ok := d.(schedule.Start); ok {
			m.running = append(m.running, s)
		}
	}
	if m.left == 0 || now.Before(m.at) || len(m.running) == 0 {
		return out, err
	}
	m.left--
	m.at = now.Add(time.Duration(rapid.IntRange(0, 20_000).Draw(m.t, "pause")) * time.Millisecond)
	victim := rapid.SampledFrom(m.running).Draw(m.t, "victim")
	seat := schedule.Seat{ID: victim.ID, Attempt: victim.Attempt}
	if m.ordered[seat] && rapid.Bool().Draw(m.t, "call off") {
		delete(m.ordered, seat)
		return append(out, schedule.CallOff{ID: victim.ID, Attempt: victim.Attempt}), err
	}
	causes := []schedule.Cause{schedule.Drained, schedule.Spot, schedule.Resized}
	if !m.pinned[victim.ID] {
		causes = append(causes, schedule.Preempted)
	}
	stop := schedule.Stop{
		ID: victim.ID, Attempt: victim.Attempt, Cause: rapid.SampledFrom(causes).Draw(m.t, "cause"),
		Mode: rapid.SampledFrom([]schedule.Mode{schedule.Graceful, schedule.Hard}).Draw(m.t, "mode"), For: "another", To: victim.GPUs + 1,
	}
	if rapid.Bool().Draw(m.t, "hurry") {
		stop.By = now.Add(time.Duration(rapid.IntRange(0, 5).Draw(m.t, "grace")) * time.Second)
	}
	m.ordered[seat] = true
	return append(out, stop), err
}

// forget drops the attempts that are over.
func (m *meddler) forget(event schedule.Event) {
	switch e := event.(type) {
	case schedule.Together:
		for _, one := range e {
			m.forget(one)
		}
	case schedule.Release:
		m.running = slices.DeleteFunc(m.running, func(s schedule.Start) bool { return s.ID == e.Seat.ID && s.Attempt == e.Seat.Attempt })
	}
}

// Next asks to be asked when the next order may be given.
func (m *meddler) Next() (time.Time, bool) {
	at, wants := m.Engine.Next()
	if m.left > 0 && len(m.running) > 0 && (!wants || m.at.Before(at)) {
		return m.at, true
	}
	return at, wants
}

// Random plays come to an end at which every gang has ended, keep all
// invariants, and come out the same when they are played again.
func TestRandomPlays(t *testing.T) {
	soak.Check(t, 50_000, func(t *rapid.T) int {
		src := drawScenario(t)
		s, err := config.ParseScenario("drawn.hcl", []byte(src))
		if err != nil {
			t.Fatalf("%v\n%s", err, src)
		}
		e := &counter{Engine: schedule.New(s.Rules)}
		out, checker, err := play(s, e, Forever)
		if left := checker.Unfinished(); err != nil || len(left) > 0 {
			t.Fatalf("%v; unfinished: %v\n%s\n%s", err, left, src, out)
		}
		if again, _, _ := play(s, schedule.New(s.Rules), Forever); again != out {
			t.Fatalf("played again it gives something else:\n%s\nand\n%s", out, again)
		}
		return e.events
	})
}

// The same with stops of every kind at any time.
func TestRandomPlaysWithStops(t *testing.T) {
	soak.Check(t, 50_000, func(t *rapid.T) int {
		src := drawScenario(t)
		s, err := config.ParseScenario("drawn.hcl", []byte(src))
		if err != nil {
			t.Fatalf("%v\n%s", err, src)
		}
		rules := s.Rules
		rules.Policy.NoPreemption = true // nobody waits for what it would have stopped
		m := &meddler{counter: counter{Engine: schedule.New(rules)}, t: t, at: epoch, left: 30, pinned: make(map[gang.ID]bool), ordered: make(map[schedule.Seat]bool)}
		for _, g := range s.Gangs {
			m.pinned[g.ID] = g.Spec.Pinned
		}
		out, checker, err := play(s, m, Forever)
		if left := checker.Unfinished(); err != nil || len(left) > 0 {
			t.Fatalf("%v; unfinished: %v\n%s\n%s", err, left, src, out)
		}
		return m.events
	})
}
