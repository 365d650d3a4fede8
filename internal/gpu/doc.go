// Package gpu is a node's GPUs as NVML shows them: what they are, who uses
// them, and whether they may be used.
//
// A [Library] is an open NVML, the driver's own or a simulated one. It lists
// the GPUs, reads the processes and memory on each, probes their condition and
// delivers their events. A [Monitor] follows events and probes, and tells its
// owner of each change; what an event means is decided by [Health], which does
// no I/O.
//
// The simulated NVML ("mock:dgxh100") reads faults from a file, so that tests
// can break and mend GPUs from outside. Blank lines and lines that start with
// '#' are skipped; every other line is one of
//
//	xid CODE gpu INDEX                       the GPU reports an XID error
//	xid CODE gpu INDEX action ACTION         the same, and what the driver then asks for
//	action ACTION gpu INDEX                  what the driver asks for, without an event
//	recover gpu INDEX                        the GPU is sound again, and says so with an XID 154
//	recover all                              the same for every GPU
//	process gpu INDEX pid PID memory NMiB    a process holds memory of the GPU
//	exit gpu INDEX pid PID                   the process and its memory are gone
//	hold gpu INDEX memory NMiB               memory is held that belongs to no process
//
// where ACTION is none, reset, reboot, drain_p2p, drain_and_reset,
// recover_imex, bus_reset or system_reboot. An XID that calls for a reset or a
// reboot leaves the GPU asking for it, or unreachable, until it is recovered.
// Lines are meant to be appended; each one ends with a newline and is seen
// within 50 ms by a waiter, and by every query at once. A file that shrinks, is
// replaced or disappears is read anew, as if nothing had happened before. What
// the file holds when the library is opened is the state to start from: its
// events are over, as they are for a real driver.
package gpu
