package nomad

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/gangd/gangd/internal/gang"
)

// Opened is a lane that Nomad has.
type Opened struct {
	// Job is the pinned parent, Child the job that was dispatched.
	Job, Child string
	// TemplateVersion is the template's, as of which the lane was made.
	TemplateVersion uint64
	// Existed tells that an earlier call had opened it.
	Existed bool
}

// OpenLane makes the lane's pinned parent from the ordered version of the
// template and dispatches it, once: what an earlier call did, however far it
// came, is found and completed, whatever became of the template since. The
// error wraps ErrNoTemplate, or is a *TemplateError, where the template is at
// fault, and wraps ErrTemplateVersion where only that version of it is gone. A
// call that fails otherwise may be made again.
func (c *Client) OpenLane(ctx context.Context, o LaneOrder) (Opened, error) {
	if err := o.validate(); err != nil {
		return Opened{}, err
	}
	opened, err := c.openLane(ctx, o)
	if err != nil {
		return Opened{}, fmt.Errorf("open lane %s: %w", o.Lane, err)
	}
	return opened, nil
}

func (c *Client) openLane(ctx context.Context, o LaneOrder) (opened Opened, err error) {
	opened.Job = o.job()
	if err = c.create(ctx, o, &opened); err != nil {
		// It may exist, or the answer may have been lost on its way.
		err = c.find(ctx, &opened, err)
	}
	if err == nil && opened.Existed {
		opened.Child, err = c.adoptChild(ctx, opened.Job)
	}
	if err == nil && opened.Child == "" {
		opened.Child, err = c.dispatch(ctx, opened.Job, o)
	}
	return opened, err
}

// create registers a parent that is not there yet.
func (c *Client) create(ctx context.Context, o LaneOrder, opened *Opened) error {
	template, err := c.template(ctx, o.Template, o.TemplateVersion)
	if err != nil {
		return err
	}
	opened.TemplateVersion = value(template.JobModifyIndex)
	parent, err := pinned(template, o)
	if err != nil {
		return err
	}
	opts, cancel := write(ctx)
	defer cancel()
	// Index 0 means that the job must not exist.
	if _, _, err := c.api.Jobs().EnforceRegister(parent, 0, opts); err != nil {
		return fmt.Errorf("register job %s: %w", opened.Job, err)
	}
	return nil
}

// find notes the parent that is there although it could not be created, for the
// cause, which it returns where there is none.
func (c *Client) find(ctx context.Context, opened *Opened, cause error) error {
	found, exists, err := c.info(ctx, opened.Job)
	if err != nil || !exists {
		return errors.Join(cause, err)
	}
	if value(found.Stop) {
		return fmt.Errorf("register job %s: it exists and was stopped: purge it", opened.Job)
	}
	opened.Existed = true
	opened.TemplateVersion, err = strconv.ParseUint(found.Meta[metaVersion], 10, 64)
	if err != nil {
		return fmt.Errorf("read job %s: its meta %s: %w", opened.Job, metaVersion, err)
	}
	return nil
}

func (c *Client) info(ctx context.Context, jobID string) (job *api.Job, exists bool, err error) {
	opts, cancel := query(ctx, requestTimeout)
	defer cancel()
	job, _, err = c.api.Jobs().Info(jobID, opts)
	if isNotFound(err) {
		return nil, false, nil
	}
	return job, err == nil, err
}

// adoptChild finds the child that an earlier call dispatched and sees to it
// that it is evaluated: Nomad 1.6 writes the child before its evaluation, and
// may have died between the two. It returns "" if there is no child.
func (c *Client) adoptChild(ctx context.Context, parentID string) (string, error) {
	children, err := c.children(ctx, parentID)
	if err != nil || len(children) == 0 {
		return "", err
	}
	child := children[0]
	opts, cancel := query(ctx, requestTimeout)
	defer cancel()
	evaluations, _, err := c.api.Jobs().Evaluations(child, opts)
	if err != nil {
		return "", fmt.Errorf("list evaluations of job %s: %w", child, err)
	}
	if len(evaluations) > 0 {
		return child, nil
	}
	c.log.Warn("a dispatched lane was never evaluated, it is now", "job", child)
	wopts, cancel := write(ctx)
	defer cancel()
	if _, _, err := c.api.Jobs().EvaluateWithOpts(child, api.EvalOptions{}, wopts); err != nil {
		return "", fmt.Errorf("evaluate job %s: %w", child, err)
	}
	return child, nil
}

// children lists the IDs of the jobs that were dispatched from a parent,
// whether or not that is still there, oldest first.
func (c *Client) children(ctx context.Context, parentID string) ([]string, error) {
	var ids []string
	_, err := pages(ctx, api.QueryOptions{Prefix: parentID + childMark}, func(opts *api.QueryOptions) (*api.QueryMeta, error) {
		stubs, meta, err := c.api.Jobs().List(opts)
		for _, stub := range stubs {
			ids = append(ids, stub.ID)
		}
		return meta, err
	})
	if err != nil {
		return nil, fmt.Errorf("list jobs dispatched from %s: %w", parentID, err)
	}
	return ids, nil
}

func (c *Client) dispatch(ctx context.Context, parentID string, o LaneOrder) (string, error) {
	opts, cancel := write(ctx)
	defer cancel()
	opts.IdempotencyToken = string(o.Lane)
	meta := map[string]string{MetaLane: string(o.Lane)}
	response, _, err := c.api.Jobs().DispatchOpts(&api.DispatchOptions{JobID: parentID, Meta: meta}, opts)
	if err != nil {
		return "", fmt.Errorf("dispatch job %s: %w", parentID, err)
	}
	return response.DispatchedJobID, nil
}

// PurgeLane removes the pinned parent and all that was dispatched from it;
// allocations that run are stopped. Absence is success.
func (c *Client) PurgeLane(ctx context.Context, parentID string) error {
	if !strings.HasPrefix(parentID, gang.LanePrefix) || strings.Contains(parentID, childMark) {
		return fmt.Errorf("purge job %q: it is no lane's pinned parent", parentID)
	}
	// The parent goes first: then nobody can dispatch it again.
	if err := c.purge(ctx, parentID); err != nil {
		return err
	}
	children, err := c.children(ctx, parentID)
	if err != nil {
		return err
	}
	for _, child := range children {
		if err := c.purge(ctx, child); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) purge(ctx context.Context, jobID string) error {
	opts, cancel := write(ctx)
	defer cancel()
	_, _, err := c.api.Jobs().DeregisterOpts(jobID, &api.DeregisterOptions{Purge: true, NoShutdownDelay: true}, opts)
	if err != nil && !isNotFound(err) {
		return fmt.Errorf("purge job %s: %w", jobID, err)
	}
	return nil
}
