package keeper

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/link/linkpb"
	"github.com/gangd/gangd/internal/member"
	"github.com/gangd/gangd/internal/runner"
	"github.com/gangd/gangd/plugins/driver/lane"
)

// memberOf is the order to one member of a gang of 2 members with 4 GPUs each,
// as gangd gives it.
func memberOf(member uint32) *linkpb.Run {
	r := &linkpb.Run{Gang: "sea-1", Attempt: 1, Member: member, FirstRank: 4 * member, World: 8,
		Peers: []string{"a", "a", "a", "a", "b", "b", "b", "b"}}
	if member > 0 {
		r.MasterAddress, r.MasterPort = "a", 29500
	}
	return r
}

func laneOf4(processes string) lane.Config {
	return lane.Config{
		Lane: "l1", Processes: processes, ReadyTimeout: time.Minute,
		GPUs: []lane.GPU{{Index: 0, UUID: "g0"}, {Index: 1, UUID: "g1"}, {Index: 2, UUID: "g2"}, {Index: 3, UUID: "g3"}},
	}
}

// handed gives a lane the order to run, and returns what its ranks are handed.
func handed(t *testing.T, c lane.Config, order *linkpb.Run) (*machine, *linkpb.Run) {
	t.Helper()
	m := newMachine(c, t0)
	m.apply(t0, admit)
	m.apply(t0, prepared{})
	for local := range c.Ranks() {
		m.apply(t0, said{local, runner.Ready{ModelDigest: "d"}})
	}
	for _, a := range m.apply(t0, orderOf(5, order)) {
		if d, ok := a.(dispatch); ok {
			return m, d.run
		}
	}
	t.Fatal("the order was not handed on")
	return nil, nil
}

// TestWhatEachProcessIsTold: with what each is told, in its environment and in
// the message run, torch.distributed's init_process_group brings exactly the
// processes that there are together.
func TestWhatEachProcessIsTold(t *testing.T) {
	for processes, want := range map[string]string{
		member.PerGPU: `
			RANK 0/8 LOCAL 0/4 GROUP 0 MASTER a:29500 GPUs g0,g1,g2,g3; run 0/8 of a a a a b b b b
			RANK 1/8 LOCAL 1/4 GROUP 0 MASTER a:29500 GPUs g0,g1,g2,g3; run 1/8 of a a a a b b b b
			RANK 2/8 LOCAL 2/4 GROUP 0 MASTER a:29500 GPUs g0,g1,g2,g3; run 2/8 of a a a a b b b b
			RANK 3/8 LOCAL 3/4 GROUP 0 MASTER a:29500 GPUs g0,g1,g2,g3; run 3/8 of a a a a b b b b
			RANK 4/8 LOCAL 0/4 GROUP 1 MASTER a:29500 GPUs g0,g1,g2,g3; run 4/8 of a a a a b b b b
			RANK 5/8 LOCAL 1/4 GROUP 1 MASTER a:29500 GPUs g0,g1,g2,g3; run 5/8 of a a a a b b b b
			RANK 6/8 LOCAL 2/4 GROUP 1 MASTER a:29500 GPUs g0,g1,g2,g3; run 6/8 of a a a a b b b b
			RANK 7/8 LOCAL 3/4 GROUP 1 MASTER a:29500 GPUs g0,g1,g2,g3; run 7/8 of a a a a b b b b`,
		member.PerNode: `
			RANK 0/2 LOCAL 0/1 GROUP 0 MASTER a:29500 GPUs g0,g1,g2,g3; run 0/2 of a b
			RANK 1/2 LOCAL 0/1 GROUP 1 MASTER a:29500 GPUs g0,g1,g2,g3; run 1/2 of a b`,
	} {
		c := laneOf4(processes)
		r := &ranks{cfg: c}
		var got strings.Builder
		for member := range uint32(2) {
			_, run := handed(t, c, memberOf(member))
			for local := range c.Ranks() {
				more := runEnv(run, local, "a", 29500)
				env := make(map[string]string)
				for _, variable := range r.env(local, more) {
					name, value, _ := strings.Cut(variable, "=")
					env[name] = value
				}
				order := r.order(run, local, more)
				if _, err := runner.Encode(order); err != nil {
					t.Errorf("processes = %q: %v", processes, err)
				}
				fmt.Fprintf(&got, "\n\t\t\tRANK %s/%s LOCAL %s/%s GROUP %s MASTER %s:%s GPUs %s; run %d/%d of %s",
					env["RANK"], env["WORLD_SIZE"], env["LOCAL_RANK"], env["LOCAL_WORLD_SIZE"], env["GROUP_RANK"],
					env["MASTER_ADDR"], env["MASTER_PORT"], env["CUDA_VISIBLE_DEVICES"],
					order.Rank, order.World, strings.Join(order.Peers, " "))
			}
		}
		if got.String() != want {
			t.Errorf("processes = %q: got%s\nwant%s", processes, got.String(), want)
		}
	}
}

