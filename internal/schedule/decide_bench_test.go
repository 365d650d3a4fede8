package schedule

import (
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// benchSamples is how many decisions a benchmark measures at least.
const benchSamples = 5000

// clock collects the times of decisions.
type clock struct{ took []time.Duration }

func (c *clock) time(f func()) {
	began := time.Now()
	f()
	c.took = append(c.took, time.Since(began))
}

func (c *clock) report(b *testing.B) {
	slices.Sort(c.took)
	n := len(c.took)
	if n < benchSamples {
		b.Fatalf("%d such decisions were made, and %d are to be measured", n, benchSamples)
	}
	b.ReportMetric(float64(c.took[n/2]), "p50-ns")
	b.ReportMetric(float64(c.took[n*99/100]), "p99-ns")
	b.ReportMetric(float64(c.took[n-1]), "max-ns")
	b.ReportMetric(float64(n), "samples")
}

// BenchmarkDecide measures decisions: an event to its fixed point, as Apply
// makes it. The first three are of one gang of 64 GPUs that requires a leaf, on a
// cluster at 90 % with nobody else waiting; the others have five gangs a node
// waiting, eight on the large cluster.
func BenchmarkDecide(b *testing.B) {
	for _, c := range []struct {
		name string
		run  func(b *testing.B, nodes int)
	}{
		{"gang", func(b *testing.B, nodes int) { benchGang(b, nodes, frag90) }},
		{"infeasible", func(b *testing.B, nodes int) { benchGang(b, nodes, infeasible90) }},
		{"empty", func(b *testing.B, nodes int) { benchGang(b, nodes, vacant) }},
		{"decision", benchDecision},
		{"preempt", benchPreempt},
		{"reclaim", benchReclaim},
		{"nodeloss", benchNodeLoss},
		{"steady", benchSteady},
	} {
		for _, nodes := range []int{2000, 12500} {
			b.Run(fmt.Sprint(c.name, "/", nodes), func(b *testing.B) { c.run(b, nodes) })
		}
	}
}

// BenchmarkFixture is the same gang on the states that lie in a directory which
// GANGD_FIXTURES names: CSV files with the columns node, rack, gpus, used.
func BenchmarkFixture(b *testing.B) {
	dir := os.Getenv("GANGD_FIXTURES")
	if dir == "" {
		b.Skip("GANGD_FIXTURES names no directory with frag90.csv, infeasible90.csv and empty.csv")
	}
	for _, name := range []string{"frag90", "infeasible90", "empty"} {
		b.Run(name, func(b *testing.B) {
			y := readYard(b, filepath.Join(dir, name+".csv"))
			b.ResetTimer()
			for range b.N {
				var c clock
				for range benchSamples {
					y.submit(&c)
				}
				c.report(b)
			}
		})
	}
}

func queuedOn(nodes int) int {
	if nodes > 10_000 {
		return 8 * nodes
	}
	return 5 * nodes
}

// kept sites, since they take long to fill; a benchmark leaves one as full as it
// was.
var kept = map[string]*site{}

// busySite is a cluster at 90 % with a long queue, of the lower two tiers alone if
// that is said: else those of the highest have stopped all that may be.
func busySite(b *testing.B, nodes, guaranteed int, low bool) *site {
	key := fmt.Sprint(nodes, guaranteed, low)
	if s := kept[key]; s != nil {
		s.tb = b
		return s
	}
	clear(kept) // one is large
	runtime.GC()
	s := newSite(b, nodes, guaranteed, 1)
	if s.all = s.shapes; low {
		s.shapes = slices.DeleteFunc(slices.Clone(s.shapes), func(g gang.Spec) bool { return g.Tier == "interactive" })
	}
	s.fill(0.9)
	s.queue(queuedOn(nodes))
	kept[key] = s
	return s
}

// benchDecision: what runs ends, and what is submitted comes.
func benchDecision(b *testing.B, nodes int) {
	s := busySite(b, nodes, 0, false)
	b.ResetTimer()
	for range b.N {
		var c clock
		for len(c.took) < benchSamples {
			s.turn(&c)
		}
		c.report(b)
	}
}

// turn is an end, an arrival, and the ends that they bring about.
func (s *site) turn(c *clock) {
	s.now = s.now.Add(70 * time.Millisecond)
	ev := s.finish()
	c.time(func() { s.apply(ev) })
	more := s.any()
	c.time(func() { s.apply(more) })
	s.obeyAll(c)
}

// obeyAll times the ends that were ordered.
func (s *site) obeyAll(c *clock) {
	for ev, is := s.obey(); is; ev, is = s.obey() {
		c.time(func() { s.apply(ev) })
	}
}

// benchSteady: 14 arrivals a second, and the ends of what runs at the times at
// which they come.
func benchSteady(b *testing.B, nodes int) {
	s := busySite(b, nodes, 0, false)
	b.ResetTimer()
	for range b.N {
		var c clock
		for len(c.took) < benchSamples {
			s.now = s.now.Add(time.Second / 14)
			for len(s.e.ends) > 0 && !s.e.ends[0].end.After(s.now) && s.e.ends[0].stop == nil {
				ev := s.ends(s.e.ends[0])
				c.time(func() { s.apply(ev) })
			}
			more := s.any()
			c.time(func() { s.apply(more) })
			s.obeyAll(&c)
		}
		c.report(b)
	}
}

// ends is the end of a run.
func (s *site) ends(r *run) Together {
	var out Together
	for m := range r.place {
		if s.e.seats[Seat{r.id, r.attempt, m}] != nil {
			out = append(out, Release{Seat{r.id, r.attempt, m}})
		}
	}
	return out
}

// benchPreempt: gangs that others are stopped for. What does not lead to that is
// not counted.
func benchPreempt(b *testing.B, nodes int) {
	benchPlans(b, busySite(b, nodes, 0, true), func(s *site) Submit {
		spec := s.all[s.rng.IntN(len(s.all))]
		spec.Tier = "interactive"
		return s.submission(spec)
	})
}

// benchReclaim: gangs of a tenant that takes back what is guaranteed to it.
func benchReclaim(b *testing.B, nodes int) {
	benchPlans(b, busySite(b, nodes, 8*nodes/4, true), func(s *site) Submit {
		spec := s.all[s.rng.IntN(len(s.all))]
		spec.Tier, spec.Tenant = "production", "owner"
		return s.submission(spec)
	})
}

func benchPlans(b *testing.B, s *site, next func(*site) Submit) {
	b.ResetTimer()
	for range b.N {
		var c clock
		for tries := 0; len(c.took) < benchSamples && tries < 40*benchSamples; tries++ {
			s.now = s.now.Add(70 * time.Millisecond)
			ev := next(s)
			var one clock
			one.time(func() { s.apply(ev) })
			if slices.ContainsFunc(s.stops, func(d Stop) bool { return d.For == ev.Gang.ID }) {
				c.took = append(c.took, one.took...)
			}
			s.calm()
			if r := s.e.runs[ev.Gang.ID]; r != nil && r.stop == nil {
				s.apply(s.ends(r))
			} else if s.e.waiting[ev.Gang.ID] != nil {
				s.apply(Withdraw{ev.Gang.ID})
			}
			s.calm()
		}
		c.report(b)
	}
}

// benchNodeLoss: a node is lost with all that runs on it, which waits again; then
// it is back.
func benchNodeLoss(b *testing.B, nodes int) {
	s := busySite(b, nodes, 0, false)
	b.ResetTimer()
	for range b.N {
		var c clock
		for len(c.took) < benchSamples {
			s.now = s.now.Add(70 * time.Millisecond)
			n := s.e.cluster.Nodes()[s.rng.IntN(nodes)]
			spec := n.Spec
			spec.Schedulable = false
			ev := Together{NodeSet{spec}}
			for _, r := range s.on(n) {
				ev = append(ev, s.ends(r)...)
				g := s.gangs[r.id]
				g.Attempt, g.Accepted = r.attempt+1, true
				s.gangs[r.id] = g
				ev = append(ev, Submit{g})
			}
			c.time(func() { s.apply(ev) })
			s.calm()
			spec.Schedulable = true
			s.apply(NodeSet{spec})
			s.calm()
		}
		c.report(b)
	}
}

// on lists the runs that hold GPUs of a node.
func (s *site) on(n *cluster.Node) []*run {
	var out []*run
	for _, r := range s.e.running() {
		if s.e.runs[r.id] != r {
			continue
		}
		for m := range r.place {
			if seat := s.e.seats[Seat{r.id, r.attempt, m}]; seat != nil && seat.node == n {
				out = append(out, r)
				break
			}
		}
	}
	return out
}

// BenchmarkPlacements is how many gangs are placed and released in a second, at
// 90 %: each is found its place, given its GPUs, and gone.
func BenchmarkPlacements(b *testing.B) {
	s := newSite(b, 2000, 0, 1)
	s.fill(0.9)
	var ws []*waiter
	for range 1000 {
		w, err := s.e.newWaiter(s.any().Gang, s.e.tiers[0])
		if err != nil {
			b.Fatal(err)
		}
		if w.Spec.GPUs <= 8 {
			ws = append(ws, w)
		}
	}
	placed := 0
	b.ResetTimer()
	for i := range b.N {
		w := ws[i%len(ws)]
		w.shape.failed = 0
		f, _ := s.e.find(w, w.shape.sizes)
		if f == nil {
			continue
		}
		placed++
		mark := s.e.cluster.Mark()
		for _, m := range f.place {
			s.e.cluster.Take(s.e.cluster.Node(m.Node), cluster.MaskOf(m.GPUs), gang.Need{})
		}
		s.e.cluster.Commit()
		_ = mark
		for _, m := range f.place {
			s.e.cluster.Release(s.e.cluster.Node(m.Node), cluster.MaskOf(m.GPUs), gang.Need{})
		}
	}
	b.ReportMetric(float64(placed)/b.Elapsed().Seconds(), "placements/s")
}

// pattern is a state of a cluster for one gang of 8 nodes in a leaf of 16.
type pattern int

const (
	// vacant: nothing runs.
	vacant pattern = iota
	// frag90: 90 % are used. One leaf has 8 nodes that are free, one node in 20
	// more is free, at most 7 in a leaf, and the other GPUs that are free lie one
	// by one on busy nodes.
	frag90
	// infeasible90: the same, and no leaf has more than 7 free nodes.
	infeasible90
)

const perLeaf = 16

// lot is a cluster of which GPUs are held, with nobody waiting.
type lot struct {
	b     *testing.B
	e     *Engine
	rng   *rand.Rand
	now   time.Time
	held  []int // GPUs of each node
	names []string
	seq   int
}

func newLot(b *testing.B, nodes int, p pattern, seed uint64) *lot {
	y := emptyLot(b, rand.New(rand.NewPCG(seed, 3)))
	for i := range nodes {
		y.add(fmt.Sprint("n-", i), fmt.Sprint("s", i/128), fmt.Sprint("l", i/perLeaf), 8)
	}
	if p != vacant {
		y.fill(y.draw(nodes, p))
	}
	return y
}

func emptyLot(b *testing.B, rng *rand.Rand) *lot {
	return &lot{b: b, e: New(benchConfig(0)), rng: rng, now: time.Unix(1_800_000_000, 0)}
}

func (y *lot) add(name, spine, leaf string, gpus int) {
	if _, err := y.e.Apply(NodeSet{benchNode(name, spine, leaf)}, y.now); err != nil {
		y.b.Fatal(err)
	}
	y.names = append(y.names, name)
	y.held = append(y.held, 0)
}

// draw lays out how many GPUs of each node are used.
func (y *lot) draw(nodes int, p pattern) []int {
	used := make([]int, nodes)
	for i := range used {
		used[i] = 8
	}
	inLeaf := make([]int, (nodes+perLeaf-1)/perLeaf)
	free := 0
	clearNode := func(leaf, most int) bool {
		i := leaf*perLeaf + y.rng.IntN(perLeaf)
		if i >= nodes || used[i] == 0 || inLeaf[leaf] >= most {
			return false
		}
		used[i] = 0
		inLeaf[leaf]++
		free += 8
		return true
	}
	if p == frag90 {
		leaf := y.rng.IntN(nodes / perLeaf)
		for inLeaf[leaf] < 8 {
			clearNode(leaf, 8)
		}
	}
	for left := nodes * 96 / 2000; left > 0; {
		if clearNode(y.rng.IntN(len(inLeaf)), 7) {
			left--
		}
	}
	for want := nodes * 8 / 10; free < want; {
		if i := y.rng.IntN(nodes); used[i] == 8 {
			used[i]--
			free++
		}
	}
	return used
}

// fill has so many GPUs of each node held.
func (y *lot) fill(used []int) {
	var all Together
	for i, n := range used {
		if y.held[i] > 0 {
			all = append(all, Release{Seat{"held", 1, i}})
		}
		if n > 0 {
			all = append(all, Occupy{Seat: Seat{"held", 1, i}, Place: gang.Member{Node: y.names[i], GPUs: allBut(n)}})
		}
	}
	y.held = used
	if _, err := y.e.Apply(all, y.now); err != nil {
		y.b.Fatal(err)
	}
}

// allBut are the first n of 8 GPUs.
func allBut(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// submit times the decision on one gang of 8 nodes in a leaf, and takes it back.
func (y *lot) submit(c *clock) {
	y.now = y.now.Add(time.Second)
	y.seq++
	g := wanted(fmt.Sprint("g", y.seq), 8, "leaf")
	g.Spec.Tenant, g.Spec.Estimate, g.Seq = "t1", time.Minute, uint64(y.seq)
	var out []Decision
	c.time(func() { out, _ = y.e.Apply(Submit{g}, y.now) })
	if start, is := out[0].(Start); is {
		var ends Together
		for m := range start.Placement {
			ends = append(ends, Release{Seat{g.ID, 1, m}})
		}
		y.apply(ends)
		return
	}
	y.apply(Withdraw{g.ID})
}

func (y *lot) apply(ev Event) {
	if _, err := y.e.Apply(ev, y.now); err != nil {
		y.b.Fatal(err)
	}
}

func benchGang(b *testing.B, nodes int, p pattern) {
	y := newLot(b, nodes, p, 1)
	b.ResetTimer()
	for range b.N {
		var c clock
		for i := range benchSamples {
			if p != vacant && i%100 == 99 {
				b.StopTimer()
				y.fill(y.draw(nodes, p))
				b.StartTimer()
			}
			y.submit(&c)
		}
		c.report(b)
	}
}

func readYard(b *testing.B, path string) *lot {
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		b.Fatal(err)
	}
	y := emptyLot(b, rand.New(rand.NewPCG(1, 3)))
	var used []int
	for i, row := range rows[1:] {
		gpus, err := strconv.Atoi(row[2])
		if err != nil {
			b.Fatal(err)
		}
		n, err := strconv.Atoi(row[3])
		if err != nil {
			b.Fatal(err)
		}
		y.add(row[0], fmt.Sprint("s", i/128), row[1], gpus)
		used = append(used, n)
	}
	y.fill(used)
	return y
}

// BenchmarkSnapshot is what the loop of an agent that records pays when a file is
// full; to write it down is another's work.
func BenchmarkSnapshot(b *testing.B) {
	for _, nodes := range []int{2000, 12500} {
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			s := busySite(b, nodes, 0, false)
			b.ResetTimer()
			for range b.N {
				if got := s.e.Snapshot(); len(got.Cluster.Nodes) != nodes {
					b.Fatalf("%d nodes", len(got.Cluster.Nodes))
				}
			}
		})
	}
}
