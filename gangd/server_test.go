package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gangd/gangd/internal/api"
	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// epoch is when the gangs of these tests were accepted, and clock when their
// users look.
var (
	epoch = time.Date(2026, 3, 14, 9, 26, 53, 0, time.UTC)
	clock = epoch.Add(2*time.Minute + 10*time.Second)
)

func after(d time.Duration) int64 { return gang.Millis(epoch.Add(d)) }

// world is a scheduler whose gangs go through what a test lays down.
type world struct {
	gangs   []gang.Status
	nodes   []cluster.NodeStatus
	shares  gang.Shares
	windows []gang.WindowStatus
	// life is what happens to a gang that is submitted, by its name.
	life   map[string][]gang.Status
	refuse error
	// busy is how many submissions are told to come again, and busyWith what they
	// are told; broken is how many streams end before their gang does, and leaderless how many are refused for
	// want of a leader after that.
	busy, broken, leaderless atomic.Int32
	busyWith                 error
}

func (w *world) Submit(_ context.Context, specs []gang.Spec) ([]gang.Status, error) {
	if w.refuse != nil {
		return nil, w.refuse
	}
	if w.busy.Add(-1) >= 0 {
		return nil, w.busyWith
	}
	var accepted []gang.Status
	for _, s := range specs {
		accepted = append(accepted, gang.Status{Record: gang.Record{
			Version: 1, ID: gang.NewID(s.Name, [5]byte{}), State: gang.Queued, Template: s.Template, Tier: s.Tier, Tenant: s.Tenant,
			GPUs: s.GPUs, PerNode: s.GPUsPerNode, Accepted: after(0),
		}})
	}
	return accepted, nil
}

func (w *world) find(id gang.ID) (*gang.Status, error) {
	for i := range w.gangs {
		if w.gangs[i].ID == id {
			return &w.gangs[i], nil
		}
	}
	return nil, fmt.Errorf("%w: %s", gang.ErrNotFound, id)
}

func (w *world) Gang(_ context.Context, id gang.ID) (gang.Status, error) {
	for name, life := range w.life {
		if gang.NewID(name, [5]byte{}) == id {
			return life[len(life)-1], nil
		}
	}
	g, err := w.find(id)
	if err != nil {
		return gang.Status{}, err
	}
	return *g, nil
}

func (w *world) Cancel(_ context.Context, id gang.ID) (gang.Status, error) {
	g, err := w.find(id)
	if err != nil {
		return gang.Status{}, err
	}
	next := *g
	next.State, next.Target = gang.Stopping, gang.Cancelled
	return next, nil
}

func (w *world) Hold(_ context.Context, id gang.ID, held bool) (gang.Status, error) {
	g, err := w.find(id)
	if err != nil {
		return gang.Status{}, err
	}
	if g.State != gang.Queued {
		return *g, fmt.Errorf("hold gang %s: it is %s: %w", id, g.State, gang.ErrNotWaiting)
	}
	next := *g
	next.Held = held
	return next, nil
}

func (w *world) Reorder(_ context.Context, id, before gang.ID, last bool) (gang.Status, error) {
	g, err := w.find(id)
	if err != nil {
		return gang.Status{}, err
	}
	if _, err := w.find(before); before != "" && err != nil {
		return gang.Status{}, err
	}
	next := *g
	if last {
		next.Position = 9
	}
	return next, nil
}

func (w *world) Outlook(_ context.Context, id gang.ID) (gang.Outlook, error) {
	g, err := w.find(id)
	if err != nil {
		return gang.Outlook{}, err
	}
	o := gang.Outlook{Status: *g}
	switch {
	case g.State == gang.Queued:
		o.Waiting, o.Starts = 12, gang.Millis(clock.Add(95*time.Second))
		o.Ahead = []gang.Ahead{{ID: "peak-00000001", Tier: "interactive", Tenant: "acme", GPUs: 64, Code: gang.CodeCapacity}}
	case g.State.Placed():
		o.Ends, o.Protected = gang.Millis(clock.Add(6*time.Minute)), gang.Millis(clock.Add(20*time.Second))
	}
	return o, nil
}

func (w *world) Shares(context.Context) (gang.Shares, error) { return w.shares, nil }

func (w *world) Windows(context.Context) ([]gang.WindowStatus, error) { return w.windows, nil }

func (w *world) PlanWindow(_ context.Context, of gang.Window) error {
	if err := of.Validate(); err != nil {
		return err
	}
	w.windows = append(w.windows, gang.WindowStatus{Window: of, NodeNames: of.Nodes})
	return nil
}

func (w *world) CallWindowOff(_ context.Context, name string) error {
	if len(w.windows) == 0 {
		return fmt.Errorf("call maintenance window %q off: %w", name, gang.ErrNoWindow)
	}
	w.windows = nil
	return nil
}

func (w *world) Gangs(_ context.Context, want gang.Selection) (list []gang.Status, total int, err error) {
	for _, g := range w.gangs {
		if !want.Takes(&g.Record) {
			continue
		}
		if total++; len(list) < want.Limit {
			list = append(list, g)
		}
	}
	return list, total, nil
}

