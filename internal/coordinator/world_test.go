package coordinator

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// world is a cluster in one thread, driven by a seed: the core is real, Consul
// is a map, and Nomad and the keepers are small models of what the real ones
// do. What is under way between them is delivered in any order that keeps each
// source's own.
type world struct {
	t     *testing.T
	rng   *rand.Rand
	now   time.Time
	core  *Core
	fence uint64

	kv      map[string][]byte
	nodes   []*simNode
	jobs    map[string]*simJob
	keepers map[gang.LaneID]*simKeeper
	// mail is what is under way to the core, by source.
	mail map[string][]Input
	// calls are calls of the core that were made and not yet carried out, by
	// lane.
	calls map[string][]Action

	ended    map[gang.ID]gang.State
	answers  map[int]Answer
	manifest map[gang.ID]Manifest
	counts   map[string]int
	finished map[Run]int // ranks that have done their part
	trace    []string
	// version is the template's as Nomad has it; kept the oldest it keeps.
	version, kept uint64
	// crashy worlds crash between any two effects.
	crashy bool
	// maxFinished is how many ended gangs are kept; 0 means 1000.
	maxFinished int
	// faults are expected.
	faults bool
	tape   *tape
}

type simNode struct {
	id           string
	uuids        []string
	dead, silent bool
}

type simJob struct {
	order   OpenLane
	alloc   string
	started bool
	ended   bool
}

type simKeeper struct {
	lane    gang.LaneID
	job     string
	alloc   string
	node    *simNode
	uuids   []string
	state   KeeperState
	run     Run // the newest
	world   int // ranks of the run
	first   int
	steps   int
	replay  []Input
	address string
	leaseTo time.Time
	// cut: its node cannot be reached; it runs on until its lease ends.
	cut bool
	// hung: its processes outlive any kill, and do nothing.
	hung bool
}

const (
	simSteps = 3
	simLease = 15 * time.Second
	// tailLines of the trace are printed with a failure.
	tailLines = 60
)

func newWorld(t *testing.T, seed uint64, nodes, perLeaf int) *world {
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1_800_000_000, 0),
		kv: make(map[string][]byte), jobs: make(map[string]*simJob), keepers: make(map[gang.LaneID]*simKeeper),
		mail: make(map[string][]Input), calls: make(map[string][]Action),
		ended: make(map[gang.ID]gang.State), answers: make(map[int]Answer), manifest: make(map[gang.ID]Manifest), counts: make(map[string]int),
		finished: make(map[Run]int), version: 1, tape: &tape{t: t},
	}
	t.Cleanup(w.tape.rewind)
	for i := range nodes {
		n := &simNode{id: fmt.Sprintf("node-%d", i)}
		for g := range 8 {
			n.uuids = append(n.uuids, fmt.Sprintf("GPU-%d-%d", i, g))
		}
		w.nodes = append(w.nodes, n)
	}
	w.boot(perLeaf)
	return w
}

func (w *world) view(i, perLeaf int) NodeView {
	n := w.nodes[i]
	devices := make(map[string]GPUView)
	for _, g := range n.gpus() {
		devices[g.UUID] = g
	}
	return NodeView{ID: n.id, Name: "client-" + n.id[5:], Ready: !n.dead, Down: n.dead, Eligible: true, Domains: []string{fmt.Sprintf("l%d", i/perLeaf)}, Devices: devices}
}

// worldRules are those of every world: background work gives way to the others.
var worldRules = schedule.Config{
	Levels: []string{"leaf"},
	Tiers: []schedule.Tier{
		{Name: "interactive", Priority: 300, Preempts: []string{"background"}, Grace: 5 * time.Second},
		{Name: "production", Priority: 200, Preempts: []string{"background"}, Grace: 5 * time.Second},
		{Name: "background", Priority: 100, MinShare: 0.1, Protected: 100 * time.Millisecond},
	},
	Tenants:  []schedule.Tenant{{Name: "a", Weight: 2, Guaranteed: 8}, {Name: "b", MaxGPUs: 16}},
	HalfLife: time.Hour,
}

