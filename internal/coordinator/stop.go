package coordinator

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

var zeroTime time.Time

// stop ends the present attempt of a gang: preempting and recovering lead back
// into the queue, stopping leads to the target. Of is the lane of the member
// that it came from, nil where it came from none.
func (c *Core) stop(g *entry, to, target gang.State, why string, of *lane) {
	if g.noSpec && (to == gang.Preempting || to == gang.Recovering) {
		to, target = gang.Stopping, gang.Failed
		why += "; it cannot run again, since its specification is missing from Consul"
	}
	if g.rec.State == to || !c.move(g, to) {
		return
	}
	g.rec.Target, g.rec.Why = target, clip(why)
	g.rec.Artifact, g.rec.Thumbnail = nil, nil // an attempt's own, and it is over
	c.note("an attempt is stopped", "gang", g.rec.ID, "attempt", g.rec.Attempt, "state", to, "why", g.rec.Why)
	c.countRun(g)
	if g.rec.EndedAttempt() == nil {
		c.keepAttempt(g, g.rec.Why, of)
	}
	g.published = false
	c.ending(g)
	for _, l := range g.lanes {
		c.endLane(l, why)
	}
	c.settle(g)
}

// obeyStop ends an attempt because the engine wants its GPUs, or wants it to run
// elsewhere or at another size. One that ends already gives them back anyhow.
func (c *Core) obeyStop(d schedule.Stop) {
	g := c.active(Run{d.ID, d.Attempt})
	if g == nil {
		return
	}
	c.stop(g, gang.Preempting, "", c.whyStopped(d), nil)
	if kept := g.rec.EndedAttempt(); kept != nil {
		kept.Cause, kept.For = string(d.Cause), d.For
		c.touch(g)
	}
}

func (c *Core) whyStopped(d schedule.Stop) string {
	var why string
	switch d.Cause {
	case schedule.Resized:
		why = fmt.Sprintf("stopped to run on %d GPUs", d.To)
	case schedule.Drained:
		why = "stopped because a node of it is drained"
	case schedule.Spot:
		why = "stopped because a node of it is taken away"
	default:
		why = "preempted"
	}
	if by := c.gangs[d.For]; by != nil {
		why += fmt.Sprintf(", to make room for gang %s (tier %s, %d GPUs)", d.For, by.rec.Tier, by.rec.GPUs)
	}
	return why
}

// ending tells the engine that the GPUs of the present attempt should be free
// soon.
func (c *Core) ending(g *entry) {
	if err := c.decide(schedule.Ending{ID: g.rec.ID, Attempt: g.rec.Attempt}); err != nil && !errors.Is(err, schedule.ErrUnknown) {
		c.fault("tell that a gang ends: %w", err) // unknown: all its GPUs are free
	}
}

// recover stops a gang that has lost a member, as retry does; the node of that
// member's lane is avoided from then on.
func (c *Core) recover(g *entry, why string, of *lane) {
	g.avoid(of.rec.Node)
	c.retry(g, why, of)
}

// retry stops a gang, and counts that against its infra_retries. Whether it runs
// again is decided once its processes are gone: until then it may turn out that
// the failure was none.
func (c *Core) retry(g *entry, why string, of *lane) {
	g.rec.Failures++
	g.guessed = false
	g.rest(c.now.Add(gang.Pause(g.rec.Failures)))
	c.stop(g, gang.Recovering, "", why, of)
}

// avoid notes a node on which the gang failed.
func (g *entry) avoid(node string) { g.rec.Avoid = gang.AddAvoided(g.rec.Avoid, node) }

// unfit: a lane will not become ready. The gang is stopped whole, and avoids
// the node.
func (c *Core) unfit(l *lane, why string) {
	if g := c.active(l.laneRun()); g != nil {
		c.recover(g, fmt.Sprintf("member %d was not ready: %s", l.rec.Member, why), l)
	}
}

// lost: a lane that was busy is gone.
func (c *Core) lost(l *lane, why string) {
	if g := c.active(l.laneRun()); g != nil && l.reached < partDone {
		c.recover(g, fmt.Sprintf("member %d on %s was lost: %s", l.rec.Member, c.nodeName(l.rec.Node), why), l)
	}
}

// endedByNomad: an operator, or Nomad itself, ended a lane. That is no failure
// of the gang. Its peers may have been quicker to say that they lost one; what
// gangd itself had Nomad end is no news.
func (c *Core) endedByNomad(l *lane, why string) {
	g := c.entryOf(l.laneRun())
	switch {
	case g == nil || l.reached >= partDone:
	case c.active(l.laneRun()) != nil && l.rec.State != gang.LaneClosing:
		c.stop(g, gang.Preempting, "", why, l)
	case g.guessed && l.purge == purgeNone:
		c.acquit(g, l, why)
	}
}

