package schedule

import (
	"cmp"
	"math/big"
	"slices"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// maxMasks bounds how many sets of GPU indexes are tried for a gang whose
// members are smaller than a node; 8 GPUs have at most 70 of one size. Beyond
// it members may get different indexes where equal ones could have been found.
const maxMasks = 128

// aim is what is wished of the GPUs of members smaller than a node: the same
// indexes on each node, and one NVLink island on each.
type aim struct{ rail, island bool }

// aims, best first. The last takes any GPUs.
var aims = []aim{{true, true}, {false, true}, {true, false}, {false, false}}

// within places the request inside one of the domains that suffice: the first
// of those where the best aim can be met.
func (e *Engine) within(r request, found []*choice) (gang.Placement, *choice) {
	if e.cfg.Policy.NoTopology {
		slices.SortStableFunc(found, func(a, b *choice) int { return cmp.Compare(a.first(), b.first()) })
	} else {
		slices.SortFunc(found, (*choice).compare)
	}
	for _, aim := range aims {
		for _, c := range found {
			if c.nodes == nil {
				own := r
				own.warm = c.warm
				c.nodes = e.eligible(c.domain, own, c.model, cluster.Free)
				if r.segment > 0 {
					c.nodes = wholeSegments(c.nodes, r.segment)
				}
			}
			if p := c.place(r, aim); p != nil {
				return p, c
			}
		}
	}
	return nil, nil
}

func (c *choice) first() int {
	if c.node != nil {
		return c.node.Index()
	}
	return c.domain.First()
}

func (c *choice) place(r request, aim aim) gang.Placement {
	if !aim.rail {
		return c.anyIndexes(r, aim.island)
	}
	offers := []offer{masksOf, subsetsOf}
	if c.warm != "" {
		offers = []offer{c.warmOf}
	}
	for _, offer := range offers {
		if p := c.onOneRail(r, masks(c.nodes, r.perNode, aim.island, offer), aim.island); p != nil {
			return p
		}
	}
	return nil
}

// offer lists the sets of k free GPUs of a node that may be taken, best first.
type offer func(n *cluster.Node, k int, island bool) []cluster.Mask

// warmOf offers what is warm.
func (c *choice) warmOf(n *cluster.Node, k int, island bool) []cluster.Mask {
	sets := n.WarmSets(c.warm, k)
	if island {
		sets = slices.DeleteFunc(sets, func(m cluster.Mask) bool { return !inOneIsland(n, m) })
	}
	return sets
}

// onOneRail looks for the set of GPU indexes among masks that enough nodes have
// free, so that rank i of each member sits on the same rail.
func (c *choice) onOneRail(r request, masks []cluster.Mask, island bool) gang.Placement {
	var best []*cluster.Node
	var bestMask cluster.Mask
	for _, mask := range masks {
		fit := filter(c.nodes, func(n *cluster.Node) bool {
			return n.Free().Has(mask) && (!island || inOneIsland(n, mask)) && (c.warm == "" || n.Warm(c.warm, mask))
		})
		if r.segment > 0 {
			fit = wholeSegments(fit, r.segment)
		}
		if len(fit) < r.members {
			continue
		}
		picked := pick(c.domain, fit, r.members)
		if best == nil || compactness(picked, mask).compare(compactness(best, bestMask)) < 0 {
			best, bestMask = picked, mask
		}
	}
	if best == nil {
		return nil
	}
	return placement(best, func(*cluster.Node) cluster.Mask { return bestMask })
}

// anyIndexes lets each member have indexes of its own.
func (c *choice) anyIndexes(r request, island bool) gang.Placement {
	from := masksOf
	if c.warm != "" {
		from = c.warmOf
	}
	best := func(n *cluster.Node) cluster.Mask {
		for _, m := range from(n, r.perNode, island) {
			return m
		}
		return 0
	}
	fit := filter(c.nodes, func(n *cluster.Node) bool { return best(n) != 0 })
	if r.segment > 0 {
		fit = wholeSegments(fit, r.segment)
	}
	if len(fit) < r.members {
		return nil
	}
	return placement(pick(c.domain, fit, r.members), best)
}

func placement(nodes []*cluster.Node, gpus func(*cluster.Node) cluster.Mask) gang.Placement {
	p := make(gang.Placement, len(nodes))
	for i, n := range nodes {
		p[i] = gang.Member{Node: n.ID, GPUs: gpus(n).Indexes()}
	}
	return p
}

// masks collects the sets of k GPUs that nodes offer, without repetition.
func masks(nodes []*cluster.Node, k int, island bool, offer offer) []cluster.Mask {
	var out []cluster.Mask
	seen := make(map[cluster.Mask]bool)
	for _, n := range nodes {
		for _, m := range offer(n, k, island) {
			if !seen[m] && len(out) < maxMasks {
				seen[m] = true
				out = append(out, m)
			}
		}
	}
	return out
}

// masksOf lists sets of k free GPUs of a node, best first: from the island
// with the least room, aligned blocks before others; where GPUs of the node had
// faults, first those with the fewest.
func masksOf(n *cluster.Node, k int, island bool) []cluster.Mask {
	var out []cluster.Mask
	for _, piece := range pieces(n, k, island) {
		for at := 0; at+k <= cluster.MaxGPUsPerNode; at += k {
			if block := piece >> at & (1<<k - 1); block.Count() == k {
				out = append(out, block<<at)
			}
		}
		out = append(out, piece.Lowest(k))
	}
	if n.Faults() > 0 {
		slices.SortStableFunc(out, func(a, b cluster.Mask) int { return cmp.Compare(n.FaultsOf(a), n.FaultsOf(b)) })
	}
	return out
}

// subsetsOf lists all sets of k free GPUs of a node, up to maxMasks.
func subsetsOf(n *cluster.Node, k int, island bool) []cluster.Mask {
	var out []cluster.Mask
	var grow func(chosen, rest cluster.Mask, missing int)
	grow = func(chosen, rest cluster.Mask, missing int) {
		if missing == 0 {
			out = append(out, chosen)
			return
		}
		for ; rest.Count() >= missing && len(out) < maxMasks; rest &= rest - 1 {
			low := rest.Lowest(1)
			grow(chosen|low, rest&^low, missing-1)
		}
	}
	for _, piece := range pieces(n, k, island) {
		grow(0, piece, k)
	}
	return out
}

// pieces lists the parts of a node's free GPUs from which k may be taken: its
// islands, the one with the least room first, or all.
func pieces(n *cluster.Node, k int, island bool) []cluster.Mask {
	if !island {
		return []cluster.Mask{n.Free()}
	}
	var out []cluster.Mask
	for _, i := range n.Islands() {
		if piece := i & n.Free(); piece.Count() >= k {
			out = append(out, piece)
		}
	}
	slices.SortStableFunc(out, func(a, b cluster.Mask) int { return cmp.Compare(a.Count(), b.Count()) })
	return out
}

func inOneIsland(n *cluster.Node, mask cluster.Mask) bool {
	return slices.ContainsFunc(n.Islands(), func(i cluster.Mask) bool { return i.Has(mask) })
}

func filter(nodes []*cluster.Node, keep func(*cluster.Node) bool) []*cluster.Node {
	var out []*cluster.Node
	for _, n := range nodes {
		if keep(n) {
			out = append(out, n)
		}
	}
	return out
}

// spread says how compact a choice of nodes is: first the leaves that it
// touches, then the GPUs free on its nodes, then the faults of those that are
// taken.
type spread struct{ leaves, free, faults int }

func compactness(nodes []*cluster.Node, taken cluster.Mask) spread {
	var s spread
	last := ""
	for _, n := range nodes {
		if leaf := leafOf(n); s.leaves == 0 || leaf != last {
			s.leaves++
			last = leaf
		}
		s.free += n.Free().Count()
		s.faults += n.FaultsOf(taken)
	}
	return s
}

func (s spread) compare(o spread) int {
	return cmp.Or(cmp.Compare(s.leaves, o.leaves), cmp.Compare(s.free, o.free), cmp.Compare(s.faults, o.faults))
}

func leafOf(n *cluster.Node) string {
	if len(n.Domains) == 0 {
		return ""
	}
	return n.Domains[len(n.Domains)-1]
}

// pick chooses want of the nodes that fit, all inside d: from the fewest
// sub-domains, those that leave the least over, and in the narrowest domain
// the nodes with the fewest free GPUs, then with the fewest faults. The result is in rank order.
func pick(d *cluster.Domain, fit []*cluster.Node, want int) []*cluster.Node {
	if len(d.Children()) == 0 {
		chosen := slices.Clone(fit)
		slices.SortStableFunc(chosen, func(a, b *cluster.Node) int {
			return cmp.Or(cmp.Compare(a.Free().Count(), b.Free().Count()), soundest(a, b))
		})
		chosen = chosen[:want]
		slices.SortFunc(chosen, func(a, b *cluster.Node) int { return a.Index() - b.Index() })
		return chosen
	}
	var out []*cluster.Node
	for _, part := range fewest(split(d, fit), want) {
		n := min(want-len(out), len(part.nodes))
		out = append(out, pick(part.domain, part.nodes, n)...)
	}
	return out
}

// part is a sub-domain with those of its nodes that fit.
type part struct {
	domain *cluster.Domain
	nodes  []*cluster.Node
}

// split sorts nodes of d, which come in the order of its sub-domains, by these.
func split(d *cluster.Domain, fit []*cluster.Node) []part {
	var out []part
	for _, k := range d.Children() {
		n := 0
		for n < len(fit) && k.Contains(fit[n]) {
			n++
		}
		if n > 0 {
			out = append(out, part{k, fit[:n]})
		}
		fit = fit[n:]
	}
	return out
}

// fewest chooses as few parts as hold want nodes, and among so few, those that
// leave the least over; of parts of one size the earlier ones. The result keeps
// the order of parts.
func fewest(parts []part, want int) []part {
	groups := bySize(parts)
	n, most := 0, 0
	for _, g := range groups {
		for range g {
			if most < want {
				n, most = n+1, most+len(g[0].nodes)
			}
		}
	}
	chosen := exactly(groups, n, want, most)
	slices.SortFunc(chosen, func(a, b part) int { return a.domain.First() - b.domain.First() })
	return chosen
}

// bySize groups parts with equally many nodes, the largest first.
func bySize(parts []part) [][]part {
	sorted := slices.Clone(parts)
	slices.SortStableFunc(sorted, func(a, b part) int { return cmp.Compare(len(b.nodes), len(a.nodes)) })
	var out [][]part
	for i, p := range sorted {
		if i == 0 || len(p.nodes) != len(sorted[i-1].nodes) {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], p)
	}
	return out
}

