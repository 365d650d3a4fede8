package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/hashicorp/cli"
	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/internal/config"
)

// paths is an option that may be given several times.
type paths []string

func (p *paths) String() string { return strings.Join(*p, ", ") }

// Set adds one.
func (p *paths) Set(path string) error {
	*p = append(*p, path)
	return nil
}

func agentFlags() (*flag.FlagSet, *paths) {
	f, files := newFlags("agent"), new(paths)
	f.Var(files, "config", "The configuration: an HCL `FILE`, or a directory of *.hcl files, read as one.\nMay be given several times.")
	return f, files
}

func agentCommand(t *terminal) *command {
	flags, _ := agentFlags()
	c := &command{
		name: "agent", flags: flags,
		synopsis: "Run an agent",
		text:     "Runs an agent until it gets SIGINT or SIGTERM. Of several agents one leads; the\nothers follow its state, forward to it, and take over when it is gone.",
	}
	c.raw = func(args []string) int {
		return runAgent(args, &cli.BasicUi{Reader: t.in, Writer: t.out, ErrorWriter: t.err})
	}
	return c
}

// runAgent reads the configuration and serves until a signal ends it. It
// returns the exit code: 2 for a wrong command line or configuration.
var runAgent = func(args []string, ui cli.Ui) int {
	flags, files := agentFlags()
	rest, err := parseFlags(flags, args)
	switch {
	case err != nil:
		ui.Error(fmt.Sprintf("Error: %v: see gangd agent -help", err))
		return exitUsage
	case len(rest) > 0:
		ui.Error(fmt.Sprintf("Error: agent takes no argument %q: see gangd agent -help", rest[0]))
		return exitUsage
	case len(*files) == 0:
		ui.Error("Error: -config is missing: see gangd agent -help")
		return exitUsage
	}
	cfg, err := config.LoadAgent(*files...)
	if err != nil {
		ui.Error(err.Error())
		return exitUsage
	}
	log := hclog.New(&hclog.LoggerOptions{
		Name: "gangd", Level: hclog.LevelFromString(cfg.LogLevel), JSONFormat: cfg.LogJSON, Output: os.Stderr,
	})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, cfg, log); err != nil && !errors.Is(err, context.Canceled) {
		ui.Error(fmt.Sprintf("Error: %v", err))
		return exitRefused
	}
	return exitOK
}
