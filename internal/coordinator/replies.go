package coordinator

import (
	"errors"
	"fmt"
	"sync"

	"github.com/gangd/gangd/internal/gang"
)

// replies matches answers with those who wait for them.
type replies struct {
	limit int

	mu      sync.Mutex
	next    int
	waiting map[int]chan any
	closed  bool
}

func newReplies(limit int) *replies {
	return &replies{limit: limit, waiting: make(map[int]chan any)}
}

// expect makes room for an answer.
func (t *term) expect() (int, <-chan any, error) {
	reply, answer, err := t.replies.expect()
	if errors.Is(err, gang.ErrOverloaded) {
		t.full("requests")
	}
	return reply, answer, err
}

func (r *replies) expect() (int, <-chan any, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, nil, gang.ErrNotLeading
	}
	if len(r.waiting) >= r.limit {
		return 0, nil, fmt.Errorf("%d requests wait for an answer, as many as may: %w", r.limit, gang.ErrOverloaded)
	}
	r.next++
	c := make(chan any, 1)
	r.waiting[r.next] = c
	return r.next, c, nil
}

func (r *replies) give(reply int, value any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.waiting[reply]; c != nil {
		c <- value
		delete(r.waiting, reply)
	}
}

func (r *replies) drop(reply int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, reply)
}

// abandon answers all who wait, and takes no more.
func (r *replies) abandon(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for reply, c := range r.waiting {
		c <- err
		delete(r.waiting, reply)
	}
}
