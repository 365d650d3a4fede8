// Package coordinator is the one loop that decides: it observes, asks the
// engine, writes what it intends to Consul, and then acts.
//
// Core is the loop's inside, a deterministic state machine: Step takes one
// input and the time, and returns what is to be written and, after that, done.
// Loop is its outside: leadership, the writer, and the workers that call
// Nomad. The package owns the small interfaces that it needs of its adapters.
package coordinator

import "time"

// Times and limits of the life of a gang.
const (
	// keeperAway is how long the stream of a keeper whose host is alive may be
	// away before the keeper counts as dead: a restart of gangd, or a change of
	// leaders, is over by then.
	keeperAway = 3 * time.Second
	// keeperReturn is the same after gangd itself came up.
	keeperReturn = 10 * time.Second
	// blockedAfter is how long Nomad may fail to place a lane before its node
	// is held unfit: the allocation that was there before may still be ending.
	blockedAfter = 5 * time.Second
	// nomadFrees bounds the wait, after a lane has closed, for Nomad to count its
	// GPUs as free.
	nomadFrees = 10 * time.Second
	// leaseMargin is added to the lease before a silent lane's GPUs count as
	// free.
	leaseMargin = 3 * time.Second
	// closeWithin is how long a gang waits for a lane to close whose keeper is
	// heard: a process that hangs in a system call can outlive any kill. After
	// that the gang goes on, and the GPUs stay held.
	closeWithin = time.Minute
	// noRoomFor is how long a node is left alone on which Nomad found no room
	// for a lane.
	noRoomFor = time.Minute
	// publishPause doubles from publishFirst to publishMost while a manifest
	// cannot be written; publishWithin ends that.
	publishFirst  = time.Second
	publishMost   = time.Minute
	publishWithin = time.Hour
	// lateNews is how long Nomad may go on telling of a lane that is forgotten.
	lateNews = time.Minute
	// warmUp bounds the wait for nodes to report after gangd took over.
	warmUp = 3 * time.Second
	// purgeAgain is the pause between failed calls to purge a lane's jobs.
	purgeAgain = 10 * time.Second
	maxWhy     = 500
)