// boot starts a new term: a new core reads the store, and everybody says again
// where they stand.
func (w *world) boot(perLeaf int) {
	w.fence++
	w.tape.rewind()
	w.mail, w.calls = make(map[string][]Input), make(map[string][]Action)
	w.core = NewCore(Config{
		Rules: worldRules,
		Fence: gang.Fence{Epoch: 1, Index: w.fence}, ReadyTimeout: 20 * time.Second, Lease: simLease, MaxQueue: 1000, MaxFinished: cmp.Or(w.maxFinished, 1000),
		Applied: w.tape.take,
	})
	w.tape.begin(w.core)
	var records []KV
	for _, key := range slices.Sorted(maps.Keys(w.kv)) {
		records = append(records, KV{key, w.kv[key]})
	}
	found, err := inherit(records)
	w.must(err)
	w.commit(found.repairs)
	w.tell(found.Restored)
	var views []NodeView
	for i := range w.nodes {
		views = append(views, w.view(i, perLeaf))
	}
	w.post("nomad", TemplateSeen{"ddim", w.version})
	w.post("nomad", NodesListed{views})
	var jobs []LaneJob
	for _, id := range slices.Sorted(maps.Keys(w.jobs)) {
		jobs = append(jobs, w.jobs[id].shown(id))
	}
	w.post("nomad", LaneJobsListed{jobs})
	for _, n := range w.nodes {
		if !n.dead && !n.silent {
			w.hello(n)
		}
	}
	for _, k := range w.keepersInOrder() {
		if !k.cut {
			w.reconnect(k)
		}
	}
}

func (j *simJob) shown(id string) LaneJob {
	out := LaneJob{Job: id, Lane: j.order.Lane}
	if j.started {
		out.Allocation, out.Ended = j.alloc, j.ended
	}
	return out
}

func (n *simNode) gpus() []GPUView {
	gpus := make([]GPUView, len(n.uuids))
	for i, u := range n.uuids {
		gpus[i] = GPUView{UUID: u, Index: i, Model: "H100-80GB", MemoryMiB: 81559, Healthy: true}
	}
	return gpus
}

func (w *world) hello(n *simNode) {
	w.post("device "+n.id, Inventory{n.gpus()})
	w.post("driver "+n.id, DriverUp{n.uuids})
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("%v\n%s", err, w.tail())
	}
}

func (w *world) keepersInOrder() []*simKeeper {
	return slices.SortedFunc(maps.Values(w.keepers), func(a, b *simKeeper) int { return cmp.Compare(a.lane, b.lane) })
}

func (w *world) post(source string, in Input) { w.mail[source] = append(w.mail[source], in) }

// tell steps the core, and carries its effects out; in a crashy world it may
// crash between any two of them, and say so.
func (w *world) tell(in Input) (crashed bool) {
	w.counts[fmt.Sprintf("%T", in)]++
	if _, tick := in.(Tick); !tick {
		w.trace = append(w.trace, fmt.Sprintf("%s %T%+v", w.now.Format("05.000"), in, in))
	}
	out := w.core.Step(w.now, in)
	w.tape.turn()
	for _, b := range out.Batches {
		if w.crash() {
			return true
		}
		w.commit(b)
	}
	for _, a := range out.Actions {
		if w.crash() {
			return true
		}
		w.act(a)
	}
	w.check()
	return false
}

func (w *world) crash() bool { return w.crashy && w.rng.IntN(400) == 0 }

func (w *world) commit(b gang.Batch) {
	for _, c := range b {
		if _, exists := w.kv[c.Key]; exists && c.Create {
			w.t.Fatalf("%s is created twice\n%s", c.Key, w.tail())
		}
		if c.Value == nil {
			delete(w.kv, c.Key)
			continue
		}
		w.kv[c.Key] = c.Value
		if strings.HasPrefix(c.Key, "gangs/") {
			r, err := gang.DecodeRecord(c.Key, c.Value)
			w.must(err)
			w.noteState(r)
		}
	}
}

