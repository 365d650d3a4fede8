package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
	"github.com/gangd/gangd/internal/sim"
	"github.com/gangd/gangd/internal/trace"
)

// traceFlags are the options of gangd trace.
type traceFlags struct {
	cluster, estimates  string
	columns             map[string]string
	tiers               []trace.TierRule
	every, cost, resume time.Duration
	failures            trace.Failures
	play                playFlags
}

// playFlags are the options of a play that gangd sim and gangd trace share.
type playFlags struct {
	compare bool
	policy  string
	until   time.Duration
	asJSON  bool
}

func (p *playFlags) declare(f *flag.FlagSet) {
	f.BoolVar(&p.compare, "compare", false, "Play it with each of the policies, and table how they did.")
	f.StringVar(&p.policy, "policy", "gangd", "Play it with the policy of this `NAME`: "+policyNames()+".")
	f.DurationVar(&p.until, "until", sim.Forever, "End the play after this `DURATION` of virtual time, such as 90s or 1.5h, and not when\nnothing can change any more.")
	f.BoolVar(&p.asJSON, "json", false, "Print an array with a report of each policy.")
}

func policyNames() string {
	var names []string
	for _, p := range trace.Policies() {
		names = append(names, p.Name)
	}
	return strings.Join(names, ", ")
}

func traceCommand(t *terminal) *command {
	var o traceFlags
	flags := newFlags("trace")
	o.play.declare(flags)
	flags.StringVar(&o.cluster, "cluster", "", "The scenario `FILE` with the cluster, and tiers, tenants and models if need be. Required.")
	flags.StringVar(&o.estimates, "estimates", "exact", "What is known of run times: `exact` takes the column estimate, or true run times;\nclass-median the median of the last 101 gangs of the same tenant and size that have\nfinished; factor:N true run times times N.")
	o.columns = map[string]string{}
	flags.Func("column", "A `COLUMN=TITLE`, where the trace has another title for a column. Repeatable.", func(text string) error {
		column, title, both := strings.Cut(text, "=")
		if !both || title == "" {
			return errors.New("write COLUMN=TITLE")
		}
		o.columns[column] = title
		return nil
	})
	flags.Func("tier", "A `RULE` that gives jobs a tier which name none: NAME, or NAME=gpus<=N,estimate<=DURATION.\nRepeatable; the first one that takes a job counts, else it is of production.", func(text string) error {
		r, err := trace.ParseTierRule(text)
		o.tiers = append(o.tiers, r)
		return err
	})
	flags.DurationVar(&o.every, "checkpoint-every", 0, "Gangs save their state after each such `DURATION` of their run; 0: they save nothing.")
	flags.DurationVar(&o.cost, "checkpoint-cost", 5*time.Second, "The `DURATION` for which a run stands still to save on demand.")
	flags.DurationVar(&o.resume, "checkpoint-restore", 15*time.Second, "The `DURATION` that it takes to start from a checkpoint.")
	flags.Uint64Var(&o.failures.Seed, "seed", 1, "The seed `N` of failures.")
	flags.DurationVar(&o.failures.GPUMean, "gpu-mtbf", 0, "Mean `TIME` between failures of one GPU; 0: none fails.")
	flags.DurationVar(&o.failures.NodeMean, "node-mtbf", 0, "Mean `TIME` between failures of one node; 0: none fails.")
	flags.DurationVar(&o.failures.SlowMean, "slow-mtbf", 0, "Mean `TIME` until a node becomes slow; 0: none does.")
	flags.Float64Var(&o.failures.SlowFactor, "slow-factor", 2, "By which `FACTOR` a slow node takes longer.")
	flags.DurationVar(&o.failures.SpotMean, "spot-mtbf", 0, "Mean `TIME` until a spot node gets notice; 0: none does.")
	flags.DurationVar(&o.failures.Notice, "spot-notice", 2*time.Minute, "How long before it is gone a spot node gets `NOTICE`.")
	flags.DurationVar(&o.failures.Repair, "repair", time.Hour, "The `TIME` after which what failed is in order again.")
	export := flags.String("export", "", "Play nothing, and write the input as another simulator reads it: `armada`, as\nDIR/cluster.yaml and DIR/workload.yaml.")
	into := flags.String("export-dir", ".", "The `DIR` for -export.")
	return &command{
		name: "trace", arguments: " FILE.csv", flags: flags,
		synopsis: "Play a recorded workload in virtual time",
		text: "Plays the jobs of a CSV file on a cluster, with the decision engine of the agent, and\n" +
			"says how they fared by tier and size. The first line of the file has the titles of\n" +
			"columns: submit_s, gpus and duration_s, and if need be tenant, tier, model, estimate\n" +
			"(in seconds) and elastic (\"4:120;8:70\", GPUs and their seconds). At most 200,000 jobs\n" +
			"and 64 MiB are read. No agent is needed, and none is asked.\n\n" +
			"The exit code is 0 when the trace was played, and 2 when it cannot be read.",
		action: func(ctx context.Context, args []string) int {
			switch {
			case len(args) != 1:
				return t.misuse("trace takes one FILE.csv")
			case o.cluster == "":
				return t.misuse("-cluster is missing: name the scenario file with the cluster")
			case *export != "" && *export != "armada":
				return t.misuse("-export %s: there is armada", *export)
			}
			return t.trace(ctx, args[0], &o, *export, *into)
		},
	}
}

