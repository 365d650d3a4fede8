package nomadplugin_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/gangd/gangd/internal/nomadplugin"
	"github.com/gangd/gangd/internal/nomadplugin/nomadplugintest"
)

// What Nomad v1.6.1 sends and expects, written down from its field numbers and
// not with the generated code, so that a slip in a .proto file shows.

// number is a field of a varint type, text one of a text, bytes or message
// type; lengths and values stay below 128, where a varint is one byte.
func number(field, value byte) string { return string([]byte{field << 3, value}) }
func text(field byte, content string) string {
	return string([]byte{field<<3 | 2, byte(len(content))}) + content
}
func message(field byte, parts ...string) string {
	var content string
	for _, part := range parts {
		content += part
	}
	return text(field, content)
}

// canonical brings the fields of an encoded message, and of all in it that reads
// as one, into one order: encoders are free in theirs.
func canonical(encoded string) string {
	var fields []string
	for rest := []byte(encoded); len(rest) > 0; {
		_, kind, tag := protowire.ConsumeTag(rest)
		if tag < 0 {
			return encoded // not a message
		}
		length := protowire.ConsumeFieldValue(1, kind, rest[tag:])
		if length < 0 {
			return encoded
		}
		field := string(rest[:tag+length])
		if kind == protowire.BytesType {
			content, _ := protowire.ConsumeBytes(rest[tag:])
			field = field[:len(field)-len(content)] + canonical(string(content))
		}
		fields = append(fields, field)
		rest = rest[tag+length:]
	}
	slices.Sort(fields)
	return strings.Join(fields, "")
}

// raw is a gRPC codec for messages that are bytes already.
type raw struct{}

func (raw) Name() string { return "proto" }
func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}
func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

var _ encoding.CodecV2 = raw{}

func exchange(t *testing.T, conn *grpc.ClientConn, method, request string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method, grpc.ForceCodecV2(raw{}))
	if err != nil {
		t.Fatal(err)
	}
	out := []byte(request)
	if err := stream.SendMsg(&out); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	var in []byte
	err = stream.RecvMsg(&in)
	return string(in), err
}

