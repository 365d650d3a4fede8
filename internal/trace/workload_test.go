package trace

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/gang"
)

const twoNodes = "cluster {\n node \"n\" {\n count = 2\n spot = true\n }\n}\n"

func scenario(t *testing.T, src string) *config.Scenario {
	t.Helper()
	s, err := config.ParseScenario("cluster.hcl", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func rules(t *testing.T, texts ...string) []TierRule {
	t.Helper()
	var out []TierRule
	for _, text := range texts {
		r, err := ParseTierRule(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

func TestTiersOfJobs(t *testing.T) {
	on := scenario(t, twoNodes)
	w := Workload{File: "t.csv", Tiers: rules(t, "interactive:max-gpus=1,max-estimate=10m", "background:tenant=lab,min-gpus=2"), Jobs: []Job{
		{Line: 2, GPUs: 1, Duration: 10 * time.Minute},
		{Line: 3, GPUs: 1, Duration: 10*time.Minute + time.Millisecond},
		{Line: 4, GPUs: 1, Duration: time.Hour, Estimate: time.Minute}, // users may be wrong
		{Line: 5, GPUs: 2, Duration: time.Minute},
		{Line: 6, GPUs: 2, Duration: time.Minute, Tenant: "lab"},
		{Line: 7, GPUs: 1, Duration: time.Hour, Tenant: "lab"},
		{Line: 8, GPUs: 1, Duration: time.Minute, Tier: "background"},
	}}
	s, _, err := w.Scenario(on)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, g := range s.Gangs {
		got = append(got, fmt.Sprintf("%s %s %s %s", g.ID, g.Spec.Tenant, g.Spec.Tier, g.Spec.Estimate))
	}
	want := []string{
		"job-2 default interactive 10m0s", "job-3 default production 10m0.001s", "job-4 default interactive 1m0s", "job-5 default production 1m0s",
		"job-6 lab background 1m0s", "job-7 lab production 1h0m0s", "job-8 default background 1m0s",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestUnknownTiers(t *testing.T) {
	on := scenario(t, twoNodes)
	var fault *Error
	w := Workload{File: "t.csv", Jobs: []Job{{Line: 7, GPUs: 1, Duration: 1, Tier: "gold"}}}
	if _, _, err := w.Scenario(on); !errors.As(err, &fault) || err.Error() != `t.csv:7: there is no tier "gold": the cluster's file has ["interactive" "production" "background"]` {
		t.Errorf("got %v", err)
	}
	w = Workload{Tiers: rules(t, "gold")}
	if _, _, err := w.Scenario(on); err == nil || errors.As(err, &fault) {
		t.Errorf("a rule for a tier that is none: %v", err)
	}
}

func TestWrongTierRules(t *testing.T) {
	for _, text := range []string{"", ":max-gpus=1", "a b", "a:", "a:max-gpus", "a:max-gpus=0", "a:max-gpus=x", "a:max-estimate=5", "a:max-estimate=-5s", "a:tenant=", "a:gpus=1"} {
		if r, err := ParseTierRule(text); err == nil {
			t.Errorf("%q is read as %+v", text, r)
		}
	}
}

// A job is on as few nodes as can hold it, evenly.
func TestShapesOfJobs(t *testing.T) {
	for _, c := range []struct{ gpus, largest, all, perNode int }{
		{1, 8, 1, 1}, {8, 8, 8, 8}, {9, 8, 10, 5}, {12, 8, 12, 6}, {16, 8, 16, 8}, {17, 8, 18, 6}, {31, 8, 32, 8}, {100, 8, 104, 8}, {16, 4, 16, 4}, {3, 0, 3, 3},
	} {
		if all, perNode := shape(c.gpus, c.largest); all != c.all || perNode != c.perNode {
			t.Errorf("%d GPUs on nodes of %d: %d, %d a node; want %d, %d a node", c.gpus, c.largest, all, perNode, c.all, c.perNode)
		}
	}
	w := Workload{Jobs: []Job{
		{Line: 2, GPUs: 9, Duration: time.Minute},
		{Line: 3, GPUs: 16, Duration: time.Minute, Elastic: []gang.Size{{GPUs: 9, Run: time.Hour}, {GPUs: 16, Run: time.Minute}}},
	}}
	s, widened, err := w.Scenario(scenario(t, twoNodes))
	if err != nil || widened != 1 || s.Gangs[0].Spec.GPUs != 10 || s.Gangs[1].Spec.GPUs != 16 || s.Gangs[1].Spec.GPUsPerNode != 0 {
		t.Errorf("%d widened: %v", widened, err)
	}
}

// Of a scenario's file a trace takes the cluster and what happens to it.
func TestWhatATraceTakesOfACluster(t *testing.T) {
	on := scenario(t, twoNodes+"gang \"g\" {\n gpus = 1\n duration = \"1s\"\n}\n"+
		"event {\n at = \"1s\"\n kind = \"cancel\"\n gang = \"g\"\n}\nevent {\n at = \"2s\"\n kind = \"drain\"\n node = \"n-0\"\n}\n")
	w := Workload{Jobs: []Job{{Line: 2, GPUs: 1, Duration: 1}}}
	s, _, err := w.Scenario(on)
	if err != nil || len(s.Gangs) != 1 || s.Gangs[0].ID != "job-2" || len(s.Events) != 1 || s.Events[0].Kind != config.Drain {
		t.Errorf("%+v %+v: %v", s.Gangs, s.Events, err)
	}
	if len(on.Gangs) != 1 || len(on.Events) != 2 {
		t.Error("the cluster's scenario has changed")
	}
}

// befallen are the failures of a day on two spot nodes.
func befallen(t *testing.T, src string, f Failures) []config.ScenarioEvent {
	s := scenario(t, src+"gang \"g\" {\n at = \"24h\"\n gpus = 1\n duration = \"1s\"\n}\n")
	f.Befall(s)
	return s.Events
}

func TestFailuresAreOfTheirSeed(t *testing.T) {
	f := Failures{Seed: 1, GPUMean: 3 * time.Hour, NodeMean: 6 * time.Hour, Repair: time.Hour}
	text := func(seed uint64, src string, keep func(config.ScenarioEvent) bool) string {
		f.Seed = seed
		var b strings.Builder
		for _, e := range befallen(t, src, f) {
			if keep(e) {
				fmt.Fprintf(&b, "%s %s %s %d\n", e.At, e.Kind, e.Node, e.GPU)
			}
		}
		return b.String()
	}
	all := func(config.ScenarioEvent) bool { return true }
	one := text(1, twoNodes, all)
	if again := text(1, twoNodes, all); again != one || one == "" {
		t.Errorf("the same seed gives %s and %s", one, again)
	}
	if text(2, twoNodes, all) == one {
		t.Error("another seed gives the same failures")
	}
	first := func(e config.ScenarioEvent) bool { return e.Node == "n-0" && e.At < 24*time.Hour }
	if three := strings.Replace(twoNodes, "count = 2", "count = 3", 1); text(1, twoNodes, first) != text(1, three, first) {
		t.Error("with a node more the others fail in another way")
	}
}

// What fails is repaired before it fails again, and fails about as often as it
// should.
func TestFailuresComeAtTheirRate(t *testing.T) {
	f := Failures{Seed: 1, GPUMean: 2 * time.Hour, NodeMean: 3 * time.Hour, SpotMean: 6 * time.Hour, Notice: 10 * time.Minute,
		SlowMean: 4 * time.Hour, SlowFactor: 3, Repair: 30 * time.Minute}
	s := scenario(t, strings.Replace(twoNodes, "count = 2", "count = 40", 1)+"gang \"g\" {\n at = \"2400h\"\n gpus = 1\n duration = \"1s\"\n}\n")
	f.Befall(s)
	const hours = 2400
	count := make(map[config.EventKind]float64)
	free := make(map[string]time.Duration) // when a thing is in order
	for _, e := range s.Events {
		thing := fmt.Sprint(e.Node, " ", e.GPU, " ", e.Kind == config.Slow)
		switch e.Kind {
		case config.GPUBad, config.NodeDown, config.SpotNotice:
			if e.Kind != config.GPUBad {
				thing = e.Node
			}
			count[e.Kind]++
			if e.At <= free[thing] {
				t.Fatalf("%s fails at %s, and is repaired at %s", thing, e.At, free[thing])
			}
		case config.GPUOK:
			free[thing] = e.At
		case config.NodeUp:
			free[e.Node] = e.At
		case config.Slow:
			if e.Factor != 1 {
				count[e.Kind]++
			}
		}
	}
	for kind, want := range map[config.EventKind]float64{
		config.GPUBad:   320 * hours / 2.5,
		config.NodeDown: 40 * hours / (2 + 0.5 + 0.1/18*10) * 2 / 3, // one in three outages is a notice
		config.Slow:     40 * hours / 4.5,
	} {
		if got := count[kind]; got < 0.95*want || got > 1.05*want {
			t.Errorf("%s happened %g times, and should about %g times", kind, got, want)
		}
	}
	if spot, down := count[config.SpotNotice], count[config.NodeDown]; spot < 0.45*down || spot > 0.55*down {
		t.Errorf("%g notices beside %g losses, of which there should be twice as many", spot, down)
	}
}

func TestWithoutMeansNothingFails(t *testing.T) {
	if got := befallen(t, twoNodes, Failures{Seed: 7, Repair: time.Hour, SlowFactor: 2}); len(got) > 0 {
		t.Errorf("got %+v", got)
	}
	lasting := strings.Replace(twoNodes, "spot = true", "", 1)
	if got := befallen(t, lasting, Failures{Seed: 7, SpotMean: time.Minute}); len(got) > 0 {
		t.Errorf("nodes that are not spot get notice: %+v", got)
	}
}
