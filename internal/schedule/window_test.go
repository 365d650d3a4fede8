package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// Window plans maintenance, of a few nodes, a domain or all.
func (p *player) Window(t *rapid.T) {
	from := p.now.Add(time.Duration(rapid.IntRange(-60, 900).Draw(t, "from")) * time.Second)
	w := Window{Name: fmt.Sprint("w", rapid.IntRange(0, 3).Draw(t, "window")), From: from, Until: from.Add(time.Duration(rapid.IntRange(100, 900).Draw(t, "long")) * time.Second)}
	switch what := rapid.IntRange(0, 4).Draw(t, "of"); {
	case what < 3:
		for range what + 1 {
			w.Nodes = append(w.Nodes, fmt.Sprint("n", rapid.IntRange(0, 9).Draw(t, "node")))
		}
	case what == 3 && len(p.cfg.Levels) > 0:
		w.Level, w.Domain = rapid.SampledFrom(p.cfg.Levels).Draw(t, "level"), fmt.Sprint("d", rapid.IntRange(0, 1).Draw(t, "domain"))
	}
	must(t, p.apply(t, WindowSet{w}))
}

// WindowGone calls one off.
func (p *player) WindowGone(t *rapid.T) {
	if len(p.windows) == 0 {
		t.Skip("there is no window")
	}
	names := make([]string, len(p.windows))
	for i, w := range p.windows {
		names[i] = w.Name
	}
	_ = p.apply(t, WindowGone{rapid.SampledFrom(names).Draw(t, "window")}) // it may be over
}

// noteWindows follows which windows there are.
func (p *player) noteWindows(ev Event) {
	name := ""
	switch ev := ev.(type) {
	case WindowSet:
		name = ev.Window.Name
	case WindowGone:
		name = ev.Name
	}
	p.windows = slices.DeleteFunc(p.windows, func(w Window) bool { return w.Name == name || !w.Until.After(p.now) })
	if set, is := ev.(WindowSet); is {
		p.windows = append(p.windows, set.Window)
	}
}

func (p *player) covers(w Window, node string) bool {
	if w.Level != "" {
		return p.nodes[node].Domains[slices.Index(p.cfg.Levels, w.Level)] == w.Domain
	}
	return len(w.Nodes) == 0 || slices.Contains(w.Nodes, node)
}

// checkOpen: nobody starts where it would run into a window, by its estimate.
func (p *player) checkOpen(t *rapid.T, d Start) {
	end := p.e.runs[d.ID].end
	for _, m := range d.Placement {
		for _, w := range p.windows {
			if p.covers(w, m.Node) && w.From.Before(end) {
				t.Fatalf("%s starts on %s at %s, and should end at %s; window %+v\n%s", d.ID, m.Node, p.now, end, w, p.story())
			}
		}
	}
}

// checkWindows: nodes within a window take nothing, and future starts are held
// outside of windows.
func (p *player) checkWindows(t *rapid.T) {
	for _, n := range p.e.cluster.Nodes() {
		shut := slices.ContainsFunc(p.windows, func(w Window) bool { return !w.From.After(p.now) && p.covers(w, n.ID) })
		if want := p.nodes[n.ID].Schedulable && !shut; n.Schedulable != want {
			t.Fatalf("%s is within a window: %t; it takes members: %t\n%s", n.ID, shut, n.Schedulable, p.story())
		}
	}
	for _, c := range p.e.claims {
		if c.owner == nil || c.owner.plan != nil {
			continue
		}
		for _, h := range c.at {
			for _, w := range p.windows {
				from, until := max(c.start, p.now.UnixNano()), c.until
				if p.covers(w, h.bay.node.ID) && w.From.UnixNano() < until && w.Until.UnixNano() > from {
					t.Fatalf("%s holds a start on %s from %s to %s, within window %+v\n%s", c.id(), h.bay.node.ID, time.Unix(0, from), time.Unix(0, until), w, p.story())
				}
			}
		}
	}
}

