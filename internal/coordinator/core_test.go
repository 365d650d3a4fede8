package coordinator

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

func ready(t *testing.T, seed uint64, nodes, perLeaf int) *world {
	w := newWorld(t, seed, nodes, perLeaf)
	w.until(perLeaf, "deciding", func() bool { return w.core.deciding })
	return w
}

func TestAGangRunsWholeAndPublishes(t *testing.T) {
	w := ready(t, 1, 4, 2)
	id := w.submit(simSpec(16, 8))
	w.until(2, "success", func() bool { return w.state(id) == gang.Succeeded })
	rec := w.core.gangs[id].rec
	if rec.Attempt != 1 || rec.Artifact == nil || w.manifest[id].Artifact.Key != rec.Artifact.Key {
		t.Errorf("record %+v, manifest %+v", rec, w.manifest[id])
	}
	w.until(2, "nothing left", func() bool { return len(w.jobs) == 0 && len(w.core.lanes) == 0 })
	for key := range w.kv {
		if strings.HasPrefix(key, "lanes/") {
			t.Errorf("%s is left in the store", key)
		}
	}
}

func TestNoMemberStartsBeforeAllAreReady(t *testing.T) {
	w := ready(t, 2, 2, 2)
	id := w.submit(simSpec(16, 8))
	w.until(2, "running", func() bool {
		busy, idle := 0, 0
		for _, k := range w.keepers {
			if k.state == KeeperBusy {
				busy++
			} else if k.state == KeeperIdle {
				idle++
			}
		}
		if busy > 0 && busy+idle < 2 {
			t.Fatalf("a member of %s runs while another is not ready", id)
		}
		return w.state(id) == gang.Running
	})
}

func TestTwoWideGangsRunOneAfterTheOther(t *testing.T) {
	w := ready(t, 3, 2, 2)
	first, second := w.submit(simSpec(16, 8)), w.submit(simSpec(16, 8))
	w.until(2, "both done", func() bool {
		if w.state(second).Placed() && w.state(first) != gang.Succeeded && w.state(first) != gang.Finishing {
			t.Fatalf("the second is %s while the first is %s", w.state(second), w.state(first))
		}
		return w.state(first) == gang.Succeeded && w.state(second) == gang.Succeeded
	})
}

func TestALostRankStopsTheWholeGangAndQueuesItOnce(t *testing.T) {
	w := ready(t, 4, 4, 2)
	id := w.submit(simSpec(16, 8))
	w.until(2, "running", func() bool { return w.state(id) == gang.Running })
	k := w.keepers[w.core.gangs[id].rec.Members[1].Lane]
	w.tell(KeeperRankExit{Keeper: k.id(), Run: k.run, Rank: 11, Message: "signal: killed"})
	w.post(string(k.lane), KeeperEnded{Keeper: k.id(), Run: k.run, Outcome: OutcomeRankLost})
	w.endKeeper(k, KeeperClosed{Keeper: k.id(), Reason: "rank lost"})
	w.until(2, "second attempt", func() bool { return w.core.gangs[id].rec.Attempt == 2 && w.state(id) == gang.Running })
	if why := w.core.gangs[id].rec.Why; !strings.Contains(why, "rank 11 on "+w.core.nodeName(k.node.id)+" ended in the midst of the run: signal: killed") {
		t.Errorf("while it runs again, why = %q", why)
	}
	w.until(2, "success", func() bool { return w.state(id) == gang.Succeeded })
	rec := w.core.gangs[id].rec
	if rec.Attempt != 2 || rec.Failures != 1 || rec.Why != "" {
		t.Errorf("attempt %d, failures %d, why %q", rec.Attempt, rec.Failures, rec.Why)
	}
	if slices.ContainsFunc(rec.Members, func(m gang.Member) bool { return m.Node == k.node.id }) {
		t.Errorf("the second attempt is on %s again, though others were free: %v", k.node.id, rec.Members)
	}
}

