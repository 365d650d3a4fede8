package coordinator

import (
	"fmt"
	"math"
	"time"

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
		g := newEntry(spec, in.Random[i], c.now)
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
		g.inEngine = true
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

// newEntry is a gang with all that its records will hold but PerNode and Seq.
func newEntry(spec gang.Spec, random [5]byte, now time.Time) *entry {
	spec.Version = gang.SchemaVersion
	return &entry{spec: &spec, isNew: true, rec: gang.Record{
		Version: gang.SchemaVersion, ID: gang.NewID(spec.Name, random), State: gang.Queued,
		Tenant: spec.Tenant, Tier: spec.Tier, Template: spec.Template,
		GPUs: spec.GPUs, Accepted: gang.Millis(now),
	}}
}

// creation are the changes that make a gang durable for the first time.
func (g *entry) creation() []gang.Change {
	return []gang.Change{
		{Key: gang.SpecKey(g.rec.ID), Value: gang.Encode(g.spec), Create: true},
		{Key: gang.RecordKey(g.rec.ID), Value: gang.Encode(&g.rec), Create: true},
	}
}

// checkSize refuses gangs whose records do not fit one transaction: they could
// not be accepted all or none. JSON in Consul can be larger than it was sent,
// since it has '<', '>' and '&' escaped.
func checkSize(specs []gang.Spec) error {
	size := 0
	for _, s := range specs {
		g := newEntry(s, [5]byte{}, time.UnixMilli(0))
		g.rec.Accepted, g.rec.Seq = math.MaxInt64, math.MaxUint64
		g.rec.PerNode, g.spec.GPUsPerNode = s.GPUs, s.GPUs // at most
		alone := 0
		for _, change := range g.creation() {
			alone += len(change.Key) + len(change.Value)
		}
		if alone > gang.MaxBatchBytes {
			return gang.NameRefused(s.Name, gang.RefuseField("params", "the gang takes %d bytes as it is stored, %d fit a transaction: put large input into the blob store",
				alone, gang.MaxBatchBytes))
		}
		size += alone
	}
	if size > gang.MaxBatchBytes {
		return gang.Refuse("the gangs of this submission take %d bytes as they are stored, %d fit a transaction: submit fewer at a time, or put large input into the blob store",
			size, gang.MaxBatchBytes)
	}
	return nil
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
	return schedule.Gang{
		ID: g.rec.ID, Seq: g.place(), Attempt: g.rec.Attempt + 1, Spec: g.spec,
		Avoid: g.rec.Avoid, Held: g.rec.Held, Accepted: true,
	}
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
	if !g.inEngine {
		return
	}
	g.inEngine = false
	if err := c.decide(schedule.Withdraw{ID: g.rec.ID}); err != nil {
		c.fault("dequeue: %w", err)
	}
}
