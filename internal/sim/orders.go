package sim

import (
	"fmt"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// carryOut does what the engine decided.
func (w *world) carryOut(d schedule.Decision) error {
	switch d := d.(type) {
	case schedule.Start:
		j := w.jobs[d.ID]
		if j == nil || j.stage != waiting || d.Attempt != j.attempts+1 || d.Placement.GPUs() != d.GPUs || !w.free(d.Placement) {
			return fmt.Errorf("the engine starts attempt %d of gang %s on %v, which cannot be", d.Attempt, d.ID, d.Placement)
		}
		w.start(j, d)
	case schedule.Stop:
		a, err := w.ordered(d.ID, d.Attempt)
		if err != nil {
			return err
		}
		w.stop(a, d)
	case schedule.CallOff:
		a, err := w.ordered(d.ID, d.Attempt)
		if err != nil {
			return err
		}
		w.carryOn(a)
	case schedule.Wait:
		if w.options.Brief {
			return nil
		}
		for i, reason := range w.engine.Reasons(d.IDs) {
			w.tell(d.IDs[i], Pending{d.Code, reason})
		}
	case schedule.Reserve:
		w.tell(d.ID, Reserved{Seconds(d.Start.Sub(epoch)), d.MovedBy})
	default:
		return fmt.Errorf("the engine decides a %T, of which a simulation knows nothing", d)
	}
	return nil
}

// free reports whether nobody holds any of the GPUs, and all of them exist.
func (w *world) free(p gang.Placement) bool {
	for _, m := range p {
		n, gpus := w.nodes[m.Node], cluster.MaskOf(m.GPUs)
		if n == nil || !cluster.MaskOf(n.indexes()).Has(gpus) || n.held&gpus != 0 {
			return false
		}
	}
	return len(p) > 0
}

// ordered finds the attempt that the engine speaks of.
func (w *world) ordered(id gang.ID, number int) (*attempt, error) {
	j := w.jobs[id]
	if j == nil || j.attempt == nil || j.attempt.number != number {
		return nil, fmt.Errorf("the engine stops attempt %d of gang %s, which does not run", number, id)
	}
	return j.attempt, nil
}

// stop has an attempt end as it was ordered: at once, or once it has saved
// what it has done. While it still loads there is nothing to save.
func (w *world) stop(a *attempt, d schedule.Stop) {
	switch d.Cause {
	case schedule.Preempted:
		w.tell(d.ID, Preempting{d.For, d.Mode})
	case schedule.Resized:
		w.tell(d.ID, Resizing{a.gpus, d.To})
	}
	saving := a.stands
	a.order = &d
	if d.Mode == schedule.Hard || a.job.Spec.Checkpoint == nil || w.now < a.from {
		w.repeat(a)
		return
	}
	if saving { // for another order, which this one replaces
		return
	}
	a.settle(w.now)
	a.stands = true
	at, do := w.now+a.job.Spec.Checkpoint.Cost, func() { w.save(a) }
	if by := d.By.Sub(epoch); !d.By.IsZero() && by < at {
		at, do = by, func() { w.repeat(a) } // there is not time enough
	}
	w.agenda.foresee(a, at, do)
}

// save makes a checkpoint durable, and ends the attempt that it was taken for.
func (w *world) save(a *attempt) {
	a.settle(w.now)
	a.savedRan, a.saved = a.ran, a.done
	w.tell(a.job.ID, Checkpointed{Seconds(a.done)})
	w.inform(schedule.Saved{ID: a.job.ID, Attempt: a.number, Done: a.done})
	w.repeat(a)
}

// repeat ends an attempt that was ordered to, and queues its gang again.
func (w *world) repeat(a *attempt) {
	w.endToRepeat(a, a.order.Cause)
	w.submit(a.job, time.Time{})
}

// carryOn lets an attempt that was to stop go on.
func (w *world) carryOn(a *attempt) {
	w.tell(a.job.ID, CalledOff{})
	a.settle(w.now)
	a.order, a.stands = nil, false
	w.foresee(a)
}
