package link

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/gangd/gangd/internal/link/linkpb"
)

// ClientConfig is what every stream of a node needs.
type ClientConfig struct {
	Resolver Resolver
	Log      hclog.Logger
	// deadAfter is the package's, but in tests.
	deadAfter time.Duration
}

// endpoint is one kind of stream, seen from the node.
type endpoint[R, O any] struct {
	name string
	open func(context.Context, linkpb.LinkClient) (grpc.BidiStreamingClient[R, O], error)
	// pump sends the hello, and then reports until its context ends.
	pump func(ctx context.Context, send func(*R) error) error
	// leader returns the Leader message in an order, or nil.
	leader func(*O) *linkpb.Leader
	// deliver hands an order on; it may block.
	deliver func(context.Context, *O)
}

var errMoved = errors.New("another agent leads")
var errDead = errors.New("nothing was heard from the agent")

// run keeps the stream open until ctx ends, at the leader where one is known.
func run[R, O any](ctx context.Context, cfg ClientConfig, e endpoint[R, O]) error {
	if cfg.deadAfter == 0 {
		cfg.deadAfter = deadAfter
	}
	wait := backoffMin
	leader := ""
	for ctx.Err() == nil {
		candidates, err := candidates(ctx, cfg.Resolver, leader)
		if err != nil {
			cfg.Log.Warn("link has no address to try", "stream", e.name, "error", err)
		}
		leader = ""
		for _, address := range candidates {
			began := time.Now()
			next, err := session(ctx, address, cfg.deadAfter, e)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			cfg.Log.Debug("link stream ended", "stream", e.name, "address", address, "error", err)
			if time.Since(began) > backoffMax || status.Code(err) == helloAgain {
				wait = backoffMin
			}
			if next != "" && next != address {
				leader, wait = next, backoffMin
				break
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait/2 + rand.N(wait/2+1)):
		}
		wait = min(2*wait, backoffMax)
		if leader != "" {
			wait = backoffMin
		}
	}
	return ctx.Err()
}

func candidates(ctx context.Context, r Resolver, leader string) ([]string, error) {
	if leader != "" {
		return []string{leader}, nil
	}
	found, err := r.Addresses(ctx)
	found = slices.Clone(found)
	rand.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	return found, err
}

// session runs one stream to its end, and returns the address of the leader
// where the stream ended because another agent leads. It ends when nothing was
// heard for silence, be it before or after the connection stands: an address
// from which nothing comes back must not keep a node from the others.
func session[R, O any](ctx context.Context, address string, silence time.Duration, e endpoint[R, O]) (string, error) {
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes)),
		grpc.WithNoProxy())
	if err != nil {
		return "", fmt.Errorf("dial gangd's link at %s: %w", address, err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(silence, func() { cancel(errDead) })
	defer watchdog.Stop()
	stream, err := e.open(ctx, linkpb.NewLinkClient(conn))
	if err != nil {
		return "", fmt.Errorf("open %s stream to gangd at %s: %w", e.name, address, err)
	}
	pumped := make(chan struct{})
	go func() {
		defer close(pumped)
		if err := e.pump(ctx, stream.Send); err != nil {
			cancel(err)
		}
	}()
	next, err := receive(ctx, stream, e, func() { watchdog.Reset(silence) })
	cancel(err)
	<-pumped
	return next, err
}

func receive[R, O any](ctx context.Context, stream grpc.BidiStreamingClient[R, O], e endpoint[R, O], heard func()) (string, error) {
	for {
		order, err := stream.Recv()
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return "", err
		}
		heard()
		if l := e.leader(order); l != nil && !l.Self && l.Address != "" {
			return l.Address, errMoved
		}
		e.deliver(ctx, order)
	}
}

