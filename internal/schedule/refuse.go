package schedule

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// noTier is the refusal of a gang of a tier that there is not.
func (e *Engine) noTier(name string) error {
	return gang.RefuseField("tier", "%q is not configured: there are %s", name, e.tierNames())
}

// neverFits is the refusal of what could not run on the idle cluster with
// everything in order: of the reasons the first, from the GPUs themselves to the
// places of all.
func (e *Engine) neverFits(s *gang.Spec, r request) error {
	models := e.cluster.Models()
	if len(models) == 0 {
		return gang.RefuseField("gpus", "%d are asked for, and no node has shown a GPU yet", s.GPUs)
	}
	if r.model != "" && !slices.Contains(models, r.model) {
		return gang.RefuseField("gpu", "no %q here; there are %s", r.model, strings.Join(models, ", "))
	}
	have := e.survey(r)
	switch {
	case have.memoryMiB < r.memoryMiB && r.model != "":
		return gang.RefuseField("gpu_memory", "%s are asked for, and no %s here has more than %s", memory(r.memoryMiB), r.model, memory(have.memoryMiB))
	case have.memoryMiB < r.memoryMiB:
		return gang.RefuseField("gpu_memory", "%s are asked for, and the largest GPU here has %s (%s)", memory(r.memoryMiB), memory(have.memoryMiB), have.memoryModel)
	case !e.roomFor(r):
		return gang.RefuseField("template", "a member takes %s of its node beside GPUs, and no node with enough GPUs has that for tasks", needText(r.need))
	case have.gpus < s.GPUs:
		return gang.RefuseField("gpus", "%d are asked for, and the cluster has %d%s%s on %s",
			s.GPUs, have.gpus, ofModel(r.model), withMemory(r.memoryMiB), nodes(have.nodes))
	case have.ofOne < s.GPUs:
		return gang.RefuseField("gpus", "%d are asked for, and the cluster has at most %d of one model (%s): a gang does not mix them",
			s.GPUs, have.ofOne, have.oneModel)
	case have.widest < r.perNode:
		return gang.RefuseField("gpus_per_node", "%d are asked for, and the largest node has %d GPUs%s%s",
			r.perNode, have.widest, ofModel(r.model), withMemory(r.memoryMiB))
	}
	return e.noPlaces(s, r, have.widest)
}

// roomFor reports whether a node that has GPUs for a member has the CPU and
// memory too, or none has the GPUs.
func (e *Engine) roomFor(r request) bool {
	some := false
	for _, n := range e.cluster.Nodes() {
		if (r.model != "" && n.Model != r.model) || n.All().Count() < max(1, r.perNode) {
			continue
		}
		if n.Fits(cluster.Total, r.need) {
			return true
		}
		some = true
	}
	return !some
}

// needText says what a member takes.
func needText(n gang.Need) string {
	var parts []string
	if n.CPUMHz > 0 {
		parts = append(parts, fmt.Sprintf("%d MHz of CPU", n.CPUMHz))
	}
	if n.Cores > 0 {
		parts = append(parts, fmt.Sprintf("%d cores", n.Cores))
	}
	if n.MemoryMiB > 0 {
		parts = append(parts, memory(n.MemoryMiB)+" of memory")
	}
	return strings.Join(parts, " and ")
}

// survey is what the whole cluster has for a request, if its shape did not
// matter.
type survey struct {
	memoryMiB   int // of the largest GPU, whatever is asked for
	memoryModel string
	gpus, nodes int // with memory enough
	ofOne       int // of the model that has most of them
	oneModel    string
	widest      int // of one node
}

func (e *Engine) survey(r request) survey {
	var out survey
	for _, model := range e.modelsFor(r) {
		gpus := 0
		for _, n := range e.cluster.Nodes() {
			if n.Model != model {
				continue
			}
			if n.MemoryMiB > out.memoryMiB {
				out.memoryMiB, out.memoryModel = n.MemoryMiB, model
			}
			if n.MemoryMiB >= r.memoryMiB {
				gpus += len(n.GPUs)
				out.nodes++
				out.widest = max(out.widest, len(n.GPUs))
			}
		}
		out.gpus += gpus
		if gpus > out.ofOne {
			out.ofOne, out.oneModel = gpus, model
		}
	}
	return out
}

