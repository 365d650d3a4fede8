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

// NewEstimator makes the estimator of a name; nil is for exact, which takes the
// estimates of the trace, and true run times where it has none.
func NewEstimator(name string) (sim.Estimator, error) {
	factor, isFactor := strings.CutPrefix(name, "factor:")
	switch {
	case name == "exact":
		return nil, nil
	case name == "class-median":
		return &classMedian{classes: make(map[class][]time.Duration), unknown: make(map[int][]time.Duration)}, nil
	case isFactor:
		f, err := strconv.ParseFloat(factor, 64)
		if err != nil || !(f >= 0.01 && f <= 1000) {
			return nil, fmt.Errorf("factor:%s: the factor must be a number from 0.01 to 1000", factor)
		}
		return byFactor(f), nil
	}
	return nil, fmt.Errorf("%q are no estimates: there are exact, class-median and factor:N", name)
}

// byFactor estimates wrong by a factor, always.
type byFactor float64

func (f byFactor) Estimate(g *config.ScenarioGang) time.Duration {
	return max(time.Duration(math.Round(float64(g.Duration)*float64(f))), time.Millisecond)
}

func (byFactor) Finished(*config.ScenarioGang) {}

// classMedian estimates by the median of what has finished: of the same tenant
// and number of GPUs; while there are few, of the same number of GPUs.
type classMedian struct {
	classes map[class][]time.Duration
	unknown map[int][]time.Duration // by GPUs
}

type class struct {
	tenant string
	gpus   int
}

const (
	// fewest is how many must have finished for a median to count.
	fewest = 3
	// latest is how many are remembered of each class.
	latest = 101
	// supposed is the estimate of those of whose like few have finished.
	supposed = 10 * time.Minute
)

func (c *classMedian) Estimate(g *config.ScenarioGang) time.Duration {
	for _, of := range [][]time.Duration{c.classes[class{g.Spec.Tenant, g.Spec.GPUs}], c.unknown[g.Spec.GPUs]} {
		if len(of) >= fewest {
			sorted := slices.Sorted(slices.Values(of))
			return sorted[len(sorted)/2]
		}
	}
	return supposed
}

func (c *classMedian) Finished(g *config.ScenarioGang) {
	k := class{g.Spec.Tenant, g.Spec.GPUs}
	c.classes[k] = remember(c.classes[k], g.Duration)
	c.unknown[k.gpus] = remember(c.unknown[k.gpus], g.Duration)
}

func remember(of []time.Duration, d time.Duration) []time.Duration {
	if of = append(of, d); len(of) > latest {
		of = slices.Delete(of, 0, 1)
	}
	return of
}