// preempted: Nomad takes a lane's room for a job of more priority. The gang
// stops, which is no failure of it, rests, and avoids the node: else it might be
// taken again and again.
func (c *Core) preempted(l *lane, by string) {
	g := c.entryOf(l.laneRun())
	why := fmt.Sprintf("member %d on %s was preempted by Nomad: %s", l.rec.Member, c.nodeName(l.rec.Node), by)
	switch {
	case g == nil || l.reached >= partDone || l.preempted:
		return
	case c.active(l.laneRun()) != nil:
		g.avoid(l.rec.Node)
		g.rest(c.now.Add(gang.Pause(2)))
		c.stop(g, gang.Preempting, "", why, l)
	case g.rec.State == gang.Preempting: // its keeper was quicker to say that it ends
		g.rest(c.now.Add(gang.Pause(2)))
		c.blame(g, l, why)
	}
	l.preempted = true
}

// rest has a gang wait before it is tried again; the zero time, or one that is
// past, ends that.
func (g *entry) rest(until time.Time) {
	g.notBefore, g.rec.RestUntil = until, 0
	if !until.IsZero() {
		g.rec.RestUntil = gang.Millis(until)
	}
}

// loseLane gives up a lane whose keeper cannot be reached. Its jobs are purged,
// so that nothing of it starts anew when the node comes back, and its GPUs are
// held until the keeper's lease has run out.
func (c *Core) loseLane(l *lane, why string) {
	if l.rec.State == gang.LaneLost || l.rec.State == gang.LaneClosed || !c.moveLane(l, gang.LaneLost) {
		return
	}
	if l.connected {
		// The stream may be whole and its host only slow: it must not run on
		// beside the next attempt, with a lease that is renewed.
		c.act(CancelRun{l.keeper(), l.laneRun(), why})
	}
	l.rec.Why = clip(why)
	l.heldUntil = c.now.Add(c.cfg.Lease + leaseMargin)
	l.closeBy = zeroTime // what was ordered before may not have reached it
	c.touchLane(l)
	c.purge(l)
	for _, u := range l.rec.UUIDs {
		c.faults.add(u, c.now)
	}
	c.refresh(l.rec.UUIDs)
	c.lost(l, why)
	if g := c.entryOf(l.laneRun()); g != nil {
		c.settle(g)
	}
}

// endLane has a lane closed: gently where its gang has finished, else by
// killing what runs. A lane whose keeper was never admitted has nothing to
// kill.
func (c *Core) endLane(l *lane, why string) {
	switch l.rec.State {
	case gang.LaneClosed:
		return
	case gang.LaneLost:
	default:
		if l.rec.State != gang.LaneClosing {
			l.rec.Why = clip(why)
			c.touchLane(l)
		}
		c.moveLane(l, gang.LaneClosing)
		if l.closeBy.IsZero() {
			l.closeBy = c.now.Add(closeWithin)
		}
	}
	switch {
	case l.connected && c.finishing(l):
		c.act(CloseLane{l.keeper(), why})
	case l.connected:
		c.act(CancelRun{l.keeper(), l.laneRun(), why})
	case l.rec.Allocation == "":
		c.closed(l)
	}
}

func (c *Core) finishing(l *lane) bool {
	g := c.entryOf(l.laneRun())
	return g != nil && (g.rec.State == gang.Finishing || g.rec.State == gang.Succeeded)
}

// closed: the processes of a lane are gone. Its gang is settled before its
// GPUs are free, so that a gang that is queued again stands in its old place
// when they are given away.
func (c *Core) closed(l *lane) {
	if l.rec.State == gang.LaneClosed || !c.moveLane(l, gang.LaneClosed) {
		return
	}
	l.connected = false
	c.touchLane(l)
	c.purge(l)
	if g := c.entryOf(l.laneRun()); g != nil {
		c.settle(g)
	}
	l.freeBy = c.now.Add(nomadFrees)
	c.release(l)
}

// release gives a closed lane's GPUs back to the engine once Nomad, too, counts
// them as free: before that it would find no room there for the next lane.
func (c *Core) release(l *lane) {
	if l.rec.State != gang.LaneClosed {
		return
	}
	nomadKnows := l.terminal || l.purge == purgeDone && l.reached < partAllocated || !c.now.Before(l.freeBy)
	if !l.freed && nomadKnows {
		c.free(l)
		if err := c.decide(schedule.Release{Seat: l.seat()}); err != nil {
			c.fault("free the GPUs of lane %s: %w", l.rec.ID, err)
		}
		c.refresh(l.rec.UUIDs) // its node may have another ID by now
		c.dropNode(l.rec.Node)
	}
	c.forget(l)
}

