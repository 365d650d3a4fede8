package keeper

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/link"
	"github.com/gangd/gangd/internal/link/linkpb"
	"github.com/gangd/gangd/internal/member"
	"github.com/gangd/gangd/internal/runner"
	"github.com/gangd/gangd/plugins/driver/lane"
)

// admitTimeout is how long a lane waits to be admitted.
const admitTimeout = 30 * time.Second

// blameTimeout is how long a lane that lost a peer waits for the word of one of
// its own ranks that is to blame: that may be slower than the news of its loss.
const blameTimeout = 300 * time.Millisecond

// machine is the life of a lane: events in, actions out. It does no I/O and
// reads no clock.
type machine struct {
	// What does not change.
	name         string
	ranks        int
	gpusPerRank  int
	resident     bool // the runner speaks the protocol and stays between runs
	killGrace    time.Duration
	readyTimeout time.Duration

	state      linkpb.LaneState
	fence      gang.Fence // the newest term that was seen
	admitBy    time.Time
	admittedAt time.Time
	leaseUntil time.Time
	lease      time.Duration
	ready      []bool
	digest     string
	run        *run           // the present one
	last       runner.Attempt // the newest that was begun
	critical   []*linkpb.KeeperReport
	ending     *ending

	now     time.Time
	actions []action
}

// run is one run of a member in this lane.
type run struct {
	order    *linkpb.Run // its ranks are processes
	accepted bool
	early    []event // of ranks, from before it was accepted
	results  []*runner.Result
	storing  bool
	departed string // how a rank ended after its result
	// bereaved are the ranks that lost a peer and are not to blame; if nothing
	// is heard of who is until blameBy, the first one's word stands.
	bereaved []bereaved
	blameBy  time.Time
}

// bereaved is a rank that said that a peer is gone.
type bereaved struct {
	local int
	err   runner.Error
}

func (r *run) attempt() runner.Attempt { return attemptOf(r.order.GetGang(), r.order.GetAttempt()) }

func attemptOf(gang string, number uint32) runner.Attempt {
	return runner.Attempt{Gang: gang, Number: int(number)}
}

// ending is why a lane closes.
type ending struct {
	outcome      linkpb.Outcome // of the run, where there is one
	reason       string
	byNomad      bool
	runnerFailed bool
	exit         lane.Exit
}

func newMachine(c lane.Config, now time.Time) *machine {
	return &machine{
		name:         c.Lane,
		ranks:        c.Ranks(),
		gpusPerRank:  c.GPUsPerRank(),
		resident:     c.Protocol != member.ProtocolNone,
		killGrace:    c.KillGrace,
		readyTimeout: c.ReadyTimeout,
		state:        linkpb.LaneState_LANE_STATE_NEW,
		admitBy:      now.Add(admitTimeout),
		ready:        make([]bool, c.Ranks()),
	}
}

// apply takes one event at a time.
func (m *machine) apply(now time.Time, e event) []action {
	m.now, m.actions = now, nil
	switch e := e.(type) {
	case ordered:
		m.ordered(e.order)
	case prepared:
		m.prepared(e.err)
	case said, broke, exited:
		m.rank(e)
	case dispatched:
		m.dispatched(e)
	case stored:
		m.stored(e)
	case stopped:
		m.close(ending{outcome: linkpb.Outcome_OUTCOME_TASK_STOPPED, byNomad: e.byNomad, reason: e.reason}, e.signal, e.grace)
	case gone:
		m.gone()
	case tick:
		m.tick()
	}
	return m.actions
}

func (m *machine) do(a action) { m.actions = append(m.actions, a) }

func (m *machine) tell(format string, args ...any) {
	m.do(tell{clip(fmt.Sprintf(format, args...), maxMessageBytes)})
}

// report tells gangd what it must hear, and remembers it for the time after a reconnect.
func (m *machine) report(r *linkpb.KeeperReport) {
	m.critical = append(m.critical, r)
	m.do(report{r})
}

// replay returns what gangd may not have heard.
func (m *machine) replay() []*linkpb.KeeperReport {
	if m.state == linkpb.LaneState_LANE_STATE_IDLE {
		return append([]*linkpb.KeeperReport{readyReport(m.digest)}, m.critical...)
	}
	return slices.Clone(m.critical)
}

// deadline is when a tick is due; zero for never.
func (m *machine) deadline() time.Time {
	switch {
	case m.ending != nil:
		return time.Time{}
	case m.state == linkpb.LaneState_LANE_STATE_NEW:
		return m.admitBy
	case m.state == linkpb.LaneState_LANE_STATE_LOADING && m.readyBy().Before(m.leaseUntil):
		return m.readyBy()
	case m.run != nil && m.run.bereaved != nil && m.run.blameBy.Before(m.leaseUntil):
		return m.run.blameBy
	}
	return m.leaseUntil
}

