// Package cgroup holds the processes of a lane together in Linux control
// groups, so that none of them gets away, and limits their memory.
//
// Version 2 is used where it is mounted, beside version 1 too (hybrid), if the
// kernel can start processes in its groups; else version 1's pids or freezer
// hierarchy. Memory is limited by whichever
// version has the controller.
package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// parent is the directory of all our groups.
const parent = "gangd"

// Modes of a machine.
const (
	ModeUnified = "v2"
	ModeHybrid  = "hybrid"
	ModeLegacy  = "v1"
	ModeNone    = "none"
)

// Hierarchies are the machine's control group file systems.
type Hierarchies struct {
	// v2 is where version 2 is mounted, or "".
	v2 string
	// v1 has the directory of this process's own group by controller. Groups
	// are made below it, so that its limits hold for them.
	v1 map[string]string
}

// Detect reads what is mounted.
func Detect() Hierarchies {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return Hierarchies{}
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return Hierarchies{}
	}
	return parse(string(mounts), string(own))
}

// parse takes the forms of proc(5) and cgroups(7).
func parse(mounts, own string) Hierarchies {
	paths := make(map[string]string)
	for line := range strings.Lines(own) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 {
			for controller := range strings.SplitSeq(parts[1], ",") {
				paths[controller] = parts[2]
			}
		}
	}
	h := Hierarchies{v1: make(map[string]string)}
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			continue
		}
		switch at, kind := fields[1], fields[2]; kind {
		case "cgroup2":
			h.v2 = at
		case "cgroup":
			for option := range strings.SplitSeq(fields[3], ",") {
				if path, ok := paths[option]; ok && option != "" {
					h.v1[option] = filepath.Join(at, path)
				}
			}
		}
	}
	return h
}

// Mode tells which versions there are.
func (h Hierarchies) Mode() string {
	switch {
	case h.v2 != "" && len(h.v1) > 0:
		return ModeHybrid
	case h.v2 != "":
		return ModeUnified
	case len(h.v1) > 0:
		return ModeLegacy
	}
	return ModeNone
}

// Group is the control groups of one lane, as directories. The zero Group
// holds nothing together.
type Group struct {
	// V2 holds the ranks. Its sibling Keeper holds the keeper, since only
	// leaves have processes; both are below Base.
	V2     string `json:"v2,omitempty"`
	Keeper string `json:"keeper,omitempty"`
	Base   string `json:"base,omitempty"`
	// V1 is a group of version 1 that holds the ranks where there is no V2.
	V1 string `json:"v1,omitempty"`
	// Memory is the group that limits memory; it may be V2.
	Memory string `json:"memory,omitempty"`
}

// Create makes the groups of a lane. What this machine does not permit is left
// out and told of; the group then holds what it can.
func (h Hierarchies) Create(name string, memoryBytes int64) (Group, error) {
	var g Group
	var errs []error
	if h.v2 != "" {
		errs = append(errs, g.createV2(h.v2, name))
	}
	if g.V2 == "" {
		errs = append(errs, g.createV1(h.v1, name))
	}
	if memoryBytes > 0 {
		errs = append(errs, g.limitMemory(h, name, memoryBytes))
	}
	return g, errors.Join(errs...)
}

func (g *Group) createV2(mount, name string) error {
	if err := canStartInV2(); err != nil {
		return fmt.Errorf("make a control group: %w", err)
	}
	base := filepath.Join(mount, parent, name)
	keeper, ranks := filepath.Join(base, "keeper"), filepath.Join(base, "ranks")
	for _, dir := range []string{keeper, ranks} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make a control group: %w", err)
		}
	}
	// The keeper must not end with the service that its plugin belongs to.
	if err := os.WriteFile(filepath.Join(keeper, "cgroup.procs"), []byte("0"), 0); err != nil {
		errs := []error{fmt.Errorf("join a control group: %w", err)}
		for _, dir := range []string{ranks, keeper, base} {
			errs = append(errs, os.Remove(dir))
		}
		return errors.Join(errs...)
	}
	g.V2, g.Keeper, g.Base = ranks, keeper, base
	return nil
}

func (g *Group) createV1(v1 map[string]string, name string) error {
	err := errors.New("version 1 has neither pids nor freezer mounted")
	for _, controller := range []string{"pids", "freezer"} {
		own, ok := v1[controller]
		if !ok {
			continue
		}
		dir := filepath.Join(own, parent, name)
		if err = os.MkdirAll(dir, 0o755); err == nil {
			g.V1 = dir
			return nil
		}
	}
	return fmt.Errorf("make a control group: %w", err)
}

