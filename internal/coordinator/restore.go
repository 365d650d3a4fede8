package coordinator

import (
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
		g := &entry{rec: *rec, spec: spec, ranks: make(map[int]int)}
		if g.rec.State == gang.Running {
			g.runBegan = time.UnixMilli(g.rec.Times.Started)
		}
		c.insert(g)
	}
	for _, rec := range in.Lanes {
		c.restoreLane(*rec)
	}
	for _, g := range c.bySeq {
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
	l := &lane{rec: rec, opened: rec.Allocation != "", awayUntil: c.now.Add(keeperReturn)}
	c.lanes[rec.ID] = l
	switch rec.State {
	case gang.LaneClosed:
		l.freed = true
		c.purge(l)
		return
	case gang.LaneLost:
		l.heldUntil = c.now.Add(c.cfg.Lease + leaseMargin)
		c.purge(l)
	}
	if c.engine.Cluster().Node(rec.Node) == nil {
		c.placeholder(rec.Node)
	}
	if err := c.decide(schedule.Adopt{Seat: l.seat(), Place: gang.Member{Node: rec.Node, GPUs: rec.GPUs}}); err != nil {
		c.fault("restore lane %s: %w", rec.ID, err)
		l.freed = true
	}
}

// placeholder makes a node known of which only lanes tell so far.
func (c *Core) placeholder(id string) {
	spec := cluster.Spec{ID: id, Domains: make([]string, len(c.cfg.Levels)), Why: "unknown: Nomad has not told of it yet"}
	if err := c.decide(schedule.NodeSet{Node: spec}); err != nil {
		c.fault("restore node %s: %w", id, err)
	}
}

// restorePlaced joins a gang with its lanes. A lane without a record was never
// written where the gang is launching, and is closed and forgotten elsewhere.
func (c *Core) restorePlaced(g *entry) {
	g.lanes = make([]*lane, len(g.rec.Members))
	for i, m := range g.rec.Members {
		l := c.lanes[m.Lane]
		if l == nil {
			l = c.missingLane(g, i, m)
		}
		g.lanes[i] = l
		// In a gang that launches, member 0's port is known to its keeper alone,
		// which tells it again.
		if l.rec.State == gang.LaneBusy && g.rec.State != gang.Launching {
			l.ready, l.accepted = true, true
		}
		// A lane whose loss would have stopped the gang had done its part.
		if g.rec.State == gang.Running && (l.rec.State == gang.LaneClosed || l.rec.State == gang.LaneLost) {
			l.done = true
		}
		if g.rec.State == gang.Launching && l.rec.State == gang.LaneOpening && l.rec.Allocation == "" {
			c.act(l.open())
		} else if g.rec.State == gang.Launching {
			c.reach(l, partAdmitted) // when exactly went with the last term
		}
	}
	switch g.rec.State {
	case gang.Launching:
		g.readyBy = c.now.Add(c.cfg.ReadyTimeout)
	case gang.Finishing:
		for _, l := range g.lanes {
			l.done = true
		}
		c.act(g.publish())
	}
	switch g.rec.State {
	case gang.Preempting, gang.Recovering, gang.Stopping, gang.Finishing:
		// A wide gang's lanes take several transactions: some may not have been
		// told to close.
		for _, l := range g.lanes {
			c.endLane(l, g.rec.Why)
		}
	}
	c.settle(g)
}

func (c *Core) missingLane(g *entry, member int, m gang.Member) *lane {
	rec := gang.Lane{
		Version: gang.SchemaVersion, ID: m.Lane, State: gang.LaneClosed, Node: m.Node, GPUs: m.GPUs,
		Template: g.rec.Template, Gang: g.rec.ID, Attempt: g.rec.Attempt, Member: member, Fence: g.rec.Fence,
		Job: gang.LaneJobID(g.rec.Template, m.Node, m.Lane),
	}
	if g.rec.State != gang.Launching {
		return &lane{rec: rec, freed: true, purged: true, gone: true}
	}
	rec.State = gang.LaneOpening
	c.restoreLane(rec)
	l := c.lanes[m.Lane]
	c.touchLane(l)
	return l
}
