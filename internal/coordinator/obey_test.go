package coordinator

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

// checkLedger: what tenants were charged is what gangs used.
func (w *world) checkLedger() {
	w.t.Helper()
	charged, used := make(map[string]int64), make(map[string]int64)
	for key, value := range w.kv {
		switch {
		case strings.HasPrefix(key, "ledger/"):
			a, err := gang.DecodeAccount(key, value)
			w.must(err)
			charged[a.Tenant] += a.GPUMillis
		case strings.HasPrefix(key, "gangs/"):
			r, err := gang.DecodeRecord(key, value)
			w.must(err)
			used[r.Tenant] += r.GPUMillis
		}
	}
	for _, tenant := range []string{"a", "b", "default"} {
		if charged[tenant] != used[tenant] {
			w.t.Fatalf("tenant %s was charged %d GPU-milliseconds, and its gangs used %d\n%s", tenant, charged[tenant], used[tenant], w.tail())
		}
	}
}

func tiered(tier string, gpus, perNode int) gang.Spec {
	s := simSpec(gpus, perNode)
	s.Tier = tier
	return s
}

// A gang that is stopped for another ends whole, waits in its old place, and
// runs again: that is no failure of it, and its record says for whom it was and
// what it cost.
func TestAGangMakesRoomForAnother(t *testing.T) {
	w := ready(t, 30, 2, 2)
	low := w.submit(tiered("background", 16, 8))
	w.until(2, "running", func() bool { return w.state(low) == gang.Running })
	for _, k := range w.keepers {
		k.hung = k.node == w.nodes[1] // it will not end of itself
	}
	w.now = w.now.Add(time.Second) // it is no longer protected
	high := w.submit(tiered("interactive", 8, 8))
	if w.state(low) != gang.Preempting {
		t.Fatalf("once the other is accepted, it is %s", w.state(low))
	}
	for _, k := range w.keepers {
		w.wake(k)
	}
	w.until(2, "the other's start", func() bool { return w.state(high) == gang.Running })
	w.until(2, "success of both", func() bool { return w.state(high) == gang.Succeeded && w.state(low) == gang.Succeeded })
	rec := w.core.gangs[low].rec
	first := rec.Attempts[0]
	if rec.Failures != 0 || rec.Attempt != 2 || first.Cause != "preempted" || first.For != high || first.LostGPUMillis < 16_000 {
		t.Errorf("failures %d, attempt %d, the first one is kept as %+v", rec.Failures, rec.Attempt, first)
	}
	if !strings.Contains(first.Why, "to make room for gang "+string(high)+" (tier interactive, 8 GPUs)") {
		t.Errorf("why = %q", first.Why)
	}
	w.until(2, "nothing left", func() bool { return len(w.core.lanes) == 0 })
	w.checkLedger()
}

// An elastic gang gives up a part of its GPUs and runs on with the rest: all its
// ranks are told the smaller world.
func TestAnElasticGangShrinksForAnother(t *testing.T) {
	w := ready(t, 31, 2, 2)
	spec := tiered("background", 16, 8)
	spec.Elastic = []gang.Size{{GPUs: 8, Run: 20 * time.Minute}, {GPUs: 16, Run: 10 * time.Minute}}
	spec.Estimate = 10 * time.Minute
	low := w.submit(spec)
	w.until(2, "running", func() bool { return w.state(low) == gang.Running })
	w.now = w.now.Add(time.Second)
	high := w.submit(tiered("interactive", 8, 8))
	w.until(2, "both run", func() bool {
		return w.state(high) == gang.Running && w.state(low) == gang.Running || w.state(high).Terminal()
	})
	rec := w.core.gangs[low].rec
	if a := rec.Attempts[0]; a.Cause != "resized" || a.For != high || rec.Members.GPUs() != 8 || rec.GPUs != 16 {
		t.Errorf("it runs on %v, the first attempt is kept as %+v", rec.Members, a)
	}
	for _, k := range w.keepers {
		if k.run.Gang == low && k.world != 8 {
			t.Errorf("its ranks are told a world of %d", k.world)
		}
	}
	w.until(2, "success of both", func() bool { return w.state(high) == gang.Succeeded && w.state(low) == gang.Succeeded })
}

// uses is what each tenant holds, and held in the past, in GPUs.
func (w *world) uses() map[string]float64 {
	out := make(map[string]float64)
	for _, r := range w.core.shares().Tenants {
		if use := float64(r.Running) + r.Past; use > 0 {
			out[r.Name] = use
		}
	}
	return out
}

// A new leader knows what tenants have used: what was charged, and what those
// use that run; and it knows what they are, so that they make room as before.
func TestATakeOverKnowsWhatRunsAndWasUsed(t *testing.T) {
	w := ready(t, 32, 2, 2)
	done := w.submit(tiered("production", 16, 8))
	w.until(2, "success", func() bool { return w.state(done) == gang.Succeeded && len(w.core.lanes) == 0 })
	spec := tiered("background", 16, 8)
	spec.Tenant = "a"
	low := w.submit(spec)
	w.until(2, "running", func() bool { return w.state(low) == gang.Running })
	w.now = w.now.Add(10 * time.Second)
	w.tell(Tick{})
	w.submit(tiered("background", 16, 8)) // has the engine reckon with the time that passed
	before := w.uses()
	w.boot(2)
	for tenant, want := range before {
		if got := w.uses()[tenant]; math.Abs(got-want) > 1e-4 || got <= 0 {
			t.Errorf("tenant %s uses %f, and %f once gangd was taken over", tenant, want, got)
		}
	}
	w.until(2, "deciding", func() bool { return w.core.deciding })
	high := w.submit(tiered("interactive", 8, 8))
	if w.state(low) != gang.Preempting {
		t.Errorf("the take-over left gang %s %s when another needs its room", low, w.state(low))
	}
	w.until(2, "the other's start", func() bool { return w.state(high) == gang.Running })
	w.until(2, "all ended", func() bool { return len(w.ended) == 4 && len(w.core.lanes) == 0 })
	w.checkLedger()
}

// What ends already, for whatever reason, is not stopped for others again.
func TestAGangThatEndsIsNotStoppedAgain(t *testing.T) {
	w := ready(t, 33, 2, 2)
	low := w.submit(tiered("background", 16, 8))
	w.until(2, "running", func() bool { return w.state(low) == gang.Running })
	w.now = w.now.Add(time.Second)
	for _, k := range w.keepers {
		k.hung = true
	}
	w.tell(CancelRequest{ID: low, Reply: 900})
	high := w.submit(tiered("interactive", 8, 8))
	if w.state(low) != gang.Stopping || w.core.gangs[low].rec.Why != "cancelled" {
		t.Errorf("it is %s: %s", w.state(low), w.core.gangs[low].rec.Why)
	}
	w.wakeAll()
	w.until(2, "success", func() bool { return w.state(high) == gang.Succeeded && w.state(low) == gang.Cancelled })
}
