package config

import (
	"errors"
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/gangd/gangd/internal/gang"
)

// Defaults of a gang.
const (
	DefaultTenant       = "default"
	DefaultTier         = "production"
	DefaultInfraRetries = 3
)

// ParseGangs reads HCL with one or more gang blocks. The specifications that
// it returns are valid; any fault makes an *UnreadableError, with all faults
// that were found, or a *gang.RefusedError where all can be read and ask for
// what cannot be.
func ParseGangs(filename string, src []byte) ([]gang.Spec, error) {
	r, err := readGangs(filename, src)
	if err != nil {
		return nil, err
	}
	return r.specs, r.verdict()
}

func readGangs(filename string, src []byte) (*gangReader, error) {
	file, diags := parse(filename, src)
	r := &gangReader{sources: map[string]*hcl.File{filename: file}}
	if diags.HasErrors() {
		return nil, unreadable(diags, r.sources)
	}
	r.read(file.Body, nil, nested{kind: "gang", label: "name", read: func(b *hcl.Block) {
		spec := newSpec()
		spec.Name = b.Labels[0]
		r.gang(b.Body, &spec, b.DefRange, b.LabelRanges[0])
		r.specs = append(r.specs, spec)
	}})
	if len(r.specs) == 0 && !r.diags.HasErrors() {
		at := hcl.Range{Filename: filename, Start: hcl.InitialPos, End: hcl.InitialPos}
		r.diags = append(r.diags, fault("", at, "No gang", `The file must hold at least one block gang "NAME" { ... }.`))
	}
	return r, nil
}

func newSpec() gang.Spec {
	return gang.Spec{Tenant: DefaultTenant, Tier: DefaultTier, InfraRetries: DefaultInfraRetries}
}

// gangReader reads the one schema of a gang, from HCL and from JSON.
type gangReader struct {
	bodyReader
	sources map[string]*hcl.File
	specs   []gang.Spec
	gangs   []located // as specs
	// refusals are faults of gangs that can be read.
	refusals hcl.Diagnostics
}

// verdict says what is wrong with all that was read.
func (r *gangReader) verdict() error {
	if !r.diags.HasErrors() && r.refusals.HasErrors() {
		return &gang.RefusedError{Field: fieldOf(r.refusals), Shown: unreadable(r.refusals, r.sources).Error()}
	}
	return unreadable(append(r.diags, r.refusals...), r.sources)
}

// gang reads what the body of a submitted gang says into spec, and checks it.
// Whole is shown for a fault of an attribute that is not there, name for one
// of the gang's name.
func (r *gangReader) gang(body hcl.Body, spec *gang.Spec, whole, name hcl.Range, more ...attribute) {
	var reuse string
	found := r.demand(body, spec, append(more,
		attribute{name: "template", required: true, set: text(&spec.Template)},
		attribute{name: "reuse", set: text(&reuse)},
		attribute{name: "params", set: object(&spec.Params)},
		refused("count", ofScenarios),
		refused("at", ofScenarios),
		refused("every", ofScenarios),
		refused("duration", "belongs to scenarios: a submitted gang gives its estimate"),
	), r.refusedBlock("exit", ofScenarios))
	spec.Reuse = gang.Reuse(reuse)
	if _, ok := found.at["name"]; !ok {
		found.at["name"] = name
	}
	r.check(spec.Validate(), found, whole)
	r.gangs = append(r.gangs, located{spec.Name, whole, found.at})
}

const ofScenarios = "belongs to scenarios, and says nothing of a gang that is submitted"

// demand reads what a gang asks of a cluster, which is the same for those that
// are submitted and those of scenarios, and what else the body may have.
func (r *gangReader) demand(body hcl.Body, spec *gang.Spec, more []attribute, blocks ...nested) places {
	inner := places{at: map[string]hcl.Range{}, faulty: map[string]bool{}}
	preemptible := true
	found := r.read(body, append(more,
		attribute{name: "gpus", required: true, set: number(&spec.GPUs)},
		attribute{name: "gpus_per_node", set: number(&spec.GPUsPerNode)},
		attribute{name: "gpu", set: text(&spec.GPU)},
		attribute{name: "gpu_memory", set: size(&spec.GPUMemoryMiB)},
		attribute{name: "tenant", set: nameOf(&spec.Tenant)},
		attribute{name: "tier", set: nameOf(&spec.Tier)},
		attribute{name: "estimate", set: duration(&spec.Estimate)},
		attribute{name: "max_run", set: duration(&spec.MaxRun)},
		attribute{name: "infra_retries", set: number(&spec.InfraRetries)},
		attribute{name: "elastic", set: sizes(&spec.Elastic)},
		attribute{name: "model", set: nameOf(&spec.Model)},
		attribute{name: "preemptible", set: boolean(&preemptible)},
	), append(blocks,
		nested{kind: "topology", read: func(b *hcl.Block) { inner.add("topology", r.topology(b.Body, &spec.Topology)) }},
		nested{kind: "checkpoint", read: func(b *hcl.Block) {
			spec.Checkpoint = new(gang.Checkpoint)
			inner.add("checkpoint", r.checkpoint(b.Body, spec.Checkpoint))
		}},
	)...)
	spec.Pinned = !preemptible
	found.add("", inner)
	return found
}

// located is where a gang and its attributes were read.
type located struct {
	name  string
	whole hcl.Range
	at    map[string]hcl.Range
}

func (r *gangReader) topology(body hcl.Body, into *gang.Topology) places {
	return r.read(body, []attribute{
		{name: "require", set: nameOf(&into.Require)},
		{name: "prefer", set: nameOf(&into.Prefer)},
		{name: "segment", set: numberBetween(&into.Segment, 1, maxCount)},
	})
}

func (r *gangReader) checkpoint(body hcl.Body, into *gang.Checkpoint) places {
	return r.read(body, []attribute{
		{name: "every", set: duration(&into.Every)},
		{name: "cost", set: duration(&into.Cost)},
		{name: "restore", set: duration(&into.Restore)},
	})
}

func refused(name, why string) attribute {
	return attribute{name: name, refused: true, set: func(cty.Value) error { return errors.New(why) }}
}

func (r *gangReader) refusedBlock(kind, why string) nested {
	return nested{kind: kind, refused: true, read: func(b *hcl.Block) {
		r.diags = append(r.diags, fault(b.Type, b.DefRange, "Invalid "+b.Type, b.Type+" "+why+"."))
	}}
}

// nameOf takes a string that is not empty: one that is would be mistaken for
// an attribute that is not there.
func nameOf(into *string) func(cty.Value) error {
	return func(v cty.Value) error {
		var s string
		if err := text(&s)(v); err != nil {
			return err
		}
		if s == "" {
			return errors.New("must not be empty")
		}
		*into = s
		return nil
	}
}

// check maps the faults of a specification to where they were read. A field
// that could not be read has its fault already.
func (r *gangReader) check(faults error, found places, whole hcl.Range) {
	for _, err := range each(faults) {
		field, at, into := "", whole, &r.diags
		if f := new(gang.FieldError); errors.As(err, &f) {
			field = f.Field
			if f.Refusal {
				into = &r.refusals
			}
		}
		if found.faulty[field] {
			continue
		}
		if place, ok := found.at[field]; ok {
			at = place
		}
		*into = append(*into, fault(field, at, "Invalid "+field, fmt.Sprintf("%v.", err)))
	}
}

// each takes joined errors apart.
func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err != nil {
		return []error{err}
	}
	return nil
}
