package nomad

import (
	"context"
	"fmt"
	"net/url"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sync/errgroup"
)

// nodeRequests bounds the requests for nodes under way at once: Nomad's lists
// carry neither metadata nor devices.
const nodeRequests = 8

// Nomad's words for how a node is.
const (
	NodeReady = api.NodeStatusReady
	NodeDown  = api.NodeStatusDown
)

// Node is a node as the servers know it.
type Node struct {
	ID, Name, Pool string
	// Status is one of the constants above, or another of Nomad's.
	Status   string
	Eligible bool
	Draining bool
	// Meta is what the operator wrote.
	Meta    map[string]string
	Devices []Device
	// CPUMHz and MemoryMiB are what it has for tasks, CoreMHz what Nomad counts
	// for one core of it; 0 where that is not known.
	CPUMHz, CoreMHz, MemoryMiB int
	// Foreign is what allocations of other jobs hold of that.
	Foreign Foreign
}

// Device is a GPU that gangd's device plugin listed, so that a lane can be
// pinned to it. Its health is 5 to 10 s old.
type Device struct {
	// ID is its UUID.
	ID      string
	Healthy bool
	// Description says why it is not healthy.
	Description string
	// Attributes are those of its group, as the plugin gave them.
	Attributes map[string]DeviceAttribute
}

// DeviceAttribute is a text or a whole number.
type DeviceAttribute struct {
	String string
	Int    int64
}

// nodeWire is what Nomad's API and its events have in common.
type nodeWire struct {
	ID, Name, NodePool            string
	Status, SchedulingEligibility string
	DrainStrategy                 *struct{}
	Meta                          map[string]string
	ReservedResources             *capacityWire
	NodeResources                 *struct {
		capacityWire
		Devices []struct {
			Vendor, Type, Name string
			Attributes         map[string]DeviceAttribute
			Instances          []struct {
				ID, HealthDescription string
				Healthy               bool
			}
		}
	}
	ModifyIndex uint64
}

// capacityWire is what a node has, or keeps for itself.
type capacityWire struct {
	Cpu    struct{ CpuShares, TotalCpuCores int }
	Memory struct{ MemoryMB int }
}

func (w *nodeWire) node() Node {
	n := Node{
		ID: w.ID, Name: w.Name, Pool: w.NodePool, Status: w.Status, Meta: w.Meta,
		Eligible: w.SchedulingEligibility == api.NodeSchedulingEligible, Draining: w.DrainStrategy != nil,
	}
	if w.NodeResources == nil {
		return n
	}
	n.CPUMHz, n.MemoryMiB = w.NodeResources.Cpu.CpuShares, w.NodeResources.Memory.MemoryMB
	if cores := w.NodeResources.Cpu.TotalCpuCores; cores > 0 {
		n.CoreMHz = n.CPUMHz / cores
	}
	if r := w.ReservedResources; r != nil {
		n.CPUMHz, n.MemoryMiB = max(0, n.CPUMHz-r.Cpu.CpuShares), max(0, n.MemoryMiB-r.Memory.MemoryMB)
	}
	for _, group := range w.NodeResources.Devices {
		if group.Vendor+"/"+group.Type+"/" != deviceGroup {
			continue // another plugin may list the same GPU
		}
		for _, instance := range group.Instances {
			n.Devices = append(n.Devices, Device{
				ID: instance.ID, Healthy: instance.Healthy, Description: instance.HealthDescription,
				Attributes: group.Attributes,
			})
		}
	}
	return n
}

// nodes reads all nodes with their metadata and devices, one request each, and
// returns the index before which no change is missing. Nodes that go while it
// reads are left out.
func (c *Client) nodes(ctx context.Context) ([]*nodeWire, uint64, error) {
	var ids []string
	index, err := pages(ctx, api.QueryOptions{}, func(opts *api.QueryOptions) (*api.QueryMeta, error) {
		stubs, meta, err := c.api.Nodes().List(opts)
		for _, stub := range stubs {
			ids = append(ids, stub.ID)
		}
		return meta, err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("list nodes: %w", err)
	}
	found := make([]*nodeWire, len(ids))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(nodeRequests)
	for i, id := range ids {
		group.Go(func() (err error) {
			found[i], err = c.node(ctx, id)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, 0, err
	}
	present := found[:0]
	for _, wire := range found {
		if wire != nil {
			present = append(present, wire)
		}
	}
	return present, index, nil
}

// node returns nil if there is no such node.
func (c *Client) node(ctx context.Context, id string) (*nodeWire, error) {
	opts, cancel := query(ctx, requestTimeout)
	defer cancel()
	wire := new(nodeWire)
	_, err := c.api.Raw().Query("/v1/node/"+url.PathEscape(id), wire, opts)
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read node %s: %w", id, err)
	}
	return wire, nil
}
