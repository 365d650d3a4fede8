package schedule

import (
	"container/heap"
	"fmt"
	"slices"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

func (ev Occupy) apply(e *Engine) error {
	n, gpus, err := e.untaken(ev.Seat, ev.Place)
	if err != nil {
		return err
	}
	e.cluster.Expect(ev.Need, max(1, gpus.Count()))
	e.cluster.Take(n, gpus, ev.Need)
	e.seats[ev.Seat] = &seat{node: n, gpus: gpus, need: ev.Need}
	e.setUntil(n, gpus, e.now.Add(defaultEstimate))
	return nil
}

// untaken finds what a seat holds, which nobody may hold already.
func (e *Engine) untaken(at Seat, m gang.Member) (*cluster.Node, cluster.Mask, error) {
	n, gpus := e.cluster.Node(m.Node), cluster.MaskOf(m.GPUs)
	if e.seats[at] != nil || n == nil || n.Used()&gpus != 0 {
		return nil, 0, fmt.Errorf("adopt member %d of gang %s, attempt %d: GPUs %v of node %s are not there, or held already: %w",
			at.Member, at.ID, at.Attempt, m.GPUs, m.Node, ErrUnknown)
	}
	return n, gpus, nil
}

func (ev Adopt) apply(e *Engine) error {
	g := ev.Gang
	g.Accepted = true
	held := slices.Clone(ev.Held)
	slices.Sort(held)
	if ev.Placement.GPUs() == 0 || len(held) > 0 && (held[0] < 0 || held[len(held)-1] >= len(ev.Placement)) || len(slices.Compact(held)) < len(ev.Held) {
		return fmt.Errorf("adopt gang %s, attempt %d: of %d members %v hold GPUs, and %d GPUs are known: %w",
			g.ID, g.Attempt, len(ev.Placement), ev.Held, ev.Placement.GPUs(), ErrUnknown)
	}
	newer := e.runs[g.ID]
	if newer != nil && newer.attempt == g.Attempt {
		return fmt.Errorf("adopt gang %s, attempt %d: it is there already: %w", g.ID, g.Attempt, ErrUnknown)
	}
	w, err := e.newWaiter(g, e.tierFor(g))
	if err != nil {
		return fmt.Errorf("adopt gang %s, attempt %d: %w", g.ID, g.Attempt, err)
	}
	defer e.forgetShape(w.shape) // nobody waits with it
	r := e.adopted(ev, w)
	seats := make([]*seat, len(ev.Held))
	taken := make(map[string]cluster.Mask)
	for i, member := range ev.Held {
		n, gpus, err := e.untaken(Seat{g.ID, g.Attempt, member}, ev.Placement[member])
		if err == nil && taken[n.ID]&gpus != 0 {
			err = fmt.Errorf("adopt gang %s, attempt %d: two members of it hold the same GPUs of node %s: %w", g.ID, g.Attempt, n.ID, ErrUnknown)
		}
		if err != nil {
			return err
		}
		taken[n.ID] |= gpus
		seats[i] = &seat{r, n, gpus, g.Spec.MemberNeed}
	}
	for i, member := range ev.Held {
		e.sit(Seat{g.ID, g.Attempt, member}, seats[i])
	}
	if r.left > 0 {
		if newer == nil || newer.attempt < r.attempt {
			e.runs[g.ID] = r
		}
		heap.Push(&e.ends, r)
		e.mayResize(r)
	}
	return nil
}

// adopted is the run that an attempt is whose start this engine did not see.
func (e *Engine) adopted(ev Adopt, w *waiter) *run {
	z := w.shape.sized(ev.Placement)
	r := &run{
		id: w.ID, seq: w.Seq, attempt: w.Attempt, spec: w.Spec, tier: w.tier, tenant: w.tenant, shape: w.shape,
		place: ev.Placement, size: z, seats: make([]*seat, len(ev.Placement)), began: ev.Began, ready: ev.Ready, done: w.Done, saved: w.Done,
		estimate: w.estimate, owed: ev.Owed,
	}
	if n := e.cluster.Node(ev.Placement[0].Node); n != nil {
		r.gpu = n.Model
	}
	r.rate = w.shape.speedOn(r.gpu) / z.slower
	if r.ready.IsZero() {
		r.ready = ev.Began.Add(w.startup(false))
	}
	r.reckon(e.now)
	if ev.Ending {
		r.ending(e.now)
	}
	return r
}

// ending: somebody else than the engine ends it.
func (r *run) ending(now time.Time) {
	r.stop = &Stop{ID: r.id, Attempt: r.attempt, Mode: Hard}
	r.end = now.Add(overdue)
}

func (ev Ending) apply(e *Engine) error {
	r := e.runs[ev.ID]
	if r == nil || r.attempt != ev.Attempt {
		return fmt.Errorf("note that gang %s ends, attempt %d: %w", ev.ID, ev.Attempt, ErrUnknown)
	}
	if r.stop == nil {
		r.ending(e.now)
		e.reend(r)
	}
	return nil
}

// sized is the size of a shape that a placement has; one that it would no longer
// be offered, where the shape has none such.
func (s *shape) sized(p gang.Placement) size {
	members := slices.DeleteFunc(slices.Clone(p), func(m gang.Member) bool { return len(m.GPUs) == 0 })
	at := slices.IndexFunc(s.sizes, func(z size) bool { return z.members == len(p) && z.gpus() == p.GPUs() })
	if at >= 0 {
		return s.sizes[at]
	}
	z := s.sizes[0]
	z.members, z.perNode = len(members), len(members[0].GPUs)
	return z
}

// sit has a seat of a run hold its GPUs.
func (e *Engine) sit(at Seat, s *seat) {
	e.cluster.Expect(s.need, max(1, s.gpus.Count()))
	e.cluster.Take(s.node, s.gpus, s.need)
	e.seats[at] = s
	e.setUntil(s.node, s.gpus, s.run.end)
	s.run.seats[at.Member] = s
	s.run.left++
	s.run.tenant.running += s.gpus.Count()
	s.run.tier.running += s.gpus.Count()
}

func (ev Began) apply(e *Engine) error {
	r := e.runs[ev.ID]
	if r == nil || r.attempt != ev.Attempt {
		return fmt.Errorf("note that gang %s runs, attempt %d: %w", ev.ID, ev.Attempt, ErrUnknown)
	}
	r.ready = e.now
	if before := r.end; r.stop == nil {
		r.reckon(e.now)
		e.reend(r)
		if r.end.After(before) {
			e.overruns(r) // it took longer to start than was supposed
		}
	}
	return nil
}

func (ev Past) apply(e *Engine) error {
	e.tenant(ev.Tenant).past = ev.GPUs
	return nil
}
