package schedule

import (
	"math"
	"slices"
	"time"

	"github.com/gangd/gangd/internal/cluster"
)

// tenant is who pays, with what it has used.
type tenant struct {
	Tenant
	running int // GPUs
	planned int // GPUs more that plans hold for it
	told    int // how many both were when its gangs were told why they wait
	// past is its decayed use in GPUs: ln 2 / half_life times the integral of its
	// GPUs x 2^(-age / half_life). While it runs r GPUs it approaches r.
	past float64
}

func newTenant(t Tenant) *tenant {
	if t.Weight == 0 {
		t.Weight = 1
	}
	return &tenant{Tenant: t}
}

func (e *Engine) tenant(name string) *tenant {
	t := e.tenants[name]
	if t == nil {
		t = newTenant(Tenant{Name: name})
		e.tenants[name] = t
	}
	return t
}

// share is what a tenant has, and had, for its weight.
func (e *Engine) share(t *tenant) float64 {
	if e.cfg.Policy.Arrival {
		return 0
	}
	return (float64(t.running) + t.past) / t.Weight
}

// shareOf is the share that decides on the place of a gang that waits: its
// tenant's, without what started from behind that gang.
func (e *Engine) shareOf(w *waiter) float64 {
	if w.passed == 0 || e.cfg.Policy.Arrival {
		return e.share(w.tenant)
	}
	return (float64(w.tenant.running-w.passed) + w.tenant.past) / w.tenant.Weight
}

// notePassed has the older gangs of a tenant that hold a future start keep their
// places when a younger one starts: what may not take the room that they have a
// claim to must not put them behind others either.
func (e *Engine) notePassed(w *waiter) {
	r := e.runs[w.ID]
	for _, c := range e.claims {
		if o := c.owner; o != nil && o.tier == w.tier && o.tenant == w.tenant && o.Seq < w.Seq {
			o.passed += r.size.gpus()
			r.behind = append(r.behind, o)
		}
	}
}

// maxSaved bounds what a tier may save up: so much of its min_share, or what its
// first gang costs.
const maxSaved = 10 * time.Minute

// account brings the past of tenants and the credit of tiers up to now.
func (e *Engine) account() {
	passed := e.now.Sub(e.accounted)
	e.accounted = e.now
	if passed <= 0 {
		return
	}
	e.keepPlaces(passed)
	if e.cfg.HalfLife > 0 {
		kept := e.kept(passed)
		for _, t := range e.tenants {
			t.past = t.fades(kept)
		}
	}
	for _, t := range e.tiers {
		if t.MinShare == 0 || t.gangs == 0 {
			continue
		}
		most := max(e.firstOf(t).price(), t.MinShare*float64(e.capacity())*maxSaved.Seconds())
		t.credit = min(t.credit+max(e.missing(t), 0)*passed.Seconds(), max(most, t.credit))
	}
}

// kept is the part of past use that counts once more time has passed.
func (e *Engine) kept(passed time.Duration) float64 {
	return math.Exp2(-passed.Seconds() / e.cfg.HalfLife.Seconds())
}

// fades is the past of a tenant of which a part is kept, while it ran what it
// runs.
func (t *tenant) fades(kept float64) float64 {
	return float64(t.running) + (t.past-float64(t.running))*kept
}

// pastAt is the past of a tenant at a time since the last event.
func (e *Engine) pastAt(t *tenant, now time.Time) float64 {
	if passed := now.Sub(e.accounted); passed > 0 && e.cfg.HalfLife > 0 {
		return t.fades(e.kept(passed))
	}
	return t.past
}

// missing is how many GPUs a tier holds less than its min_share; negative
// where it holds more.
func (e *Engine) missing(t *tier) float64 {
	return t.MinShare*float64(e.capacity()) - float64(t.running)
}

// capacity is the number of GPUs in order.
func (e *Engine) capacity() int {
	n := 0
	for _, m := range e.cluster.Models() {
		n += e.cluster.Root().GPUs(cluster.Usable, m)
	}
	return n
}

// creditAt is when a tier will have saved up for its first gang, if that is to
// be.
func (e *Engine) creditAt(t *tier) (time.Time, bool) {
	missing := e.missing(t)
	if t.MinShare == 0 || t.gangs == 0 || missing <= 0 {
		return time.Time{}, false
	}
	w := e.firstOf(t)
	if w == nil || t.credit >= w.price() || float64(smallest(w.Spec)) <= missing {
		return time.Time{}, false
	}
	return e.now.Add(time.Duration(math.Ceil((w.price() - t.credit) / missing * float64(time.Second)))), true
}

// firstOf is the gang of a tier that would be considered first.
func (e *Engine) firstOf(t *tier) *waiter {
	var best *waiter
	var bestShare float64
	for _, l := range t.lines {
		w := l.waiters[0]
		share := e.shareOf(w)
		if best == nil || share < bestShare || share == bestShare && w.Seq < best.Seq {
			best, bestShare = w, share
		}
	}
	return best
}

// anyOwed reports whether a tier that has gangs waiting holds less than its
// min_share.
func (e *Engine) anyOwed() bool {
	return slices.ContainsFunc(e.tiers, func(t *tier) bool { return t.MinShare > 0 && t.gangs > 0 && e.missing(t) > 0 })
}
