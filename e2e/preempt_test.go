package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// protected is how long gangs of this cluster run before they may be stopped.
const protected = 2 * time.Second

var preemptionStories = []story{
	{"an interactive gang starts on a cluster full of background work", (*testCluster).makesRoom},
	{"an elastic gang shrinks to make room, and both run", (*testCluster).shrinks},
	{"a gang that would run into maintenance waits", (*testCluster).maintenance},
	{"a gang that is held waits, and gangs change their places", (*testCluster).wishes},
}

// TestPreemption tells its stories on two nodes of 8 GPUs.
func TestPreemption(t *testing.T) {
	c := start(t, options{base: 5800, clients: 2, vars: map[string]string{"nodes_per_leaf": "2", "ready_timeout": readyTimeout.String(), "protected": protected.String()}})
	for _, s := range preemptionStories {
		t.Run(s.name, func(t *testing.T) {
			c := c.with(t)
			t.Cleanup(c.cancelAll)
			s.tell(c)
			c.idle(patience)
		})
	}
}

// explained is what the CLI says in JSON of a gang.
func (c *testCluster) explained(id gang.ID) gang.Outlook {
	c.t.Helper()
	var o gang.Outlook
	must(c.t, json.Unmarshal([]byte(c.run("gangd", "explain", "-json", string(id))), &o))
	return o
}

// mayBeStopped waits until gangs have run for so long that others may stop them.
func (c *testCluster) mayBeStopped(ids ...gang.ID) {
	c.t.Helper()
	c.eventually(patience, "nobody is protected", func() string {
		for _, id := range ids {
			if o := c.explained(id); o.Protected != 0 {
				return fmt.Sprintf("%s is, until %s", id, time.UnixMilli(o.Protected))
			}
		}
		return ""
	})
}

func (c *testCluster) shares() gang.Shares {
	c.t.Helper()
	var s gang.Shares
	must(c.t, json.Unmarshal([]byte(c.run("gangd", "shares", "-json")), &s))
	return s
}

// held is the number of GPUs that gangd nodes shows as held.
func (c *testCluster) held() int {
	n := 0
	for _, node := range c.nodes() {
		for _, g := range node.GPUs {
			if g.Gang != "" {
				n++
			}
		}
	}
	return n
}

func (c *testCluster) makesRoom() {
	background := make([]gang.ID, 4)
	for i := range background {
		background[i] = c.submit(gangFile(fmt.Sprint("bulk", i), shape(4, 4, `tier = "background"`, `tenant = "bulk"`), paced(1500*time.Millisecond)))
	}
	for _, id := range background {
		c.reaches(id, patience, gang.Running)
	}
	c.mayBeStopped(background...)
	asked := time.Now()
	id := c.submit(gangFile("draft", shape(8, 8, `tier = "interactive"`, `tenant = "people"`), paced(100*time.Millisecond)))
	s := c.reaches(id, patience, gang.Running, gang.Finishing, gang.Succeeded)
	c.t.Logf("the interactive gang runs %s after it was asked for; decided after %d ms", time.Since(asked).Round(time.Millisecond), s.Times.Decided-s.Accepted)

	sum := c.shares()
	running := 0
	for _, r := range sum.Tenants {
		running += r.Running
	}
	if held := c.held(); running != sum.Running || sum.Running+sum.Free != sum.Capacity || sum.Capacity != 16 || held > sum.Running {
		c.t.Errorf("tenants run on %d GPUs, %d are said to be running and %d free of %d; nodes show %d held", running, sum.Running, sum.Free, sum.Capacity, held)
	}
	stopped := 0
	for _, low := range background {
		o := c.explained(low)
		if len(o.Attempts) == 0 {
			continue
		}
		stopped++
		a := o.Attempts[0]
		if a.Cause != "preempted" || a.For != id || a.LostGPUMillis < 4*protected.Milliseconds() || o.Failures != 0 {
			c.t.Errorf("%s: %+v, failures %d", low, a, o.Failures)
		}
		text := c.run("gangd", "explain", string(low))
		c.contains(text, "preempted, to make room for gang "+string(id)+" (tier interactive, 8 GPUs)", "GPU-s")
		c.t.Logf("gangd explain %s\n%s", low, text)
		c.isRecorded(low, id)
	}
	if stopped != 2 {
		c.t.Errorf("%d gangs of 4 GPUs were stopped for one of 8", stopped)
	}
	for _, each := range append(background, id) {
		c.reaches(each, 2*patience, gang.Succeeded)
	}
	c.chargedRightly()
}

