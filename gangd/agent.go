package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/record"
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
	var rec recordFlags
	rec.declare(flags)
	flags.Var(files, "config", "The configuration: an HCL `FILE`, or a directory of *.hcl files, read as one.\nMay be given several times.")
	return &command{
		name: "agent", flags: flags,
		synopsis: "Run an agent",
		text: "Runs an agent until it gets SIGINT or SIGTERM. Of several agents one leads; the\n" +
			"others forward to it, renew the leases of keepers, and take over when it is gone.\n\n" +
			"What the leader's engine is told and decides can be recorded, for gangd sim -replay.",
		action: func(ctx context.Context, args []string) int {
			switch {
			case len(args) > 0:
				return t.misuse("agent takes no argument %q", args[0])
			case len(*files) == 0:
				return t.misuse("-config is missing")
			}
			if err := rec.wrong(); err != nil {
				return t.misuse("%v", err)
			}
			return t.runAgent(ctx, *files, rec)
		},
	}
}

// recordFlags say where an agent records.
type recordFlags struct {
	path      string
	mib, keep int
}

func (r *recordFlags) declare(f *flag.FlagSet) {
	f.StringVar(&r.path, "record", "", "While this agent leads, record what the engine is told and decides into this `FILE`. Each\ntime that it is full, and each time that this agent begins to lead, it becomes FILE.1, that\nFILE.2, and so on; each begins with the whole state, and can be replayed alone.")
	f.IntVar(&r.mib, "record-mib", 64, "A file of the recording is full with so many `MIB`, beside the state at its beginning.")
	f.IntVar(&r.keep, "record-keep", 4, "Keep the last `N` full files of the recording.")
}

func (r *recordFlags) wrong() error {
	if r.mib < 1 || r.mib > 1<<20 {
		return fmt.Errorf("-record-mib %d is not between 1 and %d", r.mib, 1<<20)
	}
	if r.keep < 0 || r.keep > 1000 {
		return fmt.Errorf("-record-keep %d is not between 0 and 1000", r.keep)
	}
	return nil
}

// recorder is nil where nothing is to be recorded.
func (r *recordFlags) recorder(log hclog.Logger) *record.Writer {
	if r.path == "" {
		return nil
	}
	return record.NewWriter(record.Options{Path: r.path, MaxBytes: int64(r.mib) << 20, Keep: r.keep, Version: version, Log: log.Named("record")})
}

// runAgent reads the configuration and serves until ctx ends, which is no
// failure.
func (t *terminal) runAgent(ctx context.Context, files []string, rec recordFlags) int {
	cfg, err := config.LoadAgent(files...)
	if err != nil {
		fmt.Fprintln(t.err, err)
		return exitUsage
	}
	log := hclog.New(&hclog.LoggerOptions{
		Name: "gangd", Level: hclog.LevelFromString(cfg.LogLevel), JSONFormat: cfg.LogJSON, Output: t.err,
	})
	if err := serve(ctx, cfg, rec, log); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintf(t.err, "Error: %v\n", err)
		return exitRefused
	}
	return exitOK
}
