package nomad

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"
	"golang.org/x/sys/unix"

	"github.com/gangd/gangd/internal/nomadplugin"
	"github.com/gangd/gangd/internal/nomadplugin/schema"
)

// patience bounds every wait in these tests.
const patience = 60 * time.Second

// gpus are what the tests' node has.
var gpus = []string{"GPU-0", "GPU-1", "GPU-2", "GPU-3"}

// pluginEnv makes the test binary the device plugin of the tests' node.
const pluginEnv = "GANGD_TEST_DEVICE_PLUGIN"

// shared is the one Nomad agent, server and client, of a test run.
var shared struct {
	once  sync.Once
	agent *agent
	err   error
}

func TestMain(m *testing.M) {
	if os.Getenv(pluginEnv) != "" {
		nomadplugin.ServeDevice(fakeGPUs{}, nomadplugin.NewLogger())
		return
	}
	code := m.Run()
	if shared.agent != nil {
		shared.agent.remove()
	}
	os.Exit(code)
}

// fakeGPUs lists gpus as the device plugin lists real ones.
type fakeGPUs struct{}

func (fakeGPUs) Info() nomadplugin.Info {
	return nomadplugin.Info{Name: "gangd-test-device", Version: "0.1.0"}
}
func (fakeGPUs) ConfigSchema() *schema.Spec         { return nil }
func (fakeGPUs) SetConfig(nomadplugin.Config) error { return nil }

func (fakeGPUs) Fingerprint(ctx context.Context, report func([]nomadplugin.DeviceGroup)) error {
	var groups []nomadplugin.DeviceGroup
	for _, id := range gpus {
		groups = append(groups, nomadplugin.DeviceGroup{
			Vendor: "gangd", Type: "gpu", Name: id,
			Devices: []nomadplugin.Device{{ID: id, Healthy: true}},
		})
	}
	report(groups)
	<-ctx.Done()
	return nil
}

func (fakeGPUs) Reserve(_ context.Context, ids []string) (nomadplugin.Reservation, error) {
	env := make(map[string]string)
	for _, id := range ids {
		env[strings.ReplaceAll(id, "-", "_")] = "reserved"
	}
	return nomadplugin.Reservation{Env: env}, nil
}

// agent is a real Nomad.
type agent struct {
	dir  string
	addr string
	args []string
	log  bytes.Buffer
	cmd  *exec.Cmd
	done chan struct{}
}

func nomadAgent(t *testing.T) *agent {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real Nomad")
	}
	shared.once.Do(func() {
		shared.agent, shared.err = newAgent(true)
		if shared.err == nil {
			shared.err = shared.agent.awaitGPUs()
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.agent
}

const agentConfig = `
bind_addr = "127.0.0.1"
data_dir  = "%[1]s/data"
plugin_dir = "%[1]s/plugins"
leave_on_interrupt = true
disable_update_check = true
advertise {
  http = "127.0.0.1"
  rpc  = "127.0.0.1"
  serf = "127.0.0.1"
}
ports {
  http = %[2]d
  rpc  = %[3]d
  serf = %[4]d
}
server {
  enabled          = true
  bootstrap_expect = 1
  raft_multiplier  = 1
}
consul {
  auto_advertise   = false
  client_auto_join = false
  server_auto_join = false
}
`

const clientConfig = `
client {
  enabled = true
  meta {
    leaf = "leaf-7"
  }
  options {
    "fingerprint.denylist" = "env_aws,env_gce,env_azure,env_digitalocean"
  }
}
plugin "raw_exec" {
  config {
    enabled = true
  }
}
`

// newAgent starts a server, and a client beside it if asked.
func newAgent(client bool) (*agent, error) {
	bin, err := binary("nomad")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "gangd-nomad")
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	config := fmt.Sprintf(agentConfig, dir, ports[0], ports[1], ports[2])
	if err := os.Mkdir(filepath.Join(dir, "plugins"), 0o755); err != nil {
		return nil, err
	}
	if client {
		config += clientConfig
		if err := installPlugin(filepath.Join(dir, "plugins", "gangd-test-device")); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "agent.hcl"), []byte(config), 0o600); err != nil {
		return nil, err
	}
	a := &agent{dir: dir, addr: fmt.Sprintf("http://127.0.0.1:%d", ports[0]), args: []string{bin, "agent", "-config", filepath.Join(dir, "agent.hcl")}}
	if err := a.start(); err != nil {
		a.remove()
		return nil, err
	}
	return a, nil
}

func installPlugin(path string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\n%s=1 exec %s\n", pluginEnv, self), 0o755)
}

func binary(name string) (string, error) {
	dir := os.Getenv("GANGD_BIN_DIR")
	if dir == "" {
		dir = filepath.Join("..", "..", ".bin")
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		return "", fmt.Errorf("these tests need a real %s: run `make tools`, or set GANGD_BIN_DIR: %w", name, err)
	}
	return path, nil
}

func freePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}

func (a *agent) start() error {
	a.cmd = exec.Command(a.args[0], a.args[1:]...)
	a.cmd.Stdout, a.cmd.Stderr = &a.log, &a.log
	if err := a.cmd.Start(); err != nil {
		return err
	}
	a.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) {
		cmd.Wait()
		close(done)
	}(a.cmd, a.done)
	return a.await("a leader", func(client *api.Client) error {
		config, _, err := client.Operator().SchedulerGetConfiguration(nil)
		if err == nil && config.SchedulerConfig == nil {
			err = errors.New("none yet")
		}
		return err
	})
}

