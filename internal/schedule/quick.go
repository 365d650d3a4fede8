package schedule

import (
	"cmp"
	"math"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// quick is place where the counts of the domains say all: of one model, with
// nothing to avoid and nothing warm. It goes down to the domain that place would
// try first, and makes nothing on the way. Unless it is sure, place has to look
// at the others.
func (e *Engine) quick(w *waiter, z size) (f *found, sure bool) { return e.quickBeside(w, z, none) }

// none is before the claims of all.
const none = int64(math.MinInt64)

// quickBeside is quick on what nobody has a claim to that begins before a time.
func (e *Engine) quickBeside(w *waiter, z size, before int64) (f *found, sure bool) {
	model, plain := e.plain(&z.request)
	barred := before != none && len(e.closing) > 0 // nodes that will be out of use
	if !plain || barred || w.shape.warmModel() != "" || e.cfg.Policy.NoTopology {
		return nil, false
	}
	s := e.spotFor(z.request, model, before)
	if s.place == nil {
		return nil, s.none
	}
	end := e.now.Add(w.startup(false) + w.left(z, model)).UnixNano()
	return &found{place: s.place, size: z, gpu: model, warm: w.shape.load == 0, end: end}, true
}

// plain requests are answered by the counts of the domains for one model.
func (e *Engine) plain(r *request) (model string, is bool) {
	models := e.modelsFor(*r)
	if len(models) != 1 || !e.exact(r, models[0]) {
		return "", false
	}
	return models[0], true
}

// outline is all that decides where a plain request lies, and why it does not:
// many shapes have one.
type outline struct {
	members, perNode, require, narrowest int
	model                                string
	// fenced counts the claims that begin before some time: as the time is later,
	// there are more of them, and none is left out.
	fenced int
}

// spot is where the requests of an outline lie in a state of the cluster, and
// with the same claims, if there are some that are fenced.
type spot struct {
	version, edition uint64
	place            gang.Placement // nil where the best aim cannot be met in the first domain
	none             bool           // no domain suffices
}

// maxSpots bounds those that are kept.
const maxSpots = 1024

func (e *Engine) spotFor(r request, model string, before int64) spot {
	key := outline{r.members, r.perNode, r.require, r.narrowest, model, e.claimsBefore(before)}
	s, known := e.spots[key]
	if known && s.version == e.cluster.Version() && (key.fenced == 0 || s.edition == e.edition) {
		return s
	}
	version := e.cluster.Version()
	mark := e.cluster.Mark()
	e.fence(nil, before)
	s = e.findSpot(r, model)
	e.cluster.Rollback(mark)
	s.version, s.edition = version, e.edition
	if len(e.spots) >= maxSpots {
		clear(e.spots)
	}
	e.spots[key] = s
	return s
}

// claimsBefore counts the claims that begin before a time.
func (e *Engine) claimsBefore(before int64) int {
	n := 0
	for _, c := range e.claims {
		if c.from < before {
			n++
		}
	}
	return n
}

func (e *Engine) findSpot(r request, model string) spot {
	var s spot
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
