package picture

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// What was added up is the same however often columns were joined, and each
// column has what happened in it.
func TestLevels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		on := newTimeline()
		l, other := newLevel(on), newLevel(on)
		type change struct {
			at time.Duration
			by float64
		}
		var changes []change
		now := time.Duration(0)
		for range rapid.IntRange(1, 30).Draw(t, "changes") {
			now += time.Duration(rapid.Float64Range(0, 1).Draw(t, "pause") * math.Pow(10, float64(rapid.IntRange(0, 7).Draw(t, "scale"))) * float64(time.Second))
			c := change{now, float64(rapid.IntRange(-8, 8).Draw(t, "by"))}
			changes = append(changes, c)
			l.add(c.at, c.by)
			other.pass(now / 2 * 2)
		}
		end := now + time.Duration(rapid.IntRange(0, 1e6).Draw(t, "rest"))*time.Millisecond
		got := l.averages(end)
		if end > columns*time.Second && (len(got) < columns/2 || len(got) > columns) {
			t.Fatalf("%d columns of %s for %s", len(got), on.width, end)
		}
		for i, v := range got {
			from, to := time.Duration(i)*on.width, min(time.Duration(i+1)*on.width, end)
			want := 0.0
			for _, c := range changes {
				if c.at < to {
					want += c.by * (to - max(from, c.at)).Seconds()
				}
			}
			if s := (to - from).Seconds(); s > 0 && math.Abs(v-want/s) > 1e-6 {
				t.Fatalf("column %d of %s is %g, want %g", i, on.width, v, want/s)
			}
		}
	})
}

func TestTotals(t *testing.T) {
	on := newTimeline()
	sum := newTotal(on)
	for at := time.Duration(0); at <= 1000*time.Hour; at += time.Hour {
		sum.add(at, 1)
	}
	got := sum.sofar(1000 * time.Hour)
	for i, v := range got {
		until := min(time.Duration(i+1)*on.width, 1000*time.Hour)
		want := math.Ceil(until.Hours())
		if until == 1000*time.Hour {
			want = 1001
		}
		if v != want {
			t.Fatalf("until %s: %g, want %g", until, v, want)
		}
	}
}
