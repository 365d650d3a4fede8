package nomad

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// Foreign is what allocations hold of a node that are of no lane: those of
// other jobs, in every namespace that gangd's token may read.
type Foreign struct {
	CPUMHz, MemoryMiB int
	// Devices has the job that holds each device, by the device's ID; nil where
	// none is held.
	Devices map[string]string
}

const (
	// everywhere is Nomad's name for all namespaces together.
	everywhere = "*"
	// maxForeign bounds the foreign allocations that are counted.
	maxForeign = 1 << 20
	// foreignFilter leaves out, in Nomad's filter language, what holds nothing
	// any more.
	foreignFilter = `ClientStatus != "complete" and ClientStatus != "failed" and ClientStatus != "lost"`
)

// foreignWire is what lists and events say of what an allocation holds.
type foreignWire struct {
	ID, Namespace, JobID, NodeID string
	ClientStatus                 string
	AllocatedResources           *struct {
		Tasks          map[string]*taskUse
		TaskLifecycles map[string]*struct {
			Hook    string
			Sidecar bool
		}
	}
}

type taskUse struct {
	Cpu     struct{ CpuShares int }
	Memory  struct{ MemoryMB int }
	Devices []struct{ DeviceIDs []string }
}

// uses is what an allocation has Nomad keep free of others: tasks that never
// run at the same time share it. (AllocatedResources.Comparable in Nomad's
// nomad/structs.)
func (w *foreignWire) uses() (cpuMHz, memoryMiB int) {
	if w.AllocatedResources == nil {
		return 0, 0
	}
	var before, main, after, beside taskUse
	for name, task := range w.AllocatedResources.Tasks {
		into := &main
		if when := w.AllocatedResources.TaskLifecycles[name]; when != nil {
			switch {
			case when.Hook == api.TaskLifecycleHookPrestart && when.Sidecar:
				into = &beside
			case when.Hook == api.TaskLifecycleHookPrestart:
				into = &before
			case when.Hook == api.TaskLifecycleHookPoststop:
				into = &after
			}
		}
		into.Cpu.CpuShares += task.Cpu.CpuShares
		into.Memory.MemoryMB += task.Memory.MemoryMB
	}
	return beside.Cpu.CpuShares + max(before.Cpu.CpuShares, main.Cpu.CpuShares, after.Cpu.CpuShares),
		beside.Memory.MemoryMB + max(before.Memory.MemoryMB, main.Memory.MemoryMB, after.Memory.MemoryMB)
}

// census counts what foreign allocations hold. It keeps a few words of each.
type census struct {
	// home is the namespace of the lanes.
	home string
	// at says of each allocation where it is, and what it holds there.
	at    map[allocationID]share
	nodes map[string]*holding
	// full tells that there were more than are counted.
	full bool
}

// allocationID is the UUID of an allocation.
type allocationID [16]byte

type share struct {
	node              *holding
	cpuMHz, memoryMiB int32
}

// holding is what is held of one node.
type holding struct {
	node              string
	allocations       int
	cpuMHz, memoryMiB int
	devices           map[string]tenant
}

// tenant is who holds a device.
type tenant struct {
	job        string
	allocation allocationID
}

func newCensus(home string) *census {
	return &census{home: home, at: make(map[allocationID]share), nodes: make(map[string]*holding)}
}

// take counts an allocation as it is now. It returns its node where what is
// held there has changed, and else nothing. Allocations do not change what they
// hold, nor where.
func (c *census) take(w *foreignWire) (node string) {
	if _, _, lane := LaneOf(w.JobID); lane && w.Namespace == c.home {
		return ""
	}
	id, ok := parseID(w.ID)
	if !ok {
		return ""
	}
	old, known := c.at[id]
	switch ended := (Allocation{ClientStatus: w.ClientStatus}).Ended(); {
	case known && ended:
		c.drop(id, old)
		return old.node.node
	case known || ended:
		return ""
	case len(c.at) >= maxForeign:
		c.full = true
		return ""
	}
	c.add(id, w)
	return w.NodeID
}

func (c *census) add(id allocationID, w *foreignWire) {
	h := c.nodes[w.NodeID]
	if h == nil {
		h = &holding{node: w.NodeID}
		c.nodes[w.NodeID] = h
	}
	cpu, memory := w.uses()
	c.at[id] = share{h, int32(cpu), int32(memory)}
	h.allocations++
	h.cpuMHz += cpu
	h.memoryMiB += memory
	if w.AllocatedResources == nil {
		return
	}
	for _, task := range w.AllocatedResources.Tasks {
		for _, group := range task.Devices {
			for _, device := range group.DeviceIDs {
				if h.devices == nil {
					h.devices = make(map[string]tenant)
				}
				h.devices[device] = tenant{w.JobID, id}
			}
		}
	}
}

func (c *census) drop(id allocationID, s share) {
	delete(c.at, id)
	h := s.node
	h.allocations--
	h.cpuMHz -= int(s.cpuMHz)
	h.memoryMiB -= int(s.memoryMiB)
	maps.DeleteFunc(h.devices, func(_ string, by tenant) bool { return by.allocation == id })
	if h.allocations == 0 {
		delete(c.nodes, h.node)
	}
}

// on is what is held of a node.
func (c *census) on(node string) Foreign {
	h := c.nodes[node]
	if h == nil {
		return Foreign{}
	}
	f := Foreign{CPUMHz: h.cpuMHz, MemoryMiB: h.memoryMiB}
	for device, by := range h.devices {
		if f.Devices == nil {
			f.Devices = make(map[string]string, len(h.devices))
		}
		f.Devices[device] = by.job
	}
	return f
}

// parseID reads a UUID as Nomad writes it.
func parseID(text string) (id allocationID, ok bool) {
	raw, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil || len(raw) != len(id) {
		return id, false
	}
	return allocationID(raw), true
}

// foreign lists what foreign allocations hold, and up to where in Nomad's log
// that is complete.
func (c *Client) foreign(ctx context.Context) (*census, uint64, error) {
	found := newCensus(c.namespace)
	opts := api.QueryOptions{Namespace: c.scope(), Filter: foreignFilter, Params: map[string]string{"resources": "true"}}
	index, err := pages(ctx, opts, func(opts *api.QueryOptions) (*api.QueryMeta, error) {
		var page []*foreignWire
		meta, err := c.api.Raw().Query("/v1/allocations", &page, opts)
		for _, wire := range page {
			found.take(wire)
		}
		return meta, err
	})
	if err != nil {
		c.narrow(err)
		return nil, 0, fmt.Errorf("list what other jobs hold: %w", err)
	}
	if found.full {
		c.log.Warn("there are more allocations of other jobs than gangd counts: it may try nodes on which Nomad finds no room", "counted", maxForeign)
	}
	return found, index, nil
}

// scope is the namespace, or all, whose allocations are counted.
func (c *Client) scope() string {
	if c.narrowed.Load() {
		return c.namespace
	}
	return everywhere
}

// narrow has the client look at its own namespace alone from now on, if its
// token may not read all, and says so once.
func (c *Client) narrow(err error) {
	var response api.UnexpectedResponseError
	if !errors.As(err, &response) || response.StatusCode() != http.StatusForbidden || c.narrowed.Swap(true) {
		return
	}
	c.log.Warn("gangd's token may not read the allocations of all namespaces: what jobs of others hold is found out only when Nomad refuses a lane. "+
		"Give its policy read-job for namespace \"*\", and start gangd again", "namespace", c.namespace)
}
