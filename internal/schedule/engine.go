package schedule

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// Tier is a service class.
type Tier struct {
	Name     string
	Priority int
}

// Config is what does not change while the engine runs.
type Config struct {
	// Levels of the topology, widest first.
	Levels []string
	Tiers  []Tier
}

// Gang is what the engine knows of a gang.
type Gang struct {
	ID  gang.ID
	Seq uint64
	// Attempt is the number that its next start will have.
	Attempt int
	Spec    *gang.Spec
	// Accepted gangs are queued even where the cluster, as it is known so far,
	// could never run them.
	Accepted bool
	// Avoid names nodes that are taken only where the gang could not run
	// without them.
	Avoid []string
}

// Event is something that happened. Each is one of the types below.
type Event interface{ apply(*Engine) error }

// NodeSet: a node appeared, or what is known of it changed.
type NodeSet struct{ Node cluster.Spec }

// NodeGone: a node is no longer part of the cluster. It is refused while
// something is held there.
type NodeGone struct{ ID string }

// Submit: a gang waits from now on. A gang that is queued again comes with its
// old Seq.
type Submit struct{ Gang Gang }

// Withdraw: a gang no longer waits.
type Withdraw struct{ ID gang.ID }

// Seat is what holds GPUs: one member in one attempt of a gang.
type Seat struct {
	ID      gang.ID
	Attempt int
	Member  int
}

// Adopt: a seat was taken before this engine came to be.
type Adopt struct {
	Seat  Seat
	Place gang.Member
}

// Release: the GPUs of a seat are free.
type Release struct{ Seat Seat }

// Together: all of these happened before anything was decided. What is refused
// of it is left out; the rest is taken.
type Together []Event

// Decision is a conclusion of the engine. Each is one of the types below.
type Decision interface{ decision() }

// Start: the gang runs on this placement; its GPUs are taken.
type Start struct {
	ID        gang.ID
	Attempt   int
	Placement gang.Placement
}

// Wait: the gang waits, and the code why is another than before.
type Wait struct {
	ID   gang.ID
	Code gang.Code
}

func (Start) decision() {}
func (Wait) decision()  {}

// Engine holds the cluster, the queue, and who is placed where.
type Engine struct {
	cluster *cluster.Cluster
	tiers   []*tier // by priority, highest first
	waiting map[gang.ID]*waiter
	seats   map[Seat]gang.Member
	// told are the gangs whose code may be out of date: those that came with
	// the event that is being applied, or were tried when the last was.
	told []*waiter
	// round counts the events.
	round uint64
	// room counts the changes that could let a gang start that did not fit
	// before.
	room uint64
}

type tier struct {
	Tier
	queue []*waiter // by Seq, which is unique
}

// find returns where a gang is, or would be, in the queue.
func (t *tier) find(seq uint64) (at int, there bool) {
	return slices.BinarySearchFunc(t.queue, seq, func(q *waiter, seq uint64) int { return cmp.Compare(q.Seq, seq) })
}

// waiter is a gang in the queue.
type waiter struct {
	Gang
	tier *tier
	want request
	code gang.Code
	// failed is the engine's room when the gang last did not fit.
	failed uint64
	stuck  bool // not even an idle cluster would do
	// tried is the engine's round in which its turn came last.
	tried uint64
}

// New makes an engine without nodes.
func New(c Config) *Engine {
	e := &Engine{
		cluster: cluster.New(c.Levels),
		waiting: make(map[gang.ID]*waiter),
		seats:   make(map[Seat]gang.Member),
		room:    1,
	}
	for _, t := range c.Tiers {
		e.tiers = append(e.tiers, &tier{Tier: t})
	}
	slices.SortStableFunc(e.tiers, func(a, b *tier) int { return cmp.Compare(b.Priority, a.Priority) })
	return e
}

// Cluster gives access to what is where, for reading.
func (e *Engine) Cluster() *cluster.Cluster { return e.cluster }

// ErrUnknown is wrapped where an event names a gang that the engine does not
// have, or has already.
var ErrUnknown = errors.New("the engine does not know it")

// Apply takes in one event, at the time now, and decides until nothing more
// can be decided. An error says what was refused of the event; that part
// changed nothing.
func (e *Engine) Apply(event Event, now time.Time) ([]Decision, error) {
	_ = now // no rule of the present order needs the time
	refused := event.apply(e)
	return e.settle(), refused
}

func (ev NodeSet) apply(e *Engine) error {
	if err := e.cluster.Set(ev.Node); err != nil {
		return err
	}
	e.room++
	return nil
}

func (ev NodeGone) apply(e *Engine) error {
	if err := e.cluster.Remove(ev.ID); err != nil {
		return err
	}
	e.room++ // what only this node could have run holds nobody back now
	return nil
}

