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
	// maxCalls bounds the calls to Nomad and the blob store under way.
	maxCalls = 64
	callTime = 30 * time.Second
	// Calls are tried a few times before the core hears of a failure.
	callTries = 4
	callPause = 250 * time.Millisecond
)

// writer makes effects durable, and does what follows, in order. Calls that
// take time run beside it; those of one lane run one after another.
type writer struct {
	loop  *Loop
	term  *term
	held  Term
	slots chan struct{}
	calls sync.WaitGroup

	mu   sync.Mutex
	last map[gang.LaneID]chan struct{} // closed when the lane's last call is done
}

func newWriter(l *Loop, t *term, held Term) *writer {
	return &writer{loop: l, term: t, held: held, slots: make(chan struct{}, maxCalls), last: make(map[gang.LaneID]chan struct{})}
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
		w.call(a.Lane, func(ctx context.Context) Input {
			version, err := retry(ctx, func() (uint64, error) { return w.loop.cfg.Nomad.OpenLane(ctx, a) })
			return LaneOpened{Lane: a.Lane, Version: version, Fault: err, Template: errors.Is(err, ErrTemplate)}
		})
	case PurgeLane:
		w.call(a.Lane, func(ctx context.Context) Input {
			_, err := retry(ctx, func() (struct{}, error) { return struct{}{}, w.loop.cfg.Nomad.PurgeLane(ctx, a.Job) })
			return LanePurged{Lane: a.Lane, Fault: err}
		})
	case Publish:
		w.call(gang.LaneID(a.Run.Gang), func(ctx context.Context) Input {
			key := fmt.Sprintf("gangs/%s.json", a.Run.Gang)
			_, err := retry(ctx, func() (struct{}, error) { return struct{}{}, w.loop.cfg.Blobs.Publish(ctx, key, a.Manifest) })
			return Published{a.Run, err, errors.Is(err, ErrPublished)}
		})
	case AdmitLane, RefuseLane, StartRun, CancelRun, CloseLane:
		if !w.loop.cfg.Nodes.Order(a) {
			log.Debug("the keeper is away; it will say where it stands when it is back", "order", fmt.Sprintf("%T", a))
		}
	case Answer:
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

// call runs one call beside the writer, after the last one of the same lane.
func (w *writer) call(key gang.LaneID, f func(context.Context) Input) {
	w.mu.Lock()
	before := w.last[key]
	done := make(chan struct{})
	w.last[key] = done
	w.mu.Unlock()
	w.calls.Go(func() {
		defer w.finished(key, done)
		if before != nil {
			<-before
		}
		select {
		case w.slots <- struct{}{}:
		case <-w.term.ctx.Done():
			return
		}
		ctx, cancel := context.WithTimeout(w.term.ctx, callTime)
		in := f(ctx)
		cancel()
		<-w.slots
		select {
		case w.term.inputs <- in:
		case <-w.term.ctx.Done():
		}
	})
}

func (w *writer) finished(key gang.LaneID, done chan struct{}) {
	close(done)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last[key] == done {
		delete(w.last, key)
	}
}

// retry calls f until it succeeds, a template is to blame, or the tries are
// used up.
func retry[T any](ctx context.Context, f func() (T, error)) (T, error) {
	pause := callPause
	for try := 1; ; try++ {
		out, err := f()
		if err == nil || try == callTries || errors.Is(err, ErrTemplate) || errors.Is(err, ErrPublished) || ctx.Err() != nil {
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
