package nomadplugin

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/gangd/gangd/internal/nomadplugin/proto/structspb"
)

// DevicePlugin tells Nomad which devices a node has, and hands them to tasks.
type DevicePlugin interface {
	Plugin

	// Fingerprint calls report with the whole inventory: at once, and after
	// each change, from any goroutine, until ctx ends. A report that equals the
	// last one is not sent; one that Nomad would refuse is logged and not sent.
	// If Fingerprint returns early, the last report stands and it is called
	// again after a pause. It runs once for each stream that Nomad opens.
	Fingerprint(ctx context.Context, report func([]DeviceGroup)) error

	// Reserve tells what a task needs to use the devices with these IDs, which
	// are of one group. Nomad calls it once for each group that a task uses,
	// and merges the environments. An error fails the task.
	Reserve(ctx context.Context, ids []string) (Reservation, error)
}

// DeviceStatsReporter is a DevicePlugin that measures its devices.
type DeviceStatsReporter interface {
	// Stats calls report every interval until ctx ends.
	Stats(ctx context.Context, interval time.Duration, report func([]DeviceGroupStats)) error
}

// DeviceGroup holds devices that are the same to Nomad: a job that asks for
// "vendor/type/name" gets any of them. All three names must be set.
type DeviceGroup struct {
	Vendor, Type, Name string
	Devices            []Device
	Attributes         map[string]Attribute
}

// Device is one device. Nomad places nothing on an unhealthy one, and leaves
// a task that has it alone.
type Device struct {
	ID                string // unique in its group
	Healthy           bool
	HealthDescription string // for people; why it is unhealthy
	PCIBusID          string // as Linux prints it; may be empty
}

// Reservation is what a task needs to use its devices.
type Reservation struct {
	Env     map[string]string
	Mounts  []DeviceMount
	Devices []DeviceNode
}

// DeviceMount is a path of the host that the task sees.
type DeviceMount struct {
	TaskPath, HostPath string
	ReadOnly           bool
}

// DeviceNode is a device file that the task may open.
type DeviceNode struct {
	TaskPath, HostPath string
	Permissions        string // letters of r, w and m (mknod)
}

// DeviceGroupStats are the measurements of a group, by device ID.
type DeviceGroupStats struct {
	Vendor, Type, Name string
	Devices            map[string]DeviceStats
}

// DeviceStats are one device's measurements. Nomad's CLI prints the summary
// in its tables.
type DeviceStats struct {
	Summary Stat
	Stats   map[string]Stat
	At      time.Time
}

// Stat is one measured value. The zero Stat was not measured.
type Stat struct {
	wire *structspb.StatValue
}

// IntStat is a whole number; unit and description are shown as they are.
func IntStat(value int64, unit, description string) Stat {
	return Stat{&structspb.StatValue{IntNumeratorVal: wrapperspb.Int64(value), Unit: unit, Desc: description}}
}

// IntRatioStat is a whole number out of another.
func IntRatioStat(value, of int64, unit, description string) Stat {
	return Stat{&structspb.StatValue{
		IntNumeratorVal: wrapperspb.Int64(value), IntDenominatorVal: wrapperspb.Int64(of),
		Unit: unit, Desc: description,
	}}
}

// FloatStat is a number.
func FloatStat(value float64, unit, description string) Stat {
	return Stat{&structspb.StatValue{FloatNumeratorVal: wrapperspb.Double(value), Unit: unit, Desc: description}}
}

// StringStat is a text.
func StringStat(value, description string) Stat {
	return Stat{&structspb.StatValue{StringVal: wrapperspb.String(value), Desc: description}}
}

// BoolStat is a truth value.
func BoolStat(value bool, description string) Stat {
	return Stat{&structspb.StatValue{BoolVal: wrapperspb.Bool(value), Desc: description}}
}
