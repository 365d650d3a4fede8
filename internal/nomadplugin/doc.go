// Package nomadplugin is the plugin side of Nomad's plugin protocol: a device
// or driver plugin implements [DevicePlugin] or [DriverPlugin], and [ServeDevice]
// or [ServeDriver] makes it one that Nomad 1.6 and newer can run.
//
// The protocol is gRPC over hashicorp/go-plugin: handshake version 2, one
// service for what all plugins share and one for the kind, API version v0.1.0.
// Its messages are below proto, under Nomad's own package and service names.
// Nomad's SDK is not imported: its last open-source version is of 2023.
//
// What Nomad makes hard is settled here, once: a stream of fingerprints is
// never closed or failed (Nomad would forget a plugin's devices for the life
// of the agent), nothing is sent twice (each message registers the node
// anew), a message that Nomad would refuse is held back, and an error never
// carries a gRPC code by which Nomad would think the plugin dead.
package nomadplugin
