package link

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/link/linkpb"
)

// patience bounds every wait of these tests.
const patience = 20 * time.Second

// recorder keeps what a server observed.
type recorder struct {
	mu      sync.Mutex
	events  []Event
	changed chan struct{}
}

func newRecorder() *recorder { return &recorder{changed: make(chan struct{})} }

func (r *recorder) observe(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *recorder) all() ([]Event, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Event(nil), r.events...), r.changed
}

// await waits until n events of the kind were observed, and returns them.
func await[E Event](t *testing.T, r *recorder, n int) []E {
	t.Helper()
	late := time.After(patience)
	for {
		events, changed := r.all()
		var out []E
		for _, e := range events {
			if e, ok := e.(E); ok {
				out = append(out, e)
			}
		}
		if len(out) >= n {
			return out
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("%d events %T were observed, want %d; all: %v", len(out), *new(E), n, events)
		}
	}
}

// agent is a server that answers on loopback.
type agent struct {
	*Server
	*recorder
	address string
	stop    func()
}

// startAgent serves at address, or at a free port where it is empty.
func startAgent(t *testing.T, address string, change func(*Server)) *agent {
	t.Helper()
	if address == "" {
		address = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	r := newRecorder()
	s := NewServer(hclog.NewNullLogger(), r.observe)
	if change != nil {
		change(s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			if err := <-served; err != nil {
				t.Errorf("Serve: %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return &agent{s, r, l.Addr().String(), stop}
}

func leads(f gang.Fence) func(*Server) {
	return func(s *Server) { s.SetLeader(true, "", f) }
}

// dial returns a bare client of the agent.
func dial(t *testing.T, address string) linkpb.LinkClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return linkpb.NewLinkClient(conn)
}

// background starts a client and ends it with the test.
func background(t *testing.T, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

func clientOf(addresses ...string) ClientConfig {
	return ClientConfig{Resolver: Static(addresses), Log: hclog.NewNullLogger()}
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// keeper is a keeper's stream, opened by hand.
type keeper struct {
	t *testing.T
	grpc.BidiStreamingClient[linkpb.KeeperReport, linkpb.KeeperOrder]
}

// openKeeper says hello for a lane, and returns once the agent has observed
// it, the n-th.
func openKeeper(t *testing.T, a *agent, lane string, state linkpb.LaneState, uuids ...string) *keeper {
	t.Helper()
	stream, err := dial(t, a.address).Keeper(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	k := &keeper{t, stream}
	before := len(await[KeeperReported](t, a.recorder, 0))
	k.say(admitOf(lane, state, uuids...))
	await[KeeperReported](t, a.recorder, before+1)
	return k
}

func (k *keeper) say(r *linkpb.KeeperReport) {
	k.t.Helper()
	if err := k.Send(r); err != nil {
		k.t.Fatal(err)
	}
}

// next returns the next order that is none of the Leader messages.
func (k *keeper) next() *linkpb.KeeperOrder {
	k.t.Helper()
	for {
		order, err := k.Recv()
		if err != nil {
			k.t.Fatal(err)
		}
		if order.GetLeader() == nil {
			return order
		}
	}
}

func admitOf(lane string, state linkpb.LaneState, uuids ...string) *linkpb.KeeperReport {
	return &linkpb.KeeperReport{Report: &linkpb.KeeperReport_Admit{Admit: &linkpb.Admit{Protocol: Protocol, Lane: lane, State: state, GpuUuids: uuids}}}
}

func stepOf(i uint32) *linkpb.KeeperReport {
	return &linkpb.KeeperReport{Report: &linkpb.KeeperReport_Step{Step: &linkpb.Step{I: i}}}
}

func readyOf(digest string) *linkpb.KeeperReport {
	return &linkpb.KeeperReport{Report: &linkpb.KeeperReport_Ready{Ready: &linkpb.LaneReady{ModelDigest: digest}}}
}

func helloOf(uuids ...string) *linkpb.NodeReport {
	return &linkpb.NodeReport{Report: &linkpb.NodeReport_Hello{Hello: &linkpb.NodeHello{Protocol: Protocol, GpuUuids: uuids}}}
}

func beatOf(sequence uint64) *linkpb.NodeReport {
	return &linkpb.NodeReport{Report: &linkpb.NodeReport_Beat{Beat: &linkpb.NodeBeat{Sequence: sequence}}}
}

func keeperNamed(lane gang.LaneID) Keeper { return Keeper{Lane: lane} }
