package coordinator

import (
	"maps"
	"slices"

	"github.com/gangd/gangd/internal/gang"
)

// Whatever walks over a map of the core walks in the order of its keys, so that
// the same inputs have the same effects.

func sortedIDs[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func (c *Core) lanesInOrder() []*lane {
	out := make([]*lane, 0, len(c.lanes))
	for _, id := range sortedIDs[gang.LaneID](c.lanes) {
		out = append(out, c.lanes[id])
	}
	return out
}