func TestARunnersErrorThatIsNotRetryableFailsTheGang(t *testing.T) {
	w := ready(t, 5, 2, 2)
	id := w.submit(simSpec(16, 8))
	w.until(2, "running", func() bool { return w.state(id) == gang.Running })
	k := w.keepers[w.core.gangs[id].rec.Members[0].Lane]
	w.post(string(k.lane), KeeperError{Keeper: k.id(), Run: k.run, Rank: 3, Class: "bad_prompt", Message: "no such clip"})
	w.until(2, "end", func() bool { return w.state(id).Terminal() })
	if rec := w.core.gangs[id].rec; rec.State != gang.Failed || !strings.Contains(rec.Why, "rank 3: bad_prompt: no such clip") || rec.Attempt != 1 {
		t.Errorf("record %+v", rec)
	}
}

// A peer's word that a rank is gone often comes before the news of that rank.
func TestTheRankThatIsToBlameIsFound(t *testing.T) {
	w := ready(t, 14, 4, 2)
	id := w.submit(simSpec(16, 8))
	w.until(2, "running", func() bool { return w.state(id) == gang.Running })
	members := w.core.gangs[id].rec.Members
	peer, culprit := w.keepers[members[0].Lane], w.keepers[members[1].Lane]
	w.tell(KeeperError{Keeper: peer.id(), Run: peer.run, Rank: 2, Class: ClassPeerLost, Retryable: true, Message: "rank 9 is gone"})
	w.tell(KeeperRankExit{Keeper: culprit.id(), Run: culprit.run, Rank: 9, Message: "killed by signal 9"})
	rec := w.core.gangs[id].rec
	if rec.State != gang.Recovering || rec.Failures != 1 || !slices.Equal(rec.Avoid, []string{members[1].Node}) {
		t.Errorf("it is %s, failures %d, avoids %v; the culprit is on %s", rec.State, rec.Failures, rec.Avoid, members[1].Node)
	}
	if !strings.Contains(rec.Why, "rank 9 on ") || !strings.Contains(rec.Why, "killed by signal 9") {
		t.Errorf("why = %q", rec.Why)
	}
	w.until(2, "success", func() bool { return w.state(id) == gang.Succeeded })
}

func TestAnErrorThatIsNotRetryableFailsEvenBehindAPeersWord(t *testing.T) {
	w := ready(t, 17, 4, 2)
	id := w.submit(simSpec(16, 8))
	w.until(2, "running", func() bool { return w.state(id) == gang.Running })
	members := w.core.gangs[id].rec.Members
	peer, culprit := w.keepers[members[0].Lane], w.keepers[members[1].Lane]
	w.tell(KeeperError{Keeper: peer.id(), Run: peer.run, Rank: 2, Class: ClassPeerLost, Retryable: true, Message: "rank 9 is gone"})
	w.tell(KeeperError{Keeper: culprit.id(), Run: culprit.run, Rank: 9, Class: "bad_prompt", Message: "no such clip"})
	w.until(2, "end", func() bool { return w.state(id).Terminal() })
	if rec := w.core.gangs[id].rec; rec.State != gang.Failed || rec.Attempt != 1 || rec.Why != "rank 9: bad_prompt: no such clip" {
		t.Errorf("it is %s in attempt %d: %s", rec.State, rec.Attempt, rec.Why)
	} else if a := rec.Attempts[0]; a.Why != rec.Why || a.Members[0].Member != 1 {
		t.Errorf("the attempt is kept as %+v", a)
	}
}

