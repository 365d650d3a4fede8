package consul

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/gangd/gangd/internal/gang"
)

// lockDelay is how long Consul keeps a lock that was lost from being taken.
// The transactions' own checks do what it is for; 0 would mean 15 s.
const lockDelay = time.Millisecond

// firstEpoch is the epoch of a cluster that was never restored.
const firstEpoch = "1"

// Campaign waits until this agent leads. It tries again whatever happens, and
// returns an error only when ctx ends. The caller begins to call Pulse at
// once.
func (s *Store) Campaign(ctx context.Context) (*Term, error) {
	wait := retryMin
	for {
		term, err := s.stand(ctx)
		if err == nil {
			return term, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("campaign for the leadership: %w", ctx.Err())
		}
		s.log.Warn("cannot campaign for the leadership, will try again", "error", err, "wait", wait)
		if err := pause(ctx, wait); err != nil {
			return nil, fmt.Errorf("campaign for the leadership: %w", err)
		}
		wait = min(2*wait, retryMax)
	}
}

// candidacy is a session that stands for the lock: what it takes to lead but
// the lock itself.
type candidacy struct {
	store   *Store
	alive   *liveness
	checkID string
	session string
}

// stand makes a session and takes the lock once it is free.
func (s *Store) stand(ctx context.Context) (*Term, error) {
	c := &candidacy{store: s, checkID: s.httpID() + ":" + rand.Text()}
	if err := s.ensureEpoch(ctx); err != nil {
		return nil, err
	}
	if err := s.registerCheck(ctx, c.checkID); err != nil {
		return nil, err
	}
	c.alive = keepAlive(s, c.checkID)
	term, err := c.win(ctx)
	if err != nil {
		c.alive.stop()
		c.destroySession(context.WithoutCancel(ctx))
		return nil, err
	}
	return term, nil
}

func (c *candidacy) win(ctx context.Context) (*Term, error) {
	if err := c.store.waitPassing(ctx, c.checkID); err != nil {
		return nil, err
	}
	if err := c.createSession(ctx); err != nil {
		return nil, err
	}
	for {
		term, err := c.tryLock(ctx)
		if term != nil || err != nil {
			return term, err
		}
		if err := c.waitFree(ctx); err != nil {
			return nil, err
		}
	}
}

func (c *candidacy) createSession(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	entry := &api.SessionEntry{
		Name:          "gangd leader " + c.store.identity.Name,
		LockDelay:     lockDelay,
		Behavior:      api.SessionBehaviorRelease,
		NodeChecks:    []string{"serfHealth"},
		ServiceChecks: []api.ServiceCheck{{ID: c.checkID}},
	}
	id, _, err := c.store.client.Session().Create(entry, new(api.WriteOptions).WithContext(ctx))
	if err != nil {
		return fmt.Errorf("create a session in Consul: %w", err)
	}
	c.session = id
	return nil
}

func (c *candidacy) destroySession(ctx context.Context) {
	if c.session == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if _, err := c.store.client.Session().Destroy(c.session, new(api.WriteOptions).WithContext(ctx)); err != nil {
		c.store.log.Warn("cannot destroy a session, it ends with its check", "session", c.session, "error", err)
	}
}

// tryLock takes the lock and reads the epoch in one transaction. It returns
// neither a term nor an error if another session holds the lock.
func (c *candidacy) tryLock(ctx context.Context) (*Term, error) {
	s := c.store
	value, err := json.Marshal(s.identity)
	if err != nil {
		return nil, fmt.Errorf("encode the agent's identity: %w", err)
	}
	result, err := s.transact(ctx, api.TxnOps{
		{KV: &api.KVTxnOp{Verb: api.KVGet, Key: s.prefix + epochKey}},
		{KV: &api.KVTxnOp{Verb: api.KVLock, Key: s.prefix + leaderKey, Value: value, Session: c.session}},
		{KV: &api.KVTxnOp{Verb: api.KVGetOrEmpty, Key: s.prefix + headKey}},
	})
	if err != nil {
		return nil, fmt.Errorf("take the lock: %w", err)
	}
	if len(result.Errors) > 0 {
		return nil, c.whyRefused(ctx, result.Errors)
	}
	if len(result.Results) != 3 {
		return nil, fmt.Errorf("take the lock: the answer has %d results, not 3", len(result.Results))
	}
	epoch, lock, head := result.Results[0].KV, result.Results[1].KV, result.Results[2].KV
	return c.newTerm(epoch, lock, head)
}

