package coordinator

import (
	"cmp"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// Core is the state of one term of one leader.
type Core struct {
	cfg    Config
	now    time.Time
	engine *schedule.Engine
	gangs  map[gang.ID]*entry
	lanes  map[gang.LaneID]*lane
	nodes  map[string]*node
	// accounts are what was charged to tenants, by name.
	accounts map[string]*account
	windows  map[string]*window
	// waited are the last waits of each tier.
	waited map[string]*waits
	// shown are the nodes by the UUIDs that Nomad shows of their GPUs, and
	// holders the lanes by those that they have not given back.
	shown   map[string][]*node
	holders map[string]*lane
	changes uint64
	listed  bool             // Nomad's nodes have been heard of
	hosts   map[string]*host // by the UUID of each of their GPUs
	// templates are those that gangs which have not ended are of.
	templates map[string]*known
	// bySeq lists all gangs by acceptance, and so by their Seq.
	bySeq []*entry
	// ended are those that have ended, by their end.
	ended []*entry
	// forgotten are lanes of which late news may still come, and until when.
	forgotten map[gang.LaneID]time.Time
	// resting are the gangs that wait for their pause after a failure to end.
	resting map[gang.ID]*entry
	// unpublished are the finished gangs whose manifest waits to be tried again.
	unpublished map[gang.ID]*entry
	// faults are those of GPUs.
	faults faultLog
	// noRoom are the nodes on which Nomad found no room for a lane.
	noRoom map[string]*node

	// Decisions wait until the nodes that Nomad calls ready have reported, or
	// until warmUntil.
	restored, deciding bool
	warmUntil          time.Time

	// decisions wait to be carried out, in order; carrying says that one is.
	decisions []schedule.Decision
	carrying  bool

	touchedGangs    []*entry
	touchedAccounts []*account
	touchedWindows  []*window
	touchedLanes    []*lane
	out             Effects
}

// entry is a gang with what its present attempt has come to.
type entry struct {
	rec     gang.Record
	spec    *gang.Spec
	isNew   bool // its specification is not written yet
	noSpec  bool // its specification is lost: it cannot run again
	touched bool
	gone    bool // its records are to be deleted

	lanes []*lane // of the present attempt, by member
	// readyBy ends the start barrier.
	readyBy time.Time
	// notBefore ends the pause after a failure; inEngine says whether the engine
	// has it among those that wait.
	notBefore time.Time
	inEngine  bool
	runBegan  time.Time
	published bool
	// publishAt is when a manifest that could not be written is tried again,
	// publishPause the pause before that, publishBy the last time.
	publishAt, publishBy time.Time
	publishPause         time.Duration
	// invalidOn are nodes that refused the config of its template, two at most.
	invalidOn []string
	// guessed: only a peer told of the rank whose loss stopped the attempt.
	guessed  bool
	progress gang.Progress
	ranks    map[int]int // steps done, by rank
}

// lane is a lane with what was observed of it.
type lane struct {
	rec     gang.Lane
	touched bool
	gone    bool

	reached   part
	purge     purge
	connected bool
	placed    string // the allocation that Nomad made, once it told of it
	terminal  bool   // Nomad calls that ended
	freed     bool   // the engine has its GPUs back
	port      int
	address   string
	// openedAt is when its jobs came into being, as far as is known: an older
	// list need not have them.
	openedAt time.Time
	// awayUntil bounds the wait for its keeper's stream; heldUntil is when the
	// lease of a lost lane that is not heard has run out; freeBy bounds the wait
	// for Nomad to count a closed lane's GPUs as free; purgeAt is when to call
	// for a purge again.
	awayUntil, heldUntil, freeBy, purgeAt time.Time
	// closeBy ends the wait for the lane to close, once it was told to and is
	// heard; abandoned says that it has ended, and the lane's processes have not.
	closeBy   time.Time
	abandoned bool
	preempted bool // by Nomad, which was told of
	// blockedSince: Nomad has no room for it, as blockedWhy says.
	blockedSince time.Time
	blockedWhy   string
}

// part is how far a lane has come with its member; it never goes back.
type part int

const (
	partDispatched part = iota + 1 // Nomad has its jobs
	partAllocated                  // and has placed them
	partAdmitted                   // its keeper was let in
	partReady                      // its ranks are up
	partAccepted                   // and have the order to run
	partDone                       // its run ended well
)

// purge is how far the purge of a lane's jobs has come.
type purge int

const (
	purgeNone purge = iota
	purgeUnderWay
	purgeDone
)

// Config is what the core is given.
type Config struct {
	// Rules are those of the engine. Nothing of an attempt is carried over to the
	// next: whatever the policy says, victims are chosen and stopped as if none of
	// them could checkpoint.
	Rules schedule.Config
	Fence gang.Fence
	// ReadyTimeout is how long the members of a gang may take from the
	// decision until all are ready, where its template does not say.
	ReadyTimeout time.Duration
	// Lease is how long a keeper runs without a word from gangd.
	Lease time.Duration
	// MaxQueue bounds the gangs that wait; MaxFinished those that are kept
	// after their end.
	MaxQueue, MaxFinished int
	// Applied is told of each event that the engine took in, of when that was, and
	// of what it decided and refused; nil where nobody records that.
	Applied func(ev schedule.Event, at time.Time, decisions []schedule.Decision, refused error)
}

// NewCore makes the core of a term; its first input is Restored.
func NewCore(cfg Config) *Core {
	cfg.Rules.Policy.NoCheckpoints = true
	return &Core{
		cfg:       cfg,
		engine:    schedule.New(cfg.Rules),
		gangs:     make(map[gang.ID]*entry),
		lanes:     make(map[gang.LaneID]*lane),
		nodes:     make(map[string]*node),
		accounts:  make(map[string]*account),
		windows:   make(map[string]*window),
		waited:    make(map[string]*waits),
		shown:     make(map[string][]*node),
		holders:   make(map[string]*lane),
		hosts:     make(map[string]*host),
		templates: make(map[string]*known),
		forgotten: make(map[gang.LaneID]time.Time),

		resting:     make(map[gang.ID]*entry),
		unpublished: make(map[gang.ID]*entry),
		noRoom:      make(map[string]*node),
	}
}

// Engine is the rules of the engine, and its state between two steps.
func (c *Core) Engine() (schedule.Config, schedule.Snapshot) { return c.cfg.Rules, c.engine.Snapshot() }

// Step takes in one input at the time now.
func (c *Core) Step(now time.Time, in Input) Effects {
	c.now = now
	c.out = Effects{}
	c.dispatch(in)
	c.flush()
	return c.out
}

// dispatch is the table of what the core can be told.
func (c *Core) dispatch(in Input) {
	switch in := in.(type) {
	case Restored:
		c.restore(in)
	case SubmitRequest:
		c.submit(in)
	case CancelRequest:
		c.cancel(in)
	case HoldRequest:
		c.hold(in)
	case ReorderRequest:
		c.reorder(in)
	case WindowRequest:
		c.planWindow(in)
	case WindowGoneRequest:
		c.callWindowOff(in)
	case NodesListed, NodeChanged, NodeRemoved, Inventory, DriverUp, DriverDown, HostSilent, HostHeard:
		c.observeNode(in)
	case LaneJobsListed, LaneJobChanged, LaneJobRemoved, LaneBlocked, LaneOpened, LanePurged:
		c.observeNomad(in)
	case TemplateSeen:
		c.seeTemplate(in.Name, in.Version)
	case Published:
		c.published(in)
	case Tick:
		c.tick()
	case KeeperAdmit:
		c.admit(in)
	case keeperWord:
		c.observeKeeper(in)
	default:
		c.fault("take in %T: the core does not know it", in)
	}
}

// decide has the engine apply an event, and carries out what it decides. What is
// carried out may lead to more events: their decisions come after those that
// were made before.
func (c *Core) decide(ev schedule.Event) error {
	decisions, err := c.engine.Apply(ev, c.now)
	if c.cfg.Applied != nil {
		c.cfg.Applied(ev, c.now, decisions, err)
	}
	c.decisions = append(c.decisions, decisions...)
	if c.carrying {
		return err
	}
	c.carrying = true
	for len(c.decisions) > 0 {
		d := c.decisions[0]
		c.decisions = c.decisions[1:]
		c.carryOut(d)
	}
	c.decisions, c.carrying = nil, false
	return err
}

func (c *Core) carryOut(d schedule.Decision) {
	switch d := d.(type) {
	case schedule.Start:
		c.launch(d)
	case schedule.Stop:
		c.obeyStop(d)
	case schedule.Wait:
		for _, id := range d.IDs {
			c.act(Changed{id})
		}
	case schedule.Reserve:
		c.act(Changed{d.ID})
	default: // CallOff is for graceful stops alone, and there are none
		c.fault("carry out %T: the core does not know it", d)
	}
}

func (c *Core) act(a Action) { c.out.Actions = append(c.out.Actions, a) }

func (c *Core) fault(format string, args ...any) { c.act(Fault{fmt.Errorf(format, args...)}) }

func (c *Core) note(text string, args ...any) { c.act(Note{text, args}) }

// move takes a gang to a state, if that may follow the one it is in.
func (c *Core) move(g *entry, to gang.State) bool {
	next, err := g.rec.State.Next(to)
	if err != nil {
		c.act(Fault{fmt.Errorf("move gang %s: %w", g.rec.ID, err)})
		return false
	}
	g.rec.State = next
	c.touch(g)
	return true
}

// moveLane is move for lanes.
func (c *Core) moveLane(l *lane, to gang.LaneState) bool {
	if l.rec.State == to {
		return true
	}
	next, err := l.rec.State.Next(to)
	if err != nil {
		c.act(Fault{fmt.Errorf("move lane %s of gang %s: %w", l.rec.ID, l.rec.Gang, err)})
		return false
	}
	l.rec.State = next
	return true
}

// touch has a gang's record written at the end of the step.
func (c *Core) touch(g *entry) {
	if !g.touched {
		g.touched = true
		c.touchedGangs = append(c.touchedGangs, g)
	}
}

// cut ends a batch: what was touched so far is durable whole or not at all,
// if it fits a transaction.
func (c *Core) cut() { c.out.Batches = append(c.out.Batches, pack(c.touchedChanges())...) }

func (c *Core) touchLane(l *lane) {
	if !l.touched {
		l.touched = true
		c.touchedLanes = append(c.touchedLanes, l)
	}
}

// flush turns what was touched into batches.
func (c *Core) flush() {
	c.cut()
	// What needs no durability of its own still goes behind what was written.
	slices.SortStableFunc(c.out.Actions, func(a, b Action) int { return cmp.Compare(orderOf(a), orderOf(b)) })
}

// touchedChanges are the records of what was touched: gangs before lanes,
// since who holds what is in the gang's record, and a lane can be told from it.
func (c *Core) touchedChanges() []gang.Change {
	var changes []gang.Change
	for _, g := range c.touchedGangs {
		g.touched = false
		c.act(Changed{g.rec.ID})
		switch {
		case g.gone:
			changes = append(changes, gang.Change{Key: gang.RecordKey(g.rec.ID)}, gang.Change{Key: gang.SpecKey(g.rec.ID)})
		case g.isNew:
			g.isNew = false
			changes = append(changes, g.creation()...)
		default:
			changes = append(changes, gang.Change{Key: gang.RecordKey(g.rec.ID), Value: gang.Encode(&g.rec)})
		}
	}
	for _, a := range c.touchedAccounts {
		a.touched = false
		changes = append(changes, gang.Change{Key: gang.AccountKey(a.rec.Tenant), Value: gang.Encode(&a.rec)})
	}
	for _, w := range c.touchedWindows {
		w.touched = false
		change := gang.Change{Key: gang.WindowKey(w.rec.Name)}
		if !w.gone {
			change.Value = gang.Encode(&w.rec)
		}
		changes = append(changes, change)
	}
	for _, l := range c.touchedLanes {
		l.touched = false
		change := gang.Change{Key: gang.LaneKey(l.rec.Node, l.rec.ID)}
		if !l.gone {
			change.Value = gang.Encode(&l.rec)
		}
		changes = append(changes, change)
	}
	c.touchedGangs, c.touchedAccounts, c.touchedLanes = c.touchedGangs[:0], c.touchedAccounts[:0], c.touchedLanes[:0]
	c.touchedWindows = c.touchedWindows[:0]
	return changes
}

// pack parts changes into batches, none of which is too large for a
// transaction.
func pack(changes []gang.Change) []gang.Batch {
	var out []gang.Batch
	size := 0
	for _, change := range changes {
		n := len(change.Key) + len(change.Value)
		if last := len(out) - 1; last < 0 || len(out[last]) == gang.MaxBatch || size+n > gang.MaxBatchBytes {
			out, size = append(out, nil), 0
		}
		out[len(out)-1] = append(out[len(out)-1], change)
		size += n
	}
	return out
}

// orderOf puts answers and news behind what is done.
func orderOf(a Action) int {
	switch a.(type) {
	case Answer, Changed:
		return 1
	}
	return 0
}

// entryOf returns the gang of a run, if it is of its present attempt.
func (c *Core) entryOf(r Run) *entry {
	if g := c.gangs[r.Gang]; g != nil && g.rec.Attempt == r.Attempt {
		return g
	}
	return nil
}

// run names the present attempt.
func (g *entry) run() Run { return Run{g.rec.ID, g.rec.Attempt} }

// laneRun names the attempt that a lane was opened for.
func (l *lane) laneRun() Run { return Run{l.rec.Gang, l.rec.Attempt} }

// keeper is the one that was admitted.
func (l *lane) keeper() Keeper { return Keeper{l.rec.ID, l.rec.Allocation} }

func (l *lane) seat() schedule.Seat {
	return schedule.Seat{ID: l.rec.Gang, Attempt: l.rec.Attempt, Member: l.rec.Member}
}

// insert puts a gang among all, by its Seq.
func (c *Core) insert(g *entry) {
	c.gangs[g.rec.ID] = g
	at, _ := slices.BinarySearchFunc(c.bySeq, g.rec.Seq, func(e *entry, seq uint64) int { return cmp.Compare(e.rec.Seq, seq) })
	c.bySeq = slices.Insert(c.bySeq, at, g)
	if !g.rec.State.Terminal() {
		c.needTemplate(g.rec.Template)
	}
}

// retire counts a gang that has ended, and forgets those of too many that ended
// first.
func (c *Core) retire(g *entry) {
	g.lanes = nil
	c.dropTemplate(g.rec.Template)
	c.ended = append(c.ended, g)
	c.forgetEnded()
}

func (c *Core) forgetEnded() {
	for len(c.ended) > max(1, c.cfg.MaxFinished) {
		old := c.ended[0]
		c.ended = c.ended[1:]
		old.gone = true
		c.touch(old)
		delete(c.gangs, old.rec.ID)
		at, _ := slices.BinarySearchFunc(c.bySeq, old.rec.Seq, func(e *entry, seq uint64) int { return cmp.Compare(e.rec.Seq, seq) })
		c.bySeq = slices.Delete(c.bySeq, at, at+1)
	}
}

// clip bounds a sentence that goes into a record, in bytes.
func clip(s string) string {
	if len(s) <= maxWhy {
		return s
	}
	end := maxWhy
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}
