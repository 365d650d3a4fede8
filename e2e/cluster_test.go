package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	nomadapi "github.com/hashicorp/nomad/api"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// options are those of a test's cluster.
type options struct {
	// base is the first port: clusters that run at one time need 200 each.
	base    int
	clients int
	agents  int // gangd agents; 0 means 1
	vars    map[string]string
}

// testCluster is a dev cluster that a test started.
type testCluster struct {
	t      testing.TB
	root   string // the repository
	dir    string // data_dir of terraform/dev
	gangd  string // HTTP address
	nomad  *nomadapi.Client
	env    []string
	client http.Client
}

// start applies terraform/dev and registers the reference template. The
// cluster is destroyed when the test ends, and must then have left nothing.
func start(t testing.TB, o options) *testCluster {
	t.Helper()
	root, err := filepath.Abs("..")
	must(t, err)
	for _, tool := range []string{"nomad", "consul", "terraform", "gangd", "gangd-device", "gangd-driver", "gangd-ddim"} {
		if _, err := os.Stat(filepath.Join(root, ".bin", tool)); err != nil {
			t.Fatalf("%v: run make tools build", err)
		}
	}
	// Sockets below it allow 107 bytes.
	dir, err := os.MkdirTemp("", "gangd-e2e-")
	must(t, err)
	c := &testCluster{t: t, root: root, dir: filepath.Join(dir, "c"), gangd: fmt.Sprintf("http://127.0.0.1:%d", o.base+150)}
	c.client.Timeout = 30 * time.Second
	state := filepath.Join(dir, "state")
	args := []string{"-auto-approve", "-input=false", "-no-color", "-state=" + state}
	vars := map[string]string{
		"data_dir": c.dir, "blob_dir": filepath.Join(dir, "blob"), "bin_dir": filepath.Join(root, ".bin"),
		"base_port": fmt.Sprint(o.base), "clients": fmt.Sprint(o.clients), "agents": fmt.Sprint(max(1, o.agents)), "log_level": "DEBUG",
	}
	for name, value := range o.vars {
		vars[name] = value
	}
	for name, value := range vars {
		args = append(args, "-var", name+"="+value)
	}
	terraform := func(verb string, args ...string) error {
		cmd := exec.Command(filepath.Join(root, ".bin/terraform"), append([]string{"-chdir=" + filepath.Join(root, "terraform/dev"), verb}, args...)...)
		cmd.Env = append(os.Environ(), "TF_DATA_DIR="+filepath.Join(dir, "tf"), "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1", "TF_CLI_CONFIG_FILE=")
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("terraform %s: %w\n%s", verb, err, out)
		}
		return nil
	}
	must(t, terraform("init", "-input=false", "-no-color"))
	t.Cleanup(func() {
		if t.Failed() {
			c.keepLogs()
		}
		c.replays()
		if err := terraform("destroy", args...); err != nil {
			t.Errorf("destroy the cluster: %v", err)
		}
		c.nothingLeft()
		os.RemoveAll(dir)
	})
	began := time.Now()
	must(t, terraform("apply", args...))
	t.Logf("cluster with %d clients on ports from %d: %s", o.clients, o.base, time.Since(began).Round(100*time.Millisecond))

	c.env = append(os.Environ(),
		"GANGD_ADDR="+c.gangd, "NOMAD_ADDR="+fmt.Sprintf("http://127.0.0.1:%d", o.base+10), "CONSUL_HTTP_ADDR="+fmt.Sprintf("http://127.0.0.1:%d", o.base))
	c.nomad, err = nomadapi.NewClient(&nomadapi.Config{Address: fmt.Sprintf("http://127.0.0.1:%d", o.base+10)})
	must(t, err)
	c.run("nomad", "job", "run", "jobspecs/ddim/ddim.nomad.hcl")
	return c
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// keepLogs prints the end of gangd's log, without the requests in it.
func (c *testCluster) keepLogs() {
	logs, _ := filepath.Glob(filepath.Join(c.dir, "logs", "gangd-*.log"))
	for _, name := range logs {
		b, _ := os.ReadFile(name)
		lines := slices.DeleteFunc(strings.Split(string(b), "\n"), func(line string) bool { return strings.Contains(line, ".http: request") })
		c.t.Logf("%s ends with:\n%s", filepath.Base(name), strings.Join(lines[max(0, len(lines)-60):], "\n"))
	}
}

// replays: what the agents recorded comes out the same again.
func (c *testCluster) replays() {
	files, _ := filepath.Glob(filepath.Join(c.dir, "gangd-*", "record.jsonl*"))
	if len(files) == 0 {
		c.t.Error("no agent recorded anything")
	}
	for _, name := range files {
		out, err := c.tryRun("gangd", "sim", "-replay", name, "-at", "9999-01-01T00:00:00Z")
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if c.t.Logf("%s: %s", filepath.Base(filepath.Dir(name)), lines[len(lines)-1]); err != nil {
			c.t.Errorf("replay %s: %v", name, err)
		}
	}
}

