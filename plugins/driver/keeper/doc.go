// Package keeper is the process that owns a lane on its node: it asks gangd to
// be admitted, starts the runner's ranks and nothing before that, hands them
// their runs, tells gangd how they fare, and ends with every process of the
// lane. It lives on when the driver plugin and Nomad's agent do not.
//
// What a lane does is decided by a machine without I/O (machine.go,
// running.go), which counts ranks where gangd counts GPUs (world.go). Around it
// are the ranks' processes (ranks.go, ending.go), their output (output.go,
// forward.go), the stream to gangd (relay.go), the answers to the driver plugin
// (control.go) and the blob store (store.go).
package keeper
