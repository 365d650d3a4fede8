package cluster

import (
	"github.com/gangd/gangd/internal/gang"

	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestTakingWhatIsHeldPanics(t *testing.T) {
	c := New(nil)
	mustSet(t, c, nodeAt("n"))
	n := c.Node("n")
	c.Take(n, MaskOf([]int{1, 2}), gang.Need{})
	mustPanic(t, "take a held GPU", func() { c.Take(n, MaskOf([]int{2, 3}), gang.Need{}) })
	mustPanic(t, "release what nobody holds", func() { c.Release(n, MaskOf([]int{1, 3}), gang.Need{}) })
	if got := n.Used(); got != MaskOf([]int{1, 2}) {
		t.Errorf("after the panics %v are held, want [1 2]", got.Indexes())
	}
}

func TestSetWithinATrialPanics(t *testing.T) {
	c := New(nil)
	mustSet(t, c, nodeAt("n"))
	mark := c.Mark()
	mustPanic(t, "set a node within a trial", func() { _ = c.Set(nodeAt("n")) })
	c.Rollback(mark)
	mustSet(t, c, nodeAt("n"))
}

func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", what)
		}
	}()
	f()
}

// A spec belongs to its caller: what becomes of it later is not the cluster's.
func TestSetKeepsNothingOfItsArgument(t *testing.T) {
	c := New([]string{"leaf"})
	s := nodeAt("n", "l0")
	mustSet(t, c, s)
	s.GPUs[0].Healthy = false
	s.Domains[0] = "elsewhere"
	n := c.Node("n")
	if !n.GPUs[0].Healthy || n.Domains[0] != "l0" {
		t.Errorf("the node changed with its caller's spec: %+v", n.Spec)
	}
}

func TestOuterRollbackUndoesInnerCommit(t *testing.T) {
	c := New(nil)
	mustSet(t, c, nodeAt("n"))
	n := c.Node("n")
	outer := c.Mark()
	c.Take(n, 1, gang.Need{})
	c.Mark()
	c.Take(n, 2, gang.Need{})
	c.Commit()
	if got := c.Root().GPUs(Free, "H100"); got != 2 {
		t.Errorf("%d free within the trial, want 2", got)
	}
	c.Rollback(outer)
	if got := c.Root().GPUs(Free, "H100"); got != 4 {
		t.Errorf("%d free after the rollback, want 4", got)
	}
}

// machine drives a cluster at random beside a model that keeps, for each
// node, what is held.
type machine struct {
	c     *Cluster
	ids   []string
	held  map[string]Mask
	marks []mark
}

// mark remembers what was held when a trial began.
type mark struct {
	at   int
	held map[string]Mask
}

var levels = []string{"spine", "leaf"}

func (m *machine) Check(t *rapid.T) {
	if err := m.c.Check(); err != nil {
		t.Fatal(err)
	}
	for _, id := range m.ids {
		if got := m.c.Node(id).Used(); got != m.held[id] {
			t.Fatalf("GPUs %v of %s are held, want %v", got.Indexes(), id, m.held[id].Indexes())
		}
	}
	if len(m.marks) == 0 && len(m.c.journal) > 0 {
		t.Fatalf("no trial is open, and the journal keeps %d changes", len(m.c.journal))
	}
	m.checkCounts(t, m.c.Root(), m.c.Nodes())
}

// checkCounts holds the counts of a domain, and of all below, against its
// nodes.
func (m *machine) checkCounts(t *rapid.T, d *Domain, nodes []*Node) {
	inside := 0
	for _, model := range m.c.Models() {
		for v := range views {
			gpus, with := 0, [MaxGPUsPerNode + 2]int{}
			for _, n := range nodes {
				if n.Model != model || !d.Contains(n) {
					continue
				}
				inside++
				count := n.In(v).Count()
				gpus += count
				for k := range count + 1 {
					with[k]++
				}
			}
			if got := d.GPUs(v, model); got != gpus {
				t.Fatalf("domain %q counts %d %s GPUs in view %d, want %d", d.Name, got, model, v, gpus)
			}
			for k, want := range with {
				if got := d.NodesWith(v, model, k); got != want {
					t.Fatalf("domain %q counts %d nodes with %d %s in view %d, want %d", d.Name, got, k, model, v, want)
				}
			}
		}
	}
	if d.Parent != nil && inside == 0 {
		t.Fatalf("domain %q is empty and still there", d.Name)
	}
	last := -1
	for _, k := range d.Children() {
		if k.First() <= last {
			t.Fatalf("domain %q: child %q begins with node %d, behind one that begins with %d", d.Name, k.Name, k.First(), last)
		}
		last = k.First()
		m.checkCounts(t, k, nodes)
	}
}

