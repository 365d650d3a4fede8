package cluster

import "slices"

// warmth is what models' weights are in the memory of a node's GPUs: a model
// is warm on exactly the sets of GPUs on which it ran last, and on all that a
// node was declared warm for, until another one runs there.
type warmth struct {
	ran      []WarmSet
	declared []WarmSet
}

// Warm reports whether a member of a model would find its weights on exactly
// these GPUs.
func (n *Node) Warm(model string, gpus Mask) bool {
	return slices.Contains(n.warm.ran, WarmSet{model, gpus}) ||
		slices.ContainsFunc(n.warm.declared, func(s WarmSet) bool { return s.Model == model && s.GPUs.Has(gpus) })
}

// WarmSets lists the free sets of k GPUs on which a model is warm, those that
// it ran on first.
func (n *Node) WarmSets(model string, k int) []Mask {
	var out []Mask
	for _, s := range n.warm.ran {
		if s.Model == model && s.GPUs.Count() == k && n.Free().Has(s.GPUs) {
			out = append(out, s.GPUs)
		}
	}
	for _, s := range n.warm.declared {
		if s.Model == model {
			out = append(out, (s.GPUs & n.Free()).blocks(k)...)
		}
	}
	return out
}

// Heat notes that a member of a model runs on GPUs; the empty model is none.
func (n *Node) Heat(model string, gpus Mask) {
	n.warm.ran = slices.DeleteFunc(n.warm.ran, func(s WarmSet) bool { return s.GPUs&gpus != 0 })
	for i := range n.warm.declared {
		if s := &n.warm.declared[i]; s.Model != model {
			s.GPUs &^= gpus
		}
	}
	if model != "" {
		n.warm.ran = append(n.warm.ran, WarmSet{model, gpus})
	}
}

func (n *Node) declareWarm(models []string) {
	for _, m := range models {
		n.warm.declared = append(n.warm.declared, WarmSet{m, n.All()})
	}
}

// blocks lists the aligned blocks of k GPUs in the mask, and its k lowest.
func (m Mask) blocks(k int) []Mask {
	var out []Mask
	for at := 0; at+k <= MaxGPUsPerNode; at += k {
		if block := m >> at & (1<<k - 1); block.Count() == k {
			out = append(out, block<<at)
		}
	}
	if m.Count() >= k && k > 0 {
		out = append(out, m.Lowest(k))
	}
	return out
}
