package schedule

import (
	"cmp"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// quick is place where the counts of the domains say all: of one model, with
// nothing to avoid and nothing warm. It goes down to the domain that place would
// try first, and makes nothing on the way. Unless it is sure, place has to look
// at the others.
func (e *Engine) quick(w *waiter, z size) (f *found, sure bool) {
	models := e.modelsFor(z.request)
	if len(models) != 1 || w.shape.warmModel() != "" || e.cfg.Policy.NoTopology || !e.exact(&z.request, models[0]) {
		return nil, false
	}
	s := e.spotFor(z.request, models[0])
	if s.place == nil {
		return nil, s.none
	}
	end := e.now.Add(w.startup(false) + w.left(z, models[0])).UnixNano()
	return &found{place: s.place, size: z, gpu: models[0], warm: w.shape.load == 0, end: end}, true
}

// outline is all that decides where a request lies that the counts of domains
// answer: many shapes have one.
type outline struct {
	members, perNode, require, narrowest int
	model                                string
}

// spot is where the requests of an outline lie in a state of the cluster.
type spot struct {
	version uint64
	place   gang.Placement // nil where the best aim cannot be met in the first domain
	none    bool           // no domain suffices
}

// maxSpots bounds those that are kept.
const maxSpots = 1024

func (e *Engine) spotFor(r request, model string) spot {
	key := outline{r.members, r.perNode, r.require, r.narrowest, model}
	s, known := e.spots[key]
	if known && s.version == e.cluster.Version() {
		return s
	}
	s = e.findSpot(r, model)
	if len(e.spots) >= maxSpots {
		clear(e.spots)
	}
	e.spots[key] = s
	return s
}

func (e *Engine) findSpot(r request, model string) spot {
	s := spot{version: e.cluster.Version()}
	c := choice{model: model}
	if r.members == 1 {
		if c.node = e.fullest(r.perNode, model); c.node != nil {
			c.domain, c.nodes = e.leaf(c.node), []*cluster.Node{c.node}
		}
	}
	for level := r.narrowest; r.members > 1 && level >= r.require && c.domain == nil; level-- {
		c.domain = e.tightest(r, model, level)
	}
	if s.none = c.domain == nil; s.none {
		return s
	}
	if c.nodes == nil {
		c.nodes = e.eligible(c.domain, r, model, cluster.Free)
	}
	s.place = c.place(r, aims[0])
	return s
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
// the least room; of several, the soundest.
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
		same := best != nil && sameRoom(d, leaf, model)
		if best != nil && !same && !lessRoom(d, leaf, model) {
			return
		}
		for _, n := range d.Nodes() {
			if n.Model != model || n.Free().Count() != k {
				continue
			}
			if !same || soundest(n, best) < 0 {
				best, leaf, same = n, d, true
			}
			if n.Faults() == 0 {
				return // those that follow are later in the order
			}
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
