package runner

import (
	"context"
	"errors"
	"fmt"
)

// Classes of errors that this package gives itself. Programs add their own.
const (
	ClassCancelled = "cancelled" // the keeper cancelled the attempt
	ClassDraining  = "draining"  // the order came to a runner that is about to end
	ClassBusy      = "busy"      // the order came while one runs and another one is announced
	ClassLoad      = "load"      // the weights could not be loaded
	ClassInternal  = "internal"  // the program gave an error without a class

	// ClassPeerLost is for programs: another rank is gone, and this one is not
	// to blame. gangd looks for the one that is.
	ClassPeerLost = "peer_lost"
)

// Error is a program's failure with what the scheduler has to know about it.
type Error struct {
	Class     string `json:"class"`     // one word for machines, as "peer_lost"
	Retryable bool   `json:"retryable"` // another attempt may succeed
	Message   string `json:"message"`   // for people
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Class, e.Message) }

// ErrCancelled is the cause of a Run's context when the keeper cancelled its attempt.
var ErrCancelled = errors.New("cancelled by the keeper")

// classify finds what to report for an error of a run whose context is ctx.
func classify(ctx context.Context, err error) Error {
	if errors.Is(context.Cause(ctx), ErrCancelled) {
		return Error{Class: ClassCancelled, Message: ErrCancelled.Error()}
	}
	return typed(err, ClassInternal)
}

func typed(err error, class string) Error {
	var e *Error
	if errors.As(err, &e) && e.Class != "" {
		return Error{Class: e.Class, Retryable: e.Retryable, Message: clip(e.Message)}
	}
	return Error{Class: class, Message: clip(err.Error())}
}

// clip keeps a message well inside a line, even when every byte of it has to be escaped.
func clip(message string) string {
	const limit = 16 << 10
	if len(message) <= limit {
		return message
	}
	return message[:limit] + " [cut]"
}
