package nomad

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// evaluationWire is what lists and events have in common.
type evaluationWire struct {
	JobID, TriggeredBy        string
	Status, StatusDescription string
	FailedTGAllocs            map[string]*metricWire
}

// metricWire is Nomad's account of why a group found no place.
type metricWire struct {
	NodesEvaluated, NodesInPool int
	ConstraintFiltered          map[string]int
	ClassFiltered               map[string]int
	DimensionExhausted          map[string]int
	QuotaExhausted              []string
}

const (
	evaluationBlocked  = "blocked"
	evaluationFailed   = "failed"
	evaluationComplete = "complete"
	// byDeregister is what triggers the evaluation of a job that was stopped.
	byDeregister = "job-deregister"
)

// unplaced tells that the evaluation left the lane without a place. One that
// is cancelled keeps its account of an earlier failure, and does not count.
func (e *evaluationWire) unplaced() bool {
	switch e.Status {
	case evaluationFailed, evaluationBlocked:
		return true
	case evaluationComplete:
		return len(e.FailedTGAllocs) > 0
	}
	return false
}

// reason is a sentence with Nomad's numbers.
func (e *evaluationWire) reason() string {
	if len(e.FailedTGAllocs) == 0 {
		return strings.TrimSuffix("Nomad cannot place it: "+orElse(e.StatusDescription, e.Status), ".")
	}
	// A lane has one group.
	group := slices.Min(slices.Collect(maps.Keys(e.FailedTGAllocs)))
	return "Nomad cannot place it: " + e.FailedTGAllocs[group].sentence()
}

func (m *metricWire) sentence() string {
	if m.NodesEvaluated == 0 {
		if m.NodesInPool == 0 {
			return "no node is in the template's node pool and datacenters"
		}
		return fmt.Sprintf("none of the %d nodes in the pool is ready and eligible", m.NodesInPool)
	}
	parts := []string{fmt.Sprintf("%d nodes evaluated", m.NodesEvaluated)}
	parts = append(parts, counts("filtered by constraint %q", m.ConstraintFiltered)...)
	parts = append(parts, counts("filtered by class %q", m.ClassFiltered)...)
	parts = append(parts, counts("exhausted (%s)", m.DimensionExhausted)...)
	for _, quota := range m.QuotaExhausted {
		parts = append(parts, fmt.Sprintf("quota %s exhausted", quota))
	}
	return strings.Join(parts, ", ")
}

func counts(format string, by map[string]int) []string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, fmt.Sprintf("%d "+format, by[what], what))
	}
	return parts
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
