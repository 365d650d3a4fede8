package schedule

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// roomyNode has 8 GPUs and, beside them, 100 GiB and 16 cores of 1,000 MHz.
func roomyNode(id string) cluster.Spec {
	s := benchNode(id, "l0")
	s.Capacity, s.CoreMHz = cluster.Room{CPUMHz: 16_000, MemoryMiB: 100 << 10}, 1000
	return s
}

// needing is a gang of one member on some GPUs of a node.
func needing(id, tier string, gpus int, need gang.Need, estimate time.Duration) Gang {
	return Gang{ID: gang.ID(id), Attempt: 1, Spec: &gang.Spec{
		Name: id, Template: "wan", Tier: tier, GPUs: gpus, GPUsPerNode: gpus, MemberNeed: need, Estimate: estimate,
	}}
}

// bout is an engine with its events and what it decided.
type bout struct {
	t   *testing.T
	e   *Engine
	now time.Time
	seq uint64
	out []Decision
}

func newBout(t *testing.T, nodes ...cluster.Spec) *bout {
	b := &bout{t: t, now: time.Unix(1_800_000_000, 0), e: New(Config{
		Levels: []string{"leaf"},
		Tiers:  []Tier{{Name: "high", Priority: 2, Preempts: []string{"low"}}, {Name: "low", Priority: 1}},
	})}
	for _, n := range nodes {
		b.apply(NodeSet{n})
	}
	return b
}

func (b *bout) apply(ev Event) {
	b.t.Helper()
	out, err := b.e.Apply(ev, b.now)
	if err != nil {
		b.t.Fatal(err)
	}
	b.out = append(b.out, out...)
}

func (b *bout) submit(g Gang) {
	b.t.Helper()
	b.seq++
	g.Seq = b.seq
	b.apply(Submit{g})
}

// start is when a gang started or should start; zero where that is not known.
func (b *bout) start(id gang.ID) (at time.Time, placed gang.Placement) {
	for _, d := range b.out {
		switch d := d.(type) {
		case Start:
			if d.ID == id {
				return time.Time{}, d.Placement
			}
		case Reserve:
			if d.ID == id {
				at = d.Start
			}
		}
	}
	return at, nil
}

const gib = 1 << 10

func TestWhoFindsGPUsAndNoMemoryWaitsAndIsToldSo(t *testing.T) {
	n := roomyNode("n-3")
	n.Foreign = cluster.Room{CPUMHz: 15_000, MemoryMiB: 88 * gib}
	for _, c := range []struct {
		need gang.Need
		want string // empty where it starts
	}{
		{gang.Need{MemoryMiB: 64 * gib}, "n-3 has 8 free GPUs and 12 GiB of memory left, a member takes 64 GiB"},
		{gang.Need{CPUMHz: 1500, MemoryMiB: 4 * gib}, "n-3 has 8 free GPUs and 1000 MHz of CPU left, a member takes 1500 MHz"},
		{gang.Need{Cores: 2}, "n-3 has 8 free GPUs and 1000 MHz of CPU left, a member takes 2 cores, which are 2000 MHz there"},
		{gang.Need{CPUMHz: 1000, MemoryMiB: 12 * gib}, ""},
		{gang.Need{}, ""},
	} {
		b := newBout(t, n)
		b.submit(needing("g", "low", 4, c.need, time.Minute))
		code, reason, _, waits := b.e.Explain("g")
		if waits != (c.want != "") || waits && (code != gang.CodeCapacity || !strings.HasSuffix(reason, "; "+c.want)) {
			t.Errorf("%+v: it waits (%t) for %s: %q, want %q", c.need, waits, code, reason, c.want)
		}
	}
	b := newBout(t, n)
	var refused *gang.RefusedError
	_, err := b.e.Apply(Submit{needing("g", "low", 4, gang.Need{MemoryMiB: 101 * gib}, 0)}, b.now)
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "a member takes 101 GiB of memory of its node beside GPUs") {
		t.Errorf("what no node could ever hold: %v", err)
	}
}

// A future start reckons with the memory, and nothing that starts before it
// takes what it was promised.
func TestFutureStartsReckonWithMemory(t *testing.T) {
	b := newBout(t, roomyNode("n"))
	b.submit(needing("runs", "low", 2, gang.Need{MemoryMiB: 60 * gib}, 10*time.Minute))
	b.submit(needing("first", "low", 2, gang.Need{MemoryMiB: 80 * gib}, 10*time.Minute))
	if at, placed := b.start("first"); placed != nil || !at.Equal(b.now.Add(10*time.Minute)) {
		t.Fatalf("first starts at %s on %v, want when the memory is free", at, placed)
	}
	b.submit(needing("long", "low", 1, gang.Need{MemoryMiB: 30 * gib}, 20*time.Minute))
	if _, placed := b.start("long"); placed != nil {
		t.Error("long started, and takes memory that first was promised")
	}
	b.submit(needing("short", "low", 1, gang.Need{MemoryMiB: 30 * gib}, 5*time.Minute))
	b.submit(needing("lean", "low", 1, gang.Need{}, 20*time.Minute))
	for _, id := range []gang.ID{"short", "lean"} {
		if _, placed := b.start(id); placed == nil {
			t.Errorf("%s did not start, and would have been in nobody's way", id)
		}
	}
}

