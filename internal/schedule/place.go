package schedule

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// request is what placement needs to know of a gang.
type request struct {
	members   int
	perNode   int
	model     string // empty for any one model
	memoryMiB int
	require   int // level within one domain of which all must lie; -1: the cluster
	narrowest int // the level at which the search begins
	avoid     []string
	// missing is a level that is required and that the cluster no longer has.
	missing string
}

// request checks a gang against the cluster as it would be with everything in
// order and idle, and turns it into what placement needs. Its error is a
// *gang.RefusedError: the gang can never run here.
func (e *Engine) request(g Gang) (request, error) {
	s := g.Spec
	r := request{perNode: s.GPUsPerNode, model: s.GPU, memoryMiB: s.GPUMemoryMiB, require: -1, narrowest: len(e.cluster.Levels()) - 1, avoid: g.Avoid}
	for _, l := range []struct {
		field, name string
		into        *int
	}{{"require", s.Topology.Require, &r.require}, {"prefer", s.Topology.Prefer, &r.narrowest}} {
		if l.name == "" {
			continue
		}
		at, known := e.cluster.Level(l.name)
		if !known && g.Accepted {
			if l.into == &r.require {
				r.missing = l.name
			}
			continue
		}
		if !known {
			return r, gang.RefuseField("topology."+l.field, "the cluster has no level %q: it has %s, widest first", l.name, strings.Join(e.cluster.Levels(), ", "))
		}
		*l.into = at
	}
	r.narrowest = max(r.narrowest, r.require)
	if r.perNode == 0 {
		r.perNode = e.defaultPerNode(s)
	}
	r.members = s.GPUs / max(r.perNode, 1)
	if !g.Accepted && (r.perNode == 0 || !e.everFits(r)) {
		return r, e.neverFits(s, r)
	}
	return r, nil
}

// defaultPerNode is the largest divisor of the gang's GPUs that fits the
// largest node; 0 where there is no node.
func (e *Engine) defaultPerNode(s *gang.Spec) int {
	largest := 0
	for _, n := range e.cluster.Nodes() {
		if s.GPU == "" || s.GPU == n.Model {
			largest = max(largest, len(n.GPUs))
		}
	}
	for k := min(largest, s.GPUs); k > 0; k-- {
		if s.GPUs%k == 0 {
			return k
		}
	}
	return 0
}

// models lists those that would do.
func (e *Engine) models(r request) []string {
	if r.model != "" {
		return []string{r.model}
	}
	return e.cluster.Models()
}

// everFits reports whether the cluster could run the request with everything
// in order and idle; couldRun whether it could with what is in order now.
func (e *Engine) everFits(r request) bool { return e.anyDomain(r.anywhere(), cluster.Total) }
func (e *Engine) couldRun(r request) bool {
	return r.perNode > 0 && e.anyDomain(r.anywhere(), cluster.Usable)
}

// anywhere is the request without anything that is to be avoided.
func (r request) anywhere() request {
	r.avoid = nil
	return r
}

// anyDomain reports whether a domain that is wide enough suffices.
func (e *Engine) anyDomain(r request, v cluster.View) bool {
	if r.missing != "" {
		return false
	}
	for _, model := range e.models(r) {
		if len(e.sufficient(r, model, r.require, v)) > 0 {
			return true
		}
	}
	return false
}

// place finds the placement of a whole gang: on the narrowest level with a
// domain that suffices, the domain with the least room, in it the fewest
// sub-domains and the fullest nodes. A better aim goes before less room, and
// never before a narrower level.
func (e *Engine) place(r request) (gang.Placement, bool) {
	if r.perNode == 0 || r.missing != "" {
		return nil, false
	}
	r = e.relax(r)
	if r.members == 1 {
		return e.within(r, e.singleNodes(r))
	}
	for level := r.narrowest; level >= r.require; level-- {
		var found []*choice
		for _, model := range e.models(r) {
			for _, d := range e.sufficient(r, model, level, cluster.Free) {
				found = append(found, &choice{domain: d, model: model})
			}
		}
		if len(found) > 0 {
			return e.within(r, found)
		}
	}
	return nil, false
}

