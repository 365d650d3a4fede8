package nomadplugin_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/gangd/gangd/internal/nomadplugin"
	"github.com/gangd/gangd/internal/nomadplugin/schema"
)

// fake answers what is common to both kinds.
type fake struct {
	on bool
}

func (*fake) Info() nomadplugin.Info { return nomadplugin.Info{Name: "fake", Version: "1.2.3"} }

func (*fake) ConfigSchema() *schema.Spec {
	return schema.Object(schema.Fields{
		"on": schema.Default(schema.Attr("on", schema.Bool, false), schema.Literal("true")),
	})
}

func (f *fake) SetConfig(config nomadplugin.Config) error {
	var settings struct {
		On bool `codec:"on"`
	}
	err := config.Decode(&settings)
	f.on = settings.On
	return err
}

// fakeDevice reports its inventories one after the other and then waits.
type fakeDevice struct {
	fake
	inventory   [][]nomadplugin.DeviceGroup
	reservation nomadplugin.Reservation
	reserved    []string
	stats       []nomadplugin.DeviceGroupStats
	interval    time.Duration
	err         error
}

func (d *fakeDevice) Fingerprint(ctx context.Context, report func([]nomadplugin.DeviceGroup)) error {
	for _, inventory := range d.inventory {
		report(inventory)
	}
	<-ctx.Done()
	return ctx.Err()
}

func (d *fakeDevice) Reserve(_ context.Context, ids []string) (nomadplugin.Reservation, error) {
	d.reserved = ids
	return d.reservation, d.err
}

func (d *fakeDevice) Stats(
	ctx context.Context, interval time.Duration, report func([]nomadplugin.DeviceGroupStats),
) error {
	d.interval = interval
	report(d.stats)
	<-ctx.Done()
	return ctx.Err()
}

// fakeDriver answers with what it holds and notes what it was asked.
type fakeDriver struct {
	fake
	started nomadplugin.Started
	exit    nomadplugin.ExitResult
	status  nomadplugin.TaskStatus
	usage   nomadplugin.TaskUsage
	err     error

	mu        sync.Mutex
	heard     []string
	task      nomadplugin.TaskConfig
	recovered nomadplugin.TaskHandle
}

func (d *fakeDriver) hear(format string, arguments ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.heard = append(d.heard, fmt.Sprintf(format, arguments...))
}

func (d *fakeDriver) calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.heard
}

func (*fakeDriver) TaskConfigSchema() *schema.Spec {
	return schema.Object(schema.Fields{"command": schema.Attr("command", schema.String, true)})
}

func (*fakeDriver) Capabilities() nomadplugin.Capabilities {
	return nomadplugin.Capabilities{
		FSIsolation:  nomadplugin.FSIsolationImage,
		NetworkModes: []nomadplugin.NetworkMode{nomadplugin.NetworkHost, nomadplugin.NetworkGroup},
		NoMounts:     true, DisableLogCollection: true,
	}
}

func (*fakeDriver) Fingerprint(ctx context.Context, report func(nomadplugin.Fingerprint)) error {
	report(nomadplugin.Fingerprint{
		Health: nomadplugin.HealthHealthy, Description: "ready",
		Attributes: map[string]nomadplugin.Attribute{"driver.gang.version": nomadplugin.StringAttribute("1")},
	})
	<-ctx.Done()
	return ctx.Err()
}

func (d *fakeDriver) StartTask(_ context.Context, task nomadplugin.TaskConfig) (nomadplugin.Started, error) {
	d.hear("start %s %q", task.ID, task.Name)
	d.task = task
	return d.started, d.err
}

func (d *fakeDriver) RecoverTask(_ context.Context, handle nomadplugin.TaskHandle) error {
	d.recovered = handle
	return d.err
}

func (d *fakeDriver) WaitTask(_ context.Context, id string) (nomadplugin.ExitResult, error) {
	d.hear("wait %s", id)
	return d.exit, d.err
}

func (d *fakeDriver) StopTask(_ context.Context, id string, timeout time.Duration, signal string) error {
	d.hear("stop %s %v %s", id, timeout, signal)
	return d.err
}

func (d *fakeDriver) DestroyTask(_ context.Context, id string, force bool) error {
	d.hear("destroy %s %v", id, force)
	return d.err
}

func (d *fakeDriver) InspectTask(_ context.Context, id string) (nomadplugin.TaskStatus, error) {
	d.hear("inspect %s", id)
	return d.status, d.err
}

func (d *fakeDriver) TaskStats(
	_ context.Context, id string, interval time.Duration, report func(nomadplugin.TaskUsage),
) error {
	d.hear("stats %s %v", id, interval)
	report(d.usage)
	return d.err
}

func (d *fakeDriver) TaskEvents(ctx context.Context, report func(nomadplugin.TaskEvent)) error {
	report(nomadplugin.TaskEvent{
		TaskID: "id", AllocID: "alloc", TaskName: "task", At: time.Unix(5, 0), Message: "gang a runs",
		Annotations: map[string]string{"gang": "a"},
	})
	<-ctx.Done()
	return ctx.Err()
}

func (d *fakeDriver) SignalTask(_ context.Context, id, signal string) error {
	d.hear("signal %s %s", id, signal)
	return d.err
}

func (d *fakeDriver) ExecTask(
	_ context.Context, id string, command []string, timeout time.Duration,
) (nomadplugin.ExecResult, error) {
	d.hear("exec %s %v %v", id, command, timeout)
	return nomadplugin.ExecResult{
		Stdout: []byte("echo x"), Stderr: []byte("no error"), Exit: nomadplugin.ExitResult{Code: 4},
	}, d.err
}

// ExecTaskStreaming copies its input to its output, and sizes to stderr.
func (d *fakeDriver) ExecTaskStreaming(
	_ context.Context, id string, exec nomadplugin.ExecStream,
) (nomadplugin.ExitResult, error) {
	d.hear("exec %s %v tty=%v", id, exec.Command, exec.TTY)
	if exec.TTY {
		size := <-exec.Resize
		fmt.Fprintf(exec.Stderr, "%dx%d", size.Height, size.Width)
	}
	if _, err := io.Copy(exec.Stdout, exec.Stdin); err != nil {
		return nomadplugin.ExitResult{}, err
	}
	return nomadplugin.ExitResult{Code: 5}, d.err
}

func (d *fakeDriver) Init(context.Context) error {
	d.hear("init")
	return d.err
}

func (d *fakeDriver) Shutdown(context.Context) error {
	d.hear("shutdown")
	return d.err
}
