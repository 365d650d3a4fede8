package schedule

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// player drives an engine at random, keeps its own account of who holds what,
// and holds every decision against the specification.
type player struct {
	e      *Engine
	levels []string
	nodes  map[string]cluster.Spec
	gangs  map[gang.ID]*Gang
	// running has the members of each attempt that were not released.
	running map[Seat]gang.Member
	waiting map[gang.ID]bool
	seq     uint64
	// log and events are for the replay.
	log    strings.Builder
	events []Event
}

func newPlayer(t *rapid.T) *player {
	p := &player{
		levels: []string{"region", "spine", "leaf"}[:rapid.IntRange(0, 3).Draw(t, "levels")],
		nodes:  make(map[string]cluster.Spec), gangs: make(map[gang.ID]*Gang),
		running: make(map[Seat]gang.Member), waiting: make(map[gang.ID]bool),
	}
	p.e = New(p.config())
	return p
}

func (p *player) config() Config {
	return Config{Levels: p.levels, Tiers: []Tier{{"low", 1}, {"high", 3}, {"mid", 2}}}
}

var models = []string{"H100", "B200"}

func (p *player) drawNode(t *rapid.T) cluster.Spec {
	id := fmt.Sprint("n", rapid.IntRange(0, 9).Draw(t, "node"))
	s, known := p.nodes[id]
	if !known {
		s = cluster.Spec{ID: id, Name: id}
		for range p.levels {
			s.Domains = append(s.Domains, fmt.Sprint("d", rapid.IntRange(0, 1).Draw(t, "domain")))
		}
		model := rapid.SampledFrom(models).Draw(t, "model")
		island := rapid.SampledFrom([]int{2, 4, 8}).Draw(t, "island")
		memory := rapid.SampledFrom([]int{40, 80}).Draw(t, "memory")
		for i := range rapid.SampledFrom([]int{2, 4, 8}).Draw(t, "gpus") {
			s.GPUs = append(s.GPUs, cluster.GPU{UUID: fmt.Sprint(id, "/", i), Index: i, Model: model, MemoryMiB: memory, Island: i / island})
		}
	}
	s.GPUs = slices.Clone(s.GPUs)
	s.Schedulable = rapid.IntRange(0, 9).Draw(t, "schedulable") > 0
	for i := range s.GPUs {
		s.GPUs[i].Healthy = rapid.IntRange(0, 9).Draw(t, "healthy") > 0
	}
	p.nodes[id] = s
	return s
}

func (p *player) drawGang(t *rapid.T) Gang {
	p.seq++
	perNode := rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "per_node")
	s := &gang.Spec{
		Name: "g", Template: "ddim", Tier: rapid.SampledFrom([]string{"low", "mid", "high"}).Draw(t, "tier"),
		GPUsPerNode: perNode, GPUs: perNode * rapid.IntRange(1, 4).Draw(t, "members"),
		GPU:          rapid.SampledFrom([]string{"", "", "H100", "B200"}).Draw(t, "model"),
		GPUMemoryMiB: rapid.SampledFrom([]int{0, 0, 60}).Draw(t, "memory"),
	}
	any := append([]string{""}, p.levels...)
	s.Topology.Require = rapid.SampledFrom(any).Draw(t, "require")
	s.Topology.Prefer = rapid.SampledFrom(any).Draw(t, "prefer")
	return Gang{ID: gang.ID(fmt.Sprint("g", p.seq)), Seq: p.seq, Attempt: 1, Spec: s}
}

// apply gives an event to the engine and checks all that it decided.
func (p *player) apply(t *rapid.T, ev Event) error {
	p.events = append(p.events, ev)
	decisions, err := p.e.Apply(ev, time.Unix(int64(len(p.events)), 0))
	fmt.Fprintln(&p.log, decisions, err)
	p.noteWaiting(ev)
	for _, d := range decisions {
		switch d := d.(type) {
		case Start:
			p.checkStart(t, d)
		case Wait:
			if !p.waiting[d.ID] {
				t.Fatalf("%s waits, and is not queued", d.ID)
			}
			if code, reason, position, waits := p.e.Explain(d.ID); waits && (code != d.Code || reason == "" || position < 1) {
				t.Fatalf("%s was told %s, and is told %s (%q, position %d)", d.ID, d.Code, code, reason, position)
			}
		}
	}
	return err
}

// noteWaiting follows who is queued by what the engine took.
func (p *player) noteWaiting(ev Event) {
	switch ev := ev.(type) {
	case Submit:
		g := ev.Gang
		if p.e.waiting[g.ID] != nil || p.e.holds(Seat{g.ID, g.Attempt, 0}) {
			p.gangs[g.ID], p.waiting[g.ID] = &g, true
		}
	case Withdraw:
		delete(p.waiting, ev.ID)
	case Release:
		delete(p.running, ev.Seat)
	case Together:
		for _, one := range ev {
			p.noteWaiting(one)
		}
	}
}

func (e *Engine) holds(s Seat) bool { _, ok := e.seats[s]; return ok }

