package nomad

import (
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/gangd/gangd/internal/gang"
)

// Nomad's words for what an allocation does and should do.
const (
	ClientComplete = api.AllocClientStatusComplete
	ClientFailed   = api.AllocClientStatusFailed
	ClientLost     = api.AllocClientStatusLost
	DesiredStop    = api.AllocDesiredStatusStop
)

// Allocation is a lane's run on its node, as the servers know it.
type Allocation struct {
	ID string
	// Job is the lane's pinned parent, Child the job that it is of.
	Job, Child string
	Lane       gang.LaneID
	Node       string
	// ClientStatus and DesiredStatus are Nomad's words, of which the constants
	// above are some.
	ClientStatus, DesiredStatus string
	// PreemptedBy is the allocation of a job of higher priority that Nomad ends
	// this one for; empty where it does not. It is told before it has ended.
	PreemptedBy string
	// Failed tells that its task failed; Message says in Nomad's words why, or
	// what happened last.
	Failed  bool
	Message string
	// Invalid tells that the node refused the task's config, before it asked the
	// driver: the driver's plugin there does not take it, or a variable in it has
	// no value there.
	Invalid bool

	createIndex uint64
}

// Ended tells that nothing of it runs, as far as the servers know.
func (a Allocation) Ended() bool {
	switch a.ClientStatus {
	case ClientComplete, ClientFailed, ClientLost:
		return true
	}
	return false
}

// allocationWire is what lists and events have in common.
type allocationWire struct {
	ID, JobID, NodeID                 string
	ClientStatus, ClientDescription   string
	DesiredStatus, DesiredDescription string
	PreemptedByAllocation             string
	TaskStates                        map[string]*taskWire
	CreateIndex                       uint64
}

type taskWire struct {
	Failed bool
	Events []taskEvent
}

// allocation returns false for one that is of no lane.
func (w *allocationWire) allocation() (Allocation, bool) {
	parent, lane, ok := LaneOf(w.JobID)
	if !ok {
		return Allocation{}, false
	}
	a := Allocation{
		ID: w.ID, Job: parent, Child: w.JobID, Lane: lane, Node: w.NodeID,
		ClientStatus: w.ClientStatus, DesiredStatus: w.DesiredStatus,
		PreemptedBy: w.PreemptedByAllocation,
		Failed:      w.ClientStatus == ClientFailed,
		Message:     w.message(),
		createIndex: w.CreateIndex,
	}
	for _, task := range w.TaskStates {
		a.Failed = a.Failed || task.Failed
		a.Invalid = a.Invalid || slices.ContainsFunc(task.Events, func(e taskEvent) bool { return e.Type == api.TaskFailedValidation })
	}
	return a, true
}

// message says for what it was preempted, else it is the event that says most of
// why the task ended, else what the servers say of the allocation. A template
// has one task.
func (w *allocationWire) message() string {
	if w.PreemptedByAllocation != "" {
		return fmt.Sprintf("Nomad preempted it for allocation %s of a job of higher priority", w.PreemptedByAllocation)
	}
	if w.ClientStatus == ClientLost && w.ClientDescription != "" {
		return w.ClientDescription
	}
	for _, task := range w.TaskStates {
		if len(task.Events) > 0 {
			return telling(task.Events).String()
		}
	}
	if w.ClientDescription != "" {
		return w.ClientDescription
	}
	return w.DesiredDescription
}

// Child is one job that was dispatched from a lane's pinned parent. There is
// more than one only where two leaders called at once.
type Child struct {
	Job string
	// Allocation is the newest; nil where Nomad has placed none.
	Allocation *Allocation
	// Blocked says why Nomad cannot place it; empty where it can.
	Blocked string
}

// LaneJob is what Nomad has of one lane.
type LaneJob struct {
	// Job is the pinned parent's ID.
	Job  string
	Lane gang.LaneID
	// Gone tells that the pinned parent or a dispatched job was stopped or
	// purged, by whomever. A parent from which nothing was dispatched yet is
	// that of a lane which is being opened, and is not gone.
	Gone     bool
	Children []Child
}

// Blocked says why Nomad has no place for the lane, and is empty where it has,
// or may yet have found one.
func (l LaneJob) Blocked() string {
	for _, child := range l.Children {
		if child.Allocation == nil && child.Blocked != "" {
			return child.Blocked
		}
	}
	return ""
}

