package link

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/link/linkpb"
)

func runNode(t *testing.T, cfg ClientConfig, uuids ...string) {
	background(t, func(ctx context.Context) error {
		return RunNode(ctx, cfg, 5*time.Millisecond, func() *linkpb.NodeHello { return helloOf(uuids...).GetHello() }, func() []string { return nil })
	})
}

func TestNodesFollowTheLeader(t *testing.T) {
	b := startAgent(t, "", leads(gang.Fence{Epoch: 1, Index: 1}))
	a := startAgent(t, "", func(s *Server) { s.SetLeader(false, b.address, gang.Fence{Epoch: 1, Index: 1}) })
	runNode(t, clientOf(a.address), "u0")
	hello := await[DriverHello](t, b.recorder, 1)[0].Hello
	if !slices.Equal(hello.GpuUuids, []string{"u0"}) || hello.Protocol != Protocol {
		t.Errorf("the leader heard %v", hello)
	}
	// The lead passes to a while the stream stands.
	before := len(await[DriverHello](t, a.recorder, 0))
	a.SetLeader(true, "", gang.Fence{Epoch: 1, Index: 2})
	b.SetLeader(false, a.address, gang.Fence{Epoch: 1, Index: 2})
	await[DriverHello](t, a.recorder, before+1)
	await[DriverGone](t, b.recorder, 1)
}

// A node keeps to an agent that does not lead and knows no leader: its leases
// are renewed there.
func TestNodesStayWhereNoLeaderIsKnown(t *testing.T) {
	a := startAgent(t, "", func(s *Server) { s.renewEvery = time.Millisecond })
	orders := make(chan *linkpb.KeeperOrder, 100)
	background(t, func(ctx context.Context) error {
		hello := func() *linkpb.Admit { return admitOf("lane", linkpb.LaneState_LANE_STATE_BUSY).GetAdmit() }
		return RunKeeper(ctx, clientOf(a.address), hello, NewQueue(10), orders)
	})
	for leases := 0; leases < 3; {
		if receiveOrder(t, orders).GetLease() != nil {
			leases++
		}
	}
	if got := await[KeeperReported](t, a.recorder, 1); len(got) != 1 {
		t.Errorf("the keeper said hello %d times", len(got))
	}
}

func receiveOrder(t *testing.T, orders <-chan *linkpb.KeeperOrder) *linkpb.KeeperOrder {
	t.Helper()
	select {
	case order := <-orders:
		return order
	case <-time.After(patience):
		t.Fatal("no order came")
		return nil
	}
}

// After each start of a stream gangd hears the hello, then what it may have
// missed, then what came meanwhile.
func TestAKeeperComesBack(t *testing.T) {
	lead := leads(gang.Fence{Epoch: 1, Index: 1})
	a := startAgent(t, "", lead)
	state := new(atomic.Int32)
	state.Store(int32(linkpb.LaneState_LANE_STATE_NEW))
	queue := NewQueue(10)
	queue.Replay(func() []*linkpb.KeeperReport {
		if linkpb.LaneState(state.Load()) == linkpb.LaneState_LANE_STATE_NEW {
			return nil
		}
		return []*linkpb.KeeperReport{readyOf("again")}
	})
	background(t, func(ctx context.Context) error {
		hello := func() *linkpb.Admit { return admitOf("lane", linkpb.LaneState(state.Load())).GetAdmit() }
		return RunKeeper(ctx, clientOf(a.address), hello, queue, make(chan *linkpb.KeeperOrder, 100))
	})
	await[KeeperReported](t, a.recorder, 1)
	queue.Put(readyOf("first"))
	checkReports(t, await[KeeperReported](t, a.recorder, 2), "admit NEW", "ready first")

	state.Store(int32(linkpb.LaneState_LANE_STATE_BUSY))
	a.stop()
	await[KeeperGone](t, a.recorder, 1)
	queue.Put(stepOf(7))
	again := startAgent(t, a.address, lead)
	// The step may have gone into the old stream: only what is replayed is sure.
	checkReports(t, await[KeeperReported](t, again.recorder, 2)[:2], "admit BUSY", "ready again")
}

