package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// ExecArgument, as the program's first argument, calls for Exec.
const ExecArgument = "exec-rank"

// maxOpenFiles is what every rank may have open, where the node lets it.
const maxOpenFiles = 1 << 20

// Descriptors of a trampoline.
const (
	specFD = 3
	failFD = 4
)

// Exec is the life of a trampoline: a process between fork and exec that puts
// itself into its control groups, takes limits and rights, and becomes the
// command. The command's environment does not touch it, since it may have more
// rights than the command's author. It returns the exit code, if at all.
func Exec() int {
	fail := os.NewFile(failFD, "failure")
	unix.CloseOnExec(failFD)
	err := execute()
	fmt.Fprint(fail, err)
	return 127
}

func execute() error {
	runtime.LockOSThread() // the signal at the parent's death belongs to a thread
	in := os.NewFile(specFD, "command")
	var c Command
	if err := json.NewDecoder(in).Decode(&c); err != nil {
		return fmt.Errorf("read what to start: %w", err)
	}
	in.Close()
	for _, group := range c.Groups {
		if err := os.WriteFile(group, []byte("0"), 0); err != nil {
			return fmt.Errorf("join control group: %w", err)
		}
	}
	setLimits(c.OOMScoreAdj)
	if c.Credential != nil {
		if err := c.Credential.become(); err != nil {
			return err
		}
	}
	if err := os.Chdir(c.Dir); err != nil {
		return fmt.Errorf("enter the working directory: %w", err)
	}
	// Taking another's rights clears what was set at the fork.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("bind to the life of the keeper: %w", err)
	}
	if os.Getppid() != c.Parent {
		return errors.New("the keeper is gone")
	}
	return syscall.Exec(c.Path, c.Argv, c.Env)
}

// setLimits takes what it can get. RDMA pins memory, so that the usual limit
// of locked memory breaks NCCL.
func setLimits(oomScoreAdj int64) {
	unlimited := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unlimited) != nil {
		raiseToHard(unix.RLIMIT_MEMLOCK)
	}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: maxOpenFiles, Max: maxOpenFiles}) != nil {
		raiseToHard(unix.RLIMIT_NOFILE)
	}
	if oomScoreAdj != 0 {
		// Lowering it needs a right that the driver may lack; the task runs without.
		_ = os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.FormatInt(oomScoreAdj, 10)), 0)
	}
}

func raiseToHard(resource int) {
	var limit unix.Rlimit
	if unix.Getrlimit(resource, &limit) == nil {
		limit.Cur = limit.Max
		_ = unix.Setrlimit(resource, &limit)
	}
}

// become gives up this process's rights for others, on all threads.
func (c *Credential) become() error {
	if err := syscall.Setgroups(c.Groups); err != nil {
		return fmt.Errorf("take the groups %v: %w", c.Groups, err)
	}
	if err := syscall.Setgid(c.GID); err != nil {
		return fmt.Errorf("become group %d: %w", c.GID, err)
	}
	if err := syscall.Setuid(c.UID); err != nil {
		return fmt.Errorf("become user %d: %w", c.UID, err)
	}
	return nil
}
