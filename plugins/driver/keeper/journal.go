package keeper

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/plugins/driver/lane"
)

// journal keeps a lane's events until a driver plugin has read them.
type journal struct {
	log hclog.Logger

	mu        sync.Mutex
	waiting   []lane.Event // the oldest give way to more than lane.MaxEvents
	dropped   int          // of them, since that was last logged
	last      int
	followers int
	changed   chan struct{} // closed and replaced when something changes
}

func newJournal(log hclog.Logger) *journal {
	return &journal{log: log, changed: make(chan struct{})}
}

func (j *journal) add(at time.Time, message string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	j.waiting = append(j.waiting, lane.Event{Sequence: j.last, At: at, Message: message})
	if len(j.waiting) > lane.MaxEvents {
		j.waiting = j.waiting[1:]
		j.dropped++
	}
	j.wake()
}

// account logs, once there is somebody to read, what there was no room for. The
// caller holds mu.
func (j *journal) account() {
	if j.dropped > 0 {
		j.log.Warn("task events were dropped, as no driver plugin read them", "dropped", j.dropped, "kept", lane.MaxEvents)
		j.dropped = 0
	}
}

func (j *journal) wake() {
	close(j.changed)
	j.changed = make(chan struct{})
}

// follow sends events until ctx ends or a send fails. What was sent is forgotten.
func (j *journal) follow(ctx context.Context, send func(lane.Event) error) {
	j.attach(1)
	defer j.attach(-1)
	for {
		event, changed := j.next()
		if event == nil {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return
			}
		}
		if send(*event) != nil {
			return
		}
		j.forget(event.Sequence)
	}
}

func (j *journal) attach(n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.followers += n
	j.account()
	j.wake()
}

// flush waits until a follower, if there is one, has read all, or ctx ends.
func (j *journal) flush(ctx context.Context) {
	for {
		j.mu.Lock()
		done, changed := len(j.waiting) == 0 || j.followers == 0, j.changed
		j.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func (j *journal) next() (*lane.Event, <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.waiting) == 0 {
		return nil, j.changed
	}
	event := j.waiting[0]
	return &event, nil
}

func (j *journal) forget(sequence int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.waiting) > 0 && j.waiting[0].Sequence == sequence {
		j.waiting = j.waiting[1:]
		j.wake()
	}
}

// unread returns what nobody has read.
func (j *journal) unread() []lane.Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.account()
	return append([]lane.Event(nil), j.waiting...)
}