func checkReports(t *testing.T, got []KeeperReported, want ...string) {
	t.Helper()
	var words []string
	for _, r := range got {
		switch {
		case r.Report.GetAdmit() != nil:
			words = append(words, "admit "+strings.TrimPrefix(r.Report.GetAdmit().State.String(), "LANE_STATE_"))
		case r.Report.GetReady() != nil:
			words = append(words, "ready "+r.Report.GetReady().ModelDigest)
		case r.Report.GetStep() != nil:
			words = append(words, "step "+string(rune('0'+r.Report.GetStep().I)))
		}
	}
	if !slices.Equal(words, want) {
		t.Errorf("gangd heard %q, want %q", words, want)
	}
}

// What waits when a stream starts comes behind the hello and the replay.
func TestTheQueueIsSentLast(t *testing.T) {
	queue := NewQueue(10)
	queue.Put(stepOf(1))
	queue.Put(stepOf(2))
	queue.Replay(func() []*linkpb.KeeperReport { return []*linkpb.KeeperReport{readyOf("again")} })
	a := startAgent(t, "", nil)
	background(t, func(ctx context.Context) error {
		hello := func() *linkpb.Admit { return admitOf("lane", linkpb.LaneState_LANE_STATE_BUSY).GetAdmit() }
		return RunKeeper(ctx, clientOf(a.address), hello, queue, make(chan *linkpb.KeeperOrder, 100))
	})
	checkReports(t, await[KeeperReported](t, a.recorder, 4), "admit BUSY", "ready again", "step 1", "step 2")
}

func TestDevicesTellTheirNewestInventoryAgain(t *testing.T) {
	a := startAgent(t, "", nil)
	inventory := make(chan []*linkpb.Gpu)
	background(t, func(ctx context.Context) error { return RunDevice(ctx, clientOf(a.address), inventory) })
	inventory <- []*linkpb.Gpu{{Uuid: "u0", Healthy: true}}
	inventory <- []*linkpb.Gpu{{Uuid: "u0", Reason: "XID 79"}}
	close(inventory) // there will be no news, and the stream stays
	if got := await[Inventory](t, a.recorder, 2)[1].GPUs; len(got) != 1 || got[0].Reason != "XID 79" {
		t.Errorf("the second inventory is %v", got)
	}
	a.SetLeader(true, "", gang.Fence{Epoch: 1, Index: 1}) // ends the stream
	late := time.After(patience)
	for {
		events, changed := a.all()
		if last, ok := events[len(events)-1].(Inventory); ok && len(events) >= 3 && last.GPUs[0].Reason == "XID 79" {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("the inventory was not told again: %v", events)
		}
	}
}

// resolverFunc gives addresses call by call.
type resolverFunc func() []string

func (f resolverFunc) Addresses(context.Context) ([]string, error) { return f(), nil }

// An address that takes connections and says nothing, as that of a stopped
// process does, keeps a node for a moment only.
func TestAMuteAddressIsLeft(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	a := startAgent(t, "", nil)
	asked := new(atomic.Int32)
	cfg := clientOf()
	cfg.deadAfter = 50 * time.Millisecond
	cfg.Resolver = resolverFunc(func() []string {
		if asked.Add(1) == 1 {
			return []string{mute.Addr().String()}
		}
		return []string{a.address}
	})
	runNode(t, cfg, "u0")
	began := time.Now()
	await[DriverHello](t, a.recorder, 1)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s to leave an address that says nothing", took)
	}
}

// An agent that answered once, and then says nothing more, is left.
func TestAnAgentThatFellSilentIsLeft(t *testing.T) {
	a := startAgent(t, "", func(s *Server) { s.renewEvery = time.Hour })
	cfg := clientOf(a.address)
	cfg.deadAfter = 50 * time.Millisecond
	background(t, func(ctx context.Context) error {
		hello := func() *linkpb.Admit { return admitOf("lane", linkpb.LaneState_LANE_STATE_NEW).GetAdmit() }
		return RunKeeper(ctx, cfg, hello, NewQueue(1), make(chan *linkpb.KeeperOrder, 100))
	})
	await[KeeperReported](t, a.recorder, 2)
}