func (t *terminal) trace(ctx context.Context, path string, o *traceFlags, export, dir string) int {
	s, err := t.traced(path, o)
	if err != nil {
		fmt.Fprintln(t.err, "Error:", err)
		return exitUsage
	}
	if export != "" {
		return t.exportArmada(ctx, s, dir, o.failures.Seed)
	}
	return t.report(ctx, s, &o.play, func() (sim.Estimator, error) { return trace.NewEstimator(o.estimates) })
}

// exportArmada writes what Armada's simulator reads.
func (t *terminal) exportArmada(ctx context.Context, s *config.Scenario, dir string, seed uint64) int {
	for name, write := range map[string]func(io.Writer) error{
		"cluster.yaml":  func(w io.Writer) error { return trace.ArmadaCluster(w, s) },
		"workload.yaml": func(w io.Writer) error { return trace.ArmadaWorkload(w, s, seed) },
	} {
		f, err := os.Create(filepath.Join(dir, name))
		if err == nil {
			err = errors.Join(write(f), f.Close())
		}
		if err != nil {
			return t.fail(ctx, fmt.Errorf("export to %s: %w", dir, err))
		}
	}
	fmt.Fprintf(t.out, "%s and %s written\n", filepath.Join(dir, "cluster.yaml"), filepath.Join(dir, "workload.yaml"))
	return exitOK
}

// traced is the scenario that a trace makes.
func (t *terminal) traced(path string, o *traceFlags) (*config.Scenario, error) {
	if _, err := trace.NewEstimator(o.estimates); err != nil {
		return nil, err
	}
	src, err := t.read(o.cluster)
	if err != nil {
		return nil, err
	}
	on, err := config.ParseScenario(o.cluster, src)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	jobs, err := trace.Read(path, bufio.NewReader(f), o.columns)
	if err != nil {
		return nil, err
	}
	w := trace.Workload{Jobs: jobs, Tiers: o.tiers, Failures: o.failures}
	if o.every > 0 {
		w.Checkpoint = &gang.Checkpoint{Every: o.every, Cost: o.cost, Restore: o.resume}
	}
	return w.Scenario(on)
}

