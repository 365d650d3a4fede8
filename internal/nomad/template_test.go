package nomad

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/gangd/gangd/internal/gang"
)

func gangTemplate() *api.Job {
	job := template("wan", "true")
	job.TaskGroups[0].Tasks[0].Driver = Driver
	return job
}

func TestCheckTemplate(t *testing.T) {
	if err := checkTemplate(gangTemplate(), Driver); err != nil {
		t.Fatalf("a good template: %v", err)
	}
	optional := gangTemplate()
	optional.ParameterizedJob = &api.ParameterizedJobConfig{MetaOptional: []string{MetaLane, "x"}}
	optional.TaskGroups[0].Count = nil
	if err := checkTemplate(optional, Driver); err != nil {
		t.Fatalf("a good template: %v", err)
	}

	group := func(j *api.Job) *api.TaskGroup { return j.TaskGroups[0] }
	task := func(j *api.Job) *api.Task { return j.TaskGroups[0].Tasks[0] }
	for name, c := range map[string]struct {
		spoil func(*api.Job)
		where string
	}{
		"a service":            {func(j *api.Job) { j.Type = new("service") }, "job"},
		"a lane's name":        {func(j *api.Job) { j.ID = new("gangd.x") }, "job"},
		"not parameterized":    {func(j *api.Job) { j.ParameterizedJob = nil }, "job"},
		"payload required":     {func(j *api.Job) { j.ParameterizedJob.Payload = "required" }, "job > parameterized"},
		"no lane in the meta":  {func(j *api.Job) { j.ParameterizedJob.MetaRequired = nil }, "job > parameterized"},
		"more meta required":   {func(j *api.Job) { j.ParameterizedJob.MetaRequired = []string{MetaLane, "x"} }, "job > parameterized"},
		"periodic":             {func(j *api.Job) { j.Periodic = new(api.PeriodicConfig) }, "job > periodic"},
		"multiregion":          {func(j *api.Job) { j.Multiregion = &api.Multiregion{Regions: []*api.MultiregionRegion{{}}} }, "job > multiregion"},
		"a bad estimate":       {func(j *api.Job) { j.Meta = map[string]string{MetaEstimate: "soon"} }, "job > meta"},
		"two groups":           {func(j *api.Job) { j.TaskGroups = append(j.TaskGroups, group(gangTemplate())) }, "job"},
		"no group":             {func(j *api.Job) { j.TaskGroups = nil }, "job"},
		"count 2":              {func(j *api.Job) { group(j).Count = new(2) }, `group "member"`},
		"no restart block":     {func(j *api.Job) { group(j).RestartPolicy = nil }, `group "member" > restart`},
		"restarts":             {func(j *api.Job) { group(j).RestartPolicy.Attempts = new(1) }, `group "member" > restart`},
		"restart mode":         {func(j *api.Job) { group(j).RestartPolicy.Mode = new("delay") }, `group "member" > restart`},
		"no reschedule block":  {func(j *api.Job) { group(j).ReschedulePolicy = nil }, `group "member" > reschedule`},
		"reschedules":          {func(j *api.Job) { group(j).ReschedulePolicy.Attempts = new(1) }, `group "member" > reschedule`},
		"unlimited reschedule": {func(j *api.Job) { group(j).ReschedulePolicy.Unlimited = new(true) }, `group "member" > reschedule`},
		//lint:ignore SA1019 Nomad before 1.8 has it.
		"disconnect":       {func(j *api.Job) { group(j).MaxClientDisconnect = new(time.Minute) }, `group "member"`},
		"two tasks":        {func(j *api.Job) { group(j).Tasks = append(group(j).Tasks, task(gangTemplate())) }, `group "member"`},
		"another driver":   {func(j *api.Job) { task(j).Driver = "docker" }, `group "member" > task "member"`},
		"a sidecar":        {func(j *api.Job) { task(j).Lifecycle = new(api.TaskLifecycle) }, `group "member" > task "member" > lifecycle`},
		"task restarts":    {func(j *api.Job) { task(j).RestartPolicy = &api.RestartPolicy{Attempts: new(3)} }, `group "member" > task "member" > restart`},
		"dispatch payload": {func(j *api.Job) { task(j).DispatchPayload = new(api.DispatchPayloadConfig) }, `group "member" > task "member" > dispatch_payload`},
		"no command":       {func(j *api.Job) { task(j).Config = nil }, `group "member" > task "member" > config`},
		"a typing error":   {func(j *api.Job) { task(j).Config["comand"] = "sh" }, `group "member" > task "member" > config`},
		"a bad duration":   {func(j *api.Job) { task(j).Config["ready_timeout"] = "soon" }, `group "member" > task "member" > config`},
		"own devices":      {func(j *api.Job) { task(j).Resources.Devices = []*api.RequestedDevice{{Name: "nvidia/gpu"}} }, `group "member" > task "member" > resources > device`},
	} {
		job := gangTemplate()
		c.spoil(job)
		var faulty *TemplateError
		if err := checkTemplate(job, Driver); !errors.As(err, &faulty) {
			t.Errorf("%s: %v", name, err)
		} else if len(faulty.Faults) != 1 || faulty.Faults[0].Where != c.where {
			t.Errorf("%s: %q", name, faulty.Faults)
		}
	}

	// All faults are told at once.
	job := gangTemplate()
	job.Type = new("system")
	task(job).Driver = "exec"
	group(job).Count = new(8)
	var faulty *TemplateError
	if err := checkTemplate(job, Driver); !errors.As(err, &faulty) || len(faulty.Faults) != 3 || !strings.Contains(err.Error(), "\"wan\"") {
		t.Errorf("three faults: %v", err)
	}

	// What a task has from its group is told once.
	job = gangTemplate()
	group(job).RestartPolicy.Attempts = new(3)
	policy := *group(job).RestartPolicy
	task(job).RestartPolicy = &policy
	if err := checkTemplate(job, Driver); !errors.As(err, &faulty) || len(faulty.Faults) != 1 {
		t.Errorf("inherited restarts: %v", err)
	}
}

