package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

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

func agentCommand(t *terminal) *command {
	flags, files := newFlags("agent"), new(paths)
	flags.Var(files, "config", "The configuration: an HCL `FILE`, or a directory of *.hcl files, read as one.\nMay be given several times.")
	return &command{
		name: "agent", flags: flags,
		synopsis: "Run an agent",
		text: "Runs an agent until it gets SIGINT or SIGTERM. Of several agents one leads; the\n" +
			"others forward to it, renew the leases of keepers, and take over when it is gone.",
		action: func(ctx context.Context, args []string) int {
			switch {
			case len(args) > 0:
				return t.misuse("agent takes no argument %q", args[0])
			case len(*files) == 0:
				return t.misuse("-config is missing")
			}
			return t.runAgent(ctx, *files)
		},
	}
}

// runAgent reads the configuration and serves until ctx ends, which is no
// failure.
func (t *terminal) runAgent(ctx context.Context, files []string) int {
	cfg, err := config.LoadAgent(files...)
	if err != nil {
		fmt.Fprintln(t.err, err)
		return exitUsage
	}
	log := hclog.New(&hclog.LoggerOptions{
		Name: "gangd", Level: hclog.LevelFromString(cfg.LogLevel), JSONFormat: cfg.LogJSON, Output: t.err,
	})
	if err := serve(ctx, cfg, log); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintf(t.err, "Error: %v\n", err)
		return exitRefused
	}
	return exitOK
}
