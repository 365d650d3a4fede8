package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// Limits of the server.
const (
	// MaxConnections are served at once; others wait in the kernel's queue.
	// Each client that follows a gang holds one.
	MaxConnections = 4096

	maxHeaderBytes = 64 << 10
	headerTimeout  = 10 * time.Second
	bodyTimeout    = 30 * time.Second
	requestTimeout = 30 * time.Second
	// writeTimeout bounds each single write, so that a stream may last and a
	// client that reads nothing may not.
	writeTimeout  = 30 * time.Second
	idleTimeout   = 2 * time.Minute
	shutdownGrace = 5 * time.Second
	pingInterval  = 15 * time.Second
)

// Scheduler is what the API needs of the agent. Its errors decide the answer:
// gang.ErrNotFound, gang.ErrNoWindow, gang.ErrNotLeading, gang.ErrOutcomeUnknown, gang.ErrOverloaded,
// gang.ErrNotNow and *gang.RefusedError are told apart, all others are the server's fault.
type Scheduler interface {
	// Submit accepts all gangs or none, and returns once that is durable.
	Submit(ctx context.Context, specs []gang.Spec) ([]gang.Status, error)
	Cancel(ctx context.Context, id gang.ID) (gang.Status, error)
	// Hold keeps a gang that waits from starting, or no longer does; it may be
	// repeated. Reorder moves one before another of its tenant and tier; where
	// before is empty, before or behind all of them. Errors of both wrap
	// gang.ErrNotWaiting where the gang does not wait.
	Hold(ctx context.Context, id gang.ID, held bool) (gang.Status, error)
	Reorder(ctx context.Context, id, before gang.ID, last bool) (gang.Status, error)
	Outlook(ctx context.Context, id gang.ID) (gang.Outlook, error)
	Shares(ctx context.Context) (gang.Shares, error)
	Gang(ctx context.Context, id gang.ID) (gang.Status, error)
	// Gangs lists those that are wanted in queue order, live ones first, without
	// specifications, up to the limit. Total counts all that match.
	Gangs(ctx context.Context, want gang.Selection) (gangs []gang.Status, total int, err error)
	Nodes(ctx context.Context) ([]cluster.NodeStatus, error)
	// Windows lists maintenance windows by their beginning. PlanWindow plans one, or
	// another than before under its name. The error of CallWindowOff wraps
	// gang.ErrNoWindow where there is none of that name.
	Windows(ctx context.Context) ([]gang.WindowStatus, error)
	PlanWindow(ctx context.Context, w gang.Window) error
	CallWindowOff(ctx context.Context, name string) error
	// Watch sends the present status, then the latest one after each change,
	// and closes the channel after a terminal one, when ctx ends, or when this
	// agent can no longer tell.
	Watch(ctx context.Context, id gang.ID) (<-chan gang.Status, error)
	// Ready returns nil when this agent leads, or follows a known leader.
	Ready() error
	// Leader returns where to forward to; an empty address when unknown.
	Leader() (httpAddr string, self bool)
}

// Blobs opens objects of the blob store. An error that wraps fs.ErrNotExist
// says that there is none with that key.
type Blobs interface {
	Open(ctx context.Context, key string) (body io.ReadCloser, size int64, contentType string, err error)
}

// Registry takes the server's own metrics and shows everyone's.
type Registry interface {
	prometheus.Registerer
	prometheus.Gatherer
}

// Server is the HTTP side of an agent.
type Server struct {
	scheduler Scheduler
	blobs     Blobs
	log       hclog.Logger
	levels    []string
	metrics   *metrics
	proxy     http.Handler
	handler   http.Handler
	ping      time.Duration
	// parsing bounds how many bodies are parsed at once: a parser needs a
	// hundred times the size of what it reads.
	parsing chan struct{}
	// closing ends streams, which a shutdown would otherwise wait for.
	closing chan struct{}
}

// Options are what a server is made of; all are needed.
type Options struct {
	Scheduler Scheduler
	Blobs     Blobs
	// Registry takes the server's metrics, and is served under /metrics.
	Registry Registry
	Log      hclog.Logger
	// Levels are the names of a node's domains, widest first.
	Levels []string
}

