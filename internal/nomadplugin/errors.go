package nomadplugin

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gangd/gangd/internal/nomadplugin/proto/structspb"
)

// ErrTaskNotFound is a driver's answer for a task that it does not know. Its
// text is Nomad's own, by which newer agents and operators recognise it.
var ErrTaskNotFound = errors.New("task not found for given id")

// recoverableError marks an error that another try may mend.
type recoverableError struct{ error }

func (e recoverableError) Unwrap() error { return e.error }

// Recoverable marks err as one that another try may mend: Nomad then restarts
// the task by its restart block. Without the mark it fails the task for good.
func Recoverable(err error) error {
	if err == nil {
		return nil
	}
	return recoverableError{err}
}

// wireError is err as Nomad gets it. A status that err may wrap, from a call
// of the plugin's own, is not passed on: Nomad takes Unavailable and Canceled
// for the death of the plugin. They are sent only where Nomad itself gave up.
func wireError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case errors.Is(err, ErrTaskNotFound):
		return status.Error(codes.NotFound, ErrTaskNotFound.Error())
	case errors.As(err, new(recoverableError)):
		recoverable, detailErr := status.New(codes.FailedPrecondition, err.Error()).
			WithDetails(&structspb.RecoverableError{Recoverable: true})
		if detailErr == nil {
			return recoverable.Err()
		}
	}
	return status.Error(codes.Unknown, err.Error())
}
