package trace

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// TierRule puts jobs into a tier whose line names none: those with at most so
// many GPUs, and that take at most so long by their user's estimate, which is
// their true run time where the trace has none. 0 is no bound.
type TierRule struct {
	Tier    string
	MaxGPUs int
	MaxRun  time.Duration
}

// ParseTierRule reads NAME, or NAME=BOUND,.. with the bounds gpus<=N and
// estimate<=DURATION.
func ParseTierRule(text string) (TierRule, error) {
	name, bounds, bounded := strings.Cut(text, "=")
	r := TierRule{Tier: name}
	if !gang.IsLabel(name) {
		return r, fmt.Errorf("%q begins with no tier: write NAME, or NAME=gpus<=N,estimate<=DURATION", text)
	}
	if !bounded {
		return r, nil
	}
	for _, one := range strings.Split(bounds, ",") {
		what, bound, ok := strings.Cut(one, "<=")
		var err error
		switch {
		case ok && what == "gpus":
			r.MaxGPUs, err = strconv.Atoi(bound)
			ok = r.MaxGPUs > 0
		case ok && what == "estimate":
			r.MaxRun, err = time.ParseDuration(bound)
			ok = r.MaxRun > 0
		default:
			ok = false
		}
		if err != nil || !ok {
			return r, fmt.Errorf("%q is no bound of a tier: write gpus<=N or estimate<=DURATION", one)
		}
	}
	return r, nil
}

func (r TierRule) takes(j *Job) bool {
	run := j.Duration
	if j.Estimate > 0 {
		run = j.Estimate
	}
	return (r.MaxGPUs == 0 || j.GPUs <= r.MaxGPUs) && (r.MaxRun == 0 || run <= r.MaxRun)
}

// Workload is how jobs become gangs.
type Workload struct {
	Jobs []Job
	// Tiers are tried in order for a job that names none; where none takes it, it
	// is of the default tier.
	Tiers []TierRule
	// Checkpoint is what gangs can save; nil for nothing.
	Checkpoint *gang.Checkpoint
	Failures   Failures
}

// Scenario is a cluster with the workload on it. The gangs of the cluster's own
// file, if it has any, stay.
func (w *Workload) Scenario(on *config.Scenario) (*config.Scenario, error) {
	s := *on
	s.Gangs, s.Events = slices.Clone(on.Gangs), slices.Clone(on.Events)
	end := time.Duration(0)
	for i := range w.Jobs {
		j := &w.Jobs[i]
		g, err := w.gang(j, &s.Rules)
		if err != nil {
			return nil, err
		}
		s.Gangs = append(s.Gangs, g)
		end = max(end, j.At+j.Duration)
	}
	s.Events = append(s.Events, w.Failures.draw(s.Nodes, end)...)
	return &s, nil
}

func (w *Workload) gang(j *Job, rules *schedule.Config) (config.ScenarioGang, error) {
	spec := &gang.Spec{
		Name: fmt.Sprint("job-", j.Line), Tenant: config.DefaultTenant, Tier: config.DefaultTier, GPUs: j.GPUs, Model: j.Model,
		Estimate: j.Estimate, Elastic: j.Elastic, Checkpoint: w.Checkpoint, InfraRetries: gang.MaxRetries,
	}
	if j.Tenant != "" {
		spec.Tenant = j.Tenant
	}
	if spec.Estimate == 0 {
		spec.Estimate = j.Duration
	}
	if j.Tier != "" {
		spec.Tier = j.Tier
	} else if at := slices.IndexFunc(w.Tiers, func(r TierRule) bool { return r.takes(j) }); at >= 0 {
		spec.Tier = w.Tiers[at].Tier
	}
	if !slices.ContainsFunc(rules.Tiers, func(t schedule.Tier) bool { return t.Name == spec.Tier }) {
		return config.ScenarioGang{}, fmt.Errorf("line %d of the trace: there is no tier %q in the cluster's file", j.Line, spec.Tier)
	}
	if err := spec.ValidateDemand(); err != nil {
		return config.ScenarioGang{}, fmt.Errorf("line %d of the trace: %w", j.Line, err)
	}
	return config.ScenarioGang{ID: gang.ID(spec.Name), Spec: spec, At: j.At, Duration: j.Duration, Line: j.Line}, nil
}

// Failures are drawn from a seed. A mean of 0 draws none of the kind.
type Failures struct {
	Seed uint64
	// GPUMean and NodeMean are the mean times between failures of one GPU and one
	// node, Repair the time after which each is in order again.
	GPUMean, NodeMean, Repair time.Duration
	// SlowMean is the mean time until a node becomes slower by SlowFactor, for
	// Repair; SpotMean that until a spot node gets notice.
	SlowMean   time.Duration
	SlowFactor float64
	SpotMean   time.Duration
	Notice     time.Duration
}

// maxFailures bounds what is drawn.
const maxFailures = 1_000_000

// draw lets things fail at random until the end. What fails is in order again
// before it fails once more.
func (f *Failures) draw(nodes []cluster.Spec, end time.Duration) []config.ScenarioEvent {
	rng := rand.New(rand.NewPCG(f.Seed, 0x67616e6764))
	var out []config.ScenarioEvent
	line := 1 << 30 // after what is in files
	every := func(mean time.Duration, fail func(at time.Duration)) {
		if mean <= 0 {
			return
		}
		for at := after(rng, mean); at < end && len(out) < maxFailures; at += f.Repair + after(rng, mean) {
			fail(at)
		}
	}
	note := func(e config.ScenarioEvent) {
		line++
		e.Line = line
		out = append(out, e)
	}
	for _, n := range nodes {
		every(f.NodeMean, func(at time.Duration) {
			note(config.ScenarioEvent{At: at, Kind: config.NodeDown, Node: n.ID})
			note(config.ScenarioEvent{At: at + f.Repair, Kind: config.NodeUp, Node: n.ID})
		})
		for _, g := range n.GPUs {
			every(f.GPUMean, func(at time.Duration) {
				note(config.ScenarioEvent{At: at, Kind: config.GPUBad, Node: n.ID, GPU: g.Index})
				note(config.ScenarioEvent{At: at + f.Repair, Kind: config.GPUOK, Node: n.ID, GPU: g.Index})
			})
		}
		every(f.SlowMean, func(at time.Duration) {
			note(config.ScenarioEvent{At: at, Kind: config.Slow, Node: n.ID, Factor: f.SlowFactor})
			note(config.ScenarioEvent{At: at + f.Repair, Kind: config.Slow, Node: n.ID, Factor: 1})
		})
		if n.Spot {
			every(f.SpotMean, func(at time.Duration) {
				note(config.ScenarioEvent{At: at, Kind: config.SpotNotice, Node: n.ID, Notice: f.Notice})
				note(config.ScenarioEvent{At: at + f.Notice + f.Repair, Kind: config.NodeUp, Node: n.ID})
			})
		}
	}
	return out
}

// after is a time until something happens that has no memory.
func after(rng *rand.Rand, mean time.Duration) time.Duration {
	return time.Duration(min(rng.ExpFloat64()*float64(mean), float64(longest)))
}
