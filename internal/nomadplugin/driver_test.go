package nomadplugin_test

import (
	"context"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/gangd/gangd/internal/nomadplugin"
	"github.com/gangd/gangd/internal/nomadplugin/nomadplugintest"
	"github.com/gangd/gangd/internal/nomadplugin/proto/basepb"
	"github.com/gangd/gangd/internal/nomadplugin/proto/driverpb"
)

func sentTask(t *testing.T) (*driverpb.TaskConfig, nomadplugin.TaskConfig) {
	config := nomadplugintest.Config(t, (&fakeDriver{}).TaskConfigSchema(), `command = "run"`)
	sent := &driverpb.TaskConfig{
		Id: "alloc/task/1", AllocId: "alloc", Name: "task", TaskGroupName: "group",
		JobId: "job/dispatch-1", JobName: "job", ParentJobId: "job", Namespace: "default", NodeId: "n-1", NodeName: "node",
		Env: map[string]string{"A": "1", "GPU": "x"}, DeviceEnv: map[string]string{"GPU": "x"},
		Resources: &driverpb.Resources{
			AllocatedResources: &driverpb.AllocatedTaskResources{
				Cpu:    &driverpb.AllocatedCpuResources{CpuShares: 4000},
				Memory: &driverpb.AllocatedMemoryResources{MemoryMb: 512, MemoryMaxMb: 1024},
			},
			LinuxResources: &driverpb.LinuxResources{
				CpuPeriod: 1, CpuQuota: 2, CpuShares: 3, MemoryLimitBytes: 4, OomScoreAdj: 5,
				CpusetCpus: "0-3", CpusetCgroup: "/sys/fs/cgroup/nomad.slice/x", PercentTicks: 0.5,
			},
			Ports: []*driverpb.PortMapping{{Label: "http", Value: 20000, To: 80, HostIp: "10.0.0.1"}},
		},
		Mounts:  []*driverpb.Mount{{TaskPath: "/m", HostPath: "/h", Readonly: true, PropagationMode: "private"}},
		Devices: []*driverpb.Device{{TaskPath: "/dev/a", HostPath: "/dev/b", CgroupPermissions: "rwm"}},
		User:    "nobody", AllocDir: "/allocs/alloc", StdoutPath: "/out", StderrPath: "/err",
		NetworkIsolationSpec: &driverpb.NetworkIsolationSpec{Path: "/run/netns/x"}, MsgpackDriverConfig: config,
	}
	return sent, nomadplugin.TaskConfig{
		ID: "alloc/task/1", AllocID: "alloc", Name: "task", TaskGroupName: "group",
		JobID: "job/dispatch-1", JobName: "job", ParentJobID: "job", Namespace: "default", NodeID: "n-1", NodeName: "node",
		Env: map[string]string{"A": "1", "GPU": "x"}, DeviceEnv: map[string]string{"GPU": "x"},
		Resources: nomadplugin.Resources{
			CPUMHz: 4000, MemoryMiB: 512, MemoryMaxMiB: 1024,
			Linux: nomadplugin.LinuxResources{
				CPUPeriodMicros: 1, CPUQuotaMicros: 2, CPUShares: 3, MemoryLimitBytes: 4, OOMScoreAdj: 5,
				CPUSet: "0-3", CPUSetCgroup: "/sys/fs/cgroup/nomad.slice/x", CPUFraction: 0.5,
			},
			Ports: []nomadplugin.Port{{Label: "http", Value: 20000, To: 80, HostIP: "10.0.0.1"}},
		},
		Mounts:  []nomadplugin.TaskMount{{TaskPath: "/m", HostPath: "/h", ReadOnly: true, Propagation: "private"}},
		Devices: []nomadplugin.TaskDevice{{TaskPath: "/dev/a", HostPath: "/dev/b", Permissions: "rwm"}},
		User:    "nobody", AllocDir: "/allocs/alloc", StdoutPath: "/out", StderrPath: "/err",
		NetworkNamespace: "/run/netns/x", DriverConfig: config,
	}
}

// A task is started, its handle stored by Nomad, and recovered by another process.
func TestTaskIsRecoveredAsItWasStarted(t *testing.T) {
	sent, want := sentTask(t)
	starting := &fakeDriver{started: nomadplugin.Started{State: []byte("keeper at /run/x")}}
	client := nomadplugintest.ServeDriver(t, starting)
	response, err := client.Driver.StartTask(deadline(t), &driverpb.StartTaskRequest{Task: sent})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(starting.task, want) {
		t.Errorf("started\n%+v, want\n%+v", starting.task, want)
	}
	if dir := starting.task.TaskDir(); dir != "/allocs/alloc/task" {
		t.Errorf("the task's directory is %s", dir)
	}
	if handle := response.GetHandle(); !proto.Equal(handle.GetConfig(), sent) || handle.GetState() != driverpb.TaskState_RUNNING {
		t.Errorf("handle %v", handle)
	}

	recovering := &fakeDriver{}
	client = nomadplugintest.ServeDriver(t, recovering)
	if _, err := client.Driver.RecoverTask(deadline(t), &driverpb.RecoverTaskRequest{Handle: response.Handle}); err != nil {
		t.Fatal(err)
	}
	handle := nomadplugin.TaskHandle{Version: 1, Config: want, State: []byte("keeper at /run/x")}
	if !reflect.DeepEqual(recovering.recovered, handle) {
		t.Errorf("recovered\n%+v, want\n%+v", recovering.recovered, handle)
	}
}

