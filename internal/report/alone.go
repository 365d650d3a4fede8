package report

import (
	"math"
	"time"

	"github.com/gangd/gangd/internal/config"
)

// cluster is what matters of a cluster to gangs that have it to themselves.
type cluster struct {
	memoryMiB map[string]int                // most GPU memory, by GPU model
	speed     map[string]map[string]float64 // by model and GPU model
}

func speeds(s *config.Scenario) cluster {
	c := cluster{make(map[string]int), make(map[string]map[string]float64)}
	for _, n := range s.Nodes {
		for _, g := range n.GPUs {
			c.memoryMiB[g.Model] = max(c.memoryMiB[g.Model], g.MemoryMiB)
		}
	}
	for _, m := range s.Rules.Models {
		c.speed[m.Name] = m.Speed
	}
	return c
}

// alone is the run time of a gang that finds its weights loaded, on the fastest
// GPUs that it may use, at the size that is done first.
func (c cluster) alone(g *config.ScenarioGang) time.Duration {
	fastest := 0.0
	for gpu, memory := range c.memoryMiB {
		if g.Spec.GPU != "" && g.Spec.GPU != gpu || memory < g.Spec.GPUMemoryMiB {
			continue
		}
		speed, known := c.speed[g.Spec.Model][gpu]
		if !known {
			speed = 1
		}
		fastest = max(fastest, speed)
	}
	if fastest == 0 { // it cannot run here at all
		fastest = 1
	}
	size := 1.0
	for _, s := range g.Spec.Elastic {
		size = max(size, g.Spec.SpeedAt(s.GPUs))
	}
	return time.Duration(math.Round(float64(g.Duration) / fastest / size))
}
