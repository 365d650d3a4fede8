package cluster

import (
	"github.com/gangd/gangd/internal/gang"

	"fmt"
	"strings"
	"testing"
)

// tree prints domains with their nodes, e.g. "s0(l0[a b] l1[c])".
func tree(d *Domain) string {
	var parts []string
	for _, k := range d.Children() {
		parts = append(parts, tree(k))
	}
	if len(parts) > 0 {
		return fmt.Sprintf("%s(%s)", d.Name, strings.Join(parts, " "))
	}
	for _, n := range d.Nodes() {
		parts = append(parts, n.ID)
	}
	return fmt.Sprintf("%s[%s]", d.Name, strings.Join(parts, " "))
}

func TestDomainsAreOrderedByTheirFirstNode(t *testing.T) {
	c := New([]string{"spine", "leaf"})
	for _, n := range []Spec{nodeAt("a", "s1", "l9"), nodeAt("b", "s0", "l0"), nodeAt("c", "s1", "l2"), nodeAt("d", "s1", "l9")} {
		mustSet(t, c, n)
	}
	if got, want := tree(c.Root()), "(s1(l9[a d] l2[c]) s0(l0[b]))"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A level's names need be unique within the domain above only.
func TestEqualNamesBelowOtherDomains(t *testing.T) {
	c := New([]string{"spine", "leaf"})
	mustSet(t, c, nodeAt("a", "s0", "l0"))
	mustSet(t, c, nodeAt("b", "s1", "l0"))
	if got, want := tree(c.Root()), "(s0(l0[a]) s1(l0[b]))"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	a, b := c.Node("a"), c.Node("b")
	if d := a.Domain(1); !d.Contains(a) || d.Contains(b) || !d.Parent.Contains(a) || d.Parent.Contains(b) || !c.Root().Contains(b) {
		t.Error("Contains() confuses two leaves of one name")
	}
}

func TestNodesMove(t *testing.T) {
	c := New([]string{"spine", "leaf"})
	for _, n := range []Spec{nodeAt("a", "s0", "l0"), nodeAt("b", "s0", "l1"), nodeAt("c", "s0", "l0"), nodeAt("d", "s1", "l2")} {
		mustSet(t, c, n)
	}
	c.Take(c.Node("a"), MaskOf([]int{0, 1}), gang.Need{})
	for _, step := range []struct {
		node Spec
		want string
	}{
		// l0 now begins with c, and comes behind l1.
		{nodeAt("a", "s1", "l2"), "(s1(l2[a d]) s0(l1[b] l0[c]))"},
		{nodeAt("b", "s0", "l0"), "(s1(l2[a d]) s0(l0[b c]))"},
		{nodeAt("a", "s2", "l3"), "(s2(l3[a]) s0(l0[b c]) s1(l2[d]))"},
		{nodeAt("d", "s0", "l9"), "(s2(l3[a]) s0(l0[b c] l9[d]))"},
	} {
		mustSet(t, c, step.node)
		if got := tree(c.Root()); got != step.want {
			t.Errorf("after %s went to %v: %s, want %s", step.node.ID, step.node.Domains, got, step.want)
		}
		if err := c.Check(); err != nil {
			t.Error(err)
		}
	}
	if got := c.Node("a").Domain(0).GPUs(Free, "H100"); got != 2 {
		t.Errorf("%d GPUs are free where a went, want the 2 that nobody holds", got)
	}
}

func TestCountsOfADomain(t *testing.T) {
	c := New([]string{"leaf"})
	for i, held := range []int{0, 1, 4} {
		id := fmt.Sprint("n", i)
		mustSet(t, c, nodeAt(id, "l0"))
		c.Take(c.Node(id), c.Node(id).All().Lowest(held), gang.Need{})
	}
	d := c.Node("n0").Domain(0)
	for n, want := range []int{3, 2, 2, 2, 1, 0} {
		if got := d.NodesWith(Free, "H100", n); got != want {
			t.Errorf("%d nodes with %d GPUs free, want %d", got, n, want)
		}
	}
	if got := d.NodesWith(Free, "H100", 1000); got != 0 {
		t.Errorf("%d nodes with 1000 GPUs free", got)
	}
	if got := d.GPUs(Free, "H100"); got != 7 {
		t.Errorf("%d GPUs free, want 7", got)
	}
	if got := d.GPUs(Free, "B200") + d.NodesWith(Free, "B200", 1); got != 0 {
		t.Errorf("%d GPUs and nodes of a model that is not there", got)
	}
}

func TestModelOfANodeChanges(t *testing.T) {
	c := New(nil)
	mustSet(t, c, nodeAt("n"))
	s := nodeAt("n")
	s.GPUs = gpus("B200", 8, 8)
	mustSet(t, c, s)
	if got := c.Root().GPUs(Total, "H100"); got != 0 {
		t.Errorf("%d H100 are still counted", got)
	}
	if got := c.Root().NodesWith(Free, "B200", 8); got != 1 {
		t.Errorf("%d nodes with 8 free B200, want 1", got)
	}
}