func TestCancel(t *testing.T) {
	for _, at := range []gang.State{gang.Launching, gang.Running} {
		t.Run(string(at), func(t *testing.T) {
			w := ready(t, 6, 2, 2)
			id, next := w.submit(simSpec(16, 8)), w.submit(simSpec(16, 8))
			w.until(2, string(at), func() bool { return w.state(id) == at })
			w.tell(CancelRequest{ID: id, Reply: 900})
			w.tell(CancelRequest{ID: next, Reply: 901})
			if w.state(next) != gang.Cancelled {
				t.Errorf("the one that waits is %s", w.state(next))
			}
			w.until(2, "cancelled", func() bool { return w.state(id) == gang.Cancelled })
			for _, k := range w.keepers {
				if k.run.Gang == id {
					t.Errorf("it is called cancelled while lane %s runs it", k.lane)
				}
			}
			after := w.submit(simSpec(16, 8))
			w.until(2, "the next one's success", func() bool { return w.state(after) == gang.Succeeded })
		})
	}
}

func TestAJobStopQueuesTheGangAgainAndSaysWhy(t *testing.T) {
	for name, stop := range map[string]func(*world, *simKeeper){
		"of the child": func(w *world, k *simKeeper) {
			delete(w.jobs, k.job)
			w.stopTask(k, "job stopped by operator")
		},
		"of the pinned parent, while the keeper runs on": func(*world, *simKeeper) {},
	} {
		t.Run(name, func(t *testing.T) {
			w := ready(t, 7, 4, 2)
			id := w.submit(simSpec(16, 8))
			w.until(2, "running", func() bool { return w.state(id) == gang.Running })
			k := w.keepers[w.core.gangs[id].rec.Members[0].Lane]
			w.post("nomad", LaneJobRemoved{k.lane})
			stop(w, k)
			w.until(2, "second attempt", func() bool { return w.core.gangs[id].rec.Attempt == 2 && w.state(id) == gang.Running })
			rec := w.core.gangs[id].rec
			if !strings.Contains(rec.Why, "was stopped through Nomad") || rec.Failures != 0 || rec.Members[0].Lane == k.lane {
				t.Errorf("why %q, failures %d, lane %s after %s", rec.Why, rec.Failures, rec.Members[0].Lane, k.lane)
			}
			w.until(2, "success", func() bool { return w.state(id) == gang.Succeeded })
		})
	}
}

func TestMembersThatAreNotReadyInTime(t *testing.T) {
	w := ready(t, 8, 4, 2)
	id := w.submit(simSpec(16, 8))
	bad := w.core.gangs[id].rec.Members[1].Node
	w.nodes[slices.IndexFunc(w.nodes, func(n *simNode) bool { return n.id == bad })].silent = true // Nomad starts nothing there
	w.until(2, "success elsewhere", func() bool { return w.state(id) == gang.Succeeded })
	rec := w.core.gangs[id].rec
	if rec.Attempt != 2 || !slices.Contains(rec.Avoid, bad) {
		t.Errorf("attempt %d, avoids %v, %s was late", rec.Attempt, rec.Avoid, bad)
	}
}

// A Nomad agent that is away takes no gang down: its keepers go on.
func TestAnAllocationThatNomadLostRunsOnWhileItsKeeperSpeaks(t *testing.T) {
	w := ready(t, 15, 2, 2)
	id := w.submit(simSpec(16, 8))
	w.until(2, "running", func() bool { return w.state(id) == gang.Running })
	k := w.keepers[w.core.gangs[id].rec.Members[1].Lane]
	n := w.view(1, 2)
	n.Ready, n.Down = false, true
	w.tell(NodeChanged{n})
	w.tell(LaneJobChanged{LaneJob{Job: k.job, Lane: k.lane, Allocation: k.alloc, Ended: true, Failed: true, Lost: true}})
	if w.state(id) != gang.Running {
		t.Fatalf("it is %s: %s", w.state(id), w.core.gangs[id].rec.Why)
	}
	w.until(2, "success", func() bool { return w.state(id) == gang.Succeeded })
	if n := w.core.gangs[id].rec.Attempt; n != 1 {
		t.Errorf("attempt %d", n)
	}
}

