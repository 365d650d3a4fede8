package task

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/gangd/gangd/internal/nomadplugin"
	"github.com/gangd/gangd/plugins/driver/lane"
	"github.com/gangd/gangd/plugins/driver/process"
)

const (
	reaskFirst = 20 * time.Millisecond
	reaskLimit = time.Second
	// stopMargin is what a keeper may take beyond the timeout of a stop.
	stopMargin = 3 * time.Second
	// clearTimeout bounds how long killed processes may take to be gone.
	clearTimeout = 10 * time.Second
	clearPoll    = 10 * time.Millisecond
)

// task is a lane as Nomad sees it.
type task struct {
	id, allocID, name string
	dir               lane.Dir
	keeper            process.Ref
	startedAt         time.Time
	forget            context.CancelFunc // ends follow

	mu   sync.Mutex
	lost *lane.Exit // once the keeper is known to be gone without a word
}

func newTask(c nomadplugin.TaskConfig, dir lane.Dir, keeper process.Ref, startedAt time.Time) *task {
	return &task{id: c.ID, allocID: c.AllocID, name: c.Name, dir: dir, keeper: keeper, startedAt: startedAt}
}

// exited tells how the lane ended, if it has.
func (t *task) exited() (lane.Exit, bool) {
	alive := t.keeper.Alive() // asked first: a keeper records the end and then ends
	if exit, err := t.dir.Exit(); err == nil {
		return exit, true
	}
	if alive {
		return lane.Exit{}, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost == nil {
		t.lost = &lane.Exit{Code: 1, At: time.Now(), Message: fmt.Sprintf(
			"keeper lost: process %d, which kept the lane, is gone without recording how the lane ended; it was killed, or the node was restarted", t.keeper.PID)}
	}
	return *t.lost, true
}

// wait returns when the lane has ended. Of a lost keeper it ends what is left.
func (t *task) wait(ctx context.Context) (lane.Exit, error) {
	for again := reaskFirst; ; again = min(2*again, reaskLimit) {
		reply, err := t.dir.Ask(ctx, lane.Request{Op: lane.OpWait})
		if err == nil && reply.Exit != nil {
			return *reply.Exit, nil
		}
		if ctx.Err() != nil {
			return lane.Exit{}, ctx.Err()
		}
		if exit, ok := t.exited(); ok {
			if t.wasLost() {
				return exit, t.clear()
			}
			return exit, nil
		}
		if !pause(ctx, again) {
			return lane.Exit{}, ctx.Err()
		}
	}
}

func (t *task) wasLost() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lost != nil
}

// follow passes the lane's events on until it has ended or ctx ends.
func (t *task) follow(ctx context.Context, put func(nomadplugin.TaskEvent)) {
	last := 0
	each := func(e lane.Event) {
		if e.Sequence <= last {
			return
		}
		last = e.Sequence
		put(nomadplugin.TaskEvent{TaskID: t.id, AllocID: t.allocID, TaskName: t.name, At: e.At, Message: e.Message})
	}
	for again := reaskFirst; ; again = min(2*again, reaskLimit) {
		err := t.dir.Follow(ctx, each)
		if ctx.Err() != nil {
			return
		}
		if exit, ok := t.exited(); ok {
			for _, e := range exit.Events {
				each(e)
			}
			return
		}
		if !errors.Is(err, lane.ErrNoKeeper) {
			again = reaskFirst
		}
		if !pause(ctx, again) {
			return
		}
	}
}

// stop asks the keeper to end the lane, and ends it by force if it does not.
func (t *task) stop(ctx context.Context, timeout time.Duration, signal string) error {
	if _, ok := t.exited(); ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout+stopMargin)
	defer cancel()
	_, err := t.dir.Ask(ctx, lane.Request{Op: lane.OpStop, Timeout: timeout, Signal: signal})
	if err == nil || errors.Is(err, lane.ErrNoKeeper) {
		if _, err = t.wait(ctx); err == nil {
			return nil
		}
	}
	if killErr := t.kill(); killErr != nil {
		return errors.Join(err, killErr)
	}
	return t.clear()
}

// kill ends the keeper, and with it the ranks.
func (t *task) kill() error {
	if err := t.keeper.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill the keeper, process %d: %w", t.keeper.PID, err)
	}
	deadline := time.Now().Add(clearTimeout)
	for t.keeper.Alive() {
		if time.Now().After(deadline) {
			return fmt.Errorf("the keeper, process %d, does not die", t.keeper.PID)
		}
		time.Sleep(clearPoll)
	}
	return nil
}

// clear ends every process that a dead keeper left: those in its control
// group, and those that still carry the lane in their environment.
func (t *task) clear() error {
	k, err := t.dir.Keeper()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	deadline := time.Now().Add(clearTimeout)
	for {
		pids, err := k.Group.PIDs()
		if err != nil {
			return err
		}
		marked, err := process.WithEnv(lane.EnvDir + "=" + string(t.dir))
		if err != nil {
			return err
		}
		if len(pids) == 0 && len(marked) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes of the lane in %s do not die: %v and %v", t.dir, pids, marked)
		}
		err = k.Group.Kill()
		for _, r := range marked {
			if killErr := r.Signal(syscall.SIGKILL); killErr != nil && !errors.Is(killErr, os.ErrProcessDone) {
				err = errors.Join(err, killErr)
			}
		}
		if err != nil {
			return err
		}
		time.Sleep(clearPoll)
	}
}

// destroy ends all that is left of the lane, and removes it from the node.
func (t *task) destroy() error {
	if t.keeper.PID != 0 {
		if err := t.kill(); err != nil {
			return err
		}
	}
	if err := t.clear(); err != nil {
		return err
	}
	if k, err := t.dir.Keeper(); err == nil {
		err := k.Group.Remove()
		for deadline := time.Now().Add(time.Second); errors.Is(err, syscall.EBUSY) && time.Now().Before(deadline); err = k.Group.Remove() {
			time.Sleep(clearPoll) // the kernel takes the dead out a little later
		}
		if err != nil {
			return err
		}
	}
	return t.dir.Remove()
}
