package coordinator

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

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
	for _, s := range specs {
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
	if err := checkSize(specs); err != nil {
		return nil, err
	}
	return l.request(ctx, func(reply int) Input {
		return SubmitRequest{Specs: specs, Templates: checked, Random: random, Reply: reply}
	})
}

// Cancel ends a gang for good.
func (l *Loop) Cancel(ctx context.Context, id gang.ID) (gang.Status, error) {
	return l.requestOne(ctx, func(reply int) Input { return CancelRequest{ID: id, Reply: reply} })
}

// Hold keeps a gang that waits from starting, or no longer does.
func (l *Loop) Hold(ctx context.Context, id gang.ID, held bool) (gang.Status, error) {
	return l.requestOne(ctx, func(reply int) Input { return HoldRequest{ID: id, Held: held, Reply: reply} })
}

// Reorder moves a gang that waits before another of its tenant and tier; where
// none is named, before or behind all of them.
func (l *Loop) Reorder(ctx context.Context, id, before gang.ID, last bool) (gang.Status, error) {
	return l.requestOne(ctx, func(reply int) Input { return ReorderRequest{ID: id, Before: before, Last: last, Reply: reply} })
}

// Windows lists the maintenance windows that are planned, by their beginning.
func (l *Loop) Windows(ctx context.Context) ([]gang.WindowStatus, error) {
	return ask(ctx, l, (*Core).windowStatuses)
}

// PlanWindow plans a maintenance window, or another than before under its name.
func (l *Loop) PlanWindow(ctx context.Context, w gang.Window) error {
	_, err := l.request(ctx, func(reply int) Input { return WindowRequest{Window: w, Reply: reply} })
	return err
}

// CallWindowOff ends a maintenance window, or one that was to be.
func (l *Loop) CallWindowOff(ctx context.Context, name string) error {
	_, err := l.request(ctx, func(reply int) Input { return WindowGoneRequest{Name: name, Reply: reply} })
	return err
}

// Outlook returns a gang with what is to be expected of it.
func (l *Loop) Outlook(ctx context.Context, id gang.ID) (gang.Outlook, error) {
	found, err := ask(ctx, l, func(c *Core) *gang.Outlook {
		if g := c.gangs[id]; g != nil {
			out := c.outlook(g)
			return &out
		}
		return nil
	})
	if err == nil && found == nil {
		err = fmt.Errorf("look for gang %s: %w", id, gang.ErrNotFound)
	}
	if err != nil {
		return gang.Outlook{}, err
	}
	return *found, nil
}

// Shares says who has how much of the cluster.
func (l *Loop) Shares(ctx context.Context) (gang.Shares, error) {
	return ask(ctx, l, (*Core).shares)
}

// requestOne sends an input that is answered with one gang.
func (l *Loop) requestOne(ctx context.Context, in func(reply int) Input) (gang.Status, error) {
	statuses, err := l.request(ctx, in)
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