func (c *testCluster) maintenance() {
	c.contains(c.run("gangd", "maintenance", "power", "-all", "-from", "1m", "-until", "1h"), "power", "the whole cluster")
	id := c.submit(gangFile("long", shape(8, 8, `estimate = "10m"`), paced(50*time.Millisecond)))
	c.eventually(patience, "it waits for the window", func() string {
		if o := c.explained(id); o.Code != gang.CodeMaintenance {
			return fmt.Sprintf("%s, %s: %s", o.State, o.Code, o.Reason)
		}
		return ""
	})
	text := c.run("gangd", "explain", string(id))
	c.contains(text, "maintenance window power begins there in")
	c.t.Logf("gangd explain %s\n%s", id, text)
	c.contains(c.run("gangd", "maintenance", "power", "-delete"), "No maintenance is planned.")
	c.reaches(id, patience, gang.Succeeded)
	c.run("gangd", "maintenance", "now", "-node", "client-0", "-until", "1h")
	c.eventually(patience, "the node is under maintenance", func() string {
		for _, n := range c.nodes() {
			if n.Name == "client-0" && n.State != cluster.NodeMaintenance {
				return fmt.Sprintf("%s: %s", n.State, n.Why)
			}
		}
		return ""
	})
	c.t.Logf("gangd nodes\n%s", c.run("gangd", "nodes"))
	c.run("gangd", "maintenance", "now", "-delete")
}

// isRecorded: the agent's recording tells of one that was stopped for another.
func (c *testCluster) isRecorded(stopped, preemptor gang.ID) {
	c.t.Helper()
	c.eventually(patience, "the recording tells of the stop", func() string {
		text := c.run("gangd", "sim", "-replay", filepath.Join(c.dir, "gangd-0", "record.jsonl"), "-explain", string(stopped))
		if !strings.Contains(text, "preempted, hard, for "+string(preemptor)) {
			return text
		}
		c.t.Logf("gangd sim -replay record.jsonl -explain %s\n%s", stopped, text)
		return ""
	})
}

// chargedRightly: once nothing runs, what tenants were charged is what gangs
// used.
func (c *testCluster) chargedRightly() {
	c.t.Helper()
	c.idle(patience)
	used := make(map[string]int64)
	var all struct{ Gangs []gang.Status }
	must(c.t, c.get("/v1/gangs?limit=1000", &all))
	for _, g := range all.Gangs {
		used[g.Tenant] += g.GPUMillis
	}
	for _, r := range c.shares().Tenants {
		if r.GPUMillis != used[r.Name] || r.Running != 0 {
			c.t.Errorf("tenant %s was charged %d GPU-ms, its gangs used %d; it runs on %d", r.Name, r.GPUMillis, used[r.Name], r.Running)
		}
	}
	c.t.Logf("gangd shares\n%s", c.run("gangd", "shares"))
}

func (c *testCluster) shrinks() {
	low := c.submit(gangFile("wide", shape(16, 8, `tier = "background"`, `estimate = "10m"`, `elastic = { "8" = "20m", "16" = "10m" }`), paced(1500*time.Millisecond)))
	c.reaches(low, patience, gang.Running)
	c.mayBeStopped(low)
	high := c.submit(gangFile("quick", shape(8, 8, `tier = "interactive"`), paced(1500*time.Millisecond)))
	c.reaches(high, patience, gang.Running)
	s := c.reaches(low, patience, gang.Running)
	if a := s.Attempts[0]; a.Cause != "resized" || a.For != high || s.Members.GPUs() != 8 {
		c.t.Errorf("it runs on %v; its first attempt is kept as %+v", s.Members, a)
	}
	c.contains(c.run("gangd", "explain", string(low)), "8 of the 16 that it prefers", "stopped to run on 8 GPUs")
	c.onItsGPUs(s)
	for _, id := range []gang.ID{high, low} {
		c.reaches(id, 2*patience, gang.Succeeded)
	}
}

func (c *testCluster) wishes() {
	busy := c.submit(gangFile("busy", shape(16, 8), paced(300*time.Millisecond)))
	one := c.submit(gangFile("one", shape(16, 8), brief))
	two := c.submit(gangFile("two", shape(16, 8), brief))
	c.run("gangd", "hold", string(one))
	three := c.submit(gangFile("three", shape(16, 8), brief))
	c.contains(c.run("gangd", "reorder", "-before", string(two), string(three)), "is moved")
	c.contains(c.run("gangd", "explain", string(one)), "is held by its user")
	for _, id := range []gang.ID{busy, three, two} {
		c.reaches(id, 2*patience, gang.Succeeded)
	}
	a, b := c.status(three), c.status(two)
	if a.Times.Decided >= b.Times.Decided {
		c.t.Errorf("%s was moved before %s, and started %d ms after it", three, two, a.Times.Decided-b.Times.Decided)
	}
	if s := c.status(one); s.State != gang.Queued {
		c.t.Errorf("it is held, and %s", s.State)
	}
	if out := c.exits(1, "gangd", "hold", string(two)); !strings.Contains(out, "that is for gangs that wait") {
		c.t.Errorf("hold of one that has ended says %q", out)
	}
	c.run("gangd", "release", string(one))
	c.reaches(one, patience, gang.Succeeded)
}
