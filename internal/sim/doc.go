// Package sim plays a scenario against the decision engine in virtual time: it
// shows what the engine decides before anything real depends on it.
//
// The world of a simulation knows what an engine must not know: how long a run
// truly takes, which nodes are slow, who will fail and when. The engine is told
// what a cluster would tell it, and no more. Nothing here reads a clock or
// draws a number, so that the same scenario gives the same records, byte for
// byte.
//
// Two kinds of run time are told apart. What a gang has done is in run time at
// its preferred size and at speed 1; so are its duration, the time of an exit,
// and what must be done again. What the clock shows while it runs, on whatever
// it runs, counts for checkpoints every so often and for max_run. Neither
// includes loading, restoring, or standing still for a checkpoint.
package sim
