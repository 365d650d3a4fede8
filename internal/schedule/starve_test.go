package schedule

import (
	"slices"
	"testing"
)

func TestMayStarve(t *testing.T) {
	got := MayStarve([]Tier{{Name: "low", Priority: 1}, {Name: "mid", Priority: 2, MinShare: 0.1}, {Name: "high", Priority: 3}, {Name: "too", Priority: 3}})
	if want := []string{"low"}; !slices.Equal(got, want) {
		t.Errorf("%q may starve, want %q", got, want)
	}
}
