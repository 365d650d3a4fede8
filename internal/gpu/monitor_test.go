package gpu

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// inventories collects what a monitor tells.
type inventories struct {
	mu  sync.Mutex
	all []Inventory
}

func (i *inventories) add(inv Inventory) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.all = append(i.all, inv)
}

func (i *inventories) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.all)
}

func (i *inventories) newest() Inventory {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.all[len(i.all)-1]
}

// bad lists the unhealthy GPUs of the newest inventory; ok is false before the
// first.
func (i *inventories) bad() (indexes []int, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.all) == 0 {
		return nil, false
	}
	for _, s := range i.all[len(i.all)-1].GPUs {
		if !s.Healthy {
			indexes = append(indexes, s.GPU.Index)
		}
	}
	return indexes, true
}

func eventually(t *testing.T, limit time.Duration, what string, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline.C:
			t.Fatalf("not within %v: %s", limit, what)
		case <-tick.C:
		}
	}
}

func (i *inventories) wantBad(t *testing.T, limit time.Duration, want ...int) {
	t.Helper()
	var got []int
	defer func() {
		if t.Failed() {
			t.Logf("bad GPUs are %v, want %v", got, want)
		}
	}()
	eventually(t, limit, "the verdicts", func() bool {
		indexes, ok := i.bad()
		got = indexes
		return ok && slices.Equal(got, want)
	})
}

func runMonitor(t *testing.T, m *Monitor) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// The whole way from the fault file to the verdicts and back.
func TestMonitorFollowsFaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "faults")
	appendLines(t, path, "xid 119 gpu 6")
	var got inventories
	m, err := NewMonitor(MonitorConfig{
		Library: openMock(t, Mock{FaultFile: path}), Changed: got.add, Log: hclog.NewNullLogger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	runMonitor(t, m)
	got.wantBad(t, 2*time.Second, 6)
	if got.count() != 1 {
		t.Errorf("%d inventories before anything changed, want 1", got.count())
	}
	const budget = time.Second
	for _, step := range []struct {
		line string
		bad  []int
	}{
		{"recover gpu 6", nil},
		{"xid 119 gpu 2", []int{2}},
		{"xid 48 gpu 3", []int{2, 3}},
		{"recover gpu 2", []int{3}},
		{"recover all", nil},
		{"xid 79 gpu 1", []int{0, 1, 2, 3, 4, 5, 6, 7}},
		{"recover gpu 1", nil},
		{"xid 74 gpu 0", []int{0, 1, 2, 3, 4, 5, 6, 7}},
		{"recover gpu 0", nil},
		{"xid 154 gpu 5 action reset", []int{5}},
		{"recover gpu 5", nil},
	} {
		appendLines(t, path, step.line)
		got.wantBad(t, budget, step.bad...)
	}
	if v := got.newest().DriverVersion; v != "550.54.15" {
		t.Errorf("driver version %q", v)
	}
}

// A burst of events changes what it changes, and nothing of it is lost.
func TestMonitorTakesBursts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "faults")
	var got inventories
	m, err := NewMonitor(MonitorConfig{
		Library: openMock(t, Mock{FaultFile: path}), Changed: got.add, Log: hclog.NewNullLogger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	runMonitor(t, m)
	got.wantBad(t, 2*time.Second)
	var lines []string
	for range 500 {
		lines = append(lines, "xid 31 gpu 4", "xid 43 gpu 5")
	}
	appendLines(t, path, append(lines, "xid 109 gpu 7")...)
	got.wantBad(t, time.Second, 7)
	if got.count() != 2 {
		t.Errorf("%d inventories, want 2: application faults change nothing", got.count())
	}
}

// fakeSource is a driver whose events and answers the test gives.
type fakeSource struct {
	mu      sync.Mutex
	probes  map[string]Probe
	hang    map[string]chan struct{}
	watches int
	refuse  error // why events cannot be watched
	events  chan Event
	broken  chan error
}

func newFakeSource() *fakeSource {
	return &fakeSource{probes: map[string]Probe{}, hang: map[string]chan struct{}{}, events: make(chan Event, 10), broken: make(chan error)}
}

func (s *fakeSource) set(uuid string, p Probe) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.probes[uuid] = p
}

