package schedule

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// Snapshot is all of an engine between two events that its next decisions depend
// on, as a value: what can be derived from the rest is not in it. An engine that
// is restored from it decides as the one would that it was taken of. Snapshots of
// engines that had the same events are equal.
//
// Gangs, runs and shapes are named by their places in the lists. What users gave
// their runners is not in it.
type Snapshot struct {
	Now       time.Time        `json:"now"`
	Accounted time.Time        `json:"accounted"`
	Cluster   cluster.Snapshot `json:"cluster"`
	Tiers     []TierState      `json:"tiers,omitempty"`   // by priority, highest first
	Tenants   []TenantState    `json:"tenants,omitempty"` // by name
	Shapes    []ShapeState     `json:"shapes,omitempty"`
	Waiting   []WaiterState    `json:"waiting,omitempty"` // by place
	Runs      []RunState       `json:"runs,omitempty"`    // as the queue of their ends has them
	Seats     []SeatState      `json:"seats,omitempty"`
	Plans     []PlanState      `json:"plans,omitempty"`
	Claims    []ClaimState     `json:"claims,omitempty"` // of the last decision
	PlansAt   []time.Time      `json:"plans_at,omitempty"`
	Windows   []Window         `json:"windows,omitempty"` // by their beginning
	// Shut are the nodes that are within one, as they are observed, by ID.
	Shut []cluster.Spec `json:"shut,omitempty"`
	// Decisions, Starts, Stops and CalledOff count these; Room counts what could let
	// a gang start that did not fit before.
	Decisions uint64 `json:"decisions"`
	Room      uint64 `json:"room"`
	Starts    uint64 `json:"starts"`
	Stops     uint64 `json:"stops"`
	CalledOff uint64 `json:"called_off"`
	Counts    Counts `json:"counts"`
}

// TierState is a tier's credit in GPU-seconds, its first blocked gang and the one
// that keeps its place, and the gangs of a shape that wait in it, together.
type TierState struct {
	Name   string      `json:"name"`
	Credit float64     `json:"credit,omitempty"`
	First  gang.ID     `json:"first,omitempty"`
	Kept   gang.ID     `json:"kept,omitempty"`
	Piles  []PileState `json:"piles,omitempty"`
}

// PileState is what those of one shape and tier were told, and to whom they lost
// their room.
type PileState struct {
	Shape  int           `json:"shape"`
	Least  time.Duration `json:"least_ns"`
	Code   gang.Code     `json:"code,omitempty"`
	LostIn uint64        `json:"lost_in,omitempty"`
	LostAt uint64        `json:"lost_at,omitempty"`
	Spared string        `json:"spared,omitempty"`
}

// TenantState is a tenant's decayed use in GPUs.
type TenantState struct {
	Name string  `json:"name"`
	Past float64 `json:"past,omitempty"`
	Told int     `json:"told,omitempty"`
}

// ShapeState is where gangs of one shape may run, and what is known of that.
type ShapeState struct {
	Key   string      `json:"key"`
	Model string      `json:"model,omitempty"`
	Sizes []SizeState `json:"sizes"`
	// Listed: gangs that come get this one.
	Listed bool `json:"listed,omitempty"`
	// Failed is the room in which none of its sizes fitted, Futile the state, by
	// tier, in which no victims helped.
	Failed uint64            `json:"failed,omitempty"`
	Stuck  bool              `json:"stuck,omitempty"`
	Futile map[string]uint64 `json:"futile,omitempty"`
}

// SizeState is what placement needs to know of a size. Levels are counted from
// the widest, which is 0; -1 is the cluster.
type SizeState struct {
	Members   int       `json:"members"`
	PerNode   int       `json:"per_node"`
	Model     string    `json:"model,omitempty"`
	MemoryMiB int       `json:"memory_mib,omitempty"`
	Need      gang.Need `json:"need,omitzero"`
	Require   int       `json:"require"`
	Narrowest int       `json:"narrowest"`
	Warm      string    `json:"warm,omitempty"`
	Avoid     []string  `json:"avoid,omitempty"`
	Segment   int       `json:"segment,omitempty"`
	NoSpot    bool      `json:"no_spot,omitempty"`
	Missing   string    `json:"missing,omitempty"`
	Slower    float64   `json:"slower"`
}

// WaiterState is a gang that waits.
type WaiterState struct {
	Gang     Gang          `json:"gang"`
	Estimate time.Duration `json:"estimate_ns"`
	Shape    int           `json:"shape"`
	// Code is its own, Own that it has one. Look has it found anew.
	Code gang.Code `json:"code,omitempty"`
	Own  bool      `json:"own,omitempty"`
	Look bool      `json:"look,omitempty"`
	// For names who is ahead, where the code is about that.
	For     gang.ID       `json:"for,omitempty"`
	Entered uint64        `json:"entered"`
	Phase   int           `json:"phase,omitempty"`
	Start   time.Time     `json:"start,omitzero"`
	Holds   bool          `json:"holds,omitempty"` // a future start
	Since   time.Time     `json:"since,omitzero"`  // when it came to hold one
	Due     time.Time     `json:"due,omitzero"`
	Passed  int           `json:"passed,omitempty"`
	Leading time.Duration `json:"leading_ns,omitempty"`
}

