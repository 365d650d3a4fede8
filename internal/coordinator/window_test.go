package coordinator

import (
	"errors"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

// plan asks for a window of a node, so long from now.
func (w *world) plan(name, node string, from, until time.Duration) error {
	return w.asks(WindowRequest{Window: gang.Window{Name: name, From: gang.Millis(w.now.Add(from)), Until: gang.Millis(w.now.Add(until)), Nodes: []string{node}}, Reply: 901})
}

func (w *world) asks(in Input) error {
	w.t.Helper()
	delete(w.answers, 901)
	w.tell(in)
	a, answered := w.answers[901]
	if !answered {
		w.t.Fatalf("%+v is not answered", in)
	}
	return a.Err
}

// A window holds over a crash: what would run into it waits until it is over, and
// then both the engine and Consul forget it.
func TestAWindowOutlivesItsLeader(t *testing.T) {
	w := ready(t, 301, 1, 1)
	if err := w.plan("night", "client-0", 30*time.Second, 90*time.Second); err != nil {
		t.Fatal(err)
	}
	if rec := w.kv["maintenance/night"]; rec == nil {
		t.Fatal("nothing is written")
	}
	spec := simSpec(8, 8)
	spec.Estimate = 2 * time.Minute
	id := w.submit(spec)
	check := func() {
		t.Helper()
		if s := w.core.status(w.core.gangs[id], true); s.State != gang.Queued || s.Code != gang.CodeMaintenance {
			t.Fatalf("it is %s, for %s: %s", s.State, s.Code, s.Reason)
		}
	}
	check()
	w.restart(1)
	w.until(1, "the new leader decides", func() bool { return w.core.deciding })
	check()
	if all := w.core.windowStatuses(); len(all) != 1 || all[0].NodeNames[0] != "client-0" || all[0].Nodes[0] != "node-0" {
		t.Errorf("the windows are %+v", all)
	}
	began := w.now
	w.until(1, "it runs", func() bool { return w.state(id).Placed() })
	if waited := w.now.Sub(began); waited < time.Minute || len(w.core.windows) > 0 || w.kv["maintenance/night"] != nil {
		t.Errorf("it starts %s after the crash; left are %v", waited, w.core.windows)
	}
}

func TestWindowsThatCannotBe(t *testing.T) {
	w := ready(t, 302, 2, 2)
	refused := new(gang.RefusedError)
	for what, err := range map[string]error{
		"an unknown node":  w.plan("w", "client-9", time.Minute, time.Hour),
		"what is over":     w.plan("w", "client-0", -time.Hour, -time.Minute),
		"what has no name": w.plan("", "client-0", time.Minute, time.Hour),
	} {
		if !errors.As(err, &refused) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := w.asks(WindowGoneRequest{Name: "w", Reply: 901}); !errors.Is(err, gang.ErrNoWindow) {
		t.Errorf("a window that there is not is called off: %v", err)
	}
	if err := errors.Join(w.plan("w", "node-1", time.Minute, time.Hour), w.asks(WindowGoneRequest{Name: "w", Reply: 901})); err != nil || len(w.kv["maintenance/w"]) > 0 {
		t.Errorf("planned and called off: %v; %q is left", err, w.kv["maintenance/w"])
	}
	if n := w.core.engine.Cluster().Node("node-1"); !n.Schedulable {
		t.Error("the node takes nothing")
	}
}
