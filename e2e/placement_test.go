package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// story is what a few gangs live through. It begins and ends with an idle
// cluster.
type story struct {
	name string
	tell func(*testCluster)
}

// readyTimeout is long enough for 32 runners to start on a small machine.
const readyTimeout = 30 * time.Second

// patience bounds what is not promised in seconds.
const patience = time.Minute

// TestGangs tells its stories on four nodes of 8 GPUs in two leaves.
func TestGangs(t *testing.T) {
	c := start(t, options{base: 5000, clients: 4, vars: map[string]string{"nodes_per_leaf": "2", "ready_timeout": readyTimeout.String()}})
	for _, s := range slices.Concat(placementStories, lifecycleStories, inputStories) {
		t.Run(s.name, func(t *testing.T) {
			c := c.with(t)
			t.Cleanup(c.cancelAll)
			s.tell(c)
			c.idle(patience)
		})
	}
}

// with is the same cluster for a subtest.
func (c *testCluster) with(t *testing.T) *testCluster {
	sub := *c
	sub.t = t
	return &sub
}

// cancelAll keeps a story that failed from spoiling the next.
func (c *testCluster) cancelAll() {
	if !c.t.Failed() {
		return
	}
	var all struct{ Gangs []gang.Status }
	must(c.t, c.get("/v1/gangs", &all))
	for _, g := range all.Gangs {
		if !g.State.Terminal() {
			c.t.Logf("left by the story: %s is %s (attempt %d): %s%s", g.ID, g.State, g.Attempt, g.Why, g.Reason)
			c.post("/v1/gangs/"+string(g.ID)+"/cancel", "")
		}
	}
	c.idle(patience)
}

var placementStories = []story{
	{"a gang of 16 lands inside one leaf, on exactly the GPUs of its record", (*testCluster).oneLeaf},
	{"a gang of 2 x 4 has the same GPU indexes on both nodes, beside single GPUs", (*testCluster).rails},
	{"every rank is told its place, as torchrun tells it", (*testCluster).environment},
	{"a gang that does not fit whole starts no member", (*testCluster).wholeOrNot},
	{"two gangs that want all GPUs at once run one after the other", (*testCluster).oneAfterTheOther},
}

// Params of runs that end soon, and of one that has to be ended, for up to 16
// ranks.
const (
	small = "width = 64\nheight = 64\nframes = 16\n"
	brief = small + "steps = 5\n"
	long  = small + "steps = 1000\nstep_ms = 300\n"
)

// paced is a run of ten steps that lasts at least as long as they do.
func paced(step time.Duration) string {
	return fmt.Sprintf("%ssteps = 10\nstep_ms = %d\n", small, step.Milliseconds())
}

// for32 makes params do for 32 ranks.
func for32(params string) string { return strings.Replace(params, "frames = 16", "frames = 32", 1) }

// shape is the attributes of a gang, with further lines.
func shape(gpus, perNode int, more ...string) string {
	return fmt.Sprintf("gpus = %d\ngpus_per_node = %d\n%s", gpus, perNode, strings.Join(more, "\n"))
}

const inOneLeaf = "topology {\n require = \"leaf\"\n}"

// ofTemplate has a gang file use another template.
func ofTemplate(name, file string) string {
	return strings.Replace(file, `template = "ddim"`, fmt.Sprintf("template = %q", name), 1)
}

// template registers the reference template under another name, with flags of
// its runner, after replacing parts of it: old, new, old, new...
func (c *testCluster) template(name string, args []string, replace ...string) {
	c.t.Helper()
	src, err := os.ReadFile(filepath.Join(c.root, "jobspecs/ddim/ddim.nomad.hcl"))
	must(c.t, err)
	text := string(src)
	for pair := range slices.Chunk(append(replace, `job "ddim"`, fmt.Sprintf("job %q", name)), 2) {
		if strings.Count(text, pair[0]) != 1 {
			c.t.Fatalf("the reference template does not have %q once", pair[0])
		}
		text = strings.Replace(text, pair[0], pair[1], 1)
	}
	file := filepath.Join(c.dir, name+".nomad.hcl")
	must(c.t, os.WriteFile(file, []byte(text), 0o644))
	flags, err := json.Marshal(args)
	must(c.t, err)
	c.run("nomad", "job", "run", "-var", "args="+string(flags), file)
}

