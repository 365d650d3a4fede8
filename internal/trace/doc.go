// Package trace makes scenarios of recorded workloads: it reads jobs from CSV,
// gives them tiers and shapes, draws failures from a seed, and stands for what is
// known of run times while a trace is played.
package trace
