package nomadplugin_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/gangd/gangd/internal/nomadplugin"
	"github.com/gangd/gangd/internal/nomadplugin/proto/basepb"
	"github.com/gangd/gangd/internal/nomadplugin/proto/devicepb"
)

// roleEnv makes the test binary a plugin of one kind.
const roleEnv = "NOMADPLUGIN_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "device":
		logger := nomadplugin.NewLogger()
		nomadplugin.ServeDevice(&talkative{logger: logger}, logger)
	case "driver":
		nomadplugin.ServeDriver(&fakeDriver{}, nomadplugin.NewLogger())
	default:
		os.Exit(m.Run())
	}
}

// talkative logs what it is asked, as every plugin does sooner or later.
type talkative struct {
	fakeDevice
	logger hclog.Logger
}

func (d *talkative) Reserve(_ context.Context, ids []string) (nomadplugin.Reservation, error) {
	d.logger.Info("reserving", "ids", ids)
	fmt.Println("a stray line on stdout")
	return nomadplugin.Reservation{Env: map[string]string{"PID": fmt.Sprint(os.Getpid())}}, nil
}

func pluginCommand(t *testing.T, role string) *exec.Cmd {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), roleEnv+"="+role)
	return command
}

// Start, handshake, log and end as go-plugin's client does them for Nomad.
func TestPluginProcess(t *testing.T) {
	log := make(lines, 64)
	client := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  nomadplugin.Handshake,
		Plugins:          nomadplugin.DeviceSet(nil, nil),
		Cmd:              pluginCommand(t, "device"),
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		Logger:           hclog.New(&hclog.LoggerOptions{Level: hclog.Info, Output: log}),
	})
	defer client.Kill()
	protocol, err := client.Client()
	if err != nil {
		t.Fatal(err)
	}
	conn := protocol.(*plugin.GRPCClient).Conn
	info, err := basepb.NewBasePluginClient(conn).PluginInfo(deadline(t), nil)
	if err != nil || info.GetName() != "fake" {
		t.Fatalf("PluginInfo: %v, %v", info, err)
	}
	if _, err := devicepb.NewDevicePluginClient(conn).Reserve(deadline(t), &devicepb.ReserveRequest{DeviceIds: []string{"GPU-1"}}); err != nil {
		t.Fatal(err)
	}
	for line := log.next(t); ; line = log.next(t) {
		if strings.Contains(line, "reserving") {
			if !strings.Contains(line, "[INFO]") || !strings.Contains(line, "GPU-1") {
				t.Errorf("the line lost its level or its fields: %s", line)
			}
			break
		}
	}
	client.Kill()
	if !client.Exited() {
		t.Error("the plugin lives on after it was asked to end")
	}
}

// An agent that was killed reads neither stdout nor stderr any more. The next
// one finds the plugin again and goes on with it.
func TestPluginOutlivesItsReader(t *testing.T) {
	command := pluginCommand(t, "device")
	command.Env = append(command.Env, nomadplugin.Handshake.MagicCookieKey+"="+nomadplugin.Handshake.MagicCookieValue)
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer command.Wait()
	defer command.Process.Kill()

	// "1|2|unix|/tmp/plugin123|grpc|"
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(strings.TrimSpace(line), "|")
	if len(parts) < 5 || parts[0] != "1" || parts[1] != "2" || parts[2] != "unix" || parts[4] != "grpc" {
		t.Fatalf("handshake %q", line)
	}
	stdout.Close()
	stderr.Close()
	conn, err := grpc.NewClient("unix:"+parts[3], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 3 {
		response, err := devicepb.NewDevicePluginClient(conn).Reserve(deadline(t), &devicepb.ReserveRequest{})
		if err != nil {
			t.Fatalf("the plugin is gone with its reader: %v", err)
		}
		if pid := response.GetContainerRes().GetEnvs()["PID"]; pid != fmt.Sprint(command.Process.Pid) {
			t.Fatalf("process %s answered, not %d", pid, command.Process.Pid)
		}
	}
}

func TestPluginStartedByHandSaysSo(t *testing.T) {
	for _, role := range []string{"device", "driver"} {
		output, err := pluginCommand(t, role).CombinedOutput()
		if err == nil || !strings.Contains(string(output), "This binary is a plugin") {
			t.Errorf("%s: %v, %s", role, err, output)
		}
	}
}

// lines is a log that a test waits on.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	select {
	case l <- string(line):
	default: // nobody waits for that many
	}
	return len(line), nil
}

func (l lines) next(t *testing.T) string {
	t.Helper()
	select {
	case line := <-l:
		return line
	case <-time.After(patience):
		t.Fatal("no further line in the log")
		return ""
	}
}
