package schedule

import (
	"cmp"
	"slices"
	"time"

	"github.com/gangd/gangd/internal/cluster"
)

// maxGrowths bounds the gangs that are tried for a larger size in a decision.
const maxGrowths = 16

// mayResize notes a run whose gang could have another size in its place: the
// oldest run grows first.
func (e *Engine) mayResize(r *run) {
	if len(r.spec.Elastic) == 0 {
		return
	}
	at, _ := slices.BinarySearchFunc(e.elastic, r, func(o, r *run) int {
		return cmp.Or(o.began.Compare(r.began), cmp.Compare(o.seq, r.seq), cmp.Compare(o.attempt, r.attempt))
	})
	e.elastic = slices.Insert(e.elastic, at, r)
}

// grow gives GPUs that no gang that waits can use, and none has a claim to, to
// elastic gangs that run at less than they prefer, where that has them end
// sooner.
func (e *Engine) grow() {
	tried := 0
	for _, r := range e.elastic {
		if r.stop != nil || !e.saves(r) || r.size.gpus() >= r.spec.GPUs {
			continue
		}
		if tried++; tried > maxGrowths {
			e.Counts.CutSearches++
			return
		}
		if f := e.larger(r); f != nil {
			p := &plan{owner: r.id, resizes: true, found: f, at: e.holdsOf(f.place), tenant: r.tenant, more: f.size.gpus() - r.size.gpus()}
			e.keep(p)
			e.addClaim(p.claim(nil, r))
			e.orderStop(r, Stop{Cause: Resized, Mode: Graceful, To: f.size.gpus(), By: e.now.Add(r.spec.Checkpoint.Cost)})
		}
	}
}

// saves reports whether a run can be stopped so that it goes on from there.
func (e *Engine) saves(r *run) bool { return r.spec.Checkpoint != nil && !e.cfg.Policy.NoCheckpoints }

// larger finds a larger size at which a run ends sooner, all counted.
func (e *Engine) larger(r *run) *found {
	c := r.spec.Checkpoint
	next := e.afterStop(r)
	sizes := slices.Clone(r.shape.sizes)
	slices.SortFunc(sizes, func(a, b size) int { return cmp.Compare(b.gpus(), a.gpus()) })
	var best *found
	for _, z := range sizes {
		if z.gpus() <= r.size.gpus() || z.gpus() > r.spec.GPUs || r.tenant.MaxGPUs > 0 && r.tenant.running+r.tenant.planned-r.size.gpus()+z.gpus() > r.tenant.MaxGPUs {
			continue
		}
		mark := e.cluster.Mark()
		e.vacate(r)
		e.fence(nil, never)
		e.bar(e.latest(next, z, c.Cost))
		f := e.place(next, z)
		e.cluster.Rollback(mark)
		if f == nil {
			continue
		}
		f.end = nanos(f.end, c.Cost)
		if time.Unix(0, f.end).Before(r.end) && (best == nil || f.end < best.end) {
			best = f
		}
	}
	return best
}

// afterStop is a run as it would wait after a graceful stop now.
func (e *Engine) afterStop(r *run) *waiter {
	return &waiter{
		Gang: Gang{ID: r.id, Seq: r.seq, Attempt: r.attempt + 1, Spec: r.spec, Done: r.progress(e.now)},
		tier: r.tier, tenant: r.tenant, shape: r.shape, estimate: r.estimate,
	}
}

// leaveNodes has gangs leave nodes that are drained or will be taken away:
// those that can save their state in time. Others run on while the node is
// there.
func (e *Engine) leaveNodes() {
	if !e.leaves {
		return
	}
	e.leaves = false
	for _, r := range e.running() {
		if r.stop != nil || !e.saves(r) {
			continue
		}
		for _, s := range r.seats {
			if s == nil || !e.leaving[s.node.ID] {
				continue
			}
			if stop, leaves := e.leave(r, s.node); leaves {
				e.orderStop(r, stop)
				break
			}
		}
	}
}

func (e *Engine) leave(r *run, n *cluster.Node) (Stop, bool) {
	cost := r.spec.Checkpoint.Cost
	switch {
	case !n.GoneAt.IsZero():
		return Stop{Cause: Spot, Mode: Graceful, By: n.GoneAt}, !e.now.Add(cost).After(n.GoneAt)
	default:
		return Stop{Cause: Drained, Mode: Graceful, By: e.now.Add(cost)}, n.Draining
	}
}

// running lists the runs by their arrival.
func (e *Engine) running() []*run {
	out := slices.Clone(e.ends)
	slices.SortFunc(out, func(a, b *run) int { return cmp.Compare(a.seq, b.seq) })
	return out
}
