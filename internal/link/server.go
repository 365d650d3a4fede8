package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/link/linkpb"
)

// Event is what the server tells its owner. Events of one stream come in
// order.
type Event interface{ event() }

// DriverHello: a node's driver plugin opened its stream. DriverGone: the stream
// ended, and no newer one took its place.
type DriverHello struct{ Hello *linkpb.NodeHello }
type DriverGone struct{ UUIDs []string }

// Inventory: a device plugin told its GPUs, all of them.
type Inventory struct{ GPUs []*linkpb.Gpu }

// HostSilent: nothing was heard for SilentAfter from any process of the host
// with these GPUs. HostHeard: something was again.
type HostSilent struct{ UUIDs []string }
type HostHeard struct{ UUIDs []string }

// Keeper names a keeper: Nomad may start a second allocation of a lane, whose
// keeper is another.
type Keeper struct {
	Lane       gang.LaneID
	Allocation string
}

// KeeperReported: a keeper said something; the first report of a stream is
// Admit.
type KeeperReported struct {
	Keeper Keeper
	Report *linkpb.KeeperReport
}

// KeeperGone: the stream of a keeper ended, and no newer one took its place.
type KeeperGone struct{ Keeper Keeper }

func (DriverHello) event()    {}
func (DriverGone) event()     {}
func (Inventory) event()      {}
func (HostSilent) event()     {}
func (HostHeard) event()      {}
func (KeeperReported) event() {}
func (KeeperGone) event()     {}

// Server is gangd's side of the link.
type Server struct {
	linkpb.UnimplementedLinkServer
	log     hclog.Logger
	observe func(Event)
	grpc    *grpc.Server
	// silentAfter and renewEvery are SilentAfter and renewInterval, but in tests.
	silentAfter, renewEvery time.Duration

	// tell is held while a change of who is there is made and observed, so that
	// such events come in the order of the changes. It is taken before mu.
	tell    sync.Mutex
	mu      sync.Mutex
	leader  *linkpb.Leader
	hosts   hosts
	keepers map[Keeper]*keeperStream
	// changed is closed and replaced when leader changes, restart when this
	// agent begins to lead.
	changed, restart chan struct{}
}

// NewServer makes a server that calls observe for each event. observe may
// block; it then holds up the streams, not more.
func NewServer(log hclog.Logger, observe func(Event)) *Server {
	s := &Server{
		log:     log,
		observe: observe,
		leader:  &linkpb.Leader{},
		hosts:   newHosts(),
		keepers: make(map[Keeper]*keeperStream),
		changed: make(chan struct{}),
		restart: make(chan struct{}),

		silentAfter: SilentAfter,
		renewEvery:  renewInterval,
	}
	s.grpc = grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessageBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 2 * time.Second, Timeout: 2 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)
	linkpb.RegisterLinkServer(s.grpc, s)
	return s
}

// Serve answers on the listener until ctx ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	watch, cancel := context.WithCancel(ctx)
	defer cancel()
	go s.watchHosts(watch)
	stop := context.AfterFunc(ctx, s.grpc.Stop)
	defer stop()
	if err := s.grpc.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve the link on %s: %w", l.Addr(), err)
	}
	return nil
}

// SetLeader tells every stream who leads: this agent (self, with its fence),
// another one at address, or, with neither, nobody that is known. An agent that
// begins to lead ends its streams, so that every process of the nodes comes
// back and says where it stands.
func (s *Server) SetLeader(self bool, address string, fence gang.Fence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leader = &linkpb.Leader{Self: self, Address: address, Fence: fenceProto(fence)}
	close(s.changed)
	s.changed = make(chan struct{})
	if self {
		close(s.restart)
		s.restart = make(chan struct{})
	}
}

func fenceProto(f gang.Fence) *linkpb.Fence { return &linkpb.Fence{Epoch: f.Epoch, Index: f.Index} }

func (s *Server) restarted() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.restart
}

func (s *Server) leaderNow() (*linkpb.Leader, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leader, s.changed
}

