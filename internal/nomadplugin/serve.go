package nomadplugin

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/gangd/gangd/internal/nomadplugin/proto/basepb"
	"github.com/gangd/gangd/internal/nomadplugin/proto/devicepb"
	"github.com/gangd/gangd/internal/nomadplugin/proto/driverpb"
)

// maxRequestBytes bounds one message from Nomad; the largest holds a task's
// environment and configuration.
const maxRequestBytes = 16 << 20

// Handshake is how Nomad and a plugin know each other.
var Handshake = plugin.HandshakeConfig{
	ProtocolVersion:  2,
	MagicCookieKey:   "NOMAD_PLUGIN_MAGIC_COOKIE",
	MagicCookieValue: "e4327c2e01eabfd75a8a67adb114fb34a757d57eee7728d857a8cec6e91a7255",
}

// Names of the services in a plugin set.
const (
	baseService   = "base"
	deviceService = "device"
	driverService = "driver"
)

// NewLogger makes a logger whose lines Nomad merges into its own log, at their
// levels. It must be made before serving, which takes stderr away. An agent
// that finds the plugin of a killed one again does not read its log: what must
// be known later belongs into a file.
func NewLogger() hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Level: hclog.Trace, Output: os.Stderr, JSONFormat: true})
}

// ServeDevice serves implementation until Nomad ends it. A process that Nomad did not
// start is told so and exits with code 1.
func ServeDevice(implementation DevicePlugin, logger hclog.Logger) {
	serve(DeviceSet(implementation, logger), logger)
}

// ServeDriver serves implementation until Nomad ends it. A process that Nomad did not
// start is told so and exits with code 1.
func ServeDriver(implementation DriverPlugin, logger hclog.Logger) {
	serve(DriverSet(implementation, logger), logger)
}

// DeviceSet is the services of a device plugin, for go-plugin.
func DeviceSet(implementation DevicePlugin, logger hclog.Logger) plugin.PluginSet {
	return deviceSet(implementation, holder{logger, usualPauses})
}

func deviceSet(implementation DevicePlugin, holder holder) plugin.PluginSet {
	base := &baseServer{plugin: implementation, kind: basepb.PluginType_DEVICE}
	device := &deviceServer{plugin: implementation, holder: holder}
	return plugin.PluginSet{
		baseService:   service{register: func(s *grpc.Server) { basepb.RegisterBasePluginServer(s, base) }},
		deviceService: service{register: func(s *grpc.Server) { devicepb.RegisterDevicePluginServer(s, device) }},
	}
}

// DriverSet is the services of a driver plugin, for go-plugin.
func DriverSet(implementation DriverPlugin, logger hclog.Logger) plugin.PluginSet {
	return driverSet(implementation, holder{logger, usualPauses})
}

func driverSet(implementation DriverPlugin, holder holder) plugin.PluginSet {
	base := &baseServer{plugin: implementation, kind: basepb.PluginType_DRIVER}
	driver := &driverServer{plugin: implementation, holder: holder}
	return plugin.PluginSet{
		baseService:   service{register: func(s *grpc.Server) { basepb.RegisterBasePluginServer(s, base) }},
		driverService: service{register: func(s *grpc.Server) { driverpb.RegisterDriverServer(s, driver) }},
	}
}

// service is one gRPC service in go-plugin's terms.
type service struct {
	plugin.NetRPCUnsupportedPlugin
	register func(*grpc.Server)
}

func (s service) GRPCServer(_ *plugin.GRPCBroker, server *grpc.Server) error {
	s.register(server)
	return nil
}

func (service) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("this is the plugin's side only; use a client of the generated code on the connection")
}

func serve(set plugin.PluginSet, logger hclog.Logger) {
	surviveBrokenPipes()
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: Handshake,
		Plugins:         set,
		Logger:          logger,
		GRPCServer: func(options []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(options, grpc.MaxRecvMsgSize(maxRequestBytes))...)
		},
	})
}

// surviveBrokenPipes lets a write to stderr fail, instead of ending the
// process, once an agent that was killed no longer reads it; a new agent finds
// the same process again. A handler, unlike ignoring the signal, is not
// inherited by the tasks that the plugin starts.
func surviveBrokenPipes() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}
