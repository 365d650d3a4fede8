package coordinator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

const (
	// maxGroup bounds how many effects are committed together.
	maxGroup = 256
	// maxCalls bounds the calls to Nomad under way, whose agents refuse a client's
	// connections beyond 100, and as many to the blob store: a result need not wait
	// for Nomad's servers to come back. What waits for them is bounded by the lanes
	// there are.
	maxCalls = 32
	callTime = 30 * time.Second
	// Calls are tried a few times before the core hears of a failure.
	callTries = 4
	callPause = 250 * time.Millisecond
)

// writer makes effects durable, and does what follows, in order. Calls that
// take time run beside it; those of one lane, or gang, run one after another.
type writer struct {
	loop  *Loop
	term  *term
	held  Term
	nomad chan struct{} // has room for maxCalls, as blobs has
	blobs chan struct{}
	calls sync.WaitGroup

	mu   sync.Mutex
	last map[callKey]*call
}

// callKey names the lane, or the gang, whose calls run one after another.
type callKey string

func laneCalls(id gang.LaneID) callKey { return callKey("lane/" + id) }
func gangCalls(id gang.ID) callKey     { return callKey("gang/" + id) }

// call is one call beside the writer.
type call struct {
	// purges is the job that it purges, if that is what it does.
	purges string
	begun  bool
	done   chan struct{} // closed at its end
}

func newWriter(l *Loop, t *term, held Term) *writer {
	return &writer{
		loop: l, term: t, held: held, last: make(map[callKey]*call),
		nomad: make(chan struct{}, maxCalls), blobs: make(chan struct{}, maxCalls),
	}
}

// run writes until the term ends, or Commit fails, which ends it. From then on
// nobody is answered; calls under way may take until they notice.
func (w *writer) run(effects <-chan Effects) {
	w.term.end(w.writeAll(effects))
	w.term.replies.abandon(errTermEnded)
	w.calls.Wait()
}

func (w *writer) writeAll(effects <-chan Effects) error {
	for {
		select {
		case first := <-effects:
			group := gather(first, effects)
			// Once the term has ended the loop drops effects. What came after one
			// of them must not be written without it.
			if w.term.ctx.Err() != nil {
				return context.Cause(w.term.ctx)
			}
			if err := w.write(group); err != nil {
				return err
			}
		case <-w.term.ctx.Done():
			return context.Cause(w.term.ctx)
		}
	}
}

// gather takes what waits already, so that one transaction serves many.
func gather(first Effects, effects <-chan Effects) []Effects {
	group := []Effects{first}
	for len(group) < maxGroup {
		select {
		case next := <-effects:
			group = append(group, next)
		default:
			return group
		}
	}
	return group
}

func (w *writer) write(group []Effects) error {
	var batches []gang.Batch
	for _, e := range group {
		batches = append(batches, e.Batches...)
	}
	if len(batches) > 0 {
		began := time.Now()
		committed, err := w.held.Commit(w.term.ctx, batches)
		if err != nil {
			w.answer(group, committed)
			return fmt.Errorf("write %d batches to Consul: %w", len(batches), err)
		}
		w.loop.cfg.Metrics.committed(len(batches), time.Since(began))
	}
	for _, e := range group {
		for _, a := range e.Actions {
			w.do(a)
		}
	}
	return nil
}

// answer tells those who wait for a group whose commit failed what is known. What
// the first committed batches made is durable, and answered as ever. What came
// after them may be durable or not, where it was to be written at all.
func (w *writer) answer(group []Effects, committed int) {
	for _, e := range group {
		committed -= len(e.Batches)
		for _, a := range e.Actions {
			switch a := a.(type) {
			case Answer:
				if committed >= 0 {
					w.term.replies.give(a.Reply, a)
				} else if len(e.Batches) > 0 {
					w.term.replies.give(a.Reply, errUndecided)
				}
			case delivery:
				if committed >= 0 {
					w.term.replies.give(a.reply, a.value)
				}
			}
		}
	}
}

