package schedule

import "github.com/gangd/gangd/internal/cluster"

// potential bounds what preemption could do for the gangs of a tier: how many
// nodes of a domain would have so many GPUs if all that may be stopped were
// gone. What is decided after it was found only makes that less.
type potential struct {
	// decision for which it was found, by its number.
	decision uint64
	// most[model][level+1][k] is the largest number of nodes with k GPUs in any
	// domain of a level, -1 being the cluster.
	most map[string][][]int
}

// mayFree reports whether the end of candidates could make room for a gang.
func (e *Engine) mayFree(t *tier, z size, all []candidate) bool {
	if t.potential.decision != e.decision {
		t.potential = potential{e.decision, e.findPotential(all)}
	}
	for _, model := range e.modelsFor(z.request) {
		most := t.potential.most[model]
		if most != nil && z.perNode < len(most[z.require+1]) && most[z.require+1][z.perNode] >= z.members {
			return true
		}
	}
	return false
}

func (e *Engine) findPotential(all []candidate) map[string][][]int {
	if len(e.left) < len(e.bays) {
		e.left = make([]cluster.Mask, len(e.bays))
	}
	clear(e.left)
	for _, c := range all {
		for _, s := range c.run.seats {
			if s != nil {
				e.left[s.node.Index()] |= s.gpus
			}
		}
	}
	out := make(map[string][][]int)
	for _, model := range e.cluster.Models() {
		most := make([][]int, len(e.cluster.Levels())+1)
		for i := range most {
			most[i] = make([]int, len(e.calendar.times)+1)
		}
		e.countPotential(e.cluster.Root(), model, 0, most)
		out[model] = most
	}
	return out
}

// countPotential counts the nodes of a domain by the GPUs that they would have,
// and notes the largest counts of each level.
func (e *Engine) countPotential(d *cluster.Domain, model string, level int, most [][]int) (with [cluster.MaxGPUsPerNode + 1]int) {
	if d.NodesWith(cluster.Usable, model, 1) == 0 {
		return with
	}
	for _, n := range d.Nodes() {
		if n.Model == model {
			with[(n.Free()|e.left[n.Index()]&n.Usable()).Count()]++
		}
	}
	for _, k := range d.Children() {
		for i, n := range e.countPotential(k, model, level+1, most) {
			with[i] += n
		}
	}
	sum := 0
	for k := len(most[level]) - 1; k >= 0; k-- {
		sum += with[k]
		most[level][k] = max(most[level][k], sum)
	}
	return with
}
