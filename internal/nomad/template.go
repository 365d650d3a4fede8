package nomad

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/member"
)

const (
	// Driver is the task driver that runs members of gangs.
	Driver = "gang"
	// MetaLane is the dispatch metadata that names a lane to its keeper.
	MetaLane = "gangd_lane"
	// MetaEstimate is the template's own metadata for how long a gang of it
	// usually runs, e.g. "5m".
	MetaEstimate = "gangd_estimate"
)

// ErrNoTemplate is wrapped where no job that runs has the template's name.
var ErrNoTemplate = errors.New("no such template")

// ErrTemplateVersion is wrapped where a template is there, but not in the
// version that is asked for: the operator changed it since, and Nomad no longer
// keeps what it was.
var ErrTemplateVersion = errors.New("the template is no longer what it was")

// Template is what the rest of gangd knows of an operator's job.
type Template struct {
	// Version is Nomad's JobModifyIndex: it changes whenever the operator
	// changes the job.
	Version uint64
	// Estimate is 0 where the template gives none.
	Estimate time.Duration
	// ReadyTimeout is how long its members may take until they are ready; 0
	// where the template does not say.
	ReadyTimeout time.Duration
	// Need is what each member takes of its node beside GPUs.
	Need gang.Need
}

// Fault is one thing that keeps a job from being a template.
type Fault struct {
	// Where is the path of blocks, e.g. `group "member" > restart`.
	Where string
	// Problem says what is wrong and what to write instead.
	Problem string
}

func (f Fault) Error() string { return f.Where + ": " + f.Problem }

// TemplateError lists all faults of a template.
type TemplateError struct {
	Template string
	Faults   []Fault
}

func (e *TemplateError) Error() string {
	lines := make([]string, len(e.Faults))
	for i, fault := range e.Faults {
		lines[i] = fault.Error()
	}
	if len(lines) == 1 {
		return fmt.Sprintf("job %q is no template for gangs: %s", e.Template, lines[0])
	}
	return fmt.Sprintf("job %q is no template for gangs:\n  %s", e.Template, strings.Join(lines, "\n  "))
}

// Template reads a template as it is now and checks it. The error wraps
// ErrNoTemplate, or is a *TemplateError.
func (c *Client) Template(ctx context.Context, name string) (Template, error) {
	job, err := c.template(ctx, name, 0)
	if err != nil {
		return Template{}, err
	}
	// What follows was checked.
	t := Template{Version: value(job.JobModifyIndex)}
	t.Estimate, _ = time.ParseDuration(job.Meta[MetaEstimate])
	settings, _ := member.Review(job.TaskGroups[0].Tasks[0].Config)
	t.ReadyTimeout = settings.ReadyTimeout
	t.Need = need(job.TaskGroups[0].Tasks[0].Resources)
	return t, nil
}

// need is what a task has Nomad keep for it. What it may use above its memory,
// its memory_max, Nomad keeps for nobody.
func need(r *api.Resources) gang.Need {
	if r == nil {
		return gang.Need{}
	}
	n := gang.Need{CPUMHz: value(r.CPU), Cores: value(r.Cores), MemoryMiB: value(r.MemoryMB)}
	if n.Cores > 0 {
		n.CPUMHz = 0 // Nomad takes the one or the other
	}
	return n
}

// template reads one version of a template, the newest where it is 0, and
// checks it. A template that was stopped is none, in any version.
func (c *Client) template(ctx context.Context, name string, version uint64) (*api.Job, error) {
	opts, cancel := query(ctx, requestTimeout)
	defer cancel()
	job, _, err := c.api.Jobs().Info(name, opts)
	switch {
	case isNotFound(err):
		return nil, fmt.Errorf("%w: Nomad has no job %q: register it with `nomad job run`", ErrNoTemplate, name)
	case err != nil:
		return nil, fmt.Errorf("read template %q: %w", name, err)
	case value(job.Stop):
		return nil, fmt.Errorf("%w: job %q was stopped: register it again with `nomad job run`", ErrNoTemplate, name)
	}
	if version != 0 && value(job.JobModifyIndex) != version {
		if job, err = c.earlierTemplate(ctx, name, version); err != nil {
			return nil, err
		}
	}
	return job, checkTemplate(job, c.driver)
}

// earlierTemplate finds a version of a job among those that Nomad keeps: by
// default the last six, or since it was last purged.
func (c *Client) earlierTemplate(ctx context.Context, name string, version uint64) (*api.Job, error) {
	opts, cancel := query(ctx, requestTimeout)
	defer cancel()
	kept, _, _, err := c.api.Jobs().Versions(name, false, opts)
	if err != nil && !isNotFound(err) {
		return nil, fmt.Errorf("read the versions of template %q: %w", name, err)
	}
	for _, job := range kept {
		if value(job.JobModifyIndex) == version && !value(job.Stop) {
			return job, nil
		}
	}
	return nil, fmt.Errorf("%w: job %q was changed, and Nomad does not keep its version of JobModifyIndex %d", ErrTemplateVersion, name, version)
}

