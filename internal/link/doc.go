// Package link carries what nodes and gangd say to each other: three kinds of
// gRPC streams (driver plugin, device plugin, keeper), as linkpb describes
// them. It knows addresses, liveness and leases; what the messages mean is its
// callers' business.
package link

import (
	"time"

	"google.golang.org/grpc/codes"
)

// Protocol is the version that a hello carries. A later one adds; it takes
// nothing away.
const Protocol = 1

// Times of the link. A node is silent when nothing of it was heard for
// SilentAfter, which leaves room for three lost beats. A keeper's lease
// outlives a change of leaders and a restart of gangd by far, and bounds how
// long a node that was cut off goes on for nothing.
const (
	BeatInterval  = 250 * time.Millisecond
	SilentAfter   = 900 * time.Millisecond
	Lease         = 15 * time.Second
	renewInterval = time.Second
	// deadAfter is how long a client waits for a sign of life of the agent
	// before it looks for another: an agent says something each renewInterval.
	deadAfter = 3 * time.Second
)

// helloAgain ends the streams of an agent that begins to lead: its clients come
// back without delay.
const helloAgain = codes.Aborted

// Limits.
const (
	maxMessageBytes = 1 << 20
	// maxQueuedOrders bounds what waits for one keeper. One that lets so much
	// pile up is disconnected: it will come back and say where it stands.
	maxQueuedOrders = 64
	backoffMin      = 50 * time.Millisecond
	backoffMax      = 2 * time.Second
)
