package sim

import (
	"math"
	"slices"
	"time"

	"github.com/gangd/gangd/internal/schedule"
)

// Summary is what a play came to.
type Summary struct {
	GPUSeconds  GPUSeconds `json:"gpu_seconds"`
	Utilization Amount     `json:"utilization"` // held, of the capacity
	// Preemptions counts the attempts that were stopped for another gang.
	Preemptions int                      `json:"preemptions"`
	PerTenant   map[string]TenantSummary `json:"per_tenant"`
	PerTier     map[string]TierSummary   `json:"per_tier"`
	// Makespan is the moment at which the last gang ended, or the play, where
	// some had not ended by then.
	Makespan Seconds `json:"makespan"`
}

// GPUSeconds are GPUs times the time that they were in some state. What gangs
// held is the sum of useful, lost, wasted, loading and saving.
type GPUSeconds struct {
	// Capacity is what was in working order and not drained, or held.
	Capacity Amount `json:"capacity"`
	// Useful is run time that counted; lost had to be done again; wasted was
	// that of gangs that failed or were cancelled.
	Useful Amount `json:"useful"`
	Lost   Amount `json:"lost"`
	Wasted Amount `json:"wasted"`
	// Loading is of weights and checkpoints; while saving, runs stand still.
	Loading Amount `json:"loading"`
	Saving  Amount `json:"saving"`
	// IdleWhilePending is what was usable and not held while any gang waited.
	IdleWhilePending Amount `json:"idle_while_pending"`
}

// waits are from submission to the first start, of the gangs that had one; nil
// where none had.
type waits struct {
	mean, p50, p99 *Seconds
}

// TenantSummary is what a tenant held, and how long its gangs waited.
type TenantSummary struct {
	GPUSeconds Amount   `json:"gpu_seconds"`
	MeanWait   *Seconds `json:"mean_wait"`
	P99Wait    *Seconds `json:"p99_wait"`
}

// TierSummary is how long the gangs of a tier waited.
type TierSummary struct {
	// Gangs are those that were not rejected, and started those of them that had
	// a start.
	Gangs    int      `json:"gangs"`
	Started  int      `json:"started"`
	MeanWait *Seconds `json:"mean_wait"`
	P50Wait  *Seconds `json:"p50_wait"`
	P99Wait  *Seconds `json:"p99_wait"`
	// TargetMet is the share of the gangs with a first start within the tier's
	// target_wait; nil where there is no target or no gang.
	TargetMet *Amount `json:"target_met"`
}

// account adds up what GPUs were used for, in GPU-seconds.
type account struct {
	// capacity and idle are the GPUs of this moment.
	capacity, idle int

	offered, idled                        float64
	useful, lost, wasted, loading, saving float64
	preemptions                           int
	arrivals                              uint64
}

// pass lets time go by.
func (c *account) pass(d time.Duration, pending bool) {
	c.offered += float64(c.capacity) * d.Seconds()
	if pending {
		c.idled += float64(c.idle) * d.Seconds()
	}
}

// charge takes in an attempt that is over, or that the play ends upon. Of its
// run time kept counts.
func (c *account) charge(a *attempt, now, kept time.Duration) {
	gpus := float64(a.gpus)
	held := now - a.began
	c.useful += gpus * kept.Seconds()
	c.lost += gpus * (a.ran - kept).Seconds()
	c.saving += gpus * a.stood.Seconds()
	c.loading += gpus * (held - a.ran - a.stood).Seconds()
	a.job.lost += gpus * (a.ran - kept).Seconds()
	a.job.loading += gpus * (held - a.ran - a.stood).Seconds()
	a.job.kept += gpus * kept.Seconds()
	a.job.held += gpus * held.Seconds()
}

// summary closes the account.
func (w *world) summary() *Summary {
	makespan := time.Duration(0)
	for _, j := range w.order {
		if j.attempt != nil {
			j.attempt.settle(w.now)
			w.account.charge(j.attempt, w.now, j.attempt.ran)
		}
		makespan = max(makespan, j.ended)
	}
	if w.living > 0 {
		makespan = w.now
	}
	c := &w.account
	s := &Summary{
		GPUSeconds: GPUSeconds{
			Capacity: Amount(c.offered), Useful: Amount(c.useful), Lost: Amount(c.lost), Wasted: Amount(c.wasted),
			Loading: Amount(c.loading), Saving: Amount(c.saving), IdleWhilePending: Amount(c.idled),
		},
		Preemptions: c.preemptions,
		PerTenant:   make(map[string]TenantSummary), PerTier: make(map[string]TierSummary),
		Makespan: Seconds(makespan),
	}
	if c.offered > 0 {
		s.Utilization = Amount((c.useful + c.lost + c.wasted + c.loading + c.saving) / c.offered)
	}
	tenants, tiers := make(map[string][]*job), make(map[string][]*job)
	for _, j := range w.order {
		if j.stage != coming {
			tenants[j.Spec.Tenant] = append(tenants[j.Spec.Tenant], j)
			tiers[j.Spec.Tier] = append(tiers[j.Spec.Tier], j)
		}
	}
	for name, jobs := range tenants {
		s.PerTenant[name] = ofTenant(jobs)
	}
	for _, t := range w.scenario.Rules.Tiers {
		if jobs, some := tiers[t.Name]; some {
			s.PerTier[t.Name] = ofTier(t, jobs)
		}
	}
	return s
}

func ofTenant(jobs []*job) TenantSummary {
	var t TenantSummary
	for _, j := range jobs {
		t.GPUSeconds += Amount(j.held)
	}
	w := waitsOf(jobs)
	t.MeanWait, t.P99Wait = w.mean, w.p99
	return t
}

func ofTier(tier schedule.Tier, jobs []*job) TierSummary {
	var t TierSummary
	met := 0
	for _, j := range jobs {
		if j.rejected {
			continue
		}
		t.Gangs++
		if j.attempts > 0 {
			t.Started++
			if j.began-j.At <= tier.TargetWait {
				met++
			}
		}
	}
	if tier.TargetWait > 0 && t.Gangs > 0 {
		share := Amount(float64(met) / float64(t.Gangs))
		t.TargetMet = &share
	}
	w := waitsOf(jobs)
	t.MeanWait, t.P50Wait, t.P99Wait = w.mean, w.p50, w.p99
	return t
}

func waitsOf(jobs []*job) waits {
	var all []time.Duration
	sum := 0.0
	for _, j := range jobs {
		if j.attempts > 0 {
			all = append(all, j.began-j.At)
			sum += (j.began - j.At).Seconds()
		}
	}
	if len(all) == 0 {
		return waits{}
	}
	slices.Sort(all)
	mean := Seconds(sum / float64(len(all)) * float64(time.Second))
	return waits{&mean, percentile(all, 50), percentile(all, 99)}
}

// percentile is the smallest value that so many of a hundred do not exceed.
func percentile(sorted []time.Duration, p int) *Seconds {
	rank := int(math.Ceil(float64(p) / 100 * float64(len(sorted))))
	v := Seconds(sorted[max(rank, 1)-1])
	return &v
}
