package schedule

import (
	"cmp"
	"slices"
	"time"

	"github.com/gangd/gangd/internal/cluster"
)

// block is what becomes of a gang that does not start in its turn. The first
// few of a tier hold a future start.
func (e *Engine) block(w *waiter, sizes []size, why obstacle) verdict {
	if w.shape.failed == e.room && w.shape.stuck {
		e.waits(w, forRoom)
		return stuck
	}
	if w.tier.reserved < e.maxReserved() && !e.cfg.Policy.NoBackfill {
		if c := e.claimFor(w, sizes); c != nil {
			w.tier.reserved++
			w.claims = e.round
			e.addClaim(c)
		}
	}
	switch {
	case why.code != "":
		w.ahead = why.ahead
		e.waits(w, why.code)
	case e.tooLong(w):
		e.waits(w, w.shape.longWhy)
	default:
		e.waits(w, forRoom)
	}
	return blocked
}

// tellStarts tells of the future starts that this decision left.
func (e *Engine) tellStarts() {
	for _, c := range e.claims {
		if c.owner != nil && c.owner.plan == nil && e.waiting[c.owner.ID] == c.owner {
			e.tellStart(c.owner, e.startOf(c))
		}
	}
}

// startOf is when the owner of a claim should start.
func (e *Engine) startOf(c *claim) time.Time {
	return time.Unix(0, max(c.start, e.now.UnixNano())).In(e.now.Location())
}

// tellStart tells of a future start that is new, or another than before.
func (e *Engine) tellStart(w *waiter, at time.Time) {
	if w.start.Equal(at) {
		return
	}
	r := Reserve{ID: w.ID, Start: at}
	if !w.start.IsZero() && at.After(w.start) {
		switch {
		case e.overran:
			r.MovedBy = "overrun"
		case e.lessRoom:
			r.MovedBy = "capacity"
		default:
			r.MovedBy = "order"
		}
	}
	e.promise(w, at)
	w.start = at
	e.decide(r)
}

// earliest finds when and where a gang should be able to start, as running
// gangs end by their estimates and those before it in the order run first. Of
// its sizes it is the one that can start first, and of those the one that ends
// first.
func (e *Engine) earliest(w *waiter, sizes []size) *claim {
	e.refresh()
	best := berth{from: never, until: never}
	for _, z := range sizes {
		z.request = e.relax(z.request)
		if z.perNode == 0 || z.missing != "" {
			continue
		}
		for _, model := range e.modelsFor(z.request) {
			takes := w.startup(false) + w.left(z, model)
			e.descend(e.cluster.Root(), -1, z.require, func(d *cluster.Domain) bool {
				return d.NodesWith(cluster.Usable, model, z.perNode) >= z.members
			}, func(d *cluster.Domain) {
				at := e.whenFree(d, z.request, model, best.from, takes)
				if at == never {
					return
				}
				from := max(at, e.now.UnixNano())
				if until := nanos(from, takes); from < best.from || from == best.from && until < best.until {
					best = berth{domain: d, request: z.request, model: model, at: at, from: from, until: until}
				}
			})
		}
	}
	if best.domain == nil {
		return nil
	}
	return &claim{owner: w, from: best.from, start: best.from, until: best.until, at: e.chooseAt(best)}
}

// berth is a domain with the time from which it has room for a gang.
type berth struct {
	domain          *cluster.Domain
	request         request
	model           string
	at, from, until int64
}

// opening is a node with the time from which it could take a member.
type opening struct {
	bay *bay
	at  int64
}

// openings lists the nodes of a domain that could take a member by some time.
func (e *Engine) openings(d *cluster.Domain, r request, model string, by int64) []opening {
	e.scratch = e.scratch[:0]
	if r.perNode > len(e.calendar.times) {
		return nil
	}
	times := e.calendar.times[r.perNode-1]
	eachLeaf(d, func(leaf *cluster.Domain) {
		for i, index := range leaf.Indexes() {
			if at := times[index]; at <= by && at != never {
				n := leaf.Nodes()[i]
				if n.Model != model || n.MemoryMiB < r.memoryMiB || !r.takes(n, cluster.Usable) {
					continue
				}
				if at = max(at, e.roomy(e.bays[index], r.need)); at <= by && at != never {
					e.scratch = append(e.scratch, opening{e.bays[index], at})
				}
			}
		}
	})
	return e.scratch
}

// eachLeaf visits the domains of the narrowest level within one.
func eachLeaf(d *cluster.Domain, visit func(*cluster.Domain)) {
	if len(d.Children()) == 0 {
		visit(d)
		return
	}
	for _, k := range d.Children() {
		eachLeaf(k, visit)
	}
}

