package main

import (
	"fmt"
	"time"

	"github.com/gangd/gangd/internal/coordinator"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/link"
	"github.com/gangd/gangd/internal/link/linkpb"
)

// linkInput translates what nodes say into the coordinator's words; nil for
// what it need not know.
func linkInput(e link.Event) coordinator.Input {
	switch e := e.(type) {
	case link.DriverHello:
		return coordinator.DriverUp{UUIDs: e.Hello.GpuUuids}
	case link.DriverGone:
		return coordinator.DriverDown{UUIDs: e.UUIDs}
	case link.Inventory:
		return inventory(e.GPUs)
	case link.HostSilent:
		return coordinator.HostSilent{UUIDs: e.UUIDs}
	case link.HostHeard:
		return coordinator.HostHeard{UUIDs: e.UUIDs}
	case link.KeeperGone:
		return coordinator.KeeperGone{Keeper: coordinator.Keeper(e.Keeper)}
	case link.KeeperReported:
		return keeperInput(coordinator.Keeper(e.Keeper), e.Report)
	}
	return nil
}

func inventory(gpus []*linkpb.Gpu) coordinator.Inventory {
	out := coordinator.Inventory{GPUs: make([]coordinator.GPUView, len(gpus))}
	for i, g := range gpus {
		out.GPUs[i] = coordinator.GPUView{
			UUID: g.Uuid, Index: int(g.Index), Model: g.Model, MemoryMiB: int(g.MemoryMib),
			Island: int(g.NvlinkIsland), NUMA: int(g.NumaNode), Healthy: g.Healthy, Reason: g.Reason,
		}
	}
	return out
}

func keeperInput(from coordinator.Keeper, r *linkpb.KeeperReport) coordinator.Input {
	switch r := r.Report.(type) {
	case *linkpb.KeeperReport_Admit:
		m := r.Admit
		return coordinator.KeeperAdmit{Keeper: from, Address: m.Address, State: keeperState(m.State)}
	case *linkpb.KeeperReport_Ready:
		return coordinator.KeeperReady{Keeper: from}
	case *linkpb.KeeperReport_Accepted:
		m := r.Accepted
		return coordinator.KeeperAccepted{Keeper: from, Run: runOf(m.Gang, m.Attempt), MasterPort: int(m.MasterPort)}
	case *linkpb.KeeperReport_Stage:
		m := r.Stage
		return coordinator.KeeperStage{Keeper: from, Run: runOf(m.Gang, m.Attempt), Rank: int(m.Rank), Stage: m.Stage}
	case *linkpb.KeeperReport_Step:
		m := r.Step
		return coordinator.KeeperStep{Keeper: from, Run: runOf(m.Gang, m.Attempt), Rank: int(m.Rank), I: int(m.I), N: int(m.N), Millis: m.Millis}
	case *linkpb.KeeperReport_Result:
		m := r.Result
		return coordinator.KeeperResult{Keeper: from, Run: runOf(m.Gang, m.Attempt), Artifact: artifact(m.Artifact), Thumbnail: artifact(m.Thumbnail)}
	default:
		return keeperEnd(from, r)
	}
}

// keeperEnd translates what leads to the end of a run or a lane.
func keeperEnd(from coordinator.Keeper, report any) coordinator.Input {
	switch r := report.(type) {
	case *linkpb.KeeperReport_Error:
		m := r.Error
		return coordinator.KeeperError{Keeper: from, Run: runOf(m.Gang, m.Attempt), Rank: int(m.Rank), Class: m.Class, Retryable: m.Retryable, Message: m.Message}
	case *linkpb.KeeperReport_RankExit:
		m := r.RankExit
		return coordinator.KeeperRankExit{Keeper: from, Run: runOf(m.Gang, m.Attempt), Rank: int(m.Rank), Message: exitSentence(m)}
	case *linkpb.KeeperReport_Ended:
		m := r.Ended
		return coordinator.KeeperEnded{Keeper: from, Run: runOf(m.Gang, m.Attempt), Outcome: outcome(m.Outcome), Message: m.Message}
	case *linkpb.KeeperReport_Refused:
		m := r.Refused
		return coordinator.KeeperRefused{Keeper: from, Run: runOf(m.Gang, m.Attempt), Reason: m.Reason}
	case *linkpb.KeeperReport_Closed:
		m := r.Closed
		return coordinator.KeeperClosed{Keeper: from, Reason: m.Reason, ByNomad: m.StoppedByNomad}
	}
	return nil
}

