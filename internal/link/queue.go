package link

import (
	"context"
	"sync"

	"github.com/gangd/gangd/internal/link/linkpb"
)

// Queue holds a keeper's reports until they are sent, in order. When it is
// full the oldest step report gives way, then the newest report of any kind
// is refused: what a keeper must not lose it tells again after a reconnect.
type Queue struct {
	mu      sync.Mutex
	reports []*linkpb.KeeperReport
	limit   int
	dropped int
	replay  func() []*linkpb.KeeperReport
	changed chan struct{}
}

// NewQueue makes a queue for at most limit reports.
func NewQueue(limit int) *Queue {
	return &Queue{limit: limit, changed: make(chan struct{}, 1)}
}

// Replay sets the function that gives, after each reconnect, the reports that
// gangd may not have seen. It is called before anything else is sent.
func (q *Queue) Replay(f func() []*linkpb.KeeperReport) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.replay = f
}

// Put adds a report; it never blocks.
func (q *Queue) Put(r *linkpb.KeeperReport) {
	q.mu.Lock()
	if len(q.reports) >= q.limit && !q.dropStep() {
		q.dropped++
		q.mu.Unlock()
		return
	}
	q.reports = append(q.reports, r)
	q.mu.Unlock()
	select {
	case q.changed <- struct{}{}:
	default:
	}
}

// Dropped returns how many reports were lost to the limit.
func (q *Queue) Dropped() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}

func (q *Queue) dropStep() bool {
	for i, r := range q.reports {
		if r.GetStep() != nil {
			q.reports = append(q.reports[:i], q.reports[i+1:]...)
			q.dropped++
			return true
		}
	}
	return false
}

// take waits for reports and removes them.
func (q *Queue) take(ctx context.Context) ([]*linkpb.KeeperReport, error) {
	for {
		q.mu.Lock()
		out := q.reports
		q.reports = nil
		q.mu.Unlock()
		if len(out) > 0 {
			return out, nil
		}
		select {
		case <-q.changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// restart prepares for a new stream: what waits is kept, behind what must be
// told again.
func (q *Queue) restart() []*linkpb.KeeperReport {
	q.mu.Lock()
	f := q.replay
	q.mu.Unlock()
	if f == nil {
		return nil
	}
	return f()
}