// whenFree is the first time at which a domain has room for all members at
// once, for as long as they take, if that is no later than by.
func (e *Engine) whenFree(d *cluster.Domain, r request, model string, by int64, takes time.Duration) int64 {
	if len(e.closing) > 0 {
		return e.whenOpen(e.openings(d, r, model, by), r, by, takes)
	}
	if r.segment == 0 && e.exact(&r, model) && len(e.cluster.Models()) == 1 {
		return e.soon(d, r, by)
	}
	open := e.openings(d, r, model, by)
	if len(open) < r.members {
		return never
	}
	times := e.firsts[:0]
	if r.segment == 0 {
		for _, o := range open {
			times = append(times, o.at)
		}
		e.firsts = times
		slices.Sort(times)
		return times[r.members-1]
	}
	for _, s := range segmentsOf(open, r.segment) {
		times = append(times, s[len(s)-1].at)
	}
	e.firsts = times
	if len(times) < r.members/r.segment {
		return never
	}
	slices.Sort(times)
	return times[r.members/r.segment-1]
}

// soon is whenFree where any node will do that has the GPUs: it keeps the
// earliest times that it has seen as a heap, the latest of them at its top.
func (e *Engine) soon(d *cluster.Domain, r request, by int64) int64 {
	if r.perNode > len(e.calendar.times) {
		return never
	}
	times, heap := e.calendar.times[r.perNode-1], e.firsts[:0]
	eachLeaf(d, func(leaf *cluster.Domain) {
		for _, index := range leaf.Indexes() {
			at := times[index]
			if at > by || at == never {
				continue
			}
			if len(heap) < r.members {
				heap = append(heap, at)
				siftUp(heap)
			} else if at < heap[0] {
				heap[0] = at
				siftDown(heap)
			} else {
				continue
			}
			if len(heap) == r.members {
				by = heap[0]
			}
		}
	})
	e.firsts = heap
	if len(heap) < r.members {
		return never
	}
	return heap[0]
}

func siftUp(h []int64) {
	for i := len(h) - 1; i > 0 && h[i] > h[(i-1)/2]; i = (i - 1) / 2 {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
	}
}

func siftDown(h []int64) {
	for i := 0; 2*i+1 < len(h); {
		k := 2*i + 1
		if k+1 < len(h) && h[k+1] > h[k] {
			k++
		}
		if h[k] <= h[i] {
			return
		}
		h[i], h[k] = h[k], h[i]
		i = k
	}
}

// segmentsOf parts openings into segments, each within one domain of the
// narrowest level, the earliest ones together.
func segmentsOf(open []opening, segment int) [][]opening {
	var out [][]opening
	for len(open) > 0 {
		n := 1
		for n < len(open) && sameLeaf(open[n].bay.node, open[0].bay.node) {
			n++
		}
		leaf := open[:n]
		slices.SortStableFunc(leaf, func(a, b opening) int { return cmp.Compare(a.at, b.at) })
		for at := 0; at+segment <= n; at += segment {
			out = append(out, leaf[at:at+segment])
		}
		open = open[n:]
	}
	return out
}

// chooseAt chooses the GPUs that a gang has a claim to from a time on: those
// that come free last, so that others may use the rest meanwhile.
func (e *Engine) chooseAt(b berth) []hold {
	r, at := b.request, b.at
	open := slices.Clone(e.openings(b.domain, r, b.model, at))
	if len(e.closing) > 0 {
		takes := time.Duration(b.until - b.from)
		open = slices.DeleteFunc(open, func(o opening) bool { return o.bay.open(at, takes) > at })
	}
	if r.segment > 0 {
		segments := segmentsOf(open, r.segment)
		slices.SortStableFunc(segments, func(a, b []opening) int { return cmp.Compare(b[len(b)-1].at, a[len(a)-1].at) })
		open = nil
		for _, s := range segments[:r.members/r.segment] {
			open = append(open, s...)
		}
	} else {
		slices.SortStableFunc(open, func(a, b opening) int { return cmp.Compare(b.at, a.at) })
	}
	out := make([]hold, r.members)
	for i, o := range open[:r.members] {
		out[i] = hold{o.bay, o.bay.last(r.perNode, at)}
	}
	return out
}

// last chooses k GPUs of a node that are free at a time, those that become so
// last.
func (b *bay) last(k int, at int64) cluster.Mask {
	gpus := b.node.Usable().Indexes()
	gpus = slices.DeleteFunc(gpus, func(i int) bool { return b.expected(i) > at })
	slices.SortStableFunc(gpus, func(x, y int) int { return cmp.Compare(b.expected(y), b.expected(x)) })
	return cluster.MaskOf(gpus[:k])
}
