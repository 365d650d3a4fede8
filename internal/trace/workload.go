package trace

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// Workload is a trace, and how its jobs become gangs.
type Workload struct {
	File string // for messages
	Jobs []Job
	// Tiers are tried in order for a job that names none; the default tier is for
	// those that none of them takes.
	Tiers []TierRule
	// Checkpoint is how gangs save their state; nil where they cannot.
	Checkpoint *gang.Checkpoint
}

// Scenario puts the workload on a cluster, of which it takes nodes, rules, and
// what happens to nodes: its gangs are left out. Widened is how many jobs got
// more GPUs than they asked for, so that they divide among their nodes. A job
// that cannot be read as a gang makes an *Error.
func (w *Workload) Scenario(on *config.Scenario) (s *config.Scenario, widened int, err error) {
	for _, r := range w.Tiers {
		if err := known(r.Tier, &on.Rules); err != nil {
			return nil, 0, err
		}
	}
	s = &config.Scenario{Rules: on.Rules, Nodes: on.Nodes, Gangs: make([]config.ScenarioGang, 0, len(w.Jobs))}
	s.Events = slices.DeleteFunc(slices.Clone(on.Events), func(e config.ScenarioEvent) bool { return e.Kind == config.Cancel })
	largest := 0
	for _, n := range s.Nodes {
		largest = max(largest, len(n.GPUs))
	}
	for i := range w.Jobs {
		j := &w.Jobs[i]
		g, err := w.gang(j, largest, &s.Rules)
		if err != nil {
			return nil, 0, err
		}
		if g.Spec.GPUs > j.GPUs {
			widened++
		}
		s.Gangs = append(s.Gangs, g)
	}
	return s, widened, nil
}

func (w *Workload) gang(j *Job, largest int, rules *schedule.Config) (config.ScenarioGang, error) {
	spec := &gang.Spec{
		Name: fmt.Sprint("job-", j.Line), Tenant: cmp.Or(j.Tenant, config.DefaultTenant), Tier: w.tier(j), GPUs: j.GPUs, Model: j.Model,
		Estimate: j.said(), Elastic: j.Elastic, Checkpoint: w.Checkpoint, InfraRetries: gang.MaxRetries,
	}
	if len(j.Elastic) == 0 {
		spec.GPUs, spec.GPUsPerNode = shape(j.GPUs, largest)
	}
	if err := known(spec.Tier, rules); err != nil {
		return config.ScenarioGang{}, &Error{File: w.File, Line: j.Line, Problem: err.Error()}
	}
	if err := spec.ValidateDemand(); err != nil {
		return config.ScenarioGang{}, &Error{File: w.File, Line: j.Line, Problem: err.Error()}
	}
	return config.ScenarioGang{ID: gang.ID(spec.Name), Spec: spec, At: j.At, Duration: j.Duration, Line: j.Line}, nil
}

func (w *Workload) tier(j *Job) string {
	if j.Tier != "" {
		return j.Tier
	}
	for _, r := range w.Tiers {
		if r.takes(j) {
			return r.Tier
		}
	}
	return config.DefaultTier
}

func known(tier string, rules *schedule.Config) error {
	var names []string
	for _, t := range rules.Tiers {
		if t.Name == tier {
			return nil
		}
		names = append(names, t.Name)
	}
	return fmt.Errorf("there is no tier %q: the cluster's file has %q", tier, names)
}

// shape puts a job on as few nodes as can hold it, with as many GPUs on each:
// where those do not divide, it gets the few more that it takes.
func shape(gpus, largest int) (all, perNode int) {
	if gpus <= largest || largest == 0 {
		return gpus, gpus
	}
	members := (gpus + largest - 1) / largest
	perNode = (gpus + members - 1) / members
	return members * perNode, perNode
}
