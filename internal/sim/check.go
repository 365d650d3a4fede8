package sim

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// Checker holds the records of a play against what must hold in every one,
// whatever the policies: no GPU is held twice or while it is out of order, a
// gang runs whole, an end is an end, and use is charged once. It knows the
// scenario and the records alone, and nothing of how they came about.
type Checker struct {
	scenario *config.Scenario
	at       time.Duration
	over     bool
	gangs    map[gang.ID]*watched
	ground   *ground
	tenants  map[string]int // GPUs held
	// charged is what attempts held, in GPU-seconds.
	charged     map[string]float64
	preemptions int
}

// watched is a gang as the records show it.
type watched struct {
	config.ScenarioGang
	submitted, ended bool
	attempts         int
	run              *Started
	began            time.Duration
	// saved is what its checkpoints are worth, as far as they were told.
	saved     time.Duration
	calledOff bool
	cause     schedule.Cause // of its last stop
}

// NewChecker makes one for a play of the scenario.
func NewChecker(s *config.Scenario) *Checker {
	c := &Checker{
		scenario: s, gangs: make(map[gang.ID]*watched), ground: newGround(s),
		tenants: make(map[string]int), charged: make(map[string]float64),
	}
	for _, g := range s.Gangs {
		c.gangs[g.ID] = &watched{ScenarioGang: g}
	}
	return c
}

// Take checks the next record. An error says what must not be; nothing is to
// be made of later records then.
func (c *Checker) Take(r Record) error {
	if err := c.take(r); err != nil {
		return fmt.Errorf("at %s gang %q %s: %w", r.At, r.Gang, r.Fact.Event(), err)
	}
	return nil
}

func (c *Checker) take(r Record) error {
	switch {
	case c.over:
		return errors.New("something follows the summary")
	case r.At < c.at:
		return fmt.Errorf("time went back from %s", c.at)
	}
	if err := c.ground.pass(r.At); err != nil {
		return err
	}
	c.at = r.At
	if s, last := r.Fact.(*Summary); last {
		c.over = true
		return c.summary(s)
	}
	g := c.gangs[r.Gang]
	switch {
	case g == nil:
		return errors.New("the scenario has no such gang")
	case g.ended:
		return errors.New("it has come to its end before")
	}
	if _, first := r.Fact.(Submitted); first == g.submitted {
		return errors.New("a gang is submitted first, and once")
	}
	return c.fact(g, r.Fact)
}

func (c *Checker) fact(g *watched, f Fact) error {
	switch f := f.(type) {
	case Submitted:
		g.submitted = true
		if g.At != c.at {
			return fmt.Errorf("it arrives at %s", g.At)
		}
	case Rejected:
		g.ended = true
		if g.attempts > 0 {
			return errors.New("it has run")
		}
	case Pending, Reserved:
		if g.run != nil {
			return errors.New("it runs")
		}
	case Started:
		return c.started(g, f)
	case Finished:
		return c.finished(g, f)
	default:
		return c.whileRunning(g, f)
	}
	return nil
}

// whileRunning checks what can be said of a gang that runs alone.
func (c *Checker) whileRunning(g *watched, f Fact) error {
	if g.run == nil {
		return errors.New("it does not run")
	}
	switch f := f.(type) {
	case Preempting:
		if g.Spec.Pinned {
			return errors.New("it may not be preempted")
		}
	case CalledOff:
		g.calledOff = true
	case Resizing:
		if f.From != g.run.GPUs || f.To == f.From {
			return fmt.Errorf("it has %d GPUs", g.run.GPUs)
		}
	case Checkpointed:
		done := time.Duration(f.Done)
		if g.Spec.Checkpoint == nil || done < g.saved || done > g.Duration {
			return fmt.Errorf("%s are done, after %s, of %s", done, g.saved, g.Duration)
		}
		g.saved = done
	case Stopped:
		return c.stopped(g, f)
	}
	return nil
}

func (c *Checker) started(g *watched, f Started) error {
	resumed := time.Duration(f.ResumedFrom)
	switch {
	case g.run != nil:
		return errors.New("it runs already")
	case f.Attempt != g.attempts+1:
		return fmt.Errorf("that is attempt %d after %d", f.Attempt, g.attempts)
	case resumed > 0 && g.Spec.Checkpoint == nil:
		return errors.New("it cannot have a checkpoint")
	case resumed < g.saved || resumed > g.Duration:
		return fmt.Errorf("it goes on from %s, and had saved %s of %s", resumed, g.saved, g.Duration)
	}
	if err := whole(g.Spec, f); err != nil {
		return err
	}
	if err := c.ground.take(g.Spec, f); err != nil {
		return err
	}
	c.tenants[g.Spec.Tenant] += f.GPUs
	for _, t := range c.scenario.Rules.Tenants {
		if t.Name == g.Spec.Tenant && t.MaxGPUs > 0 && c.tenants[t.Name] > t.MaxGPUs {
			return fmt.Errorf("tenant %s holds %d GPUs then, and may hold %d", t.Name, c.tenants[t.Name], t.MaxGPUs)
		}
	}
	g.attempts, g.run, g.began, g.saved, g.calledOff = f.Attempt, &f, c.at, resumed, false
	return nil
}

