package nomadplugin_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gangd/gangd/internal/nomadplugin"
	"github.com/gangd/gangd/internal/nomadplugin/nomadplugintest"
	"github.com/gangd/gangd/internal/nomadplugin/proto/devicepb"
	"github.com/gangd/gangd/internal/nomadplugin/proto/driverpb"
)

const patience = 10 * time.Second

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func gpu(name string, devices ...nomadplugin.Device) nomadplugin.DeviceGroup {
	return nomadplugin.DeviceGroup{Vendor: "gangd", Type: "gpu", Name: name, Devices: devices}
}

// names is a snapshot in short: groups and their devices, a ! for an unhealthy one.
func names(snapshot *devicepb.FingerprintResponse) string {
	var parts []string
	for _, group := range snapshot.GetDeviceGroup() {
		name := group.GetDeviceName()
		for _, device := range group.GetDevices() {
			name += " " + device.GetID()
			if !device.GetHealthy() {
				name += "!"
			}
		}
		parts = append(parts, name)
	}
	return strings.Join(parts, ", ")
}

func TestFingerprintSendsChangesOnlyAndNothingThatNomadRefuses(t *testing.T) {
	one := nomadplugin.Device{ID: "1", Healthy: true}
	two := nomadplugin.Device{ID: "2", Healthy: true}
	ill := nomadplugin.Device{ID: "1", HealthDescription: "XID 79"}
	with := func(attribute nomadplugin.Attribute) nomadplugin.DeviceGroup {
		group := gpu("refused", one)
		group.Attributes = map[string]nomadplugin.Attribute{"a": attribute}
		return group
	}
	device := &fakeDevice{inventory: [][]nomadplugin.DeviceGroup{
		{},
		{gpu("a", one, two), gpu("b")},
		{gpu("a", one, two), gpu("b")},
		{gpu("b"), gpu("a", two, one)},
		{gpu("refused", nomadplugin.Device{})},
		{gpu("refused", one, one)},
		{gpu("refused"), gpu("refused")},
		{{Vendor: "refused", Type: "gpu"}},
		{with(nomadplugin.Attribute{})},
		{with(nomadplugin.IntAttribute(1, "furlong"))},
		{gpu("a", ill, two), gpu("b")},
	}}
	client := nomadplugintest.ServeDevice(t, device)
	stream, err := client.Device.Fingerprint(deadline(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"", "a 1 2, b", "a 1! 2, b"} {
		snapshot, err := stream.Recv()
		if err != nil || names(snapshot) != want {
			t.Fatalf("received %q, %v, want %q", names(snapshot), err, want)
		}
	}
}

// restless ends its Fingerprint after each report, with an error or without.
type restless struct {
	fakeDevice
	calls atomic.Int32
}

func (r *restless) Fingerprint(_ context.Context, report func([]nomadplugin.DeviceGroup)) error {
	switch r.calls.Add(1) {
	case 1:
		report([]nomadplugin.DeviceGroup{gpu("first")})
		return errors.New("NVML is gone")
	case 2:
		return nil
	case 3:
		report([]nomadplugin.DeviceGroup{gpu("first")})
		return errors.New("NVML is gone again")
	}
	report([]nomadplugin.DeviceGroup{gpu("second")})
	return nil
}

func TestFingerprintOutlivesItsImplementation(t *testing.T) {
	device := &restless{}
	conn := nomadplugintest.Connect(t, nomadplugin.ImpatientDeviceSet(device, hclog.NewNullLogger()))
	ctx, cancel := context.WithCancel(deadline(t))
	stream, err := devicepb.NewDevicePluginClient(conn).Fingerprint(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"first", "second"} {
		snapshot, err := stream.Recv()
		if err != nil || names(snapshot) != want {
			t.Fatalf("received %q, %v, want %q", names(snapshot), err, want)
		}
	}
	for device.calls.Load() < 10 { // it is still called, and the stream still stands
		if ctx.Err() != nil {
			t.Fatal("Fingerprint is not called again")
		}
	}
	cancel()
	if _, err := stream.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("the stream ended with %v before Nomad ended it", err)
	}
}

func TestStatsOfAPluginThatHasNoneStaySilent(t *testing.T) {
	client := nomadplugintest.ServeDevice(t, struct{ nomadplugin.DevicePlugin }{&fakeDevice{}})
	ctx, cancel := context.WithCancel(deadline(t))
	stream, err := client.Device.Stats(ctx, &devicepb.StatsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := stream.Recv()
		ended <- err
	}()
	if _, err := client.Device.Reserve(ctx, &devicepb.ReserveRequest{}); err != nil { // the server answers meanwhile
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		t.Fatalf("the stream ended by itself: %v", err)
	default:
	}
	cancel()
	if err := <-ended; status.Code(err) != codes.Canceled {
		t.Errorf("the stream ended with %v", err)
	}
}

// moody reports each health twice, and ends its streams early.
type moody struct{ fakeDriver }

func (*moody) Fingerprint(_ context.Context, report func(nomadplugin.Fingerprint)) error {
	for _, health := range []nomadplugin.Health{nomadplugin.HealthUndetected, nomadplugin.HealthUnhealthy, nomadplugin.HealthHealthy} {
		report(nomadplugin.Fingerprint{Health: health})
		report(nomadplugin.Fingerprint{Health: health})
		report(nomadplugin.Fingerprint{Attributes: map[string]nomadplugin.Attribute{"a": {}}})
	}
	return errors.New("lost its mind")
}

func (*moody) TaskEvents(_ context.Context, report func(nomadplugin.TaskEvent)) error {
	report(nomadplugin.TaskEvent{Message: "the same"})
	return nil
}

func TestDriverStreamsOutliveTheirImplementation(t *testing.T) {
	conn := nomadplugintest.Connect(t, nomadplugin.ImpatientDriverSet(&moody{}, hclog.NewNullLogger()))
	client := driverpb.NewDriverClient(conn)
	fingerprints, err := client.Fingerprint(deadline(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	var healths []driverpb.FingerprintResponse_HealthState
	for range 5 {
		fingerprint, err := fingerprints.Recv()
		if err != nil {
			t.Fatal(err)
		}
		healths = append(healths, fingerprint.GetHealth())
	}
	if want := []driverpb.FingerprintResponse_HealthState{0, 1, 2, 0, 1}; !slices.Equal(healths, want) {
		t.Errorf("received %v, want %v", healths, want)
	}
	events, err := client.TaskEvents(deadline(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // equal events are each news
		if event, err := events.Recv(); err != nil || event.GetMessage() != "the same" {
			t.Fatalf("received %v, %v", event, err)
		}
	}
}