// Until Nomad has noticed the end of an allocation, it would find no room for
// another one on the same GPUs.
func TestGPUsAreFreeOnceNomadThinksSoToo(t *testing.T) {
	w := ready(t, 16, 1, 1)
	id := w.submit(simSpec(8, 8))
	w.until(1, "running", func() bool { return w.state(id) == gang.Running })
	k := w.keepers[w.core.gangs[id].rec.Members[0].Lane]
	next := w.submit(simSpec(8, 8))
	w.tell(CancelRequest{ID: id, Reply: 900})
	w.mail = map[string][]Input{}
	w.tell(KeeperClosed{Keeper: k.id(), Reason: "cancelled"})
	if w.state(id) != gang.Cancelled || w.state(next) != gang.Queued {
		t.Errorf("the cancelled one is %s, the next one %s", w.state(id), w.state(next))
	}
	w.tell(LaneJobChanged{LaneJob{Job: k.job, Lane: k.lane, Allocation: k.alloc, Ended: true, Stopped: true}})
	if w.state(next) != gang.Launching {
		t.Errorf("once Nomad knows, the next one is %s", w.state(next))
	}
}

// Nomad may have no room for a moment, while the last allocation ends.
func TestALaneThatWasBlockedAndPlacedGoesOn(t *testing.T) {
	w := ready(t, 20, 1, 1)
	id := w.submit(simSpec(8, 8))
	lane := w.core.gangs[id].rec.Members[0].Lane
	w.tell(LaneBlocked{lane, "no devices match"})
	w.tell(KeeperAdmit{Keeper: Keeper{lane, "alloc"}, Address: "10.0.0.1"})
	w.now = w.now.Add(2 * blockedAfter)
	w.core.Step(w.now, Tick{})
	if w.state(id) != gang.Launching {
		t.Errorf("it is %s: %s", w.state(id), w.core.gangs[id].rec.Why)
	}
}

// A host that was slow for a moment is heard again on the same stream: what
// runs there is cancelled, not forgotten.
func TestALostLaneWhoseStreamIsWholeIsCancelled(t *testing.T) {
	w := ready(t, 21, 4, 2)
	id := w.submit(simSpec(16, 8))
	w.until(2, "running", func() bool { return w.state(id) == gang.Running })
	k := w.keepers[w.core.gangs[id].rec.Members[1].Lane]
	w.tell(HostSilent{k.node.uuids})
	if w.keepers[k.lane] == k {
		t.Error("the silent host's keeper was told nothing")
	}
	w.tell(HostHeard{k.node.uuids})
	w.until(2, "success", func() bool { return w.state(id) == gang.Succeeded })
}

// gangd and a Nomad agent are away at one time: the keepers get their time to
// come back.
func TestGangdComesBackWhileANomadAgentIsDown(t *testing.T) {
	w := ready(t, 22, 2, 2)
	id := w.submit(simSpec(16, 8))
	w.until(2, "running", func() bool { return w.state(id) == gang.Running })
	k := w.keepers[w.core.gangs[id].rec.Members[1].Lane]
	w.restart(2)
	n := w.view(slices.Index(w.nodes, k.node), 2)
	n.Ready, n.Down = false, true
	w.core.Step(w.now, NodeChanged{n})
	w.core.Step(w.now, LaneJobChanged{LaneJob{Job: k.job, Lane: k.lane, Allocation: k.alloc, Ended: true, Lost: true}})
	w.until(2, "success", func() bool { return w.state(id) == gang.Succeeded })
	if rec := w.core.gangs[id].rec; rec.Attempt != 1 {
		t.Errorf("attempt %d", rec.Attempt)
	}
}

