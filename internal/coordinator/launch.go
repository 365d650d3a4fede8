package coordinator

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// launch begins an attempt that the engine decided on: the gang's record says
// where, then the lanes are opened side by side.
func (c *Core) launch(d schedule.Start) {
	g := c.gangs[d.ID]
	if g == nil || d.Attempt != g.rec.Attempt+1 {
		c.fault("launch gang %s, attempt %d: the engine started what the coordinator does not wait for", d.ID, d.Attempt)
		return
	}
	g.inEngine = false
	if g.rec.Attempt == 0 {
		c.waitOver(g)
	}
	if !c.move(g, gang.Launching) {
		return
	}
	g.rec.Attempt, g.rec.Fence = d.Attempt, c.cfg.Fence
	g.rec.Members, g.rec.Owed = slices.Clone(d.Placement), d.Owed
	g.rest(zeroTime)
	g.rec.Times = gang.Times{Queued: g.rec.Times.Queued, Decided: gang.Millis(c.now)}
	g.progress, g.ranks = gang.Progress{}, make(map[int]int)
	g.readyBy = c.now.Add(c.readyTimeout(g))
	g.lanes = make([]*lane, len(d.Placement))
	for i := range d.Placement {
		m := &g.rec.Members[i]
		m.Lane = gang.NewLaneID(d.ID, d.Attempt, i)
		g.lanes[i] = c.openLane(g, i, *m)
	}
}

func (c *Core) openLane(g *entry, member int, m gang.Member) *lane {
	l := &lane{rec: gang.Lane{
		Version: gang.SchemaVersion, ID: m.Lane, State: gang.LaneOpening, Node: m.Node, GPUs: m.GPUs, UUIDs: c.uuids(m),
		Template: g.rec.Template, TemplateVersion: c.templates[g.rec.Template].version, Gang: g.rec.ID, Attempt: g.rec.Attempt, Member: member, Fence: c.cfg.Fence,
		Job: gang.LaneJobID(g.rec.Template, m.Node, m.Lane), Tenant: g.rec.Tenant, Held: gang.Millis(c.now),
	}}
	c.lanes[m.Lane] = l
	c.holds(l)
	c.touchLane(l)
	c.act(l.open())
	return l
}

func (l *lane) open() OpenLane {
	return OpenLane{Lane: l.rec.ID, Template: l.rec.Template, TemplateVersion: l.rec.TemplateVersion, Node: l.rec.Node, UUIDs: l.rec.UUIDs, Job: l.rec.Job}
}

// observeNomad takes in what Nomad says of lanes, and how calls to it went.
func (c *Core) observeNomad(in Input) {
	switch in := in.(type) {
	case LaneJobsListed:
		c.listLaneJobs(in.Jobs)
	case LaneJobChanged:
		c.laneJob(in.Job)
	case LaneJobRemoved:
		if l := c.lanes[in.Lane]; l != nil && l.purge == purgeNone {
			c.laneJobGone(l)
		}
	case LaneBlocked:
		if l := c.lanes[in.Lane]; l != nil && l.rec.State == gang.LaneOpening && l.blockedSince.IsZero() {
			l.blockedSince, l.blockedWhy = c.now, in.Reason
		}
	case LaneOpened:
		c.laneOpened(in)
	case LanePurged:
		c.lanePurged(in)
	}
}

// listLaneJobs compares all pinned parents in Nomad with the lanes there
// should be. A stray one is purged: nobody would admit its keeper.
func (c *Core) listLaneJobs(jobs []LaneJob) {
	listed := make(map[gang.LaneID]bool, len(jobs))
	for _, j := range jobs {
		listed[j.Lane] = true
		if c.lanes[j.Lane] == nil {
			c.purgeStray(j)
		} else {
			c.laneJob(j)
		}
	}
	for _, l := range c.lanesInOrder() {
		if !listed[l.rec.ID] && l.reached >= partDispatched && c.now.Sub(l.openedAt) > blockedAfter {
			c.laneJobGone(l)
		}
	}
}

