package coordinator

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gangd/gangd/internal/gang"
)

// The logs of an attempt are found by its allocations, after its lanes are gone
// from Nomad too: the record has them, first that of the member to blame.
func TestARecordKeepsWhereItsAttemptsRan(t *testing.T) {
	w := ready(t, 31, 4, 2)
	id := w.submit(simSpec(16, 8))
	allocations := func() (of [2]string) {
		for i, m := range w.core.gangs[id].rec.Members {
			of[i] = w.core.lanes[m.Lane].rec.Allocation
		}
		return of
	}
	w.until(2, "running", func() bool { return w.state(id) == gang.Running })
	first := allocations()
	began, started := w.core.gangs[id].rec.Times.Decided, w.core.gangs[id].rec.Times.Started
	k := w.keepers[w.core.gangs[id].rec.Members[1].Lane]
	w.tell(KeeperRankExit{Keeper: k.id(), Run: k.run, Rank: 11, Message: "signal: killed"})
	ended := gang.Millis(w.now)
	w.until(2, "second attempt", func() bool { return w.core.gangs[id].rec.Attempt == 2 && w.state(id) == gang.Running })
	second := allocations()
	if at := w.core.gangs[id].rec.Times; at.Queued < ended || at.Queued > at.Decided {
		t.Errorf("it ended at %d, was queued again at %d, and decided at %d", ended, at.Queued, at.Decided)
	}
	w.until(2, "nothing left", func() bool { return w.state(id) == gang.Succeeded && len(w.core.lanes) == 0 })
	s := w.core.status(w.core.gangs[id], true)
	if len(s.Attempts) != 2 {
		t.Fatalf("it keeps %+v", s.Attempts)
	}
	a, b := s.Attempts[0], s.Attempts[1]
	if a.N != 1 || a.Decided != began || a.Started != started || a.Ended != ended || !strings.Contains(a.Why, "rank 11 on client-") {
		t.Errorf("the first is kept as %+v", a)
	}
	if len(a.Members) != 2 || a.Members[0].Member != 1 || a.Members[0].NodeName != "client-"+k.node.id[5:] ||
		a.Members[0].Allocation != first[1] || a.Members[1].Allocation != first[0] {
		t.Errorf("its members are kept as %+v, its allocations were %v", a.Members, first)
	}
	if b.N != 2 || b.Why != "" || b.Ended < b.Started || len(b.Members) != 2 || b.Members[0].Allocation != second[0] || b.Members[1].Allocation != second[1] {
		t.Errorf("the second is kept as %+v, its allocations were %v", b, second)
	}
	for i, m := range s.Lanes {
		if m.LaneState != gang.LaneClosed || m.Allocation != second[i] {
			t.Errorf("member %d is shown as %+v", i, m)
		}
	}
	if listed := w.core.status(w.core.gangs[id], false); listed.Attempts != nil {
		t.Errorf("a list has attempts too: %+v", listed.Attempts)
	}
}

// A gang that was refused its lanes has no logs, and its record says where they
// were to be; one that rests is queued again once it has rested.
func TestAnAttemptWithoutAllocationsIsKeptToo(t *testing.T) {
	w := ready(t, 32, 2, 2)
	id := w.submit(simSpec(8, 8))
	w.core.gangs[id].rec.Failures = 1
	lane := w.core.gangs[id].rec.Members[0].Lane
	w.calls = map[string][]Action{}
	w.tell(LaneOpened{Lane: lane, Err: errors.New("no quota")})
	rec := w.core.gangs[id].rec
	if len(rec.Attempts) != 1 || rec.Attempts[0].Started != 0 || len(rec.Attempts[0].Members) != 1 || rec.Attempts[0].Members[0].Allocation != "" {
		t.Fatalf("kept %+v", rec.Attempts)
	}
	if rec.State != gang.Queued || rec.Times.Queued != gang.Millis(w.now.Add(gang.Pause(2))) {
		t.Errorf("it is %s, and queued again at %d; it rests %s from %d on", rec.State, rec.Times.Queued, gang.Pause(2), gang.Millis(w.now))
	}
}

// An operator stops a member, and its peers are quicker to say that they lost
// one: that is no failure of the gang, however few it may have.
func TestAJobStopBehindAPeersWord(t *testing.T) {
	for _, retries := range []int{0, 3} {
		for name, stop := range map[string]func(*world, *simKeeper){
			"its run ends": func(w *world, k *simKeeper) {
				w.tell(KeeperEnded{Keeper: k.id(), Run: k.run, Outcome: OutcomeTaskStopped, Message: "Nomad stopped the task"})
			},
			"its keeper closes": func(w *world, k *simKeeper) {
				w.tell(KeeperClosed{Keeper: k.id(), Reason: "Nomad stopped the task", ByNomad: true})
			},
			"its job is gone": func(w *world, k *simKeeper) { w.tell(LaneJobRemoved{k.lane}) },
		} {
			t.Run(fmt.Sprintf("%s, infra_retries %d", name, retries), func(t *testing.T) {
				w := ready(t, 33, 4, 2)
				spec := simSpec(16, 8)
				spec.InfraRetries = retries
				id := w.submit(spec)
				w.until(2, "running", func() bool { return w.state(id) == gang.Running })
				members := w.core.gangs[id].rec.Members
				peer, stopped := w.keepers[members[0].Lane], w.keepers[members[1].Lane]
				w.tell(KeeperError{Keeper: peer.id(), Run: peer.run, Rank: 2, Class: ClassPeerLost, Retryable: true, Message: "rank 9 is gone"})
				stop(w, stopped)
				w.until(2, "second attempt", func() bool { return w.core.gangs[id].rec.Attempt == 2 })
				rec := w.core.gangs[id].rec
				if rec.Failures != 0 || len(rec.Avoid) != 0 || !strings.Contains(rec.Why, "member 1 on "+w.core.nodeName(stopped.node.id)+" was stopped through Nomad") {
					t.Errorf("failures %d, avoids %v, why %q", rec.Failures, rec.Avoid, rec.Why)
				}
				if a := rec.Attempts[0]; a.Why != rec.Why || a.Members[0].Member != 1 {
					t.Errorf("the attempt is kept as %+v", a)
				}
				w.until(2, "success", func() bool { return w.state(id) == gang.Succeeded })
			})
		}
	}
}

// What gangd itself purges is no operator's wish.
func TestAPurgeByGangdIsNoJobStop(t *testing.T) {
	w := ready(t, 34, 4, 2)
	id := w.submit(simSpec(16, 8))
	w.until(2, "running", func() bool { return w.state(id) == gang.Running })
	members := w.core.gangs[id].rec.Members
	peer, other := w.keepers[members[0].Lane], w.keepers[members[1].Lane]
	w.tell(KeeperError{Keeper: peer.id(), Run: peer.run, Rank: 2, Class: ClassPeerLost, Retryable: true, Message: "rank 9 is gone"})
	peer.hung = true
	w.core.loseLane(w.core.lanes[other.lane], "its node is down")
	w.tell(LaneJobChanged{LaneJob{Job: other.job, Lane: other.lane, Allocation: other.alloc, Ended: true, Stopped: true}})
	if rec := w.core.gangs[id].rec; rec.Failures != 1 || strings.Contains(rec.Why, "through Nomad") {
		t.Errorf("failures %d, why %q", rec.Failures, rec.Why)
	}
}
