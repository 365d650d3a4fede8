package cluster

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

// MaxGPUsPerNode bounds a node, so that its GPUs fit a Mask.
const MaxGPUsPerNode = 64

// Mask is a set of GPU indexes of one node.
type Mask uint64

// MaskOf makes a mask of indexes.
func MaskOf(indexes []int) Mask {
	var m Mask
	for _, i := range indexes {
		m |= 1 << i
	}
	return m
}

// Count returns how many GPUs are in the mask.
func (m Mask) Count() int { return bits.OnesCount64(uint64(m)) }

// Has reports whether all GPUs of other are in the mask.
func (m Mask) Has(other Mask) bool { return m&other == other }

// First returns the lowest GPU of a mask that has one.
func (m Mask) First() int { return bits.TrailingZeros64(uint64(m)) }

// Indexes lists the GPUs in ascending order.
func (m Mask) Indexes() []int {
	out := make([]int, 0, m.Count())
	for ; m != 0; m &= m - 1 {
		out = append(out, bits.TrailingZeros64(uint64(m)))
	}
	return out
}

// Lowest returns the n lowest GPUs of the mask, or all that it has.
func (m Mask) Lowest(n int) Mask {
	var out Mask
	for ; n > 0 && m != 0; n-- {
		low := m & -m
		out |= low
		m &^= low
	}
	return out
}

// GPU is one device of a node.
type GPU struct {
	UUID      string `json:"uuid,omitempty"`
	Index     int    `json:"index"`
	Model     string `json:"model,omitempty"`
	MemoryMiB int    `json:"memory_mib,omitempty"`
	// Island numbers the sets of GPUs that reach each other at full NVLink
	// bandwidth.
	Island int `json:"island,omitempty"`
	NUMA   int `json:"numa,omitempty"`
	// Healthy GPUs may be given to gangs; Reason says why one is not.
	Healthy bool   `json:"healthy"`
	Reason  string `json:"reason,omitempty"`
	// Faults counts what befell it in the last 24 hours. Of GPUs that would do
	// equally well, those with the fewest are taken.
	Faults int `json:"faults,omitempty"`
}

// Spec describes a node as it is observed.
type Spec struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Domains has one name for each level, widest first.
	Domains []string `json:"domains,omitempty"`
	GPUs    []GPU    `json:"gpus,omitempty"`
	// Capacity is what it has for tasks beside GPUs, CoreMHz the CPU of one core of
	// it, and Foreign what tasks hold of it that are of no gang. A Capacity of 0 is
	// not known, and no limit.
	Capacity Room `json:"capacity,omitzero"`
	CoreMHz  int  `json:"core_mhz,omitempty"`
	Foreign  Room `json:"foreign,omitzero"`
	// Schedulable nodes may take new members; State and Why are what an operator
	// is told of one, Why being empty where it is schedulable.
	Schedulable bool      `json:"schedulable"`
	State       NodeState `json:"state,omitempty"`
	Why         string    `json:"why,omitempty"`
	// Draining nodes are to be left by what runs there.
	Draining bool `json:"draining,omitempty"`
	// Spot nodes may be taken away; GoneAt is when this one will be, once that
	// is known.
	Spot   bool      `json:"spot,omitempty"`
	GoneAt time.Time `json:"gone_at,omitzero"`
	// Warm names the models whose weights are in the memory of all its GPUs when
	// the node is first seen.
	Warm []string `json:"warm,omitempty"`
}

// Node is a node of the cluster with what is free on it.
type Node struct {
	Spec
	index int
	kind  int // the number of its model
	// Model is that of its GPUs: a node whose GPUs differ counts by its first.
	Model     string
	MemoryMiB int
	islands   []Mask
	healthy   Mask
	used      Mask
	held      gang.Need // by members, all together
	faults    int       // of its GPUs
	tight     bool
	tightAs   string // the model under which it is counted as tight
	warm      warmth
	domains   []*Domain // widest first; the cluster itself is not in it
}

// View is a way to look at what a node has for a member.
type View int

const (
	// Free: what a new member may have now.
	Free View = iota
	// Usable: what one could have if nothing ran.
	Usable
	// Total: what one could have if everything were in order, too.
	Total
	views
)

// In returns the GPUs that the view shows.
func (n *Node) In(v View) Mask {
	switch v {
	case Free:
		return n.Free()
	case Usable:
		return n.Usable()
	default:
		return n.All()
	}
}

// Index is the node's place in the order in which nodes were first seen.
func (n *Node) Index() int { return n.index }

// Free returns the GPUs that a new member may have.
func (n *Node) Free() Mask {
	if !n.Schedulable {
		return 0
	}
	return n.healthy &^ n.used
}

// Used returns the GPUs that members hold, healthy or not.
func (n *Node) Used() Mask { return n.used }

// Usable returns the GPUs that a member could have if nothing else ran.
func (n *Node) Usable() Mask {
	if !n.Schedulable {
		return 0
	}
	return n.healthy
}

// All returns every GPU of the node.
func (n *Node) All() Mask {
	var m Mask
	for _, g := range n.GPUs {
		m |= 1 << g.Index
	}
	return m
}

// Faults is how many its GPUs had in the last 24 hours.
func (n *Node) Faults() int { return n.faults }

// FaultsOf is how many some of its GPUs had.
func (n *Node) FaultsOf(gpus Mask) int {
	if n.faults == 0 {
		return 0
	}
	sum := 0
	for _, g := range n.GPUs {
		if gpus.Has(1 << g.Index) {
			sum += g.Faults
		}
	}
	return sum
}

// Islands returns the NVLink islands, by their lowest GPU.
func (n *Node) Islands() []Mask { return n.islands }

// Domain returns the node's domain at the level, 0 being the widest.
func (n *Node) Domain(level int) *Domain { return n.domains[level] }

// check returns what makes a spec unusable.
func (s *Spec) check(levels int) error {
	if len(s.Domains) != levels {
		return fmt.Errorf("node %s has %d domains for %d levels", s.ID, len(s.Domains), levels)
	}
	var seen Mask
	for _, g := range s.GPUs {
		if g.Index < 0 || g.Index >= MaxGPUsPerNode {
			return fmt.Errorf("node %s: GPU %s has the index %d, at most %d are known", s.ID, g.UUID, g.Index, MaxGPUsPerNode-1)
		}
		if seen&(1<<g.Index) != 0 {
			return fmt.Errorf("node %s: two GPUs have the index %d", s.ID, g.Index)
		}
		seen |= 1 << g.Index
	}
	return nil
}

// derive computes what follows from the spec.
func (n *Node) derive() {
	n.healthy, n.islands, n.Model, n.MemoryMiB, n.faults = 0, nil, "", 0, 0
	slices.SortFunc(n.GPUs, func(a, b GPU) int { return a.Index - b.Index })
	byIsland := make(map[int]int)
	for i, g := range n.GPUs {
		if i == 0 {
			n.Model, n.MemoryMiB = g.Model, g.MemoryMiB
		}
		n.MemoryMiB = min(n.MemoryMiB, g.MemoryMiB)
		n.faults += g.Faults
		if g.Healthy {
			n.healthy |= 1 << g.Index
		}
		at, known := byIsland[g.Island]
		if !known {
			at = len(n.islands)
			byIsland[g.Island] = at
			n.islands = append(n.islands, 0)
		}
		n.islands[at] |= 1 << g.Index
	}
}
