package nomad

import (
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
)

// preempting lets batch jobs preempt for the length of the test.
func preempting(t *testing.T, c *Client) {
	t.Helper()
	configureScheduler(t, c)(api.SchedulerConfiguration{PreemptionConfig: api.PreemptionConfig{BatchSchedulerEnabled: true}})
}

// runningLane opens a lane on one GPU, from a template of that priority, and
// waits until it runs.
func runningLane(t *testing.T, c *Client, name string, priority int) Opened {
	t.Helper()
	job := template(name, "exec sleep 600")
	job.Priority = new(priority)
	register(t, c, job)
	opened := openLane(t, c, LaneOrder{Lane: "lane0held", Template: name, Node: theNode(t, c).ID, UUIDs: gpus[:1]})
	eventually(t, "the lane runs", func() bool {
		l := lane(t, c, opened.Job)
		return len(l.Children) == 1 && l.Children[0].Allocation != nil && l.Children[0].Allocation.ClientStatus == api.AllocClientStatusRunning
	})
	return opened
}

// Who makes room for whom is gangd's to decide.
func TestLanesDoNotPreemptEachOther(t *testing.T) {
	c := open(t, nomadAgent(t))
	preempting(t, c)
	w := watch(t, c)
	until(w, "resync", func(Resync) bool { return true })
	held := runningLane(t, c, "low", 10)

	job := template("high", "exec sleep 600")
	job.Priority = new(90)
	register(t, c, job)
	wants := openLane(t, c, LaneOrder{Lane: "lane1wants", Template: "high", Node: theNode(t, c).ID, UUIDs: gpus[:1]})
	until(w, "block", func(e LaneBlocked) bool { return e.Job == wants.Job })
	if a := lane(t, c, held.Job).Children[0].Allocation; a.DesiredStatus != api.AllocDesiredStatusRun || a.ClientStatus != api.AllocClientStatusRunning {
		t.Errorf("the lane that ran: %+v", a)
	}
}

// An operator's job that must run pushes a lane out, and is named.
func TestALanePreemptedByAnOrdinaryJobSaysSo(t *testing.T) {
	c := open(t, nomadAgent(t))
	preempting(t, c)
	w := watch(t, c)
	until(w, "resync", func(Resync) bool { return true })
	held := runningLane(t, c, "ordinary", 90)

	urgent := template("urgent", "exec sleep 600")
	urgent.ParameterizedJob = nil
	urgent.Priority = new(lanePriority + preemptionStep)
	urgent.TaskGroups[0].Tasks[0].Resources.Devices = []*api.RequestedDevice{{Name: deviceGroup + gpus[0], Count: new(uint64(1))}}
	register(t, c, urgent)

	told := until(w, "eviction", func(e AllocationChanged) bool { return e.Job == held.Job && e.PreemptedBy != "" })
	// Nomad publishes what a transaction changed just before others can read it.
	var by *api.Allocation
	eventually(t, "the allocation that preempts it can be read", func() bool {
		var err error
		by, _, err = c.api.Allocations().Info(told.PreemptedBy, nil)
		return err == nil
	})
	if by.JobID != "urgent" {
		t.Fatalf("it is preempted by %+v", by)
	}
	ended := until(w, "end", func(e AllocationChanged) bool { return e.Job == held.Job && e.Ended() })
	if ended.PreemptedBy != by.ID || ended.DesiredStatus == DesiredStop || !strings.Contains(ended.Message, by.ID) {
		t.Errorf("ended as %+v", ended)
	}
	if a := lane(t, c, held.Job).Children[0].Allocation; a.PreemptedBy != by.ID || a.Message != ended.Message {
		t.Errorf("the list says %+v", a)
	}
}
