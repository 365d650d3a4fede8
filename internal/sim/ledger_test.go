package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// ledger adds up, from the records alone, which of the declared tenants held how
// much, and how much of it would have been fair.
type ledger struct {
	at       time.Duration
	halfLife time.Duration
	gangs    map[gang.ID]*config.ScenarioGang
	purses   []*purse
	of       map[string]*purse
	total    float64 // GPU-seconds that they held in all
}

// purse is what a tenant has of the cluster: GPUs, and sums in GPU-seconds.
type purse struct {
	schedule.Tenant
	running, waiting int
	past             float64 // GPUs
	// held is what it had. fair sums up its shares of what all held at each
	// moment; could is what it wanted of that, had it been alone; work is that of
	// all its gangs.
	held, fair, could, work float64
	// queued is the time in which it had gangs waiting, in seconds.
	queued float64
}

func newLedger(s *config.Scenario) *ledger {
	l := &ledger{halfLife: s.Rules.HalfLife, gangs: make(map[gang.ID]*config.ScenarioGang), of: make(map[string]*purse)}
	for i := range s.Gangs {
		l.gangs[s.Gangs[i].ID] = &s.Gangs[i]
	}
	for _, t := range s.Rules.Tenants {
		p := &purse{Tenant: t}
		l.purses, l.of[t.Name] = append(l.purses, p), p
	}
	return l
}

// take takes in a record.
func (l *ledger) take(r Record) error {
	l.pass(r.At)
	g := l.gangs[r.Gang]
	if g == nil || l.of[g.Spec.Tenant] == nil {
		return nil
	}
	p := l.of[g.Spec.Tenant]
	switch f := r.Fact.(type) {
	case Submitted:
		p.waiting += g.Spec.GPUs
		p.work += float64(g.Spec.GPUs) * g.Duration.Seconds()
	case Rejected:
		return fmt.Errorf("%s is rejected: %s", r.Gang, f.Reason)
	case Started:
		p.waiting -= f.GPUs
		p.running += f.GPUs
	case Stopped:
		p.running -= g.Spec.GPUs
		if f.Cause != CauseFinished {
			p.waiting += g.Spec.GPUs
		}
	}
	return nil
}

// pass lets time go by.
func (l *ledger) pass(to time.Duration) {
	d := (to - l.at).Seconds()
	if d <= 0 {
		return
	}
	l.at = to
	running := 0
	for _, p := range l.purses {
		running += p.running
	}
	kept := 0.0
	if l.halfLife > 0 {
		kept = math.Exp2(-d / l.halfLife.Seconds())
	}
	fair := l.divide(float64(running), (*purse).wants)
	for i, p := range l.purses {
		p.held += float64(p.running) * d
		p.fair += fair[i] * d
		p.could += min(p.wants(), float64(running)) * d
		if p.waiting > 0 {
			p.queued += d
		}
		if l.halfLife > 0 {
			p.past = float64(p.running) + (p.past-float64(p.running))*kept
		}
	}
	l.total += float64(running) * d
}

// wants is what a tenant would hold at once, if it could, in GPUs.
func (p *purse) wants() float64 {
	if all := p.running + p.waiting; p.MaxGPUs == 0 || all < p.MaxGPUs {
		return float64(all)
	}
	return float64(p.MaxGPUs)
}

// share is what decides who comes first.
func (p *purse) share() float64 { return (float64(p.running) + p.past) / p.Weight }

// divide gives each tenant its weighted max-min share of so much, of which none
// takes more than it wants.
func (l *ledger) divide(much float64, wants func(*purse) float64) []float64 {
	out := make([]float64, len(l.purses))
	order := make([]int, len(l.purses))
	weights := 0.0
	for i, p := range l.purses {
		order[i] = i
		weights += p.Weight
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Compare(wants(l.purses[a])/l.purses[a].Weight, wants(l.purses[b])/l.purses[b].Weight)
	})
	for _, i := range order {
		p := l.purses[i]
		out[i] = min(wants(p), much*p.Weight/weights)
		much -= out[i]
		weights -= p.Weight
	}
	return out
}

// fairly is what each tenant should have held in all, in GPU-seconds: its share
// at each moment of what was held at that moment, or its share of all that was
// held, whichever is less. The two differ for those who come and go: the rules
// let past use count, so that who had much before others came has less now.
func (l *ledger) fairly() []float64 {
	out := l.divide(l.total, func(p *purse) float64 { return min(p.could, p.work) })
	for i, p := range l.purses {
		out[i] = min(out[i], p.fair)
	}
	return out
}
