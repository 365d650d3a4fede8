package consul

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/gangd/gangd/internal/gang"
)

func set(keys ...string) gang.Batch {
	var b gang.Batch
	for _, key := range keys {
		b = append(b, gang.Change{Key: key, Value: []byte(key)})
	}
	return b
}

func create(key string) gang.Batch {
	return gang.Batch{{Key: key, Value: []byte("new"), Create: true}}
}

func head(t *testing.T, s *Store) logHead {
	t.Helper()
	kv, _, err := s.Get(t.Context(), headKey)
	if err != nil {
		t.Fatal(err)
	}
	var h logHead
	if err := json.Unmarshal(kv.Value, &h); err != nil {
		t.Fatal(err)
	}
	return h
}

func TestCommitPacksBatchesAndLogsThem(t *testing.T) {
	s := openStore(t, consulAddr(t), "a")
	term, _ := lead(t, s)
	var batches []gang.Batch
	for i := range 200 {
		batches = append(batches, set(fmt.Sprintf("gangs/g%03d", i), fmt.Sprintf("specs/g%03d", i)))
	}
	if n, err := term.Commit(t.Context(), batches); n != 200 || err != nil {
		t.Fatalf("commit: %d, %v", n, err)
	}
	if got := head(t, s); got != (logHead{N: 4, Fence: term.Fence()}) { // 62 batches of 2 changes in each
		t.Errorf("the log's head is %+v", got)
	}
	all, err := s.Load(t.Context(), "gangs/")
	if err != nil || len(all) != 200 || all[7].Key != "gangs/g007" || string(all[7].Value) != "gangs/g007" {
		t.Errorf("load: %d keys, %v", len(all), err)
	}
	kv, _, err := s.Get(t.Context(), "log/4")
	var entry logEntry
	if err != nil || json.Unmarshal(kv.Value, &entry) != nil {
		t.Fatalf("log/4: %q, %v", kv.Value, err)
	}
	if entry.N != 4 || len(entry.Keys) != 2*(200-3*62) || entry.Keys[len(entry.Keys)-1] != "specs/g199" {
		t.Errorf("log/4: %+v", entry)
	}

	// The next term goes on counting.
	if err := term.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	next, _ := lead(t, s)
	if n, err := next.Commit(t.Context(), []gang.Batch{{{Key: "gangs/g000"}}}); n != 1 || err != nil {
		t.Fatal(err)
	}
	if got := head(t, s); got.N != 5 || got.Fence != next.Fence() {
		t.Errorf("the log's head is %+v", got)
	}
	if _, found, err := s.Get(t.Context(), "gangs/g000"); found || err != nil {
		t.Errorf("the deleted key is there (%v)", err)
	}
}

func TestConcurrentCreates(t *testing.T) {
	s := openStore(t, consulAddr(t), "a")
	term, _ := lead(t, s)
	const callers = 8
	results := make([]error, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() { _, results[i] = term.Commit(t.Context(), []gang.Batch{create("videos/one")}) })
	}
	wg.Wait()
	won := 0
	for _, err := range results {
		switch {
		case err == nil:
			won++
		case errors.Is(err, ErrDeposed) || !strings.Contains(err.Error(), "there is one"):
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d callers created one key", won)
	}
}

func TestLostAnswersDoNotRepeatACommit(t *testing.T) {
	proxy := newLossy(t)
	s := openStore(t, proxy.addr, "a")
	term, _ := lead(t, s)
	for round := range 3 {
		proxy.lose.Store(int64(round))
		n, err := term.Commit(t.Context(), []gang.Batch{create(fmt.Sprintf("gangs/g%d", round))})
		if n != 1 || err != nil {
			t.Fatalf("with %d answers lost: %d, %v", round, n, err)
		}
	}
	if got := head(t, s); got.N != 3 {
		t.Errorf("three commits are %d transactions", got.N)
	}
}

func TestUnknownOutcomeEndsTheTerm(t *testing.T) {
	t.Parallel()
	proxy := newLossy(t)
	s := openStore(t, proxy.addr, "a")
	term, _ := lead(t, s)
	proxy.lose.Store(1 << 30)
	n, err := term.Commit(t.Context(), []gang.Batch{create("gangs/a")})
	if n != 0 || !errors.Is(err, ErrDeposed) {
		t.Fatalf("commit: %d, %v", n, err)
	}
	await(t, "end of the term", term.Lost())
}

func TestCommitRefusesWhatIsTooLarge(t *testing.T) {
	s := openStore(t, consulAddr(t), "a")
	term, _ := lead(t, s)
	for name, batch := range map[string]gang.Batch{
		"value":   {{Key: "gangs/a", Value: bytes.Repeat([]byte("x"), maxTransactionBytes)}},
		"changes": set(strings.Split(strings.Repeat("k,", gang.MaxBatch)+"k", ",")...),
		"no key":  {{Value: []byte("x")}},
	} {
		n, err := term.Commit(t.Context(), []gang.Batch{set("gangs/before"), batch, set("gangs/after")})
		if err == nil || errors.Is(err, ErrDeposed) || n != 1 {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
	// The largest that is taken is really taken.
	key := "gangs/a"
	value := bytes.Repeat([]byte("x"), maxTransactionBytes-(guards+1)*opBytes-2*len(key))
	if n, err := term.Commit(t.Context(), []gang.Batch{{{Key: key, Value: value}}}); n != 1 || err != nil {
		t.Errorf("the largest: %d, %v", n, err)
	}
}

// However batches are cut, each transaction keeps Consul's limits, no batch is
// split, and none is left out.
func TestPack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		batches := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) gang.Batch {
			size := rapid.IntRange(0, maxTransactionBytes/2).Draw(t, "bytes")
			n := rapid.IntRange(1, gang.MaxBatch).Draw(t, "changes")
			return append(set(make([]string, n-1)...), gang.Change{Key: "k", Value: make([]byte, size)})
		}), 0, 20).Draw(t, "batches")
		for _, b := range batches {
			for i := range b {
				b[i].Key = "key"
			}
		}
		for first := 0; first < len(batches); {
			p, err := pack(batches, first)
			if err != nil {
				t.Fatal(err)
			}
			changes, size := 0, 0
			for _, b := range batches[first:p.end] {
				changes += len(b)
				for _, c := range b {
					size += len(c.Key) + len(c.Value)
				}
			}
			if p.end <= first || len(p.changes) != changes || changes+guards > maxOps || size > maxTransactionBytes {
				t.Fatalf("batches %d to %d: %d changes of %d, %d bytes", first, p.end, len(p.changes), changes, size)
			}
			first = p.end
		}
	})
}
