// Package cluster models the nodes, their GPUs and the topology above them,
// and keeps the indexes of what is free that placement reads: a bitmap of GPUs
// a node, and in every domain, for each GPU model, how many nodes have how
// many GPUs free.
//
// Within a trial, what is taken and released goes through an undo journal, so
// that the trial costs what it touches: Mark, change, then Rollback or Commit.
// The package is pure, and its results do not depend on the order of maps.
package cluster
