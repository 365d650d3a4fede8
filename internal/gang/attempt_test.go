package gang

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func attempt(n, members int) Attempt {
	a := Attempt{N: n, Decided: 1790000000000, Started: 1790000001000, Ended: 1790000002000, Why: strings.Repeat("w", 500)}
	for i := range members {
		a.Members = append(a.Members, AttemptMember{
			Member: i, Node: fmt.Sprintf("%08d-aaaa-bbbb-cccc-0123456789ab", i), NodeName: fmt.Sprintf("gpu-server-%04d", i),
			Allocation: fmt.Sprintf("%08d-dddd-eeee-ffff-0123456789ab", i),
		})
	}
	return a
}

// However often a gang is restarted, and however wide it is, its record fits a
// transaction with room to spare.
func TestWhatIsKeptOfAttemptsIsBounded(t *testing.T) {
	const budget = 24 << 10
	for _, members := range []int{128, MaxGPUs} {
		r := queued()
		r.State = Running
		for i := range members {
			r.Members = append(r.Members, Member{
				Node: fmt.Sprintf("%08d-aaaa-bbbb-cccc-0123456789ab", i), GPUs: []int{0, 1, 2, 3, 4, 5, 6, 7}, Lane: NewLaneID(r.ID, 1, i),
			})
		}
		bare := len(Encode(r))
		for n := 1; n <= 100; n++ {
			r.Attempt = n
			r.Keep(attempt(n, members))
		}
		if len(r.Attempts) != MaxAttempts || r.Attempts[0].N != 93 || len(r.Attempts[0].Members) != MaxAttemptMembers {
			t.Errorf("%d attempts from %d on, of %d members", len(r.Attempts), r.Attempts[0].N, len(r.Attempts[0].Members))
		}
		whole := len(Encode(r))
		if whole-bare > budget {
			t.Errorf("the attempts of %d members take %d bytes, the budget is %d", members, whole-bare, budget)
		}
		if members == 128 && whole > MaxBatchBytes/4 {
			t.Errorf("a record of 128 members has %d bytes, a batch %d", whole, MaxBatchBytes)
		}
		if whole > MaxBatchBytes {
			t.Errorf("a record of %d members has %d bytes, a batch %d", members, whole, MaxBatchBytes)
		}
	}
}

func TestAnAttemptIsKeptOnce(t *testing.T) {
	r := Record{Attempt: 2}
	r.Keep(attempt(1, 1))
	if r.EndedAttempt() != nil || r.EndedAttempt().Allocation(0) != "" {
		t.Errorf("the present attempt has ended: %+v", r.EndedAttempt())
	}
	r.Keep(attempt(2, 2))
	before := r.Attempts
	better := attempt(2, 2)
	better.Why = "now it is known"
	slices.Reverse(better.Members)
	r.Keep(better)
	if len(r.Attempts) != 2 || r.EndedAttempt().Why != better.Why || r.EndedAttempt().Members[0].Member != 1 {
		t.Errorf("kept %+v", r.Attempts)
	}
	if got := r.EndedAttempt().Allocation(1); got != better.Members[0].Allocation {
		t.Errorf("the allocation of member 1 is %q", got)
	}
	if before[1].Why == better.Why {
		t.Error("who reads an earlier copy of the record sees it change")
	}
}
