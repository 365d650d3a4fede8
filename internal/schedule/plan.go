package schedule

import (
	"math"
	"slices"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// plan is GPUs that are held for a gang until all of them are free: what its
// victims leave, or what it will have after it is resized.
type plan struct {
	owner gang.ID
	// resizes: the owner runs, and is to run on with another size.
	resizes bool
	found   *found
	at      []hold
	victims []*run
	by      time.Time // the end of the grace
	// more is how many GPUs its tenant will have more than it has.
	tenant *tenant
	more   int
}

// keep holds a plan until it is honoured or dropped. Its GPUs count against the
// cap of its tenant from now on.
func (e *Engine) keep(p *plan) {
	p.tenant.planned += p.more
	e.plans = append(e.plans, p)
}

// honourPlans starts those whose GPUs are free, and drops those whose GPUs are
// lost, and what was held for victims that carry on then.
func (e *Engine) honourPlans() {
	for _, p := range slices.Clone(e.plans) {
		w := e.waiting[p.owner]
		switch {
		case !slices.Contains(e.plans, p):
			continue // another's end ended it
		case w == nil && (!p.resizes || e.runs[p.owner] == nil):
			e.forget(p) // it was cancelled
			continue
		case !e.sound(p):
			e.Counts.BrokenPlans++
			e.callOff(p)
			continue
		case w != nil && w.plan == nil && p.resizes:
			w.plan = p
			e.look(w)
		}
		if w != nil && p.free() {
			e.forget(p)
			e.startPlanned(w, p)
		}
	}
}

func (p *plan) claim(w *waiter, r *run) *claim {
	return &claim{owner: w, run: r, from: math.MinInt64, until: p.found.end, at: p.at}
}

// startPlanned starts a gang on what was held for it.
func (e *Engine) startPlanned(w *waiter, p *plan) {
	f := *p.found
	f.warm = w.shape.load == 0
	e.start(w, &f)
}

// sound reports whether all that is held can still be had.
func (e *Engine) sound(p *plan) bool {
	for _, h := range p.at {
		if e.bay(h.bay.node) != h.bay || !h.bay.node.Usable().Has(h.gpus) {
			return false
		}
	}
	if len(e.closing) > 0 && shuts(p.at, e.wouldEnd(p)) {
		return false
	}
	return p.roomy() || !p.vacated() || e.leavesFor(p)
}

// leavesFor reports whether one who is to make room for a plan is there still: a
// victim, or the gang itself at its old size.
func (e *Engine) leavesFor(p *plan) bool {
	return p.resizes && e.waiting[p.owner] == nil || slices.ContainsFunc(p.victims, func(v *run) bool { return v.left > 0 })
}

// roomy reports whether the nodes have the CPU and memory too. Once those have
// left who were to, only others' tasks can have taken it.
func (p *plan) roomy() bool {
	return !slices.ContainsFunc(p.at, func(h hold) bool { return !h.bay.node.Fits(cluster.Free, p.found.size.need) })
}

func (p *plan) free() bool { return p.vacated() && p.roomy() }

// vacated reports whether nobody holds the GPUs.
func (p *plan) vacated() bool {
	for _, h := range p.at {
		if !h.bay.node.Free().Has(h.gpus) {
			return false
		}
	}
	return true
}

// forget drops a plan.
func (e *Engine) forget(p *plan) {
	if slices.Contains(e.plans, p) {
		p.tenant.planned -= p.more
	}
	e.plans = slices.DeleteFunc(e.plans, func(q *plan) bool { return q == p })
	if w := e.waiting[p.owner]; w != nil && w.plan == p {
		w.plan = nil
		e.look(w)
	}
	for _, v := range p.victims {
		if v.plan == p {
			v.plan = nil
		}
	}
}

// callOff drops a plan, and has the victims that have not stopped carry on.
func (e *Engine) callOff(p *plan) {
	for _, v := range p.victims {
		if v.plan == p && e.runs[v.id] == v && v.stop != nil && v.stop.Mode == Graceful {
			v.stop = nil
			e.called++
			v.reckon(e.now)
			e.reend(v)
			e.decide(CallOff{ID: v.id, Attempt: v.attempt})
			e.forgetResize(v)
		}
	}
	e.forget(p)
}

// forgetResize drops what is held for a gang that will not be resized.
func (e *Engine) forgetResize(r *run) {
	for _, p := range slices.Clone(e.plans) {
		if p.resizes && p.owner == r.id {
			e.forget(p)
		}
	}
}

// order tells a run to end.
func (e *Engine) orderStop(r *run, s Stop) {
	s.ID, s.Attempt = r.id, r.attempt
	r.stop = &s
	e.ordered = true
	e.stopped++
	over := e.now
	if s.Mode == Graceful && r.spec.Checkpoint != nil {
		over = e.now.Add(r.spec.Checkpoint.Cost)
	}
	r.end = over.Add(time.Nanosecond)
	e.reend(r)
	e.decide(s)
}

// loss is what stopping a run costs, in GPU-seconds, and the mode that costs
// least.
func (e *Engine) loss(r *run, grace time.Duration) (float64, Mode) {
	lost, mode := r.unsaved(e.now), Hard
	c := r.spec.Checkpoint
	if e.cfg.Policy.NoCheckpoints {
		c = nil
	}
	again := r.shape.load
	if c != nil {
		if c.Cost <= grace && c.Cost <= lost {
			lost, mode = c.Cost, Graceful
		}
		again = max(again, c.Restore)
	}
	return float64(r.size.gpus()) * (lost + again).Seconds(), mode
}

// stopFor orders a victim to stop, or to shrink to what the preemptor leaves
// it.
func (e *Engine) stopFor(p *plan, v *run, grace time.Duration) {
	_, mode := e.loss(v, grace)
	v.plan = p
	if keep := e.shrunk(v, p); keep != nil {
		e.orderStop(v, Stop{Cause: Resized, Mode: mode, For: p.owner, To: keep.size.gpus(), By: p.by})
		e.keep(&plan{owner: v.id, resizes: true, found: keep, at: e.holdsOf(keep.place), by: p.by, tenant: v.tenant})
		return
	}
	e.orderStop(v, Stop{Cause: Preempted, Mode: mode, For: p.owner, By: p.by})
}

// shrunk is the largest smaller size at which a victim can go on with what a
// plan leaves it; nil where there is none.
func (e *Engine) shrunk(v *run, p *plan) *found {
	var best *found
	for _, z := range v.shape.sizes {
		if z.gpus() >= v.size.gpus() || best != nil && z.gpus() <= best.size.gpus() {
			continue
		}
		if place := e.remains(v.place, p, z); place != nil {
			end := e.now.Add(time.Duration(float64(v.estimate-v.progress(e.now)) * z.slower)).UnixNano()
			if shuts(e.holdsOf(place), end) {
				continue
			}
			best = &found{place: place, size: z, gpu: v.gpu, end: end}
		}
	}
	return best
}

// remains chooses members of a size from what a placement keeps besides what a plan
// takes from it, and what is out of order by now.
func (e *Engine) remains(place gang.Placement, p *plan, z size) gang.Placement {
	var out gang.Placement
	for _, m := range place {
		n := e.cluster.Node(m.Node)
		if n == nil {
			continue // of a member that was not known when the run was adopted
		}
		gpus := cluster.MaskOf(m.GPUs) & n.Usable()
		for _, h := range p.at {
			if h.bay.node.ID != m.Node {
				continue
			}
			if gpus &^= h.gpus; h.bay.node.Tight() && !h.bay.node.Fits(cluster.Free, p.found.size.need) {
				gpus = 0 // both together may be too much
			}
		}
		if gpus.Count() >= z.perNode && len(out) < z.members {
			out = append(out, gang.Member{Node: m.Node, GPUs: gpus.Lowest(z.perNode).Indexes()})
		}
	}
	if len(out) < z.members {
		return nil
	}
	return out
}