// noteState: a terminal state never changes.
func (w *world) noteState(r *gang.Record) {
	if was, has := w.ended[r.ID]; has && was != r.State {
		w.t.Fatalf("gang %s went from %s to %s\n%s", r.ID, was, r.State, w.tail())
	}
	if r.State.Terminal() {
		w.ended[r.ID] = r.State
	}
	for i, a := range r.Attempts {
		w.counts["ended "+a.Cause]++
		if want := max(r.Attempts[len(r.Attempts)-1].N-len(r.Attempts)+1, 1) + i; a.N != want || a.Decided == 0 || a.Ended < a.Decided || len(a.Members) == 0 {
			w.t.Fatalf("gang %s keeps the attempts %+v\n%s", r.ID, r.Attempts, w.tail())
		}
	}
	if r.State == gang.Succeeded && r.EndedAttempt() == nil {
		w.t.Fatalf("gang %s succeeded in attempt %d, and keeps %+v\n%s", r.ID, r.Attempt, r.Attempts, w.tail())
	}
}

func (w *world) act(a Action) {
	switch a := a.(type) {
	case OpenLane, PurgeLane, Publish:
		key := fmt.Sprint(a)
		switch a := a.(type) {
		case OpenLane:
			key = string(a.Lane)
		case PurgeLane:
			key = string(a.Lane)
		}
		w.calls[key] = append(w.calls[key], a)
	case Answer:
		w.answers[a.Reply] = a
	case Fault:
		if w.faults {
			return
		}
		w.t.Fatalf("fault: %v\n%s", a.Err, w.tail())
	case AdmitLane, RefuseLane, StartRun, CancelRun, CloseLane:
		w.trace = append(w.trace, fmt.Sprintf("%s -> %T%+v", w.now.Format("05.000"), a, a))
		w.order(a)
	}
}

// order delivers an order to a keeper at once; one that is cut off, or gone,
// misses it.
func (w *world) order(a Action) {
	to := a.(interface{ to() Keeper }).to()
	lane := to.Lane
	k := w.keepers[lane]
	if k == nil || k.cut || k.id() != to {
		return
	}
	switch a := a.(type) {
	case AdmitLane:
		w.checkAdmission(k)
		if k.state == KeeperNew {
			k.state = KeeperLoading
		}
	case StartRun:
		w.startRun(k, a)
	case CancelRun:
		if k.hung {
			return
		}
		if k.state == KeeperIdle && k.run == a.Run {
			w.post(string(lane), KeeperRefused{Keeper: k.id(), Run: a.Run, Reason: "it has run that"})
			return
		}
		if k.state == KeeperBusy {
			w.post(string(lane), KeeperEnded{Keeper: k.id(), Run: k.run, Outcome: OutcomeCancelled, Message: a.Reason})
		}
		w.endKeeper(k, KeeperClosed{Keeper: k.id(), Reason: a.Reason})
	case RefuseLane:
		w.close(k, a.Reason)
	case CloseLane:
		w.close(k, a.Reason)
	}
}

func (w *world) close(k *simKeeper, why string) {
	if !k.hung {
		w.endKeeper(k, KeeperClosed{Keeper: k.id(), Reason: why})
	}
}

// checkAdmission: a keeper is let in only if that is written down, for its
// allocation, in a lane that is to live.
func (w *world) checkAdmission(k *simKeeper) {
	value := w.kv[gang.LaneKey(k.node.id, k.lane)]
	l, err := gang.DecodeLane(gang.LaneKey(k.node.id, k.lane), value)
	if err != nil || l.Allocation != k.alloc || l.State == gang.LaneClosing || l.State == gang.LaneClosed {
		w.t.Fatalf("lane %s admits the allocation %s, and its record is %s\n%s", k.lane, k.alloc, value, w.tail())
	}
}

