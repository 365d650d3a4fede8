package schedule

import (
	"cmp"
	"slices"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// forRoom stands for the codes that are found at the end of a decision: what
// room there is, and who took it.
const forRoom gang.Code = ""

// waits notes why a gang waits for another thing than room.
func (e *Engine) waits(w *waiter, code gang.Code) verdict {
	w.why = code
	return idle
}

// standsAside is the code of a gang that waits for another thing than room, and
// so blocks nobody; empty for others.
func (e *Engine) standsAside(w *waiter, sizes []size) gang.Code {
	switch {
	case w.Held:
		return gang.CodeHeld
	case w.plan != nil: // which counts against the cap already
		return gang.CodeVictims
	case len(sizes) == 0:
		return gang.CodeQuota
	case e.now.Before(w.NotBefore):
		return gang.CodeBackoff
	}
	return ""
}

// tellCodes tells why gangs wait, where that is news. Most wait for what all of
// their shape wait for: that is found once, and told of all of them together.
// Those are looked at one by one who may wait for something else.
func (e *Engine) tellCodes() {
	if e.cfg.Policy.NoBackfill {
		for _, t := range e.tiers {
			e.lookAtAll(t, nil)
		}
	}
	e.lookAtShapes()
	e.lookAtTenants()
	looked := e.looked
	e.looked, e.spare = e.spare[:0], looked // who has a code of its own is looked at again
	changed := e.changed[:0]
	for _, w := range looked {
		w.seen = false
		if w.pile != nil && e.changes(w) { // it still waits
			changed = append(changed, w)
		}
	}
	slices.SortFunc(changed, byLine)
	for _, w := range changed {
		e.decide(Wait{IDs: []gang.ID{w.ID}, Code: w.code, For: w.ahead})
	}
	clear(looked)
	clear(changed)
	e.changed = changed
	e.tellPiles()
}

func byLine(a, b *waiter) int {
	return cmp.Or(cmp.Compare(a.tier.rank, b.tier.rank), cmp.Compare(a.tenant.Name, b.tenant.Name), cmp.Compare(a.Seq, b.Seq))
}

// changes finds the code of one gang, and reports whether that is news.
func (e *Engine) changes(w *waiter) bool {
	before := w.told()
	w.code, w.own = e.findCode(w)
	w.judged = e.decision
	if w.own {
		e.look(w)
	}
	return w.code != before
}

// told is the code that a gang was told last.
func (w *waiter) told() gang.Code {
	if w.own {
		return w.code
	}
	return w.pile.code
}

// tellPiles tells those together who have no code of their own.
func (e *Engine) tellPiles() {
	for _, t := range e.tiers {
		for _, p := range t.piles {
			if p.next == p.code {
				continue
			}
			if p.code = p.next; p.code == "" {
				continue // each has its own
			}
			var ids []gang.ID
			for _, s := range p.stacks {
				for _, w := range s.waiters {
					if !w.own && w.judged != e.decision {
						ids = append(ids, w.ID)
					}
				}
			}
			if len(ids) > 0 {
				e.decide(Wait{IDs: ids, Code: p.code})
			}
		}
	}
}

// look has the code of a gang found by itself at the end of this decision, or of
// the next one.
func (e *Engine) look(w *waiter) {
	if !w.seen {
		w.seen = true
		e.looked = append(e.looked, w)
	}
}

// lookAtAll looks at the gangs of a tier, of one tenant unless that is nil.
func (e *Engine) lookAtAll(t *tier, of *tenant) {
	for _, l := range t.lines {
		if of == nil || l.tenant == of {
			for _, w := range l.waiters {
				e.look(w)
			}
		}
	}
}

// lookAtShapes finds for each pile the code that its gangs have in common. It
// looks at those of piles of which only some would delay others.
func (e *Engine) lookAtShapes() {
	e.findLosers()
	for _, s := range e.shapes {
		for _, p := range s.piles {
			if p.next = e.common(p); p.next == "" {
				e.lookAtPile(p)
			}
		}
	}
}

// common is the code of the gangs of a pile that have none of their own; empty
// where each has its own.
func (e *Engine) common(p *pile) gang.Code {
	switch s := p.shape; {
	case s.longRound == e.round && p.least < s.long:
		return ""
	case s.longRound == e.round:
		return s.longWhy
	case p.lostIn == e.room:
		return gang.CodeFairShare
	default:
		return e.shapeCode(s)
	}
}

// findLosers notes the piles whose gangs would have fitted when this decision
// began, and that lost that room to another tenant of their tier.
func (e *Engine) findLosers() {
	if e.cfg.Policy.Arrival || len(e.begun) == 0 {
		return
	}
	mark := e.cluster.Mark()
	for _, r := range e.begun {
		e.vacate(r)
	}
	for _, s := range e.shapes {
		if s.failed == e.room && s.failedIn < e.decision || // it did not fit even then
			!slices.ContainsFunc(s.sizes, func(z size) bool { return e.anyDomain(e.relax(z.request), cluster.Free) }) {
			continue
		}
		for _, p := range s.piles {
			e.lose(p)
		}
	}
	e.cluster.Rollback(mark)
}

// lose notes that a pile lost its room to those who started in its tier: if these
// are of one tenant, then its own gangs did not.
func (e *Engine) lose(p *pile) {
	var to *tenant
	several, any := false, false
	for _, r := range e.begun {
		if r.tier == p.tier {
			several = several || any && r.tenant != to
			to, any = r.tenant, true
		}
	}
	if !any {
		return
	}
	if several || p.lostIn == e.room && p.spared != to {
		to = nil
	}
	if p.spared != to || p.lostIn != e.room {
		e.lookAtStack(p, p.spared)
		e.lookAtStack(p, to)
	}
	p.lostIn, p.lostAt, p.spared = e.room, e.decision, to
}

// lostToShare reports whether a gang would have fitted if another tenant of its
// tier had not taken the room, and there has been none since.
func (e *Engine) lostToShare(w *waiter) bool {
	p := w.pile
	return p.lostIn == e.room && p.spared != w.tenant && w.entered <= p.lostAt
}

func (e *Engine) lookAtStack(p *pile, of *tenant) {
	if of == nil {
		return
	}
	if at, found := p.find(of.Name); found {
		for _, w := range p.stacks[at].waiters {
			e.look(w)
		}
	}
}

func (e *Engine) lookAtPile(p *pile) {
	for _, s := range p.stacks {
		for _, w := range s.waiters {
			e.look(w)
		}
	}
}

// lookAtTenants looks at the gangs of tenants whose cap may hold them back, or
// no longer does.
func (e *Engine) lookAtTenants() {
	for _, t := range e.limited {
		if uses := t.running + t.planned; uses != t.told {
			t.told = uses
			for _, tier := range e.tiers {
				e.lookAtAll(tier, t)
			}
		}
	}
}

// findCode finds why a gang waits, and whether that is its own, and not the code
// of its shape.
func (e *Engine) findCode(w *waiter) (code gang.Code, own bool) {
	own = true
	code = e.standsAside(w, e.withinCap(w))
	switch {
	case code != "":
	case w.round == e.round && w.why != forRoom:
		code = w.why
	case w.round != e.round && e.head != nil:
		code, w.ahead = gang.CodeReservedOther, e.head.ID
	default:
		code = e.codeFor(w)
		own = code != w.pile.next
	}
	if code != gang.CodeReservedOther {
		w.ahead = ""
	}
	return code, own
}

// codeFor is why a gang has no room now.
func (e *Engine) codeFor(w *waiter) gang.Code {
	if e.tooLong(w) {
		return w.shape.longWhy
	}
	if e.lostToShare(w) {
		return gang.CodeFairShare // until there is room again
	}
	return e.shapeCode(w.shape)
}

// shapeCode is why a shape has no room, found once for a state of the cluster.
func (e *Engine) shapeCode(s *shape) gang.Code {
	if s.coded != e.cluster.Version() {
		s.coded, s.code = e.cluster.Version(), e.code(s.sizes[0].request)
	}
	return s.code
}
