package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// defaultGrace is that of every tier.
const defaultGrace = 10 * time.Second

// BuiltInTiers are there without being declared, highest priority first.
func BuiltInTiers() []schedule.Tier {
	return []schedule.Tier{
		{Name: "interactive", Priority: 300, Preempts: []string{"production", "background"}, Grace: defaultGrace},
		{Name: "production", Priority: 200, Preempts: []string{"background"}, Grace: defaultGrace},
		{Name: "background", Priority: 100, Grace: defaultGrace, MinShare: 0.05},
	}
}

// rulesReader reads what the engine is told of tiers, tenants and models: one
// schema for agents and scenarios.
type rulesReader struct {
	in    *bodyReader
	rules *schedule.Config
	// protected is the time after its start in which a gang is not stopped for
	// others, of tiers that do not say.
	protected time.Duration
	// named has, for each kind of thing, the names that were given and where.
	named map[string]map[string]hcl.Range
	// later are the checks that need the whole file.
	later []func()
}

func newRulesReader(in *bodyReader, rules *schedule.Config, protected time.Duration) rulesReader {
	rules.Tiers, rules.HalfLife = BuiltInTiers(), time.Hour
	for i := range rules.Tiers {
		rules.Tiers[i].Protected = protected
	}
	return rulesReader{in: in, rules: rules, protected: protected, named: map[string]map[string]hcl.Range{}}
}

// ruleBlocks are those in which rules are told.
func (r *rulesReader) ruleBlocks() []nested {
	return []nested{
		{kind: "tier", label: "name", read: r.tier},
		{kind: "tenant", label: "name", read: r.tenant},
		{kind: "fairness", read: r.fairness},
		{kind: "model", label: "name", read: r.model},
	}
}

// checkLater makes the checks that need the whole file.
func (r *rulesReader) checkLater() {
	for _, check := range r.later {
		check()
	}
}

// tierNamed returns what is known of a tier before its block is read: the
// defaults, where it is not among the built-in ones.
func (r *rulesReader) tierNamed(name string) schedule.Tier {
	for _, t := range r.rules.Tiers {
		if t.Name == name {
			return t
		}
	}
	return schedule.Tier{Name: name, Grace: defaultGrace, Protected: r.protected}
}

// tier replaces a built-in tier, or adds one. What a block leaves out of a
// built-in tier stays as it is.
func (r *rulesReader) tier(b *hcl.Block) {
	name := b.Labels[0]
	if !r.claim("tier", name, b.LabelRanges[0]) {
		return
	}
	known := r.knowsTier(name)
	t := r.tierNamed(name)
	found := r.in.read(b.Body, []attribute{
		{name: "priority", required: !known, set: numberBetween(&t.Priority, 0, maxCount)},
		{name: "preempts", set: texts(&t.Preempts)},
		{name: "grace", set: duration(&t.Grace)},
		{name: "min_share", set: fraction(&t.MinShare, 0, 1)},
		{name: "target_wait", set: duration(&t.TargetWait)},
		{name: "protected", set: duration(&t.Protected)},
	})
	if i := slices.IndexFunc(r.rules.Tiers, func(o schedule.Tier) bool { return o.Name == name }); known {
		r.rules.Tiers[i] = t
	} else {
		r.rules.Tiers = append(r.rules.Tiers, t)
	}
	if at, given := found.at["preempts"]; given {
		for _, other := range t.Preempts {
			r.referTier("preempts", other, at)
		}
	}
}

func (r *rulesReader) tenant(b *hcl.Block) {
	t := schedule.Tenant{Name: b.Labels[0], Weight: 1}
	if !r.claim("tenant", t.Name, b.LabelRanges[0]) {
		return
	}
	r.in.read(b.Body, []attribute{
		{name: "weight", set: factor(&t.Weight)},
		{name: "guaranteed", set: numberBetween(&t.Guaranteed, 0, maxCount)},
		{name: "max_gpus", set: numberBetween(&t.MaxGPUs, 1, maxCount)},
	})
	r.rules.Tenants = append(r.rules.Tenants, t)
}

func (r *rulesReader) fairness(b *hcl.Block) {
	r.in.read(b.Body, []attribute{
		{name: "half_life", set: duration(&r.rules.HalfLife)},
		{name: "preemption_plans_per_minute", set: numberBetween(&r.rules.PlansPerMinute, 0, maxCount)},
	})
}

func (r *rulesReader) model(b *hcl.Block) {
	m := schedule.Model{Name: b.Labels[0]}
	if !r.claim("model", m.Name, b.LabelRanges[0]) {
		return
	}
	r.in.read(b.Body, []attribute{
		{name: "load", set: duration(&m.Load)},
		{name: "speed", set: speeds(&m.Speed)},
	})
	r.rules.Models = append(r.rules.Models, m)
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

// fault notes what is wrong with one thing.
func (r *rulesReader) fault(field string, at hcl.Range, format string, args ...any) {
	r.in.diags = append(r.in.diags, fault(field, at, "Invalid "+field, fmt.Sprintf(format, args...)))
}

// claim gives a name to a thing of a kind. It reports false, and notes why,
// where the name cannot be given.
func (r *rulesReader) claim(kind, name string, at hcl.Range) bool {
	if !gang.IsLabel(name) {
		r.fault(kind, at, "%q is no name: use up to %d letters, digits, '.', '_', '-' and '/'.", name, gang.MaxLabelLen)
		return false
	}
	if first, taken := r.named[kind][name]; taken {
		r.in.diags = append(r.in.diags, fault(kind, at, "Duplicate "+kind,
			fmt.Sprintf("%q is a %s at %s:%d already.", name, kind, first.Filename, first.Start.Line)))
		return false
	}
	if r.named[kind] == nil {
		r.named[kind] = map[string]hcl.Range{}
	}
	r.named[kind][name] = at
	return true
}

// knowsTier reports whether a tier is built in or declared.
func (r *rulesReader) knowsTier(name string) bool {
	return slices.ContainsFunc(r.rules.Tiers, func(t schedule.Tier) bool { return t.Name == name })
}

// referTier checks, once the whole file is read, that there is such a tier.
func (r *rulesReader) referTier(field, name string, at hcl.Range) {
	r.later = append(r.later, func() {
		if !r.knowsTier(name) {
			var names []string
			for _, t := range r.rules.Tiers {
				names = append(names, t.Name)
			}
			r.fault(field, at, "There is no tier %q: there are %q.", name, names)
		}
	})
}
