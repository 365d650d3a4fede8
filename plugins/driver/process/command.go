package process

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxOpenFiles is what every command may have open, where the node lets it.
const maxOpenFiles = 1 << 20

// Command is a program to be started in a session of its own. It dies with
// the process that starts it, and has nothing of that but its limits.
type Command struct {
	Path       string
	Argv       []string // with the name
	Env        []string
	Dir        string
	Credential *Credential // nil: whose this process is
	// OOMScoreAdj is as in /proc/PID/oom_score_adj; 0 leaves it as this
	// process's.
	OOMScoreAdj int64
}

// Credential is whose rights a program has.
type Credential struct {
	UID    int
	GID    int
	Groups []int
}

// String names a command in errors: of a start that fails, the kernel does not
// say whether the directory or the program is at fault.
func (c Command) String() string {
	if c.Credential == nil {
		return fmt.Sprintf("%s in %s", c.Path, c.Dir)
	}
	return fmt.Sprintf("%s in %s as user %d", c.Path, c.Dir, c.Credential.UID)
}

// reach returns once the file systems that the command lies on have answered,
// whatever they said. From the fork to the exec, Go's runtime stands still with
// the child, and one that hung on a network file system would take this process
// with it: what is not answered is asked from a goroutine that can be left
// behind.
func (c Command) reach(limit time.Duration) error {
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_, _ = os.Stat(c.Dir)
		if f, err := os.Open(c.Path); err == nil {
			_, _ = f.Read(make([]byte, 1))
			f.Close()
		}
	}()
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case <-answered:
		return nil
	case <-timeout.C:
		return fmt.Errorf("the file systems of %s and %s did not answer within %v", c.Dir, c.Path, limit)
	}
}

func (c Command) attr(null, stdout, stderr *os.File) *syscall.ProcAttr {
	a := &syscall.ProcAttr{
		Dir: c.Dir, Env: c.Env, Files: []uintptr{null.Fd(), stdout.Fd(), stderr.Fd()},
		// The signal is set after the change of user, which would clear it.
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	if c.Credential != nil {
		a.Sys.Credential = &syscall.Credential{Uid: uint32(c.Credential.UID), Gid: uint32(c.Credential.GID)}
		for _, g := range c.Credential.Groups {
			a.Sys.Credential.Groups = append(a.Sys.Credential.Groups, uint32(g))
		}
	}
	return a
}

// adjustOOM sets what the kernel thinks of a process when memory runs out.
// Lowering it needs a right that this process may lack; the command runs
// without.
func (c Command) adjustOOM(pid int) {
	if c.OOMScoreAdj != 0 {
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.FormatInt(c.OOMScoreAdj, 10)), 0)
	}
}

// raiseLimits raises this process's limits, which those that it starts have
// too, as far as it can. RDMA pins memory, so that the usual limit of locked
// memory breaks NCCL.
func raiseLimits() {
	unlimited := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unlimited) != nil {
		raiseToHard(unix.RLIMIT_MEMLOCK)
	}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: maxOpenFiles, Max: maxOpenFiles}) != nil {
		raiseToHard(unix.RLIMIT_NOFILE)
	}
}

func raiseToHard(resource int) {
	var limit unix.Rlimit
	if unix.Getrlimit(resource, &limit) == nil {
		limit.Cur = limit.Max
		_ = unix.Setrlimit(resource, &limit)
	}
}
