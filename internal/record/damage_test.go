package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// eventful is a recording that begins in the middle of things and has a bit of
// everything.
func eventful(t testing.TB) []byte {
	rules := rules
	rules.Levels = []string{"spine", "leaf"}
	rules.Models = []schedule.Model{{Name: "wan", Load: 40 * time.Second, Speed: map[string]float64{"H100": 2}}}
	rules.Tenants = []schedule.Tenant{{Name: "capped", MaxGPUs: 8}, {Name: "sure", Guaranteed: 8, Weight: 2}}
	node := func(id, leaf string) schedule.NodeSet {
		n := aNode(id)
		n.Domains, n.CoreMHz = []string{"s0", leaf}, 500
		return schedule.NodeSet{Node: n}
	}
	gangOf := func(id string, seq uint64, tier string, gpus, perNode int, more func(*gang.Spec)) schedule.Submit {
		g := aGang(id, seq, tier)
		g.Spec.GPUs, g.Spec.GPUsPerNode, g.Spec.Estimate = gpus, perNode, 10*time.Minute
		if more != nil {
			more(g.Spec)
		}
		return schedule.Submit{Gang: g}
	}
	saves := func(s *gang.Spec) {
		s.Checkpoint = &gang.Checkpoint{Every: 10 * time.Second, Cost: time.Second, Restore: 5 * time.Second}
	}
	before := []schedule.Event{
		schedule.Together{node("n1", "l0"), node("n2", "l0"), node("n3", "l1"), schedule.Past{Tenant: "sure", GPUs: 1.5}},
		schedule.Occupy{Seat: schedule.Seat{ID: "old", Attempt: 1}, Place: gang.Member{Node: "n3", GPUs: []int{6, 7}}, Need: gang.Need{MemoryMiB: 5}},
		gangOf("wan1", 1, "low", 8, 8, func(s *gang.Spec) { saves(s); s.Model = "wan"; s.MemberNeed = gang.Need{MemoryMiB: 1 << 19} }),
		gangOf("flex", 2, "low", 8, 4, func(s *gang.Spec) {
			saves(s)
			s.Elastic = []gang.Size{{GPUs: 4, Run: 20 * time.Minute}, {GPUs: 8, Run: 10 * time.Minute}}
		}),
		gangOf("wide", 3, "low", 24, 8, func(s *gang.Spec) { s.Topology.Require = "spine" }),
		gangOf("urgent", 4, "high", 8, 8, func(s *gang.Spec) { s.Tenant = "sure" }),
		schedule.WindowSet{Window: schedule.Window{Name: "w", From: noon.Add(time.Hour), Until: noon.Add(2 * time.Hour), Level: "leaf", Domain: "l0"}},
		schedule.WindowSet{Window: schedule.Window{Name: "now", From: noon, Until: noon.Add(2 * time.Minute), Nodes: []string{"n3"}}},
	}
	e := schedule.New(rules)
	play(e, func(schedule.Event, time.Time, []schedule.Decision, error) {}, 0, before...)
	var out bytes.Buffer
	tape, err := NewTape(&out, "1.2.3", rules, e.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	adopted := aGang("adopted", 9, "low")
	adopted.Spec.GPUs, adopted.Spec.GPUsPerNode = 1, 1
	after := []schedule.Event{
		schedule.Adopt{Gang: adopted, Placement: gang.Placement{{Node: "n4", GPUs: []int{0}}}, Held: []int{0}, Began: noon, Ready: noon},
		node("n4", "l1"),
		schedule.Adopt{Gang: adopted, Placement: gang.Placement{{Node: "n4", GPUs: []int{0}}}, Held: []int{0}, Began: noon, Ready: noon},
		gangOf("capped1", 5, "high", 4, 4, func(s *gang.Spec) { s.Tenant = "capped" }),
		schedule.Began{ID: "wan1", Attempt: 1}, schedule.Saved{ID: "flex", Attempt: 1, Done: time.Second},
		schedule.Hold{ID: "wide", Held: true}, schedule.Hold{ID: "wide"},
		gangOf("wider", 6, "low", 16, 8, nil), schedule.Reorder{{ID: "wide", Seq: 6}, {ID: "wider", Seq: 3}},
		schedule.Together{schedule.Release{Seat: schedule.Seat{ID: "wan1", Attempt: 1}}, schedule.Release{Seat: schedule.Seat{ID: "flex", Attempt: 1}}},
		schedule.WindowGone{Name: "w"}, schedule.Ending{ID: "adopted", Attempt: 1}, schedule.Tick{}, schedule.NodeGone{ID: "n1"}, schedule.Withdraw{ID: "wider"},
		schedule.Tick{}, schedule.Tick{},
	}
	play(e, func(ev schedule.Event, at time.Time, d []schedule.Decision, refused error) {
		if err := tape.Take(ev, at, d, refused); err != nil {
			t.Fatal(err)
		}
	}, 600, after...)
	return out.Bytes()
}

// Whatever a value of a recording is turned into, it is refused, decided on as it
// stands, or found to come out otherwise: nothing panics, and all of it ends.
func TestNoDamagePanics(t *testing.T) {
	lines := bytes.SplitAfter(bytes.TrimSpace(eventful(t)), []byte("\n"))
	replayed(t, "nothing", bytes.Join(lines, nil))
	for i, line := range lines {
		var root any
		d := json.NewDecoder(bytes.NewReader(line))
		d.UseNumber()
		if err := d.Decode(&root); err != nil {
			t.Fatal(err)
		}
		eachValue(root, fmt.Sprint("line ", i+1), func(path string, was any, set func(any)) {
			for _, is := range damages(was) {
				set(is)
				text, err := json.Marshal(root)
				if err != nil {
					t.Fatal(err)
				}
				damaged := slices.Clone(lines)
				damaged[i] = append(text, '\n')
				replayed(t, fmt.Sprintf("%s is %.80v", path, is), bytes.Join(damaged, nil))
			}
			set(was)
		})
	}
}

// replayed reads a recording to its end, as far as that goes, and has all
// explained that waits then.
func replayed(t *testing.T, name string, text []byte) {
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("%s: it panics: %v", name, p)
		}
	}()
	r, err := NewReader(bytes.NewReader(text))
	if err != nil {
		return
	}
	var e *schedule.Engine
	if e, err = r.Replay(nil); err != nil {
		return
	}
	for _, w := range e.Snapshot().Waiting {
		e.Explain(w.Gang.ID)
	}
}

// eachValue visits all values within one, with a way to set it.
func eachValue(v any, path string, visit func(path string, was any, set func(any))) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			visit(path+", "+name, v[name], func(x any) { v[name] = x })
			eachValue(v[name], path+", "+name, visit)
		}
	case []any:
		for i := range v {
			visit(fmt.Sprint(path, ", ", i), v[i], func(x any) { v[i] = x })
			eachValue(v[i], fmt.Sprint(path, ", ", i), visit)
		}
	}
}

// damages are what a value may be turned into.
func damages(v any) []any {
	switch v := v.(type) {
	case json.Number:
		var out []any
		for _, n := range []string{"0", "-1", "64", "1000000000", "-1000000000", "9223372036854775807", "-9223372036854775808", "1e300", "1e-300", "0.5"} {
			out = append(out, json.Number(n))
		}
		return out
	case string:
		return []any{"", "n1", "wan1", "flex", "wide", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "1677-01-01T00:00:00Z"}
	case bool:
		return []any{!v}
	case []any:
		if len(v) == 0 {
			return []any{nil, []any{nil}}
		}
		return []any{nil, v[1:], append(slices.Clone(v), v[0]), []any{nil}}
	case map[string]any:
		return []any{nil, map[string]any{}}
	}
	return nil
}
