package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	nomadapi "github.com/hashicorp/nomad/api"

	"github.com/gangd/gangd/internal/api"
	"github.com/gangd/gangd/internal/gang"
)

var lifecycleStories = []story{
	{"a killed rank ends the whole gang, which runs once more", (*testCluster).killedRank},
	{"a runner's error that is not retryable fails the gang, in the runner's words", (*testCluster).runnerError},
	{"a cancelled gang is gone within a second, and the next one has its GPUs", (*testCluster).cancelRunning},
	{"a gang is cancelled while it waits, launches and loads, twice, and not after its end", (*testCluster).cancelAnyTime},
	{"a lane's child job that is stopped in Nomad puts its gang back", (*testCluster).stopChild},
	{"a lane's pinned parent that is stopped in Nomad puts its gang back", (*testCluster).stopParent},
	{"a node whose member is not ready in time is avoided", (*testCluster).notReady},
}

func pidsOf(ps []process) []int {
	out := make([]int, len(ps))
	for i, p := range ps {
		out[i] = p.pid
	}
	return out
}

// gone waits until processes have ended and were reaped.
func (c *testCluster) gone(ps []process, within time.Duration) {
	c.t.Helper()
	c.eventually(within, "processes end", func() string {
		ps = slices.DeleteFunc(ps, func(p process) bool { return errors.Is(syscall.Kill(p.pid, 0), syscall.ESRCH) })
		if len(ps) > 0 {
			return fmt.Sprintf("%v live", pidsOf(ps))
		}
		return ""
	})
}

// released waits until none of an attempt's allocations runs, as far as
// Nomad's servers know.
func (c *testCluster) released(lanes []gang.MemberStatus, within time.Duration) {
	c.t.Helper()
	c.eventually(within, "allocations end", func() string {
		for _, m := range lanes {
			a, _, err := c.nomad.Allocations().Info(m.Allocation, nil)
			if notFound := new(nomadapi.UnexpectedResponseError); errors.As(err, notFound) && notFound.StatusCode() == http.StatusNotFound {
				continue
			}
			must(c.t, err)
			if a.ClientStatus == nomadapi.AllocClientStatusPending || a.ClientStatus == nomadapi.AllocClientStatusRunning {
				return fmt.Sprintf("that of member %d is %s", m.Member, a.ClientStatus)
			}
		}
		return ""
	})
}

// again waits until a gang runs in its second attempt, in other lanes than in
// the first.
func (c *testCluster) again(first gang.Status) gang.Status {
	c.t.Helper()
	var s gang.Status
	c.eventually(patience, "it runs again", func() string {
		if s = c.status(first.ID); s.State == gang.Running && s.Attempt == 2 {
			return ""
		}
		return fmt.Sprintf("it is %s (attempt %d): %s%s", s.State, s.Attempt, s.Why, s.Reason)
	})
	for i, m := range s.Lanes {
		if m.Lane == first.Lanes[i].Lane || m.Allocation == first.Lanes[i].Allocation {
			c.t.Errorf("member %d runs in lane %s, allocation %s, as in the first attempt", i, m.Lane, m.Allocation)
		}
	}
	return s
}

func (c *testCluster) killedRank() {
	id := c.submit(gangFile("killed", shape(16, 8), paced(300*time.Millisecond)))
	first := c.steps(id)
	ranks := c.ranks(first)
	ranks[9].kill(c.t)
	killed := time.Now()
	c.gone(ranks, 5*time.Second)
	c.t.Logf("all ranks were gone %s after one was killed", time.Since(killed).Round(time.Millisecond))
	c.released(first.Lanes, 5*time.Second-time.Since(killed))
	second := c.again(first)
	c.contains(c.run("gangd", "status", string(id)), "rank 9 on "+first.Lanes[1].NodeName+" ended in the midst of the run: killed by signal 9", "2 (1 of 3 infra_retries used)")
	if slices.ContainsFunc(second.Members, func(m gang.Member) bool { return m.Node == first.Members[1].Node }) {
		c.t.Errorf("it runs again on %v, though %s failed it", second.Members, first.Members[1].Node)
	}
	if s := c.reaches(id, patience, gang.Succeeded); s.Attempt != 2 || s.Failures != 1 {
		c.t.Errorf("it succeeded in attempt %d after %d failures", s.Attempt, s.Failures)
	}
	// The lanes are gone from Nomad; the way to the logs is kept.
	attempts := c.status(id).Attempts
	if len(attempts) != 2 || attempts[0].Members[0].Allocation != first.Lanes[1].Allocation {
		c.t.Fatalf("it keeps the attempts %+v; the rank was killed in allocation %s", attempts, first.Lanes[1].Allocation)
	}
	c.contains(c.run("gangd", "status", string(id)), attempts[0].Members[0].Allocation[:8])
	c.run("nomad", "alloc", "logs", "-stderr", attempts[0].Members[0].Allocation[:8])
}