// The member with the video is done and gone when gangd crashes; the other one
// still runs.
func TestAMemberThatWasDoneStaysDoneOverACrash(t *testing.T) {
	w := ready(t, 23, 2, 2)
	id := w.submit(simSpec(16, 8))
	w.until(2, "running", func() bool { return w.state(id) == gang.Running })
	first := w.keepers[w.core.gangs[id].rec.Members[0].Lane]
	second := w.keepers[w.core.gangs[id].rec.Members[1].Lane]
	video := &gang.Artifact{Key: "artifacts/x", SHA256: "x"}
	w.tell(KeeperResult{Keeper: first.id(), Run: first.run, Artifact: video})
	w.tell(KeeperEnded{Keeper: first.id(), Run: first.run, Outcome: OutcomeSucceeded})
	delete(w.keepers, first.lane)
	w.jobs[first.job].ended = true
	w.tell(KeeperClosed{Keeper: first.id(), Reason: "a rank left after its run"})
	w.restart(2)
	w.until(2, "the second's return", func() bool { l := w.core.lanes[second.lane]; return l != nil && l.connected })
	w.tell(KeeperEnded{Keeper: second.id(), Run: second.run, Outcome: OutcomeSucceeded})
	second.state = KeeperIdle
	w.until(2, "success", func() bool { return w.state(id) == gang.Succeeded })
	if a := w.manifest[id].Artifact; a == nil || a.SHA256 != "x" {
		t.Errorf("published is %+v", a)
	}
}

// The lanes of many gangs take several transactions: gangd may end between two
// of them.
func TestLanesThatWereNotWrittenDown(t *testing.T) {
	for _, c := range []struct {
		state gang.State
		ends  gang.State
	}{{gang.Launching, gang.Succeeded}, {gang.Stopping, gang.Cancelled}} {
		t.Run(string(c.state), func(t *testing.T) {
			w := ready(t, 24, 2, 2)
			id := w.submit(simSpec(16, 8))
			lost := w.core.gangs[id].rec.Members[1]
			if c.state == gang.Stopping {
				w.until(2, "running", func() bool { return w.state(id) == gang.Running })
				busy := w.kv[gang.LaneKey(lost.Node, lost.Lane)]
				w.core.Step(w.now, CancelRequest{ID: id, Reply: 900})
				w.kv[gang.RecordKey(id)] = gang.Encode(&w.core.gangs[id].rec)
				w.kv[gang.LaneKey(lost.Node, lost.Lane)] = busy
			} else {
				delete(w.kv, gang.LaneKey(lost.Node, lost.Lane))
			}
			w.restart(2)
			w.until(2, string(c.ends), func() bool { return w.state(id) == c.ends })
			if rec := w.core.gangs[id].rec; rec.Failures != 0 || len(rec.Avoid) != 0 {
				t.Errorf("failures %d, avoids %v", rec.Failures, rec.Avoid)
			}
			w.until(2, "nothing left", func() bool { return len(w.jobs) == 0 && len(w.core.lanes) == 0 && len(w.keepers) == 0 })
		})
	}
}

func TestMaxRunEndsAGangWhoseFirstMemberIsDone(t *testing.T) {
	w := ready(t, 25, 2, 2)
	spec := simSpec(16, 8)
	spec.MaxRun = time.Minute
	id := w.submit(spec)
	w.until(2, "running", func() bool { return w.state(id) == gang.Running })
	first := w.keepers[w.core.gangs[id].rec.Members[0].Lane]
	w.tell(KeeperEnded{Keeper: first.id(), Run: first.run, Outcome: OutcomeSucceeded})
	w.endKeeper(first, KeeperClosed{Keeper: first.id(), Reason: "a rank left after its run"})
	w.mail = map[string][]Input{}
	w.tell(KeeperClosed{Keeper: first.id(), Reason: "a rank left after its run"})
	w.tell(LaneJobChanged{w.jobs[first.job].shown(first.job)})
	w.tell(LanePurged{Lane: first.lane})
	w.now = w.now.Add(2 * time.Minute)
	w.core.Step(w.now, Tick{})
	if w.state(id) != gang.Stopping {
		t.Errorf("it is %s two minutes into a max_run of one", w.state(id))
	}
}

