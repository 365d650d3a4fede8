package schedule

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// player drives an engine at random, keeps its own account of who holds what,
// and holds every decision against the rules.
type player struct {
	cfg   Config
	plain bool // gangs have one size, and no segments
	e     *Engine
	now   time.Time
	nodes map[string]cluster.Spec
	gangs map[gang.ID]*Gang
	// held has the members of each attempt that were not released.
	held map[Seat]gang.Member
	// was has them all.
	was     map[Seat]gang.Member
	began   map[gang.ID]time.Time
	waiting map[gang.ID]bool
	// stopping are the attempts that were ordered to end.
	stopping map[gang.ID]Stop
	seq      uint64
	windows  []Window
	// log and events are for the replay.
	log    strings.Builder
	events []timed
	// twin was restored from a snapshot, and gets the same events.
	twin *Engine
	// happened counts the events but for those that ask whether more is decided.
	happened int
}

type timed struct {
	at   time.Time
	ev   Event
	anew bool // it is what a new engine takes over
}

func newPlayer(t *rapid.T) *player {
	levels := []string{"region", "spine", "leaf"}[:rapid.IntRange(0, 3).Draw(t, "levels")]
	share := func(label string) float64 { return rapid.SampledFrom([]float64{0, 0, 0.1, 0.3}).Draw(t, label) }
	p := &player{
		cfg: Config{
			Levels: levels,
			Tiers: []Tier{
				{Name: "low", Priority: 1, MinShare: share("min share of low"), Grace: 10 * time.Second},
				{Name: "high", Priority: 3, Preempts: []string{"low", "mid"}, Grace: 10 * time.Second},
				{Name: "mid", Priority: 2, Preempts: []string{"low"}, Grace: 5 * time.Second, MinShare: share("min share of mid"), Protected: time.Minute},
			},
			Tenants:  []Tenant{{Name: "a", Weight: 3}, {Name: "b", Guaranteed: 8}, {Name: "c", MaxGPUs: 16}},
			Models:   []Model{{Name: "wan", Load: 40 * time.Second, Speed: map[string]float64{"B200": 2}}},
			HalfLife: rapid.SampledFrom([]time.Duration{0, time.Minute, time.Hour}).Draw(t, "half life"),
		},
		now:   time.Unix(1_800_000_000, 0),
		nodes: make(map[string]cluster.Spec), gangs: make(map[gang.ID]*Gang), held: make(map[Seat]gang.Member), was: make(map[Seat]gang.Member),
		began: make(map[gang.ID]time.Time), waiting: make(map[gang.ID]bool), stopping: make(map[gang.ID]Stop),
	}
	p.e = New(p.cfg)
	return p
}

var models = []string{"H100", "B200"}

func (p *player) drawNode(t *rapid.T) cluster.Spec {
	id := fmt.Sprint("n", rapid.IntRange(0, 9).Draw(t, "node"))
	s, known := p.nodes[id]
	if !known {
		s = cluster.Spec{ID: id, Name: id, Spot: rapid.IntRange(0, 5).Draw(t, "spot") == 0}
		for range p.cfg.Levels {
			s.Domains = append(s.Domains, fmt.Sprint("d", rapid.IntRange(0, 1).Draw(t, "domain")))
		}
		model := rapid.SampledFrom(models).Draw(t, "model")
		island := rapid.SampledFrom([]int{2, 4, 8}).Draw(t, "island")
		memory := rapid.SampledFrom([]int{40, 80}).Draw(t, "memory")
		for i := range rapid.SampledFrom([]int{2, 4, 8}).Draw(t, "gpus") {
			s.GPUs = append(s.GPUs, cluster.GPU{UUID: fmt.Sprint(id, "/", i), Index: i, Model: model, MemoryMiB: memory, Island: i / island})
		}
	}
	// What a node is not known to have is no limit; what others hold of it comes
	// and goes.
	s.Capacity = cluster.Room{CPUMHz: rapid.SampledFrom([]int{0, 4000}).Draw(t, "cpu"), MemoryMiB: rapid.SampledFrom([]int{0, 800}).Draw(t, "capacity")}
	s.CoreMHz = 500
	s.Foreign = cluster.Room{CPUMHz: rapid.SampledFrom([]int{0, 0, 1500, 5000}).Draw(t, "foreign cpu"), MemoryMiB: rapid.SampledFrom([]int{0, 0, 300}).Draw(t, "foreign memory")}
	s.GPUs = slices.Clone(s.GPUs)
	s.Draining = rapid.IntRange(0, 9).Draw(t, "draining") == 0
	s.Schedulable = !s.Draining && rapid.IntRange(0, 9).Draw(t, "schedulable") > 0
	for i := range s.GPUs {
		s.GPUs[i].Healthy = rapid.IntRange(0, 9).Draw(t, "healthy") > 0
		s.GPUs[i].Faults = rapid.SampledFrom([]int{0, 0, 0, 1, 3}).Draw(t, "faults")
	}
	p.nodes[id] = s
	return s
}

