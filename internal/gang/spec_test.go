package gang

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

func validSpec() Spec {
	return Spec{Name: "sea", Template: "ddim", Tenant: "default", Tier: "production", GPUs: 16, GPUsPerNode: 8}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Spec)
		// faults are the fields that are complained of, with a part of the
		// words.
		faults map[string]string
	}{
		{"a plain gang", func(*Spec) {}, nil},
		{"gpus_per_node is left to the cluster", func(s *Spec) { s.GPUs, s.GPUsPerNode = 7, 0 }, nil},
		{"everything is set", func(s *Spec) {
			s.GPU, s.GPUMemoryMiB, s.Estimate, s.MaxRun = "H100-80GB", 61440, time.Minute, time.Hour
			s.InfraRetries, s.Reuse, s.Params = MaxRetries, ReuseTenant, json.RawMessage(`{"prompt":"a blue sea"}`)
		}, nil},
		{"everything of its run is set", func(s *Spec) {
			s.Model, s.Pinned, s.Topology.Segment = "wan-2.2", true, 2
			s.Elastic = []Size{{2, 9 * time.Minute}, {8, 5 * time.Minute}, {16, time.Minute}}
			s.Checkpoint = &Checkpoint{Every: time.Minute, Cost: time.Second, Restore: time.Second}
		}, nil},
		{"the widest gang", func(s *Spec) { s.GPUs = MaxGPUs }, nil},
		{"the longest name", func(s *Spec) { s.Name = strings.Repeat("a", MaxNameLen) }, nil},
		{"the largest params", func(s *Spec) { s.Params = object(MaxParamsSize) }, nil},

		{"no name", func(s *Spec) { s.Name = "" }, map[string]string{"name": `"" is no name`}},
		{"a name too long", func(s *Spec) { s.Name = strings.Repeat("a", MaxNameLen+1) }, map[string]string{"name": "up to 40"}},
		{"a name in capitals", func(s *Spec) { s.Name = "Sea" }, map[string]string{"name": `"Sea"`}},
		{"a name with a path", func(s *Spec) { s.Name = "a/../b" }, map[string]string{"name": `"a/../b"`}},
		{"a name that begins with a dash", func(s *Spec) { s.Name = "-a" }, map[string]string{"name": "'-'"}},
		{"a name that ends with a dash", func(s *Spec) { s.Name = "a-" }, map[string]string{"name": "'-'"}},
		{"a name with a line break", func(s *Spec) { s.Name = "a\n" }, map[string]string{"name": `"a\n"`}},
		{"no template", func(s *Spec) { s.Template = "" }, map[string]string{"template": "missing"}},
		{"a template too long", func(s *Spec) { s.Template = strings.Repeat("a", MaxLabelLen+1) }, map[string]string{"template": "up to 63"}},
		{"a tenant with a blank", func(s *Spec) { s.Tenant = "a b" }, map[string]string{"tenant": `"a b"`}},
		{"a tier with a line break", func(s *Spec) { s.Tier = "a\n" }, map[string]string{"tier": `"a\n"`}},
		{"no GPUs", func(s *Spec) { s.GPUs = 0 }, map[string]string{"gpus": "0 is not between 1 and 1024"}},
		{"too many GPUs", func(s *Spec) { s.GPUs = 2 * MaxGPUs }, map[string]string{"gpus": "2048"}},
		{"GPUs that do not divide", func(s *Spec) { s.GPUs = 12 }, map[string]string{"gpus": "12 is no multiple of gpus_per_node = 8"}},
		{"fewer GPUs than on one node", func(s *Spec) { s.GPUs = 4 }, map[string]string{"gpus": "no multiple"}},
		{"negative gpus_per_node", func(s *Spec) { s.GPUsPerNode = -8 }, map[string]string{"gpus_per_node": "-8 is negative"}},
		{"negative memory", func(s *Spec) { s.GPUMemoryMiB = -1 }, map[string]string{"gpu_memory": "negative"}},
		{"a negative estimate", func(s *Spec) { s.Estimate = -time.Second }, map[string]string{"estimate": "-1s"}},
		{"an estimate of centuries", func(s *Spec) { s.Estimate = 100 * 366 * 24 * time.Hour }, map[string]string{"estimate": "878400h0m0s is more than 3650 days"}},
		{"a negative max_run", func(s *Spec) { s.MaxRun = -time.Second }, map[string]string{"max_run": "-1s"}},
		{"negative retries", func(s *Spec) { s.InfraRetries = -1 }, map[string]string{"infra_retries": "-1"}},
		{"endless retries", func(s *Spec) { s.InfraRetries = MaxRetries + 1 }, map[string]string{"infra_retries": "101"}},
		{"an unknown reuse", func(s *Spec) { s.Reuse = "sometimes" }, map[string]string{"reuse": `"sometimes"`}},
		{"params that are a list", func(s *Spec) { s.Params = json.RawMessage(`[1]`) }, map[string]string{"params": "not a JSON object"}},
		{"params that are null", func(s *Spec) { s.Params = json.RawMessage(`null`) }, map[string]string{"params": "not a JSON object"}},
		{"params that are broken", func(s *Spec) { s.Params = json.RawMessage(`{"a":`) }, map[string]string{"params": "not a JSON object"}},
		{"params too large", func(s *Spec) { s.Params = object(MaxParamsSize + 1) }, map[string]string{"params": "65537 bytes"}},
		{"a model with a blank", func(s *Spec) { s.Model = "wan 2" }, map[string]string{"model": `"wan 2"`}},
		{"a segment that does not divide", func(s *Spec) { s.GPUs, s.Topology.Segment = 24, 2 }, map[string]string{"segment": "2 nodes do not divide the 3 members"}},
		{"a negative segment", func(s *Spec) { s.Topology.Segment = -1 }, map[string]string{"segment": "negative"}},
		{"no preferred size", func(s *Spec) { s.Elastic = []Size{{8, time.Minute}} }, map[string]string{"elastic": "lacks the preferred size, gpus = 16"}},
		{"sizes that descend", func(s *Spec) { s.Elastic = []Size{{16, time.Minute}, {8, time.Minute}} }, map[string]string{"elastic": "ascend"}},
		{"a size of no GPUs", func(s *Spec) { s.Elastic = []Size{{0, time.Minute}, {16, time.Minute}} }, map[string]string{"elastic": "positive"}},
		{"a size in no time", func(s *Spec) { s.Elastic = []Size{{8, 0}, {16, time.Minute}} }, map[string]string{"elastic": "on 8 GPUs is 0s"}},
		{"a size that does not divide", func(s *Spec) { s.Elastic = []Size{{12, time.Minute}, {16, time.Minute}} }, map[string]string{"elastic": "12 is no multiple"}},
		{"too many sizes", func(s *Spec) { s.Elastic = make([]Size, MaxSizes+1) }, map[string]string{"elastic": "65 sizes"}},
		{"a negative checkpoint", func(s *Spec) { s.Checkpoint = &Checkpoint{Every: -1, Cost: -1, Restore: -1} },
			map[string]string{"every": "negative", "cost": "negative", "restore": "negative"}},
		{"every fault is told at once", func(s *Spec) { *s = Spec{GPUs: -1, InfraRetries: -1, Reuse: "x"} },
			map[string]string{"name": "", "template": "", "gpus": "-1", "infra_retries": "", "reuse": ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := validSpec()
			c.change(&s)
			got := faultsOf(t, s.Validate())
			for field, words := range c.faults {
				if problem, told := got[field]; !told || !strings.Contains(problem, words) {
					t.Errorf("%s: %q, want a fault with %q", field, problem, words)
				}
				delete(got, field)
			}
			for field, problem := range got {
				t.Errorf("unexpected fault in %s: %s", field, problem)
			}
		})
	}
}