// laneJobGone: a job of a lane was stopped in Nomad, or is gone from it. Its
// gang leaves the lane even where the keeper runs on, as it does when only the
// pinned parent is stopped. A keeper that cannot be reached may run until its
// lease ends.
func (c *Core) laneJobGone(l *lane) {
	const why = "its job was stopped or purged"
	if l.rec.Allocation != "" && !l.connected {
		c.loseLane(l, why)
		return
	}
	c.endedByNomad(l, fmt.Sprintf("member %d on %s was stopped through Nomad: %s", l.rec.Member, c.nodeName(l.rec.Node), why))
	if l.rec.Allocation == "" {
		c.closed(l)
	}
}

func (c *Core) purgeStray(j LaneJob) {
	c.note("purging jobs of a lane that gangd does not have", "job", j.Job, "lane", j.Lane)
	c.act(PurgeLane{Lane: j.Lane, Job: j.Job})
}

// laneJob takes in how a lane's allocation stands. News of an allocation often
// comes after its lane is forgotten; only a living one is then a stray.
func (c *Core) laneJob(j LaneJob) {
	l := c.lanes[j.Lane]
	if l == nil {
		if _, late := c.forgotten[j.Lane]; !late && !j.Ended {
			c.purgeStray(j)
		}
		return
	}
	c.reach(l, partDispatched)
	if j.Allocation != "" {
		l.placed = j.Allocation
		c.reach(l, partAllocated)
	}
	if j.Lost && c.mayReturn(l) {
		return // Nomad lost its agent there; the keeper speaks for itself
	}
	if j.Preempted && (l.rec.Allocation == "" || j.Allocation == l.rec.Allocation) {
		c.preempted(l, j.Message)
	}
	if !j.Ended || (l.rec.Allocation != "" && j.Allocation != "" && j.Allocation != l.rec.Allocation) {
		return
	}
	if l.rec.State == gang.LaneOpening && l.rec.Allocation == "" && j.Allocation == "" && !j.Stopped {
		return
	}
	l.terminal = true
	why := fmt.Sprintf("its allocation on %s ended: %s", c.nodeName(l.rec.Node), j.Message)
	if j.Invalid {
		c.invalid(l, why)
	}
	switch {
	case l.rec.State == gang.LaneClosed:
		c.release(l)
		return
	case j.Stopped:
		c.endedByNomad(l, why)
	case l.rec.State == gang.LaneOpening || l.rec.State == gang.LaneIdle:
		c.unfit(l, why)
	default:
		c.lost(l, why)
	}
	c.closed(l)
}

// reach notes how far a lane has come; its gang's time of a part is that of its
// last lane. News of Nomad and of keepers comes on two ways: a lane that was
// admitted was allocated before, whoever tells of it first.
func (c *Core) reach(l *lane, to part) {
	times := new(gang.Times) // which nobody reads
	if g := c.entryOf(l.laneRun()); g != nil && g.rec.State == gang.Launching {
		times = &g.rec.Times
	}
	for l.reached < to {
		l.reached++
		switch l.reached {
		case partDispatched:
			l.openedAt = c.now
			times.Dispatched = gang.Millis(c.now)
		case partAllocated:
			times.Allocated = gang.Millis(c.now)
		case partAdmitted:
			times.Admitted = gang.Millis(c.now)
		}
	}
}

func (c *Core) laneOpened(in LaneOpened) {
	l := c.lanes[in.Lane]
	if l == nil {
		return
	}
	if in.Err == nil {
		l.rec.TemplateVersion = in.Version
		c.reach(l, partDispatched)
		l.openedAt = c.now
		return
	}
	g := c.entryOf(l.laneRun())
	switch {
	case g == nil || l.rec.State != gang.LaneOpening:
	case errors.Is(in.Err, ErrTemplateVersion) && l.rec.TemplateVersion != 0:
		c.templateChanged(g, l, in.Err)
	case errors.Is(in.Err, ErrTemplate):
		c.stop(g, gang.Stopping, gang.Failed, fmt.Sprintf("template %s: %v", g.rec.Template, in.Err), nil)
	default:
		c.unfit(l, fmt.Sprintf("its lane on %s could not be opened: %v", c.nodeName(l.rec.Node), in.Err))
	}
}

