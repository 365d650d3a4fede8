package cluster

import (
	"fmt"
	"slices"

	"github.com/gangd/gangd/internal/gang"
)

// Cluster is all nodes and the domains above them.
type Cluster struct {
	levels []string // widest first
	nodes  []*Node
	seen   int // how many nodes ever came, which orders them
	byID   map[string]*Node
	root   *Domain
	models []string
	memory []int // least memory of a GPU, by model as models has them
	spots  int
	// most is the greatest need for each GPU that was expected, tight counts the
	// nodes of each model that it may exhaust.
	most    gang.Need
	tight   map[string]int
	journal []undo
	marks   int
	// version is that of the present state, last the last one that was given.
	version, last uint64
}

// New makes an empty cluster with the given levels, widest first; the node is
// below the last one.
func New(levels []string) *Cluster {
	return &Cluster{
		levels: slices.Clone(levels),
		byID:   make(map[string]*Node),
		tight:  make(map[string]int),
		root:   newDomain(nil, "", new(kinds)),
		// no state has the version 0
		version: 1, last: 1,
	}
}

// Levels names the levels, widest first.
func (c *Cluster) Levels() []string { return c.levels }

// Level returns the index of the level with this name.
func (c *Cluster) Level(name string) (int, bool) {
	i := slices.Index(c.levels, name)
	return i, i >= 0
}

// Root is the domain of all nodes.
func (c *Cluster) Root() *Domain { return c.root }

// Nodes lists the nodes in the order in which they were first seen.
func (c *Cluster) Nodes() []*Node { return c.nodes }

// Node returns the node with this ID, or nil.
func (c *Cluster) Node(id string) *Node { return c.byID[id] }

// Models lists the GPU models that there are, by their first node.
func (c *Cluster) Models() []string { return c.models }

// LeastMemory is the memory that each node of a model has on its GPUs, or more,
// in MiB.
func (c *Cluster) LeastMemory(model string) int {
	if i := slices.Index(c.models, model); i >= 0 {
		return c.memory[i]
	}
	return 0
}

func (c *Cluster) findModels() {
	c.models, c.memory = c.models[:0], c.memory[:0]
	for _, n := range c.nodes {
		if n.Model == "" {
			continue
		}
		i := slices.Index(c.models, n.Model)
		if i < 0 {
			i = len(c.models)
			c.models, c.memory = append(c.models, n.Model), append(c.memory, n.MemoryMiB)
		}
		c.memory[i] = min(c.memory[i], n.MemoryMiB)
	}
}

// Spots counts the nodes that may be taken away.
func (c *Cluster) Spots() int { return c.spots }

// Set adds a node, or replaces what was observed of it; what members hold on
// it stays held. It may not be called within a trial.
func (c *Cluster) Set(spec Spec) error {
	c.mustNotTry("Set")
	if err := spec.check(len(c.levels)); err != nil {
		return fmt.Errorf("take node %s into the cluster: %w", spec.ID, err)
	}
	n := c.byID[spec.ID]
	fresh := n == nil
	if fresh {
		n = &Node{index: c.seen}
		c.seen++
		c.nodes = append(c.nodes, n)
		c.byID[spec.ID] = n
	} else {
		c.count(n, -1)
		c.leave(n)
	}
	model, memory := n.Model, n.MemoryMiB
	c.spots += spot(spec) - spot(n.Spec)
	n.Spec = spec
	n.Domains = slices.Clone(spec.Domains)
	n.GPUs = slices.Clone(spec.GPUs)
	n.derive()
	n.kind = c.root.kinds.number(n.Model)
	if fresh {
		n.declareWarm(spec.Warm)
	}
	if n.Model != model || n.MemoryMiB != memory {
		c.findModels()
	}
	c.findTight(n)
	c.join(n)
	c.count(n, +1)
	c.changed()
	return nil
}

// changed gives the state that the cluster is in now a version that none had
// before.
func (c *Cluster) changed() {
	c.last++
	c.version = c.last
}

