package main

import (
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/gangd/gangd/internal/gpu"
	"github.com/gangd/gangd/internal/link/linkpb"
	"github.com/gangd/gangd/internal/nomadplugin/nomadplugintest"
)

// inventories is a gangd that takes device streams.
type inventories struct {
	linkpb.UnimplementedLinkServer
	received chan []*linkpb.Gpu
}

func (s *inventories) Device(stream grpc.BidiStreamingServer[linkpb.DeviceReport, linkpb.DeviceOrder]) error {
	leader := &linkpb.DeviceOrder{Order: &linkpb.DeviceOrder_Leader{Leader: &linkpb.Leader{Self: true}}}
	if err := stream.Send(leader); err != nil {
		return err
	}
	for {
		report, err := stream.Recv()
		if err != nil {
			return err
		}
		s.received <- report.GetGpus()
	}
}

// The inventory goes over the link, and the newest one takes the place of one
// that was not sent.
func TestLinkReporter(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gangd := &inventories{received: make(chan []*linkpb.Gpu, 10)}
	server := grpc.NewServer()
	linkpb.RegisterLinkServer(server, gangd)
	go server.Serve(listener)
	t.Cleanup(server.Stop)

	r := newLinkReporter(t.Context(), config{GangdAddresses: []string{listener.Addr().String()}}, nomadplugintest.Logger(t))
	for i := range 50 {
		r.Report(gpu.Inventory{GPUs: []gpu.Status{{
			GPU:    gpu.GPU{UUID: "GPU-a", Index: i, Model: "H100-80GB", MemoryMiB: 81920, NUMANode: -1, Island: 2, PCIBusID: "0000:01:00.0"},
			Reason: "XID 119",
		}}})
	}
	for {
		select {
		case gpus := <-gangd.received:
			g := gpus[0]
			if g.GetIndex() != 49 {
				continue
			}
			if g.GetUuid() != "GPU-a" || g.GetModel() != "H100-80GB" || g.GetMemoryMib() != 81920 || g.GetNumaNode() != -1 ||
				g.GetNvlinkIsland() != 2 || g.GetPciBusId() != "0000:01:00.0" || g.GetHealthy() || g.GetReason() != "XID 119" {
				t.Errorf("gangd was told %v", g)
			}
			return
		case <-time.After(5 * time.Second):
			t.Fatal("gangd was not told the newest inventory within 5 s")
		}
	}
}

// Whatever bytes NVML gives, gangd and Nomad can be told.
func TestAnInventoryIsText(t *testing.T) {
	told := readable(gpu.Inventory{DriverVersion: "550\xff", GPUs: []gpu.Status{{
		GPU: gpu.GPU{UUID: "GPU-a", Name: "H\xe9", Model: "H\xe9"}, Reason: "lost: \xff\xfe",
	}}})
	report := &linkpb.DeviceReport{Gpus: linkGPUs(told)}
	if _, err := proto.Marshal(report); err != nil || report.Gpus[0].Reason != "lost: ?" {
		t.Errorf("of %+v, gangd is told %v, %v", told, report, err)
	}
	if told.DriverVersion != "550?" || told.GPUs[0].GPU.Name != "H?" {
		t.Errorf("Nomad is told %+v", told)
	}
}
