package schedule

import (
	"fmt"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// fragmented makes a cluster of 125 leaves with 16 nodes of 8 GPUs each, 90 %
// used: the middle leaf has so many nodes that are wholly free, 96 more are
// scattered, at most 7 in a leaf, and the rest of the 1,600 free GPUs are
// single ones on busy nodes.
func fragmented(tb testing.TB, whole int) *Engine {
	const leaves, nodes, scattered, free = 125, 16, 96, 1600
	e := New(Config{Levels: []string{"leaf"}, Tiers: []Tier{{"production", 1}}})
	singles, left := free-8*(whole+scattered), scattered
	var all Together
	for leaf := range leaves {
		empty := min(left, leaf%8)
		if leaf == leaves/2 {
			empty = whole
		} else {
			left -= empty
		}
		for i := range nodes {
			id := fmt.Sprintf("n-%d-%d", leaf, i)
			all = append(all, NodeSet{benchNode(id, fmt.Sprint("l", leaf))})
			held := []int{0, 1, 2, 3, 4, 5, 6, 7}
			if i < empty {
				continue
			}
			if singles > 0 && i%2 == 0 {
				singles--
				held = held[1:]
			}
			all = append(all, Adopt{Seat{gang.ID("busy-" + id), 1, 0}, gang.Member{Node: id, GPUs: held}})
		}
	}
	if _, err := e.Apply(all, time.Unix(0, 0)); err != nil {
		tb.Fatal(err)
	}
	if got := e.Cluster().Root().GPUs(cluster.Free, "H100-80GB"); got != free {
		tb.Fatalf("%d GPUs are free, want %d", got, free)
	}
	return e
}

func benchNode(id, leaf string) cluster.Spec {
	s := cluster.Spec{ID: id, Name: id, Domains: []string{leaf}, Schedulable: true}
	for g := range 8 {
		s.GPUs = append(s.GPUs, cluster.GPU{UUID: fmt.Sprint(id, "/", g), Index: g, Model: "H100-80GB", MemoryMiB: 81559, Healthy: true})
	}
	return s
}

func wanted(id string, members int, require string) Gang {
	return Gang{ID: gang.ID(id), Seq: 1, Attempt: 1, Spec: &gang.Spec{
		Name: id, Template: "wan", Tier: "production", GPUs: 8 * members, GPUsPerNode: 8, Topology: gang.Topology{Require: require},
	}}
}

// BenchmarkPlace measures one gang placed, committed and released again on
// 2,000 nodes, and how long it takes to find that there is no place.
func BenchmarkPlace(b *testing.B) {
	for _, c := range []struct {
		name    string
		whole   int
		members int
		require string
		starts  bool
	}{
		{"2000", 8, 8, "leaf", true},
		{"2000-infeasible", 7, 8, "leaf", false},
		{"2000-single", 8, 1, "", true},
		{"2000-spread", 8, 64, "", true},
	} {
		b.Run(c.name, func(b *testing.B) {
			e := fragmented(b, c.whole)
			g := wanted("g", c.members, c.require)
			now := time.Unix(0, 0)
			b.ReportAllocs()
			for b.Loop() {
				out, err := e.Apply(Submit{g}, now)
				if err != nil {
					b.Fatal(err)
				}
				start, starts := out[0].(Start)
				if starts != c.starts {
					b.Fatalf("decided %v", out)
				}
				undo := Together{Withdraw{g.ID}}
				if starts {
					undo = undo[:0]
				}
				for i := range start.Placement {
					undo = append(undo, Release{Seat{g.ID, 1, i}})
				}
				if _, err := e.Apply(undo, now); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The benchmark's cluster is what it is said to be: no leaf but the middle one
// could hold the gang.
func TestFragmentedCluster(t *testing.T) {
	e := fragmented(t, 8)
	out, err := e.Apply(Submit{wanted("g", 8, "leaf")}, time.Unix(0, 0))
	if err != nil || len(out) != 1 {
		t.Fatalf("decided %v, %v", out, err)
	}
	for _, m := range out[0].(Start).Placement {
		if got := e.Cluster().Node(m.Node).Domain(0).Name; got != "l62" {
			t.Errorf("a member is in %s, want l62", got)
		}
	}
	out, err = e.Apply(Submit{wanted("h", 8, "leaf")}, time.Unix(0, 0))
	if err != nil || len(out) != 1 || out[0] != (Wait{"h", gang.CodeTopology}) {
		t.Errorf("the second gang: %v, %v", out, err)
	}
}
