package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/internal/gpu"
	"github.com/gangd/gangd/internal/nomadplugin"
	"github.com/gangd/gangd/internal/nomadplugin/schema"
)

// How GPUs are grouped for Nomad.
const (
	// groupingGPU makes every GPU its own group, "gangd/gpu/UUID", so that a
	// job can ask for an exact one, and an ordinary job gets none by chance.
	groupingGPU = "gpu"
	// groupingModel makes a group of the GPUs of a model, "nvidia/gpu/MODEL", as
	// ordinary GPU jobs expect.
	groupingModel = "model"
)

// defaultConsulAddress is where a node's own Consul agent listens.
const defaultConsulAddress = "127.0.0.1:8500"

// config is the plugin block.
type config struct {
	// NVML and the Mock fields are those of gpu.Config.
	NVML           string `codec:"nvml"`
	MockNode       string `codec:"mock_node"`
	MockGPUs       int    `codec:"mock_gpus"`
	MockIslandGPUs int    `codec:"mock_island_gpus"`
	FaultFile      string `codec:"fault_file"`
	Grouping       string `codec:"grouping"`
	// GangdAddresses are host:port of gangd's link. ConsulAddress is of a
	// Consul agent to look them up; it is the node's own agent where neither is
	// given. ConsulToken is for that agent; CONSUL_HTTP_TOKEN where it is empty.
	GangdAddresses []string `codec:"gangd_addrs"`
	ConsulAddress  string   `codec:"consul_addr"`
	ConsulToken    string   `codec:"consul_token"`
}

func configSchema() *schema.Spec {
	quoted := func(s string) *schema.Spec { return schema.Literal(fmt.Sprintf("%q", s)) }
	return schema.Object(schema.Fields{
		"nvml":             schema.Default(schema.Attr("nvml", schema.String, false), quoted(gpu.NVMLReal)),
		"mock_node":        schema.Attr("mock_node", schema.String, false),
		"mock_gpus":        schema.Attr("mock_gpus", schema.Number, false),
		"mock_island_gpus": schema.Attr("mock_island_gpus", schema.Number, false),
		"fault_file":       schema.Attr("fault_file", schema.String, false),
		"grouping":         schema.Default(schema.Attr("grouping", schema.String, false), quoted(groupingGPU)),
		"gangd_addrs":      schema.Attr("gangd_addrs", "list(string)", false),
		"consul_addr":      schema.Attr("consul_addr", schema.String, false),
		"consul_token":     schema.Attr("consul_token", schema.String, false),
	})
}

// decodeConfig reads the plugin block. Its errors name the field.
func decodeConfig(encoded nomadplugin.Config) (config, error) {
	c := config{NVML: gpu.NVMLReal, Grouping: groupingGPU}
	if err := encoded.Decode(&c); err != nil {
		return config{}, fmt.Errorf("plugin gangd-device: %w", err)
	}
	if err := c.validate(); err != nil {
		return config{}, fmt.Errorf("plugin gangd-device: %w", err)
	}
	if len(c.GangdAddresses) == 0 && c.ConsulAddress == "" {
		c.ConsulAddress = defaultConsulAddress
	}
	return c, nil
}

func (c config) validate() error {
	if err := c.gpu(nil).Validate(); err != nil {
		return err
	}
	if c.Grouping != groupingGPU && c.Grouping != groupingModel {
		return fmt.Errorf("grouping = %q: expected %q (every GPU by its UUID) or %q (as usual)", c.Grouping, groupingGPU, groupingModel)
	}
	for i, address := range c.GangdAddresses {
		if err := checkHostPort(address); err != nil {
			return fmt.Errorf("gangd_addrs[%d] = %q: expected host:port of gangd's link, such as \"10.0.0.1:4751\": %w", i, address, err)
		}
	}
	if err := checkConsul(c.ConsulAddress); err != nil {
		return fmt.Errorf("consul_addr = %q: expected host:port or the URL of a Consul agent, such as %q: %w", c.ConsulAddress, defaultConsulAddress, err)
	}
	return nil
}

func checkHostPort(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if host == "" || port == "" {
		return errors.New("host or port is missing")
	}
	return nil
}

func checkConsul(address string) error {
	if address == "" {
		return nil
	}
	if !strings.Contains(address, "://") {
		return checkHostPort(address)
	}
	_, err := url.Parse(address)
	return err
}

// gpu is the part that selects the NVML.
func (c config) gpu(log hclog.Logger) gpu.Config {
	return gpu.Config{
		NVML: c.NVML,
		Mock: gpu.Mock{Node: c.MockNode, GPUs: c.MockGPUs, IslandGPUs: c.MockIslandGPUs, FaultFile: c.FaultFile},
		Log:  log,
	}
}