func (c *Core) purge(l *lane) {
	if l.purge == purgeNone {
		l.purge = purgeUnderWay
		c.act(PurgeLane{Lane: l.rec.ID, Job: l.rec.Job})
	}
}

func (c *Core) lanePurged(in LanePurged) {
	l := c.lanes[in.Lane]
	if l == nil {
		return
	}
	l.purge = purgeDone
	if in.Err != nil {
		l.purge, l.purgeAt = purgeNone, c.now.Add(purgeAgain)
		c.note("jobs of a lane could not be purged; it is tried again", "lane", in.Lane, "job", l.rec.Job, "error", in.Err)
		return
	}
	c.release(l)
}

// forget drops a closed lane that has left nothing in Nomad.
func (c *Core) forget(l *lane) {
	if l.purge == purgeDone && l.freed && !l.gone {
		l.gone = true
		c.touchLane(l)
		delete(c.lanes, l.rec.ID)
		c.forgotten[l.rec.ID] = c.now.Add(lateNews)
	}
}

// abandon: a lane that was told to close has not. Its gang goes on without it, as
// that of a lost one has; its GPUs are held until the keeper, or Nomad, says that its processes ended.
func (c *Core) abandon(l *lane) {
	l.abandoned = true
	l.rec.Why = clip(fmt.Sprintf("its processes did not end within %s of the order to; look for what they hang in on %s", closeWithin, c.nodeName(l.rec.Node)))
	c.touchLane(l)
	c.note("a lane does not close; its GPUs stay held", "lane", l.rec.ID, "gang", l.rec.Gang, "node", c.nodeName(l.rec.Node), "after", closeWithin)
	if g := c.entryOf(l.laneRun()); g != nil {
		c.settle(g)
	}
}

// settle moves a gang on once all its lanes are closed, lost, or given up on:
// such a one cannot commit or publish anything.
func (c *Core) settle(g *entry) {
	for _, l := range g.lanes {
		if l.rec.State != gang.LaneClosed && l.rec.State != gang.LaneLost && !l.abandoned {
			return
		}
	}
	switch g.rec.State {
	case gang.Recovering:
		if g.rec.Failures > g.spec.InfraRetries {
			g.rec.Why += fmt.Sprintf("; that was attempt %d, and infra_retries = %d allows no more", g.rec.Attempt, g.spec.InfraRetries)
			c.end(g, gang.Failed)
			return
		}
		c.requeue(g)
	case gang.Preempting:
		c.requeue(g)
	case gang.Stopping:
		c.end(g, g.rec.Target)
	case gang.Finishing:
		if g.published {
			c.end(g, gang.Succeeded)
		}
	}
}

func (c *Core) end(g *entry, outcome gang.State) {
	if c.move(g, outcome) {
		g.rec.Target, g.guessed = "", false
		if outcome == gang.Succeeded {
			g.rec.Why = "" // what befell an earlier attempt is overcome
		}
		if g.rec.Times.Ended == 0 {
			g.rec.Times.Ended = gang.Millis(c.now)
		}
		c.retire(g)
	}
}

// requeue puts a gang back in its old place.
func (c *Core) requeue(g *entry) {
	if !c.move(g, gang.Queued) {
		return
	}
	if g.rec.EndedAttempt() == nil { // the take-over stopped it, for a damaged record
		c.keepAttempt(g, g.rec.Why, nil)
	}
	again := c.now
	if again.Before(g.notBefore) {
		again = g.notBefore
	}
	g.rec.Members, g.rec.Times, g.lanes = nil, gang.Times{Queued: gang.Millis(again)}, nil
	g.guessed = false
	g.progress, g.ranks = gang.Progress{}, nil
	if c.now.Before(g.notBefore) {
		c.resting[g.rec.ID] = g
		return
	}
	c.enqueue(g)
}

func (c *Core) enqueue(g *entry) {
	if !c.deciding {
		return // it goes with the whole queue
	}
	g.inEngine = true
	if err := c.decide(schedule.Submit{Gang: g.forEngine()}); err != nil {
		c.fault("queue gang %s again: %w", g.rec.ID, err)
	}
}

// tick lets deadlines pass.
func (c *Core) tick() {
	c.beginDeciding()
	maps.DeleteFunc(c.forgotten, func(_ gang.LaneID, until time.Time) bool { return c.now.After(until) })
	c.endRests()
	c.publishAgain()
	c.tryNodesAgain()
	c.refresh(c.faults.forget(c.now))
	c.deadlines()
	c.endWindows()
	c.passTime()
}

// passTime has the engine decide when time alone changes something.
func (c *Core) passTime() {
	if at, any := c.engine.Next(); any && c.deciding && !c.now.Before(at) {
		if err := c.decide(schedule.Tick{}); err != nil {
			c.fault("let time pass: %w", err)
		}
	}
}

