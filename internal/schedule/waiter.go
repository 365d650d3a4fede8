package schedule

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

// defaultEstimate is supposed of a gang that gives none.
const defaultEstimate = 10 * time.Minute

// waiter is a gang in the queue.
type waiter struct {
	Gang
	tier   *tier
	tenant *tenant
	shape  *shape
	// estimate of its whole run, at the preferred size and at speed 1.
	estimate time.Duration
	shortest time.Duration // that it can take

	// code is its own, if it has one, else that of its pile is. judged is the
	// decision in which it was found by itself.
	code   gang.Code
	own    bool
	judged uint64
	pile   *pile
	// why is the code that this decision found.
	why   gang.Code
	ahead gang.ID // who is ahead of it, where the code is about that
	round uint64  // in which its turn came last
	// seen: its code is to be found anew.
	seen bool
	// entered is the decision in which it came to wait.
	entered uint64
	phase   phase // of the order, in which that was
	// start is when its future start was told last to be; zero where it never
	// held one. claims is the round in which it held one last.
	start  time.Time
	claims uint64
	// since is when it came to hold one, due when it should have started if those
	// that were let go before it since then had kept to their estimates.
	since, due time.Time
	// held is what it had a claim to when it was late last.
	held *claim
	// passed counts the GPUs of those that started from behind it, and run.
	passed int
	// leading is how long it has been the first blocked one of its tier.
	leading time.Duration
	// plan is the preemption under way for it.
	plan *plan
}

// shape is all of a gang that decides where it fits: gangs of one shape fit,
// or do not, together.
type shape struct {
	key   string
	sizes []size // the preferred one first, then the others, largest first
	load  time.Duration
	model string
	speed map[string]float64
	gangs int // that wait
	piles []*pile

	// failed is the engine's room when no size of it fitted last; stuck says
	// that not even an idle cluster would have done then.
	failed uint64
	stuck  bool
	// failedIn is the decision in which that was found.
	failedIn uint64
	// futile is how things stood when no victims helped its gangs, by tier.
	futile map[*tier]uint64
	// coded is the version of the cluster for which its code was found last.
	coded uint64
	code  gang.Code
	// gangs that would take long, or longer, would have delayed others in the
	// decision longRound, or have run into a window: longWhy says which.
	longRound uint64
	long      time.Duration
	longWhy   gang.Code
}

// size is one that a gang can run at: what placement needs to know of it, and
// its run time, as a multiple of that at the preferred size.
type size struct {
	request
	slower float64
}

func (z size) gpus() int { return z.members * z.perNode }

// newWaiter checks a gang against the cluster as it would be with everything
// in order and idle. Its error is a *gang.RefusedError: the gang can never run
// here.
func (e *Engine) newWaiter(g Gang, t *tier) (*waiter, error) {
	w := &waiter{Gang: g, own: true, tier: t, tenant: e.tenant(g.Spec.Tenant), estimate: estimateOf(g.Spec)}
	for w.estimate <= g.Done {
		w.estimate = grown(w.estimate)
	}
	var err error
	if w.shape, err = e.shapeOf(g); err == nil {
		least := slices.MinFunc(w.shape.sizes, func(a, b size) int { return cmp.Compare(a.gpus(), b.gpus()) }).gpus()
		if most := w.tenant.MaxGPUs; most > 0 && !g.Accepted && least > most {
			e.forgetShape(w.shape)
			return nil, gang.RefuseField("gpus", "%d are asked for, and tenant %q may have at most %d at one time", least, g.Spec.Tenant, most)
		}
		w.shortest = w.atLeast()
		e.unknown = e.unknown || w.shape.unknown()
	}
	return w, err
}

// smallest is the least number of GPUs that a gang can run on.
func smallest(s *gang.Spec) int {
	if len(s.Elastic) > 0 {
		return s.Elastic[0].GPUs
	}
	return s.GPUs
}

