package cluster

import (
	"fmt"
	"slices"
)

// Domain is a part of the topology: the cluster, a spine, a leaf. Its nodes
// are those of its children, or, on the narrowest level, its own.
type Domain struct {
	Name     string
	Parent   *Domain
	children []*Domain
	byName   map[string]*Domain
	nodes    []*Node // on the narrowest level
	indexes  []int   // theirs
	// first is the index of the first node seen in it, which orders domains.
	first int
	// kinds are the GPU models that were ever seen; tallies[view] has, in their
	// order, the counts of the nodes of each model by their GPUs.
	kinds   *kinds
	tallies [views][]tally
}

// kinds numbers models; there are few, and none is forgotten.
type kinds struct{ names []string }

// find returns the number of a model, -1 where it was never seen.
func (k *kinds) find(model string) int { return slices.Index(k.names, model) }

// number returns the number of a model, and gives it one where it has none.
func (k *kinds) number(model string) int {
	if i := k.find(model); i >= 0 {
		return i
	}
	k.names = append(k.names, model)
	return len(k.names) - 1
}

// tally counts nodes by a number of GPUs: with at least so many of them.
type tally struct {
	with [MaxGPUsPerNode + 1]int
	gpus int
}

func newDomain(parent *Domain, name string, k *kinds) *Domain {
	return &Domain{Name: name, Parent: parent, first: -1, byName: make(map[string]*Domain), kinds: k}
}

// Children lists the domains of the next level, by their first node.
func (d *Domain) Children() []*Domain { return d.children }

// Nodes lists the nodes of a domain of the narrowest level.
func (d *Domain) Nodes() []*Node { return d.nodes }

// Indexes are those of Nodes, in the same order.
func (d *Domain) Indexes() []int { return d.indexes }

// First orders domains: the index of the first node seen in it.
func (d *Domain) First() int { return d.first }

// GPUs returns how many GPUs of the model there are.
func (d *Domain) GPUs(v View, model string) int {
	if t := d.tally(v, model); t != nil {
		return t.gpus
	}
	return 0
}

// NodesWith returns how many nodes of the model have at least n GPUs.
func (d *Domain) NodesWith(v View, model string, n int) int {
	if t := d.tally(v, model); t != nil && n < len(t.with) {
		return t.with[n]
	}
	return 0
}

func (d *Domain) tally(v View, model string) *tally {
	if i := d.kinds.find(model); i >= 0 && i < len(d.tallies[v]) {
		return &d.tallies[v][i]
	}
	return nil
}

// join puts a node into its domains, which are made where they are missing.
func (c *Cluster) join(n *Node) {
	d := c.root
	n.domains = n.domains[:0]
	d.see(n)
	for _, name := range n.Domains {
		child := d.byName[name]
		if child == nil {
			child = newDomain(d, name, d.kinds)
			d.byName[name] = child
			d.children = append(d.children, child)
		}
		child.see(n)
		n.domains = append(n.domains, child)
		d = child
	}
	at, _ := slices.BinarySearchFunc(d.nodes, n.index, func(m *Node, i int) int { return m.index - i })
	d.nodes = slices.Insert(d.nodes, at, n)
	d.indexes = slices.Insert(d.indexes, at, n.index)
	for d := d.Parent; d != nil; d = d.Parent {
		d.order()
	}
}

func (d *Domain) order() {
	slices.SortStableFunc(d.children, func(a, b *Domain) int { return a.first - b.first })
}

func (d *Domain) see(n *Node) {
	if d.first < 0 || n.index < d.first {
		d.first = n.index
	}
}

// leave takes a node out of its domains; domains that are left empty go, and
// others may come behind their neighbours.
func (c *Cluster) leave(n *Node) {
	d := c.root
	if len(n.domains) > 0 {
		d = n.domains[len(n.domains)-1]
	}
	if at := slices.Index(d.nodes, n); at >= 0 {
		d.nodes = slices.Delete(d.nodes, at, at+1)
		d.indexes = slices.Delete(d.indexes, at, at+1)
	}
	for ; d.Parent != nil; d = d.Parent {
		d.refind()
		if len(d.nodes) == 0 && len(d.children) == 0 {
			gone, parent := d, d.Parent
			delete(parent.byName, gone.Name)
			parent.children = slices.DeleteFunc(parent.children, func(k *Domain) bool { return k == gone })
		}
		d.Parent.order()
	}
}

// refind computes anew which node is the first.
func (d *Domain) refind() {
	d.first = -1
	for _, n := range d.nodes {
		d.see(n)
	}
	for _, k := range d.children {
		if d.first < 0 || k.first < d.first {
			d.first = k.first
		}
	}
}

// count adds a node to, or takes it from, the tallies of its domains.
func (c *Cluster) count(n *Node, sign int) {
	c.root.add(n, sign)
	for _, d := range n.domains {
		d.add(n, sign)
	}
}

func (d *Domain) add(n *Node, sign int) {
	for v := range d.tallies {
		for len(d.tallies[v]) <= n.kind {
			d.tallies[v] = append(d.tallies[v], tally{})
		}
		t := &d.tallies[v][n.kind]
		gpus := n.In(View(v)).Count()
		for k := range gpus + 1 {
			t.with[k] += sign
		}
		t.gpus += sign * gpus
	}
}

// recount notes that a node has another number of free GPUs than before.
func (c *Cluster) recount(n *Node, before int) {
	after := n.Free().Count()
	if after == before {
		return
	}
	c.root.tallies[Free][n.kind].move(before, after)
	for _, d := range n.domains {
		d.tallies[Free][n.kind].move(before, after)
	}
}

func (t *tally) move(before, after int) {
	t.gpus += after - before
	for k := before; k > after; k-- {
		t.with[k]--
	}
	for k := before + 1; k <= after; k++ {
		t.with[k]++
	}
}

// differs returns the first difference of two domains and all below them.
func (d *Domain) differs(e *Domain) error {
	for v := range d.tallies {
		for i, model := range d.kinds.names {
			var kept, want tally
			if i < len(d.tallies[v]) {
				kept = d.tallies[v][i]
			}
			if t := e.tally(View(v), model); t != nil {
				want = *t
			}
			if kept != want {
				return fmt.Errorf("domain %q: the count of %s nodes by GPUs is %v, rebuilt %v", d.Name, model, kept.with, want.with)
			}
		}
	}
	if len(d.children) != len(e.children) || len(d.nodes) != len(e.nodes) {
		return fmt.Errorf("domain %q has %d domains and %d nodes, rebuilt %d and %d", d.Name, len(d.children), len(d.nodes), len(e.children), len(e.nodes))
	}
	for i, n := range d.nodes {
		if d.indexes[i] != n.index {
			return fmt.Errorf("domain %q: node %d has the index %d, kept is %d", d.Name, i, n.index, d.indexes[i])
		}
	}
	for i := range d.children {
		if d.children[i].Name != e.children[i].Name {
			return fmt.Errorf("domain %q: child %d is %q, rebuilt %q", d.Name, i, d.children[i].Name, e.children[i].Name)
		}
		if err := d.children[i].differs(e.children[i]); err != nil {
			return err
		}
	}
	return nil
}

// Contains reports whether the node lies in the domain.
func (d *Domain) Contains(n *Node) bool {
	if d.Parent == nil {
		return true
	}
	for _, own := range n.domains {
		if own == d {
			return true
		}
	}
	return false
}
