package gang

import "slices"

// What a record keeps of attempts that have ended. A record that keeps as much
// as it may is still far from MaxBatchBytes.
const (
	// MaxAttempts bounds the attempts: of too many the oldest is forgotten.
	MaxAttempts = 8
	// MaxAttemptMembers bounds the members of each.
	MaxAttemptMembers = 16
)

// Attempt is what is kept of one attempt that has ended: enough to find the logs
// of its members, for as long as Nomad keeps them. Times are in Unix
// milliseconds.
type Attempt struct {
	// N is its number.
	N       int   `json:"n"`
	Decided int64 `json:"decided"`
	// Started is 0 where not all its members were told to run.
	Started int64 `json:"started,omitempty"`
	// Ended is when its end was ordered; its processes may have lived a moment
	// longer.
	Ended int64 `json:"ended"`
	// Why says in a sentence what ended it; it is empty where all members were
	// done.
	Why string `json:"why,omitempty"`
	// Cause is a word for why gangd itself ended it: preempted, resized, drained
	// or spot; For names the gang that it made room for.
	Cause string `json:"cause,omitempty"`
	For   ID     `json:"for,omitempty"`
	// LostGPUMillis is the GPU time from the decision to the end, of which
	// nothing was kept.
	LostGPUMillis int64 `json:"lost_gpu_ms,omitempty"`
	// Members are its members, up to MaxAttemptMembers: the one that its end came
	// from first, then the others in rank order.
	Members []AttemptMember `json:"members,omitempty"`
}

// AttemptMember is where one member of an attempt ran.
type AttemptMember struct {
	Member int `json:"member"`
	// Node is Nomad's node ID, and NodeName its name then: nodes come and go.
	Node     string `json:"node"`
	NodeName string `json:"node_name,omitempty"`
	// Allocation is empty where Nomad had made none.
	Allocation string `json:"allocation,omitempty"`
}

// Keep notes an attempt that has ended, in place of what was noted of it before.
// The slice is made anew: who was given a copy of the record may still read the
// old one.
func (r *Record) Keep(a Attempt) {
	a.Members = a.Members[:min(len(a.Members), MaxAttemptMembers)]
	kept := slices.DeleteFunc(slices.Clone(r.Attempts), func(b Attempt) bool { return b.N == a.N })
	kept = append(kept, a)
	r.Attempts = kept[max(0, len(kept)-MaxAttempts):]
}

// EndedAttempt returns what is kept of the present attempt, once it has ended; nil
// before.
func (r *Record) EndedAttempt() *Attempt {
	if last := len(r.Attempts) - 1; last >= 0 && r.Attempts[last].N == r.Attempt {
		return &r.Attempts[last]
	}
	return nil
}

// Allocation returns that of a member; empty where none is kept.
func (a *Attempt) Allocation(member int) string {
	if a == nil {
		return ""
	}
	for _, m := range a.Members {
		if m.Member == member {
			return m.Allocation
		}
	}
	return ""
}
