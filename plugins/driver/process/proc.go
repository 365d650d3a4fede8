// Package process starts the processes of a lane, finds them and all that
// descends from them, and reaps them.
package process

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ticksPerSecond is USER_HZ, the unit of times in /proc; it is 100 on every
// architecture that Linux has GPUs on.
const ticksPerSecond = 100

// Ref names a process beyond the reuse of its ID.
type Ref struct {
	PID int `json:"pid"`
	// Started is in clock ticks after boot, field 22 of /proc/PID/stat.
	Started uint64 `json:"started"`
}

// Find returns the process that has the ID now.
func Find(pid int) (Ref, error) {
	s, err := Read(pid)
	if err != nil {
		return Ref{}, fmt.Errorf("find process %d: %w", pid, err)
	}
	return Ref{PID: pid, Started: s.Started}, nil
}

// Alive reports whether the process runs, or any thread of it. A zombie does not.
func (r Ref) Alive() bool {
	s, err := Read(r.PID)
	return err == nil && s.Started == r.Started && !s.ended()
}

// Signal sends a signal, to this process and no other that got its ID.
func (r Ref) Signal(s syscall.Signal) error {
	p, err := os.FindProcess(r.PID) // holds a pidfd: what is checked below is what is signalled
	if err != nil {
		return err
	}
	defer p.Release()
	if !r.Alive() {
		return os.ErrProcessDone
	}
	return p.Signal(s)
}

// Stat is a part of /proc/PID/stat.
type Stat struct {
	PID      int
	State    byte
	Parent   int
	Threads  int
	Started  uint64
	User     time.Duration
	System   time.Duration
	RSSBytes uint64
}

// ended reports whether no thread is left. Of a process that is killed the first
// thread may be a zombie while others still hold its files, ports and GPUs.
func (s Stat) ended() bool { return (s.State == 'Z' || s.State == 'X') && s.Threads <= 1 }

// Read reads a process's state.
func Read(pid int) (Stat, error) {
	content, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Stat{}, err
	}
	return parseStat(pid, string(content))
}

var errStat = errors.New("unknown form of /proc/PID/stat")

// parseStat reads proc(5)'s form. The second field may contain anything, but
// no field after it contains a parenthesis.
func parseStat(pid int, content string) (Stat, error) {
	end := strings.LastIndexByte(content, ')')
	fields := strings.Fields(content[end+1:])
	if end < 0 || len(fields) < 22 {
		return Stat{}, errStat
	}
	number := func(field int) uint64 { // numbered from 1, as in proc(5)
		n, err := strconv.ParseUint(fields[field-3], 10, 64)
		if err != nil {
			return 0
		}
		return n
	}
	return Stat{
		PID:      pid,
		State:    fields[0][0],
		Parent:   int(number(4)),
		Threads:  int(number(20)),
		Started:  number(22),
		User:     ticks(number(14)),
		System:   ticks(number(15)),
		RSSBytes: number(24) * uint64(os.Getpagesize()),
	}, nil
}

func ticks(n uint64) time.Duration { return time.Duration(n) * time.Second / ticksPerSecond }

// Descendants returns the living processes below a process, zombies excepted.
func Descendants(root int) ([]Stat, error) {
	pids, err := list()
	if err != nil {
		return nil, fmt.Errorf("look for the descendants of process %d: %w", root, err)
	}
	children := make(map[int][]Stat)
	for _, pid := range pids {
		if s, err := Read(pid); err == nil { // else it is gone
			children[s.Parent] = append(children[s.Parent], s)
		}
	}
	var found []Stat
	next := children[root]
	for len(next) > 0 {
		s := next[0]
		next = append(next[1:], children[s.PID]...)
		if !s.ended() {
			found = append(found, s)
		}
	}
	return found, nil
}

// WithEnv returns the processes that were started with a variable in their
// environment, as "NAME=value". Those that may not be read are left out.
func WithEnv(variable string) ([]Ref, error) {
	pids, err := list()
	if err != nil {
		return nil, fmt.Errorf("look for processes with %s: %w", variable, err)
	}
	var found []Ref
	for _, pid := range pids {
		environ, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		if err != nil || !strings.Contains("\x00"+string(environ), "\x00"+variable+"\x00") {
			continue
		}
		if r, err := Find(pid); err == nil {
			found = append(found, r)
		}
	}
	return found, nil
}

func list() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
