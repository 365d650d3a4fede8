package gang

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// SchemaVersion is written into every record; a record of a later one is
// refused, so that an old gangd does not misread what a newer one wrote.
const SchemaVersion = 1

// ErrLaterSchema is wrapped where a record is of a later schema than this gangd
// knows. It is whole, and a later gangd needs it.
var ErrLaterSchema = errors.New("a later gangd wrote it: run that one")

// ID names a gang: its user's name for it, a dash, and eight random
// characters, e.g. "sea-k3v9qd2m".
type ID string

// LaneID names a lane. It follows from the gang, attempt and member for which
// the lane was opened, so that opening it twice opens one.
type LaneID string

// Fence is a leader's term: the cluster's epoch, and Consul's ModifyIndex of
// the write that took the lock. Every write and order carries it.
type Fence struct {
	Epoch uint64 `json:"epoch"`
	Index uint64 `json:"index"`
}

// Before reports whether f is of an earlier term than g.
func (f Fence) Before(g Fence) bool {
	return f.Epoch < g.Epoch || f.Epoch == g.Epoch && f.Index < g.Index
}

func (f Fence) String() string { return fmt.Sprintf("%d.%d", f.Epoch, f.Index) }

// Member is the part of a gang on one node.
type Member struct {
	// Node is Nomad's node ID.
	Node string `json:"node"`
	// GPUs are indexes on the node, in rank order.
	GPUs []int  `json:"gpus"`
	Lane LaneID `json:"lane,omitempty"`
}

// Placement lists the members in rank order; member 0 leads.
type Placement []Member

// GPUs returns the number of GPUs of all members.
func (p Placement) GPUs() int {
	n := 0
	for _, m := range p {
		n += len(m.GPUs)
	}
	return n
}

// Artifact is a durable object in the blob store.
type Artifact struct {
	Key         string `json:"key"`
	SHA256      string `json:"sha256"`
	Bytes       int64  `json:"bytes"`
	ContentType string `json:"type,omitempty"`
}

// Times are the moments of the present attempt, in Unix milliseconds; 0 where
// it has not come that far. They are what `gangd status ID` shows as the parts
// of a start.
type Times struct {
	// Queued is when the gang was queued again, or will have rested after a
	// failure; 0 in the first attempt, which waits since it was accepted.
	Queued     int64 `json:"queued,omitempty"`
	Decided    int64 `json:"decided,omitempty"`
	Dispatched int64 `json:"dispatched,omitempty"`
	Allocated  int64 `json:"allocated,omitempty"`
	Admitted   int64 `json:"admitted,omitempty"`
	Ready      int64 `json:"ready,omitempty"`
	Started    int64 `json:"started,omitempty"`
	Ended      int64 `json:"ended,omitempty"`
}

// Record is what Consul keeps of a gang under gangs/<id>.
type Record struct {
	Version int   `json:"v"`
	ID      ID    `json:"id"`
	State   State `json:"state"`
	// Seq orders gangs by acceptance and is unique; a gang that is queued again
	// keeps its own.
	Seq uint64 `json:"seq"`
	// Order is its place among the gangs of its tenant and tier where its user
	// moved it; 0 where that is Seq.
	Order uint64 `json:"order,omitempty"`
	// Held: its user does not want it to start.
	Held     bool   `json:"held,omitempty"`
	Tenant   string `json:"tenant"`
	Tier     string `json:"tier"`
	Template string `json:"tmpl"`
	GPUs     int    `json:"gpus"`
	PerNode  int    `json:"per_node"`
	// Accepted is in Unix milliseconds.
	Accepted int64 `json:"accepted"`
	// Attempt counts from 1 once the gang was placed; 0 before.
	Attempt int `json:"attempt,omitempty"`
	// Fence is the term that decided the present attempt.
	Fence   Fence     `json:"fence,omitzero"`
	Members Placement `json:"members,omitempty"`
	// Avoid names nodes on which an earlier attempt failed.
	Avoid []string `json:"avoid,omitempty"`
	// RestUntil is when a gang that is queued is tried again, in milliseconds of
	// Unix time; 0 where it does not rest.
	RestUntil int64 `json:"rest_until_ms,omitempty"`
	// Failures counts the attempts that ended by loss of a node, a GPU or a
	// runner, against the specification's InfraRetries.
	Failures int `json:"failures,omitempty"`
	// RunMillis is the run time of all ended attempts.
	RunMillis int64 `json:"run_ms,omitempty"`
	// GPUMillis is the GPU time of all its lanes that was charged to its tenant.
	GPUMillis int64 `json:"gpu_ms,omitempty"`
	// Owed: the present attempt started under a min_share or within a guarantee.
	Owed bool `json:"owed,omitempty"`
	// Why says in a sentence what led to the present state, where that is not
	// the ordinary way. What ended an attempt stays until the gang ends.
	Why   string `json:"why,omitempty"`
	Times Times  `json:"times,omitzero"`
	// Attempts are the last ones that have ended, the latest last.
	Attempts []Attempt `json:"attempts,omitempty"`
	// Artifact and Thumbnail are the result, once it is durable.
	Artifact  *Artifact `json:"artifact,omitempty"`
	Thumbnail *Artifact `json:"thumbnail,omitempty"`
	// Target is where a gang in Stopping goes once its processes are gone.
	Target State `json:"target,omitempty"`
}

