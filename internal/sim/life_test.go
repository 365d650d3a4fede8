package sim

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// A start that is taken back at once is no end of the waiting.
func TestWaitsEndWithTheLastStart(t *testing.T) {
	s := read(t, "cluster {\n node \"n\" {}\n}\n"+
		"gang \"low\" {\n gpus = 8\n duration = \"60s\"\n tier = \"background\"\n}\n"+
		"gang \"high\" {\n at = \"1s\"\n gpus = 8\n duration = \"100s\"\n tier = \"interactive\"\n}\n"+
		"gang \"wide\" {\n gpus = 16\n duration = \"1s\"\n}\n"+
		"gang \"last\" {\n at = \"120s\"\n gpus = 8\n duration = \"1s\"\n tier = \"background\"\n}\n"+
		"gang \"never\" {\n at = \"1h\"\n gpus = 8\n duration = \"1s\"\n}\n")
	lives, err := Run(s, schedule.New(s.Rules), Options{Until: 130 * time.Second}, func(Record) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range lives {
		got = append(got, fmt.Sprintf("%s: arrived %t, rejected %t, %q, %d attempts from %s to %s, waited %s, lost %g",
			l.Gang.ID, l.Arrived, l.Rejected, l.Outcome, l.Attempts, l.Began, l.Ended, l.Waited, l.Lost))
	}
	want := []string{
		`low: arrived true, rejected false, "", 2 attempts from 0s to 2m10s, waited 1m40s, lost 8`,
		`high: arrived true, rejected false, "succeeded", 1 attempts from 1s to 1m41s, waited 0s, lost 0`,
		`wide: arrived true, rejected true, "", 0 attempts from 0s to 0s, waited 0s, lost 0`,
		`last: arrived true, rejected false, "", 0 attempts from 0s to 2m10s, waited 10s, lost 0`,
		`never: arrived false, rejected false, "", 0 attempts from 0s to 0s, waited 0s, lost 0`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// guesser estimates an hour, and notes what it hears.
type guesser struct{ heard []string }

func (g *guesser) Estimate(of *config.ScenarioGang) time.Duration {
	g.heard = append(g.heard, "estimate "+string(of.ID))
	return time.Hour
}

func (g *guesser) Finished(of *config.ScenarioGang) {
	g.heard = append(g.heard, "finished "+string(of.ID))
}

// estimates is an engine that notes by which estimates it knows gangs.
type estimates struct {
	Engine
	of map[gang.ID]time.Duration
}

func (e *estimates) Apply(event schedule.Event, now time.Time) ([]schedule.Decision, error) {
	if all, ok := event.(schedule.Together); ok {
		for _, one := range all {
			if s, ok := one.(schedule.Submit); ok {
				e.of[s.Gang.ID] = s.Gang.Spec.Estimate
			}
		}
	}
	return e.Engine.Apply(event, now)
}

// The engine knows the estimates that it is given, and the estimator hears of a
// gang when it has ended well, and not before.
func TestEstimator(t *testing.T) {
	s := read(t, "cluster {\n node \"n\" {}\n}\n"+
		"gang \"a\" {\n count = 2\n every = \"15s\"\n gpus = 8\n duration = \"10s\"\n}\n"+
		"gang \"fails\" {\n at = \"12s\"\n gpus = 4\n duration = \"20s\"\n exit {\n after = \"1s\"\n }\n}\n")
	var g guesser
	e := &estimates{schedule.New(s.Rules), make(map[gang.ID]time.Duration)}
	if _, err := Run(s, e, Options{Until: Forever, Estimator: &g}, func(Record) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if want := []string{"estimate a-0", "finished a-0", "estimate fails", "estimate a-1", "finished a-1"}; !slices.Equal(g.heard, want) {
		t.Errorf("the estimator heard %q, not %q", g.heard, want)
	}
	if want := map[gang.ID]time.Duration{"a-0": time.Hour, "a-1": time.Hour, "fails": time.Hour}; !reflect.DeepEqual(e.of, want) {
		t.Errorf("the engine knew %v, not %v", e.of, want)
	}
	if s.Gangs[0].Spec.Estimate != 10*time.Second {
		t.Errorf("the scenario now says %s", s.Gangs[0].Spec.Estimate)
	}
}
