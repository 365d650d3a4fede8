package sim

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
	"github.com/gangd/gangd/internal/soak"
)

// A gang that needs all of the cluster, or most of it, starts against an endless
// stream of small ones, of its own tenant and of others, though each of those
// fits at once where it does not: within the work that is ahead of it, divided by
// the capacity, and two of the longest estimates.
//
// What is ahead of it is what runs when it comes, and what starts before it with
// a better place in the order: all that does while older gangs of its own tenant
// wait, which the tenant's share alone moves on; then those of tenants that have
// less for their weight. What starts from behind it must not cost it anything.
// Others that keep coming before it may each take of the room that it waits for,
// until it has been the first blocked one for 5 minutes and keeps its place: so
// where there are other tenants, that is added, and the time in which one of them
// was before it and waited too.
func TestWideGangsStart(t *testing.T) {
	const keepsPlace = 5 * time.Minute
	soak.Check(t, 100_000, func(t *rapid.T) int {
		w := newTown(t, rapid.IntRange(1, 6).Draw(t, "nodes"), longest*time.Duration(rapid.IntRange(1, 20).Draw(t, "half-life")))
		tenants := names[:rapid.IntRange(1, 4).Draw(t, "tenants")]
		small := rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "small") // one size, so that none is in the way of another
		for _, name := range tenants {
			w.settle(schedule.Tenant{Name: name, Weight: rapid.SampledFrom([]float64{0.5, 1, 2}).Draw(t, "weight")})
			load := rapid.SampledFrom([]float64{0.3, 1.2}).Draw(t, "load")
			w.stream(w.kinds(name, "production", small, false, small), load)
		}
		spec := &gang.Spec{Name: "wide", Tenant: "a", Tier: "production", GPUsPerNode: 8, Estimate: longest}
		spec.GPUs = w.gpus() - 8*rapid.IntRange(0, len(w.scenario.Nodes)/3).Draw(t, "spared")
		came := time.Duration(rapid.IntRange(0, 600).Draw(t, "arrival")) * time.Second
		wide := w.arrive(came, kind{spec, longest})
		a := newAhead(w, wide)
		events := w.play(a.take)
		limit := time.Duration(a.work/float64(w.gpus())*float64(time.Second)) + 2*longest
		if len(tenants) > 1 {
			limit += keepsPlace + a.second
		}
		if a.started < 0 && w.over-came > limit || a.started > came+limit {
			t.Fatalf("%d of %d GPUs are asked for at %s, with %.0f GPU-seconds ahead, and had at %s", spec.GPUs, w.gpus(), came, a.work, a.started)
		}
		return events
	})
}

// ahead adds up the work that is before a gang in the order, in GPU-seconds.
type ahead struct {
	*ledger
	gang    gang.ID
	waits   bool
	started time.Duration // negative while it has not
	work    float64
	// second is the time in which others waited that were before it.
	second time.Duration
	// until is when what runs will be over.
	until map[gang.ID]time.Duration
	seq   map[gang.ID]int
	// passed are the gangs of its own tenant that started from behind it.
	passed map[gang.ID]bool
	// older counts the gangs of its own tenant that wait before it.
	older int
}

func newAhead(w *town, id gang.ID) *ahead {
	return &ahead{ledger: newLedger(w.scenario), gang: id, started: -1, until: make(map[gang.ID]time.Duration), seq: make(map[gang.ID]int), passed: make(map[gang.ID]bool)}
}

func (a *ahead) take(r Record) error {
	if a.waits && slices.ContainsFunc(a.purses, func(p *purse) bool { return p.waiting > 0 && a.less(p) }) {
		a.second += r.At - a.at
	}
	a.pass(r.At)
	switch f := r.Fact.(type) {
	case Submitted:
		a.seq[r.Gang] = len(a.seq)
		if !a.waits && a.own(r.Gang) && r.Gang != a.gang {
			a.older++
		}
		if r.Gang == a.gang {
			a.waits = true
			for id, until := range a.until {
				a.work += float64(a.gangs[id].Spec.GPUs) * (until - r.At).Seconds()
			}
		}
	case Started:
		if r.Gang == a.gang {
			a.waits, a.started = false, r.At
		}
		if a.waits && a.before(r.Gang) {
			a.work += float64(f.GPUs) * a.gangs[r.Gang].Duration.Seconds()
		}
		if a.own(r.Gang) && (!a.waits || a.seq[r.Gang] < a.seq[a.gang]) {
			a.older--
		}
		if a.waits && a.own(r.Gang) && a.older == 0 {
			a.passed[r.Gang] = true
		}
		a.until[r.Gang] = r.At + a.gangs[r.Gang].Duration
	case Stopped:
		delete(a.until, r.Gang)
		delete(a.passed, r.Gang)
	}
	return a.ledger.take(r)
}

func (a *ahead) own(id gang.ID) bool { return a.gangs[id].Spec.Tenant == a.gangs[a.gang].Spec.Tenant }

// before reports whether a gang that starts was before the wide one in the order.
func (a *ahead) before(id gang.ID) bool {
	if a.older > 0 || a.own(id) {
		return a.older > 0
	}
	return a.less(a.of[a.gangs[id].Spec.Tenant])
}

// less reports whether another tenant has less, for its weight, than the one of
// the wide gang. What that one has from behind the gang does not cost it its place.
func (a *ahead) less(p *purse) bool {
	const rounding = 1e-9 // the engine adds up at other moments
	own := *a.of[a.gangs[a.gang].Spec.Tenant]
	if p.Name == own.Name {
		return false
	}
	for id := range a.passed {
		own.running -= a.gangs[id].Spec.GPUs
	}
	return p.share() < own.share()+rounding
}
