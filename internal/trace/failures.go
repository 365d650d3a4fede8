package trace

import (
	"math/rand/v2"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/config"
)

// Failures are drawn from a seed, before anything is played: they are the same
// whatever is decided. Each thing that may fail has a stream of its own, so that
// what befalls one is the same whatever else there is. Times between failures
// have no memory; a mean of 0 draws none of the kind.
type Failures struct {
	Seed uint64
	// GPUMean and NodeMean are the mean times between failures of one GPU and of
	// one node. Repair is how long each is out of order.
	GPUMean, NodeMean, Repair time.Duration
	// SlowMean is the mean time until a node becomes slow, by SlowFactor, for
	// Repair.
	SlowMean   time.Duration
	SlowFactor float64
	// SpotMean is the mean time until a spot node gets notice. It is gone when
	// Notice is over, and another takes its place after Repair.
	SpotMean, Notice time.Duration
}

// maxFailures bounds what is drawn.
const maxFailures = 1_000_000

// What may befall a node, as numbers of streams; GPUs have those above.
const (
	streamOutage = iota
	streamCause  // of outages
	streamSlow
	streamGPU
	streams = streamGPU + cluster.MaxGPUsPerNode
)

// Befall adds failures to what happens in a scenario, until it is most likely
// over.
func (f *Failures) Befall(s *config.Scenario) {
	d := &drawing{Failures: f, until: horizon(s)}
	for i, n := range s.Nodes {
		d.outages(i, n)
		d.slowness(i, n)
		for _, g := range n.GPUs {
			d.every(i, streamGPU+g.Index, f.GPUMean, func(at time.Duration) time.Duration {
				d.note(config.ScenarioEvent{At: at, Kind: config.GPUBad, Node: n.ID, GPU: g.Index})
				d.note(config.ScenarioEvent{At: at + f.Repair, Kind: config.GPUOK, Node: n.ID, GPU: g.Index})
				return at + f.Repair
			})
		}
	}
	s.Events = append(s.Events, d.events...)
}

// horizon is the time beyond which nothing fails: generous, since what is not
// reached costs nothing.
func horizon(s *config.Scenario) time.Duration {
	var gpus, work float64 // GPU-nanoseconds
	var last, longestRun time.Duration
	for _, n := range s.Nodes {
		gpus += float64(len(n.GPUs))
	}
	for _, g := range s.Gangs {
		last, longestRun = max(last, g.At), max(longestRun, g.Duration)
		work += float64(g.Spec.GPUs) * float64(g.Duration)
	}
	const generous = 4
	packed := time.Duration(min(work/max(gpus, 1), float64(longest)))
	return min(last+generous*(min(longestRun, longest)+packed), 2*longest)
}

// drawing is what was drawn so far.
type drawing struct {
	*Failures
	until  time.Duration
	events []config.ScenarioEvent
}

func (d *drawing) note(e config.ScenarioEvent) {
	const afterFiles = 1 << 30 // in the order of one moment
	e.Line = afterFiles + len(d.events)
	d.events = append(d.events, e)
}

// every lets a thing fail again and again. Fail returns when it is in order
// again.
func (d *drawing) every(node, stream int, mean time.Duration, fail func(at time.Duration) time.Duration) {
	if mean <= 0 {
		return
	}
	rng := d.stream(node, stream)
	for at := after(rng, mean); at < d.until && len(d.events) < maxFailures; {
		at = fail(at) + after(rng, mean)
	}
}

func (d *drawing) stream(node, stream int) *rand.Rand {
	return rand.New(rand.NewPCG(d.Seed, uint64(node)*streams+uint64(stream)))
}

// outages are of a node as a whole: it fails, or is taken away, whichever comes
// first.
func (d *drawing) outages(i int, n cluster.Spec) {
	fails, taken := rate(d.NodeMean), rate(d.SpotMean)
	if !n.Spot {
		taken = 0
	}
	if fails+taken == 0 {
		return
	}
	cause := d.stream(i, streamCause)
	d.every(i, streamOutage, time.Duration(1/(fails+taken)), func(at time.Duration) time.Duration {
		up := at + d.Repair
		if cause.Float64()*(fails+taken) < fails {
			d.note(config.ScenarioEvent{At: at, Kind: config.NodeDown, Node: n.ID})
		} else {
			d.note(config.ScenarioEvent{At: at, Kind: config.SpotNotice, Node: n.ID, Notice: d.Notice})
			up += d.Notice
		}
		d.note(config.ScenarioEvent{At: up, Kind: config.NodeUp, Node: n.ID})
		return up
	})
}

func (d *drawing) slowness(i int, n cluster.Spec) {
	d.every(i, streamSlow, d.SlowMean, func(at time.Duration) time.Duration {
		d.note(config.ScenarioEvent{At: at, Kind: config.Slow, Node: n.ID, Factor: d.SlowFactor})
		d.note(config.ScenarioEvent{At: at + d.Repair, Kind: config.Slow, Node: n.ID, Factor: 1})
		return at + d.Repair
	})
}

// rate is failures a nanosecond.
func rate(mean time.Duration) float64 {
	if mean <= 0 {
		return 0
	}
	return 1 / float64(mean)
}

// after is a time until something happens that has no memory, a nanosecond at
// least.
func after(rng *rand.Rand, mean time.Duration) time.Duration {
	return time.Duration(min(max(rng.ExpFloat64()*float64(mean), 1), float64(longest)))
}
