package gang

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestPauses(t *testing.T) {
	for failures, want := range []time.Duration{0, 0, 5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second,
		80 * time.Second, 160 * time.Second, 5 * time.Minute, 5 * time.Minute} {
		if got := Pause(failures); got != want {
			t.Errorf("after failure %d: %s, want %s", failures, got, want)
		}
	}
}

func TestAvoidedNodesAreBounded(t *testing.T) {
	var avoid []string
	for i := range MaxAvoided + 2 {
		before := slices.Clone(avoid)
		kept := avoid
		avoid = AddAvoided(avoid, fmt.Sprint("n-", i))
		if !slices.Equal(kept, before) {
			t.Fatal("the list that was given has changed")
		}
	}
	if len(avoid) != MaxAvoided || avoid[0] != "n-2" {
		t.Errorf("%v, want the last %d", avoid, MaxAvoided)
	}
	if again := AddAvoided(avoid, "n-9"); !slices.Equal(again, avoid) {
		t.Errorf("n-9 twice: %v", again)
	}
}
