package trace

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/sim"
)

// NewEstimator makes the estimator of a name: given, exact, class-median or
// factor:N. Each play needs one of its own. It is nil for given, which leaves
// gangs the estimates of their users.
func NewEstimator(name string) (sim.Estimator, error) {
	factor, byFactor := strings.CutPrefix(name, "factor:")
	switch {
	case name == "given":
		return nil, nil
	case name == "exact":
		return scaled(1), nil
	case name == "class-median":
		return newClassMedian(), nil
	case byFactor:
		f, err := strconv.ParseFloat(factor, 64)
		if err != nil || !(f >= 0.01 && f <= 1000) {
			return nil, fmt.Errorf("factor:%s: the factor must be a number from 0.01 to 1000", factor)
		}
		return scaled(f), nil
	}
	return nil, fmt.Errorf("%q are no estimates: there are given, exact, class-median and factor:N", name)
}

// scaled knows true run times, and is wrong by a factor.
type scaled float64

// Estimate is part of sim.Estimator.
func (f scaled) Estimate(g *config.ScenarioGang) time.Duration {
	return max(time.Duration(math.Round(float64(g.Duration)*float64(f))), time.Millisecond)
}

// Finished is part of sim.Estimator.
func (scaled) Finished(*config.ScenarioGang) {}

// classMedian knows the run times of gangs that have finished, and takes the
// median of those that are alike. The narrowest class counts in which enough
// have finished: tenant, tier, model and GPUs; then tier, model and GPUs; then
// the tier; then all.
type classMedian struct {
	finished map[class]*history
}

// class is a kind of gang; what is zero is of no account.
type class struct {
	tenant, tier, model string
	gpus                int
}

const (
	// enough have finished for a median to say something.
	enough = 5
	// remembered are the newest of a class.
	remembered = 101
	// supposed is the estimate as long as hardly anything has finished.
	supposed = 10 * time.Minute
)

func newClassMedian() *classMedian { return &classMedian{make(map[class]*history)} }

func classesOf(g *config.ScenarioGang) [4]class {
	s := g.Spec
	return [4]class{{s.Tenant, s.Tier, s.Model, s.GPUs}, {"", s.Tier, s.Model, s.GPUs}, {tier: s.Tier}, {}}
}

// Estimate is part of sim.Estimator.
func (c *classMedian) Estimate(g *config.ScenarioGang) time.Duration {
	for _, k := range classesOf(g) {
		if h := c.finished[k]; h != nil && len(h.sorted) >= enough {
			return h.sorted[len(h.sorted)/2]
		}
	}
	return supposed
}

// Finished is part of sim.Estimator.
func (c *classMedian) Finished(g *config.ScenarioGang) {
	for _, k := range classesOf(g) {
		h := c.finished[k]
		if h == nil {
			h = new(history)
			c.finished[k] = h
		}
		h.add(g.Duration)
	}
}

// history is the newest run times of a class, as they came and sorted.
type history struct{ came, sorted []time.Duration }

func (h *history) add(d time.Duration) {
	if len(h.came) == remembered {
		oldest, _ := slices.BinarySearch(h.sorted, h.came[0])
		h.sorted = slices.Delete(h.sorted, oldest, oldest+1)
		h.came = slices.Delete(h.came, 0, 1)
	}
	at, _ := slices.BinarySearch(h.sorted, d)
	h.sorted = slices.Insert(h.sorted, at, d)
	h.came = append(h.came, d)
}
