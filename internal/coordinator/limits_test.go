package coordinator

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// running submits a gang, waits until it runs, and returns it with its members'
// keepers.
func (w *world) running(perLeaf int, spec gang.Spec) (gang.ID, []*simKeeper) {
	w.t.Helper()
	id := w.submit(spec)
	w.until(perLeaf, "running", func() bool { return w.state(id) == gang.Running })
	var keepers []*simKeeper
	for _, m := range w.core.gangs[id].rec.Members {
		keepers = append(keepers, w.keepers[m.Lane])
	}
	return id, keepers
}

// pass steps the core through time, while nobody else says anything.
func (w *world) pass(d time.Duration) {
	for range d / time.Second {
		w.now = w.now.Add(time.Second)
		w.tell(Tick{})
	}
}

// A process in an uninterruptible call outlives any kill. Its gang does not
// wait for it, and nobody gets its GPUs.
func TestAGangGoesOnWithoutALaneThatDoesNotClose(t *testing.T) {
	w := ready(t, 30, 2, 2)
	id, keepers := w.running(2, simSpec(8, 8))
	k := keepers[0]
	delete(w.keepers, k.lane) // it hears the order, and says nothing more
	w.tell(CancelRequest{ID: id, Reply: 900})
	w.pass(closeWithin - time.Second)
	if w.state(id) != gang.Stopping {
		t.Fatalf("before its time is over it is %s", w.state(id))
	}
	w.pass(2 * time.Second)
	if w.state(id) != gang.Cancelled {
		t.Fatalf("after %s it is %s", closeWithin, w.state(id))
	}
	l := w.core.lanes[k.lane]
	if l == nil || l.rec.State != gang.LaneClosing || !strings.Contains(l.rec.Why, "did not end within 1m0s") {
		t.Fatalf("its lane is %+v", l)
	}
	w.boot(2) // gangd's end does not free them either
	w.keepers[k.lane] = k
	k.cut = true
	w.reconnect(k)
	w.until(2, "all is heard", func() bool { return w.core.deciding && len(w.mail) == 0 })
	w.pass(2 * closeWithin)
	node := w.core.engine.Cluster().Node(k.node.id)
	if node.Free() != 0 {
		t.Errorf("GPUs %v of it are free", node.Free().Indexes())
	}
	w.tell(KeeperClosed{Keeper: k.id(), Reason: "cancelled"})
	w.tell(LaneJobChanged{LaneJob{Job: k.job, Lane: k.lane, Allocation: k.alloc, Ended: true, Stopped: true}})
	if node.Free().Count() != 8 {
		t.Errorf("once it has ended, GPUs %v are free", node.Free().Indexes())
	}
}

func TestAManifestIsWrittenOnceTheStoreIsBack(t *testing.T) {
	down := errors.New("connection refused")
	for name, c := range map[string]struct {
		answer Published
		for_   time.Duration
		want   gang.State
	}{
		"it is back":                     {Published{}, 0, gang.Succeeded},
		"it stays away":                  {Published{Err: down}, publishWithin, gang.Failed},
		"another result is there by now": {Published{Err: fmt.Errorf("write it: %w", ErrPublished)}, 0, gang.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			w := ready(t, 31, 1, 1)
			id := w.submit(simSpec(8, 8))
			w.until(1, "finishing", func() bool { return w.state(id) == gang.Finishing })
			run := w.core.gangs[id].run()
			w.until(1, "no lane", func() bool {
				maps.DeleteFunc(w.calls, func(_ string, calls []Action) bool { _, publish := calls[0].(Publish); return publish })
				return len(w.core.lanes) == 0
			})
			w.tell(Published{Run: run, Err: down})
			w.pass(time.Second)
			if len(w.calls) != 1 {
				t.Fatalf("a second later there are the calls %v", w.calls)
			}
			c.answer.Run = run
			if c.for_ > 0 {
				w.tell(Published{Run: run, Err: down})
				w.now = w.now.Add(c.for_)
			}
			w.tell(c.answer)
			if w.state(id) != c.want {
				t.Errorf("it is %s: %s", w.state(id), w.core.gangs[id].rec.Why)
			}
			if got := w.core.gangs[id].rec.Artifact != nil; got != (c.want == gang.Succeeded) {
				t.Errorf("it is %s, and its record has an artifact: %t", w.state(id), got)
			}
		})
	}
}

