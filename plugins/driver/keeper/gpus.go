package keeper

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/internal/gpu"
	"github.com/gangd/gangd/plugins/driver/lane"
)

const (
	// freeTimeout is how long a killed job's children may hold on to a GPU.
	freeTimeout = 10 * time.Second
	freeRecheck = 100 * time.Millisecond
	// heldMiB is what a GPU on which nothing runs can show as used, the
	// driver's own reserve included where the driver does not tell it apart.
	heldMiB = 1024
)

// gpuUsage tells who uses a GPU.
type gpuUsage interface {
	Usage(uuid string) (gpu.Usage, error)
}

// openGPUs opens NVML; nil on a node without it, where nobody can be asked.
func openGPUs(c lane.Node, log hclog.Logger) gpuUsage {
	library, err := gpu.Open(gpu.Config{
		NVML: c.NVML, Log: log,
		Mock: gpu.Mock{Node: c.MockNode, GPUs: c.MockGPUs, FaultFile: c.FaultFile},
	})
	if err != nil {
		log.Warn("whether others use the GPUs cannot be checked", "error", err)
		return nil
	}
	return library
}

// awaitFree returns when nobody uses the GPUs, or with an error that names who
// still does after freeTimeout. NVML hangs with a GPU that does, so it is
// asked from a goroutine that can be left behind.
func awaitFree(ctx context.Context, open func() gpuUsage, gpus []lane.GPU, log hclog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, freeTimeout)
	defer cancel()
	holders := "NVML does not answer"
	for {
		answer := make(chan string, 1)
		go func() { answer <- holdersOf(open(), gpus, log) }()
		select {
		case holders = <-answer:
			if holders == "" {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("the GPUs of this lane are not free after %v: %s", freeTimeout, holders)
		}
		select {
		case <-time.After(freeRecheck):
		case <-ctx.Done():
		}
	}
}

// holdersOf says who uses the GPUs, or "".
func holdersOf(usage gpuUsage, gpus []lane.GPU, log hclog.Logger) string {
	if usage == nil {
		return ""
	}
	var holders []string
	for _, g := range gpus {
		u, err := usage.Usage(g.UUID)
		if err != nil {
			log.Warn("whether others use a GPU cannot be checked", "gpu", g.UUID, "error", err)
			continue
		}
		for _, p := range u.Processes {
			holders = append(holders, fmt.Sprintf("process %d uses GPU %d (%s) with %d MiB", p.PID, g.Index, g.UUID, p.MemoryMiB))
		}
		if len(u.Processes) == 0 && u.UsedMiB > heldMiB {
			holders = append(holders, fmt.Sprintf("%d MiB of GPU %d (%s) are held by no process that NVML shows", u.UsedMiB, g.Index, g.UUID))
		}
	}
	return strings.Join(holders, "; ")
}