// TestWhatGangdIsToldOfRanks: every report calls a process by the number that
// it has itself, whatever a process stands for.
func TestWhatGangdIsToldOfRanks(t *testing.T) {
	oom := said{message: runner.Failure{Attempt: sea1, Error: runner.Error{Class: "oom", Message: "no room"}}}
	for processes, want := range map[string]string{
		member.PerGPU: "Gang sea-1 attempt 1 started (member 1, ranks 4-7); stage 7; step 7; error 7; rank 7 failed (oom): no room; " +
			"exit 7; rank 7 was killed by SIGKILL",
		member.PerNode: "Gang sea-1 attempt 1 started (member 1, rank 1); stage 1; step 1; error 1; rank 1 failed (oom): no room; " +
			"exit 1; rank 1 was killed by SIGKILL",
	} {
		c := laneOf4(processes)
		last := c.Ranks() - 1
		oom.local = last
		var words []string
		for _, end := range []event{oom, exited{local: last, exit: killed9}} {
			m, _ := handed(t, c, memberOf(1))
			for _, e := range []event{onAll, said{last, runner.Stage{Attempt: sea1, Stage: "denoise"}}, said{last, runner.Step{Attempt: sea1, I: 1, N: 2}}, end} {
				for _, a := range m.apply(t0, e) {
					if word := rankIn(a); word != "" && !slices.Contains(words, word) {
						words = append(words, word)
					}
				}
			}
			words = append(words, m.ending.reason)
		}
		if got := strings.Join(words, "; "); got != want {
			t.Errorf("processes = %q:\ngot  %s\nwant %s", processes, got, want)
		}
	}
}

// rankIn is what an action says of a rank.
func rankIn(a action) string {
	switch a := a.(type) {
	case tell:
		return a.message
	case report:
		switch r := a.Report.(type) {
		case *linkpb.KeeperReport_Stage:
			return fmt.Sprintf("stage %d", r.Stage.Rank)
		case *linkpb.KeeperReport_Step:
			return fmt.Sprintf("step %d", r.Step.Rank)
		case *linkpb.KeeperReport_Error:
			return fmt.Sprintf("error %d", r.Error.Rank)
		case *linkpb.KeeperReport_RankExit:
			return fmt.Sprintf("exit %d", r.RankExit.Rank)
		}
	}
	return ""
}

// TestAnOrderThatIsNoWorldOfProcesses: members of other sizes than this lane's
// would count otherwise, and wait for each other for ever.
func TestAnOrderThatIsNoWorldOfProcesses(t *testing.T) {
	for name, spoil := range map[string]func(*linkpb.Run){
		"begins within a member": func(r *linkpb.Run) { r.FirstRank = 2 },
		"ends within a member":   func(r *linkpb.Run) { r.World, r.Peers = 10, append(slices.Clone(r.Peers), "c", "c") },
		"one host a member":      func(r *linkpb.Run) { r.Peers = []string{"a", "b"} },
	} {
		r := memberOf(1)
		spoil(r)
		if checkWorld(memberOf(1), 1, 4) != "" || checkWorld(r, 1, 4) == "" {
			t.Errorf("%s: the order %v was not refused, or a good one was", name, r)
		}
	}
}