func (p *player) drawGang(t *rapid.T) Gang {
	p.seq++
	perNode := rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "per_node")
	members := rapid.IntRange(1, 4).Draw(t, "members")
	s := &gang.Spec{
		Name: "g", Template: "ddim", Tier: rapid.SampledFrom([]string{"low", "mid", "high"}).Draw(t, "tier"),
		Tenant: rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "tenant"), GPUsPerNode: perNode, GPUs: perNode * members,
		GPU:          rapid.SampledFrom([]string{"", "", "H100", "B200"}).Draw(t, "model"),
		GPUMemoryMiB: rapid.SampledFrom([]int{0, 0, 60}).Draw(t, "memory"),
		Model:        rapid.SampledFrom([]string{"", "wan"}).Draw(t, "weights"),
		Estimate:     time.Duration(rapid.IntRange(1, 600).Draw(t, "estimate")) * time.Second,
		MemberNeed: rapid.SampledFrom([]gang.Need{
			{}, {}, {CPUMHz: 100, MemoryMiB: 50}, {CPUMHz: 700, MemoryMiB: 400}, {Cores: 3}, {MemoryMiB: 700},
		}).Draw(t, "need"),
		Pinned: rapid.IntRange(0, 5).Draw(t, "pinned") == 0,
	}
	if rapid.Bool().Draw(t, "checkpoint") {
		s.Checkpoint = &gang.Checkpoint{Every: 30 * time.Second, Cost: time.Duration(rapid.IntRange(0, 12).Draw(t, "cost")) * time.Second, Restore: 3 * time.Second}
	}
	if p.plain {
		p.drawTopology(t, s)
		return Gang{ID: gang.ID(fmt.Sprint("g", p.seq)), Seq: p.seq, Attempt: 1, Spec: s}
	}
	if members == 4 && rapid.Bool().Draw(t, "segment") {
		s.Topology.Segment = 2
	}
	if members > 1 && rapid.Bool().Draw(t, "elastic") {
		s.Elastic = []gang.Size{{GPUs: perNode, Run: 10 * time.Minute}, {GPUs: s.GPUs, Run: 4 * time.Minute}}
	}
	p.drawTopology(t, s)
	return Gang{ID: gang.ID(fmt.Sprint("g", p.seq)), Seq: p.seq, Attempt: 1, Spec: s}
}

func (p *player) drawTopology(t *rapid.T, s *gang.Spec) {
	any := append([]string{""}, p.cfg.Levels...)
	s.Topology.Require = rapid.SampledFrom(any).Draw(t, "require")
	s.Topology.Prefer = rapid.SampledFrom(any).Draw(t, "prefer")
}

// apply gives an event to the engine and checks all that it decided.
func (p *player) apply(t *rapid.T, ev Event) error {
	p.now = p.now.Add(time.Duration(rapid.IntRange(0, 30_000).Draw(t, "ms")) * time.Millisecond)
	return p.take(t, timed{at: p.now, ev: ev})
}

func (p *player) take(t *rapid.T, x timed) error {
	ev := x.ev
	p.events = append(p.events, x)
	p.happened++
	decisions, err := p.e.Apply(ev, p.now)
	p.noteWindows(ev)
	p.sameDecisions(t, ev, decisions, err)
	fmt.Fprintf(&p.log, "%+v %v\n", decisions, err)
	p.note(ev)
	for _, d := range decisions {
		switch d := d.(type) {
		case Start:
			p.checkStart(t, d)
		case Stop:
			p.checkStop(t, d)
		case CallOff:
			if _, was := p.stopping[d.ID]; !was {
				t.Fatalf("%s was not ordered to stop, and that is called off", d.ID)
			}
			delete(p.stopping, d.ID)
		case Wait:
			for _, id := range d.IDs {
				if !p.waiting[id] {
					t.Fatalf("%s waits, and is not queued", id)
				}
			}
		case Reserve:
			if !p.waiting[d.ID] || d.Start.Before(p.now) {
				t.Fatalf("at %s %s holds a start at %s; it waits: %t", p.now, d.ID, d.Start, p.waiting[d.ID])
			}
		}
	}
	return err
}

