package nomadplugin

import (
	"maps"
	"slices"
	"strconv"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/gangd/gangd/internal/nomadplugin/proto/driverpb"
)

func taskFromWire(wire *driverpb.TaskConfig) TaskConfig {
	task := TaskConfig{
		ID: wire.GetId(), AllocID: wire.GetAllocId(), Name: wire.GetName(), TaskGroupName: wire.GetTaskGroupName(),
		JobID: wire.GetJobId(), JobName: wire.GetJobName(), ParentJobID: wire.GetParentJobId(),
		Namespace: wire.GetNamespace(), NodeID: wire.GetNodeId(), NodeName: wire.GetNodeName(),
		Env: wire.GetEnv(), DeviceEnv: wire.GetDeviceEnv(), Resources: resourcesFromWire(wire.GetResources()),
		User: wire.GetUser(), AllocDir: wire.GetAllocDir(),
		StdoutPath: wire.GetStdoutPath(), StderrPath: wire.GetStderrPath(),
		NetworkNamespace: wire.GetNetworkIsolationSpec().GetPath(),
		DriverConfig:     wire.GetMsgpackDriverConfig(),
	}
	for _, device := range wire.GetDevices() {
		task.Devices = append(task.Devices, TaskDevice{
			TaskPath: device.GetTaskPath(), HostPath: device.GetHostPath(), Permissions: device.GetCgroupPermissions(),
		})
	}
	for _, mount := range wire.GetMounts() {
		task.Mounts = append(task.Mounts, TaskMount{
			TaskPath: mount.GetTaskPath(), HostPath: mount.GetHostPath(),
			ReadOnly: mount.GetReadonly(), Propagation: mount.GetPropagationMode(),
		})
	}
	return task
}

func resourcesFromWire(wire *driverpb.Resources) Resources {
	linux := wire.GetLinuxResources()
	resources := Resources{
		CPUMHz:       wire.GetAllocatedResources().GetCpu().GetCpuShares(),
		MemoryMiB:    wire.GetAllocatedResources().GetMemory().GetMemoryMb(),
		MemoryMaxMiB: wire.GetAllocatedResources().GetMemory().GetMemoryMaxMb(),
		Linux: LinuxResources{
			CPUPeriodMicros: linux.GetCpuPeriod(), CPUQuotaMicros: linux.GetCpuQuota(), CPUShares: linux.GetCpuShares(),
			MemoryLimitBytes: linux.GetMemoryLimitBytes(), OOMScoreAdj: linux.GetOomScoreAdj(),
			CPUSet: linux.GetCpusetCpus(), CPUSetCgroup: linux.GetCpusetCgroup(), CPUFraction: linux.GetPercentTicks(),
		},
	}
	for _, port := range wire.GetPorts() {
		resources.Ports = append(resources.Ports, Port{
			Label: port.GetLabel(), Value: int(port.GetValue()), To: int(port.GetTo()), HostIP: port.GetHostIp(),
		})
	}
	return resources
}

func networkToWire(network *Network) *driverpb.NetworkOverride {
	if network == nil {
		return nil
	}
	ports := make(map[string]int32, len(network.Ports))
	for label, port := range network.Ports {
		ports[label] = int32(port)
	}
	return &driverpb.NetworkOverride{Addr: network.Address, PortMap: ports, AutoAdvertise: network.AutoAdvertise}
}

func exitToWire(exit ExitResult) *driverpb.ExitResult {
	return &driverpb.ExitResult{ExitCode: int32(exit.Code), Signal: int32(exit.Signal), OomKilled: exit.OOMKilled}
}

// statusToWire sets both times and the result in every state: Nomad's client
// refuses a missing time and crashes over a missing result.
func statusToWire(status TaskStatus) *driverpb.InspectTaskResponse {
	return &driverpb.InspectTaskResponse{
		Task: &driverpb.TaskStatus{
			Id: status.ID, Name: status.Name, State: driverpb.TaskState(status.State),
			StartedAt: timestamppb.New(status.StartedAt), CompletedAt: timestamppb.New(status.CompletedAt),
			Result: exitToWire(status.Exit),
		},
		Driver:          &driverpb.TaskDriverStatus{Attributes: status.Attributes},
		NetworkOverride: networkToWire(status.Network),
	}
}

func taskUsageToWire(id string, usage TaskUsage) *driverpb.TaskStatsResponse {
	processes := make(map[string]*driverpb.TaskResourceUsage, len(usage.Processes))
	for pid, process := range usage.Processes {
		processes[strconv.Itoa(pid)] = usageToWire(process)
	}
	return &driverpb.TaskStatsResponse{Stats: &driverpb.TaskStats{
		Id: id, Timestamp: timestamppb.New(usage.At),
		AggResourceUsage: usageToWire(usage.Total), ResourceUsageByPid: processes,
	}}
}

func usageToWire(usage Usage) *driverpb.TaskResourceUsage {
	cpu := &driverpb.CPUUsage{
		SystemMode:       usage.CPU[CPUSystemPercent],
		UserMode:         usage.CPU[CPUUserPercent],
		TotalTicks:       usage.CPU[CPUTicksMHz],
		ThrottledPeriods: uint64(usage.CPU[CPUThrottledPeriods]),
		ThrottledTime:    uint64(usage.CPU[CPUThrottledNanos]),
		Percent:          usage.CPU[CPUPercent],
	}
	for _, measure := range slices.Sorted(maps.Keys(usage.CPU)) {
		cpu.MeasuredFields = append(cpu.MeasuredFields, driverpb.CPUUsage_Fields(measure))
	}
	memory := &driverpb.MemoryUsage{
		Rss:            usage.Memory[MemoryRSS],
		Cache:          usage.Memory[MemoryCache],
		MaxUsage:       usage.Memory[MemoryMaxUsage],
		KernelUsage:    usage.Memory[MemoryKernel],
		KernelMaxUsage: usage.Memory[MemoryKernelMax],
		Usage:          usage.Memory[MemoryUsage],
		Swap:           usage.Memory[MemorySwap],
	}
	for _, measure := range slices.Sorted(maps.Keys(usage.Memory)) {
		memory.MeasuredFields = append(memory.MeasuredFields, driverpb.MemoryUsage_Fields(measure))
	}
	return &driverpb.TaskResourceUsage{Cpu: cpu, Memory: memory}
}

func fingerprintToWire(fingerprint Fingerprint) *driverpb.FingerprintResponse {
	return &driverpb.FingerprintResponse{
		Attributes:        attributesToWire(fingerprint.Attributes),
		Health:            driverpb.FingerprintResponse_HealthState(fingerprint.Health),
		HealthDescription: fingerprint.Description,
	}
}

func eventToWire(event TaskEvent) *driverpb.DriverTaskEvent {
	return &driverpb.DriverTaskEvent{
		TaskId: event.TaskID, AllocId: event.AllocID, TaskName: event.TaskName,
		Timestamp: timestamppb.New(event.At), Message: event.Message, Annotations: event.Annotations,
	}
}
