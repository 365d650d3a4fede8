package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/record"
)

// terminal is what a command has around it.
type terminal struct {
	in       io.Reader
	out, err io.Writer
	// live says that lines may be drawn again, bold that titles may stand out.
	live, bold bool
	// width is in columns; 0 where there is no end.
	width  func() int
	now    func() time.Time
	getenv func(string) string
	// patience bounds how long an agent that asks to be asked again is.
	patience time.Duration
	// redraw is how often a live line is drawn while nothing happens; 0 for
	// never.
	redraw time.Duration
}

// command is one subcommand, as hashicorp/cli wants it.
type command struct {
	name, arguments string
	synopsis        string
	// text is the help below the usage line.
	text string
	// flags declares the options of one run, and action carries it out with
	// the arguments that are left.
	flags  *flag.FlagSet
	action func(ctx context.Context, args []string) int

	ctx      context.Context
	terminal *terminal
}

func newFlags(name string) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	return f
}

// Synopsis is the line in the list of commands.
func (c *command) Synopsis() string { return c.synopsis }

// Help is what -help prints.
func (c *command) Help() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: gangd %s [options]%s\n\n", c.name, c.arguments)
	for _, line := range strings.Split(c.text, "\n") {
		b.WriteString(strings.TrimRight("  "+line, " ") + "\n")
	}
	b.WriteString("\nOptions:\n")
	c.flags.VisitAll(func(f *flag.Flag) {
		value, usage := flag.UnquoteUsage(f)
		fmt.Fprintf(&b, "\n  %s\n", strings.TrimRight("-"+f.Name+" "+value, " "))
		fmt.Fprintf(&b, "    %s\n", strings.ReplaceAll(usage, "\n", "\n    "))
	})
	return strings.TrimRight(b.String(), "\n")
}

// Run reads the options and carries the command out.
func (c *command) Run(args []string) int {
	rest, err := parseFlags(c.flags, args)
	if err != nil {
		return c.usage(err.Error())
	}
	code := c.action(c.ctx, rest)
	if code == exitUsageShown {
		fmt.Fprintf(c.terminal.err, "\n%s\n", c.Help())
		return exitUsage
	}
	return code
}

// exitUsageShown asks Run to print the help.
const exitUsageShown = -1

func (c *command) usage(problem string) int {
	fmt.Fprintf(c.terminal.err, "Error: %s\n\n%s\n", problem, c.Help())
	return exitUsage
}

// parseFlags takes options also after arguments.
func parseFlags(f *flag.FlagSet, args []string) ([]string, error) {
	var rest []string
	for {
		if err := f.Parse(args); err != nil {
			return nil, err
		}
		if f.NArg() == 0 {
			return rest, nil
		}
		rest = append(rest, f.Arg(0))
		args = f.Args()[1:]
	}
}

// misuse says what is wrong with the arguments, before the help.
func (t *terminal) misuse(format string, args ...any) int {
	fmt.Fprintf(t.err, "Error: "+format+"\n", args...)
	return exitUsageShown
}

// fail prints an error and chooses the exit code for it.
func (t *terminal) fail(ctx context.Context, err error) int {
	if ctx.Err() != nil {
		return exitInterrupted
	}
	fmt.Fprintf(t.err, "Error: %v\n", err)
	var unreadable *config.UnreadableError
	if errors.As(err, &unreadable) || errors.Is(err, errUnreadable) || errors.Is(err, record.ErrUnreadable) {
		return exitUsage
	}
	return exitRefused
}
