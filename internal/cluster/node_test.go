package cluster

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gangd/gangd/internal/gang"
)

func TestMask(t *testing.T) {
	m := MaskOf([]int{5, 0, 63, 2})
	if got := m.Indexes(); !slices.Equal(got, []int{0, 2, 5, 63}) {
		t.Errorf("Indexes() = %v", got)
	}
	if got := m.Count(); got != 4 {
		t.Errorf("Count() = %d", got)
	}
	if !m.Has(MaskOf([]int{2, 63})) || m.Has(MaskOf([]int{2, 3})) || !m.Has(0) {
		t.Error("Has() takes what is not there, or does not take what is")
	}
	for n, want := range map[int][]int{0: {}, 1: {0}, 3: {0, 2, 5}, 9: {0, 2, 5, 63}} {
		if got := m.Lowest(n).Indexes(); !slices.Equal(got, want) {
			t.Errorf("Lowest(%d) = %v, want %v", n, got, want)
		}
	}
	if got := Mask(0).Indexes(); len(got) != 0 {
		t.Errorf("the empty mask has %v", got)
	}
}

// gpus makes n healthy GPUs in islands of the given size.
func gpus(model string, n, island int) []GPU {
	out := make([]GPU, n)
	for i := range out {
		out[i] = GPU{UUID: model + "-" + string(rune('a'+i)), Index: i, Model: model, MemoryMiB: 80 << 10, Island: i / island, Healthy: true}
	}
	return out
}

func nodeAt(id string, domains ...string) Spec {
	return Spec{ID: id, Name: id, Domains: domains, GPUs: gpus("H100", 4, 2), Schedulable: true}
}

// What a node has, in each view, by the state of its GPUs and of itself.
func TestViews(t *testing.T) {
	held := MaskOf([]int{0})
	for _, c := range []struct {
		name                string
		change              func(*Spec)
		free, usable, total []int
	}{
		{"in order", func(*Spec) {}, []int{1, 2, 3}, []int{0, 1, 2, 3}, []int{0, 1, 2, 3}},
		{"a free GPU is ill", func(s *Spec) { s.GPUs[3].Healthy = false }, []int{1, 2}, []int{0, 1, 2}, []int{0, 1, 2, 3}},
		{"a held GPU is ill", func(s *Spec) { s.GPUs[0].Healthy = false }, []int{1, 2, 3}, []int{1, 2, 3}, []int{0, 1, 2, 3}},
		{"drained", func(s *Spec) { s.Schedulable = false }, nil, nil, []int{0, 1, 2, 3}},
		{"a held GPU fell off the bus", func(s *Spec) { s.GPUs = s.GPUs[1:] }, []int{1, 2, 3}, []int{1, 2, 3}, []int{1, 2, 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := New(nil)
			mustSet(t, cl, nodeAt("n"))
			n := cl.Node("n")
			cl.Take(n, held, gang.Need{})
			s := nodeAt("n")
			c.change(&s)
			mustSet(t, cl, s)
			for v, want := range map[View][]int{Free: c.free, Usable: c.usable, Total: c.total} {
				if got := n.In(v); got != MaskOf(want) {
					t.Errorf("view %d shows %v, want %v", v, got.Indexes(), want)
				}
				if got := cl.Root().GPUs(v, "H100"); got != len(want) {
					t.Errorf("the cluster counts %d GPUs in view %d, want %d", got, v, len(want))
				}
			}
			if n.Used() != held {
				t.Errorf("%v are held, want %v: members keep what they hold", n.Used().Indexes(), held.Indexes())
			}
		})
	}
}

func TestIslands(t *testing.T) {
	s := nodeAt("n")
	for i, island := range []int{7, 0, 7, 0} { // neither in order nor adjacent
		s.GPUs[i].Island = island
	}
	slices.Reverse(s.GPUs)
	c := New(nil)
	mustSet(t, c, s)
	want := []Mask{MaskOf([]int{0, 2}), MaskOf([]int{1, 3})}
	if got := c.Node("n").Islands(); !reflect.DeepEqual(got, want) {
		t.Errorf("Islands() = %v, want %v", got, want)
	}
}

// The memory that a member may count on is that of the smallest GPU.
func TestNodeMemoryIsTheLeast(t *testing.T) {
	s := nodeAt("n")
	s.GPUs[2].MemoryMiB = 40 << 10
	c := New(nil)
	mustSet(t, c, s)
	if got := c.Node("n").MemoryMiB; got != 40<<10 {
		t.Errorf("MemoryMiB = %d", got)
	}
}

func TestUnusableSpecsAreRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Spec)
		words  string
	}{
		{"too few domains", func(s *Spec) { s.Domains = nil }, "0 domains for 1 levels"},
		{"too many domains", func(s *Spec) { s.Domains = []string{"a", "b"} }, "2 domains for 1 levels"},
		{"a negative index", func(s *Spec) { s.GPUs[0].Index = -1 }, "index -1"},
		{"an index beyond the mask", func(s *Spec) { s.GPUs[0].Index = MaxGPUsPerNode }, "index 64"},
		{"two GPUs of one index", func(s *Spec) { s.GPUs[0].Index = 3 }, "two GPUs have the index 3"},
	} {
		c2 := New([]string{"leaf"})
		mustSet(t, c2, nodeAt("n", "l0"))
		s := nodeAt("n", "l1")
		c.change(&s)
		if err := c2.Set(s); err == nil || !strings.Contains(err.Error(), c.words) || !strings.Contains(err.Error(), "node n") {
			t.Errorf("%s: %v, want a refusal with %q", c.name, err, c.words)
		}
		if got := c2.Node("n").Domain(0).Name; got != "l0" {
			t.Errorf("%s: the refused node is in %s, want it unchanged in l0", c.name, got)
		}
	}
}

func mustSet(t *testing.T, c *Cluster, s Spec) {
	t.Helper()
	if err := c.Set(s); err != nil {
		t.Fatal(err)
	}
}
