package record

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/gangd/gangd/internal/schedule"
)

// ErrUnreadable is wrapped where a file is no recording, or a damaged one.
var ErrUnreadable = errors.New("the recording cannot be read")

// Reader reads a file, step by step.
type Reader struct {
	Head Head
	in   *bufio.Reader
	line int
	n    uint64
	// Last is the number of the step after which nothing is read; 0 for none.
	Last uint64
	// CutOff says that the last line is not whole, as after a crash: it is left
	// out.
	CutOff bool
}

// maxLine bounds a line: a snapshot of 100,000 gangs that wait has some 100 MB.
const maxLine = 1 << 30

// NewReader reads the head of a file. Its error, as those of Next, has the number
// of the line.
func NewReader(in io.Reader) (*Reader, error) {
	r := &Reader{in: bufio.NewReaderSize(in, 1<<16)}
	text, err := r.next()
	if errors.Is(err, io.EOF) {
		err = errors.New("it is empty, or cut off in its first line")
	}
	if err == nil {
		err = strict(text, &r.Head)
	}
	if err == nil && r.Head.Format != Format {
		err = fmt.Errorf("it has the format %d, and this program reads %d", r.Head.Format, Format)
	}
	if err == nil {
		err = bounded(r.Head)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: line 1: %w", ErrUnreadable, err)
	}
	return r, nil
}

// Engine makes the engine that the file begins with.
func (r *Reader) Engine() (*schedule.Engine, error) {
	e, err := schedule.Restore(r.Head.Rules, r.Head.Snapshot)
	if err != nil {
		return nil, fmt.Errorf("%w: line 1: %w", ErrUnreadable, err)
	}
	return e, nil
}

// Next reads a step; io.EOF after the last one, or after Last.
func (r *Reader) Next() (Step, error) {
	if r.Last > 0 && r.n == r.Last {
		return Step{}, io.EOF
	}
	text, err := r.next()
	if errors.Is(err, io.EOF) {
		return Step{}, io.EOF
	}
	var s Step
	if err == nil {
		s, err = decodeStep(text)
	}
	if err == nil && s.N != r.n+1 {
		err = fmt.Errorf("event %d follows event %d", s.N, r.n)
	}
	if err != nil {
		return Step{}, fmt.Errorf("%w: line %d: %w", ErrUnreadable, r.line, err)
	}
	r.n = s.N
	return s, nil
}

// next reads a whole line.
func (r *Reader) next() ([]byte, error) {
	var out []byte
	for {
		part, err := r.in.ReadSlice('\n')
		if len(out)+len(part) > maxLine {
			return nil, fmt.Errorf("it has more than %d bytes", maxLine)
		}
		out = append(out, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			r.CutOff = len(out) > 0
			return nil, io.EOF
		case err != nil:
			return nil, err
		}
		r.line++
		return out, nil
	}
}
