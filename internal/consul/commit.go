package consul

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/gangd/gangd/internal/gang"
)

// Limits of a transaction. Consul takes 128 operations and, by default,
// 512 KiB of JSON, in which values are a third longer.
const (
	maxOps              = 128
	maxTransactionBytes = 256 << 10
	// guards are the operations that are no change: they check the session and
	// the epoch, advance the log's head, and write the log.
	guards = 4
	// opBytes is what an operation takes beside its key and value.
	opBytes = 100
	// logSlots is how many transactions the log remembers.
	logSlots = 4096
)

// Indexes of the guards.
const (
	guardSession = iota
	guardEpoch
	guardHead
)

// commitLimit bounds for how long a transaction is sent again where no answer
// came, as while Consul elects a leader.
const commitLimit = 10 * time.Second

// ErrDeposed is wrapped where this agent no longer leads: its writes are
// refused, and so should be its orders.
var ErrDeposed = errors.New("this agent was deposed")

// logHead and logEntry are how the log lies in Consul.
type logHead struct {
	N     uint64     `json:"n"`
	Fence gang.Fence `json:"fence"`
}

type logEntry struct {
	logHead
	Keys []string `json:"keys"`
}

// Commit makes batches durable in their order. Several go into one
// transaction, but none is split. On return exactly the first committed are
// durable; err tells why the next one, or one in the same transaction, is not:
// it wraps ErrDeposed if the term is over.
//
// A commit whose answer is lost is found out about and sent again for up to
// about ten seconds. If its outcome is still unknown then, or when ctx ends,
// the term is over.
func (t *Term) Commit(ctx context.Context, batches []gang.Batch) (committed int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for committed < len(batches) {
		p, err := pack(batches, committed)
		if err != nil {
			return committed, err
		}
		if err := t.apply(ctx, p); err != nil {
			return committed, err
		}
		committed = p.end
	}
	return committed, nil
}

// packet is the changes of one transaction: those of batches[first:end].
type packet struct {
	changes []gang.Change
	end     int
}

// pack puts together as many batches as one transaction takes.
func pack(batches []gang.Batch, first int) (packet, error) {
	p := packet{end: first}
	size := guards * opBytes
	for i := first; i < len(batches); i++ {
		bytes, err := batchBytes(batches[i])
		if err != nil && i == first {
			return packet{}, fmt.Errorf("commit batch %d: %w", i, err)
		}
		if i > first && (err != nil || len(p.changes)+len(batches[i]) > maxOps-guards || size+bytes > maxTransactionBytes) {
			break
		}
		size += bytes
		p.changes = append(p.changes, batches[i]...)
		p.end = i + 1
	}
	return p, nil
}

// batchBytes is what a batch takes in a transaction, where each key lies in
// the log too.
func batchBytes(b gang.Batch) (int, error) {
	if len(b) > gang.MaxBatch {
		return 0, fmt.Errorf("%d changes are more than the %d that can become durable together", len(b), gang.MaxBatch)
	}
	size := 0
	for _, change := range b {
		if change.Key == "" {
			return 0, errors.New("a change has no key")
		}
		size += opBytes + 2*len(change.Key) + len(change.Value)
	}
	if size > maxTransactionBytes-guards*opBytes {
		return 0, fmt.Errorf("%d changes, the first of %s, take %d bytes; at most %d can become durable together: keep large values in the blob store",
			len(b), b[0].Key, size, maxTransactionBytes)
	}
	return size, nil
}

// apply commits one transaction, once.
func (t *Term) apply(ctx context.Context, p packet) error {
	if len(p.changes) == 0 {
		return nil
	}
	select {
	case <-t.lost:
		return fmt.Errorf("commit %s: %w", p.changes[0].Key, ErrDeposed)
	default:
	}
	ops, err := t.operations(p)
	if err != nil {
		return err
	}
	response, err := t.send(ctx, ops)
	switch {
	case errors.Is(err, errApplied):
		return nil
	case err != nil:
		return fmt.Errorf("commit %s: %w", p.changes[0].Key, err)
	case len(response.Errors) == 0:
		return t.advance(response)
	}
	return t.refused(ctx, p, response.Errors)
}

