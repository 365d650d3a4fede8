package schedule

import (
	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

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
		if s.GPU != "" && s.GPU != n.Model || n.MemoryMiB < s.GPUMemoryMiB || n.In(v).Count() < s.GPUsPerNode {
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

// fits is the oracle's answer for now, with what the gang avoids left out where
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
	c := Config{Levels: e.Cluster().Levels()}
	for _, t := range e.tiers {
		c.Tiers = append(c.Tiers, t.Tier)
	}
	f := New(c)
	var all Together
	for _, n := range e.Cluster().Nodes() {
		all = append(all, NodeSet{n.Spec})
	}
	for seat, member := range e.seats {
		all = append(all, Adopt{seat, member})
	}
	for _, t := range e.tiers {
		for _, w := range t.queue {
			g := w.Gang
			g.Accepted = true
			all = append(all, Submit{g})
		}
	}
	for _, ev := range all {
		if err := ev.apply(f); err != nil {
			panic(err)
		}
	}
	return f
}

// domainOf names the domain of a level that a node is in, with those around
// it; level -1 is the cluster.
func domainOf(e *Engine, m gang.Member, level int) string {
	name := ""
	for _, d := range e.Cluster().Node(m.Node).Domains[:level+1] {
		name += d + "/"
	}
	return name
}
