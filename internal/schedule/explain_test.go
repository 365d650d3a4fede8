package schedule

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/gangd/gangd/internal/gang"
)

// queueOf makes an engine with one node and n gangs that wait, of two shapes in
// turn.
func queueOf(tb testing.TB, n int, schedulable bool) (*Engine, []gang.ID) {
	e := New(Config{Levels: []string{"leaf"}, Tiers: []Tier{{Name: "production", Priority: 1}}, Policy: Policy{Arrival: true, NoBackfill: true}})
	node := benchNode("n-0", "l0")
	node.Schedulable = schedulable
	all := Together{NodeSet{node}, Occupy{Seat: Seat{"busy", 1, 0}, Place: gang.Member{Node: "n-0", GPUs: []int{0}}}}
	ids := make([]gang.ID, n)
	for i := range n {
		g := wanted(fmt.Sprintf("g%d", i), 1, []string{"", "leaf"}[i%2])
		g.Seq, ids[i] = uint64(i+1), g.ID
		all = append(all, Submit{g})
	}
	if _, err := e.Apply(all, time.Unix(0, 0)); err != nil {
		tb.Fatal(err)
	}
	return e, ids
}

// What a long queue has in common is found once, whoever holds it up.
func TestToExplainAllTakesLittleMoreThanToExplainOne(t *testing.T) {
	const n = 10_000
	for _, c := range []struct {
		name        string
		schedulable bool
		codes       map[gang.Code]int
		sentences   int
	}{
		{"behind the first", true, map[gang.Code]int{gang.CodeCapacity: 1, gang.CodeReservedOther: n - 1}, 2},
		{"each by itself", false, map[gang.Code]int{gang.CodeCapacity: n}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, ids := queueOf(t, n, c.schedulable)
			x := e.Explainer(e.now)
			codes := make(map[gang.Code]int)
			made := make(map[*byte]bool) // sentences, not the gangs that share one
			for i, id := range ids {
				code, reason, position, waits := x.Explain(id)
				if !waits || position != i+1 || reason == "" {
					t.Fatalf("%s: %t, position %d, %q", id, waits, position, reason)
				}
				codes[code]++
				made[unsafe.StringData(reason)] = true
			}
			if fmt.Sprint(codes) != fmt.Sprint(c.codes) || len(made) != c.sentences {
				t.Errorf("codes %v, %d sentences; want %v, %d", codes, len(made), c.codes, c.sentences)
			}
		})
	}
}
