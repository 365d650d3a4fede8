package sim

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gangd/gangd/internal/schedule"
	"github.com/gangd/gangd/internal/soak"
)

// names of tenants.
var names = []string{"a", "b", "c", "d"}

// Over 50 of the longest runs each tenant holds, on the mean of the time in
// which it had gangs waiting, at least 0.95 of its weighted max-min share, less
// one of its largest gangs.
//
// The share is of what was feasible: of what the tenants of the tier held in all
// at each moment. What nobody held, because no gang that waited fitted there, or
// because it was kept for a wide one, and what a tier above took, is nobody's
// share. A tenant wants what its gangs ask for that run or wait, up to its cap.
//
// One gang is meant in GPUs: the rules compare what tenants hold now, beside
// what they held, and it takes whole gangs to make that even. What one tenant has
// too much by a gang of its own, others lack, and it is the past that makes up
// for it: where it does not count, or is not forgotten in a tenth of the time that
// is looked at, a tenant of narrow gangs may lack the widest of anybody.
//
// So it may where gangs are wider than their tenant's share: tenants take turns
// then, which only the past can tell. (With a half-life of 0 who came first has
// every turn.) Nobody is thought to run for a shorter time than it does: by the
// rules it could pass those who hold a future start.
func TestEachTenantGetsItsShare(t *testing.T) {
	soak.Check(t, 150_000, func(t *rapid.T) int {
		turns := rapid.Bool().Draw(t, "by turns")
		halfLives := []time.Duration{0, longest, 2 * longest, 5 * longest, 20 * longest, 60 * longest}
		if turns {
			halfLives = halfLives[1:4]
		}
		w := newTown(t, rapid.IntRange(1, 4).Draw(t, "nodes"), rapid.SampledFrom(halfLives).Draw(t, "half-life"))
		w.rivals(turns)
		if rapid.Bool().Draw(t, "a tier above") {
			w.stream(w.kinds("above", "interactive", 8, false, 1, 2, 4, 8), 0.2)
		}
		l := newLedger(w.scenario)
		events := w.play(l.take)
		widest := slices.Max(slices.Collect(maps.Values(w.largest)))
		for i, fair := range l.fairly() {
			p := l.purses[i]
			one := widest
			if h := w.scenario.Rules.HalfLife; !turns && h > 0 && h <= w.over/10 {
				one = w.largest[p.Name]
			}
			if least := 0.95*fair - float64(one)*p.queued; p.held < least {
				t.Fatalf("tenant %s held %.0f GPU-seconds, which should be at least %.0f: 0.95 of %.0f, less a gang of %d for %.0f s", p.Name, p.held, least, fair, one, p.queued)
			}
		}
		return events
	})
}

// rivals are two to four tenants of one tier: some want more than their share, some
// less, and some are capped. Only by turns have they gangs that are wider than
// their share.
func (w *town) rivals(turns bool) {
	tenants := names[:rapid.IntRange(2, 4).Draw(w.T, "tenants")]
	weights := make(map[string]float64)
	all := 0.0
	for _, name := range tenants {
		weights[name] = rapid.SampledFrom([]float64{0.5, 1, 1, 2, 3}).Draw(w.T, "weight")
		all += weights[name]
	}
	for _, name := range tenants {
		most := w.gpus()
		if !turns {
			most = max(1, int(float64(most)*weights[name]/all))
		}
		kinds := w.kinds(name, "production", most, true, 1, 2, 3, 4, 5, 8, 16, w.gpus())
		w.stream(kinds, rapid.SampledFrom([]float64{0.1, 0.3, 0.6, 1.1, 1.1}).Draw(w.T, "load"))
		limit := 0
		if rapid.IntRange(0, 4).Draw(w.T, "capped") == 0 {
			limit = rapid.IntRange(w.largest[name], w.gpus()).Draw(w.T, "max_gpus")
		}
		w.settle(schedule.Tenant{Name: name, Weight: weights[name], MaxGPUs: limit})
	}
}

// Whatever the tiers above want, and however many others wait, a tenant holds
// what it is guaranteed, and a tier its min_share, on the mean of the time in
// which they had gangs waiting, less one of their largest gangs; and less what
// they held while the others' runs, which nobody stops for them, came to an end.
//
// The gangs have no more GPUs than are guaranteed to the one, and than are the
// min_share of the other: what wider ones get is in TestWideGangsOfALowTier.
func TestGuaranteesAndMinSharesAreKept(t *testing.T) {
	soak.Check(t, 150_000, func(t *rapid.T) int {
		w := newTown(t, rapid.IntRange(1, 4).Draw(t, "nodes"), longest*time.Duration(rapid.IntRange(0, 20).Draw(t, "half-life")))
		minShare := rapid.SampledFrom([]float64{0.125, 0.25, 0.4}).Draw(t, "min_share")
		w.scenario.Rules.Tiers[2].MinShare = minShare // of background
		least := minShare * float64(w.gpus())
		guaranteed := rapid.IntRange(1, w.gpus()/2).Draw(t, "guaranteed")
		tier := rapid.SampledFrom([]string{"interactive", "production"}).Draw(t, "tier")
		w.stream(w.kinds("sure", tier, guaranteed, false, 1, 2, 4, 8, 16), 1.1)
		w.stream(w.kinds("low", "background", int(least), false, 1, 2, 4, 8), 1.1)
		w.stream(w.kinds("high", "interactive", w.gpus(), false, 1, 2, 4, 8, 16), 1.1)
		w.stream(w.kinds("mid", "production", w.gpus(), false, 1, 2, 4, 8, 16), rapid.SampledFrom([]float64{0.3, 1.1}).Draw(t, "load"))
		w.settle(schedule.Tenant{Name: "sure", Weight: 1, Guaranteed: guaranteed})
		w.settle(schedule.Tenant{Name: "low", Weight: 1})
		l := newLedger(w.scenario)
		events := w.play(l.take)
		for name, due := range map[string]float64{"sure": float64(guaranteed), "low": least} {
			p := l.of[name]
			if want := (due-float64(w.largest[name]))*p.queued - due*longest.Seconds(); p.held < 0.95*want {
				t.Fatalf("tenant %s held %.0f GPU-seconds of the %.0f that it is sure of", name, p.held, want)
			}
		}
		return events
	})
}

