package keeper

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/internal/runner"
	"github.com/gangd/gangd/plugins/driver/process"
)

const (
	// endPollFirst and endPollLimit are the pauses between looks for what is left.
	endPollFirst = 2 * time.Millisecond
	endPollLimit = 50 * time.Millisecond
	// endComplaint is how often a process that does not die is logged: one in
	// the kernel's hands, as with a GPU that hangs, may take its time.
	endComplaint = 10 * time.Second
)

// terminator says when a lane's processes, which were asked to end, are to be
// killed. Its zero value says that they are now.
type terminator struct {
	mu     sync.Mutex
	killAt time.Time
	hasten chan struct{}
}

// end answers the action end; gone is posted once, when nothing is left. No
// rank starts from now on.
func (r *ranks) end(ctx context.Context, signal syscall.Signal, grace time.Duration) {
	killAt := time.Now().Add(grace)
	r.mu.Lock()
	t, first := r.ending, r.ending == nil
	if first {
		t = &terminator{killAt: killAt, hasten: make(chan struct{}, 1)}
		r.ending = t
	}
	r.mu.Unlock()
	t.sooner(killAt)
	if grace > 0 {
		if signal == 0 {
			signal = syscall.SIGTERM
		}
		r.drain()
		if err := r.signal(signal); err != nil {
			r.log.Warn("not all ranks were asked to end", "error", err)
		}
	}
	if first {
		go r.terminate(ctx, t)
	}
}

func (t *terminator) sooner(killAt time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if killAt.Before(t.killAt) {
		t.killAt = killAt
	}
	select {
	case t.hasten <- struct{}{}:
	default:
	}
}

func (t *terminator) due() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !time.Now().Before(t.killAt)
}

// drain tells the ranks that no run will follow.
func (r *ranks) drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, conn := range r.conns {
		go conn.Send(runner.Drain{}) // may wait; the signal follows anyway
	}
}

// terminate posts that all processes of the lane are dead and reaped, unless
// ctx, the keeper's life, ends before.
func (r *ranks) terminate(ctx context.Context, t *terminator) {
	if r.killUntilGone(ctx, t) != nil {
		return
	}
	r.mu.Lock()
	children, conns := slices.Collect(maps.Values(r.children)), slices.Collect(maps.Values(r.conns))
	r.mu.Unlock()
	for _, child := range children {
		<-child.Done()
	}
	for _, conn := range conns {
		conn.Close()
	}
	r.post(gone{})
}

// sweep kills what is left of a run whose ranks have ended. It returns when
// nothing is, or with ctx's error.
func (r *ranks) sweep(ctx context.Context) error {
	return r.killUntilGone(ctx, &terminator{}) // due long since
}

func (r *ranks) killUntilGone(ctx context.Context, t *terminator) error {
	return killUntilGone(ctx, t, r.log, r.left, r.kill)
}

// killUntilGone kills what is left, from when it is due, until nothing is or
// ctx ends.
func killUntilGone(ctx context.Context, t *terminator, log hclog.Logger, left func() []int, kill func([]int)) error {
	complain := time.Now().Add(endComplaint)
	for wait := endPollFirst; ; wait = min(2*wait, endPollLimit) {
		pids := left()
		if len(pids) == 0 {
			return nil
		}
		if t.due() {
			kill(pids)
		}
		if !time.Now().Before(complain) {
			log.Warn("processes of the lane do not end", "pids", pids)
			complain = time.Now().Add(endComplaint)
		}
		select {
		case <-t.hasten:
			wait = endPollFirst
		case <-time.After(wait):
		case <-ctx.Done():
			return fmt.Errorf("end the processes %v: %w", pids, ctx.Err())
		}
	}
}

// left returns the processes of the lane: those in its control group, and,
// since orphans become children of this process, all that descend from it.
func (r *ranks) left() []int {
	pids, err := r.group.PIDs()
	if err != nil {
		r.log.Warn("the lane's control group cannot be read", "error", err)
	}
	if len(pids) > 0 {
		return pids
	}
	stats, err := process.Descendants(os.Getpid())
	if err != nil {
		r.log.Warn("the lane's processes cannot be listed", "error", err)
	}
	for _, s := range stats {
		pids = append(pids, s.PID)
	}
	return pids
}

func (r *ranks) kill(pids []int) {
	if err := r.group.Kill(); err != nil {
		r.log.Warn("the lane's control group was not killed", "error", err)
	}
	if err := r.signal(syscall.SIGKILL); err != nil {
		r.log.Warn("a rank was not killed", "error", err)
	}
	for _, pid := range pids {
		// They are children of this process, or of such: nobody else reaps them,
		// but they may be dead already.
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}