func (s *fakeSource) Probe(uuid string) Probe {
	s.mu.Lock()
	hang := s.hang[uuid]
	s.mu.Unlock()
	if hang != nil {
		<-hang
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.probes[uuid]
}

func (s *fakeSource) watch([]GPU) (watch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches++
	if s.refuse != nil {
		return nil, s.refuse
	}
	return s, nil
}

func (s *fakeSource) Watched(string) bool { return true }
func (s *fakeSource) Close() error        { return nil }

func (s *fakeSource) Wait(timeout time.Duration) (Event, error) {
	select {
	case e := <-s.events:
		return e, nil
	case err := <-s.broken:
		return Event{}, err
	case <-time.After(timeout):
		return Event{}, ErrNoEvent
	}
}

func fakeMonitor(t *testing.T, s *fakeSource, p Policy) *inventories {
	t.Helper()
	var got inventories
	runMonitor(t, newMonitor(s, fourGPUs(), "1.2", MonitorConfig{Policy: p, Changed: got.add, Log: hclog.NewNullLogger()}))
	return &got
}

// Without events, polls find the fault and the recovery.
func TestMonitorPollsWithoutEvents(t *testing.T) {
	s := newFakeSource()
	s.refuse = errors.New("not supported")
	got := fakeMonitor(t, s, Policy{Poll: time.Hour, PollBlind: 5 * time.Millisecond, Retry: 5 * time.Millisecond, RetryMax: 20 * time.Millisecond, BlindProbes: 1})
	got.wantBad(t, time.Second)
	s.set("GPU-2", Probe{Action: ActionReset})
	got.wantBad(t, time.Second, 2)
	s.set("GPU-2", Probe{})
	got.wantBad(t, time.Second)
}

// What happened while the watch was broken is found when it is mended.
func TestMonitorProbesAfterAGap(t *testing.T) {
	s := newFakeSource()
	never := Policy{Poll: time.Hour, PollBlind: time.Hour, Retry: time.Hour, RetryMax: time.Hour, BlindProbes: 1}
	got := fakeMonitor(t, s, never)
	got.wantBad(t, time.Second)
	s.set("GPU-3", Probe{Action: ActionReset})
	s.broken <- errors.New("broken")
	got.wantBad(t, time.Second, 3)
	eventually(t, 3*time.Second, "a second watch", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.watches == 2
	})
	s.events <- Event{UUID: "GPU-0", XID: 119}
	got.wantBad(t, time.Second, 0, 3)
}

// A GPU that hangs NVML holds up neither the inventory nor the others' events.
func TestMonitorOutlivesAHungProbe(t *testing.T) {
	s := newFakeSource()
	hang := make(chan struct{})
	s.hang["GPU-1"] = hang
	got := fakeMonitor(t, s, testPolicy)
	t.Cleanup(func() { close(hang) })
	got.wantBad(t, 2*firstProbes)
	s.events <- Event{UUID: "GPU-0", XID: 119}
	got.wantBad(t, time.Second, 0)
}

// An event that is no XID makes the GPU be looked at, now.
func TestMonitorLooksAfterOtherEvents(t *testing.T) {
	s := newFakeSource()
	got := fakeMonitor(t, s, Policy{Poll: time.Hour, PollBlind: time.Hour, Retry: time.Hour, RetryMax: time.Hour})
	got.wantBad(t, time.Second)
	s.set("GPU-1", Probe{Err: errors.New("lost")})
	s.events <- Event{UUID: "GPU-1"}
	got.wantBad(t, time.Second, 1)
	if r := got.newest().GPUs[1].Reason; !strings.Contains(r, "does not answer: lost") {
		t.Errorf("reason %q", r)
	}
}