// A tier that is owed its min_share has a gang that is wider than that start
// each time that it has saved up for it: when its shortfall comes to what the
// gang costs, and the runs of the tiers above, which it does not stop, are over.
func TestWideGangsOfALowTier(t *testing.T) {
	soak.Check(t, 100_000, func(t *rapid.T) int {
		w := newTown(t, rapid.IntRange(1, 4).Draw(t, "nodes"), longest)
		least := rapid.SampledFrom([]float64{0.05, 0.1, 0.25}).Draw(t, "min_share") * float64(w.gpus())
		w.scenario.Rules.Tiers[2].MinShare = least / float64(w.gpus())
		wide := w.kinds("low", "background", w.gpus(), false, w.gpus(), w.gpus()-8, 8)[0]
		wide.spec.GPUs = max(8, wide.spec.GPUs)
		w.stream([]kind{wide}, 1.1)
		w.stream(w.kinds("high", "interactive", w.gpus(), false, 1, 2, 4, 8, 16), 2)
		w.settle(schedule.Tenant{Name: "low", Weight: 1})
		l, starts, from := newLedger(w.scenario), 0, time.Duration(-1)
		events := w.play(func(r Record) error {
			if g := l.gangs[r.Gang]; g != nil && g.Spec == wide.spec {
				switch r.Fact.(type) {
				case Submitted:
					from = max(from, r.At)
				case Started:
					starts++
				}
			}
			return l.take(r)
		})
		each := wide.work()/least + longest.Seconds() + wide.runs.Seconds()
		if want := int(l.of["low"].queued / each); starts < want {
			t.Fatalf("%d gangs of %d GPUs started in %.0f s, one in %.0f s, and %d should have", starts, wide.spec.GPUs, l.of["low"].queued, each, want)
		}
		return events
	})
}

// Who comes after a flood of another's gangs is not behind them, as long as the
// past counts: its first gang starts within the longest run time, and it holds its
// share, less a gang of its own and one of the other, as soon as so many of its
// gangs had a future start: four at a time, each within the longest run time.
func TestAFloodBreaksNobodysShare(t *testing.T) {
	soak.Check(t, 100_000, func(t *rapid.T) int {
		w := newTown(t, rapid.IntRange(1, 6).Draw(t, "nodes"), longest*time.Duration(rapid.IntRange(1, 60).Draw(t, "half-life")))
		flood := w.kinds("flood", "production", w.gpus(), false, 1, 2, 4, 8, 16)
		for n := range 10_000 {
			w.arrive(0, flood[n%len(flood)])
		}
		weight := rapid.SampledFrom([]float64{0.5, 1, 3}).Draw(t, "weight")
		share := float64(w.gpus()) * weight / (1 + weight)
		late := w.kinds("late", "production", int(share), false, 1, 2, 4, 8)[0]
		at := time.Duration(rapid.IntRange(0, 5*int(longest/time.Second)).Draw(t, "arrival")) * time.Second
		w.settle(schedule.Tenant{Name: "flood", Weight: 1})
		w.settle(schedule.Tenant{Name: "late", Weight: weight})
		gangs := int(share) / late.spec.GPUs
		sure := share - float64(w.largest["flood"]+late.spec.GPUs)
		held := at + longest*time.Duration((gangs+3)/4)
		w.over = held + longest
		for done := at; done < w.over; done += late.runs { // as if it had all the cluster
			for range w.gpus() / late.spec.GPUs {
				w.arrive(at, late)
			}
		}
		l, first := newLedger(w.scenario), time.Duration(-1)
		events := w.play(func(r Record) error {
			before := l.of["late"].running
			over := r.At > held && l.at <= held
			err := l.take(r)
			if l.of["late"].running > 0 && first < 0 {
				first = r.At
			}
			if over && float64(before) < sure {
				return fmt.Errorf("at %s it holds %d GPUs of the %.1f that it is sure of", held, before, sure)
			}
			return err
		})
		if first > at+longest {
			t.Fatalf("it came at %s, and starts at %s", at, first)
		}
		return events
	})
}
