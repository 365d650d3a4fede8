package nomadplugin

import (
	"errors"
	"fmt"

	"github.com/gangd/gangd/internal/nomadplugin/proto/structspb"
)

// Units that Nomad knows, of capacity, rate, frequency and power. It compares
// values across the units of one kind, and refuses a device group that has any
// other unit.
const (
	UnitKiB = "KiB"
	UnitMiB = "MiB"
	UnitGiB = "GiB"
	UnitTiB = "TiB"
	UnitKB  = "kB"
	UnitMB  = "MB"
	UnitGB  = "GB"
	UnitTB  = "TB"

	UnitMiBPerSecond = "MiB/s"
	UnitGiBPerSecond = "GiB/s"
	UnitMBPerSecond  = "MB/s"
	UnitGBPerSecond  = "GB/s"

	UnitMHz = "MHz"
	UnitGHz = "GHz"

	UnitMilliwatt = "mW"
	UnitWatt      = "W"
	UnitKilowatt  = "kW"
)

var knownUnits = map[string]bool{
	UnitKiB: true, UnitMiB: true, UnitGiB: true, UnitTiB: true,
	UnitKB: true, UnitMB: true, UnitGB: true, UnitTB: true,
	UnitMiBPerSecond: true, UnitGiBPerSecond: true, UnitMBPerSecond: true, UnitGBPerSecond: true,
	UnitMHz: true, UnitGHz: true,
	UnitMilliwatt: true, UnitWatt: true, UnitKilowatt: true,
}

// Attribute is a typed value on which jobs can put constraints. The zero
// Attribute has no value and is refused.
type Attribute struct {
	wire *structspb.Attribute
}

// StringAttribute is a text.
func StringAttribute(value string) Attribute {
	return Attribute{&structspb.Attribute{Value: &structspb.Attribute_StringVal{StringVal: value}}}
}

// IntAttribute is a whole number in a unit of this package, or in none ("").
func IntAttribute(value int64, unit string) Attribute {
	return Attribute{&structspb.Attribute{Value: &structspb.Attribute_IntVal{IntVal: value}, Unit: unit}}
}

// FloatAttribute is a number in a unit of this package, or in none ("").
func FloatAttribute(value float64, unit string) Attribute {
	return Attribute{&structspb.Attribute{Value: &structspb.Attribute_FloatVal{FloatVal: value}, Unit: unit}}
}

// BoolAttribute is a truth value.
func BoolAttribute(value bool) Attribute {
	return Attribute{&structspb.Attribute{Value: &structspb.Attribute_BoolVal{BoolVal: value}}}
}

// validate finds what would make Nomad drop the whole plugin.
func (a Attribute) validate() error {
	if a.wire == nil {
		return errors.New("has no value")
	}
	if unit := a.wire.GetUnit(); unit != "" && !knownUnits[unit] {
		return fmt.Errorf("has the unit %q, which Nomad does not know", unit)
	}
	return nil
}

func attributesToWire(attributes map[string]Attribute) map[string]*structspb.Attribute {
	wire := make(map[string]*structspb.Attribute, len(attributes))
	for name, attribute := range attributes {
		wire[name] = attribute.wire
	}
	return wire
}
