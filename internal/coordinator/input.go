package coordinator

import (
	"time"

	"github.com/gangd/gangd/internal/gang"
)

// Input is something that the core is told. Each is one of the types below.
type Input interface{ input() }

// Restored is the first input of a term: all that Consul holds.
type Restored struct {
	Gangs []*gang.Record
	Specs map[gang.ID]*gang.Spec
	Lanes []*gang.Lane
}

// SubmitRequest asks for gangs to be accepted, all or none. Random makes their
// IDs; Templates are theirs as they were checked, by name.
type SubmitRequest struct {
	Specs     []gang.Spec
	Templates map[string]Template
	Random    [][5]byte
	Reply     int
}

// CancelRequest asks for a gang to be ended for good.
type CancelRequest struct {
	ID    gang.ID
	Reply int
}

// NodeView is a node as Nomad shows it.
type NodeView struct {
	ID   string
	Name string
	// Ready: Nomad's status is ready. Down: Nomad has given the node up.
	Ready, Down, Eligible, Draining bool
	// Domains has one name for each level, widest first.
	Domains []string
	// Devices are the GPUs that Nomad can pin, by UUID, as it shows them: their
	// health is seconds old.
	Devices map[string]GPUView
}

// NodesListed is the whole list of Nomad's nodes, after a start and whenever
// its event stream was lost. NodeChanged is one of them; NodeRemoved says that
// Nomad has forgotten one.
type (
	NodesListed struct{ Nodes []NodeView }
	NodeChanged struct{ Node NodeView }
	NodeRemoved struct{ ID string }
)

// GPUView is a GPU as its device plugin shows it, or showed it to Nomad.
type GPUView struct {
	UUID         string
	Index        int
	Model        string
	MemoryMiB    int
	Island, NUMA int
	Healthy      bool
	Reason       string
}

// Inventory is all GPUs of a host. DriverUp and DriverDown tell whether the
// host's driver plugin, which starts keepers, can be reached. HostSilent:
// nothing of the host was heard for the time that makes it suspect; HostHeard
// ends that.
type (
	Inventory  struct{ GPUs []GPUView }
	DriverUp   struct{ UUIDs []string }
	DriverDown struct{ UUIDs []string }
	HostSilent struct{ UUIDs []string }
	HostHeard  struct{ UUIDs []string }
)

// KeeperState is what a lane does by its keeper's word.
type KeeperState int

const (
	KeeperNew KeeperState = iota
	KeeperLoading
	KeeperIdle
	KeeperBusy
	KeeperClosing
)

// Run names one attempt of a gang.
type Run struct {
	Gang    gang.ID
	Attempt int
}

// Keeper is the one that speaks: of a lane, and started by one allocation.
// Nomad may start a second one for a lane; what that says is not for the gang.
type Keeper struct {
	Lane       gang.LaneID
	Allocation string
}

func (k Keeper) keeper() Keeper { return k }

// keeperWord is what a lane's keeper says.
type keeperWord interface {
	Input
	keeper() Keeper
}

// What a lane's keeper says.
type (
	KeeperAdmit struct {
		Keeper
		Address string
		State   KeeperState
	}
	KeeperGone     struct{ Keeper }
	KeeperReady    struct{ Keeper }
	KeeperAccepted struct {
		Keeper
		Run        Run
		MasterPort int
	}
	KeeperStage struct {
		Keeper
		Run   Run
		Rank  int
		Stage string
	}
	KeeperStep struct {
		Keeper
		Run    Run
		Rank   int
		I, N   int
		Millis float64
	}
	KeeperResult struct {
		Keeper
		Run                 Run
		Artifact, Thumbnail *gang.Artifact
	}
	KeeperError struct {
		Keeper
		Run       Run
		Rank      int
		Class     string
		Retryable bool
		Message   string
	}
	KeeperRankExit struct {
		Keeper
		Run     Run
		Rank    int
		Message string
	}
	KeeperEnded struct {
		Keeper
		Run     Run
		Outcome Outcome
		Message string
	}
	// KeeperRefused: it does not obey an order about this run, which it does
	// not run.
	KeeperRefused struct {
		Keeper
		Run    Run
		Reason string
	}
	KeeperClosed struct {
		Keeper
		Reason  string
		ByNomad bool
	}
)

// ClassPeerLost is the class of the runner's error that says that another rank
// is gone.
const ClassPeerLost = "peer_lost"

// Outcome is how a run ended in one lane.
type Outcome int

const (
	OutcomeSucceeded Outcome = iota
	OutcomeError
	OutcomeRankLost
	OutcomeCancelled
	OutcomeLeaseExpired
	OutcomeStoreFailed
	OutcomeTaskStopped
)

// LaneJob is a pinned parent as Nomad shows it, with its newest allocation.
type LaneJob struct {
	Job        string
	Lane       gang.LaneID
	Allocation string
	// Ended: the allocation is terminal; Failed: and not well.
	Ended, Failed bool
	// Stopped: somebody asked Nomad to end it. Lost: Nomad only supposes that it
	// ended, because its agent is gone.
	Stopped, Lost bool
	// Preempted: Nomad itself ends it, for a job of higher priority, as Message
	// says. It may be told before the allocation has ended.
	Preempted bool
	// Invalid: the node refused the config of the lane's template.
	Invalid bool
	Message string
}

// What Nomad says of lanes. LaneJobsListed is the whole list of pinned parents.
type (
	LaneJobsListed struct{ Jobs []LaneJob }
	LaneJobChanged struct{ Job LaneJob }
	// LaneJobRemoved: a lane's parent or child was purged or stopped.
	LaneJobRemoved struct{ Lane gang.LaneID }
	LaneBlocked    struct {
		Lane   gang.LaneID
		Reason string
	}
)

