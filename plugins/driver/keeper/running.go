package keeper

import (
	"fmt"
	"slices"

	"github.com/gangd/gangd/internal/link/linkpb"
	"github.com/gangd/gangd/internal/runner"
	"github.com/gangd/gangd/plugins/driver/lane"
)

// Classes of errors that a keeper gives itself.
const (
	classExit     = "exit"     // a program without protocol exited with another code than 0
	classDispatch = "dispatch" // the order did not reach all ranks
)

// rank takes what happened to one rank. What comes of a run before its order
// is known to have reached all ranks waits for that.
func (m *machine) rank(e event) {
	if m.ending != nil {
		return
	}
	if m.run != nil && !m.run.accepted {
		m.run.early = append(m.run.early, e)
		return
	}
	switch e := e.(type) {
	case said:
		m.said(e)
	case broke:
		m.broke(e)
	case exited:
		m.exited(e)
	}
}

func (m *machine) said(e said) {
	switch msg := e.message.(type) {
	case runner.Ready:
		m.rankReady(e.local, msg)
	case runner.Stage:
		if m.runs(msg.Attempt) {
			m.do(report{&linkpb.KeeperReport{Report: &linkpb.KeeperReport_Stage{Stage: &linkpb.Stage{
				Gang: msg.Gang, Attempt: uint32(msg.Number), Rank: m.global(e.local), Stage: clip(msg.Stage, maxNameBytes),
			}}}})
		}
	case runner.Step:
		if m.runs(msg.Attempt) {
			m.do(report{&linkpb.KeeperReport{Report: &linkpb.KeeperReport_Step{Step: &linkpb.Step{
				Gang: msg.Gang, Attempt: uint32(msg.Number), Rank: m.global(e.local),
				I: uint32(msg.I), N: uint32(msg.N), Millis: msg.Millis, Crc: msg.CRC, Finite: msg.Finite,
			}}}})
		}
	case runner.Result:
		if m.runs(msg.Attempt) {
			m.result(e.local, msg)
		}
	case runner.Failure:
		m.failure(e.local, msg)
	}
}

// runs reports whether the attempt is the one that runs; any other is stale.
func (m *machine) runs(a runner.Attempt) bool { return m.run != nil && m.run.attempt() == a }

// global is a rank's number in its gang, as its RANK says.
func (m *machine) global(local int) uint32 { return m.run.order.GetFirstRank() + uint32(local) }

func (m *machine) rankReady(local int, msg runner.Ready) {
	if m.state != linkpb.LaneState_LANE_STATE_LOADING {
		return
	}
	if !slices.Contains(m.ready, true) {
		m.digest = msg.ModelDigest
	}
	if msg.ModelDigest != m.digest {
		m.fail(ending{runnerFailed: true, reason: fmt.Sprintf("rank %d loaded model %q, another rank %q: all ranks of a lane must load the same weights",
			local, msg.ModelDigest, m.digest)})
		return
	}
	m.ready[local] = true
	if slices.Contains(m.ready, false) {
		return
	}
	m.idle(m.digest)
	m.tell("Runner ready: %s in %.1f s", count(m.ranks), m.now.Sub(m.admittedAt).Seconds())
}

func count(ranks int) string {
	if ranks == 1 {
		return "1 rank"
	}
	return fmt.Sprintf("%d ranks", ranks)
}

func (m *machine) result(local int, msg runner.Result) {
	if m.run.storing {
		return
	}
	m.run.results[local] = &msg
	results := make([]runner.Result, 0, m.ranks)
	for _, r := range m.run.results {
		if r == nil {
			return
		}
		results = append(results, *r)
	}
	m.run.storing = true
	m.do(store{run: m.run.order, results: results})
}

// failure takes a runner's own word that it failed, in a run or before it was
// ready.
func (m *machine) failure(local int, msg runner.Failure) {
	if msg.Attempt == (runner.Attempt{}) {
		m.fail(ending{
			outcome: linkpb.Outcome_OUTCOME_ERROR, runnerFailed: m.run == nil,
			reason: fmt.Sprintf("rank %d failed (%s): %s", local, msg.Class, msg.Message),
		})
		return
	}
	switch {
	case !m.runs(msg.Attempt):
	case msg.Class == runner.ClassPeerLost:
		m.bereave(local, msg.Error)
	default:
		m.failRun(local, msg.Error)
	}
}

// bereave takes a rank's word that a peer is gone. The run has failed; what is
// waited for is who is to blame.
func (m *machine) bereave(local int, e runner.Error) {
	r := m.run
	if r.bereaved == nil {
		r.blameBy = m.now.Add(blameTimeout)
	}
	r.bereaved = append(r.bereaved, bereaved{local, e})
	if len(r.bereaved) == m.ranks {
		m.failRun(r.bereaved[0].local, r.bereaved[0].err)
	}
}

func (m *machine) failRun(local int, e runner.Error) {
	e.Class, e.Message = clip(e.Class, maxNameBytes), clip(e.Message, maxMessageBytes)
	m.report(&linkpb.KeeperReport{Report: &linkpb.KeeperReport_Error{Error: &linkpb.RunnerError{
		Gang: m.run.order.GetGang(), Attempt: m.run.order.GetAttempt(), Rank: m.global(local),
		Class: e.Class, Retryable: e.Retryable, Message: e.Message,
	}}})
	m.fail(ending{
		outcome: linkpb.Outcome_OUTCOME_ERROR,
		reason:  fmt.Sprintf("rank %d failed (%s): %s", m.global(local), e.Class, e.Message),
	})
}

