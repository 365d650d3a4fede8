package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// epoch is the engine's time at the start of a play.
var epoch = time.Unix(0, 0).UTC()

// world is the cluster and the gangs as they truly are.
type world struct {
	scenario *config.Scenario
	engine   Engine
	options  Options
	sink     func(Record) error
	// err is the first error of the sink.
	err error

	now    time.Duration
	agenda agenda
	nodes  map[string]*node
	jobs   map[gang.ID]*job
	order  []*job // as in the file
	models map[string]schedule.Model

	// events are what the engine has not been told yet of this moment, and
	// submitted the jobs that came with them.
	events    []schedule.Event
	submitted []*job

	// living are the jobs that have not ended, those to come included; waiting
	// and running are some of them.
	living, waiting, running int
	account                  account
	// rounds are the engine's decisions, atOnce those of this moment, and quiet
	// those in a row in which nothing came of it.
	rounds, atOnce, quiet int
}

func newWorld(s *config.Scenario, e Engine, o Options, tell func(Record) error) *world {
	w := &world{
		scenario: s, engine: e, options: o, sink: tell,
		nodes: make(map[string]*node, len(s.Nodes)), jobs: make(map[gang.ID]*job, len(s.Gangs)),
		models: make(map[string]schedule.Model), living: len(s.Gangs),
	}
	for _, m := range s.Rules.Models {
		w.models[m.Name] = m
	}
	for _, spec := range s.Nodes {
		n := &node{spec: spec, factor: 1}
		w.nodes[spec.ID] = n
		w.changed(n)
	}
	for i := range s.Gangs {
		j := &job{ScenarioGang: s.Gangs[i]}
		w.jobs[j.ID] = j
		w.order = append(w.order, j)
		w.agenda.note(j.At, j.Line, func() { w.arrive(j) })
	}
	for _, e := range s.Events {
		w.agenda.note(e.At, e.Line, func() { w.befall(e) })
	}
	return w
}

// clock is the present moment as the engine sees it.
func (w *world) clock() time.Time { return epoch.Add(w.now) }

// advance lets time pass.
func (w *world) advance(to time.Duration) {
	if to > w.now {
		w.account.pass(to-w.now, w.waiting > 0)
		w.now, w.atOnce = to, 0
	}
}

// tell hands on a record.
func (w *world) tell(id gang.ID, f Fact) {
	if w.err == nil {
		w.err = w.sink(Record{w.now, id, f})
	}
}

// inform notes what the engine is to be told of this moment.
func (w *world) inform(events ...schedule.Event) { w.events = append(w.events, events...) }

// refuse tells the gangs that the engine did not take. It says why of each in
// the order in which they came, so that the ones that neither wait nor started
// are those, one for one.
func (w *world) refuse(refused error, decisions []schedule.Decision) error {
	submitted := w.submitted
	w.submitted = nil
	reasons := apart(refused)
	if len(reasons) == 0 {
		return nil
	}
	started := make(map[gang.ID]bool)
	for _, d := range decisions {
		if s, ok := d.(schedule.Start); ok {
			started[s.ID] = true
		}
	}
	for _, j := range submitted {
		if w.engine.Waits(j.ID) || started[j.ID] {
			continue
		}
		if len(reasons) == 0 {
			return fmt.Errorf("gang %s was submitted, and the engine neither has it nor says why not", j.ID)
		}
		why := new(gang.RefusedError)
		if !errors.As(reasons[0], &why) {
			return fmt.Errorf("submit gang %s: %w", j.ID, reasons[0])
		}
		reasons = reasons[1:]
		w.reject(j, why.Error())
	}
	if len(reasons) > 0 {
		return fmt.Errorf("tell the engine what happened: %w", reasons[0])
	}
	return nil
}

// apart returns the errors that were joined.
func apart(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		if err == nil {
			return nil
		}
		return []error{err}
	}
	var all []error
	for _, one := range joined.Unwrap() {
		all = append(all, apart(one)...)
	}
	return all
}