// Lane is what Consul keeps of a lane under lanes/<node>/<id>.
type Lane struct {
	Version int       `json:"v"`
	ID      LaneID    `json:"id"`
	State   LaneState `json:"state"`
	Node    string    `json:"node"`
	// GPUs are indexes on the node, in rank order; UUIDs are theirs, in the
	// same order.
	GPUs     []int    `json:"gpus"`
	UUIDs    []string `json:"uuids"`
	Template string   `json:"tmpl"`
	// TemplateVersion is Nomad's JobModifyIndex of the template that the lane
	// was opened from.
	TemplateVersion uint64 `json:"tmpl_version,omitempty"`
	// Gang and Attempt are what the lane runs, or was opened for.
	Gang    ID    `json:"gang,omitempty"`
	Attempt int   `json:"attempt,omitempty"`
	Member  int   `json:"member"`
	Fence   Fence `json:"fence,omitzero"`
	// Job is the ID of the pinned parent in Nomad.
	Job string `json:"job"`
	// Allocation is the one that was admitted; empty before.
	Allocation string `json:"alloc,omitempty"`
	// Tenant pays for its GPUs since Held, in Unix milliseconds, until they are
	// free; Charged says that this was done.
	Tenant  string `json:"tenant,omitempty"`
	Held    int64  `json:"held,omitempty"`
	Charged bool   `json:"charged,omitempty"`
	Why     string `json:"why,omitempty"`
}

// NewLaneID derives the ID of the lane that is opened for one member of one
// attempt.
func NewLaneID(id ID, attempt, member int) LaneID {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d/%d", id, attempt, member))
	return LaneID(encodeID(sum[:10]))
}

// NewID makes a gang's ID from its name and five random bytes.
func NewID(name string, random [5]byte) ID { return ID(name + "-" + encodeID(random[:])) }

// ParseID takes what NewID makes of a valid name, and refuses all else.
func ParseID(text string) (ID, error) {
	dash := len(text) - randomLen - 1
	if dash < 1 || text[dash] != '-' || !validName(text[:dash]) || !randomRule.MatchString(text[dash+1:]) {
		return "", fmt.Errorf("%q is no gang's ID: one looks like sea-k3v9qd2m", text)
	}
	return ID(text), nil
}

// randomLen is how many characters encodeID makes of five bytes.
const randomLen = 8

var randomRule = regexp.MustCompile(`^[0-9a-v]*$`)

func encodeID(b []byte) string {
	return strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(b))
}

// Millis is t in Unix milliseconds, as records keep it.
func Millis(t time.Time) int64 { return t.UnixMilli() }

// RecordKey, SpecKey and LaneKey are the keys below gangd's prefix in Consul.
func RecordKey(id ID) string { return "gangs/" + string(id) }

// SpecKey is where a gang's specification lies.
func SpecKey(id ID) string { return "specs/" + string(id) }

// LaneKey is where a lane's record lies.
func LaneKey(node string, id LaneID) string { return "lanes/" + node + "/" + string(id) }

// DecodeRecord reads a gang's record. Its error, as that of the other two, wraps
// ErrLaterSchema where that is the reason; else the record is damaged.
func DecodeRecord(key string, value []byte) (*Record, error) {
	r := new(Record)
	return r, decode(key, value, r)
}

