package coordinator

import (
	"slices"
	"strings"
	"testing"

	"github.com/gangd/gangd/internal/gang"
)

// A take-over that ends gangs may forget old ones while it walks over all.
func TestATakeOverThatForgetsGangsPassesNoneOver(t *testing.T) {
	w := ready(t, 101, 2, 2)
	id, keepers := w.running(2, simSpec(8, 8))
	k := keepers[0]
	k.hung = true
	other, _ := w.running(2, simSpec(8, 8))
	w.tell(CancelRequest{ID: id, Reply: 900}) // stopping; it hangs
	// the lane's record is damaged
	key := gang.LaneKey(k.node.id, k.lane)
	w.kv[key] = []byte("{")
	var records []KV
	for key, value := range w.kv {
		records = append(records, KV{key, value})
	}
	found, err := inherit(records)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(found.Gangs, func(a, b *gang.Record) int { return int(a.Seq) - int(b.Seq) })
	cfg := w.core.cfg
	cfg.MaxFinished, cfg.Applied = 0, nil
	core := NewCore(cfg)
	core.Step(w.now, found.Restored)
	if g := core.gangs[other]; g == nil || g.lanes == nil {
		t.Errorf("the other gang was skipped: %+v", g)
	}
}

// A Nomad client comes back under another ID (its data_dir was wiped), while
// keepers of it run on.
func TestANodeThatComesBackWithAnotherIDHasItsLanes(t *testing.T) {
	for _, oldIs := range []string{"ready", "down", "removed"} {
		t.Run(oldIs, func(t *testing.T) {
			w := ready(t, 102, 1, 1)
			id, keepers := w.running(1, simSpec(8, 8))
			k := keepers[0]
			old := w.view(0, 1)
			fresh := old
			fresh.ID = "node-again"
			switch oldIs {
			case "down":
				old.Ready, old.Down = false, true
				w.tell(NodeChanged{old})
			case "removed":
				w.tell(NodeRemoved{old.ID})
			}
			w.tell(NodeChanged{fresh})
			if w.state(id) != gang.Running {
				t.Fatalf("it is %s", w.state(id))
			}
			next := w.submit(simSpec(8, 8))
			if w.state(next) != gang.Queued {
				t.Errorf("on the GPUs %v on which %s runs in lane %s, %s is %s in %+v", k.uuids, id, k.lane, next, w.state(next), w.core.gangs[next].rec.Members)
			}
		})
	}
}

// The keeper's word that Nomad stops it may be quicker than Nomad's own that
// it is a preemption.
func TestAPreemptionThatTheKeeperTellsFirst(t *testing.T) {
	w := ready(t, 103, 2, 2)
	id, keepers := w.running(2, simSpec(8, 8))
	k := keepers[0]
	w.tell(KeeperEnded{Keeper: k.id(), Run: k.run, Outcome: OutcomeTaskStopped, Message: "killing"})
	w.tell(LaneJobChanged{LaneJob{Job: k.job, Lane: k.lane, Allocation: k.alloc, Preempted: true, Message: "preempted by allocation 1234"}})
	w.tell(KeeperClosed{Keeper: k.id(), Reason: "killing", ByNomad: true})
	delete(w.keepers, k.lane)
	rec := w.core.gangs[id].rec
	if !slices.Contains(rec.Avoid, k.node.id) || rec.RestUntil == 0 || !strings.Contains(rec.Why, "1234") {
		t.Errorf("it avoids %v, rests until %d, why %q", rec.Avoid, rec.RestUntil, rec.Why)
	}
}

func TestAPreemptionBeforeAdmission(t *testing.T) {
	w := ready(t, 104, 2, 2)
	spec := simSpec(8, 8)
	spec.InfraRetries = 0
	id := w.submit(spec)
	m := w.core.gangs[id].rec.Members[0]
	j := LaneJob{Job: "x", Lane: m.Lane, Allocation: "alloc", Preempted: true, Message: "preempted by allocation 1234"}
	w.tell(LaneJobChanged{j})
	j.Ended = true
	w.tell(LaneJobChanged{j})
	rec := w.core.gangs[id].rec
	if rec.Failures != 0 || rec.State == gang.Failed {
		t.Errorf("%s, failures %d: %s", rec.State, rec.Failures, rec.Why)
	}
}

