package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	nomadapi "github.com/hashicorp/nomad/api"

	"github.com/gangd/gangd/internal/gang"
)

// BenchmarkStart compares, in one run and turn by turn, what Nomad alone takes
// to start two pinned raw_exec jobs, and what gangd takes to start a gang of
// two members on the same nodes. The metrics are medians in milliseconds:
// raw-ms from the dispatch until both tasks started; admitted-ms, ready-ms and
// started-ms from the acceptance until the last keeper was admitted, the last
// runner was ready, and every member was told to run.
func BenchmarkStart(b *testing.B) {
	c := start(b, options{base: 5600, clients: 2})
	nodes := c.nodes()
	for i, n := range nodes {
		c.registerRaw(fmt.Sprint("raw-", i), n.ID)
	}
	var raw, admitted, ready, started []float64
	for b.Loop() {
		raw = append(raw, c.dispatchRaw(len(nodes)))
		id := c.submit(gangFile("bench", "gpus = 16\ngpus_per_node = 8", "steps = 1\nwidth = 64\nheight = 64\nframes = 16"))
		s := c.reaches(id, time.Minute, gang.Succeeded)
		admitted = append(admitted, float64(s.Times.Admitted-s.Accepted))
		ready = append(ready, float64(s.Times.Ready-s.Accepted))
		started = append(started, float64(s.Times.Started-s.Accepted))
		c.idle(time.Minute)
	}
	for name, values := range map[string][]float64{"raw-ms": raw, "admitted-ms": admitted, "ready-ms": ready, "started-ms": started} {
		slices.Sort(values)
		b.ReportMetric(values[len(values)/2], name)
		b.Logf("%s: min %.0f, median %.0f, max %.0f of %d", name, values[0], values[len(values)/2], values[len(values)-1], len(values))
	}
}

// registerRaw registers a parameterized job that is pinned to a node.
func (c *testCluster) registerRaw(id, node string) {
	c.t.Helper()
	job := nomadapi.NewBatchJob(id, id, "global", 50)
	job.Datacenters = []string{"*"}
	job.ParameterizedJob = &nomadapi.ParameterizedJobConfig{}
	job.Constrain(nomadapi.NewConstraint("${node.unique.id}", "=", node))
	task := nomadapi.NewTask("sleep", "raw_exec")
	task.SetConfig("command", "/bin/sleep").SetConfig("args", []string{"0.2"})
	task.LogConfig = &nomadapi.LogConfig{MaxFiles: new(1), MaxFileSizeMB: new(1)}
	group := nomadapi.NewTaskGroup("member", 1)
	group.EphemeralDisk = &nomadapi.EphemeralDisk{SizeMB: new(20)}
	job.AddTaskGroup(group.AddTask(task))
	_, _, err := c.nomad.Jobs().Register(job, nil)
	must(c.t, err)
}

// dispatchRaw dispatches all raw jobs at once, and returns the milliseconds
// until the last one's task had started.
func (c *testCluster) dispatchRaw(n int) float64 {
	c.t.Helper()
	began := time.Now()
	children := make([]string, n)
	for i := range n {
		answer, _, err := c.nomad.Jobs().Dispatch(fmt.Sprint("raw-", i), nil, nil, "", nil)
		must(c.t, err)
		children[i] = answer.DispatchedJobID
	}
	var last time.Time
	for _, child := range children {
		c.eventually(30*time.Second, child+" starts", func() string {
			allocations, _, err := c.nomad.Jobs().Allocations(child, true, nil)
			must(c.t, err)
			for _, a := range allocations {
				if s := a.TaskStates["sleep"]; s != nil && !s.StartedAt.IsZero() {
					if s.StartedAt.After(last) {
						last = s.StartedAt
					}
					return ""
				}
			}
			return "no task has started"
		})
	}
	return float64(last.Sub(began).Microseconds()) / 1000
}
