package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/armada"
	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/sim"
	"github.com/gangd/gangd/internal/trace"
)

// traceFlags are what gangd trace has beside playFlags.
type traceFlags struct {
	playFlags
	cluster, estimates string
	titles             map[string]string
	tiers              []trace.TierRule
	saves              gang.Checkpoint
	export, exportDir  string
}

func (o *traceFlags) declare(f *flag.FlagSet) {
	o.playFlags.declare(f)
	f.BoolVar(&o.asJSON, "json", false, "Print a JSON list with a report on each policy.")
	f.BoolVar(&o.check, "check", false, "Hold every record of the plays against what must always hold. It takes its time.")
	f.StringVar(&o.cluster, "cluster", "", "The scenario `FILE` that has the cluster, and tiers, tenants, models and what happens to\nnodes if need be. Its gangs are left out. Required.")
	f.StringVar(&o.estimates, "estimates", "given", "What the engine is told of run times, of which it never sees the true ones. `WHAT` is:\n"+
		"given, the column estimate, or the true time where there is none; exact, the true time;\n"+
		"class-median, the median of the newest 101 gangs that have finished by then and are of the\n"+
		"same tenant, tier, model and number of GPUs (of the same tier, model and number of GPUs,\n"+
		"of the tier, or of all, where fewer than 5 have; 10m where hardly any has);\n"+
		"factor:N, the true time, times N.")
	o.titles = make(map[string]string)
	f.Func("column", "A `COLUMN=TITLE`, where a column has another title in the trace. Repeatable.", func(text string) error {
		column, title, _ := strings.Cut(text, "=")
		if title == "" {
			return errors.New("write COLUMN=TITLE, such as gpus=num_gpu")
		}
		o.titles[column] = title
		return nil
	})
	f.Func("tier", "A `RULE` that gives a tier to jobs for which the trace names none: TIER, or TIER:BOUND,..\n"+
		"with the bounds min-gpus=N, max-gpus=N, max-estimate=DURATION and tenant=NAME. Repeatable:\n"+
		"the first that takes a job counts; else it is of "+config.DefaultTier+". The estimate is the given one,\n"+
		"whatever -estimates says: tiers are the choice of users.", func(text string) error {
		r, err := trace.ParseTierRule(text)
		o.tiers = append(o.tiers, r)
		return err
	})
	f.DurationVar(&o.saves.Every, "checkpoint-every", 0, "Gangs save their state each time that they have run for this `DURATION`; without it they\nsave nothing, and lose what they ran when they are stopped.")
	f.DurationVar(&o.saves.Cost, "checkpoint-cost", 5*time.Second, "To save on demand takes this `DURATION`.")
	f.DurationVar(&o.saves.Restore, "checkpoint-restore", 15*time.Second, "To start from what was saved takes this `DURATION`.")
	f.StringVar(&o.export, "export", "", "Play nothing, and write the input as the simulator `NAME` reads it: armada, of which the\nfiles are cluster.yaml, workload.yaml and config.yaml.")
	f.StringVar(&o.exportDir, "export-dir", ".", "The `DIR` for -export.")
}

func (o *traceFlags) wrong() error {
	if err := o.playFlags.wrong(); err != nil {
		return err
	}
	if o.cluster == "" {
		return errors.New("-cluster is missing: name the scenario file that has the cluster")
	}
	if o.export != "" && o.export != "armada" {
		return fmt.Errorf("-export %s: there is armada", o.export)
	}
	_, err := trace.NewEstimator(o.estimates)
	return err
}

