package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	nomadapi "github.com/hashicorp/nomad/api"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// TestDisturbances runs gangs on four nodes in two leaves while what is around
// them comes and goes. Each part begins and ends with an idle cluster.
func TestDisturbances(t *testing.T) {
	// Between two heartbeats Nomad gives an agent the grace alone.
	c := start(t, options{base: 5200, clients: 4, vars: map[string]string{"nodes_per_leaf": "2", "heartbeat_grace": "20s"}})
	c.run("nomad", "job", "run", c.loadingTemplate())
	want := c.undisturbed()
	for _, part := range []struct {
		name string
		run  func(t *testing.T, want film)
	}{
		{"nomad lists the driver and the GPUs", c.listed},
		{"a gang outlives Nomad's agent and the driver plugin", c.agentsComeAndGo},
		{"gangd comes back and goes on", c.gangdComesBack},
		{"GPUs break and recover", c.gpusBreak},
		{"a node dies and comes back", c.nodeDies},
	} {
		t.Run(part.name, func(t *testing.T) {
			t.Cleanup(c.with(t).cancelAll)
			part.run(t, want)
		})
	}
}

// film is a video that does not depend on what happens while it is made, nor
// on how long a step takes.
type film struct {
	sha256 string
	// slow is how many times as long as on an idle machine things take here.
	slow float64
}

// filmGang is a gang of 16 in one leaf that makes the film.
func filmGang(name string, step time.Duration) string {
	return gangFile(name, "  gpus = 16\n  gpus_per_node = 8\n  topology {\n    require = \"leaf\"\n  }",
		fmt.Sprintf("    seed = 11\n    steps = 60\n    step_ms = %d\n    width = 64\n    height = 64", step.Milliseconds()))
}

// undisturbed makes the film for the first time.
func (c *testCluster) undisturbed() film {
	c.t.Helper()
	s := c.reaches(c.submit(filmGang("undisturbed", 0)), time.Minute, gang.Succeeded)
	c.idle(time.Minute)
	launch := time.Duration(s.Times.Started-s.Accepted) * time.Millisecond
	f := film{s.Artifact.SHA256, min(max(1, launch.Seconds()/1.5), 4)}
	c.t.Logf("the undisturbed gang started within %s: films last %.1f times as long as planned", launch.Round(10*time.Millisecond), f.slow)
	return f
}

// gang is one that makes the film at leisure: it lasts 60 steps.
func (f film) gang(name string, step time.Duration) string {
	return filmGang(name, time.Duration(f.slow*float64(step)))
}

