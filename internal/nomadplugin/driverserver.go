package nomadplugin

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"

	"github.com/gangd/gangd/internal/nomadplugin/proto/driverpb"
)

// driverServer answers the driver protocol out of a DriverPlugin.
type driverServer struct {
	driverpb.UnimplementedDriverServer
	holder
	plugin DriverPlugin
}

func (s *driverServer) Init(ctx context.Context, _ *driverpb.InitRequest) (*driverpb.InitResponse, error) {
	if initializer, ok := s.plugin.(Initializer); ok {
		if err := initializer.Init(ctx); err != nil {
			return nil, wireError(ctx, err)
		}
	}
	return &driverpb.InitResponse{}, nil
}

func (s *driverServer) Shutdown(ctx context.Context, _ *driverpb.ShutdownRequest) (*driverpb.ShutdownResponse, error) {
	if shutdowner, ok := s.plugin.(Shutdowner); ok {
		if err := shutdowner.Shutdown(ctx); err != nil {
			return nil, wireError(ctx, err)
		}
	}
	return &driverpb.ShutdownResponse{}, nil
}

func (s *driverServer) TaskConfigSchema(
	context.Context, *driverpb.TaskConfigSchemaRequest,
) (*driverpb.TaskConfigSchemaResponse, error) {
	return &driverpb.TaskConfigSchemaResponse{Spec: s.plugin.TaskConfigSchema()}, nil
}

func (s *driverServer) Capabilities(
	context.Context, *driverpb.CapabilitiesRequest,
) (*driverpb.CapabilitiesResponse, error) {
	capabilities := s.plugin.Capabilities()
	_, signals := s.plugin.(Signaler)
	_, exec := s.plugin.(Executor)
	wire := &driverpb.DriverCapabilities{
		SendSignals:          signals,
		Exec:                 exec,
		FsIsolation:          driverpb.DriverCapabilities_FSIsolation(capabilities.FSIsolation),
		DisableLogCollection: capabilities.DisableLogCollection,
	}
	for _, mode := range capabilities.NetworkModes {
		wire.NetworkIsolationModes = append(wire.NetworkIsolationModes,
			driverpb.NetworkIsolationSpec_NetworkIsolationMode(mode))
	}
	if capabilities.NoMounts {
		wire.MountConfigs = driverpb.DriverCapabilities_NO_MOUNTS
	}
	return &driverpb.CapabilitiesResponse{Capabilities: wire}, nil
}

func (s *driverServer) Fingerprint(
	_ *driverpb.FingerprintRequest, stream grpc.ServerStreamingServer[driverpb.FingerprintResponse],
) error {
	out := &sender[*driverpb.FingerprintResponse]{send: stream.Send}
	defer out.close()
	report := func(fingerprint Fingerprint) {
		for name, attribute := range fingerprint.Attributes {
			if err := attribute.validate(); err != nil {
				s.logger.Error("fingerprint not sent, what was last reported stands",
					"error", fmt.Errorf("attribute %q %w", name, err))
				return
			}
		}
		out.changed(fingerprintToWire(fingerprint))
	}
	return s.hold(stream.Context(), "driver fingerprint", func(ctx context.Context) error {
		return s.plugin.Fingerprint(ctx, report)
	})
}

func (s *driverServer) StartTask(
	ctx context.Context, request *driverpb.StartTaskRequest,
) (*driverpb.StartTaskResponse, error) {
	started, err := s.plugin.StartTask(ctx, taskFromWire(request.GetTask()))
	if err != nil {
		return nil, wireError(ctx, err)
	}
	return &driverpb.StartTaskResponse{
		// The config goes back as it came, with fields of newer Nomads that this package does not know.
		Handle: &driverpb.TaskHandle{
			Version:     int32(max(started.Version, 1)),
			Config:      request.GetTask(),
			State:       driverpb.TaskState_RUNNING,
			DriverState: started.State,
		},
		NetworkOverride: networkToWire(started.Network),
	}, nil
}