// RunNode keeps the driver plugin's stream, and beats at the interval. It
// returns when ctx ends.
func RunNode(ctx context.Context, cfg ClientConfig, interval time.Duration, hello func() *linkpb.NodeHello, lanes func() []string) error {
	pump := func(ctx context.Context, send func(*linkpb.NodeReport) error) error {
		if err := send(&linkpb.NodeReport{Report: &linkpb.NodeReport_Hello{Hello: hello()}}); err != nil {
			return err
		}
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for sequence := uint64(1); ; sequence++ {
			beat := &linkpb.NodeBeat{Sequence: sequence, Lanes: lanes()}
			if err := send(&linkpb.NodeReport{Report: &linkpb.NodeReport_Beat{Beat: beat}}); err != nil {
				return err
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return nil
			}
		}
	}
	return run(ctx, cfg, endpoint[linkpb.NodeReport, linkpb.NodeOrder]{
		name: "node",
		open: func(ctx context.Context, c linkpb.LinkClient) (grpc.BidiStreamingClient[linkpb.NodeReport, linkpb.NodeOrder], error) {
			return c.Node(ctx)
		},
		pump:    pump,
		leader:  (*linkpb.NodeOrder).GetLeader,
		deliver: func(context.Context, *linkpb.NodeOrder) {},
	})
}

// RunDevice keeps the device plugin's stream: it sends the newest inventory at
// each start of a stream, and whenever one arrives. It returns when ctx ends.
func RunDevice(ctx context.Context, cfg ClientConfig, inventory <-chan []*linkpb.Gpu) error {
	boot := BootID()
	var latest []*linkpb.Gpu
	pump := func(ctx context.Context, send func(*linkpb.DeviceReport) error) error {
		for {
			if latest != nil {
				if err := send(&linkpb.DeviceReport{Protocol: Protocol, BootId: boot, Gpus: latest}); err != nil {
					return err
				}
			}
			select {
			case next, open := <-inventory:
				if !open {
					inventory = nil // there will be no news
					continue
				}
				latest = next
			case <-ctx.Done():
				return nil
			}
		}
	}
	return run(ctx, cfg, endpoint[linkpb.DeviceReport, linkpb.DeviceOrder]{
		name: "device",
		open: func(ctx context.Context, c linkpb.LinkClient) (grpc.BidiStreamingClient[linkpb.DeviceReport, linkpb.DeviceOrder], error) {
			return c.Device(ctx)
		},
		pump:    pump,
		leader:  (*linkpb.DeviceOrder).GetLeader,
		deliver: func(context.Context, *linkpb.DeviceOrder) {},
	})
}

// RunKeeper keeps a keeper's stream: at each start of a stream hello is sent,
// then what the queue replays, then what is put into it. Orders are delivered
// to the channel. It returns when ctx ends.
func RunKeeper(ctx context.Context, cfg ClientConfig, hello func() *linkpb.Admit, out *Queue, orders chan<- *linkpb.KeeperOrder) error {
	return run(ctx, cfg, endpoint[linkpb.KeeperReport, linkpb.KeeperOrder]{
		name: "keeper",
		open: func(ctx context.Context, c linkpb.LinkClient) (grpc.BidiStreamingClient[linkpb.KeeperReport, linkpb.KeeperOrder], error) {
			return c.Keeper(ctx)
		},
		pump:   keeperPump(hello, out),
		leader: (*linkpb.KeeperOrder).GetLeader,
		deliver: func(ctx context.Context, o *linkpb.KeeperOrder) {
			select {
			case orders <- o:
			case <-ctx.Done():
			}
		},
	})
}

func keeperPump(hello func() *linkpb.Admit, out *Queue) func(context.Context, func(*linkpb.KeeperReport) error) error {
	return func(ctx context.Context, send func(*linkpb.KeeperReport) error) error {
		if err := send(&linkpb.KeeperReport{Report: &linkpb.KeeperReport_Admit{Admit: hello()}}); err != nil {
			return err
		}
		for _, r := range out.restart() {
			if err := send(r); err != nil {
				return err
			}
		}
		for sequence := uint64(1); ; sequence++ {
			beat, cancel := context.WithTimeout(ctx, BeatInterval)
			reports, err := out.take(beat)
			cancel()
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				reports = []*linkpb.KeeperReport{{Report: &linkpb.KeeperReport_Beat{Beat: &linkpb.KeeperBeat{Sequence: sequence}}}}
			}
			for _, r := range reports {
				if err := send(r); err != nil {
					return err
				}
			}
		}
	}
}
