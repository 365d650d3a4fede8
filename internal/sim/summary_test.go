package sim

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// waited makes jobs that started so many seconds after they came.
func waited(waits ...float64) []*job {
	var out []*job
	for i, w := range waits {
		at := seconds(float64(i))
		out = append(out, &job{ScenarioGang: config.ScenarioGang{Spec: &gang.Spec{}, At: at}, attempts: 1, began: at + seconds(w)})
	}
	return out
}

func TestWaitsOfATier(t *testing.T) {
	never, rejected := waited(0)[0], waited(0)[0]
	never.attempts, rejected.attempts, rejected.rejected = 0, 0, true
	jobs := append(waited(9, 1, 5, 5.5), never, rejected)
	got := ofTier(schedule.Tier{TargetWait: seconds(5)}, jobs)
	for name, c := range map[string][2]float64{
		"gangs": {float64(got.Gangs), 5}, "started": {float64(got.Started), 4}, "mean": {time.Duration(*got.MeanWait).Seconds(), 5.125},
		"p50": {time.Duration(*got.P50Wait).Seconds(), 5}, "p99": {time.Duration(*got.P99Wait).Seconds(), 9}, "target": {float64(*got.TargetMet), 0.4},
	} {
		if c[0] != c[1] {
			t.Errorf("%s: %g, want %g", name, c[0], c[1])
		}
	}
	if none := ofTier(schedule.Tier{}, []*job{never}); none.MeanWait != nil || none.P99Wait != nil || none.TargetMet != nil || none.Gangs != 1 {
		t.Errorf("of nothing: %+v", none)
	}
}

func TestPercentiles(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1))
	}
	for p, want := range map[int]Seconds{1: 1, 50: 50, 99: 99, 100: 100} {
		if got := *percentile(hundred, p); got != want {
			t.Errorf("p%d of 1 to 100 is %d, want %d", p, got, want)
		}
	}
	if got := *percentile(hundred[:1], 99); got != 1 {
		t.Errorf("p99 of one value is %d", got)
	}
}

// What is printed has no noise of its arithmetic, and no exponents.
func TestNumbers(t *testing.T) {
	for value, want := range map[any]string{
		Seconds(0): "0", Seconds(time.Microsecond): "0.000001", Seconds(100 * time.Millisecond): "0.1", Seconds(1499): "0.000001",
		Seconds(1500): "0.000002", Seconds(33333333333): "33.333333", Seconds(87_600 * time.Hour): "315360000",
		Amount(0.1 + 0.2): "0.3", Amount(1e12): "1000000000000", Amount(2.0 / 3): "0.666667", Amount(1e-9): "0",
	} {
		if got, err := json.Marshal(value); err != nil || string(got) != want {
			t.Errorf("%T of %v: %s, %v, want %s", value, value, got, err, want)
		}
	}
}