func TestVictimsLeaveTheMemoryThatIsShort(t *testing.T) {
	b := newBout(t, roomyNode("n"))
	b.submit(needing("big", "low", 1, gang.Need{MemoryMiB: 70 * gib}, time.Hour))
	b.now = b.now.Add(time.Minute)
	b.submit(needing("small", "low", 1, gang.Need{MemoryMiB: 10 * gib}, time.Hour))
	b.now = b.now.Add(time.Minute)
	b.submit(needing("urgent", "high", 2, gang.Need{MemoryMiB: 60 * gib}, time.Minute))
	var stopped []gang.ID
	for _, d := range b.out {
		if s, is := d.(Stop); is {
			stopped = append(stopped, s.ID)
		}
	}
	if len(stopped) != 1 || stopped[0] != "big" {
		t.Fatalf("stopped are %v, want big alone: only that leaves the memory", stopped)
	}
	b.apply(Release{Seat{"big", 1, 0}})
	if _, placed := b.start("urgent"); placed == nil {
		t.Error("urgent did not start on what big left")
	}
}

// A plan whose memory another tenant took is dropped: its GPUs are not held for
// ever.
func TestAPlanWhoseMemoryIsTakenIsDropped(t *testing.T) {
	n := roomyNode("n")
	b := newBout(t, n)
	b.submit(needing("big", "low", 1, gang.Need{MemoryMiB: 70 * gib}, time.Hour))
	b.submit(needing("calm", "low", 1, gang.Need{MemoryMiB: 20 * gib}, time.Hour))
	b.now = b.now.Add(time.Minute)
	b.submit(needing("urgent", "high", 2, gang.Need{MemoryMiB: 60 * gib}, time.Minute))
	n.Foreign.MemoryMiB = 30 * gib
	b.apply(Together{NodeSet{n}, Release{Seat{"big", 1, 0}}})
	if len(b.e.plans) > 0 && b.e.plans[0].vacated() {
		t.Errorf("GPUs that are free are held for a plan that lacks memory: %+v", b.e.plans[0])
	}
	if b.e.Counts.BrokenPlans != 1 {
		t.Errorf("%d plans are counted as broken, want 1", b.e.Counts.BrokenPlans)
	}
}

func TestGPUsWithFewestFaultsAreTakenFirst(t *testing.T) {
	ill := benchNode("n-0", "l0")
	ill.GPUs[0].Faults = 1
	for _, c := range []struct {
		name string
		gpus int
		on   []cluster.Spec
		node string
		want []int
	}{
		{"another block of the node", 4, []cluster.Spec{ill}, "n-0", []int{4, 5, 6, 7}},
		{"another node", 8, []cluster.Spec{ill, benchNode("n-1", "l0")}, "n-1", []int{0, 1, 2, 3, 4, 5, 6, 7}},
		{"where there is no other", 8, []cluster.Spec{ill}, "n-0", []int{0, 1, 2, 3, 4, 5, 6, 7}},
	} {
		b := newBout(t, c.on...)
		b.submit(needing("g", "low", c.gpus, gang.Need{}, time.Minute))
		if _, placed := b.start("g"); len(placed) != 1 || placed[0].Node != c.node || cluster.MaskOf(placed[0].GPUs) != cluster.MaskOf(c.want) {
			t.Errorf("%s: it is placed on %v, want %s %v", c.name, placed, c.node, c.want)
		}
	}
}

// A plan has a claim on a node where a gang runs that is told to leave another
// one: what it leaves there counts from its new end.
func TestADrainBringsStartsForwardBesideAPlan(t *testing.T) {
	a := benchNode("a", "l0")
	b := newBout(t, a, benchNode("b", "l0"))
	both := needing("both", "high", 4, gang.Need{}, time.Hour)
	both.Spec.GPUs, both.Spec.Checkpoint = 8, &gang.Checkpoint{Cost: 9 * time.Second}
	pinned := needing("pinned", "low", 4, gang.Need{}, 2*time.Hour)
	pinned.Spec.Pinned = true
	for _, g := range []Gang{both, pinned, needing("victim", "low", 4, gang.Need{}, 2*time.Hour), needing("urgent", "high", 4, gang.Need{}, 3*time.Hour)} {
		b.submit(g)
	}
	if len(b.e.plans) != 1 || b.e.plans[0].at[0].bay.node.ID != "b" {
		t.Fatalf("plans %+v, want one on b", b.e.plans)
	}
	a.Schedulable, a.Draining = false, true
	waits := needing("waits", "low", 4, gang.Need{}, time.Minute)
	waits.Seq = 9
	b.apply(Together{NodeSet{a}, Submit{waits}})
	if at, placed := b.start("waits"); placed != nil || !at.Equal(b.now.Add(9*time.Second+time.Nanosecond)) {
		t.Errorf("it should start at %s (placed on %v), want once both has left b, 9 s from %s", at, placed, b.now)
	}
}