func (c *candidacy) newTerm(epoch, lock, head *api.KVPair) (*Term, error) {
	n, err := strconv.ParseUint(string(epoch.Value), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%s is no number: %q: set it to one above the last epoch", epoch.Key, epoch.Value)
	}
	var last logHead
	if len(head.Value) > 0 {
		if err := json.Unmarshal(head.Value, &last); err != nil {
			return nil, fmt.Errorf("read %s: %w", head.Key, err)
		}
	}
	t := &Term{
		candidacy:  c,
		fence:      gang.Fence{Epoch: n, Index: lock.ModifyIndex},
		epochIndex: epoch.ModifyIndex,
		headIndex:  head.ModifyIndex,
		sequence:   last.N,
		lost:       make(chan struct{}),
	}
	t.start()
	return t, nil
}

// whyRefused returns nil if another agent has the lock, or had it a moment
// ago, else why this candidacy cannot have it.
func (c *candidacy) whyRefused(ctx context.Context, refusals api.TxnErrors) error {
	pair, _, err := c.store.get(ctx, leaderKey, &api.QueryOptions{RequireConsistent: true})
	if err != nil || pair != nil && pair.Session != "" {
		return err
	}
	opts := new(api.QueryOptions).WithContext(ctx)
	entry, _, err := c.store.client.Session().Info(c.session, opts)
	if err != nil {
		return fmt.Errorf("look up own session in Consul: %w", err)
	}
	if entry == nil {
		return errors.New("the session ended while it waited for the lock")
	}
	c.store.log.Debug("the lock is free but refused", "error", refusals[0].What)
	// The lock delay, or one who took it and gave it back.
	return pause(ctx, 5*lockDelay)
}

// waitFree waits until nobody holds the lock, or for watchTime.
func (c *candidacy) waitFree(ctx context.Context) error {
	var index uint64
	for deadline := time.Now().Add(watchTime); time.Now().Before(deadline); {
		opts := &api.QueryOptions{RequireConsistent: true, WaitIndex: index, WaitTime: watchTime}
		pair, meta, err := c.store.get(ctx, leaderKey, opts)
		if err != nil {
			return err
		}
		if pair == nil || pair.Session == "" {
			return nil
		}
		index = nextIndex(index, meta.LastIndex)
	}
	return nil
}

// ensureEpoch makes the epoch of a new cluster.
func (s *Store) ensureEpoch(ctx context.Context) error {
	_, err := s.transact(ctx, api.TxnOps{
		{KV: &api.KVTxnOp{Verb: api.KVCheckNotExists, Key: s.prefix + epochKey}},
		{KV: &api.KVTxnOp{Verb: api.KVSet, Key: s.prefix + epochKey, Value: []byte(firstEpoch)}},
	})
	if err != nil {
		return fmt.Errorf("make %s in Consul: %w", s.prefix+epochKey, err)
	}
	return nil
}

// transact runs a transaction. A refusal is no error: it is in the response.
func (s *Store) transact(ctx context.Context, ops api.TxnOps) (*api.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	response := new(api.TxnResponse)
	// Txn().Txn() would keep the status of a failure to itself.
	_, err := s.client.Raw().Write("/v1/txn", ops, response, new(api.WriteOptions).WithContext(ctx))
	var status api.StatusError
	if errors.As(err, &status) && status.Code == http.StatusConflict {
		response = new(api.TxnResponse)
		if err := json.Unmarshal([]byte(status.Body), response); err != nil {
			return nil, fmt.Errorf("read why a transaction is refused: %w", err)
		}
		if len(response.Errors) == 0 {
			return nil, fmt.Errorf("a transaction is refused and nothing says why: %w", status)
		}
		return response, nil
	}
	return response, err
}

// nextIndex is what the next query of a watch waits for. An index that went
// backwards, as after a restore, starts the watch afresh.
func nextIndex(last, now uint64) uint64 {
	if now < last {
		return 0
	}
	return now
}