// Nomad's client takes these apart without looking whether they are there.
func TestNothingThatNomadReadsBlindlyIsMissing(t *testing.T) {
	client := nomadplugintest.ServeDriver(t, &fakeDriver{})
	wait, err := client.Driver.WaitTask(deadline(t), &driverpb.WaitTaskRequest{TaskId: "id"})
	if err != nil || wait.Result == nil {
		t.Errorf("WaitTask: %v, %v", wait, err)
	}
	inspect, err := client.Driver.InspectTask(deadline(t), &driverpb.InspectTaskRequest{TaskId: "id"})
	if err != nil {
		t.Fatal(err)
	}
	task := inspect.GetTask()
	if task.GetStartedAt().CheckValid() != nil || task.GetCompletedAt().CheckValid() != nil || task.Result == nil {
		t.Errorf("InspectTask: %v", inspect)
	}
	stats, err := client.Driver.TaskStats(deadline(t), &driverpb.TaskStatsRequest{TaskId: "id"})
	if err != nil {
		t.Fatal(err)
	}
	usage, err := stats.Recv()
	if err != nil || usage.GetStats().GetTimestamp().CheckValid() != nil || usage.Stats.AggResourceUsage == nil {
		t.Errorf("TaskStats: %v, %v", usage, err)
	}
	if _, err := stats.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stats of an ended task ended with %v", err)
	}
}

func TestInspectTask(t *testing.T) {
	started := time.Unix(100, 5)
	client := nomadplugintest.ServeDriver(t, &fakeDriver{status: nomadplugin.TaskStatus{
		ID: "id", Name: "task", State: nomadplugin.TaskExited, StartedAt: started, CompletedAt: started.Add(time.Minute),
		Exit: nomadplugin.ExitResult{Code: 2}, Attributes: map[string]string{"gang": "a"},
		Network: &nomadplugin.Network{Address: "10.0.0.1"},
	}})
	inspect, err := client.Driver.InspectTask(deadline(t), &driverpb.InspectTaskRequest{TaskId: "id"})
	if err != nil {
		t.Fatal(err)
	}
	task := inspect.GetTask()
	if task.GetId() != "id" || task.GetName() != "task" || task.GetState() != driverpb.TaskState_EXITED ||
		!task.GetStartedAt().AsTime().Equal(started) || !task.GetCompletedAt().AsTime().Equal(started.Add(time.Minute)) ||
		task.GetResult().GetExitCode() != 2 || inspect.GetDriver().GetAttributes()["gang"] != "a" ||
		inspect.GetNetworkOverride().GetAddr() != "10.0.0.1" {
		t.Errorf("InspectTask: %v", inspect)
	}
}

// plain has only what every driver must have.
func plain() nomadplugin.DriverPlugin { return struct{ nomadplugin.DriverPlugin }{&fakeDriver{}} }

func TestOptionalCallsOfADriverThatHasNone(t *testing.T) {
	client := nomadplugintest.ServeDriver(t, plain()).Driver
	ctx := deadline(t)
	if _, err := client.Init(ctx, nil); err != nil {
		t.Errorf("Init: %v", err)
	}
	if _, err := client.Shutdown(ctx, nil); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	capabilities, err := client.Capabilities(ctx, nil)
	if err != nil || capabilities.Capabilities.SendSignals || capabilities.Capabilities.Exec || capabilities.Capabilities.MustCreateNetwork {
		t.Errorf("Capabilities: %v, %v", capabilities, err)
	}
	_, signalErr := client.SignalTask(ctx, nil)
	_, execErr := client.ExecTask(ctx, nil)
	_, createErr := client.CreateNetwork(ctx, nil)
	_, destroyErr := client.DestroyNetwork(ctx, nil)
	stream, err := client.ExecTaskStreaming(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, streamErr := stream.Recv()
	for name, err := range map[string]error{
		"driver does not support signals":            signalErr,
		"driver does not support exec":               errors.Join(execErr, streamErr),
		"CreateNetwork RPC not supported by driver":  createErr,
		"DestroyNetwork RPC not supported by driver": destroyErr,
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q", err, name)
		}
	}
}

