package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/gpu"
	"github.com/gangd/gangd/internal/link"
	"github.com/gangd/gangd/internal/link/linkpb"
	"github.com/gangd/gangd/internal/nomadplugin"
	"github.com/gangd/gangd/internal/nomadplugin/nomadplugintest"
	"github.com/gangd/gangd/plugins/driver/lane"
	"github.com/gangd/gangd/plugins/driver/process"
	"github.com/gangd/gangd/plugins/driver/task"
)

const patience = 15 * time.Second

// eventually polls a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain until %s", patience, what)
		}
	}
}

// lab is a node with a driver, and a gangd whose orders the test gives.
type lab struct {
	t        *testing.T
	driver   *task.Driver
	config   nomadplugin.Config
	stateDir string
	blobDir  string
	faults   string
	server   *link.Server
	uuids    []string

	mu      sync.Mutex
	reports []*linkpb.KeeperReport
	hosts   []*linkpb.NodeHello
}

func newLab(t *testing.T) *lab {
	t.Helper()
	stateDir, err := os.MkdirTemp("", "gangd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(stateDir) })
	l := &lab{t: t, stateDir: stateDir, blobDir: t.TempDir(), faults: filepath.Join(t.TempDir(), "faults")}
	l.server = link.NewServer(hclog.NewNullLogger(), l.observe)
	l.server.SetLeader(true, "", gang.Fence{Epoch: 1, Index: 5})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go l.server.Serve(ctx, listener)

	l.driver = task.New("0.0.0-test", hclog.NewNullLogger())
	l.config = nomadplugintest.Config(t, l.driver.ConfigSchema(), fmt.Sprintf(`
		state_dir = %q
		gangd_addrs = [%q]
		advertise_addr = "127.0.0.1"
		nvml = "mock:dgxh100"
		mock_node = "n1"
		fault_file = %q
	`, stateDir, listener.Addr(), l.faults))
	if err := l.driver.SetConfig(l.config); err != nil {
		t.Fatal(err)
	}
	library, err := gpu.Open(gpu.Config{NVML: gpu.NVMLMockDGXH100, Mock: gpu.Mock{Node: "n1"}})
	if err != nil {
		t.Fatal(err)
	}
	gpus, err := library.GPUs()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range gpus {
		l.uuids = append(l.uuids, g.UUID)
	}
	return l
}

func (l *lab) observe(e link.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch e := e.(type) {
	case link.KeeperReported:
		l.reports = append(l.reports, e.Report)
	case link.DriverHello:
		l.hosts = append(l.hosts, e.Hello)
	}
}

// find returns the first report for which match is true.
func (l *lab) find(match func(*linkpb.KeeperReport) bool) *linkpb.KeeperReport {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.reports {
		if match(r) {
			return r
		}
	}
	return nil
}

func (l *lab) await(what string, match func(*linkpb.KeeperReport) bool) *linkpb.KeeperReport {
	l.t.Helper()
	eventually(l.t, "gangd hears "+what, func() bool { return l.find(match) != nil })
	return l.find(match)
}

func isAdmit(r *linkpb.KeeperReport) bool    { return r.GetAdmit() != nil }
func isReady(r *linkpb.KeeperReport) bool    { return r.GetReady() != nil }
func isAccepted(r *linkpb.KeeperReport) bool { return r.GetAccepted() != nil }
func isRankExit(r *linkpb.KeeperReport) bool { return r.GetRankExit() != nil }
func isEnded(r *linkpb.KeeperReport) bool    { return r.GetEnded() != nil }
func isClosed(r *linkpb.KeeperReport) bool   { return r.GetClosed() != nil }

// order gives an order to the lane.
func (l *lab) order(o *linkpb.KeeperOrder) {
	l.t.Helper()
	eventually(l.t, "the keeper's stream takes an order", func() bool { return l.server.Send(link.Keeper{Lane: "lane-1", Allocation: "alloc-1"}, o) })
}

func (l *lab) admit(lease time.Duration) {
	l.t.Helper()
	l.await("a request to be admitted", isAdmit)
	l.order(&linkpb.KeeperOrder{Order: &linkpb.KeeperOrder_Admitted{Admitted: &linkpb.Admitted{LeaseMillis: uint32(lease.Milliseconds())}}})
}

func (l *lab) run(do string) {
	l.t.Helper()
	l.order(&linkpb.KeeperOrder{Order: &linkpb.KeeperOrder_Run{Run: &linkpb.Run{
		Gang: "sea-1", Attempt: 1, World: 2, Peers: []string{"127.0.0.1", "127.0.0.1"},
		Params: []byte(`{"do":"` + do + `"}`), BlobUrl: "file://" + l.blobDir,
	}}})
}

func (l *lab) cancel() {
	l.order(&linkpb.KeeperOrder{Order: &linkpb.KeeperOrder_Cancel{Cancel: &linkpb.Cancel{Gang: "sea-1", Attempt: 1, Reason: "by its user"}}})
}

// task describes a task of two GPUs whose runner has a character.
func (l *lab) task(character, more string) nomadplugin.TaskConfig {
	l.t.Helper()
	allocDir := l.t.TempDir()
	os.Chmod(allocDir, 0o755)
	if err := os.MkdirAll(filepath.Join(allocDir, "member", "local"), 0o777); err != nil {
		l.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		l.t.Fatal(err)
	}
	config := nomadplugintest.Config(l.t, l.driver.TaskConfigSchema(), fmt.Sprintf(`
		command = %q
		args = ["runner", %q]
		%s
	`, self, character, more))
	t := nomadplugin.TaskConfig{
		ID: "alloc-1/member/" + character, AllocID: "alloc-1", Name: "member", JobID: "job-1", NodeID: "node-1",
		AllocDir: allocDir, DriverConfig: config,
		Env:       map[string]string{"NOMAD_META_gangd_lane": "lane-1", "PATH": os.Getenv("PATH")},
		DeviceEnv: map[string]string{},
		Resources: nomadplugin.Resources{MemoryMiB: 2048},
	}
	for _, index := range []int{4, 2} {
		t.DeviceEnv["GANGD_GPU_"+strings.ReplaceAll(l.uuids[index], "-", "_")] = fmt.Sprintf("%d:%s", index, l.uuids[index])
	}
	return t
}

// start starts a task, and sees to it that nothing of it stays.
func (l *lab) start(t nomadplugin.TaskConfig) nomadplugin.Started {
	l.t.Helper()
	l.t.Cleanup(func() { l.destroy(t.ID) })
	started, err := l.driver.StartTask(context.Background(), t)
	if err != nil {
		l.t.Fatal(err)
	}
	return started
}

// destroy must leave no process, no directory and no control group.
func (l *lab) destroy(id string) {
	l.t.Helper()
	dir := l.dir(id)
	if l.t.Failed() {
		content, _ := os.ReadFile(dir.KeeperLog())
		l.t.Logf("the keeper's log:\n%s", content)
	}
	k, keeperErr := dir.Keeper()
	if err := l.driver.DestroyTask(context.Background(), id, true); err != nil && !strings.Contains(err.Error(), "not found") {
		l.t.Errorf("destroy: %v", err)
	}
	if left, err := process.WithEnv(lane.EnvDir + "=" + string(dir)); err != nil || len(left) > 0 {
		l.t.Errorf("left processes %v, %v", left, err)
	}
	if _, err := os.Stat(string(dir)); err == nil {
		l.t.Errorf("left %s", dir)
	}
	if keeperErr == nil {
		for _, group := range []string{k.Group.Base, k.Group.V2, k.Group.Memory} {
			if _, err := os.Stat(group); group != "" && err == nil {
				l.t.Errorf("left control group %s", group)
			}
		}
	}
}

func (l *lab) dir(id string) lane.Dir { return lane.DirOf(l.stateDir, id) }

func (l *lab) state(id string) string {
	reply, err := l.dir(id).Ask(context.Background(), lane.Request{Op: lane.OpStatus})
	if err != nil {
		return err.Error()
	}
	return reply.Status.State
}

func (l *lab) pids(id string) []int {
	l.t.Helper()
	reply, err := l.dir(id).Ask(context.Background(), lane.Request{Op: lane.OpStatus})
	if err != nil {
		l.t.Fatal(err)
	}
	return reply.Status.PIDs
}

// allPIDs are the processes that carry the lane in their environment: ranks
// and all that they started.
func (l *lab) allPIDs(id string) []process.Ref {
	found, err := process.WithEnv(lane.EnvDir + "=" + string(l.dir(id)))
	if err != nil {
		l.t.Fatal(err)
	}
	return found
}

func (l *lab) wait(id string) nomadplugin.ExitResult {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	exit, err := l.driver.WaitTask(ctx, id)
	if err != nil {
		l.t.Fatalf("wait: %v", err)
	}
	return exit
}

// running brings a lane to where its gang runs.
func (l *lab) running(t nomadplugin.TaskConfig, do string) nomadplugin.Started {
	l.t.Helper()
	started := l.start(t)
	l.admit(patience)
	l.await("that the runner is ready", isReady)
	l.run(do)
	l.await("that the run began", isAccepted)
	return started
}

// events collects what `nomad alloc status` would show.
func (l *lab) events() func() string {
	var mu sync.Mutex
	var all []string
	ctx, cancel := context.WithCancel(context.Background())
	l.t.Cleanup(cancel)
	go l.driver.TaskEvents(ctx, func(e nomadplugin.TaskEvent) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, e.Message)
	})
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(all, "\n")
	}
}

func writeJSON(t *testing.T, path string, value any) {
	t.Helper()
	content, err := json.Marshal(value)
	if err == nil {
		err = os.WriteFile(path, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// reader reads a FIFO into memory until it is closed, as Nomad's log collector does.
type reader struct {
	file *os.File
	mu   sync.Mutex
	text strings.Builder
}

func openReader(t *testing.T, path string) *reader {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDONLY, 0) // waits for a writer
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{file: file}
	go io.Copy(r, file)
	return r
}

func (r *reader) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *reader) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}
