package sim

import (
	"math"
	"time"

	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// attempt is a run of a gang. Its progress is kept as it was at one moment,
// with the rate from there on, so that it does not depend on how often anyone
// looks.
type attempt struct {
	job     *job
	number  int
	members gang.Placement
	gpus    int
	began   time.Duration
	// from is the moment of what follows; it may be to come, while weights and
	// checkpoints are loaded.
	from time.Duration
	// ran is the attempt's run time, and done what the gang has done, at the
	// preferred size and at speed 1.
	ran, done time.Duration
	// savedRan and saved are what ran and done were at the newest checkpoint.
	savedRan, saved time.Duration
	// rate is what one second of run adds to done.
	rate float64
	// stood is the time that it has stood still.
	stood time.Duration
	// order is the stop that was ordered; the run stands still while it saves.
	order  *schedule.Stop
	stands bool
	// plan numbers what the agenda has of the attempt; what is older is void.
	plan int
}

// start begins an attempt.
func (w *world) start(j *job, d schedule.Start) {
	j.attempts = d.Attempt
	if d.Attempt == 1 {
		j.began = w.now
	}
	a := &attempt{
		job: j, number: d.Attempt, members: d.Placement, gpus: d.GPUs, began: w.now,
		from: w.now + w.preparation(j, d), done: j.done, saved: j.done,
	}
	j.attempt = a
	w.move(j, running)
	w.occupy(a)
	w.tell(j.ID, Started{d.Attempt, d.GPUs, Members(d.Placement), d.Warm, Seconds(j.done)})
	a.rate = w.rate(a)
	w.foresee(a)
}

// preparation is the time until the run begins: members load the weights that
// are not warm and the checkpoint side by side.
func (w *world) preparation(j *job, d schedule.Start) time.Duration {
	var load, restore time.Duration
	if d.Warm < len(d.Placement) {
		load = w.models[j.Spec.Model].Load
	}
	if j.done > 0 && j.Spec.Checkpoint != nil {
		restore = j.Spec.Checkpoint.Restore
	}
	return max(load, restore)
}

// rate is that of the slowest member.
func (w *world) rate(a *attempt) float64 {
	speeds := w.models[a.job.Spec.Model].Speed
	slowest := math.Inf(1)
	for _, m := range a.members {
		n := w.nodes[m.Node]
		speed, known := speeds[n.spec.GPUs[0].Model]
		if !known {
			speed = 1
		}
		slowest = min(slowest, speed/n.factor)
	}
	return slowest * a.job.Spec.SpeedAt(a.gpus)
}

// settle brings the progress up to the present.
func (a *attempt) settle(now time.Duration) {
	if now <= a.from {
		return
	}
	if a.stands {
		a.stood += now - a.from
		a.from = now
		return
	}
	ran := a.ran + now - a.from
	if c := a.job.Spec.Checkpoint; c != nil && c.Every > 0 {
		if last := ran - ran%c.Every; last > a.ran {
			a.savedRan, a.saved = last, a.done+scaled(last-a.ran, a.rate)
		}
	}
	a.done += scaled(now-a.from, a.rate)
	a.ran, a.from = ran, now
}

func scaled(d time.Duration, by float64) time.Duration {
	return time.Duration(math.Round(float64(d) * by))
}

// foresee notes in the agenda how the attempt will end if nothing comes in
// between.
func (w *world) foresee(a *attempt) {
	j := a.job
	at, do := a.reaches(j.Duration), func() { w.succeed(a) }
	if e := j.Exit; e != nil && !j.exited && e.Member < len(a.members) && a.done <= e.After {
		if t := a.reaches(e.After); t < at {
			at, do = t, func() { w.exit(a) }
		}
	}
	if limit := j.Spec.MaxRun; limit > 0 {
		if t := a.from + max(limit-j.ran-a.ran, 0); t < at {
			at, do = t, func() {
				w.end(a, CauseMaxRun)
				w.finish(j, Failed)
			}
		}
	}
	a.plan++
	if at < Forever {
		w.agenda.foresee(a, at, do)
	}
}

// reaches is the first moment at which so much is done.
func (a *attempt) reaches(done time.Duration) time.Duration {
	left := math.Ceil(float64(max(done-a.done, 0)) / a.rate)
	if left >= float64(Forever-a.from) {
		return Forever
	}
	return a.from + time.Duration(left)
}

func (w *world) succeed(a *attempt) {
	w.end(a, CauseFinished)
	w.finish(a.job, Succeeded)
}

// exit lets the member fail of which the scenario says so.
func (w *world) exit(a *attempt) {
	e := a.job.Exit
	a.job.exited = true
	w.fail(a, CauseMemberFailed, a.members[e.Member].Node, e.Retryable)
}

// end ends an attempt with which the gang itself ends: nothing is done again.
func (w *world) end(a *attempt, cause schedule.Cause) {
	a.settle(w.now)
	w.close(a, cause, a.ran, 0)
}

// endToRepeat ends an attempt after which the gang goes on from its newest
// checkpoint.
func (w *world) endToRepeat(a *attempt, cause schedule.Cause) {
	a.settle(w.now)
	lost := a.done - a.saved
	a.job.done = a.saved
	if a.job.Spec.Checkpoint == nil {
		lost, a.job.done = a.done, 0
	}
	w.close(a, cause, a.savedRan, lost)
}

// close gives the GPUs back and charges for them. Of the attempt's run time
// kept need not be done again; lost must be.
func (w *world) close(a *attempt, cause schedule.Cause, kept, lost time.Duration) {
	a.plan++
	a.job.ran += a.ran
	a.job.attempt = nil
	w.account.charge(a, w.now, kept)
	if cause == schedule.Preempted {
		w.account.preemptions++
	}
	w.vacate(a)
	w.tell(a.job.ID, Stopped{cause, Amount(float64(a.gpus) * lost.Seconds())})
}
