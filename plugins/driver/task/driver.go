// Package task is the Nomad task driver "gang". It starts a keeper for each
// task, finds it again, and relays; nothing that must last lives here, since
// Nomad ends and kills the processes of plugins at will.
package task

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/internal/nomadplugin"
	"github.com/gangd/gangd/internal/nomadplugin/schema"
	"github.com/gangd/gangd/plugins/driver/cgroup"
)

// Name is the driver's name in jobs.
const Name = "gang"

// Driver implements nomadplugin.DriverPlugin, Signaler and Executor.
type Driver struct {
	version string
	log     hclog.Logger
	events  *mailbox
	begun   sync.Once // what SetConfig must not begin, as Nomad calls it to try a configuration

	mu     sync.Mutex
	config nodeConfig
	tasks  map[string]*task
}

// New makes a driver of this version, without a configuration.
func New(version string, log hclog.Logger) *Driver {
	return &Driver{version: version, log: log, events: newMailbox(log), tasks: make(map[string]*task)}
}

// Info implements nomadplugin.Plugin.
func (d *Driver) Info() nomadplugin.Info { return nomadplugin.Info{Name: Name, Version: d.version} }

// ConfigSchema implements nomadplugin.Plugin.
func (d *Driver) ConfigSchema() *schema.Spec { return nodeSchema }

// SetConfig implements nomadplugin.Plugin.
func (d *Driver) SetConfig(raw nomadplugin.Config) error {
	c, err := decodeNodeConfig(raw)
	if err != nil {
		return fmt.Errorf("configuration of the plugin gangd-driver: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.config = c
	return nil
}

// TaskConfigSchema implements nomadplugin.DriverPlugin.
func (d *Driver) TaskConfigSchema() *schema.Spec { return taskSchema }

// Capabilities implements nomadplugin.DriverPlugin.
func (d *Driver) Capabilities() nomadplugin.Capabilities {
	return nomadplugin.Capabilities{
		FSIsolation:  nomadplugin.FSIsolationNone,
		NetworkModes: []nomadplugin.NetworkMode{nomadplugin.NetworkHost},
		NoMounts:     true,
	}
}

// Fingerprint implements nomadplugin.DriverPlugin. The driver is healthy
// whether gangd can be reached or not: without gangd no lane is admitted.
func (d *Driver) Fingerprint(ctx context.Context, report func(nomadplugin.Fingerprint)) error {
	d.begun.Do(func() {
		c := d.node()
		go collect(c.StateDir, d.log)
		go d.beat(context.WithoutCancel(ctx), c)
	})
	report(nomadplugin.Fingerprint{
		Health: nomadplugin.HealthHealthy, Description: "Healthy",
		Attributes: map[string]nomadplugin.Attribute{
			"driver.gang":         nomadplugin.BoolAttribute(true),
			"driver.gang.version": nomadplugin.StringAttribute(d.version),
			"driver.gang.cgroup":  nomadplugin.StringAttribute(cgroup.Detect().Mode()),
		},
	})
	<-ctx.Done()
	return ctx.Err()
}

// TaskEvents implements nomadplugin.DriverPlugin.
func (d *Driver) TaskEvents(ctx context.Context, report func(nomadplugin.TaskEvent)) error {
	return d.events.deliver(ctx, report)
}

func (d *Driver) node() nodeConfig {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.config
}

func (d *Driver) find(id string) (*task, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.tasks[id]; t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("task %s: %w", id, nomadplugin.ErrTaskNotFound)
}

// add makes a task known, once.
func (d *Driver) add(t *task) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tasks[t.id] != nil {
		return
	}
	d.tasks[t.id] = t
	ctx, cancel := context.WithCancel(context.Background())
	t.forget = cancel
	go t.follow(ctx, d.events.put)
}

func (d *Driver) remove(t *task) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t.forget()
	delete(d.tasks, t.id)
}

// maxMailbox bounds the events that wait for Nomad to listen.
const maxMailbox = 1000

// mailbox holds task events until Nomad takes them; the oldest give way.
type mailbox struct {
	log     hclog.Logger
	changed chan struct{}

	mu      sync.Mutex
	events  []nomadplugin.TaskEvent
	dropped int // since Nomad last took any
}

func newMailbox(log hclog.Logger) *mailbox {
	return &mailbox{log: log, changed: make(chan struct{}, 1)}
}

func (m *mailbox) put(e nomadplugin.TaskEvent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, e)
	if len(m.events) > maxMailbox {
		m.events = m.events[1:]
		m.dropped++
	}
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// take removes all events, and logs what there was no room for.
func (m *mailbox) take() []nomadplugin.TaskEvent {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dropped > 0 {
		m.log.Warn("task events were dropped, as Nomad took none for too long", "dropped", m.dropped, "kept", maxMailbox)
	}
	events := m.events
	m.events, m.dropped = nil, 0
	return events
}

func (m *mailbox) deliver(ctx context.Context, report func(nomadplugin.TaskEvent)) error {
	for {
		events := m.take()
		for _, e := range events {
			report(e)
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-m.changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// pause waits, and reports whether ctx still goes on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
