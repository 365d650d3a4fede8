package keeper

import (
	"bytes"
	"context"
	"net"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/internal/link"
	"github.com/gangd/gangd/internal/link/linkpb"
	"github.com/gangd/gangd/plugins/driver/lane"
)

// TestDroppedReportsAreLogged: once for each overflow, when a stream is there again.
func TestDroppedReportsAreLogged(t *testing.T) {
	var log bytes.Buffer
	k := &keeper{queue: link.NewQueue(2), log: hclog.New(&hclog.LoggerOptions{Output: &log})}
	overflow := func(reports int) {
		for range reports {
			k.queue.Put(&linkpb.KeeperReport{})
		}
	}
	for _, c := range []struct {
		reports int
		want    string
	}{{2, ""}, {3, "dropped=3"}, {0, ""}, {1, "dropped=1"}} {
		log.Reset()
		overflow(c.reports)
		k.replay()
		if got := log.String(); !strings.Contains(got, c.want) || (c.want == "") != (got == "") {
			t.Errorf("%d more reports: logged %q, want %q", c.reports, got, c.want)
		}
	}
}

// TestRefusedRequestsAreLogged: the first, and how many they were.
func TestRefusedRequestsAreLogged(t *testing.T) {
	log := make(lines, 10)
	dir := lane.Dir(t.TempDir())
	l, err := listenControl(dir)
	if err != nil {
		t.Fatal(err)
	}
	k := &keeper{log: hclog.New(&hclog.LoggerOptions{Output: log}), ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan struct{})
	go func() {
		defer close(served)
		k.serveControl(ctx, l)
	}()
	dial := func() net.Conn {
		conn, err := net.Dial("unix", dir.ControlSocket())
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	waiting := make([]net.Conn, maxControlConns)
	for i := range waiting {
		waiting[i] = dial()
	}
	refused := func() bool { // closed without an answer
		conn := dial()
		defer conn.Close()
		if _, err := conn.Write([]byte("?\n")); err != nil {
			return true
		}
		n, _ := conn.Read(make([]byte, 1))
		return n == 0
	}
	for range 2 {
		if !refused() {
			t.Error("more requests are answered than the limit")
		}
	}
	if got := <-log; !strings.Contains(got, "limit=64") {
		t.Errorf("first logged: %s", got)
	}
	for _, conn := range waiting {
		conn.Close()
	}
	eventually(t, "requests are answered again", func() bool { return !refused() })
	if got := <-log; !strings.Contains(got, "answered again: refused=") {
		t.Errorf("then logged: %s", got)
	}
	cancel()
	l.Close()
	<-served
	k.answers.Wait()
	if len(log) > 0 {
		t.Errorf("and logged: %s", <-log)
	}
}

// lines are what is logged, one by one.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}