func (c *testCluster) oneLeaf() {
	id := c.submit(gangFile("leaf", shape(16, 8), paced(200*time.Millisecond)))
	s := c.reaches(id, patience, gang.Running)
	if len(s.Members) != 2 || len(c.leaves(s)) != 1 {
		c.t.Errorf("%d members in the leaves %v", len(s.Members), c.leaves(s))
	}
	c.onItsGPUs(s)
	s = c.reaches(id, patience, gang.Succeeded)
	c.t.Logf("from accepted to started: %d ms; parts %+v", s.Times.Started-s.Accepted, s.Times)
}

// leaves are those that a gang lies in.
func (c *testCluster) leaves(s gang.Status) []string {
	var out []string
	for _, m := range s.Members {
		if leaf := strings.Join(c.byID(m.Node).Domains, "/"); !slices.Contains(out, leaf) {
			out = append(out, leaf)
		}
	}
	return out
}

func (c *testCluster) byID(node string) cluster.NodeStatus {
	c.t.Helper()
	nodes := c.nodes()
	i := slices.IndexFunc(nodes, func(n cluster.NodeStatus) bool { return n.ID == node })
	if i < 0 {
		c.t.Fatalf("gangd does not list node %s", node)
	}
	return nodes[i]
}

// onItsGPUs compares what the runners see with the gang's record.
func (c *testCluster) onItsGPUs(s gang.Status) {
	c.t.Helper()
	ranks := c.ranks(s)
	if len(ranks) != s.Members.GPUs() {
		c.t.Fatalf("%d runners live, want %d", len(ranks), s.Members.GPUs())
	}
	for i, m := range s.Lanes {
		var uuids []string
		for _, g := range c.byID(m.Node).GPUs {
			if slices.Contains(m.GPUs, g.Index) {
				uuids = append(uuids, g.UUID)
			}
		}
		if !slices.Equal(uuids, m.UUIDs) {
			c.t.Errorf("GPUs %v of %s are %v, the record of lane %s has %v", m.GPUs, m.NodeName, uuids, m.Lane, m.UUIDs)
		}
		for local, p := range ranks[s.Members[:i].GPUs():s.Members[:i+1].GPUs()] {
			c.hasEnv(p, map[string]string{
				"GANGD_LANE": string(m.Lane), "CUDA_VISIBLE_DEVICES": strings.Join(m.UUIDs, ","),
				"LOCAL_RANK": fmt.Sprint(local), "LOCAL_WORLD_SIZE": fmt.Sprint(len(m.GPUs)),
			})
		}
	}
}

func (c *testCluster) hasEnv(p process, want map[string]string) {
	c.t.Helper()
	for name, value := range want {
		if got := p.getenv(name); got != value {
			c.t.Errorf("process %d (%s): %s = %q, want %q", p.pid, p.cmdline, name, got, value)
		}
	}
}

