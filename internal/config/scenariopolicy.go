package config

import (
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/gangd/gangd/internal/schedule"
)

// tierNamed returns what is known of a tier before its block is read: the
// defaults, where it is not among the built-in ones.
func tierNamed(name string, known []schedule.Tier) schedule.Tier {
	for _, t := range known {
		if t.Name == name {
			return t
		}
	}
	return schedule.Tier{Name: name, Grace: defaultGrace}
}

// tier replaces a built-in tier, or adds one. What a block leaves out of a
// built-in tier stays as it is.
func (r *scenarioReader) tier(b *hcl.Block) {
	name := b.Labels[0]
	if !r.claim("tier", name, b.LabelRanges[0]) {
		return
	}
	rules := &r.scenario.Rules
	known := r.knowsTier(name)
	t := tierNamed(name, rules.Tiers)
	found := r.read(b.Body, []attribute{
		{name: "priority", required: !known, set: numberBetween(&t.Priority, 0, maxCount)},
		{name: "preempts", set: texts(&t.Preempts)},
		{name: "grace", set: duration(&t.Grace)},
		{name: "min_share", set: fraction(&t.MinShare, 0, 1)},
		{name: "target_wait", set: duration(&t.TargetWait)},
		{name: "protected", set: duration(&t.Protected)},
	})
	if i := slices.IndexFunc(rules.Tiers, func(o schedule.Tier) bool { return o.Name == name }); known {
		rules.Tiers[i] = t
	} else {
		rules.Tiers = append(rules.Tiers, t)
	}
	if at, given := found.at["preempts"]; given {
		for _, other := range t.Preempts {
			r.referTier("preempts", other, at)
		}
	}
}

func (r *scenarioReader) tenant(b *hcl.Block) {
	t := schedule.Tenant{Name: b.Labels[0], Weight: 1}
	if !r.claim("tenant", t.Name, b.LabelRanges[0]) {
		return
	}
	r.read(b.Body, []attribute{
		{name: "weight", set: factor(&t.Weight)},
		{name: "guaranteed", set: numberBetween(&t.Guaranteed, 0, maxCount)},
		{name: "max_gpus", set: numberBetween(&t.MaxGPUs, 1, maxCount)},
	})
	r.scenario.Rules.Tenants = append(r.scenario.Rules.Tenants, t)
}

func (r *scenarioReader) fairness(b *hcl.Block) {
	r.read(b.Body, []attribute{
		{name: "half_life", set: duration(&r.scenario.Rules.HalfLife)},
		{name: "preemption_plans_per_minute", set: numberBetween(&r.scenario.Rules.PlansPerMinute, 0, maxCount)},
	})
}

func (r *scenarioReader) model(b *hcl.Block) {
	m := schedule.Model{Name: b.Labels[0]}
	if !r.claim("model", m.Name, b.LabelRanges[0]) {
		return
	}
	r.read(b.Body, []attribute{
		{name: "load", set: duration(&m.Load)},
		{name: "speed", set: speeds(&m.Speed)},
	})
	r.scenario.Rules.Models = append(r.scenario.Rules.Models, m)
}

func speeds(into *map[string]float64) func(cty.Value) error {
	*into = map[string]float64{}
	return entries(`{ "A100-80GB" = 0.4 }`, func(model string, v cty.Value) error {
		var speed float64
		err := factor(&speed)(v)
		(*into)[model] = speed
		return err
	})
}
