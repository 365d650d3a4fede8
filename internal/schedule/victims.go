package schedule

import (
	"cmp"
	"math"
	"slices"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// search looks for victims within one domain.
type search struct {
	e    *Engine
	want int // members
	k    int // GPUs of each
	need gang.Need
	// scarce: something else than GPUs may be short.
	scarce bool
	yards  []*yard
	// room counts the yards that have room for a member as they are, with nobody
	// to leave; crowded are the others.
	room    int
	crowded []*yard
	cands   []candidate
	// at lists, for each candidate, where its end frees something.
	at   [][]*yard
	gone []bool // of the candidates, those that are chosen
}

// yard is a node with what is free on it, or would be.
type yard struct {
	node *cluster.Node
	free cluster.Mask
	left cluster.Room
	// on are the candidates that hold something here, cheapest first.
	on []guest
	// price is the loss for which a member would have room here beside those that
	// are gone; infinite where it would not. taken is for one that will have it.
	price float64
	taken bool
}

// guest is what the end of a candidate frees on a node.
type guest struct {
	cand int
	gpus cluster.Mask
	need gang.Need
}

// vacancy is what a yard would have.
type vacancy struct {
	free cluster.Mask
	left cluster.Room
}

// with is a vacancy of a yard once a guest is gone.
func (y *yard) with(v vacancy, g guest) vacancy {
	v.free |= g.gpus
	if g.need != (gang.Need{}) {
		v.left = v.left.Plus(y.node.Cost(g.need))
	}
	return v
}

// suffices reports whether a vacancy of a yard has room for a member.
func (s *search) suffices(y *yard, v vacancy) bool {
	return v.free.Count() >= s.k && (!s.scarce || y.node.Holds(v.left, s.need))
}

// newSearch begins with the nodes that have room, and those where somebody may
// leave; what one candidate leaves comes in a row. Nodes that will be out of use
// before an end would not do.
func (e *Engine) newSearch(z size, d *cluster.Domain, model string, from []leaving, end int64) *search {
	s := &search{e: e, want: z.members, k: z.perNode, need: z.need, scarce: e.scarce(&z.request, model)}
	free := e.eligible(d, z.request, model, cluster.Free)
	s.yards = make([]*yard, 0, len(free)+len(from))
	slab := make([]yard, 0, len(free)+len(from))
	e.yards = slices.Grow(e.yards[:0], len(e.bays))[:len(e.bays)]
	add := func(n *cluster.Node) *yard {
		y := e.yards[n.Index()]
		if y == nil {
			slab = append(slab, yard{node: n, free: n.Free() &^ e.bay(n).claimed, left: n.Left(cluster.Free)})
			y = &slab[len(slab)-1]
			e.yards[n.Index()] = y
			s.yards = append(s.yards, y)
		}
		return y
	}
	for _, n := range free {
		if !e.bay(n).shuts(end) {
			add(n)
		}
	}
	s.invite(from, add)
	slices.SortFunc(s.yards, func(a, b *yard) int { return cmp.Compare(a.node.Index(), b.node.Index()) })
	for _, y := range s.yards {
		e.yards[y.node.Index()] = nil
		if s.suffices(y, vacancy{y.free, y.left}) {
			s.room++
		} else {
			s.crowded = append(s.crowded, y)
		}
	}
	return s
}

// invite notes the candidates, and what each has on which yard.
func (s *search) invite(from []leaving, yardOf func(*cluster.Node) *yard) {
	where := make([]*yard, 0, len(from))
	for _, l := range from {
		y := yardOf(l.node)
		c := len(s.cands) - 1
		if c < 0 || s.cands[c].run != l.run {
			c++
			s.cands = append(s.cands, l.candidate)
			s.at = append(s.at, nil)
		}
		if last := len(y.on) - 1; last >= 0 && y.on[last].cand == c { // two members of it are here
			y.on[last].gpus |= l.gpus
			y.on[last].need = y.on[last].need.Plus(l.need)
			continue
		}
		y.on = append(y.on, guest{c, l.gpus, l.need})
		where = append(where, y)
		s.at[c] = where[len(where)-len(s.at[c])-1:]
	}
	s.gone = make([]bool, len(s.cands))
}

// victims is the cheapest set that frees enough, if it is better than another.
func (s *search) victims(than *victims) *victims {
	if !s.enoughOfAll() {
		return nil
	}
	if len(s.cands) <= maxExact {
		return s.exact(than)
	}
	s.e.Counts.CutSearches++
	return s.byNode()
}

// enoughOfAll reports whether the end of all candidates frees room for all
// members.
func (s *search) enoughOfAll() bool {
	for i := range s.gone {
		s.gone[i] = true
	}
	enough := s.enough()
	clear(s.gone)
	return enough
}

// enough reports whether there is room for all members once those are gone who
// are chosen.
func (s *search) enough() bool {
	n := s.room
	for _, y := range s.crowded {
		if n >= s.want {
			break
		}
		if s.suffices(y, s.vacant(y)) {
			n++
		}
	}
	return n >= s.want
}

// vacant is what a yard has once those are gone who are chosen.
func (s *search) vacant(y *yard) vacancy {
	v := vacancy{y.free, y.left}
	for _, g := range y.on {
		if s.gone[g.cand] {
			v = y.with(v, g)
		}
	}
	return v
}

// exact weighs every set of candidates.
func (s *search) exact(than *victims) *victims {
	best := than
	var try func(i int, loss float64)
	try = func(i int, loss float64) {
		if best != nil && loss > best.loss {
			return
		}
		if s.enough() {
			v := &victims{loss: loss}
			for c, gone := range s.gone {
				if gone {
					v.runs = append(v.runs, s.cands[c].run)
				}
			}
			if v.better(best) {
				best = v
			}
			return
		}
		for c := i; c < len(s.cands); c++ {
			s.gone[c] = true
			try(c+1, loss+s.cands[c].loss)
			s.gone[c] = false
		}
	}
	try(0, 0)
	if best == than {
		return nil
	}
	return best
}

// byNode takes the cheapest nodes one after another; a gang that is stopped for
// one is free of charge on the others. Who is not needed is spared in the end,
// the dearest first.
func (s *search) byNode() *victims {
	for _, y := range s.yards {
		y.price = s.priceOf(y)
	}
	for range s.want {
		var best *yard
		for _, y := range s.yards {
			if !y.taken && !math.IsInf(y.price, 1) && (best == nil || y.price < best.price) {
				best = y
			}
			if best != nil && best.price == 0 {
				break
			}
		}
		if best == nil {
			return nil
		}
		best.taken = true
		s.clear(best)
	}
	return s.spare()
}

// priceOf is the least loss for which a yard has room, beside those that are gone
// already.
func (s *search) priceOf(y *yard) float64 {
	v := s.vacant(y)
	price := 0.0
	for _, g := range y.on {
		if s.suffices(y, v) {
			return price
		}
		if !s.gone[g.cand] {
			v = y.with(v, g)
			price += s.cands[g.cand].loss
		}
	}
	if s.suffices(y, v) {
		return price
	}
	return math.Inf(1)
}

// clear has those of a yard go for whom that price is paid.
func (s *search) clear(y *yard) {
	v := s.vacant(y)
	for _, g := range y.on {
		if s.suffices(y, v) {
			return
		}
		if s.gone[g.cand] {
			continue
		}
		v = y.with(v, g)
		s.gone[g.cand] = true
		for _, other := range s.at[g.cand] {
			other.price = s.priceOf(other)
		}
	}
}

func (s *search) spare() *victims {
	room := s.room
	for _, y := range s.crowded {
		room += btoi(s.suffices(y, s.vacant(y)))
	}
	v := &victims{}
	for i := len(s.cands) - 1; i >= 0; i-- {
		if s.gone[i] {
			room = s.spareOne(i, room)
		}
	}
	for i, c := range s.cands {
		if s.gone[i] {
			v.runs = append(v.runs, c.run)
			v.loss += c.loss
		}
	}
	return v
}

// spareOne has a candidate stay if there is still room for all members then. So
// many yards have room; it returns how many do after it.
func (s *search) spareOne(i, room int) int {
	without := room
	for _, y := range s.at[i] {
		before := s.suffices(y, s.vacant(y))
		s.gone[i] = false
		without -= btoi(before && !s.suffices(y, s.vacant(y)))
		s.gone[i] = true
	}
	if without < s.want {
		return room
	}
	s.gone[i] = false
	return without
}
