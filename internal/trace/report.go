package trace

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/schedule"
	"github.com/gangd/gangd/internal/sim"
)

// Report is how the gangs of a play fared, all of them and by tier and size.
type Report struct {
	Policy string `json:"policy"`
	// WallSeconds is what the play took.
	WallSeconds float64 `json:"wall_s"`
	Utilization float64 `json:"utilization"`
	Preemptions int     `json:"preemptions"`
	All         Row     `json:"all"`
	ByTier      []Row   `json:"by_tier"`
	BySize      []Row   `json:"by_size"`
	// WidestWait is the longest wait of the gangs with the most GPUs, in seconds,
	// from submission to the last start: a start that is taken back is none.
	WidestWait float64 `json:"widest_wait_s"`
	Widest     int     `json:"widest_gpus"`
}

// Row is how a class of gangs fared. Times are in seconds.
type Row struct {
	Name  string `json:"name"`
	Gangs int    `json:"gangs"`
	// Unfinished are those that had not ended when the play did, or were rejected
	// or failed. They count with what they had waited by then.
	Unfinished int `json:"unfinished"`
	// Delay is the time from submission to the end, less the run time on an idle
	// cluster: waits, and all that was run or loaded again.
	Delay Spread `json:"delay_s"`
	// Wait is the time from submission to the first start.
	Wait Spread `json:"wait_s"`
	// Slowdown is the time from submission to the end, divided by the run time or
	// 10 s, whichever is longer, and at least 1: the mean.
	Slowdown float64 `json:"bounded_slowdown"`
	// Lost had to be run again, loading is of weights and checkpoints, in
	// GPU-seconds.
	Lost    float64 `json:"lost_gpu_s"`
	Loading float64 `json:"loading_gpu_s"`
}

// Spread is a distribution.
type Spread struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// shortest is the run time below which the slowdown of a gang says nothing.
const shortest = 10 * time.Second

// NewReport makes a report of what became of gangs.
func NewReport(policy string, lives []sim.Life, sum *sim.Summary, rules schedule.Config, took time.Duration) Report {
	r := Report{Policy: policy, WallSeconds: took.Seconds(), Utilization: float64(sum.Utilization), Preemptions: sum.Preemptions}
	r.All = rowOf("all", lives)
	for _, t := range rules.Tiers {
		if of := those(lives, func(l sim.Life) bool { return l.Gang.Spec.Tier == t.Name }); len(of) > 0 {
			r.ByTier = append(r.ByTier, rowOf(t.Name, of))
		}
	}
	for _, c := range sizeClasses {
		if of := those(lives, func(l sim.Life) bool { g := l.Gang.Spec.GPUs; return g >= c.from && g <= c.to }); len(of) > 0 {
			r.BySize = append(r.BySize, rowOf(c.name(), of))
		}
	}
	for _, l := range lives {
		r.Widest = max(r.Widest, l.Gang.Spec.GPUs)
	}
	for _, l := range lives {
		if l.Gang.Spec.GPUs == r.Widest {
			r.WidestWait = max(r.WidestWait, delay(l).Seconds())
		}
	}
	return r
}

// sizeClasses are classes of numbers of GPUs.
var sizeClasses = []sizeClass{{1, 1}, {2, 7}, {8, 8}, {9, 16}, {17, 64}, {65, math.MaxInt}}

type sizeClass struct{ from, to int }

func (c sizeClass) name() string {
	switch {
	case c.from == 1 && c.to == 1:
		return "1 GPU"
	case c.from == c.to:
		return fmt.Sprint(c.from, " GPUs")
	case c.to == math.MaxInt:
		return fmt.Sprint(c.from, " GPUs or more")
	}
	return fmt.Sprintf("%d-%d GPUs", c.from, c.to)
}

func those(lives []sim.Life, want func(sim.Life) bool) []sim.Life {
	var out []sim.Life
	for _, l := range lives {
		if want(l) {
			out = append(out, l)
		}
	}
	return out
}

func rowOf(name string, lives []sim.Life) Row {
	r := Row{Name: name, Gangs: len(lives)}
	var delays, waits []float64
	for _, l := range lives {
		if l.Outcome != sim.Succeeded {
			r.Unfinished++
		}
		delays = append(delays, delay(l).Seconds())
		began := l.Began
		if l.Attempts == 0 {
			began = l.Ended
		}
		waits = append(waits, (began - l.Gang.At).Seconds())
		r.Slowdown += max(1, (l.Ended-l.Gang.At).Seconds()/max(ideal(l.Gang), shortest).Seconds())
		r.Lost += l.Lost
		r.Loading += l.Loading
	}
	r.Slowdown /= float64(max(len(lives), 1))
	r.Delay, r.Wait = spreadOf(delays), spreadOf(waits)
	return r
}

// ideal is the run time of a gang with nobody else there.
func ideal(g *config.ScenarioGang) time.Duration { return g.Duration }

func delay(l sim.Life) time.Duration { return max(0, l.Ended-l.Gang.At-ideal(l.Gang)) }

func spreadOf(of []float64) Spread {
	if len(of) == 0 {
		return Spread{}
	}
	slices.Sort(of)
	sum := 0.0
	for _, v := range of {
		sum += v
	}
	at := func(p float64) float64 { return of[max(int(math.Ceil(p*float64(len(of)))), 1)-1] }
	return Spread{Mean: sum / float64(len(of)), P50: at(0.5), P99: at(0.99), Max: of[len(of)-1]}
}

// Policies are those that are compared, by name, in the order in which they are
// shown.
func Policies() []Policy {
	return []Policy{
		{"fcfs", "first come, first served", schedule.Policy{Arrival: true, NoBackfill: true, NoPreemption: true}},
		{"easy", "EASY backfill: the first blocked gang alone holds a start", schedule.Policy{Arrival: true, Head: true, NoPreemption: true}},
		{"gangd", "all rules", schedule.Policy{}},
		{"no-topology", "gangd, placing on the first nodes that fit", schedule.Policy{NoTopology: true}},
		{"no-checkpoints", "gangd, stopping gangs as if none could save its state", schedule.Policy{NoCheckpoints: true}},
		{"no-shares", "gangd, ordering by tier and arrival alone", schedule.Policy{Arrival: true}},
		{"no-reservations", "gangd, with no future starts held", schedule.Policy{NoReservations: true}},
		{"no-preemption", "gangd, stopping nobody", schedule.Policy{NoPreemption: true}},
	}
}

// Policy is a way to decide.
type Policy struct {
	Name, Text string
	Rules      schedule.Policy
}

// PolicyNamed finds one by its name.
func PolicyNamed(name string) (Policy, error) {
	all := Policies()
	if at := slices.IndexFunc(all, func(p Policy) bool { return p.Name == name }); at >= 0 {
		return all[at], nil
	}
	var names []string
	for _, p := range all {
		names = append(names, p.Name)
	}
	slices.SortFunc(names, cmp.Compare)
	return Policy{}, fmt.Errorf("there is no policy %q: there are %q", name, names)
}