func TestASecondAllocationOfALaneIsRefused(t *testing.T) {
	w := ready(t, 12, 2, 2)
	id := w.submit(simSpec(8, 8))
	w.until(2, "running", func() bool { return w.state(id) == gang.Running })
	lane := w.core.gangs[id].rec.Members[0].Lane
	out := w.core.Step(w.now, KeeperAdmit{Keeper: Keeper{lane, "another"}, State: KeeperNew})
	if len(out.Actions) != 1 || len(out.Batches) != 0 {
		t.Fatalf("effects %+v", out)
	}
	if _, refused := out.Actions[0].(RefuseLane); !refused {
		t.Errorf("the action is %T", out.Actions[0])
	}
	w.tell(KeeperClosed{Keeper: Keeper{lane, "another"}, Reason: "refused"})
	if w.state(id) != gang.Running {
		t.Errorf("the refused keeper's end makes the gang %s", w.state(id))
	}
}

// A member that is done no longer runs what is cancelled: its lane closes all
// the same.
func TestACancelFindsAMemberDone(t *testing.T) {
	w := ready(t, 17, 2, 2)
	id := w.submit(simSpec(16, 8))
	w.until(2, "running", func() bool { return w.state(id) == gang.Running })
	k := w.keepers[w.core.gangs[id].rec.Members[1].Lane]
	k.state = KeeperIdle
	w.tell(KeeperEnded{Keeper: k.id(), Run: k.run, Outcome: OutcomeSucceeded})
	w.tell(CancelRequest{ID: id, Reply: 900})
	w.until(2, "the end", func() bool { return w.state(id) == gang.Cancelled && len(w.keepers) == 0 })
}

func TestACrashBeforeAnyCallToNomadLaunchesTheSameAttempt(t *testing.T) {
	w := ready(t, 13, 2, 2)
	id := w.submit(simSpec(16, 8))
	w.restart(2) // the calls are lost
	w.until(2, "success", func() bool { return w.state(id) == gang.Succeeded })
	if n := w.core.gangs[id].rec.Attempt; n != 1 {
		t.Errorf("attempt %d", n)
	}
}

func TestRetriesAreBounded(t *testing.T) {
	w := ready(t, 9, 2, 2)
	spec := simSpec(16, 8)
	spec.InfraRetries = 1
	id := w.submit(spec)
	for range 2 {
		w.until(2, "running", func() bool { return w.state(id) == gang.Running })
		k := w.keepers[w.core.gangs[id].rec.Members[0].Lane]
		w.post(string(k.lane), KeeperRankExit{Keeper: k.id(), Run: k.run, Message: "exit code 1"})
		w.until(2, "stopped", func() bool { return w.state(id) != gang.Running })
	}
	w.until(2, "failed", func() bool { return w.state(id) == gang.Failed })
	if why := w.core.gangs[id].rec.Why; !strings.Contains(why, "infra_retries = 1") {
		t.Errorf("why = %q", why)
	}
}

func TestMaxRunEndsAGangAsFailed(t *testing.T) {
	w := ready(t, 10, 2, 2)
	spec := simSpec(8, 8)
	spec.MaxRun = time.Minute
	id := w.submit(spec)
	w.until(2, "running", func() bool { return w.state(id) == gang.Running })
	w.now = w.now.Add(time.Minute)
	w.tell(Tick{})
	w.until(2, "failed", func() bool { return w.state(id) == gang.Failed })
}

func TestASilentNodesGangStartsElsewhereAndItsGPUsWait(t *testing.T) {
	w := ready(t, 11, 4, 2)
	id := w.submit(simSpec(16, 8))
	w.until(2, "running", func() bool { return w.state(id) == gang.Running })
	n := w.keepers[w.core.gangs[id].rec.Members[1].Lane].node
	w.cut(n)
	w.tell(HostSilent{n.uuids})
	w.until(2, "success", func() bool { return w.state(id) == gang.Succeeded })
	if rec := w.core.gangs[id].rec; rec.Attempt != 2 || slices.ContainsFunc(rec.Members, func(m gang.Member) bool { return m.Node == n.id }) {
		t.Errorf("attempt %d on %v", rec.Attempt, rec.Members)
	}
	w.until(2, "the lost lane's end", func() bool { return len(w.core.lanes) == 0 })
}