// What an attempt made is not the next one's.
func TestAStoppedAttemptLeavesNoArtifact(t *testing.T) {
	w := ready(t, 32, 2, 2)
	id, keepers := w.running(2, simSpec(16, 8))
	w.tell(KeeperResult{Keeper: keepers[0].id(), Run: keepers[0].run, Artifact: &gang.Artifact{Key: "artifacts/first", SHA256: "first"}})
	w.tell(LaneJobRemoved{keepers[1].lane})
	if rec := w.core.gangs[id].rec; rec.State != gang.Preempting || rec.Artifact != nil {
		t.Errorf("it is %s, and has the artifact %v", rec.State, rec.Artifact)
	}
	w.until(2, "success", func() bool { return w.state(id) == gang.Succeeded })
	if got := w.manifest[id]; got.Artifact.SHA256 != string(id) || got.Attempt != 2 {
		t.Errorf("published is %+v", got)
	}
}

func TestAKeeperThatReturnsToAClosedLaneIsRefused(t *testing.T) {
	w := ready(t, 33, 1, 1)
	id, keepers := w.running(1, simSpec(8, 8))
	w.tell(CancelRequest{ID: id, Reply: 900})
	w.tell(KeeperClosed{Keeper: keepers[0].id(), Reason: "cancelled"})
	if l := w.core.lanes[keepers[0].lane]; l == nil || l.rec.State != gang.LaneClosed {
		t.Fatalf("the lane is %+v", l)
	}
	out := w.core.Step(w.now, KeeperAdmit{Keeper: keepers[0].id(), Address: "10.0.0.1", State: KeeperIdle})
	if !slices.ContainsFunc(out.Actions, func(a Action) bool { r, ok := a.(RefuseLane); return ok && r.To == keepers[0].id() }) {
		t.Errorf("it is answered %v", out.Actions)
	}
}

// Nomad may have other work on a node. One gang finds out, the next ones are
// not sent there after it.
func TestANodeWithoutRoomIsLeftAlone(t *testing.T) {
	w := ready(t, 34, 2, 2)
	first := w.submit(simSpec(8, 8))
	m := w.core.gangs[first].rec.Members[0]
	w.tell(LaneBlocked{m.Lane, "memory exhausted"})
	w.pass(blockedAfter + time.Second)
	next := w.submit(simSpec(16, 8))
	if got := w.core.gangs[first].rec; got.Members[0].Node == m.Node {
		t.Errorf("it is placed on %s again", m.Node)
	}
	if w.state(next) != gang.Queued {
		t.Errorf("the next one is %s", w.state(next))
	}
	status := w.core.nodeStatuses()[slices.IndexFunc(w.nodes, func(n *simNode) bool { return n.id == m.Node })]
	if status.State != cluster.NodeFull || !strings.Contains(status.Why, "memory exhausted") {
		t.Errorf("the node is %q: %s", status.State, status.Why)
	}
	w.until(2, "the first one's success", func() bool { return w.state(first) == gang.Succeeded })
	w.now = w.now.Add(noRoomFor)
	w.until(2, "the next one's success", func() bool { return w.state(next) == gang.Succeeded })
}

func TestANodeThatNomadForgotIsForgotten(t *testing.T) {
	w := ready(t, 35, 2, 2)
	id, keepers := w.running(2, simSpec(8, 8))
	k := keepers[0]
	w.tell(NodeRemoved{k.node.id})
	if w.core.engine.Cluster().Node(k.node.id) == nil {
		t.Fatal("a node is forgotten while a lane is on it")
	}
	w.until(2, "success", func() bool { return w.state(id) == gang.Succeeded && len(w.core.lanes) == 0 })
	if n := w.core.engine.Cluster().Node(k.node.id); n != nil || w.core.nodes[k.node.id] != nil {
		t.Error("it is kept after the lane has closed")
	}
	w.tell(SubmitRequest{Specs: []gang.Spec{simSpec(16, 8)}, Random: make([][5]byte, 1), Reply: 900})
	if err := w.answers[900].Err; err == nil {
		t.Error("a gang for two nodes is accepted by a cluster of one")
	}
	w.tell(NodeChanged{w.view(slices.Index(w.nodes, k.node), 2)})
	again := w.submit(simSpec(16, 8))
	w.until(2, "success on both", func() bool { return w.state(again) == gang.Succeeded })
}