func (w *world) startRun(k *simKeeper, a StartRun) {
	if (a.Member > 0) != (a.MasterPort > 0) {
		w.t.Fatalf("member %d is told to run with the master port %d\n%s", a.Member, a.MasterPort, w.tail())
	}
	if k.state == KeeperBusy {
		if k.run != a.Run {
			w.t.Fatalf("lane %s is told to run %v and runs %v\n%s", k.lane, a.Run, k.run, w.tail())
		}
		return
	}
	if k.state == KeeperIdle && k.run == a.Run {
		for _, r := range k.replay {
			w.post(string(k.lane), r)
		}
		return
	}
	if k.state != KeeperIdle {
		w.t.Fatalf("lane %s is told to run and is not ready (%d)\n%s", k.lane, k.state, w.tail())
	}
	k.state, k.run, k.world, k.first, k.steps = KeeperBusy, a.Run, a.World, a.FirstRank, 0
	accepted := KeeperAccepted{Keeper: k.id(), Run: a.Run, MasterPort: 20000 + a.FirstRank}
	k.replay = append(k.replay, accepted)
	w.post(string(k.lane), accepted)
}

// endKeeper: its processes are gone; Nomad learns it from the driver.
func (w *world) endKeeper(k *simKeeper, last Input) {
	delete(w.keepers, k.lane)
	if last != nil && !k.cut {
		w.post(string(k.lane), last)
		w.post(string(k.lane), KeeperGone{k.id()})
	}
	if j := w.jobs[k.job]; j != nil && j.alloc == k.alloc && !k.node.dead {
		j.ended = true
		w.post("nomad", LaneJobChanged{j.shown(k.job)})
	}
}

func (k *simKeeper) id() Keeper { return Keeper{k.lane, k.alloc} }

func (w *world) reconnect(k *simKeeper) {
	w.post(string(k.lane), KeeperAdmit{Keeper: k.id(), Address: k.address, State: k.state})
	for _, r := range k.replay {
		w.post(string(k.lane), r)
	}
}

// call carries out the next call to Nomad of one lane.
func (w *world) call(key string) {
	a := w.calls[key][0]
	if w.calls[key] = w.calls[key][1:]; len(w.calls[key]) == 0 {
		delete(w.calls, key)
	}
	switch a := a.(type) {
	case OpenLane:
		if w.jobs[a.Job] == nil && a.TemplateVersion != 0 && a.TemplateVersion < w.kept {
			w.post("call "+string(a.Lane), LaneOpened{Lane: a.Lane, Err: fmt.Errorf("open lane: %w", ErrTemplateVersion)})
			return
		}
		if w.jobs[a.Job] == nil {
			w.jobs[a.Job] = &simJob{order: a, alloc: fmt.Sprintf("alloc-%s-%d", a.Lane, len(w.trace))}
		}
		w.post("call "+string(a.Lane), LaneOpened{Lane: a.Lane, Version: cmp.Or(a.TemplateVersion, w.version)})
	case PurgeLane:
		if j := w.jobs[a.Job]; j != nil {
			delete(w.jobs, a.Job)
			if k := w.keepers[a.Lane]; k != nil && k.job == a.Job && !k.node.dead && !k.cut && !k.hung {
				w.stopTask(k, "purged")
			}
		}
		w.post("call "+string(a.Lane), LanePurged{Lane: a.Lane})
	case Publish:
		if was, has := w.manifest[a.Run.Gang]; has && was.Attempt != a.Manifest.Attempt {
			w.t.Fatalf("gang %s is published by attempts %d and %d\n%s", a.Run.Gang, was.Attempt, a.Manifest.Attempt, w.tail())
		}
		var err error
		written := true
		if w.crashy && w.rng.IntN(3) == 0 {
			err, written = errors.New("the store does not answer"), w.rng.IntN(2) == 0
		}
		if written {
			w.manifest[a.Run.Gang] = a.Manifest
		}
		w.post("call "+string(a.Run.Gang), Published{Run: a.Run, Err: err})
	}
}

// stopTask is what the driver does when Nomad stops an allocation.
func (w *world) stopTask(k *simKeeper, why string) {
	if k.state == KeeperBusy {
		w.post(string(k.lane), KeeperEnded{Keeper: k.id(), Run: k.run, Outcome: OutcomeTaskStopped, Message: why})
	}
	w.endKeeper(k, KeeperClosed{Keeper: k.id(), Reason: why, ByNomad: true})
}

