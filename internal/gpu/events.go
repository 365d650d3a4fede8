package gpu

import (
	"errors"
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// eventTypes are those that say something about a GPU's health. Drivers are
// asked for the ones that they support.
const eventTypes = nvml.EventTypeXidCriticalError | nvml.EventTypeDoubleBitEccError | nvml.EventTypeDramRetirementFailure |
	nvml.EventTypeFatalPoisonError | nvml.EventTypeGpuUnavailableError | nvml.EventTypeGpuRecoveryAction

// ErrNoEvent is returned by a wait that ended without an event.
var ErrNoEvent = errors.New("no event")

// Event is what a GPU reported.
type Event struct {
	// UUID is empty where NVML does not say which GPU it was.
	UUID string
	// XID is the code of NVIDIA's error catalogue, or 0 for an event of another
	// kind, which only says that the GPU should be looked at.
	XID uint64
}

// Events delivers what the GPUs report from the time of its making. One
// goroutine may wait at a time.
type Events struct {
	set     nvml.EventSet
	uuids   map[nvml.Device]string
	watched map[string]bool
}

// Events registers for the events of the GPUs. It fails where none of them can
// be watched.
func (l *Library) Events(gpus []GPU) (*Events, error) {
	set, ret := l.api.EventSetCreate()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("creating an NVML event set: %w", ret)
	}
	e := &Events{set: set, uuids: map[nvml.Device]string{}, watched: map[string]bool{}}
	var errs []error
	for _, g := range gpus {
		if err := l.register(e, g); err != nil {
			errs = append(errs, err)
		}
	}
	if len(e.watched) == 0 {
		errs = append(errs, e.Close())
		return nil, fmt.Errorf("watching the GPUs' events through NVML: %w", errors.Join(errs...))
	}
	for _, err := range errs {
		l.log.Warn("a GPU's events cannot be watched, so it is polled instead", "error", err)
	}
	return e, nil
}

func (l *Library) register(e *Events, g GPU) error {
	device, err := l.handle(g.UUID)
	if err != nil {
		return err
	}
	supported, ret := device.GetSupportedEventTypes()
	if ret != nvml.SUCCESS {
		return fmt.Errorf("asking which events GPU %d reports: %w", g.Index, ret)
	}
	if supported&nvml.EventTypeXidCriticalError == 0 {
		return fmt.Errorf("GPU %d does not report XID errors as events", g.Index)
	}
	if ret := device.RegisterEvents(supported&eventTypes, e.set); ret != nvml.SUCCESS {
		return fmt.Errorf("registering for the events of GPU %d: %w", g.Index, ret)
	}
	e.uuids[device] = g.UUID
	e.watched[g.UUID] = true
	return nil
}

// Watched tells whether a GPU's events are delivered.
func (e *Events) Watched(uuid string) bool { return e.watched[uuid] }

// Wait returns the next event. It fails with ErrNoEvent when there was none for
// so long, and with another error when the set is broken and must be replaced.
func (e *Events) Wait(timeout time.Duration) (Event, error) {
	data, ret := e.set.Wait(uint32(timeout.Milliseconds()))
	switch ret {
	case nvml.SUCCESS:
	case nvml.ERROR_TIMEOUT:
		return Event{}, ErrNoEvent
	default:
		return Event{}, fmt.Errorf("waiting for an NVML event: %w", ret)
	}
	event := Event{UUID: e.uuidOf(data.Device)}
	switch data.EventType {
	case nvml.EventTypeXidCriticalError:
		event.XID = data.EventData
	case nvml.EventTypeGpuRecoveryAction:
		event.XID = xidRecoveryAction
	}
	return event, nil
}

// uuidOf knows the GPU by its handle, for one that fell off the bus cannot be
// asked any more.
func (e *Events) uuidOf(device nvml.Device) string {
	if uuid, ok := e.uuids[device]; ok {
		return uuid
	}
	if device == nil {
		return ""
	}
	uuid, ret := device.GetUUID()
	if ret != nvml.SUCCESS || !e.watched[uuid] {
		return ""
	}
	return uuid
}

// Close ends the watch.
func (e *Events) Close() error {
	if ret := e.set.Free(); ret != nvml.SUCCESS {
		return fmt.Errorf("freeing an NVML event set: %w", ret)
	}
	return nil
}