// faultsOf takes a joined error apart.
func faultsOf(t *testing.T, err error) map[string]string {
	t.Helper()
	out := make(map[string]string)
	if err == nil {
		return out
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("Validate() = %v, want joined faults", err)
	}
	for _, one := range joined.Unwrap() {
		var fault *FieldError
		if !errors.As(one, &fault) {
			t.Fatalf("%v is no FieldError", one)
		}
		out[fault.Field] = fault.Problem
	}
	return out
}

// object makes a JSON object of so many bytes.
func object(bytes int) json.RawMessage {
	const frame = `{"a":""}`
	return json.RawMessage(`{"a":"` + strings.Repeat("x", bytes-len(frame)) + `"}`)
}

func TestMembers(t *testing.T) {
	for _, c := range []struct{ gpus, perNode, want int }{{16, 8, 2}, {8, 8, 1}, {6, 2, 3}, {8, 0, 0}} {
		s := Spec{GPUs: c.gpus, GPUsPerNode: c.perNode}
		if got := s.Members(); got != c.want {
			t.Errorf("%d GPUs by %d: %d members, want %d", c.gpus, c.perNode, got, c.want)
		}
	}
}

func TestMembersOfTheDefaultSize(t *testing.T) {
	for _, c := range []struct{ gpus, asked, largest, want int }{
		{16, 4, 8, 4}, {16, 0, 8, 8}, {12, 0, 8, 6}, {7, 0, 4, 1}, {3, 0, 8, 3}, {8, 0, 0, 0},
	} {
		s := Spec{GPUs: c.gpus, GPUsPerNode: c.asked}
		if got := s.PerNode(c.largest); got != c.want {
			t.Errorf("%d GPUs, gpus_per_node = %d, on nodes of %d: members of %d, want %d", c.gpus, c.asked, c.largest, got, c.want)
		}
	}
}

func TestSpeedOfASize(t *testing.T) {
	s := Spec{GPUs: 16, Elastic: []Size{{8, 100 * time.Second}, {16, 60 * time.Second}}}
	for gpus, want := range map[int]float64{8: 0.6, 16: 1, 4: 1} {
		if got := s.SpeedAt(gpus); got != want {
			t.Errorf("%g on %d GPUs, want %g", got, gpus, want)
		}
	}
}

// A scenario's gangs have names of their own, no template, and no limits.
func TestDemandsOfAScenario(t *testing.T) {
	s := Spec{Name: "A", Tenant: "t", Tier: "t", GPUs: 4 * MaxGPUs, GPUsPerNode: 8, InfraRetries: 2 * MaxRetries}
	if err := s.ValidateDemand(); err != nil {
		t.Error(err)
	}
	s.GPUs, s.InfraRetries, s.Topology.Segment = 0, -1, -1
	got := faultsOf(t, s.ValidateDemand())
	for _, field := range []string{"gpus", "infra_retries", "segment"} {
		if got[field] == "" {
			t.Errorf("no fault in %s: %v", field, got)
		}
	}
}
