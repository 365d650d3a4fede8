package coordinator

import (
	"cmp"
	"slices"

	"github.com/gangd/gangd/internal/gang"
)

// maxWaits is how many of the last waits of a tier are looked at.
const maxWaits = 256

// waits are the last waits of a tier, from acceptance to the first start, in
// milliseconds.
type waits struct {
	last []int64
	next int
}

// waitOver notes that a gang starts for the first time.
func (c *Core) waitOver(g *entry) {
	w := c.waited[g.rec.Tier]
	if w == nil {
		w = new(waits)
		c.waited[g.rec.Tier] = w
	}
	wait := max(0, gang.Millis(c.now)-g.rec.Accepted)
	if len(w.last) < maxWaits {
		w.last = append(w.last, wait)
		return
	}
	w.last[w.next] = wait
	w.next = (w.next + 1) % maxWaits
}

// shares says who has how much, with what was charged, and how long gangs
// waited.
func (c *Core) shares() gang.Shares {
	s := c.engine.Shares(c.now)
	for i := range s.Tenants {
		if a := c.accounts[s.Tenants[i].Name]; a != nil {
			s.Tenants[i].GPUMillis = a.rec.GPUMillis
		}
	}
	oldest := make(map[string]int64)
	for _, g := range c.bySeq {
		if _, known := oldest[g.rec.Tier]; !known && g.rec.State == gang.Queued && !g.rec.Held {
			oldest[g.rec.Tier] = gang.Millis(c.now) - cmp.Or(g.rec.Times.Queued, g.rec.Accepted)
		}
	}
	for i := range s.Tiers {
		row := &s.Tiers[i]
		row.OldestMillis = max(0, oldest[row.Name])
		w := c.waited[row.Name]
		if w == nil {
			continue
		}
		sorted := slices.Sorted(slices.Values(w.last))
		row.Starts, row.MedianMillis = len(sorted), sorted[len(sorted)/2]
		for _, wait := range sorted {
			if row.TargetMillis > 0 && wait <= row.TargetMillis {
				row.Met++
			}
		}
	}
	return s
}

// outlook says all that is known of a gang, and what is to be expected of it.
func (c *Core) outlook(g *entry) gang.Outlook {
	reasons := c.engine.Explainer(c.now)
	out := gang.Outlook{Status: c.describe(g, true, reasons)}
	if g.inEngine {
		out.Ahead, out.Waiting = reasons.Ahead(g.rec.ID, gang.MaxAhead)
	}
	starts, ends, protected := c.engine.Expect(g.rec.ID, c.now)
	if g.inEngine && !starts.IsZero() {
		out.Starts = gang.Millis(starts)
	}
	if g.rec.State.Placed() {
		if !ends.IsZero() {
			out.Ends = gang.Millis(ends)
		}
		if !protected.IsZero() {
			out.Protected = gang.Millis(protected)
		}
	}
	return out
}
