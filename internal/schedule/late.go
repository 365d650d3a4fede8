package schedule

import (
	"container/heap"
	"math"
	"slices"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// Who starts on GPUs to which a gang that waits has a claim is let there because
// of its estimate, by which it will have gone in time. Nobody is stopped who has
// not: the estimate grows by half, again and again, and the claim moves. What that
// costs the one who waits is bounded, whatever is estimated, and by whom.
//
// A gang is due when it was told to start, put off by all that puts it off but for
// one thing: runs that were let before claims, since it has its own, and overran.
// Once it is due for as long as its own estimate, it is late. What GPUs it has a
// claim to from then on are held for it, and it keeps to them for as long as they
// are.
//
// So it starts within its own estimate and the longest run of when it is due. For
// let it be late, and see what it has a claim to. In each decision its turn comes
// before that of those behind it, and these start on none of its GPUs, however
// short they say they are. Let those before it not do so either, and no GPU be
// lost: then each of its GPUs becomes free at most once more, when the run ends
// that has it, and stays free; and when the last one has, it starts. Where one
// before it does start there, or a GPU is lost, it has a claim to others, and this
// begins anew: how often the order may do that is bounded by shares, and by the
// place that the first blocked gang keeps.

// grown is an estimate that was overrun.
func grown(d time.Duration) time.Duration { return d + max(d/2, time.Second) }

// outgrown is an estimate that grows no more: what began so long ago is known to
// have, by a clock or a record that is wrong.
const outgrown = 100 * 365 * 24 * time.Hour

// reckon finds when a run should be over, which is yet to come.
func (r *run) reckon(now time.Time) {
	for r.end = r.expectedEnd(); !r.end.After(now); r.end = r.expectedEnd() {
		if r.estimate >= outgrown {
			r.end = now.Add(defaultEstimate)
			return
		}
		r.estimate = grown(r.estimate)
	}
}

// overdue is how much longer an attempt is supposed to take that was ordered to
// end, and has not in the time that it said it needs.
const overdue = time.Second

// renewEstimates moves the ends that have come and were none.
func (e *Engine) renewEstimates() {
	for len(e.ends) > 0 && !e.ends[0].end.After(e.now) {
		r := e.ends[0]
		if r.stop != nil {
			r.end = e.now.Add(overdue)
		} else {
			r.reckon(e.now)
		}
		e.overruns(r)
		heap.Fix(&e.ends, r.at)
		e.holdUntil(r, r.end)
	}
}

// overruns notes that a run takes longer than it was expected to. Where several do
// in one event, the start of a gang counts as put off by those of them that were
// not let before it, if there are any.
func (e *Engine) overruns(r *run) {
	passed := time.Time{}
	if r.passing {
		passed = r.began
	}
	if !e.overran || passed.Before(e.passed) {
		e.passed = passed
	}
	e.overran = true
}

// promise notes, where a gang's future start is told to be at another time than
// before, when it is due.
func (e *Engine) promise(w *waiter, at time.Time) {
	due := e.dueAt(w, at)
	if w.start.IsZero() {
		w.since = e.now
	}
	w.due = due
}

// dueAt is when a gang is due that is told to start at a time.
func (e *Engine) dueAt(w *waiter, at time.Time) time.Time {
	switch {
	case w.start.IsZero(), at.Before(w.due):
		return at
	case at.After(w.start) && (!e.overran || e.passed.Before(w.since)):
		return w.due.Add(at.Sub(w.start))
	}
	return w.due
}

// late gangs should have started, but for those that were let go before them and
// overran, by as long as they take themselves, or longer, also when they are told
// that they start at a time.
func (e *Engine) late(w *waiter, at time.Time) bool {
	return !w.start.IsZero() && e.now.Sub(e.dueAt(w, at)) >= w.estimate-w.Done
}

// claimFor is what a blocked gang has a claim to; nil where there is nothing.
func (e *Engine) claimFor(w *waiter, sizes []size) *claim {
	c := e.keepsTo(w, sizes)
	late := c != nil
	if c == nil {
		c = e.earliest(w, sizes)
		late = c != nil && e.late(w, e.startOf(c))
	}
	w.held = nil
	if late {
		c.from, c.idle = math.MinInt64, c.free()
		w.held = c
	}
	return c
}

// keepsTo is a claim to the GPUs that were held for a gang, since it was late, in
// the last decision; nil if there are none, or it has to choose again.
func (e *Engine) keepsTo(w *waiter, sizes []size) *claim {
	c := w.held
	if c == nil || w.claims < e.decided || c.free() < c.idle {
		return nil
	}
	if !slices.ContainsFunc(sizes, func(z size) bool { return z.gpus() == c.gpus() }) {
		return nil // that would break its tenant's cap by now
	}
	at := e.now.UnixNano()
	for _, h := range c.at {
		n := h.bay.node
		if e.bay(n) != h.bay || !n.GoneAt.IsZero() || !n.Usable().Has(h.gpus) {
			return nil
		}
		for m := h.gpus; m != 0; m &= m - 1 {
			at = max(at, h.bay.expected(m.First()))
		}
		if at = max(at, e.roomy(h.bay, w.Spec.MemberNeed)); at == never {
			return nil
		}
	}
	until := nanos(at, time.Duration(c.until-c.start))
	if shuts(c.at, until) {
		return nil // there is time after the window, and perhaps elsewhere before it
	}
	return &claim{owner: w, start: at, until: until, at: c.at}
}

// gpus counts those of a claim, free those of them that nobody holds.
func (c *claim) gpus() int {
	return c.count(func(h hold) cluster.Mask { return h.gpus })
}

func (c *claim) free() int {
	return c.count(func(h hold) cluster.Mask { return h.gpus & h.bay.node.Free() })
}

func (c *claim) count(of func(hold) cluster.Mask) int {
	n := 0
	for _, h := range c.at {
		n += of(h).Count()
	}
	return n
}

// estimateOf is a gang's whole run time, by its user.
func estimateOf(s *gang.Spec) time.Duration {
	if s.Estimate > 0 {
		return s.Estimate
	}
	return defaultEstimate
}
