package schedule

import (
	"errors"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

// Where a gang does not say how many GPUs each member has, the nodes suggest it;
// a size that is no multiple of that is none.
func TestSizesThatTheNodesRuleOut(t *testing.T) {
	g := aGang("a", 1, 12)
	g.Spec.GPUsPerNode = 0 // 6, as a node has 8
	g.Spec.Elastic = []gang.Size{{GPUs: 8, Run: 2 * time.Minute}, {GPUs: 12, Run: time.Minute}}
	small := g
	small.ID, small.Spec = "b", &gang.Spec{}
	*small.Spec = *g.Spec
	small.Spec.Elastic = append([]gang.Size{{GPUs: 4, Run: 3 * time.Minute}}, g.Spec.Elastic...)
	now := time.Unix(1_800_000_000, 0)
	for _, c := range []struct {
		gang Gang
		gpus int // 0: it waits
	}{{g, 0}, {small, 4}} {
		e := anEngine(t, now)
		c.gang.Accepted = true // the one node is too few for it as it would be
		out, err := e.Apply(Submit{c.gang}, now)
		if err != nil || len(out) != 1 {
			t.Fatalf("gang %s: decided %+v, %v", c.gang.ID, out, err)
		}
		if s, starts := out[0].(Start); starts != (c.gpus > 0) || s.GPUs != c.gpus {
			t.Errorf("gang %s: decided %+v, want a start on %d GPUs", c.gang.ID, out[0], c.gpus)
		}
	}
}

// Where the one size that its tenant's cap allows is none that the cluster has
// room for, a gang is refused, and does not wait for ever.
func TestSizesThatTheCapRulesOut(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	e := New(Config{Levels: []string{"leaf"}, Tiers: []Tier{{Name: "production"}}, Tenants: []Tenant{{Name: "a", MaxGPUs: 4}}})
	g := aGang("a", 1, 4)
	g.Spec.GPUsPerNode, g.Spec.Topology.Segment = 2, 2
	g.Spec.Elastic = []gang.Size{{GPUs: 4, Run: 2 * time.Minute}, {GPUs: 6, Run: time.Minute}}
	for _, id := range []string{"l", "m", "n"} { // each is a leaf, in which no segment of two nodes has room
		n := aNode()
		n.ID, n.Name, n.Domains = id, id, []string{id}
		if _, err := e.Apply(NodeSet{n}, now); err != nil {
			t.Fatal(err)
		}
	}
	refused := new(gang.RefusedError)
	if out, err := e.Apply(Submit{g}, now); !errors.As(err, &refused) {
		t.Errorf("decided %+v, %v", out, err)
	}
}
