package gpu

import (
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// links counts the active NVLinks of a node's GPUs.
type links struct {
	// direct[i][j] is how many join GPU i to GPU j.
	direct [][]int
	// switched[i] is how many join GPU i to NVSwitches.
	switched []int
}

func newLinks(gpus int) links {
	l := links{direct: make([][]int, gpus), switched: make([]int, gpus)}
	for i := range l.direct {
		l.direct[i] = make([]int, gpus)
	}
	return l
}

// links reads the NVLinks. The kind of the far end is known to drivers from
// R470 on; before, only links between GPUs count.
func (l *Library) links(gpus []GPU, devices []nvml.Device) links {
	byPCI := make(map[string]int, len(gpus))
	for i, g := range gpus {
		byPCI[g.PCIBusID] = i
	}
	found := newLinks(len(gpus))
	knowsKind := l.has("nvmlDeviceGetNvLinkRemoteDeviceType")
	for i, device := range devices {
		for link := range nvml.NVLINK_MAX_LINKS {
			state, ret := device.GetNvLinkState(link)
			if ret != nvml.SUCCESS || state != nvml.FEATURE_ENABLED {
				continue
			}
			if knowsKind {
				if kind, ret := device.GetNvLinkRemoteDeviceType(link); ret == nvml.SUCCESS && kind == nvml.NVLINK_DEVICE_TYPE_SWITCH {
					found.switched[i]++
					continue
				}
			}
			remote, ret := device.GetNvLinkRemotePciInfo(link)
			if ret != nvml.SUCCESS {
				continue
			}
			if j, ok := byPCI[pciBusID(remote)]; ok {
				found.direct[i][j]++
			}
		}
	}
	return found
}

// islands numbers, for each GPU, the connected component of full-bandwidth
// NVLink that it belongs to, in the order of the lowest GPU of each. Through
// switches a GPU has full bandwidth when it has as many links as the best of
// them; a pair does directly when it has as many as the best pair.
func islands(l links) []int {
	n := len(l.switched)
	fullSwitched, fullDirect := 0, 0
	for i := range n {
		fullSwitched = max(fullSwitched, l.switched[i])
		fullDirect = max(fullDirect, slices.Max(l.direct[i]))
	}
	joined := func(i, j int) bool {
		if fullSwitched > 0 && l.switched[i] == fullSwitched && l.switched[j] == fullSwitched {
			return true
		}
		return fullDirect > 0 && (l.direct[i][j] == fullDirect || l.direct[j][i] == fullDirect)
	}
	island := make([]int, n)
	for i := range island {
		island[i] = -1
	}
	next := 0
	for i := range n {
		if island[i] >= 0 {
			continue
		}
		flood(island, i, next, joined)
		next++
	}
	return island
}

// flood gives the number to every GPU that is joined to one that has it.
func flood(island []int, from, number int, joined func(i, j int) bool) {
	island[from] = number
	reached := []int{from}
	for len(reached) > 0 {
		i := reached[0]
		reached = reached[1:]
		for j := range island {
			if island[j] < 0 && joined(i, j) {
				island[j] = number
				reached = append(reached, j)
			}
		}
	}
}
