package picture

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
	"github.com/gangd/gangd/internal/sim"
)

// Recorder listens to a play, and keeps of it what is drawn.
type Recorder struct {
	scenario *config.Scenario
	on       *timeline
	at       time.Duration
	gangs    map[gang.ID]*watched
	capacity *level
	tiers    []*group // by priority, those that gangs are of
	tenants  []*group // those that want most, by what they want, then all others
	places   *places
	lost     map[schedule.Cause]*total // GPU-seconds
	summary  *sim.Summary
}

// watched is a gang as the records show it.
type watched struct {
	tier, tenant *group
	wants        float64 // GPUs
	waits        bool
	holds        gang.Placement
}

// group is what gangs that have something in common hold and want.
type group struct {
	name    string
	tenant  schedule.Tenant
	held    *level // GPUs
	wanted  *level // GPUs, by those that wait
	waiting *level // gangs
}

// maxTenants bounds how many tenants are drawn by themselves.
const maxTenants = 7

// NewRecorder makes one for a play of the scenario.
func NewRecorder(s *config.Scenario) *Recorder {
	r := &Recorder{
		scenario: s, on: newTimeline(), gangs: make(map[gang.ID]*watched, len(s.Gangs)), lost: make(map[schedule.Cause]*total),
	}
	r.capacity = newLevel(r.on)
	r.places = newPlaces(s, r.on)
	tiers, tenants := make(map[string]*group), r.groupTenants()
	for _, g := range s.Gangs {
		if tiers[g.Spec.Tier] == nil {
			tiers[g.Spec.Tier] = r.group(g.Spec.Tier)
		}
		r.gangs[g.ID] = &watched{tier: tiers[g.Spec.Tier], tenant: tenants[g.Spec.Tenant], wants: float64(g.Spec.GPUs)}
	}
	for _, t := range slices.SortedStableFunc(slices.Values(s.Rules.Tiers), func(a, b schedule.Tier) int { return cmp.Compare(b.Priority, a.Priority) }) {
		if g := tiers[t.Name]; g != nil {
			r.tiers = append(r.tiers, g)
		}
	}
	return r
}

func (r *Recorder) group(name string) *group {
	return &group{name: name, held: newLevel(r.on), wanted: newLevel(r.on), waiting: newLevel(r.on)}
}

// groupTenants finds the group of each tenant.
func (r *Recorder) groupTenants() map[string]*group {
	work := make(map[string]float64)
	for _, g := range r.scenario.Gangs {
		work[g.Spec.Tenant] += float64(g.Spec.GPUs) * g.Duration.Seconds()
	}
	declared := make(map[string]schedule.Tenant)
	for _, t := range r.scenario.Rules.Tenants {
		declared[t.Name] = t
	}
	names := slices.SortedFunc(maps.Keys(work), func(a, b string) int { return cmp.Or(cmp.Compare(work[b], work[a]), cmp.Compare(a, b)) })
	of := make(map[string]*group)
	var others *group
	for i, name := range names {
		t := declared[name]
		t.Weight = cmp.Or(t.Weight, 1)
		if i < maxTenants || len(names) == maxTenants+1 {
			g := r.group(name)
			g.tenant = t
			r.tenants, of[name] = append(r.tenants, g), g
			continue
		}
		if others == nil {
			others = r.group("all others")
		}
		others.tenant.Weight += t.Weight
		of[name] = others
	}
	if others != nil {
		r.tenants = append(r.tenants, others)
	}
	return of
}

// Capacity is told how many GPUs of a node can be held from a moment on.
func (r *Recorder) Capacity(at time.Duration, node string, gpus int) {
	r.at = at
	r.capacity.add(at, r.places.capacity(at, node, float64(gpus)))
}

// Take is told of the next record. It returns no error; it is a listener as
// others are.
func (r *Recorder) Take(rec sim.Record) error {
	r.at = rec.At
	g := r.gangs[rec.Gang]
	switch f := rec.Fact.(type) {
	case sim.Submitted:
		r.wait(g, true)
	case sim.Rejected:
		r.wait(g, false)
	case sim.Started:
		r.wait(g, false)
		g.holds = gang.Placement(f.Members)
		r.hold(g, +1)
	case sim.Stopped:
		r.hold(g, -1)
		g.holds = nil
		r.wait(g, true) // or it has finished, of which we hear at once
		if f.Lost > 0 {
			if r.lost[f.Cause] == nil {
				r.lost[f.Cause] = newTotal(r.on)
			}
			r.lost[f.Cause].add(r.at, float64(f.Lost))
		}
	case sim.Finished:
		r.wait(g, false)
	case *sim.Summary:
		r.summary = f
	}
	return nil
}

// wait puts a gang into the queue, or takes it out.
func (r *Recorder) wait(g *watched, waits bool) {
	if g.waits == waits {
		return
	}
	by := 1.0
	if !waits {
		by = -1
	}
	for _, of := range []*group{g.tier, g.tenant} {
		of.waiting.add(r.at, by)
		of.wanted.add(r.at, by*g.wants)
	}
	g.waits = waits
}

// hold gives a gang its GPUs, or takes them back.
func (r *Recorder) hold(g *watched, by float64) {
	gpus := by * float64(g.holds.GPUs())
	g.tier.held.add(r.at, gpus)
	g.tenant.held.add(r.at, gpus)
	for _, m := range g.holds {
		r.places.hold(r.at, m.Node, by*float64(len(m.GPUs)))
	}
}

// entitled is what a tenant is entitled to, by column: its weighted max-min
// share of the capacity over what all of them hold and want, no more than its
// cap.
func (r *Recorder) entitled() [][]float64 {
	capacity := r.capacity.averages(r.at)
	demand := make([][]float64, len(r.tenants))
	out := make([][]float64, len(r.tenants))
	for i, t := range r.tenants {
		demand[i] = sum(t.held.averages(r.at), t.wanted.averages(r.at))
		out[i] = make([]float64, len(capacity))
	}
	wants := make([]schedule.Want, len(r.tenants))
	for column := range capacity {
		for i, t := range r.tenants {
			wants[i] = schedule.Want{Demand: demand[i][column], Weight: t.tenant.Weight}
			if most := float64(t.tenant.MaxGPUs); most > 0 {
				wants[i].Demand = min(wants[i].Demand, most)
			}
		}
		for i, share := range schedule.MaxMin(wants, capacity[column]) {
			out[i][column] = share
		}
	}
	return out
}

func sum(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] + b[i]
	}
	return out
}
