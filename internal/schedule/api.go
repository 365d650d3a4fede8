package schedule

import (
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// Tier is a service class.
type Tier struct {
	Name     string `json:"name"`
	Priority int    `json:"priority,omitempty"`
	// Preempts names the tiers whose gangs may be stopped for one of this.
	Preempts []string `json:"preempts,omitempty"`
	// Grace is the longest that a gang of this tier waits for a victim to
	// checkpoint and stop, or for a guarantee to be given back.
	Grace time.Duration `json:"grace_ns,omitempty"`
	// MinShare of the cluster's GPUs is what the tier gets under contention,
	// whatever the priorities above it want.
	MinShare float64 `json:"min_share,omitempty"`
	// TargetWait is the service level, which is reported and decides nothing; 0
	// where there is none.
	TargetWait time.Duration `json:"target_wait_ns,omitempty"`
	// Protected is the time after a start in which nobody preempts a gang.
	Protected time.Duration `json:"protected_ns,omitempty"`
}

// Tenant is who pays.
type Tenant struct {
	Name string `json:"name"`
	// Weight of its fair share; 0 reads as 1.
	Weight float64 `json:"weight,omitempty"`
	// Guaranteed GPUs come back from borrowers when it asks.
	Guaranteed int `json:"guaranteed,omitempty"`
	// MaxGPUs bounds what it runs at one time; 0 means no bound.
	MaxGPUs int `json:"max_gpus,omitempty"`
}

// Model is what a runner loads into GPU memory.
type Model struct {
	Name string `json:"name"`
	// Load is the time to load its weights where they are not warm.
	Load time.Duration `json:"load_ns,omitempty"`
	// Speed divides run times, by GPU model; 1 where it is absent.
	Speed map[string]float64 `json:"speed,omitempty"`
}

// Config is what does not change while the engine runs.
type Config struct {
	// Levels of the topology, widest first.
	Levels []string `json:"levels,omitempty"`
	Tiers  []Tier   `json:"tiers,omitempty"`
	// Tenants that are not among these have the weight 1.
	Tenants []Tenant `json:"tenants,omitempty"`
	// Models that are not among these load in no time, and run at speed 1.
	Models []Model `json:"models,omitempty"`
	// HalfLife of past use; 0 counts only what runs.
	HalfLife time.Duration `json:"half_life_ns,omitempty"`
	// PlansPerMinute bounds preemption plans; 0 means no bound.
	PlansPerMinute int    `json:"plans_per_minute,omitempty"`
	Policy         Policy `json:"policy,omitempty"`
}

// Policy takes parts of the rules away, to compare with and without them. Its
// zero value is all of them.
type Policy struct {
	// Arrival orders by tier and arrival alone: no shares, no guarantees, no
	// min_share.
	Arrival bool `json:"arrival,omitempty"`
	// Head lets only the first blocked gang hold a reservation, as EASY does.
	Head bool `json:"head,omitempty"`
	// NoReservations lets no gang hold a future start.
	NoReservations bool `json:"no_reservations,omitempty"`
	// NoBackfill starts nothing behind a blocked gang.
	NoBackfill bool `json:"no_backfill,omitempty"`
	// NoTopology places on the first nodes that fit; what is required stays.
	NoTopology bool `json:"no_topology,omitempty"`
	// NoCheckpoints chooses and stops victims as if none could checkpoint.
	NoCheckpoints bool `json:"no_checkpoints,omitempty"`
	NoPreemption  bool `json:"no_preemption,omitempty"`
}

// Gang is what the engine knows of a gang that waits.
type Gang struct {
	ID gang.ID `json:"id"`
	// Seq orders gangs by their arrival; a gang that is queued again keeps it.
	Seq uint64 `json:"seq"`
	// Attempt is the number that its next start will have.
	Attempt int        `json:"attempt"`
	Spec    *gang.Spec `json:"spec,omitempty"`
	// Done is the run time that need not be done again, at the preferred size
	// and at speed 1.
	Done time.Duration `json:"done_ns,omitempty"`
	// NotBefore ends its rest after a failure.
	NotBefore time.Time `json:"not_before,omitzero"`
	// Held gangs wait until their user releases them.
	Held bool `json:"held,omitempty"`
	// Accepted gangs are queued even where the cluster, as it is known so far,
	// could never run them.
	Accepted bool `json:"accepted,omitempty"`
	// Avoid names nodes that are taken only where the gang could not run
	// without them.
	Avoid []string `json:"avoid,omitempty"`
}

// Event is something that happened. Each is one of the types below.
type Event interface{ apply(*Engine) error }

// NodeSet: a node appeared, or what is known of it changed. What runs there is
// not ended by that: whoever sees it end says Release.
type NodeSet struct {
	Node cluster.Spec `json:"node"`
}

// NodeGone: a node is no longer part of the cluster. It is refused while
// something is held there.
type NodeGone struct {
	ID string `json:"id"`
}

// Submit: a gang waits from now on. A gang that is queued again comes with its
// old Seq.
type Submit struct {
	Gang Gang `json:"gang"`
}

// Withdraw: a gang no longer waits. What was to be stopped for it carries on.
type Withdraw struct {
	ID gang.ID `json:"id"`
}

// Seat is what holds GPUs: one member in one attempt of a gang.
type Seat struct {
	ID      gang.ID `json:"id"`
	Attempt int     `json:"attempt"`
	Member  int     `json:"member"`
}

// Adopt: an attempt was started before this engine came to be, and is not over.
type Adopt struct {
	// Gang is as it was started, its Attempt the one that holds the GPUs, and
	// its Done what it had done before.
	Gang Gang `json:"gang"`
	// Placement has no GPUs for those members of which nothing is known.
	Placement gang.Placement `json:"placement"`
	// Held are the members that have not been released.
	Held []int `json:"held,omitempty"`
	// Began is when it was started, Ready when it ran; zero where it does not yet.
	Began time.Time `json:"began,omitzero"`
	Ready time.Time `json:"ready,omitzero"`
	// Owed is as Start told it. Ending: it was ordered to stop.
	Owed   bool `json:"owed,omitempty"`
	Ending bool `json:"ending,omitempty"`
}

// Occupy: GPUs are held by what the engine knows nothing of, but for the seat
// that will be released.
type Occupy struct {
	Seat  Seat        `json:"seat"`
	Place gang.Member `json:"place"`
	// Need is what it holds beside them, where that is known.
	Need gang.Need `json:"need,omitzero"`
}

// Began: all members of an attempt run since now. Without such events the time
// that a start takes is supposed.
type Began struct {
	ID      gang.ID `json:"id"`
	Attempt int     `json:"attempt"`
}

// Ending: an attempt was told to end, or is through, whoever wanted that: its
// GPUs should be free soon.
type Ending struct {
	ID      gang.ID `json:"id"`
	Attempt int     `json:"attempt"`
}

// Hold: a gang that waits is held by its user, or no longer is. It keeps its
// place, and does not start while it is held.
type Hold struct {
	ID   gang.ID `json:"id"`
	Held bool    `json:"held,omitempty"`
}

// Reorder: gangs of one tenant and tier, that wait, exchange their places among
// themselves; who else waits is neither before nor behind more of them than
// before.
type Reorder []Place

// Place is that of a gang that waits.
type Place struct {
	ID  gang.ID `json:"id"`
	Seq uint64  `json:"seq"`
}

// Past: what a tenant has used before this engine came to be, decayed to now,
// in GPUs.
type Past struct {
	Tenant string  `json:"tenant"`
	GPUs   float64 `json:"gpus,omitempty"`
}

// Release: the GPUs of a seat are free. An attempt is over with its last seat.
type Release struct {
	Seat Seat `json:"seat"`
}

// Saved: a checkpoint is durable. Without such events a gang is taken to keep
// one after each period of its run time, from the start of the attempt.
type Saved struct {
	ID      gang.ID       `json:"id"`
	Attempt int           `json:"attempt"`
	Done    time.Duration `json:"done_ns,omitempty"`
}

// Tick: time has passed.
type Tick struct{}

// Together: all of these happened before anything was decided. What is refused
// of it is left out; the rest is taken.
type Together []Event

// Decision is a conclusion of the engine. Each is one of the types below.
type Decision interface{ decision() }

// Start: the gang runs on this placement; its GPUs are taken.
type Start struct {
	ID        gang.ID        `json:"id"`
	Attempt   int            `json:"attempt"`
	Placement gang.Placement `json:"placement"`
	// GPUs is the size at which it runs.
	GPUs int `json:"gpus,omitempty"`
	// Warm counts the members that find their model's weights in GPU memory.
	Warm int           `json:"warm,omitempty"`
	Done time.Duration `json:"done_ns,omitempty"`
	// Owed: it starts under a min_share or within a guarantee, so that the tiers
	// above do not stop it.
	Owed bool `json:"owed,omitempty"`
}

// Cause says why the engine ends an attempt.
type Cause string

// The causes.
const (
	Preempted Cause = "preempted"
	Resized   Cause = "resized"
	Drained   Cause = "drained"
	Spot      Cause = "spot"
)

// Mode says how an attempt ends.
type Mode string

// The modes: a graceful stop has the run stand still at once, checkpoint, and
// end; a hard one ends it at once, and what ran since the last checkpoint is
// lost.
const (
	Graceful Mode = "graceful"
	Hard     Mode = "hard"
)

// Stop orders a running attempt to end. When it has, its seats are released
// and the gang is submitted again, together.
type Stop struct {
	ID      gang.ID `json:"id"`
	Attempt int     `json:"attempt"`
	Cause   Cause   `json:"cause,omitempty"`
	Mode    Mode    `json:"mode,omitempty"`
	// For names the preemptor.
	For gang.ID `json:"for,omitempty"`
	// To is the size after a resize, in GPUs.
	To int `json:"to,omitempty"`
	// By is the end of the grace.
	By time.Time `json:"by,omitzero"`
}

// CallOff: an attempt that was ordered to stop, and has not, carries on.
type CallOff struct {
	ID      gang.ID `json:"id"`
	Attempt int     `json:"attempt"`
}

// Wait: gangs wait, and the code why is another than before.
type Wait struct {
	IDs  []gang.ID `json:"ids,omitempty"`
	Code gang.Code `json:"code,omitempty"`
	// For names who is ahead, where the code is about that.
	For gang.ID `json:"for,omitempty"`
}

// Reserve: the gang holds a future start. It is told when that is new or has
// changed, and where it moved later, by what: order, overrun or capacity.
type Reserve struct {
	ID      gang.ID   `json:"id"`
	Start   time.Time `json:"start,omitzero"`
	MovedBy string    `json:"moved_by,omitempty"`
}

func (Start) decision()   {}
func (Stop) decision()    {}
func (CallOff) decision() {}
func (Wait) decision()    {}
func (Reserve) decision() {}
