package task

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/gangd/gangd/internal/gpu"
	"github.com/gangd/gangd/internal/nomadplugin"
	"github.com/gangd/gangd/internal/nomadplugin/schema"
	"github.com/gangd/gangd/plugins/driver/lane"
)

// Bounds of beat_millis: gangd suspects a node of which it hears nothing for 0.9 s.
const (
	minBeatMillis = 50
	maxBeatMillis = 300
)

// usualConsul is where a node's own Consul agent answers.
const usualConsul = "127.0.0.1:8500"

// nodeConfig is the plugin block of a Nomad agent.
type nodeConfig struct {
	StateDir      string   `codec:"state_dir"`
	GangdAddrs    []string `codec:"gangd_addrs"`
	ConsulAddr    string   `codec:"consul_addr"`
	ConsulToken   string   `codec:"consul_token"`
	AdvertiseAddr string   `codec:"advertise_addr"`
	BeatMillis    int      `codec:"beat_millis"`
	NVML          string   `codec:"nvml"`
	MockNode      string   `codec:"mock_node"`
	MockGPUs      int      `codec:"mock_gpus"`
	FaultFile     string   `codec:"fault_file"`
}

// nodeDefaults is the block with nothing in it.
var nodeDefaults = nodeConfig{StateDir: "/run/gangd", BeatMillis: 250, NVML: gpu.NVMLReal}

var nodeSchema = schema.Object(schema.Fields{
	"state_dir":      schema.Default(schema.Attr("state_dir", schema.String, false), schema.Literal(strconv.Quote(nodeDefaults.StateDir))),
	"gangd_addrs":    schema.Attr("gangd_addrs", "list(string)", false),
	"consul_addr":    schema.Attr("consul_addr", schema.String, false),
	"consul_token":   schema.Attr("consul_token", schema.String, false),
	"advertise_addr": schema.Attr("advertise_addr", schema.String, false),
	"beat_millis":    schema.Default(schema.Attr("beat_millis", schema.Number, false), schema.Literal(strconv.Itoa(nodeDefaults.BeatMillis))),
	"nvml":           schema.Default(schema.Attr("nvml", schema.String, false), schema.Literal(strconv.Quote(nodeDefaults.NVML))),
	"mock_node":      schema.Attr("mock_node", schema.String, false),
	"mock_gpus":      schema.Attr("mock_gpus", schema.Number, false),
	"fault_file":     schema.Attr("fault_file", schema.String, false),
})

// decodeNodeConfig reads the plugin block. Its errors name the field.
func decodeNodeConfig(raw nomadplugin.Config) (nodeConfig, error) {
	c := nodeDefaults
	if err := raw.Decode(&c); err != nil {
		return c, err
	}
	errs := []error{lane.CheckStateDir(c.StateDir), c.gpus().Validate()}
	for _, address := range c.GangdAddrs {
		if _, _, err := net.SplitHostPort(address); err != nil {
			errs = append(errs, fmt.Errorf("gangd_addrs: %q is not host:port: %w", address, err))
		}
	}
	if c.BeatMillis < minBeatMillis || c.BeatMillis > maxBeatMillis {
		errs = append(errs, fmt.Errorf("beat_millis: %d is not between %d and %d", c.BeatMillis, minBeatMillis, maxBeatMillis))
	}
	if len(c.GangdAddrs) == 0 && c.ConsulAddr == "" {
		c.ConsulAddr = usualConsul
	}
	return c, errors.Join(errs...)
}

func (c nodeConfig) gpus() gpu.Config {
	return gpu.Config{NVML: c.NVML, Mock: gpu.Mock{Node: c.MockNode, GPUs: c.MockGPUs, FaultFile: c.FaultFile}}
}

// keeper is the part that keepers are told.
func (c nodeConfig) keeper() lane.Node {
	n := lane.Node{
		GangdAddresses: c.GangdAddrs, ConsulAddress: c.ConsulAddr, ConsulToken: c.ConsulToken, AdvertiseAddress: c.AdvertiseAddr,
		NVML: c.NVML, MockNode: c.MockNode, MockGPUs: c.MockGPUs, FaultFile: c.FaultFile,
	}
	if n.AdvertiseAddress == "" {
		n.AdvertiseAddress = c.ownAddress()
	}
	return n
}

// ownAddress is the address from which this node would speak to gangd; where
// that is on the node itself, the first that others may reach. Connecting a
// UDP socket sends nothing.
func (c nodeConfig) ownAddress() string {
	for _, address := range append(slices.Clone(c.GangdAddrs), c.ConsulAddr) {
		conn, err := net.DialTimeout("udp", address, time.Second)
		if err != nil {
			continue
		}
		conn.Close()
		if own := conn.LocalAddr().(*net.UDPAddr).IP; !own.IsLoopback() {
			return own.String()
		}
	}
	addresses, err := net.InterfaceAddrs()
	if err == nil {
		for _, a := range addresses {
			if own, ok := a.(*net.IPNet); ok && own.IP.IsGlobalUnicast() {
				return own.IP.String()
			}
		}
	}
	return "127.0.0.1" // nothing else can be reached from here either
}