func (m *machine) readyBy() time.Time { return m.admittedAt.Add(m.readyTimeout) }

func (m *machine) tick() {
	if by := m.deadline(); by.IsZero() || m.now.Before(by) {
		return
	}
	switch {
	case m.state == linkpb.LaneState_LANE_STATE_NEW:
		m.fail(ending{reason: fmt.Sprintf("gangd did not admit lane %s within %v, so that no runner was started", m.name, admitTimeout)})
	case !m.now.Before(m.leaseUntil):
		m.fail(ending{
			outcome: linkpb.Outcome_OUTCOME_LEASE_EXPIRED,
			reason:  fmt.Sprintf("the lease ran out: no word from gangd for %v", m.lease),
		})
	case m.run != nil && m.run.bereaved != nil:
		m.failRun(m.run.bereaved[0].local, m.run.bereaved[0].err)
	default:
		m.fail(ending{runnerFailed: true, reason: fmt.Sprintf("the runner was not ready %v after its start: ranks %s are missing; raise ready_timeout in the config of the template if its weights take longer to load",
			m.readyTimeout, missing(m.ready))})
	}
}

func missing(ready []bool) string {
	var ranks []int
	for i, is := range ready {
		if !is {
			ranks = append(ranks, i)
		}
	}
	return fmt.Sprint(ranks)
}

// ordered obeys gangd.
func (m *machine) ordered(order *linkpb.KeeperOrder) {
	fence := gang.Fence{Epoch: order.GetFence().GetEpoch(), Index: order.GetFence().GetIndex()}
	stale := fence.Before(m.fence)
	switch o := order.Order.(type) {
	case *linkpb.KeeperOrder_Leader:
		if o.Leader.GetSelf() && !stale {
			m.fence = fence
		}
		return
	case *linkpb.KeeperOrder_Lease: // any agent may renew, and orders nothing
		m.renew(o.Lease.GetLeaseMillis())
		return
	}
	if stale {
		m.refuse(order, fmt.Sprintf("the order is of term %v, and one of term %v was seen", fence, m.fence))
		return
	}
	m.fence = fence
	switch o := order.Order.(type) {
	case *linkpb.KeeperOrder_Admitted:
		m.admitted(o.Admitted.GetLeaseMillis())
	case *linkpb.KeeperOrder_NotAdmitted:
		m.fail(ending{outcome: linkpb.Outcome_OUTCOME_CANCELLED,
			reason: fmt.Sprintf("gangd refused lane %s: %s", m.name, o.NotAdmitted.GetReason())})
	case *linkpb.KeeperOrder_Run:
		m.begin(order, o.Run)
	case *linkpb.KeeperOrder_Cancel:
		m.cancel(order, o.Cancel)
	case *linkpb.KeeperOrder_Close:
		if m.state == linkpb.LaneState_LANE_STATE_BUSY {
			m.refuse(order, fmt.Sprintf("the lane runs %v; cancel that first", m.run.attempt()))
			return
		}
		m.close(ending{reason: "closed by gangd: " + o.Close.GetReason()}, syscall.SIGTERM, m.killGrace)
	}
}

// refuse answers an order that is not obeyed.
func (m *machine) refuse(order *linkpb.KeeperOrder, reason string) {
	refused := &linkpb.OrderRefused{Reason: clip(reason, maxMessageBytes)}
	switch o := order.Order.(type) {
	case *linkpb.KeeperOrder_Run:
		refused.Gang, refused.Attempt = o.Run.GetGang(), o.Run.GetAttempt()
	case *linkpb.KeeperOrder_Cancel:
		refused.Gang, refused.Attempt = o.Cancel.GetGang(), o.Cancel.GetAttempt()
	}
	m.do(report{&linkpb.KeeperReport{Report: &linkpb.KeeperReport_Refused{Refused: refused}}})
}

func (m *machine) renew(millis uint32) {
	if m.admittedAt.IsZero() {
		return
	}
	m.lease = time.Duration(millis) * time.Millisecond
	if millis == 0 {
		m.lease = link.Lease
	}
	m.leaseUntil = m.now.Add(m.lease)
}

func (m *machine) admitted(leaseMillis uint32) {
	if m.state == linkpb.LaneState_LANE_STATE_NEW && m.ending == nil {
		m.state = linkpb.LaneState_LANE_STATE_LOADING
		m.admittedAt = m.now
		m.tell("Admitted by gangd (lane %s)", m.name)
		m.do(prepare{})
	}
	m.renew(leaseMillis)
}

func (m *machine) prepared(err error) {
	switch {
	case m.ending != nil:
	case err != nil:
		m.fail(ending{runnerFailed: true, reason: err.Error()})
	case !m.resident:
		m.idle("")
		m.tell("Lane ready: its GPUs are free")
	}
}

func (m *machine) idle(digest string) {
	m.state, m.digest = linkpb.LaneState_LANE_STATE_IDLE, digest
	m.do(report{readyReport(digest)})
}

