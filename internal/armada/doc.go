// Package armada writes a scenario as the simulator of Armada reads it
// (internal/scheduler/simulator of github.com/armadaproject/armada, whose
// simulator.proto is the schema): others can check what is measured here with
// another scheduler.
package armada
