package task

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gangd/gangd/internal/nomadplugin"
	"github.com/gangd/gangd/plugins/driver/lane"
)

// WaitTask implements nomadplugin.DriverPlugin.
func (d *Driver) WaitTask(ctx context.Context, id string) (nomadplugin.ExitResult, error) {
	t, err := d.find(id)
	if err != nil {
		return nomadplugin.ExitResult{}, err
	}
	exit, err := t.wait(ctx)
	if err != nil {
		return nomadplugin.ExitResult{}, err
	}
	return exitResult(exit), nil
}

func exitResult(e lane.Exit) nomadplugin.ExitResult {
	return nomadplugin.ExitResult{Code: e.Code, Signal: e.Signal, OOMKilled: e.OutOfMemory, Message: e.Message}
}

// StopTask implements nomadplugin.DriverPlugin.
func (d *Driver) StopTask(ctx context.Context, id string, timeout time.Duration, signal string) error {
	t, err := d.find(id)
	if err != nil {
		return err
	}
	if err := t.stop(ctx, timeout, signal); err != nil {
		return fmt.Errorf("stop task %s: %w", id, err)
	}
	return nil
}

// destroyGrace is how long a keeper may take to say farewell to gangd when its
// task is destroyed.
const destroyGrace = 2 * time.Second

// DestroyTask implements nomadplugin.DriverPlugin.
func (d *Driver) DestroyTask(ctx context.Context, id string, force bool) error {
	t, err := d.find(id)
	if err != nil {
		return err
	}
	if _, ended := t.exited(); !ended {
		if !force {
			return fmt.Errorf("destroy task %s: it runs; stop it first, or force it", id)
		}
		stopping, cancel := context.WithTimeout(ctx, destroyGrace)
		err := t.stop(stopping, 0, "")
		cancel()
		if err != nil {
			d.log.Warn("a task did not end in time and is destroyed", "task", id, "error", err)
		}
	}
	if err := t.destroy(); err != nil {
		return fmt.Errorf("destroy task %s: %w", id, err)
	}
	d.remove(t)
	return nil
}

// InspectTask implements nomadplugin.DriverPlugin.
func (d *Driver) InspectTask(ctx context.Context, id string) (nomadplugin.TaskStatus, error) {
	t, err := d.find(id)
	if err != nil {
		return nomadplugin.TaskStatus{}, err
	}
	status := nomadplugin.TaskStatus{ID: t.id, Name: t.name, State: nomadplugin.TaskRunning, StartedAt: t.startedAt}
	if exit, ended := t.exited(); ended {
		status.State, status.CompletedAt, status.Exit = nomadplugin.TaskExited, exit.At, exitResult(exit)
		return status, nil
	}
	reply, err := t.dir.Ask(ctx, lane.Request{Op: lane.OpStatus})
	if err == nil && reply.Status != nil {
		status.Attributes = map[string]string{
			"lane": reply.Status.Lane, "lane_state": reply.Status.State, "gang": reply.Status.Gang,
			"keeper_pid": fmt.Sprint(t.keeper.PID),
		}
	}
	return status, nil
}

// SignalTask implements nomadplugin.Signaler.
func (d *Driver) SignalTask(ctx context.Context, id, signal string) error {
	t, err := d.find(id)
	if err != nil {
		return err
	}
	if _, err := t.dir.Ask(ctx, lane.Request{Op: lane.OpSignal, Signal: signal}); err != nil {
		return fmt.Errorf("signal task %s: %w", id, err)
	}
	return nil
}

// ExecTask implements nomadplugin.Executor.
func (d *Driver) ExecTask(ctx context.Context, id string, command []string, timeout time.Duration) (nomadplugin.ExecResult, error) {
	t, err := d.find(id)
	if err != nil {
		return nomadplugin.ExecResult{}, err
	}
	reply, err := t.dir.Ask(ctx, lane.Request{Op: lane.OpExec, Command: command, Timeout: timeout})
	if err == nil && reply.Exec == nil {
		err = errors.New("the keeper gave no result")
	}
	if err != nil {
		return nomadplugin.ExecResult{}, fmt.Errorf("run a command in task %s: %w", id, err)
	}
	return nomadplugin.ExecResult{
		Stdout: reply.Exec.Stdout, Stderr: reply.Exec.Stderr,
		Exit: nomadplugin.ExitResult{Code: reply.Exec.Code, Signal: reply.Exec.Signal},
	}, nil
}

// ExecTaskStreaming implements nomadplugin.Executor, for commands that need
// neither a terminal nor input: their output comes when they have ended.
func (d *Driver) ExecTaskStreaming(ctx context.Context, id string, stream nomadplugin.ExecStream) (nomadplugin.ExitResult, error) {
	if stream.TTY {
		return nomadplugin.ExitResult{}, errors.New("the gang driver runs commands without a terminal: use nomad alloc exec -i=false -t=false")
	}
	result, err := d.ExecTask(ctx, id, stream.Command, 0)
	if err != nil {
		return nomadplugin.ExitResult{}, err
	}
	_, outErr := stream.Stdout.Write(result.Stdout)
	_, errErr := stream.Stderr.Write(result.Stderr)
	return result.Exit, errors.Join(outErr, errErr)
}