// DecodeLane reads a lane's record.
func DecodeLane(key string, value []byte) (*Lane, error) {
	l := new(Lane)
	return l, decode(key, value, l)
}

// DecodeSpec reads a gang's specification.
func DecodeSpec(key string, value []byte) (*Spec, error) {
	s := new(Spec)
	return s, decode(key, value, s)
}

// decode reads the version first: a later schema may have other types.
func decode(key string, value []byte, into interface{ damage(key string) error }) error {
	var head struct {
		Version int `json:"v"`
	}
	if err := json.Unmarshal(value, &head); err != nil {
		return fmt.Errorf("read record %s: %w", key, err)
	}
	if head.Version > SchemaVersion {
		return fmt.Errorf("read record %s: its schema version is %d, this gangd knows %d: %w", key, head.Version, SchemaVersion, ErrLaterSchema)
	}
	if head.Version < SchemaVersion {
		return fmt.Errorf("read record %s: its schema version is %d, there was none before 1", key, head.Version)
	}
	if err := json.Unmarshal(value, into); err != nil {
		return fmt.Errorf("read record %s: %w", key, err)
	}
	if err := into.damage(key); err != nil {
		return fmt.Errorf("read record %s: %w", key, err)
	}
	return nil
}

// damage finds what would mislead those who take a record for whole: that it
// lies under another's key, or lacks what no record lacks.
func (r *Record) damage(key string) error {
	switch {
	case RecordKey(r.ID) != key:
		return fmt.Errorf("it is of gang %q", r.ID)
	case !transitions.has(r.State):
		return fmt.Errorf("%q is no state of a gang", r.State)
	case r.GPUs < 1 || r.GPUs > MaxGPUs:
		return fmt.Errorf("a gang of %d GPUs cannot be", r.GPUs)
	case (r.State == Launching || r.State == Running) && len(r.Members) == 0:
		return fmt.Errorf("it is %s, and has no members", r.State)
	}
	for i, m := range r.Members {
		if err := indexes(m.GPUs); err != nil {
			return fmt.Errorf("member %d: %w", i, err)
		}
	}
	return nil
}

func (l *Lane) damage(key string) error {
	switch {
	case LaneKey(l.Node, l.ID) != key:
		return fmt.Errorf("it is of lane %q of node %q", l.ID, l.Node)
	case !laneTransitions.has(l.State):
		return fmt.Errorf("%q is no state of a lane", l.State)
	case l.Member < 0 || l.Member >= MaxGPUs:
		return fmt.Errorf("no gang has a member %d", l.Member)
	}
	return indexes(l.GPUs)
}

func (s *Spec) damage(string) error {
	if s.GPUs < 1 || s.GPUs > MaxGPUs || s.Template == "" {
		return fmt.Errorf("%d GPUs of template %q cannot be", s.GPUs, s.Template)
	}
	return s.Sound()
}

// maxGPUIndex is what cluster.Mask can hold.
const maxGPUIndex = 63

func indexes(gpus []int) error {
	if len(gpus) == 0 {
		return errors.New("it has no GPUs")
	}
	for _, i := range gpus {
		if i < 0 || i > maxGPUIndex {
			return fmt.Errorf("a GPU has the index %d", i)
		}
	}
	return nil
}

// Encode writes a record as it lies in Consul. Records hold nothing that
// cannot be encoded.
func Encode(record any) []byte {
	b, err := json.Marshal(record)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", record, err))
	}
	return b
}

// Change is one write to the durable state.
type Change struct {
	// Key is below gangd's prefix.
	Key string
	// Value is nil to delete the key.
	Value []byte
	// Create refuses the write where the key exists.
	Create bool
}

// Batch is a set of changes that become durable together or not at all: at
// most MaxBatch of them.
type Batch []Change

// MaxBatchBytes bounds the values of a batch: Consul takes about 512 KiB in a
// transaction, in which they travel as base64.
const MaxBatchBytes = 200 << 10

// MaxBatch bounds a batch. Consul takes 128 operations in a transaction, some
// of which check the leader's term.
const MaxBatch = 100

// LanePrefix begins the ID of every job that gangd registers in Nomad.
const LanePrefix = "gangd."

// LaneJobID is the ID of a lane's pinned parent in Nomad: it names template,
// node and lane.
func LaneJobID(template, node string, lane LaneID) string {
	return LanePrefix + template + "." + node[:min(8, len(node))] + "." + string(lane)
}
