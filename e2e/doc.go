// Package e2e tests gangd from outside, on dev clusters with a real Nomad, a
// real Consul, and simulated GPUs. It fails, and does not skip, where the tools
// or the built commands are missing: `make test-e2e` provides both.
package e2e