func traceCommand(t *terminal) *command {
	var o traceFlags
	flags := newFlags("trace")
	o.declare(flags)
	return &command{
		name: "trace", arguments: " FILE.csv", flags: flags,
		synopsis: "Play a recorded workload in virtual time",
		text: "Plays the jobs of a CSV file on a cluster with the decision engine of the agent, and\n" +
			"prints how they fared, by tier and by size. No agent is needed, and none is asked.\n\n" +
			"The first line of the file has the titles of the columns: submit_s, gpus, duration_s, and\n" +
			"if need be tenant, tier, model, estimate (in seconds) and elastic, the sizes at which a job\n" +
			"can run with their seconds (4:120;8:70). Other columns are passed over. A job of more GPUs\n" +
			"than a node has gets as few nodes as will do, and as many GPUs on each, a few more than\n" +
			fmt.Sprintf("it asked for if need be. At most %d jobs, %d MiB, and %d KiB a line are read.\n\n", trace.MaxJobs, trace.MaxBytes>>20, trace.MaxLineBytes>>10) +
			"The exit code is 0 when the trace was played, whatever became of its jobs, and 2 when\n" +
			"something cannot be read.",
		action: func(ctx context.Context, args []string) int {
			if len(args) != 1 {
				return t.misuse("trace takes one FILE.csv, or - for standard input")
			}
			if err := o.wrong(); err != nil {
				return t.misuse("%v", err)
			}
			return t.trace(ctx, args[0], &o)
		},
	}
}

func (t *terminal) trace(ctx context.Context, path string, o *traceFlags) int {
	scenario, err := t.traced(path, o)
	if err != nil {
		return t.unreadable(err)
	}
	if o.export != "" {
		return t.export(ctx, scenario, o)
	}
	return t.report(ctx, &plays{
		playFlags: &o.playFlags, scenario: scenario, now: t.now, title: filepath.Base(fileName(path)),
		estimator: func() sim.Estimator {
			e, _ := trace.NewEstimator(o.estimates) // which was tried
			return e
		},
	})
}

// unreadable prints what is wrong with the input.
func (t *terminal) unreadable(err error) int {
	var fault *trace.Error
	var faults *config.UnreadableError
	switch {
	case errors.As(err, &fault): // which begins with its place, as all of these do
		fmt.Fprintln(t.err, fault)
	case errors.As(err, &faults):
		fmt.Fprintln(t.err, faults)
	default:
		fmt.Fprintln(t.err, "Error:", err)
	}
	return exitUsage
}

// traced makes a scenario of a trace and a cluster.
func (t *terminal) traced(path string, o *traceFlags) (*config.Scenario, error) {
	src, err := t.read(o.cluster)
	if err != nil {
		return nil, err
	}
	on, err := config.ParseScenario(o.cluster, src)
	if err != nil {
		return nil, err
	}
	jobs, err := t.readTrace(path, o.titles)
	if err != nil {
		return nil, err
	}
	w := trace.Workload{File: fileName(path), Jobs: jobs, Tiers: o.tiers}
	if o.saves.Every > 0 {
		w.Checkpoint = &o.saves
	}
	s, widened, err := w.Scenario(on)
	if err != nil {
		return nil, err
	}
	if widened > 0 {
		fmt.Fprintf(t.err, "Of %d jobs %d got a few more GPUs, so that they divide among the nodes.\n", len(jobs), widened)
	}
	o.failures.Befall(s)
	return s, nil
}

func (t *terminal) readTrace(path string, titles map[string]string) ([]trace.Job, error) {
	in := t.in
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	return trace.Read(fileName(path), in, titles)
}

// export writes what the other simulator reads.
func (t *terminal) export(ctx context.Context, s *config.Scenario, o *traceFlags) int {
	for _, file := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{"cluster.yaml", func(w io.Writer) error { return armada.WriteCluster(w, s) }},
		{"workload.yaml", func(w io.Writer) error { return armada.WriteWorkload(w, s, o.failures.Seed) }},
		{"config.yaml", func(w io.Writer) error { return armada.WriteConfig(w, s) }},
	} {
		path := filepath.Join(o.exportDir, file.name)
		var text bytes.Buffer
		if err := errors.Join(file.write(&text), os.WriteFile(path, text.Bytes(), 0o644)); err != nil {
			return t.fail(ctx, fmt.Errorf("export %s: %w", path, err))
		}
		fmt.Fprintln(t.out, path)
	}
	return exitOK
}
