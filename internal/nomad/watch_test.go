package nomad

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/gangd/gangd/internal/gang"
)

// watcher collects the events of one Watch.
type watcher struct {
	t      *testing.T
	events chan Event
}

func watch(t *testing.T, c *Client) *watcher {
	w := &watcher{t: t, events: make(chan Event, 1024)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Watch(ctx, func(e Event) { w.events <- e }) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Watch ends with %v", err)
			}
		case <-time.After(patience):
			t.Error("Watch does not end with its context")
		}
	})
	return w
}

// until returns the next event of a type for which ok is true.
func until[E Event](w *watcher, what string, ok func(E) bool) E {
	w.t.Helper()
	for deadline := time.After(patience); ; {
		select {
		case event := <-w.events:
			if e, is := event.(E); is && ok(e) {
				return e
			}
		case <-deadline:
			w.t.Fatalf("no %s after %s", what, patience)
		}
	}
}

func TestWatchBeginsWithAllThereIs(t *testing.T) {
	c := open(t, nomadAgent(t))
	register(t, c, template("before", "exec sleep 600"))
	node := theNode(t, c)
	opened := openLane(t, c, LaneOrder{Lane: "lane0before", Template: "before", Node: node.ID, UUIDs: gpus[:2]})
	eventually(t, "the lane runs", func() bool {
		l := lane(t, c, opened.Job)
		return len(l.Children) == 1 && l.Children[0].Allocation != nil && l.Children[0].Allocation.ClientStatus == api.AllocClientStatusRunning
	})

	w := watch(t, c)
	first, ok := (<-w.events).(Resync)
	if !ok || len(first.Nodes) != 1 || len(first.Lanes) != 1 || len(first.Templates) != 1 {
		t.Fatalf("the first event is %+v", first)
	}
	if got := first.Templates[0]; got.Name != "before" || got.Version != opened.TemplateVersion {
		t.Errorf("template %+v, the lane is of version %d", got, opened.TemplateVersion)
	}
	n := first.Nodes[0]
	if n.Meta["leaf"] != "leaf-7" || n.Status != NodeReady || !n.Eligible || n.Draining || n.Pool != "default" {
		t.Errorf("node %+v", n)
	}
	if len(n.Devices) != len(gpus) || !n.Devices[0].Healthy {
		t.Errorf("devices %+v", n.Devices)
	}
	if l := first.Lanes[0]; l.Job != opened.Job || l.Children[0].Allocation == nil || l.Children[0].Blocked != "" {
		t.Errorf("lane %+v", l)
	}

	// What was listed is not told again; what comes is.
	if err := c.PurgeLane(t.Context(), opened.Job); err != nil {
		t.Fatal(err)
	}
	for told := false; !told; {
		switch e := (<-w.events).(type) {
		case LaneGone:
			told = e.Job == opened.Job
		case AllocationChanged:
			if e.DesiredStatus == api.AllocDesiredStatusRun && e.ClientStatus != api.AllocClientStatusRunning {
				t.Errorf("an old state is told after the list: %+v", e)
			}
		}
	}
	until(w, "end of the allocation", func(e AllocationChanged) bool { return e.Job == opened.Job && e.Ended() })
}

func TestWatchTellsALanesLife(t *testing.T) {
	c := open(t, nomadAgent(t))
	w := watch(t, c)
	until(w, "resync", func(Resync) bool { return true })
	register(t, c, template("failing", "sleep 0.1; echo boom >&2; exit 3"))
	registered := until(w, "template", func(e TemplateChanged) bool { return e.Name == "failing" && e.Version > 0 })

	opened := openLane(t, c, LaneOrder{Lane: "lane0failing", Template: "failing", Node: theNode(t, c).ID, UUIDs: gpus[:1]})
	a := until(w, "failure", func(e AllocationChanged) bool {
		return e.Lane == "lane0failing" && e.Failed && e.ClientStatus == ClientFailed
	})
	if a.Invalid || !strings.Contains(a.Message, "Exit Code: 3") {
		t.Errorf("invalid: %v, message %q", a.Invalid, a.Message)
	}
	// It is neither restarted nor placed again.
	all, _, err := c.api.Jobs().Allocations(opened.Child, true, nil)
	if err != nil || len(all) != 1 || all[0].FollowupEvalID != "" {
		t.Errorf("%d allocations, %v", len(all), err)
	}

	if _, _, err := c.api.Jobs().Deregister(opened.Child, false, nil); err != nil {
		t.Fatal(err)
	}
	until(w, "stop by an operator", func(e LaneGone) bool { return e.Job == opened.Job })
	if _, _, err := c.api.Jobs().Deregister("failing", false, nil); err != nil {
		t.Fatal(err)
	}
	until(w, "end of the template", func(e TemplateChanged) bool { return e.Name == "failing" && e.Version > registered.Version })
}

// What only the node can see is wrong with a template is told in the words of
// who saw it.
func TestWatchTellsWhatIsWrongWithATemplate(t *testing.T) {
	c := open(t, nomadAgent(t))
	w := watch(t, c)
	until(w, "resync", func(Resync) bool { return true })
	for name, test := range map[string]struct {
		spoil   func(config map[string]any)
		invalid bool
		want    string
	}{
		"nocommand":  {func(config map[string]any) { config["command"] = "/no/such/program" }, false, "Driver Failure: "},
		"novariable": {func(config map[string]any) { config["args"] = []any{"${meta.no_such}"} }, true, "Failed Validation: "},
	} {
		job := template(name, "true")
		test.spoil(job.TaskGroups[0].Tasks[0].Config)
		register(t, c, job)
		lane := gang.LaneID("lane0" + name)
		openLane(t, c, LaneOrder{Lane: lane, Template: name, Node: theNode(t, c).ID, UUIDs: gpus[:1]})
		a := until(w, "failure of "+name, func(e AllocationChanged) bool { return e.Lane == lane && e.ClientStatus == ClientFailed })
		if a.Invalid != test.invalid || !strings.HasPrefix(a.Message, test.want) {
			t.Errorf("%s: invalid: %v, message %q", name, a.Invalid, a.Message)
		}
	}
}