func TestDeviceBytes(t *testing.T) {
	device := &fakeDevice{
		reservation: nomadplugin.Reservation{
			Env:     map[string]string{"K": "v"},
			Mounts:  []nomadplugin.DeviceMount{{TaskPath: "/t", HostPath: "/h", ReadOnly: true}},
			Devices: []nomadplugin.DeviceNode{{TaskPath: "/dev/a", HostPath: "/dev/b", Permissions: "rw"}},
		},
		inventory: [][]nomadplugin.DeviceGroup{{{
			Vendor: "gangd", Type: "gpu", Name: "GPU-1",
			Devices:    []nomadplugin.Device{{ID: "GPU-1", Healthy: true, HealthDescription: "ok", PCIBusID: "0:3b"}},
			Attributes: map[string]nomadplugin.Attribute{"memory": nomadplugin.IntAttribute(80, nomadplugin.UnitGiB)},
		}}},
		stats: []nomadplugin.DeviceGroupStats{{Vendor: "gangd", Type: "gpu", Name: "GPU-1",
			Devices: map[string]nomadplugin.DeviceStats{"GPU-1": {
				Summary: nomadplugin.IntRatioStat(3, 80, "MiB", "memory"),
				Stats:   map[string]nomadplugin.Stat{"s": nomadplugin.StringStat("x", "")}, At: time.Unix(5, 0),
			}},
		}},
	}
	conn := nomadplugintest.Connect(t, nomadplugin.DeviceSet(device, nomadplugintest.Logger(t)))
	const base, kind = "/hashicorp.nomad.plugins.base.proto.BasePlugin/", "/hashicorp.nomad.plugins.device.DevicePlugin/"
	for _, test := range []struct{ method, request, response string }{
		{base + "PluginInfo", "", number(1, 3) + text(2, "v0.1.0") + text(3, "1.2.3") + text(4, "fake")},
		{base + "ConfigSchema", "", message(1, message(1, message(1, text(1, "on"),
			message(2, message(9, message(1, message(3, text(1, "on"), text(2, "bool"))), message(2, message(10, text(1, "true")))))))),
		},
		{base + "SetConfig", text(1, "\x81\xa2on\xc3") + message(2, message(1, number(1, 9), number(2, 8))) + text(3, "v0.1.0"), ""},
		{kind + "Fingerprint", "", message(1, text(1, "gangd"), text(2, "gpu"), text(3, "GPU-1"),
			message(4, text(1, "GPU-1"), number(2, 1), text(3, "ok"), message(4, text(1, "0:3b"))),
			message(5, text(1, "memory"), message(2, number(2, 80), text(5, "GiB"))))},
		{kind + "Reserve", text(1, "GPU-1") + text(1, "GPU-2"), message(1, message(1, text(1, "K"), text(2, "v")),
			message(2, text(1, "/t"), text(2, "/h"), number(3, 1)),
			message(3, text(1, "/dev/a"), text(2, "/dev/b"), text(3, "rw")))},
		{kind + "Stats", message(1, number(1, 7)), message(1, text(1, "gangd"), text(2, "gpu"), text(3, "GPU-1"),
			message(4, text(1, "GPU-1"), message(2,
				message(1, message(3, number(1, 3)), message(4, number(1, 80)), text(7, "MiB"), text(8, "memory")),
				message(2, message(2, text(1, "s"), message(2, message(5, text(1, "x"))))),
				message(3, number(1, 5)))))},
	} {
		response, err := exchange(t, conn, test.method, test.request)
		if err != nil || canonical(response) != canonical(test.response) {
			t.Errorf("%s:\n%q, %v, want\n%q", test.method, response, err, test.response)
		}
	}
	if !device.on || !slices.Equal(device.reserved, []string{"GPU-1", "GPU-2"}) || device.interval != 7*time.Second {
		t.Errorf("the plugin heard on=%v, IDs %q, interval %v", device.on, device.reserved, device.interval)
	}
}

func TestDriverBytes(t *testing.T) {
	driver := &fakeDriver{
		started: nomadplugin.Started{Version: 2, State: []byte("pid 7"), Network: &nomadplugin.Network{
			Address: "10.0.0.1", Ports: map[string]int{"http": 80}, AutoAdvertise: true,
		}},
		exit: nomadplugin.ExitResult{Code: 3, Signal: 9, OOMKilled: true, Message: "out of memory"},
		usage: nomadplugin.TaskUsage{At: time.Unix(5, 0), Total: nomadplugin.Usage{
			CPU:    map[nomadplugin.CPUMeasure]float64{nomadplugin.CPUThrottledPeriods: 4, nomadplugin.CPUThrottledNanos: 6},
			Memory: map[nomadplugin.MemoryMeasure]uint64{nomadplugin.MemoryUsage: 11, nomadplugin.MemoryRSS: 10},
		}},
	}
	conn := nomadplugintest.Connect(t, nomadplugin.DriverSet(driver, nomadplugintest.Logger(t)))
	const kind = "/hashicorp.nomad.plugins.drivers.proto.Driver/"
	// Field 50 stands for one of a newer Nomad: it must come back in the handle.
	config := text(1, "id") + text(3, "\x80") + "\x92\x03\x01x"
	id := text(1, "id")
	for _, test := range []struct{ method, request, response string }{
		{"Init", "", ""},
		{"Capabilities", "", message(1, number(1, 1), number(2, 1), number(3, 2), text(4, "\x00\x01"), number(6, 1), number(8, 1))},
		{"Fingerprint", "", message(1, text(1, "driver.gang.version"), message(2, text(3, "1"))) + number(2, 2) + text(3, "ready")},
		{"StartTask", message(1, config), message(3, number(1, 2), message(2, config), number(3, 1), text(4, "pid 7")) +
			message(4, message(1, text(1, "http"), number(2, 80)), text(2, "10.0.0.1"), number(3, 1))},
		{"WaitTask", id, message(1, number(1, 3), number(2, 9), number(3, 1)) + text(2, "out of memory")},
		{"StopTask", id + message(2, number(1, 5)) + text(3, "SIGINT"), ""},
		{"DestroyTask", id + number(2, 1), ""},
		{"TaskStats", id + message(2, number(1, 1)), message(1, id, message(2, number(1, 5)), message(3,
			message(1, number(4, 4), number(5, 6), text(7, "\x03\x04")),
			message(2, number(1, 10), text(6, "\x00\x05"), number(7, 11))))},
		{"TaskEvents", "", text(1, "id") + text(2, "alloc") + text(3, "task") + message(4, number(1, 5)) + text(5, "gang a runs") +
			message(6, text(1, "gang"), text(2, "a"))},
		{"SignalTask", id + text(2, "SIGHUP"), ""},
		{"ExecTask", id + text(2, "echo") + text(2, "x") + message(3, number(1, 2)), text(1, "echo x") + text(2, "no error") + message(3, number(1, 4))},
		{"Shutdown", "", ""},
	} {
		response, err := exchange(t, conn, kind+test.method, test.request)
		if err != nil || canonical(response) != canonical(test.response) {
			t.Errorf("%s:\n%q, %v, want\n%q", test.method, response, err, test.response)
		}
	}
	want := []string{
		"init", `start id ""`, "wait id", "stop id 5s SIGINT", "destroy id true", "stats id 1s", "signal id SIGHUP",
		"exec id [echo x] 2s", "shutdown",
	}
	if heard := driver.calls(); !slices.Equal(heard, want) {
		t.Errorf("the driver heard\n%q, want\n%q", heard, want)
	}
}