// New makes a server.
func New(o Options) (*Server, error) {
	m, err := newMetrics(o.Registry)
	if err != nil {
		return nil, fmt.Errorf("register the metrics of the HTTP server: %w", err)
	}
	s := &Server{
		scheduler: o.Scheduler,
		blobs:     o.Blobs,
		log:       o.Log,
		levels:    o.Levels,
		metrics:   m,
		ping:      pingInterval,
		parsing:   make(chan struct{}, runtime.GOMAXPROCS(0)),
		closing:   make(chan struct{}),
	}
	s.proxy = s.newProxy()
	exposition := promhttp.HandlerFor(o.Registry, promhttp.HandlerOpts{ErrorLog: o.Log.StandardLogger(nil), Timeout: requestTimeout})
	s.handler = s.outermost(s.routes(exposition))
	return s, nil
}

// Handler serves all routes.
func (s *Server) Handler() http.Handler { return s.handler }

// Serve answers on l until ctx ends, then lets requests in progress finish
// for a few seconds, and ends streams at once. A server serves once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          s.log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(netutil.LimitListener(l, MaxConnections)) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve HTTP on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	close(s.closing)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if err := server.Shutdown(grace); errors.Is(err, context.DeadlineExceeded) {
		s.log.Warn("requests were still in progress at the end", "grace", shutdownGrace)
		return server.Close()
	} else if err != nil {
		return fmt.Errorf("shut down HTTP on %s: %w", l.Addr(), err)
	}
	return nil
}

// handlerFunc answers a request, or returns why it did not.
type handlerFunc func(w http.ResponseWriter, r *http.Request) error

// route is one method of one path.
type route struct {
	method, path string
	serve        handlerFunc
}

func (s *Server) routes(exposition http.Handler) http.Handler {
	mux := http.NewServeMux()
	allowed := map[string][]string{}
	add := func(wrap func(route) http.Handler, routes ...route) {
		for _, rt := range routes {
			mux.Handle(rt.method+" "+rt.path, wrap(rt))
			allowed[rt.path] = append(allowed[rt.path], rt.method)
		}
	}
	add(s.quick,
		route{"POST", "/v1/gangs", s.submit},
		route{"GET", "/v1/gangs", s.list},
		route{"GET", "/v1/gangs/{id}", s.get},
		route{"POST", "/v1/gangs/{id}/cancel", s.cancel},
		route{"GET", "/v1/gangs/{id}/explain", s.explain},
		route{"POST", "/v1/gangs/{id}/hold", s.hold},
		route{"POST", "/v1/gangs/{id}/release", s.release},
		route{"POST", "/v1/gangs/{id}/reorder", s.reorder},
		route{"GET", "/v1/cluster", s.cluster},
		route{"GET", "/v1/shares", s.shares},
		route{"GET", "/v1/maintenance", s.windows},
		route{"PUT", "/v1/maintenance/{name}", s.planWindow},
		route{"DELETE", "/v1/maintenance/{name}", s.callWindowOff},
	)
	add(s.stream,
		route{"GET", "/v1/gangs/{id}/events", s.events},
		route{"GET", "/v1/gangs/{id}/artifact", s.artifact},
		route{"GET", "/v1/gangs/{id}/thumbnail", s.thumbnail},
	)
	add(s.own,
		route{"GET", "/healthz", s.healthz},
		route{"GET", "/readyz", s.readyz},
		route{"GET", "/metrics", func(w http.ResponseWriter, r *http.Request) error {
			exposition.ServeHTTP(w, r)
			return nil
		}},
	)
	for path, methods := range allowed {
		mux.Handle(path, s.own(route{"", path, methodNotAllowed(methods)}))
	}
	mux.Handle("/", s.own(route{"", "/", noSuchPath}))
	return mux
}

// own serves what each agent answers for itself.
func (s *Server) own(rt route) http.Handler {
	return s.measured(rt, func(w http.ResponseWriter, r *http.Request) {
		if err := rt.serve(w, r); err != nil {
			s.fail(w, r, err)
		}
	})
}

// stream serves what may last, on the leader.
func (s *Server) stream(rt route) http.Handler {
	return s.measured(rt, func(w http.ResponseWriter, r *http.Request) {
		// There is no body to wait for, and a deadline that passes would end
		// the stream.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		s.onLeader(w, r, rt.serve)
	})
}

// quick serves what has to be done soon, on the leader.
func (s *Server) quick(rt route) http.Handler {
	return s.measured(rt, func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		s.onLeader(w, r.WithContext(ctx), rt.serve)
	})
}