func (g *Group) limitMemory(h Hierarchies, name string, bytes int64) error {
	limit := []byte(strconv.FormatInt(bytes, 10))
	if own, ok := h.v1["memory"]; ok {
		dir := filepath.Join(own, parent, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("limit memory: %w", err)
		}
		g.Memory = dir
		if err := os.WriteFile(filepath.Join(dir, "memory.limit_in_bytes"), limit, 0); err != nil {
			return fmt.Errorf("limit memory: %w", err)
		}
		return nil
	}
	if g.V2 == "" {
		return errors.New("limit memory: no hierarchy has the memory controller")
	}
	// A controller is handed down from the top.
	for _, dir := range []string{h.v2, filepath.Dir(g.Base), g.Base} {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+memory"), 0); err != nil {
			return fmt.Errorf("limit memory: %w", err)
		}
	}
	g.Memory = g.V2
	if err := os.WriteFile(filepath.Join(g.V2, "memory.max"), limit, 0); err != nil {
		return fmt.Errorf("limit memory: %w", err)
	}
	return nil
}

// Open opens the group of version 2, in which the kernel can start a process
// (CLONE_INTO_CGROUP). It returns nil where there is none.
func (g Group) Open() (*os.File, error) {
	if g.V2 == "" {
		return nil, nil
	}
	dir, err := os.Open(g.V2)
	if err != nil {
		return nil, fmt.Errorf("open a control group: %w", err)
	}
	return dir, nil
}

// JoinThread takes the calling thread, without the rest of its process, into
// the groups of version 1: what it starts from now on is in them. It must
// belong to its goroutine (runtime.LockOSThread), and not be the first one,
// which stands for the process.
func (g Group) JoinThread() error {
	for _, dir := range []string{g.V1, g.Memory} {
		if dir == "" || dir == g.V2 {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "tasks"), []byte("0"), 0); err != nil {
			return fmt.Errorf("join a control group: %w", err)
		}
	}
	return nil
}

// canStartInV2 asks for a process in a group that cannot be: the kernel says
// so where it knows what is asked.
func canStartInV2() error {
	attr := &syscall.ProcAttr{Sys: &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: math.MaxInt32}}
	if _, err := syscall.ForkExec("/", nil, attr); !errors.Is(err, syscall.EBADF) {
		return fmt.Errorf("no process can be started in a group of version 2 (Linux 5.7 or newer can, unless a seccomp filter forbids clone3): %w", err)
	}
	return nil
}

// PIDs returns the processes in the group. The calling one is left out: a
// thread of it may be there to start them.
func (g Group) PIDs() ([]int, error) {
	dir := g.V2
	if dir == "" {
		dir = g.V1
	}
	if dir == "" {
		return nil, nil
	}
	f, err := os.Open(filepath.Join(dir, "cgroup.procs"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return nil, nil // removed
	}
	if err != nil {
		return nil, fmt.Errorf("list a control group: %w", err)
	}
	defer f.Close()
	var pids []int
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if pid, err := strconv.Atoi(lines.Text()); err == nil && pid > 0 && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, syscall.ENODEV) {
		return nil, fmt.Errorf("list a control group: %w", err)
	}
	return pids, nil
}

// Kill sends SIGKILL to all processes in the group. One that forks at that
// moment can leave a child with version 1: call again until PIDs is empty.
func (g Group) Kill() error {
	if g.V2 != "" {
		err := os.WriteFile(filepath.Join(g.V2, "cgroup.kill"), []byte("1"), 0)
		if err == nil {
			return nil
		}
		// Linux before 5.14 has no such file.
	}
	pids, err := g.PIDs()
	for _, pid := range pids {
		if killErr := syscall.Kill(pid, syscall.SIGKILL); killErr != nil && !errors.Is(killErr, syscall.ESRCH) {
			err = errors.Join(err, fmt.Errorf("kill process %d: %w", pid, killErr))
		}
	}
	return err
}

// OOMKills counts the processes that the kernel killed for the memory limit.
func (g Group) OOMKills() int {
	if g.Memory == "" {
		return 0
	}
	for _, name := range []string{"memory.events", "memory.oom_control"} {
		content, err := os.ReadFile(filepath.Join(g.Memory, name))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(content)) {
			if fields := strings.Fields(line); len(fields) == 2 && fields[0] == "oom_kill" {
				if n, err := strconv.Atoi(fields[1]); err == nil {
					return n
				}
			}
		}
	}
	return 0
}

// Remove deletes the groups. It fails while a process is in one, or a thread;
// those of a keeper are therefore removed by whoever comes after it.
func (g Group) Remove() error {
	var errs []error
	for _, dir := range []string{g.V2, g.Keeper, g.Base, g.V1, g.Memory} {
		if dir == "" {
			continue
		}
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove a control group: %w", err))
		}
	}
	// The parents stay while other lanes are in them.
	for _, dir := range []string{g.Base, g.V1, g.Memory} {
		if dir != "" && filepath.Base(filepath.Dir(dir)) == parent {
			_ = os.Remove(filepath.Dir(dir))
		}
	}
	return errors.Join(errs...)
}
