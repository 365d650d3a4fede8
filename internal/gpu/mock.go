package gpu

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/gpus"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
)

// A DGX H100 has 8 GPUs, half of them on each of two sockets, with 18 NVLinks a
// GPU.
const (
	dgxGPUs       = 8
	dgxPerSocket  = 4
	hopperNVLinks = 18
)

// mockPoll is how often a wait for events looks at the fault file.
const mockPoll = 10 * time.Millisecond

// mockServer is go-nvml's simulated server with the functions that it leaves
// unset, and with faults.
type mockServer struct {
	*server.Server
	devices    []*server.Device
	islandGPUs int
	faults     *faults
}

func newMockServer(c Mock, log hclog.Logger) *server.Server {
	count := c.GPUs
	if count == 0 {
		count = dgxGPUs
	}
	s := &mockServer{
		Server:     dgxh100.NewWithGPUs(gpus.Multiple(count, gpus.H100_SXM5_80GB)...),
		islandGPUs: c.IslandGPUs,
		faults:     newFaults(c.FaultFile, count, log),
	}
	if s.islandGPUs == 0 {
		s.islandGPUs = count
	}
	for index := range s.Devices {
		d := s.Devices[index].(*server.Device)
		d.UUID = mockUUID(c.Node, index)
		s.devices = append(s.devices, d)
	}
	for _, d := range s.devices {
		s.setIdentity(d)
		s.setLinks(d)
		s.setCondition(d)
		s.setProcesses(d)
	}
	s.DeviceGetHandleByUUIDFunc = s.byUUID
	s.EventSetCreateFunc = s.newEventSet
	return s.Server
}

// mockUUID is the same for every process that names the node.
func mockUUID(node string, index int) string {
	return "GPU-" + uuid.NewSHA1(uuid.NameSpaceOID, fmt.Appendf(nil, "gangd mock GPU %d of node %s", index, node)).String()
}

// byUUID does not find a GPU that fell off the bus, while its identity stays
// readable by index: so the node's inventory is whole after a restart.
func (s *mockServer) byUUID(id string) (nvml.Device, nvml.Return) {
	for _, d := range s.devices {
		if d.UUID != id {
			continue
		}
		if s.faults.state(d.Index).lost {
			return nil, nvml.ERROR_GPU_IS_LOST
		}
		return d, nvml.SUCCESS
	}
	return nil, nvml.ERROR_NOT_FOUND
}

func (s *mockServer) setIdentity(d *server.Device) {
	pci := nvml.PciInfo{PciDeviceId: d.Config.PciDeviceId, Bus: uint32(d.Index)}
	for i, c := range []byte("0000" + d.PciBusID) {
		pci.BusId[i] = int8(c)
	}
	d.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) { return pci, nvml.SUCCESS }
	d.GetNumaNodeIdFunc = func() (int, nvml.Return) { return d.Index / dgxPerSocket, nvml.SUCCESS }
	d.GetMemoryAffinityFunc = func(nodes int, _ nvml.AffinityScope) ([]uint, nvml.Return) {
		words := make([]uint, (nodes+bits.UintSize-1)/bits.UintSize)
		words[0] = 1 << (d.Index / dgxPerSocket)
		return words, nvml.SUCCESS
	}
	d.GetTopologyCommonAncestorFunc = func(other nvml.Device) (nvml.GpuTopologyLevel, nvml.Return) {
		index, ret := other.GetIndex()
		switch {
		case ret != nvml.SUCCESS:
			return 0, ret
		case index == d.Index:
			return nvml.TOPOLOGY_INTERNAL, nvml.SUCCESS
		case index/dgxPerSocket == d.Index/dgxPerSocket:
			return nvml.TOPOLOGY_NODE, nvml.SUCCESS
		default:
			return nvml.TOPOLOGY_SYSTEM, nvml.SUCCESS
		}
	}
}

