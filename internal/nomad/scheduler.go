package nomad

import (
	"context"
	"fmt"
)

// CheckScheduler returns what in Nomad's scheduler configuration works against
// gangs, each as a sentence that says what to change. Lanes do not preempt each
// other, but jobs of higher priority may preempt them; lanes are batch jobs, and
// may themselves preempt what is of lower priority.
func (c *Client) CheckScheduler(ctx context.Context) (warnings []string, err error) {
	opts, cancel := query(ctx, requestTimeout)
	defer cancel()
	response, _, err := c.api.Operator().SchedulerGetConfiguration(opts)
	if err != nil {
		return nil, fmt.Errorf("read Nomad's scheduler configuration: %w", err)
	}
	config := response.SchedulerConfig
	if config == nil {
		return []string{"Nomad has no scheduler configuration yet: no leader was elected"}, nil
	}
	for _, p := range []struct {
		enabled          bool
		kind, flag, also string
	}{
		{config.PreemptionConfig.BatchSchedulerEnabled, "batch", "-preempt-batch-scheduler",
			fmt.Sprintf(", and lanes may stop other jobs of priority %d or less", lanePriority-preemptionStep)},
		{config.PreemptionConfig.SystemSchedulerEnabled, "system", "-preempt-system-scheduler", ""},
		{config.PreemptionConfig.SysBatchSchedulerEnabled, "sysbatch", "-preempt-sysbatch-scheduler", ""},
		{config.PreemptionConfig.ServiceSchedulerEnabled, "service", "-preempt-service-scheduler", ""},
	} {
		if p.enabled {
			warnings = append(warnings, fmt.Sprintf(
				"Nomad lets %s jobs preempt: those of priority %d or more may stop single members of gangs%s: run `nomad operator scheduler set-config %s=false`",
				p.kind, lanePriority+preemptionStep, p.also, p.flag))
		}
	}
	if config.RejectJobRegistration {
		warnings = append(warnings, "Nomad rejects new jobs: no lane can open: run `nomad operator scheduler set-config -reject-job-registration=false`")
	}
	if config.PauseEvalBroker {
		warnings = append(warnings, "Nomad's evaluation broker is paused: no lane can open: run `nomad operator scheduler set-config -pause-eval-broker=false`")
	}
	return warnings, nil
}