// note follows who is queued, and who holds what, by what the engine took.
func (p *player) note(ev Event) {
	switch ev := ev.(type) {
	case Submit:
		g := ev.Gang
		if p.e.waiting[g.ID] != nil || p.e.seats[Seat{g.ID, g.Attempt, 0}] != nil {
			p.gangs[g.ID], p.waiting[g.ID] = &g, true
		}
	case Withdraw:
		delete(p.waiting, ev.ID)
	case Release:
		delete(p.held, ev.Seat)
		delete(p.stopping, ev.Seat.ID)
	case Together:
		for _, one := range ev {
			p.note(one)
		}
	}
}

func (p *player) Node(t *rapid.T) { must(t, p.apply(t, NodeSet{p.drawNode(t)})) }

// Gone: Nomad forgets a node; that of a member that runs stays.
func (p *player) Gone(t *rapid.T) {
	nodes := p.e.Cluster().Nodes()
	if len(nodes) < 2 {
		t.Skip("it is the last")
	}
	n := rapid.SampledFrom(nodes).Draw(t, "gone").ID
	held := p.e.Cluster().Node(n).Used() != 0
	if err := p.apply(t, NodeGone{n}); held != (err != nil) {
		t.Fatalf("node %s, held %t, is removed: %v", n, held, err)
	}
	if !held {
		delete(p.nodes, n)
	}
}

func (p *player) Submit(t *rapid.T) { _ = p.apply(t, Submit{p.drawGang(t)}) }

func (p *player) Tick(t *rapid.T) { must(t, p.apply(t, Tick{})) }

// Several events at one instant.
func (p *player) Together(t *rapid.T) {
	all := Together{NodeSet{p.drawNode(t)}}
	for range rapid.IntRange(0, 3).Draw(t, "submissions") {
		g := p.drawGang(t)
		g.Accepted = true
		all = append(all, Submit{g})
	}
	must(t, p.apply(t, all))
}

// running lists the gangs that hold something, in a fixed order.
func (p *player) running() []gang.ID {
	seen := make(map[gang.ID]bool)
	var out []gang.ID
	for s := range p.held {
		if !seen[s.ID] {
			seen[s.ID] = true
			out = append(out, s.ID)
		}
	}
	slices.Sort(out)
	return out
}

// gone are the events of a gang's end.
func (p *player) gone(id gang.ID) Together {
	var out Together
	for i := range 8 {
		for attempt := range p.gangs[id].Attempt + 1 {
			if s := (Seat{id, attempt, i}); p.held[s].Node != "" {
				out = append(out, Release{s})
			}
		}
	}
	return out
}

func (p *player) pick(t *rapid.T) gang.ID {
	ids := p.running()
	if len(ids) == 0 {
		t.Skip("nothing runs")
	}
	return rapid.SampledFrom(ids).Draw(t, "gang")
}

func (p *player) Finish(t *rapid.T) {
	id := p.pick(t)
	if p.waiting[id] {
		t.Skip("it waits for another attempt")
	}
	must(t, p.apply(t, p.gone(id)))
}

// Requeue: a gang that ran, or was told to stop, waits again.
func (p *player) Requeue(t *rapid.T) {
	id := p.pick(t)
	if p.waiting[id] {
		t.Skip("it waits already")
	}
	g := *p.gangs[id]
	if g.Spec.Checkpoint != nil {
		g.Done += time.Duration(rapid.IntRange(0, 60).Draw(t, "done")) * time.Second
	}
	g.Attempt, g.Accepted = g.Attempt+1, true
	if rapid.Bool().Draw(t, "avoid") {
		g.Avoid = []string{p.anyNode(id)}
	}
	must(t, p.apply(t, append(p.gone(id), Submit{g})))
}

func (p *player) anyNode(id gang.ID) string {
	for i := range 8 {
		if m := p.held[Seat{id, p.gangs[id].Attempt, i}]; m.Node != "" {
			return m.Node
		}
	}
	return "n0"
}

func (p *player) Withdraw(t *rapid.T) {
	queue := p.e.queue()
	if len(queue) == 0 {
		t.Skip("nothing waits")
	}
	must(t, p.apply(t, Withdraw{rapid.SampledFrom(queue).Draw(t, "gang")}))
}

func must(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}
