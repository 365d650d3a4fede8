package sim

import (
	"time"

	"github.com/gangd/gangd/internal/config"
)

// Life is what became of one gang in a play.
type Life struct {
	// Gang is as in the scenario, its estimate as the engine knew it.
	Gang *config.ScenarioGang
	// Arrived: it was submitted before the play ended. What follows is zero
	// otherwise.
	Arrived bool
	// Rejected gangs could never have run.
	Rejected bool
	// Outcome is empty where the gang was rejected, or had not ended when the
	// play did.
	Outcome Outcome
	// Attempts counts its starts. Began is the first, where it had one, and Ended
	// its end, or that of the play.
	Attempts     int
	Began, Ended time.Duration
	// Waited is the time in the queue, before its first start and after each
	// attempt that did not come to an end.
	Waited time.Duration
	// Held is GPU time in all, in GPU-seconds; of that Lost had to be run again,
	// and Loading went into weights and checkpoints.
	Held, Lost, Loading float64
}

// lives closes the books on all gangs.
func (w *world) lives() []Life {
	out := make([]Life, len(w.order))
	for i, j := range w.order {
		l := Life{
			Gang: &j.ScenarioGang, Arrived: j.stage != coming, Rejected: j.rejected, Outcome: j.outcome, Attempts: j.attempts,
			Began: j.began, Ended: j.ended, Waited: j.waited, Held: j.held, Lost: j.lost, Loading: j.loading,
		}
		if l.Arrived && j.stage != over {
			l.Ended = w.now
		}
		if j.stage == waiting {
			l.Waited += w.now - j.queued
		}
		out[i] = l
	}
	return out
}
