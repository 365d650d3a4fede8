package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gangd/gangd/internal/gang"
)

// process is one that /proc shows.
type process struct {
	pid     int
	parent  int
	cmdline string
	env     []string
}

// processes lists all but this one; those that end meanwhile are left out.
func processes() []process {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var out []process
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil || pid == os.Getpid() {
			continue
		}
		cmdline, err := os.ReadFile(d + "/cmdline")
		if err != nil || len(cmdline) == 0 {
			continue // a kernel thread, or a zombie
		}
		env, _ := os.ReadFile(d + "/environ")
		out = append(out, process{pid, parentOf(d), strings.ReplaceAll(strings.TrimRight(string(cmdline), "\x00"), "\x00", " "), strings.Split(string(env), "\x00")})
	}
	return out
}

// parentOf reads the parent of the process with a directory in /proc; 0 where
// it has ended.
func parentOf(dir string) int {
	stat, _ := os.ReadFile(dir + "/stat")
	// The command, in parentheses, may hold any character.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	pid, _ := strconv.Atoi(fields[1])
	return pid
}

// getenv returns a variable of a process's start.
func (p process) getenv(name string) string {
	for _, kv := range p.env {
		if value, has := strings.CutPrefix(kv, name+"="); has {
			return value
		}
	}
	return ""
}

func (p process) kill(t testing.TB) {
	t.Helper()
	must(t, syscall.Kill(p.pid, syscall.SIGKILL))
}

// allRanks lists the runner processes of the cluster, without what they started
// themselves.
func (c *testCluster) allRanks() []process {
	ranks := make(map[int]process)
	for _, p := range processes() {
		if p.getenv("GANGD_LANE") != "" && strings.Contains(p.getenv("GANGD_RUNNER_SOCKET"), c.dir) {
			ranks[p.pid] = p
		}
	}
	var out []process
	for _, p := range ranks {
		if _, child := ranks[p.parent]; !child {
			out = append(out, p)
		}
	}
	return out
}

// ranks lists the runner processes of a gang's present placement, in rank
// order.
func (c *testCluster) ranks(s gang.Status) []process {
	all := c.allRanks()
	var out []process
	for _, m := range s.Members {
		var own []process
		for _, p := range all {
			if p.getenv("GANGD_LANE") == string(m.Lane) {
				own = append(own, p)
			}
		}
		slices.SortFunc(own, func(a, b process) int { return localRank(a) - localRank(b) })
		out = append(out, own...)
	}
	return out
}

func localRank(p process) int {
	n, _ := strconv.Atoi(p.getenv("LOCAL_RANK"))
	return n
}

// keepers lists the keeper processes of the cluster.
func (c *testCluster) keepers() []process {
	var out []process
	for _, p := range processes() {
		if strings.Contains(p.cmdline, "keeper") && strings.Contains(p.cmdline, c.dir) {
			out = append(out, p)
		}
	}
	return out
}
