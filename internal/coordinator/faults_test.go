package coordinator

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

func TestFaultsCountForADay(t *testing.T) {
	w := ready(t, 60, 1, 1)
	n := w.nodes[0]
	faults := func() (all []int) {
		for _, g := range w.core.nodeStatuses()[0].GPUs {
			all = append(all, g.Faults)
		}
		return all
	}
	gpus := n.gpus()
	gpus[2].Healthy, gpus[2].Reason = false, "Xid 79"
	w.tell(Inventory{gpus})
	w.tell(Inventory{gpus}) // it is ill still: that is no other fault
	w.tell(Inventory{n.gpus()})
	if got, want := faults(), []int{0, 0, 1, 0, 0, 0, 0, 0}; !slices.Equal(got, want) {
		t.Fatalf("after one fell ill: faults %v, want %v", got, want)
	}
	id := w.submit(simSpec(2, 2))
	w.until(1, "the start", func() bool { return w.state(id) == gang.Running })
	if got := w.core.gangs[id].rec.Members[0].GPUs; !slices.Equal(got, []int{4, 5}) && !slices.Equal(got, []int{0, 1}) {
		t.Errorf("it runs on GPUs %v, though others had no fault", got)
	}
	w.core.loseLane(w.core.lanesInOrder()[0], "its keeper is gone")
	if got, want := faults(), []int{1, 1, 1, 0, 0, 0, 0, 0}; !slices.Equal(got, want) {
		t.Errorf("after the loss of a member: faults %v, want %v", got, want)
	}
	w.now = w.now.Add(faultsFor)
	w.tell(Tick{})
	if got := faults(); !slices.Equal(got, make([]int, 8)) {
		t.Errorf("a day later: faults %v", got)
	}
}

func TestOnlySoManyFaultsAreKept(t *testing.T) {
	var f faultLog
	at := time.Unix(0, 0)
	for i := range maxFaults + 3 {
		f.add(fmt.Sprint("GPU-", i/2), at)
	}
	if len(f.told) != maxFaults || f.of("GPU-0") != 0 || f.of("GPU-1") != 1 || f.of("GPU-2") != 2 {
		t.Errorf("%d are kept; of the oldest %d, %d and %d", len(f.told), f.of("GPU-0"), f.of("GPU-1"), f.of("GPU-2"))
	}
	if f.forget(at.Add(faultsFor)); len(f.told) != 0 || len(f.counts) != 0 {
		t.Errorf("a day later %d are kept, of %d GPUs", len(f.told), len(f.counts))
	}
}

func TestWhatOtherJobsHoldIsNotForGangs(t *testing.T) {
	w := ready(t, 61, 1, 1)
	uuid := w.nodes[0].uuids[3]
	v := w.view(0, 1)
	v.Capacity, v.Foreign = cluster.Room{CPUMHz: 8000, MemoryMiB: 96 << 10}, cluster.Room{CPUMHz: 500, MemoryMiB: 84 << 10}
	v.HeldBy = map[string]string{uuid: "notebook"}
	w.tell(NodeChanged{v})
	n := w.core.nodeStatuses()[0]
	if g := n.GPUs[3]; g.Healthy || g.Job != "notebook" || g.Reason != "held by Nomad job notebook" || n.Free != 7 {
		t.Errorf("%d GPUs are free; the one that is held: %+v", n.Free, g)
	}
	spec := simSpec(4, 4)
	template := Template{Version: 1, Need: gang.Need{CPUMHz: 100, MemoryMiB: 64 << 10}}
	template.fill(&spec)
	id := w.submit(spec)
	code, reason, _, waits := w.core.engine.Explain(id)
	if want := "needs 4 GPUs on one node; 7 of 7 usable H100-80GB are free in all; client-0 has 7 free GPUs and 12 GiB of memory left, a member takes 64 GiB"; !waits || code != gang.CodeCapacity || reason != want {
		t.Errorf("it waits (%t) for %s: %q, want %q", waits, code, reason, want)
	}
	v.Foreign, v.HeldBy = cluster.Room{}, nil
	w.tell(NodeChanged{v})
	w.until(1, "its end", func() bool { return w.state(id) == gang.Succeeded })
}

func TestAFullNodeIsTriedAgainOnceOthersHoldLess(t *testing.T) {
	v := NodeView{ID: "n", Ready: true, Foreign: cluster.Room{CPUMHz: 500, MemoryMiB: 100}, HeldBy: map[string]string{"GPU-0": "web"}}
	for _, c := range []struct {
		name   string
		change func(*NodeView)
		want   bool
	}{
		{"nothing", func(*NodeView) {}, false},
		{"they hold more", func(v *NodeView) { v.Foreign.MemoryMiB = 200 }, false},
		{"they hold another GPU", func(v *NodeView) { v.HeldBy = map[string]string{"GPU-0": "web", "GPU-1": "web"} }, false},
		{"they hold less memory", func(v *NodeView) { v.Foreign.MemoryMiB = 50 }, true},
		{"they hold less CPU", func(v *NodeView) { v.Foreign.CPUMHz = 50 }, true},
		{"they hold no GPU", func(v *NodeView) { v.HeldBy = nil }, true},
		{"it has more memory", func(v *NodeView) { v.Capacity.MemoryMiB = 1000 }, true},
	} {
		now := v
		if c.change(&now); mayHaveRoom(v, now) != c.want {
			t.Errorf("%s: it may have room now: %t", c.name, !c.want)
		}
	}
}
