package trace

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

// Limits of a trace.
const (
	MaxJobs      = 200_000
	MaxLineBytes = 64 << 10 // of the fields of a line
	MaxBytes     = 64 << 20
	// longest is the latest arrival, and the longest duration, of a job.
	longest = 10 * 365 * 24 * time.Hour
)

// Job is a line of a trace.
type Job struct {
	Line int
	At   time.Duration
	GPUs int
	// Duration is its true run time.
	Duration time.Duration
	// What follows is empty where the trace does not say.
	Tenant, Tier, Model string
	// Elastic are the sizes at which it can run, ascending, GPUs among them.
	Elastic []gang.Size
	// Estimate is its user's.
	Estimate time.Duration
}

// The columns that a trace may have, by the names that they have here.
const (
	ColumnSubmit   = "submit_s"
	ColumnGPUs     = "gpus"
	ColumnDuration = "duration_s"
	ColumnTenant   = "tenant"
	ColumnTier     = "tier"
	ColumnModel    = "model"
	ColumnElastic  = "elastic"
	ColumnEstimate = "estimate"
)

var (
	required = []string{ColumnSubmit, ColumnGPUs, ColumnDuration}
	optional = []string{ColumnTenant, ColumnTier, ColumnModel, ColumnElastic, ColumnEstimate}
)

// Columns are all of them, those first that a trace must have.
func Columns() []string { return slices.Concat(required, optional) }

// Error is a fault of a trace, with its place.
type Error struct {
	File string
	Line int
	// Column is the number of the character at which the fault begins, from 1; 0
	// where it is one of the whole line.
	Column int
	// Field is the name of the column that is at fault, if it is one, and Text what
	// it holds.
	Field, Text string
	Problem     string
}

func (e *Error) Error() string {
	switch {
	case e.Column == 0:
		return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Problem)
	case e.Field == "":
		return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Problem)
	}
	return fmt.Sprintf("%s:%d:%d: %s = %q: %s", e.File, e.Line, e.Column, e.Field, shown(e.Text), e.Problem)
}

// shown keeps a message readable.
func shown(text string) string {
	const most = 80
	if len(text) > most {
		return text[:most] + ".."
	}
	return text
}

