package gpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// eventWait bounds one wait for an event, and so how long the end of a
	// monitor takes. NVML ends a wait as soon as there is an event.
	eventWait = 250 * time.Millisecond
	// eventBacklog is how many events may wait for the monitor; then NVML holds
	// them.
	eventBacklog = 64
	// resubscribeFirst and resubscribeMax bound the wait before events that
	// failed are asked for again. GPUs are polled meanwhile.
	resubscribeFirst = time.Second
	resubscribeMax   = 30 * time.Second
	// probeLimit is how long a GPU may take to answer a probe.
	probeLimit = 10 * time.Second
	// firstProbes is how long the first inventory waits for the first probes.
	firstProbes = time.Second
)

// errSilent is the answer of a GPU that gave none in time.
var errSilent = fmt.Errorf("a probe through NVML had no answer for %v", probeLimit)

// Inventory is a node's GPUs with the verdicts on them.
type Inventory struct {
	DriverVersion string
	// GPUs is ordered by index.
	GPUs []Status
}

// source is what a monitor needs of a Library.
type source interface {
	Probe(uuid string) Probe
	watch(gpus []GPU) (watch, error)
}

// watch is what it needs of Events.
type watch interface {
	Watched(uuid string) bool
	Wait(timeout time.Duration) (Event, error)
	Close() error
}

func (l *Library) watch(gpus []GPU) (watch, error) { return l.Events(gpus) }

// MonitorConfig is what a monitor is made of.
type MonitorConfig struct {
	Library *Library
	// Policy is DefaultPolicy where it is zero.
	Policy Policy
	// Changed is called with the whole inventory once at the start and after
	// each change, one call at a time. It must not block.
	Changed func(Inventory)
	Log     hclog.Logger
}

// Monitor keeps the verdicts on a node's GPUs up to date, by their events and by
// probes. It probes every GPU whenever events may have been missed, and polls
// where there are none.
type Monitor struct {
	source        source
	gpus          []GPU
	driverVersion string
	health        *Health
	changed       func(Inventory)
	log           hclog.Logger

	signals chan signal
	answers chan answer
	// asked is when the probes that run now began. A GPU has one at a time,
	// however long NVML takes.
	asked map[string]time.Time
	// silent are those of them that took too long.
	silent map[string]bool

	published []Status
}

// signal is what the listening goroutine tells the loop.
type signal struct {
	// watched is set when listening began, or ended: then for no GPU.
	watched func(uuid string) bool
	event   Event
}

type answer struct {
	uuid  string
	asked time.Time
	probe Probe
}

// NewMonitor lists the GPUs. Those that cannot be read are logged and not in the
// inventory: without a UUID nothing can be placed on them.
func NewMonitor(c MonitorConfig) (*Monitor, error) {
	gpus, err := c.Library.GPUs()
	if err != nil {
		if len(gpus) == 0 {
			return nil, err
		}
		c.Log.Error("some GPUs are left out, because they cannot be read: see nvidia-smi", "error", err)
	}
	driverVersion, err := c.Library.DriverVersion()
	if err != nil {
		return nil, err
	}
	if c.Policy == (Policy{}) {
		c.Policy = DefaultPolicy()
	}
	return newMonitor(c.Library, gpus, driverVersion, c), nil
}

func newMonitor(src source, gpus []GPU, driverVersion string, c MonitorConfig) *Monitor {
	return &Monitor{
		source:        src,
		gpus:          gpus,
		driverVersion: driverVersion,
		health:        NewHealth(gpus, c.Policy),
		changed:       c.Changed,
		log:           c.Log,
		signals:       make(chan signal, eventBacklog),
		answers:       make(chan answer, len(gpus)),
		asked:         map[string]time.Time{},
		silent:        map[string]bool{},
	}
}

// Run watches until the context ends. A probe that NVML does not return from is
// left behind.
func (m *Monitor) Run(ctx context.Context) {
	var listening sync.WaitGroup
	listening.Go(func() { m.listen(ctx) })
	defer listening.Wait()

	first := time.After(firstProbes)
	started := false
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-m.signals:
			m.take(s)
		case a := <-m.answers:
			delete(m.asked, a.uuid)
			delete(m.silent, a.uuid)
			m.health.Probed(time.Now(), a.asked, a.uuid, a.probe)
		case <-first:
			started = true
		case <-timer.C:
		}
		timer.Reset(m.probe(time.Now()))
		started = started || len(m.asked) == 0
		if started {
			m.publish()
		}
	}
}

