package gpu

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/hashicorp/go-hclog"
)

func openMock(t *testing.T, m Mock) *Library {
	t.Helper()
	if m.Node == "" {
		m.Node = "n1"
	}
	l, err := Open(Config{NVML: NVMLMockDGXH100, Mock: m})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func listGPUs(t *testing.T, l *Library) []GPU {
	t.Helper()
	gpus, err := l.GPUs()
	if err != nil {
		t.Fatal(err)
	}
	return gpus
}

func appendLines(t *testing.T, path string, lines ...string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(strings.Join(lines, "\n") + "\n"); err != nil {
		t.Fatal(err)
	}
}

func TestConfigErrorsNameTheField(t *testing.T) {
	tests := []struct {
		config Config
		want   []string
	}{
		{Config{NVML: "mock:dgxz9"}, []string{`nvml = "mock:dgxz9"`, `"real"`, `"mock:dgxh100"`}},
		{Config{NVML: NVMLMockDGXH100}, []string{"mock_node"}},
		{Config{NVML: NVMLMockDGXH100, Mock: Mock{Node: "a", GPUs: 9}}, []string{"mock_gpus = 9", "1 to 8"}},
		{Config{NVML: NVMLMockDGXH100, Mock: Mock{Node: "a", IslandGPUs: -1}}, []string{"mock_island_gpus = -1"}},
		{Config{Mock: Mock{FaultFile: "/tmp/f"}}, []string{"fault_file", `nvml = "mock:dgxh100"`}},
	}
	for _, tt := range tests {
		_, err := Open(tt.config)
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: error %v does not say %s", tt.config, err, want)
			}
		}
	}
}

func TestOpenErrorsSayWhatToDo(t *testing.T) {
	tests := []struct {
		ret  nvml.Return
		want []string
	}{
		{nvml.ERROR_LIBRARY_NOT_FOUND, []string{"libnvidia-ml.so.1", "install", `nvml = "mock:dgxh100"`}},
		{nvml.ERROR_DRIVER_NOT_LOADED, []string{"modprobe nvidia"}},
		{nvml.ERROR_LIB_RM_VERSION_MISMATCH, []string{"reboot"}},
		{nvml.ERROR_UNKNOWN, []string{"nvidia-smi"}},
	}
	for _, tt := range tests {
		err := openError(tt.ret)
		if !errors.Is(err, tt.ret) {
			t.Errorf("%v does not wrap %d", err, tt.ret)
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error %q does not say %q", err, want)
			}
		}
	}
}

func TestMockInventory(t *testing.T) {
	l := openMock(t, Mock{})
	gpus := listGPUs(t, l)
	if len(gpus) != 8 {
		t.Fatalf("%d GPUs, want 8", len(gpus))
	}
	want := GPU{
		UUID: gpus[5].UUID, Index: 5, Minor: 5, Model: "H100-80GB", Name: "NVIDIA H100 80GB HBM3", MemoryMiB: 81920,
		NUMANode: 1, Island: 0, PCIBusID: "0000:05:00.0", CUDACapability: "9.0",
	}
	if gpus[5] != want || gpus[3].NUMANode != 0 {
		t.Errorf("GPU 5 is %+v, want %+v; NUMA node of GPU 3 is %d, want 0", gpus[5], want, gpus[3].NUMANode)
	}
	if version, err := l.DriverVersion(); err != nil || version != "550.54.15" {
		t.Errorf("driver version %q, %v", version, err)
	}
}

// UUIDs are those of the node's name: the same in each process, unlike others.
func TestMockUUIDs(t *testing.T) {
	seen := map[string]string{}
	for _, node := range []string{"n1", "n2", "n11"} {
		first, second := listGPUs(t, openMock(t, Mock{Node: node})), listGPUs(t, openMock(t, Mock{Node: node}))
		if !reflect.DeepEqual(first, second) {
			t.Errorf("node %s has different GPUs the second time", node)
		}
		for _, g := range first {
			if other, ok := seen[g.UUID]; ok {
				t.Errorf("nodes %s and %s both have %s", node, other, g.UUID)
			}
			seen[g.UUID] = node
		}
	}
	if got := len(listGPUs(t, openMock(t, Mock{GPUs: 2}))); got != 2 {
		t.Errorf("mock_gpus = 2 gives %d GPUs", got)
	}
}

func TestMockIslands(t *testing.T) {
	tests := []struct {
		gpus, islandGPUs int
		want             []int
	}{
		{8, 0, []int{0, 0, 0, 0, 0, 0, 0, 0}},
		{8, 4, []int{0, 0, 0, 0, 1, 1, 1, 1}},
		{4, 2, []int{0, 0, 1, 1}},
		{3, 1, []int{0, 1, 2}},
		{1, 0, []int{0}},
	}
	for _, tt := range tests {
		var got []int
		for _, g := range listGPUs(t, openMock(t, Mock{GPUs: tt.gpus, IslandGPUs: tt.islandGPUs})) {
			got = append(got, g.Island)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%d GPUs in islands of %d: %v, want %v", tt.gpus, tt.islandGPUs, got, tt.want)
		}
	}
}