// steps waits until a gang has made a step.
func (c *testCluster) steps(id gang.ID) gang.Status {
	c.t.Helper()
	var s gang.Status
	c.eventually(patience, fmt.Sprintf("gang %s makes a step", id), func() string {
		if s = c.status(id); s.State == gang.Running && s.Progress != nil && s.Progress.Step > 0 {
			return ""
		}
		return fmt.Sprintf("it is %s (attempt %d): %s%s", s.State, s.Attempt, s.Why, s.Reason)
	})
	return s
}

func (c *testCluster) runnerError() {
	fail := "fail = {\n rank = 3\n step = 2\n class = \"bad_prompt\"\n retryable = false\n message = \"no clip shows a sea without water\"\n}\n"
	id := c.submit(gangFile("failing", shape(16, 8), brief+fail))
	var s gang.Status
	c.eventually(patience, "it fails", func() string {
		if s = c.status(id); s.State == gang.Failed {
			return ""
		}
		return string(s.State)
	})
	if s.Attempt != 1 || s.Failures != 0 {
		c.t.Errorf("it failed in attempt %d with %d failures counted", s.Attempt, s.Failures)
	}
	const words = "rank 3: bad_prompt: no clip shows a sea without water"
	c.contains(c.run("gangd", "status", string(id)), "State    = failed", words)
	c.contains(c.exits(1, "gangd", "cancel", string(id)), "has failed already")
}

// soon is what Nomad may take to count the GPUs of an allocation as free after
// its end.
const soon = 5 * time.Second

// cancelRunning measures from the answer to the order until the last process
// is reaped.
func (c *testCluster) cancelRunning() {
	id := c.submit(gangFile("endless", shape(32, 8), for32(long)))
	ranks := c.ranks(c.steps(id))
	if len(ranks) != 32 {
		c.t.Fatalf("%d ranks run", len(ranks))
	}
	next := c.submit(gangFile("next", shape(32, 8), for32(brief)))
	c.reaches(next, time.Second, gang.Queued)
	asked := time.Now()
	a := c.post("/v1/gangs/"+string(id)+"/cancel", "")
	ordered := time.Now()
	must(c.t, a.err)
	c.gone(ranks, time.Second)
	c.t.Logf("cancel: answered %d after %s; all 32 ranks were gone %s after the answer", a.status, ordered.Sub(asked).Round(time.Millisecond), time.Since(ordered).Round(time.Millisecond))
	c.reaches(id, patience, gang.Cancelled)
	s := c.reaches(next, patience, gang.Running, gang.Finishing, gang.Succeeded)
	if waited := s.Times.Decided - ordered.UnixMilli(); s.Attempt != 1 || waited > soon.Milliseconds() {
		c.t.Errorf("attempt %d of the next gang was decided %d ms after the order", s.Attempt, waited)
	}
	c.t.Logf("the next gang was decided %d ms, and started %d ms after the order", s.Times.Decided-ordered.UnixMilli(), s.Times.Started-ordered.UnixMilli())
	c.reaches(next, patience, gang.Succeeded)
}

func (c *testCluster) cancelAnyTime() {
	c.template("loading", []string{"-load", "30s"})
	loading := func(name string) gang.ID {
		return c.submit(ofTemplate("loading", gangFile(name, shape(32, 8), for32(brief))))
	}
	neverStarted := func(id gang.ID) {
		c.t.Helper()
		if s := c.reaches(id, patience, gang.Cancelled); s.Times.Started != 0 {
			c.t.Errorf("%s is cancelled, and was started: %+v", id, s.Times)
		}
	}

	// Before any keeper can be there; none may start later.
	early := loading("early")
	c.contains(c.run("gangd", "cancel", string(early)), string(early)+" is ")
	neverStarted(early)
	c.idle(patience)

	// While the ranks load, with a gang that waits behind.
	id := loading("loading")
	var ranks []process
	c.eventually(readyTimeout, "all ranks load", func() string {
		if ranks = c.ranks(c.status(id)); len(ranks) == 32 {
			return ""
		}
		return fmt.Sprintf("%d do", len(ranks))
	})
	waiting := c.submit(gangFile("waiting", shape(32, 8), for32(brief)))
	c.contains(c.run("gangd", "cancel", string(waiting)), string(waiting)+" is cancelled")
	if s := c.status(waiting); s.State != gang.Cancelled || s.Attempt != 0 {
		c.t.Errorf("the one that waited is %s after attempt %d", s.State, s.Attempt)
	}
	cancel := "/v1/gangs/" + string(id) + "/cancel"
	if a := c.post(cancel, ""); a.err != nil || a.status != http.StatusAccepted {
		c.t.Errorf("cancel is answered with %d: %s, %v", a.status, a.body, a.err)
	}
	ordered := time.Now()
	c.gone(ranks, time.Second)
	c.t.Logf("cancel while loading: all 32 ranks were gone %s after the answer", time.Since(ordered).Round(time.Millisecond))

	// Twice, and after the end.
	if a := c.post(cancel, ""); a.err != nil || a.status != http.StatusOK {
		c.t.Errorf("cancel again is answered with %d: %s, %v", a.status, a.body, a.err)
	}
	neverStarted(id)
	c.contains(c.run("gangd", "cancel", string(id)), string(id)+" is cancelled")
	done := c.submit(gangFile("done", shape(1, 1), brief))
	c.reaches(done, patience, gang.Succeeded)
	c.contains(c.exits(1, "gangd", "cancel", string(done)), string(done)+" has succeeded already")
	a := c.post("/v1/gangs/"+string(done)+"/cancel", "")
	if code, _ := c.said(a); a.status != http.StatusConflict || code != api.CodeEnded {
		c.t.Errorf("cancel after the end is answered with %d: %s", a.status, a.body)
	}
}

