package nomad

import (
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
		return len(l.Children) == 1 && l.Children[0].Allocation != nil && l.Children[0].Allocation.ClientStatus == ClientRunning
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
	if a := lane(t, c, held.Job).Children[0].Allocation; a.DesiredStatus != DesiredRun || a.ClientStatus != ClientRunning {
		t.Errorf("the lane that ran: %+v", a)
	}
}