// relax drops what is to be avoided where the gang could not run without it.
func (e *Engine) relax(r request) request {
	if len(r.avoid) > 0 && !e.anyDomain(r, cluster.Usable) {
		r.avoid = nil
	}
	return r
}

// singleNodes lists the nodes that would do for a gang of one member: a node is
// the narrowest domain.
func (e *Engine) singleNodes(r request) []*choice {
	var found []*choice
	for _, model := range e.models(r) {
		for _, n := range e.eligible(e.cluster.Root(), r, model, cluster.Free) {
			found = append(found, &choice{domain: e.leaf(n), model: model, node: n, nodes: []*cluster.Node{n}})
		}
	}
	return found
}

// leaf returns the domain of the narrowest level that the node is in.
func (e *Engine) leaf(n *cluster.Node) *cluster.Domain {
	if levels := len(e.cluster.Levels()); levels > 0 {
		return n.Domain(levels - 1)
	}
	return e.cluster.Root()
}

// choice is a domain that suffices, or a node in it that does.
type choice struct {
	domain *cluster.Domain
	model  string
	node   *cluster.Node
	// nodes are those that could each take a member, once they were asked for.
	nodes []*cluster.Node
}

// compare prefers less free room, then less in the enclosing domain, level by
// level upward, then the order of the nodes.
func (c *choice) compare(b *choice) int {
	if c.node != nil && b.node != nil {
		if by := cmp.Compare(c.node.Free().Count(), b.node.Free().Count()); by != 0 {
			return by
		}
	}
	for d, o := c.domain, b.domain; d != nil && o != nil; d, o = d.Parent, o.Parent {
		if by := cmp.Compare(d.GPUs(cluster.Free, c.model), o.GPUs(cluster.Free, b.model)); by != 0 {
			return by
		}
	}
	if c.node != nil && b.node != nil {
		return cmp.Compare(c.node.Index(), b.node.Index())
	}
	return cmp.Compare(c.domain.First(), b.domain.First())
}

// sufficient lists the domains of a level that have enough nodes for the whole
// request; -1 is the cluster.
func (e *Engine) sufficient(r request, model string, level int, v cluster.View) []*cluster.Domain {
	var out []*cluster.Domain
	e.descend(e.cluster.Root(), -1, level, func(d *cluster.Domain) bool {
		return d.NodesWith(v, model, r.perNode) >= r.members
	}, func(d *cluster.Domain) {
		if r.exact() || len(e.eligible(d, r, model, v)) >= r.members {
			out = append(out, d)
		}
	})
	return out
}

// exact requests are answered by the counts of the domains alone.
func (r request) exact() bool { return r.memoryMiB == 0 && len(r.avoid) == 0 }

// descend visits the domains of a level, below those that pass.
func (e *Engine) descend(d *cluster.Domain, at, level int, pass func(*cluster.Domain) bool, visit func(*cluster.Domain)) {
	if !pass(d) {
		return
	}
	if at == level {
		visit(d)
		return
	}
	for _, k := range d.Children() {
		e.descend(k, at+1, level, pass, visit)
	}
}

// eligible lists the nodes of a domain that could each take a member.
func (e *Engine) eligible(d *cluster.Domain, r request, model string, v cluster.View) []*cluster.Node {
	var out []*cluster.Node
	var walk func(*cluster.Domain)
	walk = func(d *cluster.Domain) {
		for _, k := range d.Children() {
			walk(k)
		}
		for _, n := range d.Nodes() {
			if n.Model == model && n.MemoryMiB >= r.memoryMiB && n.In(v).Count() >= r.perNode && !slices.Contains(r.avoid, n.ID) {
				out = append(out, n)
			}
		}
	}
	walk(d)
	return out
}

// Check tells whether the cluster, with everything in order and idle, could
// run the gang, and returns the GPUs that each of its members would have. Its
// error is a *gang.RefusedError.
func (e *Engine) Check(s gang.Spec) (perNode int, err error) {
	if e.tier(s.Tier) == nil {
		return 0, e.noTier(s.Tier)
	}
	r, err := e.request(Gang{Spec: &s})
	return r.perNode, err
}
