package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

// inheritance is what a term takes over: what is whole of the records in the
// store.
type inheritance struct {
	Restored
	// repairs are records that had to be changed so that the others make sense;
	// they are written before anything else.
	repairs []gang.Change
	damages []damage
}

// damage is a record that is set aside.
type damage struct {
	key string
	err error
	// then is what becomes of it, or what to do.
	then string
}

// maxDamages bounds the damaged records that the log names one by one.
const maxDamages = 100

// load reads what the last term left, and keeps the lock meanwhile.
func (l *Loop) load(ctx context.Context, held Term) (inheritance, error) {
	type result struct {
		inheritance
		err error
	}
	done := make(chan result, 1)
	go func() {
		found, err := l.read(ctx)
		done <- result{found, err}
	}()
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		select {
		case r := <-done:
			return r.inheritance, r.err
		case <-tick.C:
			held.Pulse()
		case <-held.Lost():
			return inheritance{}, errors.New("the lock in Consul was lost while the records were read")
		case <-ctx.Done():
			return inheritance{}, ctx.Err()
		}
	}
}

func (l *Loop) read(ctx context.Context) (inheritance, error) {
	var all []KV
	for _, prefix := range []string{"gangs/", "specs/", "lanes/", "ledger/", "maintenance/"} {
		kvs, err := l.cfg.Store.Load(ctx, prefix)
		if err != nil {
			return inheritance{}, fmt.Errorf("take over: %w", err)
		}
		all = append(all, kvs...)
	}
	found, err := inherit(all)
	if err != nil {
		return inheritance{}, fmt.Errorf("take over: %w", err)
	}
	for i, damage := range found.damages {
		l.cfg.Metrics.faults.Inc()
		if i < maxDamages {
			l.cfg.Log.Error("a damaged record is set aside", "key", damage.key, "error", damage.err, "then", damage.then)
		}
	}
	if more := len(found.damages) - maxDamages; more > 0 {
		l.cfg.Log.Error("more damaged records are set aside", "number", more)
	}
	return found, nil
}

// inherit makes sense of the records. A damaged one is set aside, so that it
// costs its own gang and no other. One of a later schema is not damaged: its
// error, which wraps gang.ErrLaterSchema, ends the take-over, since this gangd
// would act on a part of the truth.
func inherit(kvs []KV) (inheritance, error) {
	out := inheritance{Restored: Restored{Specs: make(map[gang.ID]*gang.Spec)}}
	for _, kv := range kvs {
		err := out.take(kv)
		if errors.Is(err, gang.ErrLaterSchema) {
			return inheritance{}, err
		}
		if err != nil {
			out.setAside(kv, err)
		}
	}
	out.withoutSpec()
	out.withoutLanes()
	lanes := make(map[string]*damage)
	for i := range out.damages {
		lanes[out.damages[i].key] = &out.damages[i]
	}
	for _, g := range out.Gangs {
		out.repair(g, lanes)
	}
	return out, nil
}

func (h *inheritance) take(kv KV) error {
	kind, name, _ := strings.Cut(kv.Key, "/")
	switch kind {
	case "gangs":
		r, err := gang.DecodeRecord(kv.Key, kv.Value)
		if err == nil {
			h.Gangs = append(h.Gangs, r)
		}
		return err
	case "specs":
		s, err := gang.DecodeSpec(kv.Key, kv.Value)
		if err == nil {
			h.Specs[gang.ID(name)] = s
		}
		return err
	case "ledger":
		a, err := gang.DecodeAccount(kv.Key, kv.Value)
		if err == nil {
			h.Accounts = append(h.Accounts, a)
		}
		return err
	case "maintenance":
		w, err := gang.DecodeWindow(kv.Key, kv.Value)
		if err == nil {
			h.Windows = append(h.Windows, w)
		}
		return err
	default:
		r, err := gang.DecodeLane(kv.Key, kv.Value)
		if err == nil {
			h.Lanes = append(h.Lanes, r)
		}
		return err
	}
}