// startJob has Nomad start an allocation where its GPUs are free for it.
func (w *world) startJob(id string) {
	j := w.jobs[id]
	n := w.nodes[slices.IndexFunc(w.nodes, func(n *simNode) bool { return n.id == j.order.Node })]
	if n.dead || n.silent {
		return
	}
	for _, k := range w.keepers {
		if slices.ContainsFunc(k.uuids, func(u string) bool { return slices.Contains(j.order.UUIDs, u) }) {
			return
		}
	}
	j.started = true
	k := &simKeeper{lane: j.order.Lane, job: id, alloc: j.alloc, node: n, uuids: j.order.UUIDs, address: "10.0.0." + n.id[5:], leaseTo: w.now.Add(simLease)}
	w.keepers[k.lane] = k
	w.post("nomad", LaneJobChanged{j.shown(id)})
	w.reconnect(k)
}

// work lets one keeper go on: load, step with its peers, finish.
func (w *world) work(k *simKeeper) {
	if k.hung {
		return
	}
	switch k.state {
	case KeeperLoading:
		k.state = KeeperIdle
		if !k.cut {
			w.post(string(k.lane), KeeperReady{k.id()})
		}
	case KeeperBusy:
		ranks := w.finished[k.run] // what they had to give is given
		for _, o := range w.keepers {
			if o.run == k.run && o.state == KeeperBusy && o.steps >= k.steps {
				ranks += len(o.uuids)
			}
		}
		if ranks < k.world || k.steps > simSteps {
			return // the all-reduce waits for the others
		}
		k.steps++
		if k.steps <= simSteps {
			if !k.cut {
				w.post(string(k.lane), KeeperStep{Keeper: k.id(), Run: k.run, Rank: k.first, I: k.steps, N: simSteps})
			}
			return
		}
		result := KeeperResult{Keeper: k.id(), Run: k.run}
		if k.first == 0 {
			result.Artifact = &gang.Artifact{Key: "artifacts/" + string(k.run.Gang), SHA256: string(k.run.Gang)}
		}
		ended := KeeperEnded{Keeper: k.id(), Run: k.run, Outcome: OutcomeSucceeded}
		k.replay = append(k.replay, result, ended)
		k.state = KeeperIdle
		w.finished[k.run] += len(k.uuids)
		if !k.cut {
			w.post(string(k.lane), result)
			w.post(string(k.lane), ended)
		}
	}
}

// check: no GPU runs for two, no gang runs in part by design, and what the
// engine keeps agrees with what it would rebuild.
func (w *world) check() {
	holders := make(map[string]gang.LaneID)
	for _, k := range w.keepersInOrder() {
		if k.state == KeeperNew {
			continue
		}
		for _, u := range k.uuids {
			if other, has := holders[u]; has {
				w.t.Fatalf("GPU %s is used by lanes %s and %s\n%s", u, other, k.lane, w.tail())
			}
			holders[u] = k.lane
		}
	}
	for _, l := range w.core.lanesInOrder() {
		if l.freed || l.rec.State == gang.LaneClosing || l.rec.State == gang.LaneLost {
			continue
		}
		for _, u := range l.rec.UUIDs {
			user, has := holders[u]
			// What hangs longer than its lease, unheard, nobody can know of but
			// its node, where nothing starts beside it.
			if has && user != l.rec.ID && !(w.keepers[user].hung && w.now.After(w.keepers[user].leaseTo)) {
				w.t.Fatalf("GPU %s is placed in lane %s, and lane %s still runs on it\n%s", u, l.rec.ID, user, w.tail())
			}
		}
	}
	versions := make(map[Run]uint64)
	for _, l := range w.core.lanesInOrder() {
		if j := w.jobs[l.rec.Job]; j != nil {
			if v, other := versions[l.laneRun()]; other && v != j.order.TemplateVersion {
				w.t.Fatalf("lanes of %v are opened from versions %d and %d of the template\n%s", l.laneRun(), v, j.order.TemplateVersion, w.tail())
			}
			versions[l.laneRun()] = j.order.TemplateVersion
		}
	}
	if err := w.core.engine.Cluster().Check(); err != nil {
		w.t.Fatalf("%v\n%s", err, w.tail())
	}
}

