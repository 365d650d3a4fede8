package gang

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestGangLife(t *testing.T) {
	checkLife(t, Transitions(), map[State]string{
		Queued:     "reserved launching stopping failed cancelled",
		Reserved:   "queued launching stopping failed cancelled",
		Launching:  "running preempting recovering stopping",
		Running:    "finishing preempting recovering stopping",
		Finishing:  "succeeded stopping",
		Preempting: "queued stopping",
		Recovering: "queued stopping failed",
		Stopping:   "cancelled failed",
		Succeeded:  "",
		Failed:     "",
		Cancelled:  "",
	})
}

func TestLaneLife(t *testing.T) {
	checkLife(t, LaneTransitions(), map[LaneState]string{
		LaneOpening: "idle closing lost closed",
		LaneIdle:    "busy closing lost closed",
		LaneBusy:    "idle closing lost closed",
		LaneClosing: "closed lost",
		LaneLost:    "closed",
		LaneClosed:  "",
	})
}

// checkLife holds every pair of states against what is legal.
func checkLife[S ~string](t *testing.T, table Table[S], legal map[S]string) {
	t.Helper()
	if len(table) != len(legal) {
		t.Errorf("the table has %d states, want %d", len(table), len(legal))
	}
	for _, row := range table {
		want, known := legal[row.From]
		if !known {
			t.Errorf("%s is in the table, and not in this test", row.From)
		}
		for to := range legal {
			got, err := table.Next(row.From, to)
			if slices.Contains(strings.Fields(want), string(to)) {
				if err != nil || got != to {
					t.Errorf("%s to %s = %s, %v; want it legal", row.From, to, got, err)
				}
				continue
			}
			if !errors.Is(err, ErrIllegalTransition) || got != row.From {
				t.Errorf("%s to %s = %s, %v; want it refused, and the old state", row.From, to, got, err)
			}
		}
	}
	if _, err := table.Next("asleep", table[0].From); !errors.Is(err, ErrIllegalTransition) {
		t.Errorf("from an unknown state: %v, want it refused", err)
	}
}

func TestTerminalStatesHaveNoExits(t *testing.T) {
	for _, row := range Transitions() {
		if got := len(row.To) == 0; got != row.From.Terminal() {
			t.Errorf("%s: no exits is %t, Terminal() is %t", row.From, got, row.From.Terminal())
		}
	}
}

func TestEveryGangCanEnd(t *testing.T) {
	for _, row := range Transitions() {
		if row.From.Terminal() {
			continue
		}
		for _, end := range []State{Succeeded, Failed, Cancelled} {
			if reach(Transitions(), row.From, end) {
				continue
			}
			if row.From == Stopping && end == Succeeded {
				continue // it was told to end for good
			}
			t.Errorf("%s never comes to %s", row.From, end)
		}
	}
	for _, row := range LaneTransitions() {
		if row.From != LaneClosed && !reach(LaneTransitions(), row.From, LaneClosed) {
			t.Errorf("lane %s never comes to closed", row.From)
		}
	}
}

// A gang can be told to end for good at any time, in one step.
func TestStoppingIsEnteredFromEveryLivingState(t *testing.T) {
	for _, row := range Transitions() {
		_, err := row.From.Next(Stopping)
		if want := !row.From.Terminal() && row.From != Stopping; (err == nil) != want {
			t.Errorf("%s to stopping: %v, want it legal: %t", row.From, err, want)
		}
	}
}

func TestWhoHoldsGPUs(t *testing.T) {
	for _, s := range []State{Queued, Reserved, Succeeded, Failed, Cancelled} {
		if s.Placed() {
			t.Errorf("a gang that is %s holds GPUs", s)
		}
	}
	// All ways from what is placed to what is not end in a queue or for good.
	for _, row := range Transitions() {
		for _, to := range row.To {
			if row.From.Placed() && !to.Placed() && to != Queued && !to.Terminal() {
				t.Errorf("%s to %s drops the GPUs on the way", row.From, to)
			}
		}
	}
}

func reach[S ~string](table Table[S], from, to S) bool {
	seen := []S{from}
	for i := 0; i < len(seen); i++ {
		for _, row := range table {
			if row.From != seen[i] {
				continue
			}
			for _, next := range row.To {
				if !slices.Contains(seen, next) {
					seen = append(seen, next)
				}
			}
		}
	}
	return slices.Contains(seen, to)
}
