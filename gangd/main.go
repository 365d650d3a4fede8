// Command gangd is the scheduler's agent and its command line.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/cli"
	"golang.org/x/term"
)

// Exit codes.
const (
	exitOK          = 0
	exitRefused     = 1 // refused, failed, or not to be had
	exitUsage       = 2 // a wrong command line, or input that cannot be read
	exitInterrupted = 130
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, standardTerminal(), os.Args[1:])
	stop()
	os.Exit(code)
}

func standardTerminal() *terminal {
	live := term.IsTerminal(int(os.Stdout.Fd()))
	return &terminal{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		live: live,
		bold: live && os.Getenv("NO_COLOR") == "",
		now:  time.Now,
		width: func() int {
			width, _, err := term.GetSize(int(os.Stdout.Fd()))
			if err != nil || !live {
				return 0
			}
			return width
		},
		getenv:   os.Getenv,
		patience: 15 * time.Second,
		redraw:   redrawInterval,
	}
}

// run executes one command line.
func run(ctx context.Context, t *terminal, args []string) int {
	c := cli.NewCLI("gangd", versionText())
	c.Args = args
	c.Autocomplete = false
	c.HelpWriter = t.out
	c.ErrorWriter = t.err
	c.Commands = commands(ctx, t)
	c.HelpFunc = help
	if name := c.Subcommand(); name != "" && c.Commands[name] == nil {
		fmt.Fprintf(t.err, "Error: no command %q\n\n", name)
	}
	code, err := c.Run()
	switch {
	case err != nil:
		fmt.Fprintln(t.err, "Error:", err)
		return exitUsage
	case code == 127: // no such command
		return exitUsage
	}
	return code
}

// help lists the commands, and says where to read on.
func help(commands map[string]cli.CommandFactory) string {
	return strings.TrimRight(cli.BasicHelpFunc("gangd")(commands), "\n") + "\n\n" +
		"gangd COMMAND -h tells what a command does, and its options. Commands speak to the\n" +
		"agent that -address names, else GANGD_ADDR in the environment, else " + defaultAddress + "."
}

func commands(ctx context.Context, t *terminal) map[string]cli.CommandFactory {
	factories := map[string]cli.CommandFactory{}
	for _, c := range []*command{
		agentCommand(t), cancelCommand(t), explainCommand(t), holdCommand(t), maintenanceCommand(t), nodesCommand(t), releaseCommand(t), reorderCommand(t),
		sharesCommand(t), simCommand(t), statusCommand(t), submitCommand(t), traceCommand(t), versionCommand(t),
	} {
		c.ctx, c.terminal = ctx, t
		factories[c.name] = func() (cli.Command, error) { return c, nil }
	}
	return factories
}