func runOf(id string, attempt uint32) coordinator.Run {
	return coordinator.Run{Gang: gang.ID(id), Attempt: int(attempt)}
}

func artifact(a *linkpb.Artifact) *gang.Artifact {
	if a == nil || a.Key == "" {
		return nil
	}
	return &gang.Artifact{Key: a.Key, SHA256: a.Sha256, Bytes: a.Bytes, ContentType: a.ContentType}
}

func exitSentence(m *linkpb.RankExit) string {
	switch {
	case m.OutOfMemory:
		return "killed for want of memory"
	case m.Signal != 0:
		return fmt.Sprintf("killed by signal %d", m.Signal)
	default:
		return fmt.Sprintf("exit code %d", m.ExitCode)
	}
}

func keeperState(s linkpb.LaneState) coordinator.KeeperState {
	switch s {
	case linkpb.LaneState_LANE_STATE_LOADING:
		return coordinator.KeeperLoading
	case linkpb.LaneState_LANE_STATE_IDLE:
		return coordinator.KeeperIdle
	case linkpb.LaneState_LANE_STATE_BUSY:
		return coordinator.KeeperBusy
	case linkpb.LaneState_LANE_STATE_CLOSING:
		return coordinator.KeeperClosing
	}
	return coordinator.KeeperNew
}

func outcome(o linkpb.Outcome) coordinator.Outcome {
	switch o {
	case linkpb.Outcome_OUTCOME_SUCCEEDED:
		return coordinator.OutcomeSucceeded
	case linkpb.Outcome_OUTCOME_RANK_LOST:
		return coordinator.OutcomeRankLost
	case linkpb.Outcome_OUTCOME_CANCELLED:
		return coordinator.OutcomeCancelled
	case linkpb.Outcome_OUTCOME_LEASE_EXPIRED:
		return coordinator.OutcomeLeaseExpired
	case linkpb.Outcome_OUTCOME_STORE_FAILED:
		return coordinator.OutcomeStoreFailed
	case linkpb.Outcome_OUTCOME_TASK_STOPPED:
		return coordinator.OutcomeTaskStopped
	}
	return coordinator.OutcomeError
}

// nodesPort makes the link what the coordinator's orders travel on.
type nodesPort struct {
	agent   *agent
	server  *link.Server
	blobURL string
}

// Lead implements coordinator.Nodes.
func (p nodesPort) Lead(leads bool, fence gang.Fence) { p.agent.lead(leads, fence) }

// Heard implements coordinator.Nodes.
func (p nodesPort) Heard(uuid string) (time.Duration, bool) {
	at, known := p.server.LastHeard(uuid)
	return time.Since(at), known
}

// Order implements coordinator.Nodes.
func (p nodesPort) Order(a coordinator.Action) bool {
	switch a := a.(type) {
	case coordinator.AdmitLane:
		return p.server.Send(link.Keeper(a.To), &linkpb.KeeperOrder{Order: &linkpb.KeeperOrder_Admitted{
			Admitted: &linkpb.Admitted{LeaseMillis: uint32(link.Lease.Milliseconds())}}})
	case coordinator.RefuseLane:
		return p.server.Send(link.Keeper(a.To), &linkpb.KeeperOrder{Order: &linkpb.KeeperOrder_NotAdmitted{NotAdmitted: &linkpb.Refused{Reason: a.Reason}}})
	case coordinator.StartRun:
		return p.server.Send(link.Keeper(a.To), &linkpb.KeeperOrder{Order: &linkpb.KeeperOrder_Run{Run: &linkpb.Run{
			Gang: string(a.Run.Gang), Attempt: uint32(a.Run.Attempt), Member: uint32(a.Member), FirstRank: uint32(a.FirstRank), World: uint32(a.World),
			MasterAddress: a.MasterAddress, MasterPort: uint32(a.MasterPort), Peers: a.Peers, Params: a.Params, BlobUrl: p.blobURL,
		}}})
	case coordinator.CancelRun:
		return p.server.Send(link.Keeper(a.To), &linkpb.KeeperOrder{Order: &linkpb.KeeperOrder_Cancel{Cancel: &linkpb.Cancel{
			Gang: string(a.Run.Gang), Attempt: uint32(a.Run.Attempt), Reason: a.Reason}}})
	case coordinator.CloseLane:
		return p.server.Send(link.Keeper(a.To), &linkpb.KeeperOrder{Order: &linkpb.KeeperOrder_Close{Close: &linkpb.Close{Reason: a.Reason}}})
	}
	return false
}
