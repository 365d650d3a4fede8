package coordinator

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// MaxSpecs bounds the gangs of one submission: with their specifications they
// fit one transaction.
const MaxSpecs = gang.MaxBatch / 2

// Submit accepts all gangs or none; what it returns is durable.
func (l *Loop) Submit(ctx context.Context, specs []gang.Spec) ([]gang.Status, error) {
	if len(specs) == 0 || len(specs) > MaxSpecs {
		return nil, gang.Refuse("a submission has 1 to %d gangs, this one has %d", MaxSpecs, len(specs))
	}
	checked := make(map[string]Template)
	params := 0
	for _, s := range specs {
		if params += len(s.Params); params > gang.MaxBatchBytes/2 {
			return nil, gang.Refuse("the params of a submission's gangs may have %d bytes in all: submit fewer at a time", gang.MaxBatchBytes/2)
		}
		if err := s.Validate(); err != nil {
			return nil, gang.NameRefused(s.Name, gang.Refuse("%v", err))
		}
		if _, done := checked[s.Template]; done {
			continue
		}
		template, err := l.cfg.Nomad.CheckTemplate(ctx, s.Template)
		switch {
		case errors.Is(err, ErrTemplate):
			return nil, gang.NameRefused(s.Name, gang.RefuseField("template", "%v", err))
		case err != nil:
			return nil, fmt.Errorf("check template %s: %w: %w", s.Template, err, gang.ErrNotNow)
		}
		checked[s.Template] = template
	}
	specs = slices.Clone(specs)
	random := make([][5]byte, len(specs))
	for i := range specs {
		checked[specs[i].Template].fill(&specs[i])
		rand.Read(random[i][:])
	}
	return l.request(ctx, func(reply int) Input {
		return SubmitRequest{Specs: specs, Templates: checked, Random: random, Reply: reply}
	})
}

// Cancel ends a gang for good.
func (l *Loop) Cancel(ctx context.Context, id gang.ID) (gang.Status, error) {
	statuses, err := l.request(ctx, func(reply int) Input { return CancelRequest{ID: id, Reply: reply} })
	if len(statuses) == 1 {
		return statuses[0], err
	}
	return gang.Status{}, err
}

// request sends an input that is answered.
func (l *Loop) request(ctx context.Context, in func(reply int) Input) ([]gang.Status, error) {
	t := l.leading()
	if t == nil {
		return nil, gang.ErrNotLeading
	}
	reply, answer, err := t.expect()
	if err != nil {
		return nil, err
	}
	defer t.replies.drop(reply)
	select {
	case t.inputs <- in(reply):
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-t.ctx.Done():
		return nil, gang.ErrNotLeading
	}
	// When the term ends, what is asked may be on its way to Consul. The writer
	// knows what became of it, and abandons whoever it cannot answer.
	value, err := await(ctx, nil, answer)
	if err != nil {
		return nil, err
	}
	a := value.(Answer)
	return a.Statuses, a.Err
}

// ask reads the core.
func ask[T any](ctx context.Context, l *Loop, read func(*Core) T) (T, error) {
	var zero T
	t := l.leading()
	if t == nil {
		return zero, gang.ErrNotLeading
	}
	reply, answer, err := t.expect()
	if err != nil {
		return zero, err
	}
	defer t.replies.drop(reply)
	select {
	case t.queries <- query{func(c *Core) any { return read(c) }, reply}:
	case <-ctx.Done():
		return zero, ctx.Err()
	case <-t.ctx.Done():
		return zero, gang.ErrNotLeading
	}
	value, err := await(ctx, t.ctx.Done(), answer)
	if err != nil {
		return zero, err
	}
	return value.(T), nil
}

