package keeper

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/internal/gpu"
	"github.com/gangd/gangd/plugins/driver/lane"
)

const (
	// freeTimeout is how long a killed job's children may hold on to a GPU, and
	// how long NVML may fail to tell.
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

// openGPUs returns what opens the node's NVML, once that has succeeded. A node
// that simulates its GPUs simulates their users too; none is without NVML, and
// so a failure is never taken for a free GPU.
func openGPUs(c lane.Node, log hclog.Logger) func() (gpuUsage, error) {
	var mu sync.Mutex
	var library *gpu.Library
	return func() (gpuUsage, error) {
		mu.Lock()
		defer mu.Unlock()
		if library == nil {
			opened, err := gpu.Open(gpu.Config{
				NVML: c.NVML, Log: log,
				Mock: gpu.Mock{Node: c.MockNode, GPUs: c.MockGPUs, FaultFile: c.FaultFile},
			})
			if err != nil {
				return nil, err
			}
			library = opened
		}
		return library, nil
	}
}

// awaitFree returns when nobody uses the GPUs, or with an error that names who
// still does after freeTimeout, or which GPU could not be asked and why. NVML
// hangs with a GPU that does, so it is asked from a goroutine that can be left
// behind.
func awaitFree(ctx context.Context, open func() (gpuUsage, error), gpus []lane.GPU) error {
	ctx, cancel := context.WithTimeout(ctx, freeTimeout)
	defer cancel()
	holders := "NVML does not answer"
	for {
		answer := make(chan string, 1)
		go func() { answer <- holdersOf(open, gpus) }()
		select {
		case holders = <-answer:
			if holders == "" {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("the GPUs of this lane are not known to be free after %v: %s", freeTimeout, holders)
		}
		select {
		case <-time.After(freeRecheck):
		case <-ctx.Done():
		}
	}
}

// holdersOf says why the GPUs are not known to be free, or "".
func holdersOf(open func() (gpuUsage, error), gpus []lane.GPU) string {
	usage, err := open()
	if err != nil {
		return fmt.Sprintf("NVML cannot be asked who uses them: %v", err)
	}
	var holders []string
	for _, g := range gpus {
		u, err := usage.Usage(g.UUID)
		if err != nil {
			holders = append(holders, fmt.Sprintf("GPU %d (%s) could not be asked: %v", g.Index, g.UUID, err))
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