// broke takes a rank that lives and cannot be spoken to for one that is lost.
func (m *machine) broke(e broke) {
	m.lose(e.local, lane.Exit{Code: 1}, fmt.Sprintf("no longer speaks the runner protocol: %v", e.err), &linkpb.RankExit{})
}

func (m *machine) exited(e exited) {
	how := e.exit.String()
	if e.outOfMemory {
		how += ", out of memory: raise the task's memory"
	}
	if e.lastLine != "" {
		how += fmt.Sprintf(" (its last line: %s)", e.lastLine)
	}
	if m.run != nil && !m.resident && e.exit.Signal == 0 {
		if e.exit.Code == 0 {
			m.result(e.local, runner.Result{Attempt: m.run.attempt()})
			return
		}
		// Of a program that says no more it cannot be known whether it is to
		// blame: when one rank of a collective is lost, the others exit like this.
		m.failRun(e.local, runner.Error{Class: classExit, Retryable: true, Message: how})
		return
	}
	exit := lane.Exit{Code: e.exit.Code, Signal: int(e.exit.Signal), OutOfMemory: e.outOfMemory}
	m.lose(e.local, exit, how, &linkpb.RankExit{
		ExitCode: int32(e.exit.Code), Signal: int32(e.exit.Signal), OutOfMemory: e.outOfMemory,
	})
}

// lose closes the lane, which is not whole without the rank. A run for which
// the rank has done its part goes on to its end.
func (m *machine) lose(local int, exit lane.Exit, how string, said *linkpb.RankExit) {
	switch {
	case m.run == nil:
		when := "while the lane was idle"
		if m.state == linkpb.LaneState_LANE_STATE_LOADING {
			when = "before the runner was ready"
		}
		m.fail(ending{runnerFailed: true, exit: exit, reason: fmt.Sprintf("rank %d %s %s", local, how, when)})
	case m.run.results[local] != nil:
		m.run.departed = fmt.Sprintf("rank %d %s after its run", m.global(local), how)
	default:
		said.Gang, said.Attempt, said.Rank = m.run.order.GetGang(), m.run.order.GetAttempt(), m.global(local)
		m.report(&linkpb.KeeperReport{Report: &linkpb.KeeperReport_RankExit{RankExit: said}})
		m.fail(ending{
			outcome: linkpb.Outcome_OUTCOME_RANK_LOST, exit: exit,
			reason: fmt.Sprintf("rank %d %s", m.global(local), how),
		})
	}
}

// dispatched: the run has begun on all ranks, or on none that will live.
func (m *machine) dispatched(e dispatched) {
	if m.ending != nil || !m.runs(e.attempt) || m.run.accepted {
		return
	}
	m.run.accepted = true
	if e.err != nil {
		m.failRun(0, runner.Error{Class: classDispatch, Retryable: true, Message: e.err.Error()})
		return
	}
	r := m.run
	m.report(&linkpb.KeeperReport{Report: &linkpb.KeeperReport_Accepted{Accepted: &linkpb.RunAccepted{
		Gang: r.order.GetGang(), Attempt: r.order.GetAttempt(), MasterPort: e.masterPort,
	}}})
	m.tell("Gang %s attempt %d started (member %d, %s)",
		r.order.GetGang(), r.order.GetAttempt(), r.order.GetMember(), span(r.order.GetFirstRank(), m.ranks))
	for _, early := range r.early {
		m.rank(early)
	}
	r.early = nil
}

// stored ends a run whose ranks all did their part.
func (m *machine) stored(e stored) {
	if m.ending != nil || !m.runs(e.attempt) || !m.run.storing {
		return
	}
	departed, processesGone := m.run.departed, !m.resident
	if e.err != nil {
		m.tell("Gang %s attempt %d failed: %v", e.attempt.Gang, e.attempt.Number, e.err)
		m.ended(linkpb.Outcome_OUTCOME_STORE_FAILED, processesGone, e.err.Error())
	} else {
		m.report(&linkpb.KeeperReport{Report: &linkpb.KeeperReport_Result{Result: &linkpb.Result{
			Gang: e.attempt.Gang, Attempt: uint32(e.attempt.Number), Artifact: e.artifact, Thumbnail: e.thumbnail,
		}}})
		m.tell("Gang %s attempt %d finished", e.attempt.Gang, e.attempt.Number)
		m.ended(linkpb.Outcome_OUTCOME_SUCCEEDED, processesGone, "")
	}
	m.state = linkpb.LaneState_LANE_STATE_IDLE
	if departed != "" {
		m.fail(ending{runnerFailed: true, reason: departed})
	}
}

// hello is what a keeper says of itself at the start of each stream.
func (m *machine) hello() *linkpb.Admit {
	admit := &linkpb.Admit{State: m.state, Fence: &linkpb.Fence{Epoch: m.fence.Epoch, Index: m.fence.Index}}
	if m.run != nil {
		admit.Gang, admit.Attempt = m.run.order.GetGang(), m.run.order.GetAttempt()
	}
	return admit
}
