// Gangd-device is a Nomad device plugin for NVIDIA GPUs. It offers each GPU by
// its own name, so that gangd can have exactly the ones that it chose; takes
// GPUs out of use for the errors that they report, and back when they are sound
// again; and tells gangd of both at once.
package main

import (
	"context"

	"github.com/gangd/gangd/internal/nomadplugin"
)

// version is set by the linker. Nomad refuses a plugin whose version is not
// semantic.
var version = "0.0.0-dev"

func main() {
	logger := nomadplugin.NewLogger()
	nomadplugin.ServeDevice(newPlugin(context.Background(), logger, newLinkReporter), logger)
}
