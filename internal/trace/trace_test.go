package trace

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/schedule"
	"github.com/gangd/gangd/internal/sim"
)

func TestReadFaults(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "t.csv:1: the trace is empty"},
		{"submit_s,gpus\n1,1\n", `no column "duration_s"`},
		{"submit_s,gpus,duration_s\n1,x,2\n", `t.csv:2: gpus "x": must be a whole number`},
		{"submit_s,gpus,duration_s\n1,1,2\n-1,1,2\n", `t.csv:3: submit_s "-1": must be a number of seconds`},
		{"submit_s,gpus,duration_s\n1,1,NaN\n", `t.csv:2: duration_s "NaN"`},
		{"submit_s,gpus,duration_s,elastic\n1,1,2,4\n", `t.csv:2: elastic "4"`},
		{"submit_s,gpus,duration_s\n1,1\n", "t.csv:2: it is no CSV here"},
	} {
		_, err := Read("t.csv", strings.NewReader(c.text), nil)
		var fault *Error
		if !errors.As(err, &fault) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.text, err, c.want)
		}
	}
	if _, err := Read("t.csv", strings.NewReader("a,b,c\n"), map[string]string{"gpu": "b"}); err == nil {
		t.Error("a column is renamed that there is not")
	}
}

func FuzzRead(f *testing.F) {
	f.Add("submit_s,gpus,duration_s,tenant,elastic\n5,8,60,a,4:120;8:60\n1,1,2.5,,\n")
	f.Add("submit_s,gpus,duration_s\n\"1,1,2\n")
	f.Fuzz(func(t *testing.T, text string) {
		jobs, err := Read("t.csv", strings.NewReader(text), nil)
		for i, j := range jobs {
			if err != nil || j.GPUs < 1 || j.Duration <= 0 || j.At < 0 || i > 0 && j.At < jobs[i-1].At {
				t.Fatalf("job %d is %+v, %v", i, j, err)
			}
		}
	})
}

func played(t *testing.T, csv, estimates string, tiers ...string) Report {
	t.Helper()
	jobs, err := Read("t.csv", strings.NewReader(csv), map[string]string{ColumnTenant: "vc"})
	if err != nil {
		t.Fatal(err)
	}
	on, err := config.ParseScenario("c.hcl", []byte(`cluster {
  node "n" {
    count = 2
  }
}`))
	if err != nil {
		t.Fatal(err)
	}
	w := Workload{Jobs: jobs}
	for _, text := range tiers {
		r, err := ParseTierRule(text)
		if err != nil {
			t.Fatal(err)
		}
		w.Tiers = append(w.Tiers, r)
	}
	s, err := w.Scenario(on)
	if err != nil {
		t.Fatal(err)
	}
	e, err := NewEstimator(estimates)
	if err != nil {
		t.Fatal(err)
	}
	var sum *sim.Summary
	lives, err := sim.Run(s, schedule.New(s.Rules), sim.Options{Until: sim.Forever, Estimator: e, NoReasons: true}, func(r sim.Record) error {
		if last, is := r.Fact.(*sim.Summary); is {
			sum = last
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return NewReport("gangd", lives, sum, s.Rules, time.Second)
}

// A short start that is taken back counts as delay, not as a short wait.
func TestReport(t *testing.T) {
	r := played(t, "submit_s,gpus,duration_s,vc\n0,16,100,a\n10,1,20,b\n", "exact", "interactive=gpus<=1,estimate<=1m")
	if r.Preemptions != 1 || r.All.Gangs != 2 || r.All.Unfinished != 0 || r.Widest != 16 {
		t.Fatalf("%+v", r)
	}
	wide := r.BySize[1]
	if wide.Wait.Max != 0 || wide.Delay.Max != 30 || wide.Lost != 160 || r.WidestWait != 30 {
		t.Errorf("the wide gang: %+v", wide)
	}
	if small := r.ByTier[0]; small.Name != "interactive" || small.Delay.Max != 0 || small.Slowdown != 1 {
		t.Errorf("the interactive one: %+v", small)
	}
}

func TestEstimates(t *testing.T) {
	for _, wrong := range []string{"", "median", "factor:", "factor:0", "factor:x"} {
		if _, err := NewEstimator(wrong); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
	e, err := NewEstimator("class-median")
	if err != nil {
		t.Fatal(err)
	}
	like := func(seconds int) *config.ScenarioGang {
		w := Workload{Jobs: []Job{{Line: 2, GPUs: 1, Duration: time.Duration(seconds) * time.Second}}}
		one, err := w.gang(&w.Jobs[0], &schedule.Config{Tiers: config.BuiltInTiers()})
		if err != nil {
			t.Fatal(err)
		}
		return &one
	}
	if d := e.Estimate(like(5)); d != supposed {
		t.Errorf("with nothing known: %s", d)
	}
	for _, s := range []int{10, 30, 20} {
		e.Finished(like(s))
	}
	if d := e.Estimate(like(5)); d != 20*time.Second {
		t.Errorf("the median is %s", d)
	}
}