func TestLaneOfUndoesLaneJobID(t *testing.T) {
	const id = gang.LaneID("0123456789abcdef")
	for _, template := range []string{"wan", "video/wan.v2", "a/dispatch-b"} {
		parent := gang.LaneJobID(template, "4cf8a1b2-77aa", id)
		if !strings.Contains(parent, ".4cf8a1b2.") {
			t.Errorf("parent %q does not name the node", parent)
		}
		for _, job := range []string{parent, parent + "/dispatch-1690000000-89abcdef"} {
			if p, l, ok := LaneOf(job); p != parent || l != id || !ok {
				t.Errorf("LaneOf(%q) = %q, %q, %v", job, p, l, ok)
			}
		}
	}
	for _, job := range []string{"wan", "wan/dispatch-1-2", "gangd.", "gangd.x", "gangd.x.", "gangdx.a.b.c"} {
		if p, l, ok := LaneOf(job); ok {
			t.Errorf("LaneOf(%q) = %q, %q", job, p, l)
		}
	}
}

func TestReasonHasNomadsNumbers(t *testing.T) {
	for want, e := range map[string]evaluationWire{
		`Nomad cannot place it: 4 nodes evaluated, 3 filtered by constraint "${node.unique.id} = x", 1 exhausted (devices: no devices match request)`: {
			FailedTGAllocs: map[string]*metricWire{"member": {
				NodesEvaluated: 4, NodesInPool: 4,
				ConstraintFiltered: map[string]int{"${node.unique.id} = x": 3},
				DimensionExhausted: map[string]int{"devices: no devices match request": 1},
			}},
		},
		"Nomad cannot place it: no node is in the template's node pool and datacenters": {FailedTGAllocs: map[string]*metricWire{"member": {}}},
		"Nomad cannot place it: none of the 2 nodes in the pool is ready and eligible":  {FailedTGAllocs: map[string]*metricWire{"member": {NodesInPool: 2}}},
		"Nomad cannot place it: maximum attempts reached (5)":                           {Status: evaluationFailed, StatusDescription: "maximum attempts reached (5)"},
		"Nomad cannot place it: 1 nodes evaluated, 1 filtered by class \"a\", quota q exhausted": {
			FailedTGAllocs: map[string]*metricWire{"m": {NodesEvaluated: 1, ClassFiltered: map[string]int{"a": 1}, QuotaExhausted: []string{"q"}}},
		},
	} {
		if got := e.reason(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// Events as Nomad 1.6 and a driver tell them.
var (
	received      = taskEvent{Type: api.TaskReceived, DisplayMessage: "Task received by client"}
	setUp         = taskEvent{Type: api.TaskSetup, DisplayMessage: "Building Task Directory"}
	started       = taskEvent{Type: api.TaskStarted, DisplayMessage: "Task started by client"}
	terminated    = taskEvent{Type: api.TaskTerminated, DisplayMessage: "Exit Code: 137, Signal: 9"}
	notRestarting = taskEvent{Type: api.TaskNotRestarting, DisplayMessage: "Policy allows no restarts", FailsTask: true}
	killing       = taskEvent{Type: api.TaskKilling, DisplayMessage: "Sent interrupt. Waiting 5s before force killing"}
	killed        = taskEvent{Type: api.TaskKilled, DisplayMessage: "Task successfully killed"}
)

func TestMessageTellsTheCause(t *testing.T) {
	for want, events := range map[string][]taskEvent{
		`Failed Validation: 2 errors occurred: * failed to parse config: * No argument or block type is named "comand". Did you mean "command"?`: {received, setUp,
			{Type: api.TaskFailedValidation, DisplayMessage: "2 errors occurred:\n\t* failed to parse config:\n\t* No argument or block type is named \"comand\". Did you mean \"command\"?\n\n"}, notRestarting},
		"Driver Failure: " + strings.Repeat("x", 303) + "…":            {{Type: api.TaskDriverFailure, DisplayMessage: strings.Repeat("x", 303) + "€uro"}},
		`Driver Failure: config.command: "python9" is neither in PATH`: {received, setUp, {Type: api.TaskDriverFailure, DisplayMessage: `rpc error: code = Unknown desc = config.command: "python9" is neither in PATH`}, notRestarting, killing, killed},
		"Setup Failure: failed to setup alloc":                         {received, {Type: api.TaskSetupFailure, DisplayMessage: "failed to setup alloc", FailsTask: true}, killing, killed},
		"Failed Artifact Download: 404":                                {received, setUp, {Type: api.TaskArtifactDownloadFailed, DisplayMessage: "404"}, notRestarting},
		"Task hook failed: template: no such file":                     {received, setUp, {Type: taskHookFailed, DisplayMessage: "template: no such file"}, notRestarting},
		"Killing: Template failed: missing key":                        {received, setUp, {Type: api.TaskKilling, DisplayMessage: "Template failed: missing key", FailsTask: true}, killed},
		`Terminated: Exit Code: 1, Exit Message: "rank 0 failed"`:      {received, started, {Type: "Driver", DisplayMessage: "Admitted by gangd"}, {Type: api.TaskTerminated, Message: "rank 0 failed", DisplayMessage: `Exit Code: 1, Exit Message: "rank 0 failed"`}, notRestarting},
		"Driver: Lane 01 closed: not admitted":                         {received, started, {Type: "Driver", DisplayMessage: "Lane 01 closed: not admitted"}, terminated, notRestarting},
		"Terminated: Exit Code: 137, Signal: 9":                        {received, setUp, started, terminated, notRestarting},
		"Started: Task started by client":                              {received, setUp, started},
	} {
		w := allocationWire{TaskStates: map[string]*taskWire{"m": {Events: events}}}
		if got := w.message(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	lost := allocationWire{ClientStatus: ClientLost, ClientDescription: "alloc is lost", TaskStates: map[string]*taskWire{"m": {Events: []taskEvent{started}}}}
	stopped := allocationWire{DesiredDescription: "job stopped"}
	preempted := allocationWire{
		DesiredDescription: "Preempted by alloc ID 1f2e", PreemptedByAllocation: "1f2e",
		TaskStates: map[string]*taskWire{"m": {Events: []taskEvent{killing}}},
	}
	if want := "Nomad preempted it for allocation 1f2e of a job of higher priority"; preempted.message() != want {
		t.Errorf("got %q of a preempted one, want %q", preempted.message(), want)
	}
	if lost.message() != "alloc is lost" || stopped.message() != "job stopped" {
		t.Errorf("got %q of a lost one, %q of a stopped one", lost.message(), stopped.message())
	}
}

// Where ordinary GPU jobs run too, another plugin lists the same GPUs, which it
// cannot pin.
func TestDevicesAreThoseOfGangdsPlugin(t *testing.T) {
	var wire nodeWire
	if err := json.Unmarshal([]byte(`{"NodeResources": {"Devices": [
		{"Vendor": "gangd", "Type": "gpu", "Name": "GPU-a", "Instances": [{"ID": "GPU-a", "Healthy": true}]},
		{"Vendor": "nvidia", "Type": "gpu", "Name": "H100", "Instances": [{"ID": "GPU-a", "Healthy": false}]}
	]}}`), &wire); err != nil {
		t.Fatal(err)
	}
	if d := wire.node().Devices; len(d) != 1 || d[0].ID != "GPU-a" || !d[0].Healthy {
		t.Errorf("devices %+v", d)
	}
}

func TestOrderIsChecked(t *testing.T) {
	good := LaneOrder{Lane: "l", Template: "t", Node: "n", UUIDs: []string{"a", "b"}}
	if err := good.validate(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*LaneOrder){
		"no lane":       func(o *LaneOrder) { o.Lane = "" },
		"lane with dot": func(o *LaneOrder) { o.Lane = "a.b" },
		"no node":       func(o *LaneOrder) { o.Node = "" },
		"no GPU":        func(o *LaneOrder) { o.UUIDs = nil },
		"twice a GPU":   func(o *LaneOrder) { o.UUIDs = []string{"a", "b", "a"} },
		"empty GPU":     func(o *LaneOrder) { o.UUIDs = []string{"a", ""} },
	} {
		o := good
		spoil(&o)
		if o.validate() == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestPinnedParent(t *testing.T) {
	job := gangTemplate()
	job.JobModifyIndex, job.Version, job.Status = new(uint64(42)), new(uint64(3)), new("running")
	job.Constraints = []*api.Constraint{api.NewConstraint("${attr.cpu.arch}", "=", "amd64")}
	job.Priority = new(90)
	p, err := pinned(job, LaneOrder{Lane: "0l", Template: "wan", Node: "4cf8a1b2-77", UUIDs: []string{"GPU-a", "GPU-b"}})
	if err != nil {
		t.Fatal(err)
	}
	if *p.Priority != lanePriority {
		t.Errorf("priority %d", *p.Priority)
	}
	group := p.TaskGroups[0]
	var devices []string
	for _, d := range group.Tasks[0].Resources.Devices {
		devices = append(devices, d.Name)
	}
	if *p.ID != "gangd.wan.4cf8a1b2.0l" || !reflect.DeepEqual(devices, []string{"gangd/gpu/GPU-a", "gangd/gpu/GPU-b"}) {
		t.Errorf("parent %s with %v", *p.ID, devices)
	}
	if last := group.Constraints[len(group.Constraints)-1]; last.LTarget != "${node.unique.id}" || last.RTarget != "4cf8a1b2-77" || len(p.Constraints) != 1 {
		t.Errorf("constraint %+v", last)
	}
	if p.Meta[metaVersion] != "42" || p.JobModifyIndex != nil || p.Version != nil || p.Status != nil {
		t.Errorf("meta %v, version %v", p.Meta, p.Version)
	}
}
