// Package nomad opens and closes lanes in Nomad, and watches what becomes of
// them and of the nodes.
//
// A lane is one dispatched child of a pinned parent: a parameterized job that
// is derived from the operator's template, pinned to one node and to exact
// GPUs, and purged when the lane closes. Everything here may be called twice:
// what exists is found, what is gone stays gone.
package nomad
