package schedule

import (
	"container/heap"
	"math"
	"slices"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// run is an attempt that holds GPUs.
type run struct {
	id      gang.ID
	seq     uint64
	attempt int
	spec    *gang.Spec
	tier    *tier
	tenant  *tenant
	shape   *shape
	place   gang.Placement
	size    size
	gpu     string  // model
	seats   []*seat // by member; nil where it is released, or was never known
	left    int     // seats that are held

	began time.Time
	// ready is when it is expected to run, done what it had then, rate what it
	// does in a second, in seconds of run time at the preferred size and speed 1.
	ready time.Time
	done  time.Duration
	rate  float64
	// saved is what its checkpoints hold; tellsSaves says that they are told of.
	saved      time.Duration
	tellsSaves bool
	// estimate of its whole run, at the preferred size and speed 1; end is when
	// it should be over.
	estimate time.Duration
	end      time.Time
	at       int // in the queue of ends

	// owed: it was started under a min_share, by credit or within a guarantee,
	// and the tiers above do not stop it.
	owed bool
	// passing: it was let go before gangs that held a future start.
	passing bool
	// behind are the gangs that it passed: older ones of its tenant that waited.
	behind []*waiter
	// stop is the order to end, if there is one.
	stop *Stop
	plan *plan
}

// seat is one member of a run; its run is nil where nothing is known of it.
type seat struct {
	run  *run
	node *cluster.Node
	gpus cluster.Mask
	need gang.Need
}

// start carries out what was found for a gang.
func (e *Engine) start(w *waiter, f *found) {
	r := &run{
		id: w.ID, seq: w.Seq, attempt: w.Attempt, spec: w.Spec, tier: w.tier, tenant: w.tenant, shape: w.shape,
		place: f.place, size: f.size, gpu: f.gpu, seats: make([]*seat, len(f.place)), left: len(f.place),
		began: e.now, ready: e.now.Add(w.startup(f.warm)), done: w.Done, saved: w.Done,
		rate: w.shape.speedOn(f.gpu) / f.size.slower, estimate: w.estimate, owed: w.phase != byShare,
	}
	r.end = r.expectedEnd()
	warm := 0
	for i, m := range f.place {
		n, gpus := e.cluster.Node(m.Node), cluster.MaskOf(m.GPUs)
		if w.Spec.Model != "" && n.Warm(w.Spec.Model, gpus) {
			warm++
		}
		n.Heat(w.Spec.Model, gpus)
		e.cluster.Take(n, gpus, w.Spec.MemberNeed)
		r.seats[i] = &seat{r, n, gpus, w.Spec.MemberNeed}
		e.seats[Seat{w.ID, w.Attempt, i}] = r.seats[i]
		e.setUntil(n, gpus, r.end)
	}
	if w.phase == byMinShare {
		w.tier.credit = max(0, w.tier.credit-w.price())
	}
	w.tenant.running += f.size.gpus()
	w.tier.running += f.size.gpus()
	e.runs[w.ID] = r
	e.begun = append(e.begun, r)
	e.starts++
	heap.Push(&e.ends, r)
	e.mayResize(r)
	e.dequeue(w)
	e.decide(Start{ID: w.ID, Attempt: w.Attempt, Placement: f.place, GPUs: f.size.gpus(), Warm: warm, Done: w.Done, Owed: r.owed})
}

// release takes back the GPUs of a seat.
func (e *Engine) release(at Seat, s *seat) {
	e.cluster.Release(s.node, s.gpus, s.need)
	e.setUntil(s.node, s.gpus, time.Time{})
	delete(e.seats, at)
	e.gained = append(e.gained, s.node)
	r := s.run
	if r == nil {
		return
	}
	for _, w := range r.behind {
		w.passed -= s.gpus.Count()
	}
	r.tenant.running -= s.gpus.Count()
	r.tier.running -= s.gpus.Count()
	r.seats[at.Member] = nil
	if r.left--; r.left > 0 {
		return
	}
	if len(r.spec.Elastic) > 0 {
		e.elastic = slices.DeleteFunc(e.elastic, func(o *run) bool { return o == r })
	}
	if r.at >= 0 {
		heap.Remove(&e.ends, r.at)
	}
	if e.runs[at.ID] == r {
		delete(e.runs, at.ID)
	}
}

// ran is the time that a run has run by now.
func (r *run) ran(now time.Time) time.Duration { return max(0, now.Sub(r.ready)) }

// progress is the run time that it has done by now, at the preferred size and
// at speed 1.
func (r *run) progress(now time.Time) time.Duration {
	return r.done + time.Duration(float64(r.ran(now))*r.rate)
}

// unsaved is the time that it has run since its last checkpoint.
func (r *run) unsaved(now time.Time) time.Duration {
	c := r.spec.Checkpoint
	switch {
	case c == nil:
		return r.ran(now) + time.Duration(float64(r.done)/r.rate)
	case r.tellsSaves:
		return time.Duration(float64(r.progress(now)-r.saved) / r.rate)
	case c.Every == 0:
		return r.ran(now)
	}
	return r.ran(now) % c.Every
}

func (r *run) expectedEnd() time.Time {
	return r.ready.Add(time.Duration(math.Ceil(float64(r.estimate-r.done) / r.rate)))
}

// holdUntil notes when the GPUs of a run should be free.
func (e *Engine) holdUntil(r *run, end time.Time) {
	for _, s := range r.seats {
		if s != nil {
			e.setUntil(s.node, s.gpus, end)
		}
	}
}

// reend puts a run whose end is another in its place.
func (e *Engine) reend(r *run) {
	heap.Fix(&e.ends, r.at)
	e.holdUntil(r, r.end)
}

// Next returns when time alone will change something.
func (e *Engine) Next() (at time.Time, any bool) {
	sooner := func(t time.Time) {
		if t.After(e.now) && (!any || t.Before(at)) {
			at, any = t, true
		}
	}
	if len(e.ends) > 0 && len(e.waiting) > 0 {
		sooner(e.ends[0].end)
	}
	sooner(e.windowsTurn)
	wants := false
	for _, w := range e.waiting {
		if !w.NotBefore.IsZero() {
			sooner(w.NotBefore)
		}
		wants = wants || len(w.tier.Preempts) > 0 && w.plan == nil
	}
	if wants {
		e.protectedUntil(sooner)
	}
	for _, t := range e.tiers {
		if t, will := e.creditAt(t); will {
			sooner(t)
		}
	}
	return at, any
}

// protectedUntil tells when gangs will no longer be protected.
func (e *Engine) protectedUntil(tell func(time.Time)) {
	for _, r := range e.ends {
		if r.tier.Protected > 0 {
			tell(r.began.Add(r.tier.Protected))
		}
	}
}

// runQueue is a heap of runs by their expected end.
type runQueue []*run

func (q runQueue) Len() int { return len(q) }
func (q runQueue) Less(i, j int) bool {
	if !q[i].end.Equal(q[j].end) {
		return q[i].end.Before(q[j].end)
	}
	return q[i].seq < q[j].seq
}
func (q runQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}
func (q *runQueue) Push(x any) {
	r := x.(*run)
	r.at = len(*q)
	*q = append(*q, r)
}
func (q *runQueue) Pop() any {
	old := *q
	r := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	r.at = -1
	return r
}