// advance does one random thing that is due.
func (w *world) advance(perLeaf int) {
	w.now = w.now.Add(time.Duration(w.rng.IntN(20)) * time.Millisecond)
	type thing struct {
		kind, key string
	}
	things := []thing{{"tick", ""}}
	for _, s := range slices.Sorted(maps.Keys(w.mail)) {
		things = append(things, thing{"mail", s}, thing{"mail", s})
	}
	for _, s := range slices.Sorted(maps.Keys(w.calls)) {
		things = append(things, thing{"call", s})
	}
	for _, id := range slices.Sorted(maps.Keys(w.jobs)) {
		if !w.jobs[id].started {
			things = append(things, thing{"start", id})
		}
	}
	for _, k := range w.keepersInOrder() {
		things = append(things, thing{"work", string(k.lane)})
	}
	switch x := things[w.rng.IntN(len(things))]; x.kind {
	case "tick":
		w.now = w.now.Add(50 * time.Millisecond)
		w.lapse()
		if w.tell(Tick{}) {
			w.restart(perLeaf)
		}
	case "mail":
		in := w.mail[x.key][0]
		if w.mail[x.key] = w.mail[x.key][1:]; len(w.mail[x.key]) == 0 {
			delete(w.mail, x.key)
		}
		if w.tell(in) {
			w.restart(perLeaf)
		}
	case "call":
		w.call(x.key)
	case "start":
		w.startJob(x.key)
	case "work":
		w.work(w.keepers[gang.LaneID(x.key)])
	}
}

// lapse ends keepers whose lease ran out, and renews the others'.
func (w *world) lapse() {
	for _, k := range w.keepersInOrder() {
		switch {
		case !k.cut:
			k.leaseTo = w.now.Add(simLease)
		case w.now.After(k.leaseTo) && !k.hung:
			w.endKeeper(k, nil)
		}
	}
}

func (w *world) restart(perLeaf int) {
	w.trace = append(w.trace, "---- gangd crashes")
	w.counts["crash"]++
	crashy := w.crashy
	w.crashy = false // the first step of a term is let through
	w.boot(perLeaf)
	w.crashy = crashy
}

func (w *world) tail() string {
	from := max(0, len(w.trace)-tailLines)
	return strings.Join(w.trace[from:], "\n")
}

// submit asks for a gang and returns its ID once it is accepted.
func (w *world) submit(spec gang.Spec) gang.ID {
	w.t.Helper()
	reply := len(w.answers) + 1
	var random [5]byte
	for i := range random {
		random[i] = byte(w.rng.Uint32())
	}
	crashy := w.crashy
	w.crashy = false
	w.tell(SubmitRequest{Specs: []gang.Spec{spec}, Templates: map[string]Template{spec.Template: {Version: w.version}}, Random: [][5]byte{random}, Reply: reply})
	w.crashy = crashy
	a := w.answers[reply]
	w.must(a.Err)
	return a.Statuses[0].ID
}

func simSpec(gpus, perNode int) gang.Spec {
	return gang.Spec{Name: "sim", Template: "ddim", Tenant: "default", Tier: "production", GPUs: gpus, GPUsPerNode: perNode, InfraRetries: 50}
}

// until advances until done, or fails after a bound.
func (w *world) until(perLeaf int, what string, done func() bool) {
	w.t.Helper()
	for range 60_000 {
		if done() {
			return
		}
		w.advance(perLeaf)
	}
	w.t.Fatalf("not reached: %s\n%s", what, w.tail())
}

func (w *world) state(id gang.ID) gang.State {
	if g := w.core.gangs[id]; g != nil {
		return g.rec.State
	}
	return ""
}
