package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/gangd/gangd/internal/api"
	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/gang"
)

// submission is the command line of one submit.
type submission struct {
	detach, asJSON bool
	output         string
}

func submitCommand(t *terminal) *command {
	flags := newFlags("submit")
	connect := t.addressFlag(flags)
	var s submission
	flags.BoolVar(&s.detach, "detach", false, "Return once the gangs are accepted, and print their IDs only.")
	flags.BoolVar(&s.asJSON, "json", false, "Print what the API answers: once the gangs have ended, or with -detach at once.")
	flags.StringVar(&s.output, "o", "", "Write the artifact to `FILE` once the gang has succeeded.")
	return &command{
		name: "submit", arguments: " FILE", flags: flags,
		synopsis: "Submit gangs, and follow them",
		text: "Submits the gangs of a file: all of them, or none. The file holds HCL, or JSON with\n" +
			"the same words; with - it is read from standard input. Then follows the gangs until\n" +
			"they have ended. Interrupting that does not end the gangs.\n\n" +
			"The exit code is 0 when all have succeeded, 1 when one was refused, has failed or\n" +
			"was cancelled, and 2 when the file cannot be read.",
		action: func(ctx context.Context, args []string) int {
			if len(args) != 1 {
				return t.misuse("submit takes one FILE, or - for standard input")
			}
			if s.detach && s.output != "" {
				return t.misuse("-o waits for the artifact, and -detach does not wait")
			}
			c, err := connect()
			if err != nil {
				return t.misuse("%v", err)
			}
			return t.submit(ctx, c, args[0], s)
		},
	}
}

func (t *terminal) submit(ctx context.Context, c *client, path string, s submission) int {
	src, err := t.read(path)
	if err != nil {
		return t.fail(ctx, err)
	}
	kind, specs, err := parseGangs(path, src)
	if err != nil {
		fmt.Fprintln(t.err, err)
		if refused := new(gang.RefusedError); errors.As(err, &refused) {
			return exitRefused
		}
		return exitUsage
	}
	if s.output != "" && len(specs) > 1 {
		fmt.Fprintf(t.err, "Error: -o takes the artifact of one gang, and %s holds %d\n", path, len(specs))
		return exitUsage
	}
	var accepted api.Gangs
	if err := c.call(ctx, "POST", "/v1/gangs", kind, src, &accepted); err != nil {
		return t.refuse(ctx, err, path, src)
	}
	if s.detach {
		return t.printIDs(accepted, s.asJSON)
	}
	return t.await(ctx, c, accepted, s)
}

// refuse prints why an agent did not take a file: what it refuses one of the
// gangs for is shown where that stands in the file.
func (t *terminal) refuse(ctx context.Context, err error, path string, src []byte) int {
	if located := config.Locate(fileName(path), src, err); located != err {
		fmt.Fprintln(t.err, clean(located.Error()))
		return exitRefused
	}
	return t.fail(ctx, err)
}

func (t *terminal) printIDs(accepted api.Gangs, asJSON bool) int {
	if asJSON {
		return t.printJSON(accepted)
	}
	for _, g := range accepted.Gangs {
		fmt.Fprintln(t.out, g.ID)
	}
	return exitOK
}

// await follows the gangs to their end.
func (t *terminal) await(ctx context.Context, c *client, accepted api.Gangs, s submission) int {
	f := newFollower(t, c, accepted.Gangs, s.asJSON)
	ended, err := f.follow(ctx)
	if err != nil {
		f.goesOn()
		return t.fail(ctx, err)
	}
	if s.asJSON {
		t.printJSON(api.Gangs{Gangs: ended, Total: len(ended)})
	}
	for _, g := range ended {
		if g.State != gang.Succeeded {
			return exitRefused
		}
	}
	if s.output == "" {
		return exitOK
	}
	if err := c.download(ctx, ended[0], s.output); err != nil {
		return t.fail(ctx, err)
	}
	if !s.asJSON {
		fmt.Fprintf(t.out, "    saved     %s\n", s.output)
	}
	return exitOK
}

// read takes one byte more than may be, so that the parser sees the limit
// broken.
func (t *terminal) read(path string) ([]byte, error) {
	in := t.in
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errUnreadable, err)
		}
		defer f.Close()
		in = f
	}
	src, err := io.ReadAll(io.LimitReader(in, config.MaxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return src, nil
}

// parseGangs reads the file here too, so that its faults are told with its
// name, and without an agent.
func parseGangs(path string, src []byte) (contentType string, specs []gang.Spec, err error) {
	if config.IsJSON(src) {
		specs, err = config.ParseGangsJSON(fileName(path), src)
		return "application/json", specs, err
	}
	specs, err = config.ParseGangs(fileName(path), src)
	return "application/hcl", specs, err
}

func fileName(path string) string {
	if path == "-" {
		return "<stdin>"
	}
	return path
}
