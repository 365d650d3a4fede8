// Command gangd-ddim is gangd's reference runner: a diffusion sampler with the exact denoiser of a procedural bank of clips.
// It needs no GPU. Under a keeper it speaks the runner protocol; by itself it makes a video for the flags that it is given.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gangd/gangd/internal/runner"
	"github.com/gangd/gangd/jobspecs/ddim/allreduce"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := start(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// start gives the exit code: 0 done, 1 failed, 2 wrong usage.
func start(ctx context.Context, args []string) int {
	p := &program{log: log.New(os.Stderr, "gangd-ddim: ", 0)}
	var alone standalone
	flags := flag.NewFlagSet("gangd-ddim", flag.ContinueOnError)
	flags.DurationVar(&p.load, "load", 0, "pretend that loading the weights takes this `duration`")
	flags.DurationVar(&p.joinTimeout, "join-timeout", allreduce.DefaultJoinTimeout, "how long the ranks of a gang wait for each other at the start")
	flags.DurationVar(&p.peerTimeout, "peer-timeout", allreduce.DefaultOpTimeout, "how long a rank may keep the others waiting in a step")
	alone.flags(flags)
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "usage: gangd-ddim [flags]\n\nWith %s set it serves a keeper; else it makes one video by itself, for -prompt or -params.\n\n", runner.EnvSocket)
		flags.PrintDefaults()
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0:
		p.log.Printf("unexpected argument %q", flags.Arg(0))
		return 2
	}
	if alone.wanted() {
		return alone.run(ctx, p)
	}
	began := time.Now()
	switch err := runner.Serve(ctx, served{p}); {
	case errors.Is(err, runner.ErrNoSocket):
		p.log.Printf("%v; give -prompt to make a video by hand", err)
		return 2
	case err != nil:
		p.log.Printf("after %v: %v", time.Since(began).Round(time.Millisecond), err)
		return 1
	}
	return 0
}
