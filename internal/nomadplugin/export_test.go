package nomadplugin

import (
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
)

// ImpatientDeviceSet is DeviceSet that calls an ended Fingerprint again at once.
func ImpatientDeviceSet(implementation DevicePlugin, logger hclog.Logger) plugin.PluginSet {
	return deviceSet(implementation, holder{logger, pauses{time.Millisecond, time.Millisecond}})
}

// ImpatientDriverSet is DriverSet that calls an ended stream again at once.
func ImpatientDriverSet(implementation DriverPlugin, logger hclog.Logger) plugin.PluginSet {
	return driverSet(implementation, holder{logger, pauses{time.Millisecond, time.Millisecond}})
}
