package coordinator

import (
	"cmp"

	"github.com/gangd/gangd/internal/gang"
)

// keepAttempt notes in the gang's record that its present attempt has ended:
// when, why, and which allocations have its logs, first that of the lane which
// its end came from, if any.
func (c *Core) keepAttempt(g *entry, why string, of *lane) {
	a := gang.Attempt{N: g.rec.Attempt, Decided: g.rec.Times.Decided, Started: g.rec.Times.Started, Ended: gang.Millis(c.now), Why: why}
	if kept := g.rec.EndedAttempt(); kept != nil {
		a.Ended, a.Cause, a.For = kept.Ended, kept.Cause, kept.For
	}
	if why != "" {
		a.LostGPUMillis = int64(g.rec.Members.GPUs()) * max(0, a.Ended-a.Decided)
	}
	if of != nil {
		a.Members = append(a.Members, c.attemptMember(of))
	}
	for _, l := range g.lanes {
		if l != of && len(a.Members) < gang.MaxAttemptMembers {
			a.Members = append(a.Members, c.attemptMember(l))
		}
	}
	g.rec.Keep(a)
	c.touch(g)
}

func (c *Core) attemptMember(l *lane) gang.AttemptMember {
	return gang.AttemptMember{Member: l.rec.Member, Node: l.rec.Node, NodeName: c.nodeName(l.rec.Node), Allocation: l.allocation()}
}

// allocation is the one that was admitted, else the one that Nomad made.
func (l *lane) allocation() string { return cmp.Or(l.rec.Allocation, l.placed) }

// correct tells better than what was guessed why an attempt ended.
func (c *Core) correct(g *entry, l *lane, why string) {
	g.guessed = false
	g.rec.Why = clip(why)
	c.keepAttempt(g, g.rec.Why, l)
}

// blame corrects what was guessed: the node of the lane is avoided from then on.
func (c *Core) blame(g *entry, l *lane, why string) {
	c.correct(g, l, why)
	g.avoid(l.rec.Node)
}

// acquit corrects what was guessed: it was no failure, and counts as none.
func (c *Core) acquit(g *entry, l *lane, why string) {
	c.correct(g, l, why)
	g.rec.Failures--
	g.rest(zeroTime)
}
