package sim

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
	"github.com/gangd/gangd/internal/soak"
)

// counter is the engine, and counts the events that it is told of.
type counter struct {
	*schedule.Engine
	events int
}

// Apply counts.
func (c *counter) Apply(event schedule.Event, now time.Time) ([]schedule.Decision, error) {
	if all, together := event.(schedule.Together); together {
		c.events += len(all)
	} else {
		c.events++
	}
	return c.Engine.Apply(event, now)
}

// meddler is the engine, in whose place attempts are ordered to stop, to be
// resized, and to carry on, as a test draws it.
type meddler struct {
	counter
	t       *rapid.T
	at      time.Time
	left    int
	running []schedule.Start
	pinned  map[gang.ID]bool
	ordered map[schedule.Seat]bool
}

// Apply adds orders to what the engine decides.
func (m *meddler) Apply(event schedule.Event, now time.Time) ([]schedule.Decision, error) {
	m.forget(event)
	out, err := m.counter.Apply(event, now)
	out = slices.DeleteFunc(out, func(d schedule.Decision) bool { _, stops := d.(schedule.Stop); return stops })
	for _, d := range out {
		if s, ok := d.(schedule.Start); ok {
			m.running = append(m.running, s)
		}
	}
	if m.left == 0 || now.Before(m.at) || len(m.running) == 0 {
		return out, err
	}
	m.left--
	m.at = now.Add(time.Duration(rapid.IntRange(0, 20_000).Draw(m.t, "pause")) * time.Millisecond)
	victim := rapid.SampledFrom(m.running).Draw(m.t, "victim")
	seat := schedule.Seat{ID: victim.ID, Attempt: victim.Attempt}
	if m.ordered[seat] && rapid.Bool().Draw(m.t, "call off") {
		delete(m.ordered, seat)
		return append(out, schedule.CallOff{ID: victim.ID, Attempt: victim.Attempt}), err
	}
	causes := []schedule.Cause{schedule.Drained, schedule.Spot, schedule.Resized}
	if !m.pinned[victim.ID] {
		causes = append(causes, schedule.Preempted)
	}
	stop := schedule.Stop{
		ID: victim.ID, Attempt: victim.Attempt, Cause: rapid.SampledFrom(causes).Draw(m.t, "cause"),
		Mode: rapid.SampledFrom([]schedule.Mode{schedule.Graceful, schedule.Hard}).Draw(m.t, "mode"), For: "another", To: victim.GPUs + 1,
	}
	if rapid.Bool().Draw(m.t, "hurry") {
		stop.By = now.Add(time.Duration(rapid.IntRange(0, 5).Draw(m.t, "grace")) * time.Second)
	}
	m.ordered[seat] = true
	return append(out, stop), err
}

// forget drops the attempts that are over.
func (m *meddler) forget(event schedule.Event) {
	switch e := event.(type) {
	case schedule.Together:
		for _, one := range e {
			m.forget(one)
		}
	case schedule.Release:
		m.running = slices.DeleteFunc(m.running, func(s schedule.Start) bool { return s.ID == e.Seat.ID && s.Attempt == e.Seat.Attempt })
	}
}

// Next asks to be asked when the next order may be given.
func (m *meddler) Next() (time.Time, bool) {
	at, wants := m.Engine.Next()
	if m.left > 0 && len(m.running) > 0 && (!wants || m.at.Before(at)) {
		return m.at, true
	}
	return at, wants
}

// Random plays come to an end at which every gang has ended, keep all
// invariants, and come out the same when they are played again.
func TestRandomPlays(t *testing.T) {
	soak.Check(t, 50_000, func(t *rapid.T) int {
		src := drawScenario(t)
		s, err := config.ParseScenario("drawn.hcl", []byte(src))
		if err != nil {
			t.Fatalf("%v\n%s", err, src)
		}
		e := &counter{Engine: schedule.New(s.Rules)}
		out, checker, err := play(s, e, Forever)
		if left := checker.Unfinished(); err != nil || len(left) > 0 {
			t.Fatalf("%v; unfinished: %v\n%s\n%s", err, left, src, out)
		}
		if again, _, _ := play(s, schedule.New(s.Rules), Forever); again != out {
			t.Fatalf("played again it gives something else:\n%s\nand\n%s", out, again)
		}
		return e.events
	})
}

// The same with stops of every kind at any time.
func TestRandomPlaysWithStops(t *testing.T) {
	soak.Check(t, 50_000, func(t *rapid.T) int {
		src := drawScenario(t)
		s, err := config.ParseScenario("drawn.hcl", []byte(src))
		if err != nil {
			t.Fatalf("%v\n%s", err, src)
		}
		rules := s.Rules
		rules.Policy.NoPreemption = true // nobody waits for what it would have stopped
		m := &meddler{counter: counter{Engine: schedule.New(rules)}, t: t, at: epoch, left: 30, pinned: make(map[gang.ID]bool), ordered: make(map[schedule.Seat]bool)}
		for _, g := range s.Gangs {
			m.pinned[g.ID] = g.Spec.Pinned
		}
		out, checker, err := play(s, m, Forever)
		if left := checker.Unfinished(); err != nil || len(left) > 0 {
			t.Fatalf("%v; unfinished: %v\n%s\n%s", err, left, src, out)
		}
		return m.events
	})
}
