package gpu

import (
	"cmp"
	"slices"
	"time"
)

// Policy says how often GPUs are probed, and what it takes to trust one again.
type Policy struct {
	// Poll is the interval for a GPU whose events are watched, and PollBlind
	// for one whose events are not.
	Poll, PollBlind time.Duration
	// Retry is the wait after a fault before the first probe. It doubles with
	// each probe that fails, up to RetryMax, and with each fault within
	// Forgive of the one before.
	Retry, RetryMax time.Duration
	Forgive         time.Duration
	// BlindProbes is how many probes in a row must succeed where the driver
	// cannot say whether the GPU still needs a reset: that it answers is then
	// little evidence. Where the driver can say, one is enough.
	BlindProbes int
}

// DefaultPolicy is what the device plugin uses.
func DefaultPolicy() Policy {
	return Policy{
		Poll:        10 * time.Second,
		PollBlind:   time.Second,
		Retry:       5 * time.Second,
		RetryMax:    time.Minute,
		Forgive:     time.Hour,
		BlindProbes: 10,
	}
}

// Status is a GPU with the verdict on it.
type Status struct {
	GPU     GPU
	Healthy bool
	// Reason is a sentence for the operator: what happened, and what to do. It
	// is empty for a healthy GPU.
	Reason string
}

// Record is an XID that was taken note of.
type Record struct {
	At    time.Time
	UUID  string
	XID   uint64
	Class Class
	// Cause is, for a secondary XID, the one that it came with; 0 where none
	// was seen.
	Cause uint64
}

// scope is which GPUs a fault makes unusable.
type scope int

const (
	scopeGPU scope = iota
	scopeIsland
	scopeNode
)

// fault is why a GPU is bad by its own doing.
type fault struct {
	scope scope
	// own tells it of the GPU itself, peers of the others in the scope.
	own, peers string
}

// condition is what is known of one GPU.
type condition struct {
	gpu     GPU
	fault   *fault
	watched bool
	// faultedAt is when the last fault came, and repeats how many came before
	// it that are not forgiven.
	faultedAt time.Time
	repeats   int
	retry     time.Duration
	clean     int
	nextProbe time.Time
	// newsAt is when an event last told of the GPU: probes asked before it say
	// nothing about it.
	newsAt time.Time
	// actionChanged is set until the driver's recovery action was read.
	actionChanged bool
	// condemned says that a bad GPU cannot be mended by a reset.
	condemned bool
	last      Record
}

// Health decides which GPUs of a node are usable. It is a state machine without
// I/O or clock: its owner feeds it XIDs, probes and the time, probes what is
// due, and reads the verdicts. Not for concurrent use.
//
// What a fault does to other GPUs is not stored but derived from the fault, so
// that they are usable again as soon as the one that caused it is. A GPU whose
// neighbour is bad by itself, without an error of the link between them, stays
// usable.
type Health struct {
	policy     Policy
	conditions []*condition
}

// NewHealth starts with every GPU healthy, unwatched and due for a probe.
func NewHealth(gpus []GPU, policy Policy) *Health {
	h := &Health{policy: policy}
	for _, g := range gpus {
		h.conditions = append(h.conditions, &condition{gpu: g})
	}
	slices.SortFunc(h.conditions, func(a, b *condition) int { return cmp.Compare(a.gpu.Index, b.gpu.Index) })
	return h
}

// XID takes an error that a GPU reported, and returns what was noted. An error
// of an unknown or unnamed GPU counts for all of them: to stop placing for the
// few seconds until a probe has spoken for the good ones is cheaper than to
// start a gang on a broken GPU.
func (h *Health) XID(now time.Time, uuid string, xid uint64) []Record {
	var records []Record
	for _, c := range h.named(uuid) {
		c.newsAt = now
		r := Record{At: now, UUID: c.gpu.UUID, XID: xid, Class: ClassOf(xid)}
		if r.Class == ClassSecondary && now.Sub(c.last.At) <= secondaryWindow {
			r.Cause = c.last.XID
		} else {
			c.last = r
		}
		records = append(records, r)
		h.apply(now, c, r)
	}
	return records
}

// secondaryWindow is how long after an error a secondary one belongs to it.
const secondaryWindow = 10 * time.Second

func (h *Health) apply(now time.Time, c *condition, r Record) {
	switch r.Class {
	case ClassApplication, ClassObserve, ClassSecondary:
		// The GPU stays as it is.
	case ClassRecoveryAction:
		c.actionChanged = true
		c.nextProbe = now
	default:
		h.fail(now, c, faultOf(c.gpu, r))
	}
}

// Suspect makes a GPU due for a probe, after an event that names no XID. An
// empty uuid means all of them.
func (h *Health) Suspect(now time.Time, uuid string) {
	for _, c := range h.named(uuid) {
		c.newsAt = now
		c.nextProbe = now
	}
}

// Watch says which GPUs' events are delivered from now on. All are due for a
// probe, as what happened before was not heard.
func (h *Health) Watch(now time.Time, watched func(uuid string) bool) {
	for _, c := range h.conditions {
		c.watched = watched(c.gpu.UUID)
		c.newsAt = now
		c.nextProbe = now
	}
}

