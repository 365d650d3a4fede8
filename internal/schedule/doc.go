// Package schedule is the decision engine: who runs when, on which whole set of
// GPUs, and whom that stops. It is a deterministic state machine: Apply takes
// one event and the time, and returns the decisions of a fixed point, at which
// nothing that waits may start. The daemon, the simulator and the benchmarks run
// the same code.
//
// The way of a decision is settle, in engine.go: plans that were made are
// carried out, nodes that are to be left are left, and then each gang that waits
// has its turn (order.go, share.go). It starts where it fits (find.go, place.go,
// pack.go), unless that would move the start of one before it (late.go: what
// becomes of those who are put off by estimates that are too short); else others may be stopped for it (preempt.go,
// plan.go); else it may hold a future start (reserve.go, calendar.go). What nobody
// can use goes to elastic gangs (elastic.go). Each gang that waits has a code and
// a sentence (code.go, explain.go). Searches are bounded; what a bound cuts off is
// counted.
//
// Policy takes rules away: the daemon runs with tiers and arrival alone, and
// nothing goes ahead of a gang that does not fit.
package schedule
