package coordinator

import (
	"cmp"
	"slices"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// restore takes over what the last term left in Consul. Lanes hold their GPUs;
// what was being opened is opened again, which finds what is there already;
// what was ending is ended; and everybody else is expected to be heard soon.
func (c *Core) restore(in Restored) {
	c.restored = true
	c.warmUntil = c.now.Add(warmUp)
	for _, rec := range in.Gangs {
		spec := in.Specs[rec.ID]
		if spec == nil {
			spec = &gang.Spec{Name: string(rec.ID), Template: rec.Template, Tenant: rec.Tenant, Tier: rec.Tier, GPUs: rec.GPUs}
			if !rec.State.Terminal() {
				c.fault("restore gang %s: its specification is missing from Consul; its parameters are lost", rec.ID)
			}
		}
		spec.GPUsPerNode = rec.PerNode
		g := &entry{rec: *rec, spec: spec, noSpec: in.Specs[rec.ID] == nil, ranks: make(map[int]int)}
		if g.rec.State == gang.Running {
			g.runBegan = time.UnixMilli(g.rec.Times.Started)
		}
		if g.rec.RestUntil > 0 {
			g.notBefore = time.UnixMilli(g.rec.RestUntil)
		}
		c.insert(g)
		switch {
		case g.rec.State.Terminal():
			c.ended = append(c.ended, g)
		case g.rec.State == gang.Queued && c.now.Before(g.notBefore):
			c.resting[g.rec.ID] = g
		}
	}
	slices.SortStableFunc(c.ended, func(a, b *entry) int { return cmp.Compare(a.rec.Times.Ended, b.rec.Times.Ended) })
	c.forgetEnded()
	c.restoreWindows(in.Windows)
	for _, rec := range in.Accounts {
		c.accounts[rec.Tenant] = &account{rec: *rec}
	}
	for _, rec := range in.Lanes {
		c.restoreLane(*rec)
	}
	c.adopt()
	c.restoreLedger()
	for _, g := range slices.Clone(c.bySeq) { // some may end by it, and be forgotten
		if g.rec.State.Placed() {
			c.restorePlaced(g)
		}
	}
	for _, l := range c.lanesInOrder() {
		if g := c.entryOf(l.laneRun()); g == nil || !g.rec.State.Placed() {
			c.endLane(l, "its gang has been stopped")
			if l.rec.State != gang.LaneClosed {
				c.purge(l)
			}
		}
	}
}

func (c *Core) restoreLane(rec gang.Lane) {
	l := &lane{rec: rec, awayUntil: c.now.Add(keeperReturn)}
	c.lanes[rec.ID] = l
	if rec.Allocation != "" {
		c.reach(l, partAdmitted) // when exactly went with the last term
		l.openedAt = zeroTime    // no list of jobs is older
	}
	switch rec.State {
	case gang.LaneClosed:
		c.free(l)
		c.purge(l)
		return
	case gang.LaneLost:
		l.heldUntil = c.now.Add(c.cfg.Lease + leaseMargin)
		c.purge(l)
	}
	if c.engine.Cluster().Node(rec.Node) == nil {
		c.placeholder(rec.Node)
	}
	c.holds(l)
}

// placeholder makes a node known of which only lanes tell so far.
func (c *Core) placeholder(id string) {
	spec := cluster.Spec{ID: id, Domains: make([]string, len(c.cfg.Rules.Levels)), State: cluster.NodeUnknown, Why: "Nomad has not told of it yet"}
	if err := c.decide(schedule.NodeSet{Node: spec}); err != nil {
		c.fault("restore node %s: %w", id, err)
	}
}

// restorePlaced joins a gang with its lanes, and goes on where the last term
// was.
func (c *Core) restorePlaced(g *entry) {
	written := c.joinLanes(g)
	switch g.rec.State {
	case gang.Launching:
		if !written { // nothing runs in a lane that was not written down
			c.stop(g, gang.Preempting, "", "gangd ended before all its lanes were written down", nil)
			return
		}
		g.readyBy = c.now.Add(c.readyTimeout(g))
		for _, l := range g.lanes {
			c.relaunch(l)
		}
	case gang.Finishing:
		for _, l := range g.lanes {
			c.reach(l, partDone)
		}
		c.publish(g)
		c.endLanes(g)
	case gang.Preempting, gang.Recovering, gang.Stopping:
		c.endLanes(g)
	}
	c.settle(g)
}

// joinLanes gives a gang its lanes, and reports whether all have a record. One
// that has none was never opened where the gang is launching, and is closed and
// forgotten elsewhere.
func (c *Core) joinLanes(g *entry) (written bool) {
	written = true
	g.lanes = make([]*lane, len(g.rec.Members))
	for i, m := range g.rec.Members {
		l := c.lanes[m.Lane]
		if l == nil {
			written = false
			l = &lane{freed: true, purge: purgeDone, gone: true, rec: gang.Lane{
				Version: gang.SchemaVersion, ID: m.Lane, State: gang.LaneClosed, Node: m.Node, GPUs: m.GPUs,
				Gang: g.rec.ID, Attempt: g.rec.Attempt, Member: i,
			}}
		}
		g.lanes[i] = l
		if g.rec.State != gang.Running {
			continue
		}
		switch l.rec.State {
		case gang.LaneBusy:
			c.reach(l, partAccepted)
		case gang.LaneClosed, gang.LaneLost:
			c.reach(l, partDone) // else its loss would have stopped the gang
		}
	}
	return written
}

// relaunch opens a lane that may not have been opened. Who was admitted says
// what it does itself; member 0's port is known to its keeper alone.
func (c *Core) relaunch(l *lane) {
	if l.rec.State == gang.LaneOpening && l.rec.Allocation == "" {
		c.act(l.open())
	}
}

// endLanes ends lanes that may not have been told to end: those of a wide gang
// take several transactions.
func (c *Core) endLanes(g *entry) {
	for _, l := range g.lanes {
		c.endLane(l, g.rec.Why)
	}
}
