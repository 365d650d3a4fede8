package link

import (
	"context"
	"errors"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/link/linkpb"
)

func keeperOf(a *linkpb.Admit) Keeper { return Keeper{gang.LaneID(a.Lane), a.Allocation} }

// keeperStream is the stream of one lane's keeper.
type keeperStream struct {
	orders chan *linkpb.KeeperOrder
	// admitted keepers get their lease renewed, whoever leads.
	admitted atomic.Bool
	ctx      context.Context
	end      context.CancelCauseFunc
}

var errKeeperStuck = status.Error(codes.ResourceExhausted, "the keeper takes no orders, and too many wait for it")

// send queues an order. A keeper that takes none is disconnected.
func (k *keeperStream) send(order *linkpb.KeeperOrder) bool {
	if k.ctx.Err() != nil {
		return false
	}
	select {
	case k.orders <- order:
		return true
	default:
		k.end(errKeeperStuck)
		return false
	}
}

// Keeper implements linkpb.LinkServer.
func (s *Server) Keeper(stream grpc.BidiStreamingServer[linkpb.KeeperReport, linkpb.KeeperOrder]) error {
	restart := s.restarted()
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	admit := first.GetAdmit()
	if admit == nil || admit.Lane == "" {
		return status.Error(codes.InvalidArgument, "the first message of a keeper stream must be its request to be admitted, with its lane")
	}
	k := &keeperStream{orders: make(chan *linkpb.KeeperOrder, maxQueuedOrders)}
	k.ctx, k.end = context.WithCancelCause(stream.Context())
	defer k.end(nil)
	k.admitted.Store(admit.State > linkpb.LaneState_LANE_STATE_NEW)
	s.join(admit.GpuUuids)
	s.mu.Lock()
	s.keepers[keeperOf(admit)] = k
	s.mu.Unlock()
	go func() {
		s.keeperReports(k, first, stream.Recv)
		k.end(nil)
	}()
	sent := make(chan error, 1)
	go func() { sent <- s.keeperOrders(k, restart, stream.Send) }()
	select {
	case err = <-sent:
		return err
	case <-k.ctx.Done():
		if errors.Is(context.Cause(k.ctx), errKeeperStuck) {
			return errKeeperStuck
		}
		return nil
	}
}

// keeperReports observes what a keeper says until its stream ends, and that end
// if it is the keeper's newest.
func (s *Server) keeperReports(k *keeperStream, first *linkpb.KeeperReport, receive func() (*linkpb.KeeperReport, error)) {
	admit := first.GetAdmit()
	from := keeperOf(admit)
	s.tell.Lock()
	if s.newest(from, k) {
		s.observe(KeeperReported{from, first})
	}
	s.tell.Unlock()
	for {
		r, err := receive()
		if err != nil {
			break
		}
		s.join(admit.GpuUuids)
		if r.GetBeat() == nil {
			s.observe(KeeperReported{from, r})
		}
	}
	s.tell.Lock()
	defer s.tell.Unlock()
	if !s.newest(from, k) {
		return
	}
	s.observe(KeeperGone{from})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keepers[from] == k {
		delete(s.keepers, from)
	}
}

func (s *Server) newest(from Keeper, k *keeperStream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keepers[from] == k
}

// keeperOrders writes orders until the stream ends.
func (s *Server) keeperOrders(k *keeperStream, restart <-chan struct{}, send func(*linkpb.KeeperOrder) error) error {
	leader := func(l *linkpb.Leader) *linkpb.KeeperOrder {
		return &linkpb.KeeperOrder{Fence: l.Fence, Order: &linkpb.KeeperOrder_Leader{Leader: l}}
	}
	return sendLoop(s, writer[linkpb.KeeperOrder]{
		// Only what was sent counts: no lease goes before the admission.
		send: func(order *linkpb.KeeperOrder) error {
			switch order.Order.(type) {
			case *linkpb.KeeperOrder_Admitted:
				k.admitted.Store(true)
			case *linkpb.KeeperOrder_NotAdmitted:
				k.admitted.Store(false)
			}
			return send(order)
		},
		orders:  k.orders,
		restart: restart,
		leader:  leader,
		renew: func() *linkpb.KeeperOrder {
			l, _ := s.leaderNow()
			if !k.admitted.Load() {
				return leader(l)
			}
			return &linkpb.KeeperOrder{Fence: l.Fence, Order: &linkpb.KeeperOrder_Lease{Lease: &linkpb.Lease{LeaseMillis: uint32(Lease.Milliseconds())}}}
		},
	})
}