// Nomad decides by these errors; a code of the plugin's own calls must not show.
func TestErrorsOnTheWire(t *testing.T) {
	unavailable := status.Error(codes.Unavailable, "keeper is gone")
	// google.protobuf.Any with Nomad's message, in google.rpc.Status.
	const typeURL = "type.googleapis.com/hashicorp.nomad.plugins.shared.structs.RecoverableError"
	recoverable := text(1, typeURL) + text(2, number(1, 1))
	for _, test := range []struct {
		name   string
		err    error
		code   codes.Code
		text   string
		detail string
	}{
		{"plain", fmt.Errorf("no cgroup"), codes.Unknown, "no cgroup", ""},
		{"not found", fmt.Errorf("inspect: %w", nomadplugin.ErrTaskNotFound), codes.NotFound, "task not found for given id", ""},
		{"recoverable", fmt.Errorf("start: %w", nomadplugin.Recoverable(fmt.Errorf("busy"))), codes.FailedPrecondition, "start: busy", recoverable},
		{"status", fmt.Errorf("ask: %w", unavailable), codes.Unknown, "ask: " + unavailable.Error(), ""},
		{"recoverable status", nomadplugin.Recoverable(unavailable), codes.FailedPrecondition, unavailable.Error(), recoverable},
		{"own deadline", context.DeadlineExceeded, codes.Unknown, "context deadline exceeded", ""},
	} {
		client := nomadplugintest.ServeDriver(t, &fakeDriver{err: test.err})
		_, err := client.Driver.StartTask(t.Context(), nil)
		got := status.Convert(err)
		if got.Code() != test.code || got.Message() != test.text {
			t.Errorf("%s: %v, want %v %q", test.name, err, test.code, test.text)
		}
		var details []byte
		for _, detail := range got.Proto().GetDetails() {
			encoded, err := proto.Marshal(detail)
			if err != nil {
				t.Fatal(err)
			}
			details = append(details, encoded...)
		}
		if !bytes.Equal(details, []byte(test.detail)) {
			t.Errorf("%s: details %q, want %q", test.name, details, test.detail)
		}
	}
	if nomadplugin.Recoverable(nil) != nil {
		t.Error("no error became one")
	}
}