func (c *testCluster) rails() {
	var singles []gang.ID
	for i := range 3 {
		singles = append(singles, c.submit(gangFile(fmt.Sprintf("single-%d", i), shape(1, 1), long)))
	}
	for _, id := range singles {
		c.reaches(id, patience, gang.Running)
	}
	id := c.submit(gangFile("rails", shape(8, 4), paced(200*time.Millisecond)))
	s := c.reaches(id, patience, gang.Running)
	if len(s.Members) != 2 || len(c.leaves(s)) != 1 || !slices.Equal(s.Members[0].GPUs, s.Members[1].GPUs) {
		c.t.Errorf("members %v in the leaves %v", s.Members, c.leaves(s))
	}
	disturbed := false
	for _, m := range s.Members {
		islands := map[int]bool{}
		for _, g := range c.byID(m.Node).GPUs {
			if slices.Contains(m.GPUs, g.Index) {
				islands[g.Island] = true
			}
			disturbed = disturbed || slices.Contains(singles, gang.ID(g.Gang))
		}
		if len(islands) != 1 {
			c.t.Errorf("GPUs %v of node %s lie in the islands %v", m.GPUs, m.Node, islands)
		}
	}
	if !disturbed {
		c.t.Error("the single GPUs lie on other nodes: the story shows nothing")
	}
	c.onItsGPUs(s)
	c.reaches(id, patience, gang.Succeeded)
	for _, id := range singles {
		c.run("gangd", "cancel", string(id))
	}
}

// shell registers a template whose ranks run a script and speak no protocol.
func (c *testCluster) shell(name, script string) {
	c.t.Helper()
	c.template(name, []string{"-c", script}, `default     = "gangd-ddim"`, `default     = "sh"`,
		`processes = "gpu"`, "processes = \"gpu\"\n protocol = \"none\"")
}

// environment runs ranks that are started with all of torchrun's variables.
// Each ends once somebody opens the FIFO that it reads.
func (c *testCluster) environment() {
	fifo := filepath.Join(c.dir, "fifo")
	must(c.t, syscall.Mkfifo(fifo, 0o600))
	c.shell("plain", ": < "+fifo)
	id := c.submit(ofTemplate("plain", gangFile("plain", shape(8, 4), "")))
	s := c.reaches(id, patience, gang.Running)
	var ranks []process
	c.eventually(patience, "all ranks run", func() string {
		ranks = slices.DeleteFunc(processes(), func(p process) bool { return !strings.HasSuffix(p.cmdline, fifo) || p.getenv("RANK") == "" })
		if len(ranks) != 8 {
			return fmt.Sprintf("%d do", len(ranks))
		}
		return ""
	})
	seen := map[string]bool{}
	for _, p := range ranks {
		i := slices.IndexFunc(s.Lanes, func(m gang.MemberStatus) bool { return string(m.Lane) == p.getenv("GANGD_LANE") })
		if i < 0 {
			c.t.Fatalf("process %d runs in lane %q, which the record does not have", p.pid, p.getenv("GANGD_LANE"))
		}
		c.hasEnv(p, map[string]string{
			"RANK": fmt.Sprint(4*i + localRank(p)), "WORLD_SIZE": "8", "GROUP_RANK": fmt.Sprint(i), "LOCAL_WORLD_SIZE": "4",
			"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": ranks[0].getenv("MASTER_PORT"), "CUDA_VISIBLE_DEVICES": strings.Join(s.Lanes[i].UUIDs, ","),
		})
		seen[p.getenv("RANK")] = true
	}
	if len(seen) != 8 || ranks[0].getenv("MASTER_PORT") == "" {
		c.t.Errorf("ranks %v with the master port %q", seen, ranks[0].getenv("MASTER_PORT"))
	}
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	must(c.t, err)
	defer w.Close() // not before the last rank has opened the other end
	c.reaches(id, patience, gang.Succeeded)
}

