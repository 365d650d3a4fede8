package task

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/gangd/gangd/internal/nomadplugin"
	"github.com/gangd/gangd/plugins/driver/keeper"
	"github.com/gangd/gangd/plugins/driver/lane"
	"github.com/gangd/gangd/plugins/driver/process"
)

const (
	// stateVersion is the form of driverState.
	stateVersion = 1
	// startTimeout is how long a keeper may take to answer.
	startTimeout = 10 * time.Second
	startPoll    = 5 * time.Millisecond
	// maxLogBytes is how much of a keeper's log an error may quote.
	maxLogBytes = 2 << 10
)

// driverState is what Nomad keeps of a task for RecoverTask.
type driverState struct {
	Dir       lane.Dir    `json:"dir"`
	Keeper    process.Ref `json:"keeper"`
	StartedAt time.Time   `json:"started_at"`
}

// StartTask implements nomadplugin.DriverPlugin. Nomad repeats it, for the
// same task, when the plugin's process died over it: a keeper that lives is
// then taken over.
func (d *Driver) StartTask(ctx context.Context, config nomadplugin.TaskConfig) (nomadplugin.Started, error) {
	node := d.node()
	c, err := laneConfig(config, node.keeper())
	if err != nil {
		return nomadplugin.Started{}, err
	}
	dir := lane.DirOf(node.StateDir, config.ID)
	k, err := d.startKeeper(ctx, dir, c)
	if err != nil {
		// Nomad forgets the task: nothing may be left.
		leftover := &task{id: config.ID, dir: dir, keeper: k.Ref}
		return nomadplugin.Started{}, errors.Join(fmt.Errorf("start the keeper of lane %s: %w", c.Lane, err), leftover.destroy())
	}
	state, err := json.Marshal(driverState{Dir: dir, Keeper: k.Ref, StartedAt: k.StartedAt})
	if err != nil {
		return nomadplugin.Started{}, err
	}
	d.add(newTask(config, dir, k.Ref, k.StartedAt))
	return nomadplugin.Started{Version: stateVersion, State: state}, nil
}

func (d *Driver) startKeeper(ctx context.Context, dir lane.Dir, c lane.Config) (lane.Keeper, error) {
	lock, err := dir.Lock()
	if errors.Is(err, lane.ErrKept) {
		return awaitKeeper(ctx, dir, nil)
	}
	if err != nil {
		return lane.Keeper{}, err
	}
	defer lock.Close() // the keeper has its own
	if err := dir.Prepare(c); err != nil {
		return lane.Keeper{}, err
	}
	log, err := os.OpenFile(dir.KeeperLog(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return lane.Keeper{}, err
	}
	defer log.Close()
	// The link leads to the program that runs, even if its file was replaced.
	cmd := exec.Command("/proc/self/exe", keeper.Argument, string(dir))
	cmd.Args[0] = "gangd-driver"
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
	cmd.ExtraFiles = []*os.File{lock} // becomes keeper.LockFD
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return lane.Keeper{}, err
	}
	died := make(chan struct{})
	go func() {
		defer close(died)
		_ = cmd.Wait() // reaps it; how the lane ended is in its directory
	}()
	k, err := awaitKeeper(ctx, dir, died)
	if err != nil {
		cmd.Process.Kill()
	}
	return k, err
}

// awaitKeeper returns when the keeper answers.
func awaitKeeper(ctx context.Context, dir lane.Dir, died <-chan struct{}) (lane.Keeper, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		reply, err := dir.Ask(ctx, lane.Request{Op: lane.OpStatus})
		if err == nil && reply.Status != nil {
			return reply.Status.Keeper, nil
		}
		select {
		case <-died:
			return lane.Keeper{}, fmt.Errorf("it ended at once; its log says: %s", logTail(dir))
		case <-ctx.Done():
			return lane.Keeper{}, fmt.Errorf("it does not answer: %w; its log says: %s", context.Cause(ctx), logTail(dir))
		case <-time.After(startPoll):
		}
	}
}

func logTail(dir lane.Dir) string {
	content, err := os.ReadFile(dir.KeeperLog())
	if err != nil {
		return err.Error()
	}
	tail := bytes.TrimSpace(content[max(0, len(content)-maxLogBytes):])
	return strings.ToValidUTF8(string(tail), "") // Nomad is told nothing else
}

// RecoverTask implements nomadplugin.DriverPlugin. It fails only for a handle
// that cannot be read: a lane whose keeper is lost has ended, and must not be
// started afresh.
func (d *Driver) RecoverTask(_ context.Context, handle nomadplugin.TaskHandle) error {
	var s driverState
	if err := json.Unmarshal(handle.State, &s); err != nil {
		return fmt.Errorf("recover task %s: read the driver's state: %w", handle.Config.ID, err)
	}
	if s.Dir == "" {
		return fmt.Errorf("recover task %s: the driver's state names no lane", handle.Config.ID)
	}
	d.add(newTask(handle.Config, s.Dir, s.Keeper, s.StartedAt))
	return nil
}
