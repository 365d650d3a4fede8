package nomad

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/gangd/gangd/internal/gang"
)

// Event is one of the types below.
type Event interface{ event() }

// Resync is all there is. It comes first, and whenever events may have been
// missed: what it does not name is gone.
type Resync struct {
	Nodes     []Node
	Lanes     []LaneJob
	Templates []TemplateChanged
}

// NodeChanged is a node as it is now, or what other jobs hold of it.
type NodeChanged struct{ Node }

// NodeGone is a node that was deregistered.
type NodeGone struct{ ID string }

// AllocationChanged is an allocation of a lane as it is now.
type AllocationChanged struct{ Allocation }

// LaneBlocked is a lane for which Nomad has no place, or no longer has. It
// may place it later: purge the lane to keep it from that. It is told once or
// more.
type LaneBlocked struct {
	// Job is the pinned parent.
	Job    string
	Lane   gang.LaneID
	Reason string
}

// LaneGone is a lane whose pinned parent or dispatched job was stopped or
// purged, by whomever. (Nomad 1.6 does not tell of a purged parent.)
type LaneGone struct {
	Job  string
	Lane gang.LaneID
}

// TemplateChanged is a parameterized job that was registered, changed, or
// stopped; it may be no template of ours. (Nomad 1.6 does not tell of a purged
// one: Template does.)
type TemplateChanged struct {
	Name string
	// Version is Nomad's JobModifyIndex, which only grows.
	Version uint64
}

func (Resync) event()            {}
func (NodeChanged) event()       {}
func (NodeGone) event()          {}
func (AllocationChanged) event() {}
func (LaneBlocked) event()       {}
func (LaneGone) event()          {}
func (TemplateChanged) event()   {}

const (
	reconnectMin = 100 * time.Millisecond
	reconnectMax = 5 * time.Second
)

// Watch calls emit with a Resync and then with every change, in order and
// from one goroutine, until ctx ends, which is the only error. A stream that
// breaks is opened again, with another Resync. An emit that takes long holds
// up no one but may cost a Resync.
func (c *Client) Watch(ctx context.Context, emit func(Event)) error {
	wait := reconnectMin
	for {
		synced := false
		err := c.follow(ctx, func(e Event) {
			synced = true
			emit(e)
		})
		if ctx.Err() != nil {
			return fmt.Errorf("watch Nomad: %w", ctx.Err())
		}
		if synced {
			wait = reconnectMin
		}
		c.log.Warn("lost sight of Nomad, will look again", "error", err, "wait", wait)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, reconnectMax)
	}
}

// follow emits what is there and then what changes, until the stream breaks.
func (c *Client) follow(ctx context.Context, emit func(Event)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The streams are opened before the lists are read, so that no change falls
	// between: Nomad keeps only its last 100 events for those who come late.
	stream := c.subscribe(ctx, streamPath, c.namespace)
	foreign := c.subscribe(ctx, foreignPath, c.scope())
	awaitOpen(ctx, stream, foreign)
	t, all, err := c.resync(ctx)
	if err != nil {
		return err
	}
	emit(all)
	for {
		var batch batch
		var open bool
		translate := t.translate
		select {
		case batch, open = <-stream.batches:
			if !open {
				return stream.err
			}
		case batch, open = <-foreign.batches:
			if !open {
				c.narrow(foreign.err)
				return foreign.err
			}
			translate = t.foreignEvent
		}
		for _, raw := range batch.Events {
			event, err := translate(raw)
			if err != nil {
				return err
			}
			if event != nil {
				emit(event)
			}
		}
	}
}

func (c *Client) resync(ctx context.Context) (*translator, Resync, error) {
	lanes, at, err := c.lanes(ctx)
	if err != nil {
		return nil, Resync{}, err
	}
	nodes, index, err := c.nodes(ctx)
	if err != nil {
		return nil, Resync{}, err
	}
	at.nodes = index
	others, index, err := c.foreign(ctx)
	if err != nil {
		return nil, Resync{}, err
	}
	at.foreign = index
	// After the other jobs: what changed in between is told by the stream too.
	templates, err := c.templates(ctx)
	if err != nil {
		return nil, Resync{}, err
	}
	t := &translator{told: at, nodes: make(map[string]uint64, len(nodes)), withGPUs: make(map[string]Node), others: others}
	all := Resync{Lanes: lanes, Nodes: make([]Node, len(nodes)), Templates: templates}
	for i, wire := range nodes {
		t.nodes[wire.ID] = wire.ModifyIndex
		all.Nodes[i] = t.node(wire)
	}
	return t, all, nil
}

// templateFilter selects jobs that could be templates, in Nomad's filter
// language, which cannot ask whether a job is parameterized. What was
// dispatched, or started by a schedule, has a parent.
const templateFilter = `Type == "batch" and ParentID == "" and Stop != true and ID not matches "^gangd[.]"`

// templates lists the versions of all parameterized jobs.
func (c *Client) templates(ctx context.Context) (found []TemplateChanged, err error) {
	_, err = pages(ctx, api.QueryOptions{Filter: templateFilter}, func(opts *api.QueryOptions) (*api.QueryMeta, error) {
		stubs, meta, err := c.api.Jobs().List(opts)
		for _, stub := range stubs {
			if stub.ParameterizedJob {
				found = append(found, TemplateChanged{Name: stub.ID, Version: stub.JobModifyIndex})
			}
		}
		return meta, err
	})
	if err != nil {
		return nil, fmt.Errorf("list templates: %w", err)
	}
	return found, nil
}