// Version tells states of the cluster apart: while it is the same, so is all
// that is held, and all that is known of nodes and expected of members. It is
// never 0.
func (c *Cluster) Version() uint64 { return c.version }

func spot(s Spec) int {
	if s.Spot {
		return 1
	}
	return 0
}

// Remove forgets a node, on which nothing may be held. A node that comes again
// is a new one, and the last in order. It may not be called within a trial.
func (c *Cluster) Remove(id string) error {
	c.mustNotTry("Remove")
	n := c.byID[id]
	if n == nil {
		return fmt.Errorf("remove node %s from the cluster: it is not there", id)
	}
	if n.used != 0 {
		return fmt.Errorf("remove node %s from the cluster: GPUs %v are held on it", id, n.used.Indexes())
	}
	c.count(n, -1)
	c.leave(n)
	c.spots -= spot(n.Spec)
	c.loosen(n)
	delete(c.byID, id)
	c.nodes = slices.DeleteFunc(c.nodes, func(m *Node) bool { return m == n })
	c.findModels()
	c.changed()
	return nil
}

// Take gives GPUs of a node to a member, and what it needs beside. It panics when one of them is held:
// two gangs on one GPU is the one thing that must never be.
func (c *Cluster) Take(n *Node, gpus Mask, need gang.Need) {
	if n.used&gpus != 0 {
		panic(fmt.Sprintf("GPUs %v of node %s are held already", (n.used & gpus).Indexes(), n.ID))
	}
	c.setUsed(n, n.used|gpus, n.held.Plus(need))
}

// Release takes GPUs back from a member, and what it needed beside. It panics when one of them is not
// held.
func (c *Cluster) Release(n *Node, gpus Mask, need gang.Need) {
	if !n.used.Has(gpus) {
		panic(fmt.Sprintf("GPUs %v of node %s are not held", (gpus &^ n.used).Indexes(), n.ID))
	}
	c.setUsed(n, n.used&^gpus, n.held.Less(need))
}

func (c *Cluster) setUsed(n *Node, used Mask, held gang.Need) {
	if c.marks > 0 {
		c.journal = append(c.journal, undo{n, n.used, n.held, c.version})
	}
	before := n.Free().Count()
	n.used, n.held = used, held
	c.recount(n, before)
	c.changed()
}

// undo restores what members held of a node.
type undo struct {
	node *Node
	used Mask
	held gang.Need
	// version is that of the state before.
	version uint64
}

// Mark begins a trial and returns where to roll back to. Trials nest.
func (c *Cluster) Mark() int {
	c.marks++
	return len(c.journal)
}

// Rollback ends the trial that began at mark, and undoes it.
func (c *Cluster) Rollback(mark int) {
	for i := len(c.journal) - 1; i >= mark; i-- {
		u := c.journal[i]
		before := u.node.Free().Count()
		u.node.used, u.node.held = u.used, u.held
		c.recount(u.node, before)
		c.version = u.version
	}
	c.journal = c.journal[:mark]
	c.marks--
}

// Commit ends the innermost trial, and keeps what it did.
func (c *Cluster) Commit() {
	c.marks--
	if c.marks == 0 {
		c.journal = c.journal[:0]
	}
}

func (c *Cluster) mustNotTry(what string) {
	if c.marks > 0 {
		panic("cluster: " + what + " within a trial")
	}
}

// Check rebuilds every index from the nodes alone, and returns how it differs
// from the one that was kept.
func (c *Cluster) Check() error {
	fresh := New(c.levels)
	fresh.most = c.most
	for _, n := range c.nodes {
		if err := fresh.Set(n.Spec); err != nil {
			return err
		}
		fresh.setUsed(fresh.byID[n.ID], n.used, n.held)
	}
	for _, model := range fresh.models {
		if kept, want := c.tight[model], fresh.tight[model]; want > kept {
			return fmt.Errorf("%d nodes of model %q are kept as tight, rebuilt %d", kept, model, want)
		}
	}
	return c.root.differs(fresh.root)
}
