package schedule

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/soak"
)

// strictPlayer plays the order of the agent: tiers and arrival alone, and
// nothing goes ahead of a gang that does not fit. It is simple enough to be
// held against an oracle that counts nodes one by one, and to be rebuilt from
// the nodes, the seats and the queue.
type strictPlayer struct{ *player }

func TestTheStrictOrder(t *testing.T) {
	soak.Check(t, 50_000, func(t *rapid.T) int {
		p := newPlayer(t)
		p.plain = true
		p.cfg.Tenants, p.cfg.Policy = nil, Policy{Arrival: true, NoBackfill: true, NoPreemption: true}
		p.e = New(p.cfg)
		for range 4 {
			p.Node(t)
		}
		t.Repeat(rapid.StateMachineActions(strictPlayer{p}))
		p.replay(t)
		return p.happened
	})
}

// Check runs after every event.
func (p strictPlayer) Check(t *rapid.T) {
	p.player.Check(t)
	p.checkOrder(t)
	p.checkRebuilt(t)
}

// checkOrder: the queue is ordered by tier and arrival; of those that could
// run, the first does not fit, and all before it are stuck.
func (p strictPlayer) checkOrder(t *rapid.T) {
	queue := p.e.queue()
	rank := map[string]int{"high": 0, "mid": 1, "low": 2}
	for i, id := range queue[min(1, len(queue)):] {
		g, before := p.gangs[id], p.gangs[queue[i]]
		if rank[before.Spec.Tier] > rank[g.Spec.Tier] || before.Spec.Tier == g.Spec.Tier && before.Seq >= g.Seq {
			t.Fatalf("%s (%s, %d) is before %s (%s, %d)", before.ID, before.Spec.Tier, before.Seq, g.ID, g.Spec.Tier, g.Seq)
		}
	}
	for _, id := range queue {
		g := *p.gangs[id]
		if g.Held {
			continue
		}
		if p.e.waiting[id].told() == gang.CodeMaintenance {
			return // it holds back the others
		}
		if fits(p.e, g) {
			t.Fatalf("%s (%+v) fits, is first in the order, and waits for %s\n%s", id, *g.Spec, p.e.waiting[id].told(), p.story())
		} else if oracle(p.e, g, cluster.Usable) {
			return // it holds back the others
		}
	}
}

// checkRebuilt: an engine made from the records alone has the same queue,
// starts nothing, and gives the same codes.
func (p strictPlayer) checkRebuilt(t *rapid.T) {
	f := rebuilt(p.e)
	out, err := f.Apply(Together{}, p.now)
	if err != nil || slices.ContainsFunc(out, func(d Decision) bool { _, starts := d.(Start); return starts }) {
		t.Fatalf("rebuilt, it decides %v, %v", out, err)
	}
	if got, want := f.queue(), p.e.queue(); !slices.Equal(got, want) {
		t.Fatalf("rebuilt, the queue is %v, want %v", got, want)
	}
	all := p.e.Explainer(p.e.now)
	for i, id := range p.e.queue() {
		code, reason, position, _ := p.e.Explain(id)
		if code1, reason1, position1, _ := all.Explain(id); code1 != code || reason1 != reason || position1 != i+1 || position != i+1 {
			t.Fatalf("%s at %d is explained alone as %d. %s (%s), with all as %d. %s (%s)", id, i+1, position, code, reason, position1, code1, reason1)
		}
		if code2, reason2, position2, _ := f.Explain(id); code != code2 || reason != reason2 || position != position2 {
			t.Fatalf("%s: %s (%s), rebuilt %s (%s)", id, code, reason, code2, reason2)
		}
	}
}

// oracle answers by counting nodes one by one what the engine answers from its
// indexes: whether some domain of the required level has enough nodes of one
// model with enough GPUs in the view.
func oracle(e *Engine, g Gang, v cluster.View) bool {
	s := g.Spec
	level := -1
	if s.Topology.Require != "" {
		level, _ = e.Cluster().Level(s.Topology.Require)
	}
	type place struct{ domain, model string }
	nodes := make(map[place]int)
	for _, n := range e.Cluster().Nodes() {
		if s.GPU != "" && s.GPU != n.Model || n.MemoryMiB < s.GPUMemoryMiB || n.In(v).Count() < s.GPUsPerNode || n.Spot && s.Checkpoint == nil || !n.Fits(v, s.MemberNeed) {
			continue
		}
		p := place{model: n.Model}
		for _, name := range n.Domains[:level+1] {
			p.domain += name + "/"
		}
		if nodes[p]++; nodes[p] == s.Members() {
			return true
		}
	}
	return false
}

// fits is the oracle's answer for what is free, with what the gang avoids left out where
// it could run without.
func fits(e *Engine, g Gang) bool {
	if len(g.Avoid) > 0 && oracle(without(e, g.Avoid), g, cluster.Usable) {
		return oracle(without(e, g.Avoid), g, cluster.Free)
	}
	return oracle(e, g, cluster.Free)
}

// without is a copy of an engine's cluster in which some nodes are drained.
func without(e *Engine, avoid []string) *Engine {
	c := rebuilt(e)
	for _, id := range avoid {
		if n := c.Cluster().Node(id); n != nil {
			s := n.Spec
			s.Schedulable = false
			if err := c.Cluster().Set(s); err != nil {
				panic(err)
			}
		}
	}
	return c
}

// rebuilt makes the engine that a restart would make from the nodes, the seats
// and the queue.
func rebuilt(e *Engine) *Engine {
	f := New(e.cfg)
	f.now = e.now
	var all Together
	for _, n := range e.Cluster().Nodes() {
		all = append(all, NodeSet{e.seen(n)})
	}
	for _, w := range e.windows {
		all = append(all, WindowSet{w})
	}
	for at, s := range e.seats {
		all = append(all, Occupy{at, gang.Member{Node: s.node.ID, GPUs: s.gpus.Indexes()}, s.need})
	}
	for _, id := range e.queue() {
		g := e.waiting[id].Gang
		g.Accepted = true
		all = append(all, Submit{g})
	}
	for _, ev := range all {
		if err := ev.apply(f); err != nil {
			panic(err)
		}
	}
	return f
}
