package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/internal/gpu"
	"github.com/gangd/gangd/internal/nomadplugin"
)

// groupOf names the group of a GPU.
func groupOf(g gpu.GPU, grouping string) (vendor, kind, name string) {
	if grouping == groupingModel {
		return "nvidia", "gpu", g.Model
	}
	return "gangd", "gpu", g.UUID
}

// groups is the inventory as Nomad sees it, in the order of the GPUs.
func groups(inventory gpu.Inventory, grouping string) []nomadplugin.DeviceGroup {
	all := []nomadplugin.DeviceGroup{}
	for _, s := range inventory.GPUs {
		vendor, kind, name := groupOf(s.GPU, grouping)
		i := slices.IndexFunc(all, func(g nomadplugin.DeviceGroup) bool { return g.Vendor == vendor && g.Name == name })
		if i < 0 {
			i = len(all)
			all = append(all, nomadplugin.DeviceGroup{
				Vendor: vendor, Type: kind, Name: name,
				Attributes: attributes(s.GPU, inventory.DriverVersion, grouping),
			})
		}
		all[i].Devices = append(all[i].Devices, nomadplugin.Device{
			ID: s.GPU.UUID, Healthy: s.Healthy, HealthDescription: s.Reason, PCIBusID: s.GPU.PCIBusID,
		})
	}
	return all
}

// attributes are those of a group: of the model alone where it has several
// GPUs, and of the GPU too where it is one.
func attributes(g gpu.GPU, driverVersion, grouping string) map[string]nomadplugin.Attribute {
	a := map[string]nomadplugin.Attribute{
		"model":           nomadplugin.StringAttribute(g.Model),
		"product":         nomadplugin.StringAttribute(g.Name),
		"memory":          nomadplugin.IntAttribute(int64(g.MemoryMiB), nomadplugin.UnitMiB),
		"driver_version":  nomadplugin.StringAttribute(driverVersion),
		"cuda_capability": nomadplugin.StringAttribute(g.CUDACapability),
	}
	if grouping == groupingModel {
		return a
	}
	a["uuid"] = nomadplugin.StringAttribute(g.UUID)
	a["index"] = nomadplugin.IntAttribute(int64(g.Index), "")
	a["nvlink_island"] = nomadplugin.IntAttribute(int64(g.Island), "")
	a["pci_bus_id"] = nomadplugin.StringAttribute(g.PCIBusID)
	if g.NUMANode >= 0 {
		a["numa_node"] = nomadplugin.IntAttribute(int64(g.NUMANode), "")
	}
	return a
}

// reserve checks that GPUs may be used now, and says how a task gets at them.
// Every GPU has an environment variable of its own, because Nomad merges those
// of several groups by their names.
func reserve(v view, ids []string, grouping string) (nomadplugin.Reservation, error) {
	r := nomadplugin.Reservation{Env: map[string]string{}}
	var chosen []gpu.GPU
	for _, id := range ids {
		i := slices.IndexFunc(v.inventory.GPUs, func(s gpu.Status) bool { return s.GPU.UUID == id })
		if i < 0 {
			return nomadplugin.Reservation{}, fmt.Errorf("reserving GPU %s: this node has no such GPU; it has %s", id, names(v.inventory))
		}
		s := v.inventory.GPUs[i]
		if !s.Healthy {
			return nomadplugin.Reservation{}, fmt.Errorf("reserving GPU %s (index %d): it is out of use: %s", id, s.GPU.Index, s.Reason)
		}
		chosen = append(chosen, s.GPU)
		r.Env["GANGD_GPU_"+strings.ReplaceAll(id, "-", "_")] = fmt.Sprintf("%d:%s", s.GPU.Index, id)
	}
	slices.SortFunc(chosen, func(a, b gpu.GPU) int { return a.Index - b.Index })
	if grouping == groupingModel {
		uuids := make([]string, len(chosen))
		for i, g := range chosen {
			uuids[i] = g.UUID
		}
		r.Env["NVIDIA_VISIBLE_DEVICES"] = strings.Join(uuids, ",")
	}
	if v.library != nil && v.library.Real() {
		r.Devices = deviceNodes(chosen)
	}
	return r, nil
}

// deviceNodes are the files through which CUDA reaches the GPUs.
func deviceNodes(gpus []gpu.GPU) []nomadplugin.DeviceNode {
	paths := []string{"/dev/nvidiactl", "/dev/nvidia-uvm"}
	for _, g := range gpus {
		paths = append(paths, fmt.Sprintf("/dev/nvidia%d", g.Minor))
	}
	nodes := make([]nomadplugin.DeviceNode, len(paths))
	for i, path := range paths {
		nodes[i] = nomadplugin.DeviceNode{TaskPath: path, HostPath: path, Permissions: "rw"}
	}
	return nodes
}

func names(inventory gpu.Inventory) string {
	if len(inventory.GPUs) == 0 {
		return "none that NVML could read"
	}
	uuids := make([]string, len(inventory.GPUs))
	for i, s := range inventory.GPUs {
		uuids[i] = s.GPU.UUID
	}
	return strings.Join(uuids, ", ")
}

// stats measures the GPUs that answer.
func stats(v view, grouping string, now time.Time, log hclog.Logger) []nomadplugin.DeviceGroupStats {
	all := []nomadplugin.DeviceGroupStats{}
	for _, s := range v.inventory.GPUs {
		usage, err := v.library.Usage(s.GPU.UUID)
		if err != nil {
			log.Debug("a GPU's memory was not measured", "error", err)
			continue
		}
		vendor, kind, name := groupOf(s.GPU, grouping)
		i := slices.IndexFunc(all, func(g nomadplugin.DeviceGroupStats) bool { return g.Vendor == vendor && g.Name == name })
		if i < 0 {
			i = len(all)
			all = append(all, nomadplugin.DeviceGroupStats{Vendor: vendor, Type: kind, Name: name, Devices: map[string]nomadplugin.DeviceStats{}})
		}
		memory := nomadplugin.IntRatioStat(int64(usage.UsedMiB), int64(usage.TotalMiB), nomadplugin.UnitMiB, "Memory in use, of the GPU's")
		all[i].Devices[s.GPU.UUID] = nomadplugin.DeviceStats{
			Summary: memory, Stats: map[string]nomadplugin.Stat{"Memory": memory}, At: now,
		}
	}
	return all
}
