package sim

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/soak"
)

// Whoever says of their gangs that they are short, which they are not, and so has
// them go before others that wait for more room, again and again, holds up nobody
// for long, though each comes under a name of which nothing is known. By arrival
// alone who came first is first: so once all that is before a gang has ended, it
// is late when its start was put off by its own estimate, and starts when those end
// that run on its GPUs then.
//
// What it was told to start at then may be a run, and half of one, later: by those
// who started before it held a future start, and whose estimates grow by half.
func TestLiarsHoldNobodyUp(t *testing.T) {
	soak.Check(t, 200_000, func(t *rapid.T) int {
		w := newTown(t, rapid.IntRange(1, 6).Draw(t, "nodes"), longest)
		w.scenario.Rules.Policy.Arrival = true
		kinds := w.kinds("a", "production", w.gpus(), false, 1, 2, 4, 8)
		for range rapid.IntRange(1, 2).Draw(t, "wide kinds") {
			kinds = append(kinds, w.kinds("a", "production", w.gpus(), false, 8, 16, w.gpus())...)
		}
		w.stream(kinds, rapid.SampledFrom([]float64{0.5, 0.9, 1.2}).Draw(t, "load"))
		w.lie(rapid.Bool().Draw(t, "new names"))
		p := &patience{told: make(map[gang.ID]span)}
		events := w.play(p.take)
		var before time.Duration // the last end of those who came first
		for _, g := range w.scenario.Gangs {
			s := p.told[g.ID]
			limit := max(before, g.At) + 5*longest/2 + g.Spec.Estimate + 2*time.Second
			if limit < w.over && !s.started || s.start > limit {
				t.Fatalf("%s, of %d GPUs for %s, came at %s; all before it ended by %s; it started: %t, at %s", g.ID, g.Spec.GPUs, g.Spec.Estimate, g.At, before, s.started, s.start)
			}
			if !s.ended {
				break // so nothing is known of when those are first that came after it
			}
			before = max(before, s.end)
		}
		return events
	})
}

// lie has gangs be estimated at a part of what they run, which differs from one to
// the next; under new names, each comes from a tenant of its own.
func (w *town) lie(names bool) {
	parts := rapid.SliceOfN(rapid.Float64Range(0.01, 1), 1, 7).Draw(w.T, "of the truth")
	for i := range w.scenario.Gangs {
		g := &w.scenario.Gangs[i]
		spec := *g.Spec
		spec.Estimate = max(time.Second, time.Duration(parts[i%len(parts)]*float64(g.Duration)))
		if names {
			spec.Tenant = string(g.ID)
		}
		g.Spec = &spec
	}
}

// patience notes when each gang started and ended.
type patience struct{ told map[gang.ID]span }

type span struct {
	started, ended bool
	start, end     time.Duration
}

func (p *patience) take(r Record) error {
	s := p.told[r.Gang]
	switch f := r.Fact.(type) {
	case Rejected:
		return fmt.Errorf("%s is rejected: %s", r.Gang, f.Reason)
	case Started:
		s.started, s.start = true, r.At
	case Stopped:
		s.ended, s.end = true, r.At
	default:
		return nil
	}
	p.told[r.Gang] = s
	return nil
}