// translator makes events of the stream's.
type translator struct {
	// told is what the lists said already: older events would go back behind
	// them.
	told indexes
	// nodes has the index of each node's last known state: nodes are read one
	// by one, after their list.
	nodes map[string]uint64
	// withGPUs are the nodes that have GPUs, as they were told last, and others
	// what other jobs hold of all nodes.
	withGPUs map[string]Node
	others   *census
}

// translate returns nil for what is of no interest.
func (t *translator) translate(raw rawEvent) (event Event, err error) {
	var payload struct {
		Node       *nodeWire
		Allocation *allocationWire
		Evaluation *evaluationWire
		Job        *jobWire
	}
	if !t.interesting(raw) {
		return nil, nil
	}
	if err := json.Unmarshal(raw.Payload, &payload); err != nil {
		return nil, fmt.Errorf("read Nomad's event %s %s at index %d: %w", raw.Topic, raw.Type, raw.Index, err)
	}
	switch {
	case payload.Node != nil:
		return t.nodeEvent(raw, payload.Node), nil
	case payload.Allocation != nil:
		if a, ok := payload.Allocation.allocation(); ok {
			return AllocationChanged{a}, nil
		}
	case payload.Evaluation != nil:
		return t.evaluationEvent(raw, payload.Evaluation), nil
	case payload.Job != nil:
		return jobEvent(payload.Job), nil
	}
	return nil, nil
}

// interesting tells whether an event is worth decoding: in a shared cluster
// most are of other jobs.
func (t *translator) interesting(raw rawEvent) bool {
	switch raw.Topic {
	case topicNode:
		return raw.Index > t.told.nodes
	case topicJob:
		return raw.Index > t.told.jobs
	case topicAllocation:
		return raw.Index > t.told.allocations && ofLane(raw)
	case topicEvaluation:
		return raw.Index > min(t.told.jobs, t.told.evaluations) && ofLane(raw)
	}
	return false
}

func ofLane(raw rawEvent) bool {
	for _, key := range raw.FilterKeys {
		if _, _, ok := LaneOf(key); ok {
			return true
		}
	}
	return false
}

func (t *translator) nodeEvent(raw rawEvent, wire *nodeWire) Event {
	if raw.Type == typeNodeDeregistration {
		delete(t.nodes, wire.ID)
		delete(t.withGPUs, wire.ID)
		return NodeGone{ID: wire.ID}
	}
	if wire.ModifyIndex < t.nodes[wire.ID] {
		return nil
	}
	t.nodes[wire.ID] = wire.ModifyIndex
	return NodeChanged{t.node(wire)}
}

// node is a node with what other jobs hold of it.
func (t *translator) node(wire *nodeWire) Node {
	n := wire.node()
	n.Foreign = t.others.on(n.ID)
	if len(n.Devices) > 0 {
		t.withGPUs[n.ID] = n
	} else {
		delete(t.withGPUs, n.ID)
	}
	return n
}

// foreignEvent returns nil unless what other jobs hold of a node with GPUs has
// changed.
func (t *translator) foreignEvent(raw rawEvent) (Event, error) {
	if raw.Topic != topicAllocation || raw.Index <= t.told.foreign {
		return nil, nil
	}
	var payload struct{ Allocation *foreignWire }
	if err := json.Unmarshal(raw.Payload, &payload); err != nil {
		return nil, fmt.Errorf("read Nomad's event %s %s at index %d: %w", raw.Topic, raw.Type, raw.Index, err)
	}
	if payload.Allocation == nil {
		return nil, nil
	}
	n, has := t.withGPUs[t.others.take(payload.Allocation)]
	if !has {
		return nil, nil
	}
	n.Foreign = t.others.on(n.ID)
	t.withGPUs[n.ID] = n
	return NodeChanged{n}, nil
}

func (t *translator) evaluationEvent(raw rawEvent, e *evaluationWire) Event {
	job, lane, ok := LaneOf(e.JobID)
	switch {
	case !ok:
		return nil
	case e.TriggeredBy == byDeregister:
		// Says of the job that it is gone.
		if raw.Index > t.told.jobs {
			return LaneGone{Job: job, Lane: lane}
		}
	case e.unplaced() && raw.Index > t.told.evaluations:
		return LaneBlocked{Job: job, Lane: lane, Reason: e.reason()}
	}
	return nil
}

type jobWire struct {
	ID, ParentID     string
	Stop             bool
	Dispatched       bool
	ParameterizedJob *struct{}
	JobModifyIndex   uint64
}

func jobEvent(j *jobWire) Event {
	if job, lane, ok := LaneOf(j.ID); ok {
		if j.Stop {
			return LaneGone{Job: job, Lane: lane}
		}
		return nil
	}
	if j.ParameterizedJob == nil || j.Dispatched {
		return nil
	}
	return TemplateChanged{Name: j.ID, Version: j.JobModifyIndex}
}
