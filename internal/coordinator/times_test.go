package coordinator

import (
	"slices"
	"testing"

	"github.com/gangd/gangd/internal/gang"
)

// The parts of a start come one after another, whichever of Nomad and the
// keepers is heard first.
func TestThePartsOfAStartAreInOrder(t *testing.T) {
	for seed := range uint64(30) {
		w := ready(t, seed, 4, 2)
		id := w.submit(simSpec(32, 8))
		w.until(2, "running", func() bool { return w.state(id) == gang.Running })
		at := w.core.gangs[id].rec.Times
		parts := []int64{at.Decided, at.Dispatched, at.Allocated, at.Admitted, at.Ready, at.Started}
		if !slices.IsSorted(parts) || parts[0] == 0 {
			t.Errorf("seed %d: %+v", seed, at)
		}
	}
}
