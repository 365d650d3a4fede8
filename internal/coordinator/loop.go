package coordinator

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
)

// LoopConfig is what a loop needs.
type LoopConfig struct {
	Core  Config // Fence is filled in with each term
	Store Store
	Nomad Nomad
	Nodes Nodes
	Blobs Publisher
	Log   hclog.Logger
	// Metrics may be nil.
	Metrics *Metrics
	// MaxRequests bounds the requests that wait for an answer at one time; 0
	// means 1024.
	MaxRequests int
}

// Loop campaigns for leadership, and while it leads, runs the core.
type Loop struct {
	cfg LoopConfig

	mu       sync.Mutex
	term     *term // nil while this agent does not lead
	watchers watchers
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
	replies replies
}

// query reads the core within the loop; what it returns is delivered once all
// that came before it is durable.
type query struct {
	read  func(*Core) any
	reply int
}

// Run campaigns and leads until ctx ends; it then hands over.
func (l *Loop) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		held, err := l.cfg.Store.Campaign(ctx)
		if err != nil {
			return fmt.Errorf("campaign for leadership: %w", err)
		}
		l.cfg.Log.Info("leading", "fence", held.Fence())
		err = l.lead(ctx, held)
		l.cfg.Log.Warn("no longer leading", "reason", err)
		resign, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		if err := held.Resign(resign); err != nil {
			l.cfg.Log.Debug("the lock was not given back; it will expire", "error", err)
		}
		cancel()
	}
	return nil
}

// Observe hands an input to the core, if this agent leads. It blocks while the
// loop is behind.
func (l *Loop) Observe(in Input) {
	if t := l.leading(); t != nil {
		select {
		case t.inputs <- in:
		case <-t.ctx.Done():
		}
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
	t := &term{ctx: termCtx, end: end, inputs: make(chan Input, maxInputs), queries: make(chan query, maxInputs), replies: newReplies(l.cfg.MaxRequests)}
	restored, err := l.load(termCtx, held)
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
		err := l.cfg.Nomad.Watch(termCtx, func(in Input) {
			select {
			case t.inputs <- in:
			case <-termCtx.Done():
			}
		})
		if err != nil && termCtx.Err() == nil {
			end(fmt.Errorf("watch Nomad: %w", err))
		}
	})
	l.turn(t, held, restored, effects)
	return context.Cause(termCtx)
}

// turn is the loop itself.
func (l *Loop) turn(t *term, held Term, restored Restored, effects chan<- Effects) {
	cfg := l.cfg.Core
	cfg.Fence = held.Fence()
	core := NewCore(cfg)
	step := func(in Input) {
		began := time.Now()
		out := core.Step(began, in)
		l.cfg.Metrics.stepped(in, time.Since(began))
		if len(out.Batches)+len(out.Actions) == 0 {
			return // a slow commit is not made slower by ticks
		}
		select {
		case effects <- out:
		case <-t.ctx.Done():
		}
	}
	step(restored)
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		held.Pulse()
		select {
		case in := <-t.inputs:
			step(in)
		case q := <-t.queries:
			select {
			case effects <- Effects{Actions: []Action{delivery{q.reply, q.read(core)}}}:
			case <-t.ctx.Done():
			}
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

// load reads what the last term left, and keeps the lock meanwhile.
func (l *Loop) load(ctx context.Context, held Term) (Restored, error) {
	type result struct {
		restored Restored
		err      error
	}
	done := make(chan result, 1)
	go func() {
		restored, err := l.read(ctx)
		done <- result{restored, err}
	}()
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		select {
		case r := <-done:
			return r.restored, r.err
		case <-tick.C:
			held.Pulse()
		case <-held.Lost():
			return Restored{}, errors.New("the lock in Consul was lost while the records were read")
		case <-ctx.Done():
			return Restored{}, ctx.Err()
		}
	}
}

func (l *Loop) read(ctx context.Context) (Restored, error) {
	out := Restored{Specs: make(map[gang.ID]*gang.Spec)}
	for prefix, take := range map[string]func(KV) error{
		"gangs/": func(kv KV) error {
			r, err := gang.DecodeRecord(kv.Key, kv.Value)
			out.Gangs = append(out.Gangs, r)
			return err
		},
		"specs/": func(kv KV) error {
			s, err := gang.DecodeSpec(kv.Key, kv.Value)
			out.Specs[gang.ID(strings.TrimPrefix(kv.Key, "specs/"))] = s
			return err
		},
		"lanes/": func(kv KV) error {
			r, err := gang.DecodeLane(kv.Key, kv.Value)
			out.Lanes = append(out.Lanes, r)
			return err
		},
	} {
		kvs, err := l.cfg.Store.Load(ctx, prefix)
		if err != nil {
			return out, fmt.Errorf("take over: %w", err)
		}
		for _, kv := range kvs {
			if err := take(kv); err != nil {
				return out, fmt.Errorf("take over: %w", err)
			}
		}
	}
	return out, nil
}
