package coordinator

import "github.com/gangd/gangd/internal/gang"

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
