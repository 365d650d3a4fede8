package schedule

import (
	"math"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// find looks for where a gang can start now without moving the start of one
// that is before it: of its sizes that fit, at the one that ends first. If
// there is none, it says why in a word, and who is ahead.
func (e *Engine) find(w *waiter, sizes []size) (best *found, why obstacle) {
	if w.shape.failed == e.room || e.tooLong(w) {
		return nil, obstacle{}
	}
	fits := false
	for _, z := range sizes {
		f := e.place(w, z)
		if f == nil {
			continue
		}
		fits = true
		if o := e.obstacle(w, f); o.code != "" {
			why = o
			f = e.placeBeside(w, z, f.end)
		}
		if f != nil && (best == nil || f.end < best.end) {
			best = f
		}
	}
	if best == nil {
		e.remember(w, sizes, fits, why.code)
	}
	return best, why
}

// obstacle is why a gang that might fit does not start.
type obstacle struct {
	code  gang.Code
	ahead gang.ID
}

// obstacle is what keeps a gang from starting where there is room; its zero value
// for nothing.
func (e *Engine) obstacle(w *waiter, f *found) obstacle {
	holds := e.holdsOf(f.place)
	if c := e.conflict(w, holds, f.end); c != nil {
		return obstacle{code: gang.CodeReservedOther, ahead: c.id()}
	}
	if shuts(holds, f.end) {
		return obstacle{code: gang.CodeMaintenance}
	}
	return obstacle{}
}

// need is what each member takes of its node beside GPUs.
func (c *claim) need() gang.Need {
	if c.owner != nil {
		return c.owner.Spec.MemberNeed
	}
	return c.run.spec.MemberNeed
}

func (c *claim) id() gang.ID {
	if c.owner != nil {
		return c.owner.ID
	}
	return c.run.id
}

// placeBeside places a gang, which has no claim itself yet, on what nobody before
// it has a claim to, up to the end that it would have.
func (e *Engine) placeBeside(w *waiter, z size, end int64) *found {
	z.request = e.relax(z.request)
	f, sure := e.quickBeside(w, z, end)
	if !sure {
		mark := e.cluster.Mark()
		e.fence(w, end)
		e.bar(end)
		f = e.place(w, z)
		e.cluster.Rollback(mark)
	}
	if f == nil || e.obstacle(w, f).code != "" {
		return nil
	}
	return f
}

// fence takes, within a trial, what others have a claim to before a time.
func (e *Engine) fence(w *waiter, end int64) {
	for _, c := range e.claims {
		if c.owner == w && w != nil || c.from >= end {
			continue
		}
		for _, h := range c.at {
			n := h.bay.node
			need := gang.Need{}
			if n.Tight() {
				need = c.need()
			}
			if free := h.gpus & n.Free(); free != 0 || need != (gang.Need{}) {
				e.cluster.Take(n, free, need)
			}
		}
	}
}

// remember notes that a shape does not fit, until there is more room, or that
// gangs of it that take as long as this one, or longer, would delay others or run
// into a window.
func (e *Engine) remember(w *waiter, sizes []size, fits bool, why gang.Code) {
	s := w.shape
	switch {
	case !fits && len(sizes) == len(s.sizes):
		s.failed, s.failedIn, s.stuck = e.room, e.decision, e.stuckNow(s)
	case fits && (s.longRound != e.round || w.shortest < s.long):
		s.longRound, s.long, s.longWhy = e.round, w.shortest, why
	}
}

// recallFits keeps in mind what does not fit: GPUs that became free help only
// those shapes that have room in a domain of theirs now.
func (e *Engine) recallFits() {
	if len(e.gained) == 0 {
		return
	}
	before := e.room
	e.room++
	for _, s := range e.shapes {
		if s.failed == before && !e.mayFit(s) {
			s.failed = e.room
		}
	}
	e.gained = e.gained[:0]
}

// mayFit reports whether a domain in which GPUs became free has enough nodes
// with enough of them.
func (e *Engine) mayFit(s *shape) bool {
	for _, z := range s.sizes {
		var last *cluster.Domain
		for _, n := range e.gained {
			d := e.cluster.Root()
			if z.require >= 0 {
				d = n.Domain(z.require)
			}
			if d == last || z.model != "" && z.model != n.Model {
				continue
			}
			last = d
			if d.NodesWith(cluster.Free, n.Model, z.perNode) >= z.members {
				return true
			}
		}
	}
	return false
}

// tooLong reports whether a gang takes as long as one of its shape that would
// have delayed others in this decision, or have run into a window.
func (e *Engine) tooLong(w *waiter) bool {
	return w.shape.longRound == e.round && w.shortest >= w.shape.long
}

// nanos adds a duration to a time of the calendar.
func nanos(at int64, d time.Duration) int64 {
	if at > math.MaxInt64-int64(d) {
		return never
	}
	return at + int64(d)
}
