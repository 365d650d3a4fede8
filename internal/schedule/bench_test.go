package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// The benchmarks measure decisions one by one, each on a state of its own, and
// print percentiles: an average hides what a user waits for.

// site is a large cluster under load: leaves of 16 nodes, spines of 8 leaves,
// 50 tenants, 3 tiers, 200 shapes.
type site struct {
	tb     testing.TB
	e      *Engine
	rng    *rand.Rand
	now    time.Time
	seq    uint64
	shapes []gang.Spec // that are submitted
	all    []gang.Spec
	// running are the attempts that hold GPUs, by start.
	running []Start
	stops   []Stop
	gangs   map[gang.ID]Gang
}

// benchConfig is that of every benchmark: 50 tenants, 3 tiers. The last tenant is
// guaranteed what a benchmark says.
func benchConfig(guaranteed int) Config {
	c := Config{
		Levels: []string{"spine", "leaf"},
		Tiers: []Tier{
			{Name: "interactive", Priority: 300, Preempts: []string{"production", "background"}, Grace: 10 * time.Second},
			{Name: "production", Priority: 200, Preempts: []string{"background"}, Grace: 10 * time.Second},
			{Name: "background", Priority: 100, Grace: 10 * time.Second, MinShare: 0.05},
		},
		HalfLife: time.Hour,
	}
	for i := range 50 {
		c.Tenants = append(c.Tenants, Tenant{Name: fmt.Sprint("t", i), Weight: float64(1 + i%4)})
	}
	c.Tenants = append(c.Tenants, Tenant{Name: "owner", Guaranteed: guaranteed})
	return c
}

func newSite(tb testing.TB, nodes, guaranteed int, seed uint64) *site {
	s := &site{tb: tb, rng: rand.New(rand.NewPCG(seed, 2)), now: time.Unix(1_800_000_000, 0), gangs: make(map[gang.ID]Gang)}
	s.e = New(benchConfig(guaranteed))
	var all Together
	for i := range nodes {
		id := fmt.Sprint("n-", i)
		all = append(all, NodeSet{benchNode(id, fmt.Sprint("s", i/128), fmt.Sprint("l", i/16))})
	}
	s.apply(all)
	sizes := [][2]int{{1, 1}, {1, 1}, {2, 2}, {4, 4}, {8, 8}, {8, 8}, {16, 8}, {32, 8}, {64, 8}, {8, 4}}
	for i := range 200 {
		z := sizes[i%len(sizes)]
		spec := gang.Spec{
			Name: "g", Template: "wan", Tier: []string{"interactive", "production", "background"}[i%3],
			GPUs: z[0], GPUsPerNode: z[1], Estimate: time.Duration(30+i*6) * time.Second, GPUMemoryMiB: i / 10 * 1024,
		}
		spec.GPUMemoryMiB = min(spec.GPUMemoryMiB, 80_000)
		if i%4 == 0 {
			spec.Topology.Require = "leaf"
		}
		if i%2 == 0 {
			spec.Checkpoint = &gang.Checkpoint{Every: 30 * time.Second, Cost: 2 * time.Second, Restore: 5 * time.Second}
		}
		s.shapes = append(s.shapes, spec)
	}
	return s
}

func benchNode(id string, domains ...string) cluster.Spec {
	s := cluster.Spec{ID: id, Name: id, Domains: domains, Schedulable: true}
	for g := range 8 {
		s.GPUs = append(s.GPUs, cluster.GPU{UUID: fmt.Sprint(id, "/", g), Index: g, Model: "H100-80GB", MemoryMiB: 81559, Healthy: true})
	}
	return s
}

func (s *site) apply(ev Event) []Decision {
	out, err := s.e.Apply(ev, s.now)
	if err != nil {
		s.tb.Fatal(err)
	}
	for _, d := range out {
		switch d := d.(type) {
		case Start:
			s.running = append(s.running, d)
		case Stop:
			s.stops = append(s.stops, d)
		}
	}
	return out
}

// obey is the end of an attempt that was ordered to stop, if there is one.
func (s *site) obey() (Event, bool) {
	for len(s.stops) > 0 {
		d := s.stops[0]
		s.stops = s.stops[1:]
		r := s.e.runs[d.ID]
		if r == nil || r.attempt != d.Attempt || r.stop == nil {
			continue
		}
		var out Together
		for i := range r.place {
			out = append(out, Release{Seat{d.ID, d.Attempt, i}})
		}
		g := s.gangs[d.ID]
		g.Attempt, g.Accepted = d.Attempt+1, true
		s.gangs[d.ID] = g
		return append(out, Submit{g}), true
	}
	return nil, false
}

// calm obeys all orders to stop.
func (s *site) calm() {
	for ev, is := s.obey(); is; ev, is = s.obey() {
		s.apply(ev)
	}
}

// submission is a gang of some shape.
func (s *site) submission(spec gang.Spec) Submit {
	s.seq++
	if spec.Tenant == "" {
		spec.Tenant = fmt.Sprint("t", s.rng.IntN(50))
	}
	g := Gang{ID: gang.ID(fmt.Sprint("g", s.seq)), Seq: s.seq, Attempt: 1, Spec: &spec}
	s.gangs[g.ID] = g
	return Submit{g}
}

func (s *site) any() Submit { return s.submission(s.shapes[s.rng.IntN(len(s.shapes))]) }

// fill starts gangs until so much of the cluster is used.
func (s *site) fill(share float64) {
	for s.used() < share {
		s.now = s.now.Add(20 * time.Millisecond)
		s.apply(s.any())
		s.calm()
	}
}

func (s *site) used() float64 {
	root := s.e.Cluster().Root()
	return 1 - float64(root.GPUs(cluster.Free, "H100-80GB"))/float64(root.GPUs(cluster.Usable, "H100-80GB"))
}

// queue has so many gangs wait.
func (s *site) queue(n int) {
	for len(s.e.waiting) < n {
		var all Together
		for range 500 {
			all = append(all, s.any())
		}
		s.now = s.now.Add(20 * time.Millisecond)
		s.apply(all)
		s.calm()
	}
}

// finish is the end of a run that holds GPUs.
func (s *site) finish() Together {
	for {
		i := s.rng.IntN(len(s.running))
		d := s.running[i]
		s.running = slices.Delete(s.running, i, i+1)
		var out Together
		for m := range d.Placement {
			if seat := s.e.seats[Seat{d.ID, d.Attempt, m}]; seat != nil && seat.run.stop == nil {
				out = append(out, Release{Seat{d.ID, d.Attempt, m}})
			}
		}
		if len(out) > 0 {
			return out
		}
	}
}

func wanted(id string, members int, require string) Gang {
	return Gang{ID: gang.ID(id), Seq: 1, Attempt: 1, Spec: &gang.Spec{
		Name: id, Template: "wan", Tier: "production", GPUs: 8 * members, GPUsPerNode: 8, Topology: gang.Topology{Require: require},
	}}
}
