package sim

import (
	"slices"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/schedule"
)

// node is a node as it truly is.
type node struct {
	spec    cluster.Spec // as the scenario declares it
	down    bool
	drained bool
	bad     cluster.Mask // GPUs
	// goneAt is when a spot node that has its notice will be gone.
	goneAt  time.Duration
	noticed bool
	// factor is how much longer members take here.
	factor float64

	held     cluster.Mask
	attempts []*attempt // with a member here, oldest first
	// capacity and idle are how many GPUs could be held, and are not held, as
	// they are in the account.
	capacity, idle int
}

// observed is what a cluster would show of the node.
func (n *node) observed() cluster.Spec {
	s := n.spec
	s.GPUs = slices.Clone(s.GPUs)
	for i := range s.GPUs {
		if g := &s.GPUs[i]; n.bad.Has(1 << g.Index) {
			g.Healthy, g.Reason = false, "it has failed"
		}
	}
	s.Draining = n.drained
	if n.noticed {
		s.GoneAt = epoch.Add(n.goneAt)
	}
	switch {
	case n.down:
		s.Why = "it is down"
	case n.noticed:
		s.Why = "it will be taken away"
	case n.drained:
		s.Why = "it is drained"
	}
	s.Schedulable = s.Why == ""
	return s
}

// usable are the GPUs that a new member could have if nothing ran.
func (n *node) usable() cluster.Mask {
	if n.down || n.drained || n.noticed {
		return 0
	}
	return cluster.MaskOf(n.indexes()) &^ n.bad
}

func (n *node) indexes() []int {
	out := make([]int, len(n.spec.GPUs))
	for i, g := range n.spec.GPUs {
		out[i] = g.Index
	}
	return out
}

// changed tells the engine of a node, and the account.
func (w *world) changed(n *node) {
	w.inform(schedule.NodeSet{Node: n.observed()})
	w.recount(n)
}

// recount brings the account up to date on a node.
func (w *world) recount(n *node) {
	usable := n.usable()
	capacity, idle := (usable | n.held).Count(), (usable &^ n.held).Count()
	w.account.capacity += capacity - n.capacity
	w.account.idle += idle - n.idle
	if tell := w.options.Capacity; tell != nil && capacity != n.capacity {
		tell(w.now, n.spec.ID, capacity)
	}
	n.capacity, n.idle = capacity, idle
}

// occupy gives an attempt its GPUs, and vacate takes them back.
func (w *world) occupy(a *attempt) {
	for _, m := range a.members {
		n := w.nodes[m.Node]
		n.held |= cluster.MaskOf(m.GPUs)
		n.attempts = append(n.attempts, a)
		w.recount(n)
	}
}

func (w *world) vacate(a *attempt) {
	for i, m := range a.members {
		n := w.nodes[m.Node]
		n.held &^= cluster.MaskOf(m.GPUs)
		n.attempts = slices.DeleteFunc(n.attempts, func(o *attempt) bool { return o == a })
		w.recount(n)
		w.inform(schedule.Release{Seat: schedule.Seat{ID: a.job.ID, Attempt: a.number, Member: i}})
	}
}
