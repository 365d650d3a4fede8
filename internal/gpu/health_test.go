package gpu

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// fourGPUs are two NVLink islands of two.
func fourGPUs() []GPU {
	var gpus []GPU
	for i := range 4 {
		gpus = append(gpus, GPU{UUID: fmt.Sprintf("GPU-%d", i), Index: i, Island: i / 2, PCIBusID: fmt.Sprintf("0000:%02x:00.0", i)})
	}
	return gpus
}

var testPolicy = Policy{
	Poll: 10 * time.Second, PollBlind: time.Second,
	Retry: 4 * time.Second, RetryMax: 15 * time.Second, Forgive: time.Hour,
	BlindProbes: 3,
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func bad(h *Health) []int {
	var indexes []int
	for _, s := range h.Statuses() {
		if !s.Healthy {
			indexes = append(indexes, s.GPU.Index)
		}
	}
	return indexes
}

func reason(h *Health, index int) string { return h.Statuses()[index].Reason }

func TestXIDClasses(t *testing.T) {
	tests := []struct {
		xids  []uint64
		class Class
		bad   []int // after the XID on GPU 2
	}{
		{[]uint64{8, 11, 13, 31, 32, 68, 69, 94}, ClassApplication, nil},
		{[]uint64{38, 43, 44, 63, 92, 121, 137, 157, 160, 161}, ClassObserve, nil},
		{[]uint64{45}, ClassSecondary, nil},
		{[]uint64{46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158}, ClassReset, []int{2}},
		{[]uint64{48}, ClassWorkflow, []int{2}},
		{[]uint64{74, 144, 145, 146, 147, 148, 149, 150}, ClassLink, []int{2, 3}},
		{[]uint64{79}, ClassReboot, []int{0, 1, 2, 3}},
		{[]uint64{154}, ClassRecoveryAction, nil},
		{[]uint64{1, 47, 151, 9999}, ClassUnknown, []int{2}},
	}
	for _, tt := range tests {
		for _, xid := range tt.xids {
			h := NewHealth(fourGPUs(), testPolicy)
			records := h.XID(start, "GPU-2", xid)
			if len(records) != 1 || records[0].Class != tt.class || records[0].UUID != "GPU-2" {
				t.Errorf("XID %d: recorded %+v, want one of class %v", xid, records, tt.class)
			}
			if got := bad(h); !slices.Equal(got, tt.bad) {
				t.Errorf("XID %d: bad GPUs %v, want %v", xid, got, tt.bad)
			}
			for _, index := range tt.bad {
				r := reason(h, index)
				if !strings.Contains(r, fmt.Sprintf("XID %d", xid)) || !strings.Contains(r, "GPU 2") || !strings.HasSuffix(r, ".") {
					t.Errorf("XID %d: reason of GPU %d does not name the XID and the GPU in a sentence: %q", xid, index, r)
				}
			}
		}
	}
}

func TestReasonsSayWhatToDo(t *testing.T) {
	tests := []struct {
		xid   uint64
		index int
		want  string
	}{
		{119, 2, "nvidia-smi --gpu-reset -i 0000:02:00.0"},
		{48, 2, "field diagnostics"},
		{74, 2, "nvidia-smi nvlink -s"},
		{74, 3, "offered again when that one has recovered"},
		{79, 2, "reboot the node"},
		{79, 0, "reboot the node"},
		{9999, 2, "XID catalogue"},
	}
	for _, tt := range tests {
		h := NewHealth(fourGPUs(), testPolicy)
		h.XID(start, "GPU-2", tt.xid)
		if r := reason(h, tt.index); !strings.Contains(r, tt.want) {
			t.Errorf("XID %d on GPU 2, GPU %d: reason %q does not say %q", tt.xid, tt.index, r, tt.want)
		}
	}
}

// A secondary error changes nothing, and is noted with the one that it came with.
func TestSecondaryFollows(t *testing.T) {
	tests := []struct {
		first uint64
		after time.Duration
		cause uint64
		bad   []int
	}{
		{31, time.Second, 31, nil},
		{119, time.Second, 119, []int{1}},
		{31, time.Minute, 0, nil},
	}
	for _, tt := range tests {
		h := NewHealth(fourGPUs(), testPolicy)
		h.XID(start, "GPU-1", tt.first)
		r := h.XID(start.Add(tt.after), "GPU-1", 45)
		if r[0].Cause != tt.cause || !slices.Equal(bad(h), tt.bad) {
			t.Errorf("45 after %d by %v: cause %d, bad %v; want %d, %v", tt.first, tt.after, r[0].Cause, bad(h), tt.cause, tt.bad)
		}
	}
}

func TestUnnamedGPUCountsForAll(t *testing.T) {
	h := NewHealth(fourGPUs(), testPolicy)
	h.XID(start, "", 119)
	if got := bad(h); len(got) != 4 {
		t.Errorf("bad GPUs %v, want all", got)
	}
}

// The recovery action that is read decides what an XID 154 means.
func TestRecoveryAction(t *testing.T) {
	tests := []struct {
		action RecoveryAction
		bad    []int
		reason string
	}{
		{ActionNone, nil, ""},
		{ActionReset, []int{1}, "asks for a reset"},
		{ActionDrainAndReset, []int{1}, "asks for a reset"},
		{ActionBusReset, []int{1}, "asks for a reset"},
		{ActionDrainP2P, []int{1}, "peer-to-peer"},
		{ActionRecoverIMEX, []int{1}, "nvidia-imex"},
		{ActionReboot, []int{0, 1, 2, 3}, "reboot the node"},
		{ActionSystemReboot, []int{0, 1, 2, 3}, "reboot the node"},
		{ActionUnread, []int{1}, "XID 154"},
		{RecoveryAction(42), []int{1}, "action_42"},
	}
	for _, tt := range tests {
		h := NewHealth(fourGPUs(), testPolicy)
		h.Watch(start, func(string) bool { return true })
		for i := range 4 {
			h.Probed(start, start, fmt.Sprintf("GPU-%d", i), Probe{})
		}
		h.XID(start, "GPU-1", 154)
		if due := h.Due(start); !slices.Equal(due, []string{"GPU-1"}) {
			t.Errorf("action %v: due %v at once, want GPU-1", tt.action, due)
		}
		h.Probed(start, start, "GPU-1", Probe{Action: tt.action})
		if got := bad(h); !slices.Equal(got, tt.bad) || !strings.Contains(reason(h, 1), tt.reason) {
			t.Errorf("action %v: bad %v for %q, want %v for %q", tt.action, got, reason(h, 1), tt.bad, tt.reason)
		}
	}
}

// A driver that cannot tell the action is no reason to distrust a GPU.
func TestUnreadActionAloneIsFine(t *testing.T) {
	h := NewHealth(fourGPUs(), testPolicy)
	h.Probed(start, start, "GPU-0", Probe{Action: ActionUnread})
	if got := bad(h); got != nil {
		t.Errorf("bad GPUs %v, want none", got)
	}
}

// What no event told is found by a probe.
func TestProbeFindsFaults(t *testing.T) {
	tests := []struct {
		name  string
		probe Probe
		bad   []int
	}{
		{"silent", Probe{Err: errors.New("lost")}, []int{1}},
		{"wants a reset", Probe{Action: ActionReset}, []int{1}},
		{"wants a reboot", Probe{Action: ActionReboot}, []int{0, 1, 2, 3}},
		{"row remap pending", Probe{RemapPending: true}, nil},
		{"sound", Probe{}, nil},
	}
	for _, tt := range tests {
		h := NewHealth(fourGPUs(), testPolicy)
		h.Probed(start, start, "GPU-1", tt.probe)
		if got := bad(h); !slices.Equal(got, tt.bad) {
			t.Errorf("%s: bad GPUs %v, want %v", tt.name, got, tt.bad)
		}
	}
}

// A bad GPU is offered again after a probe that finds nothing, and the GPUs that
// were bad for its sake with it.
func TestRecovery(t *testing.T) {
	tests := []struct {
		name   string
		xid    uint64
		probes []Probe
		bad    []int // after the probes of GPU 2
	}{
		{"sound", 119, []Probe{{}}, nil},
		{"still to be reset", 119, []Probe{{Action: ActionReset}}, []int{2}},
		{"reset at last", 119, []Probe{{Action: ActionReset}, {}}, nil},
		{"rows wait for a reset", 48, []Probe{{RemapPending: true}}, []int{2}},
		{"no rows left", 64, []Probe{{RemapFailed: true}}, []int{2}},
		{"silent", 119, []Probe{{Err: errors.New("lost")}}, []int{2}},
		{"peers follow", 74, []Probe{{}}, nil},
		{"node follows", 79, []Probe{{}}, nil},
		{"node waits", 79, []Probe{{Err: errors.New("lost")}}, []int{0, 1, 2, 3}},
		{"worse than thought", 119, []Probe{{Action: ActionReboot}}, []int{0, 1, 2, 3}},
		{"old driver, little evidence", 119, []Probe{{Action: ActionUnread}, {Action: ActionUnread}}, []int{2}},
		{"old driver, enough evidence", 119, []Probe{{Action: ActionUnread}, {Action: ActionUnread}, {Action: ActionUnread}}, nil},
		{"old driver, evidence begins anew", 119, []Probe{{Action: ActionUnread}, {Action: ActionUnread}, {RemapPending: true}, {Action: ActionUnread}}, []int{2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := NewHealth(fourGPUs(), testPolicy)
			now := start
			h.XID(now, "GPU-2", tt.xid)
			for _, p := range tt.probes {
				now = now.Add(time.Minute)
				h.Probed(now, now, "GPU-2", p)
			}
			if got := bad(h); !slices.Equal(got, tt.bad) {
				t.Errorf("bad GPUs %v, want %v", got, tt.bad)
			}
		})
	}
}

func TestNoSpareRowsIsSaid(t *testing.T) {
	h := NewHealth(fourGPUs(), testPolicy)
	h.XID(start, "GPU-2", 64)
	h.Probed(start.Add(time.Minute), start.Add(time.Minute), "GPU-2", Probe{RemapFailed: true})
	if r := reason(h, 2); !strings.Contains(r, "XID 64") || !strings.Contains(r, "board replaced") {
		t.Errorf("reason %q", r)
	}
}

// The waits after a fault double with each failed probe and each new fault, up
// to the limit.
func TestBackoff(t *testing.T) {
	h := NewHealth(fourGPUs()[:1], testPolicy)
	now := start
	wait := func() time.Duration {
		return h.Next(now.Add(24*time.Hour), func(string) bool { return false }).Sub(now)
	}
	h.XID(now, "GPU-0", 119)
	for _, want := range []time.Duration{4, 8, 15, 15} {
		if got := wait(); got != want*time.Second {
			t.Fatalf("wait before the next probe %v, want %vs", got, int(want))
		}
		now = now.Add(wait())
		h.Probed(now, now, "GPU-0", Probe{Action: ActionReset})
	}
	h.Probed(now, now, "GPU-0", Probe{})
	if got := wait(); got != testPolicy.PollBlind {
		t.Errorf("wait before the poll of a sound GPU without events %v, want %v", got, testPolicy.PollBlind)
	}
	h.XID(now, "GPU-0", 119)
	if got := wait(); got != 8*time.Second {
		t.Errorf("wait after a second fault %v, want 8s", got)
	}
	now = now.Add(testPolicy.Forgive)
	h.XID(now, "GPU-0", 119)
	if got := wait(); got != 4*time.Second {
		t.Errorf("wait after a fault long after the last %v, want 4s", got)
	}
}

// The answer to a question asked before a fault does not clear it.
func TestStaleAnswerIsDropped(t *testing.T) {
	h := NewHealth(fourGPUs(), testPolicy)
	asked := start
	h.XID(asked.Add(time.Millisecond), "GPU-0", 119)
	h.Probed(asked.Add(2*time.Millisecond), asked, "GPU-0", Probe{})
	if got := bad(h); !slices.Equal(got, []int{0}) {
		t.Errorf("bad GPUs %v, want [0]", got)
	}
}

// A GPU's own fault is told before a neighbour's, and outlives it.
func TestOwnFaultOutlivesNeighbours(t *testing.T) {
	h := NewHealth(fourGPUs(), testPolicy)
	h.XID(start, "GPU-0", 79)
	h.XID(start, "GPU-3", 119)
	if r := reason(h, 3); !strings.Contains(r, "XID 119") {
		t.Errorf("reason of GPU 3 %q, want its own", r)
	}
	later := start.Add(time.Minute)
	h.Probed(later, later, "GPU-0", Probe{})
	if got := bad(h); !slices.Equal(got, []int{3}) {
		t.Errorf("bad GPUs %v, want [3]", got)
	}
}
