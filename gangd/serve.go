package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/gangd/gangd/internal/api"
	"github.com/gangd/gangd/internal/blob"
	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/consul"
	"github.com/gangd/gangd/internal/coordinator"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/link"
	"github.com/gangd/gangd/internal/nomad"
	"github.com/gangd/gangd/internal/record"
	"github.com/gangd/gangd/internal/schedule"
)

// maxFinished is how many gangs that have ended stay in Consul.
const maxFinished = 1000

// serve runs the agent until ctx ends: the coordinator's loop, the link for
// the nodes, and HTTP for users.
func serve(ctx context.Context, cfg *config.Agent, rec recordFlags, log hclog.Logger) error {
	recorder := rec.recorder(log)
	if recorder != nil {
		defer recorder.Close()
	}
	a, err := newAgent(ctx, cfg, recorder, log)
	if err != nil {
		return err
	}
	defer a.blobs.Close()
	httpListener, err := net.Listen("tcp", cfg.HTTP.Address)
	if err != nil {
		return fmt.Errorf("listen for HTTP: %w: change http.address, or end what listens there", err)
	}
	linkListener, err := net.Listen("tcp", cfg.Link.Address)
	if err != nil {
		return fmt.Errorf("listen for the link: %w: change link.address, or end what listens there", err)
	}
	for _, tier := range schedule.MayStarve(cfg.Rules.Tiers) {
		log.Warn("gangs of a tier may wait for ever, under endless demand of those above it", "tier", tier, "mend", "give it a min_share")
	}
	log.Info("serving", "name", cfg.Name, "http", cfg.HTTP.Address, "link", cfg.Link.Address, "version", version)

	defer a.deregister(ctx, log)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.loop.Run(ctx) })
	group.Go(func() error { return a.link.Serve(ctx, linkListener) })
	group.Go(func() error { return a.http.Serve(ctx, httpListener) })
	group.Go(func() error { return a.followLeader(ctx) })
	return group.Wait()
}

// deregister takes the agent out of Consul's catalog when it ends.
func (a *agent) deregister(ctx context.Context, log hclog.Logger) {
	if err := a.store.Deregister(context.WithoutCancel(ctx)); err != nil {
		log.Warn("the agent stays in Consul's catalog for a while", "error", err)
	}
}

// agent is the wired parts.
type agent struct {
	cfg   *config.Agent
	store *consul.Store
	blobs *blob.Store
	loop  *coordinator.Loop
	link  *link.Server
	http  *api.Server

	mu     sync.Mutex
	leader consul.Leadership // as Consul tells it
	leads  bool              // as the loop tells it, with its fence
	fence  gang.Fence
}

func newAgent(ctx context.Context, cfg *config.Agent, recorder *record.Writer, log hclog.Logger) (*agent, error) {
	a := &agent{cfg: cfg}
	var err error
	a.store, err = consul.Open(consul.Config{
		Address: cfg.Consul.Address, Token: cfg.Consul.Token, Prefix: cfg.Consul.Prefix + "/", Log: log.Named("consul"),
		Identity: consul.Identity{Name: cfg.Name, HTTPAddr: cfg.HTTP.Advertise, LinkAddr: cfg.Link.Advertise},
	})
	if err != nil {
		return nil, err
	}
	client, err := nomad.Open(nomad.Config{Address: cfg.Nomad.Address, Namespace: cfg.Nomad.Namespace, Token: cfg.Nomad.Token, Log: log.Named("nomad")})
	if err != nil {
		return nil, err
	}
	if a.blobs, err = blob.Open(ctx, cfg.Blob.URL); err != nil {
		return nil, err
	}
	a.link = link.NewServer(log.Named("link"), func(e link.Event) {
		if in := linkInput(e); in != nil {
			a.loop.Observe(in)
		}
	})
	metrics := coordinator.NewMetrics()
	loop := coordinator.LoopConfig{
		Core: coordinator.Config{
			Rules: cfg.Rules, ReadyTimeout: cfg.Start.ReadyTimeout, Lease: link.Lease,
			MaxQueue: cfg.Limits.Queue, MaxFinished: maxFinished,
		},
		Store:       consulPort{a.store},
		Nomad:       &nomadPort{client: client, topology: cfg.Topology, pool: cfg.Nomad.NodePool, log: log.Named("nomad")},
		Nodes:       nodesPort{agent: a, server: a.link, blobURL: cfg.Blob.URL},
		Blobs:       publisher{a.blobs},
		Log:         log.Named("coordinator"),
		Metrics:     metrics,
		MaxRequests: cfg.Limits.SubmissionsInFlight,
	}
	registry := prometheus.NewRegistry()
	if recorder != nil { // a nil *Writer in an interface is not nil
		loop.Recorder = recorder
		registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "gangd_record_lost_total", Help: "Events that were not recorded, as the disk was slow or failed.",
		}, func() float64 { return float64(recorder.Lost()) }))
	}
	a.loop = coordinator.NewLoop(loop)
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if err := metrics.Register(registry); err != nil {
		return nil, err
	}
	a.http, err = api.New(api.Options{
		Scheduler: scheduler{a.loop, a}, Blobs: blobObjects{a.blobs}, Registry: registry, Log: log.Named("http"), Levels: cfg.Topology.Levels,
	})
	return a, err
}

