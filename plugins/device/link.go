package main

import (
	"context"

	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/internal/gpu"
	"github.com/gangd/gangd/internal/link"
	"github.com/gangd/gangd/internal/link/linkpb"
)

// linkReporter hands the newest inventory to the stream to gangd.
type linkReporter struct{ newest chan []*linkpb.Gpu }

func newLinkReporter(ctx context.Context, c config, log hclog.Logger) reporter {
	r := linkReporter{newest: make(chan []*linkpb.Gpu, 1)}
	resolvers := []link.Resolver{link.Static(c.GangdAddresses)}
	if c.ConsulAddress != "" {
		resolvers = append(resolvers, link.ConsulCatalog(c.ConsulAddress, c.ConsulToken))
	}
	resolver := link.Chain(resolvers...)
	go func() {
		err := link.RunDevice(ctx, link.ClientConfig{Resolver: resolver, Log: log.Named("link")}, r.newest)
		if ctx.Err() == nil {
			log.Error("the stream to gangd ended: it learns of the GPUs from Nomad alone until the plugin is restarted", "error", err)
		}
	}()
	return r
}

// Report replaces an inventory that was not sent yet. It has one caller.
func (r linkReporter) Report(inventory gpu.Inventory) {
	select {
	case <-r.newest:
	default:
	}
	r.newest <- linkGPUs(inventory)
}

func linkGPUs(inventory gpu.Inventory) []*linkpb.Gpu {
	gpus := make([]*linkpb.Gpu, 0, len(inventory.GPUs))
	for _, s := range inventory.GPUs {
		gpus = append(gpus, &linkpb.Gpu{
			Uuid:         s.GPU.UUID,
			Index:        uint32(s.GPU.Index),
			Model:        s.GPU.Model,
			MemoryMib:    s.GPU.MemoryMiB,
			NumaNode:     int32(s.GPU.NUMANode),
			NvlinkIsland: uint32(s.GPU.Island),
			PciBusId:     s.GPU.PCIBusID,
			Healthy:      s.Healthy,
			Reason:       s.Reason,
		})
	}
	return gpus
}
