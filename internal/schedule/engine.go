package schedule

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// Engine holds the cluster, the queue, and who is placed where.
type Engine struct {
	cfg     Config
	cluster *cluster.Cluster
	tiers   []*tier // by priority, highest first
	tenants map[string]*tenant
	models  map[string]Model
	shapes  map[string]*shape

	waiting map[gang.ID]*waiter
	runs    map[gang.ID]*run // the newest attempt that holds GPUs
	seats   map[Seat]*seat
	ends    runQueue // runs by expected end
	plans   []*plan
	calendar

	// now is the time of the event that is applied, round its number.
	now   time.Time
	round uint64
	// decided is the round in which the last decision ended.
	decided uint64
	// decision is the number of the event that is applied.
	decision uint64
	// room counts the changes that could let a gang start that did not fit
	// before. gained are the nodes where GPUs became free in this event, which is
	// one such change, for those alone that may fit there.
	room   uint64
	gained []*cluster.Node
	// starts counts the starts.
	starts uint64
	// stopped counts the orders to stop, called those that were called off.
	stopped, called uint64
	// lessRoom and overran say what this event brought that moves reservations.
	lessRoom, overran bool
	// passed is when of the runs that overran in this event the first was let go
	// before others; zero where one of them was not.
	passed time.Time
	// ordered: what was considered so far may come out otherwise now.
	ordered bool
	// draining are the nodes that are to be left.
	leaving map[string]bool
	leaves  bool // one was added
	// elastic are the runs of gangs that could run at another size, by start.
	elastic []*run
	plansAt []time.Time // when plans were made, within the last minute
	// windows by their beginning, with the next time at which one begins or ends;
	// shut has the nodes that are within one, as they are observed.
	windows     []Window
	windowsTurn time.Time
	shut        map[string]*cluster.Spec
	// unknown: gangs wait whose shape depends on nodes that have not been seen.
	unknown bool
	// head is the gang that all behind it wait for, where nothing goes ahead of a
	// blocked one.
	head *waiter
	// begun are the runs that this decision started.
	begun []*run
	out   []Decision

	scratch []opening
	firsts  []int64
	heads   heads
	// reclaim is what could be freed for a gang that asks for its guarantee,
	// borrowers those who would be stopped for it.
	reclaim   potential
	borrowers []candidate
	// hunt is the search for victims, one at a time, in what the last one used.
	hunt search
	// looked are the gangs whose codes are to be found anew, limited the tenants
	// that have a cap.
	looked  []*waiter
	spots   map[outline]spot
	codes   map[outline]codeOf
	spare   []*waiter
	changed []*waiter
	limited []*tenant

	// Counts of what was cut off, or came to nothing.
	Counts Counts
}

// Counts are what an operator should hear of the engine's bounds.
type Counts struct {
	// BrokenPlans were preemptions whose room was lost before the preemptor had
	// it. CutSearches are those that a bound ended.
	BrokenPlans uint64 `json:"broken_plans,omitempty"`
	CutSearches uint64 `json:"cut_searches,omitempty"`
}

// New makes an engine without nodes.
func New(c Config) *Engine {
	e := &Engine{
		cfg:     c,
		cluster: cluster.New(c.Levels),
		tenants: make(map[string]*tenant),
		models:  make(map[string]Model),
		shapes:  make(map[string]*shape),
		waiting: make(map[gang.ID]*waiter),
		runs:    make(map[gang.ID]*run),
		seats:   make(map[Seat]*seat),
		leaving: make(map[string]bool),
		shut:    make(map[string]*cluster.Spec),
		spots:   make(map[outline]spot),
		codes:   make(map[outline]codeOf),
		room:    1,
	}
	for _, t := range c.Tiers {
		e.tiers = append(e.tiers, newTier(t))
	}
	slices.SortStableFunc(e.tiers, func(a, b *tier) int { return cmp.Compare(b.Priority, a.Priority) })
	for i, t := range e.tiers {
		t.rank = i
	}
	for _, t := range c.Tenants {
		e.tenants[t.Name] = newTenant(t)
		if t.MaxGPUs > 0 {
			e.limited = append(e.limited, e.tenants[t.Name])
		}
	}
	for _, m := range c.Models {
		e.models[m.Name] = m
	}
	return e
}

