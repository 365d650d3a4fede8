package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// Limits of a scenario.
const (
	maxNodes = 20_000
	maxGangs = 200_000
)

// Scenario is a cluster, a workload, and what happens to both.
type Scenario struct {
	// Rules are what the engine is told of levels, tiers, tenants and models.
	Rules schedule.Config
	// Nodes are in the order of the file.
	Nodes []cluster.Spec
	// Gangs and Events are in the order of the file. Those of one moment happen
	// in the order of their lines.
	Gangs  []ScenarioGang
	Events []ScenarioEvent
}

// ScenarioGang is a gang that arrives.
type ScenarioGang struct {
	ID gang.ID
	// Spec is shared by the gangs of one block.
	Spec *gang.Spec
	At   time.Duration
	// Duration is its true run time at its preferred size and at speed 1, of
	// which the engine knows the estimate alone.
	Duration time.Duration
	// Exit is nil where no member fails.
	Exit *Exit
	Line int
}

// Exit is the failure of a member, once, when the run has come to After.
type Exit struct {
	Member    int
	After     time.Duration
	Retryable bool
}

// EventKind is one of those below.
type EventKind string

// The kinds of events.
const (
	NodeDown   EventKind = "node_down"
	NodeUp     EventKind = "node_up"
	GPUBad     EventKind = "gpu_bad"
	GPUOK      EventKind = "gpu_ok"
	Drain      EventKind = "drain"
	Undrain    EventKind = "undrain"
	SpotNotice EventKind = "spot_notice"
	Slow       EventKind = "slow"
	Cancel     EventKind = "cancel"
)

// ScenarioEvent is what happens to a node, a GPU or a gang.
type ScenarioEvent struct {
	At   time.Duration
	Kind EventKind
	Node string
	GPU  int
	Gang gang.ID
	// Notice is the time until a spot node is gone.
	Notice time.Duration
	// Factor is how much longer members take on a slow node.
	Factor float64
	Line   int
}

// ParseScenario reads a scenario. Any fault makes an *UnreadableError, with all
// faults that were found.
func ParseScenario(filename string, src []byte) (*Scenario, error) {
	file, diags := parse(filename, src)
	sources := map[string]*hcl.File{filename: file}
	if diags.HasErrors() {
		return nil, unreadable(diags, sources)
	}
	r := &scenarioReader{scenario: &Scenario{Rules: schedule.Config{Levels: []string{"leaf"}}}}
	r.rulesReader = newRulesReader(&r.bodyReader, &r.scenario.Rules, 0)
	r.file(file.Body)
	if err := unreadable(append(r.diags, r.refusals...), sources); err != nil {
		return nil, err
	}
	return r.scenario, nil
}

// scenarioReader reads the schema of a scenario.
type scenarioReader struct {
	gangReader
	rulesReader
	scenario *Scenario
	// levelless: the levels could not be read, and no name can be held against
	// them.
	levelless bool
}

func (r *scenarioReader) file(body hcl.Body) {
	clustered := false
	r.read(body, nil, slices.Concat(
		[]nested{{kind: "cluster", read: func(b *hcl.Block) {
			clustered = true
			r.cluster(b)
		}}},
		r.ruleBlocks(),
		[]nested{
			{kind: "gang", label: "name", read: r.arrival},
			{kind: "event", many: true, read: r.event},
		})...)
	if !clustered && !r.diags.HasErrors() {
		r.diags = append(r.diags, fault("cluster", body.MissingItemRange(), "Missing cluster block",
			`A scenario plays on a cluster: cluster { node "n" { count = 2 } }.`))
	}
	r.checkLater()
}

// claimEach gives a name to each of count things, which are told apart by
// their number. It reports false where one of them cannot be given.
func (r *scenarioReader) claimEach(kind, name string, count int, at hcl.Range) bool {
	for i := range count {
		if !r.claim(kind, numbered(name, i), at) {
			return false
		}
	}
	return true
}

func numbered(name string, i int) string { return fmt.Sprintf("%s-%d", name, i) }

// refer checks, once the whole file is read, that a name is that of a thing.
func (r *scenarioReader) refer(kind, name string, at hcl.Range) {
	r.later = append(r.later, func() {
		if _, known := r.named[kind][name]; known {
			return
		}
		hint := "."
		if _, counted := r.named[kind][numbered(name, 0)]; counted {
			hint = fmt.Sprintf(": with count it is %q, and so on.", numbered(name, 0))
		}
		r.fault(kind, at, "There is no %s %q%s", kind, name, hint)
	})
}

// checkLevel notes a level that the cluster does not have.
func (r *scenarioReader) checkLevel(field, name string, at hcl.Range) {
	if !r.levelless && !slices.Contains(r.scenario.Rules.Levels, name) {
		r.fault(field, at, "There is no level %q: the cluster has %q, widest first.", name, r.scenario.Rules.Levels)
	}
}
