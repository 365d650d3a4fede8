package consul

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/gangd/gangd/internal/gang"
)

// unheardLimit is after how long without an answer from Consul a leader holds
// the lock for lost. Its check has then failed long since.
const unheardLimit = 5 * time.Second

// Term is one time of leading. Its methods are safe for use by many
// goroutines.
type Term struct {
	*candidacy
	fence      gang.Fence
	epochIndex uint64

	// mu admits one commit at a time: each goes on from where the last ended.
	mu        sync.Mutex
	headIndex uint64 // ModifyIndex of log/head
	sequence  uint64 // the newest transaction's number

	end  sync.Once
	lost chan struct{}
}

// Fence is what every write and order of the term carries.
func (t *Term) Fence() gang.Fence { return t.fence }

// Pulse says that the leader's loop turns. It never blocks and costs next to
// nothing. The loop calls it at least every 500 ms, also while it loads; 1.5 s
// without it lose the lock.
func (t *Term) Pulse() { t.alive.pulse() }

// Lost is closed when the lock is known to be lost or must be taken for lost:
// another holds it, Consul was not heard for 5 s, or the outcome of a commit
// stayed unknown. It is closed by Resign too.
func (t *Term) Lost() <-chan struct{} { return t.lost }

// Resign hands the leadership over: the next agent has it within
// milliseconds.
func (t *Term) Resign(ctx context.Context) error {
	t.finish()
	s := t.store
	_, err := s.transact(ctx, api.TxnOps{{KV: &api.KVTxnOp{
		Verb: api.KVUnlock, Key: s.prefix + leaderKey, Session: t.session, Value: []byte("{}"),
	}}})
	t.destroySession(ctx)
	if err != nil {
		return fmt.Errorf("resign from the leadership: %w", err)
	}
	return nil
}

// finish ends the term in this process. What it held in Consul goes with its
// check, or at the next campaign of this agent.
func (t *Term) finish() {
	t.end.Do(func() {
		close(t.lost)
		t.alive.stop()
	})
}

func (t *Term) start() {
	t.alive.follow()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-t.lost
		cancel()
	}()
	go func() {
		select {
		case <-t.alive.silent:
			t.store.log.Error("Consul is not heard, the leadership is taken for lost", "for", unheardLimit)
			t.finish()
		case <-t.lost:
		}
	}()
	go t.watch(ctx)
}

// watch ends the term when another session holds the lock, or none.
func (t *Term) watch(ctx context.Context) {
	var index uint64
	for ctx.Err() == nil {
		opts := &api.QueryOptions{RequireConsistent: true, WaitIndex: index, WaitTime: watchTime}
		pair, meta, err := t.store.get(ctx, leaderKey, opts)
		if err != nil {
			index = 0
			_ = pause(ctx, retryMin) // only ends early
			continue
		}
		if pair == nil || pair.Session != t.session {
			if ctx.Err() == nil {
				t.store.log.Warn("the leadership is lost", "fence", t.fence)
			}
			t.finish()
			return
		}
		index = nextIndex(index, meta.LastIndex)
	}
}

// liveness refreshes a check: by itself while the agent is a candidate, at the
// pulse of its loop while it leads.
type liveness struct {
	store   *Store
	checkID string
	pulses  chan struct{}
	// following is closed when only pulses count.
	following chan struct{}
	// silent is closed when pulses went without an answer for unheardLimit.
	silent chan struct{}
	cancel context.CancelFunc
}

func keepAlive(s *Store, checkID string) *liveness {
	ctx, cancel := context.WithCancel(context.Background())
	l := &liveness{
		store: s, checkID: checkID, cancel: cancel,
		pulses:    make(chan struct{}, 1),
		following: make(chan struct{}),
		silent:    make(chan struct{}),
	}
	go l.run(ctx)
	return l
}

func (l *liveness) stop()   { l.cancel() }
func (l *liveness) follow() { l.pulse(); close(l.following) }

func (l *liveness) pulse() {
	select {
	case l.pulses <- struct{}{}:
	default: // one waits already
	}
}

func (l *liveness) run(ctx context.Context) {
	l.candidate(ctx)
	heard := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.pulses:
		}
		if err := l.store.pass(ctx, l.checkID); err == nil {
			heard = time.Now()
		} else if ctx.Err() == nil {
			l.store.log.Warn("cannot say that the leader is alive", "error", err)
		}
		if time.Since(heard) > unheardLimit {
			close(l.silent)
			return
		}
		if pause(ctx, passEvery) != nil {
			return
		}
	}
}

// candidate refreshes the check until the agent leads.
func (l *liveness) candidate(ctx context.Context) {
	for {
		err := l.store.pass(ctx, l.checkID)
		if hasStatus(err, http.StatusNotFound) {
			// Somebody removed the service; the nodes look for it.
			err = l.store.registerCheck(ctx, l.checkID)
		}
		if err != nil && ctx.Err() == nil {
			l.store.log.Warn("cannot say that the candidate is alive", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-l.following:
			return
		case <-time.After(passEvery):
		}
	}
}