// TemplateSeen is the version of a template, told whenever it changes, and of
// all templates after a start and whenever Nomad's event stream was lost. It may
// be no template of any gang.
type TemplateSeen struct {
	Name    string
	Version uint64
}

// The results of actions.
type (
	LaneOpened struct {
		Lane    gang.LaneID
		Version uint64
		// Err says why the lane cannot be opened; it wraps ErrTemplate or
		// ErrTemplateVersion where that is the cause.
		Err error
	}
	LanePurged struct {
		Lane gang.LaneID
		Err  error
	}
	// Published: Err says why the manifest is not written; it wraps ErrPublished
	// where other content was published for the gang before.
	Published struct {
		Run Run
		Err error
	}
)

// Tick lets time pass; it comes several times a second.
type Tick struct{}

func (Restored) input()       {}
func (SubmitRequest) input()  {}
func (CancelRequest) input()  {}
func (NodesListed) input()    {}
func (NodeChanged) input()    {}
func (NodeRemoved) input()    {}
func (Inventory) input()      {}
func (DriverUp) input()       {}
func (DriverDown) input()     {}
func (HostSilent) input()     {}
func (HostHeard) input()      {}
func (KeeperAdmit) input()    {}
func (KeeperGone) input()     {}
func (KeeperReady) input()    {}
func (KeeperAccepted) input() {}
func (KeeperStage) input()    {}
func (KeeperStep) input()     {}
func (KeeperResult) input()   {}
func (KeeperError) input()    {}
func (KeeperRankExit) input() {}
func (KeeperEnded) input()    {}
func (KeeperRefused) input()  {}
func (KeeperClosed) input()   {}
func (LaneJobsListed) input() {}
func (LaneJobChanged) input() {}
func (LaneJobRemoved) input() {}
func (LaneBlocked) input()    {}
func (TemplateSeen) input()   {}
func (LaneOpened) input()     {}
func (LanePurged) input()     {}
func (Published) input()      {}
func (Tick) input()           {}

// Action is something to do once what was written before it is durable. Each
// is one of the types below.
type Action interface{ action() }

// OpenLane has a lane dispatched through Nomad; it answers with LaneOpened.
// PurgeLane removes its jobs, and answers with LanePurged.
type (
	OpenLane struct {
		Lane     gang.LaneID
		Template string
		// TemplateVersion is the same for all lanes of an attempt; 0 means the
		// newest, where none was known.
		TemplateVersion uint64
		Node            string
		UUIDs           []string
		Job             string
	}
	PurgeLane struct {
		Lane gang.LaneID
		Job  string
	}
)

// Orders to a lane's keeper.
type (
	AdmitLane struct{ To Keeper }
	// RefuseLane ends a keeper that may not run.
	RefuseLane struct {
		To     Keeper
		Reason string
	}
	StartRun struct {
		To            Keeper
		Run           Run
		Member        int
		FirstRank     int
		World         int
		MasterAddress string
		MasterPort    int
		Peers         []string
		Params        []byte
	}
	CancelRun struct {
		To     Keeper
		Run    Run
		Reason string
	}
	CloseLane struct {
		To     Keeper
		Reason string
	}
)

// Publish writes the manifest of a gang's result, once; it answers with
// Published.
type Publish struct {
	Run      Run
	Manifest Manifest
}

// Manifest is what a finished gang leaves in the blob store.
type Manifest struct {
	Gang      gang.ID        `json:"gang"`
	Attempt   int            `json:"attempt"`
	Fence     gang.Fence     `json:"fence"`
	Artifact  *gang.Artifact `json:"artifact,omitempty"`
	Thumbnail *gang.Artifact `json:"thumbnail,omitempty"`
}

// Answer replies to a request. Statuses are as of the time of the answer; Err
// says why it is refused.
type Answer struct {
	Reply    int
	Statuses []gang.Status
	Err      error
}

// Changed tells watchers that a gang's status is another.
type Changed struct{ ID gang.ID }

// Fault is something that should not have happened, to be logged and counted.
type Fault struct{ Err error }

// Note is something that an operator may want to read in the log.
type Note struct {
	Text string
	Args []any
}

func (a AdmitLane) to() Keeper  { return a.To }
func (a RefuseLane) to() Keeper { return a.To }
func (a StartRun) to() Keeper   { return a.To }
func (a CancelRun) to() Keeper  { return a.To }
func (a CloseLane) to() Keeper  { return a.To }

func (OpenLane) action()   {}
func (PurgeLane) action()  {}
func (AdmitLane) action()  {}
func (RefuseLane) action() {}
func (StartRun) action()   {}
func (CancelRun) action()  {}
func (CloseLane) action()  {}
func (Publish) action()    {}
func (Answer) action()     {}
func (Changed) action()    {}
func (Fault) action()      {}
func (Note) action()       {}

// Effects is what follows from one input: the batches are to be made durable
// in order, and then the actions done in order.
type Effects struct {
	Batches []gang.Batch
	Actions []Action
}

// Config is what the core is given.
type Config struct {
	Levels []string
	Tiers  []Tier
	Fence  gang.Fence
	// ReadyTimeout is how long the members of a gang may take from the
	// decision until all are ready, where its template does not say.
	ReadyTimeout time.Duration
	// Lease is how long a keeper runs without a word from gangd.
	Lease time.Duration
	// MaxQueue bounds the gangs that wait; MaxFinished those that are kept
	// after their end.
	MaxQueue, MaxFinished int
}

// Tier is a service class.
type Tier struct {
	Name     string
	Priority int
}
