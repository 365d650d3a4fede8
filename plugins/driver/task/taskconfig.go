package task

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/nomadplugin"
	"github.com/gangd/gangd/internal/nomadplugin/schema"
	"github.com/gangd/gangd/plugins/driver/lane"
	"github.com/gangd/gangd/plugins/driver/process"
)

const (
	// gpuPrefix begins the variables by which the device plugin names a
	// lane's GPUs: GANGD_GPU_<UUID, with _ for -> = "<index>:<uuid>".
	gpuPrefix = "GANGD_GPU_"
	maxGrace  = 10 * time.Minute
	maxReady  = 24 * time.Hour
)

// laneVariables are the names under which Nomad passes the meta key
// gangd_lane on.
var laneVariables = []string{"NOMAD_META_gangd_lane", "NOMAD_META_GANGD_LANE"}

// taskConfig is the config block of a task.
type taskConfig struct {
	Command      string            `codec:"command"`
	Args         []string          `codec:"args"`
	Env          map[string]string `codec:"env"`
	Processes    string            `codec:"processes"`
	Protocol     string            `codec:"protocol"`
	KillGrace    string            `codec:"kill_grace"`
	ReadyTimeout string            `codec:"ready_timeout"`
}

var taskSchema = schema.Object(schema.Fields{
	"command":       schema.Attr("command", schema.String, true),
	"args":          schema.Attr("args", "list(string)", false),
	"env":           schema.BlockAttrs("env", schema.String, false),
	"processes":     schema.Default(schema.Attr("processes", schema.String, false), schema.Literal(`"gpu"`)),
	"protocol":      schema.Default(schema.Attr("protocol", schema.String, false), schema.Literal(`"gangd"`)),
	"kill_grace":    schema.Default(schema.Attr("kill_grace", schema.String, false), schema.Literal(`"5s"`)),
	"ready_timeout": schema.Default(schema.Attr("ready_timeout", schema.String, false), schema.Literal(`"15m"`)),
})

// laneConfig makes what a keeper is told from what Nomad told the driver. Its
// errors name the field, all of them at once.
func laneConfig(task nomadplugin.TaskConfig, node lane.Node) (lane.Config, error) {
	own := taskConfig{Processes: lane.PerGPU, Protocol: lane.ProtocolGangd, KillGrace: "5s", ReadyTimeout: "15m"}
	if err := task.DriverConfig.Decode(&own); err != nil {
		return lane.Config{}, fmt.Errorf("config: %w", err)
	}
	c := lane.Config{
		TaskID: task.ID, TaskName: task.Name, AllocID: task.AllocID, JobID: task.JobID, NodeID: task.NodeID,
		Args: own.Args, TaskDir: task.TaskDir(), User: task.User,
		Processes: own.Processes, Protocol: own.Protocol,
		MemoryBytes: memoryLimit(task.Resources), OOMScoreAdj: task.Resources.Linux.OOMScoreAdj,
		StdoutPath: task.StdoutPath, StderrPath: task.StderrPath, Node: node,
	}
	c.Env = make(map[string]string)
	for _, more := range []map[string]string{task.Env, task.DeviceEnv, own.Env} {
		maps.Copy(c.Env, more)
	}
	var errs []error
	check := func(field string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", field, err))
		}
	}
	var err error
	c.Lane, err = laneID(task.Env)
	check("meta.gangd_lane", err)
	c.GPUs, err = gpusOf(task.DeviceEnv, task.Env)
	check("device", err)
	c.Command, err = findCommand(own.Command, c)
	check("config.command", err)
	check("config.env", checkEnv(own.Env))
	check("config.processes", oneOf(own.Processes, lane.PerGPU, lane.PerNode))
	check("config.protocol", oneOf(own.Protocol, lane.ProtocolGangd, lane.ProtocolNone))
	c.KillGrace, err = parseDuration(own.KillGrace, 0, maxGrace)
	check("config.kill_grace", err)
	c.ReadyTimeout, err = parseDuration(own.ReadyTimeout, time.Second, maxReady)
	check("config.ready_timeout", err)
	_, err = process.Lookup(task.User)
	check("user", err)
	if task.NetworkNamespace != "" {
		check("network.mode", errors.New(`the gang driver runs tasks in the host's network: remove the block, or set mode = "host"`))
	}
	return c, errors.Join(errs...)
}

func memoryLimit(r nomadplugin.Resources) int64 {
	return max(r.MemoryMiB, r.MemoryMaxMiB) << 20
}

func laneID(env map[string]string) (string, error) {
	for _, name := range laneVariables {
		if id := env[name]; id != "" {
			return id, nil
		}
	}
	return "", errors.New(`it is not set: tasks of this driver are started by gangd, which sets it; submit a gang that names the job as its template instead of dispatching it`)
}

// gpusOf reads a lane's GPUs and puts them into rank order, that of their
// indexes on the node.
func gpusOf(envs ...map[string]string) ([]lane.GPU, error) {
	byUUID := make(map[string]lane.GPU)
	for _, env := range envs {
		for name, value := range env {
			if !strings.HasPrefix(name, gpuPrefix) {
				continue
			}
			text, uuid, ok := strings.Cut(value, ":")
			index, err := strconv.Atoi(text)
			if !ok || err != nil || index < 0 || uuid == "" || strings.ReplaceAll(uuid, "-", "_") != strings.TrimPrefix(name, gpuPrefix) {
				return nil, fmt.Errorf("the variable %s = %q does not name a GPU as index:uuid: are the plugins gangd-device and gangd-driver of one version?", name, value)
			}
			byUUID[uuid] = lane.GPU{Index: index, UUID: uuid}
		}
	}
	if len(byUUID) == 0 {
		return nil, errors.New(`the task has no GPU of the plugin gangd-device: its resources need a device "gangd/gpu/UUID" for each, which gangd adds`)
	}
	gpus := slices.SortedFunc(maps.Values(byUUID), func(a, b lane.GPU) int { return cmp.Compare(a.Index, b.Index) })
	for i := range gpus[1:] {
		if gpus[i].Index == gpus[i+1].Index {
			return nil, fmt.Errorf("the GPUs %s and %s both have index %d", gpus[i].UUID, gpus[i+1].UUID, gpus[i].Index)
		}
	}
	return gpus, nil
}

func findCommand(command string, c lane.Config) (string, error) {
	if command == "" {
		return "", errors.New("it is empty")
	}
	return process.LookPath(command, c.Env["PATH"], c.TaskDir)
}

func checkEnv(env map[string]string) error {
	for name, value := range env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			return fmt.Errorf("%q is not a variable that a process can have", name)
		}
	}
	return nil
}

func oneOf(value, a, b string) error {
	if value == a || value == b {
		return nil
	}
	return fmt.Errorf("%q is neither %q nor %q", value, a, b)
}

func parseDuration(text string, least, most time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf(`%q is not a duration such as "5s"`, text)
	}
	if d < least || d > most {
		return 0, fmt.Errorf("%q is not between %v and %v", text, least, most)
	}
	return d, nil
}
