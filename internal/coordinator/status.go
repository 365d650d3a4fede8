package coordinator

import (
	"fmt"
	"slices"
	"time"

	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// listing is what a list shows of the gangs, and how many matched.
type listing struct {
	gangs []gang.Status
	total int
}

// list makes no more than what is shown: it runs within the loop, which renews
// the leader's lock.
func (c *Core) list(want gang.Selection) listing {
	var shown []*entry
	total := 0
	add := func(g *entry, ended bool) {
		if g.rec.State.Terminal() != ended || !want.Takes(&g.rec) {
			return
		}
		if total++; len(shown) < want.Limit {
			shown = append(shown, g)
		}
	}
	for _, g := range c.bySeq {
		add(g, false)
	}
	for _, g := range slices.Backward(c.bySeq) {
		add(g, true)
	}
	out := listing{make([]gang.Status, len(shown)), total}
	reasons := c.engine.Explainer(c.now)
	for i, g := range shown {
		out.gangs[i] = c.describe(g, false, reasons)
	}
	return out
}

// status is a gang as its user sees it; full with its specification and its
// attempts.
func (c *Core) status(g *entry, full bool) gang.Status {
	return c.describe(g, full, c.engine.Explainer(c.now))
}

func (c *Core) describe(g *entry, full bool, reasons *schedule.Explainer) gang.Status {
	s := gang.Status{Record: g.rec}
	if full {
		s.Spec = g.spec
	} else {
		s.Attempts = nil
	}
	for _, id := range g.rec.Avoid {
		s.AvoidNames = append(s.AvoidNames, c.nodeName(id))
	}
	switch {
	case g.rec.State == gang.Queued && !c.deciding:
		s.Code, s.Reason = gang.CodeNotReconciled, "gangd has just taken over and still learns what runs where"
	case g.rec.State == gang.Queued && !g.inEngine:
		s.Code = gang.CodeBackoff
		s.Reason = fmt.Sprintf("rests until %s: %s", g.notBefore.UTC().Format(time.TimeOnly), g.rec.Why)
	case g.rec.State == gang.Queued:
		s.Code, s.Reason, s.Position, _ = reasons.Explain(g.rec.ID)
	}
	if g.rec.State.Placed() {
		p := g.progress
		s.Progress = &p
	}
	for i, m := range g.rec.Members {
		ms := gang.MemberStatus{Member: i, Node: m.Node, NodeName: c.nodeName(m.Node), GPUs: m.GPUs, Lane: m.Lane}
		if l := c.lanes[m.Lane]; l != nil {
			ms.LaneState, ms.Job, ms.Allocation, ms.UUIDs = l.rec.State, l.rec.Job, l.allocation(), l.rec.UUIDs
		} else {
			ms.LaneState, ms.Allocation = gang.LaneClosed, g.rec.EndedAttempt().Allocation(i)
		}
		s.Lanes = append(s.Lanes, ms)
	}
	return s
}
