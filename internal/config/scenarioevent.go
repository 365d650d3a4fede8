package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/gangd/gangd/internal/gang"
)

// eventKinds says of each kind what it needs beside its time.
var eventKinds = []struct {
	kind  EventKind
	needs []string
}{
	{NodeDown, []string{"node"}},
	{NodeUp, []string{"node"}},
	{GPUBad, []string{"node", "gpu"}},
	{GPUOK, []string{"node", "gpu"}},
	{Drain, []string{"node"}},
	{Undrain, []string{"node"}},
	{SpotNotice, []string{"node", "notice"}},
	{Slow, []string{"node", "factor"}},
	{Cancel, []string{"gang"}},
}

func (r *scenarioReader) event(b *hcl.Block) {
	e := ScenarioEvent{Line: b.DefRange.Start.Line}
	var kind, id string
	var kinds []string
	for _, k := range eventKinds {
		kinds = append(kinds, string(k.kind))
	}
	found := r.read(b.Body, []attribute{
		{name: "at", required: true, set: duration(&e.At)},
		{name: "kind", required: true, set: oneOf(&kind, kinds...)},
		{name: "node", set: nameOf(&e.Node)},
		{name: "gpu", set: numberBetween(&e.GPU, 0, maxCount)},
		{name: "gang", set: nameOf(&id)},
		{name: "notice", set: duration(&e.Notice)},
		{name: "factor", set: factor(&e.Factor)},
	})
	e.Kind, e.Gang = EventKind(kind), gang.ID(id)
	r.checkNeeds(e.Kind, found, b.DefRange)
	if e.Node != "" {
		r.refer("node", e.Node, found.at["node"])
	}
	if id != "" {
		r.refer("gang", id, found.at["gang"])
	}
	if at, given := found.at["gpu"]; given && !found.faulty["gpu"] {
		r.later = append(r.later, func() { r.checkGPU(e, at) })
	}
	r.scenario.Events = append(r.scenario.Events, e)
}

// checkNeeds notes what a kind of event lacks, and what it has no use for.
func (r *scenarioReader) checkNeeds(kind EventKind, found places, whole hcl.Range) {
	for _, k := range eventKinds {
		if k.kind != kind {
			continue
		}
		for _, name := range []string{"node", "gpu", "gang", "notice", "factor"} {
			at, given := found.at[name]
			switch needed := slices.Contains(k.needs, name); {
			case needed && !given:
				r.diags = append(r.diags, fault(name, whole, "Missing "+name,
					fmt.Sprintf("An event of kind %q needs %s.", kind, strings.Join(k.needs, " and "))))
			case !needed && given:
				r.fault(name, at, "%s says nothing of an event of kind %q.", name, kind)
			}
		}
	}
}

func (r *scenarioReader) checkGPU(e ScenarioEvent, at hcl.Range) {
	for _, n := range r.scenario.Nodes {
		if n.ID == e.Node && e.GPU >= len(n.GPUs) {
			r.fault("gpu", at, "There is no GPU %d: node %s has %d, from 0.", e.GPU, n.ID, len(n.GPUs))
		}
	}
}
