package schedule

import (
	"cmp"

	"github.com/gangd/gangd/internal/cluster"
)

// quick is place where the counts of the domains say all: of one model, with
// nothing to avoid and nothing warm. It goes down to the domain that place would
// try first, and makes nothing on the way. Where the best aim cannot be met
// there, it finds nothing, and place has to look at the others.
func (e *Engine) quick(w *waiter, z size) *found {
	models := e.modelsFor(z.request)
	if len(models) != 1 || w.shape.warmModel() != "" || e.cfg.Policy.NoTopology || !e.exact(z.request, models[0]) {
		return nil
	}
	c := choice{model: models[0]}
	if z.members == 1 {
		if c.node = e.fullest(z.perNode, c.model); c.node == nil {
			return nil
		}
		c.domain, c.nodes = e.leaf(c.node), []*cluster.Node{c.node}
	} else {
		for level := z.narrowest; level >= z.require && c.domain == nil; level-- {
			c.domain = e.tightest(z.request, c.model, level)
		}
		if c.domain == nil {
			return nil
		}
		c.nodes = e.eligible(c.domain, z.request, c.model, cluster.Free)
	}
	p := c.place(z.request, aims[0])
	if p == nil {
		return nil
	}
	end := e.now.Add(w.startup(false) + w.left(z, c.model)).UnixNano()
	return &found{place: p, size: z, gpu: c.model, warm: w.shape.load == 0, end: end}
}

// tightest is the domain of a level that has enough nodes and the least room.
func (e *Engine) tightest(r request, model string, level int) *cluster.Domain {
	var best *cluster.Domain
	e.descend(e.cluster.Root(), -1, level, func(d *cluster.Domain) bool {
		return d.NodesWith(cluster.Free, model, r.perNode) >= r.members
	}, func(d *cluster.Domain) {
		if best == nil || lessRoom(d, best, model) {
			best = d
		}
	})
	return best
}

// lessRoom orders domains as choices are: by free room, then by that of those
// around them, then by their first nodes.
func lessRoom(a, b *cluster.Domain, model string) bool {
	first := cmp.Compare(a.First(), b.First())
	for ; a != b && a != nil && b != nil; a, b = a.Parent, b.Parent {
		if by := cmp.Compare(a.GPUs(cluster.Free, model), b.GPUs(cluster.Free, model)); by != 0 {
			return by < 0
		}
	}
	return first < 0
}

// fullest is the node with the fewest free GPUs, k or more, in the domain with
// the least room.
func (e *Engine) fullest(k int, model string) *cluster.Node {
	root := e.cluster.Root()
	if root.NodesWith(cluster.Free, model, k) == 0 {
		return nil
	}
	for root.NodesWith(cluster.Free, model, k) == root.NodesWith(cluster.Free, model, k+1) {
		k++
	}
	var best *cluster.Node
	var leaf *cluster.Domain
	e.descend(root, -1, len(e.cluster.Levels())-1, func(d *cluster.Domain) bool {
		return d.NodesWith(cluster.Free, model, k) > d.NodesWith(cluster.Free, model, k+1)
	}, func(d *cluster.Domain) {
		if best != nil && !lessRoom(d, leaf, model) && !(sameRoom(d, leaf, model) && d.First() < best.Index()) {
			return
		}
		for _, n := range d.Nodes() {
			if n.Model != model || n.Free().Count() != k {
				continue
			}
			if best == nil || !sameRoom(d, leaf, model) || n.Index() < best.Index() {
				best, leaf = n, d
			}
			return
		}
	})
	return best
}

func sameRoom(a, b *cluster.Domain, model string) bool {
	for ; a != b && a != nil && b != nil; a, b = a.Parent, b.Parent {
		if a.GPUs(cluster.Free, model) != b.GPUs(cluster.Free, model) {
			return false
		}
	}
	return true
}
