package gang

import (
	"slices"
	"time"
)

const (
	// The pause doubles from pauseFirst to pauseMost, from the second failure on.
	pauseFirst = 5 * time.Second
	pauseMost  = 5 * time.Minute
	// MaxAvoided bounds the nodes that a gang remembers as unfit.
	MaxAvoided = 16
)

// Pause is the time that a gang rests after its nth failure: none after the
// first, then 5 s, 10 s, 20 s .. up to 5 minutes.
func Pause(failures int) time.Duration {
	if failures < 2 {
		return 0
	}
	d := pauseFirst
	for i := 2; i < failures && d < pauseMost; i++ {
		d *= 2
	}
	return min(d, pauseMost)
}

// AddAvoided notes a node on which a gang failed; of too many the oldest is
// forgotten. The list that it is given stays as it is.
func AddAvoided(avoid []string, node string) []string {
	if slices.Contains(avoid, node) {
		return avoid
	}
	avoid = append(slices.Clone(avoid), node)
	return avoid[max(0, len(avoid)-MaxAvoided):]
}
