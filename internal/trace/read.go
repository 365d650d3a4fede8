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
	MaxJobs = 200_000
	// maxLineBytes bounds a line, and MaxBytes the whole.
	maxLineBytes = 64 << 10
	MaxBytes     = 64 << 20
	// longest is the latest time, and the longest duration, that a job may have.
	longest = 10 * 365 * 24 * time.Hour
)

// Job is a line of a trace.
type Job struct {
	Line     int
	At       time.Duration
	GPUs     int
	Duration time.Duration
	// What follows is empty where the trace does not say.
	Tenant, Tier, Model string
	Elastic             []gang.Size
	Estimate            time.Duration
}

// The columns that a trace may have.
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

var required = []string{ColumnSubmit, ColumnGPUs, ColumnDuration}

// Columns are all of them, those first that a trace must have.
func Columns() []string {
	return append(slices.Clone(required), ColumnTenant, ColumnTier, ColumnModel, ColumnElastic, ColumnEstimate)
}

// Error is a fault of a trace, with its place.
type Error struct {
	File   string
	Line   int
	Column string
	Text   string // that is at fault
	What   string
}

func (e *Error) Error() string {
	where := fmt.Sprintf("%s:%d", e.File, e.Line)
	if e.Column != "" {
		where += fmt.Sprintf(": %s %q", e.Column, e.Text)
	}
	return where + ": " + e.What
}

// Read reads a trace: CSV with a line of titles, in any order; titles that are
// not known are passed over. Names has the titles of columns that are called
// otherwise than here. Jobs are returned by the time of their arrival. A fault is
// an *Error.
func Read(file string, in io.Reader, names map[string]string) ([]Job, error) {
	r := &reader{file: file, csv: csv.NewReader(io.LimitReader(in, MaxBytes+1))}
	r.csv.ReuseRecord, r.csv.FieldsPerRecord = true, 0
	if err := r.titles(names); err != nil {
		return nil, err
	}
	var jobs []Job
	for {
		j, err := r.job()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if len(jobs) == MaxJobs {
			return nil, r.fault("", "", "the trace has more than %d jobs: take a part of it", MaxJobs)
		}
		jobs = append(jobs, j)
	}
	if r.csv.InputOffset() > MaxBytes {
		return nil, r.fault("", "", "the trace is larger than %d MiB: take a part of it", MaxBytes>>20)
	}
	slices.SortStableFunc(jobs, func(a, b Job) int { return int(sign(a.At - b.At)) })
	return jobs, nil
}

func sign(d time.Duration) time.Duration {
	switch {
	case d < 0:
		return -1
	case d > 0:
		return 1
	}
	return 0
}

// reader reads one trace.
type reader struct {
	file string
	csv  *csv.Reader
	at   map[string]int // the number of each column
	line int
	row  []string
}

func (r *reader) fault(column, text, what string, args ...any) error {
	return &Error{r.file, r.line, column, text, fmt.Sprintf(what, args...)}
}

// next reads a line.
func (r *reader) next() error {
	row, err := r.csv.Read()
	var bad *csv.ParseError
	switch {
	case errors.As(err, &bad):
		r.line = bad.Line
		return r.fault("", "", "it is no CSV here: %v", bad.Err)
	case err != nil:
		return err
	}
	r.line, _ = r.csv.FieldPos(0)
	r.row = row
	size := 0
	for _, field := range row {
		size += len(field)
	}
	if size > maxLineBytes {
		return r.fault("", "", "the line is longer than %d bytes", maxLineBytes)
	}
	return nil
}

// titles reads the first line.
func (r *reader) titles(names map[string]string) error {
	r.line = 1
	for _, known := range slices.Sorted(maps.Keys(names)) {
		if !slices.Contains(Columns(), known) {
			return fmt.Errorf("there is no column %q to rename: there are %s", known, strings.Join(Columns(), ", "))
		}
	}
	if err := r.next(); errors.Is(err, io.EOF) {
		return r.fault("", "", "the trace is empty: its first line names the columns, %s at least", strings.Join(required, ","))
	} else if err != nil {
		return err
	}
	r.at = make(map[string]int)
	for _, known := range Columns() {
		title := known
		if name, renamed := names[known]; renamed {
			title = name
		}
		at := slices.IndexFunc(r.row, func(t string) bool { return strings.TrimSpace(t) == title })
		if at < 0 && (slices.Contains(required, known) || names[known] != "") {
			return r.fault("", "", "there is no column %q among %q: name the one that is meant with -column %s=NAME", title, r.row, known)
		}
		if at >= 0 {
			r.at[known] = at
		}
	}
	return nil
}

func (r *reader) text(column string) string {
	if at, has := r.at[column]; has {
		return strings.TrimSpace(r.row[at])
	}
	return ""
}

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
		return j, r.fault(ColumnGPUs, r.text(ColumnGPUs), "must be a whole number from 1 to %d", gang.MaxGPUs)
	}
	if j.Duration, err = r.seconds(ColumnDuration, time.Microsecond); err != nil {
		return j, err
	}
	if r.text(ColumnEstimate) != "" {
		if j.Estimate, err = r.seconds(ColumnEstimate, time.Microsecond); err != nil {
			return j, err
		}
	}
	for column, into := range map[string]*string{ColumnTenant: &j.Tenant, ColumnTier: &j.Tier, ColumnModel: &j.Model} {
		if *into = r.text(column); *into != "" && !gang.IsLabel(*into) {
			return j, r.fault(column, *into, "is no name: use up to %d letters, digits, '.', '_', '-' and '/'", gang.MaxLabelLen)
		}
	}
	j.Elastic, err = r.sizes()
	return j, err
}

// seconds reads a number of seconds.
func (r *reader) seconds(column string, least time.Duration) (time.Duration, error) {
	text := r.text(column)
	s, err := strconv.ParseFloat(text, 64)
	d := time.Duration(math.Round(s*1e6)) * time.Microsecond
	if err != nil || !(s >= 0 && s <= longest.Seconds()) || d < least {
		return 0, r.fault(column, text, "must be a number of seconds from %s to %.0f", strconv.FormatFloat(least.Seconds(), 'f', -1, 64), longest.Seconds())
	}
	return d, nil
}

// sizes reads what a gang can run at, e.g. "4:120;8:70": GPUs and seconds, the
// sizes ascending.
func (r *reader) sizes() ([]gang.Size, error) {
	text := r.text(ColumnElastic)
	if text == "" {
		return nil, nil
	}
	var out []gang.Size
	for _, one := range strings.Split(text, ";") {
		gpus, run, both := strings.Cut(one, ":")
		n, err := strconv.Atoi(strings.TrimSpace(gpus))
		s, err2 := strconv.ParseFloat(strings.TrimSpace(run), 64)
		if !both || err != nil || err2 != nil || n < 1 || n > gang.MaxGPUs || !(s > 0 && s <= longest.Seconds()) || len(out) >= gang.MaxSizes {
			return nil, r.fault(ColumnElastic, text, `must be up to %d sizes with their seconds, such as "4:120;8:70"`, gang.MaxSizes)
		}
		out = append(out, gang.Size{GPUs: n, Run: time.Duration(s * float64(time.Second))})
	}
	return out, nil
}