func TestMockTopology(t *testing.T) {
	l := openMock(t, Mock{})
	for _, tt := range []struct {
		a, b int
		want nvml.GpuTopologyLevel
	}{{1, 1, nvml.TOPOLOGY_INTERNAL}, {0, 3, nvml.TOPOLOGY_NODE}, {3, 4, nvml.TOPOLOGY_SYSTEM}} {
		a, _ := l.api.DeviceGetHandleByIndex(tt.a)
		b, _ := l.api.DeviceGetHandleByIndex(tt.b)
		if got, ret := a.GetTopologyCommonAncestor(b); got != tt.want || ret != nvml.SUCCESS {
			t.Errorf("common ancestor of GPUs %d and %d: %d (%v), want %d", tt.a, tt.b, got, ret, tt.want)
		}
	}
}

func TestIslands(t *testing.T) {
	direct := func(n int, pairs map[[2]int]int) links {
		l := newLinks(n)
		for p, count := range pairs {
			l.direct[p[0]][p[1]], l.direct[p[1]][p[0]] = count, count
		}
		return l
	}
	switched := func(counts ...int) links {
		l := newLinks(len(counts))
		l.switched = counts
		return l
	}
	tests := []struct {
		name  string
		links links
		want  []int
	}{
		{"no GPU", newLinks(0), []int{}},
		{"no NVLink", newLinks(3), []int{0, 1, 2}},
		{"switches", switched(18, 18, 18), []int{0, 0, 0}},
		{"a GPU with a link down", switched(18, 17, 18), []int{0, 1, 0}},
		{"a GPU without links", switched(0, 12, 12), []int{0, 1, 1}},
		{"bridged pairs", direct(4, map[[2]int]int{{0, 2}: 12, {1, 3}: 12}), []int{0, 1, 0, 1}},
		{"half as many links between the pairs", direct(4, map[[2]int]int{{0, 1}: 2, {2, 3}: 2, {1, 2}: 1}), []int{0, 0, 1, 1}},
		{"a chain is one component", direct(4, map[[2]int]int{{0, 1}: 2, {1, 2}: 2, {2, 3}: 2}), []int{0, 0, 0, 0}},
	}
	for _, tt := range tests {
		if got := islands(tt.links); !slices.Equal(got, tt.want) {
			t.Errorf("%s: islands %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestModelNames(t *testing.T) {
	for _, tt := range []struct {
		name      string
		memoryMiB uint64
		want      string
	}{
		{"NVIDIA H100 80GB HBM3", 81559, "H100-80GB"},
		{"NVIDIA H100 80GB HBM3", 81920, "H100-80GB"},
		{"NVIDIA H100 PCIe", 81559, "H100-80GB"},
		{"NVIDIA H100 NVL", 95830, "H100-94GB"},
		{"NVIDIA H200", 143771, "H200-141GB"},
		{"NVIDIA H200 141GB HBM3e", 144384, "H200-141GB"},
		{"NVIDIA B200", 183359, "B200-180GB"},
		{"NVIDIA GH200 480GB", 97871, "GH200-96GB"},
		{"NVIDIA A100-SXM4-40GB", 40960, "A100-40GB"},
		{"NVIDIA A100 80GB PCIe", 81920, "A100-80GB"},
		{"NVIDIA A10G", 23028, "A10G-24GB"},
		{"NVIDIA A10", 23028, "A10-24GB"},
		{"NVIDIA L40S", 46068, "L40S-48GB"},
		{"NVIDIA L4", 23034, "L4-24GB"},
		{"Tesla V100-SXM2-32GB", 32768, "V100-32GB"},
		{"Tesla T4", 15360, "T4-16GB"},
		{"NVIDIA GeForce RTX 4090", 24564, "RTX4090-24GB"},
		{"NVIDIA RTX 6000 Ada Generation", 49140, "RTX6000ADA-48GB"},
		{"NVIDIA X900 Ultra", 262144, "X900-ULTRA-256GB"},
		{"", 8192, "GPU-8GB"},
	} {
		if got := modelName(tt.name, tt.memoryMiB); got != tt.want {
			t.Errorf("%q with %d MiB: %q, want %q", tt.name, tt.memoryMiB, got, tt.want)
		}
	}
}

func TestPCIBusID(t *testing.T) {
	for in, want := range map[string]string{"00000000:18:00.0": "0000:18:00.0", "00010000:3B:00.0": "00010000:3b:00.0", "0000:05:00.0": "0000:05:00.0"} {
		var pci nvml.PciInfo
		for i := range len(in) {
			pci.BusId[i] = int8(in[i])
		}
		if got := pciBusID(pci); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestUsageFollowsTheFaultFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "faults")
	l := openMock(t, Mock{FaultFile: path})
	gpus := listGPUs(t, l)
	check := func(index int, want Usage) {
		t.Helper()
		want.TotalMiB = 81920
		got, err := l.Usage(gpus[index].UUID)
		if len(got.Processes) == 0 {
			got.Processes = nil
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("GPU %d: %+v, %v; want %+v", index, got, err, want)
		}
	}
	check(1, Usage{})
	appendLines(t, path, "# a comment", "", "process gpu 1 pid 1234 memory 1000MiB", "process gpu 1 pid 77 memory 24MiB", "hold gpu 1 memory 8MiB")
	check(1, Usage{UsedMiB: 1032, Processes: []Process{{77, 24}, {1234, 1000}}})
	check(2, Usage{})
	appendLines(t, path, "exit gpu 1 pid 1234", "hold gpu 1 memory 0MiB")
	check(1, Usage{UsedMiB: 24, Processes: []Process{{77, 24}}})
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	check(1, Usage{})
	if _, err := l.Usage("GPU-none"); err == nil {
		t.Error("the usage of an unknown GPU was read")
	}
}

func TestProbeFollowsTheFaultFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "faults")
	l := openMock(t, Mock{FaultFile: path})
	uuid := listGPUs(t, l)[2].UUID
	for _, tt := range []struct {
		line   string
		action RecoveryAction
		lost   bool
	}{
		{"xid 13 gpu 2", ActionNone, false},
		{"xid 119 gpu 2", ActionReset, false},
		{"recover gpu 2", ActionNone, false},
		{"xid 74 gpu 2", ActionDrainAndReset, false},
		{"action reboot gpu 2", ActionReboot, false},
		{"recover all", ActionNone, false},
		{"xid 154 gpu 2 action drain_p2p", ActionDrainP2P, false},
		{"xid 79 gpu 2", ActionUnread, true},
		{"recover gpu 2", ActionNone, false},
	} {
		appendLines(t, path, tt.line)
		if p := l.Probe(uuid); p.Action != tt.action || errors.Is(p.Err, nvml.ERROR_GPU_IS_LOST) != tt.lost {
			t.Errorf("after %q: %+v, want action %v, lost %v", tt.line, p, tt.action, tt.lost)
		}
	}
}

// A process that opens the library later sees the state, and not the events.
func TestEventsBeginWithTheWatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "faults")
	appendLines(t, path, "xid 119 gpu 2")
	l := openMock(t, Mock{FaultFile: path})
	gpus := listGPUs(t, l)
	if p := l.Probe(gpus[2].UUID); p.Action != ActionReset {
		t.Errorf("probe %+v, want action reset", p)
	}
	events, err := l.Events(gpus)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	if e, err := events.Wait(20 * time.Millisecond); !errors.Is(err, ErrNoEvent) {
		t.Errorf("event %+v, %v; want none", e, err)
	}
	appendLines(t, path, "xid 31 gpu 0", "recover gpu 2", "xid 999 gpu 7")
	for _, want := range []Event{{gpus[0].UUID, 31}, {gpus[2].UUID, 154}, {gpus[7].UUID, 999}} {
		if e, err := events.Wait(time.Second); e != want || err != nil {
			t.Errorf("event %+v, %v; want %+v", e, err, want)
		}
	}
}

