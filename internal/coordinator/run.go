package coordinator

import (
	"errors"
	"fmt"

	"github.com/gangd/gangd/internal/gang"
)

// observeKeeper takes in what a lane's keeper says. What is said by one that was
// not admitted, or of an attempt that is not the present one, is ignored.
func (c *Core) observeKeeper(in keeperWord) {
	l := c.lanes[in.keeper().Lane]
	if l == nil || l.keeper() != in.keeper() {
		return
	}
	switch in := in.(type) {
	case KeeperGone:
		c.keeperGone(l)
	case KeeperReady:
		c.ready(l)
	case KeeperAccepted:
		c.accepted(l, in)
	case KeeperStage:
		c.stage(in)
	case KeeperStep:
		c.step(in)
	case KeeperResult:
		c.result(in)
	case KeeperError:
		c.runnerError(l, in)
	case KeeperRankExit:
		c.rankExit(l, in)
	case KeeperEnded:
		c.endedRun(l, in)
	case KeeperRefused:
		c.refused(l, in)
	case KeeperClosed:
		c.keeperClosed(l, in)
	default:
		c.fault("take in %T: the core does not know it", in)
	}
}

// keeperGone: a keeper's stream broke; it is expected back soon.
func (c *Core) keeperGone(l *lane) {
	if l.connected {
		l.connected = false
		l.awayUntil = c.now.Add(keeperAway)
		l.heldUntil = c.now.Add(c.cfg.Lease + leaseMargin)
	}
}

// active returns the gang of a run that is launching or running.
func (c *Core) active(r Run) *entry {
	g := c.entryOf(r)
	if g == nil || (g.rec.State != gang.Launching && g.rec.State != gang.Running) {
		return nil
	}
	return g
}

func (c *Core) stage(in KeeperStage) {
	if g := c.active(in.Run); g != nil && in.Rank == 0 && g.progress.Stage != in.Stage {
		g.progress.Stage = in.Stage
		c.act(Changed{g.rec.ID})
	}
}

// step keeps the progress of the slowest rank, which never goes back within an
// attempt.
func (c *Core) step(in KeeperStep) {
	g := c.active(in.Run)
	if g == nil || in.Rank < 0 || in.Rank >= g.rec.GPUs || in.I <= g.ranks[in.Rank] {
		return
	}
	g.ranks[in.Rank] = in.I
	slowest := in.I
	if len(g.ranks) < g.reporting() {
		slowest = 0
	}
	for _, i := range g.ranks {
		slowest = min(slowest, i)
	}
	if slowest > g.progress.Step {
		g.progress.Step, g.progress.Steps, g.progress.StepMillis = slowest, in.N, in.Millis
		c.act(Changed{g.rec.ID})
	}
}

// reporting is how many ranks must have spoken before the slowest is known:
// one a member at least, since a runner may have one process a node.
func (g *entry) reporting() int { return len(g.rec.Members) }

func (c *Core) result(in KeeperResult) {
	g := c.active(in.Run)
	if g == nil || in.Artifact == nil {
		return
	}
	if g.rec.Artifact != nil && g.rec.Artifact.SHA256 != in.Artifact.SHA256 {
		c.note("a second member made an artifact; the first one counts", "gang", g.rec.ID, "lane", in.Lane)
		return
	}
	// Written now: the lane may be gone before the gang finishes.
	g.rec.Artifact, g.rec.Thumbnail = in.Artifact, in.Thumbnail
	c.touch(g)
}

// runnerError: a runner said that it failed. Its peers may have been quicker to
// say that they lost one; the word of the one that is to blame goes before that.
func (c *Core) runnerError(l *lane, in KeeperError) {
	g := c.entryOf(in.Run)
	if g == nil || c.active(in.Run) == nil && !g.guessed {
		return
	}
	why := fmt.Sprintf("rank %d: %s: %s", in.Rank, in.Class, in.Message)
	switch {
	case in.Class == ClassPeerLost && g.guessed:
	case in.Class == ClassPeerLost:
		c.retry(g, why, l)
		g.guessed = g.rec.State == gang.Recovering
	case !in.Retryable:
		if g.guessed {
			c.correct(g, l, why)
		}
		c.stop(g, gang.Stopping, gang.Failed, why, l)
	case g.guessed:
		c.blame(g, l, why)
	default:
		c.recover(g, why, l)
	}
}

// rankExit: a rank is gone. Its peers may have been quicker to say that they
// lost one: what is known of the one that is to blame goes before that.
func (c *Core) rankExit(l *lane, in KeeperRankExit) {
	why := fmt.Sprintf("rank %d on %s ended in the midst of the run: %s", in.Rank, c.nodeName(l.rec.Node), in.Message)
	if g := c.active(in.Run); g != nil {
		c.recover(g, why, l)
		return
	}
	if g := c.entryOf(in.Run); g != nil && g.guessed {
		c.blame(g, l, why)
	}
}

