// Package schedule is the decision engine: who runs when, on which whole set of
// GPUs, and whom that stops. It is a deterministic state machine: Apply takes
// one event and the time, and returns the decisions of a fixed point, at which
// nothing that waits may start. The daemon, the simulator and the benchmarks run
// the same code, and a recording can be decided again (snapshot.go, restore.go).
//
// The way of a decision is settle, in engine.go: plans that were made are
// carried out, nodes that are to be left are left, and then each gang that waits
// has its turn (order.go, share.go). It starts where it fits (find.go, place.go,
// pack.go), unless that would move the start of one before it, or run into a
// maintenance window (window.go); else others may be stopped for it (preempt.go,
// victims.go, plan.go); else it may hold a future start (reserve.go, calendar.go),
// and once those that went ahead have put that off for long, its GPUs are held
// (late.go). What nobody can use goes to elastic gangs (elastic.go). Each gang that
// waits has a code and a sentence (code.go, explain.go). Searches are bounded; what
// a bound cuts off is counted.
//
// Policy takes rules away, to compare with and without them. The daemon has them
// all, but that it takes nothing over from an attempt to the next.
package schedule
