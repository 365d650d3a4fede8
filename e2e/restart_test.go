package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

// loadingTemplate is the reference template under the name "loading", with a
// runner that takes its time to load: its gangs are launching for a while.
func (c *testCluster) loadingTemplate() string {
	c.t.Helper()
	template, err := os.ReadFile(filepath.Join(c.root, "jobspecs/ddim/ddim.nomad.hcl"))
	must(c.t, err)
	out := strings.NewReplacer(`job "ddim"`, `job "loading"`, "default     = []", `default     = ["-load", "500ms"]`).Replace(string(template))
	name := filepath.Join(c.dir, "loading.nomad.hcl")
	must(c.t, os.WriteFile(name, []byte(out), 0o644))
	return name
}

// gangdComesBack ends gangd again and again while one gang runs, another one is
// launching and two wait.
func (c *testCluster) gangdComesBack(t *testing.T, want film) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	within := func(limit time.Duration) time.Duration { return time.Duration(random.Int64N(int64(limit))) }
	for _, end := range []struct {
		verb  string
		after time.Duration // the launching gang was accepted
	}{
		{"kill", within(500 * time.Millisecond)},
		{"kill", within(2500 * time.Millisecond)},
		{"stop", within(1500 * time.Millisecond)},
	} {
		t.Run(fmt.Sprintf("%s after %s", end.verb, end.after.Round(time.Millisecond)), func(t *testing.T) {
			c := c.with(t)
			running := c.submit(want.gang("running", 150*time.Millisecond))
			before := c.onTheWay(running)
			ranks := c.ranks(before)
			waiting := c.submitTogether("launching", "second", "third")
			<-time.After(end.after) // no condition: the moment is what is tried out
			states := c.states(waiting)
			began := time.Now()
			c.agent(end.verb, "gangd-0")
			ended := time.Since(began)
			c.agent("start", "gangd-0")
			t.Logf("gangd ended within %s and led again after %s; what waited was %v", ended.Round(10*time.Millisecond), time.Since(began).Round(10*time.Millisecond), states)
			c.sameRanks(before, ranks)
			c.succeedOnce(waiting)
			c.succeedsAs(running, 1, want)
			c.idle(time.Minute)
		})
	}
}

func (c *testCluster) states(ids []gang.ID) []gang.State {
	c.t.Helper()
	var out []gang.State
	for _, id := range ids {
		out = append(out, c.status(id).State)
	}
	return out
}

// submitTogether has gangs of 16 accepted at once, in this order.
func (c *testCluster) submitTogether(names ...string) []gang.ID {
	c.t.Helper()
	var file strings.Builder
	for _, name := range names {
		file.WriteString(strings.Replace(gangFile(name, "  gpus = 16\n  gpus_per_node = 8", "    steps = 3\n    frames = 16\n    width = 64\n    height = 64"),
			`template = "ddim"`, `template = "loading"`, 1))
	}
	var ids []gang.ID
	for _, id := range strings.Fields(string(c.submit(file.String()))) {
		ids = append(ids, gang.ID(id))
	}
	if len(ids) != len(names) {
		c.t.Fatalf("%d gangs were accepted as %v", len(names), ids)
	}
	return ids
}

// succeedOnce: each gang runs once, in lanes that were opened once, and their
// turns come in their order.
func (c *testCluster) succeedOnce(ids []gang.ID) {
	c.t.Helper()
	var decided []int64
	for _, id := range ids {
		var s gang.Status
		c.eventually(time.Minute, fmt.Sprintf("gang %s succeeds", id), func() string {
			c.openedOnce()
			if s = c.status(id); !s.State.Terminal() {
				return fmt.Sprintf("it is %s (attempt %d): %s%s", s.State, s.Attempt, s.Why, s.Reason)
			}
			return ""
		})
		if s.State != gang.Succeeded || s.Attempt != 1 {
			c.t.Fatalf("gang %s is %s at attempt %d: %s", id, s.State, s.Attempt, s.Why)
		}
		for _, m := range s.Members {
			c.allocatedOnce(m.Lane)
		}
		decided = append(decided, s.Times.Decided)
	}
	if !slices.IsSorted(decided) {
		c.t.Errorf("the turns of gangs %v came at %v", ids, decided)
	}
}

// openedOnce: no lane has more than its parent and one child in Nomad.
func (c *testCluster) openedOnce() {
	c.t.Helper()
	children := make(map[string][]string)
	for _, job := range c.laneJobs() {
		if parent, _, child := strings.Cut(job, "/dispatch-"); child {
			children[parent] = append(children[parent], job)
		}
	}
	for parent, all := range children {
		if len(all) > 1 {
			c.t.Errorf("lane job %s was dispatched %d times: %v", parent, len(all), all)
		}
	}
}

// allocatedOnce: Nomad has made one allocation for a lane, ever.
func (c *testCluster) allocatedOnce(lane gang.LaneID) {
	c.t.Helper()
	stubs, _, err := c.nomad.Allocations().List(nil)
	must(c.t, err)
	var of []string
	for _, a := range stubs {
		if strings.Contains(a.JobID, string(lane)) {
			of = append(of, a.ID)
		}
	}
	if len(of) != 1 {
		c.t.Errorf("lane %s has the allocations %v", lane, of)
	}
}
