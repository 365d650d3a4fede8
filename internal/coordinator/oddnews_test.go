package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

// crashTell tells the core, which may crash.
func (w *world) crashTell(in Input) {
	if w.tell(in) {
		w.restart(2)
	}
}

// oddity does one thing more.
func (w *world) oddity(i int, ids []gang.ID) {
	keepers := w.keepersInOrder()
	switch w.rng.IntN(7) {
	case 0, 1: // cancel
		if len(ids) > 0 {
			id := ids[w.rng.IntN(len(ids))]
			w.counts["cancel"]++
			w.crashTell(CancelRequest{ID: id, Reply: 10000 + w.rng.IntN(1<<30)})
		}
	case 2: // Nomad preempts
		for _, k := range keepers {
			if !k.cut && !k.hung {
				w.counts["preempt"]++
				pre := LaneJobChanged{LaneJob{Job: k.job, Lane: k.lane, Allocation: k.alloc, Preempted: true, Message: "preempted"}}
				if w.rng.IntN(2) == 0 {
					w.post("nomad", pre)
					w.stopTask(k, "killing")
				} else {
					w.stopTask(k, "killing")
					w.post("nomad", pre)
				}
				return
			}
		}
	case 3: // a node leaves the pool, and comes back
		n := w.rng.IntN(len(w.nodes))
		w.counts["removed"]++
		w.crashTell(NodeRemoved{w.nodes[n].id})
		for range w.rng.IntN(100) {
			w.advance(2)
		}
		w.crashTell(NodeChanged{w.view(n, 2)})
	case 4: // a record of a lane is damaged, and gangd starts anew
		keys := slices.Sorted(maps.Keys(w.kv))
		keys = slices.DeleteFunc(keys, func(k string) bool { return !strings.HasPrefix(k, "lanes/") })
		if len(keys) > 0 {
			w.counts["damaged"]++
			key := keys[w.rng.IntN(len(keys))]
			w.trace = append(w.trace, "---- damaged "+key)
			w.kv[key] = []byte("{")
			w.restart(2)
		}
	case 5: // blocked
		for _, l := range w.core.lanesInOrder() {
			if l.rec.State == gang.LaneOpening {
				w.counts["blocked"]++
				w.post("nomad", LaneBlocked{l.rec.ID, "memory exhausted"})
				return
			}
		}
	case 6:
		w.disturb(i)
	}
}

// TestOddNews adds to the disturbances what users, operators and Nomad do, and
// damaged records; half of the worlds keep two gangs after their end.
func TestOddNews(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 10
	}
	total := make(map[string]int)
	for seed := range seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			w := newWorld(t, 5000+seed, 4, 2)
			w.maxFinished = 2 * int(seed%2)
			w.faults = true
			w.restart(2)
			w.until(2, "deciding", func() bool { return w.core.deciding })
			w.crashy = true
			var ids []gang.ID
			for i := range 12 {
				shape := [][2]int{{16, 8}, {8, 4}, {8, 8}, {32, 8}, {4, 4}, {1, 1}}[w.rng.IntN(6)]
				w.until(2, "deciding", func() bool { return w.core.deciding })
				ids = append(ids, w.submitAny(simSpec(shape[0], shape[1])))
				for range w.rng.IntN(200) {
					w.advance(2)
				}
				w.oddity(i, ids)
			}
			w.crashy = false
			for _, n := range w.nodes {
				if n.silent {
					w.rejoin(n)
				}
			}
			late := w.now.Add(4 * closeWithin)
			w.until(2, "all ended", func() bool {
				if w.now.After(late) {
					w.wakeAll()
				}
				return !slices.ContainsFunc(ids, func(id gang.ID) bool { return w.ended[id] == "" && w.core.gangs[id] != nil })
			})
			for _, id := range ids {
				if s := w.ended[id]; s != "" && s != gang.Succeeded && s != gang.Cancelled {
					t.Errorf("gang %s %s: %s", id, w.ended[id], w.core.gangs[id].rec.Why)
				}
				if _, pub := w.manifest[id]; w.ended[id] != "" && pub != (w.ended[id] == gang.Succeeded) {
					t.Errorf("gang %s %s, published %t", id, w.ended[id], pub)
				}
			}
			w.wakeAll()
			w.until(2, "nothing left", func() bool { return len(w.jobs) == 0 && len(w.core.lanes) == 0 && len(w.keepers) == 0 })
			w.now = w.now.Add(time.Minute)
			for kind, n := range w.counts {
				total[kind] += n
			}
		})
	}
	t.Logf("inputs: %v", total)
}

// submitAny submits a gang until it is accepted.
func (w *world) submitAny(spec gang.Spec) gang.ID {
	w.t.Helper()
	for {
		reply := len(w.answers) + 1
		var random [5]byte
		for i := range random {
			random[i] = byte(w.rng.Uint32())
		}
		crashy := w.crashy
		w.crashy = false
		w.tell(SubmitRequest{Specs: []gang.Spec{spec}, Templates: map[string]Template{spec.Template: {Version: w.version}}, Random: [][5]byte{random}, Reply: reply})
		w.crashy = crashy
		if a := w.answers[reply]; a.Err == nil {
			return a.Statuses[0].ID
		}
		w.advance(2)
	}
}
