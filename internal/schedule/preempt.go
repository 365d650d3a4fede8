package schedule

import (
	"cmp"
	"slices"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

const (
	// maxExact is the number of candidates of a domain up to which every set of
	// victims is weighed. Beyond it the cheapest nodes are taken one by one, and
	// what is not needed is spared again.
	maxExact = 12
	// maxRepairs bounds how often a plan is made again without a victim that it
	// turned out not to need.
	maxRepairs = 8
)

// candidate is a run that may be stopped for another gang.
type candidate struct {
	run  *run
	loss float64 // GPU-seconds
}

// compare prefers less loss, then the younger.
func (c candidate) compare(o candidate) int {
	if by := cmp.Compare(c.loss, o.loss); by != 0 {
		return by
	}
	return cmp.Or(-c.run.began.Compare(o.run.began), cmp.Compare(c.run.seq, o.run.seq))
}

// victims is a set of candidates with what it costs.
type victims struct {
	runs []*run
	loss float64
}

// better prefers less loss, then fewer, then younger victims.
func (v *victims) better(o *victims) bool {
	if o == nil {
		return true
	}
	return cmp.Or(cmp.Compare(v.loss, o.loss), cmp.Compare(len(v.runs), len(o.runs)), -v.age().Compare(o.age())) < 0
}

// age is when the oldest of them began: of two sets the one whose oldest is
// younger.
func (v *victims) age() time.Time {
	var oldest time.Time
	for _, r := range v.runs {
		if oldest.IsZero() || r.began.Before(oldest) {
			oldest = r.began
		}
	}
	return oldest
}

// mayPreempt reports whether others may be stopped for a gang.
func (e *Engine) mayPreempt(w *waiter) bool {
	if e.cfg.Policy.NoPreemption {
		return false
	}
	return len(w.tier.Preempts) > 0 || w.tenant.Guaranteed > 0 && e.withinGuarantee(w)
}

func (e *Engine) withinGuarantee(w *waiter) bool {
	return !e.cfg.Policy.Arrival && w.tenant.running+smallest(w.Spec) <= w.tenant.Guaranteed
}

// preempt makes a plan for a gang that does not fit: the victims that cost
// least and after whose end it starts. Nothing else starts on what they leave.
func (e *Engine) preempt(w *waiter, sizes []size) bool {
	if !e.mayPreempt(w) || e.futile(w) || !e.mayPlan() {
		return false
	}
	from := e.stoppable(w)
	for _, z := range sizes {
		z.request = e.relax(z.request)
		if z.perNode == 0 || z.missing != "" || !from.any() {
			continue
		}
		if v, f := e.cheapest(w, z, from); f != nil {
			e.carryOut(w, f, v)
			return true
		}
	}
	w.shape.futile[w.tier] = e.stand()
	return false
}

// stand changes with all that could let a plan succeed that did not before.
func (e *Engine) stand() uint64 { return e.room + e.starts + e.called }

// futile reports whether no victims helped a gang of the shape and tier, and
// nothing has changed since that could. Gangs that ask for a guarantee differ.
func (e *Engine) futile(w *waiter) bool {
	return w.shape.futile[w.tier] == e.stand() && !(w.tenant.Guaranteed > 0 && e.withinGuarantee(w))
}

// mayPlan keeps to the number of plans a minute.
func (e *Engine) mayPlan() bool {
	if e.cfg.PlansPerMinute == 0 {
		return true
	}
	e.plansAt = slices.DeleteFunc(e.plansAt, func(t time.Time) bool { return e.now.Sub(t) >= time.Minute })
	return len(e.plansAt) < e.cfg.PlansPerMinute
}

func (e *Engine) carryOut(w *waiter, f *found, v *victims) {
	by := e.now.Add(w.tier.Grace)
	f.end = nanos(f.end, w.tier.Grace)
	p := &plan{owner: w.ID, found: f, at: e.holdsOf(f.place), victims: v.runs, by: by, tenant: w.tenant, more: f.size.gpus()}
	e.plansAt = append(e.plansAt, e.now)
	e.keep(p)
	w.plan = p
	e.addClaim(p.claim(w, nil))
	for _, r := range v.runs {
		e.stopFor(p, r, w.tier.Grace)
	}
}

// stoppable is who may be stopped for a gang: those below its tier, or those who
// are to give back what is guaranteed to its tenant.
type stoppable struct {
	e    *Engine
	tier *tier
	// borrowers are the latter, back what their end would make room for.
	borrowers []candidate
	back      *potential
}

func (e *Engine) stoppable(w *waiter) stoppable {
	s := stoppable{e: e, tier: w.tier}
	if w.tenant.Guaranteed == 0 || !e.withinGuarantee(w) {
		return s
	}
	e.borrowers = e.findCandidates(e.borrowers[:0], w.tier, func(r *run) bool {
		lower := r.tier.Priority < w.tier.Priority && !r.owed // what a tier is owed is not taken by those above
		return r.tenant != w.tenant && (lower || r.tier.Priority == w.tier.Priority) && r.tenant.running-r.size.gpus() >= r.tenant.Guaranteed
	})
	s.borrowers, s.back = e.borrowers, &e.reclaim
	e.findPotential(s.back, s.borrowers)
	return s
}

// any reports whether there is somebody, or was when a potential was found.
func (s stoppable) any() bool {
	return s.back == nil && s.tier.potential.decision == s.e.decision || len(s.candidates()) > 0
}

func (s stoppable) candidates() []candidate {
	if s.back != nil {
		return s.borrowers
	}
	return s.e.below(s.tier)
}

func (s stoppable) potential() *potential {
	if s.back != nil {
		return s.back
	}
	return s.e.potentialOf(s.tier)
}

// below lists who may be stopped for gangs of a tier: it is the same for all of
// them in a decision, until one is told to stop.
func (e *Engine) below(t *tier) []candidate {
	if t.listed != e.decision || t.listedAt != e.stopped+e.starts {
		t.candidates = e.findCandidates(t.candidates[:0], t, func(*run) bool { return false })
		t.listed, t.listedAt = e.decision, e.stopped+e.starts
	}
	return t.candidates
}

// findCandidates adds to a list who may be stopped for gangs of a tier.
func (e *Engine) findCandidates(out []candidate, t *tier, borrowed func(*run) bool) []candidate {
	for len(t.over) < len(e.tiers) {
		t.over = append(t.over, slices.Contains(t.Preempts, e.tiers[len(t.over)].Name))
	}
	for _, r := range e.ends {
		if r.stop != nil || r.spec.Pinned || e.now.Sub(r.began) < r.tier.Protected {
			continue
		}
		if t.over[r.tier.rank] && !r.owed || borrowed(r) {
			loss, _ := e.loss(r, t.Grace)
			out = append(out, candidate{r, loss})
		}
	}
	return out
}

// cheapest weighs the domains one by one: victims that are spread over several
// free as much, and help nobody.
func (e *Engine) cheapest(w *waiter, z size, from stoppable) (best *victims, at *found) {
	end := e.latest(w, z, w.tier.Grace)
	for _, model := range e.modelsFor(z.request) {
		domains := e.clearable(from.potential(), z, model)
		if len(domains) == 0 {
			continue
		}
		in := e.byDomain(z.request, model, domains, from.candidates(), end)
		for _, d := range domains {
			if len(in[d]) == 0 {
				continue
			}
			s := e.newSearch(z, d, model, in[d], end)
			v := s.victims(best)
			if v == nil || !v.better(best) {
				continue
			}
			if v, f := e.proven(w, z, v); f != nil && v.better(best) {
				best, at = v, f
			}
		}
	}
	return best, at
}

// byDomain parts what candidates would leave, on nodes that would do, by those of
// the domains of the level that is required that are looked at: cheapest first.
// Nodes that will be out of use before an end would not do.
func (e *Engine) byDomain(r request, model string, domains []*cluster.Domain, all []candidate, end int64) map[*cluster.Domain][]leaving {
	slices.SortFunc(all, candidate.compare)
	out := make(map[*cluster.Domain][]leaving, len(domains))
	for _, d := range domains {
		out[d] = nil
	}
	for i := range all {
		for _, s := range all[i].run.seats {
			if s == nil || s.node.Model != model || s.node.MemoryMiB < r.memoryMiB || s.node.Usable().Count() < r.perNode || !r.takes(s.node, cluster.Usable) {
				continue
			}
			gpus := s.gpus & s.node.Usable() &^ e.bay(s.node).claimed
			if gpus == 0 || e.bay(s.node).shuts(end) {
				continue
			}
			d := e.cluster.Root()
			if r.require >= 0 {
				d = s.node.Domain(r.require)
			}
			if in, is := out[d]; is {
				out[d] = append(in, leaving{&all[i], s, gpus})
			}
		}
	}
	return out
}

// leaving is what the end of a candidate frees on one node.
type leaving struct {
	*candidate
	seat *seat
	gpus cluster.Mask
}

// proven places the gang on what the victims leave, and spares those that it
// does not need.
func (e *Engine) proven(w *waiter, z size, v *victims) (*victims, *found) {
	var f *found
	for range maxRepairs {
		mark := e.cluster.Mark()
		for _, r := range v.runs {
			e.vacate(r)
		}
		e.fence(w, never)
		e.bar(e.latest(w, z, w.tier.Grace))
		f = e.place(w, z)
		e.cluster.Rollback(mark)
		if f == nil {
			return v, nil
		}
		needed := slices.DeleteFunc(slices.Clone(v.runs), func(r *run) bool { return !e.overlaps(r.place, f.place) })
		if len(needed) == len(v.runs) {
			return v, f
		}
		v = e.newVictims(w, needed)
	}
	e.Counts.CutSearches++
	return v, f
}

func (e *Engine) newVictims(w *waiter, runs []*run) *victims {
	v := &victims{runs: runs}
	for _, r := range runs {
		loss, _ := e.loss(r, w.tier.Grace)
		v.loss += loss
	}
	return v
}

// vacate frees, within a trial, what a run holds.
func (e *Engine) vacate(r *run) {
	for _, s := range r.seats {
		if s != nil {
			e.cluster.Release(s.node, s.gpus, s.need)
		}
	}
}

// overlaps reports whether two placements share GPUs, or a node on which their
// CPU and memory may be what is short.
func (e *Engine) overlaps(a, b gang.Placement) bool {
	for _, m := range a {
		for _, o := range b {
			if m.Node == o.Node && (cluster.MaskOf(m.GPUs)&cluster.MaskOf(o.GPUs) != 0 || e.cluster.Node(m.Node).Tight()) {
				return true
			}
		}
	}
	return false
}
