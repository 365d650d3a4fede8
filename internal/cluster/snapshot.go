package cluster

import (
	"fmt"
	"slices"

	"github.com/gangd/gangd/internal/gang"
)

// Snapshot is all of a cluster that its indexes follow from, but for what members
// hold: those who placed them know that.
type Snapshot struct {
	Nodes []NodeSnapshot `json:"nodes,omitempty"`
	// Seen counts the nodes that ever came.
	Seen int `json:"seen"`
	// Most is the greatest need for each GPU that was expected.
	Most gang.Need `json:"most,omitzero"`
}

// NodeSnapshot is a node with its place in the order, and what is warm on it.
type NodeSnapshot struct {
	Spec  Spec `json:"spec"`
	Index int  `json:"index"`
	// Ran are the sets of GPUs on which a model ran last, Declared those that a
	// node was said to be warm for.
	Ran      []WarmSet `json:"ran,omitempty"`
	Declared []WarmSet `json:"declared,omitempty"`
}

// WarmSet is GPUs that have the weights of a model in their memory.
type WarmSet struct {
	Model string `json:"model"`
	GPUs  Mask   `json:"gpus"`
}

// Snapshot copies what the cluster is made of.
func (c *Cluster) Snapshot() Snapshot {
	s := Snapshot{Seen: c.seen, Most: c.most}
	for _, n := range c.nodes {
		s.Nodes = append(s.Nodes, NodeSnapshot{n.Spec, n.index, slices.Clone(n.warm.ran), slices.Clone(n.warm.declared)})
	}
	return s
}

// maxSeen bounds the nodes that ever came: what is kept by their places has that
// many.
const maxSeen = 1 << 20

// Restore makes a cluster of a snapshot, on which nothing is held yet. An error
// says what of the snapshot contradicts itself.
func Restore(levels []string, s Snapshot) (*Cluster, error) {
	c := New(levels)
	if s.Seen < 0 || s.Seen > maxSeen {
		return nil, fmt.Errorf("%d nodes were ever seen, which is not between 0 and %d", s.Seen, maxSeen)
	}
	for _, n := range s.Nodes {
		if n.Index < c.seen || n.Index >= s.Seen || c.byID[n.Spec.ID] != nil {
			return nil, fmt.Errorf("node %s is number %d of %d, after number %d, or it is there twice", n.Spec.ID, n.Index, s.Seen, c.seen-1)
		}
		c.seen = n.Index
		if err := c.Set(n.Spec); err != nil {
			return nil, err
		}
		c.byID[n.Spec.ID].warm = warmth{slices.Clone(n.Ran), slices.Clone(n.Declared)}
	}
	c.seen = s.Seen
	c.Expect(s.Most, 1)
	return c, nil
}
