package sim

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// play runs a scenario on an engine, checks each record, and returns the
// output.
func play(s *config.Scenario, e Engine, until time.Duration) (string, *Checker, error) {
	var out bytes.Buffer
	checker, write := NewChecker(s), WriteJSON(&out)
	var last *Summary
	lives, err := Run(s, e, Options{Until: until}, func(r Record) error {
		last, _ = r.Fact.(*Summary)
		return errors.Join(checker.Take(r), write(r))
	})
	if err == nil {
		err = addUp(lives, last)
	}
	return out.String(), checker, err
}

// addUp checks that gangs waited whenever they did not run, and that what the
// summary tells is the sum of what befell them.
func addUp(lives []Life, s *Summary) error {
	var lost, loading float64
	for _, l := range lives {
		lost += l.Lost
		loading += l.Loading
		ran := time.Duration(l.Held / float64(l.Gang.Spec.GPUs) * float64(time.Second))
		if there := l.Ended - l.Gang.At; l.Arrived && len(l.Gang.Spec.Elastic) == 0 && (there-l.Waited-ran).Abs() > time.Microsecond {
			return fmt.Errorf("gang %s was there for %s, waited %s and held its GPUs for %s", l.Gang.ID, there, l.Waited, ran)
		}
		if !l.Arrived && l.Ended > 0 {
			return fmt.Errorf("gang %s ended, and never came", l.Gang.ID)
		}
	}
	if g := s.GPUSeconds; !near(float64(g.Lost), lost) || !near(float64(g.Loading), loading) {
		return fmt.Errorf("gangs lost %g GPU-seconds and loaded for %g, and the summary says %g and %g", lost, loading, g.Lost, g.Loading)
	}
	return nil
}

// TestScenarios plays each scenario of testdata; the file of the same name
// with .txt is what comes of it.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.hcl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".hcl"), func(t *testing.T) {
			src, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			s := read(t, string(src))
			out, checker, err := play(s, schedule.New(s.Rules), Forever)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if left := checker.Unfinished(); len(left) > 0 {
				t.Errorf("%v never end", left)
			}
			if again, _, _ := play(s, schedule.New(s.Rules), Forever); again != out {
				t.Errorf("played again it gives something else:\n%s\nand\n%s", out, again)
			}
			compare(t, strings.TrimSuffix(name, ".hcl")+".txt", out)
		})
	}
}

// A play can be cut off. What runs then is charged, and what was to come is
// not spoken of.
func TestUntil(t *testing.T) {
	s := read(t, "cluster {\n node \"n\" {}\n}\n"+one(saves)+"gang \"late\" {\n at = \"1h\"\n gpus = 8\n duration = \"1s\"\n}\n")
	for until, want := range map[time.Duration]string{
		0:                `{"t":0,"event":"summary","gpu_seconds":{"capacity":0,"useful":0,`,
		seconds(25.0005): `{"t":25.0005,"event":"summary","gpu_seconds":{"capacity":200.004,"useful":200.004,`,
		seconds(100):     `{"t":100,"event":"summary","gpu_seconds":{"capacity":800,"useful":480,`,
	} {
		out, _, err := play(s, schedule.New(s.Rules), until)
		if err != nil || !strings.Contains(out, want) || strings.Contains(out, "late") {
			t.Errorf("until %s: %v\n%s\nwant %s", until, err, out, want)
		}
	}
}

// Gangs that can never run again do not keep a play from ending.
func TestNothingCanChange(t *testing.T) {
	s := read(t, "cluster {\n node \"n\" {}\n}\n"+one("")+happens("20s", "node_down", "node = \"n\""))
	out, checker, err := play(s, schedule.New(s.Rules), Forever)
	if err != nil || !slices.Equal(checker.Unfinished(), []gang.ID{"A"}) || !strings.Contains(out, `"makespan":20`) {
		t.Errorf("%v, %v\n%s", err, checker.Unfinished(), out)
	}
}

// An engine that only wants to be asked again and again, and decides nothing,
// does not keep a play from ending either, whatever time it names.
func TestAnEngineThatOnlyAsks(t *testing.T) {
	s := read(t, "cluster {\n node \"n\" {}\n}\n"+one(""))
	e := &stubborn{waits: true, decide: func(schedule.Event) ([]schedule.Decision, error) { return nil, nil }}
	asked := 0
	e.next = func() (time.Time, bool) {
		asked++
		return epoch.Add(time.Duration(asked) * time.Minute), true
	}
	out, checker, err := play(s, e, Forever)
	if err != nil || len(checker.Unfinished()) != 1 || asked > maxQuiet+10 {
		t.Errorf("%v after %d questions\n%s", err, asked, out)
	}
	e.next = func() (time.Time, bool) { return epoch.Add(-time.Hour), true }
	if out, _, err := play(s, e, Forever); err == nil || !strings.Contains(err.Error(), "come to rest") {
		t.Errorf("%v\n%s", err, out)
	}
}

