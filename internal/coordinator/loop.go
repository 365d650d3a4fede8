package coordinator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/internal/gang"
)

const (
	tickEvery = 100 * time.Millisecond
	// maxInputs and maxEffects bound what waits for the loop and for the
	// writer.
	maxInputs  = 4096
	maxEffects = 1024
	// Between two terms an agent rests, so that what ends each at once, as a store
	// that refuses all writes, is not tried without a pause. The rest doubles,
	// unless a term was long, or ended as terms do: the lock went to another.
	restFirst = 100 * time.Millisecond
	restMost  = 5 * time.Second
	longTerm  = time.Minute
)

// LoopConfig is what a loop needs.
type LoopConfig struct {
	Core  Config // Fence is filled in with each term
	Store Store
	Nomad Nomad
	Nodes Nodes
	Blobs Publisher
	Log   hclog.Logger
	// Metrics may be nil, and so may Recorder.
	Metrics  *Metrics
	Recorder Recorder
	// MaxRequests bounds the requests that wait for an answer at one time; 0
	// means 1024.
	MaxRequests int
}

// Loop campaigns for leadership, and while it leads, runs the core.
type Loop struct {
	cfg LoopConfig

	watchers *watchers

	mu   sync.Mutex
	term *term // nil while this agent does not lead
}

// NewLoop makes a loop; Run runs it.
func NewLoop(cfg LoopConfig) *Loop {
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics()
	}
	if cfg.MaxRequests == 0 {
		cfg.MaxRequests = 1024
	}
	return &Loop{cfg: cfg, watchers: newWatchers()}
}

// term is one time of leading.
type term struct {
	ctx     context.Context
	end     context.CancelCauseFunc
	inputs  chan Input
	queries chan query
	replies *replies
	full    func(queue string) // counts
}

// query reads the core within the loop; what it returns is delivered once all
// that came before it is durable.
type query struct {
	read  func(*Core) any
	reply int
}

// Run campaigns and leads until ctx ends; it then hands over.
func (l *Loop) Run(ctx context.Context) error {
	rest := restFirst
	for ctx.Err() == nil {
		held, err := l.cfg.Store.Campaign(ctx)
		if err != nil {
			return fmt.Errorf("campaign for leadership: %w", err)
		}
		l.cfg.Log.Info("leading", "fence", held.Fence())
		began := time.Now()
		reason := l.lead(ctx, held)
		if isClosed(held.Lost()) || time.Since(began) >= longTerm {
			rest = restFirst // it ended as terms do
		}
		l.cfg.Log.Warn("no longer leading", "reason", reason, "rest", rest)
		resign, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		if err := held.Resign(resign); err != nil {
			l.cfg.Log.Debug("the lock was not given back; it will expire", "error", err)
		}
		cancel()
		select {
		case <-time.After(rest):
			rest = min(2*rest, restMost)
		case <-ctx.Done():
		}
	}
	return nil
}

// Observe hands an input to the core, if this agent leads. It blocks while the
// loop is behind.
func (l *Loop) Observe(in Input) {
	if t := l.leading(); t != nil {
		t.observe(in)
	}
}

func (t *term) observe(in Input) {
	select {
	case t.inputs <- in:
		return
	default:
		t.full("inputs")
	}
	select {
	case t.inputs <- in:
	case <-t.ctx.Done():
	}
}

func (l *Loop) leading() *term {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term
}

// lead runs one term, and returns why it ended.
func (l *Loop) lead(ctx context.Context, held Term) error {
	termCtx, end := context.WithCancelCause(ctx)
	defer end(nil)
	t := &term{
		ctx: termCtx, end: end, full: l.cfg.Metrics.full,
		inputs: make(chan Input, maxInputs), queries: make(chan query, maxInputs), replies: newReplies(l.cfg.MaxRequests),
	}
	found, err := l.load(termCtx, held)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.term = t
	l.mu.Unlock()
	var workers sync.WaitGroup
	defer func() {
		l.mu.Lock()
		l.term = nil
		l.mu.Unlock()
		l.cfg.Nodes.Lead(false, gang.Fence{})
		end(nil)
		workers.Wait()
	}()
	l.cfg.Nodes.Lead(true, held.Fence())

	effects := make(chan Effects, maxEffects)
	workers.Go(func() { newWriter(l, t, held).run(effects) })
	workers.Go(func() {
		if err := l.cfg.Nomad.Watch(termCtx, t.observe); err != nil && termCtx.Err() == nil {
			end(fmt.Errorf("watch Nomad: %w", err))
		}
	})
	l.turn(t, held, found, effects)
	l.cfg.Metrics.deposed()
	return context.Cause(termCtx)
}

// turn is the loop itself.
func (l *Loop) turn(t *term, held Term, found inheritance, effects chan<- Effects) {
	cfg := l.cfg.Core
	cfg.Fence = held.Fence()
	record := l.cfg.Recorder
	if record != nil {
		cfg.Applied = record.Take
	}
	core := NewCore(cfg)
	if record != nil {
		record.Begin(core.Engine())
	}
	termBegan := time.Now()
	step := func(in Input) {
		began := time.Now()
		// Time goes on as the monotonic clock has it, without its reading: what is
		// recorded is all that the core knows of the time. A step of the wall clock
		// is seen by the next term.
		out := core.Step(termBegan.Round(0).UTC().Add(began.Sub(termBegan)), in)
		l.cfg.Metrics.stepped(in, time.Since(began))
		if record != nil && record.WantsBeginning() {
			record.Begin(core.Engine())
		}
		if len(out.Batches)+len(out.Actions) > 0 { // a slow commit is not made slower by ticks
			hand(t, held, effects, out)
		}
	}
	hand(t, held, effects, Effects{Batches: pack(found.repairs)})
	step(found.Restored)
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		held.Pulse()
		select {
		case in := <-t.inputs:
			step(in)
		case q := <-t.queries:
			hand(t, held, effects, Effects{Actions: []Action{delivery{q.reply, q.read(core)}}})
		case <-tick.C:
			step(Tick{})
			l.cfg.Metrics.observe(core)
		case <-held.Lost():
			t.end(errors.New("the lock in Consul is lost"))
			return
		case <-t.ctx.Done():
			return
		}
	}
}

// hand gives effects to the writer. While that is behind, as when Consul elects a
// leader of its own, the loop is not stuck, and says so: how long the writer may
// take for a commit is bounded by the store.
func hand(t *term, held Term, effects chan<- Effects, out Effects) {
	select {
	case effects <- out:
		return
	default:
		t.full("effects")
	}
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		select {
		case effects <- out:
			return
		case <-tick.C:
			held.Pulse()
		case <-held.Lost():
			t.end(errors.New("the lock in Consul is lost"))
			return
		case <-t.ctx.Done():
			return
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
