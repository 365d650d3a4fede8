package picture

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// scale takes values to places on the page.
type scale struct{ low, high, from, to float64 }

func (s scale) at(v float64) float64 { return s.from + (v-s.low)/(s.high-s.low)*(s.to-s.from) }

// tick is a mark on an axis.
type tick struct {
	At            float64
	Label, Anchor string
}

// numberTicks are about as many round numbers from 0 to the highest, which is
// the last of them.
func numberTicks(highest float64, about int) []float64 {
	if !(highest > 0) {
		highest = 1
	}
	step := math.Pow(10, math.Floor(math.Log10(highest/float64(about))))
	for _, by := range []float64{2, 2.5, 2} { // 1, 2, 5, 10
		if step*float64(about) >= highest {
			break
		}
		step *= by
	}
	out := []float64{0}
	for out[len(out)-1] < highest {
		out = append(out, float64(len(out))*step)
	}
	return out
}

// timeSteps are round distances in time.
var timeSteps = []time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 4 * time.Hour, 12 * time.Hour, day, 2 * day, 4 * day, 7 * day, 14 * day, 28 * day, 91 * day, 364 * day,
}

const day = 24 * time.Hour

// timeTicks are at most so many round moments from 0 to the end.
func timeTicks(end time.Duration, most int) []time.Duration {
	step := timeSteps[0]
	for i := 0; end/step >= time.Duration(most); i++ {
		if i < len(timeSteps) {
			step = timeSteps[i]
		} else {
			step *= 2
		}
	}
	var out []time.Duration
	for at := time.Duration(0); at <= end; at += step {
		out = append(out, at)
	}
	return out
}

// span shows a time in its two largest units, and no unit that is zero.
func span(d time.Duration) string {
	if d < time.Minute {
		return number(math.Round(d.Seconds()*10)/10) + " s"
	}
	units := []struct {
		of   time.Duration
		name string
	}{{day, "d"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}}
	for i, u := range units {
		if d < u.of {
			continue
		}
		text := fmt.Sprintf("%d %s", d/u.of, u.name)
		if rest := d % u.of / units[i+1].of; rest > 0 {
			text += fmt.Sprintf(" %d %s", rest, units[i+1].name)
		}
		return text
	}
	return "0 s"
}

func seconds(s float64) string { return span(time.Duration(s * float64(time.Second))) }

// number shows a number with as many digits as say something, in groups of
// three.
func number(v float64) string {
	text := strconv.FormatFloat(v, 'f', -1, 64)
	whole, rest, broken := strings.Cut(text, ".")
	if len(whole) > 4 {
		for i := len(whole) - 3; i > 0; i -= 3 {
			whole = whole[:i] + "\u202f" + whole[i:]
		}
	}
	if broken {
		return whole + "." + rest
	}
	return whole
}

// short shows a number to three digits.
func short(v float64) string {
	switch {
	case v >= 100:
		return number(math.Round(v))
	case v >= 10:
		return number(math.Round(v*10) / 10)
	}
	return number(math.Round(v*100) / 100)
}

func percent(share float64) string {
	if share > 0 && share < 0.001 {
		return "< 0.1 %"
	}
	return number(math.Round(share*1000)/10) + " %"
}