// cut takes a node off the network: its keepers run on, unheard.
func (w *world) cut(n *simNode) {
	n.silent = true
	for _, k := range w.keepersInOrder() {
		if k.node == n {
			k.cut = true
			w.mail[string(k.lane)] = []Input{KeeperGone{k.id()}} // its stream breaks, sooner or later
		}
	}
}

func (w *world) rejoin(n *simNode) {
	n.silent = false
	w.post("host "+n.id, HostHeard{n.uuids})
	w.hello(n)
	for _, k := range w.keepersInOrder() {
		if k.node == n && k.cut {
			k.cut = false
			w.reconnect(k)
		}
	}
}

// TestNothingIsLost runs gangs through crashes of gangd between any two
// effects, lost ranks, stopped jobs and nodes that are cut off, and asks that
// each ends well, once, with nothing left.
func TestNothingIsLost(t *testing.T) {
	seeds := uint64(80)
	if testing.Short() {
		seeds = 12
	}
	total := make(map[string]int)
	for seed := range seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			w := ready(t, 1000+seed, 4, 2)
			w.crashy = true
			var ids []gang.ID
			for i := range 8 {
				w.until(2, "deciding", func() bool { return w.core.deciding })
				ids = append(ids, w.submit(w.anyGang()))
				for range w.rng.IntN(200) {
					w.advance(2)
				}
				w.disturb(i)
			}
			w.crashy = false
			for _, n := range w.nodes {
				if n.silent {
					w.rejoin(n)
				}
			}
			for _, k := range w.keepersInOrder() {
				if w.rng.IntN(2) == 0 {
					w.wake(k)
				}
			}
			late := w.now.Add(2 * closeWithin) // a gang that wants all nodes waits for the last
			w.until(2, "all ended", func() bool {
				if w.now.After(late) {
					w.wakeAll()
				}
				return len(w.ended) == len(ids)
			})
			for _, id := range ids {
				if w.ended[id] != gang.Succeeded {
					t.Errorf("gang %s %s: %s", id, w.ended[id], w.core.gangs[id].rec.Why)
				}
			}
			w.wakeAll()
			w.until(2, "nothing left", func() bool { return len(w.jobs) == 0 && len(w.core.lanes) == 0 && len(w.keepers) == 0 })
			w.checkLedger()
			for kind, n := range w.counts {
				total[kind] += n
			}
		})
	}
	if total["ended preempted"] == 0 || total["ended resized"] == 0 {
		t.Error("nobody was stopped for another")
	}
	t.Logf("inputs: %v", total)
}

// anyGang is of any tier, tenant and shape, and may run on half of its GPUs.
func (w *world) anyGang() gang.Spec {
	shape := [][2]int{{16, 8}, {8, 4}, {8, 8}, {32, 8}, {4, 4}, {1, 1}}[w.rng.IntN(6)]
	s := simSpec(shape[0], shape[1])
	s.Tier = []string{"interactive", "production", "background"}[w.rng.IntN(3)]
	s.Estimate = time.Duration(1+w.rng.IntN(100)) * time.Second
	if s.Tenant = []string{"a", "b", "default"}[w.rng.IntN(3)]; s.Tenant == "b" && s.GPUs > 16 {
		s.Tenant = "a"
	}
	if s.GPUs > s.GPUsPerNode && w.rng.IntN(2) == 0 {
		s.Elastic = []gang.Size{{GPUs: s.GPUs / 2, Run: 20 * time.Second}, {GPUs: s.GPUs, Run: 10 * time.Second}}
	}
	return s
}

