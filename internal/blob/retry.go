package blob

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"gocloud.dev/gcerrors"
)

// requestTimeout bounds one attempt of a request that carries little data.
const requestTimeout = 15 * time.Second

// backoff bounds the retries of one call.
type backoff struct {
	attempts     int
	first, limit time.Duration
}

// defaultBackoff waits 1.4 s in all. An S3 client makes up to three requests of
// each attempt by itself.
var defaultBackoff = backoff{attempts: 4, first: 200 * time.Millisecond, limit: 2 * time.Second}

// do calls try until it succeeds, fails for good, or the attempts are spent.
// Each attempt ends after timeout; 0 sets none.
func (b backoff) do(ctx context.Context, timeout time.Duration, try func(context.Context) error) error {
	wait := b.first
	for n := 1; ; n++ {
		err := attempt(ctx, timeout, try)
		if err == nil || n == b.attempts || ctx.Err() != nil || !transient(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
		wait = min(2*wait, b.limit)
	}
}

func attempt(ctx context.Context, timeout time.Duration, try func(context.Context) error) error {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	return try(ctx)
}

// transient reports whether the same call may succeed a little later. Object
// stores answer so with 5xx, with 409 to conditional writes that meet, and
// with broken connections, all of which gocloud calls unknown.
func transient(err error) bool {
	var never permanentError
	switch {
	case errors.As(err, &never), errors.Is(err, errExists), errors.Is(err, ErrDamaged):
		return false
	}
	var path *fs.PathError
	var link *os.LinkError
	if errors.As(err, &path) || errors.As(err, &link) {
		return false // of a directory, whose faults last
	}
	switch gcerrors.Code(err) {
	case gcerrors.Unknown, gcerrors.Internal, gcerrors.ResourceExhausted, gcerrors.DeadlineExceeded:
		return true
	}
	return false
}

// permanentError keeps an error from being retried.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

func permanent(err error) error { return permanentError{err} }
