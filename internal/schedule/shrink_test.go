package schedule

import (
	"testing"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

// A gang does not shrink to GPUs that have broken under it, or to a node that
// takes nothing new: it could not start there again.
func TestNobodyShrinksToWhatIsOutOfOrder(t *testing.T) {
	for name, breaks := range map[string]struct {
		gpus []int
		want Cause
		to   int
	}{
		"all in order":        {nil, Resized, 4},
		"what would be left":  {[]int{0, 1, 2, 3, 4}, Preempted, 0},
		"two that are spared": {[]int{0, 1}, Resized, 2},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1_800_000_000, 0)
			low := aGang("low", 1, 8)
			low.Spec.Tier = "background"
			low.Spec.Elastic = []gang.Size{{GPUs: 2, Run: 4 * time.Hour}, {GPUs: 4, Run: 2 * time.Hour}, {GPUs: 8, Run: time.Hour}}
			e := anEngine(t, now, Submit{low})
			n := aNode()
			for _, i := range breaks.gpus {
				n.GPUs[i].Healthy = false
			}
			if _, err := e.Apply(NodeSet{n}, now); err != nil {
				t.Fatal(err)
			}
			high := aGang("high", 2, min(4, 8-len(breaks.gpus)))
			out, err := e.Apply(Submit{high}, now)
			if stop, is := out[0].(Stop); err != nil || !is || stop.Cause != breaks.want || stop.To != breaks.to {
				t.Errorf("decided %+v, %v", out, err)
			}
			if again, _ := e.Apply(Tick{}, now); len(again) > 0 || e.Counts.BrokenPlans > 0 {
				t.Errorf("then, with nothing new, %+v; %d plans are broken", again, e.Counts.BrokenPlans)
			}
		})
	}
}
