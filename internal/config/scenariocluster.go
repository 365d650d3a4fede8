package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/gangd/gangd/internal/cluster"
)

// nowhere is the domain, at each level, of the nodes for which none is given.
const nowhere = "(none)"

func (r *scenarioReader) cluster(b *hcl.Block) {
	// Attributes are read before blocks: nodes know the levels.
	r.read(b.Body,
		[]attribute{{name: "levels", set: func(v cty.Value) error {
			err := levels(&r.scenario.Rules.Levels)(v)
			r.levelless = err != nil
			return err
		}}},
		nested{kind: "node", label: "name", read: r.node})
}

// nodeBlock is what one block says of its nodes.
type nodeBlock struct {
	name      string
	count     int // 0: one node, named as the block is
	gpus      int
	model     string
	memoryMiB int
	islands   [][]int
	at        map[string]string // domain by level
	fanout    map[string]int    // parts of a domain by level
	spot      bool
	warm      []string
}

func (r *scenarioReader) node(b *hcl.Block) {
	n := nodeBlock{name: b.Labels[0], gpus: 8, model: "H100-80GB", memoryMiB: 80 << 10}
	found := r.read(b.Body, []attribute{
		{name: "count", set: numberBetween(&n.count, 1, maxNodes)},
		{name: "gpus", set: numberBetween(&n.gpus, 1, cluster.MaxGPUsPerNode)},
		{name: "gpu", set: nameOf(&n.model)},
		{name: "gpu_memory", set: size(&n.memoryMiB)},
		{name: "nvlink", set: islands(&n.islands)},
		{name: "at", set: domains(&n.at)},
		{name: "fanout", set: fanout(&n.fanout)},
		{name: "spot", set: boolean(&n.spot)},
		{name: "warm", set: texts(&n.warm)},
	})
	r.checkNode(n, found)
	if len(r.scenario.Nodes)+max(n.count, 1) > maxNodes {
		r.fault("count", b.DefRange, "The cluster has more than %d nodes.", maxNodes)
		return
	}
	if n.count == 0 {
		if r.claim("node", n.name, b.LabelRanges[0]) {
			r.scenario.Nodes = append(r.scenario.Nodes, n.spec(n.name, 0, r.scenario.Rules.Levels))
		}
		return
	}
	if !r.claimEach("node", n.name, n.count, b.LabelRanges[0]) {
		return
	}
	for i := range n.count {
		r.scenario.Nodes = append(r.scenario.Nodes, n.spec(numbered(n.name, i), i, r.scenario.Rules.Levels))
	}
}

func (r *scenarioReader) checkNode(n nodeBlock, found places) {
	for _, level := range slices.Sorted(maps.Keys(n.at)) {
		r.checkLevel("at", level, found.at["at"])
	}
	for _, level := range slices.Sorted(maps.Keys(n.fanout)) {
		r.checkLevel("fanout", level, found.at["fanout"])
		if _, both := n.at[level]; both {
			r.fault("fanout", found.at["fanout"], "The level %q has its domain by at already.", level)
		}
	}
	var seen cluster.Mask
	for _, gpu := range slices.Concat(n.islands...) {
		switch {
		case gpu >= n.gpus:
			r.fault("nvlink", found.at["nvlink"], "There is no GPU %d: the node has %d, from 0.", gpu, n.gpus)
			return
		case seen.Has(1 << gpu):
			r.fault("nvlink", found.at["nvlink"], "GPU %d is there twice.", gpu)
			return
		}
		seen |= 1 << gpu
	}
}

// spec makes the ith node of the block.
func (n nodeBlock) spec(id string, i int, levels []string) cluster.Spec {
	s := cluster.Spec{
		ID: id, Name: id, Schedulable: true, Spot: n.spot, Warm: n.warm,
		Domains: n.domains(i, levels), GPUs: make([]cluster.GPU, n.gpus),
	}
	for g := range s.GPUs {
		s.GPUs[g] = cluster.GPU{
			UUID: fmt.Sprintf("%s/%d", id, g), Index: g, Model: n.model, MemoryMiB: n.memoryMiB, Island: n.island(g), Healthy: true,
		}
	}
	return s
}

// domains counts upward: so many nodes a leaf, so many leaves a spine.
func (n nodeBlock) domains(i int, levels []string) []string {
	out := make([]string, len(levels))
	for l := len(levels) - 1; l >= 0; l-- {
		out[l] = nowhere
		if parts := n.fanout[levels[l]]; parts > 0 {
			i /= parts
			out[l] = fmt.Sprintf("%s-%s%d", n.name, levels[l][:1], i)
		}
		if name, given := n.at[levels[l]]; given {
			out[l] = name
		}
	}
	return out
}

// island numbers the island of a GPU. All are in one where none is given; a
// GPU that none of them has is alone.
func (n nodeBlock) island(gpu int) int {
	for i, island := range n.islands {
		if slices.Contains(island, gpu) {
			return i
		}
	}
	if len(n.islands) == 0 {
		return 0
	}
	return len(n.islands) + gpu
}

func islands(into *[][]int) func(cty.Value) error {
	shape := errors.New("must be a list of lists of GPUs, such as [[0, 1], [2, 3]]")
	return func(v cty.Value) error {
		if v.IsNull() || !v.Type().IsTupleType() {
			return shape
		}
		var list [][]int
		for _, element := range v.AsValueSlice() {
			if element.IsNull() || !element.Type().IsTupleType() {
				return shape
			}
			var island []int
			for _, one := range element.AsValueSlice() {
				var gpu int
				if err := numberBetween(&gpu, 0, cluster.MaxGPUsPerNode-1)(one); err != nil {
					return fmt.Errorf("holds a GPU that %w", err)
				}
				island = append(island, gpu)
			}
			list = append(list, island)
		}
		*into = list
		return nil
	}
}

func domains(into *map[string]string) func(cty.Value) error {
	*into = map[string]string{}
	return entries(`{ leaf = "l0" }`, func(level string, v cty.Value) error {
		var name string
		err := nameOf(&name)(v)
		(*into)[level] = name
		return err
	})
}

func fanout(into *map[string]int) func(cty.Value) error {
	*into = map[string]int{}
	return entries(`{ leaf = 4, spine = 2 }`, func(level string, v cty.Value) error {
		var parts int
		err := numberBetween(&parts, 1, maxNodes)(v)
		(*into)[level] = parts
		return err
	})
}
