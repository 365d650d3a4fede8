package schedule

import (
	"cmp"
	"slices"
	"time"
)

const (
	// maxReserved is how many blocked gangs of a tier hold a future start.
	maxReserved = 4
	// keepsPlace is how long a gang must have been the first blocked one of its
	// tier to keep that place.
	keepsPlace = 5 * time.Minute
)

// tier is a service class with its queue: a line for each tenant, by name.
type tier struct {
	Tier
	rank    int    // by priority, from 0
	over    []bool // whether it preempts a tier, by the rank of that
	lines   []*line
	piles   []*pile
	gangs   int
	running int // GPUs
	// reserved counts the future starts in a decision.
	reserved int
	// candidates may be stopped for its gangs, as of the decision listed and of
	// so many starts and orders to stop.
	candidates []candidate
	listed     uint64
	listedAt   uint64
	potential  potential
	// credit is the shortfall of its min_share, in GPU-seconds, over the time in
	// which it had gangs waiting, less what was spent.
	credit float64
	// first is the gang that is the first blocked one since the last decision, and
	// kept one that has been that for so long that it stays so.
	first, kept *waiter
}

// line is the gangs of one tenant and tier that wait, by arrival. In a decision,
// those before at have had their turn, or would not start in it.
type line struct {
	tenant  *tenant
	waiters []*waiter
	at      int
	round   uint64
}

func newTier(t Tier) *tier { return &tier{Tier: t} }

func (t *tier) insert(w *waiter) {
	at, found := slices.BinarySearchFunc(t.lines, w.tenant.Name, func(l *line, name string) int { return cmp.Compare(l.tenant.Name, name) })
	if !found {
		t.lines = slices.Insert(t.lines, at, &line{tenant: w.tenant})
	}
	l := t.lines[at]
	i, _ := l.find(w.Seq)
	l.waiters = slices.Insert(l.waiters, i, w)
	t.pile(w)
	t.gangs++
}

func (l *line) find(seq uint64) (int, bool) {
	return slices.BinarySearchFunc(l.waiters, seq, func(w *waiter, seq uint64) int { return cmp.Compare(w.Seq, seq) })
}

func (t *tier) remove(w *waiter) {
	at, _ := slices.BinarySearchFunc(t.lines, w.tenant.Name, func(l *line, name string) int { return cmp.Compare(l.tenant.Name, name) })
	l := t.lines[at]
	i, _ := l.find(w.Seq)
	l.waiters = slices.Delete(l.waiters, i, i+1)
	if i < l.at {
		l.at--
	}
	t.unpile(w)
	t.gangs--
	if len(l.waiters) == 0 {
		t.lines = slices.Delete(t.lines, at, at+1)
	}
}

// verdict is what came of a gang's turn.
type verdict int

const (
	started verdict = iota
	// idle gangs wait for what is no matter of room: they block nobody.
	idle
	// blocked gangs did not fit, or would have moved another's start.
	blocked
	// stuck gangs could not run even if nothing else did: they block nobody.
	stuck
)

// phase is why a gang may be ahead of others.
type phase int

const (
	byShare phase = iota
	byGuarantee
	byMinShare
)

// order hands out the gangs that wait, one after another, in the order in which
// they may start; what starts changes what comes next.
type order struct {
	e *Engine
	// owed are tiers below their min_share whose first gang has not been blocked.
	owed []*tier
	// asked are the tiers whose guaranteed gangs are not through; then rest.
	asked, rest []*tier
	blocked     map[*tier]int
	phase       phase
	done        bool
	// all hands out even those that wait for another thing than room.
	all bool
	// heads are those of a tier that holds all its future starts.
	hopeful *tier
	heads   heads
}

func (e *Engine) newOrder() *order {
	o := &order{e: e, blocked: make(map[*tier]int), heads: e.heads}
	for _, t := range e.tiers {
		if t.gangs == 0 {
			continue
		}
		o.rest = append(o.rest, t)
		if e.cfg.Policy.Arrival {
			continue
		}
		o.asked = append(o.asked, t)
		if t.MinShare > 0 {
			o.owed = append(o.owed, t)
		}
	}
	return o
}

// next returns the gang whose turn it is, or nil.
func (o *order) next() *waiter {
	for !o.done {
		switch {
		case len(o.owed) > 0:
			o.phase = byMinShare
			if w := o.owedTo(o.owed[0]); w != nil {
				return o.turn(w)
			}
			o.owed = o.owed[1:]
		case len(o.asked) > 0:
			o.phase = byGuarantee
			if w := o.first(o.asked[0], func(t *tenant) bool { return t.Guaranteed > 0 }, o.guaranteed); w != nil {
				return o.turn(w)
			}
			o.asked = o.asked[1:]
		case len(o.rest) > 0:
			o.phase = byShare
			if w := o.keptPlace(o.rest[0]); w != nil {
				return o.turn(w)
			}
			if w := o.byShare(o.rest[0]); w != nil {
				return o.turn(w)
			}
			o.rest = o.rest[1:]
		default:
			o.done = true
		}
	}
	return nil
}

