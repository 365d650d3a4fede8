package schedule

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// Expect is, at a time since the engine's last event, when a gang that waits
// should start, where it holds a future start, and when one that runs should be
// over, and until when it is protected; the zero time where that is not known, or
// not so.
func (e *Engine) Expect(id gang.ID, now time.Time) (starts, ends, protected time.Time) {
	if w := e.waiting[id]; w != nil && w.claims == e.decided {
		starts = w.start
	}
	if r := e.runs[id]; r != nil && r.stop == nil {
		ends = r.end
		if until := r.began.Add(r.tier.Protected); r.tier.Protected > 0 && until.After(now) {
			protected = until
		}
	}
	return starts, ends, protected
}

// Ahead lists the first gangs that are before one in the order, at most so many,
// and counts all that wait.
func (x *Explainer) Ahead(id gang.ID, most int) (ahead []gang.Ahead, waiting int) {
	e := x.engine
	_, _, place, waits := x.Explain(id)
	if !waits {
		return nil, 0
	}
	first := make([]*waiter, min(most, place-1))
	for other, at := range x.place {
		if at <= len(first) {
			first[at-1] = e.waiting[other]
		}
	}
	for _, w := range first {
		ahead = append(ahead, gang.Ahead{ID: w.ID, Tier: w.tier.Name, Tenant: w.tenant.Name, GPUs: w.Spec.GPUs, Code: w.told()})
	}
	return ahead, len(x.place)
}

// Shares says who has, wants, and is entitled to how much, at a time since the
// engine's last event. What tiers have saved up is as of that event.
func (e *Engine) Shares(now time.Time) gang.Shares {
	out := gang.Shares{Capacity: e.capacity()}
	waiting, wanted := make(map[*tenant]int), make(map[*tenant]int)
	for _, t := range e.tiers {
		row := gang.TierShare{
			Name: t.Name, Priority: t.Priority, MinShare: t.MinShare, CreditGPUSeconds: t.credit, Running: t.running,
			TargetMillis: t.TargetWait.Milliseconds(),
		}
		for _, l := range t.lines {
			for _, w := range l.waiters {
				if w.Held {
					continue
				}
				row.Waiting++
				row.Wanted += w.Spec.GPUs
				waiting[l.tenant]++
				wanted[l.tenant] += w.Spec.GPUs
			}
		}
		out.Running += t.running
		out.Tiers = append(out.Tiers, row)
	}
	for _, m := range e.cluster.Models() {
		out.Free += e.cluster.Root().GPUs(cluster.Free, m)
	}
	for _, name := range slices.Sorted(maps.Keys(e.tenants)) {
		t := e.tenants[name]
		out.Tenants = append(out.Tenants, gang.TenantShare{
			Name: name, Weight: t.Weight, Guaranteed: t.Guaranteed, MaxGPUs: t.MaxGPUs,
			Running: t.running, Waiting: waiting[t], Wanted: wanted[t], Past: e.pastAt(t, now),
		})
	}
	entitle(out.Tenants, out.Capacity)
	return out
}

// entitle gives each tenant its weighted max-min share of so many GPUs.
func entitle(tenants []gang.TenantShare, gpus int) {
	wants := make([]Want, len(tenants))
	for i, t := range tenants {
		d := t.Running + t.Wanted
		if t.MaxGPUs > 0 {
			d = min(d, t.MaxGPUs)
		}
		wants[i] = Want{float64(d), t.Weight}
	}
	for i, share := range MaxMin(wants, float64(gpus)) {
		tenants[i].Entitled = share
	}
}

// Want is what somebody could use, and the weight that counts for it.
type Want struct{ Demand, Weight float64 }

// MaxMin gives each its weighted max-min share of so much, by filling: those
// whose demand is met first, for their weight, leave the rest to the others.
func MaxMin(wants []Want, much float64) []float64 {
	order := make([]int, len(wants))
	weights := 0.0
	for i, w := range wants {
		order[i] = i
		weights += w.Weight
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(wants[a].Demand/wants[a].Weight, wants[b].Demand/wants[b].Weight)
	})
	shares := make([]float64, len(wants))
	for _, i := range order {
		w := wants[i]
		shares[i] = min(w.Demand, much*w.Weight/weights)
		much -= shares[i]
		weights -= w.Weight
	}
	return shares
}
