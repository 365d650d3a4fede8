package task

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/nomadplugin"
	"github.com/gangd/gangd/internal/nomadplugin/nomadplugintest"
	"github.com/gangd/gangd/plugins/driver/lane"
)

func soundTask(t *testing.T, hcl string) nomadplugin.TaskConfig {
	t.Helper()
	return nomadplugin.TaskConfig{
		ID: "a/member/1", Name: "member", AllocDir: t.TempDir(),
		Env: map[string]string{"NOMAD_META_GANGD_LANE": "lane-1", "PATH": "/usr/bin:/bin", "A": "task", "B": "task"},
		DeviceEnv: map[string]string{
			"GANGD_GPU_GPU_b_2": "10:GPU-b-2",
			"GANGD_GPU_GPU_a_1": "2:GPU-a-1",
		},
		DriverConfig: nomadplugintest.Config(t, taskSchema, hcl),
	}
}

func TestALaneFromATask(t *testing.T) {
	task := soundTask(t, `
		command = "sh"
		args = ["-c", "true"]
		env { B = "config" }
		processes = "node"
		kill_grace = "1m"
	`)
	task.Resources = nomadplugin.Resources{MemoryMiB: 100, MemoryMaxMiB: 200}
	c, err := laneConfig(task, lane.Node{})
	if err != nil {
		t.Fatal(err)
	}
	if c.Lane != "lane-1" || strings.Join(c.UUIDs(), " ") != "GPU-a-1 GPU-b-2" || c.Ranks() != 1 || c.Protocol != "gangd" ||
		c.Env["A"] != "task" || c.Env["B"] != "config" || c.KillGrace.Minutes() != 1 || c.MemoryBytes != 200<<20 {
		t.Errorf("lane %+v", c)
	}
	if filepath.Base(c.Command) != "sh" || !filepath.IsAbs(c.Command) {
		t.Errorf("command %q", c.Command)
	}
}

func TestCommandsBelowTheTask(t *testing.T) {
	task := soundTask(t, `command = "local/run.sh"`)
	if err := os.MkdirAll(filepath.Join(task.TaskDir(), "local"), 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(task.TaskDir(), "local/run.sh")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := laneConfig(task, lane.Node{}); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("a file that may not be executed: %v", err)
	}
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if c, err := laneConfig(task, lane.Node{}); err != nil || c.Command != path {
		t.Errorf("command %q, %v", c.Command, err)
	}
}

