package coordinator

import (
	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// Input is something that the core is told. Each is one of the types below.
type Input interface{ input() }

// Restored is the first input of a term: all that Consul holds.
type Restored struct {
	Gangs []*gang.Record
	Specs map[gang.ID]*gang.Spec
	Lanes []*gang.Lane
	// Accounts are those of all tenants that were charged.
	Accounts []*gang.Account
	Windows  []*gang.Window
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
	// Capacity is what the node has for tasks beside GPUs, CoreMHz the CPU of one
	// of its cores, Foreign what other jobs hold of that; 0 where it is not known.
	// HeldBy names the job that holds a GPU, by the GPU's UUID.
	Capacity, Foreign cluster.Room
	CoreMHz           int
	HeldBy            map[string]string
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
