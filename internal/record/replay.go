package record

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/gangd/gangd/internal/schedule"
)

// DifferenceError is a decision that did not come out as it is recorded.
type DifferenceError struct {
	// Recorded and Decided are the same event with what was decided, then and now.
	Recorded, Decided Step
}

func (e *DifferenceError) Error() string {
	return fmt.Sprintf("event %d, at %s, was decided otherwise than now\nthen:\n  %s\nnow:\n  %s",
		e.Recorded.N, e.Recorded.At.Format("2006-01-02T15:04:05.000Z07:00"), e.Recorded.verdicts(), e.Decided.verdicts())
}

// Replay has an engine take in all that is recorded, and holds each decision
// against what it was, byte for byte: the first that differs is the error, a
// *DifferenceError. It ends before the first step of which visit, which may be
// nil, does not want to go on; the engine is as that step would meet it.
func (r *Reader) Replay(visit func(Step) (more bool, err error)) (*schedule.Engine, error) {
	e, err := r.Engine()
	if err != nil {
		return nil, err
	}
	for {
		s, err := r.Next()
		if errors.Is(err, io.EOF) {
			return e, nil
		}
		if err != nil {
			return nil, err
		}
		if visit != nil {
			if more, err := visit(s); err != nil || !more {
				return e, err
			}
		}
		if err := s.repeat(e); err != nil {
			return nil, err
		}
	}
}

// repeat has an engine take in a step again.
func (s Step) repeat(e *schedule.Engine) error {
	decisions, refused := e.Apply(s.Event, s.At)
	again := newStep(s.N, s.Event, s.At, decisions, refused)
	then, err := s.Encode()
	if err != nil {
		return err
	}
	now, err := again.Encode()
	if err != nil {
		return err
	}
	if !bytes.Equal(then, now) {
		return &DifferenceError{s, again}
	}
	return nil
}

// verdicts are the decisions as text.
func (s Step) verdicts() string {
	var out []string
	for _, d := range s.Decisions {
		text, err := tagged(d, d)
		if err != nil {
			text = []byte(err.Error())
		}
		out = append(out, strings.TrimSpace(string(text)))
	}
	if s.Refused != "" {
		out = append(out, "refused: "+s.Refused)
	}
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, "\n  ")
}
