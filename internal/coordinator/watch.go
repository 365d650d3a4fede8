package coordinator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

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

// watchers are told that a gang changed, not how: they ask.
type watchers struct {
	mu    sync.Mutex
	count int
	of    map[gang.ID]map[chan struct{}]bool
}

func newWatchers() *watchers {
	return &watchers{of: make(map[gang.ID]map[chan struct{}]bool)}
}

func (w *watchers) add(id gang.ID) (<-chan struct{}, func(), error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count >= maxWatchers {
		return nil, nil, gang.ErrOverloaded
	}
	w.count++
	c := make(chan struct{}, 1)
	if w.of[id] == nil {
		w.of[id] = make(map[chan struct{}]bool)
	}
	w.of[id][c] = true
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.count--
		delete(w.of[id], c)
		if len(w.of[id]) == 0 {
			delete(w.of, id)
		}
	}, nil
}

func (w *watchers) poke(id gang.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.of[id] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