// Read reads a trace: CSV whose first line has the titles of columns, in any
// order; those that are not known are passed over. Titles has those of columns
// that are called otherwise than here, by their name here. The jobs come in the
// order of their arrival. A fault of the trace is an *Error.
func Read(file string, in io.Reader, titles map[string]string) ([]Job, error) {
	r := &reader{file: file, csv: csv.NewReader(io.LimitReader(in, MaxBytes+1))}
	r.csv.ReuseRecord = true
	if err := r.header(titles); err != nil {
		return nil, err
	}
	var jobs []Job
	for {
		j, err := r.job()
		if r.csv.InputOffset() > MaxBytes {
			return nil, r.whole("the trace is larger than %d MiB: take a part of it", MaxBytes>>20)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if len(jobs) == MaxJobs {
			return nil, r.whole("the trace has more than %d jobs: take a part of it", MaxJobs)
		}
		jobs = append(jobs, j)
	}
	slices.SortStableFunc(jobs, func(a, b Job) int { return int(min(max(a.At-b.At, -1), 1)) })
	return jobs, nil
}

// reader reads one trace.
type reader struct {
	file string
	csv  *csv.Reader
	at   map[string]int // the place of each column in a line
	line int
	row  []string
}

// whole is a fault of a line.
func (r *reader) whole(problem string, args ...any) error {
	return &Error{File: r.file, Line: r.line, Problem: fmt.Sprintf(problem, args...)}
}

// fault is one of a field.
func (r *reader) fault(field, problem string, args ...any) error {
	e := &Error{File: r.file, Line: r.line, Field: field, Text: r.text(field), Problem: fmt.Sprintf(problem, args...)}
	_, e.Column = r.csv.FieldPos(r.at[field])
	return e
}

// next reads a line.
func (r *reader) next() error {
	row, err := r.csv.Read()
	var bad *csv.ParseError
	switch {
	case errors.As(err, &bad):
		r.line = bad.Line
		if errors.Is(bad, csv.ErrFieldCount) {
			return r.whole("%d fields, where the first line has %d", len(row), len(r.row))
		}
		return &Error{File: r.file, Line: bad.Line, Column: bad.Column, Problem: "it is no CSV here: " + bad.Err.Error()}
	case err != nil:
		return err
	}
	r.row = row
	r.line, _ = r.csv.FieldPos(0)
	size := 0
	for _, field := range row {
		size += len(field)
	}
	if size > MaxLineBytes {
		return r.whole("the line is longer than %d bytes", MaxLineBytes)
	}
	return nil
}

// header reads the first line.
func (r *reader) header(titles map[string]string) error {
	for _, known := range slices.Sorted(maps.Keys(titles)) {
		if !slices.Contains(Columns(), known) {
			return fmt.Errorf("there is no column %q to give a title: there are %s", known, strings.Join(Columns(), ", "))
		}
	}
	r.line = 1
	if err := r.next(); errors.Is(err, io.EOF) {
		return r.whole("the trace is empty: its first line must name the columns, %s at least", strings.Join(required, ", "))
	} else if err != nil {
		return err
	}
	r.row[0] = strings.TrimPrefix(r.row[0], "\ufeff") // which some programs begin a file with
	r.at = make(map[string]int)
	for _, known := range Columns() {
		title, given := titles[known]
		if !given {
			title = known
		}
		at := slices.IndexFunc(r.row, func(t string) bool { return strings.TrimSpace(t) == title })
		if at < 0 && (given || slices.Contains(required, known)) {
			return r.whole("there is no column %q among %q: say which is meant with -column %s=TITLE", title, r.row, known)
		}
		if at >= 0 {
			r.at[known] = at
		}
	}
	return nil
}

// text is what a line has in a column, empty where the trace has none such.
func (r *reader) text(field string) string {
	if at, has := r.at[field]; has {
		return strings.TrimSpace(r.row[at])
	}
	return ""
}

// job reads a line, or returns io.EOF.
func (r *reader) job() (Job, error) {
	if err := r.next(); err != nil {
		return Job{}, err
	}
	j := Job{Line: r.line}
	var err error
	if j.At, err = r.seconds(ColumnSubmit, 0); err != nil {
		return j, err
	}
	if j.GPUs, err = strconv.Atoi(r.text(ColumnGPUs)); err != nil || j.GPUs < 1 || j.GPUs > gang.MaxGPUs {
		return j, r.fault(ColumnGPUs, "must be a whole number from 1 to %d", gang.MaxGPUs)
	}
	if j.Duration, err = r.seconds(ColumnDuration, time.Millisecond); err != nil {
		return j, err
	}
	if r.text(ColumnEstimate) != "" {
		if j.Estimate, err = r.seconds(ColumnEstimate, time.Millisecond); err != nil {
			return j, err
		}
	}
	for _, name := range []struct {
		field string
		into  *string
	}{{ColumnTenant, &j.Tenant}, {ColumnTier, &j.Tier}, {ColumnModel, &j.Model}} {
		*name.into = r.text(name.field)
		if *name.into != "" && !gang.IsLabel(*name.into) {
			return j, r.fault(name.field, "is no name: use up to %d letters, digits, '.', '_', '-' and '/'", gang.MaxLabelLen)
		}
	}
	j.Elastic, err = r.sizes(j.GPUs)
	return j, err
}

// seconds reads a number of seconds, to the millisecond.
func (r *reader) seconds(field string, least time.Duration) (time.Duration, error) {
	d, ok := parseSeconds(r.text(field))
	if !ok || d < least {
		return 0, r.fault(field, "must be a number of seconds from %g to %g", least.Seconds(), longest.Seconds())
	}
	return d, nil
}

func parseSeconds(text string) (time.Duration, bool) {
	s, err := strconv.ParseFloat(text, 64)
	if err != nil || !(s >= 0 && s <= longest.Seconds()) {
		return 0, false
	}
	return time.Duration(math.Round(s*1000)) * time.Millisecond, true
}

// sizes reads what a job can run at, GPUs and seconds: "4:120;8:70".
func (r *reader) sizes(preferred int) ([]gang.Size, error) {
	text := r.text(ColumnElastic)
	if text == "" {
		return nil, nil
	}
	var out []gang.Size
	for one := range strings.SplitSeq(text, ";") {
		count, run, _ := strings.Cut(one, ":")
		gpus, err := strconv.Atoi(strings.TrimSpace(count))
		took, ok := parseSeconds(strings.TrimSpace(run))
		if err != nil || gpus < 1 || gpus > gang.MaxGPUs || !ok || took <= 0 || len(out) == gang.MaxSizes {
			return nil, r.fault(ColumnElastic, "must be at most %d sizes with their seconds, such as 4:120;8:70", gang.MaxSizes)
		}
		if len(out) > 0 && gpus <= out[len(out)-1].GPUs {
			return nil, r.fault(ColumnElastic, "the sizes must ascend")
		}
		out = append(out, gang.Size{GPUs: gpus, Run: took})
	}
	if !slices.ContainsFunc(out, func(s gang.Size) bool { return s.GPUs == preferred }) {
		return nil, r.fault(ColumnElastic, "lacks the size that the job asks for, %s = %d", ColumnGPUs, preferred)
	}
	return out, nil
}
