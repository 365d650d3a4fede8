package schedule

import (
	"math"
	"slices"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// never is later than any time that is expected.
const never = int64(math.MaxInt64)

// calendar is what is expected of each GPU: until when its holder runs, and
// which gangs that wait have a claim to it.
type calendar struct {
	accounted time.Time
	bays      []*bay // by the index of their node
	claims    []*claim
	claimed   []*bay
	// edition tells lists of claims apart.
	edition uint64
	// times[k-1] has, by the index of nodes, when k GPUs of each should be free at
	// once; never where it has not so many in order. Those of stale bays are to be
	// found anew.
	times [][]int64
	stale []*bay
	// closing are the bays of nodes that a window lies ahead of.
	closing []*bay
}

// bay is a node in the calendar.
type bay struct {
	node *cluster.Node
	// until is when the holder of each GPU should end, in nanoseconds of Unix
	// time, 0 where it is free; after adds what those have a claim to who were
	// considered so far.
	until, after [cluster.MaxGPUsPerNode]int64
	overlaid     bool
	claimed      cluster.Mask // what anybody has a claim to
	stakes       []stake      // by whom, in their order
	dirty        bool         // it is among the stale ones
	// closed are the windows that lie ahead, by their beginning.
	closed []span
}

// claim is the hold of a gang that waits on GPUs from one time to another.
type claim struct {
	owner       *waiter
	run         *run // of a gang that will be resized
	from, until int64
	// start is when the owner should start: at from, unless the GPUs are held for
	// it before that. Of those idle are free already.
	start int64
	idle  int
	at    []hold
	place int // among the claims
}

type hold struct {
	bay  *bay
	gpus cluster.Mask
}

// stake is what one claim holds of a bay.
type stake struct {
	by   *claim
	gpus cluster.Mask
}

func (e *Engine) setBay(n *cluster.Node) {
	for len(e.bays) <= n.Index() {
		e.bays = append(e.bays, nil)
	}
	if e.bays[n.Index()] == nil {
		e.bays[n.Index()] = &bay{node: n}
	}
	for len(e.times) < len(n.GPUs) {
		e.times = append(e.times, nil)
	}
	for k := range e.times {
		for len(e.times[k]) < len(e.bays) {
			e.times[k] = append(e.times[k], never)
		}
	}
	e.unsettle(e.bays[n.Index()])
}

func (e *Engine) dropBay(n *cluster.Node) {
	b := e.bays[n.Index()]
	e.closing = slices.DeleteFunc(e.closing, func(o *bay) bool { return o == b })
	e.bays[n.Index()] = nil
	for k := range e.times {
		e.times[k][n.Index()] = never
	}
}

// unsettle notes that the times of a bay are to be found anew.
func (e *Engine) unsettle(b *bay) {
	if !b.dirty {
		b.dirty = true
		e.stale = append(e.stale, b)
	}
}

// refresh finds the times of stale bays.
func (e *Engine) refresh() {
	for _, b := range e.stale {
		b.dirty = false
		at := b.node.Index()
		if e.bays[at] != b {
			continue // its node is gone
		}
		var free [cluster.MaxGPUsPerNode]int64
		n := 0
		if b.node.GoneAt.IsZero() {
			for m := b.node.Usable(); m != 0; m &= m - 1 {
				free[n] = b.expected(m.First())
				n++
			}
			slices.Sort(free[:n])
		}
		for k := range e.times {
			if e.times[k][at] = never; k < n {
				e.times[k][at] = free[k]
			}
		}
	}
	e.stale = e.stale[:0]
}

func (e *Engine) bay(n *cluster.Node) *bay { return e.bays[n.Index()] }

// setUntil notes when the holder of GPUs should end; the zero time where there
// is none.
func (e *Engine) setUntil(n *cluster.Node, gpus cluster.Mask, end time.Time) {
	at := int64(0)
	if !end.IsZero() {
		at = end.UnixNano()
	}
	b := e.bay(n)
	for m := gpus; m != 0; m &= m - 1 {
		i := m.First()
		b.until[i] = at
		b.after[i] = max(b.after[i], at) // within a decision times only grow
	}
	e.unsettle(b)
}

// clearCalendar drops all claims.
func (e *Engine) clearCalendar() {
	for _, b := range e.claimed {
		b.overlaid, b.claimed, b.stakes = false, 0, b.stakes[:0]
		e.unsettle(b)
	}
	e.claims, e.claimed = e.claims[:0], e.claimed[:0]
	e.edition++
}

// addClaim has the gangs that come after in the order reckon with one.
func (e *Engine) addClaim(c *claim) {
	c.place = len(e.claims)
	e.claims = append(e.claims, c)
	e.edition++
	for _, h := range c.at {
		if !h.bay.overlaid {
			h.bay.after = h.bay.until
			h.bay.overlaid = true
			e.claimed = append(e.claimed, h.bay)
		}
		for m := h.gpus; m != 0; m &= m - 1 {
			h.bay.after[m.First()] = max(h.bay.after[m.First()], c.until)
		}
		h.bay.claimed |= h.gpus
		h.bay.stakes = append(h.bay.stakes, stake{c, h.gpus})
		e.unsettle(h.bay)
	}
}

// expected is when the holder of a GPU, and those with a claim to it, should
// be through with it.
func (b *bay) expected(gpu int) int64 {
	if b.overlaid {
		return b.after[gpu]
	}
	return b.until[gpu]
}

// holds turns a placement into what is held of the calendar.
func (e *Engine) holdsOf(p gang.Placement) []hold {
	out := make([]hold, len(p))
	for i, m := range p {
		out[i] = hold{e.bay(e.cluster.Node(m.Node)), cluster.MaskOf(m.GPUs)}
	}
	return out
}

// conflict reports whether a gang that holds a placement from now until its
// end would keep another from what it has a claim to: the first of those.
func (e *Engine) conflict(w *waiter, p []hold, end int64) *claim {
	var first *claim
	for _, h := range p {
		if h.gpus&h.bay.claimed == 0 {
			continue
		}
		for _, o := range h.bay.stakes {
			if o.gpus&h.gpus != 0 && o.by.from < end && o.by.owner != w && (first == nil || o.by.place < first.place) {
				first = o.by
			}
		}
	}
	if first != nil {
		return first
	}
	for _, h := range p {
		if c := e.squeezed(w, h.bay, end); c != nil {
			return c
		}
	}
	return nil
}

// squeezed is a claim for which a tight node might have too little CPU or memory
// if one more member of a gang ran there until a time. What those leave who run
// there now does not count for it: that may be needed by others.
func (e *Engine) squeezed(w *waiter, b *bay, end int64) *claim {
	if b.claimed == 0 || !b.node.Tight() || w.Spec.MemberNeed == (gang.Need{}) {
		return nil
	}
	needs, last := claimedOf(w, b, end)
	if last == nil || b.node.Holds(b.node.Left(cluster.Free).Less(b.node.Cost(needs)), w.Spec.MemberNeed) {
		return nil
	}
	return last
}

// claimedOf sums what others have a claim to of a node before a time, beside
// GPUs, and returns the last of them.
func claimedOf(w *waiter, b *bay, before int64) (needs gang.Need, last *claim) {
	for _, o := range b.stakes {
		c := o.by
		if c.owner == w && w != nil || c.from >= before || c.need() == (gang.Need{}) {
			continue
		}
		needs, last = needs.Plus(c.need()), c
	}
	return needs, last
}

// roomy is when a member with a need should find it on a node: at once where
// that is left beside all that runs there and has a claim, else, to be sure,
// when all of them should be through.
func (e *Engine) roomy(b *bay, need gang.Need) int64 {
	if !b.node.Tight() || need == (gang.Need{}) {
		return math.MinInt64 // no later than the GPUs
	}
	needs, _ := claimedOf(nil, b, never)
	if b.node.Holds(b.node.Left(cluster.Free).Less(b.node.Cost(needs)), need) {
		return math.MinInt64
	}
	at := int64(0)
	for m := b.node.Used() | b.claimed; m != 0; m &= m - 1 {
		at = max(at, b.expected(m.First()))
	}
	return at
}