func TestQueueLimits(t *testing.T) {
	for _, c := range []struct {
		name    string
		put     []*linkpb.KeeperReport
		want    []string
		dropped int
	}{
		{"what fits is kept in order", reports(stepOf(1), readyOf("a"), stepOf(2)), []string{"step 1", "ready a", "step 2"}, 0},
		{"the oldest step gives way", reports(readyOf("a"), stepOf(1), stepOf(2), readyOf("b")), []string{"ready a", "step 2", "ready b"}, 1},
		{"also to a step", reports(stepOf(1), stepOf(2), stepOf(3), stepOf(4), stepOf(5)), []string{"step 3", "step 4", "step 5"}, 2},
		{"without steps the newest is refused", reports(readyOf("a"), readyOf("b"), readyOf("c"), readyOf("d"), stepOf(1)), []string{"ready a", "ready b", "ready c"}, 2},
	} {
		q := NewQueue(3)
		for _, r := range c.put {
			q.Put(r)
		}
		got, err := q.take(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		var told []KeeperReported
		for _, r := range got {
			told = append(told, KeeperReported{keeperNamed("lane"), r})
		}
		t.Run(c.name, func(t *testing.T) { checkReports(t, told, c.want...) })
		if q.Dropped() != c.dropped {
			t.Errorf("%s: %d were dropped, want %d", c.name, q.Dropped(), c.dropped)
		}
	}
}

func reports(r ...*linkpb.KeeperReport) []*linkpb.KeeperReport { return r }

func TestTakingFromAnEmptyQueueWaits(t *testing.T) {
	q := NewQueue(3)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if got, err := q.take(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("take = %v, %v", got, err)
	}
	go q.Put(readyOf("a"))
	if got, err := q.take(testContext(t)); err != nil || len(got) != 1 {
		t.Errorf("take = %v, %v", got, err)
	}
}

func TestConsulCatalog(t *testing.T) {
	consul := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/catalog/service/"+Service || r.Header.Get("X-Consul-Token") != "for-nodes" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(`[{"Address":"10.0.0.1","ServicePort":4751},{"Address":"10.0.0.1","ServiceAddress":"10.0.0.2","ServicePort":4761},{"ServiceAddress":"fd00::1","ServicePort":4751}]`))
	}))
	defer consul.Close()
	t.Setenv("CONSUL_HTTP_TOKEN", "of-another")
	want := []string{"10.0.0.1:4751", "10.0.0.2:4761", "[fd00::1]:4751"}
	if got, err := ConsulCatalog(consul.URL, "for-nodes").Addresses(testContext(t)); err != nil || !slices.Equal(got, want) {
		t.Errorf("found %v, %v, want %v", got, err, want)
	}
	t.Setenv("CONSUL_HTTP_TOKEN", "for-nodes")
	if got, err := ConsulCatalog(consul.URL, "").Addresses(testContext(t)); err != nil || !slices.Equal(got, want) {
		t.Errorf("with the token of the environment: found %v, %v, want %v", got, err, want)
	}
}

func TestChain(t *testing.T) {
	broken := brokenResolver{errors.New("Consul is away")}
	got, err := Chain(broken, Static([]string{"a:1"}), Static([]string{"b:1"})).Addresses(testContext(t))
	if err != nil || !slices.Equal(got, []string{"a:1", "b:1"}) {
		t.Errorf("found %v, %v: what one resolver cannot tell another may", got, err)
	}
	_, err = Chain(broken, Static(nil)).Addresses(testContext(t))
	if !errors.Is(err, broken.err) || !strings.Contains(err.Error(), "gangd_addrs") {
		t.Errorf("without any address: %v, want the cause and what to set", err)
	}
}

type brokenResolver struct{ err error }

func (r brokenResolver) Addresses(context.Context) ([]string, error) { return nil, r.err }
