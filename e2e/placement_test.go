package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

// TestPlacement runs gangs on four nodes in two leaves.
func TestPlacement(t *testing.T) {
	c := start(t, options{base: 5000, clients: 4, vars: map[string]string{"nodes_per_leaf": "2"}})
	t.Run("a gang of 16 lands inside one leaf, on exactly the GPUs of its record", c.oneLeaf)
}

func (c *testCluster) oneLeaf(t *testing.T) {
	c = c.with(t)
	id := c.submit(gangFile("leaf", "gpus = 16\ngpus_per_node = 8", "steps = 10\nstep_ms = 200"))
	s := c.reaches(id, 30*time.Second, gang.Running)
	domains := map[string]bool{}
	for _, n := range c.nodes() {
		if slices.ContainsFunc(s.Members, func(m gang.Member) bool { return m.Node == n.ID }) {
			domains[strings.Join(n.Domains, "/")] = true
		}
	}
	if len(s.Members) != 2 || len(domains) != 1 {
		t.Errorf("%d members in the leaves %v", len(s.Members), domains)
	}
	ranks := c.ranks(s)
	if len(ranks) != 16 {
		t.Fatalf("%d runners live, want 16", len(ranks))
	}
	for _, m := range s.Lanes {
		for _, p := range ranks {
			if p.getenv("GANGD_LANE") == string(m.Lane) && p.getenv("CUDA_VISIBLE_DEVICES") != strings.Join(m.UUIDs, ",") {
				t.Errorf("rank %s of lane %s sees %q, its record has %v", p.getenv("LOCAL_RANK"), m.Lane, p.getenv("CUDA_VISIBLE_DEVICES"), m.UUIDs)
			}
		}
	}
	c.reaches(id, time.Minute, gang.Succeeded)
	c.idle(10 * time.Second)
}

// with is the same cluster for a subtest.
func (c *testCluster) with(t *testing.T) *testCluster {
	sub := *c
	sub.t = t
	return &sub
}