func (c *testCluster) stopChild() {
	c.stopLane(func(m gang.MemberStatus) string {
		children, _, err := c.nomad.Jobs().PrefixList(m.Job + "/")
		must(c.t, err)
		if len(children) != 1 {
			c.t.Fatalf("lane %s has %d jobs below its parent", m.Lane, len(children))
		}
		return children[0].ID
	})
}

func (c *testCluster) stopParent() {
	c.stopLane(func(m gang.MemberStatus) string { return m.Job })
}

// stopLane has an operator stop a job of member 1's lane.
func (c *testCluster) stopLane(job func(gang.MemberStatus) string) {
	id := c.submit(gangFile("stopped", shape(16, 8), paced(300*time.Millisecond)))
	first := c.steps(id)
	ranks := c.ranks(first)
	c.run("nomad", "job", "stop", "-detach", job(first.Lanes[1]))
	stopped := time.Now()
	second := c.again(first)
	c.gone(ranks, 0)
	c.t.Logf("it ran again %d ms after the stop", second.Times.Started-stopped.UnixMilli())
	if second.Failures != 0 || len(second.Avoid) != 0 {
		c.t.Errorf("an operator's wish counts as %d failures, and %v are avoided", second.Failures, second.Avoid)
	}
	c.contains(c.run("gangd", "status", string(id)), fmt.Sprintf("member 1 on %s was stopped through Nomad", first.Lanes[1].NodeName))
	c.reaches(id, patience, gang.Succeeded)
}

// notReady has the first rank that starts never become ready.
func (c *testCluster) notReady() {
	stalled := filepath.Join(c.dir, "stalled")
	script := fmt.Sprintf("mkdir %s 2>&- && exec sleep 600; exec %s", stalled, filepath.Join(c.root, ".bin/gangd-ddim"))
	c.template("stalling", []string{"-c", script}, `default     = "gangd-ddim"`, `default     = "sh"`)
	id := c.submit(ofTemplate("stalling", gangFile("stalling", shape(16, 8), brief)))
	var bad process
	var first gang.Status
	c.eventually(readyTimeout, "a rank stalls", func() string {
		first = c.status(id)
		ranks := c.ranks(first)
		i := slices.IndexFunc(ranks, func(p process) bool { return p.cmdline == "sleep 600" })
		if i < 0 {
			return fmt.Sprintf("%d ranks run", len(ranks))
		}
		bad = ranks[i]
		return ""
	})
	i := slices.IndexFunc(first.Lanes, func(m gang.MemberStatus) bool { return string(m.Lane) == bad.getenv("GANGD_LANE") })
	late := first.Lanes[i]
	var s gang.Status
	c.eventually(2*readyTimeout, "it is launched again", func() string {
		if s = c.status(id); s.Attempt == 2 {
			return ""
		}
		return string(s.State)
	})
	if !slices.Equal(s.Avoid, []string{late.Node}) || s.Failures != 1 {
		c.t.Errorf("it avoids %v after %d failures; %s was late", s.Avoid, s.Failures, late.Node)
	}
	out := c.run("gangd", "status", string(id))
	out = strings.Join(strings.Fields(out), " ") // columns are as wide as their names
	c.contains(out, fmt.Sprintf("not all members were ready within %s: member %d on %s", readyTimeout, late.Member, late.NodeName), "Avoids nodes = "+late.NodeName)
	if strings.Contains(out, fmt.Sprintf("member %d on", 1-late.Member)) {
		c.t.Errorf("a member that was ready is blamed too:\n%s", out)
	}
	s = c.reaches(id, patience, gang.Succeeded)
	if s.Attempt != 2 || slices.ContainsFunc(s.Members, func(m gang.Member) bool { return m.Node == late.Node }) {
		c.t.Errorf("it succeeded in attempt %d on %v", s.Attempt, s.Members)
	}
}
