package schedule

import (
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

	// all, where and guests are what yards, at and on are parts of; byNode has the
	// yards by the index of their nodes, first to last, while they are found.
	all         []yard
	where       []*yard
	guests      []guest
	byNode      []*yard
	first, last int
}

// yard is a node with what is free on it, or would be.
type yard struct {
	node *cluster.Node
	free cluster.Mask
	left cluster.Room
	// on are the candidates that hold something here, cheapest first.
	on     []guest
	guests int // how many they will be, at most
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
// before an end would not do. It ends the last search.
func (e *Engine) newSearch(z size, d *cluster.Domain, model string, from []leaving, end int64) *search {
	s := &e.hunt
	s.e, s.want, s.k, s.need, s.scarce = e, z.members, z.perNode, z.need, e.scarce(&z.request, model)
	free := e.eligible(d, z.request, model, cluster.Free)
	s.begin(len(free)+len(from), len(e.bays))
	for _, n := range free {
		if !e.bay(n).shuts(end) {
			s.yardOf(n)
		}
	}
	for _, l := range from {
		s.yardOf(l.seat.node).guests++
	}
	s.invite(from)
	s.line()
	return s
}

// begin drops what was found, and makes room for so many yards on so many nodes.
func (s *search) begin(yards, nodes int) {
	s.all = slices.Grow(s.all[:0], yards)
	s.byNode = slices.Grow(s.byNode[:0], nodes)[:nodes] // nil, each of them
	s.yards, s.crowded, s.room = s.yards[:0], s.crowded[:0], 0
	s.cands, s.at, s.where, s.gone = s.cands[:0], s.at[:0], s.where[:0], s.gone[:0]
	s.first, s.last = nodes, -1
}

// yardOf finds or makes the yard of a node.
func (s *search) yardOf(n *cluster.Node) *yard {
	i := n.Index()
	if s.byNode[i] == nil {
		s.all = append(s.all, yard{node: n, free: n.Free() &^ s.e.bay(n).claimed, left: n.Left(cluster.Free)})
		s.byNode[i] = &s.all[len(s.all)-1]
		s.first, s.last = min(s.first, i), max(s.last, i)
	}
	return s.byNode[i]
}

// invite notes the candidates, and what each has on which yard.
func (s *search) invite(from []leaving) {
	s.where, s.guests = slices.Grow(s.where, len(from)), slices.Grow(s.guests[:0], len(from))
	for _, l := range from {
		y := s.yardOf(l.seat.node)
		c := len(s.cands) - 1
		if c < 0 || s.cands[c].run != l.run {
			c++
			s.cands, s.at, s.gone = append(s.cands, *l.candidate), append(s.at, nil), append(s.gone, false)
		}
		if y.on == nil {
			at := len(s.guests)
			s.guests = s.guests[:at+y.guests]
			y.on = s.guests[at:at]
		}
		if last := len(y.on) - 1; last >= 0 && y.on[last].cand == c { // two members of it are here
			y.on[last].gpus |= l.gpus
			y.on[last].need = y.on[last].need.Plus(l.seat.need)
			continue
		}
		y.on = append(y.on, guest{c, l.gpus, l.seat.need})
		s.where = append(s.where, y)
		s.at[c] = s.where[len(s.where)-len(s.at[c])-1:]
	}
}

// line puts the yards in the order of their nodes, and parts those that have room.
func (s *search) line() {
	for i := s.first; i <= s.last; i++ {
		y := s.byNode[i]
		if y == nil {
			continue
		}
		s.byNode[i] = nil
		s.yards = append(s.yards, y)
		if s.suffices(y, vacancy{y.free, y.left}) {
			s.room++
		} else {
			s.crowded = append(s.crowded, y)
		}
	}
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
	return s.oneByOne()
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

// oneByOne takes the cheapest nodes one after another; a gang that is stopped for
// one is free of charge on the others. Who is not needed is spared in the end,
// the dearest first.
func (s *search) oneByOne() *victims {
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
