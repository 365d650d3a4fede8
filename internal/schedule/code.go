package schedule

import (
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

// tellCodes tells why each gang waits, where that is news.
func (e *Engine) tellCodes() {
	for _, t := range e.tiers {
		for _, l := range t.lines {
			for _, w := range l.waiters {
				e.tellCode(w)
			}
		}
	}
}

func (e *Engine) tellCode(w *waiter) {
	code := e.standsAside(w, e.withinCap(w))
	switch {
	case code != "":
	case w.round == e.round && w.why != forRoom:
		code = w.why
	case w.round != e.round && e.head != nil:
		code, w.ahead = gang.CodeReservedOther, e.head.ID
	default:
		code = e.codeFor(w)
	}
	if code != gang.CodeReservedOther {
		w.ahead = ""
	}
	if w.code != code {
		w.code = code
		e.decide(Wait{ID: w.ID, Code: code, For: w.ahead})
	}
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
	s := w.shape
	if s.fittedRound != e.round {
		s.fittedRound = e.round
		mark := e.cluster.Mark()
		for _, r := range e.begun {
			e.vacate(r)
		}
		s.fitted = false
		for _, z := range s.sizes {
			s.fitted = s.fitted || e.anyDomain(e.relax(z.request), cluster.Free)
		}
		e.cluster.Rollback(mark)
	}
	return s.fitted
}
