package nomad

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/gangd/gangd/internal/gang"
)

const (
	// childMark is what Nomad puts between the ID of a parameterized job and
	// the rest of a dispatched child's.
	childMark = "/dispatch-"
	// metaVersion is a pinned parent's own note of its template's version.
	metaVersion = "gangd_template_version"
	// deviceGroup is the vendor and type under which the device plugin lists
	// each GPU by its UUID.
	deviceGroup = "gangd/gpu/"
	// lanePriority is every lane's in Nomad, whatever its template says. Lanes of
	// one priority never preempt each other: which gang makes room for which is
	// gangd's to decide, by tiers. It is Nomad's default, so that lanes and jobs
	// that do not say otherwise leave each other alone too; an operator who must
	// have a job run before gangs gives that more.
	lanePriority = 50
	// preemptionStep is how much lower a priority must be for Nomad to preempt
	// it (scheduler/preemption.go of Nomad 1.6).
	preemptionStep = 10
)

// LaneOrder is a lane to be opened.
type LaneOrder struct {
	Lane     gang.LaneID
	Template string
	// TemplateVersion is which version of the template it is made from: the
	// newest where it is 0.
	TemplateVersion uint64
	// Node is Nomad's node ID; UUIDs are the GPUs there.
	Node  string
	UUIDs []string
}

// job is the ID of the lane's pinned parent.
func (o LaneOrder) job() string { return gang.LaneJobID(o.Template, o.Node, o.Lane) }

// LaneOf tells which lane a job is of, from the ID of its pinned parent or of
// a dispatched child. It undoes gang.LaneJobID.
func LaneOf(jobID string) (parent string, lane gang.LaneID, ok bool) {
	if !strings.HasPrefix(jobID, gang.LanePrefix) {
		return "", "", false
	}
	// A template's name may hold any character. A lane's ID has no dot, nor has
	// what Nomad appends for a child.
	parent = jobID
	if i := strings.LastIndex(jobID, childMark); i > strings.LastIndexByte(jobID, '.') {
		parent = jobID[:i]
	}
	i := strings.LastIndexByte(parent, '.')
	if i < len(gang.LanePrefix) || i == len(parent)-1 {
		return "", "", false
	}
	return parent, gang.LaneID(parent[i+1:]), true
}

func (o LaneOrder) validate() error {
	switch {
	case o.Lane == "" || strings.ContainsAny(string(o.Lane), "./ "):
		return fmt.Errorf("open lane %q: that is no lane ID", o.Lane)
	case o.Node == "":
		return fmt.Errorf("open lane %s: no node is named", o.Lane)
	case len(o.UUIDs) == 0:
		return fmt.Errorf("open lane %s: no GPU is named", o.Lane)
	}
	// Requests for devices are a set keyed by name.
	sorted := slices.Sorted(slices.Values(o.UUIDs))
	if len(slices.Compact(sorted)) != len(o.UUIDs) || slices.Contains(o.UUIDs, "") {
		return fmt.Errorf("open lane %s: its GPUs are not distinct: %q", o.Lane, o.UUIDs)
	}
	return nil
}

// pinned makes the parent of one lane of a checked template, which it changes.
func pinned(job *api.Job, o LaneOrder) (*api.Job, error) {
	if len(job.TaskGroups) != 1 || len(job.TaskGroups[0].Tasks) != 1 || job.ParameterizedJob == nil {
		return nil, errors.New("pin a job: it was not checked")
	}
	version := value(job.JobModifyIndex)
	forgetServerFields(job)
	job.ID = new(o.job())
	job.Name = job.ID
	job.Priority = new(lanePriority)
	if job.Meta == nil {
		job.Meta = make(map[string]string)
	}
	job.Meta[metaVersion] = strconv.FormatUint(version, 10)

	group := job.TaskGroups[0]
	group.Count = new(1)
	group.Constraints = append(group.Constraints, api.NewConstraint("${node.unique.id}", "=", o.Node))
	group.RestartPolicy.Attempts = new(0)
	group.ReschedulePolicy.Attempts = new(0)
	group.ReschedulePolicy.Unlimited = new(false)

	task := group.Tasks[0]
	if task.Resources == nil {
		task.Resources = new(api.Resources)
	}
	task.Resources.Devices = nil
	for _, uuid := range o.UUIDs {
		task.Resources.Devices = append(task.Resources.Devices, &api.RequestedDevice{Name: deviceGroup + uuid, Count: new(uint64(1))})
	}
	return job, nil
}

// forgetServerFields removes what describes the template's own registration.
func forgetServerFields(job *api.Job) {
	job.Stop, job.Stable, job.Status, job.StatusDescription = nil, nil, nil, nil
	job.Version, job.SubmitTime, job.CreateIndex, job.ModifyIndex, job.JobModifyIndex = nil, nil, nil, nil, nil
	job.ParentID, job.NomadTokenID, job.DispatchIdempotencyToken, job.VersionTag = nil, nil, nil, nil
	job.Payload, job.Dispatched = nil, false
}