// shapeOf finds or makes the shape of a gang.
func (e *Engine) shapeOf(g Gang) (*shape, error) {
	s := g.Spec
	key := fmt.Sprint(s.GPUs, s.GPUsPerNode, s.GPU, s.GPUMemoryMiB, s.MemberNeed, s.Topology, s.Elastic, s.Model, g.Avoid, s.Checkpoint != nil)
	if sh := e.shapes[key]; sh != nil && !sh.unknown() {
		return sh, nil
	}
	sh := &shape{key: key, model: s.Model, futile: make(map[*tier]uint64)}
	if m, known := e.models[s.Model]; known {
		sh.load, sh.speed = m.Load, m.Speed
	}
	sizes := slices.Clone(s.Elastic)
	if len(sizes) == 0 {
		sizes = []gang.Size{{GPUs: s.GPUs, Run: 1}}
	}
	preferred := sizes[slices.IndexFunc(sizes, func(z gang.Size) bool { return z.GPUs == s.GPUs })].Run
	slices.SortFunc(sizes, func(a, b gang.Size) int {
		return cmp.Or(cmp.Compare(btoi(a.GPUs != s.GPUs), btoi(b.GPUs != s.GPUs)), cmp.Compare(b.GPUs, a.GPUs))
	})
	var refused error
	for _, z := range sizes {
		r, err := e.request(g, z.GPUs)
		if err == nil && r.perNode > 0 && r.members*r.perNode != z.GPUs {
			continue // not so many members as the nodes' size suggests
		}
		if err != nil {
			refused = cmp.Or(refused, err)
			continue
		}
		sh.sizes = append(sh.sizes, size{r, float64(z.Run) / float64(preferred)})
	}
	if len(sh.sizes) == 0 {
		return nil, refused
	}
	e.shapes[key] = sh
	return sh, nil
}

// forgetShape drops a shape with which nobody waits.
func (e *Engine) forgetShape(s *shape) {
	if s.gangs == 0 && e.shapes[s.key] == s {
		delete(e.shapes, s.key)
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// unknown shapes were made before a node was there that could tell how large
// their members are.
func (s *shape) unknown() bool { return s.sizes[0].perNode == 0 }

// learnShapes gives gangs that came before any node a shape.
func (e *Engine) learnShapes() {
	if !e.unknown || len(e.cluster.Nodes()) == 0 {
		return
	}
	e.unknown = false
	for _, w := range slices.SortedFunc(maps.Values(e.waiting), func(a, b *waiter) int { return cmp.Compare(a.Seq, b.Seq) }) {
		if !w.shape.unknown() {
			continue
		}
		e.dequeue(w)
		if s, err := e.shapeOf(w.Gang); err == nil {
			w.shape, w.shortest = s, w.atLeast()
		}
		e.unknown = e.unknown || w.shape.unknown()
		e.enqueue(w)
	}
}

// withinCap lists the sizes at which a gang breaks no cap of its tenant.
func (e *Engine) withinCap(w *waiter) []size {
	most := w.tenant.MaxGPUs
	if most == 0 {
		return w.shape.sizes
	}
	var out []size
	for _, z := range w.shape.sizes {
		if w.tenant.running+w.tenant.planned+z.gpus() <= most {
			out = append(out, z)
		}
	}
	return out
}

// left is how long a gang still runs at a size on GPUs of a model, once it is
// loaded.
func (w *waiter) left(z size, gpu string) time.Duration {
	return time.Duration(math.Ceil(float64(w.estimate-w.Done) * z.slower / w.shape.speedOn(gpu)))
}

func (s *shape) speedOn(gpu string) float64 {
	if v, has := s.speed[gpu]; has {
		return v
	}
	return 1
}

// startup is the time from a start until a gang runs: its members load, if not
// all of them are warm, and restore, whichever is longer.
func (w *waiter) startup(warm bool) time.Duration {
	var d time.Duration
	if !warm {
		d = w.shape.load
	}
	if c := w.Spec.Checkpoint; c != nil && w.Done > 0 {
		d = max(d, c.Restore)
	}
	return d
}

// atLeast is a lower bound of how long a gang takes at any size, anywhere.
func (w *waiter) atLeast() time.Duration {
	best := time.Duration(math.MaxInt64)
	for _, z := range w.shape.sizes {
		fastest := 1.0
		for _, v := range w.shape.speed {
			fastest = max(fastest, v)
		}
		best = min(best, time.Duration(float64(w.estimate-w.Done)*z.slower/fastest))
	}
	return best
}

// enqueue puts a gang in its place in the queue.
func (e *Engine) enqueue(w *waiter) {
	w.shape.gangs++
	for _, z := range w.shape.sizes {
		if z.perNode > 0 {
			e.cluster.Expect(z.need, z.perNode)
		}
	}
	e.waiting[w.ID] = w
	w.entered = e.decision
	w.tier.insert(w)
	e.look(w)
}

func (e *Engine) dequeue(w *waiter) {
	w.tier.remove(w)
	delete(e.waiting, w.ID)
	w.shape.gangs--
	e.forgetShape(w.shape)
}

// stuckNow reports whether even an idle cluster, as it is now, could not run
// the shape.
func (e *Engine) stuckNow(s *shape) bool {
	for _, z := range s.sizes {
		if e.couldRun(z.request) {
			return false
		}
	}
	return true
}
