package picture

import (
	"fmt"
	"strconv"
	"testing"
	"time"
)

func TestNumberTicks(t *testing.T) {
	for highest, want := range map[float64]string{
		0: "[0 0.2 0.4 0.6 0.8 1]", 1: "[0 0.2 0.4 0.6 0.8 1]", 3: "[0 1 2 3]", 64: "[0 20 40 60 80]", 400: "[0 100 200 300 400]", 16000: "[0 5000 10000 15000 20000]",
	} {
		var got []string
		for _, v := range numberTicks(highest, 5) {
			got = append(got, strconv.FormatFloat(v, 'g', 6, 64))
		}
		if text := fmt.Sprint(got); text != want {
			t.Errorf("to %g: %s, want %s", highest, text, want)
		}
	}
}

func TestTimeTicks(t *testing.T) {
	for _, c := range []struct {
		end   time.Duration
		count int
		last  time.Duration
	}{
		{0, 1, 0}, {time.Second, 2, time.Second}, {95 * time.Second, 4, 90 * time.Second}, {28 * time.Hour, 8, 28 * time.Hour},
		{50 * day, 8, 49 * day}, {20 * 365 * day, 6, 5 * 4 * 364 * day},
	} {
		got := timeTicks(c.end, 9)
		if len(got) != c.count || got[len(got)-1] != c.last {
			t.Errorf("to %s: %v, want %d up to %s", c.end, got, c.count, c.last)
		}
	}
}

func TestTexts(t *testing.T) {
	for got, want := range map[string]string{
		span(0): "0 s", span(1500 * time.Millisecond): "1.5 s", span(60 * time.Second): "1 min", span(61 * time.Second): "1 min 1 s",
		span(2*time.Hour + 59*time.Second): "2 h", span(25*time.Hour + time.Minute): "1 d 1 h", span(14 * day): "14 d",
		number(1234): "1234", number(12345): "12\u202f345", number(1234567.5): "1\u202f234\u202f567.5",
		short(1234.6): "1235", short(12.34): "12.3", short(1.234): "1.23", percent(0.5): "50 %", percent(0.00001): "< 0.1 %", percent(0): "0 %",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Steps that go nowhere are not written.
func TestPath(t *testing.T) {
	p := newPath()
	p.move(0, 10)
	for i, y := range []float64{10, 10, 4.04, 4.01, 10} {
		p.vertical(y)
		p.horizontal(float64(i + 1))
	}
	if got := p.close(); got != "M0 10H2V4H4V10H5Z" {
		t.Errorf("got %s", got)
	}
}
