// Package schedule is the decision engine: who runs when, and on which whole
// set of GPUs. It is a deterministic state machine: Apply takes one event and
// the time, and returns the decisions of a fixed point, at which nothing that
// waits may start. The daemon, the simulator and the benchmarks run the same
// code.
//
// The order is strict: tiers by priority, first come first served within one.
// A gang that is blocked holds back what is behind it, so that a wide gang
// cannot starve; one that present hardware could not run even if nothing else
// ran blocks nobody.
package schedule
