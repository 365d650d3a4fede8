package schedule

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

// pile is the gangs of one shape that wait in one tier: once a tier holds all
// its future starts, most of its shapes are known not to fit, and their gangs are
// passed over together.
type pile struct {
	shape  *shape
	tier   *tier
	stacks []*stack // by the name of their tenant
	// guaranteed counts the stacks of tenants to which GPUs are.
	guaranteed int
	// least is no more than any of its gangs takes.
	least time.Duration
	// code is what its gangs were told last that have none of their own, next what
	// they are to be told.
	code, next gang.Code
	// lostIn is the engine's room in which its gangs lost what they would have
	// fitted in, lostAt the decision, and spared the tenant that took it, if it was
	// one.
	lostIn, lostAt uint64
	spared         *tenant
}

// stack is those of one tenant, by their places. In a decision, those before at
// have had their turn, or would not start in it.
type stack struct {
	tenant  *tenant
	waiters []*waiter
	at      int
}

func (s *stack) find(seq uint64) (int, bool) {
	return slices.BinarySearchFunc(s.waiters, seq, func(w *waiter, seq uint64) int { return cmp.Compare(w.Seq, seq) })
}

func (p *pile) find(tenant string) (int, bool) {
	return slices.BinarySearchFunc(p.stacks, tenant, func(s *stack, name string) int { return cmp.Compare(s.tenant.Name, name) })
}

// pile puts a gang among those of its shape.
func (t *tier) pile(w *waiter) {
	var p *pile
	for _, o := range w.shape.piles {
		if o.tier == t {
			p = o
		}
	}
	if p == nil {
		p = &pile{shape: w.shape, tier: t, least: w.shortest}
		w.shape.piles = append(w.shape.piles, p)
		t.piles = append(t.piles, p)
	}
	at, found := p.find(w.tenant.Name)
	if !found {
		p.stacks = slices.Insert(p.stacks, at, &stack{tenant: w.tenant})
		p.guaranteed += btoi(w.tenant.Guaranteed > 0)
	}
	p.least = min(p.least, w.shortest)
	w.pile = p
	s := p.stacks[at]
	i, _ := s.find(w.Seq)
	s.waiters = slices.Insert(s.waiters, i, w)
}

// unpile takes a gang from among those of its shape.
func (t *tier) unpile(w *waiter) {
	p := w.pile
	w.code, w.own, w.pile = w.told(), true, nil
	at, _ := p.find(w.tenant.Name)
	s := p.stacks[at]
	i, _ := s.find(w.Seq)
	s.waiters = slices.Delete(s.waiters, i, i+1)
	if i < s.at {
		s.at--
	}
	if len(s.waiters) > 0 {
		return
	}
	p.stacks = slices.Delete(p.stacks, at, at+1)
	p.guaranteed -= btoi(w.tenant.Guaranteed > 0)
	if len(p.stacks) == 0 {
		same := func(o *pile) bool { return o == p }
		w.shape.piles = slices.DeleteFunc(w.shape.piles, same)
		t.piles = slices.DeleteFunc(t.piles, same)
	}
}

// heads are the piles of a tier with the gang of each whose turn is next, as a
// heap: the least share of a tenant first, then the place.
type heads []head

type head struct {
	pile  *pile
	stack *stack
	first *waiter
	share float64 // of its tenant, which may have grown since
}

func (h heads) Len() int { return len(h) }
func (h heads) Less(i, j int) bool {
	if h[i].share != h[j].share {
		return h[i].share < h[j].share
	}
	return h[i].first.Seq < h[j].first.Seq
}
func (h heads) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *heads) Push(x any)   { *h = append(*h, x.(head)) }
func (h *heads) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}

// firstHopeful is first for a tier that holds all its future starts: of the gangs
// that might start, the one whose turn is next.
func (o *order) firstHopeful(t *tier) *waiter {
	if o.hopeful != t {
		o.hopeful = t
		o.gather(t)
	}
	for len(o.heads) > 0 {
		top := &o.heads[0]
		w := top.first
		fresh := top.share == o.e.shareOf(w)
		if fresh {
			top.stack.at++
		}
		if o.best(top) {
			heap.Fix(&o.heads, 0)
		} else {
			heap.Pop(&o.heads)
		}
		if fresh && !o.passed(t, w) {
			return w
		}
	}
	return nil
}

// gather makes the heads of a tier.
func (o *order) gather(t *tier) {
	o.heads = o.heads[:0]
	for _, p := range t.piles {
		o.e.despair(p)
		for _, s := range p.stacks {
			s.at = 0
		}
		if h := (head{pile: p}); o.best(&h) {
			o.heads = append(o.heads, h)
		}
	}
	heap.Init(&o.heads)
}

// best finds whose turn is next of a pile, and reports whether there is anybody.
func (o *order) best(h *head) bool {
	h.first = nil
	if o.e.dead(h.pile) {
		return false
	}
	for _, s := range h.pile.stacks {
		for s.at < len(s.waiters) && s.waiters[s.at].round == o.e.round {
			s.at++
		}
		if s.at == len(s.waiters) {
			continue
		}
		w := s.waiters[s.at]
		share := o.e.shareOf(w)
		if h.first == nil || share < h.share || share == h.share && w.Seq < h.first.Seq {
			h.stack, h.first, h.share = s, w, share
		}
	}
	return h.first != nil
}

// despair notes that nobody's end could make room for a shape.
func (e *Engine) despair(p *pile) {
	if p.shape.failed != e.room || !e.preempts(p.tier) || p.shape.futile[p.tier] == e.stand() {
		return
	}
	for _, z := range p.shape.sizes {
		if z.perNode > 0 && z.missing == "" && e.mayFree(p.tier, z) {
			return
		}
	}
	p.shape.futile[p.tier] = e.stand()
}

// dead reports whether no gang of a pile could start, whoever were stopped.
func (e *Engine) dead(p *pile) bool {
	s := p.shape
	if s.longRound == e.round && p.least >= s.long {
		return true
	}
	return s.failed == e.room && p.guaranteed == 0 && (!e.preempts(p.tier) || s.futile[p.tier] == e.stand())
}

func (e *Engine) preempts(t *tier) bool { return len(t.Preempts) > 0 && !e.cfg.Policy.NoPreemption }

// aside reports whether a gang waits for another thing than room.
func (e *Engine) aside(w *waiter) bool {
	return w.Held || w.plan != nil || e.capped(w) || e.now.Before(w.NotBefore)
}

// capped reports whether a gang would break its tenant's cap at every size.
func (e *Engine) capped(w *waiter) bool {
	most := w.tenant.MaxGPUs
	if most == 0 {
		return false
	}
	least := most + 1
	for _, z := range w.shape.sizes {
		least = min(least, z.gpus())
	}
	return w.tenant.running+w.tenant.planned+least > most
}
