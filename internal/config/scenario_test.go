package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

const fullScenario = `
cluster {
  levels = ["spine", "leaf"]
  node "n" {
    count  = 5
    gpus   = 4
    nvlink = [[0, 2], [1]]
    fanout = { leaf = 2, spine = 2 }
  }
  node "s" {
    gpu        = "L40S-48GB"
    gpu_memory = "48GiB"
    at         = { leaf = "l9" }
    spot       = true
    warm       = ["wan"]
  }
}
tier "background" {
  min_share = 0.25
}
tier "night" {
  priority    = 50
  preempts    = ["background"]
  grace       = "1m"
  target_wait = "5s"
  protected   = "30s"
}
tenant "acme" {
  weight     = 2.5
  guaranteed = 8
  max_gpus   = 64
}
fairness {
  half_life                   = "0s"
  preemption_plans_per_minute = 3
}
model "wan" {
  load  = "40s"
  speed = { "L40S-48GB" = 0.5 }
}
gang "A" {
  count         = 2
  every         = "5s"
  at            = "1m"
  template      = ignored-on-purpose
  params        = 7
  reuse         = ["whatever"]
  tenant        = "acme"
  tier          = "night"
  gpus          = 16
  gpus_per_node = 4
  duration      = "60s"
  max_run       = "10m"
  elastic       = { "16" = "60s", "8" = "110s", "2" = "400s" }
  model         = "wan"
  gpu           = "H100-80GB"
  gpu_memory    = "60GiB"
  topology {
    require = "spine"
    prefer  = "leaf"
    segment = 2
  }
  checkpoint {
    every   = "10s"
    cost    = "1s"
    restore = "5s"
  }
  preemptible   = false
  infra_retries = 1
  exit {
    member    = 2
    after     = "30s"
    retryable = true
  }
}
event {
  at     = "30s"
  kind   = "spot_notice"
  node   = "s"
  notice = "120s"
}
gang "b" {
  gpus     = 8
  duration = "7s"
  estimate = "9s"
}
event {
  at   = "30s"
  kind = "cancel"
  gang = "A-1"
}
`

