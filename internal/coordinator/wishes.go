package coordinator

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// HoldRequest asks that a gang which waits is not started, or may be again.
type HoldRequest struct {
	ID    gang.ID
	Held  bool
	Reply int
}

// ReorderRequest asks that a gang goes before another of its tenant and tier, or
// before or behind all of them where Before is empty.
type ReorderRequest struct {
	ID     gang.ID
	Before gang.ID
	Last   bool
	Reply  int
}

func (HoldRequest) input()    {}
func (ReorderRequest) input() {}

// maxReordered bounds how many gangs change their places at once: their records
// fit one transaction.
const maxReordered = gang.MaxBatch - 10

// waits returns a gang that waits.
func (c *Core) waits(id gang.ID) (*entry, error) {
	g := c.gangs[id]
	switch {
	case g == nil:
		return nil, gang.ErrNotFound
	case !c.deciding:
		return nil, fmt.Errorf("gangd has just taken over and still learns what runs where: %w", gang.ErrNotNow)
	case g.rec.State != gang.Queued:
		return nil, fmt.Errorf("it is %s: %w", g.rec.State, gang.ErrNotWaiting)
	}
	return g, nil
}

// hold keeps a gang from starting, or no longer does.
func (c *Core) hold(in HoldRequest) {
	g, err := c.waits(in.ID)
	if err != nil {
		verb := "release"
		if in.Held {
			verb = "hold"
		}
		c.act(Answer{Reply: in.Reply, Err: fmt.Errorf("%s gang %s: %w", verb, in.ID, err)})
		return
	}
	if g.rec.Held != in.Held {
		g.rec.Held = in.Held
		c.touch(g)
		if g.inEngine {
			if err := c.decide(schedule.Hold{ID: in.ID, Held: in.Held}); err != nil {
				c.fault("hold or release: %w", err)
			}
		}
	}
	c.act(Answer{Reply: in.Reply, Statuses: []gang.Status{c.status(g, true)}})
}

func (c *Core) reorder(in ReorderRequest) {
	g, err := c.waits(in.ID)
	if err == nil {
		err = c.moveTo(g, in)
	}
	if err != nil {
		c.act(Answer{Reply: in.Reply, Err: fmt.Errorf("reorder gang %s: %w", in.ID, err)})
		return
	}
	c.act(Answer{Reply: in.Reply, Statuses: []gang.Status{c.status(g, true)}})
}

// moveTo gives a gang its new place. It and those between that and its old one
// exchange theirs, so that nobody else is before or behind more of them.
func (c *Core) moveTo(g *entry, in ReorderRequest) error {
	if !g.inEngine {
		return fmt.Errorf("it rests until %s, and has no place before that: %w", g.notBefore.UTC().Format("15:04:05"), gang.ErrNotWaiting)
	}
	line := c.lineOf(g)
	from, to := slices.Index(line, g), 0
	switch {
	case in.Before == in.ID:
		to = from
	case in.Before != "":
		if to = slices.IndexFunc(line, func(o *entry) bool { return o.rec.ID == in.Before }); to < 0 {
			return gang.Refuse("%s is no gang of tenant %s and tier %s that waits: only gangs of one tenant and tier exchange their places", in.Before, g.rec.Tenant, g.rec.Tier)
		}
		if to > from {
			to--
		}
	case in.Last:
		to = len(line) - 1
	}
	low, high := min(from, to), max(from, to)
	if high-low >= maxReordered {
		return gang.Refuse("%d gangs would change their places, and at most %d can at once: move it in steps", high-low+1, maxReordered)
	}
	c.exchange(line[low:high+1], from-low, to-low)
	return nil
}

// lineOf lists the gangs of a tenant and tier that wait, by their places.
func (c *Core) lineOf(g *entry) []*entry {
	var line []*entry
	for _, o := range c.bySeq {
		if o.inEngine && o.rec.Tenant == g.rec.Tenant && o.rec.Tier == g.rec.Tier {
			line = append(line, o)
		}
	}
	slices.SortFunc(line, func(a, b *entry) int { return cmp.Compare(a.place(), b.place()) })
	return line
}

// place is where a gang stands among those of its tenant and tier.
func (g *entry) place() uint64 { return cmp.Or(g.rec.Order, g.rec.Seq) }

// exchange moves one of some gangs among them.
func (c *Core) exchange(some []*entry, from, to int) {
	if from == to {
		return
	}
	places := make([]uint64, len(some))
	for i, o := range some {
		places[i] = o.place()
	}
	moved := some[from]
	after := slices.Insert(slices.Delete(slices.Clone(some), from, from+1), to, moved)
	ev := make(schedule.Reorder, len(after))
	for i, o := range after {
		ev[i] = schedule.Place{ID: o.rec.ID, Seq: places[i]}
		if o.rec.Order = places[i]; o.rec.Order == o.rec.Seq {
			o.rec.Order = 0
		}
		c.touch(o)
	}
	c.cut() // all or none
	if err := c.decide(ev); err != nil {
		c.fault("reorder: %w", err)
	}
}