// checkStart holds a placement against what the gang asked for, and against
// who holds what.
func (p *player) checkStart(t *rapid.T, d Start) {
	g := p.gangs[d.ID]
	if g == nil || !p.waiting[d.ID] || d.Attempt != g.Attempt {
		t.Fatalf("%s/%d started, and was not queued", d.ID, d.Attempt)
	}
	delete(p.waiting, d.ID)
	if len(d.Placement) != g.Spec.Members() {
		t.Fatalf("%s started with %d of %d members", d.ID, len(d.Placement), g.Spec.Members())
	}
	level := -1
	if g.Spec.Topology.Require != "" {
		level = slices.Index(p.levels, g.Spec.Topology.Require)
	}
	seen := make(map[string]bool)
	first := p.nodes[d.Placement[0].Node]
	for i, m := range d.Placement {
		spec := p.nodes[m.Node]
		if seen[m.Node] {
			t.Fatalf("%s has two members on %s", d.ID, m.Node)
		}
		seen[m.Node] = true
		if len(m.GPUs) != g.Spec.GPUsPerNode {
			t.Fatalf("member %d of %s has %d GPUs, want %d", i, d.ID, len(m.GPUs), g.Spec.GPUsPerNode)
		}
		if !spec.Schedulable {
			t.Fatalf("%s is on %s, which takes nothing", d.ID, m.Node)
		}
		if domainOf(p.e, m, level) != domainOf(p.e, d.Placement[0], level) {
			t.Fatalf("%s requires one %s and is on %s and %s", d.ID, g.Spec.Topology.Require, first.ID, m.Node)
		}
		p.checkGPUs(t, g, spec, first.GPUs[0].Model, m)
		p.running[Seat{d.ID, d.Attempt, i}] = m
	}
	p.checkRanks(t, d)
}

func (p *player) checkGPUs(t *rapid.T, g *Gang, on cluster.Spec, model string, m gang.Member) {
	for i, index := range m.GPUs {
		gpu := on.GPUs[index]
		if i > 0 && index <= m.GPUs[i-1] {
			t.Fatalf("%s: GPUs %v are not in rank order", g.ID, m.GPUs)
		}
		if !gpu.Healthy || gpu.Model != model || g.Spec.GPU != "" && gpu.Model != g.Spec.GPU || gpu.MemoryMiB < g.Spec.GPUMemoryMiB {
			t.Fatalf("%s (%+v) got %+v beside %s", g.ID, *g.Spec, gpu, model)
		}
		for seat, other := range p.running {
			if other.Node == m.Node && slices.Contains(other.GPUs, index) {
				t.Fatalf("GPU %d of %s is held by %v, and was given to %s", index, m.Node, seat, g.ID)
			}
		}
	}
}

// checkRanks: on every level the ranks of one domain follow each other.
func (p *player) checkRanks(t *rapid.T, d Start) {
	for level := range p.levels {
		left := make(map[string]bool)
		last := ""
		for _, m := range d.Placement {
			domain := domainOf(p.e, m, level)
			if left[domain] {
				t.Fatalf("%s: the ranks come back to %s: %v", d.ID, domain, d.Placement)
			}
			if last != "" && domain != last {
				left[last] = true
			}
			last = domain
		}
	}
}

func (p *player) Node(t *rapid.T) { must(t, p.apply(t, NodeSet{p.drawNode(t)})) }

// Gone: Nomad forgets a node; that of a member that runs stays.
func (p *player) Gone(t *rapid.T) {
	nodes := p.e.Cluster().Nodes()
	if len(nodes) < 2 {
		t.Skip("it is the last")
	}
	n := rapid.SampledFrom(nodes).Draw(t, "gone")
	held := n.Used() != 0
	if err := p.apply(t, NodeGone{n.ID}); held != (err != nil) {
		t.Fatalf("node %s, held %t, is removed: %v", n.ID, held, err)
	}
	if !held {
		delete(p.nodes, n.ID)
	}
}

func (p *player) Submit(t *rapid.T) {
	g := p.drawGang(t)
	err := p.apply(t, Submit{g})
	if could := oracle(p.e, g, cluster.Total); could != (err == nil) {
		t.Fatalf("%s (%+v) could ever run: %t, and the answer was %v", g.ID, *g.Spec, could, err)
	}
}

// Several events at one instant.
func (p *player) Together(t *rapid.T) {
	all := Together{NodeSet{p.drawNode(t)}}
	for range rapid.IntRange(0, 3).Draw(t, "submissions") {
		g := p.drawGang(t)
		g.Accepted = true
		all = append(all, Submit{g})
	}
	must(t, p.apply(t, all))
}

// seats lists what runs, in a fixed order.
func (p *player) seats() []Seat {
	var out []Seat
	for s := range p.running {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Seat) int {
		return strings.Compare(fmt.Sprintf("%s/%04d/%04d", a.ID, a.Attempt, a.Member), fmt.Sprintf("%s/%04d/%04d", b.ID, b.Attempt, b.Member))
	})
	return out
}

func (p *player) Release(t *rapid.T) {
	seats := p.seats()
	if len(seats) == 0 {
		t.Skip("nothing runs")
	}
	must(t, p.apply(t, Release{rapid.SampledFrom(seats).Draw(t, "seat")}))
}

