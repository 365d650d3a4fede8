package consul

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/hashicorp/go-hclog"
)

// patience bounds every wait in these tests.
const patience = 30 * time.Second

// shared is the one Consul agent of a test run; each test has its own prefix
// and agent names.
var shared struct {
	once sync.Once
	addr string
	err  error
	stop func()
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.stop != nil {
		shared.stop()
	}
	os.Exit(code)
}

// consulAddr returns the HTTP address of a real Consul server.
func consulAddr(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real Consul")
	}
	shared.once.Do(func() { shared.addr, shared.stop, shared.err = startConsul() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.addr
}

func binary(name string) (string, error) {
	dir := os.Getenv("GANGD_BIN_DIR")
	if dir == "" {
		dir = filepath.Join("..", "..", ".bin")
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		return "", fmt.Errorf("these tests need a real %s: run `make tools`, or set GANGD_BIN_DIR: %w", name, err)
	}
	return path, nil
}

func startConsul() (addr string, stop func(), err error) {
	path, err := binary("consul")
	if err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp("", "gangd-consul")
	if err != nil {
		return "", nil, err
	}
	ports, err := freePorts(4)
	if err != nil {
		return "", nil, err
	}
	var log bytes.Buffer
	cmd := exec.Command(path, "agent", "-server", "-bootstrap", "-node=test", "-data-dir="+dir,
		"-bind=127.0.0.1", "-client=127.0.0.1", "-dns-port=-1", "-grpc-port=-1", "-grpc-tls-port=-1",
		fmt.Sprintf("-http-port=%d", ports[0]), fmt.Sprintf("-serf-lan-port=%d", ports[1]),
		fmt.Sprintf("-serf-wan-port=%d", ports[2]), fmt.Sprintf("-server-port=%d", ports[3]),
		"-hcl=performance { raft_multiplier = 1 }")
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	exited := make(chan struct{})
	go func() {
		cmd.Wait()
		close(exited)
	}()
	stop = func() {
		cmd.Process.Kill()
		<-exited
		os.RemoveAll(dir)
	}
	addr = fmt.Sprintf("127.0.0.1:%d", ports[0])
	if err := waitConsul(addr, exited); err != nil {
		stop()
		return "", nil, fmt.Errorf("start Consul: %w\n%s", err, log.String())
	}
	return addr, stop, nil
}

// waitConsul waits until the agent itself is a node in the catalog.
func waitConsul(addr string, exited <-chan struct{}) error {
	client, err := api.NewClient(&api.Config{Address: addr})
	if err != nil {
		return err
	}
	for deadline := time.After(patience); ; {
		checks, _, err := client.Health().Node("test", nil)
		if err == nil && checks.AggregatedStatus() == api.HealthPassing && len(checks) > 0 {
			return nil
		}
		select {
		case <-exited:
			return fmt.Errorf("it exited")
		case <-deadline:
			return fmt.Errorf("it is not ready after %s: %v", patience, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func freePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}

func prefixOf(t *testing.T) string { return "test/" + strings.ReplaceAll(t.Name(), "/", "-") + "/" }

// openStore opens the store of one agent of the test's cluster.
func openStore(t *testing.T, addr, agent string) *Store {
	t.Helper()
	s, err := Open(Config{
		Address: addr,
		Prefix:  prefixOf(t),
		Identity: Identity{
			Name:     t.Name() + "-" + agent,
			HTTPAddr: "127.0.0.1:4750",
			LinkAddr: "127.0.0.1:4751",
		},
		Log: hclog.New(&hclog.LoggerOptions{Name: agent, Output: testWriter{t}, Level: hclog.Debug}),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		defer cancel()
		if err := s.Deregister(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

type testWriter struct{ t *testing.T }

// Write drops what background work says after the end of a test.
func (w testWriter) Write(p []byte) (int, error) {
	if w.t.Context().Err() == nil {
		w.t.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

func campaign(t *testing.T, s *Store) *Term {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	term, err := s.Campaign(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return term
}

// lead campaigns and keeps the loop's pulse going until the returned function
// stops it, as if the loop were stuck.
func lead(t *testing.T, s *Store) (term *Term, stick func()) {
	t.Helper()
	term = campaign(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() {
		for pause(ctx, 50*time.Millisecond) == nil {
			term.Pulse()
		}
	}()
	return term, cancel
}

func await[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("no %s after %s", what, patience)
		panic("unreachable")
	}
}

// lossy is a proxy before Consul that can perform transactions and lose their
// answers, or refuse all.
type lossy struct {
	addr string
	// lose is how many more transactions go without an answer.
	lose atomic.Int64
	down atomic.Bool
}

func newLossy(t *testing.T) *lossy {
	p := &lossy{}
	target := &url.URL{Scheme: "http", Host: consulAddr(t)}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ErrorLog = hclog.NewNullLogger().StandardLogger(nil)
	proxy.ModifyResponse = func(r *http.Response) error {
		if r.Request.URL.Path == "/v1/txn" && p.lose.Add(-1) >= 0 {
			return fmt.Errorf("lost")
		}
		return nil
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.down.Load() {
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, r)
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	p.addr = l.Addr().String()
	return p
}