// begin takes the order to run.
func (m *machine) begin(order *linkpb.KeeperOrder, r *linkpb.Run) {
	attempt := attemptOf(r.GetGang(), r.GetAttempt())
	if attempt == m.last && m.ending == nil {
		for _, known := range m.critical { // a new leader asks again
			m.do(report{known})
		}
		return
	}
	if why := m.cannotBegin(r); why != "" {
		m.refuse(order, why)
		return
	}
	m.state, m.last, m.critical = linkpb.LaneState_LANE_STATE_BUSY, attempt, nil
	m.run = &run{order: ofProcesses(r, m.gpusPerRank), results: make([]*runner.Result, m.ranks)}
	m.do(dispatch{m.run.order})
}

func (m *machine) cannotBegin(r *linkpb.Run) string {
	switch {
	case m.state == linkpb.LaneState_LANE_STATE_BUSY:
		return fmt.Sprintf("the lane runs %v", m.run.attempt())
	case m.state != linkpb.LaneState_LANE_STATE_IDLE:
		return "the lane is not ready"
	case r.GetGang() == "" || r.GetAttempt() == 0:
		return "the order names no gang and attempt"
	case r.GetMember() != 0 && (r.GetMasterAddress() == "" || r.GetMasterPort() == 0):
		return "the order names no master for a member other than the first"
	}
	return checkWorld(r, m.ranks, m.gpusPerRank)
}

// cancel ends a run at once. A lane that never ran anything was opened for the
// gang whose start is cancelled.
func (m *machine) cancel(order *linkpb.KeeperOrder, c *linkpb.Cancel) {
	attempt := attemptOf(c.GetGang(), c.GetAttempt())
	switch {
	case m.run != nil && m.run.attempt() == attempt:
	case m.run == nil && m.last == runner.Attempt{} && m.ending == nil:
		m.run = &run{order: &linkpb.Run{Gang: c.GetGang(), Attempt: c.GetAttempt()}}
	default:
		m.refuse(order, fmt.Sprintf("the lane does not run %v", attempt))
		return
	}
	m.close(ending{outcome: linkpb.Outcome_OUTCOME_CANCELLED, reason: c.GetReason()}, syscall.SIGKILL, 0)
}

// fail closes the lane as one that failed; its processes may end by themselves.
func (m *machine) fail(e ending) {
	e.exit.Message = clip(e.reason, maxMessageBytes)
	if e.exit.Code == 0 {
		e.exit.Code = 1
	}
	m.close(e, syscall.SIGKILL, 0)
}

// close ends the lane's processes. The first reason stands; a later one can
// only hasten the end.
func (m *machine) close(e ending, signal syscall.Signal, grace time.Duration) {
	if m.ending == nil {
		e.reason = clip(e.reason, maxMessageBytes)
		m.ending = &e
		m.state = linkpb.LaneState_LANE_STATE_CLOSING
	}
	m.do(end{signal: signal, grace: grace})
}

// gone tells gangd the end, once no process is left.
func (m *machine) gone() {
	e := m.ending
	if e == nil {
		return
	}
	if m.run != nil {
		attempt := m.run.attempt()
		m.ended(e.outcome, true, e.reason)
		m.tell("Gang %s attempt %d %s", attempt.Gang, attempt.Number, verb(e))
	}
	m.report(&linkpb.KeeperReport{Report: &linkpb.KeeperReport_Closed{Closed: &linkpb.LaneClosed{
		Reason: e.reason, StoppedByNomad: e.byNomad, RunnerFailed: e.runnerFailed, ExitCode: int32(e.exit.Code),
	}}})
	m.tell("Lane %s closed: %s", m.name, e.reason)
	e.exit.At = m.now
	m.do(finish{e.exit})
}

func verb(e *ending) string {
	switch e.outcome {
	case linkpb.Outcome_OUTCOME_CANCELLED:
		return "cancelled: " + e.reason
	case linkpb.Outcome_OUTCOME_TASK_STOPPED:
		return "stopped: " + e.reason
	}
	return "failed: " + e.reason
}

// ended reports the end of the present run.
func (m *machine) ended(outcome linkpb.Outcome, processesGone bool, message string) {
	m.report(&linkpb.KeeperReport{Report: &linkpb.KeeperReport_Ended{Ended: &linkpb.Ended{
		Gang: m.run.order.GetGang(), Attempt: m.run.order.GetAttempt(),
		Outcome: outcome, ProcessesGone: processesGone, Message: clip(message, maxMessageBytes),
	}}})
	m.run = nil
}

func readyReport(digest string) *linkpb.KeeperReport {
	return &linkpb.KeeperReport{Report: &linkpb.KeeperReport_Ready{Ready: &linkpb.LaneReady{ModelDigest: clip(digest, maxNameBytes)}}}
}