// RunState is an attempt that holds GPUs.
type RunState struct {
	ID         gang.ID        `json:"id"`
	Seq        uint64         `json:"seq"`
	Attempt    int            `json:"attempt"`
	Newest     bool           `json:"newest"`
	Spec       *gang.Spec     `json:"spec"`
	Shape      int            `json:"shape"`
	Place      gang.Placement `json:"place"`
	Size       SizeState      `json:"size"`
	GPU        string         `json:"gpu,omitempty"`
	Began      time.Time      `json:"began"`
	Ready      time.Time      `json:"ready"`
	Done       time.Duration  `json:"done_ns,omitempty"`
	Rate       float64        `json:"rate"`
	Saved      time.Duration  `json:"saved_ns,omitempty"`
	TellsSaves bool           `json:"tells_saves,omitempty"`
	Estimate   time.Duration  `json:"estimate_ns"`
	End        time.Time      `json:"end"`
	Owed       bool           `json:"owed,omitempty"`
	Passing    bool           `json:"passing,omitempty"` // it was let go before others
	Behind     []gang.ID      `json:"behind,omitempty"`
	Stop       *Stop          `json:"stop,omitempty"`
	Plan       *int           `json:"plan,omitempty"`
}

// SeatState is the GPUs of a member; its run is nil where nothing is known of it,
// and then Until is when it is supposed to end.
type SeatState struct {
	Seat  Seat         `json:"seat"`
	Run   *int         `json:"run,omitempty"`
	Node  string       `json:"node"`
	GPUs  cluster.Mask `json:"gpus"`
	Need  gang.Need    `json:"need,omitzero"`
	Until int64        `json:"until_unix_ns,omitempty"`
}

// PlanState is GPUs that are held until all of them are free.
type PlanState struct {
	Owner   gang.ID        `json:"owner"`
	Resizes bool           `json:"resizes,omitempty"`
	Begun   bool           `json:"begun,omitempty"` // its owner waits for it
	Place   gang.Placement `json:"place"`
	Size    SizeState      `json:"size"`
	GPU     string         `json:"gpu,omitempty"`
	Warm    bool           `json:"warm,omitempty"`
	End     int64          `json:"end_unix_ns"`
	Victims []int          `json:"victims,omitempty"` // those of the runs that are left
	By      time.Time      `json:"by,omitzero"`
	Tenant  string         `json:"tenant"`
	More    int            `json:"more,omitempty"`
}

// ClaimState is the hold on GPUs of a gang that waits, or of a run that will be
// resized.
type ClaimState struct {
	Owner gang.ID     `json:"owner"`
	Run   bool        `json:"run,omitempty"`
	From  int64       `json:"from_unix_ns"`
	Until int64       `json:"until_unix_ns"`
	Start int64       `json:"start_unix_ns"`
	At    []HoldState `json:"at"`
}

// HoldState is GPUs of a node.
type HoldState struct {
	Node string       `json:"node"`
	GPUs cluster.Mask `json:"gpus"`
}

// Snapshot copies the state. What it shares with the engine does not change. It
// may not be taken while an event is applied.
func (e *Engine) Snapshot() Snapshot {
	x := &capture{e: e, shapes: make(map[*shape]int), runs: make(map[*run]int), plans: make(map[*plan]int)}
	s := Snapshot{
		Now: e.now, Accounted: e.accounted, Cluster: e.cluster.Snapshot(), PlansAt: slices.Clone(e.plansAt),
		Decisions: e.decision, Room: e.room, Starts: e.starts, Stops: e.stopped, CalledOff: e.called, Counts: e.Counts,
	}
	for i, p := range e.plans {
		x.plans[p] = i
	}
	for _, w := range slices.SortedFunc(maps.Values(e.waiting), bySeq) {
		s.Waiting = append(s.Waiting, x.waiter(w))
	}
	for i, r := range e.ends {
		x.runs[r] = i
		s.Runs = append(s.Runs, x.run(r))
	}
	for _, t := range e.tiers {
		s.Tiers = append(s.Tiers, x.tier(t))
	}
	for _, name := range slices.Sorted(maps.Keys(e.tenants)) {
		t := e.tenants[name]
		s.Tenants = append(s.Tenants, TenantState{name, t.past, t.told})
	}
	for _, at := range slices.SortedFunc(maps.Keys(e.seats), Seat.compare) {
		s.Seats = append(s.Seats, x.seat(at, e.seats[at]))
	}
	s.Windows = slices.Clone(e.windows)
	for _, id := range slices.Sorted(maps.Keys(e.shut)) {
		s.Shut = append(s.Shut, *e.shut[id])
	}
	for _, p := range e.plans {
		s.Plans = append(s.Plans, x.plan(p))
	}
	for _, c := range e.claims {
		s.Claims = append(s.Claims, x.claim(c))
	}
	s.Shapes = x.list
	return s
}