// windowed is a bout on so many nodes of 8 GPUs.
func windowed(t *testing.T, nodes int) *bout {
	specs := make([]cluster.Spec, nodes)
	for i := range specs {
		specs[i] = benchNode(fmt.Sprint("n-", i), fmt.Sprint("l", i/2))
	}
	return newBout(t, specs...)
}

func of8(id string, estimate time.Duration) Gang {
	return needing(id, "high", 8, gang.Need{}, estimate)
}

// Ahead of a window a node runs what will be over by then; who takes longer goes
// elsewhere, or waits until it is over, and is told why.
func TestShortGangsRunUpToAWindow(t *testing.T) {
	b := windowed(t, 2)
	b.apply(WindowSet{Window{Name: "night", From: b.now.Add(time.Hour), Until: b.now.Add(3 * time.Hour), Nodes: []string{"n-0"}}})
	b.submit(of8("short", 59*time.Minute))
	if _, placed := b.start("short"); placed == nil || placed[0].Node != "n-0" {
		t.Errorf("the short one is on %v", placed)
	}
	b.apply(Release{Seat{ID: "short", Attempt: 1}})
	b.submit(of8("long", 61*time.Minute))
	if _, placed := b.start("long"); placed == nil || placed[0].Node != "n-1" {
		t.Errorf("the long one is on %v", placed)
	}
	b.submit(of8("longer", 2*time.Hour))
	if at, placed := b.start("longer"); placed != nil || !at.Equal(b.now.Add(61*time.Minute)) {
		t.Errorf("the longer one is on %v, should start at %s", placed, at)
	}
	b.submit(of8("longest", 90*time.Minute))
	if at, placed := b.start("longest"); placed != nil || !at.Equal(b.now.Add(3*time.Hour)) {
		t.Errorf("the longest one is on %v, should start at %s", placed, at)
	}
	code, reason, _, _ := b.e.Explainer(b.now).Explain("longest")
	const want = "there is room, and maintenance window night begins there in 1h0m0s: it takes 1h30m0s, by its estimate; it should start in 3h0m0s"
	if code != gang.CodeMaintenance || reason != want {
		t.Errorf("%s: %s", code, reason)
	}
	// the window is called off
	b.apply(WindowGone{"night"})
	if _, placed := b.start("longer"); placed == nil || placed[0].Node != "n-0" {
		t.Errorf("then the longer one is on %v", placed)
	}
}

// A window of all nodes does not keep a wide gang from a start before it.
func TestAWideGangStartsBeforeAWindowOfAll(t *testing.T) {
	b := windowed(t, 4)
	b.apply(WindowSet{Window{Name: "power", From: b.now.Add(2 * time.Hour), Until: b.now.Add(8 * time.Hour)}})
	for i := range 4 {
		b.submit(of8(fmt.Sprint("now-", i), time.Duration(10+10*i)*time.Minute))
	}
	wide := func(id string, estimate time.Duration) Gang {
		g := of8(id, estimate)
		g.Spec.GPUs = 32
		return g
	}
	b.submit(wide("fits", 80*time.Minute))
	b.submit(wide("later", 80*time.Minute))
	if at, _ := b.start("fits"); !at.Equal(b.now.Add(40 * time.Minute)) {
		t.Errorf("the first should start at %s", at)
	}
	if at, _ := b.start("later"); !at.Equal(b.now.Add(8 * time.Hour)) {
		t.Errorf("the second should start at %s", at)
	}
}

