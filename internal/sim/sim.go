package sim

import (
	"fmt"
	"math"
	"time"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// Engine decides. *schedule.Engine is one.
type Engine interface {
	// Apply takes in an event, and decides until nothing more can be decided.
	Apply(event schedule.Event, now time.Time) ([]schedule.Decision, error)
	// Next is when time alone will change something.
	Next() (time.Time, bool)
	// Reasons says in sentences why gangs wait, in their order; one that does not
	// wait has none.
	Reasons(ids []gang.ID) []string
	// Waits reports whether a gang waits.
	Waits(id gang.ID) bool
}

// Forever is the end of a simulation that is to run until nothing can change
// any more.
const Forever = time.Duration(math.MaxInt64)

// Bounds on a play that does not come to an end.
const (
	// maxRounds are decisions, beside so many for each gang and event.
	maxRounds     = 1_000_000
	roundsForEach = 1_000
	// maxRoundsAtOnce are decisions within one moment, beside so many for each
	// gang and event.
	maxRoundsAtOnce = 1_000
	atOnceForEach   = 10
	// maxQuiet are moments in a row in which the engine alone wanted to be
	// asked, nothing ran, and nothing was decided.
	maxQuiet = 10_000
)

// Options are how a scenario is played.
type Options struct {
	// Until is the moment of virtual time at which the play ends, if it has not by
	// itself; Forever for none.
	Until time.Duration
	// Estimator gives gangs the estimates that the engine knows them by; nil for
	// those of the scenario.
	Estimator Estimator
	// Capacity is told how many GPUs of a node can be held, whenever that changes,
	// and at the start; nil where nobody wants to know.
	Capacity func(at time.Duration, node string, gpus int)
	// Brief leaves out why gangs wait: to say so takes longer than to decide.
	Brief bool
}

// Estimator stands for what people and services know of run times.
type Estimator interface {
	// Estimate is that of a gang that arrives, at its preferred size and at speed
	// 1.
	Estimate(g *config.ScenarioGang) time.Duration
	// Finished tells of a gang that has succeeded.
	Finished(g *config.ScenarioGang)
}

// Run plays a scenario until nothing can change any more, or until a moment of
// virtual time, and tells each record as it comes; the last is the *Summary.
// The engine must be new, and made with the scenario's rules. It returns what
// became of each gang, in the order of the scenario. An error of tell ends the
// play; any other means that engine and world contradict each other.
func Run(s *config.Scenario, e Engine, o Options, tell func(Record) error) ([]Life, error) {
	w := newWorld(s, e, o, tell)
	if err := w.play(o.Until); err != nil {
		return nil, fmt.Errorf("play the scenario at %s: %w", w.now, err)
	}
	return w.lives(), nil
}

// play is the whole of a simulation: time goes on to the next moment at which
// something is due, all of it happens, and the engine decides.
func (w *world) play(until time.Duration) error {
	for w.living > 0 && w.err == nil {
		at, due := w.next()
		if !due || w.quiet > maxQuiet {
			break // nothing can change any more
		}
		if at > until {
			w.advance(until)
			break
		}
		w.advance(at)
		w.happen()
		if err := w.decide(); err != nil {
			return err
		}
	}
	w.tell("", w.summary())
	return w.err
}

// next is the moment at which something happens, or the engine wants to be
// asked.
func (w *world) next() (time.Duration, bool) {
	if len(w.events) > 0 {
		return w.now, true
	}
	at, due := w.agenda.next()
	if asked, wants := w.engine.Next(); wants {
		if t := asked.Sub(epoch); !due || t < at {
			return t, true
		}
	}
	return at, due
}

// happen lets everything happen that is due now.
func (w *world) happen() {
	for {
		do, due := w.agenda.pop(w.now)
		if !due {
			return
		}
		do()
	}
}

// decide tells the engine all that happened in this moment, and carries out
// what it decides.
func (w *world) decide() error {
	if err := w.bound(); err != nil {
		return err
	}
	var event schedule.Event = schedule.Tick{}
	if len(w.events) > 0 {
		event = schedule.Together(w.events)
	}
	w.events = nil
	decisions, refused := w.engine.Apply(event, w.clock())
	if err := w.refuse(refused, decisions); err != nil {
		return err
	}
	for _, d := range decisions {
		if err := w.carryOut(d); err != nil {
			return err
		}
	}
	w.quiet++
	if _, due := w.agenda.next(); due || len(decisions) > 0 || w.running > 0 {
		w.quiet = 0
	}
	return nil
}

// bound ends a play that would go on for ever.
func (w *world) bound() error {
	each := len(w.scenario.Gangs) + len(w.scenario.Events)
	w.rounds++
	w.atOnce++
	if w.atOnce > maxRoundsAtOnce+atOnceForEach*each {
		return fmt.Errorf("the engine does not come to rest: it has decided %d times in this moment", w.atOnce)
	}
	if w.rounds > maxRounds+roundsForEach*each {
		return fmt.Errorf("there is no end: the engine has decided %d times", w.rounds)
	}
	return nil
}
