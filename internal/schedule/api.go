package schedule

import (
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// Tier is a service class.
type Tier struct {
	Name     string
	Priority int
	// Preempts names the tiers whose gangs may be stopped for one of this.
	Preempts []string
	// Grace is the longest that a gang of this tier waits for a victim to
	// checkpoint and stop, or for a guarantee to be given back.
	Grace time.Duration
	// MinShare of the cluster's GPUs is what the tier gets under contention,
	// whatever the priorities above it want.
	MinShare float64
	// TargetWait is the service level, which is reported and decides nothing; 0
	// where there is none.
	TargetWait time.Duration
	// Protected is the time after a start in which nobody preempts a gang.
	Protected time.Duration
}

// Tenant is who pays.
type Tenant struct {
	Name string
	// Weight of its fair share; 0 reads as 1.
	Weight float64
	// Guaranteed GPUs come back from borrowers when it asks.
	Guaranteed int
	// MaxGPUs bounds what it runs at one time; 0 means no bound.
	MaxGPUs int
}

// Model is what a runner loads into GPU memory.
type Model struct {
	Name string
	// Load is the time to load its weights where they are not warm.
	Load time.Duration
	// Speed divides run times, by GPU model; 1 where it is absent.
	Speed map[string]float64
}

// Config is what does not change while the engine runs.
type Config struct {
	// Levels of the topology, widest first.
	Levels []string
	Tiers  []Tier
	// Tenants that are not among these have the weight 1.
	Tenants []Tenant
	// Models that are not among these load in no time, and run at speed 1.
	Models []Model
	// HalfLife of past use; 0 counts only what runs.
	HalfLife time.Duration
	// PlansPerMinute bounds preemption plans; 0 means no bound.
	PlansPerMinute int
	Policy         Policy
}

// Policy takes parts of the rules away, to compare with and without them. Its
// zero value is all of them.
type Policy struct {
	// Arrival orders by tier and arrival alone: no shares, no guarantees, no
	// min_share.
	Arrival bool
	// Head lets only the first blocked gang hold a reservation, as EASY does.
	Head bool
	// NoReservations lets no gang hold a future start.
	NoReservations bool
	// NoBackfill starts nothing behind a blocked gang.
	NoBackfill bool
	// NoTopology places on the first nodes that fit; what is required stays.
	NoTopology bool
	// NoCheckpoints chooses and stops victims as if none could checkpoint.
	NoCheckpoints bool
	NoPreemption  bool
}

// Gang is what the engine knows of a gang that waits.
type Gang struct {
	ID gang.ID
	// Seq orders gangs by their arrival; a gang that is queued again keeps it.
	Seq uint64
	// Attempt is the number that its next start will have.
	Attempt int
	Spec    *gang.Spec
	// Done is the run time that need not be done again, at the preferred size
	// and at speed 1.
	Done time.Duration
	// NotBefore ends its rest after a failure.
	NotBefore time.Time
	// Held gangs wait until their user releases them.
	Held bool
	// Accepted gangs are queued even where the cluster, as it is known so far,
	// could never run them.
	Accepted bool
	// Avoid names nodes that are taken only where the gang could not run
	// without them.
	Avoid []string
}

// Event is something that happened. Each is one of the types below.
type Event interface{ apply(*Engine) error }

// NodeSet: a node appeared, or what is known of it changed. What runs there is
// not ended by that: whoever sees it end says Release.
type NodeSet struct{ Node cluster.Spec }

// NodeGone: a node is no longer part of the cluster. It is refused while
// something is held there.
type NodeGone struct{ ID string }

// Submit: a gang waits from now on. A gang that is queued again comes with its
// old Seq.
type Submit struct{ Gang Gang }

// Withdraw: a gang no longer waits. What was to be stopped for it carries on.
type Withdraw struct{ ID gang.ID }

// Seat is what holds GPUs: one member in one attempt of a gang.
type Seat struct {
	ID      gang.ID
	Attempt int
	Member  int
}

// Adopt: an attempt was started before this engine came to be, and is not over.
type Adopt struct {
	// Gang is as it was started, its Attempt the one that holds the GPUs, and
	// its Done what it had done before.
	Gang Gang
	// Placement has no GPUs for those members of which nothing is known.
	Placement gang.Placement
	// Held are the members that have not been released.
	Held []int
	// Began is when it was started, Ready when it ran; zero where it does not yet.
	Began, Ready time.Time
	// Owed is as Start told it. Ending: it was ordered to stop.
	Owed, Ending bool
}

// Occupy: GPUs are held by what the engine knows nothing of, but for the seat
// that will be released.
type Occupy struct {
	Seat  Seat
	Place gang.Member
	// Need is what it holds beside them, where that is known.
	Need gang.Need
}

// Began: all members of an attempt run since now. Without such events the time
// that a start takes is supposed.
type Began struct {
	ID      gang.ID
	Attempt int
}

// Ending: an attempt was told to end, or is through, whoever wanted that: its
// GPUs should be free soon.
type Ending struct {
	ID      gang.ID
	Attempt int
}

// Hold: a gang that waits is held by its user, or no longer is. It keeps its
// place, and does not start while it is held.
type Hold struct {
	ID   gang.ID
	Held bool
}

// Reorder: gangs of one tenant and tier, that wait, exchange their places among
// themselves; who else waits is neither before nor behind more of them than
// before.
type Reorder []Place

// Place is that of a gang that waits.
type Place struct {
	ID  gang.ID
	Seq uint64
}

// Past: what a tenant has used before this engine came to be, decayed to now,
// in GPUs.
type Past struct {
	Tenant string
	GPUs   float64
}

// Release: the GPUs of a seat are free. An attempt is over with its last seat.
type Release struct{ Seat Seat }

// Saved: a checkpoint is durable. Without such events a gang is taken to keep
// one after each period of its run time, from the start of the attempt.
type Saved struct {
	ID      gang.ID
	Attempt int
	Done    time.Duration
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
	ID        gang.ID
	Attempt   int
	Placement gang.Placement
	// GPUs is the size at which it runs.
	GPUs int
	// Warm counts the members that find their model's weights in GPU memory.
	Warm int
	Done time.Duration
	// Owed: it starts under a min_share or within a guarantee, so that the tiers
	// above do not stop it.
	Owed bool
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
	ID      gang.ID
	Attempt int
	Cause   Cause
	Mode    Mode
	// For names the preemptor.
	For gang.ID
	// To is the size after a resize, in GPUs.
	To int
	// By is the end of the grace.
	By time.Time
}

// CallOff: an attempt that was ordered to stop, and has not, carries on.
type CallOff struct {
	ID      gang.ID
	Attempt int
}

// Wait: gangs wait, and the code why is another than before.
type Wait struct {
	IDs  []gang.ID
	Code gang.Code
	// For names who is ahead, where the code is about that.
	For gang.ID
}

// Reserve: the gang holds a future start. It is told when that is new or has
// changed, and where it moved later, by what: order, overrun or capacity.
type Reserve struct {
	ID      gang.ID
	Start   time.Time
	MovedBy string
}

func (Start) decision()   {}
func (Stop) decision()    {}
func (CallOff) decision() {}
func (Wait) decision()    {}
func (Reserve) decision() {}