// A submission is durable whole or not at all, though some of its gangs start
// in the step that accepts them.
func TestASubmissionIsOneBatch(t *testing.T) {
	w := ready(t, 36, 4, 2)
	in := SubmitRequest{Reply: 1}
	for i := range MaxSpecs {
		in.Specs = append(in.Specs, simSpec(1, 1))
		in.Random = append(in.Random, [5]byte{byte(i)})
	}
	out := w.core.Step(w.now, in)
	created := 0
	for _, change := range out.Batches[0] {
		if change.Create {
			created++
		}
	}
	if created != 2*MaxSpecs || len(out.Batches) < 2 {
		t.Errorf("the first of %d batches creates %d records, want all %d", len(out.Batches), created, 2*MaxSpecs)
	}
}

// As many gangs as may be, with the longest names, and params that are six times
// as long once they are stored.
func TestWhatASubmissionMayHold(t *testing.T) {
	label := strings.Repeat("l", gang.MaxLabelLen)
	accepted, refused := 0, 0
	for pad := 0; pad < 900; pad += 20 { // the limit lies within
		in := SubmitRequest{Reply: 1}
		for i := range MaxSpecs {
			s := simSpec(8, 0)
			s.Name, s.Template, s.Tenant = strings.Repeat("n", gang.MaxNameLen), label, label
			s.MaxRun, s.Estimate, s.GPU = gang.MaxDuration, gang.MaxDuration, "H100-80GB"
			s.Params = fmt.Appendf(nil, `{"x":"%s"}`, strings.Repeat("<", pad))
			in.Specs, in.Random = append(in.Specs, s), append(in.Random, [5]byte{byte(pad), byte(pad >> 8), byte(i)})
		}
		if err := checkSize(in.Specs); err != nil {
			if !strings.Contains(err.Error(), "submit fewer at a time") {
				t.Errorf("with params of %d bytes: %v", pad, err)
			}
			refused++
			continue
		}
		accepted++
		w := ready(t, 43, 4, 2)
		created := 0
		for _, change := range w.core.Step(w.now, in).Batches[0] {
			if change.Create {
				created++
			}
		}
		if created != 2*MaxSpecs {
			t.Errorf("with params of %d bytes the first batch creates %d records, want all %d", pad, created, 2*MaxSpecs)
		}
	}
	if accepted == 0 || refused == 0 {
		t.Errorf("%d are accepted, %d refused", accepted, refused)
	}
	large := simSpec(8, 8)
	large.Params = fmt.Appendf(nil, `{"x":"%s"}`, strings.Repeat("<", 60<<10))
	var no *gang.RefusedError
	if err := errors.Join(large.Validate(), checkSize([]gang.Spec{large})); !errors.As(err, &no) || no.Gang != "sim" || no.Field != "params" {
		t.Errorf("one gang that is too large alone: %v", err)
	}
}

func TestWhoDoesNotTakeTheOrderToRunIsNamed(t *testing.T) {
	w := ready(t, 37, 1, 1)
	id := w.submit(simSpec(8, 8))
	m := w.core.gangs[id].rec.Members[0]
	w.tell(KeeperAdmit{Keeper: Keeper{m.Lane, "alloc"}, Address: "10.0.0.1", State: KeeperIdle})
	w.pass(21 * time.Second)
	if why := w.core.gangs[id].rec.Why; !strings.Contains(why, "member 0 on client-0 does not answer the order to run") {
		t.Errorf("why = %q", why)
	}
}

func TestASentenceIsCutBetweenLetters(t *testing.T) {
	for n := range 4 {
		got := clip(strings.Repeat("x", n) + strings.Repeat("€", maxWhy))
		if !utf8.ValidString(got) || len(got) > maxWhy+len("…") || len(got) < maxWhy-len("€") {
			t.Errorf("%d bytes: %s", len(got), fmt.Sprintf("%q", got[len(got)-8:]))
		}
	}
}

