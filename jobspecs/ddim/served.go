package main

import (
	"context"
	"log"

	"github.com/gangd/gangd/internal/runner"
)

// served is the program under a keeper: what it does is also to be read in its log.
type served struct{ *program }

// Run implements runner.Program.
func (s served) Run(ctx context.Context, order runner.Order, progress runner.Progress) (runner.Result, error) {
	return s.program.Run(ctx, order, loggedProgress{progress, s.log, order.Attempt})
}

// loggedProgress logs every tenth part of the way.
type loggedProgress struct {
	runner.Progress
	log     *log.Logger
	attempt runner.Attempt
}

func (p loggedProgress) Step(s runner.Step) {
	if 10*s.I/s.N > 10*(s.I-1)/s.N {
		p.log.Printf("gang %s attempt %d: step %d of %d", p.attempt.Gang, p.attempt.Number, s.I, s.N)
	}
	p.Progress.Step(s)
}
