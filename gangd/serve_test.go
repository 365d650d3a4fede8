package main

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/consul"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/link"
	"github.com/gangd/gangd/internal/link/linkpb"
)

// Consul may tell of the next leader before the loop has noticed that it is
// deposed, and of the last one after it began to lead.
func TestNodesAreToldWhoLeads(t *testing.T) {
	other := consul.Leadership{Identity: consul.Identity{Name: "b", LinkAddr: "10.0.0.2:4751"}, Held: true}
	fence := gang.Fence{Epoch: 1, Index: 9}
	for name, c := range map[string]struct {
		events  func(*agent, func(consul.Leadership))
		self    bool
		address string
		index   uint64
	}{
		"the news of the next leader comes before the end of the term": {func(a *agent, tell func(consul.Leadership)) {
			a.lead(true, fence)
			tell(other)
			a.lead(false, gang.Fence{})
		}, false, other.LinkAddr, 0},
		"the news of the last leader comes after the start of the term": {func(a *agent, tell func(consul.Leadership)) {
			a.lead(true, fence)
			tell(consul.Leadership{})
		}, true, "", fence.Index},
		"nobody leads": {func(a *agent, tell func(consul.Leadership)) { tell(consul.Leadership{}) }, false, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			a := &agent{cfg: &config.Agent{Link: config.Link{Advertise: "10.0.0.1:4751"}}}
			a.link = link.NewServer(hclog.NewNullLogger(), func(link.Event) {})
			c.events(a, a.follow)
			l := told(t, a.link)
			if l.Self != c.self || l.Address != c.address || l.Fence.GetIndex() != c.index {
				t.Errorf("nodes are told %v", l)
			}
		})
	}
}

// told returns what a node is told at the start of a stream.
func told(t *testing.T, s *link.Server) *linkpb.Leader {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	go s.Serve(ctx, l)
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := linkpb.NewLinkClient(conn).Device(ctx)
	if err != nil {
		t.Fatal(err)
	}
	order, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return order.GetLeader()
}