// A lane that was given up is heard again, and its processes hang: what is
// known to run there counts, not that its lease should have ended it.
func TestALostLaneThatIsHeardAgainHoldsItsGPUs(t *testing.T) {
	w := ready(t, 38, 2, 2)
	id, keepers := w.running(2, simSpec(8, 8))
	k := keepers[0]
	k.hung = true
	w.tell(CancelRequest{ID: id, Reply: 900})
	w.tell(HostSilent{k.node.uuids})
	w.tell(HostHeard{k.node.uuids})
	w.tell(KeeperAdmit{Keeper: k.id(), Address: k.address, State: KeeperBusy})
	w.pass(2 * (simLease + leaseMargin))
	node := w.core.engine.Cluster().Node(k.node.id)
	if node.Free() != 0 {
		t.Errorf("GPUs %v are free", node.Free().Indexes())
	}
	l := w.core.lanes[k.lane]
	if l.abandoned {
		t.Errorf("it is given up within its time: %s", l.rec.Why)
	}
	notes := 0
	for range 2 * closeWithin / time.Second {
		w.now = w.now.Add(time.Second)
		for _, a := range w.core.Step(w.now, Tick{}).Actions {
			if n, is := a.(Note); is && strings.Contains(n.Text, "does not close") {
				notes++
			}
		}
	}
	if notes != 1 || l.rec.State != gang.LaneLost || !strings.Contains(l.rec.Why, "did not end within 1m0s") {
		t.Errorf("the operator is told %d times; the lane is %s: %s", notes, l.rec.State, l.rec.Why)
	}
	w.tell(KeeperGone{k.id()})
	w.pass(simLease + leaseMargin)
	if node.Free().Count() != 8 {
		t.Errorf("after its stream broke and its lease ran out, GPUs %v are free", node.Free().Indexes())
	}
}

// A running gang may lose records of its own; it is not run again without its
// parameters, and does not run for ever without lanes.
func TestARunningGangWhoseRecordsAreMissing(t *testing.T) {
	w := ready(t, 39, 2, 2)
	id, keepers := w.running(2, simSpec(16, 8))
	delete(w.kv, gang.SpecKey(id))
	w.faults = true
	w.restart(2)
	w.until(2, "all is heard", func() bool { return w.core.deciding && len(w.mail) == 0 })
	w.tell(LaneJobRemoved{keepers[0].lane})
	w.until(2, "failed", func() bool { return w.state(id) == gang.Failed })
	if why := w.core.gangs[id].rec.Why; !strings.Contains(why, "its specification is missing") {
		t.Errorf("why = %q", why)
	}

	id, keepers = w.running(2, simSpec(16, 8))
	for _, k := range keepers {
		delete(w.kv, gang.LaneKey(k.node.id, k.lane))
	}
	w.restart(2)
	w.until(2, "success in another attempt", func() bool { return w.state(id) == gang.Succeeded && w.core.gangs[id].rec.Attempt == 2 })
}

// Nomad preempts by priorities of its own: the gang rests, goes elsewhere, and
// has not failed.
func TestAGangThatNomadPreemptsGoesElsewhere(t *testing.T) {
	w := ready(t, 40, 2, 2)
	id, keepers := w.running(2, simSpec(8, 8))
	k := keepers[0]
	w.tell(LaneJobChanged{LaneJob{Job: k.job, Lane: k.lane, Allocation: k.alloc, Preempted: true, Message: "preempted by allocation 1234"}})
	w.until(2, "queued", func() bool { return w.state(id) == gang.Queued })
	s := w.core.status(w.core.gangs[id], false)
	if s.Code != gang.CodeBackoff || !strings.Contains(s.Why, "preempted by allocation 1234") {
		t.Errorf("it waits for %q, why = %q", s.Code, s.Why)
	}
	w.until(2, "running again", func() bool { return w.state(id) == gang.Running })
	if rec := w.core.gangs[id].rec; rec.Failures != 0 || rec.Members[0].Node == k.node.id {
		t.Errorf("failures %d, on %s again", rec.Failures, rec.Members[0].Node)
	}
}

// A keeper may be heard before Nomad tells of its allocation: that is one all
// the same, which Nomad has to end before its GPUs are free there.
func TestAnAdmittedLanesGPUsWaitForNomadThoughItSaidNothingYet(t *testing.T) {
	w := ready(t, 41, 1, 1)
	id := w.submit(simSpec(8, 8))
	m := w.core.gangs[id].rec.Members[0]
	k := Keeper{m.Lane, "alloc"}
	w.tell(KeeperAdmit{Keeper: k, Address: "10.0.0.1"})
	w.tell(CancelRequest{ID: id, Reply: 900})
	w.tell(KeeperClosed{Keeper: k, Reason: "cancelled"})
	w.tell(LanePurged{Lane: m.Lane})
	if free := w.core.engine.Cluster().Node(m.Node).Free().Count(); free != 0 {
		t.Errorf("%d GPUs are free before Nomad says that the allocation ended", free)
	}
	w.tell(LaneJobChanged{LaneJob{Job: "gangd.ddim.x", Lane: m.Lane, Allocation: k.Allocation, Ended: true, Stopped: true}})
	if free := w.core.engine.Cluster().Node(m.Node).Free().Count(); free != 8 {
		t.Errorf("%d GPUs are free after that", free)
	}
}