func (w *writer) do(a Action) {
	log := w.loop.cfg.Log
	switch a := a.(type) {
	case OpenLane:
		w.call(laneCalls(a.Lane), &call{}, w.nomad, func(ctx context.Context) Input {
			version, err := retry(ctx, func() (uint64, error) { return w.loop.cfg.Nomad.OpenLane(ctx, a) })
			return LaneOpened{Lane: a.Lane, Version: version, Err: err}
		})
	case PurgeLane:
		w.call(laneCalls(a.Lane), &call{purges: a.Job}, w.nomad, func(ctx context.Context) Input {
			_, err := retry(ctx, func() (struct{}, error) { return struct{}{}, w.loop.cfg.Nomad.PurgeLane(ctx, a.Job) })
			return LanePurged{Lane: a.Lane, Err: err}
		})
	case Publish:
		w.call(gangCalls(a.Run.Gang), &call{}, w.blobs, func(ctx context.Context) Input {
			key := fmt.Sprintf("gangs/%s.json", a.Run.Gang)
			_, err := retry(ctx, func() (struct{}, error) { return struct{}{}, w.loop.cfg.Blobs.Publish(ctx, key, a.Manifest) })
			return Published{a.Run, err}
		})
	case AdmitLane, RefuseLane, StartRun, CancelRun, CloseLane:
		if !w.loop.cfg.Nodes.Order(a) {
			log.Debug("the keeper is away; it will say where it stands when it is back", "order", fmt.Sprintf("%T", a))
		}
	case Answer:
		if errors.Is(a.Err, gang.ErrOverloaded) {
			w.term.full("gangs")
		}
		w.term.replies.give(a.Reply, a)
	case delivery:
		w.term.replies.give(a.reply, a.value)
	case Changed:
		w.loop.watchers.poke(a.ID)
	case Fault:
		w.loop.cfg.Metrics.faults.Inc()
		log.Error("this should not have happened", "error", a.Err)
	case Note:
		log.Info(a.Text, a.Args...)
	}
}

// delivery hands the result of a query to its asker.
type delivery struct {
	reply int
	value any
}

func (delivery) action() {}

// call runs one call beside the writer, after the last one of the same key. A
// job that is to be purged already, as Nomad may tell of a stray one again and
// again, is not purged a second time.
func (w *writer) call(key callKey, c *call, slots chan struct{}, f func(context.Context) Input) {
	c.done = make(chan struct{})
	w.mu.Lock()
	before := w.last[key]
	if before != nil && !before.begun && c.purges != "" && before.purges == c.purges {
		w.mu.Unlock()
		return
	}
	w.last[key] = c
	w.mu.Unlock()
	w.calls.Go(func() {
		defer w.finished(key, c)
		if before != nil {
			<-before.done // which has a bound, as this one has
		}
		if !w.begin(c, slots) {
			return
		}
		ctx, cancel := context.WithTimeout(w.term.ctx, callTime)
		in := f(ctx)
		cancel()
		<-slots
		w.term.observe(in)
	})
}

// begin waits for a slot; it reports false where the term ends first.
func (w *writer) begin(c *call, slots chan struct{}) bool {
	select {
	case slots <- struct{}{}:
	default:
		w.loop.cfg.Metrics.full("calls")
		select {
		case slots <- struct{}{}:
		case <-w.term.ctx.Done():
			return false
		}
	}
	if w.term.ctx.Err() != nil {
		<-slots
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c.begun = true
	return true
}

func (w *writer) finished(key callKey, c *call) {
	close(c.done)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last[key] == c {
		delete(w.last, key)
	}
}

// retry calls f until it succeeds, a template is the cause, or the tries are
// used up.
func retry[T any](ctx context.Context, f func() (T, error)) (T, error) {
	pause := callPause
	for try := 1; ; try++ {
		out, err := f()
		final := errors.Is(err, ErrTemplate) || errors.Is(err, ErrTemplateVersion) || errors.Is(err, ErrPublished)
		if err == nil || try == callTries || final || ctx.Err() != nil {
			return out, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return out, err
		}
		pause *= 2
	}
}
