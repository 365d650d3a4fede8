package main

import (
	"bufio"
	"context"
	"fmt"
	"time"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/schedule"
	"github.com/gangd/gangd/internal/sim"
)

func simCommand(t *terminal) *command {
	flags := newFlags("sim")
	asJSON := flags.Bool("json", false, "Print one JSON object a line, and the summary last.")
	flags.Uint64("seed", 1, "The seed `N` of what is drawn at random. A scenario leaves nothing to chance: it plays\nin the same way with each.")
	until := flags.Duration("until", sim.Forever, "End the play after this `DURATION` of virtual time, such as 90s or 1.5h, and not when\nnothing can change any more.")
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
			if *until < 0 {
				return t.misuse("-until %s lies before the start", *until)
			}
			return t.simulate(ctx, args[0], *asJSON, *until)
		},
	}
}

func (t *terminal) simulate(ctx context.Context, path string, asJSON bool, until time.Duration) int {
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
	out := bufio.NewWriter(t.out)
	tell := newSimLog(out, scenario).tell
	if asJSON {
		tell = sim.WriteJSON(out)
	}
	_, err = sim.Run(scenario, schedule.New(scenario.Rules), sim.Options{Until: until}, func(r sim.Record) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return tell(r)
	})
	if flushed := out.Flush(); err == nil {
		err = flushed
	}
	if err != nil {
		return t.fail(ctx, err)
	}
	return exitOK
}
