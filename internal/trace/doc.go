// Package trace makes scenarios of recorded workloads, and says how policies do
// on them: it reads jobs from CSV, gives them tiers and estimates, draws failures
// from a seed, and compares what became of the gangs.
package trace
