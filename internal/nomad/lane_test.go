package nomad

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/gangd/gangd/internal/gang"
)

// sleeper writes its environment where the test finds it and stays.
func sleeper(t *testing.T) (script, envFile string) {
	envFile = filepath.Join(t.TempDir(), "env")
	return fmt.Sprintf("env > %[1]s.part && mv %[1]s.part %[1]s && exec sleep 600", envFile), envFile
}

func TestLaneLivesAndIsPurged(t *testing.T) {
	c := open(t, nomadAgent(t))
	script, envFile := sleeper(t)
	register(t, c, template("lives", script))
	order := LaneOrder{Lane: "lane0lives", Template: "lives", Node: theNode(t, c).ID, UUIDs: []string{gpus[2], gpus[1]}}
	opened := openLane(t, c, order)
	if opened.Existed || opened.TemplateVersion == 0 || !strings.HasPrefix(opened.Child, opened.Job+childMark) {
		t.Errorf("opened %+v", opened)
	}
	again := openLane(t, c, order)
	if !again.Existed || again.Child != opened.Child || again.TemplateVersion != opened.TemplateVersion {
		t.Errorf("opened again: %+v, first %+v", again, opened)
	}
	eventually(t, "the lane runs", func() bool {
		l := lane(t, c, opened.Job)
		return !l.Gone && len(l.Children) == 1 && l.Children[0].Allocation != nil && l.Children[0].Allocation.ClientStatus == api.AllocClientStatusRunning
	})
	a := lane(t, c, opened.Job).Children[0].Allocation
	if a.Lane != order.Lane || a.Node != order.Node || a.Job != opened.Job || a.Child != opened.Child || a.Ended() {
		t.Errorf("allocation %+v", a)
	}
	env := readFile(t, envFile)
	for want, there := range map[string]bool{
		"GPU_1=reserved": true, "GPU_2=reserved": true, "GPU_0=reserved": false, "GPU_3=reserved": false,
		"NOMAD_META_gangd_lane=lane0lives": true,
	} {
		if strings.Contains(env, want+"\n") != there {
			t.Errorf("the task's environment: %s should be there: %v", want, there)
		}
	}

	for range 2 {
		if err := c.PurgeLane(t.Context(), opened.Job); err != nil {
			t.Fatal(err)
		}
	}
	if l := lane(t, c, opened.Job); l.Job != "" {
		t.Errorf("after the purge: %+v", l)
	}
	eventually(t, "its allocation has ended", func() bool {
		info, _, err := c.api.Allocations().Info(a.ID, nil)
		return isNotFound(err) || err == nil && info.ClientStatus == ClientComplete
	})
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	var content []byte
	eventually(t, path+" exists", func() bool {
		var err error
		content, err = os.ReadFile(path)
		return err == nil
	})
	return string(content)
}