// nothingLeft: no process and no mount of the cluster outlives it.
func (c *testCluster) nothingLeft() {
	if mounts, err := os.ReadFile("/proc/mounts"); err == nil && bytes.Contains(mounts, []byte(c.dir)) {
		c.t.Errorf("mounts are left below %s", c.dir)
	}
	for _, p := range processes() {
		if strings.Contains(p.cmdline, c.dir) || strings.Contains(strings.Join(p.env, "\n"), c.dir) {
			c.t.Errorf("process %d is left: %s", p.pid, p.cmdline)
		}
	}
}

// tryRun runs one of the built commands in the repository's root.
func (c *testCluster) tryRun(command string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(c.root, ".bin", command), args...)
	cmd.Dir, cmd.Env = c.root, c.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s", command, strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// run is tryRun for what must succeed.
func (c *testCluster) run(command string, args ...string) string {
	c.t.Helper()
	out, err := c.tryRun(command, args...)
	must(c.t, err)
	return out
}

// agent runs terraform/dev/agent.sh VERB for one agent: stop, kill, start, pid.
func (c *testCluster) agent(verb, name string) string {
	c.t.Helper()
	out, err := exec.Command(filepath.Join(c.root, "terraform/dev/agent.sh"), verb, c.dir, name).CombinedOutput()
	if err != nil {
		c.t.Fatalf("agent.sh %s %s: %v\n%s", verb, name, err, out)
	}
	return strings.TrimSpace(string(out))
}

// fault appends a line to the fault file of a simulated node.
func (c *testCluster) fault(node, line string) {
	c.t.Helper()
	f, err := os.OpenFile(filepath.Join(c.dir, node, "faults"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	must(c.t, err)
	_, err = fmt.Fprintln(f, line)
	must(c.t, errors.Join(err, f.Close()))
}

// get decodes what the API answers.
func (c *testCluster) get(path string, into any) error {
	resp, err := c.client.Get(c.gangd + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("GET %s: %s: %s", path, resp.Status, body)
	}
	return json.Unmarshal(body, into)
}

// gangFile writes the HCL of one gang of the reference template. The
// parameters are lines of HCL.
func gangFile(name string, attributes, params string) string {
	return fmt.Sprintf("gang %q {\n  template = \"ddim\"\n%s\n  params = {\n    prompt = \"a red ball bounces over a blue sea\"\n%s\n  }\n}\n", name, attributes, params)
}

// submit accepts a gang and does not wait for it.
func (c *testCluster) submit(file string) gang.ID {
	c.t.Helper()
	name := filepath.Join(c.dir, fmt.Sprintf("submit-%d.hcl", time.Now().UnixNano()))
	must(c.t, os.WriteFile(name, []byte(file), 0o644))
	return gang.ID(strings.TrimSpace(c.run("gangd", "submit", "-detach", name)))
}

func (c *testCluster) status(id gang.ID) gang.Status {
	c.t.Helper()
	var s gang.Status
	must(c.t, c.get("/v1/gangs/"+string(id), &s))
	return s
}

func (c *testCluster) nodes() []cluster.NodeStatus {
	c.t.Helper()
	var answer struct{ Nodes []cluster.NodeStatus }
	must(c.t, c.get("/v1/cluster", &answer))
	return answer.Nodes
}

// eventually polls until done, which returns what is still missing.
func (c *testCluster) eventually(within time.Duration, what string, done func() (missing string)) {
	c.t.Helper()
	deadline := time.Now().Add(within)
	for {
		missing := done()
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("%s: not within %s: %s", what, within, missing)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// reaches waits until a gang is in one of the states, and fails where it ends
// in another.
func (c *testCluster) reaches(id gang.ID, within time.Duration, states ...gang.State) gang.Status {
	c.t.Helper()
	var s gang.Status
	c.eventually(within, fmt.Sprintf("gang %s becomes %v", id, states), func() string {
		s = c.status(id)
		for _, want := range states {
			if s.State == want {
				return ""
			}
		}
		if s.State.Terminal() {
			c.t.Fatalf("gang %s is %s: %s", id, s.State, s.Why)
		}
		return fmt.Sprintf("it is %s (attempt %d): %s%s", s.State, s.Attempt, s.Why, s.Reason)
	})
	return s
}

// idle waits until no GPU is held, no lane's job is left in Nomad and no
// runner lives.
func (c *testCluster) idle(within time.Duration) {
	c.t.Helper()
	c.eventually(within, "the cluster is idle", func() string {
		for _, n := range c.nodes() {
			for _, g := range n.GPUs {
				if g.Gang != "" {
					return fmt.Sprintf("GPU %d of %s is held by %s", g.Index, n.Name, g.Gang)
				}
			}
		}
		if jobs := c.laneJobs(); len(jobs) > 0 {
			return fmt.Sprintf("jobs are left in Nomad: %v", jobs)
		}
		if ranks := c.allRanks(); len(ranks) > 0 {
			return fmt.Sprintf("%d runners live", len(ranks))
		}
		return ""
	})
}

// laneJobs lists the jobs of lanes in Nomad: pinned parents and children.
func (c *testCluster) laneJobs() []string {
	c.t.Helper()
	jobs, _, err := c.nomad.Jobs().PrefixList(gang.LanePrefix)
	must(c.t, err)
	var out []string
	for _, j := range jobs {
		out = append(out, j.ID)
	}
	return out
}