// endRests queues the gangs whose pause after a failure is over.
func (c *Core) endRests() {
	for _, id := range sortedIDs(c.resting) {
		g := c.resting[id]
		if c.now.Before(g.notBefore) {
			continue
		}
		delete(c.resting, id)
		if g.rec.State == gang.Queued && !g.inEngine {
			c.enqueue(g)
		}
	}
}

// publishAgain has manifests written that could not be.
func (c *Core) publishAgain() {
	for _, id := range sortedIDs(c.unpublished) {
		g := c.unpublished[id]
		if c.now.Before(g.publishAt) {
			continue
		}
		delete(c.unpublished, id)
		if g.rec.State == gang.Finishing && !g.published {
			c.act(g.manifest())
		}
	}
}

// tryNodesAgain lets nodes have lanes again on which Nomad found no room.
func (c *Core) tryNodesAgain() {
	for _, id := range sortedIDs(c.noRoom) {
		if n := c.noRoom[id]; !c.now.Before(n.noRoomUntil) {
			c.roomAgain(n)
		}
	}
}

// deadlines are those of all lanes, and of the gangs in them.
func (c *Core) deadlines() {
	seen := make(map[gang.ID]bool)
	for _, l := range c.lanesInOrder() {
		c.laneDeadlines(l)
		// Any lane will do: member 0's may be done and gone.
		if g := c.active(l.laneRun()); g != nil && !seen[g.rec.ID] {
			seen[g.rec.ID] = true
			c.gangDeadlines(g)
		}
	}
}

func (c *Core) laneDeadlines(l *lane) {
	switch {
	case l.rec.State == gang.LaneLost && l.connected && !c.silent(l):
		// It was cancelled when it was heard again, and says when that is done.
		if l.closeBy.IsZero() {
			l.closeBy = c.now.Add(closeWithin)
		} else if !l.abandoned && !c.now.Before(l.closeBy) {
			c.abandon(l)
		}
	case l.rec.State == gang.LaneLost && !c.now.Before(l.heldUntil):
		l.terminal = true // whatever Nomad says of it, its lease has run out
		c.closed(l)
	case l.rec.State == gang.LaneClosed:
		c.release(l)
	case l.rec.State == gang.LaneOpening && l.waitsForNomad() && c.now.Sub(l.blockedSince) > blockedAfter:
		c.noRoomOn(l.rec.Node, l.blockedWhy)
		c.unfit(l, fmt.Sprintf("Nomad finds no room for it on %s: %s", c.nodeName(l.rec.Node), l.blockedWhy))
	case l.rec.State == gang.LaneClosing && l.connected && !l.abandoned && !c.now.Before(l.closeBy):
		c.abandon(l)
	case !l.connected && l.rec.Allocation != "" && !l.awayUntil.IsZero() && c.now.After(l.awayUntil):
		c.loseLane(l, "its keeper is gone")
	}
	if !l.purgeAt.IsZero() && c.now.After(l.purgeAt) {
		l.purgeAt = zeroTime
		c.purge(l)
	}
}

// waitsForNomad reports whether Nomad had no room for the lane, and has not
// placed it since.
func (l *lane) waitsForNomad() bool {
	return !l.blockedSince.IsZero() && l.reached < partAllocated
}

func (c *Core) gangDeadlines(g *entry) {
	switch {
	case g.rec.State == gang.Launching && c.now.After(g.readyBy):
		c.notReady(g)
	case g.rec.State == gang.Running && g.spec.MaxRun > 0 && c.ranFor(g) >= g.spec.MaxRun:
		c.stop(g, gang.Stopping, gang.Failed, fmt.Sprintf("it ran for %s, which is its max_run", g.spec.MaxRun), nil)
	}
}

func (c *Core) ranFor(g *entry) time.Duration {
	return time.Duration(g.rec.RunMillis)*time.Millisecond + c.now.Sub(g.runBegan)
}

// notReady ends the start barrier: the nodes of all members that are late are
// noted.
func (c *Core) notReady(g *entry) {
	var late []string
	var blame *lane
	for _, l := range g.lanes {
		if l.reached < partAccepted && (l.reached < partReady || blame == nil) {
			blame = l
		}
		if l.reached < partReady {
			late = append(late, fmt.Sprintf("member %d on %s", l.rec.Member, c.nodeName(l.rec.Node)))
			g.avoid(l.rec.Node)
		}
	}
	if len(late) == 0 { // all were, and one was told to run and did not answer
		late = append(late, fmt.Sprintf("member %d on %s does not answer the order to run", blame.rec.Member, c.nodeName(blame.rec.Node)))
	}
	c.recover(g, fmt.Sprintf("not all members were ready within %s: %s; if they load that long, raise %s",
		c.readyTimeout(g), strings.Join(late, ", "), g.whoseTimeout()), blame)
}
