package api

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// scheduler is one in memory: a list of gangs, and an error for each call
// that is to fail.
type scheduler struct {
	mu      sync.Mutex
	gangs   []gang.Status
	nodes   []cluster.NodeStatus
	moved   []string // what was asked to be reordered
	watch   chan gang.Status
	windows []gang.WindowStatus
	fail    error
	leader  string
	follow  bool
	// Submit sends on arrived and waits until hold is closed, where they are
	// set.
	arrived, hold chan struct{}
}

func (s *scheduler) Submit(_ context.Context, specs []gang.Spec) ([]gang.Status, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hold != nil {
		s.arrived <- struct{}{}
		<-s.hold
	}
	if s.fail != nil {
		return nil, s.fail
	}
	var accepted []gang.Status
	for _, spec := range specs {
		id := gang.NewID(spec.Name, [5]byte{byte(len(s.gangs))})
		g := gang.Status{Record: gang.Record{Version: 1, ID: id, State: gang.Queued, Tenant: spec.Tenant, Tier: spec.Tier, GPUs: spec.GPUs}}
		s.gangs = append(s.gangs, g)
		accepted = append(accepted, g)
	}
	return accepted, nil
}

func (s *scheduler) Gang(_ context.Context, id gang.ID) (gang.Status, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.gangs {
		if g.ID == id {
			return g, s.fail
		}
	}
	return gang.Status{}, fmt.Errorf("%w: %s", gang.ErrNotFound, id)
}

func (s *scheduler) Cancel(_ context.Context, id gang.ID) (gang.Status, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.gangs {
		if g := &s.gangs[i]; g.ID == id {
			g.State, g.Target = gang.Stopping, gang.Cancelled
			return *g, nil
		}
	}
	return gang.Status{}, gang.ErrNotFound
}

func (s *scheduler) Hold(_ context.Context, id gang.ID, held bool) (gang.Status, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.gangs {
		if g := &s.gangs[i]; g.ID == id {
			if g.State != gang.Queued {
				return *g, fmt.Errorf("hold gang %s: it is %s: %w", id, g.State, gang.ErrNotWaiting)
			}
			g.Held = held
			return *g, nil
		}
	}
	return gang.Status{}, gang.ErrNotFound
}

func (s *scheduler) Reorder(_ context.Context, id, before gang.ID, last bool) (gang.Status, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved = append(s.moved, fmt.Sprint(id, " ", before, " ", last))
	return gang.Status{Record: gang.Record{ID: id, State: gang.Queued}}, s.fail
}

func (s *scheduler) Outlook(ctx context.Context, id gang.ID) (gang.Outlook, error) {
	g, err := s.Gang(ctx, id)
	return gang.Outlook{Status: g, Waiting: 7}, err
}

func (s *scheduler) Shares(context.Context) (gang.Shares, error) {
	return gang.Shares{Capacity: 16, Tenants: []gang.TenantShare{{Name: "a"}}}, s.fail
}

func (s *scheduler) Windows(context.Context) ([]gang.WindowStatus, error) { return s.windows, s.fail }

func (s *scheduler) PlanWindow(_ context.Context, w gang.Window) error {
	if err := w.Validate(); err != nil {
		return err
	}
	s.windows = append(s.windows, gang.WindowStatus{Window: w})
	return s.fail
}

func (s *scheduler) CallWindowOff(_ context.Context, name string) error {
	kept := slices.DeleteFunc(slices.Clone(s.windows), func(w gang.WindowStatus) bool { return w.Name == name })
	if len(kept) == len(s.windows) {
		return fmt.Errorf("call %s off: %w", name, gang.ErrNoWindow)
	}
	s.windows = kept
	return s.fail
}

func (s *scheduler) Gangs(_ context.Context, want gang.Selection) (list []gang.Status, total int, err error) {
	list = []gang.Status{}
	for _, g := range s.gangs {
		if !want.Takes(&g.Record) {
			continue
		}
		if total++; len(list) < want.Limit {
			list = append(list, g)
		}
	}
	return list, total, s.fail
}

func (s *scheduler) Nodes(context.Context) ([]cluster.NodeStatus, error) { return s.nodes, s.fail }

func (s *scheduler) Watch(_ context.Context, id gang.ID) (<-chan gang.Status, error) {
	if s.watch == nil {
		return nil, fmt.Errorf("%w: %s", gang.ErrNotFound, id)
	}
	return s.watch, nil
}

func (s *scheduler) Ready() error { return s.fail }

func (s *scheduler) Leader() (string, bool) { return s.leader, !s.follow }

// blobs is a store in memory.
type blobs map[string]string

func (b blobs) Open(_ context.Context, key string) (io.ReadCloser, int64, string, error) {
	text, ok := b[key]
	if !ok {
		return nil, 0, "", fmt.Errorf("open %s: %w", key, fs.ErrNotExist)
	}
	return io.NopCloser(strings.NewReader(text)), int64(len(text)), "application/octet-stream", nil
}

// serve starts a server on loopback over s.
func serve(t *testing.T, s *scheduler, b Blobs, adjust ...func(*Server)) *httptest.Server {
	t.Helper()
	server, err := New(Options{Scheduler: s, Blobs: b, Registry: prometheus.NewRegistry(), Log: hclog.NewNullLogger(), Levels: []string{"spine", "leaf"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range adjust {
		f(server)
	}
	ts := httptest.NewServer(server.Handler())
	t.Cleanup(ts.Close)
	return ts
}

// call sends one request and returns the answer with its body.
func call(t *testing.T, method, url, contentType, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(text)
}
