package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/internal/gpu"
	"github.com/gangd/gangd/internal/nomadplugin"
	"github.com/gangd/gangd/internal/nomadplugin/nomadplugintest"
	"github.com/gangd/gangd/internal/nomadplugin/proto/basepb"
	"github.com/gangd/gangd/internal/nomadplugin/proto/devicepb"
)

// reports is a gangd that remembers what it is told.
type reports struct {
	mu  sync.Mutex
	all []gpu.Inventory
}

func (r *reports) Report(i gpu.Inventory) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, i)
}

func (r *reports) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

func (r *reports) bad() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	var indexes []int
	if len(r.all) > 0 {
		for _, s := range r.all[len(r.all)-1].GPUs {
			if !s.Healthy {
				indexes = append(indexes, s.GPU.Index)
			}
		}
	}
	return indexes
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(5 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline.C:
			t.Fatalf("not within 5 s: %s", what)
		case <-tick.C:
		}
	}
}

// agent is a Nomad agent's side of a plugin, with a fault file and a gangd.
type agent struct {
	nomadplugintest.Device
	t      *testing.T
	faults string
	gangd  *reports
}

// serve starts a plugin with a simulated node and more lines of configuration.
func serve(t *testing.T, lines string) *agent {
	t.Helper()
	a := &agent{t: t, faults: filepath.Join(t.TempDir(), "faults"), gangd: &reports{}}
	p := newPlugin(t.Context(), nomadplugintest.Logger(t), func(context.Context, config, hclog.Logger) reporter { return a.gangd })
	a.Device = nomadplugintest.ServeDevice(t, p)
	text := fmt.Sprintf("nvml = \"mock:dgxh100\"\nmock_node = \"n1\"\nfault_file = %q\n%s", a.faults, lines)
	_, err := a.Base.SetConfig(t.Context(), &basepb.SetConfigRequest{MsgpackConfig: nomadplugintest.Config(t, configSchema(), text)})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *agent) fault(line string) {
	a.t.Helper()
	f, err := os.OpenFile(a.faults, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		a.t.Fatal(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintln(f, line); err != nil {
		a.t.Fatal(err)
	}
}

// fingerprint opens the stream and passes on what it says.
func (a *agent) fingerprint() <-chan []*devicepb.DeviceGroup {
	a.t.Helper()
	stream, err := a.Device.Device.Fingerprint(a.t.Context(), &devicepb.FingerprintRequest{})
	if err != nil {
		a.t.Fatal(err)
	}
	out := make(chan []*devicepb.DeviceGroup, 100)
	go func() {
		defer close(out)
		for {
			response, err := stream.Recv()
			if err != nil {
				return
			}
			out <- response.GetDeviceGroup()
		}
	}()
	return out
}

func next(t *testing.T, stream <-chan []*devicepb.DeviceGroup) []*devicepb.DeviceGroup {
	t.Helper()
	select {
	case groups, ok := <-stream:
		if !ok {
			t.Fatal("the fingerprint stream ended")
		}
		return groups
	case <-time.After(5 * time.Second):
		t.Fatal("no fingerprint within 5 s")
		return nil
	}
}

// unhealthy gives the descriptions of unhealthy devices by ID.
func unhealthy(groups []*devicepb.DeviceGroup) map[string]string {
	found := map[string]string{}
	for _, g := range groups {
		for _, d := range g.GetDevices() {
			if !d.GetHealthy() {
				found[d.GetID()] = d.GetHealthDescription()
			}
		}
	}
	return found
}

// mockUUIDs are those of the simulated node n1.
func mockUUIDs(t *testing.T) []string {
	t.Helper()
	l, err := gpu.Open(gpu.Config{NVML: gpu.NVMLMockDGXH100, Mock: gpu.Mock{Node: "n1"}})
	if err != nil {
		t.Fatal(err)
	}
	gpus, err := l.GPUs()
	if err != nil {
		t.Fatal(err)
	}
	uuids := make([]string, len(gpus))
	for i, g := range gpus {
		uuids[i] = g.UUID
	}
	return uuids
}

func TestNameAndSchemaHaveNoEffects(t *testing.T) {
	started := false
	p := newPlugin(t.Context(), hclog.NewNullLogger(), func(context.Context, config, hclog.Logger) reporter {
		started = true
		return &reports{}
	})
	a := nomadplugintest.ServeDevice(t, p)
	info, err := a.Base.PluginInfo(t.Context(), &basepb.PluginInfoRequest{})
	if err != nil || info.GetName() != "gangd-device" || info.GetType() != basepb.PluginType_DEVICE {
		t.Errorf("info %v, %v", info, err)
	}
	if _, err := a.Base.ConfigSchema(t.Context(), &basepb.ConfigSchemaRequest{}); err != nil {
		t.Error(err)
	}
	text := "nvml = \"mock:dgxh100\"\nmock_node = \"a\""
	if _, err := a.Base.SetConfig(t.Context(), &basepb.SetConfigRequest{MsgpackConfig: nomadplugintest.Config(t, configSchema(), text)}); err != nil {
		t.Error(err)
	}
	if started || p.node != nil {
		t.Error("the GPUs were opened before Nomad asked for them")
	}
}

func TestConfigErrorsNameTheField(t *testing.T) {
	const mock = "nvml = \"mock:dgxh100\"\nmock_node = \"a\"\n"
	for _, tt := range []struct{ text, want string }{
		{`nvml = "mock:toaster"`, `nvml = "mock:toaster"`},
		{`nvml = "mock:dgxh100"`, "mock_node"},
		{mock + "mock_gpus = 12", "mock_gpus = 12"},
		{mock + "mock_gpus = 1.5", "mock_gpus"},
		{`fault_file = "/run/faults"`, "fault_file"},
		{mock + `grouping = "rack"`, `grouping = "rack"`},
		{mock + `gangd_addrs = ["10.0.0.1:4751", "10.0.0.2"]`, `gangd_addrs[1] = "10.0.0.2"`},
		{mock + `consul_addr = "nowhere"`, `consul_addr = "nowhere"`},
	} {
		encoded := nomadplugintest.Config(t, configSchema(), tt.text)
		err := newPlugin(t.Context(), hclog.NewNullLogger(), nil).SetConfig(encoded)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v does not name %s", tt.text, err, tt.want)
		}
	}
}

func TestConfigDefaults(t *testing.T) {
	for text, want := range map[string]config{
		"":                              {NVML: "real", Grouping: "gpu", ConsulAddress: "127.0.0.1:8500"},
		`gangd_addrs = ["[::1]:4751"]`:  {NVML: "real", Grouping: "gpu", GangdAddresses: []string{"[::1]:4751"}},
		`consul_addr = "https://c:850"`: {NVML: "real", Grouping: "gpu", ConsulAddress: "https://c:850"},
		`consul_token = "secret"`:       {NVML: "real", Grouping: "gpu", ConsulAddress: "127.0.0.1:8500", ConsulToken: "secret"},
	} {
		if got, err := decodeConfig(nomadplugintest.Config(t, configSchema(), text)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestGroupingByGPU(t *testing.T) {
	a := serve(t, "mock_island_gpus = 4")
	groups := next(t, a.fingerprint())
	uuids := mockUUIDs(t)
	if len(groups) != 8 {
		t.Fatalf("%d groups, want 8", len(groups))
	}
	// Nomad does not keep the order of groups.
	i := slices.IndexFunc(groups, func(g *devicepb.DeviceGroup) bool { return g.GetDeviceName() == uuids[6] })
	if i < 0 {
		t.Fatalf("no group is named %s", uuids[6])
	}
	g := groups[i]
	d := g.GetDevices()
	if g.GetVendor() != "gangd" || g.GetDeviceType() != "gpu" || len(d) != 1 || d[0].GetID() != uuids[6] || !d[0].GetHealthy() {
		t.Errorf("group %v", g)
	}
	if bus := d[0].GetHwLocality().GetPciBusId(); bus != "0000:06:00.0" {
		t.Errorf("PCI bus %q", bus)
	}
	at := g.GetAttributes()
	for name, want := range map[string]string{
		"uuid": uuids[6], "model": "H100-80GB", "product": "NVIDIA H100 80GB HBM3", "pci_bus_id": "0000:06:00.0",
		"driver_version": "550.54.15", "cuda_capability": "9.0",
	} {
		if got := at[name].GetStringVal(); got != want {
			t.Errorf("attribute %s is %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]int64{"index": 6, "memory": 81920, "numa_node": 1, "nvlink_island": 1} {
		if got, ok := at[name]; !ok || got.GetIntVal() != want {
			t.Errorf("attribute %s is %v, want %d", name, got, want)
		}
	}
	if unit := at["memory"].GetUnit(); unit != "MiB" {
		t.Errorf("memory is in %q", unit)
	}
}

func TestGroupingByModel(t *testing.T) {
	a := serve(t, "grouping = \"model\"\nmock_gpus = 4")
	groups := next(t, a.fingerprint())
	if len(groups) != 1 {
		t.Fatalf("%d groups, want 1", len(groups))
	}
	g := groups[0]
	if g.GetVendor() != "nvidia" || g.GetDeviceType() != "gpu" || g.GetDeviceName() != "H100-80GB" || len(g.GetDevices()) != 4 {
		t.Errorf("group %v", g)
	}
	if _, ok := g.GetAttributes()["uuid"]; ok {
		t.Error("a group of several GPUs has the UUID of one")
	}
	uuids := mockUUIDs(t)
	r, err := a.Device.Device.Reserve(t.Context(), &devicepb.ReserveRequest{DeviceIds: []string{uuids[3], uuids[1]}})
	if err != nil {
		t.Fatal(err)
	}
	env := r.GetContainerRes().GetEnvs()
	if got, want := env["NVIDIA_VISIBLE_DEVICES"], uuids[1]+","+uuids[3]; got != want {
		t.Errorf("NVIDIA_VISIBLE_DEVICES is %q, want %q", got, want)
	}
}

// From the fault file to Nomad and to gangd, and back again; and nothing is sent
// that changes nothing.
func TestHealthReachesNomadAndGangd(t *testing.T) {
	a := serve(t, "")
	stream := a.fingerprint()
	uuids := mockUUIDs(t)
	if got := unhealthy(next(t, stream)); len(got) != 0 {
		t.Fatalf("unhealthy at first: %v", got)
	}
	a.fault("xid 31 gpu 2")
	a.fault("xid 63 gpu 2")
	a.fault("xid 119 gpu 2")
	got := unhealthy(next(t, stream))
	if len(got) != 1 || !strings.Contains(got[uuids[2]], "XID 119") || !strings.Contains(got[uuids[2]], "--gpu-reset") {
		t.Errorf("unhealthy after XID 119 on GPU 2: %v", got)
	}
	eventually(t, "gangd hears of GPU 2", func() bool { return slices.Equal(a.gangd.bad(), []int{2}) })
	a.fault("xid 79 gpu 5")
	if got := unhealthy(next(t, stream)); len(got) != 8 || !strings.Contains(got[uuids[0]], "XID 79") {
		t.Errorf("unhealthy after XID 79: %v", got)
	}
	a.fault("recover gpu 5")
	if got := slices.Collect(maps.Keys(unhealthy(next(t, stream)))); !slices.Equal(got, uuids[2:3]) {
		t.Errorf("unhealthy after GPU 5 came back: %v", got)
	}
	a.fault("recover gpu 2")
	if got := unhealthy(next(t, stream)); len(got) != 0 {
		t.Errorf("unhealthy after all came back: %v", got)
	}
	if got := a.gangd.count(); got != 5 {
		t.Errorf("gangd was told %d inventories, want 5", got)
	}
	select {
	case g, ok := <-stream:
		t.Errorf("one more fingerprint, or the end of the stream (%v): %v", !ok, unhealthy(g))
	default:
	}
}

func TestReserve(t *testing.T) {
	a := serve(t, "")
	stream := a.fingerprint()
	next(t, stream)
	uuids := mockUUIDs(t)
	r, err := a.Device.Device.Reserve(t.Context(), &devicepb.ReserveRequest{DeviceIds: uuids[4:5]})
	if err != nil {
		t.Fatal(err)
	}
	res := r.GetContainerRes()
	want := map[string]string{"GANGD_GPU_" + strings.ReplaceAll(uuids[4], "-", "_"): "4:" + uuids[4]}
	if !maps.Equal(res.GetEnvs(), want) || len(res.GetDevices()) != 0 || len(res.GetMounts()) != 0 {
		t.Errorf("reservation %v, want the environment %v and no files of a simulated GPU", res, want)
	}
	a.fault("xid 119 gpu 4")
	next(t, stream)
	for _, tt := range []struct{ id, want string }{
		{uuids[4], "XID 119"},
		{uuids[4], "out of use"},
		{"GPU-none", "no such GPU"},
	} {
		_, err := a.Device.Device.Reserve(t.Context(), &devicepb.ReserveRequest{DeviceIds: []string{tt.id}})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("reserving %s: error %v does not say %q", tt.id, err, tt.want)
		}
	}
	a.fault("recover gpu 4")
	next(t, stream)
	if _, err := a.Device.Device.Reserve(t.Context(), &devicepb.ReserveRequest{DeviceIds: uuids[4:5]}); err != nil {
		t.Errorf("a recovered GPU is refused: %v", err)
	}
}

func TestDeviceFilesOfRealGPUs(t *testing.T) {
	var got []string
	for _, d := range deviceNodes([]gpu.GPU{{Index: 0, Minor: 3}}) {
		if d.HostPath != d.TaskPath || d.Permissions != "rw" {
			t.Errorf("device file %+v", d)
		}
		got = append(got, d.HostPath)
	}
	if want := []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia3"}; !slices.Equal(got, want) {
		t.Errorf("device files %v, want %v", got, want)
	}
}

func TestStatsMeasureMemory(t *testing.T) {
	a := serve(t, "")
	next(t, a.fingerprint())
	a.fault("process gpu 1 pid 4321 memory 1000MiB")
	stream, err := a.Device.Device.Stats(t.Context(), &devicepb.StatsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	response, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	uuids := mockUUIDs(t)
	for _, g := range response.GetGroups() {
		if g.GetName() != uuids[1] {
			continue
		}
		memory := g.GetInstanceStats()[uuids[1]].GetSummary()
		if memory.GetIntNumeratorVal().GetValue() != 1000 || memory.GetIntDenominatorVal().GetValue() != 81920 || memory.GetUnit() != "MiB" {
			t.Errorf("memory of GPU 1: %v", memory)
		}
		return
	}
	t.Errorf("no measurement of GPU 1 in %v", response)
}

// A node without a driver offers nothing and says why, while the stream stays
// open for the driver to come.
func TestNoDriver(t *testing.T) {
	if _, err := gpu.Open(gpu.Config{}); err == nil {
		t.Skip("this machine has an NVIDIA driver")
	}
	var log syncBuffer
	logger := hclog.New(&hclog.LoggerOptions{Output: &log, JSONFormat: true})
	gangd := &reports{}
	p := newPlugin(t.Context(), logger, func(context.Context, config, hclog.Logger) reporter { return gangd })
	a := &agent{Device: nomadplugintest.ServeDevice(t, p), t: t}
	if _, err := a.Base.SetConfig(t.Context(), &basepb.SetConfigRequest{MsgpackConfig: nomadplugintest.Config(t, configSchema(), "")}); err != nil {
		t.Fatalf("a missing driver is no error of the configuration: %v", err)
	}
	if got := next(t, a.fingerprint()); len(got) != 0 {
		t.Errorf("groups without a driver: %v", got)
	}
	var line struct{ Error string }
	if err := json.Unmarshal([]byte(log.firstLine()), &line); err != nil || !strings.Contains(line.Error, "mock:dgxh100") {
		t.Errorf("the log does not say what to do (%v): %s", err, log.firstLine())
	}
	if gangd.count() != 0 {
		t.Error("gangd was told of GPUs that nobody could read")
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) firstLine() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	line, _, _ := strings.Cut(s.b.String(), "\n")
	return line
}

var _ nomadplugin.DeviceStatsReporter = (*devicePlugin)(nil)
