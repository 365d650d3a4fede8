package gpu

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// GPU is what does not change about a GPU while its driver is loaded.
type GPU struct {
	UUID string
	// Index is NVML's: GPUs of a node in the order of their PCI addresses.
	Index int
	// Minor is the N in /dev/nvidiaN.
	Minor int
	// Model is the product and its memory, such as "H100-80GB".
	Model string
	// Name is the product as NVML calls it, such as "NVIDIA H100 80GB HBM3".
	Name      string
	MemoryMiB uint64
	// NUMANode is the node of the CPUs and memory next to the GPU, or -1 where
	// the machine does not tell.
	NUMANode int
	// Island numbers, from 0, the sets of GPUs of a node that full-bandwidth
	// NVLink joins, directly or through switches. A GPU without NVLink is an
	// island by itself.
	Island int
	// PCIBusID is as in /sys/bus/pci/devices, such as "0000:18:00.0".
	PCIBusID string
	// CUDACapability is the compute capability, such as "9.0".
	CUDACapability string
}

// memoryMiB rounds up, so that no memory that is held looks free.
func memoryMiB(bytes uint64) uint64 {
	const mib = 1 << 20
	return bytes/mib + min(bytes%mib, 1)
}

// GPUs lists the node's GPUs by index. A GPU that cannot be read is left out
// and told of in the error, which then comes with the rest of the list.
func (l *Library) GPUs() ([]GPU, error) {
	count, ret := l.api.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("counting GPUs through NVML: %w", ret)
	}
	var (
		gpus    []GPU
		devices []nvml.Device
		errs    []error
	)
	for index := range count {
		device, ret := l.api.DeviceGetHandleByIndex(index)
		if ret != nvml.SUCCESS {
			errs = append(errs, fmt.Errorf("asking NVML for GPU %d: %w", index, ret))
			continue
		}
		gpu, err := l.describe(device, index)
		if err != nil {
			errs = append(errs, fmt.Errorf("reading GPU %d through NVML: %w", index, err))
			continue
		}
		gpus, devices = append(gpus, gpu), append(devices, device)
	}
	for i, island := range islands(l.links(gpus, devices)) {
		gpus[i].Island = island
	}
	return gpus, errors.Join(errs...)
}

func (l *Library) describe(device nvml.Device, index int) (GPU, error) {
	g := GPU{Index: index}
	var ret nvml.Return
	if g.UUID, ret = device.GetUUID(); ret != nvml.SUCCESS {
		return GPU{}, fmt.Errorf("its UUID: %w", ret)
	}
	if g.Name, ret = device.GetName(); ret != nvml.SUCCESS {
		return GPU{}, fmt.Errorf("its name: %w", ret)
	}
	if g.Minor, ret = device.GetMinorNumber(); ret != nvml.SUCCESS {
		return GPU{}, fmt.Errorf("its minor number: %w", ret)
	}
	memory, ret := device.GetMemoryInfo()
	if ret != nvml.SUCCESS {
		return GPU{}, fmt.Errorf("its memory: %w", ret)
	}
	pci, ret := device.GetPciInfo()
	if ret != nvml.SUCCESS {
		return GPU{}, fmt.Errorf("its PCI address: %w", ret)
	}
	major, minor, ret := device.GetCudaComputeCapability()
	if ret != nvml.SUCCESS {
		return GPU{}, fmt.Errorf("its CUDA capability: %w", ret)
	}
	g.MemoryMiB = memoryMiB(memory.Total)
	g.Model = modelName(g.Name, g.MemoryMiB)
	g.PCIBusID = pciBusID(pci)
	g.CUDACapability = fmt.Sprintf("%d.%d", major, minor)
	g.NUMANode = l.numaNode(device)
	return g, nil
}

// pciBusID turns NVML's address, whose domain has eight digits, into the
// kernel's, whose domain has four unless it needs more.
func pciBusID(pci nvml.PciInfo) string {
	id := strings.ToLower(text(pci.BusId[:]))
	if domain, _, ok := strings.Cut(id, ":"); ok && len(domain) == 8 {
		id = strings.TrimPrefix(id, "0000")
	}
	return id
}

// numaNode asks for the memory next to the GPU first: GetNumaNodeId is for
// machines where the GPU's own memory is a NUMA node.
func (l *Library) numaNode(device nvml.Device) int {
	const mostNodes = 1024
	if l.has("nvmlDeviceGetMemoryAffinity") {
		words, ret := device.GetMemoryAffinity(mostNodes, nvml.AFFINITY_SCOPE_NODE)
		if ret == nvml.SUCCESS {
			for i, word := range words {
				if word != 0 {
					return i*bits.UintSize + bits.TrailingZeros(word)
				}
			}
		}
	}
	if l.has("nvmlDeviceGetNumaNodeId") {
		if node, ret := device.GetNumaNodeId(); ret == nvml.SUCCESS {
			return node
		}
	}
	return -1
}