// Requeue: a gang that ran waits again, while some of its members may still
// hold their GPUs.
func (p *player) Requeue(t *rapid.T) {
	seats := p.seats()
	if len(seats) == 0 {
		t.Skip("nothing runs")
	}
	seat := rapid.SampledFrom(seats).Draw(t, "seat")
	if p.waiting[seat.ID] || p.gangs[seat.ID].Attempt != seat.Attempt {
		t.Skip("it waits or runs again already")
	}
	g := *p.gangs[seat.ID]
	g.Attempt, g.Accepted, g.Avoid = g.Attempt+1, true, []string{p.running[seat].Node}
	must(t, p.apply(t, Together{Release{seat}, Submit{g}}))
}

func (p *player) Withdraw(t *rapid.T) {
	queue := p.e.order()
	if len(queue) == 0 {
		t.Skip("nothing waits")
	}
	must(t, p.apply(t, Withdraw{rapid.SampledFrom(queue).Draw(t, "gang")}))
}

func must(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

// Check runs after every event.
func (p *player) Check(t *rapid.T) {
	if err := p.e.Cluster().Check(); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(p.e.seats, p.running) {
		t.Fatalf("the engine has the seats %v, want %v", p.e.seats, p.running)
	}
	for _, n := range p.e.Cluster().Nodes() {
		var held cluster.Mask
		for _, m := range p.running {
			if m.Node == n.ID {
				held |= cluster.MaskOf(m.GPUs)
			}
		}
		if n.Used() != held {
			t.Fatalf("%v of %s are held, want %v", n.Used().Indexes(), n.ID, held.Indexes())
		}
	}
	p.checkOrder(t)
	p.checkRebuilt(t)
}

// checkOrder: the queue is ordered by tier and arrival; of those that could
// run, the first does not fit, and all before it are stuck.
func (p *player) checkOrder(t *rapid.T) {
	queue := p.e.order()
	if len(queue) != len(p.waiting) {
		t.Fatalf("%d gangs wait, want %d", len(queue), len(p.waiting))
	}
	rank := map[string]int{"high": 0, "mid": 1, "low": 2}
	for i, id := range queue {
		g := p.gangs[id]
		if i == 0 {
			continue
		}
		before := p.gangs[queue[i-1]]
		if rank[before.Spec.Tier] > rank[g.Spec.Tier] || before.Spec.Tier == g.Spec.Tier && before.Seq >= g.Seq {
			t.Fatalf("%s (%s, %d) is before %s (%s, %d)", before.ID, before.Spec.Tier, before.Seq, g.ID, g.Spec.Tier, g.Seq)
		}
	}
	for _, id := range queue {
		if g := *p.gangs[id]; fits(p.e, g) {
			t.Fatalf("%s (%+v) fits, is first in the order, and waits", id, *g.Spec)
		} else if oracle(p.e, g, cluster.Usable) {
			return // it holds back the others
		}
	}
}

// checkRebuilt: an engine made from the records alone has the same queue,
// starts nothing, and gives the same reasons.
func (p *player) checkRebuilt(t *rapid.T) {
	f := rebuilt(p.e)
	if out, err := f.Apply(Together{}, time.Unix(0, 0)); err != nil || slices.ContainsFunc(out, func(d Decision) bool { _, starts := d.(Start); return starts }) {
		t.Fatalf("rebuilt, it decides %v, %v", out, err)
	}
	if got, want := f.order(), p.e.order(); !slices.Equal(got, want) {
		t.Fatalf("rebuilt, the queue is %v, want %v", got, want)
	}
	all := p.e.Explainer()
	for i, id := range p.e.order() {
		code, reason, position, _ := p.e.Explain(id)
		if code1, reason1, position1, _ := all.Explain(id); code1 != code || reason1 != reason || position1 != i+1 || position != i+1 {
			t.Fatalf("%s at %d is explained alone as %d. %s (%s), with all as %d. %s (%s)", id, i+1, position, code, reason, position1, code1, reason1)
		}
		code2, reason2, position2, _ := f.Explain(id)
		if code != code2 || reason != reason2 || position != position2 {
			t.Fatalf("%s: %s (%s), rebuilt %s (%s)", id, code, reason, code2, reason2)
		}
		if told := p.e.waiting[id].code; told != code {
			t.Fatalf("%s was told %s last, and is explained as %s", id, told, code)
		}
	}
}

func TestWhatMustAlwaysHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPlayer(t)
		for range 4 {
			p.Node(t)
		}
		t.Repeat(rapid.StateMachineActions(p))
		p.replay(t)
	})
}

// replay: the same events give the same decisions, byte for byte.
func (p *player) replay(t *rapid.T) {
	e := New(p.config())
	var log strings.Builder
	for i, ev := range p.events {
		decisions, err := e.Apply(ev, time.Unix(int64(i+1), 0))
		fmt.Fprintln(&log, decisions, err)
	}
	if log.String() != p.log.String() {
		t.Fatalf("the first time:\n%s\nthe second:\n%s", p.log.String(), log.String())
	}
}
