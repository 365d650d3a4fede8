package gpu

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Usage is who holds a GPU at one moment.
type Usage struct {
	TotalMiB uint64
	// UsedMiB is the memory in use, without what the driver reserves for
	// itself where it tells the two apart. A GPU on which nothing runs can
	// still show a few MiB.
	UsedMiB uint64
	// Processes is ordered by PID, each once.
	Processes []Process
}

// Process is an operating system process that has a context on a GPU.
type Process struct {
	PID int
	// MemoryMiB is 0 where the driver does not tell.
	MemoryMiB uint64
}

// Usage reads who uses a GPU. It fails for a GPU that is unknown or lost.
func (l *Library) Usage(uuid string) (Usage, error) {
	device, err := l.handle(uuid)
	if err != nil {
		return Usage{}, err
	}
	usage, err := l.memory(device)
	if err != nil {
		return Usage{}, fmt.Errorf("reading the memory of GPU %s: %w", uuid, err)
	}
	if usage.Processes, err = l.processes(device); err != nil {
		return Usage{}, fmt.Errorf("listing the processes on GPU %s: %w", uuid, err)
	}
	return usage, nil
}

func (l *Library) memory(device nvml.Device) (Usage, error) {
	if l.has("nvmlDeviceGetMemoryInfo_v2") {
		if memory, ret := device.GetMemoryInfo_v2(); ret == nvml.SUCCESS {
			return Usage{TotalMiB: memoryMiB(memory.Total), UsedMiB: memoryMiB(memory.Used)}, nil
		}
	}
	memory, ret := device.GetMemoryInfo()
	if ret != nvml.SUCCESS {
		return Usage{}, ret
	}
	return Usage{TotalMiB: memoryMiB(memory.Total), UsedMiB: memoryMiB(memory.Used)}, nil
}

func (l *Library) processes(device nvml.Device) ([]Process, error) {
	lists := []func() ([]nvml.ProcessInfo, nvml.Return){device.GetComputeRunningProcesses, device.GetGraphicsRunningProcesses}
	if l.has("nvmlDeviceGetMPSComputeRunningProcesses") {
		lists = append(lists, device.GetMPSComputeRunningProcesses)
	}
	memoryByPID := map[int]uint64{}
	for _, list := range lists {
		infos, ret := list()
		if absent(ret) {
			continue
		}
		if ret != nvml.SUCCESS {
			return nil, ret
		}
		for _, info := range infos {
			// All ones says that the memory is not known.
			used := uint64(0)
			if info.UsedGpuMemory != ^uint64(0) {
				used = memoryMiB(info.UsedGpuMemory)
			}
			// A process with both kinds of context is on both lists.
			memoryByPID[int(info.Pid)] = max(memoryByPID[int(info.Pid)], used)
		}
	}
	processes := make([]Process, 0, len(memoryByPID))
	for pid, used := range memoryByPID {
		processes = append(processes, Process{PID: pid, MemoryMiB: used})
	}
	slices.SortFunc(processes, func(a, b Process) int { return cmp.Compare(a.PID, b.PID) })
	return processes, nil
}