// checkTemplate says what a job lacks to be a template whose tasks the driver
// runs: it returns nil or a *TemplateError with every fault.
func checkTemplate(job *api.Job, driver string) error {
	r := &reviewer{driver: driver}
	r.job(job)
	r.parameterized(job.ParameterizedJob)
	if len(job.TaskGroups) != 1 {
		r.fault("job", "it has %d groups: keep one, which says how one member runs; gangd runs it once a node", len(job.TaskGroups))
	}
	for _, group := range job.TaskGroups {
		r.group(group)
	}
	if len(r.faults) == 0 {
		return nil
	}
	return &TemplateError{Template: value(job.ID), Faults: r.faults}
}

// reviewer collects faults.
type reviewer struct {
	driver string
	faults []Fault
}

func (r *reviewer) fault(where, format string, args ...any) {
	r.faults = append(r.faults, Fault{Where: where, Problem: fmt.Sprintf(format, args...)})
}

func (r *reviewer) job(job *api.Job) {
	if strings.HasPrefix(value(job.ID), gang.LanePrefix) {
		r.fault("job", "names that begin with %q are those of lanes: rename it", gang.LanePrefix)
	}
	if kind := value(job.Type); kind != api.JobTypeBatch {
		r.fault("job", "type is %q: set type = \"batch\"", kind)
	}
	if job.IsPeriodic() {
		r.fault("job > periodic", "gangd decides when a gang runs: remove the block")
	}
	if job.IsMultiregion() {
		r.fault("job > multiregion", "a gang runs in one region: remove the block")
	}
	if text, given := job.Meta[MetaEstimate]; given {
		if d, err := time.ParseDuration(text); err != nil || d <= 0 {
			r.fault("job > meta", "%s = %q is no duration: write it like \"5m\" or \"90s\"", MetaEstimate, text)
		}
	}
}

func (r *reviewer) parameterized(p *api.ParameterizedJobConfig) {
	if p == nil {
		r.fault("job", "it is not parameterized: add a block parameterized { meta_required = [%q] }", MetaLane)
		return
	}
	const where = "job > parameterized"
	if p.Payload == "required" {
		r.fault(where, "payload is required, gangd sends none: set payload = \"forbidden\", and give input as the gang's params")
	}
	if !slices.Contains(p.MetaRequired, MetaLane) && !slices.Contains(p.MetaOptional, MetaLane) {
		r.fault(where, "meta_required lacks %q: add it", MetaLane)
	}
	for _, key := range p.MetaRequired {
		if key != MetaLane {
			r.fault(where, "meta_required has %q, gangd gives only %q: move it to the job's own meta block, or give it as the gang's params", key, MetaLane)
		}
	}
}

func (r *reviewer) group(g *api.TaskGroup) {
	where := fmt.Sprintf("group %q", value(g.Name))
	if g.Count != nil && *g.Count != 1 {
		r.fault(where, "count is %d: set count = 1; the size of a gang is in its own file", *g.Count)
	}
	r.restart(where, g.RestartPolicy)
	if p := g.ReschedulePolicy; p == nil || value(p.Attempts) != 0 || value(p.Unlimited) {
		r.fault(where+" > reschedule", "gangd decides where a gang runs again: set attempts = 0 and unlimited = false")
	}
	//lint:ignore SA1019 Nomad before 1.8 has these two, and no disconnect block.
	if g.MaxClientDisconnect != nil || g.StopAfterClientDisconnect != nil || g.Disconnect != nil {
		r.fault(where, "gangd decides what becomes of a gang whose node is cut off: remove disconnect, max_client_disconnect and stop_after_client_disconnect")
	}
	if len(g.Tasks) != 1 {
		r.fault(where, "it has %d tasks: keep the one that runs the member; what must run before it belongs into its command", len(g.Tasks))
	}
	for _, task := range g.Tasks {
		r.task(where, task)
		// Nomad gives a task that says nothing its group's policy.
		if task.RestartPolicy != nil && !reflect.DeepEqual(task.RestartPolicy, g.RestartPolicy) {
			r.restart(fmt.Sprintf("%s > task %q", where, task.Name), task.RestartPolicy)
		}
	}
}

func (r *reviewer) task(group string, t *api.Task) {
	where := fmt.Sprintf("%s > task %q", group, t.Name)
	if t.Driver != r.driver {
		r.fault(where, "driver is %q: set driver = %q", t.Driver, r.driver)
	} else {
		_, faults := member.Review(t.Config)
		for _, f := range faults {
			r.fault(where+" > config", "%v", f)
		}
	}
	if t.Lifecycle != nil {
		r.fault(where+" > lifecycle", "a member is a main task: remove the block")
	}
	if t.DispatchPayload != nil {
		r.fault(where+" > dispatch_payload", "gangd sends no payload: remove the block")
	}
	if t.Resources != nil && len(t.Resources.Devices) > 0 {
		r.fault(where+" > resources > device", "gangd names the exact GPUs of each member: remove the block")
	}
}

func (r *reviewer) restart(where string, p *api.RestartPolicy) {
	if p == nil || value(p.Attempts) != 0 || value(p.Mode) != api.RestartPolicyModeFail {
		r.fault(where+" > restart", "a member does not restart alone: set attempts = 0 and mode = \"fail\"")
	}
}

// value is what p points to, or the zero value.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