// Cluster gives access to what is where, for reading.
func (e *Engine) Cluster() *cluster.Cluster { return e.cluster }

// ErrUnknown is wrapped where an event names a gang that the engine does not
// have, or has already.
var ErrUnknown = errors.New("the engine does not know it")

// Apply takes in one event, at the time now, and decides until nothing more
// can be decided. An error says what was refused of the event; that part
// changed nothing. Time that goes back counts as standing still.
func (e *Engine) Apply(event Event, now time.Time) ([]Decision, error) {
	if now.After(e.now) || e.now.IsZero() {
		e.now = now
	}
	e.round++
	e.decision++
	e.out, e.begun, e.lessRoom, e.overran, e.ordered = nil, nil, false, false, false
	e.account()
	turned := e.turnWindows()
	refused := event.apply(e)
	if turned != nil {
		refused = errors.Join(turned, refused)
	}
	e.settle()
	return e.out, refused
}

// settle is the way of a decision: what was planned is carried out, what must
// move is told to, then each gang that waits is considered in order. Each that
// fits starts, unless it would move the start of one before it; the first ones
// that do not fit hold a future start. Codes are found last, by what all that
// left.
func (e *Engine) settle() {
	e.learnShapes()
	e.recallFits()
	e.renewEstimates()
	e.honourPlans()
	e.leaveNodes()
	for pass := 0; ; pass++ {
		e.begin()
		e.considerAll()
		e.grow()
		if !e.unsettled() {
			break
		}
		if pass == maxPasses {
			e.Counts.CutSearches++
			break
		}
	}
	e.tellStarts()
	e.tellCodes()
	e.decided = e.round
}

// maxPasses bounds how often the queue is gone through again because a plan, or
// a tenant at its cap, changed what those before it in the order can have.
const maxPasses = 16

func (e *Engine) considerAll() {
	e.head = nil
	for _, t := range e.tiers {
		t.reserved, t.first = 0, nil
	}
	order := e.newOrder()
	for w := order.next(); w != nil; w = order.next() {
		order.seen(w, e.consider(w))
	}
	e.heads = order.heads[:0]
}

// unsettled reports whether those who were considered may have more, or less,
// than was supposed: a gang started behind a blocked one, a run was ordered to
// end sooner, or a start brought a tenant to its cap whose other gangs hold
// future starts.
func (e *Engine) unsettled() bool {
	return e.ordered || slices.ContainsFunc(e.claims, func(c *claim) bool {
		return c.owner != nil && c.owner.plan == nil && len(e.withinCap(c.owner)) == 0
	})
}

// begin has nobody considered yet, and nothing claimed but for plans: of what
// runs, each end is known by now.
func (e *Engine) begin() {
	e.ordered = false
	e.round++
	e.clearCalendar()
	for _, p := range e.plans {
		e.addClaim(p.claim(e.waiting[p.owner], e.runs[p.owner]))
	}
}

// consider is what becomes of one gang in its turn.
func (e *Engine) consider(w *waiter) verdict {
	sizes := e.withinCap(w)
	if code := e.standsAside(w, sizes); code != "" {
		return e.waits(w, code)
	}
	found, why := e.find(w, sizes)
	if found != nil {
		// Its tenant has more of its share now: who was blocked before may come
		// behind others.
		e.ordered = e.ordered || len(e.claims) > len(e.plans) || e.anyOwed()
		e.start(w, found)
		e.runs[w.ID].passing = len(e.claims) > len(e.plans)
		e.notePassed(w)
		return started
	}
	if e.preempt(w, sizes) {
		return e.waits(w, gang.CodeVictims)
	}
	return e.block(w, sizes, why)
}

func (e *Engine) decide(d Decision) { e.out = append(e.out, d) }

func (ev NodeSet) apply(e *Engine) error { return e.setNode(ev.Node) }