func (ev Submit) apply(e *Engine) error {
	if _, sits := e.seats[Seat{ev.Gang.ID, ev.Gang.Attempt, 0}]; sits || e.waiting[ev.Gang.ID] != nil {
		return fmt.Errorf("queue gang %s for attempt %d: it is there already: %w", ev.Gang.ID, ev.Gang.Attempt, ErrUnknown)
	}
	t := e.tier(ev.Gang.Spec.Tier)
	if t == nil && ev.Gang.Accepted {
		t = &tier{Tier: Tier{Name: ev.Gang.Spec.Tier}}
		e.tiers = append(e.tiers, t)
	}
	if t == nil {
		return e.noTier(ev.Gang.Spec.Tier)
	}
	want, err := e.request(ev.Gang)
	if err != nil {
		return err
	}
	w := &waiter{Gang: ev.Gang, tier: t, want: want}
	at, _ := t.find(w.Seq)
	t.queue = slices.Insert(t.queue, at, w)
	e.waiting[w.ID] = w
	e.told = append(e.told, w)
	return nil
}

func (ev Withdraw) apply(e *Engine) error {
	w := e.waiting[ev.ID]
	if w == nil {
		return fmt.Errorf("withdraw gang %s: %w", ev.ID, ErrUnknown)
	}
	e.dequeue(w)
	return nil
}

func (ev Adopt) apply(e *Engine) error {
	n, gpus := e.cluster.Node(ev.Place.Node), cluster.MaskOf(ev.Place.GPUs)
	if _, taken := e.seats[ev.Seat]; taken || n == nil || n.Used()&gpus != 0 {
		return fmt.Errorf("adopt member %d of gang %s, attempt %d: GPUs %v of node %s are not there, or held already: %w",
			ev.Seat.Member, ev.Seat.ID, ev.Seat.Attempt, ev.Place.GPUs, ev.Place.Node, ErrUnknown)
	}
	e.cluster.Take(n, gpus)
	e.seats[ev.Seat] = ev.Place
	return nil
}

func (ev Release) apply(e *Engine) error {
	m, taken := e.seats[ev.Seat]
	if !taken {
		return fmt.Errorf("release member %d of gang %s, attempt %d: %w", ev.Seat.Member, ev.Seat.ID, ev.Seat.Attempt, ErrUnknown)
	}
	e.cluster.Release(e.cluster.Node(m.Node), cluster.MaskOf(m.GPUs))
	delete(e.seats, ev.Seat)
	e.room++
	return nil
}

func (ev Together) apply(e *Engine) error {
	var refused []error
	for _, one := range ev {
		refused = append(refused, one.apply(e))
	}
	return errors.Join(refused...)
}

// settle is the way of a decision: in order, each gang that fits starts, until
// one is blocked. Those behind it wait for it. Codes are found last, by what
// the starts left.
func (e *Engine) settle() []Decision {
	e.round++
	before := e.told
	e.told = nil
	out := e.startInOrder()
	for _, w := range e.told {
		out = e.wait(out, w, e.code(w.want))
	}
	for _, w := range before {
		if e.waiting[w.ID] == w && w.tried != e.round {
			out = e.wait(out, w, gang.CodeReservedOther)
		}
	}
	return out
}

func (e *Engine) startInOrder() []Decision {
	var out []Decision
	for _, t := range e.tiers {
		for i := 0; i < len(t.queue); {
			w := t.queue[i]
			if p, fits := e.try(w); fits {
				e.start(w, p)
				out = append(out, Start{w.ID, w.Attempt, p})
				continue
			}
			e.told = append(e.told, w)
			if !w.stuck {
				return out
			}
			i++
		}
	}
	return out
}

// try places a gang whose turn it is, unless nothing changed since it did not
// fit.
func (e *Engine) try(w *waiter) (gang.Placement, bool) {
	w.tried = e.round
	if w.failed == e.room {
		return nil, false
	}
	if w.want.perNode == 0 { // it was accepted before a node was known
		w.want, _ = e.request(w.Gang)
	}
	p, fits := e.place(w.want)
	if !fits {
		w.failed = e.room
		w.stuck = !e.couldRun(w.want)
	}
	return p, fits
}

// wait notes why a gang waits, and tells it where that is news.
func (e *Engine) wait(out []Decision, w *waiter, code gang.Code) []Decision {
	if w.code == code {
		return out
	}
	w.code = code
	return append(out, Wait{w.ID, code})
}

func (e *Engine) start(w *waiter, p gang.Placement) {
	for i, m := range p {
		e.cluster.Take(e.cluster.Node(m.Node), cluster.MaskOf(m.GPUs))
		e.seats[Seat{w.ID, w.Attempt, i}] = m
	}
	e.dequeue(w)
}

func (e *Engine) dequeue(w *waiter) {
	w.tier.queue = slices.DeleteFunc(w.tier.queue, func(q *waiter) bool { return q == w })
	delete(e.waiting, w.ID)
}

func (e *Engine) tier(name string) *tier {
	for _, t := range e.tiers {
		if t.Name == name {
			return t
		}
	}
	return nil
}

func (e *Engine) tierNames() string {
	var out string
	for i, t := range e.tiers {
		if i > 0 {
			out += ", "
		}
		out += t.Name
	}
	return out
}