// setAside notes a damaged record, which stays in Consul as it is.
//
// A lane without its record holds no GPUs here, and nothing may run on GPUs that
// are in use. Where its gang's record names the lane, it is repaired below.
// Where none does this is safe all the same. Its keeper is refused when it
// speaks, and ends, or its lease ends it. Its job is purged as a stray, and until
// its allocation has ended Nomad gives its GPUs to no other. And on the node no
// runner starts on a GPU that has another one's processes or memory. A lane that
// is opened there too early waits, or fails; it shares nothing.
func (h *inheritance) setAside(kv KV, err error) {
	h.damages = append(h.damages, damage{kv.Key, fmt.Errorf("%w: its %d bytes begin with %.100q", err, len(kv.Value), kv.Value),
		"put it right before the next take-over, or delete it, and have its gang submitted again"})
}

// withoutSpec sets those gangs aside that could not run, or not run again, as
// their users wanted it, since their specifications are missing or damaged.
// Lanes of theirs are ended, as those of all gangs that are not there.
func (h *inheritance) withoutSpec() {
	var kept []*gang.Record
	for _, g := range h.Gangs {
		switch g.State {
		case gang.Queued, gang.Reserved, gang.Launching, gang.Preempting, gang.Recovering:
			if h.Specs[g.ID] == nil {
				h.damages = append(h.damages, damage{gang.RecordKey(g.ID), fmt.Errorf("the gang is %s, and %s is missing or damaged", g.State, gang.SpecKey(g.ID)),
					"put that right before the next take-over, or delete both, and have the gang submitted again"})
				continue
			}
		}
		kept = append(kept, g)
	}
	h.Gangs = kept
}

// withoutLanes counts the lanes of a running gang, none of which has a record,
// among the damaged ones: it would run for ever.
func (h *inheritance) withoutLanes() {
	known := make(map[string]bool)
	for _, l := range h.Lanes {
		known[gang.LaneKey(l.Node, l.ID)] = true
	}
	for _, d := range h.damages {
		known[d.key] = true
	}
	for _, g := range h.Gangs {
		has := func(m gang.Member) bool { return known[gang.LaneKey(m.Node, m.Lane)] }
		if g.State != gang.Running || slices.ContainsFunc(g.Members, has) {
			continue
		}
		for _, m := range g.Members {
			h.damages = append(h.damages, damage{key: gang.LaneKey(m.Node, m.Lane), err: fmt.Errorf("gang %s runs there, and there is no record", g.ID)})
		}
	}
}

// lostRecord stands for the allocation that a damaged record named: no keeper
// has it, so none is let in.
const lostRecord = "unknown"

// repair gives a gang those of its lanes back whose records are damaged, as
// lost ones: nobody is admitted to them, their jobs are purged, and their GPUs
// are held until their keepers' lease has run out. A gang that is starting or
// running is stopped, and queued again, as nobody knows what those members have
// done; that is written first.
func (h *inheritance) repair(g *gang.Record, damaged map[string]*damage) {
	var lanes []gang.Change
	for i, m := range g.Members {
		key := gang.LaneKey(m.Node, m.Lane)
		if damaged[key] == nil {
			continue
		}
		damaged[key].then = fmt.Sprintf("gang %s names the lane: it is taken for lost, and its record written anew", g.ID)
		l := &gang.Lane{
			Version: gang.SchemaVersion, ID: m.Lane, State: gang.LaneLost, Node: m.Node, GPUs: m.GPUs, Template: g.Template,
			Gang: g.ID, Attempt: g.Attempt, Member: i, Fence: g.Fence, Job: gang.LaneJobID(g.Template, m.Node, m.Lane),
			Allocation: lostRecord, Why: "its record in Consul was damaged",
		}
		h.Lanes = append(h.Lanes, l)
		lanes = append(lanes, gang.Change{Key: key, Value: gang.Encode(l)})
	}
	if len(lanes) == 0 {
		return
	}
	if g.State == gang.Launching || g.State == gang.Running {
		g.State, g.Why = gang.Preempting, "the record of one of its lanes in Consul was damaged"
		h.repairs = append(h.repairs, gang.Change{Key: gang.RecordKey(g.ID), Value: gang.Encode(g)})
	}
	h.repairs = append(h.repairs, lanes...)
}
