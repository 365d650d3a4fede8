package keeper

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/link/linkpb"
	"github.com/gangd/gangd/internal/member"
	"github.com/gangd/gangd/internal/runner"
	"github.com/gangd/gangd/plugins/driver/lane"
	"github.com/gangd/gangd/plugins/driver/process"
)

var (
	t0      = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	sea1    = runner.Attempt{Gang: "sea-1", Number: 1}
	killed9 = process.Exit{Code: 137, Signal: syscall.SIGKILL}
)

func orderOf(index uint64, o any) ordered {
	k := &linkpb.KeeperOrder{Fence: &linkpb.Fence{Epoch: 1, Index: index}}
	switch o := o.(type) {
	case *linkpb.Admitted:
		k.Order = &linkpb.KeeperOrder_Admitted{Admitted: o}
	case *linkpb.Refused:
		k.Order = &linkpb.KeeperOrder_NotAdmitted{NotAdmitted: o}
	case *linkpb.Lease:
		k.Order = &linkpb.KeeperOrder_Lease{Lease: o}
	case *linkpb.Run:
		k.Order = &linkpb.KeeperOrder_Run{Run: o}
	case *linkpb.Cancel:
		k.Order = &linkpb.KeeperOrder_Cancel{Cancel: o}
	case *linkpb.Close:
		k.Order = &linkpb.KeeperOrder_Close{Close: o}
	}
	return ordered{k}
}

func runOf(gang string, attempt uint32) *linkpb.Run {
	return &linkpb.Run{Gang: gang, Attempt: attempt, FirstRank: 2, World: 4, Member: 1,
		MasterAddress: "10.0.0.1", MasterPort: 29500, Peers: []string{"a", "a", "b", "b"}}
}

var (
	admit   = orderOf(5, &linkpb.Admitted{LeaseMillis: 15000})
	readyA  = said{0, runner.Ready{ModelDigest: "d"}}
	readyB  = said{1, runner.Ready{ModelDigest: "d"}}
	runIt   = orderOf(5, runOf("sea-1", 1))
	onAll   = dispatched{attempt: sea1}
	resultA = said{0, runner.Result{Attempt: sea1, Path: "x.mp4"}}
	resultB = said{1, runner.Result{Attempt: sea1}}
	durable = stored{attempt: sea1, artifact: &linkpb.Artifact{Key: "k"}}
)

// describe names an action in a word or two.
func describe(a action) string {
	switch a := a.(type) {
	case prepare:
		return "prepare"
	case dispatch:
		return "dispatch"
	case store:
		return "store"
	case end:
		return fmt.Sprintf("end/%v", a.grace)
	case finish:
		return fmt.Sprintf("finish/%d", a.exit.Code)
	case tell:
		return ""
	case report:
		switch r := a.Report.(type) {
		case *linkpb.KeeperReport_Ready:
			return "Ready"
		case *linkpb.KeeperReport_Accepted:
			return "Accepted"
		case *linkpb.KeeperReport_Stage:
			return fmt.Sprintf("Stage/%d", r.Stage.Rank)
		case *linkpb.KeeperReport_Step:
			return fmt.Sprintf("Step/%d", r.Step.Rank)
		case *linkpb.KeeperReport_Result:
			return "Result"
		case *linkpb.KeeperReport_Error:
			return "Error/" + r.Error.Class
		case *linkpb.KeeperReport_RankExit:
			return "RankExit"
		case *linkpb.KeeperReport_Ended:
			return fmt.Sprintf("Ended/%s/%v", strings.TrimPrefix(r.Ended.Outcome.String(), "OUTCOME_"), r.Ended.ProcessesGone)
		case *linkpb.KeeperReport_Closed:
			return fmt.Sprintf("Closed/nomad=%v/failed=%v", r.Closed.StoppedByNomad, r.Closed.RunnerFailed)
		case *linkpb.KeeperReport_Refused:
			return "Refused"
		}
	}
	return fmt.Sprintf("%T", a)
}

func lostPeer(local int) event {
	return said{local, runner.Failure{Attempt: sea1, Error: runner.Error{Class: runner.ClassPeerLost, Retryable: true}}}
}

func play(t *testing.T, m *machine, events []event) string {
	t.Helper()
	now := t0
	var all []string
	for _, e := range events {
		if wait, ok := e.(time.Duration); ok {
			now, e = now.Add(wait), tick{}
		}
		for _, a := range m.apply(now, e) {
			if word := describe(a); word != "" {
				all = append(all, word)
			}
		}
	}
	return strings.Join(all, " ")
}

