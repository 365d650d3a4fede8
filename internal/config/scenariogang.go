package config

import (
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/gangd/gangd/internal/gang"
)

// arrival reads a gang, or count of them that arrive one after the other.
func (r *scenarioReader) arrival(b *hcl.Block) {
	spec := newSpec()
	spec.Name = b.Labels[0]
	g := ScenarioGang{ID: gang.ID(spec.Name), Spec: &spec, Line: b.DefRange.Start.Line}
	count, every := 1, time.Duration(0)
	var exits places
	found := r.demand(b.Body, &spec, []attribute{
		{name: "count", set: numberBetween(&count, 1, maxGangs)},
		{name: "every", set: duration(&every)},
		{name: "at", set: duration(&g.At)},
		{name: "duration", required: true, set: duration(&g.Duration)},
		{name: "template", set: ignored}, {name: "params", set: ignored}, {name: "reuse", set: ignored},
	}, nested{kind: "exit", read: func(b *hcl.Block) { g.Exit, exits = r.exit(b) }})
	r.check(spec.ValidateDemand(), found, b.DefRange)
	if spec.Estimate == 0 {
		spec.Estimate = g.Duration
	}
	r.checkPlaces(&spec, found)
	r.later = append(r.later, func() { r.checkMembers(g, found, exits) })
	if len(r.scenario.Gangs)+count > maxGangs {
		r.fault("count", b.DefRange, "The scenario has more than %d gangs.", maxGangs)
		return
	}
	if every > 0 && time.Duration(count-1) > (maxDuration-g.At)/every {
		r.fault("every", found.at["every"], "The last of the %d gangs arrives more than 10 years, 87600h, after the start.", count)
		return
	}
	r.add(g, count, every, b.LabelRanges[0])
}

// ignored is what a gang that is submitted has, and one of a scenario needs
// not: the same block can be both.
func ignored(cty.Value) error { return nil }

func (r *scenarioReader) add(g ScenarioGang, count int, every time.Duration, name hcl.Range) {
	if count == 1 {
		if r.claim("gang", g.Spec.Name, name) {
			r.scenario.Gangs = append(r.scenario.Gangs, g)
		}
		return
	}
	if !r.claimEach("gang", g.Spec.Name, count, name) {
		return
	}
	for i := range count {
		g.ID = gang.ID(numbered(g.Spec.Name, i))
		r.scenario.Gangs = append(r.scenario.Gangs, g)
		g.At += every
	}
}

func (r *scenarioReader) exit(b *hcl.Block) (*Exit, places) {
	e := new(Exit)
	return e, r.read(b.Body, []attribute{
		{name: "member", set: numberBetween(&e.Member, 0, maxCount)},
		{name: "after", required: true, set: duration(&e.After)},
		{name: "retryable", set: boolean(&e.Retryable)},
	})
}

// checkPlaces checks what the gang refers to.
func (r *scenarioReader) checkPlaces(spec *gang.Spec, found places) {
	if at, given := found.at["tier"]; given && !found.faulty["tier"] {
		r.referTier("tier", spec.Tier, at)
	}
	for _, level := range []struct{ field, name string }{{"require", spec.Topology.Require}, {"prefer", spec.Topology.Prefer}} {
		if level.name != "" {
			r.checkLevel(level.field, level.name, found.at[level.field])
		}
	}
}

// checkMembers checks what depends on the number of members, which may follow
// from the nodes.
func (r *scenarioReader) checkMembers(g ScenarioGang, found, exits places) {
	largest := 0
	for _, n := range r.scenario.Nodes {
		if g.Spec.GPU == "" || g.Spec.GPU == n.GPUs[0].Model {
			largest = max(largest, len(n.GPUs))
		}
	}
	perNode := g.Spec.PerNode(largest)
	if perNode == 0 {
		return // no node has such GPUs: it will be rejected
	}
	for _, size := range g.Spec.Elastic {
		if g.Spec.GPUsPerNode == 0 && size.GPUs > perNode && size.GPUs%perNode != 0 {
			r.fault("elastic", found.at["elastic"], "elastic: %d is no multiple of gpus_per_node, which is %d where it is not given.", size.GPUs, perNode)
		}
	}
	members := g.Spec.GPUs / perNode
	if s := g.Spec.Topology.Segment; g.Spec.GPUsPerNode == 0 && s > 0 && members%s != 0 {
		r.fault("segment", found.at["segment"], "segment: %d nodes do not divide the %d members.", s, members)
	}
	if at, given := exits.at["member"]; given && members > 0 && g.Exit.Member >= members {
		r.fault("member", at, "There is no member %d: the gang has %d, from 0.", g.Exit.Member, members)
	}
}