// whole checks that the members are all there, and one like the other.
func whole(s *gang.Spec, f Started) error {
	allowed := f.GPUs == s.GPUs || slices.ContainsFunc(s.Elastic, func(size gang.Size) bool { return size.GPUs == f.GPUs })
	if !allowed || gang.Placement(f.Members).GPUs() != f.GPUs || len(f.Members) == 0 {
		return fmt.Errorf("%d GPUs are no size of it, or not those of its members: %v", f.GPUs, f.Members)
	}
	each := len(f.Members[0].GPUs)
	if perNode := s.GPUsPerNode; perNode > 0 && each != min(perNode, f.GPUs) {
		return fmt.Errorf("its members have %d GPUs, not %d", each, perNode)
	}
	seen := make(map[string]bool)
	for _, m := range f.Members {
		if seen[m.Node] || len(m.GPUs) != each {
			return fmt.Errorf("two members are on node %s, or one has not %d GPUs", m.Node, each)
		}
		seen[m.Node] = true
	}
	return nil
}

func (c *Checker) stopped(g *watched, f Stopped) error {
	run := g.run
	g.run, g.cause = nil, f.Cause
	c.tenants[g.Spec.Tenant] -= run.GPUs
	c.charged[g.Spec.Tenant] += float64(run.GPUs) * (c.at - g.began).Seconds()
	c.ground.release(*run)
	if f.Cause == schedule.Preempted {
		c.preemptions++
	}
	if f.Lost < 0 {
		return errors.New("it lost less than nothing")
	}
	if f.Cause == CauseFinished {
		return c.completed(g, *run)
	}
	return nil
}

// completed checks that a gang did all its run, by the clock. Slow nodes, and
// stops that were called off, do not show in the records.
func (c *Checker) completed(g *watched, run Started) error {
	const slack = 2 * time.Microsecond
	slow := slices.ContainsFunc(c.scenario.Events, func(e config.ScenarioEvent) bool { return e.Kind == config.Slow })
	if slow || g.calledOff {
		return nil
	}
	var prepared time.Duration
	speeds := map[string]float64{}
	for _, m := range c.scenario.Rules.Models {
		if m.Name == g.Spec.Model {
			speeds = m.Speed
			if run.Warm < len(run.Members) {
				prepared = m.Load
			}
		}
	}
	if run.ResumedFrom > 0 {
		prepared = max(prepared, g.Spec.Checkpoint.Restore)
	}
	speed, known := speeds[c.ground.model(run.Members[0].Node)]
	if !known {
		speed = 1
	}
	did := float64(c.at-g.began-prepared) * speed * g.Spec.SpeedAt(run.GPUs)
	if left := float64(g.Duration - time.Duration(run.ResumedFrom)); math.Abs(did-left) > float64(slack)*max(speed, 1) {
		return fmt.Errorf("it ran for %s, and had %s to do", time.Duration(did), time.Duration(left))
	}
	return nil
}

func (c *Checker) finished(g *watched, f Finished) error {
	g.ended = true
	want := Failed
	switch {
	case g.run != nil:
		return errors.New("it still runs")
	case g.cause == CauseFinished:
		want = Succeeded
	case f.Outcome == Cancelled:
		want = Cancelled // it waited, whatever ended the attempt before
	}
	if f.Outcome != want || g.attempts == 0 && f.Outcome != Cancelled {
		return fmt.Errorf("it is said to have %s after a stop of cause %q", f.Outcome, g.cause)
	}
	return nil
}

// summary checks that what was held was charged once, to its tenant, and that
// all of it is accounted for.
func (c *Checker) summary(s *Summary) error {
	total := 0.0
	for _, g := range c.scenario.Gangs {
		if w := c.gangs[g.ID]; w.run != nil {
			c.charged[g.Spec.Tenant] += float64(w.run.GPUs) * (c.at - w.began).Seconds()
		}
	}
	for tenant, t := range s.PerTenant {
		if !near(float64(t.GPUSeconds), c.charged[tenant]) {
			return fmt.Errorf("tenant %s is charged %g GPU-seconds, and held %g", tenant, t.GPUSeconds, c.charged[tenant])
		}
		total += c.charged[tenant]
	}
	g := s.GPUSeconds
	if used := g.Useful + g.Lost + g.Wasted + g.Loading + g.Saving; !near(float64(used), total) {
		return fmt.Errorf("%g GPU-seconds are accounted for, of %g that were held", used, total)
	}
	for _, part := range []Amount{g.Useful, g.Lost, g.Wasted, g.Loading, g.Saving, g.IdleWhilePending, g.Capacity - g.IdleWhilePending - Amount(total)} {
		if part < -1e-3 {
			return fmt.Errorf("something is less than nothing in %+v", g)
		}
	}
	if s.Preemptions != c.preemptions {
		return fmt.Errorf("%d preemptions are told of %d", s.Preemptions, c.preemptions)
	}
	return nil
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-3+1e-9*math.Abs(b) }

// Unfinished lists the gangs that were submitted and have not come to an end.
func (c *Checker) Unfinished() []gang.ID {
	var out []gang.ID
	for _, g := range c.scenario.Gangs {
		if w := c.gangs[g.ID]; w.submitted && !w.ended {
			out = append(out, g.ID)
		}
	}
	slices.SortFunc(out, cmp.Compare[gang.ID])
	return out
}