// await takes an answer; it ends with ctx, or, with gang.ErrNotLeading, with the
// term.
func await(ctx context.Context, ended <-chan struct{}, answer <-chan any) (any, error) {
	select {
	case value := <-answer:
		if err, failed := value.(error); failed {
			return nil, err
		}
		return value, nil
	case <-ended:
		return nil, errTermEnded
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// What those are told who wait for an answer at the end of a term: what they
// asked for was not done, or may have been.
var (
	errTermEnded = fmt.Errorf("this agent stopped leading before the request was answered: %w", gang.ErrNotLeading)
	errUndecided = fmt.Errorf("this agent stopped leading while the request was written; %w (%w)", gang.ErrOutcomeUnknown, gang.ErrNotLeading)
)

// Gang returns one gang, with its specification.
func (l *Loop) Gang(ctx context.Context, id gang.ID) (gang.Status, error) {
	found, err := ask(ctx, l, func(c *Core) *gang.Status {
		if g := c.gangs[id]; g != nil {
			s := c.status(g, true)
			return &s
		}
		return nil
	})
	if err == nil && found == nil {
		err = fmt.Errorf("look for gang %s: %w", id, gang.ErrNotFound)
	}
	if err != nil {
		return gang.Status{}, err
	}
	return *found, nil
}

// Gangs lists the gangs that are wanted: those that live by acceptance, then
// those that have ended, the latest first. Total counts those beyond the limit
// too.
func (l *Loop) Gangs(ctx context.Context, want gang.Selection) (gangs []gang.Status, total int, err error) {
	found, err := ask(ctx, l, func(c *Core) listing { return c.list(want) })
	return found.gangs, found.total, err
}

// Nodes returns the nodes in the order in which they were first seen.
func (l *Loop) Nodes(ctx context.Context) ([]cluster.NodeStatus, error) {
	nodes, err := ask(ctx, l, (*Core).nodeStatuses)
	for i := range nodes {
		for _, g := range nodes[i].GPUs {
			if age, known := l.cfg.Nodes.Heard(g.UUID); known {
				nodes[i].HeardMillis = age.Milliseconds()
				break
			}
		}
	}
	return nodes, err
}

// Leading reports whether this agent leads.
func (l *Loop) Leading() bool { return l.leading() != nil }

// Watch sends a gang's status now and whenever it changes, the latest where
// the reader is slow, and closes the channel after a terminal one, or when ctx
// or the term ends: who leads next knows how the gang goes on.
func (l *Loop) Watch(ctx context.Context, id gang.ID) (<-chan gang.Status, error) {
	t := l.leading()
	if t == nil {
		return nil, gang.ErrNotLeading
	}
	poked, forget, err := l.watchers.add(id)
	if err != nil {
		l.cfg.Metrics.full("followers")
		return nil, fmt.Errorf("follow gang %s: %d follow gangs already: %w", id, maxWatchers, err)
	}
	first, err := l.Gang(ctx, id)
	if err != nil {
		forget()
		return nil, err
	}
	out := make(chan gang.Status, 1)
	go func() {
		defer close(out)
		defer forget()
		for s, err := first, error(nil); err == nil; s, err = l.news(ctx, t, id, poked) {
			select {
			case out <- s:
			case <-ctx.Done():
				return
			case <-t.ctx.Done():
				return
			}
			if s.State.Terminal() {
				return
			}
		}
	}()
	return out, nil
}

// askAgain is the pause of a follower who finds too many requests waiting, as
// when much changes at once and all followers ask.
const askAgain = 250 * time.Millisecond

// news waits until a gang has changed, and returns how it stands.
func (l *Loop) news(ctx context.Context, t *term, id gang.ID, poked <-chan struct{}) (gang.Status, error) {
	var again <-chan time.Time
	for {
		select {
		case <-poked:
		case <-again:
		case <-ctx.Done():
			return gang.Status{}, ctx.Err()
		case <-t.ctx.Done():
			return gang.Status{}, errTermEnded
		}
		s, err := l.Gang(ctx, id)
		if !errors.Is(err, gang.ErrOverloaded) {
			return s, err
		}
		again = time.After(askAgain)
	}
}

// maxWatchers bounds those who follow a gang at one time.
const maxWatchers = 8192

// replies matches answers with those who wait for them.
type replies struct {
	*sync.Mutex
	next    *int
	waiting map[int]chan any
	limit   int
	closed  *bool
}

func newReplies(limit int) replies {
	return replies{new(sync.Mutex), new(int), make(map[int]chan any), limit, new(bool)}
}

// expect makes room for an answer.
func (t *term) expect() (int, <-chan any, error) {
	reply, answer, err := t.replies.expect()
	if errors.Is(err, gang.ErrOverloaded) {
		t.full("requests")
	}
	return reply, answer, err
}

func (r replies) expect() (int, <-chan any, error) {
	r.Lock()
	defer r.Unlock()
	if *r.closed {
		return 0, nil, gang.ErrNotLeading
	}
	if len(r.waiting) >= r.limit {
		return 0, nil, gang.ErrOverloaded
	}
	*r.next++
	c := make(chan any, 1)
	r.waiting[*r.next] = c
	return *r.next, c, nil
}

func (r replies) give(reply int, value any) {
	r.Lock()
	defer r.Unlock()
	if c := r.waiting[reply]; c != nil {
		c <- value
		delete(r.waiting, reply)
	}
}

func (r replies) drop(reply int) {
	r.Lock()
	defer r.Unlock()
	delete(r.waiting, reply)
}

// abandon answers all who wait, and takes no more.
func (r replies) abandon(err error) {
	r.Lock()
	defer r.Unlock()
	*r.closed = true
	for reply, c := range r.waiting {
		c <- err
		delete(r.waiting, reply)
	}
}

// watchers are told that a gang changed, not how: they ask.
type watchers struct {
	*sync.Mutex
	count *int
	of    map[gang.ID]map[chan struct{}]bool
}

func newWatchers() watchers {
	return watchers{new(sync.Mutex), new(int), make(map[gang.ID]map[chan struct{}]bool)}
}

func (w watchers) add(id gang.ID) (<-chan struct{}, func(), error) {
	w.Lock()
	defer w.Unlock()
	if *w.count >= maxWatchers {
		return nil, nil, gang.ErrOverloaded
	}
	*w.count++
	c := make(chan struct{}, 1)
	if w.of[id] == nil {
		w.of[id] = make(map[chan struct{}]bool)
	}
	w.of[id][c] = true
	return c, func() {
		w.Lock()
		defer w.Unlock()
		*w.count--
		delete(w.of[id], c)
		if len(w.of[id]) == 0 {
			delete(w.of, id)
		}
	}, nil
}

func (w watchers) poke(id gang.ID) {
	w.Lock()
	defer w.Unlock()
	for c := range w.of[id] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
