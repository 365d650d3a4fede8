package record

import (
	"fmt"
	"io"
	"time"

	"github.com/gangd/gangd/internal/schedule"
)

// Tape records all that it is told, at once, as a play does that can wait for its
// disk.
type Tape struct {
	out io.Writer
	n   uint64
}

// NewTape begins a recording.
func NewTape(out io.Writer, version string, rules schedule.Config, s schedule.Snapshot) (*Tape, error) {
	text, err := (&Head{Format: Format, Version: version, Rules: rules, Snapshot: s}).Encode()
	if err == nil {
		_, err = out.Write(text)
	}
	if err != nil {
		return nil, fmt.Errorf("begin a recording: %w", err)
	}
	return &Tape{out: out}, nil
}

// Take records a step.
func (t *Tape) Take(ev schedule.Event, at time.Time, decisions []schedule.Decision, refused error) error {
	t.n++
	text, err := newStep(t.n, ev, at, decisions, refused).Encode()
	if err == nil {
		_, err = t.out.Write(text)
	}
	if err != nil {
		return fmt.Errorf("record event %d: %w", t.n, err)
	}
	return nil
}

func newStep(n uint64, ev schedule.Event, at time.Time, decisions []schedule.Decision, refused error) Step {
	s := Step{N: n, At: at, Event: ev, Decisions: decisions}
	if refused != nil {
		s.Refused = refused.Error()
	}
	return s
}
