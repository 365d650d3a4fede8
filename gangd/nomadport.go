package main

import (
	"context"
	"errors"

	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/coordinator"
	"github.com/gangd/gangd/internal/nomad"
)

// nomadPort makes Nomad what the coordinator opens lanes with.
type nomadPort struct {
	client   *nomad.Client
	topology config.Topology
	pool     string
	log      hclog.Logger
}

// CheckTemplate implements coordinator.Nomad.
func (p *nomadPort) CheckTemplate(ctx context.Context, name string) (coordinator.Template, error) {
	t, err := p.client.Template(ctx, name)
	return coordinator.Template(t), templateError(err)
}

// OpenLane implements coordinator.Nomad.
func (p *nomadPort) OpenLane(ctx context.Context, o coordinator.OpenLane) (uint64, error) {
	opened, err := p.client.OpenLane(ctx, nomad.LaneOrder{
		Lane: o.Lane, Template: o.Template, TemplateVersion: o.TemplateVersion, Node: o.Node, UUIDs: o.UUIDs,
	})
	return opened.TemplateVersion, templateError(err)
}

// PurgeLane implements coordinator.Nomad.
func (p *nomadPort) PurgeLane(ctx context.Context, job string) error {
	return p.client.PurgeLane(ctx, job)
}

// templateError tells the coordinator where a template is the cause, and
// whether it is to blame.
func templateError(err error) error {
	var faulty *nomad.TemplateError
	switch {
	case errors.Is(err, nomad.ErrTemplateVersion):
		return templateFault{err, coordinator.ErrTemplateVersion}
	case errors.Is(err, nomad.ErrNoTemplate) || errors.As(err, &faulty):
		return templateFault{err, coordinator.ErrTemplate}
	}
	return err
}

// templateFault is one of the coordinator's errors in the words of Nomad's
// adapter, which say all.
type templateFault struct {
	error
	kind error
}

// Is implements what errors.Is looks for.
func (f templateFault) Is(target error) bool { return target == f.kind }

// Unwrap returns the error as Nomad's adapter made it.
func (f templateFault) Unwrap() error { return f.error }

// Watch implements coordinator.Nomad.
func (p *nomadPort) Watch(ctx context.Context, observe func(coordinator.Input)) error {
	warnings, err := p.client.CheckScheduler(ctx)
	if err != nil {
		p.log.Warn("the scheduler's configuration could not be read", "error", err)
	}
	for _, w := range warnings {
		p.log.Warn(w)
	}
	return p.client.Watch(ctx, func(e nomad.Event) {
		for _, in := range p.inputs(e) {
			observe(in)
		}
	})
}

// inputs translates what Nomad tells into the coordinator's words.
func (p *nomadPort) inputs(e nomad.Event) []coordinator.Input {
	switch e := e.(type) {
	case nomad.Resync:
		return p.all(e)
	case nomad.NodeChanged:
		if p.ours(e.Node) {
			return []coordinator.Input{coordinator.NodeChanged{Node: p.node(e.Node)}}
		}
		return []coordinator.Input{coordinator.NodeRemoved{ID: e.ID}}
	case nomad.NodeGone:
		return []coordinator.Input{coordinator.NodeRemoved{ID: e.ID}}
	case nomad.AllocationChanged:
		return []coordinator.Input{coordinator.LaneJobChanged{Job: allocation(e.Allocation)}}
	case nomad.LaneBlocked:
		return []coordinator.Input{coordinator.LaneBlocked{Lane: e.Lane, Reason: e.Reason}}
	case nomad.LaneGone:
		return []coordinator.Input{coordinator.LaneJobRemoved{Lane: e.Lane}}
	case nomad.TemplateChanged:
		return []coordinator.Input{coordinator.TemplateSeen(e)}
	}
	return nil
}

// all translates the whole list. What befell lanes while nobody watched is told
// in the words in which the stream would have told it.
func (p *nomadPort) all(e nomad.Resync) []coordinator.Input {
	var nodes coordinator.NodesListed
	for _, n := range e.Nodes {
		if p.ours(n) {
			nodes.Nodes = append(nodes.Nodes, p.node(n))
		}
	}
	// The templates come first: what is decided with the nodes needs them.
	var out []coordinator.Input
	for _, t := range e.Templates {
		out = append(out, coordinator.TemplateSeen(t))
	}
	var jobs coordinator.LaneJobsListed
	var befell []coordinator.Input
	for _, l := range e.Lanes {
		jobs.Jobs = append(jobs.Jobs, laneJob(l))
		if why := l.Blocked(); l.Gone {
			befell = append(befell, coordinator.LaneJobRemoved{Lane: l.Lane})
		} else if why != "" {
			befell = append(befell, coordinator.LaneBlocked{Lane: l.Lane, Reason: why})
		}
	}
	return append(append(out, nodes, jobs), befell...)
}

// ours are the nodes of the configured pool.
func (p *nomadPort) ours(n nomad.Node) bool {
	return p.pool == "" || p.pool == "all" || n.Pool == "" || n.Pool == p.pool
}

// node translates a node; its domain at a level is what its metadata says.
func (p *nomadPort) node(n nomad.Node) coordinator.NodeView {
	v := coordinator.NodeView{
		ID: n.ID, Name: n.Name,
		Ready: n.Status == nomad.NodeReady, Down: n.Status == nomad.NodeDown, Eligible: n.Eligible, Draining: n.Draining,
		Devices:  make(map[string]coordinator.GPUView),
		Capacity: cluster.Room{CPUMHz: n.CPUMHz, MemoryMiB: n.MemoryMiB}, CoreMHz: n.CoreMHz,
		Foreign: cluster.Room{CPUMHz: n.Foreign.CPUMHz, MemoryMiB: n.Foreign.MemoryMiB}, HeldBy: n.Foreign.Devices,
	}
	for _, level := range p.topology.Levels {
		v.Domains = append(v.Domains, n.Meta[p.topology.MetaPrefix+level])
	}
	for _, d := range n.Devices {
		v.Devices[d.ID] = device(d)
	}
	return v
}

// device reads the attributes that gangd's device plugin gives.
func device(d nomad.Device) coordinator.GPUView {
	number := func(name string) int { return int(d.Attributes[name].Int) }
	return coordinator.GPUView{
		UUID: d.ID, Index: number("index"), Model: d.Attributes["model"].String, MemoryMiB: number("memory"),
		Island: number("nvlink_island"), NUMA: number("numa_node"), Healthy: d.Healthy, Reason: d.Description,
	}
}

// laneJob takes the newest allocation of a lane's children.
func laneJob(l nomad.LaneJob) coordinator.LaneJob {
	out := coordinator.LaneJob{Job: l.Job, Lane: l.Lane}
	for _, child := range l.Children {
		if child.Allocation != nil {
			out = allocation(*child.Allocation)
		}
	}
	return out
}

func allocation(a nomad.Allocation) coordinator.LaneJob {
	return coordinator.LaneJob{
		Job: a.Job, Lane: a.Lane, Allocation: a.ID,
		Ended: a.Ended(), Failed: a.Failed, Lost: a.ClientStatus == nomad.ClientLost,
		Stopped:   a.DesiredStatus == nomad.DesiredStop && a.ClientStatus == nomad.ClientComplete,
		Preempted: a.PreemptedBy != "",
		Invalid:   a.Invalid,
		Message:   a.Message,
	}
}
