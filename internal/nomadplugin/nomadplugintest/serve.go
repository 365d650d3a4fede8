package nomadplugintest

import (
	"io"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/gangd/gangd/internal/nomadplugin"
	"github.com/gangd/gangd/internal/nomadplugin/proto/basepb"
	"github.com/gangd/gangd/internal/nomadplugin/proto/devicepb"
	"github.com/gangd/gangd/internal/nomadplugin/proto/driverpb"
)

// Device is the agent's end of a device plugin.
type Device struct {
	Base   basepb.BasePluginClient
	Device devicepb.DevicePluginClient
}

// Driver is the agent's end of a driver plugin.
type Driver struct {
	Base   basepb.BasePluginClient
	Driver driverpb.DriverClient
}

// ServeDevice serves implementation in this process, over the gRPC that Nomad
// uses, until the test ends. Its log goes to the test's.
func ServeDevice(t testing.TB, implementation nomadplugin.DevicePlugin) Device {
	t.Helper()
	conn := Connect(t, nomadplugin.DeviceSet(implementation, Logger(t)))
	return Device{Base: basepb.NewBasePluginClient(conn), Device: devicepb.NewDevicePluginClient(conn)}
}

// ServeDriver serves implementation in this process, over the gRPC that Nomad
// uses, until the test ends. Its log goes to the test's.
func ServeDriver(t testing.TB, implementation nomadplugin.DriverPlugin) Driver {
	t.Helper()
	conn := Connect(t, nomadplugin.DriverSet(implementation, Logger(t)))
	return Driver{Base: basepb.NewBasePluginClient(conn), Driver: driverpb.NewDriverClient(conn)}
}

// Connect serves a plugin set until the test ends.
func Connect(t testing.TB, set plugin.PluginSet) *grpc.ClientConn {
	t.Helper()
	client, server := plugin.TestPluginGRPCConn(t, false, set)
	t.Cleanup(func() {
		client.Conn.Close() // and not client.Close, whose call to stop the server would race with Stop
		server.Stop()
	})
	return client.Conn
}

// Logger writes to the test's log, until the test ends.
func Logger(t testing.TB) hclog.Logger {
	output := &testOutput{writer: t.Output()}
	t.Cleanup(output.end)
	return hclog.New(&hclog.LoggerOptions{Level: hclog.Trace, Output: output, DisableTime: true})
}

// testOutput drops what a call that ends after its test has to say, for which
// the test's own writer would panic.
type testOutput struct {
	mu     sync.Mutex
	writer io.Writer
}

func (o *testOutput) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.writer.Write(line)
}

func (o *testOutput) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writer = io.Discard
}
