package schedule

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// TakeOver: another engine goes on from what is known of the nodes, of what
// runs, and of what waits.
func (p *player) TakeOver(t *rapid.T) {
	var all Together
	for _, n := range p.e.Cluster().Nodes() {
		all = append(all, NodeSet{p.e.seen(n)})
	}
	for _, w := range p.e.windows {
		if w.Until.After(p.now) {
			all = append(all, WindowSet{w})
		}
	}
	for _, id := range p.running() {
		all = append(all, p.adoptions(id)...)
	}
	for _, id := range slices.Sorted(maps.Keys(p.waiting)) {
		g := *p.gangs[id]
		g.Accepted = true
		all = append(all, Submit{g})
	}
	for _, tenant := range []string{"a", "b", "c", "d"} {
		all = append(all, Past{tenant, p.e.tenant(tenant).past})
	}
	past := p.e.tenants
	p.e, p.twin = New(p.cfg), nil
	p.stopping = make(map[gang.ID]Stop)
	must(t, p.take(t, timed{at: p.now, ev: all, anew: true}))
	for name, tenant := range p.e.tenants {
		if old := past[name]; old != nil && old.past != tenant.past {
			t.Fatalf("tenant %s used %f, and %f once it was taken over", name, old.past, tenant.past)
		}
	}
}

// adoptions are a gang's attempts that hold GPUs.
func (p *player) adoptions(id gang.ID) []Event {
	var out []Event
	for attempt := range p.gangs[id].Attempt + 1 {
		ev := Adopt{Gang: *p.gangs[id], Began: p.began[id], Ending: attempt < p.gangs[id].Attempt || p.waiting[id], Placement: make(gang.Placement, 4)}
		ev.Gang.Attempt = attempt
		for i := range ev.Placement {
			ev.Placement[i] = p.was[Seat{id, attempt, i}]
			if p.held[Seat{id, attempt, i}].Node != "" {
				ev.Held = append(ev.Held, i)
			}
		}
		ev.Placement = slices.DeleteFunc(ev.Placement, func(m gang.Member) bool { return m.Node == "" })
		if len(ev.Held) > 0 {
			out = append(out, ev)
		}
	}
	return out
}

func (p *player) Began(t *rapid.T) {
	id := p.pick(t)
	if p.waiting[id] {
		t.Skip("it waits for another attempt")
	}
	must(t, p.apply(t, Began{id, p.gangs[id].Attempt}))
}

// Ending: somebody else ends it; nobody stops it again.
func (p *player) Ending(t *rapid.T) {
	id := p.pick(t)
	if p.waiting[id] {
		t.Skip("it waits for another attempt")
	}
	if _, stops := p.stopping[id]; !stops {
		p.stopping[id] = Stop{}
	}
	must(t, p.apply(t, Ending{id, p.gangs[id].Attempt}))
}

func (p *player) HoldOrRelease(t *rapid.T) {
	queue := p.e.queue()
	if len(queue) == 0 {
		t.Skip("nothing waits")
	}
	id := rapid.SampledFrom(queue).Draw(t, "gang")
	g := *p.gangs[id]
	g.Held = !g.Held
	p.gangs[id] = &g
	must(t, p.apply(t, Hold{id, g.Held}))
}

// Reorder: the gangs of one line turn round.
func (p *player) Reorder(t *rapid.T) {
	queue := p.e.queue()
	if len(queue) < 2 {
		t.Skip("nothing to move")
	}
	of := p.e.waiting[rapid.SampledFrom(queue).Draw(t, "gang")]
	var ev Reorder
	var seqs []uint64
	for _, id := range queue {
		if w := p.e.waiting[id]; w.tier == of.tier && w.tenant == of.tenant {
			ev, seqs = append(ev, Place{ID: id}), append(seqs, w.Seq)
		}
	}
	for i, seq := range slices.Backward(seqs) {
		at := &ev[len(ev)-1-i]
		at.Seq = seq
		g := *p.gangs[at.ID]
		g.Seq = seq
		p.gangs[at.ID] = &g
	}
	must(t, p.apply(t, ev))
}

func aNode() cluster.Spec {
	n := cluster.Spec{ID: "n", Name: "n", Schedulable: true}
	for i := range 8 {
		n.GPUs = append(n.GPUs, cluster.GPU{UUID: string(rune('a' + i)), Index: i, Model: "H100", Healthy: true})
	}
	return n
}

func aGang(id gang.ID, seq uint64, gpus int) Gang {
	return Gang{ID: id, Seq: seq, Attempt: 1, Spec: &gang.Spec{Name: string(id), Tenant: "a", Tier: "production", GPUs: gpus, GPUsPerNode: gpus, Estimate: time.Hour}}
}

