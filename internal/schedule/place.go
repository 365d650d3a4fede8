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
	need      gang.Need // of each member, beside GPUs
	require   int       // level within one domain of which all must lie; -1: the cluster
	narrowest int       // the level at which the search begins
	warm      string    // a model that all members must find in memory
	avoid     []string
	// segment is a number of members that share a domain of the narrowest level;
	// 0 for none. noSpot keeps off nodes that may be taken away.
	segment int
	noSpot  bool
	// missing is a level that is required and that the cluster no longer has.
	missing string
}

// request turns one size of a gang into what placement needs. A size below
// gpus_per_node is one member. The error is a *gang.RefusedError: the cluster,
// with everything in order and idle, could never run it.
func (e *Engine) request(g Gang, gpus int) (request, error) {
	s := g.Spec
	r := request{perNode: s.GPUsPerNode, model: s.GPU, memoryMiB: s.GPUMemoryMiB, need: s.MemberNeed, segment: s.Topology.Segment,
		require: -1, narrowest: len(e.cluster.Levels()) - 1, avoid: g.Avoid, noSpot: s.Checkpoint == nil}
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
	if gpus < r.perNode {
		r.perNode = gpus
	}
	r.members = gpus / max(r.perNode, 1)
	if r.segment > 0 && r.members%r.segment != 0 {
		r.segment = 0 // a smaller size has none
	}
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

// modelsFor lists those that would do.
func (e *Engine) modelsFor(r request) []string {
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
	for _, model := range e.modelsFor(r) {
		if len(e.sufficient(r, model, r.require, v)) > 0 {
			return true
		}
	}
	return false
}

// found is where a gang could start now.
type found struct {
	place gang.Placement
	size  size
	gpu   string // model
	warm  bool   // all members are
	end   int64  // when it should be over
}

// place finds the placement of a whole gang at one size: on the narrowest level
// with a domain that suffices, where it ends first; of such domains the one with
// the least room, in it the fewest sub-domains and the fullest nodes. A better
// aim goes before less room, and never before an earlier end.
func (e *Engine) place(w *waiter, z size) *found {
	if z.perNode == 0 || z.missing != "" {
		return nil
	}
	z.request = e.relax(z.request)
	if f, sure := e.quick(w, z); sure {
		return f
	}
	return e.placeAnyhow(w, z)
}

// placeAnyhow is place by looking at all choices.
func (e *Engine) placeAnyhow(w *waiter, z size) *found {
	if z.members == 1 {
		return e.soonest(w, z, e.singleNodes(z.request, w.shape.warmModel()))
	}
	for level := z.narrowest; level >= z.require; level-- {
		if e.cfg.Policy.NoTopology {
			level = z.require
		}
		var found []*choice
		for _, model := range e.modelsFor(z.request) {
			for _, d := range e.sufficient(z.request, model, level, cluster.Free) {
				found = append(found, &choice{domain: d, model: model})
			}
			if warm := w.shape.warmModel(); warm != "" {
				r := z.request
				r.warm = warm
				for _, d := range e.sufficient(r, model, level, cluster.Free) {
					found = append(found, &choice{domain: d, model: model, warm: warm})
				}
			}
		}
		if len(found) > 0 {
			return e.soonest(w, z, found)
		}
	}
	return nil
}

// warmModel is the model whose weights make a difference; empty for none.
func (s *shape) warmModel() string {
	if s.load > 0 {
		return s.model
	}
	return ""
}

// soonest places a gang inside one of the domains in which it ends first.
func (e *Engine) soonest(w *waiter, z size, choices []*choice) *found {
	for _, c := range choices {
		c.end = e.now.Add(w.startup(c.warm != "") + w.left(z, c.model)).UnixNano()
	}
	slices.SortStableFunc(choices, func(a, b *choice) int { return cmp.Compare(a.end, b.end) })
	for len(choices) > 0 {
		same := 1
		for same < len(choices) && choices[same].end == choices[0].end {
			same++
		}
		if p, c := e.within(z.request, choices[:same]); p != nil {
			return &found{place: p, size: z, gpu: c.model, warm: c.warm != "" || w.shape.load == 0, end: c.end}
		}
		choices = choices[same:]
	}
	return nil
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
func (e *Engine) singleNodes(r request, warm string) []*choice {
	var found []*choice
	for _, model := range e.modelsFor(r) {
		for _, n := range e.eligible(e.cluster.Root(), r, model, cluster.Free) {
			found = append(found, &choice{domain: e.leaf(n), model: model, node: n, nodes: []*cluster.Node{n}})
			if warm != "" && len(n.WarmSets(warm, r.perNode)) > 0 {
				found = append(found, &choice{domain: e.leaf(n), model: model, node: n, nodes: []*cluster.Node{n}, warm: warm})
			}
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
	warm   string // the model that all its members find in memory
	end    int64
	// nodes are those that could each take a member, once they were asked for.
	nodes []*cluster.Node
}

// soundest orders nodes that would do equally well: by the fewest faults, then
// by their own order.
func soundest(a, b *cluster.Node) int {
	return cmp.Or(cmp.Compare(a.Faults(), b.Faults()), cmp.Compare(a.Index(), b.Index()))
}

// compare prefers less free room, then less in the enclosing domain, level by
// level upward, then the fewest faults and the order of the nodes.
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
		return soundest(c.node, b.node)
	}
	return cmp.Compare(c.domain.First(), b.domain.First())
}

// sufficient lists the domains of a level that have enough nodes for the whole
// request; -1 is the cluster.
func (e *Engine) sufficient(r request, model string, level int, v cluster.View) []*cluster.Domain {
	var out []*cluster.Domain
	exact := e.exact(&r, model)
	e.descend(e.cluster.Root(), -1, level, func(d *cluster.Domain) bool {
		return d.NodesWith(v, model, r.perNode) >= r.members
	}, func(d *cluster.Domain) {
		if exact || r.holds(e.eligible(d, r, model, v)) {
			out = append(out, d)
		}
	})
	return out
}

// exact requests are answered by the counts of the domains alone.
func (e *Engine) exact(r *request, model string) bool {
	return (r.memoryMiB == 0 || r.memoryMiB <= e.cluster.LeastMemory(model)) && !e.scarce(r, model) && len(r.avoid) == 0 && r.segment == 0 && r.warm == "" && (!r.noSpot || e.cluster.Spots() == 0)
}

// scarce reports whether nodes may run out of CPU or memory for the request
// before they run out of GPUs.
func (e *Engine) scarce(r *request, model string) bool {
	return r.need != gang.Need{} && (e.cluster.Tight(model) > 0 || !e.cluster.Expects(r.need, r.perNode))
}

// holds reports whether nodes, each of which could take a member, are enough.
func (r request) holds(fit []*cluster.Node) bool {
	if r.segment == 0 {
		return len(fit) >= r.members
	}
	return len(wholeSegments(fit, r.segment)) >= r.members
}

// wholeSegments leaves out of each domain of the narrowest level the nodes that
// make no whole segment: those with the most room.
func wholeSegments(fit []*cluster.Node, segment int) []*cluster.Node {
	var out []*cluster.Node
	for len(fit) > 0 {
		n := 1
		for n < len(fit) && sameLeaf(fit[n], fit[0]) {
			n++
		}
		leaf := slices.Clone(fit[:n])
		slices.SortStableFunc(leaf, func(a, b *cluster.Node) int {
			return cmp.Or(cmp.Compare(a.Free().Count(), b.Free().Count()), cmp.Compare(a.Faults(), b.Faults()))
		})
		leaf = leaf[:n/segment*segment]
		slices.SortFunc(leaf, func(a, b *cluster.Node) int { return cmp.Compare(a.Index(), b.Index()) })
		out = append(out, leaf...)
		fit = fit[n:]
	}
	return out
}

func sameLeaf(a, b *cluster.Node) bool {
	last := len(a.Domains) - 1
	return last < 0 || a.Domain(last) == b.Domain(last)
}

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
		if d.NodesWith(v, model, r.perNode) == 0 {
			return
		}
		for _, k := range d.Children() {
			walk(k)
		}
		for _, n := range d.Nodes() {
			if n.Model == model && n.MemoryMiB >= r.memoryMiB && n.In(v).Count() >= r.perNode && r.takes(n, v) {
				out = append(out, n)
			}
		}
	}
	walk(d)
	return out
}

// takes reports whether the request may have members on a node, however many
// GPUs the view shows there.
func (r request) takes(n *cluster.Node, v cluster.View) bool {
	return n.Fits(v, r.need) && (!r.noSpot || !n.Spot) && !slices.Contains(r.avoid, n.ID) && (r.warm == "" || len(n.WarmSets(r.warm, r.perNode)) > 0)
}

// Check tells whether the cluster, with everything in order and idle, could
// run the gang, and returns the GPUs that each of its members would have. It
// leaves nothing behind. Its error is a *gang.RefusedError.
func (e *Engine) Check(s gang.Spec) (perNode int, err error) {
	if e.tier(s.Tier) == nil {
		return 0, e.noTier(s.Tier)
	}
	unknown := e.unknown
	_, known := e.tenants[s.Tenant]
	w, err := e.newWaiter(Gang{Spec: &s}, e.tier(s.Tier))
	if !known {
		delete(e.tenants, s.Tenant)
	}
	if e.unknown = unknown; err != nil {
		return 0, err
	}
	e.forgetShape(w.shape)
	return w.shape.sizes[0].perNode, nil
}
