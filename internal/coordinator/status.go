package coordinator

import (
	"fmt"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

// status is a gang as its user sees it; full with its specification.
func (c *Core) status(g *entry, full bool) gang.Status {
	s := gang.Status{Record: g.rec}
	if full {
		s.Spec = g.spec
	}
	switch {
	case g.rec.State == gang.Queued && !c.deciding:
		s.Code, s.Reason = gang.CodeNotReconciled, "gangd has just taken over and still learns what runs where"
	case g.rec.State == gang.Queued && !g.queued:
		s.Code = gang.CodeBackoff
		s.Reason = fmt.Sprintf("rests until %s after failure %d: %s", g.notBefore.UTC().Format(time.TimeOnly), g.rec.Failures, g.rec.Why)
	case g.rec.State == gang.Queued:
		s.Code, s.Reason, s.Position, _ = c.engine.Explain(g.rec.ID)
	}
	if g.rec.State.Placed() {
		p := g.progress
		s.Progress = &p
	}
	for i, m := range g.rec.Members {
		ms := gang.MemberStatus{Member: i, Node: m.Node, NodeName: c.nodeName(m.Node), GPUs: m.GPUs, Lane: m.Lane}
		if l := c.lanes[m.Lane]; l != nil {
			ms.LaneState, ms.Job, ms.Allocation, ms.UUIDs = l.rec.State, l.rec.Job, l.rec.Allocation, l.rec.UUIDs
		} else {
			ms.LaneState = gang.LaneClosed
		}
		s.Lanes = append(s.Lanes, ms)
	}
	return s
}