func (w *world) Nodes(context.Context) ([]cluster.NodeStatus, error) { return w.nodes, nil }
func (w *world) Ready() error                                        { return nil }
func (w *world) Leader() (string, bool)                              { return "", true }

func (w *world) Watch(ctx context.Context, id gang.ID) (<-chan gang.Status, error) {
	if w.broken.Load() == 0 && w.leaderless.Add(-1) >= 0 {
		return nil, gang.ErrNotLeading
	}
	changes := make(chan gang.Status)
	go func() {
		defer close(changes)
		for name, life := range w.life {
			if gang.NewID(name, [5]byte{}) != id {
				continue
			}
			for _, g := range life {
				if g.State.Terminal() && w.broken.Add(-1) >= 0 {
					return
				}
				select {
				case changes <- g:
				case <-ctx.Done():
					return
				}
			}
			if !life[len(life)-1].State.Terminal() {
				<-ctx.Done()
			}
		}
	}()
	return changes, nil
}

type objects map[string]string

func (o objects) Open(_ context.Context, key string) (io.ReadCloser, int64, string, error) {
	text, ok := o[key]
	if !ok {
		return nil, 0, "", fs.ErrNotExist
	}
	return io.NopCloser(strings.NewReader(text)), int64(len(text)), "", nil
}