// Probed takes a GPU's answer to a question asked at that time. An answer that
// an event has overtaken is dropped, and the GPU stays due.
func (h *Health) Probed(now, asked time.Time, uuid string, p Probe) {
	for _, c := range h.conditions {
		if c.gpu.UUID != uuid || asked.Before(c.newsAt) {
			continue
		}
		if c.fault == nil {
			h.probedGood(now, c, p)
		} else {
			h.probedBad(now, c, p)
		}
		c.actionChanged = false
	}
}

// probedGood looks at a GPU that counts as sound. Rows that wait to be remapped
// do not condemn it: that is XID 63, which stops nothing.
func (h *Health) probedGood(now time.Time, c *condition, p Probe) {
	c.nextProbe = now.Add(h.interval(c))
	switch {
	case p.Err != nil:
		h.fail(now, c, faultOfSilence(c.gpu, p.Err))
	case p.Action > ActionNone:
		h.fail(now, c, faultOfAction(c.gpu, p.Action))
	case p.Action == ActionUnread && c.actionChanged:
		h.fail(now, c, faultOfUnreadAction(c.gpu))
	}
}

func (h *Health) probedBad(now time.Time, c *condition, p Probe) {
	c.condemned = p.RemapFailed
	if p.Err != nil || p.Action > ActionNone || p.RemapPending || p.RemapFailed {
		c.clean = 0
		if p.Err == nil && p.Action > ActionNone {
			h.widen(c, faultOfAction(c.gpu, p.Action))
		}
		c.retry = min(2*c.retry, h.policy.RetryMax)
		c.nextProbe = now.Add(c.retry)
		return
	}
	c.clean++
	needed := 1
	if p.Action == ActionUnread {
		needed = h.policy.BlindProbes
	}
	if c.clean < needed {
		c.nextProbe = now.Add(c.retry)
		return
	}
	c.fault = nil
	c.nextProbe = now.Add(h.interval(c))
}

// fail makes a GPU bad, or worse.
func (h *Health) fail(now time.Time, c *condition, f fault) {
	if !c.faultedAt.IsZero() && now.Sub(c.faultedAt) < h.policy.Forgive {
		c.repeats++
	} else {
		c.repeats = 0
	}
	c.faultedAt = now
	c.clean = 0
	c.retry = h.policy.Retry
	for range c.repeats {
		c.retry = min(2*c.retry, h.policy.RetryMax)
		if c.retry == h.policy.RetryMax {
			break
		}
	}
	c.nextProbe = now.Add(c.retry)
	if c.fault == nil {
		c.condemned = false
		c.fault = &f
		return
	}
	h.widen(c, f)
}

// widen replaces a fault by one that makes more GPUs unusable. Of equal ones
// the first stays, because later ones are often its consequences.
func (h *Health) widen(c *condition, f fault) {
	if f.scope > c.fault.scope {
		c.fault = &f
	}
}

// Due lists the GPUs to be probed, by index.
func (h *Health) Due(now time.Time) []string {
	var due []string
	for _, c := range h.conditions {
		if !c.nextProbe.After(now) {
			due = append(due, c.gpu.UUID)
		}
	}
	return due
}

// Next is when the next GPU is due, leaving out those to skip, and at the latest
// at the given time.
func (h *Health) Next(latest time.Time, skip func(uuid string) bool) time.Time {
	next := latest
	for _, c := range h.conditions {
		if c.nextProbe.Before(next) && !skip(c.gpu.UUID) {
			next = c.nextProbe
		}
	}
	return next
}

// Statuses gives the verdict on each GPU, by index.
func (h *Health) Statuses() []Status {
	statuses := make([]Status, 0, len(h.conditions))
	for _, c := range h.conditions {
		reason := h.reason(c)
		statuses = append(statuses, Status{GPU: c.gpu, Healthy: reason == "", Reason: reason})
	}
	return statuses
}

// reason is empty for a healthy GPU. A GPU's own fault comes before those of
// others, which come by index.
func (h *Health) reason(c *condition) string {
	if c.fault != nil {
		if c.condemned {
			return c.fault.own + condemnation(c.gpu)
		}
		return c.fault.own
	}
	for _, other := range h.conditions {
		if other == c || other.fault == nil {
			continue
		}
		switch other.fault.scope {
		case scopeNode:
			return other.fault.peers
		case scopeIsland:
			if other.gpu.Island == c.gpu.Island {
				return other.fault.peers
			}
		}
	}
	return ""
}

func (h *Health) interval(c *condition) time.Duration {
	if c.watched {
		return h.policy.Poll
	}
	return h.policy.PollBlind
}

// named finds the GPU of that UUID, or all where there is none.
func (h *Health) named(uuid string) []*condition {
	for _, c := range h.conditions {
		if c.gpu.UUID == uuid {
			return []*condition{c}
		}
	}
	return h.conditions
}