// noPlaces is the refusal of a request that has GPUs enough, and not in its
// shape.
func (e *Engine) noPlaces(s *gang.Spec, r request, widest int) error {
	most := 0
	for _, m := range e.modelsFor(r) {
		e.descend(e.cluster.Root(), -1, r.require, func(*cluster.Domain) bool { return true }, func(d *cluster.Domain) {
			most = max(most, len(e.eligible(d, r, m, cluster.Total)))
		})
	}
	needs := fmt.Sprintf("%d as %d x %d need", s.GPUs, r.members, r.perNode)
	if s.GPUsPerNode == 0 && r.perNode < widest {
		needs = fmt.Sprintf("%d divide only into members of %s GPUs on nodes of %d; gpus_per_node = %d was chosen, which needs",
			s.GPUs, alternatives(divisors(s.GPUs, widest)), widest, r.perNode)
	}
	there := fmt.Sprintf("there are %d", most)
	if most == 1 {
		there = "there is 1"
	}
	if r.require >= 0 {
		there = fmt.Sprintf("no %s has more than %d", e.cluster.Levels()[r.require], most)
	}
	return gang.RefuseField("gpus", "%s %s with %d GPUs each%s%s%s, and %s%s",
		needs, nodes(r.members), r.perNode, ofModel(r.model), withMemory(r.memoryMiB), e.bounds(r), there, e.wouldFit(s, r, most))
}

// wouldFit names the changes of one attribute with which the gang could run.
func (e *Engine) wouldFit(s *gang.Spec, r request, most int) string {
	var ways []string
	for _, k := range slices.Backward(divisors(s.GPUs, cluster.MaxGPUsPerNode)) {
		other := *s
		if other.GPUsPerNode = k; k != r.perNode && e.wouldRun(other) {
			ways = append(ways, fmt.Sprintf("gpus_per_node = %d", k))
			break
		}
	}
	for level := r.require - 1; level >= -1; level-- {
		other := *s
		way := "no topology.require"
		if other.Topology.Require = ""; level >= 0 {
			other.Topology.Require = e.cluster.Levels()[level]
			way = fmt.Sprintf("topology.require = %q", other.Topology.Require)
		}
		if e.wouldRun(other) {
			ways = append(ways, way)
			break
		}
	}
	if counts := e.countsNear(s, r, most); len(counts) > 0 {
		ways = append(ways, "gpus = "+alternatives(counts))
	}
	if len(ways) == 0 {
		return ""
	}
	return "; it would fit with " + strings.Join(ways, ", or with ")
}

// maxCountsTried bounds the search for a number of GPUs that would fit, on each
// side of the one that does not.
const maxCountsTried = 8

// countsNear finds the next smaller and the next larger number of GPUs that
// would fit.
func (e *Engine) countsNear(s *gang.Spec, r request, most int) []int {
	try := func(n int) bool {
		other := *s
		other.GPUs = n
		return n > 0 && n <= gang.MaxGPUs && e.wouldRun(other)
	}
	var out []int
	for by := 1; by <= maxCountsTried && len(out) == 0; by++ {
		if try(s.GPUs - by) {
			out = append(out, s.GPUs-by)
		}
	}
	if whole := most * r.perNode; len(out) == 0 && whole < s.GPUs && try(whole) {
		out = append(out, whole)
	}
	for by := 1; by <= maxCountsTried; by++ {
		if try(s.GPUs + by) {
			return append(out, s.GPUs+by)
		}
	}
	return out
}

// wouldRun reports whether the idle cluster could run a gang with everything in
// order.
func (e *Engine) wouldRun(s gang.Spec) bool {
	r, err := e.request(Gang{Spec: &s, Accepted: true}, s.GPUs)
	return err == nil && r.perNode > 0 && r.members*r.perNode == s.GPUs && e.everFits(r)
}

// divisors lists those of n up to most, in ascending order.
func divisors(n, most int) []int {
	var out []int
	for k := 1; k <= min(n, most); k++ {
		if n%k == 0 {
			out = append(out, k)
		}
	}
	return out
}

// alternatives is a list of numbers of which one may be chosen.
func alternatives(numbers []int) string {
	text := ""
	for i, n := range numbers {
		switch {
		case i == 0:
		case i == len(numbers)-1:
			text += " or "
		default:
			text += ", "
		}
		text += fmt.Sprint(n)
	}
	return text
}