func TestFaultsAreToldByTheField(t *testing.T) {
	for name, c := range map[string]struct {
		hcl   string
		spoil func(*nomadplugin.TaskConfig)
		want  string
	}{
		"processes":     {hcl: `processes = "core"`, want: `config.processes: "core" is neither "gpu" nor "node"`},
		"protocol":      {hcl: `protocol = "mpi"`, want: `config.protocol: "mpi" is neither "gangd" nor "none"`},
		"kill_grace":    {hcl: `kill_grace = "soon"`, want: `config.kill_grace: "soon" is not a duration such as "5s"`},
		"long grace":    {hcl: `kill_grace = "1h"`, want: `config.kill_grace: "1h" is not between 0s and 10m0s`},
		"ready_timeout": {hcl: `ready_timeout = "0s"`, want: `config.ready_timeout: "0s" is not between`},
		"two at once":   {hcl: "processes = \"x\"\nprotocol = \"y\"", want: "config.processes: \"x\" is neither \"gpu\" nor \"node\"\nconfig.protocol: \"y\""},
		"no lane":       {spoil: func(t *nomadplugin.TaskConfig) { t.Env = nil }, want: "meta.gangd_lane: it is not set"},
		"no GPUs":       {spoil: func(t *nomadplugin.TaskConfig) { t.DeviceEnv = nil }, want: "device: the task has no GPU"},
		"mangled GPU":   {spoil: func(t *nomadplugin.TaskConfig) { t.DeviceEnv["GANGD_GPU_GPU_c"] = "GPU-c" }, want: `device: the variable GANGD_GPU_GPU_c = "GPU-c" does not name`},
		"same index":    {spoil: func(t *nomadplugin.TaskConfig) { t.DeviceEnv["GANGD_GPU_GPU_c"] = "2:GPU-c" }, want: "both have index 2"},
		"user":          {spoil: func(t *nomadplugin.TaskConfig) { t.User = "no-such-user" }, want: `user: user "no-such-user"`},
		"bridge":        {spoil: func(t *nomadplugin.TaskConfig) { t.NetworkNamespace = "/var/run/netns/x" }, want: "network.mode: "},
	} {
		t.Run(name, func(t *testing.T) {
			task := soundTask(t, "command = \"sh\"\n"+c.hcl)
			if c.spoil != nil {
				c.spoil(&task)
			}
			_, err := laneConfig(task, lane.Node{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
	task := soundTask(t, `command = "no-such-program"`)
	if _, err := laneConfig(task, lane.Node{}); err == nil || !strings.Contains(err.Error(), `config.command: "no-such-program" is neither in PATH`) {
		t.Errorf("a command that is not there: %v", err)
	}
}

func TestNodeConfig(t *testing.T) {
	for hcl, want := range map[string]string{
		``:                  "",
		`state_dir = "run"`: "state_dir: ",
		`state_dir = "/` + strings.Repeat("x", 90) + `"`: "state_dir: ",
		`gangd_addrs = ["gangd"]`:                        "gangd_addrs: ",
		`beat_millis = 5000`:                             "beat_millis: ",
		`nvml = "fake"`:                                  "nvml",
		`nvml = "mock:dgxh100"`:                          "mock_node",
		"nvml = \"mock:dgxh100\"\nmock_node = \"n\"":     "",
	} {
		c, err := decodeNodeConfig(nomadplugintest.Config(t, nodeSchema, hcl))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", hcl, err, want)
		}
		if hcl == "" && (c.ConsulAddr != usualConsul || c.StateDir != "/run/gangd" || c.BeatMillis != 250) {
			t.Errorf("without configuration: %+v", c)
		}
	}
}

func TestKeepersAreToldHowToFindGangd(t *testing.T) {
	c, err := decodeNodeConfig(nomadplugintest.Config(t, nodeSchema, `
		gangd_addrs    = ["10.0.0.1:4751"]
		consul_addr    = "10.0.0.2:8500"
		consul_token   = "secret"
		advertise_addr = "10.0.0.3"
	`))
	want := lane.Node{GangdAddresses: []string{"10.0.0.1:4751"}, ConsulAddress: "10.0.0.2:8500", ConsulToken: "secret", AdvertiseAddress: "10.0.0.3", NVML: "real"}
	if err != nil || !reflect.DeepEqual(c.keeper(), want) {
		t.Errorf("keepers are told %+v, %v", c.keeper(), err)
	}
}

// A gang whose template gives no time is ended by gangd alone.
func TestALaneWithoutATimeoutOfItsOwnWaitsForGangd(t *testing.T) {
	for hcl, want := range map[string]time.Duration{"": 24 * time.Hour, `ready_timeout = "20m"`: 20 * time.Minute} {
		c, err := laneConfig(soundTask(t, "command = \"sh\"\n"+hcl), lane.Node{})
		if err != nil || c.ReadyTimeout != want {
			t.Errorf("%s: the keeper waits for %s, want %s (%v)", hcl, c.ReadyTimeout, want, err)
		}
	}
}

// Of several faulty variables the same one is told each time.
func TestFaultsOfGPUsAreToldInOneOrder(t *testing.T) {
	for range 20 {
		task := soundTask(t, `command = "sh"`)
		for _, name := range []string{"c", "a", "b"} {
			task.DeviceEnv[gpuPrefix+name] = "none"
		}
		if _, err := laneConfig(task, lane.Node{}); err == nil || !strings.Contains(err.Error(), "the variable GANGD_GPU_a ") {
			t.Fatalf("got %v", err)
		}
	}
}
