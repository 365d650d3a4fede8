package task

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gangd/gangd/internal/member"
	"github.com/gangd/gangd/internal/nomadplugin"
	"github.com/gangd/gangd/internal/nomadplugin/schema"
	"github.com/gangd/gangd/plugins/driver/lane"
	"github.com/gangd/gangd/plugins/driver/process"
)

// gpuPrefix begins the variables by which the device plugin names a lane's
// GPUs: GANGD_GPU_<UUID, with _ for -> = "<index>:<uuid>".
const gpuPrefix = "GANGD_GPU_"

// laneVariables are the names under which Nomad passes the meta key
// gangd_lane on.
var laneVariables = []string{"NOMAD_META_gangd_lane", "NOMAD_META_GANGD_LANE"}

// taskSchema is the config block of a task, for Nomad.
var taskSchema = func() *schema.Spec {
	fields := make(schema.Fields)
	for _, a := range member.Attributes {
		fields[a.Name] = attribute(a)
	}
	return schema.Object(fields)
}()

func attribute(a member.Attribute) *schema.Spec {
	switch a.Kind {
	case member.List:
		return schema.Attr(a.Name, "list(string)", a.Required)
	case member.Variables:
		return schema.BlockAttrs(a.Name, schema.String, a.Required)
	}
	spec := schema.Attr(a.Name, schema.String, a.Required)
	if a.Default == "" {
		return spec
	}
	return schema.Default(spec, schema.Literal(strconv.Quote(a.Default)))
}

// laneConfig makes what a keeper is told from what Nomad told the driver. Its
// errors name the field, all of them at once.
func laneConfig(task nomadplugin.TaskConfig, node lane.Node) (lane.Config, error) {
	own := member.Default()
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
	if own.Command != "" {
		c.Command, err = process.LookPath(own.Command, c.Env["PATH"], c.TaskDir)
		check("config.command", err)
	}
	settings, faults := own.Settings()
	for _, f := range faults {
		check("config."+f.Attribute, errors.New(f.Problem))
	}
	c.KillGrace = settings.KillGrace
	// A gang whose template does not say how long it may load has its end from gangd.
	c.ReadyTimeout = cmp.Or(settings.ReadyTimeout, member.MaxReadyTimeout)
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
		for _, name := range slices.Sorted(maps.Keys(env)) { // the first fault is told
			value := env[name]
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
