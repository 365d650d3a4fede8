package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	nomadapi "github.com/hashicorp/nomad/api"

	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/runner"
)

// ranksPerNode of the gang that is started, on each of two nodes.
const ranksPerNode = 8

// BenchmarkStart compares, in one run and turn by turn, what Nomad alone takes
// to start the same 16 runners as two pinned raw_exec jobs, and what gangd
// takes to start them as a gang of two members on the same nodes. The metrics
// are medians in milliseconds, from the dispatch or the submission: raw-ms until
// both tasks of Nomad started, raw-ready-ms until all their runners were ready;
// admitted-ms until the last keeper was admitted, ready-ms until all its
// runners were ready, started-ms until every member had its order to run.
func BenchmarkStart(b *testing.B) {
	c := start(b, options{base: 5600, clients: 2})
	nodes := c.nodes()
	dir := b.TempDir()
	for i, n := range nodes {
		c.registerRaw(fmt.Sprint("raw-", i), n.ID, filepath.Join(dir, fmt.Sprint("node", i)))
	}
	took := make(map[string][]float64)
	for b.Loop() {
		raw, rawReady := c.dispatchRaw(len(nodes), dir)
		took["raw-ms"], took["raw-ready-ms"] = append(took["raw-ms"], raw), append(took["raw-ready-ms"], rawReady)
		id := c.submit(gangFile("bench", "gpus = 16\ngpus_per_node = 8", "steps = 1\nwidth = 64\nheight = 64\nframes = 16"))
		s := c.reaches(id, time.Minute, gang.Succeeded)
		for name, at := range map[string]int64{"admitted-ms": s.Times.Admitted, "ready-ms": s.Times.Ready, "started-ms": s.Times.Started} {
			took[name] = append(took[name], float64(at-s.Accepted))
		}
		c.idle(time.Minute)
	}
	for _, name := range []string{"raw-ms", "raw-ready-ms", "admitted-ms", "ready-ms", "started-ms"} {
		values := took[name]
		slices.Sort(values)
		b.ReportMetric(values[len(values)/2], name)
		b.Logf("%-12s min %5.0f, median %5.0f, max %5.0f of %d", name, values[0], values[len(values)/2], values[len(values)-1], len(values))
	}
}

// registerRaw registers a parameterized job that is pinned to a node, and
// starts one runner a rank; they find the benchmark at sockets named prefix.RANK.
func (c *testCluster) registerRaw(id, node, prefix string) {
	c.t.Helper()
	script := fmt.Sprintf("for r in $(seq 0 %d); do LOCAL_RANK=$r %s=%s.$r %s & done; wait",
		ranksPerNode-1, runner.EnvSocket, prefix, filepath.Join(c.root, ".bin/gangd-ddim"))
	job := nomadapi.NewBatchJob(id, id, "global", 50)
	job.Datacenters = []string{"*"}
	job.ParameterizedJob = &nomadapi.ParameterizedJobConfig{}
	job.Constrain(nomadapi.NewConstraint("${node.unique.id}", "=", node))
	task := nomadapi.NewTask("runners", "raw_exec")
	task.SetConfig("command", "/bin/sh").SetConfig("args", []string{"-c", script})
	task.LogConfig = &nomadapi.LogConfig{MaxFiles: new(1), MaxFileSizeMB: new(1)}
	group := nomadapi.NewTaskGroup("member", 1)
	group.EphemeralDisk = &nomadapi.EphemeralDisk{SizeMB: new(20)}
	group.RestartPolicy = &nomadapi.RestartPolicy{Attempts: new(0)}
	group.ReschedulePolicy = &nomadapi.ReschedulePolicy{Attempts: new(0), Unlimited: new(false)}
	job.AddTaskGroup(group.AddTask(task))
	_, _, err := c.nomad.Jobs().Register(job, nil)
	must(c.t, err)
}

// dispatchRaw dispatches all raw jobs at once, and returns the milliseconds
// until the last one's task had started, and until the last runner was ready.
// It ends when all of them have.
func (c *testCluster) dispatchRaw(n int, dir string) (started, ready float64) {
	c.t.Helper()
	readyAt := c.awaitRunners(n, dir)
	began := time.Now()
	children := make([]string, n)
	for i := range n {
		answer, _, err := c.nomad.Jobs().Dispatch(fmt.Sprint("raw-", i), nil, nil, "", nil)
		must(c.t, err)
		children[i] = answer.DispatchedJobID
	}
	lastReady := readyAt()
	var last time.Time
	for _, child := range children {
		c.eventually(30*time.Second, child+" starts and ends", func() string {
			allocations, _, err := c.nomad.Jobs().Allocations(child, true, nil)
			must(c.t, err)
			for _, a := range allocations {
				if s := a.TaskStates["runners"]; s != nil && !s.FinishedAt.IsZero() {
					if s.StartedAt.After(last) {
						last = s.StartedAt
					}
					return ""
				}
			}
			return "its task has not ended"
		})
	}
	return millis(last.Sub(began)), millis(lastReady.Sub(began))
}

// awaitRunners listens for the runners of n raw jobs, and returns a function
// that waits until all were ready and says when the last one was. A runner ends
// when its connection does.
func (c *testCluster) awaitRunners(n int, dir string) func() time.Time {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 30*time.Second)
	type result struct {
		conn *runner.Conn
		at   time.Time
		err  error
	}
	results := make(chan result, n*ranksPerNode)
	for i := range n * ranksPerNode {
		l, err := runner.Listen(filepath.Join(dir, fmt.Sprintf("node%d.%d", i/ranksPerNode, i%ranksPerNode)))
		must(c.t, err)
		go func() {
			defer l.Close()
			conn, _, err := l.Accept(ctx)
			if err == nil {
				_, err = conn.Receive() // ready follows hello
			}
			results <- result{conn, time.Now(), err}
		}()
	}
	return func() time.Time {
		defer cancel()
		var last time.Time
		for range n * ranksPerNode {
			r := <-results
			must(c.t, r.err)
			defer r.conn.Close()
			if r.at.After(last) {
				last = r.at
			}
		}
		return last
	}
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