func anEngine(t *testing.T, at time.Time, events ...Event) *Engine {
	t.Helper()
	e := New(Config{Tiers: []Tier{{Name: "production", Priority: 2, Preempts: []string{"background"}}, {Name: "background"}}})
	for _, ev := range append([]Event{NodeSet{aNode()}}, events...) {
		if _, err := e.Apply(ev, at); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

// What was taken over ends when it would have ended, and may be stopped as if it
// had been started here.
func TestAdoptedRunsAreRuns(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	old := aGang("old", 1, 8)
	old.Spec.Tier = "background"
	began := now.Add(-20 * time.Minute)
	e := anEngine(t, now, Adopt{Gang: old, Placement: gang.Placement{{Node: "n", GPUs: []int{0, 1, 2, 3, 4, 5, 6, 7}}}, Held: []int{0}, Began: began, Ready: began})
	if at, any := e.Next(); any {
		t.Errorf("nobody waits, and something is to happen at %s", at)
	}
	same := aGang("same", 2, 8)
	same.Spec.Tier = "background"
	out, err := e.Apply(Submit{same}, now)
	if err != nil || len(out) != 2 || out[0] != (Reserve{ID: "same", Start: began.Add(time.Hour)}) {
		t.Errorf("decided %+v, %v", out, err)
	}
	out, err = e.Apply(Submit{aGang("new", 3, 8)}, now)
	if stop, is := out[0].(Stop); err != nil || !is || stop.ID != "old" || stop.For != "new" {
		t.Errorf("decided %+v, %v", out, err)
	}
	if _, err := e.Apply(Adopt{Gang: old, Placement: gang.Placement{{Node: "n", GPUs: []int{0}}}, Held: []int{0}}, now); err == nil {
		t.Error("it is adopted twice")
	}
}

// A stop that takes longer than it should does not move the others' starts to
// when the gang would have ended by itself.
func TestAStopThatIsOverdue(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	first := aGang("first", 1, 8)
	first.Spec.Tier = "background"
	e := anEngine(t, now, Submit{first}, Submit{aGang("second", 2, 8)}, Submit{aGang("third", 3, 8)})
	for range 5 {
		now = now.Add(700 * time.Millisecond)
		out, err := e.Apply(Tick{}, now)
		for _, d := range out {
			if r, is := d.(Reserve); is && r.Start.After(now.Add(time.Hour+5*time.Second)) {
				t.Errorf("at %s: %+v", now, r)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if at, any := e.Next(); !any || !at.After(now) || at.After(now.Add(overdue)) {
		t.Errorf("next is at %s, %t, and it is %s", at, any, now)
	}
}

// When a gang runs, its end is reckoned from there.
func TestAGangRunsLaterThanSupposed(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	e := anEngine(t, now, Submit{aGang("first", 1, 8)})
	later := now.Add(time.Minute)
	if _, err := e.Apply(Began{"first", 1}, later); err != nil {
		t.Fatal(err)
	}
	out, err := e.Apply(Submit{aGang("second", 2, 8)}, later)
	if err != nil || out[0] != (Reserve{ID: "second", Start: later.Add(time.Hour)}) {
		t.Errorf("decided %+v, %v", out, err)
	}
	if _, err := e.Apply(Began{"first", 2}, later); err == nil {
		t.Error("an attempt runs that was not started")
	}
}

func TestHeldGangsDoNotStart(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	held := aGang("held", 1, 8)
	held.Held = true
	e := anEngine(t, now, Submit{held})
	out, err := e.Apply(Hold{"held", false}, now)
	if start, is := out[0].(Start); err != nil || !is || start.ID != "held" {
		t.Errorf("decided %+v, %v", out, err)
	}
	if _, err := e.Apply(Hold{"held", true}, now); err == nil {
		t.Error("a gang that runs is held")
	}
}

func TestGangsExchangeTheirPlaces(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	other := aGang("other", 3, 8)
	other.Spec.Tenant = "b"
	e := anEngine(t, now, Submit{aGang("runs", 1, 8)}, Submit{aGang("one", 2, 8)}, Submit{other}, Submit{aGang("two", 4, 8)})
	for _, wrong := range []Reorder{
		{{"one", 4}, {"two", 4}}, {{"one", 1}, {"two", 2}}, {{"one", 3}, {"other", 2}}, {{"one", 2}, {"runs", 1}}, {{"one", 2}, {"one", 2}},
	} {
		if _, err := e.Apply(wrong, now); err == nil {
			t.Errorf("%v is taken", wrong)
		}
	}
	if _, err := e.Apply(Reorder{{"one", 4}, {"two", 2}}, now); err != nil {
		t.Fatal(err)
	}
	out, err := e.Apply(Withdraw{"other"}, now)
	if err != nil || len(out) != 0 && out[0] == nil {
		t.Fatal(out, err)
	}
	out, err = e.Apply(Release{Seat{"runs", 1, 0}}, now)
	if start, is := out[0].(Start); err != nil || !is || start.ID != "two" {
		t.Errorf("decided %+v, %v", out, err)
	}
}

// Who is told to end by somebody else is no victim any more, and its GPUs are
// expected to be free soon.
func TestARunThatEnds(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	old := aGang("old", 1, 8)
	old.Spec.Tier = "background"
	e := anEngine(t, now, Submit{old}, Ending{"old", 1})
	out, err := e.Apply(Submit{aGang("new", 2, 8)}, now)
	if err != nil || len(out) != 2 || out[0] != (Reserve{ID: "new", Start: now.Add(overdue)}) {
		t.Errorf("decided %+v, %v", out, err)
	}
	if _, err := e.Apply(Ending{"old", 2}, now); err == nil {
		t.Error("an attempt ends that was not started")
	}
}

// An attempt of which nothing is known, or that is said to have begun before there
// were computers, is no reason to fail, or to reckon for ever.
func TestAdoptionsThatCannotBe(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for name, ev := range map[string]Adopt{
		"nowhere":      {},
		"of no GPUs":   {Placement: gang.Placement{{Node: "n"}}},
		"of one twice": {Placement: gang.Placement{{Node: "n", GPUs: []int{0}}}, Held: []int{0, 0}},
		"of no member": {Placement: gang.Placement{{Node: "n", GPUs: []int{0}}}, Held: []int{1}},
	} {
		ev.Gang = aGang("g", 1, 1)
		if _, err := anEngine(t, now).Apply(ev, now); !errors.Is(err, ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
	e := anEngine(t, now, Adopt{Gang: aGang("g", 1, 1), Placement: gang.Placement{{Node: "n", GPUs: []int{0}}}, Held: []int{0}})
	if _, ends, _ := e.Expect("g", now); !ends.After(now) {
		t.Errorf("it should be over at %s", ends)
	}
}
