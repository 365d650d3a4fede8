package coordinator

import (
	"fmt"

	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// submit accepts all gangs of a request or none.
func (c *Core) submit(in SubmitRequest) {
	statuses, err := c.accept(in)
	c.act(Answer{Reply: in.Reply, Statuses: statuses, Err: err})
}

func (c *Core) accept(in SubmitRequest) ([]gang.Status, error) {
	if !c.deciding {
		return nil, fmt.Errorf("accept gangs: gangd has just taken over and still learns what runs where: %w", gang.ErrNotNow)
	}
	if waiting := len(c.bySeq) - len(c.ended); waiting+len(in.Specs) > c.cfg.MaxQueue {
		return nil, fmt.Errorf("accept gangs: %d gangs live already, the limit is %d: %w", waiting, c.cfg.MaxQueue, gang.ErrOverloaded)
	}
	var together schedule.Together
	var accepted []*entry
	for i := range in.Specs {
		spec := in.Specs[i]
		g := c.newEntry(spec, in.Random[i])
		if c.gangs[g.rec.ID] != nil {
			return nil, fmt.Errorf("accept gang %s: its ID, which is drawn by lot, is taken: %w", g.rec.ID, gang.ErrNotNow)
		}
		perNode, err := c.engine.Check(spec)
		if err != nil {
			return nil, gang.NameRefused(spec.Name, err)
		}
		g.rec.PerNode, g.spec.GPUsPerNode = perNode, perNode
		g.rec.Seq = c.nextSeq() + uint64(i)
		accepted = append(accepted, g)
		together = append(together, schedule.Submit{Gang: g.forEngine()})
	}
	for _, g := range accepted {
		c.insert(g)
		c.seeTemplate(g.rec.Template, in.Templates[g.rec.Template].Version)
		c.touch(g)
		g.queued = true
	}
	c.cut() // all or none, whatever is decided on them
	if err := c.decide(together); err != nil {
		c.fault("queue accepted gangs: %w", err)
	}
	statuses := make([]gang.Status, len(accepted))
	for i, g := range accepted {
		statuses[i] = c.status(g, true)
	}
	return statuses, nil
}

func (c *Core) newEntry(spec gang.Spec, random [5]byte) *entry {
	spec.Version = gang.SchemaVersion
	return &entry{spec: &spec, isNew: true, rec: gang.Record{
		Version: gang.SchemaVersion, ID: gang.NewID(spec.Name, random), State: gang.Queued,
		Tenant: spec.Tenant, Tier: spec.Tier, Template: spec.Template,
		GPUs: spec.GPUs, Accepted: gang.Millis(c.now),
	}}
}

// nextSeq is larger than every Seq that was given before: microseconds, but
// never back.
func (c *Core) nextSeq() uint64 {
	seq := uint64(c.now.UnixMicro())
	if n := len(c.bySeq); n > 0 && c.bySeq[n-1].rec.Seq >= seq {
		seq = c.bySeq[n-1].rec.Seq + 1
	}
	return seq
}

// forEngine is the gang as the engine wants it for its next attempt.
func (g *entry) forEngine() schedule.Gang {
	return schedule.Gang{ID: g.rec.ID, Seq: g.rec.Seq, Attempt: g.rec.Attempt + 1, Spec: g.spec, Avoid: g.rec.Avoid, Accepted: true}
}

// cancel ends a gang for good. What waits ends at once; what is placed ends
// when its processes are gone.
func (c *Core) cancel(in CancelRequest) {
	g := c.gangs[in.ID]
	if g == nil {
		c.act(Answer{Reply: in.Reply, Err: fmt.Errorf("cancel gang %s: %w", in.ID, gang.ErrNotFound)})
		return
	}
	err := c.cancelEntry(g)
	c.act(Answer{Reply: in.Reply, Statuses: []gang.Status{c.status(g, true)}, Err: err})
}

func (c *Core) cancelEntry(g *entry) error {
	switch {
	case g.rec.State == gang.Stopping && g.rec.Target == gang.Cancelled, g.rec.State == gang.Cancelled:
		return nil
	case g.rec.State.Terminal():
		return fmt.Errorf("cancel gang %s: it has %s already: %w", g.rec.ID, g.rec.State, gang.ErrTerminal)
	case !g.rec.State.Placed():
		c.dequeue(g)
		g.rec.Why = "cancelled while it waited"
		g.rec.Times.Ended = gang.Millis(c.now)
		if c.move(g, gang.Cancelled) {
			c.retire(g)
		}
		return nil
	case g.rec.State == gang.Stopping:
		return nil // it fails already
	case g.rec.State == gang.Finishing:
		return fmt.Errorf("cancel gang %s: its result is durable already: %w", g.rec.ID, gang.ErrTerminal)
	}
	c.stop(g, gang.Stopping, gang.Cancelled, "cancelled", nil)
	return nil
}

// dequeue takes a gang that waits from the engine.
func (c *Core) dequeue(g *entry) {
	if !g.queued {
		return
	}
	g.queued = false
	if err := c.decide(schedule.Withdraw{ID: g.rec.ID}); err != nil {
		c.fault("dequeue: %w", err)
	}
}