// awaitGPUs waits until the agent's own node is ready and shows its devices.
func (a *agent) awaitGPUs() error {
	return a.await("a node with its GPUs", func(client *api.Client) error {
		nodes, _, err := client.Nodes().List(nil)
		if err != nil || len(nodes) != 1 || nodes[0].Status != NodeReady {
			return fmt.Errorf("nodes: %d, %w", len(nodes), err)
		}
		node, _, err := client.Nodes().Info(nodes[0].ID, nil)
		if err == nil && len(node.NodeResources.Devices) < len(gpus) {
			err = fmt.Errorf("it has %d devices", len(node.NodeResources.Devices))
		}
		return err
	})
}

func (a *agent) await(what string, ready func(*api.Client) error) error {
	client, err := api.NewClient(&api.Config{Address: a.addr})
	if err != nil {
		return err
	}
	for deadline := time.After(patience); ; {
		err := ready(client)
		if err == nil {
			return nil
		}
		select {
		case <-a.done:
			return fmt.Errorf("the agent exited:\n%s", a.log.String())
		case <-deadline:
			return fmt.Errorf("the agent has not %s after %s: %w", what, patience, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (a *agent) kill() {
	a.cmd.Process.Kill()
	<-a.done
}

func (a *agent) remove() {
	if a.cmd != nil && a.done != nil {
		a.cmd.Process.Signal(os.Interrupt) // ends its plugins too
		select {
		case <-a.done:
		case <-time.After(10 * time.Second):
			a.kill()
		}
	}
	unmountBelow(a.dir)
	os.RemoveAll(a.dir)
}

// unmountBelow removes the mounts of allocations, which a client leaves.
func unmountBelow(dir string) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return
	}
	for _, line := range slices.Backward(strings.Split(string(mounts), "\n")) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], dir+"/") {
			unix.Unmount(fields[1], unix.MNT_DETACH)
		}
	}
}

// open connects to an agent; its templates' tasks run with raw_exec.
func open(t *testing.T, a *agent) *Client {
	t.Helper()
	c, err := Open(Config{
		Address: a.addr,
		Log:     hclog.New(&hclog.LoggerOptions{Output: testWriter{t}, Level: hclog.Debug}),
	})
	if err != nil {
		t.Fatal(err)
	}
	c.driver = "raw_exec"
	return c
}

type testWriter struct{ t *testing.T }

// Write drops what background work says after the end of a test.
func (w testWriter) Write(p []byte) (int, error) {
	if w.t.Context().Err() == nil {
		w.t.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

// eventually polls until done returns true.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.After(patience); !done(); {
		select {
		case <-deadline:
			t.Fatalf("not so after %s: %s", patience, what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// template is a job that passes the check; its task is a shell's.
func template(name, script string) *api.Job {
	task := api.NewTask("member", "raw_exec")
	task.Config = map[string]any{"command": "/bin/sh", "args": []any{"-c", script}}
	task.Resources = &api.Resources{CPU: new(50), MemoryMB: new(32)}
	task.KillTimeout = new(100 * time.Millisecond)
	task.LogConfig = &api.LogConfig{MaxFiles: new(1), MaxFileSizeMB: new(1)}
	group := api.NewTaskGroup("member", 1)
	group.Tasks = []*api.Task{task}
	group.RestartPolicy = &api.RestartPolicy{Attempts: new(0), Mode: new("fail")}
	group.ReschedulePolicy = &api.ReschedulePolicy{Attempts: new(0), Unlimited: new(false)}
	group.EphemeralDisk = &api.EphemeralDisk{SizeMB: new(10)}
	job := api.NewBatchJob(name, name, "global", 50)
	job.TaskGroups = []*api.TaskGroup{group}
	job.Datacenters = []string{"*"}
	job.ParameterizedJob = &api.ParameterizedJobConfig{MetaRequired: []string{MetaLane}}
	return job
}

// register adds a template for the length of the test.
func register(t *testing.T, c *Client, job *api.Job) {
	t.Helper()
	if _, _, err := c.api.Jobs().Register(job, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.purge(context.Background(), *job.ID); err != nil {
			t.Error(err)
		}
	})
}

// theNode is the agent's own.
func theNode(t *testing.T, c *Client) Node {
	t.Helper()
	nodes, _, err := c.nodes(t.Context())
	if err != nil || len(nodes) != 1 {
		t.Fatalf("nodes: %d, %v", len(nodes), err)
	}
	return nodes[0].node()
}

// openLane opens a lane and purges it at the end of the test.
func openLane(t *testing.T, c *Client, o LaneOrder) Opened {
	t.Helper()
	opened, err := c.OpenLane(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.PurgeLane(context.Background(), opened.Job); err != nil {
			t.Error(err)
		}
	})
	return opened
}

// lane returns what Nomad lists of a lane; the zero value if it has none.
func lane(t *testing.T, c *Client, job string) LaneJob {
	t.Helper()
	lanes, _, err := c.lanes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lanes {
		if l.Job == job {
			return l
		}
	}
	return LaneJob{}
}
