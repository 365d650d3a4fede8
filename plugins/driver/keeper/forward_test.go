package keeper

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A log collector opens the FIFO and reads to its end. It must get there when
// the lane ends, even if its ranks never wrote a line.
func TestForwarderOpensFIFOWithoutLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stdout.fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	go newForwarder(path).run(ctx)
	opened, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		reader, err := os.Open(path) // blocks until there is a writer
		if err != nil {
			t.Error(err)
			return
		}
		defer reader.Close()
		close(opened)
		if n, err := reader.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("read %d bytes and %v, want the end of the file", n, err)
		}
	}()
	for _, step := range []struct {
		what string
		done chan struct{}
	}{{"opened", opened}, {"at its end", ended}} {
		select {
		case <-step.done:
		case <-time.After(5 * time.Second):
			t.Fatalf("the collector's end of the FIFO is not %s", step.what)
		}
		end()
	}
}