// stubborn is an engine that contradicts the world.
type stubborn struct {
	decide func(schedule.Event) ([]schedule.Decision, error)
	next   func() (time.Time, bool)
	waits  bool
}

func (s *stubborn) Apply(e schedule.Event, now time.Time) ([]schedule.Decision, error) {
	return s.decide(e)
}

func (s *stubborn) Next() (time.Time, bool) {
	if s.next == nil {
		return time.Time{}, false
	}
	return s.next()
}

func (s *stubborn) Reasons(ids []gang.ID) []string { return make([]string, len(ids)) }
func (s *stubborn) Waits(gang.ID) bool             { return s.waits }

func TestEnginesThatContradictTheWorld(t *testing.T) {
	s := read(t, "cluster {\n node \"n\" {}\n}\n"+one("")+strings.Replace(one(""), "A", "other", 1))
	always := func(d ...schedule.Decision) func(schedule.Event) ([]schedule.Decision, error) {
		return func(schedule.Event) ([]schedule.Decision, error) { return d, nil }
	}
	refuses := func(err error) func(schedule.Event) ([]schedule.Decision, error) {
		return func(schedule.Event) ([]schedule.Decision, error) { return nil, err }
	}
	now := func() (time.Time, bool) { return epoch, true }
	for words, e := range map[string]*stubborn{
		"starts attempt 1 of gang B":                            {decide: always(start("B", 1, 8, "n"))},
		"starts attempt 2 of gang A":                            {decide: always(start("A", 2, 8, "n"))},
		"starts attempt 1 of gang A on [{m":                     {decide: always(start("A", 1, 8, "m"))},
		"starts attempt 1 of gang A on []":                      {decide: always(start("A", 1, 8))},
		"starts attempt 1 of gang A on [{n [0 1 2 3 4 5 6 7 8]": {decide: always(start("A", 1, 9, "n"))},
		"starts attempt 1 of gang other":                        {decide: always(start("A", 1, 8, "n"), start("other", 1, 4, "n"))},
		"stops attempt 1 of gang A":                             {decide: always(schedule.Stop{ID: "A", Attempt: 1})},
		"stops attempt 3 of gang A":                             {decide: always(schedule.CallOff{ID: "A", Attempt: 3})},
		"does not come to rest":                                 {decide: always(), next: now, waits: true},
		"tell the engine what happened":                         {decide: refuses(errors.New("a node has no name")), waits: true},
		"submit gang A: it does not like":                       {decide: refuses(errors.New("it does not like it"))},
	} {
		if out, _, err := play(s, e, Forever); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: got %v\n%s", words, err, out)
		}
	}
}

// Whatever cannot be written ends the play.
func TestOutputThatFails(t *testing.T) {
	s := read(t, "cluster {\n node \"n\" {}\n}\n"+one(""))
	full, told := errors.New("the disk is full"), 0
	_, err := Run(s, schedule.New(s.Rules), Options{Until: Forever}, func(Record) error {
		told++
		return full
	})
	if !errors.Is(err, full) || told != 1 {
		t.Errorf("got %v after %d records", err, told)
	}
}

// Of several gangs that come at once each is told its own reason.
func TestReasonsOfRefusal(t *testing.T) {
	s := read(t, "cluster {\n node \"n\" {}\n}\n"+
		"gang \"wide\" {\n count = 2\n gpus = 16\n duration = \"1s\"\n}\n"+one("")+"gang \"odd\" {\n gpus = 8\n gpu = \"X\"\n duration = \"1s\"\n}\n")
	var got []string
	_, err := Run(s, schedule.New(s.Rules), Options{Until: Forever}, func(r Record) error {
		if f, ok := r.Fact.(Rejected); ok {
			got = append(got, string(r.Gang)+": "+f.Reason)
		}
		return nil
	})
	if err != nil || len(got) != 3 || !strings.HasPrefix(got[0], "wide-0: gpus: 16") || !strings.HasPrefix(got[2], "odd: ") || !strings.Contains(got[2], `no "X" here`) {
		t.Errorf("%v, %q", err, got)
	}
}
