package sim

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// longest is the longest run time of the gangs of a town.
const longest = time.Minute

// town is a long play in the making: nodes of 8 GPUs, two a leaf, and tenants
// who want more of them than there are.
type town struct {
	*rapid.T
	scenario *config.Scenario
	over     time.Duration // the end of the play
	// largest is the most GPUs that a gang of a tenant has.
	largest map[string]int
}

// kind is one of a tenant's gangs.
type kind struct {
	spec *gang.Spec
	runs time.Duration
}

// work is in GPU-seconds.
func (k kind) work() float64 { return float64(k.spec.GPUs) * k.runs.Seconds() }

func newTown(t *rapid.T, nodes int, halfLife time.Duration) *town {
	w := &town{T: t, over: 50 * longest, largest: make(map[string]int)}
	w.scenario = &config.Scenario{Rules: schedule.Config{Levels: []string{"leaf"}, Tiers: config.BuiltInTiers(), HalfLife: halfLife}}
	for i := range nodes {
		id := fmt.Sprint("n-", i)
		spec := cluster.Spec{ID: id, Name: id, Schedulable: true, Domains: []string{fmt.Sprint("l-", i/2)}}
		for g := range 8 {
			spec.GPUs = append(spec.GPUs, cluster.GPU{UUID: fmt.Sprint(id, "/", g), Index: g, Model: "H100-80GB", MemoryMiB: 80 << 10, Healthy: true})
		}
		w.scenario.Nodes = append(w.scenario.Nodes, spec)
	}
	return w
}

func (w *town) gpus() int { return 8 * len(w.scenario.Nodes) }

// settle adds a tenant.
func (w *town) settle(t schedule.Tenant) {
	w.scenario.Rules.Tenants = append(w.scenario.Rules.Tenants, t)
}

// arrive has a gang arrive, and returns its name.
func (w *town) arrive(at time.Duration, k kind) gang.ID {
	id := gang.ID(fmt.Sprintf("%s-%d", k.spec.Name, len(w.scenario.Gangs)))
	w.scenario.Gangs = append(w.scenario.Gangs, config.ScenarioGang{ID: id, Spec: k.spec, At: at, Duration: k.runs, Line: len(w.scenario.Gangs) + 1})
	w.largest[k.spec.Tenant] = max(w.largest[k.spec.Tenant], k.spec.GPUs)
	return id
}

// kinds draws up to three kinds of gangs of the sizes that are given, as far as
// they have no more than so many GPUs. They run for a quarter of the longest
// time and more, and where guesses is set one in three is thought to run for longer.
func (w *town) kinds(tenant, tier string, most int, guesses bool, sizes ...int) []kind {
	var out []kind
	for i := range rapid.IntRange(1, 3).Draw(w.T, "kinds") {
		gpus := min(rapid.SampledFrom(sizes).Draw(w.T, "gpus"), most)
		if gpus > 8 {
			gpus -= gpus % 8
		}
		runs := longest * time.Duration(rapid.IntRange(1, 4).Draw(w.T, "quarters")) / 4
		spec := &gang.Spec{Name: fmt.Sprint(tenant, i), Tenant: tenant, Tier: tier, GPUs: gpus, GPUsPerNode: min(gpus, 8), Estimate: runs}
		if guesses && rapid.IntRange(0, 2).Draw(w.T, "guess") == 0 {
			spec.Estimate = time.Duration(rapid.Float64Range(1, 3).Draw(w.T, "estimate") * float64(runs))
		}
		if gpus == 16 && rapid.Bool().Draw(w.T, "one leaf") {
			spec.Topology.Require = "leaf"
		}
		out = append(out, kind{spec, runs})
	}
	return out
}

// stream has a tenant's gangs arrive until the end: all at once, from the begin
// or later, one after another, or in bursts. Their work is load times what the
// cluster can do in that time.
func (w *town) stream(kinds []kind, load float64) {
	pattern := rapid.SampledFrom([]string{"flood", "steady", "bursts", "late flood"}).Draw(w.T, "pattern")
	from, burst := time.Duration(0), 1
	switch pattern {
	case "late flood":
		from = w.over * time.Duration(rapid.IntRange(1, 5).Draw(w.T, "from")) / 10
	case "bursts":
		burst = rapid.IntRange(2, 40).Draw(w.T, "burst")
	}
	rate := load * float64(w.gpus()) // GPU-seconds a second
	work := 0.0
	for n := 0; work < rate*(w.over-from).Seconds(); n++ {
		at := from
		if pattern == "steady" || pattern == "bursts" {
			at = time.Duration(work / rate * float64(time.Second))
		}
		for range burst {
			k := kinds[n%len(kinds)]
			w.arrive(at, k)
			work += k.work()
		}
	}
}

// mute is an engine that is not asked why gangs wait: of thousands that takes long.
type mute struct{ counter }

func (*mute) Explain(gang.ID) (gang.Code, string, int, bool) { return "", "", 0, true }

// play plays the town, has each record looked at, and returns how many events
// there were.
func (w *town) play(look func(Record) error) int {
	e := &mute{counter{Engine: schedule.New(w.scenario.Rules)}}
	if _, err := Run(w.scenario, e, Options{Until: w.over, Brief: true}, look); err != nil {
		w.Fatal(err)
	}
	return e.events
}
