package coordinator

import (
	"context"
	"errors"
	"time"

	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// KV is a record as it lies in the durable store, its key below gangd's prefix.
type KV struct {
	Key   string
	Value []byte
}

// Store is the durable state, and the lock that makes one agent its writer.
type Store interface {
	// Campaign blocks until this agent leads.
	Campaign(ctx context.Context) (Term, error)
	// Load reads all records below a prefix.
	Load(ctx context.Context, prefix string) ([]KV, error)
}

// Term is the time in which this agent leads.
type Term interface {
	Fence() gang.Fence
	// Pulse says that the loop is alive; without it the term ends.
	Pulse()
	Lost() <-chan struct{}
	// Commit makes batches durable, in order. On an error, which ends the term,
	// the first committed of them are.
	Commit(ctx context.Context, batches []gang.Batch) (committed int, err error)
	Resign(ctx context.Context) error
}

// ErrTemplate is wrapped by errors of Nomad that a template is to blame for.
var ErrTemplate = errors.New("the template will not do")

// Nomad opens and purges lanes, and tells what it sees. Its calls, as those of
// Publisher, end soon after ctx: a term is over only when the last of them is.
type Nomad interface {
	// CheckTemplate reads a template; the error wraps ErrTemplate where Nomad
	// itself answered that it will not do.
	CheckTemplate(ctx context.Context, name string) (Template, error)
	// OpenLane returns the version of the template that the lane was made from.
	// The error wraps ErrTemplate or ErrTemplateVersion where that is the cause.
	OpenLane(ctx context.Context, order OpenLane) (version uint64, err error)
	PurgeLane(ctx context.Context, job string) error
	// Watch hands on all that Nomad shows of nodes and lanes, the whole first,
	// until ctx ends.
	Watch(ctx context.Context, observe func(Input)) error
}

// Nodes carries orders to keepers.
type Nodes interface {
	// Order reports false where the lane's keeper cannot be reached; it will
	// come back and say where it stands.
	Order(a Action) bool
	// Lead tells the nodes that this agent leads, or no longer does. When it
	// begins to lead, all processes of the nodes say again where they stand.
	Lead(leads bool, fence gang.Fence)
	// Heard returns the age of the last word from the host of a GPU.
	Heard(uuid string) (time.Duration, bool)
}

// ErrPublished is wrapped where a manifest cannot be published because there is
// another one at its key.
var ErrPublished = errors.New("another result is published already")

// Publisher writes manifests: once for each key. The same manifest there
// already is success; another gives an error that wraps ErrPublished.
type Publisher interface {
	Publish(ctx context.Context, key string, manifest Manifest) error
}

// Recorder keeps what the engine was told and what it decided. It is called within
// the loop, and makes nobody wait.
type Recorder interface {
	// Begin has what follows stand alone: the rules, and the state that the next
	// event meets.
	Begin(schedule.Config, schedule.Snapshot)
	// WantsBeginning asks for Begin, as when a file is full.
	WantsBeginning() bool
	Take(ev schedule.Event, at time.Time, decisions []schedule.Decision, refused error)
}
