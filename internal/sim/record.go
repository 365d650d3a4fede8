package sim

import (
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// Record is something that happened in a simulation.
type Record struct {
	At time.Duration
	// Gang is empty for the summary.
	Gang gang.ID
	Fact Fact
}

// Fact is one of the types below, or a *Summary.
type Fact interface {
	// Event names the fact.
	Event() string
}

// Seconds are printed as a number of seconds, to the microsecond.
type Seconds time.Duration

// MarshalJSON prints the shortest number that says so.
func (s Seconds) MarshalJSON() ([]byte, error) {
	micros := time.Duration(s).Round(time.Microsecond).Microseconds()
	return strconv.AppendFloat(nil, float64(micros)/1e6, 'f', -1, 64), nil
}

// Amount is a number that came from arithmetic: it is printed to six decimals.
type Amount float64

// MarshalJSON prints the shortest number that says so.
func (a Amount) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, math.Round(float64(a)*1e6)/1e6, 'f', -1, 64), nil
}

// Submitted: a gang arrived.
type Submitted struct {
	Tenant string `json:"tenant"`
	Tier   string `json:"tier"`
	GPUs   int    `json:"gpus"`
}

// Rejected: it can never run here, or breaks a limit for ever.
type Rejected struct {
	Reason string `json:"reason"`
}

// Pending: it waits, and the code why is another than before.
type Pending struct {
	Code   gang.Code `json:"code"`
	Reason string    `json:"reason"`
}

// Reserved: it holds a future start. MovedBy says why it is later than before,
// where it is.
type Reserved struct {
	Start   Seconds `json:"start"`
	MovedBy string  `json:"moved_by,omitempty"`
}

// Started: an attempt holds its GPUs. Loading and restoring come after that.
type Started struct {
	Attempt int     `json:"attempt"`
	GPUs    int     `json:"gpus"`
	Members Members `json:"members"`
	// Warm counts the members whose weights were in memory.
	Warm        int     `json:"warm"`
	ResumedFrom Seconds `json:"resumed_from"`
}

// Members are printed with their numbers.
type Members gang.Placement

// MarshalJSON prints a list in rank order.
func (m Members) MarshalJSON() ([]byte, error) {
	type member struct {
		Member int    `json:"member"`
		Node   string `json:"node"`
		GPUs   []int  `json:"gpus"`
	}
	list := make([]member, len(m))
	for i, one := range m {
		list[i] = member{i, one.Node, one.GPUs}
	}
	return json.Marshal(list)
}

// Preempting: an attempt is to end for another gang.
type Preempting struct {
	For  gang.ID       `json:"for"`
	Mode schedule.Mode `json:"mode"`
}

// CalledOff: an attempt that was to end carries on.
type CalledOff struct{}

// Checkpointed: a checkpoint that was taken on demand is durable.
type Checkpointed struct {
	Done Seconds `json:"done"`
}

// Resizing: an attempt is to end, and the next has another number of GPUs.
type Resizing struct {
	From int `json:"from"`
	To   int `json:"to"`
}

// Stopped: an attempt is over, and its GPUs are free.
type Stopped struct {
	Cause schedule.Cause `json:"cause"`
	// Lost is the run time that must be done again, in GPU-seconds.
	Lost Amount `json:"lost"`
}

// The causes that are not the engine's.
const (
	CauseFinished     schedule.Cause = "finished"
	CauseNodeLost     schedule.Cause = "node_lost"
	CauseGPULost      schedule.Cause = "gpu_lost"
	CauseMemberFailed schedule.Cause = "member_failed"
	CauseMaxRun       schedule.Cause = "max_run"
	CauseCancelled    schedule.Cause = "cancelled"
)

// Finished: the gang has come to its end.
type Finished struct {
	Outcome Outcome `json:"outcome"`
}

// Outcome is how a gang ended.
type Outcome string

// The outcomes.
const (
	Succeeded Outcome = "succeeded"
	Failed    Outcome = "failed"
	Cancelled Outcome = "cancelled"
)

// Event names the fact.
func (Submitted) Event() string    { return "submitted" }
func (Rejected) Event() string     { return "rejected" }
func (Pending) Event() string      { return "pending" }
func (Reserved) Event() string     { return "reserved" }
func (Started) Event() string      { return "started" }
func (Preempting) Event() string   { return "preempting" }
func (CalledOff) Event() string    { return "called_off" }
func (Checkpointed) Event() string { return "checkpointed" }
func (Resizing) Event() string     { return "resizing" }
func (Stopped) Event() string      { return "stopped" }
func (Finished) Event() string     { return "finished" }
func (*Summary) Event() string     { return "summary" }