func (m *machine) Set(t *rapid.T) {
	if len(m.marks) > 0 {
		t.Skip("within a trial")
	}
	id := fmt.Sprint("n", rapid.IntRange(0, 7).Draw(t, "node"))
	s := Spec{
		ID: id, Name: id, Schedulable: rapid.Float64Range(0, 1).Draw(t, "schedulable") < 0.8,
		Domains: []string{
			fmt.Sprint("s", rapid.IntRange(0, 2).Draw(t, "spine")),
			fmt.Sprint("l", rapid.IntRange(0, 2).Draw(t, "leaf")),
		},
		GPUs: gpus(rapid.SampledFrom([]string{"H100", "B200"}).Draw(t, "model"), rapid.IntRange(1, 8).Draw(t, "gpus"), 4),
	}
	for i := range s.GPUs {
		s.GPUs[i].Healthy = rapid.Float64Range(0, 1).Draw(t, "healthy") < 0.8
	}
	if m.c.Node(id) == nil {
		m.ids = append(m.ids, id)
	}
	if err := m.c.Set(s); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) Remove(t *rapid.T) {
	n := m.node(t)
	if len(m.marks) > 0 {
		t.Skip("within a trial")
	}
	held := n.Used() != 0
	if err := m.c.Remove(n.ID); held != (err != nil) {
		t.Fatalf("node %s, held %t, is removed: %v", n.ID, held, err)
	}
	if held {
		return
	}
	m.ids = slices.DeleteFunc(m.ids, func(id string) bool { return id == n.ID })
	if m.c.Node(n.ID) != nil || slices.Contains(m.c.Nodes(), n) {
		t.Fatalf("node %s is still there", n.ID)
	}
}

func (m *machine) node(t *rapid.T) *Node {
	if len(m.ids) == 0 {
		t.Skip("no nodes")
	}
	return m.c.Node(rapid.SampledFrom(m.ids).Draw(t, "node"))
}

func (m *machine) Take(t *rapid.T) {
	n := m.node(t)
	gpus := n.Free().Lowest(rapid.IntRange(0, 8).Draw(t, "gpus"))
	m.c.Take(n, gpus, needFor(gpus))
	m.held[n.ID] |= gpus
}

func (m *machine) Release(t *rapid.T) {
	n := m.node(t)
	gpus := n.Used().Lowest(rapid.IntRange(0, 8).Draw(t, "gpus"))
	m.c.Release(n, gpus, needFor(gpus))
	m.held[n.ID] &^= gpus
}

// needFor is what some GPUs bring with them, so that what is held beside GPUs
// follows from these.
func needFor(gpus Mask) gang.Need {
	return gang.Need{CPUMHz: 10 * gpus.Count(), Cores: gpus.Count(), MemoryMiB: 100 * gpus.Count()}
}

func (m *machine) Mark(t *rapid.T) {
	if len(m.marks) == 3 {
		t.Skip("deep enough")
	}
	held := make(map[string]Mask, len(m.held))
	for id, gpus := range m.held {
		held[id] = gpus
	}
	m.marks = append(m.marks, mark{m.c.Mark(), held})
}

func (m *machine) pop(t *rapid.T) mark {
	if len(m.marks) == 0 {
		t.Skip("no trial")
	}
	last := m.marks[len(m.marks)-1]
	m.marks = m.marks[:len(m.marks)-1]
	return last
}

func (m *machine) Rollback(t *rapid.T) {
	last := m.pop(t)
	m.c.Rollback(last.at)
	m.held = last.held
}

func (m *machine) Commit(t *rapid.T) {
	m.pop(t)
	m.c.Commit()
}

func TestIndexesAreThoseOfARebuiltCluster(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{c: New(levels), held: make(map[string]Mask)}
		t.Repeat(rapid.StateMachineActions(m))
	})
}