// wholeOrNot leaves 8 GPUs free in each leaf: 16 in all, but not in one leaf.
func (c *testCluster) wholeOrNot() {
	var holders []gang.ID
	var leaves []string
	for i := range 3 {
		id := c.submit(gangFile(fmt.Sprintf("holder-%d", i), shape(8, 8), long))
		holders = append(holders, id)
		leaves = append(leaves, c.leaves(c.reaches(id, patience, gang.Running))...)
	}
	if leaves[0] != leaves[1] || leaves[0] == leaves[2] {
		c.t.Fatalf("the holders lie in %v: the first two should share a leaf", leaves)
	}
	c.run("gangd", "cancel", string(holders[0]))
	c.eventually(patience, "its GPUs are free", func() string {
		free := 0
		for _, n := range c.nodes() {
			free += n.Free
		}
		if free != 16 {
			return fmt.Sprintf("%d are", free)
		}
		return ""
	})

	wide := c.submit(gangFile("wide", shape(16, 8, inOneLeaf), brief))
	nothing := func() {
		c.t.Helper()
		c.eventually(patience, "only the holders are in Nomad", func() string {
			if jobs, keepers := c.laneJobs(), c.keepers(); len(jobs) != 4 || len(keepers) != 2 {
				return fmt.Sprintf("jobs %v and %d keepers", jobs, len(keepers))
			}
			return ""
		})
		if s := c.status(wide); s.State != gang.Queued || s.Attempt != 0 || len(s.Members) != 0 || s.Code != gang.CodeTopology {
			c.t.Errorf("it is %s with attempt %d, members %v, code %s", s.State, s.Attempt, s.Members, s.Code)
		}
	}
	nothing()
	out := c.run("gangd", "status", string(wide))
	for _, want := range []string{"Code     = topology", "needs 2 nodes with 8 free GPUs each in one leaf", "comes nearest, with 1", "16 of 32 usable H100-80GB are free in all"} {
		if !strings.Contains(out, want) {
			c.t.Errorf("gangd status does not say %q:\n%s", want, out)
		}
	}
	nothing()
	freed := time.Now()
	c.run("gangd", "cancel", string(holders[1]))
	s := c.reaches(wide, patience, gang.Running, gang.Finishing, gang.Succeeded)
	if s.Attempt != 1 || s.Times.Decided < freed.UnixMilli() || len(s.Members) != 2 || c.leaves(s)[0] != leaves[0] {
		c.t.Errorf("attempt %d was decided %d ms after GPUs were freed in %s, on %v", s.Attempt, s.Times.Decided-freed.UnixMilli(), leaves[0], s.Members)
	}
	c.run("gangd", "cancel", string(holders[2]))
	c.reaches(wide, patience, gang.Succeeded)
}

func (c *testCluster) oneAfterTheOther() {
	c.shell("sleeping", "sleep 0.5")
	for round := range 3 {
		answers := make(chan answer, 2)
		for i := range 2 {
			go func() {
				answers <- c.post("/v1/gangs", ofTemplate("sleeping", gangFile(fmt.Sprintf("whole-%d-%d", round, i), shape(32, 8), "")))
			}()
		}
		ids := []gang.ID{c.accepted(<-answers), c.accepted(<-answers)}
		c.eventually(patience, "both succeed", func() string {
			if running := c.running(ids); len(running) > 1 {
				c.t.Fatalf("ranks of both live at once")
			}
			for _, id := range ids {
				if s := c.status(id); s.State != gang.Succeeded {
					return fmt.Sprintf("%s is %s (attempt %d): %s%s", id, s.State, s.Attempt, s.Why, s.Reason)
				}
			}
			return ""
		})
		first, second := c.status(ids[0]), c.status(ids[1])
		if first.Times.Decided > second.Times.Decided {
			first, second = second, first
		}
		if first.Attempt != 1 || second.Attempt != 1 || second.Times.Decided < first.Times.Ended {
			c.t.Errorf("attempts %d and %d; the second was decided %d ms after the first ended", first.Attempt, second.Attempt, second.Times.Decided-first.Times.Ended)
		}
		c.t.Logf("round %d: the second started %d ms after the first ended: %+v", round, second.Times.Started-first.Times.Ended, second.Times)
	}
}

// running lists those gangs of which a rank of the first attempt lives.
func (c *testCluster) running(ids []gang.ID) []gang.ID {
	owner := map[string]gang.ID{}
	for _, id := range ids {
		for member := range 4 {
			owner[string(gang.NewLaneID(id, 1, member))] = id
		}
	}
	var out []gang.ID
	for _, p := range processes() {
		if id := owner[p.getenv("GANGD_LANE")]; id != "" && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}