// indexes says of each list up to where in Nomad's log it is complete.
type indexes struct{ jobs, allocations, evaluations, nodes, foreign uint64 }

// lanes lists all lanes that Nomad has, in the order of their jobs' IDs, and
// up to where its lists are complete.
func (c *Client) lanes(ctx context.Context) (lanes []LaneJob, at indexes, err error) {
	if lanes, at.jobs, err = c.laneJobs(ctx); err != nil {
		return nil, at, err
	}
	newest, index, err := c.newestAllocations(ctx)
	if err != nil {
		return nil, at, err
	}
	at.allocations = index
	// After the allocations: what was placed meanwhile is not called blocked.
	blocked, index, err := c.blockedChildren(ctx)
	if err != nil {
		return nil, at, err
	}
	at.evaluations = index
	for i := range lanes {
		for j := range lanes[i].Children {
			child := &lanes[i].Children[j]
			child.Allocation, child.Blocked = newest[child.Job], blocked[child.Job]
		}
	}
	return lanes, at, nil
}

func (c *Client) laneJobs(ctx context.Context) ([]LaneJob, uint64, error) {
	var found []laneJobs
	// IDs come sorted, so that the children of a parent follow it.
	index, err := pages(ctx, api.QueryOptions{Prefix: gang.LanePrefix}, func(opts *api.QueryOptions) (*api.QueryMeta, error) {
		stubs, meta, err := c.api.Jobs().List(opts)
		for _, stub := range stubs {
			parent, lane, ok := LaneOf(stub.ID)
			if !ok {
				continue
			}
			if len(found) == 0 || found[len(found)-1].Job != parent {
				found = append(found, laneJobs{LaneJob: LaneJob{Job: parent, Lane: lane}})
			}
			found[len(found)-1].add(stub)
		}
		return meta, err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("list the lanes' jobs: %w", err)
	}
	lanes := make([]LaneJob, len(found))
	for i, l := range found {
		lanes[i] = l.LaneJob
		lanes[i].Gone = l.gone()
	}
	return lanes, index, nil
}

// laneJobs is a lane with what the list of jobs says of them.
type laneJobs struct {
	LaneJob
	parent     bool // it is there
	stopped    bool // it, or a child
	dispatched int  // how many children there have been
}

func (l *laneJobs) add(stub *api.JobListStub) {
	l.stopped = l.stopped || stub.Stop
	if stub.ID != l.Job {
		l.Children = append(l.Children, Child{Job: stub.ID})
		return
	}
	l.parent = true
	if stub.JobSummary != nil {
		l.dispatched = stub.JobSummary.Children.Sum() // a purged one stays among the dead
	}
}

func (l *laneJobs) gone() bool {
	return !l.parent || l.stopped || len(l.Children) < l.dispatched
}

// laneFilter selects what is of a lane's job, in Nomad's filter language.
const laneFilter = `JobID matches "^gangd[.]"`

func (c *Client) newestAllocations(ctx context.Context) (map[string]*Allocation, uint64, error) {
	newest := make(map[string]*Allocation)
	index, err := pages(ctx, api.QueryOptions{Filter: laneFilter}, func(opts *api.QueryOptions) (*api.QueryMeta, error) {
		var page []*allocationWire
		meta, err := c.api.Raw().Query("/v1/allocations", &page, opts)
		for _, wire := range page {
			a, ok := wire.allocation()
			if old := newest[a.Child]; ok && (old == nil || old.createIndex < a.createIndex) {
				newest[a.Child] = &a
			}
		}
		return meta, err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("list the lanes' allocations: %w", err)
	}
	return newest, index, nil
}

func (c *Client) blockedChildren(ctx context.Context) (map[string]string, uint64, error) {
	blocked := make(map[string]string)
	opts := api.QueryOptions{Filter: laneFilter + ` and Status == "blocked"`}
	index, err := pages(ctx, opts, func(opts *api.QueryOptions) (*api.QueryMeta, error) {
		var page []*evaluationWire
		meta, err := c.api.Raw().Query("/v1/evaluations", &page, opts)
		for _, e := range page {
			blocked[e.JobID] = e.reason()
		}
		return meta, err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("list blocked evaluations: %w", err)
	}
	return blocked, index, nil
}
