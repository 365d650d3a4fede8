package schedule

import (
	"slices"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

// A gang may grow onto GPUs of its node that are free already, where the memory
// beside them is what it leaves itself.
func TestAGangGrowsIntoTheMemoryThatItLeaves(t *testing.T) {
	n := roomyNode("n-3")
	for i := range 2 { // the last that are chosen
		n.GPUs[6+i].Faults = 3
	}
	b := newBout(t, n)
	b.submit(needing("first", "high", 6, gang.Need{}, time.Hour))
	g := needing("grows", "high", 4, gang.Need{MemoryMiB: 60 * gib}, time.Hour)
	g.Spec.Checkpoint = &gang.Checkpoint{Cost: time.Second}
	g.Spec.Elastic = []gang.Size{{GPUs: 2, Run: 2 * time.Hour}, {GPUs: 4, Run: time.Hour}}
	g.Spec.GPUsPerNode = 0
	b.submit(g)
	if _, placed := b.start("grows"); !slices.Equal(placed[0].GPUs, []int{6, 7}) {
		t.Fatalf("it starts on %v", placed)
	}
	b.apply(Release{Seat{ID: "first", Attempt: 1}})
	if stop, is := b.out[len(b.out)-1].(Stop); !is || stop.To != 4 {
		t.Fatalf("decided %+v", b.out)
	}
	b.out = nil
	if b.apply(Tick{}); len(b.out) > 0 || b.e.Counts.BrokenPlans > 0 {
		t.Errorf("then, with nothing new, %+v; %d plans are broken", b.out, b.e.Counts.BrokenPlans)
	}
	b.apply(Release{Seat{ID: "grows", Attempt: 1}})
	g.Attempt, g.Accepted = 2, true
	b.submit(g)
	if _, placed := b.start("grows"); placed == nil || !slices.Equal(placed[0].GPUs, []int{0, 1, 2, 3}) {
		t.Errorf("decided %+v", b.out)
	}
}