// endedRun: a gang no longer runs in one lane. What led to it was told before,
// except where the outcome itself is the news.
func (c *Core) endedRun(l *lane, in KeeperEnded) {
	if l.laneRun() != in.Run {
		return
	}
	where := fmt.Sprintf("member %d on %s", l.rec.Member, c.nodeName(l.rec.Node))
	if in.Outcome == OutcomeTaskStopped {
		c.endedByNomad(l, fmt.Sprintf("%s was stopped through Nomad (a job stop, or a drain): %s", where, in.Message))
		return
	}
	g := c.active(in.Run)
	if g == nil {
		return
	}
	switch in.Outcome {
	case OutcomeSucceeded:
		c.reach(l, partDone)
		c.finish(g)
	case OutcomeStoreFailed:
		c.retry(g, fmt.Sprintf("%s could not store its result: %s", where, in.Message), l)
	default:
		c.recover(g, fmt.Sprintf("%s ended: %s", where, in.Message), l)
	}
}

// refused: a keeper does not run what it was told to cancel. Its member was
// done already, or came to its end meanwhile; the lane is to close all the same.
func (c *Core) refused(l *lane, in KeeperRefused) {
	ending := l.rec.State == gang.LaneClosing || l.rec.State == gang.LaneLost
	if ending && l.laneRun() == in.Run {
		c.act(CloseLane{l.keeper(), l.rec.Why})
		return
	}
	c.note("a keeper refused an order", "lane", in.Lane, "gang", in.Run.Gang, "attempt", in.Run.Attempt, "reason", in.Reason)
}

// finish: once every member ended well, the result is noted, published, and
// the lanes close.
func (c *Core) finish(g *entry) {
	for _, l := range g.lanes {
		if l.reached < partDone {
			return
		}
	}
	if !c.move(g, gang.Finishing) {
		return
	}
	c.countRun(g)
	c.keepAttempt(g, "", nil)
	c.publish(g)
	c.ending(g)
	for _, l := range g.lanes {
		c.endLane(l, "its gang has finished")
	}
}

// publish has a finished gang's manifest written, for the first time.
func (c *Core) publish(g *entry) {
	g.publishPause, g.publishBy = publishFirst, c.now.Add(publishWithin)
	c.act(g.manifest())
}

func (g *entry) manifest() Publish {
	return Publish{Run: g.run(), Manifest: Manifest{
		Gang: g.rec.ID, Attempt: g.rec.Attempt, Fence: g.rec.Fence, Artifact: g.rec.Artifact, Thumbnail: g.rec.Thumbnail,
	}}
}

// published: a store that cannot be reached costs a finished gang nothing but
// time. It holds no GPUs meanwhile.
func (c *Core) published(in Published) {
	g := c.entryOf(in.Run)
	if g == nil || g.rec.State != gang.Finishing {
		return
	}
	switch {
	case in.Err == nil:
		g.published = true
		delete(c.unpublished, g.rec.ID)
		c.settle(g)
	case errors.Is(in.Err, ErrPublished) || !c.now.Before(g.publishBy):
		delete(c.unpublished, g.rec.ID)
		c.stop(g, gang.Stopping, gang.Failed, fmt.Sprintf("its result could not be published: %v", in.Err), nil)
	default:
		g.publishAt = c.now.Add(g.publishPause)
		g.publishPause = min(2*g.publishPause, publishMost)
		c.unpublished[g.rec.ID] = g
		c.note("the result of a gang could not be published; it is tried again", "gang", g.rec.ID, "at", g.publishAt, "error", in.Err)
	}
}

// countRun adds the time since the start to the gang's run time.
func (c *Core) countRun(g *entry) {
	if !g.runBegan.IsZero() {
		g.rec.RunMillis += c.now.Sub(g.runBegan).Milliseconds()
		g.rec.Times.Ended = gang.Millis(c.now)
	}
	g.runBegan = zeroTime
}

// keeperClosed: the lane's runner is gone. If nobody asked for that, its gang
// stops too.
func (c *Core) keeperClosed(l *lane, in KeeperClosed) {
	switch {
	case in.ByNomad:
		c.endedByNomad(l, fmt.Sprintf("member %d on %s was stopped through Nomad: %s", l.rec.Member, c.nodeName(l.rec.Node), in.Reason))
	case l.rec.State == gang.LaneOpening || l.rec.State == gang.LaneIdle:
		c.unfit(l, fmt.Sprintf("its lane on %s closed: %s", c.nodeName(l.rec.Node), in.Reason))
	default:
		c.lost(l, in.Reason)
	}
	c.closed(l)
}