func (s *driverServer) RecoverTask(
	ctx context.Context, request *driverpb.RecoverTaskRequest,
) (*driverpb.RecoverTaskResponse, error) {
	handle := request.GetHandle()
	err := s.plugin.RecoverTask(ctx, TaskHandle{
		Version: int(handle.GetVersion()),
		Config:  taskFromWire(handle.GetConfig()),
		State:   handle.GetDriverState(),
	})
	if err != nil {
		return nil, wireError(ctx, err)
	}
	return &driverpb.RecoverTaskResponse{}, nil
}

func (s *driverServer) WaitTask(
	ctx context.Context, request *driverpb.WaitTaskRequest,
) (*driverpb.WaitTaskResponse, error) {
	exit, err := s.plugin.WaitTask(ctx, request.GetTaskId())
	if err != nil {
		return nil, wireError(ctx, err)
	}
	return &driverpb.WaitTaskResponse{Result: exitToWire(exit), Err: exit.Message}, nil
}

func (s *driverServer) StopTask(
	ctx context.Context, request *driverpb.StopTaskRequest,
) (*driverpb.StopTaskResponse, error) {
	err := s.plugin.StopTask(ctx, request.GetTaskId(), request.GetTimeout().AsDuration(), request.GetSignal())
	if err != nil {
		return nil, wireError(ctx, err)
	}
	return &driverpb.StopTaskResponse{}, nil
}

func (s *driverServer) DestroyTask(
	ctx context.Context, request *driverpb.DestroyTaskRequest,
) (*driverpb.DestroyTaskResponse, error) {
	if err := s.plugin.DestroyTask(ctx, request.GetTaskId(), request.GetForce()); err != nil {
		return nil, wireError(ctx, err)
	}
	return &driverpb.DestroyTaskResponse{}, nil
}

func (s *driverServer) InspectTask(
	ctx context.Context, request *driverpb.InspectTaskRequest,
) (*driverpb.InspectTaskResponse, error) {
	status, err := s.plugin.InspectTask(ctx, request.GetTaskId())
	if err != nil {
		return nil, wireError(ctx, err)
	}
	return statusToWire(status), nil
}

func (s *driverServer) TaskStats(
	request *driverpb.TaskStatsRequest, stream grpc.ServerStreamingServer[driverpb.TaskStatsResponse],
) error {
	out := &sender[*driverpb.TaskStatsResponse]{send: stream.Send}
	defer out.close()
	id := request.GetTaskId()
	err := s.plugin.TaskStats(stream.Context(), id, request.GetCollectionInterval().AsDuration(),
		func(usage TaskUsage) { out.always(taskUsageToWire(id, usage)) })
	return wireError(stream.Context(), err)
}

func (s *driverServer) TaskEvents(
	_ *driverpb.TaskEventsRequest, stream grpc.ServerStreamingServer[driverpb.DriverTaskEvent],
) error {
	out := &sender[*driverpb.DriverTaskEvent]{send: stream.Send}
	defer out.close()
	return s.hold(stream.Context(), "task events", func(ctx context.Context) error {
		return s.plugin.TaskEvents(ctx, func(event TaskEvent) { out.always(eventToWire(event)) })
	})
}

func (s *driverServer) SignalTask(
	ctx context.Context, request *driverpb.SignalTaskRequest,
) (*driverpb.SignalTaskResponse, error) {
	signaler, ok := s.plugin.(Signaler)
	if !ok {
		return nil, wireError(ctx, errors.New("driver does not support signals"))
	}
	if err := signaler.SignalTask(ctx, request.GetTaskId(), request.GetSignal()); err != nil {
		return nil, wireError(ctx, err)
	}
	return &driverpb.SignalTaskResponse{}, nil
}

func (s *driverServer) CreateNetwork(
	ctx context.Context, _ *driverpb.CreateNetworkRequest,
) (*driverpb.CreateNetworkResponse, error) {
	return nil, wireError(ctx, errors.New("CreateNetwork RPC not supported by driver"))
}

func (s *driverServer) DestroyNetwork(
	ctx context.Context, _ *driverpb.DestroyNetworkRequest,
) (*driverpb.DestroyNetworkResponse, error) {
	return nil, wireError(ctx, errors.New("DestroyNetwork RPC not supported by driver"))
}
