package schedule

import (
	"slices"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

// A gang that leaves a node leaves the others too: who waits for its GPUs there
// starts so much sooner, also where something on that node is held for another.
func TestADrainedGangLeavesSooner(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	saves := &gang.Checkpoint{Cost: 5 * time.Second}
	background := func(id gang.ID, seq uint64, members int) Gang {
		g := aGang(id, seq, 4)
		g.Spec.Tier, g.Spec.Checkpoint, g.Spec.GPUs = "background", saves, 4*members
		return g
	}
	wide := background("wide", 1, 2)
	wide.Spec.Pinned = true
	other := aNode()
	other.ID = "other"
	e := anEngine(t, now, NodeSet{other}, Submit{wide}, Submit{background("left", 2, 1)}, Submit{background("right", 3, 1)})
	now = now.Add(time.Minute)
	later := aGang("later", 5, 4)
	later.Spec.Tier = "background"
	for _, ev := range []Event{Submit{aGang("preemptor", 4, 4)}, Submit{later}} {
		if _, err := e.Apply(ev, now); err != nil {
			t.Fatal(err)
		}
	}
	drained := other // the one on which nothing is held for the preemptor
	if e.waiting["preemptor"].plan.at[0].bay.node.ID == other.ID {
		drained = aNode()
	}
	drained.Draining, drained.Schedulable = true, false
	before := e.waiting["later"].start
	out, err := e.Apply(NodeSet{drained}, now)
	if err != nil || !slices.ContainsFunc(out, func(d Decision) bool { s, stops := d.(Stop); return stops && s.ID == "wide" }) {
		t.Fatalf("decided %+v, %v", out, err)
	}
	if again, err := e.Apply(Tick{}, now); err != nil || len(again) > 0 {
		t.Errorf("later held a start at %s; with nothing new it is decided: %+v, %v", before, again, err)
	}
}