func (t *Term) operations(p packet) (api.TxnOps, error) {
	s := t.store
	entry := logEntry{logHead: logHead{N: t.sequence + 1, Fence: t.fence}}
	for _, change := range p.changes {
		entry.Keys = append(entry.Keys, change.Key)
	}
	head, err := json.Marshal(entry.logHead)
	if err != nil {
		return nil, fmt.Errorf("encode the log's head: %w", err)
	}
	slot, err := json.Marshal(entry)
	if err != nil {
		return nil, fmt.Errorf("encode the log: %w", err)
	}
	slotKey := fmt.Sprintf("%s%s%d", s.prefix, logPrefix, entry.N%logSlots)
	ops := make(api.TxnOps, 0, guards+len(p.changes))
	ops = append(ops,
		&api.TxnOp{KV: &api.KVTxnOp{Verb: api.KVCheckSession, Key: s.prefix + leaderKey, Session: t.session}},
		&api.TxnOp{KV: &api.KVTxnOp{Verb: api.KVCheckIndex, Key: s.prefix + epochKey, Index: t.epochIndex}},
		&api.TxnOp{KV: &api.KVTxnOp{Verb: api.KVCAS, Key: s.prefix + headKey, Value: head, Index: t.headIndex}},
		&api.TxnOp{KV: &api.KVTxnOp{Verb: api.KVSet, Key: slotKey, Value: slot}},
	)
	for _, change := range p.changes {
		op := &api.KVTxnOp{Verb: api.KVSet, Key: s.prefix + change.Key, Value: change.Value}
		switch {
		case change.Value == nil:
			op.Verb = api.KVDelete
		case change.Create:
			op.Verb = api.KVCAS // of index 0: only if there is none
		}
		ops = append(ops, &api.TxnOp{KV: op})
	}
	return ops, nil
}

// errApplied says that an earlier sending of the same transaction took effect.
var errApplied = errors.New("applied already")

// send sends a transaction until Consul says what became of it. The head of
// the log, which it compares and sets, keeps it from happening twice.
func (t *Term) send(ctx context.Context, ops api.TxnOps) (*api.TxnResponse, error) {
	wait := retryMin
	deadline := time.Now().Add(commitLimit)
	for n := 1; ; n++ {
		// An attempt is not cut short by the caller: its outcome matters.
		response, err := t.store.transact(context.WithoutCancel(ctx), ops)
		if err == nil && n > 1 && touches(response.Errors, guardHead) {
			return t.outcome(ctx, response)
		}
		if err == nil || isRefusal(err) {
			return response, err
		}
		t.store.log.Warn("no answer to a commit", "attempt", n, "error", err)
		if time.Now().After(deadline) || t.over() || pause(ctx, wait) != nil {
			t.finish()
			return nil, fmt.Errorf("%w: it is unknown whether the commit took effect: %w", ErrDeposed, err)
		}
		wait = min(2*wait, retryMax)
	}
}

// isRefusal reports whether Consul understood a request and took no action.
func isRefusal(err error) bool {
	var status api.StatusError
	return errors.As(err, &status) && status.Code >= http.StatusBadRequest && status.Code < http.StatusInternalServerError &&
		status.Code != http.StatusTooManyRequests
}

func (t *Term) over() bool {
	select {
	case <-t.lost:
		return true
	default:
		return false
	}
}

// outcome reads whether a transaction that was sent more than once is the
// newest in the log.
func (t *Term) outcome(ctx context.Context, response *api.TxnResponse) (*api.TxnResponse, error) {
	pair, _, err := t.store.get(context.WithoutCancel(ctx), headKey, &api.QueryOptions{RequireConsistent: true})
	if err != nil {
		t.finish()
		return nil, fmt.Errorf("%w: it is unknown whether the commit took effect: %w", ErrDeposed, err)
	}
	var head logHead
	if pair != nil {
		if err := json.Unmarshal(pair.Value, &head); err != nil {
			return nil, fmt.Errorf("read %s: %w", pair.Key, err)
		}
	}
	if (head != logHead{N: t.sequence + 1, Fence: t.fence}) {
		return response, nil
	}
	t.sequence, t.headIndex = head.N, pair.ModifyIndex
	return nil, errApplied
}

// advance notes where the log's head is after a transaction.
func (t *Term) advance(response *api.TxnResponse) error {
	head := t.store.prefix + headKey
	for _, result := range response.Results {
		if result.KV != nil && result.KV.Key == head {
			t.sequence, t.headIndex = t.sequence+1, result.KV.ModifyIndex
			return nil
		}
	}
	t.finish()
	return fmt.Errorf("commit: the answer does not tell of %s", head)
}

// refused says why nothing of a transaction happened.
func (t *Term) refused(ctx context.Context, p packet, refusals api.TxnErrors) error {
	for guard := guardSession; guard <= guardHead; guard++ {
		if touches(refusals, guard) {
			t.finish()
			return fmt.Errorf("commit %s: %w: %s", p.changes[0].Key, ErrDeposed, refusals[0].What)
		}
	}
	first := refusals[0]
	i := first.OpIndex - guards
	if i < 0 || i >= len(p.changes) {
		return fmt.Errorf("commit %s: operation %d is refused: %s", p.changes[0].Key, first.OpIndex, first.What)
	}
	change := p.changes[i]
	if change.Create {
		// Not all refusals mean that: a token may lack the right.
		if _, found, err := t.store.Get(ctx, change.Key); err == nil && found {
			return fmt.Errorf("commit %s: it is to be created, and there is one", change.Key)
		}
	}
	return fmt.Errorf("commit %s: it is refused: %s", change.Key, first.What)
}

func touches(refusals api.TxnErrors, op int) bool {
	for _, refusal := range refusals {
		if refusal.OpIndex == op {
			return true
		}
	}
	return false
}