func TestErrorsOfEveryCallReachNomad(t *testing.T) {
	boom := errors.New("boom")
	driver := nomadplugintest.ServeDriver(t, &fakeDriver{err: boom}).Driver
	device := nomadplugintest.ServeDevice(t, &fakeDevice{err: boom})
	ctx := deadline(t)
	calls := map[string]error{}
	_, calls["Init"] = driver.Init(ctx, nil)
	_, calls["Shutdown"] = driver.Shutdown(ctx, nil)
	_, calls["RecoverTask"] = driver.RecoverTask(ctx, nil)
	_, calls["WaitTask"] = driver.WaitTask(ctx, nil)
	_, calls["StopTask"] = driver.StopTask(ctx, nil)
	_, calls["DestroyTask"] = driver.DestroyTask(ctx, nil)
	_, calls["InspectTask"] = driver.InspectTask(ctx, nil)
	_, calls["SignalTask"] = driver.SignalTask(ctx, nil)
	_, calls["ExecTask"] = driver.ExecTask(ctx, nil)
	_, calls["Reserve"] = device.Device.Reserve(ctx, nil)
	stats, err := driver.TaskStats(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stats.Recv(); err != nil {
		t.Fatal(err)
	}
	_, calls["TaskStats"] = stats.Recv()
	for name, err := range calls {
		if status.Convert(err).Message() != "boom" {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = device.Base.SetConfig(ctx, &basepb.SetConfigRequest{MsgpackConfig: []byte("\x81\xa2on\x07")})
	if want := "configuration: on: true or false is expected, found 7"; status.Convert(err).Message() != want {
		t.Errorf("SetConfig: %v, want %q", err, want)
	}
}

func TestTaskConfigSchema(t *testing.T) {
	response, err := nomadplugintest.ServeDriver(t, plain()).Driver.TaskConfigSchema(deadline(t), nil)
	if err != nil || response.GetSpec().GetObject().GetAttributes()["command"].GetAttr().GetType() != "string" {
		t.Errorf("TaskConfigSchema: %v, %v", response, err)
	}
}

func TestExecTaskStreaming(t *testing.T) {
	driver := &fakeDriver{}
	stream, err := nomadplugintest.ServeDriver(t, driver).Driver.ExecTaskStreaming(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("frame ", 20_000) // more than one message
	for _, request := range []*driverpb.ExecTaskStreamingRequest{
		{Setup: &driverpb.ExecTaskStreamingRequest_Setup{TaskId: "id", Command: []string{"cat"}, Tty: true}},
		{},
		{TtySize: &driverpb.ExecTaskStreamingRequest_TerminalSize{Height: 24, Width: 80}},
		{Stdin: &driverpb.ExecTaskStreamingIOOperation{Data: []byte("head ")}},
		{},
		{Stdin: &driverpb.ExecTaskStreamingIOOperation{Data: []byte(large)}},
		{Stdin: &driverpb.ExecTaskStreamingIOOperation{Close: true}},
	} {
		if err := stream.Send(request); err != nil {
			t.Fatal(err)
		}
	}
	var stdout, stderr []byte
	var closed []string
	for {
		response, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		stdout = append(stdout, response.GetStdout().GetData()...)
		stderr = append(stderr, response.GetStderr().GetData()...)
		if response.GetStdout().GetClose() {
			closed = append(closed, "stdout")
		}
		if response.GetStderr().GetClose() {
			closed = append(closed, "stderr")
		}
		if response.GetExited() {
			if response.GetResult().GetExitCode() != 5 {
				t.Errorf("exit %v", response.GetResult())
			}
			break
		}
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v", err)
	}
	if string(stdout) != "head "+large || string(stderr) != "24x80" || !slices.Equal(closed, []string{"stdout", "stderr"}) {
		t.Errorf("stdout %d bytes, stderr %q, closed %q", len(stdout), stderr, closed)
	}
}

func TestExecTaskStreamingNeedsASetup(t *testing.T) {
	stream, err := nomadplugintest.ServeDriver(t, &fakeDriver{}).Driver.ExecTaskStreaming(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&driverpb.ExecTaskStreamingRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err == nil || !strings.Contains(err.Error(), "the first message is not a setup") {
		t.Errorf("executed without a setup: %v", err)
	}
}

// The client goes away while the command waits for input.
func TestExecTaskStreamingEndsWithItsClient(t *testing.T) {
	driver := &waitingExec{input: make(chan error, 1)}
	client := nomadplugintest.ServeDriver(t, driver)
	stream, err := client.Driver.ExecTaskStreaming(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&driverpb.ExecTaskStreamingRequest{Setup: &driverpb.ExecTaskStreamingRequest_Setup{}}); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-driver.input:
		if err != nil {
			t.Errorf("the input ended with %v", err)
		}
	case <-time.After(patience):
		t.Error("the command still waits for input")
	}
}

type waitingExec struct {
	fakeDriver
	input chan error
}

func (w *waitingExec) ExecTaskStreaming(
	_ context.Context, _ string, exec nomadplugin.ExecStream,
) (nomadplugin.ExitResult, error) {
	_, err := io.ReadAll(exec.Stdin)
	w.input <- err
	return nomadplugin.ExitResult{}, nil
}
