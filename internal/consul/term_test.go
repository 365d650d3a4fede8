package consul

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/gangd/gangd/internal/gang"
)

func TestStuckLeaderLosesTheLock(t *testing.T) {
	t.Parallel()
	addr := consulAddr(t)
	first, second := openStore(t, addr, "first"), openStore(t, addr, "second")
	held, stick := lead(t, first)

	won := make(chan *Term, 1)
	go func() {
		if term, err := second.Campaign(t.Context()); err == nil {
			won <- term
		}
	}()
	// As long as the loop turns, the lock stays: for longer than the check's TTL.
	select {
	case <-won:
		t.Fatal("the lock went to another while its holder was alive")
	case <-held.Lost():
		t.Fatal("the holder lost the lock while it was alive")
	case <-time.After(2 * checkTTL):
	}

	stick()
	start := time.Now()
	term := await(t, "next leader", won)
	t.Logf("the next leader came %s after the last pulse", time.Since(start).Round(time.Millisecond))
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("the next leader took %s", took)
	}
	if !held.Fence().Before(term.Fence()) {
		t.Errorf("fence %s does not come after %s", term.Fence(), held.Fence())
	}
	await(t, "word of the loss", held.Lost())
	_, err := held.Commit(t.Context(), []gang.Batch{{{Key: "gangs/a", Value: []byte("late")}}})
	if !errors.Is(err, ErrDeposed) {
		t.Errorf("a deposed leader's commit: %v", err)
	}
}

// The transaction itself refuses a deposed leader who does not know of it yet.
func TestTransactionRefusesTheDeposed(t *testing.T) {
	s := openStore(t, consulAddr(t), "a")
	for name, depose := range map[string]func(term *Term){
		"session ended": func(term *Term) { term.destroySession(t.Context()) },
		"epoch changed": func(*Term) { put(t, s, epochKey, "2") },
	} {
		term, stick := lead(t, s)
		depose(term)
		_, err := term.Commit(t.Context(), []gang.Batch{{{Key: "gangs/a", Value: []byte("late")}}})
		if !errors.Is(err, ErrDeposed) {
			t.Errorf("%s: commit gives %v", name, err)
		}
		await(t, "word of the loss", term.Lost())
		if _, found, err := s.Get(t.Context(), "gangs/a"); found || err != nil {
			t.Errorf("%s: it was written (%v)", name, err)
		}
		stick()
	}
}

func put(t *testing.T, s *Store, key, value string) {
	t.Helper()
	if _, err := s.client.KV().Put(&api.KVPair{Key: s.prefix + key, Value: []byte(value)}, nil); err != nil {
		t.Fatal(err)
	}
}

func TestRestartedAgentEndsItsOldLock(t *testing.T) {
	addr := consulAddr(t)
	lead(t, openStore(t, addr, "a")) // its process is about to die

	start := time.Now()
	term := campaign(t, openStore(t, addr, "a"))
	if took := time.Since(start); took > checkTTL {
		t.Errorf("it took %s to end the lock of the process before", took)
	}
	if n, err := term.Commit(t.Context(), []gang.Batch{{{Key: "gangs/a", Value: []byte("x")}}}); n != 1 || err != nil {
		t.Errorf("commit: %d, %v", n, err)
	}
}

func TestResignHandsOver(t *testing.T) {
	addr := consulAddr(t)
	first, second := openStore(t, addr, "first"), openStore(t, addr, "second")
	held, _ := lead(t, first)
	won := make(chan *Term, 1)
	go func() {
		if term, err := second.Campaign(t.Context()); err == nil {
			won <- term
		}
	}()
	awaitSessions(t, second, 2)
	start := time.Now()
	if err := held.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, "next leader", won)
	if took := time.Since(start); took > time.Second {
		t.Errorf("the hand-over took %s", took)
	}
	await(t, "end of the term", held.Lost())
}

// awaitSessions waits until the test's agents have n sessions.
func awaitSessions(t *testing.T, s *Store, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for pause(ctx, 10*time.Millisecond) == nil {
		sessions, _, err := s.client.Session().List(nil)
		if err != nil {
			t.Fatal(err)
		}
		sessions = slices.DeleteFunc(sessions, func(e *api.SessionEntry) bool {
			return !strings.HasPrefix(e.Name, "gangd leader "+t.Name())
		})
		if len(sessions) == n {
			return
		}
	}
	t.Fatalf("there are not %d sessions after %s", n, patience)
}