// exactly chooses n parts with the least sum of nodes that is at least want; it
// is told that a sum of most can be had.
func exactly(groups [][]part, n, want, most int) []part {
	can := sums(groups, n)
	for want < most && can[0][n].Bit(want) == 0 {
		want++
	}
	var chosen []part
	for i, g := range groups {
		size := len(g[0].nodes)
		for k := min(len(g), n, want/size); k >= 0; k-- {
			if can[i+1][n-k].Bit(want-k*size) == 1 {
				chosen = append(chosen, g[:k]...)
				n, want = n-k, want-k*size
				break
			}
		}
	}
	return chosen
}

// sums tells what can be had: bit s of sums[i][c] is set if c parts of the
// groups from i on have s nodes together.
func sums(groups [][]part, n int) [][]*big.Int {
	can := make([][]*big.Int, len(groups)+1)
	for i := len(groups); i >= 0; i-- {
		can[i] = make([]*big.Int, n+1)
		for c := range can[i] {
			can[i][c] = new(big.Int)
			if i == len(groups) {
				continue
			}
			for k := range min(len(groups[i]), c) + 1 {
				shifted := new(big.Int).Lsh(can[i+1][c-k], uint(k*len(groups[i][0].nodes)))
				can[i][c].Or(can[i][c], shifted)
			}
		}
		if i == len(groups) {
			can[i][0].SetBit(can[i][0], 0, 1)
		}
	}
	return can
}