// start serves a world on loopback and returns its address.
func start(t *testing.T, w *world) string {
	t.Helper()
	s, err := api.New(api.Options{
		Scheduler: w, Blobs: objects{"sea/video.mp4": "moov!"}, Registry: prometheus.NewRegistry(),
		Log: hclog.NewNullLogger(), Levels: []string{"spine", "leaf"},
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	return server.URL
}

// testCluster has nodes in each state that a table must show.
func testCluster() []cluster.NodeStatus {
	var nodes []cluster.NodeStatus
	for i := range 4 {
		n := cluster.NodeStatus{
			ID: fmt.Sprintf("%d0c4f1de-5a0b-4e52-9d0c-7b8f6a3e21%02d", 3+i, i), Name: fmt.Sprintf("n-%d", i),
			Domains: []string{"s0", fmt.Sprintf("l%d", i/2)}, State: "ready", Free: 8, HeardMillis: 150,
		}
		for j := range 8 {
			n.GPUs = append(n.GPUs, cluster.GPUStatus{
				Index: j, UUID: fmt.Sprintf("GPU-%d0000000-0000-4000-8000-00000000000%d", i, j), Model: "NVIDIA H100 80GB HBM3",
				MemoryMiB: 80 << 10, Island: j / 4, NUMA: j / 4, Healthy: true,
			})
		}
		nodes = append(nodes, n)
	}
	for i := range 6 {
		g := &nodes[1].GPUs[i]
		g.Gang, g.Lane = "sea-k3v9qd2m", "7ks2mfq09abcdefg"
	}
	nodes[1].GPUs[6].Healthy, nodes[1].GPUs[6].Reason = false, "XID 79: GPU has fallen off the bus"
	nodes[1].GPUs[6].Faults = 2
	nodes[1].GPUs[7].Healthy, nodes[1].GPUs[7].Reason, nodes[1].GPUs[7].Job = false, "held by Nomad job notebook", "notebook"
	nodes[1].Free = 0
	nodes[1].Room = &cluster.RoomStatus{
		Capacity: cluster.Room{CPUMHz: 192_000, MemoryMiB: 1000 << 10}, Foreign: cluster.Room{CPUMHz: 8000, MemoryMiB: 100 << 10},
		Left: cluster.Room{CPUMHz: 136_000, MemoryMiB: 516 << 10},
	}
	nodes[2].State, nodes[2].Why, nodes[2].HeardMillis = "silent", "its plugins and keepers were last heard 12.4s ago", 12_400
	nodes = append(nodes, cluster.NodeStatus{
		ID: "70c4f1de-5a0b-4e52-9d0c-7b8f6a3e2199", Name: "spare", State: "unknown", Why: "no plugin has spoken for it", HeardMillis: -1,
	})
	return nodes
}

// seaRunning is a gang of two nodes in the middle of its second attempt.
func seaRunning() gang.Status {
	g := gang.Status{Record: gang.Record{
		Version: 1, ID: "sea-k3v9qd2m", State: gang.Running, Tenant: "default", Tier: "production", Template: "ddim",
		GPUs: 16, PerNode: 8, Accepted: after(0), Attempt: 2, Failures: 1, RunMillis: 20_000,
		Avoid: []string{"60c4f1de-5a0b-4e52-9d0c-7b8f6a3e2103"},
		Why:   "member 1 on n-3 was lost: its node went silent",
		Times: gang.Times{
			Queued: after(61 * time.Second), Decided: after(61_003 * time.Millisecond), Dispatched: after(61_048 * time.Millisecond), Allocated: after(61_402 * time.Millisecond),
			Admitted: after(61_610 * time.Millisecond), Ready: after(62_305 * time.Millisecond), Started: after(62_311 * time.Millisecond),
		},
	}}
	g.Spec = &gang.Spec{
		Name: "sea", Template: "ddim", GPU: "H100-80GB", GPUMemoryMiB: 60 << 10, Topology: gang.Topology{Require: "leaf"},
		Estimate: 90 * time.Second, InfraRetries: 3, Reuse: gang.ReuseTenant, Params: []byte(`{"prompt":"a red ball bounces over a blue sea","seed":7}`),
	}
	g.AvoidNames = []string{"n-3"}
	g.Attempts = []gang.Attempt{ended(1, 250*time.Millisecond, 60*time.Second, g.Why, 1, 0)}
	g.Progress = &gang.Progress{Stage: "denoise", Step: 24, Steps: 50, StepMillis: 1210}
	g.Lanes = lanes(gang.LaneBusy)
	return g
}

// ended is an attempt whose members ran on n-2, n-3, ..; the first is the one to
// blame.
func ended(n int, decided, end time.Duration, why string, members ...int) gang.Attempt {
	a := gang.Attempt{N: n, Decided: after(decided), Started: after(decided + time.Second), Ended: after(end), Why: why}
	for _, m := range members {
		a.Members = append(a.Members, gang.AttemptMember{
			Member: m, Node: fmt.Sprintf("%d0c4f1de-5a0b-4e52-9d0c-7b8f6a3e21%02d", 5+m, 2+m), NodeName: fmt.Sprintf("n-%d", 2+m),
			Allocation: fmt.Sprintf("%db0d571c-1111-2222-3333-44445555666%d", 4+m, n),
		})
	}
	return a
}

func lanes(state gang.LaneState) []gang.MemberStatus {
	return []gang.MemberStatus{
		{Member: 0, Node: "30c4f1de-5a0b-4e52-9d0c-7b8f6a3e2100", NodeName: "n-0", GPUs: []int{0, 1, 2, 3, 4, 5, 6, 7},
			Lane: "7ks2mfq09abcdefg", LaneState: state, Allocation: "8c1f0a77-1111-2222-3333-444455556666"},
		{Member: 1, Node: "40c4f1de-5a0b-4e52-9d0c-7b8f6a3e2101", NodeName: "n-1", GPUs: []int{4, 5, 6, 7, 0, 1, 2, 3},
			Lane: "q0vb77m1c8abcdef", LaneState: state, Allocation: "d09e4b12-1111-2222-3333-444455556666"},
	}
}

// testGangs has one gang in each state that a table must show.
func testGangs() []gang.Status {
	waiting := gang.Status{Record: gang.Record{Version: 1, ID: "lake-0a1b2c3d", State: gang.Queued, Tenant: "acme", Tier: "production",
		Template: "ddim", GPUs: 32, PerNode: 8, Accepted: after(100 * time.Second)}}
	waiting.Code, waiting.Position = gang.CodeFragmented, 1
	waiting.Reason = "32 GPUs are wanted within one leaf; leaf l0 has 9 free in whole nodes of 8, leaf l1 has 16 | 2 gangs are ahead"
	stopping := gang.Status{Record: gang.Record{Version: 1, ID: "lake-9z", State: gang.Stopping, Target: gang.Cancelled}}
	stopping.ID, stopping.Tenant, stopping.Tier, stopping.GPUs, stopping.Accepted = "lake-0a1bvvvv", "acme", "interactive", 1, after(30*time.Second)
	failed := gang.Status{Record: gang.Record{Version: 1, ID: "dune-5m5m5m5m", State: gang.Failed, Tenant: "acme", Tier: "background",
		Template: "ddim", GPUs: 8, PerNode: 8, Attempt: 1, Accepted: after(0) - 3_600_000,
		Why: "rank 3 said: \x1b[31mCUDA out of memory\ntried to allocate 2 GiB", Times: gang.Times{Ended: after(0) - 3_000_000}}}
	failed.Failures, failed.Spec = 2, &gang.Spec{InfraRetries: 1}
	failed.Attempt, failed.Attempts = 2, []gang.Attempt{
		ended(1, -time.Hour, -55*time.Minute, "rank 9 on n-3 ended in the midst of the run: killed by signal 9", 1, 0),
		ended(2, -55*time.Minute, -50*time.Minute, failed.Why, 0, 1),
	}
	done := seaRunning()
	done.ID, done.State, done.Progress, done.Lanes, done.Spec = "hill-7v7v7v7v", gang.Succeeded, nil, nil, nil
	done.Artifact = &gang.Artifact{Key: "hill-7v7v7v7v/video.mp4", SHA256: strings.Repeat("ab", 32), Bytes: 1_300_000, ContentType: "video/mp4"}
	done.Times.Ended, done.RunMillis, done.Why = after(100*time.Second), 57_689, ""
	done.Attempts = append(done.Attempts, ended(2, 61_003*time.Millisecond, 100*time.Second, "", 0, 1))
	return []gang.Status{stopping, seaRunning(), waiting, done, failed}
}
