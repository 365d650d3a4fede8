package schedule

import (
	"slices"

	"github.com/gangd/gangd/internal/cluster"
)

// potential bounds what preemption could do: the GPUs that nodes would have if
// all that may be stopped were gone, and how many nodes of each domain would have
// so many. What is decided after it was found only makes that less: what starts
// takes what was free, and who is told to stop is no candidate any more.
type potential struct {
	decision uint64 // for which it was found, by its number
	free     []cluster.Mask
	at       []int // the place of a node's narrowest domain in its tree
	trees    []tree
	// claims of the round are taken off, touched are the bays that they are on.
	round   uint64
	claims  int
	touched []*bay
	counted []int // the GPUs with which a node is counted
}

// tree is the domains that have nodes of one GPU model.
type tree struct {
	model string
	// levels[level+1] are those of a level, in their order; -1 is the cluster.
	levels [][]branch
	// most[level+1][k] is the largest number of nodes with k GPUs in any domain of
	// a level, whatever is claimed.
	most [][]int
}

// branch is a domain with those of its nodes that would have so many GPUs or more.
type branch struct {
	domain *cluster.Domain
	up     int // its place among those of the level above
	with   []int
}

// mayFree reports whether the end of all that may be stopped for a tier could
// make room for a gang, if nobody had a claim to it.
func (e *Engine) mayFree(t *tier, z size) bool {
	p := e.potentialOf(t)
	return slices.ContainsFunc(p.trees, func(tr tree) bool {
		most := tr.most[z.require+1]
		return z.takes(tr.model) && z.perNode < len(most) && most[z.perNode] >= z.members
	})
}

func (z size) takes(model string) bool { return z.model == "" || z.model == model }

// potentialOf is the potential of those who may be stopped for gangs of a tier,
// found once in a decision.
func (e *Engine) potentialOf(t *tier) *potential {
	if t.potential.decision != e.decision {
		e.findPotential(&t.potential, e.below(t))
	}
	return &t.potential
}

// clearable lists the domains of a model in which a gang could have room beside
// what is claimed: in no other are victims worth a search.
func (e *Engine) clearable(p *potential, z size, model string) []*cluster.Domain {
	e.takeOff(p)
	var out []*cluster.Domain
	for _, tr := range p.trees {
		if tr.model != model {
			continue
		}
		for _, b := range tr.levels[z.require+1] {
			if z.perNode < len(b.with) && b.with[z.perNode] >= z.members {
				out = append(out, b.domain)
			}
		}
	}
	return out
}

// findPotential makes a potential anew, in what the last one used.
func (e *Engine) findPotential(p *potential, all []candidate) {
	p.decision, p.round, p.claims, p.touched = e.decision, e.round, 0, p.touched[:0]
	p.free = slices.Grow(p.free[:0], len(e.bays))[:len(e.bays)]
	p.at = slices.Grow(p.at[:0], len(e.bays))[:len(e.bays)]
	p.counted = slices.Grow(p.counted[:0], len(e.bays))[:len(e.bays)]
	clear(p.free)
	clear(p.counted)
	for i := range p.at {
		p.at[i] = -1 // where nothing may run it is in no tree
	}
	for _, c := range all {
		for _, s := range c.run.seats {
			if s != nil {
				p.free[s.node.Index()] |= s.gpus
			}
		}
	}
	models := e.cluster.Models()
	p.trees = slices.Grow(p.trees[:0], len(models))[:len(models)]
	for i, model := range models {
		tr := &p.trees[i]
		tr.model = model
		levels := len(e.cluster.Levels()) + 1
		tr.levels = slices.Grow(tr.levels[:0], levels)[:levels]
		tr.most = make([][]int, levels)
		for i := range tr.levels {
			tr.levels[i] = tr.levels[i][:0]
			tr.most[i] = make([]int, len(e.calendar.times)+1)
		}
		p.count(tr, e.cluster.Root(), 0, -1)
	}
}

// count counts the nodes of a domain, and of those in it, by the GPUs that they
// would have.
func (p *potential) count(tr *tree, d *cluster.Domain, level, up int) {
	if d.NodesWith(cluster.Usable, tr.model, 1) == 0 {
		return
	}
	at := len(tr.levels[level])
	with := tr.add(level, branch{domain: d, up: up})
	for _, n := range d.Nodes() {
		if n.Model == tr.model {
			i := n.Index()
			p.free[i] = n.Free() | p.free[i]&n.Usable()
			p.at[i], p.counted[i] = at, p.free[i].Count()
			with[p.counted[i]]++
		}
	}
	for _, k := range d.Children() {
		p.count(tr, k, level+1, at)
	}
	if level > 0 {
		for k, n := range with {
			tr.levels[level-1][up].with[k] += n
		}
	}
	sum := 0
	for k, n := range slices.Backward(with) {
		sum += n
		with[k] = sum
		tr.most[level][k] = max(tr.most[level][k], sum)
	}
}

// add adds a branch, with counts of nothing that it returns.
func (tr *tree) add(level int, b branch) []int {
	list, n := tr.levels[level], len(tr.most[level])
	if len(list) < cap(list) {
		b.with = list[:len(list)+1][len(list)].with[:0] // of the last potential
	}
	b.with = slices.Grow(b.with, n)[:n]
	clear(b.with)
	tr.levels[level] = append(list, b)
	return b.with
}

// takeOff takes off what is claimed since, and puts back what no longer is.
func (e *Engine) takeOff(p *potential) {
	if p.round != e.round { // all were dropped, and some may have come again
		for _, b := range p.touched {
			p.recount(b)
		}
		p.round, p.claims, p.touched = e.round, 0, p.touched[:0]
	}
	for _, c := range e.claims[p.claims:] {
		for _, h := range c.at {
			p.recount(h.bay)
			p.touched = append(p.touched, h.bay)
		}
	}
	p.claims = len(e.claims)
}

// recount counts a node with what it would have beside what is claimed.
func (p *potential) recount(b *bay) {
	i := b.node.Index()
	if p.at[i] < 0 {
		return
	}
	before, after := p.counted[i], (p.free[i] &^ b.claimed).Count()
	if before == after {
		return
	}
	p.counted[i] = after
	for t := range p.trees {
		if p.trees[t].model == b.node.Model {
			p.trees[t].move(p.at[i], before, after)
		}
	}
}

// move counts a node that has another number of GPUs than before in its domains.
func (tr *tree) move(at, before, after int) {
	for _, list := range slices.Backward(tr.levels) {
		for k := before; k > after; k-- {
			list[at].with[k]--
		}
		for k := before + 1; k <= after; k++ {
			list[at].with[k]++
		}
		at = list[at].up
	}
}
