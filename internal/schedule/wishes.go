package schedule

import (
	"fmt"
	"slices"
)

// What users change of their own gangs while these wait.

func (ev Hold) apply(e *Engine) error {
	w := e.waiting[ev.ID]
	if w == nil {
		return fmt.Errorf("hold or release gang %s: %w", ev.ID, ErrUnknown)
	}
	w.Held = ev.Held
	e.look(w)
	if w.Held && w.plan != nil {
		e.callOff(w.plan)
	}
	e.forgetPlace(w)
	e.called++ // what it had a claim to is there for others
	return nil
}

func (ev Reorder) apply(e *Engine) error {
	moved := make([]*waiter, len(ev))
	var had, get []uint64
	for i, p := range ev {
		w := e.waiting[p.ID]
		if w == nil {
			return fmt.Errorf("reorder gang %s: %w", p.ID, ErrUnknown)
		}
		if w.tier != e.waiting[ev[0].ID].tier || w.tenant != e.waiting[ev[0].ID].tenant {
			return fmt.Errorf("reorder gang %s with gang %s: they are not of one tenant and tier", p.ID, ev[0].ID)
		}
		moved[i], had, get = w, append(had, w.Seq), append(get, p.Seq)
	}
	slices.Sort(had)
	slices.Sort(get)
	if !slices.Equal(had, get) || len(slices.Compact(had)) != len(get) {
		return fmt.Errorf("reorder gang %s and %d others: they may only exchange the places that they have", ev[0].ID, len(ev)-1)
	}
	for _, w := range moved {
		e.forgetPlace(w)
		w.tier.remove(w)
	}
	for i, w := range moved {
		w.Seq = ev[i].Seq
		w.tier.insert(w)
		e.look(w)
	}
	return nil
}

// forgetPlace: a gang that was moved or held does not keep the place that it got
// by waiting as the first blocked one: others of its tenant would come with it.
func (e *Engine) forgetPlace(w *waiter) {
	w.leading = 0
	if w.tier.kept == w {
		w.tier.kept = nil
	}
}