func (o *order) turn(w *waiter) *waiter {
	w.round = o.e.round
	if !o.all { // who only looks changes nothing
		w.phase = o.phase
		o.e.look(w)
	}
	return w
}

// owedTo is the first gang of a tier that holds less than its min_share, if it
// fits in what is missing, or if the tier has saved up for it.
func (o *order) owedTo(t *tier) *waiter {
	missing := o.e.missing(t)
	if missing <= 0 {
		return nil
	}
	w := o.first(t, nil, nil)
	if w == nil {
		return nil
	}
	if gpus := smallest(w.Spec); float64(gpus) <= missing || t.credit >= w.price() {
		return w
	}
	return nil
}

// price is what a gang costs its tier's credit, in GPU-seconds.
func (w *waiter) price() float64 {
	return float64(w.Spec.GPUs) * (w.estimate - w.Done).Seconds()
}

func (o *order) guaranteed(w *waiter) bool {
	return w.tenant.running+smallest(w.Spec) <= w.tenant.Guaranteed
}

// keptPlace is the gang that comes first because one has waited there for long:
// that one, after the older ones of its tenant.
func (o *order) keptPlace(t *tier) *waiter {
	kept := t.kept
	if o.e.cfg.Policy.Arrival || !o.e.isWaiting(kept) || kept.round == o.e.round {
		return nil
	}
	return o.first(t, func(t *tenant) bool { return t == kept.tenant }, func(w *waiter) bool { return w.Seq <= kept.Seq })
}

// byShare is the gang of a tier whose turn is next by the shares of tenants.
func (o *order) byShare(t *tier) *waiter {
	if !o.all && o.blocked[t] >= o.e.maxReserved() {
		return o.firstHopeful(t)
	}
	return o.first(t, nil, nil)
}

// first is the gang of a tier whose turn is next: of the tenants, the one with
// the least share for its weight, then the one that came first. Gangs that
// cannot fit, whatever their place, are passed over once all reservations of
// the tier are made. Of and want say whose gangs, and which, are looked for.
func (o *order) first(t *tier, of func(*tenant) bool, want func(*waiter) bool) *waiter {
	var best *waiter
	var bestShare float64
	for _, l := range t.lines {
		if of != nil && !of(l.tenant) {
			continue
		}
		mine := o.firstOf(t, l, want)
		if mine == nil {
			continue
		}
		share := o.e.shareOf(mine)
		if best == nil || share < bestShare || share == bestShare && mine.Seq < best.Seq {
			best, bestShare = mine, share
		}
	}
	return best
}

// maxLook bounds how far a line is looked through for a gang of the wanted
// kind.
const maxLook = 256

// firstOf is the first gang of a line whose turn has not come, and that is of
// the wanted kind.
func (o *order) firstOf(t *tier, l *line, want func(*waiter) bool) *waiter {
	e := o.e
	if l.round != e.round {
		l.round, l.at = e.round, 0
	}
	for l.at < len(l.waiters) && o.passed(t, l.waiters[l.at]) {
		l.at++
	}
	if want == nil {
		if l.at == len(l.waiters) {
			return nil
		}
		return l.waiters[l.at]
	}
	for _, w := range l.waiters[l.at:min(len(l.waiters), l.at+maxLook)] {
		if want(w) && !o.passed(t, w) {
			return w
		}
	}
	return nil
}

// passed gangs have had their turn, or nothing would come of it.
func (o *order) passed(t *tier, w *waiter) bool {
	return w.round == o.e.round || !o.all && o.e.aside(w) || o.hopeless(t, w)
}

// hopeless gangs would not start in their turn, and hold no future start.
func (o *order) hopeless(t *tier, w *waiter) bool {
	if o.blocked[t] < o.e.maxReserved() {
		return false
	}
	return w.shape.failed == o.e.room && (!o.e.mayPreempt(w) || o.e.futile(w)) || o.e.tooLong(w)
}

func (e *Engine) maxReserved() int {
	switch {
	case e.cfg.Policy.NoReservations:
		return 0
	case e.cfg.Policy.Head:
		return 1
	}
	return maxReserved
}

// seen notes what came of a turn.
func (o *order) seen(w *waiter, v verdict) {
	switch v {
	case blocked:
		if o.blocked[w.tier] == 0 {
			w.tier.first = w
		}
		o.blocked[w.tier]++
		if o.phase == byMinShare {
			o.owed = o.owed[1:] // its first gang alone is ahead
		}
		if o.e.cfg.Policy.NoBackfill {
			o.e.head, o.done = w, true
		}
	case started, idle, stuck:
	}
}

// keepPlaces adds the time that passed to what the first blocked gangs have been
// that for. Others may have been it in between: a gang that comes from time to
// time, and is ahead for a moment, does not have those wait for ever who need more
// than what it leaves.
func (e *Engine) keepPlaces(passed time.Duration) {
	for _, t := range e.tiers {
		w := t.first
		if !e.isWaiting(w) {
			continue
		}
		w.leading += passed
		if w.leading >= keepsPlace && !e.isWaiting(t.kept) {
			t.kept = w
		}
	}
}

// isWaiting reports whether this is a gang that waits still.
func (e *Engine) isWaiting(w *waiter) bool { return w != nil && e.waiting[w.ID] == w }