// setLinks joins all GPUs through switches, or those of each island directly.
func (s *mockServer) setLinks(d *server.Device) {
	switched := s.islandGPUs >= len(s.devices)
	var peers []*server.Device
	for _, other := range s.devices {
		if other != d && other.Index/s.islandGPUs == d.Index/s.islandGPUs {
			peers = append(peers, other)
		}
	}
	active := 0
	switch {
	case switched:
		active = hopperNVLinks
	case len(peers) > 0:
		// As many to each peer as to any other.
		active = hopperNVLinks / len(peers) * len(peers)
	}
	d.GetNvLinkStateFunc = func(link int) (nvml.EnableState, nvml.Return) {
		if link >= hopperNVLinks {
			return nvml.FEATURE_DISABLED, nvml.ERROR_INVALID_ARGUMENT
		}
		if link >= active {
			return nvml.FEATURE_DISABLED, nvml.SUCCESS
		}
		return nvml.FEATURE_ENABLED, nvml.SUCCESS
	}
	d.GetNvLinkRemoteDeviceTypeFunc = func(link int) (nvml.IntNvLinkDeviceType, nvml.Return) {
		if link >= active {
			return nvml.NVLINK_DEVICE_TYPE_UNKNOWN, nvml.ERROR_INVALID_ARGUMENT
		}
		if switched {
			return nvml.NVLINK_DEVICE_TYPE_SWITCH, nvml.SUCCESS
		}
		return nvml.NVLINK_DEVICE_TYPE_GPU, nvml.SUCCESS
	}
	d.GetNvLinkRemotePciInfoFunc = func(link int) (nvml.PciInfo, nvml.Return) {
		if switched || link >= active {
			return nvml.PciInfo{}, nvml.ERROR_NOT_SUPPORTED
		}
		return peers[link%len(peers)].GetPciInfo()
	}
}

// setCondition answers probes and lets events be registered.
func (s *mockServer) setCondition(d *server.Device) {
	d.GetFieldValuesFunc = func(values []nvml.FieldValue) nvml.Return {
		for i := range values {
			if values[i].FieldId != nvml.FI_DEV_GET_GPU_RECOVERY_ACTION {
				values[i].NvmlReturn = uint32(nvml.ERROR_NOT_SUPPORTED)
				continue
			}
			values[i].ValueType = uint32(nvml.VALUE_TYPE_UNSIGNED_INT)
			values[i].NvmlReturn = uint32(nvml.SUCCESS)
			binary.NativeEndian.PutUint32(values[i].Value[:4], uint32(s.faults.state(d.Index).action))
		}
		return nvml.SUCCESS
	}
	d.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 0, 0, false, false, nvml.SUCCESS }
	d.GetSupportedEventTypesFunc = func() (uint64, nvml.Return) { return nvml.EventTypeXidCriticalError, nvml.SUCCESS }
	d.RegisterEventsFunc = func(types uint64, _ nvml.EventSet) nvml.Return {
		if types&^nvml.EventTypeXidCriticalError != 0 {
			return nvml.ERROR_NOT_SUPPORTED
		}
		return nvml.SUCCESS
	}
}

// setProcesses shows the processes and memory that the fault file tells of.
func (s *mockServer) setProcesses(d *server.Device) {
	total := d.Config.MemoryMB << 20
	d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) {
		used := s.faults.state(d.Index).usedBytes()
		return nvml.Memory{Total: total, Used: used, Free: total - min(used, total)}, nvml.SUCCESS
	}
	d.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) {
		used := s.faults.state(d.Index).usedBytes()
		return nvml.Memory_v2{Total: total, Used: used, Free: total - min(used, total)}, nvml.SUCCESS
	}
	d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
		var infos []nvml.ProcessInfo
		for pid, memoryMiB := range s.faults.state(d.Index).processes {
			infos = append(infos, nvml.ProcessInfo{Pid: uint32(pid), UsedGpuMemory: memoryMiB << 20})
		}
		return infos, nvml.SUCCESS
	}
	none := func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.SUCCESS }
	d.GetGraphicsRunningProcessesFunc = none
	d.GetMPSComputeRunningProcessesFunc = none
}

// newEventSet delivers what is appended to the fault file from now on.
func (s *mockServer) newEventSet() (nvml.EventSet, nvml.Return) {
	cursor := s.faults.end()
	return &mock.EventSet{
		FreeFunc: func() nvml.Return { return nvml.SUCCESS },
		WaitFunc: func(timeoutMillis uint32) (nvml.EventData, nvml.Return) {
			deadline := time.Now().Add(time.Duration(timeoutMillis) * time.Millisecond)
			for {
				if e, ok := s.faults.next(&cursor); ok {
					return nvml.EventData{
						Device: s.devices[e.gpu], EventType: nvml.EventTypeXidCriticalError, EventData: e.xid,
						GpuInstanceId: ^uint32(0), ComputeInstanceId: ^uint32(0),
					}, nvml.SUCCESS
				}
				left := time.Until(deadline)
				if left <= 0 {
					return nvml.EventData{}, nvml.ERROR_TIMEOUT
				}
				time.Sleep(min(left, mockPoll))
			}
		},
	}, nvml.SUCCESS
}
