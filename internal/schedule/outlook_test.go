package schedule

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

func TestEntitlements(t *testing.T) {
	for _, c := range []struct {
		name    string
		gpus    int
		tenants []gang.TenantShare
		want    []float64
	}{
		{"who wants little leaves the rest", 100, []gang.TenantShare{{Weight: 1, Wanted: 10}, {Weight: 1, Wanted: 500}, {Weight: 2, Running: 400}}, []float64{10, 30, 60}},
		{"all have room", 100, []gang.TenantShare{{Weight: 1, Running: 10, Wanted: 10}, {Weight: 5, Wanted: 30}}, []float64{20, 30}},
		{"a cap bounds what is wanted", 100, []gang.TenantShare{{Weight: 3, Wanted: 900, MaxGPUs: 20}, {Weight: 1, Wanted: 900}}, []float64{20, 80}},
		{"no GPU is in order", 0, []gang.TenantShare{{Weight: 1, Wanted: 3}}, []float64{0}},
	} {
		entitle(c.tenants, c.gpus)
		for i, want := range c.want {
			if got := c.tenants[i].Entitled; math.Abs(got-want) > 1e-9 {
				t.Errorf("%s: tenant %d is entitled to %f, want %f", c.name, i, got, want)
			}
		}
	}
}

func TestSharesAddUp(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	big, held := aGang("big", 2, 8), aGang("held", 3, 8)
	big.Spec.Tenant, held.Held = "b", true
	e := anEngine(t, now, Submit{aGang("small", 1, 2)}, Submit{big}, Submit{held})
	s := e.Shares(now)
	if s.Capacity != 8 || s.Running != 2 || s.Free != 6 || len(s.Tenants) != 2 {
		t.Fatalf("%+v", s)
	}
	a, b := s.Tenants[0], s.Tenants[1]
	if a.Running != 2 || a.Waiting != 0 || b.Waiting != 1 || b.Wanted != 8 || a.Entitled != 2 || b.Entitled != 6 {
		t.Errorf("%+v, %+v", a, b)
	}
	if top := s.Tiers[0]; top.Name != "production" || top.Running != 2 || top.Waiting != 1 || top.Wanted != 8 {
		t.Errorf("%+v", top)
	}
	starts, _, _ := e.Expect("big", now)
	_, ends, _ := e.Expect("small", now)
	if !starts.Equal(now.Add(time.Hour)) || !ends.Equal(starts) {
		t.Errorf("one starts at %s, the other ends at %s", starts, ends)
	}
	if ahead, waiting := e.Explainer(now).Ahead("held", 5); waiting != 2 || len(ahead) != 1 || ahead[0].ID != "big" || ahead[0].Code != gang.CodeCapacity {
		t.Errorf("%d wait, ahead are %+v", waiting, ahead)
	}
}

// In a quiet cluster time passes and no event comes: what is said is of now.
func TestWhatIsSaidIsOfNow(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	e := New(Config{Tiers: []Tier{{Name: "production", Protected: time.Minute}}, HalfLife: time.Hour})
	for _, ev := range []Event{NodeSet{aNode()}, Submit{aGang("runs", 1, 8)}, Submit{aGang("waits", 2, 8)}} {
		if _, err := e.Apply(ev, now); err != nil {
			t.Fatal(err)
		}
	}
	later := now.Add(30 * time.Minute)
	for _, c := range []struct {
		at        time.Time
		protected bool
		past      float64
		says      string
	}{{now, true, 0, "should start in 1h0m0s"}, {later, false, 8 * (1 - math.Exp2(-0.5)), "should start in 30m0s"}} {
		if _, _, protected := e.Expect("runs", c.at); protected.IsZero() == c.protected {
			t.Errorf("at %s it is protected until %s", c.at, protected)
		}
		if past := e.Shares(c.at).Tenants[0].Past; math.Abs(past-c.past) > 1e-9 {
			t.Errorf("at %s its past is %f, want %f", c.at, past, c.past)
		}
		if _, reason, _, _ := e.Explainer(c.at).Explain("waits"); !strings.Contains(reason, c.says) {
			t.Errorf("at %s: %s", c.at, reason)
		}
	}
}