// admit answers a keeper that asks to be let in. One allocation is admitted a
// lane, and only while the lane is opening; it is written down first. A keeper
// that was admitted before is let go on.
func (c *Core) admit(in KeeperAdmit) {
	l := c.lanes[in.Lane]
	if l != nil && l.rec.Allocation == lostRecord && l.rec.State == gang.LaneLost {
		l.rec.Allocation = in.Allocation // what its damaged record said: it is to end
		c.touchLane(l)
	}
	if l == nil {
		c.act(RefuseLane{in.Keeper, "gangd has no such lane: it was closed, or another cluster's gangd opened it"})
		return
	}
	switch {
	case l.rec.State == gang.LaneClosed:
		c.act(RefuseLane{in.Keeper, fmt.Sprintf("lane %s is closed: %s", l.rec.ID, l.rec.Why)})
		return
	case l.rec.Allocation == "" && l.rec.State == gang.LaneOpening:
		l.rec.Allocation = in.Allocation
		c.touchLane(l)
		c.reach(l, partAdmitted)
	case l.rec.Allocation != in.Allocation:
		c.act(RefuseLane{in.Keeper, fmt.Sprintf("lane %s is %s and admitted the allocation %q", l.rec.ID, l.rec.State, l.rec.Allocation)})
		return
	}
	l.address, l.connected = in.Address, true
	if c.active(l.laneRun()) == nil || l.rec.State == gang.LaneClosing || l.rec.State == gang.LaneLost {
		c.endLane(l, "its gang has been stopped")
		return
	}
	c.act(AdmitLane{l.keeper()})
	if in.State == KeeperIdle {
		c.ready(l)
	}
}

// ready: all ranks of a lane are up.
func (c *Core) ready(l *lane) {
	g := c.entryOf(l.laneRun())
	if g == nil || g.rec.State != gang.Launching || l.reached >= partAccepted || !c.moveLane(l, gang.LaneIdle) {
		return
	}
	c.reach(l, partReady)
	c.startMembers(g)
}

// startMembers is the start barrier: once all lanes of the gang are ready,
// member 0 is told to run, and once it has answered with its port, the others.
// A lane that was told and did not answer is told again when it comes back.
func (c *Core) startMembers(g *entry) {
	for _, l := range g.lanes {
		if l.reached < partReady {
			return
		}
	}
	if g.rec.Times.Ready == 0 {
		g.rec.Times.Ready = gang.Millis(c.now)
	}
	if g.lanes[0].reached < partAccepted {
		c.startMember(g, 0)
		return
	}
	for member, l := range g.lanes {
		if l.reached < partAccepted {
			c.startMember(g, member)
		}
	}
}

func (c *Core) startMember(g *entry, member int) {
	l := g.lanes[member]
	order := StartRun{
		To: l.keeper(), Run: g.run(), Member: member, FirstRank: g.rec.Members[:member].GPUs(), World: g.rec.Members.GPUs(),
		Params: g.spec.Params,
	}
	if member > 0 {
		order.MasterAddress, order.MasterPort = g.lanes[0].address, g.lanes[0].port
	}
	for _, other := range g.lanes {
		for range other.rec.GPUs {
			order.Peers = append(order.Peers, other.address)
		}
	}
	c.act(order)
}

// accepted: a lane handed the order to run to its ranks.
func (c *Core) accepted(l *lane, in KeeperAccepted) {
	g := c.entryOf(in.Run)
	if g == nil || l.reached >= partAccepted || g.rec.State != gang.Launching || l.laneRun() != in.Run {
		return
	}
	c.reach(l, partAccepted)
	c.moveLane(l, gang.LaneIdle)
	c.moveLane(l, gang.LaneBusy)
	c.touchLane(l)
	if l.rec.Member == 0 {
		l.port = in.MasterPort
		c.startMembers(g)
	}
	for _, other := range g.lanes {
		if other.reached < partAccepted {
			return
		}
	}
	if c.move(g, gang.Running) {
		g.rec.Times.Started = gang.Millis(c.now)
		g.runBegan = c.now
		if err := c.decide(schedule.Began{ID: g.rec.ID, Attempt: g.rec.Attempt}); err != nil {
			c.fault("tell that a gang runs: %w", err)
		}
	}
}
