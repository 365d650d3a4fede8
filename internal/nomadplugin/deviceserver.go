package nomadplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/gangd/gangd/internal/nomadplugin/proto/devicepb"
	"github.com/gangd/gangd/internal/nomadplugin/proto/structspb"
)

// deviceServer answers the device protocol out of a DevicePlugin.
type deviceServer struct {
	devicepb.UnimplementedDevicePluginServer
	holder
	plugin DevicePlugin
}

func (s *deviceServer) Fingerprint(
	_ *devicepb.FingerprintRequest, stream grpc.ServerStreamingServer[devicepb.FingerprintResponse],
) error {
	out := &sender[*devicepb.FingerprintResponse]{send: stream.Send}
	defer out.close()
	report := func(groups []DeviceGroup) {
		inventory, err := inventoryToWire(groups)
		if err != nil {
			s.logger.Error("fingerprint not sent, as Nomad would drop the whole plugin for it; "+
				"what was last reported stands", "error", err)
			return
		}
		out.changed(inventory)
	}
	return s.hold(stream.Context(), "device fingerprint", func(ctx context.Context) error {
		return s.plugin.Fingerprint(ctx, report)
	})
}

func (s *deviceServer) Reserve(ctx context.Context, request *devicepb.ReserveRequest) (*devicepb.ReserveResponse, error) {
	reservation, err := s.plugin.Reserve(ctx, request.GetDeviceIds())
	if err != nil {
		return nil, wireError(ctx, err)
	}
	wire := &devicepb.ContainerReservation{Envs: reservation.Env}
	for _, mount := range reservation.Mounts {
		wire.Mounts = append(wire.Mounts, &devicepb.Mount{
			TaskPath: mount.TaskPath, HostPath: mount.HostPath, ReadOnly: mount.ReadOnly,
		})
	}
	for _, node := range reservation.Devices {
		wire.Devices = append(wire.Devices, &devicepb.DeviceSpec{
			TaskPath: node.TaskPath, HostPath: node.HostPath, Permissions: node.Permissions,
		})
	}
	return &devicepb.ReserveResponse{ContainerRes: wire}, nil
}

func (s *deviceServer) Stats(
	request *devicepb.StatsRequest, stream grpc.ServerStreamingServer[devicepb.StatsResponse],
) error {
	reporter, ok := s.plugin.(DeviceStatsReporter)
	if !ok {
		// An open stream that says nothing: for an ended one Nomad would call again and again.
		<-stream.Context().Done()
		return wireError(stream.Context(), stream.Context().Err())
	}
	out := &sender[*devicepb.StatsResponse]{send: stream.Send}
	defer out.close()
	interval := request.GetCollectionInterval().AsDuration()
	return s.hold(stream.Context(), "device stats", func(ctx context.Context) error {
		return reporter.Stats(ctx, interval, func(groups []DeviceGroupStats) { out.always(statsToWire(groups)) })
	})
}

// inventoryToWire sorts groups and devices, so that only a change of substance
// makes a different message, and refuses what Nomad would refuse.
func inventoryToWire(groups []DeviceGroup) (*devicepb.FingerprintResponse, error) {
	groups = slices.SortedFunc(slices.Values(groups), compareGroups)
	inventory := &devicepb.FingerprintResponse{}
	for i, group := range groups {
		wire, err := groupToWire(group)
		if err == nil && i > 0 && compareGroups(groups[i-1], group) == 0 {
			err = errors.New("occurs twice")
		}
		if err != nil {
			return nil, fmt.Errorf("device group %q/%q/%q: %w", group.Vendor, group.Type, group.Name, err)
		}
		inventory.DeviceGroup = append(inventory.DeviceGroup, wire)
	}
	return inventory, nil
}

func compareGroups(a, b DeviceGroup) int {
	return cmp.Or(cmp.Compare(a.Vendor, b.Vendor), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
}

func groupToWire(group DeviceGroup) (*devicepb.DeviceGroup, error) {
	if group.Vendor == "" || group.Type == "" || group.Name == "" {
		return nil, errors.New("needs vendor, type and name")
	}
	for name, attribute := range group.Attributes {
		if err := attribute.validate(); err != nil {
			return nil, fmt.Errorf("attribute %q %w", name, err)
		}
	}
	wire := &devicepb.DeviceGroup{
		Vendor: group.Vendor, DeviceType: group.Type, DeviceName: group.Name,
		Attributes: attributesToWire(group.Attributes),
	}
	devices := slices.SortedFunc(slices.Values(group.Devices), func(a, b Device) int { return cmp.Compare(a.ID, b.ID) })
	for i, device := range devices {
		if device.ID == "" {
			return nil, errors.New("has a device without an ID")
		}
		if i > 0 && devices[i-1].ID == device.ID {
			return nil, fmt.Errorf("has device %q twice", device.ID)
		}
		detected := &devicepb.DetectedDevice{
			ID: device.ID, Healthy: device.Healthy, HealthDescription: device.HealthDescription,
		}
		if device.PCIBusID != "" {
			detected.HwLocality = &devicepb.DeviceLocality{PciBusId: device.PCIBusID}
		}
		wire.Devices = append(wire.Devices, detected)
	}
	return wire, nil
}

func statsToWire(groups []DeviceGroupStats) *devicepb.StatsResponse {
	response := &devicepb.StatsResponse{}
	for _, group := range groups {
		wire := &devicepb.DeviceGroupStats{
			Vendor: group.Vendor, Type: group.Type, Name: group.Name,
			InstanceStats: make(map[string]*devicepb.DeviceStats, len(group.Devices)),
		}
		for id, stats := range group.Devices {
			values := make(map[string]*structspb.StatValue, len(stats.Stats))
			for name, stat := range stats.Stats {
				values[name] = stat.wire
			}
			wire.InstanceStats[id] = &devicepb.DeviceStats{
				Summary:   stats.Summary.wire,
				Stats:     &structspb.StatObject{Attributes: values},
				Timestamp: timestamppb.New(stats.At),
			}
		}
		response.Groups = append(response.Groups, wire)
	}
	return response
}