func TestCampaignEndsWithItsContext(t *testing.T) {
	addr := consulAddr(t)
	lead(t, openStore(t, addr, "first"))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := openStore(t, addr, "second").Campaign(ctx)
		done <- err
	}()
	cancel()
	if err := await(t, "end of the campaign", done); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestSilentConsulEndsTheTerm(t *testing.T) {
	t.Parallel()
	proxy := newLossy(t)
	s := openStore(t, proxy.addr, "a")
	term, _ := lead(t, s)
	proxy.down.Store(true)
	await(t, "end of the term", term.Lost())
	proxy.down.Store(false)
	next, _ := lead(t, s)
	if !term.Fence().Before(next.Fence()) {
		t.Errorf("fence %s does not come after %s", next.Fence(), term.Fence())
	}
}

func TestWatchLeaderFollows(t *testing.T) {
	addr := consulAddr(t)
	s := openStore(t, addr, "a")
	watcher := openStore(t, addr, "watcher")
	ctx, cancel := context.WithCancel(t.Context())
	seen := watcher.WatchLeader(ctx)
	if l := await(t, "first word", seen); l.Held {
		t.Errorf("before the first: %+v", l)
	}
	term, _ := lead(t, s)
	if l := await(t, "leader", seen); !l.Held || l.Identity != s.identity {
		t.Errorf("after the campaign: %+v", l)
	}
	if id, held, err := watcher.Leader(ctx); id != s.identity || !held || err != nil {
		t.Errorf("Leader: %+v, %v, %v", id, held, err)
	}
	if err := term.Resign(ctx); err != nil {
		t.Fatal(err)
	}
	if l := await(t, "vacancy", seen); l.Held {
		t.Errorf("after the resignation: %+v", l)
	}
	cancel()
	for range seen {
	}
}

// healthOf is what the catalog says of the agent's two services: nothing of one
// that is not in it.
func healthOf(t *testing.T, s *Store) map[string]string {
	t.Helper()
	health := make(map[string]string)
	for _, name := range []string{HTTPService, LinkService} {
		entries, _, err := s.client.Health().Service(name, "", false, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			ours := api.HealthChecks(slices.DeleteFunc(e.Checks, func(c *api.HealthCheck) bool { return c.ServiceID != e.Service.ID }))
			if e.Service.ID == name+":"+s.identity.Name && e.Service.Address == "127.0.0.1" && len(ours) == 1 {
				health[name] = ours.AggregatedStatus()
			}
		}
	}
	return health
}

// An agent that lives is in the catalog under both names, one that is stuck or
// dead is ill under both, and one that has ended under none.
func TestServicesFollowTheAgent(t *testing.T) {
	t.Parallel()
	s := openStore(t, consulAddr(t), "a")
	awaitHealth := func(want map[string]string) {
		t.Helper()
		var got map[string]string
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for pause(ctx, 20*time.Millisecond) == nil {
			if got = healthOf(t, s); maps.Equal(got, want) {
				return
			}
		}
		t.Fatalf("the catalog has %v, want %v", got, want)
	}
	_, stick := lead(t, s)
	awaitHealth(map[string]string{HTTPService: api.HealthPassing, LinkService: api.HealthPassing})
	stick()
	awaitHealth(map[string]string{HTTPService: api.HealthCritical, LinkService: api.HealthCritical})
	lead(t, s)
	awaitHealth(map[string]string{HTTPService: api.HealthPassing, LinkService: api.HealthPassing})
	if err := s.Deregister(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitHealth(nil)
}

func TestOpenRefuses(t *testing.T) {
	good := Config{Identity: Identity{Name: "a", HTTPAddr: "127.0.0.1:1", LinkAddr: "127.0.0.1:2"}}
	if _, err := Open(good); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Config){
		"no name":            func(c *Config) { c.Identity.Name = "" },
		"no port":            func(c *Config) { c.Identity.HTTPAddr = "127.0.0.1" },
		"port out of range":  func(c *Config) { c.Identity.LinkAddr = "127.0.0.1:70000" },
		"prefix of one word": func(c *Config) { c.Prefix = "gangd" },
		"rooted prefix":      func(c *Config) { c.Prefix = "/gangd/" },
	} {
		c := good
		spoil(&c)
		if _, err := Open(c); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
