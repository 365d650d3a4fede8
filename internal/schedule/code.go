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

// tellCodes tells why each gang waits, where that is news. Most wait for what
// their shape waits for: only those are looked at for whom something may have
// changed.
func (e *Engine) tellCodes() {
	if e.cfg.Policy.NoBackfill {
		for _, t := range e.tiers {
			e.lookAtAll(t, nil)
		}
	} else {
		e.lookAtShapes()
		e.lookAtTenants()
	}
	looked := e.looked
	e.looked, e.spare = e.spare[:0], looked // who is its own is looked at again
	if len(looked) > len(e.waiting)/16 {
		looked = e.inOrder(looked)
	} else {
		slices.SortFunc(looked, byLine)
	}
	for _, w := range looked {
		if w.seen = false; e.waiting[w.ID] != w {
			continue
		}
		if code := e.findCode(w); code != w.code {
			w.code = code
			e.decide(Wait{ID: w.ID, Code: code, For: w.ahead})
		}
	}
	clear(e.spare)
}

func byLine(a, b *waiter) int {
	return cmp.Or(cmp.Compare(a.tier.rank, b.tier.rank), cmp.Compare(a.tenant.Name, b.tenant.Name), cmp.Compare(a.Seq, b.Seq))
}

// inOrder is cheaper than to sort where most of those that wait are looked at.
func (e *Engine) inOrder(looked []*waiter) []*waiter {
	out := make([]*waiter, 0, len(looked))
	for _, t := range e.tiers {
		for _, l := range t.lines {
			for _, w := range l.waiters {
				if w.seen {
					out = append(out, w)
				}
			}
		}
	}
	for _, w := range looked {
		w.seen = w.seen && e.waiting[w.ID] == w // some wait no longer
	}
	return out
}

// look has the code of a gang found anew at the end of this decision, or of the
// next one.
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

// lookAtShapes looks at the gangs of shapes that wait for another thing than
// before, that might have delayed others in this decision or the one before, or
// that fitted until it started others.
func (e *Engine) lookAtShapes() {
	for _, s := range e.shapes {
		code, alike := e.common(s)
		if !alike || code != s.told || !s.alike || e.lostRoom(s) {
			for _, p := range s.piles {
				e.lookAtPile(p)
			}
		}
		s.told, s.alike = code, alike
	}
}

// common is the code of the gangs of a shape that have none of their own, if it
// is the same for all.
func (e *Engine) common(s *shape) (code gang.Code, alike bool) {
	if s.longRound != e.round {
		return e.shapeCode(s), true
	}
	return gang.CodeReservedOther, !slices.ContainsFunc(s.piles, func(p *pile) bool { return p.least < s.long })
}

func (e *Engine) lookAtPile(p *pile) {
	for _, s := range p.stacks {
		for _, w := range s.waiters {
			e.look(w)
		}
	}
}

// lostRoom reports whether a shape fitted when this decision began.
func (e *Engine) lostRoom(s *shape) bool {
	if e.cfg.Policy.Arrival || len(e.begun) == 0 || s.failed == e.room && s.failedIn < e.decision {
		return false
	}
	return e.fitted(s)
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

// findCode finds why a gang waits. One whose code is its own, and not that of its
// shape, is looked at again after the next event.
func (e *Engine) findCode(w *waiter) gang.Code {
	own := true
	code := e.standsAside(w, e.withinCap(w))
	switch {
	case code != "":
	case w.round == e.round && w.why != forRoom:
		code = w.why
	case w.round != e.round && e.head != nil:
		code, w.ahead = gang.CodeReservedOther, e.head.ID
	default:
		code = e.codeFor(w)
		own = code == gang.CodeFairShare
	}
	if own {
		e.look(w)
	}
	if code != gang.CodeReservedOther {
		w.ahead = ""
	}
	return code
}

// codeFor is why a gang has no room now.
func (e *Engine) codeFor(w *waiter) gang.Code {
	if e.tooLong(w) {
		return gang.CodeReservedOther
	}
	if e.lostToShare(w) {
		w.lostIn = e.room
	}
	if w.lostIn == e.room {
		return gang.CodeFairShare // until there is room again
	}
	return e.shapeCode(w.shape)
}

// shapeCode is why a shape has no room, found once a decision.
func (e *Engine) shapeCode(s *shape) gang.Code {
	if s.coded != e.room+e.starts {
		s.coded, s.code = e.room+e.starts, e.code(s.sizes[0].request)
	}
	return s.code
}

// lostToShare reports whether a gang would have fitted when this decision
// began, and another tenant of its tier took the room.
func (e *Engine) lostToShare(w *waiter) bool {
	if e.cfg.Policy.Arrival {
		return false
	}
	other := false
	for _, r := range e.begun {
		other = other || r.tier == w.tier && r.tenant != w.tenant
	}
	if !other {
		return false
	}
	return e.fitted(w.shape)
}

// fitted reports whether a shape would have fitted before anything started in
// this decision.
func (e *Engine) fitted(s *shape) bool {
	if s.fittedRound == e.round {
		return s.fitted
	}
	s.fittedRound = e.round
	mark := e.cluster.Mark()
	for _, r := range e.begun {
		e.vacate(r)
	}
	s.fitted = slices.ContainsFunc(s.sizes, func(z size) bool { return e.anyDomain(e.relax(z.request), cluster.Free) })
	e.cluster.Rollback(mark)
	return s.fitted
}
