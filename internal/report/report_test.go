package report

import (
	"reflect"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
	"github.com/gangd/gangd/internal/sim"
)

func parse(t *testing.T, src string) *config.Scenario {
	t.Helper()
	s, err := config.ParseScenario("scenario.hcl", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const cluster1 = "cluster {\n node \"n\" {}\n}\n"

func lifeOf(tier string, gpus int, run, ended, waited time.Duration) sim.Life {
	return sim.Life{
		Gang:    &config.ScenarioGang{Spec: &gang.Spec{Tier: tier, GPUs: gpus}, At: time.Minute, Duration: run},
		Arrived: true, Outcome: sim.Succeeded, Attempts: 1, Ended: time.Minute + ended, Waited: waited,
	}
}

func TestReport(t *testing.T) {
	s := parse(t, cluster1)
	stopped := lifeOf("production", 16, 100*time.Second, 250*time.Second, 80*time.Second) // it ran twice
	stopped.Attempts, stopped.Lost, stopped.Loading = 2, 1000, 30
	open := lifeOf("production", 1, 100*time.Second, 60*time.Second, 60*time.Second)
	open.Outcome, open.Attempts = "", 0
	failed := lifeOf("production", 1, 100*time.Second, 40*time.Second, 0)
	failed.Outcome = sim.Failed
	rejected := lifeOf("production", 32, time.Second, 0, 0)
	rejected.Outcome, rejected.Rejected = "", true
	lives := []sim.Life{
		lifeOf("interactive", 1, time.Second, 3*time.Second, 2*time.Second), stopped, open, failed, rejected,
		{Gang: &config.ScenarioGang{Spec: &gang.Spec{Tier: "production", GPUs: 64}, At: time.Hour}},
	}
	got := New("easy", s, lives, &sim.Summary{Utilization: 0.5, Preemptions: 1, Makespan: sim.Seconds(time.Hour)}, 2*time.Second)
	one := Row{Class: "interactive", Gangs: 1, Delay: Spread{2, 2, 2, 2}, Wait: Spread{2, 2, 2, 2}, WaitCounts: []int{0, 1, 0, 0, 0, 0, 0, 0}, Slowdown: Spread{1, 1, 1, 1}}
	production := Row{
		Class: "production", Gangs: 3, Rejected: 1, Unfinished: 1, Failed: 1,
		Delay: Spread{75, 0, 150, 150}, Wait: Spread{140.0 / 3, 60, 80, 80}, WaitCounts: []int{1, 0, 0, 2, 0, 0, 0, 0}, Slowdown: Spread{1.75, 1, 2.5, 2.5}, Lost: 1000, Loading: 30,
	}
	want := Report{
		Policy: "easy", Utilization: 0.5, Preemptions: 1, MakespanSeconds: 3600, TookSeconds: 2, All: got.All,
		ByTier: []Row{one, production}, BySize: got.BySize, Widest: Widest{16, 1, 80, 150},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got.All.Gangs != 4 || got.All.Rejected != 1 || got.All.Delay.Mean != 152.0/3 {
		t.Errorf("all: %+v", got.All)
	}
	var sizes []string
	for _, r := range got.BySize {
		sizes = append(sizes, r.Class)
	}
	if want := []string{"1 GPU", "9-16 GPUs", "17-64 GPUs"}; !reflect.DeepEqual(sizes, want) {
		t.Errorf("sizes %q, want %q", sizes, want)
	}
}

// Run time alone is on the fastest GPUs that the gang may use, at its fastest
// size.
func TestAlone(t *testing.T) {
	s := parse(t, "cluster {\n node \"h\" {}\n node \"a\" {\n gpu = \"A100\"\n gpu_memory = \"40GiB\"\n }\n}\n"+
		"model \"wan\" {\n load = \"40s\"\n speed = { \"A100\" = 0.5, \"H100-80GB\" = 2 }\n}\nmodel \"old\" {\n speed = { \"H100-80GB\" = 0.5 }\n}\n"+
		"gang \"any\" {\n gpus = 1\n duration = \"60s\"\n}\n"+
		"gang \"wan\" {\n gpus = 1\n duration = \"60s\"\n model = \"wan\"\n}\n"+
		"gang \"wan-a\" {\n gpus = 1\n duration = \"60s\"\n model = \"wan\"\n gpu = \"A100\"\n}\n"+
		"gang \"old\" {\n gpus = 1\n duration = \"60s\"\n model = \"old\"\n}\n"+
		"gang \"old-large\" {\n gpus = 1\n duration = \"60s\"\n model = \"old\"\n gpu_memory = \"60GiB\"\n}\n"+
		"gang \"elastic\" {\n gpus = 4\n duration = \"60s\"\n elastic = { \"2\" = \"100s\", \"4\" = \"60s\", \"8\" = \"40s\" }\n}\n"+
		"gang \"nowhere\" {\n gpus = 1\n duration = \"60s\"\n gpu = \"X\"\n}\n")
	want := map[string]time.Duration{
		"any": 60 * time.Second, "wan": 30 * time.Second, "wan-a": 120 * time.Second, "old": 60 * time.Second, "old-large": 120 * time.Second,
		"elastic": 40 * time.Second, "nowhere": 60 * time.Second,
	}
	c := speeds(s)
	for i := range s.Gangs {
		if g := &s.Gangs[i]; c.alone(g) != want[g.Spec.Name] {
			t.Errorf("%s alone: %s, want %s", g.ID, c.alone(g), want[g.Spec.Name])
		}
	}
}

// Each policy lacks what its name says, and a scenario in which that counts
// shows it.
func TestPolicies(t *testing.T) {
	played := func(name, src string) Report {
		p, err := PolicyNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		s := parse(t, src)
		rules := s.Rules
		rules.Policy = p.Rules
		var last *sim.Summary
		lives, err := sim.Run(s, schedule.New(rules), sim.Options{Until: sim.Forever}, func(r sim.Record) error {
			last, _ = r.Fact.(*sim.Summary)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return New(name, s, lives, last, 0)
	}
	g := func(name, more string) string { return "gang \"" + name + "\" {\n" + more + "\n}\n" }
	two := "cluster {\n node \"n\" {\n count = 2\n }\n}\n"
	blocked := two + g("long", "gpus = 8\n duration = \"100s\"") + g("wide", "at = \"1s\"\n gpus = 16\n duration = \"10s\"") + g("small", "at = \"2s\"\n gpus = 8\n duration = \"20s\"")
	preempts := cluster1 + g("low", "gpus = 8\n duration = \"100s\"\n tier = \"background\"\n checkpoint {\n every = \"10s\"\n }") + g("high", "at = \"55s\"\n gpus = 8\n duration = \"10s\"\n tier = \"interactive\"")
	stream := two + g("s", "count = 40\n every = \"5s\"\n gpus = 8\n duration = \"15s\"\n tenant = \"a\"") + g("wide", "at = \"7s\"\n gpus = 16\n duration = \"10s\"\n tenant = \"b\"")
	shared := cluster1 + g("a", "count = 4\n gpus = 8\n duration = \"10s\"\n tenant = \"a\"") + g("b", "at = \"1s\"\n gpus = 8\n duration = \"10s\"\n tenant = \"b\"")
	for _, c := range []struct {
		name, src string
		of        func(Report) float64
		want      map[string]float64
	}{
		{"backfill", blocked, func(r Report) float64 { return r.All.Wait.Mean * 3 }, map[string]float64{"fcfs": 99 + 108, "easy": 99, Ours: 99}},
		{"preemption", preempts, func(r Report) float64 { return r.ByTier[0].Wait.Max }, map[string]float64{"fcfs": 45, "easy": 45, Ours: 0, "no-preemption": 45}},
		{"checkpoints", preempts, func(r Report) float64 { return r.All.Lost }, map[string]float64{Ours: 0, "no-checkpoints": 40}},
		{"shares", shared, func(r Report) float64 { return r.All.Wait.Max }, map[string]float64{"fcfs": 39, "easy": 39, "no-shares": 39, Ours: 40}},
		{"reservations", stream, func(r Report) float64 { return r.Widest.Wait }, map[string]float64{Ours: 13, "easy": 13, "no-reservations": 298}},
	} {
		for policy, want := range c.want {
			if got := c.of(played(policy, c.src)); got != want {
				t.Errorf("%s under %s: %g, want %g", c.name, policy, got, want)
			}
		}
	}
	if _, err := PolicyNamed("best"); err == nil {
		t.Error("there is a policy named best")
	}
}