// setNode takes in what is observed of a node.
func (e *Engine) setNode(observed cluster.Spec) error {
	old := e.cluster.Node(observed.ID)
	before, had := 0, cluster.Room{}
	if old != nil {
		before, had = old.Usable().Count(), old.Left(cluster.Usable)
	}
	if err := e.cluster.Set(e.heeding(observed)); err != nil {
		return err
	}
	n := e.cluster.Node(observed.ID)
	e.setBay(n)
	e.foresee(e.bay(n))
	e.room++
	e.lessRoom = e.lessRoom || n.Usable().Count() < before || old != nil && hasLess(had, n.Left(cluster.Usable))
	if isLeft(n) {
		e.leaving[n.ID], e.leaves = true, true
	} else {
		delete(e.leaving, n.ID)
	}
	return nil
}

// isLeft reports whether a node is to be left by what runs there.
func isLeft(n *cluster.Node) bool { return n.Draining || !n.GoneAt.IsZero() }

// hasLess reports whether there is less of something than before.
func hasLess(before, now cluster.Room) bool {
	return now.CPUMHz < before.CPUMHz || now.MemoryMiB < before.MemoryMiB
}

func (ev NodeGone) apply(e *Engine) error {
	n := e.cluster.Node(ev.ID)
	if err := e.cluster.Remove(ev.ID); err != nil {
		return err
	}
	e.dropBay(n)
	delete(e.leaving, ev.ID)
	delete(e.shut, ev.ID)
	e.room++ // what only this node could have run holds nobody back now
	e.lessRoom = true
	return nil
}

func (ev Submit) apply(e *Engine) error {
	g := ev.Gang
	if r := e.runs[g.ID]; e.waiting[g.ID] != nil || r != nil && r.attempt >= g.Attempt {
		return fmt.Errorf("queue gang %s for attempt %d: it is there already: %w", g.ID, g.Attempt, ErrUnknown)
	}
	t := e.tierFor(g)
	if t == nil {
		return e.noTier(g.Spec.Tier)
	}
	w, err := e.newWaiter(g, t)
	if err != nil {
		return err
	}
	e.enqueue(w)
	return nil
}

func (ev Withdraw) apply(e *Engine) error {
	w := e.waiting[ev.ID]
	if w == nil {
		return fmt.Errorf("withdraw gang %s: %w", ev.ID, ErrUnknown)
	}
	if w.plan != nil {
		e.callOff(w.plan)
	}
	e.dequeue(w)
	e.called++ // what it had a claim to is there for others
	return nil
}

func (ev Release) apply(e *Engine) error {
	s := e.seats[ev.Seat]
	if s == nil {
		return fmt.Errorf("release member %d of gang %s, attempt %d: %w", ev.Seat.Member, ev.Seat.ID, ev.Seat.Attempt, ErrUnknown)
	}
	e.release(ev.Seat, s)
	return nil
}

func (ev Saved) apply(e *Engine) error {
	r := e.runs[ev.ID]
	if r == nil || r.attempt != ev.Attempt {
		return fmt.Errorf("note a checkpoint of gang %s, attempt %d: %w", ev.ID, ev.Attempt, ErrUnknown)
	}
	r.saved = max(r.saved, ev.Done)
	r.tellsSaves = true
	return nil
}

func (Tick) apply(*Engine) error { return nil }

func (ev Together) apply(e *Engine) error {
	var refused []error
	for _, one := range ev {
		refused = append(refused, one.apply(e))
	}
	return errors.Join(refused...)
}

func (e *Engine) tier(name string) *tier {
	for _, t := range e.tiers {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// tierFor is the tier of a gang; one that was accepted under a tier that is no
// more has it back, as the lowest.
func (e *Engine) tierFor(g Gang) *tier {
	t := e.tier(g.Spec.Tier)
	if t == nil && g.Accepted {
		t = newTier(Tier{Name: g.Spec.Tier})
		t.rank = len(e.tiers)
		e.tiers = append(e.tiers, t)
	}
	return t
}

func (e *Engine) tierNames() string {
	names := make([]string, len(e.tiers))
	for i, t := range e.tiers {
		names[i] = t.Name
	}
	return strings.Join(names, ", ")
}
