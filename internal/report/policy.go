package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gangd/gangd/internal/schedule"
)

// Policy is a way to decide, with a name.
type Policy struct {
	Name string
	// Text says in a few words what it is.
	Text  string
	Rules schedule.Policy
}

// Ours is the name of the policy with all the rules.
const Ours = "gangd"

// Policies are those to compare, in the order in which they are shown. All have
// the same tiers, caps, estimates, placement within what their rules say, and
// the same failures.
func Policies() []Policy {
	return []Policy{
		{"fcfs", "by tier and arrival; what is blocked blocks all behind it", schedule.Policy{Arrival: true, NoBackfill: true, NoPreemption: true}},
		{"easy", "EASY backfill: by tier and arrival; the first blocked gang of a tier holds a start", schedule.Policy{Arrival: true, Head: true, NoPreemption: true}},
		{Ours, "all rules", schedule.Policy{}},
		{"no-topology", "all but topology: on the first nodes that fit", schedule.Policy{NoTopology: true}},
		{"no-checkpoints", "all but checkpoints: victims are chosen and stopped as if nothing could be saved", schedule.Policy{NoCheckpoints: true}},
		{"no-shares", "all but shares: by tier and arrival", schedule.Policy{Arrival: true}},
		{"no-reservations", "all but reservations: no future start is held", schedule.Policy{NoReservations: true}},
		{"no-preemption", "all but preemption: nobody is stopped for another", schedule.Policy{NoPreemption: true}},
	}
}

// PolicyNames lists the names.
func PolicyNames() []string {
	var names []string
	for _, p := range Policies() {
		names = append(names, p.Name)
	}
	return names
}

// PolicyNamed finds a policy.
func PolicyNamed(name string) (Policy, error) {
	all := Policies()
	if at := slices.IndexFunc(all, func(p Policy) bool { return p.Name == name }); at >= 0 {
		return all[at], nil
	}
	return Policy{}, fmt.Errorf("there is no policy %q: there are %s", name, strings.Join(PolicyNames(), ", "))
}
