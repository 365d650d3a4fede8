package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// startTimeout bounds the time from fork to exec of a command.
const startTimeout = 20 * time.Second

// Command is a program to be started in a session of its own. It dies with
// the process that starts it.
type Command struct {
	Path       string      `json:"path"`
	Argv       []string    `json:"argv"` // with the name
	Env        []string    `json:"env"`
	Dir        string      `json:"dir"`
	Groups     []string    `json:"groups"` // cgroup.procs files
	Credential *Credential `json:"credential,omitempty"`
	// OOMScoreAdj is as in /proc/PID/oom_score_adj.
	OOMScoreAdj int64 `json:"oom_score_adj,omitempty"`
	// parent is who starts it.
	Parent int `json:"parent"`
}

// Credential is whose rights a program has.
type Credential struct {
	UID    int   `json:"uid"`
	GID    int   `json:"gid"`
	Groups []int `json:"groups"`
}

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
	forks chan func()

	mu       sync.Mutex // held from fork to the entry in children
	children map[int]*Child
}

// NewSpawner makes this process the parent of all orphans below it.
func NewSpawner() (*Spawner, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become the reaper of orphaned processes: %w", err)
	}
	s := &Spawner{forks: make(chan func()), children: make(map[int]*Child)}
	// The signal at a parent's death comes at the death of the thread that
	// forked. This one lives as long as the process.
	go func() {
		runtime.LockOSThread()
		for fork := range s.forks {
			fork()
		}
	}()
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	go func() {
		missed := time.NewTicker(time.Second) // one signal may stand for many
		for {
			select {
			case <-ended:
			case <-missed.C:
			}
			for s.reap() {
			}
		}
	}()
	return s, nil
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

// Start starts a command; the files become its standard output and error. It
// returns when the command runs, or with the reason why it does not.
func (s *Spawner) Start(c Command, stdout, stderr *os.File) (*Child, error) {
	c.Parent = os.Getpid()
	spec, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Path, err)
	}
	pipes, err := openPipes()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Path, err)
	}
	defer pipes.close()
	child, err := s.fork(pipes, stdout, stderr)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Path, err)
	}
	if err := pipes.instruct(spec); err != nil {
		unix.Kill(child.PID, unix.SIGKILL)
		<-child.Done()
		return nil, fmt.Errorf("start %s: %w", c.Path, err)
	}
	return child, nil
}

// fork starts this program as the trampoline of Exec.
func (s *Spawner) fork(p *startPipes, stdout, stderr *os.File) (child *Child, err error) {
	attr := &syscall.ProcAttr{
		Dir:   "/",
		Files: []uintptr{p.null.Fd(), stdout.Fd(), stderr.Fd(), p.specRead.Fd(), p.failWrite.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	forked := make(chan struct{})
	s.forks <- func() {
		defer close(forked)
		s.mu.Lock()
		defer s.mu.Unlock()
		var pid int
		// The link leads to the program that runs, even if its file was replaced.
		if pid, err = syscall.ForkExec("/proc/self/exe", []string{"gangd-driver", ExecArgument}, attr); err == nil {
			child = &Child{PID: pid, done: make(chan struct{})}
			s.children[pid] = child
		}
	}
	<-forked
	return child, err
}

// startPipes lead to a trampoline: its instructions, and why it failed.
type startPipes struct{ null, specRead, specWrite, failRead, failWrite *os.File }

func openPipes() (p *startPipes, err error) {
	p = &startPipes{}
	if p.null, err = os.Open(os.DevNull); err != nil {
		return nil, err
	}
	if p.specRead, p.specWrite, err = os.Pipe(); err != nil {
		p.close()
		return nil, err
	}
	if p.failRead, p.failWrite, err = os.Pipe(); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *startPipes) close() {
	for _, f := range []*os.File{p.null, p.specRead, p.specWrite, p.failRead, p.failWrite} {
		if f != nil {
			f.Close()
		}
	}
}

// instruct returns when the trampoline has become the command.
func (p *startPipes) instruct(spec []byte) error {
	p.specRead.Close()
	p.failWrite.Close()
	deadline := time.Now().Add(startTimeout)
	p.specWrite.SetWriteDeadline(deadline)
	p.failRead.SetReadDeadline(deadline)
	_, err := p.specWrite.Write(spec)
	p.specWrite.Close()
	failure, readErr := io.ReadAll(io.LimitReader(p.failRead, 4<<10))
	if len(failure) > 0 {
		return errors.New(string(failure))
	}
	return errors.Join(err, readErr)
}
