package sim

import (
	"slices"
	"time"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/schedule"
)

// befall lets happen what the scenario says.
func (w *world) befall(e config.ScenarioEvent) {
	if e.Kind == config.Cancel {
		w.cancel(w.jobs[e.Gang])
		return
	}
	n := w.nodes[e.Node]
	switch e.Kind {
	case config.NodeDown:
		n.down = true
	case config.NodeUp:
		n.down, n.noticed = false, false
	case config.GPUBad:
		n.bad |= 1 << e.GPU
	case config.GPUOK:
		n.bad &^= 1 << e.GPU
	case config.Drain:
		n.drained = true
	case config.Undrain:
		n.drained = false
	case config.SpotNotice:
		n.noticed, n.goneAt = true, w.now+e.Notice
		w.agenda.note(n.goneAt, e.Line, func() { w.takeAway(n) })
	case config.Slow:
		n.factor = e.Factor
		w.repace(n)
		return // the engine does not know of it
	}
	w.changed(n)
	switch e.Kind {
	case config.NodeDown:
		w.lose(n, CauseNodeLost)
	case config.GPUBad:
		w.lose(n, CauseGPULost)
	}
}

// takeAway ends a spot node whose notice has run out, unless it was given back.
// What still runs there has lost its node, and is not to blame.
func (w *world) takeAway(n *node) {
	if !n.noticed || n.down || n.goneAt != w.now {
		return
	}
	n.down = true
	w.changed(n)
	for _, a := range slices.Clone(n.attempts) {
		w.endToRepeat(a, schedule.Spot)
		w.submit(a.job, time.Time{})
	}
}

// lose ends the attempts on a node that is down, or on its bad GPUs.
func (w *world) lose(n *node, cause schedule.Cause) {
	for _, a := range slices.Clone(n.attempts) {
		for _, m := range a.members {
			if m.Node == n.spec.ID && (n.down || slices.ContainsFunc(m.GPUs, func(g int) bool { return n.bad.Has(1 << g) })) {
				w.fail(a, cause, n.spec.ID, true)
				break
			}
		}
	}
}

// repace gives the attempts on a node the rate that they have from now on.
func (w *world) repace(n *node) {
	for _, a := range n.attempts {
		a.settle(w.now)
		a.rate = w.rate(a)
		if !a.stands {
			w.foresee(a)
		}
	}
}
