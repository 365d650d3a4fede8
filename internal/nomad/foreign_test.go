package nomad

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/gangd/gangd/internal/gang"
)

// recordedNode is what Nomad 1.6.1 tells of a node, less what gangd does not
// read.
const recordedNode = `{"Node": {"ID": "n1", "Name": "n-1", "Status": "ready", "SchedulingEligibility": "eligible", "ModifyIndex": 7,
	"NodeResources": {"Cpu": {"CpuShares": 4800, "ReservableCpuCores": [0, 1], "TotalCpuCores": 2}, "Memory": {"MemoryMB": 24039, "MemoryMaxMB": 0},
		"Devices": [{"Vendor": "gangd", "Type": "gpu", "Name": "GPU-0", "Attributes": null, "Instances": [{"ID": "GPU-0", "Healthy": true}]}]},
	"ReservedResources": {"Cpu": {"CpuShares": 100, "ReservedCpuCores": null}, "Memory": {"MemoryMB": 39}}}}`

// recordedAllocation is what it tells of an allocation of a service with a task
// before the main one and a sidecar.
const recordedAllocation = `{"Allocation": {"ID": "6a8f1d9e-1c2b-4d3e-8f90-0123456789ab", "Namespace": "ml", "JobID": "notebook", "NodeID": "n1",
	"ClientStatus": %q, "DesiredStatus": "run", "CreateIndex": 20,
	"AllocatedResources": {"Shared": {"DiskMB": 300}, "Tasks": {
		"fetch":    {"Cpu": {"CpuShares": 900, "ReservedCores": null}, "Memory": {"MemoryMB": 100, "MemoryMaxMB": 0}, "Devices": null, "Networks": null},
		"proxy":    {"Cpu": {"CpuShares": 50, "ReservedCores": null}, "Memory": {"MemoryMB": 32, "MemoryMaxMB": 0}, "Devices": null, "Networks": null},
		"notebook": {"Cpu": {"CpuShares": 500, "ReservedCores": null}, "Memory": {"MemoryMB": 2048, "MemoryMaxMB": 4096},
			"Devices": [{"Vendor": "gangd", "Type": "gpu", "Name": "GPU-0", "DeviceIDs": ["GPU-0"]}], "Networks": null}},
		"TaskLifecycles": {"fetch": {"Hook": "prestart", "Sidecar": false}, "proxy": {"Hook": "prestart", "Sidecar": true}, "notebook": null}}}}`

func TestForeignAllocationsAreCountedFromRecordedEvents(t *testing.T) {
	tr := &translator{nodes: make(map[string]uint64), withGPUs: make(map[string]Node), others: newCensus("default")}
	tr.told.foreign = 21
	node, err := tr.translate(rawEvent{Topic: topicNode, Type: "NodeRegistration", Index: 7, Payload: json.RawMessage(recordedNode)})
	if n, ok := node.(NodeChanged); err != nil || !ok || n.CPUMHz != 4700 || n.CoreMHz != 2400 || n.MemoryMiB != 24000 || !reflect.DeepEqual(n.Foreign, Foreign{}) {
		t.Fatalf("the node: %+v, %v", node, err)
	}
	want := Foreign{CPUMHz: 950, MemoryMiB: 2080, Devices: map[string]string{"GPU-0": "notebook"}}
	for _, step := range []struct {
		what, status string
		index        uint64
		tells        bool
		want         Foreign
	}{
		{"what the list said already", "running", 21, false, Foreign{}},
		{"it is placed", "pending", 22, true, want},
		{"it runs, and holds what it held", "running", 23, false, want},
		{"it ends", "complete", 24, true, Foreign{}},
		{"it is told again", "complete", 25, false, Foreign{}},
	} {
		event, err := tr.foreignEvent(rawEvent{Topic: topicAllocation, Index: step.index, Payload: json.RawMessage(fmt.Sprintf(recordedAllocation, step.status))})
		if err != nil {
			t.Fatal(err)
		}
		n, told := event.(NodeChanged)
		if told != step.tells || told && (!reflect.DeepEqual(n.Foreign, step.want) || n.CPUMHz != 4700) {
			t.Errorf("%s: %+v", step.what, event)
		}
		if got := tr.others.on("n1"); !reflect.DeepEqual(got, step.want) {
			t.Errorf("%s: counted are %+v, want %+v", step.what, got, step.want)
		}
	}
	if len(tr.others.at) != 0 || len(tr.others.nodes) != 0 {
		t.Errorf("of what has ended is kept: %+v", tr.others)
	}
}

