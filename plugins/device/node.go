package main

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/internal/gpu"
)

// The wait before NVML is tried again where it cannot be opened, as while a
// node boots and its driver is not loaded yet.
const (
	reopenFirst = time.Second
	reopenMax   = time.Minute
)

// view is what is known of the node's GPUs at one moment.
type view struct {
	// known is set once there is an answer, even if it is that NVML cannot be
	// opened and so no GPU can be offered.
	known     bool
	inventory gpu.Inventory
	// library is nil while NVML is not open.
	library *gpu.Library
}

// node follows the GPUs of this node, and keeps the newest view of them for
// Nomad's calls.
type node struct {
	config   gpu.Config
	reporter reporter
	log      hclog.Logger

	mu      sync.Mutex
	view    view
	changed chan struct{}
}

func newNode(c gpu.Config, r reporter, log hclog.Logger) *node {
	return &node{config: c, reporter: r, log: log, changed: make(chan struct{})}
}

// latest is the newest view, and a channel that is closed by the next one.
func (n *node) latest() (view, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.view, n.changed
}

func (n *node) show(v view) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.view = v
	close(n.changed)
	n.changed = make(chan struct{})
}

// run opens NVML, however long that takes, and follows the GPUs until the
// context ends.
func (n *node) run(ctx context.Context) {
	for pause := reopenFirst; ; pause = min(2*pause, reopenMax) {
		err := n.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		n.log.Error("no GPU can be offered; NVML is tried again", "retry_in", pause.String(), "error", err)
		if v, _ := n.latest(); !v.known {
			n.show(view{known: true})
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// follow returns when the context ends, or when NVML cannot be opened or the
// GPUs not listed.
func (n *node) follow(ctx context.Context) error {
	library, err := gpu.Open(n.config)
	if err != nil {
		return err
	}
	defer func() {
		if err := library.Close(); err != nil {
			n.log.Warn("NVML was not closed properly", "error", err)
		}
	}()
	monitor, err := gpu.NewMonitor(gpu.MonitorConfig{
		Library: library,
		Log:     n.log,
		Changed: func(inventory gpu.Inventory) {
			inventory = readable(inventory)
			n.reporter.Report(inventory)
			n.show(view{known: true, inventory: inventory, library: library})
		},
	})
	if err != nil {
		return err
	}
	monitor.Run(ctx)
	return nil
}

// readable makes texts of what a driver or the system put into words, whatever
// bytes they are: neither Nomad nor gangd could be told of a GPU otherwise. IDs
// have their fixed forms.
func readable(inventory gpu.Inventory) gpu.Inventory {
	text := func(s string) string { return strings.ToValidUTF8(s, "?") }
	inventory.DriverVersion = text(inventory.DriverVersion)
	inventory.GPUs = slices.Clone(inventory.GPUs)
	for i := range inventory.GPUs {
		s := &inventory.GPUs[i]
		s.Reason, s.GPU.Name, s.GPU.Model = text(s.Reason), text(s.GPU.Name), text(s.GPU.Model)
	}
	return inventory
}
