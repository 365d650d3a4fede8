package main

import (
	"fmt"
	"os"

	"github.com/gangd/gangd/internal/runner"
)

// Faults let tests of the scheduler break a run where they want. Each strikes one rank once the given step is complete; step
// 0 is before the first.

// where says which rank of which attempt a fault strikes, and when.
type where struct {
	Rank    int `json:"rank"`
	Step    int `json:"step"`
	Attempt int `json:"attempt"` // 0: in every attempt
}

// failFault ends the run with an error of the runner's.
type failFault struct {
	where
	Class     string `json:"class"`
	Retryable bool   `json:"retryable"`
	Message   string `json:"message"`
}

// exitFault ends the process.
type exitFault struct {
	where
	Code int `json:"code"`
}

// hangFault stops the rank's progress for ever. Not even a cancel ends it.
type hangFault struct{ where }

func (w where) strikes(order runner.Order, step int) bool {
	return w.Rank == order.Rank && w.Step == step && (w.Attempt == 0 || w.Attempt == order.Number)
}

// strike does what the faults say for this rank and step.
func (p params) strike(order runner.Order, step int) error {
	if p.Exit != nil && p.Exit.strikes(order, step) {
		fmt.Fprintf(os.Stderr, "gangd-ddim: rank %d exits with code %d after step %d, as params.exit says\n", order.Rank, p.Exit.Code, step)
		os.Exit(p.Exit.Code)
	}
	if p.Hang != nil && p.Hang.strikes(order, step) {
		fmt.Fprintf(os.Stderr, "gangd-ddim: rank %d hangs after step %d, as params.hang says\n", order.Rank, step)
		select {}
	}
	if f := p.Fail; f != nil && f.strikes(order, step) {
		failure := &runner.Error{Class: f.Class, Retryable: f.Retryable, Message: f.Message}
		if failure.Class == "" {
			failure.Class = "injected"
		}
		if failure.Message == "" {
			failure.Message = fmt.Sprintf("rank %d fails after step %d, as params.fail says", order.Rank, step)
		}
		return failure
	}
	return nil
}