// Lanes are not foreign; those of another gangd, in another namespace, are.
func TestOwnLanesAreNotForeign(t *testing.T) {
	c := newCensus("default")
	lane := gang.LaneJobID("wan", "n1", "0l") + "/dispatch-1-2"
	for i, w := range []struct {
		namespace string
		want      int
	}{{"default", 0}, {"other", 1}} {
		c.take(&foreignWire{ID: fmt.Sprintf("6a8f1d9e-1c2b-4d3e-8f90-0123456789a%d", i), Namespace: w.namespace, JobID: lane, NodeID: "n1", ClientStatus: "running"})
		if len(c.at) != w.want {
			t.Errorf("after a lane in namespace %q %d are counted, want %d", w.namespace, len(c.at), w.want)
		}
	}
}

func TestForeignAllocationsOfARealNomad(t *testing.T) {
	c := open(t, nomadAgent(t))
	w := watch(t, c)
	until(w, "resync", func(e Resync) bool { return len(e.Nodes) == 1 && e.Nodes[0].CPUMHz > 0 && e.Nodes[0].MemoryMiB > 0 })

	other := template("other", "exec sleep 600")
	other.ParameterizedJob = nil
	other.TaskGroups[0].Tasks[0].Resources.Devices = []*api.RequestedDevice{{Name: deviceGroup + gpus[3], Count: new(uint64(1))}}
	register(t, c, other)
	holds := func(f Foreign) bool { return f.CPUMHz == 50 && f.MemoryMiB == 32 && f.Devices[gpus[3]] == "other" }
	until(w, "what it holds", func(e NodeChanged) bool { return holds(e.Foreign) })
	again := watch(t, c)
	until(again, "the same from the list", func(e Resync) bool { return holds(e.Nodes[0].Foreign) })

	if _, _, err := c.api.Jobs().Deregister("other", false, nil); err != nil {
		t.Fatal(err)
	}
	until(w, "its end", func(e NodeChanged) bool { return reflect.DeepEqual(e.Foreign, Foreign{}) })
}

func TestNeedOfATemplate(t *testing.T) {
	for _, c := range []struct {
		resources *api.Resources
		want      gang.Need
	}{
		{nil, gang.Need{}},
		{&api.Resources{CPU: new(500), MemoryMB: new(1024), MemoryMaxMB: new(4096)}, gang.Need{CPUMHz: 500, MemoryMiB: 1024}},
		{&api.Resources{CPU: new(100), Cores: new(4), MemoryMB: new(300)}, gang.Need{Cores: 4, MemoryMiB: 300}},
	} {
		if got := need(c.resources); got != c.want {
			t.Errorf("%+v needs %+v, want %+v", c.resources, got, c.want)
		}
	}
}

// A token that may read its own namespace alone is enough: that is said once.
func TestOnlyTheNamespaceThatMayBeReadIsCounted(t *testing.T) {
	var refused atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Nomad-Index", "5")
		switch {
		case r.URL.Query().Get("namespace") == everywhere:
			refused.Add(1)
			http.Error(w, "Permission denied", http.StatusForbidden)
		case r.URL.Path == "/v1/event/stream":
			_, _ = w.Write([]byte("{}\n"))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case r.URL.Path == "/v1/nodes":
			_, _ = w.Write([]byte(`[{"ID": "n1"}]`))
		case r.URL.Path == "/v1/node/n1":
			_, _ = w.Write([]byte(`{"ID": "n1", "NodeResources": {"Cpu": {"CpuShares": 4800}, "Memory": {"MemoryMB": 100}}}`))
		case r.URL.Path == "/v1/allocations" && r.URL.Query().Get("resources") != "":
			_, _ = w.Write([]byte(`[{"ID": "6a8f1d9e-1c2b-4d3e-8f90-0123456789ab", "Namespace": "default", "JobID": "web", "NodeID": "n1", "ClientStatus": "running",
				"AllocatedResources": {"Tasks": {"web": {"Cpu": {"CpuShares": 300}, "Memory": {"MemoryMB": 40}}}}}]`))
		default:
			_, _ = w.Write([]byte(`[]`))
		}
	}))
	t.Cleanup(server.Close)
	c, err := Open(Config{Address: server.URL, Namespace: "default"})
	if err != nil {
		t.Fatal(err)
	}
	all := until(watch(t, c), "resync", func(Resync) bool { return true })
	if len(all.Nodes) != 1 || all.Nodes[0].Foreign.CPUMHz != 300 || all.Nodes[0].Foreign.MemoryMiB != 40 || refused.Load() == 0 || c.scope() != "default" {
		t.Errorf("after %d refusals the scope is %q; nodes %+v", refused.Load(), c.scope(), all.Nodes)
	}
}