// disturb does one bad thing.
func (w *world) disturb(i int) {
	keepers := w.keepersInOrder()
	switch w.rng.IntN(7) {
	case 0:
		w.restart(2)
	case 1: // a rank dies
		for _, k := range keepers {
			if k.state == KeeperBusy && k.steps <= simSteps && !k.cut {
				w.counts["rank lost"]++
				w.peersWord(k)
				w.post(string(k.lane), KeeperRankExit{Keeper: k.id(), Run: k.run, Message: "killed"})
				w.post(string(k.lane), KeeperEnded{Keeper: k.id(), Run: k.run, Outcome: OutcomeRankLost})
				w.endKeeper(k, KeeperClosed{Keeper: k.id(), Reason: "rank lost"})
				return
			}
		}
	case 2: // an operator stops a lane
		for _, k := range keepers {
			if !k.cut {
				w.counts["job stopped"]++
				w.peersWord(k)
				delete(w.jobs, k.job)
				w.post("nomad", LaneJobRemoved{k.lane})
				w.stopTask(k, "job stop")
				return
			}
		}
	case 3: // a node is cut off, or one comes back
		n := w.nodes[i%len(w.nodes)]
		if n.silent {
			w.rejoin(n)
			return
		}
		w.counts["cut"]++
		w.cut(n)
		w.post("host "+n.id, HostSilent{n.uuids})
	case 4: // a process hangs, while its peers see one of their ranks die
		for _, k := range keepers {
			if k.state == KeeperBusy && k.steps <= simSteps && !k.cut && !k.hung {
				w.counts["hung"]++
				k.hung = true
				w.post(string(k.lane), KeeperRankExit{Keeper: k.id(), Run: k.run, Message: "killed"})
				return
			}
		}
	case 5: // an operator changes the template, once or too often
		w.counts["template changed"]++
		w.changeTemplate(w.version + w.rng.Uint64N(2))
	}
}

// peersWord has, at times, another member say that it lost a rank, before
// anything else is heard of the one that did.
func (w *world) peersWord(of *simKeeper) {
	for _, k := range w.keepersInOrder() {
		if k != of && k.run == of.run && k.state == KeeperBusy && !k.cut && !k.hung && w.rng.IntN(2) == 0 {
			w.counts["peer lost"]++
			w.post(string(k.lane), KeeperError{Keeper: k.id(), Run: k.run, Rank: k.first, Class: ClassPeerLost, Retryable: true, Message: "a rank is gone"})
			return
		}
	}
}

func (w *world) wakeAll() {
	for _, k := range w.keepersInOrder() {
		w.wake(k)
	}
}

// wake ends the processes of a keeper that hung.
func (w *world) wake(k *simKeeper) {
	if k.hung {
		k.hung = false
		w.endKeeper(k, KeeperClosed{Keeper: k.id(), Reason: "its last process is gone"})
	}
}

// A wide gang's lanes, and gangs with large parameters, do not fit one
// transaction.
func TestChangesArePackedIntoTransactions(t *testing.T) {
	var changes []gang.Change
	for i := range 3 * gang.MaxBatch {
		changes = append(changes, gang.Change{Key: fmt.Sprint("lanes/", i), Value: make([]byte, 1+i%7*1000)})
	}
	changes = append(changes, gang.Change{Key: "specs/x", Value: make([]byte, gang.MaxBatchBytes)})
	var flat gang.Batch
	for _, b := range pack(changes) {
		size := 0
		for _, c := range b {
			size += len(c.Value)
		}
		if len(b) > gang.MaxBatch || size > gang.MaxBatchBytes {
			t.Errorf("a batch has %d changes of %d bytes", len(b), size)
		}
		flat = append(flat, b...)
	}
	if len(flat) != len(changes) || flat[len(flat)-1].Key != "specs/x" {
		t.Errorf("%d changes became %d", len(changes), len(flat))
	}
}
