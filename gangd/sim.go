package main

import (
	"bufio"
	"context"
	"fmt"
	"path/filepath"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/sim"
)

func simCommand(t *terminal) *command {
	var o playFlags
	flags := newFlags("sim")
	o.declare(flags)
	flags.BoolVar(&o.asJSON, "json", false, "Print one JSON object a line, and the summary last; with -compare a list with a report on\neach policy.")
	return &command{
		name: "sim", arguments: " FILE", flags: flags,
		synopsis: "Play a scenario in virtual time",
		text: "Plays the scenario of a file with the decision engine of the agent, and prints what\n" +
			"was decided: who started where, who waited and why, who was stopped for whom. With -\n" +
			"the file is read from standard input. No agent is needed, and none is asked.\n\n" +
			"The exit code is 0 when the scenario was played, whatever became of its gangs, and 2\n" +
			"when the file cannot be read.",
		action: func(ctx context.Context, args []string) int {
			if len(args) != 1 {
				return t.misuse("sim takes one FILE, or - for standard input")
			}
			if err := o.wrong(); err != nil {
				return t.misuse("%v", err)
			}
			return t.simulate(ctx, args[0], &o)
		},
	}
}

func (t *terminal) simulate(ctx context.Context, path string, o *playFlags) int {
	src, err := t.read(path)
	if err != nil {
		return t.fail(ctx, err)
	}
	if path == "-" {
		path = "<stdin>"
	}
	scenario, err := config.ParseScenario(path, src)
	if err != nil {
		fmt.Fprintln(t.err, err)
		return exitUsage
	}
	o.failures.Befall(scenario)
	p := plays{playFlags: o, scenario: scenario, estimator: func() sim.Estimator { return nil }, now: t.now, title: filepath.Base(path)}
	if o.compare {
		return t.report(ctx, &p)
	}
	out := bufio.NewWriter(t.out)
	p.reasons, p.tell = true, newSimLog(out, scenario).tell
	if o.asJSON {
		p.tell = sim.WriteJSON(out)
	}
	_, err = p.run(ctx)
	if flushed := out.Flush(); err == nil {
		err = flushed
	}
	if err != nil {
		return t.fail(ctx, err)
	}
	return exitOK
}

// report plays, and prints how gangs fared.
func (t *terminal) report(ctx context.Context, p *plays) int {
	reports, err := p.run(ctx)
	if err != nil {
		return t.fail(ctx, err)
	}
	if p.asJSON {
		return t.printJSON(reports)
	}
	t.showReports(reports)
	return exitOK
}
