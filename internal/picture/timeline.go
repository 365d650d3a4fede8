package picture

import "time"

// columns is how many parts of the time are told apart at most, and at least
// half as many where the play was long enough for that.
const columns = 480

// timeline divides the time of a play, whose end is not known while it goes on,
// into columns of equal width. When the play outgrows them, two become one.
type timeline struct {
	width time.Duration
	kept  []*[columns]float64 // what is added up by column
}

func newTimeline() *timeline { return &timeline{width: time.Second} }

// series is a new row of sums.
func (t *timeline) series() *[columns]float64 {
	s := new([columns]float64)
	t.kept = append(t.kept, s)
	return s
}

// reach makes the columns wide enough for a moment.
func (t *timeline) reach(at time.Duration) {
	for at > t.width*columns {
		t.width *= 2
		for _, s := range t.kept {
			for i := range columns / 2 {
				s[i] = s[2*i] + s[2*i+1]
			}
			clear(s[columns/2:])
		}
	}
}

// column is that in which a moment lies; the end of the last one counts to it.
func (t *timeline) column(at time.Duration) int { return int(min(at/t.width, columns-1)) }

// used is the number of columns that a play of this length has begun.
func (t *timeline) used(end time.Duration) int {
	return max(int((end+t.width-1)/t.width), 1)
}

// seconds is how much of a column a play of this length has had.
func (t *timeline) seconds(column int, end time.Duration) float64 {
	return min(t.width, end-time.Duration(column)*t.width).Seconds()
}

// level is something that has a value at any time, and keeps it until it is set
// again.
type level struct {
	on    *timeline
	value float64
	since time.Duration
	sums  *[columns]float64 // value x seconds
}

func newLevel(on *timeline) *level { return &level{on: on, sums: on.series()} }

// add changes the value from a moment on, which is not before the last change.
func (l *level) add(at time.Duration, by float64) {
	l.pass(at)
	l.value += by
}

// pass keeps the value until a moment.
func (l *level) pass(to time.Duration) {
	l.on.reach(to)
	if l.value == 0 {
		l.since = max(to, l.since)
		return
	}
	for l.since < to {
		column := l.on.column(l.since)
		until := min(to, time.Duration(column+1)*l.on.width)
		l.sums[column] += l.value * (until - l.since).Seconds()
		l.since = until
	}
}

// averages are the values by column, of a play that ended then.
func (l *level) averages(end time.Duration) []float64 {
	l.pass(end)
	out := make([]float64, l.on.used(end))
	for i := range out {
		if s := l.on.seconds(i, end); s > 0 {
			out[i] = l.sums[i] / s
		}
	}
	return out
}

// total is something that is added to now and then.
type total struct {
	on   *timeline
	sums *[columns]float64
}

func newTotal(on *timeline) *total { return &total{on, on.series()} }

func (t *total) add(at time.Duration, much float64) {
	t.on.reach(at)
	t.sums[t.on.column(at)] += much
}

// sofar are the sums of all until the end of each column.
func (t *total) sofar(end time.Duration) []float64 {
	t.on.reach(end)
	out := make([]float64, t.on.used(end))
	sum := 0.0
	for i := range out {
		sum += t.sums[i]
		out[i] = sum
	}
	return out
}