// take applies what the listening goroutine heard.
func (m *Monitor) take(s signal) {
	now := time.Now()
	switch {
	case s.watched != nil:
		m.health.Watch(now, s.watched)
	case s.event.XID == 0:
		m.log.Info("a GPU reported an event that is no XID: it is probed", "gpu", s.event.UUID)
		m.health.Suspect(now, s.event.UUID)
	default:
		for _, r := range m.health.XID(now, s.event.UUID, s.event.XID) {
			m.log.Warn("a GPU reported an error", "gpu", r.UUID, "xid", r.XID, "class", r.Class.String(), "came_with", r.Cause)
		}
	}
}

// probe asks the GPUs that are due, and returns when to look again.
func (m *Monitor) probe(now time.Time) time.Duration {
	running := func(uuid string) bool { _, ok := m.asked[uuid]; return ok }
	for _, uuid := range m.health.Due(now) {
		if running(uuid) {
			continue
		}
		m.asked[uuid] = now
		go func() { m.answers <- answer{uuid: uuid, asked: now, probe: m.source.Probe(uuid)} }()
	}
	for uuid, asked := range m.asked {
		if !m.silent[uuid] && now.Sub(asked) >= probeLimit {
			m.silent[uuid] = true
			m.health.Probed(now, now, uuid, Probe{Err: errSilent, Action: ActionUnread})
		}
	}
	next := m.health.Next(now.Add(m.health.policy.Poll), running)
	for uuid, asked := range m.asked {
		if limit := asked.Add(probeLimit); !m.silent[uuid] && limit.Before(next) {
			next = limit
		}
	}
	return max(next.Sub(now), time.Millisecond)
}

// publish tells of the verdicts where one has changed.
func (m *Monitor) publish() {
	statuses := m.health.Statuses()
	if m.published != nil && slices.Equal(statuses, m.published) {
		return
	}
	for i, s := range statuses {
		was := Status{Healthy: true}
		if m.published != nil {
			was = m.published[i]
		}
		switch {
		case was.Healthy && !s.Healthy:
			m.log.Error("a GPU is out of use", "gpu", s.GPU.UUID, "index", s.GPU.Index, "reason", s.Reason)
		case !was.Healthy && s.Healthy:
			m.log.Info("a GPU is offered again", "gpu", s.GPU.UUID, "index", s.GPU.Index)
		}
	}
	m.published = statuses
	m.changed(Inventory{DriverVersion: m.driverVersion, GPUs: slices.Clone(statuses)})
}

// listen passes events to the loop until the context ends, and asks for them
// anew when they fail.
func (m *Monitor) listen(ctx context.Context) {
	pause := resubscribeFirst
	for ctx.Err() == nil {
		watch, err := m.source.watch(m.gpus)
		if err == nil {
			m.send(ctx, signal{watched: watch.Watched})
			var heard bool
			heard, err = m.forward(ctx, watch)
			if heard {
				pause = resubscribeFirst
			}
			if closing := watch.Close(); closing != nil {
				m.log.Warn("a watch of GPU events was not ended properly", "error", closing)
			}
		}
		if ctx.Err() != nil {
			return
		}
		m.log.Warn("GPU events cannot be watched: the GPUs are polled", "retry_in", pause.String(), "error", err)
		m.send(ctx, signal{watched: func(string) bool { return false }})
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, resubscribeMax)
	}
}

// forward passes events on until the watch fails. It tells whether the watch
// worked at all.
func (m *Monitor) forward(ctx context.Context, w watch) (heard bool, err error) {
	for ctx.Err() == nil {
		event, err := w.Wait(eventWait)
		switch {
		case errors.Is(err, ErrNoEvent):
			heard = true
		case err != nil:
			return heard, err
		default:
			heard = true
			m.send(ctx, signal{event: event})
		}
	}
	return heard, nil
}

func (m *Monitor) send(ctx context.Context, s signal) {
	select {
	case m.signals <- s:
	case <-ctx.Done():
	}
}