// report plays a scenario with one policy, or with all of them, and says how
// gangs fared.
func (t *terminal) report(ctx context.Context, s *config.Scenario, o *playFlags, estimator func() (sim.Estimator, error)) int {
	policies := trace.Policies()
	if !o.compare {
		p, err := trace.PolicyNamed(o.policy)
		if err != nil {
			return t.misuse("%v", err)
		}
		policies = []trace.Policy{p}
	}
	var reports []trace.Report
	for _, p := range policies {
		e, err := estimator()
		if err != nil {
			return t.fail(ctx, err)
		}
		r, err := playReport(ctx, s, p, o, e)
		if err != nil {
			return t.fail(ctx, fmt.Errorf("policy %s: %w", p.Name, err))
		}
		reports = append(reports, r)
	}
	if o.asJSON {
		return t.printJSON(reports)
	}
	t.showReports(reports)
	return exitOK
}

// playReport plays a scenario with a policy.
func playReport(ctx context.Context, s *config.Scenario, p trace.Policy, o *playFlags, e sim.Estimator) (trace.Report, error) {
	rules := s.Rules
	rules.Policy = p.Rules
	var sum *sim.Summary
	began := time.Now()
	lives, err := sim.Run(s, schedule.New(rules), sim.Options{Until: o.until, Estimator: e, NoReasons: true}, func(r sim.Record) error {
		if last, is := r.Fact.(*sim.Summary); is {
			sum = last
		}
		return ctx.Err()
	})
	if err != nil {
		return trace.Report{}, err
	}
	return trace.NewReport(p.Name, lives, sum, s.Rules, time.Since(began)), nil
}

func (t *terminal) showReports(reports []trace.Report) {
	rows := [][]string{{"Policy", "Held", "Preemptions", "Delay mean", "p50", "p99", "Slowdown", "Unfinished", "Lost", "Loading", "Widest wait", "Took"}}
	for _, r := range reports {
		rows = append(rows, []string{
			r.Policy, fmt.Sprintf("%.1f %%", 100*r.Utilization), fmt.Sprint(r.Preemptions),
			seconds(r.All.Delay.Mean), seconds(r.All.Delay.P50), seconds(r.All.Delay.P99), fmt.Sprintf("%.2f", r.All.Slowdown), fmt.Sprint(r.All.Unfinished),
			gpuTime(int64(r.All.Lost * 1000)), gpuTime(int64(r.All.Loading * 1000)), fmt.Sprintf("%s (%d GPUs)", seconds(r.WidestWait), r.Widest),
			fmt.Sprintf("%.2f s", r.WallSeconds),
		})
	}
	fmt.Fprintln(t.out, table(rows))
	t.section("By tier", table(classRows(reports, func(r trace.Report) []trace.Row { return r.ByTier })))
	t.section("By size", table(classRows(reports, func(r trace.Report) []trace.Row { return r.BySize })))
	fmt.Fprintln(t.out, "\nDelay is the time from submission to the end less the run time, wait that to the first start.")
}

// classRows put the policies of a class below each other.
func classRows(reports []trace.Report, of func(trace.Report) []trace.Row) [][]string {
	rows := [][]string{{"Class", "Gangs", "Policy", "Delay mean", "p50", "p99", "Wait mean", "p99", "Slowdown", "Unfinished", "Lost", "Loading"}}
	for i := range of(reports[0]) {
		for n, r := range reports {
			c := of(r)[i]
			name, gangs := c.Name, fmt.Sprint(c.Gangs)
			if n > 0 {
				name, gangs = "", ""
			}
			rows = append(rows, []string{
				name, gangs, r.Policy, seconds(c.Delay.Mean), seconds(c.Delay.P50), seconds(c.Delay.P99), seconds(c.Wait.Mean), seconds(c.Wait.P99),
				fmt.Sprintf("%.2f", c.Slowdown), fmt.Sprint(c.Unfinished), gpuTime(int64(c.Lost * 1000)), gpuTime(int64(c.Loading * 1000)),
			})
		}
	}
	return rows
}

// seconds shows a time that is a number of seconds.
func seconds(s float64) string { return duration(time.Duration(s * float64(time.Second))) }