func (c *testCluster) listed(t *testing.T, _ film) {
	c = c.with(t)
	out := c.run("nomad", "node", "status", "-verbose", c.nomadNode("client-0").ID)
	if !regexp.MustCompile(`(?m)^gang +true +true +Healthy `).MatchString(out) {
		t.Error("the driver gang is not listed as detected and healthy")
	}
	for _, g := range c.node("client-0").GPUs {
		if !strings.Contains(out, "gangd/gpu/"+g.UUID) {
			t.Errorf("GPU %s is not listed", g.UUID)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}

// disturbance is what must not be felt by a gang on the node.
type disturbance struct {
	name    string
	disturb func(c *testCluster, node string)
}

// agentsComeAndGo disturbs two gangs at a time, one in each leaf.
func (c *testCluster) agentsComeAndGo(t *testing.T, want film) {
	stop := disturbance{"agent stopped and started", func(c *testCluster, node string) {
		c.agent("stop", node)
		c.agent("start", node)
	}}
	kill := disturbance{"agent killed and started", func(c *testCluster, node string) {
		c.agent("kill", node)
		c.agent("start", node)
	}}
	killDriver := disturbance{"driver plugin killed", (*testCluster).killDriver}
	replaceDriver := disturbance{"driver plugin replaced", (*testCluster).replaceDriver}
	for _, pair := range [][]disturbance{{stop, killDriver}, {kill, replaceDriver}} {
		t.Run("while another is", func(t *testing.T) {
			for _, d := range pair {
				t.Run(d.name, func(t *testing.T) {
					t.Parallel()
					c.with(t).goesOnUnder(d, want)
				})
			}
		})
		c.with(t).idle(15 * time.Second)
	}
}

// goesOnUnder runs a gang, disturbs the node of its member 1, and sees that the
// gang goes on and that its log and events can be read.
func (c *testCluster) goesOnUnder(d disturbance, want film) {
	id := c.submit(want.gang("disturbed", 400*time.Millisecond))
	before := c.onTheWay(id)
	ranks := c.ranks(before)
	node := before.Lanes[1].NodeName
	began := time.Now()
	d.disturb(c, node)
	c.eventually(20*time.Second, node+" is ready again", func() string { return c.absent(node) })
	c.t.Logf("agent and driver of %s were back after %s", node, time.Since(began).Round(10*time.Millisecond))
	c.sameRanks(before, ranks)
	c.readable(id)
	c.succeedsAs(id, 1, want)
}

// succeedsAs waits for the film that an undisturbed gang makes.
func (c *testCluster) succeedsAs(id gang.ID, attempt int, want film) {
	c.t.Helper()
	if s := c.reaches(id, 2*time.Minute, gang.Succeeded); s.Attempt != attempt || s.Artifact.SHA256 != want.sha256 {
		c.t.Errorf("attempt %d made the video %s, undisturbed it is %s (%s)", s.Attempt, s.Artifact.SHA256, want.sha256, s.Why)
	}
}

// onTheWay waits until a gang has made its first steps.
func (c *testCluster) onTheWay(id gang.ID) gang.Status {
	c.t.Helper()
	c.reaches(id, time.Minute, gang.Running)
	var s gang.Status
	c.eventually(time.Minute, fmt.Sprintf("gang %s makes steps", id), func() string {
		if s = c.status(id); s.State != gang.Running {
			c.t.Fatalf("gang %s is %s at attempt %d: %s", id, s.State, s.Attempt, s.Why)
		}
		if s.Progress.Step < 3 {
			return fmt.Sprintf("progress %+v", *s.Progress)
		}
		return ""
	})
	return s
}

// sameRanks: the ranks of a placement are the processes that they were.
func (c *testCluster) sameRanks(s gang.Status, ranks []process) {
	c.t.Helper()
	if was, is := pids(ranks), pids(c.ranks(s)); len(was) != s.GPUs || !slices.Equal(was, is) {
		c.t.Errorf("the ranks of gang %s were processes %v and are %v", s.ID, was, is)
	}
}

func pids(ps []process) []int {
	var out []int
	for _, p := range ps {
		out = append(out, p.pid)
	}
	return out
}

// absent says what is missing for a node's agent and driver plugin to be there,
// for Nomad and for gangd.
func (c *testCluster) absent(name string) string {
	c.t.Helper()
	n := c.nomadNode(name)
	if driver := n.Drivers["gang"]; n.Status != nomadapi.NodeStatusReady || driver == nil || !driver.Healthy {
		return fmt.Sprintf("Nomad calls it %s, its driver %+v", n.Status, driver)
	}
	if n := c.node(name); n.State != "ready" {
		return fmt.Sprintf("gangd calls it %s: %s", n.State, n.Why)
	}
	return ""
}

// node and nomadNode are what gangd and Nomad say of a node.
func (c *testCluster) node(name string) cluster.NodeStatus {
	c.t.Helper()
	for _, n := range c.nodes() {
		if n.Name == name {
			return n
		}
	}
	c.t.Fatalf("gangd does not know %s", name)
	return cluster.NodeStatus{}
}

func (c *testCluster) nomadNode(name string) *nomadapi.Node {
	c.t.Helper()
	stubs, _, err := c.nomad.Nodes().List(nil)
	must(c.t, err)
	for _, stub := range stubs {
		if stub.Name == name {
			n, _, err := c.nomad.Nodes().Info(stub.ID, nil)
			must(c.t, err)
			return n
		}
	}
	c.t.Fatalf("Nomad does not know %s", name)
	return nil
}

var loggedStep = regexp.MustCompile(`(?m)^rank (\d+) \| .* step (\d+) of \d+$`)

// readable: what the ranks of member 1 say from now on comes to Nomad's log,
// and Nomad tells in words what became of the lane.
func (c *testCluster) readable(id gang.ID) {
	c.t.Helper()
	s := c.status(id)
	if s.State != gang.Running {
		c.t.Fatalf("gang %s is %s already, attempt %d: %s", id, s.State, s.Attempt, s.Why)
	}
	member, now := s.Lanes[1], s.Progress.Step
	c.eventually(10*time.Second, fmt.Sprintf("the log has what each rank of member 1 says after step %d", now), func() string {
		out, err := c.tryRun("nomad", "alloc", "logs", "-stderr", member.Allocation)
		if err != nil {
			return err.Error()
		}
		said := make(map[string]bool)
		for _, m := range loggedStep.FindAllStringSubmatch(out, -1) {
			if step, _ := strconv.Atoi(m[2]); step > now {
				said[m[1]] = true
			}
		}
		if len(said) < len(member.GPUs) {
			return fmt.Sprintf("of the ranks %v of %d; it reads\n%s", said, len(member.GPUs), out)
		}
		return ""
	})
	out := c.run("nomad", "alloc", "status", member.Allocation)
	for _, event := range []string{
		fmt.Sprintf("Admitted by gangd (lane %s)", member.Lane),
		"Runner ready: 8 ranks in ",
		fmt.Sprintf("Gang %s attempt 1 started (member 1, ranks 8-15)", id),
	} {
		if !strings.Contains(out, event) {
			c.t.Errorf("the task's events lack %q:\n%s", event, out)
		}
	}
}

// killDriver kills the process of a node's driver plugin; the agent is to
// start another.
func (c *testCluster) killDriver(node string) {
	c.t.Helper()
	old := c.drivers(node)
	for _, p := range old {
		p.kill(c.t)
	}
	c.newDriver(node, old)
}

// replaceDriver puts another program in the driver plugin's place, as an
// upgrade does, and restarts the agent to take it up.
func (c *testCluster) replaceDriver(node string) {
	c.t.Helper()
	name, staged := filepath.Join(c.dir, "plugins", "gangd-driver"), filepath.Join(c.dir, "gangd-driver.new")
	program, err := os.ReadFile(name)
	must(c.t, err)
	program = append(program, "another build"...) // which does the same
	must(c.t, os.WriteFile(staged, program, 0o755))
	must(c.t, os.Rename(staged, name))
	old := c.drivers(node)
	c.agent("stop", node)
	c.agent("start", node)
	runs, err := os.ReadFile(fmt.Sprintf("/proc/%d/exe", c.newDriver(node, old).pid))
	must(c.t, err)
	if !bytes.Equal(runs, program) {
		c.t.Error("the driver plugin that runs is not the new one")
	}
}

// newDriver waits for a driver plugin that is none of the old ones.
func (c *testCluster) newDriver(node string, old []process) (found process) {
	c.t.Helper()
	c.eventually(20*time.Second, node+" has a new driver plugin", func() string {
		for _, p := range c.drivers(node) {
			if !slices.Contains(pids(old), p.pid) {
				found = p
				return ""
			}
		}
		return fmt.Sprintf("the old ones were %v", pids(old))
	})
	return found
}

// drivers lists the processes of a node's driver plugin: more than one only
// while that of an agent that was killed still lives.
func (c *testCluster) drivers(node string) []process {
	return slices.DeleteFunc(c.processesOf(node), func(p process) bool {
		return p.cmdline != filepath.Join(c.dir, "plugins", "gangd-driver")
	})
}

// processesOf lists all that runs on a simulated node: the agent, plugins, what
// Nomad starts beside a task, keepers and ranks.
func (c *testCluster) processesOf(node string) []process {
	dir := filepath.Join(c.dir, node) + "/"
	return slices.DeleteFunc(processes(), func(p process) bool {
		cwd, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", p.pid))
		return !strings.HasPrefix(cwd+"/", dir) && !strings.Contains(p.cmdline, dir) && !strings.Contains(p.getenv("GANGD_RUNNER_SOCKET"), dir)
	})
}

// nodeDies kills all that runs on a node of a running gang, and brings the node
// back before or after Nomad has given it up.
func (c *testCluster) nodeDies(t *testing.T, want film) {
	for _, d := range []struct {
		name  string
		until string // the node's status in Nomad
	}{
		{"and is back before Nomad has noticed", nomadapi.NodeStatusReady},
		{"and is back after Nomad called it down", nomadapi.NodeStatusDown},
	} {
		t.Run(d.name, func(t *testing.T) {
			c := c.with(t)
			id := c.submit(want.gang("bereft", 100*time.Millisecond))
			before := c.onTheWay(id)
			dead := before.Lanes[1]
			began := time.Now()
			c.killNode(dead.NodeName)
			again := c.startsElsewhere(id, dead)
			t.Logf("%s died; attempt 2 was decided %s and had started %s later", dead.NodeName,
				time.UnixMilli(again.Times.Decided).Sub(began).Round(10*time.Millisecond), time.UnixMilli(again.Times.Started).Sub(began).Round(10*time.Millisecond))
			c.eventually(40*time.Second, dead.NodeName+" is "+d.until, func() string {
				c.noStray(dead)
				if status := c.nomadNode(dead.NodeName).Status; status != d.until {
					return "Nomad calls it " + status
				}
				return ""
			})
			c.agent("start", dead.NodeName)
			c.eventually(20*time.Second, dead.NodeName+" is back", func() string {
				c.noStray(dead)
				return c.absent(dead.NodeName)
			})
			c.succeedsAs(id, 2, want)
			c.idle(time.Minute)
			c.noAllocation(dead)
		})
	}
}

// killNode kills all that runs on a node, the agent first.
func (c *testCluster) killNode(node string) {
	c.t.Helper()
	c.agent("kill", node)
	c.eventually(10*time.Second, "all of "+node+" is dead", func() string {
		left := c.processesOf(node)
		for _, p := range left {
			if err := syscall.Kill(p.pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
				must(c.t, err)
			}
		}
		if len(left) > 0 {
			return fmt.Sprintf("%d processes live", len(left))
		}
		return ""
	})
}

// startsElsewhere waits for attempt 2, which has nothing on the dead node.
func (c *testCluster) startsElsewhere(id gang.ID, dead gang.MemberStatus) gang.Status {
	c.t.Helper()
	var s gang.Status
	c.eventually(15*time.Second, fmt.Sprintf("gang %s starts elsewhere", id), func() string {
		c.noStray(dead)
		if s = c.status(id); s.State != gang.Running || s.Attempt == 1 {
			return fmt.Sprintf("it is %s (attempt %d): %s%s", s.State, s.Attempt, s.Why, s.Reason)
		}
		return ""
	})
	for _, m := range s.Members {
		if m.Node == dead.Node {
			c.t.Errorf("attempt %d has a member on the dead node %s", s.Attempt, dead.NodeName)
		}
	}
	return s
}

// noStray: no rank of the dead member lives.
func (c *testCluster) noStray(dead gang.MemberStatus) {
	c.t.Helper()
	for _, p := range c.allRanks() {
		if p.getenv("GANGD_LANE") == string(dead.Lane) {
			c.t.Fatalf("a stray rank of lane %s started on %s: process %d", dead.Lane, dead.NodeName, p.pid)
		}
	}
}

// noAllocation waits until Nomad thinks of no allocation of the dead member as
// living: one that it called lost is stopped once its agent is back.
func (c *testCluster) noAllocation(dead gang.MemberStatus) {
	c.t.Helper()
	c.eventually(time.Minute, "no allocation of lane "+string(dead.Lane)+" lives", func() string {
		c.noStray(dead)
		allocations, _, err := c.nomad.Nodes().Allocations(dead.Node, nil)
		must(c.t, err)
		for _, a := range allocations {
			if strings.HasPrefix(a.JobID, dead.Job) && !a.ClientTerminalStatus() {
				return fmt.Sprintf("%s is %s, desired %s", a.ID, a.ClientStatus, a.DesiredStatus)
			}
		}
		return ""
	})
}
