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
	var replay replayFlags
	flags := newFlags("sim")
	o.declare(flags)
	replay.declare(flags)
	flags.BoolVar(&o.asJSON, "json", false, "Print one JSON object a line, and the summary last; with -compare a list with a report on\neach policy.")
	return &command{
		name: "sim", arguments: " FILE", flags: flags,
		synopsis: "Play a scenario in virtual time, or replay a recording",
		text: "Plays the scenario of a file with the decision engine of the agent, and prints what\n" +
			"was decided: who started where, who waited and why, who was stopped for whom. With -\n" +
			"the file is read from standard input. No agent is needed, and none is asked.\n\n" +
			"With -replay, what an agent recorded is decided again: the log shows what it was told\n" +
			"and what it decided, and -at and -explain a moment of it.\n\n" +
			"The exit code is 0 when the scenario was played, whatever became of its gangs, 1 when a\n" +
			"replay came out otherwise than recorded, and 2 when the file cannot be read.",
		action: func(ctx context.Context, args []string) int {
			if err := replay.wrong(&o, len(args)); err != nil {
				return t.misuse("%v", err)
			}
			if replay.replay != "" {
				return t.replay(ctx, &replay, o.asJSON)
			}
			if len(args) != 1 {
				return t.misuse("sim takes one FILE, or - for standard input")
			}
			if err := o.wrong(); err != nil {
				return t.misuse("%v", err)
			}
			return t.simulate(ctx, args[0], &o, replay.record)
		},
	}
}

func (t *terminal) simulate(ctx context.Context, path string, o *playFlags, record string) int {
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
	p := plays{playFlags: o, scenario: scenario, estimator: func() sim.Estimator { return nil }, now: t.now, title: filepath.Base(path), record: record}
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
