package trace

import (
	"slices"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
	"github.com/gangd/gangd/internal/sim"
)

func ofClass(tenant, tier string, gpus int, minutes float64) *config.ScenarioGang {
	return &config.ScenarioGang{
		Spec:     &gang.Spec{Tenant: tenant, Tier: tier, GPUs: gpus},
		Duration: time.Duration(minutes * float64(time.Minute)),
	}
}

func TestClassMedian(t *testing.T) {
	c := newClassMedian()
	expect := func(what string, g *config.ScenarioGang, minutes float64) {
		t.Helper()
		if got := c.Estimate(g); got != time.Duration(minutes*float64(time.Minute)) {
			t.Errorf("%s: estimated as %s, not %g minutes", what, got, minutes)
		}
	}
	a := ofClass("a", "production", 8, 999)
	expect("nothing has finished", a, 10)
	for i := range 4 {
		c.Finished(ofClass("b", "background", 1, float64(1+i)))
	}
	expect("too few have finished", a, 10)
	c.Finished(ofClass("b", "background", 1, 100))
	expect("only others have finished", a, 3)
	for range 5 {
		c.Finished(ofClass("b", "production", 2, 20))
	}
	expect("its tier", a, 20)
	for range 5 {
		c.Finished(ofClass("b", "production", 8, 30))
	}
	expect("its tier and size", a, 30)
	for _, minutes := range []float64{50, 10, 40, 70, 60} {
		c.Finished(ofClass("a", "production", 8, minutes))
	}
	expect("its tenant, tier and size", a, 50)
	for range remembered {
		c.Finished(ofClass("a", "production", 8, 5))
	}
	expect("the newest of its kind", a, 5)
}

// A history has the newest in it, sorted, whatever came.
func TestHistory(t *testing.T) {
	var h history
	var all []time.Duration
	for i := range 3*remembered + 7 {
		d := time.Duration(i * 7919 % 31)
		h.add(d)
		all = append(all, d)
		newest := slices.Sorted(slices.Values(all[max(len(all)-remembered, 0):]))
		if !slices.Equal(h.sorted, newest) {
			t.Fatalf("after %d it has %v, not %v", i, h.sorted, newest)
		}
	}
}

func TestEstimatesByName(t *testing.T) {
	g := ofClass("a", "production", 1, 10)
	for name, want := range map[string]time.Duration{"exact": 10 * time.Minute, "factor:0.5": 5 * time.Minute, "factor:3": 30 * time.Minute} {
		e, err := NewEstimator(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Estimate(g); got != want {
			t.Errorf("%s estimates %s, not %s", name, got, want)
		}
	}
	if e, err := NewEstimator("given"); e != nil || err != nil {
		t.Errorf("given: %v, %v", e, err)
	}
	for _, name := range []string{"", "true", "factor", "factor:", "factor:0", "factor:x", "factor:NaN", "factor:1e9"} {
		if _, err := NewEstimator(name); err == nil {
			t.Errorf("%q are estimates", name)
		}
	}
}

// What has not finished tells nothing: the true run times of gangs that still
// run, or are to come, change no estimate.
func TestMediansAreOfThePast(t *testing.T) {
	jobs := func(later time.Duration) []Job {
		var out []Job
		for i := range 12 {
			out = append(out, Job{Line: 2 + i, At: time.Duration(i) * time.Minute, GPUs: 1, Duration: time.Minute})
		}
		for i := range 3 {
			out = append(out, Job{Line: 20 + i, At: 6 * time.Minute, GPUs: 2, Duration: later})
		}
		return out
	}
	heard := func(later time.Duration) []time.Duration {
		w := Workload{Jobs: jobs(later)}
		s, _, err := w.Scenario(scenario(t, "cluster {\n node \"n\" {\n count = 2\n }\n}\n"))
		if err != nil {
			t.Fatal(err)
		}
		e, err := NewEstimator("class-median")
		if err != nil {
			t.Fatal(err)
		}
		lives, err := sim.Run(s, schedule.New(s.Rules), sim.Options{Until: 30 * time.Minute, Estimator: e}, func(sim.Record) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		var out []time.Duration
		for _, l := range lives {
			out = append(out, l.Gang.Spec.Estimate)
		}
		return out
	}
	one, other := heard(time.Hour), heard(90*time.Hour)
	if !slices.Equal(one, other) {
		t.Errorf("estimates are %v, and %v where others run longer", one, other)
	}
	if one[0] != supposed || one[11] != time.Minute {
		t.Errorf("the first is estimated as %s, the last as %s", one[0], one[11])
	}
}
