package trace

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

// TierRule gives a tier to jobs for which the trace names none. Bounds that are
// zero hold for every job.
type TierRule struct {
	Tier             string
	MinGPUs, MaxGPUs int
	// MaxEstimate bounds what its user says of its run time.
	MaxEstimate time.Duration
	Tenant      string
}

// ParseTierRule reads TIER, or TIER:BOUND,BOUND.. with the bounds min-gpus=N,
// max-gpus=N, max-estimate=DURATION and tenant=NAME.
func ParseTierRule(text string) (TierRule, error) {
	name, bounds, bounded := strings.Cut(text, ":")
	r := TierRule{Tier: name}
	if !gang.IsLabel(name) {
		return r, fmt.Errorf("%q names no tier: write TIER, or TIER:max-gpus=1,max-estimate=10m", text)
	}
	if !bounded {
		return r, nil
	}
	for one := range strings.SplitSeq(bounds, ",") {
		if err := r.bound(one); err != nil {
			return r, err
		}
	}
	return r, nil
}

func (r *TierRule) bound(text string) error {
	what, value, _ := strings.Cut(text, "=")
	var err error
	ok := true
	switch what {
	case "min-gpus":
		r.MinGPUs, err = strconv.Atoi(value)
		ok = r.MinGPUs > 0
	case "max-gpus":
		r.MaxGPUs, err = strconv.Atoi(value)
		ok = r.MaxGPUs > 0
	case "max-estimate":
		r.MaxEstimate, err = time.ParseDuration(value)
		ok = r.MaxEstimate > 0
	case "tenant":
		r.Tenant = value
		ok = gang.IsLabel(value)
	default:
		ok = false
	}
	if err != nil || !ok {
		return fmt.Errorf("%q is no bound of a tier: write min-gpus=N, max-gpus=N, max-estimate=DURATION or tenant=NAME", text)
	}
	return nil
}

// takes reports whether the rule is for a job.
func (r TierRule) takes(j *Job) bool {
	return j.GPUs >= r.MinGPUs &&
		(r.MaxGPUs == 0 || j.GPUs <= r.MaxGPUs) &&
		(r.MaxEstimate == 0 || j.said() <= r.MaxEstimate) &&
		(r.Tenant == "" || j.Tenant == r.Tenant)
}

// said is what the job's user says of its run time. Where the trace has no word
// of that, users know it.
func (j *Job) said() time.Duration {
	if j.Estimate > 0 {
		return j.Estimate
	}
	return j.Duration
}
