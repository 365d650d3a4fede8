package coordinator

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

// asked sends a request with reply 900, and returns the answer.
func (w *world) asked(in Input) Answer {
	w.t.Helper()
	delete(w.answers, 900)
	w.tell(in)
	a, answered := w.answers[900]
	if !answered {
		w.t.Fatalf("%+v is not answered\n%s", in, w.tail())
	}
	return a
}

// A gang that is held does not start, whoever leads, until it is released.
func TestAHeldGangWaits(t *testing.T) {
	w := ready(t, 40, 2, 2)
	busy := w.submit(simSpec(16, 8))
	held, next := w.submit(simSpec(16, 8)), w.submit(simSpec(16, 8))
	for range 2 { // once more changes nothing
		if a := w.asked(HoldRequest{ID: held, Held: true, Reply: 900}); a.Err != nil || !a.Statuses[0].Held || a.Statuses[0].Code != gang.CodeHeld {
			t.Fatalf("%+v", a)
		}
	}
	w.restart(2)
	w.until(2, "the others' success", func() bool { return w.state(busy) == gang.Succeeded && w.state(next) == gang.Succeeded })
	if w.state(held) != gang.Queued {
		t.Fatalf("it is held, and %s", w.state(held))
	}
	if a := w.asked(HoldRequest{ID: busy, Held: true, Reply: 900}); !errors.Is(a.Err, gang.ErrNotWaiting) || !strings.Contains(a.Err.Error(), "it is succeeded") {
		t.Errorf("one that has ended: %v", a.Err)
	}
	if a := w.asked(HoldRequest{ID: "none-00000000", Reply: 900}); !errors.Is(a.Err, gang.ErrNotFound) {
		t.Errorf("one that is not there: %v", a.Err)
	}
	if a := w.asked(HoldRequest{ID: held, Reply: 900}); a.Err != nil || a.Statuses[0].State != gang.Launching {
		t.Errorf("released, it is %+v, %v", a.Statuses, a.Err)
	}
	w.until(2, "success", func() bool { return w.state(held) == gang.Succeeded })
}

// Gangs of one tenant exchange their places; those of others stay where they
// are, and so it is after a take-over.
func TestGangsAreReordered(t *testing.T) {
	w := ready(t, 41, 2, 2)
	of := func(tenant string) gang.ID {
		s := simSpec(16, 8)
		s.Tenant = tenant
		return w.submit(s)
	}
	of("default")
	one, other, two, three := of("default"), of("a"), of("default"), of("default")
	places := func() string {
		names := map[gang.ID]string{one: "1", two: "2", three: "3"}
		out := ""
		for _, g := range w.core.lineOf(w.core.gangs[one]) {
			out += names[g.rec.ID]
		}
		return out
	}
	seqs := map[uint64]bool{}
	for _, id := range []gang.ID{one, two, three} {
		seqs[w.core.gangs[id].place()] = true
	}
	was := w.core.gangs[other].place()
	for _, c := range []struct {
		in   ReorderRequest
		want string
	}{
		{ReorderRequest{ID: three, Before: one}, "312"},
		{ReorderRequest{ID: three, Last: true}, "123"},
		{ReorderRequest{ID: one, Before: three}, "213"},
		{ReorderRequest{ID: one, Before: one}, "213"},
		{ReorderRequest{ID: three}, "321"},
	} {
		c.in.Reply = 900
		if a := w.asked(c.in); a.Err != nil || places() != c.want {
			t.Fatalf("%+v: the places are %s, want %s; %v", c.in, places(), c.want, a.Err)
		}
	}
	for _, id := range []gang.ID{one, two, three} {
		if !seqs[w.core.gangs[id].place()] {
			t.Errorf("gang %s has the place %d, which none of them had", id, w.core.gangs[id].place())
		}
	}
	if w.core.gangs[other].place() != was {
		t.Error("another tenant's gang was moved")
	}
	if a := w.asked(ReorderRequest{ID: one, Before: other, Reply: 900}); a.Err == nil || !strings.Contains(a.Err.Error(), "is no gang of tenant default and tier production that waits") {
		t.Errorf("before another tenant's: %v", a.Err)
	}
	w.restart(2)
	w.until(2, "deciding", func() bool { return w.core.deciding })
	if got := places(); got != "321" {
		t.Errorf("after a take-over the places are %s", got)
	}
	w.until(2, "all ended", func() bool { return len(w.ended) == 5 })
	if a, b := w.core.gangs[three].rec.Times.Decided, w.core.gangs[one].rec.Times.Decided; a >= b {
		t.Errorf("the last one of them was moved to the front, and started at %d, the first at %d", a, b)
	}
}

func TestFarMovesAreRefused(t *testing.T) {
	w := ready(t, 42, 1, 1)
	var last gang.ID
	for range maxReordered + 2 {
		last = w.submit(simSpec(8, 8))
	}
	if a := w.asked(ReorderRequest{ID: last, Reply: 900}); a.Err == nil || !strings.Contains(a.Err.Error(), "move it in steps") {
		t.Errorf("got %v", a.Err)
	}
}

// Shares add up with what runs, and tell of the waits.
func TestShares(t *testing.T) {
	w := ready(t, 43, 2, 2)
	first := w.submit(simSpec(8, 8))
	w.until(2, "success", func() bool { return w.state(first) == gang.Succeeded && len(w.core.lanes) == 0 })
	w.submit(simSpec(8, 8))
	w.submit(simSpec(16, 8))
	w.now = w.now.Add(time.Second)
	w.tell(Tick{})
	s := w.core.shares()
	if s.Capacity != 16 || s.Running != 8 || s.Free != 8 {
		t.Errorf("%+v", s)
	}
	for _, r := range s.Tenants {
		if want := w.core.gangs[first].rec.GPUMillis; r.Name == "default" && (r.GPUMillis != want || r.Running != 8 || r.Wanted != 16) {
			t.Errorf("%+v, of which %d are charged", r, want)
		}
	}
	for _, r := range s.Tiers {
		if r.Name == "production" && (r.Starts != 2 || r.OldestMillis != 1000 || r.Waiting != 1) {
			t.Errorf("%+v", r)
		}
	}
}
