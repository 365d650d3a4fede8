package schedule

import (
	"testing"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

// aTown is two nodes of 8 GPUs: gang "long" of an honest tenant runs on one for an
// hour, and "wide" waits for both.
func aTown(t *testing.T) *bout {
	b := newBout(t, benchNode("n-0", "l0"), benchNode("n-1", "l0"))
	b.submitOf("honest", "long", 1, time.Hour)
	b.submitOf("honest", "wide", 2, time.Minute)
	return b
}

// submitOf has a tenant's gang of some nodes wait, or start.
func (b *bout) submitOf(tenant, id string, nodes int, estimate time.Duration) {
	b.t.Helper()
	g := needing(id, "low", 8*nodes, gang.Need{}, estimate)
	g.Spec.Tenant, g.Spec.GPUsPerNode = tenant, 8
	b.submit(g)
}

// runs has a tenant's gang start behind "wide", and run for a time.
func (b *bout) runs(tenant, id string, estimate, really time.Duration) {
	b.t.Helper()
	b.submitOf(tenant, id, 1, estimate)
	if !b.has(id) {
		b.t.Fatalf("%s of %s, estimated at %s, does not start at %s", id, tenant, estimate, b.now)
	}
	b.pass(really)
	b.apply(Release{Seat{ID: gang.ID(id), Attempt: 1}})
}

// pass lets time go by, with all that it alone brings about.
func (b *bout) pass(d time.Duration) {
	b.t.Helper()
	end := b.now.Add(d)
	for at, any := b.e.Next(); any && at.Before(end); at, any = b.e.Next() {
		b.now = at
		b.apply(Tick{})
	}
	b.now = end
}

func (b *bout) has(id string) bool { return b.e.runs[gang.ID(id)] != nil }

// While a run that was there before overruns, and nobody else does, nothing is
// held: others use what waits for it, as long as they like to say.
func TestNobodyIsLateForWhatWasThereBefore(t *testing.T) {
	b := aTown(t)
	b.pass(2 * time.Hour) // and half an hour more, by its estimate
	b.runs("true", "brief", 10*time.Minute, 10*time.Minute)
	if w := b.e.waiting["wide"]; b.e.late(w, w.start) {
		t.Errorf("at %s it is late, and due at %s", b.now, w.due)
	}
}

// A gang that others made late has its GPUs held, and starts when the last of them
// has gone.
func TestForAGangThatIsLateGPUsAreHeld(t *testing.T) {
	b := aTown(t)
	b.pass(59 * time.Minute)
	b.submitOf("liar", "lie", 1, time.Minute)
	b.pass(time.Minute)
	b.apply(Release{Seat{ID: "long", Attempt: 1}})
	b.runs("true", "brief", time.Second, time.Second) // it is not late yet
	b.pass(time.Minute)
	b.submitOf("true", "briefer", 1, time.Millisecond)
	if b.has("briefer") {
		t.Error("it is let before a gang that is late")
	}
	b.pass(10 * time.Minute)
	b.apply(Release{Seat{ID: "lie", Attempt: 1}})
	if !b.has("wide") {
		t.Error("it does not start when its GPUs are free")
	}
}

// What is held for a gang that is late is not held any more once something else puts
// it off, such as a window: in the decision that tells it so, not in the next one.
func TestALateGangThatIsPutOffByAWindow(t *testing.T) {
	b := aTown(t)
	wide := b.e.waiting["wide"]
	wide.due = wide.due.Add(-90 * time.Minute) // as if others had put it off for so long
	b.apply(Tick{})
	b.submitOf("honest", "short", 1, time.Second)
	if b.has("short") {
		t.Fatal("it starts on what is held for a gang that is late")
	}
	b.apply(WindowSet{Window{Name: "w", From: b.now.Add(time.Hour), Until: b.now.Add(3 * time.Hour)}})
	if !b.has("short") {
		t.Error("the wide gang is late no more, and what it had is still held")
	}
	if out, err := b.e.Apply(Together{}, b.now); err != nil || len(out) > 0 {
		t.Errorf("with nothing new, it decides %+v, %v", out, err)
	}
}