// Half a line waits for its other half.
func TestPartialLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "faults")
	l := openMock(t, Mock{FaultFile: path})
	uuid := listGPUs(t, l)[1].UUID
	for _, part := range []string{"xid 11", "9 gpu 1"} {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(f, part)
		f.Close()
		if p := l.Probe(uuid); p.Action != ActionNone {
			t.Errorf("a line without its end was taken: %+v", p)
		}
	}
	appendLines(t, path, "")
	if p := l.Probe(uuid); p.Action != ActionReset {
		t.Errorf("the whole line was not taken: %+v", p)
	}
}

func TestBadLinesAreToldAndLeftOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "faults")
	appendLines(t, path, "xid 119 gpu 1", "xid 119", "xid 119 gpu 8", "hold gpu 0 memory 5GB", "xid 154 gpu 0 action dance", "xid x gpu 0", "process gpu 0 pid 1 memory 9MiB")
	var log bytes.Buffer
	l, err := Open(Config{NVML: NVMLMockDGXH100, Mock: Mock{Node: "n", FaultFile: path}, Log: hclog.New(&hclog.LoggerOptions{Output: &log})})
	if err != nil {
		t.Fatal(err)
	}
	gpus := listGPUs(t, l)
	if u, err := l.Usage(gpus[0].UUID); err != nil || u.UsedMiB != 9 {
		t.Errorf("usage %+v, %v; the last good line was not taken", u, err)
	}
	for _, want := range []string{"line=2", "line=3", "GPUs 0 to 7", "line=4", "1000MiB", "line=5", "drain_and_reset", "line=6"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, log.String())
		}
	}
	if strings.Contains(log.String(), "line=1 ") || strings.Contains(log.String(), "line=7") {
		t.Errorf("good lines are in the log:\n%s", log.String())
	}
}
