package schedule

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/soak"
)

// checkStart holds a placement against what the gang asked for, and against
// who holds what.
func (p *player) checkStart(t *rapid.T, d Start) {
	g := p.gangs[d.ID]
	if g == nil || !p.waiting[d.ID] || d.Attempt != g.Attempt {
		t.Fatalf("%s/%d started, and was not queued", d.ID, d.Attempt)
	}
	delete(p.waiting, d.ID)
	p.began[d.ID] = p.now
	perNode := min(g.Spec.GPUsPerNode, d.GPUs)
	if len(d.Placement)*perNode != d.GPUs || d.GPUs != g.Spec.GPUs && !slices.ContainsFunc(g.Spec.Elastic, func(z gang.Size) bool { return z.GPUs == d.GPUs }) {
		t.Fatalf("%s started with %d members on %d GPUs", d.ID, len(d.Placement), d.GPUs)
	}
	seen := make(map[string]bool)
	first := p.nodes[d.Placement[0].Node]
	for i, m := range d.Placement {
		spec := p.nodes[m.Node]
		if seen[m.Node] {
			t.Fatalf("%s has two members on %s", d.ID, m.Node)
		}
		seen[m.Node] = true
		if len(m.GPUs) != perNode {
			t.Fatalf("member %d of %s has %d GPUs, want %d", i, d.ID, len(m.GPUs), perNode)
		}
		if !spec.Schedulable {
			t.Fatalf("%s is on %s, which takes nothing", d.ID, m.Node)
		}
		if spec.Spot && g.Spec.Checkpoint == nil {
			t.Fatalf("%s cannot save its state, and is on the spot node %s", d.ID, m.Node)
		}
		p.checkGPUs(t, g, spec, first.GPUs[0].Model, m)
		p.checkRoom(t, g, spec)
		p.held[Seat{d.ID, d.Attempt, i}], p.was[Seat{d.ID, d.Attempt, i}] = m, m
	}
	p.checkDomains(t, g, d)
	p.checkOpen(t, d)
	if most := p.e.tenant(g.Spec.Tenant).MaxGPUs; most > 0 && p.uses(g.Spec.Tenant) > most {
		t.Fatalf("tenant %s has %d GPUs after the start of %s, and may have %d", g.Spec.Tenant, p.uses(g.Spec.Tenant), d.ID, most)
	}
}

func (p *player) uses(tenant string) int {
	n := 0
	for seat, m := range p.held {
		if p.gangs[seat.ID].Spec.Tenant == tenant {
			n += len(m.GPUs)
		}
	}
	return n
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
		for seat, other := range p.held {
			if other.Node == m.Node && slices.Contains(other.GPUs, index) {
				t.Fatalf("GPU %d of %s is held by %v, and was given to %s", index, m.Node, seat, g.ID)
			}
		}
	}
}

// checkRoom: a node has the CPU and memory for one more member of a gang, beside
// what others hold and those members that are there.
func (p *player) checkRoom(t *rapid.T, g *Gang, on cluster.Spec) {
	need := g.Spec.MemberNeed
	if need == (gang.Need{}) {
		return
	}
	all := need
	for seat, m := range p.held {
		if m.Node == on.ID {
			all = all.Plus(p.gangs[seat.ID].Spec.MemberNeed)
		}
	}
	cpu, memory := all.CPUMHz+all.Cores*on.CoreMHz+on.Foreign.CPUMHz, all.MemoryMiB+on.Foreign.MemoryMiB
	if takes := need.CPUMHz + need.Cores; takes > 0 && on.Capacity.CPUMHz > 0 && cpu > on.Capacity.CPUMHz ||
		need.MemoryMiB > 0 && on.Capacity.MemoryMiB > 0 && memory > on.Capacity.MemoryMiB {
		t.Fatalf("%s was given a place on %s, where it makes %d MHz and %d MiB of %+v\n%s", g.ID, on.ID, cpu, memory, on.Capacity, p.story())
	}
}

// checkDomains: all members lie in the domain that is required, the ranks of
// one domain follow each other, and segments share the narrowest one.
func (p *player) checkDomains(t *rapid.T, g *Gang, d Start) {
	for level := range p.cfg.Levels {
		left := make(map[string]bool)
		last := ""
		for i, m := range d.Placement {
			domain := strings.Join(p.nodes[m.Node].Domains[:level+1], "/")
			if left[domain] {
				t.Fatalf("%s: the ranks come back to %s: %v", d.ID, domain, d.Placement)
			}
			if last != "" && domain != last {
				left[last] = true
				if p.cfg.Levels[level] == g.Spec.Topology.Require {
					t.Fatalf("%s requires one %s and is on %s and %s", d.ID, g.Spec.Topology.Require, last, domain)
				}
				if s := g.Spec.Topology.Segment; s > 0 && level == len(p.cfg.Levels)-1 && len(d.Placement)%s == 0 && i%s != 0 {
					t.Fatalf("%s: rank %d begins another %s within a segment of %d: %v", d.ID, i, p.cfg.Levels[level], s, d.Placement)
				}
			}
			last = domain
		}
	}
}

