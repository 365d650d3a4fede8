package gang

import (
	"errors"
	"fmt"
	"strings"
)

// Code says in one word why a gang waits.
type Code string

// The codes, in the order in which the first that applies is given.
const (
	CodeBackoff       Code = "backoff"
	CodeHeld          Code = "held"
	CodeQuota         Code = "quota"
	CodeFairShare     Code = "fair_share"
	CodeVictims       Code = "waiting_for_victims"
	CodeReservedOther Code = "reserved_for_other"
	// CodeMaintenance: where there is room, it would run into a window.
	CodeMaintenance   Code = "maintenance"
	CodeGPUModel      Code = "gpu_model"
	CodeTopology      Code = "topology"
	CodeFragmented    Code = "fragmented"
	CodeCapacity      Code = "capacity"
	CodeNotReconciled Code = "starting"
)

// Progress is what the ranks of a running gang last said.
type Progress struct {
	Stage string `json:"stage,omitempty"`
	// Step of Steps done, by the slowest rank.
	Step       int     `json:"step"`
	Steps      int     `json:"steps"`
	StepMillis float64 `json:"step_ms,omitempty"`
}

// MemberStatus is a member with what is known of its lane.
type MemberStatus struct {
	Member     int       `json:"member"`
	Node       string    `json:"node"`
	NodeName   string    `json:"node_name"`
	GPUs       []int     `json:"gpus"`
	UUIDs      []string  `json:"uuids,omitempty"`
	Lane       LaneID    `json:"lane,omitempty"`
	LaneState  LaneState `json:"lane_state,omitempty"`
	Job        string    `json:"job,omitempty"`
	Allocation string    `json:"allocation,omitempty"`
}

// Status is a gang as its user sees it.
type Status struct {
	Record
	Spec *Spec `json:"spec,omitempty"`
	// Code and Reason say why it waits; empty unless it does.
	Code   Code   `json:"code,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Position is its place in the queue, from 1; 0 when it does not wait.
	Position int            `json:"position,omitempty"`
	Progress *Progress      `json:"progress,omitempty"`
	Lanes    []MemberStatus `json:"lanes,omitempty"`
	// AvoidNames are the names of the nodes of Avoid, in the same order.
	AvoidNames []string `json:"avoid_names,omitempty"`
}

// Selection says which gangs a list is to hold.
type Selection struct {
	// State and Tenant are those of the gangs, and Prefix begins their IDs; where
	// one is empty, any will do.
	State  State
	Tenant string
	Prefix string
	// Limit is how many are listed at most; all that match are counted.
	Limit int
}

// Takes reports whether a gang matches, whatever the limit.
func (s Selection) Takes(r *Record) bool {
	return (s.State == "" || r.State == s.State) && (s.Tenant == "" || r.Tenant == s.Tenant) && strings.HasPrefix(string(r.ID), s.Prefix)
}

// ErrNotFound is wrapped where no gang has the ID that was asked for.
var ErrNotFound = errors.New("no such gang")

// ErrNotLeading is wrapped where this agent cannot answer because another one
// leads, or none does.
var ErrNotLeading = errors.New("this agent does not lead")

// ErrOutcomeUnknown is wrapped where a request was under way when this agent
// stopped leading: it may have been done, so that to repeat it is not safe.
var ErrOutcomeUnknown = errors.New("it may have been done: look before you repeat it")

// ErrOverloaded is wrapped where a limit is reached, of what waits or of what
// is kept: the caller asks for more than can be taken now.
var ErrOverloaded = errors.New("too many wait already")

// ErrNotNow is wrapped where a request was not looked at, for a reason that
// passes: the caller should try again in a moment.
var ErrNotNow = errors.New("try again in a moment")

// RefusedError is the answer to a request that was understood and is not
// granted.
type RefusedError struct {
	// Gang is the name of the one of a submission that is at fault, and Field the
	// attribute of it; they are empty where it is no one's.
	Gang, Field string
	Reason      string
	// Shown is the whole as people read it, where that is more than the reason
	// with the names before it: with its place in the file.
	Shown string
}

func (e *RefusedError) Error() string {
	if e.Shown != "" {
		return e.Shown
	}
	text := e.Reason
	if e.Field != "" {
		text = e.Field + ": " + text
	}
	if e.Gang != "" {
		text = fmt.Sprintf("gang %q: %s", e.Gang, text)
	}
	return text
}

// Refuse makes a RefusedError.
func Refuse(format string, args ...any) error { return RefuseField("", format, args...) }

// RefuseField makes a RefusedError for what an attribute asks for.
func RefuseField(field, format string, args ...any) error {
	return &RefusedError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// NameRefused says of which gang an error is the refusal, if it is one.
func NameRefused(name string, err error) error {
	var refused *RefusedError
	if !errors.As(err, &refused) {
		return err
	}
	named := *refused
	named.Gang = name
	return &named
}

// ErrTerminal is wrapped where a gang has ended, and can no longer be changed.
var ErrTerminal = errors.New("it has ended")