func TestWhyAGangRestsAfterAPreemption(t *testing.T) {
	w := ready(t, 105, 2, 2)
	id, keepers := w.running(2, simSpec(8, 8))
	k := keepers[0]
	w.tell(LaneJobChanged{LaneJob{Job: k.job, Lane: k.lane, Allocation: k.alloc, Preempted: true, Message: "preempted by allocation 1234"}})
	w.until(2, "queued", func() bool { return w.state(id) == gang.Queued })
	s := w.core.status(w.core.gangs[id], false)
	if strings.Contains(s.Reason, "failure 0") {
		t.Errorf("%s", s.Reason)
	}
}

// With no retries left, the peer's word must not hide the culprit's.
func TestTheRunnersMessageBehindAPeersWordWithoutRetries(t *testing.T) {
	w := ready(t, 106, 4, 2)
	spec := simSpec(16, 8)
	spec.InfraRetries = 0
	id := w.submit(spec)
	w.until(2, "running", func() bool { return w.state(id) == gang.Running })
	members := w.core.gangs[id].rec.Members
	peer, culprit := w.keepers[members[0].Lane], w.keepers[members[1].Lane]
	w.tell(KeeperError{Keeper: peer.id(), Run: peer.run, Rank: 2, Class: ClassPeerLost, Retryable: true, Message: "rank 9 is gone"})
	w.tell(KeeperError{Keeper: culprit.id(), Run: culprit.run, Rank: 9, Class: "bad_prompt", Message: "no such clip"})
	w.until(2, "end", func() bool { return w.state(id).Terminal() })
	if rec := w.core.gangs[id].rec; !strings.Contains(rec.Why, "bad_prompt") {
		t.Errorf("it is %s: %s", rec.State, rec.Why)
	}
}

// Nomad says that an allocation ended while its keeper is there and runs on:
// as when the plugin that came back could not find it again.
func TestAnAllocationThatNomadEndsWhileItsKeeperLives(t *testing.T) {
	w := ready(t, 107, 1, 1)
	_, keepers := w.running(1, simSpec(8, 8))
	k := keepers[0]
	w.tell(LaneJobChanged{LaneJob{Job: k.job, Lane: k.lane, Allocation: k.alloc, Ended: true, Failed: true, Message: "failed to recover"}})
	node := w.core.engine.Cluster().Node(k.node.id)
	if w.keepers[k.lane] == k {
		t.Errorf("the keeper was told nothing; of its node %v are free", node.Free().Indexes())
	}
}

// A gang that was accepted before all those that are kept after their end is
// forgotten in the moment of its own end: nobody ever hears how it ended.
func TestALongGangIsNotForgottenAsItEnds(t *testing.T) {
	w := newWorld(t, 108, 2, 2)
	w.maxFinished = 2
	w.restart(2)
	w.until(2, "deciding", func() bool { return w.core.deciding })
	long, keepers := w.running(2, simSpec(8, 8))
	hung := keepers[0]
	hung.hung = true // it works on
	for range 2 {
		id := w.submit(simSpec(8, 8))
		w.until(2, "success", func() bool { return w.state(id) == gang.Succeeded })
	}
	hung.hung = false
	w.until(2, "the end of the long one", func() bool { return w.ended[long] != "" || w.core.gangs[long] == nil })
	if w.ended[long] != gang.Succeeded || w.core.gangs[long] == nil {
		t.Errorf("its record never said how it ended (%q), and it is gone: %t; published: %v", w.ended[long], w.core.gangs[long] == nil, w.manifest[long].Artifact != nil)
	}
}