// Send puts an order into the stream of a keeper, under the present
// term. It reports false where there is no such stream, or it takes nothing
// more; the keeper then comes back with an Admit.
func (s *Server) Send(to Keeper, order *linkpb.KeeperOrder) bool {
	s.mu.Lock()
	k := s.keepers[to]
	order.Fence = s.leader.Fence
	s.mu.Unlock()
	if k == nil {
		return false
	}
	return k.send(order)
}

// Node implements linkpb.LinkServer.
func (s *Server) Node(stream grpc.BidiStreamingServer[linkpb.NodeReport, linkpb.NodeOrder]) error {
	restart := s.restarted()
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if hello == nil {
		return status.Error(codes.InvalidArgument, "the first message of a node stream must be its hello")
	}
	host := s.join(hello.GpuUuids)
	mine := s.driverUp(host, hello)
	defer s.driverGone(host, mine)
	echo := make(chan *linkpb.NodeOrder, 1)
	go func() {
		defer close(echo)
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			s.join(hello.GpuUuids)
			select {
			case echo <- &linkpb.NodeOrder{Order: &linkpb.NodeOrder_Echo{Echo: &linkpb.NodeBeat{Sequence: m.GetBeat().GetSequence()}}}:
			default:
			}
		}
	}()
	return sendLoop(s, writer[linkpb.NodeOrder]{
		send:    stream.Send,
		orders:  echo,
		restart: restart,
		leader: func(l *linkpb.Leader) *linkpb.NodeOrder {
			return &linkpb.NodeOrder{Order: &linkpb.NodeOrder_Leader{Leader: l}}
		},
	})
}

// Device implements linkpb.LinkServer.
func (s *Server) Device(stream grpc.BidiStreamingServer[linkpb.DeviceReport, linkpb.DeviceOrder]) error {
	restart := s.restarted()
	done := make(chan *linkpb.DeviceOrder)
	go func() {
		defer close(done)
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			s.join(uuids(m.Gpus))
			s.observe(Inventory{m.Gpus})
		}
	}()
	leader := func(l *linkpb.Leader) *linkpb.DeviceOrder {
		return &linkpb.DeviceOrder{Order: &linkpb.DeviceOrder_Leader{Leader: l}}
	}
	return sendLoop(s, writer[linkpb.DeviceOrder]{
		send:    stream.Send,
		orders:  done,
		restart: restart,
		leader:  leader,
		renew:   func() *linkpb.DeviceOrder { l, _ := s.leaderNow(); return leader(l) },
	})
}

func uuids(gpus []*linkpb.Gpu) []string {
	out := make([]string, len(gpus))
	for i, g := range gpus {
		out[i] = g.Uuid
	}
	return out
}

// writer is the gangd side of one stream.
type writer[O any] struct {
	send func(*O) error
	// orders ends the stream when it is closed.
	orders <-chan *O
	// restart is what restarted returned before the first word of the stream was
	// told to anybody, so that no hello is said to a follower alone.
	restart <-chan struct{}
	leader  func(*linkpb.Leader) *O
	// renew, if set, gives what is said each renewInterval.
	renew func() *O
}

// sendLoop is the one writer of a stream: who leads, at the start and when it
// changes; what comes from its orders; and what it renews.
func sendLoop[O any](s *Server, w writer[O]) error {
	tick := time.NewTicker(s.renewEvery)
	defer tick.Stop()
	now, changed := s.leaderNow()
	if err := w.send(w.leader(now)); err != nil {
		return err
	}
	for {
		var next *O
		select {
		case order, open := <-w.orders:
			if !open {
				return nil
			}
			next = order
		case <-w.restart:
			return status.Error(helloAgain, "this agent begins to lead: say hello again")
		case <-changed:
			now, changed = s.leaderNow()
			next = w.leader(now)
		case <-tick.C:
			if w.renew == nil {
				continue
			}
			next = w.renew()
		}
		if err := w.send(next); err != nil {
			return err
		}
	}
}
