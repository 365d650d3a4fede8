package report

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/sim"
)

// Report is how the gangs of a play fared under a policy.
type Report struct {
	Policy string `json:"policy"`
	// Utilization is the share of the capacity that gangs held, until the end of
	// the play.
	Utilization float64 `json:"utilization"`
	Preemptions int     `json:"preemptions"`
	// MakespanSeconds is when the last gang ended.
	MakespanSeconds float64 `json:"makespan_s"`
	All             Row     `json:"all"`
	ByTier          []Row   `json:"by_tier"`
	BySize          []Row   `json:"by_size"`
	Widest          Widest  `json:"widest"`
	// TookSeconds is what the play took on this machine.
	TookSeconds float64 `json:"took_s"`
}

// Row is how a class of gangs fared. Those that were rejected are counted and no
// more. Those that had not ended when the play did count as if they had then;
// those that failed count for their waits, since they did less than they should.
type Row struct {
	Class string `json:"class"`
	// Gangs are those that arrived and were not rejected.
	Gangs      int `json:"gangs"`
	Rejected   int `json:"rejected"`
	Unfinished int `json:"unfinished"`
	// Failed ones ended in another way than well, at their user's wish included.
	Failed int `json:"failed"`
	// Delay is the time from submission to the end, less the run time with the
	// cluster to itself and weights in place: all that other gangs and failures
	// cost it, whatever its starts looked like.
	Delay Spread `json:"delay_s"`
	// Wait is the time in the queue, before the first start and after every
	// attempt that did not come to an end.
	Wait Spread `json:"wait_s"`
	// WaitCounts are how many gangs waited for less than each of WaitBounds, and
	// not less than the one before, and last how many for longer than all.
	WaitCounts []int `json:"wait_counts"`
	// Slowdown is the bounded slowdown: the time from submission to the end,
	// divided by that run time or 10 s, whichever is longer; at least 1.
	Slowdown Spread `json:"bounded_slowdown"`
	// Of the GPU time, in GPU-seconds, Lost had to be run again, and Loading went
	// into weights and checkpoints.
	Lost    float64 `json:"lost_gpu_s"`
	Loading float64 `json:"loading_gpu_s"`
}

// WaitBounds divide waits by length; below the first, a gang started at once.
var WaitBounds = []time.Duration{
	time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour,
}

// Spread is a distribution, in seconds but for slowdowns.
type Spread struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// Widest is how the gangs with the most GPUs fared, of those not rejected.
type Widest struct {
	GPUs  int     `json:"gpus"`
	Gangs int     `json:"gangs"`
	Wait  float64 `json:"worst_wait_s"`
	Delay float64 `json:"worst_delay_s"`
}

// shortest bounds the slowdown: of a run time below it, a slowdown says nothing.
const shortest = 10 * time.Second

// New makes a report of what became of the gangs of a scenario.
func New(policy string, s *config.Scenario, lives []sim.Life, sum *sim.Summary, took time.Duration) Report {
	r := Report{
		Policy: policy, Utilization: float64(sum.Utilization), Preemptions: sum.Preemptions,
		MakespanSeconds: time.Duration(sum.Makespan).Seconds(), TookSeconds: took.Seconds(),
	}
	fates := fatesOf(s, lives)
	r.All = rowOf("all", fates)
	for _, t := range s.Rules.Tiers {
		r.ByTier = addRow(r.ByTier, t.Name, fates, func(f fate) bool { return f.Gang.Spec.Tier == t.Name })
	}
	for _, c := range sizes {
		r.BySize = addRow(r.BySize, c.String(), fates, func(f fate) bool { g := f.Gang.Spec.GPUs; return c.from <= g && g <= c.to })
	}
	r.Widest = widestOf(fates)
	return r
}

// fate is what became of a gang that arrived.
type fate struct {
	sim.Life
	delay, wait, slowdown float64
}

func fatesOf(s *config.Scenario, lives []sim.Life) []fate {
	fastest := speeds(s)
	out := make([]fate, 0, len(lives))
	for _, l := range lives {
		if !l.Arrived {
			continue
		}
		f := fate{Life: l}
		if !l.Rejected {
			alone, turnaround := fastest.alone(l.Gang), l.Ended-l.Gang.At
			f.delay = max(turnaround-alone, 0).Seconds()
			f.wait = l.Waited.Seconds()
			f.slowdown = max(turnaround.Seconds()/max(alone, shortest).Seconds(), 1)
		}
		out = append(out, f)
	}
	return out
}

func addRow(rows []Row, class string, fates []fate, in func(fate) bool) []Row {
	var some []fate
	for _, f := range fates {
		if in(f) {
			some = append(some, f)
		}
	}
	if len(some) == 0 {
		return rows
	}
	return append(rows, rowOf(class, some))
}

func rowOf(class string, fates []fate) Row {
	r := Row{Class: class, WaitCounts: make([]int, len(WaitBounds)+1)}
	var delays, waits, slowdowns []float64
	for _, f := range fates {
		if f.Rejected {
			r.Rejected++
			continue
		}
		r.Gangs++
		waits = append(waits, f.wait)
		r.WaitCounts[waitClass(f.Waited)]++
		switch f.Outcome {
		case sim.Failed, sim.Cancelled:
			r.Failed++
		default:
			delays, slowdowns = append(delays, f.delay), append(slowdowns, f.slowdown)
		}
		if f.Outcome == "" {
			r.Unfinished++
		}
		r.Lost += f.Lost
		r.Loading += f.Loading
	}
	r.Delay, r.Wait, r.Slowdown = spreadOf(delays), spreadOf(waits), spreadOf(slowdowns)
	return r
}

func waitClass(waited time.Duration) int {
	at := slices.IndexFunc(WaitBounds, func(bound time.Duration) bool { return waited < bound })
	if at < 0 {
		return len(WaitBounds)
	}
	return at
}

func spreadOf(of []float64) Spread {
	if len(of) == 0 {
		return Spread{}
	}
	slices.Sort(of)
	sum := 0.0
	for _, v := range of {
		sum += v
	}
	at := func(share float64) float64 { return of[max(int(math.Ceil(share*float64(len(of)))), 1)-1] }
	return Spread{Mean: sum / float64(len(of)), P50: at(0.5), P99: at(0.99), Max: of[len(of)-1]}
}

func widestOf(fates []fate) Widest {
	var w Widest
	for _, f := range fates {
		gpus := f.Gang.Spec.GPUs
		if f.Rejected || gpus < w.GPUs {
			continue
		}
		if gpus > w.GPUs {
			w = Widest{GPUs: gpus}
		}
		w.Gangs++
		w.Wait, w.Delay = max(w.Wait, f.wait), max(w.Delay, f.delay)
	}
	return w
}

// sizes are classes of gangs by GPUs.
var sizes = []sizeClass{{1, 1}, {2, 7}, {8, 8}, {9, 16}, {17, 64}, {65, math.MaxInt}}

type sizeClass struct{ from, to int }

func (c sizeClass) String() string {
	switch {
	case c.from == 1 && c.to == 1:
		return "1 GPU"
	case c.from == c.to:
		return fmt.Sprintf("%d GPUs", c.from)
	case c.to == math.MaxInt:
		return fmt.Sprintf("%d GPUs and more", c.from)
	}
	return fmt.Sprintf("%d-%d GPUs", c.from, c.to)
}
