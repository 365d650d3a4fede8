package schedule

import (
	"slices"
	"testing"
	"time"
)

// twoTenants has the node half taken by a gang of tenant b for an hour, and a wide
// gang of tenant a wait for all of it.
func twoTenants(t *testing.T, now time.Time) *Engine {
	t.Helper()
	runs := aGang("runs", 1, 4)
	runs.Spec.Tenant = "b"
	e := anEngine(t, now, Submit{runs}, Submit{aGang("wide", 2, 8)})
	if start := e.waiting["wide"].start; !start.Equal(now.Add(time.Hour)) {
		t.Fatalf("the wide gang has a start at %s", start)
	}
	return e
}

// movesWide reports whether decisions move the start of the wide gang.
func movesWide(out []Decision) bool {
	return slices.ContainsFunc(out, func(d Decision) bool { r, is := d.(Reserve); return is && r.ID == "wide" })
}

// What a tenant starts from behind a gang that holds a future start does not put
// that gang behind those of others.
func TestAPassedGangKeepsItsPlace(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	e := twoTenants(t, now)
	out, err := e.Apply(Submit{aGang("small", 3, 4)}, now)
	if start, is := out[0].(Start); err != nil || !is || start.ID != "small" {
		t.Fatalf("decided %+v, %v", out, err)
	}
	e.tenants["b"].Weight = 2
	other := aGang("other", 4, 8) // its tenant has less for its weight now
	other.Spec.Tenant = "b"
	out, err = e.Apply(Submit{other}, now)
	if err != nil || movesWide(out) {
		t.Errorf("decided %+v, %v", out, err)
	}
}

// A gang that was the first blocked one for 5 minutes in all comes first, though
// others were that in between.
func TestAGangKeepsThePlaceThatItHadOffAndOn(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	e := twoTenants(t, now)
	led := time.Duration(0)
	for i := range 4 {
		now = now.Add(2 * time.Minute)
		led += 2 * time.Minute
		newcomer := aGang("newcomer", uint64(10+i), 8)
		newcomer.Spec.Tenant = "c"
		e.tenants["a"].past, e.tenants["c"] = 1, newTenant(Tenant{Name: "c"})
		out, err := e.Apply(Submit{newcomer}, now)
		if moved := movesWide(out); err != nil || moved != (led < keepsPlace) {
			t.Errorf("after %s as the first blocked one: decided %+v, %v", led, out, err)
		}
		if _, err := e.Apply(Withdraw{"newcomer"}, now.Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Minute)
	}
}
