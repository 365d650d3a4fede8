package coordinator

import (
	"testing"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

func TestTheStateOfANode(t *testing.T) {
	uuids := func(w *world) []string { return w.nodes[0].uuids }
	nomad := func(change func(*NodeView)) func(*world) {
		return func(w *world) {
			v := w.view(0, 1)
			change(&v)
			w.tell(NodeChanged{v})
		}
	}
	for _, c := range []struct {
		want   cluster.NodeState
		befell func(*world)
	}{
		{cluster.NodeReady, func(*world) {}},
		{cluster.NodeDown, nomad(func(v *NodeView) { v.Down, v.Draining = true, true })},
		{cluster.NodeDown, nomad(func(v *NodeView) { v.Ready = false })},
		{cluster.NodeDraining, nomad(func(v *NodeView) { v.Draining, v.Eligible = true, false })},
		{cluster.NodeIneligible, nomad(func(v *NodeView) { v.Eligible = false })},
		{cluster.NodeSilent, func(w *world) { w.tell(HostSilent{uuids(w)}) }},
		{cluster.NodeReady, func(w *world) { w.tell(HostSilent{uuids(w)}); w.tell(HostHeard{uuids(w)}) }},
		{cluster.NodeUnknown, func(w *world) { w.tell(DriverDown{uuids(w)}) }},
		{cluster.NodeUnknown, nomad(func(v *NodeView) { v.Devices = nil })},
		{cluster.NodeFull, func(w *world) { w.core.noRoomOn(w.nodes[0].id, "memory exhausted") }},
	} {
		w := ready(t, 50, 1, 1)
		c.befell(w)
		n := w.core.nodeStatuses()[0]
		if n.State != c.want || (n.Why == "") != (c.want == cluster.NodeReady) || (n.Free == 8) != (c.want == cluster.NodeReady) {
			t.Errorf("it is %s with %d GPUs free (%s), want %s", n.State, n.Free, n.Why, c.want)
		}
	}
}

func TestANodeOfWhichOnlyALaneTells(t *testing.T) {
	c := NewCore(Config{Rules: schedule.Config{Levels: []string{"leaf"}}})
	lane := &gang.Lane{Version: 1, ID: "l", State: gang.LaneLost, Node: "n", GPUs: []int{0}, Gang: "sim-00000000", Job: "gangd.x"}
	c.Step(simStart, Restored{Lanes: []*gang.Lane{lane}})
	if n := c.nodeStatuses(); len(n) != 1 || n[0].State != cluster.NodeUnknown || n[0].Why == "" {
		t.Errorf("it is shown as %+v", n)
	}
}

// Machines and templates come and go for years.
func TestNothingIsKeptOfWhatIsGone(t *testing.T) {
	w := ready(t, 51, 2, 2)
	first, second := w.submit(simSpec(8, 8)), w.submit(simSpec(8, 8))
	w.tell(TemplateSeen{"foreign", 3})
	w.until(2, "the first one's success", func() bool { return w.state(first) == gang.Succeeded })
	w.tell(CancelRequest{ID: second, Reply: 900})
	w.until(2, "the second one's end", func() bool { return w.state(second).Terminal() && len(w.core.lanes) == 0 && len(w.mail) == 0 })
	if len(w.core.templates) != 0 {
		t.Errorf("templates %v are kept, though no gang is left that needs them", w.core.templates)
	}
	n := w.nodes[0]
	w.tell(NodeRemoved{n.id})
	w.tell(Tick{})
	if len(w.core.hosts) != 16 {
		t.Errorf("%d GPUs of living hosts are known, want 16: the node may come back", len(w.core.hosts))
	}
	w.tell(HostSilent{n.uuids})
	if len(w.core.hosts) != 8 {
		t.Errorf("%d GPUs of hosts are known, want 8", len(w.core.hosts))
	}
	w.tell(HostSilent{w.nodes[1].uuids})
	if len(w.core.hosts) != 8 {
		t.Errorf("a host that is silent for a while is forgotten")
	}
}