func bySeq(a, b *waiter) int { return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.ID, b.ID)) }

func (s Seat) compare(o Seat) int {
	return cmp.Or(cmp.Compare(s.ID, o.ID), cmp.Compare(s.Attempt, o.Attempt), cmp.Compare(s.Member, o.Member))
}

// capture turns pointers into places in lists.
type capture struct {
	e      *Engine
	shapes map[*shape]int
	list   []ShapeState
	runs   map[*run]int
	plans  map[*plan]int
}

// shape is the place of a shape, which is listed when it is met first.
func (x *capture) shape(s *shape) int {
	at, known := x.shapes[s]
	if known {
		return at
	}
	out := ShapeState{Key: s.key, Model: s.model, Listed: x.e.shapes[s.key] == s, Failed: s.failed, Stuck: s.stuck}
	for _, z := range s.sizes {
		out.Sizes = append(out.Sizes, z.state())
	}
	for t, stand := range s.futile {
		if out.Futile == nil {
			out.Futile = make(map[string]uint64)
		}
		out.Futile[t.Name] = stand
	}
	x.shapes[s], x.list = len(x.list), append(x.list, out)
	return x.shapes[s]
}

func (z size) state() SizeState {
	return SizeState{
		Members: z.members, PerNode: z.perNode, Model: z.model, MemoryMiB: z.memoryMiB, Need: z.need, Require: z.require, Narrowest: z.narrowest,
		Warm: z.warm, Avoid: z.avoid, Segment: z.segment, NoSpot: z.noSpot, Missing: z.missing, Slower: z.slower,
	}
}

func (x *capture) waiter(w *waiter) WaiterState {
	g := w.Gang
	g.Spec = g.Spec.WithoutParams()
	return WaiterState{
		Gang: g, Estimate: w.estimate, Shape: x.shape(w.shape), Code: w.code, Own: w.own, Look: w.seen, For: w.ahead, Entered: w.entered,
		Phase: int(w.phase), Start: w.start, Holds: w.claims == x.e.decided, Since: w.since, Due: w.due, Passed: w.passed, Leading: w.leading,
	}
}

func (x *capture) tier(t *tier) TierState {
	out := TierState{Name: t.Name, Credit: t.credit}
	if x.e.isWaiting(t.first) {
		out.First = t.first.ID
	}
	if x.e.isWaiting(t.kept) {
		out.Kept = t.kept.ID
	}
	for _, p := range t.piles {
		state := PileState{Shape: x.shape(p.shape), Least: p.least, Code: p.code, LostIn: p.lostIn, LostAt: p.lostAt}
		if p.spared != nil {
			state.Spared = p.spared.Name
		}
		out.Piles = append(out.Piles, state)
	}
	return out
}

func (x *capture) run(r *run) RunState {
	out := RunState{
		ID: r.id, Seq: r.seq, Attempt: r.attempt, Newest: x.e.runs[r.id] == r, Spec: r.spec.WithoutParams(), Shape: x.shape(r.shape), Place: r.place, Size: r.size.state(),
		GPU: r.gpu, Began: r.began, Ready: r.ready, Done: r.done, Rate: r.rate, Saved: r.saved, TellsSaves: r.tellsSaves,
		Estimate: r.estimate, End: r.end, Owed: r.owed, Passing: r.passing,
	}
	for _, w := range r.behind {
		if x.e.isWaiting(w) {
			out.Behind = append(out.Behind, w.ID)
		}
	}
	if r.stop != nil {
		stop := *r.stop
		out.Stop = &stop
	}
	if at, has := x.plans[r.plan]; has {
		out.Plan = &at
	}
	return out
}

func (x *capture) seat(at Seat, s *seat) SeatState {
	out := SeatState{Seat: at, Node: s.node.ID, GPUs: s.gpus, Need: s.need}
	if run, has := x.runs[s.run]; has {
		out.Run = &run
	} else if s.gpus != 0 {
		out.Until = x.e.bay(s.node).until[s.gpus.First()]
	}
	return out
}

func (x *capture) plan(p *plan) PlanState {
	out := PlanState{
		Owner: p.owner, Resizes: p.resizes, Place: p.found.place, Size: p.found.size.state(), GPU: p.found.gpu, Warm: p.found.warm, End: p.found.end,
		By: p.by, Tenant: p.tenant.Name, More: p.more,
	}
	if w := x.e.waiting[p.owner]; w != nil {
		out.Begun = w.plan == p
	}
	for _, v := range p.victims {
		if at, left := x.runs[v]; left {
			out.Victims = append(out.Victims, at)
		}
	}
	return out
}

func (x *capture) claim(c *claim) ClaimState {
	out := ClaimState{Owner: c.id(), Run: c.owner == nil, From: c.from, Until: c.until, Start: c.start}
	for _, h := range c.at {
		out.At = append(out.At, HoldState{h.bay.node.ID, h.gpus})
	}
	return out
}