func readScenario(t *testing.T, src string) *Scenario {
	t.Helper()
	s, err := ParseScenario("s.hcl", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestScenario(t *testing.T) {
	s := readScenario(t, strings.Replace(fullScenario, "ignored-on-purpose", `"ddim"`, 1))
	tiers := BuiltInTiers()
	tiers[2].MinShare = 0.25
	tiers = append(tiers, schedule.Tier{
		Name: "night", Priority: 50, Preempts: []string{"background"}, Grace: time.Minute, TargetWait: 5 * time.Second, Protected: 30 * time.Second,
	})
	rules := schedule.Config{
		Levels: []string{"spine", "leaf"}, Tiers: tiers, PlansPerMinute: 3,
		Tenants: []schedule.Tenant{{Name: "acme", Weight: 2.5, Guaranteed: 8, MaxGPUs: 64}},
		Models:  []schedule.Model{{Name: "wan", Load: 40 * time.Second, Speed: map[string]float64{"L40S-48GB": 0.5}}},
	}
	if !reflect.DeepEqual(s.Rules, rules) {
		t.Errorf("rules:\n got %+v\nwant %+v", s.Rules, rules)
	}
	spec := &gang.Spec{
		Name: "A", Tenant: "acme", Tier: "night", GPUs: 16, GPUsPerNode: 4, GPU: "H100-80GB", GPUMemoryMiB: 60 << 10,
		Topology: gang.Topology{Require: "spine", Prefer: "leaf", Segment: 2},
		Estimate: time.Minute, MaxRun: 10 * time.Minute, InfraRetries: 1, Model: "wan", Pinned: true,
		Elastic:    []gang.Size{{GPUs: 2, Run: 400 * time.Second}, {GPUs: 8, Run: 110 * time.Second}, {GPUs: 16, Run: time.Minute}},
		Checkpoint: &gang.Checkpoint{Every: 10 * time.Second, Cost: time.Second, Restore: 5 * time.Second},
	}
	exit := &Exit{Member: 2, After: 30 * time.Second, Retryable: true}
	plain := &gang.Spec{Name: "b", Tenant: "default", Tier: "production", GPUs: 8, Estimate: 9 * time.Second, InfraRetries: 3}
	gangs := []ScenarioGang{
		{ID: "A-0", Spec: spec, At: time.Minute, Duration: time.Minute, Exit: exit, Line: 41},
		{ID: "A-1", Spec: spec, At: 65 * time.Second, Duration: time.Minute, Exit: exit, Line: 41},
		{ID: "b", Spec: plain, Duration: 7 * time.Second, Line: 82},
	}
	if !reflect.DeepEqual(s.Gangs, gangs) {
		t.Errorf("gangs:\n got %+v\nwant %+v", s.Gangs, gangs)
	}
	events := []ScenarioEvent{
		{At: 30 * time.Second, Kind: SpotNotice, Node: "s", Notice: 2 * time.Minute, Line: 76},
		{At: 30 * time.Second, Kind: Cancel, Gang: "A-1", Line: 87},
	}
	if !reflect.DeepEqual(s.Events, events) {
		t.Errorf("events:\n got %+v\nwant %+v", s.Events, events)
	}
}

func TestNodesOfAScenario(t *testing.T) {
	s := readScenario(t, strings.Replace(fullScenario, "ignored-on-purpose", `"ddim"`, 1))
	var places []string
	for _, n := range s.Nodes {
		places = append(places, fmt.Sprint(n.ID, " ", strings.Join(n.Domains, "/")))
	}
	want := []string{"n-0 n-s0/n-l0", "n-1 n-s0/n-l0", "n-2 n-s0/n-l1", "n-3 n-s0/n-l1", "n-4 n-s1/n-l2", "s (none)/l9"}
	if !slices.Equal(places, want) {
		t.Errorf("%q, want %q", places, want)
	}
	n := cluster.New(s.Rules.Levels)
	for _, spec := range s.Nodes {
		if err := n.Set(spec); err != nil {
			t.Fatal(err)
		}
	}
	islands := n.Node("n-1").Islands()
	if want := []cluster.Mask{cluster.MaskOf([]int{0, 2}), cluster.MaskOf([]int{1}), cluster.MaskOf([]int{3})}; !slices.Equal(islands, want) {
		t.Errorf("islands %v, want %v: a GPU that no island has is alone", islands, want)
	}
	if last := n.Node("s"); last.Usable().Count() != 8 || last.Model != "L40S-48GB" || last.MemoryMiB != 48<<10 || !last.Spot || len(last.Spec.Warm) != 1 {
		t.Errorf("node s is %+v", last.Spec)
	}
}

// The defaults that the format promises.
func TestDefaultsOfAScenario(t *testing.T) {
	s := readScenario(t, "cluster {\n node \"n\" {}\n}\ngang \"a\" {\n gpus = 8\n duration = \"60s\"\n}\n")
	if got := s.Rules; !reflect.DeepEqual(got, schedule.Config{Levels: []string{"leaf"}, Tiers: BuiltInTiers(), HalfLife: time.Hour}) {
		t.Errorf("rules %+v", got)
	}
	if n := s.Nodes[0]; n.ID != "n" || len(n.GPUs) != 8 || n.GPUs[7].Model != "H100-80GB" || n.GPUs[7].MemoryMiB != 80<<10 || n.GPUs[0].Island != n.GPUs[7].Island {
		t.Errorf("node %+v", n)
	}
	if g := s.Gangs[0]; g.Spec.Estimate != time.Minute || g.Spec.Pinned || g.Spec.InfraRetries != 3 || g.Spec.Checkpoint != nil || g.ID != "a" {
		t.Errorf("gang %+v %+v", g, g.Spec)
	}
}

func FuzzParseScenario(f *testing.F) {
	f.Add([]byte(strings.Replace(fullScenario, "ignored-on-purpose", `"ddim"`, 1)))
	f.Add([]byte(fullScenario))
	f.Add([]byte("cluster {\n node \"n\" { fanout = { leaf = 1, leaf = 2 } }\n}\n"))
	f.Add([]byte("cluster {\n levels = [\"a\", \"b\"]\n node \"n\" {\n count = 3\n at = {} \n nvlink = [[]]\n }\n}\nevent {\n}\nevent {}"))
	f.Add([]byte("gang \"a\" {\n count = 20\n gpus = 3\n elastic = { \"3\" = \"1s\" }\n duration = \"1s\"\n exit {\n after = \"0s\"\n member = 9\n }\n}\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		s, err := ParseScenario("input", src)
		if err != nil {
			if !isUnreadable(err) || err.Error() == "" {
				t.Fatalf("not an UnreadableError that can be shown: %v", err)
			}
			return
		}
		c := cluster.New(s.Rules.Levels)
		for _, n := range s.Nodes {
			if err := c.Set(n); err != nil {
				t.Fatal(err)
			}
		}
		for _, g := range s.Gangs {
			if err := g.Spec.ValidateDemand(); err != nil || g.At < 0 || g.Duration < 0 || g.Spec.Estimate < 0 {
				t.Fatalf("invalid gang %+v: %v", g, err)
			}
		}
	})
}
