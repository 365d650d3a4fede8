package process

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gangd/gangd/plugins/driver/cgroup"
)

// reachTimeout bounds how long a command's file systems may take to answer
// before it is started.
const reachTimeout = 20 * time.Second

// firstOtherFD is the first descriptor after the standard ones.
const firstOtherFD = 3

// Exit is how a process ended.
type Exit struct {
	Code   int
	Signal syscall.Signal // 0 where it exited
}

func (e Exit) String() string {
	if e.Signal != 0 {
		return fmt.Sprintf("was killed by %s", unix.SignalName(e.Signal))
	}
	return fmt.Sprintf("exited with code %d", e.Code)
}

// Child is a process that a Spawner started.
type Child struct {
	PID  int
	done chan struct{}
	exit Exit
}

// Done is closed when the process has ended and was reaped.
func (c *Child) Done() <-chan struct{} { return c.done }

// Exit is how it ended; valid once Done is closed.
func (c *Child) Exit() Exit { return c.exit }

// Signal sends a signal to the process group of the child.
func (c *Child) Signal(s syscall.Signal) error {
	select {
	case <-c.done: // the ID may be another's by now
		return os.ErrProcessDone
	default:
		return unix.Kill(-c.PID, s)
	}
}

// Spawner starts and reaps all children of this process, and those of its
// children that lost their parent. A process has at most one, and starts
// nothing by other means.
type Spawner struct {
	group *os.File // of version 2, or nil
	forks chan func()
	limit time.Duration // reachTimeout

	mu       sync.Mutex // held from fork to the entry in children
	children map[int]*Child
}

// NewSpawner makes this process the parent of all orphans below it, with the
// limits that its children are to have. What is started is in the group from
// its first instruction on.
func NewSpawner(group cgroup.Group) (*Spawner, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become the reaper of orphaned processes: %w", err)
	}
	raiseLimits()
	// What this process inherited open is not its children's. Linux before 5.11
	// cannot say so, and leaves it to them.
	_ = unix.CloseRange(firstOtherFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	s := &Spawner{forks: make(chan func()), limit: reachTimeout, children: make(map[int]*Child)}
	var err error
	if s.group, err = group.Open(); err != nil {
		return nil, err
	}
	joined := make(chan error)
	go s.forkAll(group, joined)
	if err := <-joined; err != nil {
		return nil, err
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	go s.reapAll(ended)
	return s, nil
}

// forkAll forks from one thread, for two reasons. A process starts in the
// version 1 groups of the thread that forks it; and the signal at a parent's
// death comes at the death of that thread. This one lives as long as the
// process.
func (s *Spawner) forkAll(group cgroup.Group, joined chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		// The first thread stands for its process, which stays outside. While it
		// is held here, another one has to do it.
		other := make(chan error)
		go s.forkAll(group, other)
		joined <- <-other
		runtime.UnlockOSThread()
		return
	}
	err := group.JoinThread()
	joined <- err
	if err != nil {
		return
	}
	for fork := range s.forks {
		fork()
	}
}

func (s *Spawner) reapAll(ended <-chan os.Signal) {
	missed := time.NewTicker(time.Second) // one signal may stand for many
	for {
		select {
		case <-ended:
		case <-missed.C:
		}
		for s.reap() {
		}
	}
}

func (s *Spawner) reap() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var status unix.WaitStatus
	pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
	if errors.Is(err, unix.EINTR) {
		return true
	}
	if err != nil || pid <= 0 {
		return false
	}
	child := s.children[pid]
	if child == nil {
		return true // an orphan
	}
	delete(s.children, pid)
	if status.Signaled() {
		child.exit.Signal = status.Signal()
		child.exit.Code = 128 + int(status.Signal())
	} else {
		child.exit.Code = status.ExitStatus()
	}
	close(child.done)
	return true
}

// Reached is a command whose file systems have answered, so that its start will
// not be held up by them.
type Reached struct {
	spawner *Spawner
	command Command
}

// Reach asks the command's file systems for an answer, for up to 20 s. Nobody
// who orders the end of a lane is to wait for that: it is done without a lock.
func (s *Spawner) Reach(c Command) (Reached, error) {
	if err := c.reach(s.limit); err != nil {
		return Reached{}, fmt.Errorf("start %v: %w", c, err)
	}
	return Reached{s, c}, nil
}

// Start starts the command; the files become its standard output and error, and
// it has no others. It returns when the command runs, or with the reason why it
// does not.
func (r Reached) Start(stdout, stderr *os.File) (*Child, error) {
	s, c := r.spawner, r.command
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, fmt.Errorf("start %v: %w", c, err)
	}
	defer null.Close()
	attr := c.attr(null, stdout, stderr)
	if s.group != nil {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(s.group.Fd())
	}
	var child *Child
	forked := make(chan struct{})
	s.forks <- func() {
		defer close(forked)
		child, err = s.fork(c, attr)
	}
	<-forked
	if err != nil {
		return nil, fmt.Errorf("start %v: %w", c, err)
	}
	return child, nil
}

func (s *Spawner) fork(c Command, attr *syscall.ProcAttr) (*Child, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pid, err := syscall.ForkExec(c.Path, c.Argv, attr)
	if err != nil {
		return nil, err
	}
	c.adjustOOM(pid) // not reaped yet, and so no other process
	child := &Child{PID: pid, done: make(chan struct{})}
	s.children[pid] = child
	return child, nil
}
