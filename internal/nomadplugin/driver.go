package nomadplugin

import (
	"context"
	"io"
	"time"

	"github.com/gangd/gangd/internal/nomadplugin/schema"
)

// DriverPlugin runs tasks for Nomad. For a task that it does not know it
// returns [ErrTaskNotFound].
type DriverPlugin interface {
	Plugin

	// TaskConfigSchema tells what a task's config block may contain.
	TaskConfigSchema() *schema.Spec
	Capabilities() Capabilities

	// Fingerprint calls report with the driver's health, at once and after
	// each change, until ctx ends; early returns are treated as those of
	// [DevicePlugin].
	Fingerprint(ctx context.Context, report func(Fingerprint)) error

	// StartTask starts a task and returns when it runs. An error fails the
	// task, one marked [Recoverable] may be answered with a restart; either
	// way nothing may be left behind.
	StartTask(ctx context.Context, task TaskConfig) (Started, error)

	// RecoverTask takes a running task over that an earlier process of the
	// driver started. After an error Nomad destroys the task and starts it afresh.
	RecoverTask(ctx context.Context, handle TaskHandle) error

	// WaitTask returns when the task has ended, at once for one that has, as
	// often as it is called until the task is destroyed.
	WaitTask(ctx context.Context, id string) (ExitResult, error)

	// StopTask sends the signal (by name; empty is the driver's choice), waits
	// at most timeout, then ends the task by force.
	StopTask(ctx context.Context, id string, timeout time.Duration, signal string) error

	// DestroyTask frees what an ended task held and forgets it; a running task
	// only with force, which ends it first.
	DestroyTask(ctx context.Context, id string, force bool) error

	InspectTask(ctx context.Context, id string) (TaskStatus, error)

	// TaskStats calls report every interval until ctx or the task ends.
	TaskStats(ctx context.Context, id string, interval time.Duration, report func(TaskUsage)) error

	// TaskEvents calls report with events of all tasks until ctx ends.
	TaskEvents(ctx context.Context, report func(TaskEvent)) error
}

// Signaler is a DriverPlugin that can signal tasks.
type Signaler interface {
	SignalTask(ctx context.Context, id, signal string) error
}

// Executor is a DriverPlugin that can run commands beside a task.
type Executor interface {
	// ExecTask runs command for at most timeout; zero is no limit.
	ExecTask(ctx context.Context, id string, command []string, timeout time.Duration) (ExecResult, error)
	// ExecTaskStreaming runs a command with live input and output. The writers
	// block as the network does; all ends with ctx.
	ExecTaskStreaming(ctx context.Context, id string, exec ExecStream) (ExitResult, error)
}

// Initializer is a DriverPlugin that begins its work when it knows that this
// process is the one that Nomad keeps. Only Nomad 2.0 and newer call it, after
// SetConfig.
type Initializer interface {
	Init(ctx context.Context) error
}

// Shutdowner is a DriverPlugin that wants to know that it will be ended. Only
// Nomad 2.0 and newer call it; they wait for two seconds, and may not call it
// at all.
type Shutdowner interface {
	Shutdown(ctx context.Context) error
}

// FSIsolation is how much of the host's file system tasks see.
type FSIsolation int

// The kinds of file system isolation.
const (
	FSIsolationNone FSIsolation = iota
	FSIsolationChroot
	FSIsolationImage
)

// NetworkMode is where a driver's tasks can have their network.
type NetworkMode int

// The network modes.
const (
	NetworkHost NetworkMode = iota
	NetworkGroup
	NetworkTask
	NetworkNone
)

// Capabilities tells what a driver can. That it can signal and exec follows
// from [Signaler] and [Executor].
type Capabilities struct {
	FSIsolation          FSIsolation
	NetworkModes         []NetworkMode // none is taken for the host's alone
	NoMounts             bool          // refuses volume_mount blocks
	DisableLogCollection bool          // writes no FIFOs, so Nomad starts no collector
}

// Health is a driver's health.
type Health int

// The healths of a driver.
const (
	HealthUndetected Health = iota // what it needs is not on this node
	HealthUnhealthy                // it is there, but does not work
	HealthHealthy
)

// Fingerprint is a driver's health and the attributes that it gives its node.
type Fingerprint struct {
	Health      Health
	Description string
	Attributes  map[string]Attribute
}

// ExecResult is the output and the end of a command.
type ExecResult struct {
	Stdout, Stderr []byte
	Exit           ExitResult
}

// ExecStream is a command with the ends of its streams.
type ExecStream struct {
	Command        []string
	TTY            bool
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Resize         <-chan TerminalSize // the newest size only
}

// TerminalSize is the size of a terminal in characters.
type TerminalSize struct {
	Height, Width int
}
