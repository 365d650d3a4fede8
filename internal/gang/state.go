package gang

import (
	"errors"
	"fmt"
	"slices"
)

// State is where a gang stands in its life.
type State string

const (
	// Queued: accepted and durable, waits for a decision. Exits: Reserved,
	// Launching, Stopping, and, as no process lives, Failed and Cancelled.
	Queued State = "queued"
	// Reserved: holds a claim on a future start. Exits: Queued, Launching,
	// Stopping, Failed, Cancelled.
	Reserved State = "reserved"
	// Launching: placed; its lanes are opening or its members are not all
	// ready. Exits: Running, Preempting, Recovering, Stopping.
	Launching State = "launching"
	// Running: every member was told to run. Exits: Finishing, Preempting,
	// Recovering, Stopping.
	Running State = "running"
	// Finishing: the result is durable, its members are ending. Exits:
	// Succeeded, Stopping.
	Finishing State = "finishing"
	// Preempting: its members are stopping for another gang, or at an
	// operator's wish. Exits: Queued, Stopping.
	Preempting State = "preempting"
	// Recovering: a member was lost; the others are stopping. Exits: Queued,
	// Stopping, Failed.
	Recovering State = "recovering"
	// Stopping: the order to end for good is given, processes live. Exits:
	// Cancelled, Failed.
	Stopping State = "stopping"
	// Succeeded, Failed and Cancelled are terminal: nothing follows.
	Succeeded State = "succeeded"
	Failed    State = "failed"
	Cancelled State = "cancelled"
)

// LaneState is where a lane stands in its life.
type LaneState string

const (
	// LaneOpening: written down, being dispatched through Nomad, not yet ready.
	// Exits: LaneIdle, LaneClosing, LaneLost, LaneClosed.
	LaneOpening LaneState = "opening"
	// LaneIdle: its runner is up and no gang is in it. Exits: LaneBusy,
	// LaneClosing, LaneLost, LaneClosed.
	LaneIdle LaneState = "idle"
	// LaneBusy: it runs a member. Exits: LaneIdle, LaneClosing, LaneLost,
	// LaneClosed.
	LaneBusy LaneState = "busy"
	// LaneClosing: its keeper was told to end. Exits: LaneClosed, LaneLost.
	LaneClosing LaneState = "closing"
	// LaneLost: its node is silent or its keeper died; its GPUs are held until
	// they are known to be free. Exits: LaneClosed.
	LaneLost LaneState = "lost"
	// LaneClosed is terminal: its processes are gone, and its GPUs free.
	LaneClosed LaneState = "closed"
)

// ErrIllegalTransition is wrapped by every error of Next.
var ErrIllegalTransition = errors.New("illegal transition")

// transitions is the only place where the life of a gang is laid down. The
// chart in ARCHITECTURE.md is made from it.
var transitions = Table[State]{
	{Queued, []State{Reserved, Launching, Stopping, Failed, Cancelled}},
	{Reserved, []State{Queued, Launching, Stopping, Failed, Cancelled}},
	{Launching, []State{Running, Preempting, Recovering, Stopping}},
	{Running, []State{Finishing, Preempting, Recovering, Stopping}},
	{Finishing, []State{Succeeded, Stopping}},
	{Preempting, []State{Queued, Stopping}},
	{Recovering, []State{Queued, Stopping, Failed}},
	{Stopping, []State{Cancelled, Failed}},
	{Succeeded, nil},
	{Failed, nil},
	{Cancelled, nil},
}

var laneTransitions = Table[LaneState]{
	{LaneOpening, []LaneState{LaneIdle, LaneClosing, LaneLost, LaneClosed}},
	{LaneIdle, []LaneState{LaneBusy, LaneClosing, LaneLost, LaneClosed}},
	{LaneBusy, []LaneState{LaneIdle, LaneClosing, LaneLost, LaneClosed}},
	{LaneClosing, []LaneState{LaneClosed, LaneLost}},
	{LaneLost, []LaneState{LaneClosed}},
	{LaneClosed, nil},
}

// Row is a state with the states that may follow it.
type Row[S ~string] struct {
	From S
	To   []S
}

// Table is a complete set of rows in the order of a life.
type Table[S ~string] []Row[S]

// Next returns to if it may follow from, else an error that wraps
// ErrIllegalTransition and names both.
func (t Table[S]) Next(from, to S) (S, error) {
	for _, row := range t {
		if row.From == from {
			if slices.Contains(row.To, to) {
				return to, nil
			}
			return from, fmt.Errorf("%w: %s to %s", ErrIllegalTransition, from, to)
		}
	}
	return from, fmt.Errorf("%w: %q is no known state", ErrIllegalTransition, string(from))
}

func (t Table[S]) has(state S) bool {
	return slices.ContainsFunc(t, func(row Row[S]) bool { return row.From == state })
}

// Transitions returns the table of a gang's life, for charts and tests.
func Transitions() Table[State] { return transitions }

// LaneTransitions returns the table of a lane's life, for charts and tests.
func LaneTransitions() Table[LaneState] { return laneTransitions }

// Next returns to if a gang may go there from s.
func (s State) Next(to State) (State, error) { return transitions.Next(s, to) }

// Terminal reports whether nothing can follow.
func (s State) Terminal() bool { return s == Succeeded || s == Failed || s == Cancelled }

// Placed reports whether a gang in this state holds GPUs.
func (s State) Placed() bool {
	switch s {
	case Launching, Running, Finishing, Preempting, Recovering, Stopping:
		return true
	}
	return false
}

// Next returns to if a lane may go there from s.
func (s LaneState) Next(to LaneState) (LaneState, error) { return laneTransitions.Next(s, to) }