// checkStop: only those are stopped for others who may be.
func (p *player) checkStop(t *rapid.T, d Stop) {
	g := p.gangs[d.ID]
	if _, again := p.stopping[d.ID]; again || g == nil || p.waiting[d.ID] || d.Attempt != g.Attempt {
		t.Fatalf("%s/%d is told to stop: %+v", d.ID, d.Attempt, d)
	}
	p.stopping[d.ID] = d
	if d.Mode == Graceful && g.Spec.Checkpoint == nil {
		t.Fatalf("%s cannot save its state, and is told to", d.ID)
	}
	if d.For == "" {
		return
	}
	by := p.gangs[d.For]
	if g.Spec.Pinned || g.Spec.Tier == "mid" && p.now.Sub(p.began[d.ID]) < time.Minute {
		t.Fatalf("%s may not be stopped, and is for %s", d.ID, d.For)
	}
	rank := map[string]int{"low": 1, "mid": 2, "high": 3}
	lower := rank[g.Spec.Tier] < rank[by.Spec.Tier]
	if r := p.e.runs[d.ID]; lower && r != nil && r.owed {
		t.Fatalf("%s was started under a min_share or a guarantee, and is stopped for %s of a tier above", d.ID, d.For)
	}
	returned := by.Spec.Tenant == "b" && g.Spec.Tenant != "b" && rank[g.Spec.Tier] <= rank[by.Spec.Tier]
	if !lower && !returned {
		t.Fatalf("%s of tier %s is stopped for %s of tier %s", d.ID, g.Spec.Tier, d.For, by.Spec.Tier)
	}
	if d.Mode == Graceful && g.Spec.Checkpoint.Cost > 10*time.Second {
		t.Fatalf("%s takes %s to save its state, which no grace allows", d.ID, g.Spec.Checkpoint.Cost)
	}
}

// Check runs after every event.
func (p *player) Check(t *rapid.T) {
	p.checkCodes(t) // the others look at the order, which is another round
	if err := p.e.Cluster().Check(); err != nil {
		t.Fatal(err)
	}
	seats := make(map[Seat]gang.Member)
	for at, s := range p.e.seats {
		seats[at] = gang.Member{Node: s.node.ID, GPUs: s.gpus.Indexes()}
	}
	if !reflect.DeepEqual(seats, p.held) {
		t.Fatalf("the engine has the seats %v, want %v", seats, p.held)
	}
	p.checkQuick(t)
	p.checkPotential(t)
	p.checkUse(t)
	p.checkPlans(t)
	p.checkWindows(t)
	p.checkFixed(t)
}

// checkUse: what is kept incrementally is what there is.
func (p *player) checkUse(t *rapid.T) {
	for name, tenant := range p.e.tenants {
		if got := p.uses(name); got != tenant.running {
			t.Fatalf("tenant %s is said to run on %d GPUs, and does on %d", name, tenant.running, got)
		}
	}
	for _, tier := range p.e.tiers {
		n := 0
		for seat, m := range p.held {
			if p.gangs[seat.ID].Spec.Tier == tier.Name {
				n += len(m.GPUs)
			}
		}
		if n != tier.running || tier.credit < 0 || math.IsNaN(tier.credit) {
			t.Fatalf("tier %s is said to run on %d GPUs, and does on %d; its credit is %f", tier.Name, tier.running, n, tier.credit)
		}
	}
	passed := make(map[*waiter]int)
	for _, s := range p.e.seats {
		if s.run != nil {
			for _, w := range s.run.behind {
				passed[w] += s.gpus.Count()
			}
		}
	}
	for id, w := range p.e.waiting {
		if w.passed != passed[w] {
			t.Fatalf("%s is said to be passed by those who run on %d GPUs, and is on %d", id, w.passed, passed[w])
		}
	}
	for _, r := range p.e.ends {
		left := 0
		for i, s := range r.seats {
			if s != p.e.seats[Seat{r.id, r.attempt, i}] {
				t.Fatalf("member %d of %s is said to hold %+v", i, r.id, s)
			}
			left += btoi(s != nil)
		}
		if left != r.left || left == 0 {
			t.Fatalf("%d members of %s are said to be left, and %d are", r.left, r.id, left)
		}
	}
	if len(p.e.waiting) != len(p.waiting) || len(p.e.queue()) != len(p.waiting) {
		t.Fatalf("%d gangs wait, %d in the order, want %d", len(p.e.waiting), len(p.e.queue()), len(p.waiting))
	}
}

// checkCodes: a code that is found anew is the one that was told, and who has one
// of its own is looked at again.
func (p *player) checkCodes(t *rapid.T) {
	for id, w := range p.e.waiting {
		if w.own && !w.seen {
			t.Fatalf("%s has a code of its own, and is not looked at again", id)
		}
		if code, long := p.e.code(w.shape.sizes[0].request), p.e.shortage(w.shape.sizes[0].request).code; code != long {
			t.Fatalf("%s has no room for %q, and looking at all domains for %q\n%s", id, code, long, p.story())
		}
		if code, _ := p.e.findCode(w); code != w.told() {
			t.Fatalf("%s was told that it waits for %q, and waits for %q\n%s", id, w.told(), code, p.story())
		}
	}
}

