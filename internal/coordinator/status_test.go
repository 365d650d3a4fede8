package coordinator

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// queuedCore is a core with one node, on which the first of n gangs starts, and
// the others wait for it.
func queuedCore(tb testing.TB, n int) *Core {
	c := NewCore(Config{
		Rules: schedule.Config{Levels: []string{"leaf"}, Tiers: []schedule.Tier{{Name: "production", Priority: 200}}}, Fence: gang.Fence{Epoch: 1, Index: 1},
		ReadyTimeout: time.Minute, Lease: simLease, MaxQueue: n, MaxFinished: n,
	})
	in := Restored{Specs: make(map[gang.ID]*gang.Spec)}
	for i := range n {
		spec := simSpec(8, 8)
		id := gang.ID(fmt.Sprintf("sim-%08d", i))
		in.Specs[id] = &spec
		in.Gangs = append(in.Gangs, &gang.Record{
			Version: gang.SchemaVersion, ID: id, State: gang.Queued, Seq: uint64(i + 1), Tenant: "default", Tier: "production", Template: "ddim", GPUs: 8, PerNode: 8,
		})
	}
	c.Step(simStart, in)
	showNode(func(in Input) { c.Step(simStart, in) })
	if !c.deciding {
		tb.Fatal("it does not decide")
	}
	return c
}

var simStart = time.Unix(1_800_000_000, 0)

func TestAListHasWhatIsWanted(t *testing.T) {
	c := queuedCore(t, 8)
	for _, id := range []gang.ID{"sim-00000003", "sim-00000001"} {
		c.Step(simStart, CancelRequest{ID: id})
	}
	for _, l := range []struct {
		want  gang.Selection
		ids   []gang.ID
		total int
	}{
		{gang.Selection{Limit: 10}, []gang.ID{"sim-00000000", "sim-00000002", "sim-00000004", "sim-00000005", "sim-00000006", "sim-00000007", "sim-00000003", "sim-00000001"}, 8},
		{gang.Selection{Limit: 2}, []gang.ID{"sim-00000000", "sim-00000002"}, 8},
		{gang.Selection{Limit: 10, State: gang.Cancelled}, []gang.ID{"sim-00000003", "sim-00000001"}, 2},
		{gang.Selection{Limit: 1, State: gang.Queued}, []gang.ID{"sim-00000002"}, 5},
		{gang.Selection{Limit: 10, Tenant: "nobody"}, nil, 0},
		{gang.Selection{Limit: 10, Prefix: "sim-00000007"}, []gang.ID{"sim-00000007"}, 1},
	} {
		got := c.list(l.want)
		var ids []gang.ID
		for _, g := range got.gangs {
			ids = append(ids, g.ID)
			if alone := c.status(c.gangs[g.ID], false); g.Position != alone.Position || g.Reason != alone.Reason || g.Code != alone.Code {
				t.Errorf("%+v: listed %+v, alone %+v", l.want, g, alone)
			}
		}
		if !slices.Equal(ids, l.ids) || got.total != l.total {
			t.Errorf("%+v: %v of %d, want %v of %d", l.want, ids, got.total, l.ids, l.total)
		}
	}
}

// A list costs what it shows, and the gauges nothing for each gang: 10,000 of
// them must not hold up the loop.
func TestALongQueueIsShownCheaply(t *testing.T) {
	short, long := queuedCore(t, 20), queuedCore(t, 10_000)
	m := NewMetrics()
	for _, c := range []struct {
		name string
		show func(*Core)
	}{
		{"ten", func(c *Core) { c.list(gang.Selection{Limit: 10}) }},
		{"one by its ID", func(c *Core) { c.list(gang.Selection{Limit: 10, Prefix: "sim-00000019"}) }},
		{"gauges", func(c *Core) {
			c.now = c.now.Add(observeEvery)
			m.observe(c)
		}},
	} {
		few := testing.AllocsPerRun(3, func() { c.show(short) })
		many := testing.AllocsPerRun(3, func() { c.show(long) })
		if many > few+100 { // the runtime may add some of its own
			t.Errorf("%s: %v allocations where 10,000 wait, %v where 20 do", c.name, many, few)
		}
	}
	const n = 9_999
	perGang := testing.AllocsPerRun(1, func() { long.list(gang.Selection{Limit: n, State: gang.Queued}) }) / n
	if perGang > 0.1 {
		t.Errorf("a list of all that wait makes %v allocations for each", perGang)
	}
}

func TestGauges(t *testing.T) {
	m, r := NewMetrics(), prometheus.NewRegistry()
	if err := m.Register(r); err != nil {
		t.Fatal(err)
	}
	c := queuedCore(t, 5)
	gauge := func(name, label string) (value float64, shown bool) {
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, g := range f.GetMetric() {
				if f.GetName() == name && g.GetLabel()[0].GetValue() == label {
					return g.GetGauge().GetValue(), true
				}
			}
		}
		return 0, false
	}
	expect := func(when, label string, want float64, wantShown bool) {
		t.Helper()
		if value, shown := gauge("gangd_gangs", label); value != want || shown != wantShown {
			t.Errorf("%s: %v gangs are %s, shown: %t", when, value, label, shown)
		}
	}
	m.observe(c)
	expect("first", "queued", 4, true)
	expect("first", "running", 0, true)
	c.Step(simStart.Add(observeEvery/2), CancelRequest{ID: "sim-00000004"})
	m.observe(c)
	expect("half a second later", "queued", 4, true)
	c.Step(simStart.Add(observeEvery), Tick{})
	m.observe(c)
	expect("a second later", "queued", 3, true)
	expect("a second later", "cancelled", 1, true)
	m.deposed()
	expect("in the end", "queued", 0, false)
}

// BenchmarkGangs lists 10,000 gangs that wait: all, and as many as a list has
// that says nothing.
func BenchmarkGangs(b *testing.B) {
	c := queuedCore(b, 10_000)
	for _, limit := range []int{10_000, 1000} {
		b.Run(fmt.Sprint(limit), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if got := c.list(gang.Selection{Limit: limit}); len(got.gangs) != limit || got.total != 10_000 {
					b.Fatalf("%d of %d", len(got.gangs), got.total)
				}
			}
		})
	}
}

// BenchmarkObserve reads the gauges where 10,000 gangs wait, as happens once a
// second.
func BenchmarkObserve(b *testing.B) {
	c, m := queuedCore(b, 10_000), NewMetrics()
	b.ReportAllocs()
	for b.Loop() {
		c.now = c.now.Add(observeEvery)
		m.observe(c)
	}
}
