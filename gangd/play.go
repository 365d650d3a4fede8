package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/picture"
	"github.com/gangd/gangd/internal/report"
	"github.com/gangd/gangd/internal/sim"
	"github.com/gangd/gangd/internal/trace"
)

// playFlags are what gangd sim and gangd trace have in common.
type playFlags struct {
	compare, check, asJSON bool
	policy, html           string
	until                  time.Duration
	failures               trace.Failures
}

func (p *playFlags) declare(f *flag.FlagSet) {
	f.BoolVar(&p.compare, "compare", false, "Play it once with each policy, and table how gangs fared under them.")
	f.StringVar(&p.policy, "policy", report.Ours, "Play it with the policy of this `NAME`: "+strings.Join(report.PolicyNames()[:5], ", ")+",\n"+strings.Join(report.PolicyNames()[5:], ", ")+".")
	f.StringVar(&p.html, "html", "", "Draw the play into this `FILE`, a page that needs nothing else to be seen: who held and who\nwanted the GPUs, waits, shares, the cluster over time, lost work.")
	f.DurationVar(&p.until, "until", sim.Forever, "End the play after this `DURATION` of virtual time, such as 90s or 1.5h, and not when\nnothing can change any more.")
	f.Uint64Var(&p.failures.Seed, "seed", 1, "The seed `N` of the failures. Without means for them there are none, and nothing is left\nto chance.")
	f.DurationVar(&p.failures.GPUMean, "gpu-mtbf", 0, "Let each GPU fail at random, after this `TIME` on average.")
	f.DurationVar(&p.failures.NodeMean, "node-mtbf", 0, "Let each node fail at random, after this `TIME` on average.")
	f.DurationVar(&p.failures.Repair, "repair", time.Hour, "What failed, or is slow, is in order again after this `TIME`.")
	f.DurationVar(&p.failures.SlowMean, "slow-mtbf", 0, "Let each node become slow at random, after this `TIME` on average.")
	f.Float64Var(&p.failures.SlowFactor, "slow-factor", 2, "Runs on a slow node take longer by this `FACTOR`.")
	f.DurationVar(&p.failures.SpotMean, "spot-mtbf", 0, "Let each spot node get notice at random, after this `TIME` on average.")
	f.DurationVar(&p.failures.Notice, "spot-notice", 2*time.Minute, "A spot node is gone this `TIME` after its notice.")
}

// wrong says what is wrong with the options; nil for nothing.
func (p *playFlags) wrong() error {
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{
		{"gpu-mtbf", p.failures.GPUMean}, {"node-mtbf", p.failures.NodeMean}, {"repair", p.failures.Repair},
		{"slow-mtbf", p.failures.SlowMean}, {"spot-mtbf", p.failures.SpotMean}, {"spot-notice", p.failures.Notice},
	} {
		if d.value < 0 {
			return fmt.Errorf("-%s %s is less than no time", d.flag, d.value)
		}
	}
	if p.until < 0 {
		return fmt.Errorf("-until %s lies before the start", p.until)
	}
	if !(p.failures.SlowFactor >= 0.01 && p.failures.SlowFactor <= 1000) {
		return fmt.Errorf("-slow-factor %g is not between 0.01 and 1000", p.failures.SlowFactor)
	}
	_, err := report.PolicyNamed(p.policy)
	return err
}

// plays is a scenario that is played once or with each policy.
type plays struct {
	*playFlags
	scenario *config.Scenario
	// estimator makes the estimator of a play.
	estimator func() sim.Estimator
	// tell is told of the records of the one policy, or of ours where all are
	// compared; nil where nobody wants to know. Reasons says that it wants to hear
	// why gangs wait.
	tell    func(sim.Record) error
	reasons bool
	now     func() time.Time
	// title is what the pictures are of.
	title string
	// record is the file into which the play of the one policy is recorded.
	record string
}

// run plays, and reports on each policy.
func (p *plays) run(ctx context.Context) ([]report.Report, error) {
	var out []report.Report
	var drawn *picture.Recorder
	if p.html != "" {
		drawn = picture.NewRecorder(p.scenario)
	}
	for _, policy := range report.Policies() {
		if !p.compare && policy.Name != p.policy {
			continue
		}
		of := drawn
		if policy.Name != p.policy {
			of = nil
		}
		r, err := p.play(ctx, policy, of)
		if err != nil {
			return nil, fmt.Errorf("policy %s: %w", policy.Name, err)
		}
		out = append(out, r)
	}
	if drawn == nil {
		return out, nil
	}
	return out, p.draw(drawn, out)
}

// draw writes the page.
func (p *plays) draw(of *picture.Recorder, reports []report.Report) error {
	at := slices.IndexFunc(reports, func(r report.Report) bool { return r.Policy == p.policy })
	var page bytes.Buffer
	err := of.Write(&page, p.title, reports[at], reports)
	if err == nil {
		err = os.WriteFile(p.html, page.Bytes(), 0o644)
	}
	return err
}

// play plays with one policy, and has it drawn if that is asked for.
func (p *plays) play(ctx context.Context, policy report.Policy, drawn *picture.Recorder) (report.Report, error) {
	rules := p.scenario.Rules
	rules.Policy = policy.Rules
	var hear []func(sim.Record) error
	if p.check {
		hear = append(hear, sim.NewChecker(p.scenario).Take)
	}
	if policy.Name == p.policy && p.tell != nil {
		hear = append(hear, p.tell)
	}
	o := sim.Options{Until: p.until, Estimator: p.estimator(), Brief: !p.reasons}
	if drawn != nil {
		hear, o.Capacity = append(hear, drawn.Take), drawn.Capacity
	}
	var last *sim.Summary
	engine, recorded, err := p.recorder(rules)
	if err != nil {
		return report.Report{}, err
	}
	began := p.now()
	lives, err := sim.Run(p.scenario, engine, o,
		func(r sim.Record) error {
			if s, is := r.Fact.(*sim.Summary); is {
				last = s
			}
			for _, h := range hear {
				if err := h(r); err != nil {
					return err
				}
			}
			return ctx.Err()
		})
	if written := recorded(); err == nil {
		err = written
	}
	if err != nil {
		return report.Report{}, err
	}
	return report.New(policy.Name, p.scenario, lives, last, p.now().Sub(began)), nil
}