func newTestMachine(protocol string) *machine {
	return newMachine(lane.Config{
		Lane: "l1", GPUs: []lane.GPU{{Index: 0, UUID: "a"}, {Index: 1, UUID: "b"}}, Processes: member.PerGPU,
		Protocol: protocol, KillGrace: 5 * time.Second, ReadyTimeout: time.Minute,
	}, t0)
}

func TestLifeOfALane(t *testing.T) {
	running := []event{admit, prepared{}, readyA, readyB, runIt, onAll}
	const started = "prepare Ready dispatch Accepted"
	after := func(first []event, more ...event) []event { return append(append([]event{}, first...), more...) }
	for name, c := range map[string]struct {
		protocol string
		events   []event
		want     string
	}{
		"nobody admits":             {events: []event{29 * time.Second, 2 * time.Second, gone{}}, want: "end/0s Closed/nomad=false/failed=false finish/1"},
		"refused":                   {events: []event{orderOf(5, &linkpb.Refused{Reason: "stray"}), gone{}}, want: "end/0s Closed/nomad=false/failed=false finish/1"},
		"a lease admits nobody":     {events: []event{orderOf(5, &linkpb.Lease{LeaseMillis: 15000})}, want: ""},
		"admitted twice":            {events: []event{admit, admit}, want: "prepare"},
		"GPUs in use":               {events: []event{admit, prepared{errors.New("process 7 uses GPU 0")}, gone{}}, want: "prepare end/0s Closed/nomad=false/failed=true finish/1"},
		"order before ready":        {events: []event{admit, prepared{}, readyA, runIt}, want: "prepare Refused"},
		"weights differ":            {events: []event{admit, readyA, said{1, runner.Ready{ModelDigest: "e"}}}, want: "prepare end/0s"},
		"never ready":               {events: []event{admit, readyA, 14 * time.Second, orderOf(5, &linkpb.Lease{LeaseMillis: 60000}), 50 * time.Second, gone{}}, want: "prepare end/0s Closed/nomad=false/failed=true finish/1"},
		"exits before ready":        {events: []event{admit, exited{local: 1, exit: process.Exit{Code: 3}}, gone{}}, want: "prepare end/0s Closed/nomad=false/failed=true finish/3"},
		"load fails":                {events: []event{admit, said{1, runner.Failure{Error: runner.Error{Class: "load"}}}, gone{}}, want: "prepare end/0s Closed/nomad=false/failed=true finish/1"},
		"exits while idle":          {events: []event{admit, readyA, readyB, exited{local: 0}, gone{}}, want: "prepare Ready end/0s Closed/nomad=false/failed=true finish/1"},
		"two runs":                  {events: after(running, resultA, resultB, durable, orderOf(5, runOf("sea-2", 1)), dispatched{attempt: attemptOf("sea-2", 1)}), want: started + " store Result Ended/SUCCEEDED/false dispatch Accepted"},
		"progress":                  {events: after(running, said{1, runner.Stage{Attempt: sea1, Stage: "denoise"}}, said{1, runner.Step{Attempt: sea1, I: 1, N: 2}}), want: started + " Stage/3 Step/3"},
		"stale words":               {events: after(running, said{1, runner.Step{Attempt: attemptOf("sea-1", 9), I: 1, N: 2}}, said{0, runner.Result{Attempt: attemptOf("sea-0", 1)}}), want: started},
		"store fails":               {events: after(running, resultA, resultB, stored{attempt: sea1, err: errors.New("full")}), want: started + " store Ended/STORE_FAILED/false"},
		"rank leaves after its run": {events: after(running, resultA, resultB, exited{local: 0}, durable, gone{}), want: started + " store Result Ended/SUCCEEDED/false end/0s Closed/nomad=false/failed=true finish/1"},
		"runner error":              {events: after(running, said{1, runner.Failure{Attempt: sea1, Error: runner.Error{Class: "oom"}}}, exited{local: 0, exit: killed9}, gone{}), want: started + " Error/oom end/0s Ended/ERROR/true Closed/nomad=false/failed=false finish/1"},
		"a peer elsewhere is lost":  {events: after(running, lostPeer(0), lostPeer(1), gone{}), want: started + " Error/peer_lost end/0s Ended/ERROR/true Closed/nomad=false/failed=false finish/1"},
		"who is to blame":           {events: after(running, lostPeer(0), said{1, runner.Failure{Attempt: sea1, Error: runner.Error{Class: "oom"}}}), want: started + " Error/oom end/0s"},
		"who was killed":            {events: after(running, lostPeer(0), exited{local: 1, exit: killed9}), want: started + " RankExit end/0s"},
		"nobody is to blame":        {events: after(running, lostPeer(0), 200*time.Millisecond, 200*time.Millisecond), want: started + " Error/peer_lost end/0s"},
		"rank lost":                 {events: after(running, exited{local: 1, exit: killed9}, exited{local: 0, exit: killed9}, gone{}), want: started + " RankExit end/0s Ended/RANK_LOST/true Closed/nomad=false/failed=false finish/137"},
		"rank does not speak":       {events: after(running, broke{local: 1, err: errors.New("gibberish")}, gone{}), want: started + " RankExit end/0s Ended/RANK_LOST/true Closed/nomad=false/failed=false finish/1"},
		"order does not arrive":     {events: []event{admit, readyA, readyB, runIt, dispatched{attempt: sea1, err: errors.New("closed")}, gone{}}, want: "prepare Ready dispatch Error/dispatch end/0s Ended/ERROR/true Closed/nomad=false/failed=false finish/1"},
		"quicker than the order":    {events: []event{admit, readyA, readyB, runIt, resultA, resultB, onAll}, want: started + " store"},
		"cancel":                    {events: after(running, orderOf(5, &linkpb.Cancel{Gang: "sea-1", Attempt: 1}), exited{local: 0, exit: killed9}, gone{}), want: started + " end/0s Ended/CANCELLED/true Closed/nomad=false/failed=false finish/0"},
		"cancel while stored":       {events: after(running, resultA, resultB, orderOf(5, &linkpb.Cancel{Gang: "sea-1", Attempt: 1}), durable, gone{}), want: started + " store end/0s Ended/CANCELLED/true Closed/nomad=false/failed=false finish/0"},
		"cancel of another":         {events: after(running, orderOf(5, &linkpb.Cancel{Gang: "sea-1", Attempt: 2})), want: started + " Refused"},
		"cancel before any run":     {events: []event{admit, orderOf(5, &linkpb.Cancel{Gang: "sea-1", Attempt: 1}), gone{}}, want: "prepare end/0s Ended/CANCELLED/true Closed/nomad=false/failed=false finish/0"},
		"cancel after the run":      {events: after(running, resultA, resultB, durable, orderOf(5, &linkpb.Cancel{Gang: "sea-1", Attempt: 1})), want: started + " store Result Ended/SUCCEEDED/false Refused"},
		"deposed leader":            {events: []event{admit, prepared{}, readyA, readyB, orderOf(4, runOf("sea-1", 1)), orderOf(4, &linkpb.Close{}), orderOf(4, &linkpb.Refused{})}, want: "prepare Ready Refused Refused Refused"},
		"order again":               {events: after(running, orderOf(6, runOf("sea-1", 1)), resultA, resultB, durable, orderOf(7, runOf("sea-1", 1))), want: started + " Accepted store Result Ended/SUCCEEDED/false Accepted Result Ended/SUCCEEDED/false"},
		"run while busy":            {events: after(running, orderOf(5, runOf("sea-2", 1))), want: started + " Refused"},
		"close while busy":          {events: after(running, orderOf(5, &linkpb.Close{})), want: started + " Refused"},
		"close":                     {events: []event{admit, readyA, readyB, orderOf(5, &linkpb.Close{}), exited{local: 0}, gone{}}, want: "prepare Ready end/5s Closed/nomad=false/failed=false finish/0"},
		"lease runs out":            {events: after(running, 10*time.Second, orderOf(0, &linkpb.Lease{LeaseMillis: 15000}), 14*time.Second, 2*time.Second, gone{}), want: started + " end/0s Ended/LEASE_EXPIRED/true Closed/nomad=false/failed=false finish/1"},
		"stopped by Nomad":          {events: after(running, stopped{byNomad: true, grace: time.Second}, exited{local: 0}, stopped{byNomad: true}, gone{}), want: started + " end/1s end/0s Ended/TASK_STOPPED/true Closed/nomad=true/failed=false finish/0"},
		"stopped before admission":  {events: []event{stopped{byNomad: true}, admit, gone{}}, want: "end/0s Closed/nomad=true/failed=false finish/0"},
		"no protocol":               {protocol: member.ProtocolNone, events: []event{admit, prepared{}, runIt, exited{local: 0}, onAll, exited{local: 1}, durable}, want: "prepare Ready dispatch Accepted store Result Ended/SUCCEEDED/true"},
		"no protocol, bad exit":     {protocol: member.ProtocolNone, events: []event{admit, prepared{}, runIt, onAll, exited{local: 0, exit: process.Exit{Code: 2}}, gone{}}, want: "prepare Ready dispatch Accepted Error/exit end/0s Ended/ERROR/true Closed/nomad=false/failed=false finish/1"},
		"no protocol, killed":       {protocol: member.ProtocolNone, events: []event{admit, prepared{}, runIt, onAll, exited{local: 0, exit: killed9}, gone{}}, want: "prepare Ready dispatch Accepted RankExit end/0s Ended/RANK_LOST/true Closed/nomad=false/failed=false finish/137"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := play(t, newTestMachine(c.protocol), c.events); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestOrdersThatNoLaneCanRun(t *testing.T) {
	for name, spoil := range map[string]func(*linkpb.Run){
		"no gang":         func(r *linkpb.Run) { r.Gang = "" },
		"no attempt":      func(r *linkpb.Run) { r.Attempt = 0 },
		"ranks too high":  func(r *linkpb.Run) { r.FirstRank = 3 },
		"peers missing":   func(r *linkpb.Run) { r.Peers = r.Peers[:3] },
		"no master known": func(r *linkpb.Run) { r.MasterPort = 0 },
	} {
		r := runOf("sea-1", 1)
		spoil(r)
		got := play(t, newTestMachine(""), []event{admit, readyA, readyB, orderOf(5, r), runIt})
		if want := "prepare Ready Refused dispatch"; got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

func TestWhatIsToldAgainAfterAReconnect(t *testing.T) {
	words := func(m *machine) string {
		var all []string
		for _, r := range m.replay() {
			all = append(all, describe(report{r}))
		}
		return strings.Join(all, " ")
	}
	m := newTestMachine("")
	for _, c := range []struct {
		events []event
		want   string
		state  linkpb.LaneState
		gang   string
	}{
		{[]event{admit}, "", linkpb.LaneState_LANE_STATE_LOADING, ""},
		{[]event{readyA, readyB}, "Ready", linkpb.LaneState_LANE_STATE_IDLE, ""},
		{[]event{runIt, onAll}, "Accepted", linkpb.LaneState_LANE_STATE_BUSY, "sea-1"},
		{[]event{resultA, resultB, durable}, "Ready Accepted Result Ended/SUCCEEDED/false", linkpb.LaneState_LANE_STATE_IDLE, ""},
		{[]event{orderOf(5, runOf("sea-2", 3))}, "", linkpb.LaneState_LANE_STATE_BUSY, "sea-2"},
		{[]event{dispatched{attempt: attemptOf("sea-2", 3)}, exited{local: 0, exit: killed9}, gone{}},
			"Accepted RankExit Ended/RANK_LOST/true Closed/nomad=false/failed=false", linkpb.LaneState_LANE_STATE_CLOSING, ""},
	} {
		play(t, m, c.events)
		hello := m.hello()
		if got := words(m); got != c.want || hello.State != c.state || hello.Gang != c.gang {
			t.Errorf("after %v: replay %q, state %v, gang %q; want %q, %v, %q", c.events, got, hello.State, hello.Gang, c.want, c.state, c.gang)
		}
	}
}

func TestStepsAreThinnedAndTheLastIsKept(t *testing.T) {
	var sent []uint32
	r := newRelay(func(k *linkpb.KeeperReport) { sent = append(sent, k.GetStep().GetI()) })
	now := t0
	for i := uint32(1); i <= 25; i++ {
		r.send(now, &linkpb.KeeperReport{Report: &linkpb.KeeperReport_Step{Step: &linkpb.Step{I: i, N: 25}}})
		now = now.Add(10 * time.Millisecond)
	}
	if got := fmt.Sprint(sent); got != "[1 11 21]" {
		t.Errorf("steps sent: %v, want 1, 11, 21", got)
	}
	if due := r.due(); due != t0.Add(300*time.Millisecond) {
		t.Errorf("due at %v", due)
	}
	r.send(now, &linkpb.KeeperReport{Report: &linkpb.KeeperReport_Result{}})
	if got := fmt.Sprint(sent); got != "[1 11 21 25 0]" {
		t.Errorf("sent: %v, want the last step before the result", got)
	}
}
