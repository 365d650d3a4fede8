package sim

import (
	"slices"
	"time"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// job is a gang with what has become of it.
type job struct {
	config.ScenarioGang
	stage stage
	// seq is the place of its arrival.
	seq      uint64
	attempts int
	attempt  *attempt // while it runs
	// done is the run time, at the preferred size and at speed 1, that its
	// newest checkpoint saved; ran is the run time of all ended attempts.
	done, ran time.Duration
	// failures count against the retries; exited says that its exit has come.
	failures int
	exited   bool
	avoid    []string

	began    time.Duration // its first start, if it had one
	ended    time.Duration
	rejected bool
	// held and kept are in GPU-seconds: all that it held, and the run time that
	// need not be done again.
	held, kept float64
	// lost and loading are too: run time that had to be done again, and the time
	// that weights and checkpoints took to load.
	lost, loading float64
	// queued is since when it waits, while it does, and waited how long it did
	// before that, before all of its starts.
	queued, waited time.Duration
	outcome        Outcome
}

// stage is where a job is in its life.
type stage int

const (
	coming stage = iota
	waiting
	running
	over
)

// move takes a job from one stage to another.
func (w *world) move(j *job, to stage) {
	count := func(s stage, by int) {
		switch s {
		case waiting:
			w.waiting += by
		case running:
			w.running += by
		}
	}
	count(j.stage, -1)
	count(to, +1)
	if j.stage == waiting {
		j.waited += w.now - j.queued
	}
	if to == waiting {
		j.queued = w.now
	}
	j.stage = to
	if to == over {
		w.living--
		j.ended = w.now
	}
}

// arrive has a gang submitted for the first time.
func (w *world) arrive(j *job) {
	if e := w.options.Estimator; e != nil {
		spec := *j.Spec // which other gangs may share
		spec.Estimate = e.Estimate(&j.ScenarioGang)
		j.Spec = &spec
	}
	w.tell(j.ID, Submitted{j.Spec.Tenant, j.Spec.Tier, j.Spec.GPUs})
	w.account.arrivals++
	j.seq = w.account.arrivals
	w.submitted = append(w.submitted, j)
	w.submit(j, time.Time{})
}

// submit puts a gang into the queue, where it keeps the place of its arrival.
func (w *world) submit(j *job, notBefore time.Time) {
	w.move(j, waiting)
	w.inform(schedule.Submit{Gang: schedule.Gang{
		ID: j.ID, Seq: j.seq, Attempt: j.attempts + 1, Spec: j.Spec, Done: j.done,
		NotBefore: notBefore, Accepted: j.attempts > 0, Avoid: j.avoid,
	}})
}

func (w *world) reject(j *job, reason string) {
	j.rejected = true
	w.move(j, over)
	w.tell(j.ID, Rejected{reason})
}

// finish ends the life of a job. What a gang had done that did not succeed
// was of no use.
func (w *world) finish(j *job, how Outcome) {
	if how != Succeeded {
		w.account.useful -= j.kept
		w.account.wasted += j.kept
	}
	w.move(j, over)
	j.outcome = how
	if e := w.options.Estimator; e != nil && how == Succeeded {
		e.Finished(&j.ScenarioGang)
	}
	w.tell(j.ID, Finished{how})
}

// cancel ends a job at its user's wish. One that is not there yet, or no more,
// takes no notice.
func (w *world) cancel(j *job) {
	switch j.stage {
	case running:
		w.end(j.attempt, CauseCancelled)
		w.finish(j, Cancelled)
	case waiting:
		w.withdraw(j)
		w.finish(j, Cancelled)
	}
}

// withdraw takes a gang out of the queue, or keeps the engine from hearing of
// it at all.
func (w *world) withdraw(j *job) {
	untold := slices.IndexFunc(w.events, func(e schedule.Event) bool {
		s, ok := e.(schedule.Submit)
		return ok && s.Gang.ID == j.ID
	})
	if untold < 0 {
		w.inform(schedule.Withdraw{ID: j.ID})
		return
	}
	w.events = slices.Delete(w.events, untold, untold+1)
	w.submitted = slices.DeleteFunc(w.submitted, func(o *job) bool { return o == j })
}

// fail ends an attempt that has lost a member on a node, and has the gang
// start again within the bounds of its retries.
func (w *world) fail(a *attempt, cause schedule.Cause, node string, retryable bool) {
	j := a.job
	j.failures++
	again := retryable && j.failures <= j.Spec.InfraRetries
	if !again {
		w.end(a, cause)
		w.finish(j, Failed)
		return
	}
	j.avoid = gang.AddAvoided(j.avoid, node)
	w.endToRepeat(a, cause)
	w.submit(j, w.clock().Add(gang.Pause(j.failures)))
}