// Opening stops after each of its steps in turn; the next call completes it.
func TestOpenCompletesWhatAnEarlierCallBegan(t *testing.T) {
	c := open(t, nomadAgent(t))
	register(t, c, template("begun", "exec sleep 600"))
	order := LaneOrder{Lane: "lane0begun", Template: "begun", Node: theNode(t, c).ID, UUIDs: gpus[:1]}

	t.Run("registered", func(t *testing.T) {
		job, err := c.template(t.Context(), order.Template, 0)
		if err != nil {
			t.Fatal(err)
		}
		parent, err := pinned(job, order)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.api.Jobs().Register(parent, nil); err != nil {
			t.Fatal(err)
		}
		if l := lane(t, c, *parent.ID); l.Job == "" || l.Gone {
			t.Errorf("before its dispatch the list says %+v", l)
		}
		opened := openLane(t, c, order)
		if !opened.Existed || opened.Child == "" {
			t.Errorf("opened %+v", opened)
		}
	})
	t.Run("dispatched and never evaluated", func(t *testing.T) {
		order.Lane = "lane1begun"
		child := dispatchWithoutEvaluation(t, c, order)
		opened := openLane(t, c, order)
		if opened.Child != child {
			t.Errorf("opened %+v, want child %s", opened, child)
		}
		eventually(t, "the lane is placed", func() bool {
			l := lane(t, c, opened.Job)
			return len(l.Children) == 1 && l.Children[0].Allocation != nil
		})
	})
	t.Run("stopped meanwhile", func(t *testing.T) {
		order.Lane = "lane2begun"
		opened := openLane(t, c, order)
		if _, _, err := c.api.Jobs().Deregister(opened.Job, false, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := c.OpenLane(t.Context(), order); err == nil {
			t.Error("a lane that was stopped opened again")
		}
	})
}

// dispatchWithoutEvaluation leaves what a server leaves that dies between its
// two writes: the evaluation is deleted before it is worked on.
func dispatchWithoutEvaluation(t *testing.T, c *Client, order LaneOrder) (child string) {
	t.Helper()
	pauseBroker(t, c, true)
	defer pauseBroker(t, c, false)
	opened := openLane(t, c, order)
	evaluations, _, err := c.api.Jobs().Evaluations(opened.Child, nil)
	if err != nil || len(evaluations) != 1 {
		t.Fatalf("%d evaluations, %v", len(evaluations), err)
	}
	if _, err := c.api.Evaluations().Delete([]string{evaluations[0].ID}, nil); err != nil {
		t.Fatal(err)
	}
	return opened.Child
}

func pauseBroker(t *testing.T, c *Client, paused bool) {
	t.Helper()
	config, _, err := c.api.Operator().SchedulerGetConfiguration(nil)
	if err != nil {
		t.Fatal(err)
	}
	config.SchedulerConfig.PauseEvalBroker = paused
	if _, _, err := c.api.Operator().SchedulerSetConfiguration(config.SchedulerConfig, nil); err != nil {
		t.Fatal(err)
	}
}

func TestManyLanesOpenAtOnce(t *testing.T) {
	c := open(t, nomadAgent(t))
	register(t, c, template("many", "exec sleep 600"))
	node := theNode(t, c).ID
	const lanes = 24
	var jobs [lanes]string
	var wg sync.WaitGroup
	for i := range lanes {
		wg.Go(func() {
			order := LaneOrder{Lane: gang.LaneID(fmt.Sprintf("lane%02dmany", i)), Template: "many", Node: node, UUIDs: gpus[i%len(gpus):][:1]}
			// Twice, as two leaders might.
			for range 2 {
				opened, err := c.OpenLane(t.Context(), order)
				if err != nil {
					t.Error(err)
				}
				jobs[i] = opened.Job
			}
		})
	}
	wg.Wait()
	for _, job := range jobs {
		if l := lane(t, c, job); l.Gone || len(l.Children) != 1 {
			t.Errorf("lane %+v", l)
		}
		wg.Go(func() {
			if err := c.PurgeLane(t.Context(), job); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	left, _, err := c.lanes(t.Context())
	if err != nil || len(left) != 0 {
		t.Errorf("lanes are left: %+v, %v", left, err)
	}
}

func TestTemplateIsReadAndRefused(t *testing.T) {
	c := open(t, nomadAgent(t))
	job := template("readable", "true")
	job.Meta = map[string]string{MetaEstimate: "90s"}
	config := job.TaskGroups[0].Tasks[0].Config
	config["ready_timeout"], config["env"] = "20m", []map[string]any{{"A": 1}}
	register(t, c, job)
	first, err := c.Template(t.Context(), "readable")
	if err != nil || first.Estimate.Seconds() != 90 || first.ReadyTimeout.Minutes() != 20 || first.Version == 0 {
		t.Fatalf("%+v, %v", first, err)
	}
	job.Priority = new(60)
	register(t, c, job)
	if second, err := c.Template(t.Context(), "readable"); err != nil || second.Version <= first.Version {
		t.Errorf("after a change: %+v, %v", second, err)
	}

	bad := template("bad", "true")
	bad.TaskGroups[0].RestartPolicy = nil // Nomad fills in its own
	register(t, c, bad)
	var faulty *TemplateError
	if _, err := c.OpenLane(t.Context(), LaneOrder{Lane: "l", Template: "bad", Node: "n", UUIDs: gpus}); !errors.As(err, &faulty) {
		t.Errorf("a template that restarts: %v", err)
	}
	mistyped := template("mistyped", "true")
	mistyped.TaskGroups[0].Tasks[0].Config["comand"] = "sh"
	register(t, c, mistyped)
	if _, err := c.Template(t.Context(), "mistyped"); !errors.As(err, &faulty) || !strings.Contains(err.Error(), "config: comand: there is no such attribute") {
		t.Errorf("a template with a typing error: %v", err)
	}
	if _, err := c.Template(t.Context(), "absent"); !errors.Is(err, ErrNoTemplate) {
		t.Errorf("an absent template: %v", err)
	}
	if _, _, err := c.api.Jobs().Deregister("readable", false, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Template(t.Context(), "readable"); !errors.Is(err, ErrNoTemplate) {
		t.Errorf("a stopped template: %v", err)
	}
}

// A gang's lanes are of one version of its template, whatever the operator does
// to it between two of them.
func TestLaneIsOfTheOrderedVersion(t *testing.T) {
	c := open(t, nomadAgent(t))
	job := template("versions", "exec sleep 600")
	change := func(priority int) uint64 { // of anything
		job.Priority = new(priority)
		if _, _, err := c.api.Jobs().Register(job, nil); err != nil {
			t.Fatal(err)
		}
		info, _, err := c.api.Jobs().Info("versions", nil)
		if err != nil {
			t.Fatal(err)
		}
		return *info.JobModifyIndex
	}
	register(t, c, job)
	first := change(51)
	order := LaneOrder{Lane: "lane0versions", Template: "versions", TemplateVersion: first, Node: "no-such-node", UUIDs: gpus[:1]}
	openAt := func(lane gang.LaneID, version uint64) error {
		o := order
		o.Lane, o.TemplateVersion = lane, version
		opened, err := c.OpenLane(t.Context(), o)
		if err == nil {
			t.Cleanup(func() { c.PurgeLane(context.Background(), opened.Job) })
		}
		return err
	}

	job.Meta = map[string]string{"colour": "red"}
	job.TaskGroups[0].RestartPolicy.Attempts = new(3) // no template any more
	second := change(52)
	opened := openLane(t, c, order)
	parent, _, err := c.info(t.Context(), opened.Job)
	if err != nil || opened.TemplateVersion != first || parent.Meta["colour"] != "" {
		t.Errorf("opened %+v, meta %v, %v", opened, parent.Meta, err)
	}
	var faulty *TemplateError
	if err := openAt("lane1versions", second); !errors.As(err, &faulty) {
		t.Errorf("a version that is no template: %v", err)
	}
	job.TaskGroups[0].RestartPolicy.Attempts = new(0)
	third := change(53)
	if opened := openLane(t, c, LaneOrder{Lane: "lane2versions", Template: "versions", Node: order.Node, UUIDs: gpus[:1]}); opened.TemplateVersion != third {
		t.Errorf("the newest version is %d, and it opened %+v", third, opened)
	}

	stopped := uint64(0)
	if _, _, err := c.api.Jobs().Deregister("versions", false, nil); err != nil {
		t.Fatal(err)
	}
	if info, _, err := c.api.Jobs().Info("versions", nil); err == nil {
		stopped = *info.JobModifyIndex
	}
	if err := openAt("lane3versions", third); !errors.Is(err, ErrNoTemplate) {
		t.Errorf("the template is stopped: %v", err)
	}
	for i := range 6 { // Nomad keeps six versions
		change(60 + i)
		if err := openAt("lane3versions", stopped); !errors.Is(err, ErrTemplateVersion) || errors.Is(err, ErrNoTemplate) {
			t.Errorf("the version that was a stop: %v", err)
		}
	}
	if err := openAt("lane4versions", first); !errors.Is(err, ErrTemplateVersion) {
		t.Errorf("a version that is no longer kept: %v", err)
	}
	if again, err := c.OpenLane(t.Context(), order); err != nil || again.Child != opened.Child || again.TemplateVersion != first {
		t.Errorf("a lane that was opened from it: %+v, %v", again, err)
	}
}

// configureScheduler returns what sets Nomad's scheduler for the length of the
// test.
func configureScheduler(t *testing.T, c *Client) func(api.SchedulerConfiguration) {
	t.Helper()
	before, _, err := c.api.Operator().SchedulerGetConfiguration(nil)
	if err != nil {
		t.Fatal(err)
	}
	set := func(config api.SchedulerConfiguration) {
		if _, _, err := c.api.Operator().SchedulerSetConfiguration(&config, nil); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { set(*before.SchedulerConfig) })
	return set
}

func TestSchedulerWarnings(t *testing.T) {
	c := open(t, nomadAgent(t))
	write := configureScheduler(t, c)
	set := func(config api.SchedulerConfiguration) []string {
		write(config)
		warnings, err := c.CheckScheduler(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return warnings
	}
	if w := set(api.SchedulerConfiguration{}); len(w) != 0 {
		t.Errorf("a good configuration: %q", w)
	}
	w := set(api.SchedulerConfiguration{PreemptionConfig: api.PreemptionConfig{BatchSchedulerEnabled: true, SystemSchedulerEnabled: true}})
	if len(w) != 2 || !strings.Contains(w[0], "batch jobs preempt: those of priority 60 or more") || !strings.Contains(w[0], "lanes may stop other jobs of priority 40 or less") ||
		!strings.Contains(w[1], "system jobs preempt: those of priority 60 or more") || strings.Contains(w[1], "40") {
		t.Errorf("preemption: %q", w)
	}
	if w := set(api.SchedulerConfiguration{RejectJobRegistration: true, PauseEvalBroker: true}); len(w) != 2 {
		t.Errorf("nothing may run: %q", w)
	}
}
