package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

// gpusBreak: XIDs put GPUs out of use, and recovery brings them back.
func (c *testCluster) gpusBreak(t *testing.T, _ film) {
	c = c.with(t)
	c.breaks("client-0", "xid 119 gpu 3", 3)
	c.breaks("client-1", "xid 79 gpu 0", 0, 1, 2, 3, 4, 5, 6, 7)
	const steps = "    steps = 3\n    frames = 32\n    width = 64\n    height = 64"
	all := c.submit(gangFile("all", "  gpus = 32\n  gpus_per_node = 8", steps))
	// It fits client-0 best: exactly what is left there.
	seven := c.submit(gangFile("seven", "  gpus = 7", steps))
	two := c.submit(gangFile("two", "  gpus = 16\n  gpus_per_node = 8", steps))
	if on := c.reaches(seven, time.Minute, gang.Succeeded).Lanes[0]; on.NodeName != "client-0" || !slices.Equal(on.GPUs, []int{0, 1, 2, 4, 5, 6, 7}) {
		t.Errorf("the gang of 7 ran on GPUs %v of %s", on.GPUs, on.NodeName)
	}
	for _, m := range c.reaches(two, time.Minute, gang.Succeeded).Lanes {
		if m.NodeName == "client-0" || m.NodeName == "client-1" {
			t.Errorf("the gang of 2 x 8 ran on %s", m.NodeName)
		}
	}
	want := "needs 32 GPUs (4 nodes x 8); 23 of 23 usable H100-80GB are free in all; it cannot start before nodes or GPUs that are out of order come back"
	c.eventually(20*time.Second, "the gang of 32 says why it waits", func() string {
		if s := c.status(all); s.State != gang.Queued || s.Code != gang.CodeCapacity || s.Reason != want {
			return fmt.Sprintf("it is %s with code %s and the reason %q", s.State, s.Code, s.Reason)
		}
		return ""
	})
	c.unhealthyInNomad("client-0", 3)
	c.unhealthyInNomad("client-1", 0, 1, 2, 3, 4, 5, 6, 7)

	began := time.Now()
	c.fault("client-0", "recover gpu 3")
	c.fault("client-1", "recover all")
	s := c.reaches(all, 40*time.Second, gang.Running, gang.Finishing, gang.Succeeded)
	t.Logf("the gang of 32 started %s after the recovery", time.UnixMilli(s.Times.Started).Sub(began).Round(10*time.Millisecond))
	if s.Members.GPUs() != 32 {
		t.Errorf("the gang of 32 has %d GPUs", s.Members.GPUs())
	}
	c.reaches(all, time.Minute, gang.Succeeded)
	c.idle(time.Minute)
}

// breaks writes a fault, and sees the GPUs unhealthy in gangd within a second.
func (c *testCluster) breaks(node, line string, want ...int) {
	c.t.Helper()
	began := time.Now()
	c.fault(node, line)
	c.eventually(time.Second, fmt.Sprintf("gangd knows of %q on %s", line, node), func() string {
		var bad []int
		for _, g := range c.node(node).GPUs {
			if !g.Healthy {
				bad = append(bad, g.Index)
			}
		}
		if !slices.Equal(bad, want) {
			return fmt.Sprintf("GPUs %v are unhealthy", bad)
		}
		return ""
	})
	c.t.Logf("gangd knew of %q on %s after %s: %s", line, node, time.Since(began).Round(time.Millisecond), c.node(node).GPUs[want[0]].Reason)
}

// unhealthyInNomad waits until Nomad's servers know which GPUs are unhealthy.
func (c *testCluster) unhealthyInNomad(node string, want ...int) {
	c.t.Helper()
	began := time.Now()
	index := make(map[string]int)
	for _, g := range c.node(node).GPUs {
		index[g.UUID] = g.Index
	}
	c.eventually(30*time.Second, fmt.Sprintf("Nomad knows which GPUs of %s are unhealthy", node), func() string {
		var bad []int
		for _, group := range c.nomadNode(node).NodeResources.Devices {
			for _, instance := range group.Instances {
				if !instance.Healthy {
					bad = append(bad, index[instance.ID])
				}
			}
		}
		if slices.Sort(bad); !slices.Equal(bad, want) {
			return fmt.Sprintf("it calls GPUs %v unhealthy", bad)
		}
		return ""
	})
	c.t.Logf("Nomad's servers knew of %s after another %s", node, time.Since(began).Round(10*time.Millisecond))
}