// checkQuick: what is found by going straight to the best place is what looking
// at all of them finds, on what is free and on what nobody has a claim to.
func (p *player) checkQuick(t *rapid.T) {
	times := []int64{none}
	for _, c := range p.e.claims {
		times = append(times, nanos(c.from, 1))
	}
	for id, w := range p.e.waiting {
		for _, z := range w.shape.sizes {
			if z.perNode == 0 || z.missing != "" {
				continue
			}
			z.request = p.e.relax(z.request)
			for _, before := range times {
				f, sure := p.e.quickBeside(w, z, before)
				mark := p.e.cluster.Mark()
				p.e.fence(nil, before)
				if all := p.e.placeAnyhow(w, z); sure && !reflect.DeepEqual(f, all) {
					t.Fatalf("%s is placed quickly on %+v, and by looking at all on %+v", id, f, all)
				}
				p.e.cluster.Rollback(mark)
			}
		}
	}
}

// checkPotential: where the end of all who may be stopped frees enough is looked
// at for victims.
func (p *player) checkPotential(t *rapid.T) {
	e := p.e
	for id, w := range e.waiting {
		from := e.stoppable(w)
		for _, z := range w.shape.sizes {
			if z.perNode == 0 || z.missing != "" {
				continue
			}
			end := e.latest(w, z, w.tier.Grace)
			for _, model := range e.modelsFor(z.request) {
				var all []*cluster.Domain
				e.descend(e.cluster.Root(), -1, z.require, func(*cluster.Domain) bool { return true }, func(d *cluster.Domain) { all = append(all, d) })
				looked := e.clearable(from.potential(), z, model)
				for d, in := range e.byDomain(z.request, model, all, from.candidates(), end) {
					if s := e.newSearch(z, d, model, in, end); !slices.Contains(looked, d) && s.enoughOfAll() {
						t.Fatalf("%s would have room in %q if all were stopped, and that is not seen\n%s", id, d.Name, p.story())
					}
				}
			}
		}
	}
}

// checkPlans: no GPU is held for two.
func (p *player) checkPlans(t *rapid.T) {
	held := make(map[string]gang.ID)
	for _, plan := range p.e.plans {
		for _, h := range plan.at {
			for _, i := range h.gpus.Indexes() {
				key := fmt.Sprint(h.bay.node.ID, "/", i)
				if other, has := held[key]; has {
					t.Fatalf("GPU %s is held for %s and %s", key, other, plan.owner)
				}
				held[key] = plan.owner
			}
		}
	}
}

// checkFixed: a decision is a fixed point: nothing more happens when nothing
// does.
func (p *player) checkFixed(t *rapid.T) {
	p.events = append(p.events, timed{at: p.now, ev: Together{}})
	again, _ := p.e.Apply(Together{}, p.now)
	p.sameDecisions(t, Together{}, again, nil)
	fmt.Fprintf(&p.log, "%+v %v\n", again, nil)
	if len(again) > 0 {
		t.Fatalf("with nothing new, it decides %+v\n%s", again, p.story())
	}
}

func TestWhatMustAlwaysHold(t *testing.T) {
	soak.Check(t, 100_000, func(t *rapid.T) int {
		p := newPlayer(t)
		for range 4 {
			p.Node(t)
		}
		for range rapid.IntRange(1, 4).Draw(t, "length") {
			t.Repeat(rapid.StateMachineActions(p))
		}
		p.sameState(t)
		p.replay(t)
		return p.happened
	})
}

// replay: the same events give the same decisions, byte for byte.
func (p *player) replay(t *rapid.T) {
	e := New(p.cfg)
	var log strings.Builder
	for _, x := range p.events {
		if x.anew {
			e = New(p.cfg)
		}
		decisions, err := e.Apply(x.ev, x.at)
		fmt.Fprintf(&log, "%+v %v\n", decisions, err)
	}
	if log.String() != p.log.String() {
		t.Fatalf("the first time:\n%s\nthe second:\n%s", p.log.String(), log.String())
	}
}

// story tells all that happened.
func (p *player) story() string {
	var out strings.Builder
	e := New(p.cfg)
	fmt.Fprintf(&out, "%+v\n", p.cfg)
	for _, x := range p.events {
		if x.anew {
			e = New(p.cfg)
		}
		decisions, err := e.Apply(x.ev, x.at)
		what := fmt.Sprintf("%+v", x.ev)
		if s, is := x.ev.(Submit); is {
			what = fmt.Sprintf("%+v %+v", s, *s.Gang.Spec)
		}
		fmt.Fprintf(&out, "%s %T%s\n", x.at.Format("04:05.000"), x.ev, what)
		for _, d := range decisions {
			fmt.Fprintf(&out, "    %T%+v\n", d, d)
		}
		if err != nil {
			fmt.Fprintf(&out, "    %v\n", err)
		}
	}
	return out.String()
}