// followLeader keeps who leads, for forwarding and for the link.
func (a *agent) followLeader(ctx context.Context) error {
	for leader := range a.store.WatchLeader(ctx) {
		a.follow(leader)
	}
	return ctx.Err()
}

// follow notes what Consul says of who leads. What a leader told its streams
// stands until it stops leading.
func (a *agent) follow(leader consul.Leadership) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leader = leader
	if !a.leads {
		a.tellLink()
	}
}

// lead notes that this agent began or ceased to lead. Consul may have told of
// the next leader before this one has noticed that it is deposed.
func (a *agent) lead(leads bool, fence gang.Fence) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leads, a.fence = leads, fence
	a.tellLink()
}

// tellLink tells the nodes who leads. The caller holds mu, so that what is told
// last is what holds.
func (a *agent) tellLink() {
	if a.leads {
		a.link.SetLeader(true, "", a.fence)
		return
	}
	address := a.leader.LinkAddr
	if !a.leader.Held || address == a.cfg.Link.Advertise {
		address = ""
	}
	a.link.SetLeader(false, address, gang.Fence{})
}

// scheduler adds to the loop what the API asks of the whole agent.
type scheduler struct {
	*coordinator.Loop
	agent *agent
}

// Leader implements api.Scheduler.
func (s scheduler) Leader() (string, bool) {
	if s.Leading() {
		return "", true
	}
	s.agent.mu.Lock()
	defer s.agent.mu.Unlock()
	if !s.agent.leader.Held || s.agent.leader.Name == s.agent.cfg.Name {
		return "", false
	}
	return s.agent.leader.HTTPAddr, false
}

// Ready implements api.Scheduler.
func (s scheduler) Ready() error {
	if address, self := s.Leader(); self || address != "" {
		return nil
	}
	return fmt.Errorf("no agent leads: see whether Consul at %s answers: %w", s.agent.cfg.Consul.Address, gang.ErrNotLeading)
}

// blobObjects opens objects for the API.
type blobObjects struct{ store *blob.Store }

// Open implements api.Blobs.
func (o blobObjects) Open(ctx context.Context, key string) (io.ReadCloser, int64, string, error) {
	info, err := o.store.Stat(ctx, key)
	if err != nil {
		return nil, 0, "", notExist(err)
	}
	body, err := o.store.Open(ctx, key)
	if err != nil {
		return nil, 0, "", notExist(err)
	}
	return body, info.Bytes, info.ContentType, nil
}

func notExist(err error) error {
	if errors.Is(err, blob.ErrNotFound) {
		return fmt.Errorf("%w: %w", err, fs.ErrNotExist)
	}
	return err
}

// publisher writes manifests for the coordinator.
type publisher struct{ store *blob.Store }

// Publish implements coordinator.Publisher.
func (p publisher) Publish(ctx context.Context, key string, m coordinator.Manifest) error {
	err := p.store.Publish(ctx, key, m)
	if errors.Is(err, blob.ErrAlreadyPublished) {
		return fmt.Errorf("%w: %w", coordinator.ErrPublished, err)
	}
	return err
}