// Within a window nothing starts, and who can save leaves; the engine wants to be
// asked when it begins, and when it is over.
func TestWithinAWindow(t *testing.T) {
	b := windowed(t, 1)
	saves := of8("saves", 10*time.Hour)
	saves.Spec.Checkpoint = &gang.Checkpoint{Cost: time.Second}
	b.submit(saves)
	began := b.now
	b.apply(WindowSet{Window{Name: "w", From: b.now.Add(time.Hour), Until: b.now.Add(2 * time.Hour), Level: "leaf", Domain: "l0"}})
	if at, any := b.e.Next(); !any || !at.Equal(began.Add(time.Hour)) {
		t.Errorf("it wants to be asked at %s", at)
	}
	b.now, b.out = began.Add(time.Hour), nil
	b.apply(Tick{})
	if stop, is := b.out[0].(Stop); !is || stop.Cause != Drained || stop.Mode != Graceful {
		t.Errorf("when it begins: %+v", b.out)
	}
	n := b.e.cluster.Node("n-0")
	if n.State != cluster.NodeMaintenance || !strings.Contains(n.Why, "maintenance window w, until") {
		t.Errorf("the node is %s: %s", n.State, n.Why)
	}
	again := benchNode("n-0", "l0") // it is observed anew meanwhile
	again.GPUs[0].Healthy = false
	b.apply(Together{Release{Seat{ID: "saves", Attempt: 1}}, NodeSet{again}})
	b.submit(of8("other", time.Minute))
	four := of8("four", time.Minute)
	four.Spec.GPUs, four.Spec.GPUsPerNode = 4, 4
	b.submit(four)
	if _, placed := b.start("four"); placed != nil {
		t.Errorf("within it one starts on %v", placed)
	}
	b.now = began.Add(2 * time.Hour)
	b.apply(Tick{})
	if _, placed := b.start("four"); placed == nil || !slices.Equal(placed[0].GPUs, []int{4, 5, 6, 7}) {
		t.Errorf("after it, one is on %v", placed)
	}
	if len(b.e.windows) > 0 || len(b.e.shut) > 0 || b.e.cluster.Node("n-0").State != "" {
		t.Errorf("left are %v, %v", b.e.windows, b.e.shut)
	}
}

func TestWindowsThatAreNone(t *testing.T) {
	b := windowed(t, 1)
	hour := func(n int) time.Time { return b.now.Add(time.Duration(n) * time.Hour) }
	for name, w := range map[string]Window{
		"it begins at its end": {Name: "w", From: hour(1), Until: hour(1)},
		"it is over":           {Name: "w", From: hour(-2), Until: hour(-1)},
		"no such level":        {Name: "w", From: hour(1), Until: hour(2), Level: "rack", Domain: "r"},
	} {
		if _, err := b.e.Apply(WindowSet{w}, b.now); err == nil || !strings.Contains(err.Error(), `plan maintenance window "w"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range MaxWindows {
		b.apply(WindowSet{Window{Name: fmt.Sprint(i), From: hour(1), Until: hour(2)}})
	}
	b.apply(WindowSet{Window{Name: "7", From: hour(3), Until: hour(4)}}) // another than before
	if _, err := b.e.Apply(WindowSet{Window{Name: "more", From: hour(1), Until: hour(2)}}, b.now); err == nil {
		t.Error("there are more windows than may be")
	}
	if _, err := b.e.Apply(WindowGone{"more"}, b.now); err == nil {
		t.Error("a window was called off that there is not")
	}
}

// A preemptor is given room where it will not run into a window, and a plan whose
// nodes get one is broken.
func TestPreemptionKeepsOutOfWindows(t *testing.T) {
	b := windowed(t, 2)
	low := func(id string) Gang {
		g := needing(id, "low", 8, gang.Need{}, 10*time.Hour)
		g.Spec.Checkpoint = &gang.Checkpoint{Cost: time.Second}
		return g
	}
	b.e.tiers[0].Grace = 10 * time.Second
	b.submit(low("a")) // on n-0, and cheaper, being younger
	b.submit(low("b"))
	window := Window{Name: "w", From: b.now.Add(time.Hour), Until: b.now.Add(2 * time.Hour), Nodes: []string{"n-0"}}
	b.apply(WindowSet{window})
	b.out = nil
	b.submit(of8("urgent", 2*time.Hour))
	if stop, is := b.out[0].(Stop); !is || stop.ID != "b" {
		t.Fatalf("decided %+v", b.out)
	}
	window.Nodes, b.out = nil, nil
	b.apply(WindowSet{window})
	if at, placed := b.start("urgent"); placed != nil || !at.Equal(window.Until) || b.e.Counts.BrokenPlans != 1 {
		t.Errorf("decided %+v; %d plans are broken", b.out, b.e.Counts.BrokenPlans)
	}
}