func TestWatchTellsOfABlockedLane(t *testing.T) {
	c := open(t, nomadAgent(t))
	w := watch(t, c)
	until(w, "resync", func(Resync) bool { return true })
	register(t, c, template("blocked", "exec sleep 600"))
	node := theNode(t, c).ID
	first := openLane(t, c, LaneOrder{Lane: "lane0blocked", Template: "blocked", Node: node, UUIDs: gpus[3:]})
	until(w, "placement", func(e AllocationChanged) bool { return e.Job == first.Job })

	second := openLane(t, c, LaneOrder{Lane: "lane1blocked", Template: "blocked", Node: node, UUIDs: gpus[3:]})
	e := until(w, "block", func(e LaneBlocked) bool { return e.Job == second.Job && e.Lane == "lane1blocked" })
	if !strings.Contains(e.Reason, "1 nodes evaluated") || !strings.Contains(e.Reason, "device") {
		t.Errorf("reason %q", e.Reason)
	}
	if l := lane(t, c, second.Job); l.Blocked() != e.Reason || l.Gone {
		t.Errorf("the list says %+v, want the reason %q", l, e.Reason)
	}
	if l := lane(t, c, first.Job); l.Blocked() != "" || l.Gone {
		t.Errorf("the list says %+v of the lane that runs", l)
	}

	elsewhere := openLane(t, c, LaneOrder{Lane: "lane2blocked", Template: "blocked", Node: "no-such-node", UUIDs: gpus[:1]})
	e = until(w, "block", func(e LaneBlocked) bool { return e.Job == elsewhere.Job })
	if !strings.Contains(e.Reason, "no-such-node") {
		t.Errorf("reason %q", e.Reason)
	}

	// Nomad places it as soon as it can: only a purge prevents that.
	if err := c.PurgeLane(t.Context(), first.Job); err != nil {
		t.Fatal(err)
	}
	until(w, "late placement", func(e AllocationChanged) bool { return e.Job == second.Job })
}

// What was stopped or purged while nobody watched is told by the list.
func TestListTellsOfLanesThatWereStopped(t *testing.T) {
	c := open(t, nomadAgent(t))
	register(t, c, template("stopped", "exec sleep 600"))
	deregister := func(job string, purge bool) {
		t.Helper()
		if _, _, err := c.api.Jobs().Deregister(job, purge, nil); err != nil {
			t.Fatal(err)
		}
	}
	for name, stop := range map[string]func(Opened){
		"the parent is stopped":     func(o Opened) { deregister(o.Job, false) },
		"the parent is purged":      func(o Opened) { deregister(o.Job, true) },
		"the dispatched is stopped": func(o Opened) { deregister(o.Child, false) },
		"the dispatched is purged":  func(o Opened) { deregister(o.Child, true) },
	} {
		t.Run(name, func(t *testing.T) {
			opened := openLane(t, c, LaneOrder{Lane: "lane0stopped", Template: "stopped", Node: "no-such-node", UUIDs: gpus[:1]})
			if l := lane(t, c, opened.Job); l.Gone {
				t.Errorf("before: %+v", l)
			}
			stop(opened)
			if l := lane(t, c, opened.Job); l.Job == "" || !l.Gone {
				t.Errorf("after: %+v", l)
			}
		})
	}
}

func TestWatchTellsOfNodes(t *testing.T) {
	c := open(t, nomadAgent(t))
	node := theNode(t, c).ID
	w := watch(t, c)
	until(w, "resync", func(Resync) bool { return true })
	if _, err := c.api.Nodes().ToggleEligibility(node, false, nil); err != nil {
		t.Fatal(err)
	}
	e := until(w, "ineligibility", func(e NodeChanged) bool { return e.ID == node && !e.Eligible })
	if e.Meta["leaf"] != "leaf-7" || len(e.Devices) != len(gpus) {
		t.Errorf("the event lacks what the node has: %+v", e)
	}
	if _, err := c.api.Nodes().ToggleEligibility(node, true, nil); err != nil {
		t.Fatal(err)
	}
	until(w, "eligibility", func(e NodeChanged) bool { return e.ID == node && e.Eligible })
}

func TestWatchOutlivesTheServer(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a real Nomad")
	}
	a, err := newAgent(false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.remove)
	c := open(t, a)
	w := watch(t, c)
	until(w, "resync", func(Resync) bool { return true })
	register(t, c, template("one", "true"))
	until(w, "template", func(e TemplateChanged) bool { return e.Name == "one" })

	a.kill()
	if err := a.start(); err != nil {
		t.Fatal(err)
	}
	until(w, "resync", func(Resync) bool { return true })
	register(t, c, template("two", "true"))
	until(w, "template", func(e TemplateChanged) bool { return e.Name == "two" })
	// Lanes are told by the list if they came while nobody looked.
	order := LaneOrder{Lane: "lane0one", Template: "one", Node: "n", UUIDs: gpus[:1]}
	openLane(t, c, order)
	a.kill()
	if err := a.start(); err != nil {
		t.Fatal(err)
	}
	until(w, "resync", func(e Resync) bool {
		return len(e.Lanes) == 1 && e.Lanes[0].Lane == order.Lane && len(e.Lanes[0].Children) == 1
	})
}
