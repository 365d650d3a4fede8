package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/api"
	"github.com/gangd/gangd/internal/gang"
)

var inputStories = []story{
	{"what cannot be read is told with its place, and changes nothing", (*testCluster).unreadable},
	{"what cannot be is refused, by the CLI and by HTTP in the same words", (*testCluster).refused},
	{"a job that is no template is refused with what to change", (*testCluster).unfitTemplate},
	{"a template that is changed leaves running gangs alone", (*testCluster).changedTemplate},
}

// answer is what HTTP said.
type answer struct {
	status int
	body   []byte
	err    error
}

// post sends HCL, as curl would.
func (c *testCluster) post(path, hcl string) answer {
	resp, err := c.client.Post(c.gangd+path, "application/hcl", strings.NewReader(hcl))
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	return answer{resp.StatusCode, body, err}
}

// accepted is the ID of the one gang that was accepted.
func (c *testCluster) accepted(a answer) gang.ID {
	c.t.Helper()
	must(c.t, a.err)
	var out api.Gangs
	if err := json.Unmarshal(a.body, &out); err != nil || a.status != http.StatusCreated || len(out.Gangs) != 1 {
		c.t.Fatalf("the submission was answered with %d: %s", a.status, a.body)
	}
	return out.Gangs[0].ID
}

// said is the code and the message of an answer that is not a success.
func (c *testCluster) said(a answer) (code, message string) {
	c.t.Helper()
	must(c.t, a.err)
	var out api.ErrorBody
	if err := json.Unmarshal(a.body, &out); err != nil {
		c.t.Fatalf("HTTP %d: %s: %v", a.status, a.body, err)
	}
	return out.Error.Code, out.Error.Message
}

// exits runs a command that is to fail, and returns what it printed.
func (c *testCluster) exits(code int, command string, args ...string) string {
	c.t.Helper()
	out, err := c.tryRun(command, args...)
	exit := new(exec.ExitError)
	if !errors.As(err, &exit) || exit.ExitCode() != code {
		c.t.Errorf("%s %s: %v, want exit code %d\n%s", command, strings.Join(args, " "), err, code, out)
	}
	return out
}

func (c *testCluster) contains(out string, words ...string) {
	c.t.Helper()
	for _, want := range words {
		if !strings.Contains(out, want) {
			c.t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
}

// write makes a file for a command, and returns its name.
func (c *testCluster) write(name, text string) string {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	must(c.t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// total counts the gangs that gangd knows.
func (c *testCluster) total() int {
	c.t.Helper()
	var all api.Gangs
	must(c.t, c.get("/v1/gangs?limit=1", &all))
	return all.Total
}

func (c *testCluster) unreadable() {
	before := c.total()
	for _, bad := range []struct {
		text  string
		words []string // after the file's name
	}{
		{"gang \"good\" {\n  template = \"ddim\"\n  gpus = 1\n}\ngang \"sea\" {\n  template = \"ddim\"\n  gpus = \"many\"\n}\n",
			[]string{`:7: Invalid gpus (in gang "sea")`, `  7 |   gpus = "many"`, "^^^^^^", "number"}},
		{"gang \"sea\" {\n  template = \"ddim\"\n  gpus = 8\n  colour = \"red\"\n}\n", []string{":4: ", `  4 |   colour = "red"`, "colour"}},
		{"gang \"sea\" {\n  template = \"ddim\"\n  gpus = 8\n", []string{":1: ", `  1 | gang "sea" {`, "Unclosed"}},
	} {
		file := c.write("unreadable.hcl", bad.text)
		bad.words[0] = file + bad.words[0]
		c.contains(c.exits(2, "gangd", "submit", file), bad.words...)
		a := c.post("/v1/gangs", bad.text)
		code, message := c.said(a)
		if a.status != http.StatusBadRequest || code != api.CodeUnreadable {
			c.t.Errorf("HTTP answers %d, %s", a.status, code)
		}
		c.contains(message, strings.Replace(bad.words[0], file, "request", 1))
		c.contains(message, bad.words[1:]...)
	}
	file := c.write("unreadable-agent.hcl", "http {\n  address = 4750\n}\n")
	c.contains(c.exits(2, "gangd", "agent", "-config", file), file+":2: ", "  2 |   address = 4750", "^^^^")
	if after := c.total(); after != before {
		c.t.Errorf("gangd knows %d gangs, and knew %d", after, before)
	}
}

func (c *testCluster) refused() {
	before := c.total()
	for _, bad := range []struct{ text, words string }{
		{gangFile("large", shape(40, 8), brief), "gpus: 40 are asked for, and the cluster has 32 on 4 nodes"},
		{gangFile("huge", shape(4096, 8), brief), "gpus: 4096 is not between 1 and 1024"},
		{gangFile("odd", shape(12, 8), brief), "gpus: 12 is no multiple of gpus_per_node = 8"},
		{gangFile("tall", shape(16, 16), brief), "gpus_per_node: 16 are asked for, and the largest node has 8 GPUs"},
		{gangFile("wide", shape(32, 8, inOneLeaf), brief), "gpus: 32 as 4 x 8 need 4 nodes with 8 GPUs each in one leaf, and no leaf has more than 2"},
		{gangFile("level", shape(8, 8, "topology {\n require = \"rack\"\n}"), brief), `the cluster has no level "rack"`},
		{gangFile("tier", shape(8, 8, `tier = "gold"`), brief), `tier: "gold" is not configured: there are interactive, production, background`},
		{ofTemplate("wan", gangFile("template", shape(8, 8), brief)), `Nomad has no job "wan": register it with ` + "`nomad job run`"},
	} {
		c.contains(c.exits(1, "gangd", "submit", "-detach", c.write("refused.hcl", bad.text)), bad.words)
		a := c.post("/v1/gangs", bad.text)
		code, message := c.said(a)
		if a.status != http.StatusUnprocessableEntity || code != api.CodeRefused {
			c.t.Errorf("HTTP answers %d, %s", a.status, code)
		}
		c.contains(message, bad.words)
	}
	// All gangs of a file are accepted, or none.
	both := gangFile("good", shape(8, 8), brief) + gangFile("large", shape(40, 8), brief)
	c.exits(1, "gangd", "submit", "-detach", c.write("both.hcl", both))
	if after := c.total(); after != before {
		c.t.Errorf("gangd knows %d gangs, and knew %d", after, before)
	}
}

func (c *testCluster) unfitTemplate() {
	before := c.total()
	c.template("restarts", nil, "attempts = 0\n      mode     = \"fail\"", "attempts = 2\n      mode     = \"delay\"", `meta_required = ["gangd_lane"]`, "")
	file := ofTemplate("restarts", gangFile("restarts", shape(8, 8), brief))
	words := []string{
		`job "restarts" is no template for gangs`, `group "member" > restart: `, `set attempts = 0 and mode = "fail"`,
		`meta_required lacks "gangd_lane": add it`,
	}
	c.contains(c.exits(1, "gangd", "submit", "-detach", c.write("restarts.hcl", file)), words...)
	a := c.post("/v1/gangs", file)
	_, message := c.said(a)
	if a.status != http.StatusUnprocessableEntity {
		c.t.Errorf("HTTP answers %d", a.status)
	}
	c.contains(message, words...)
	if after := c.total(); after != before {
		c.t.Errorf("gangd knows %d gangs, and knew %d", after, before)
	}
}

func (c *testCluster) changedTemplate() {
	c.template("changing", []string{"-peer-timeout", "31s"})
	file := func(name, params string) string {
		return ofTemplate("changing", gangFile(name, shape(8, 8), params))
	}
	old := c.submit(file("old", long))
	before := c.steps(old)
	ranks := c.ranks(before)
	c.template("changing", []string{"-peer-timeout", "32s"})
	changed := c.submit(file("new", paced(200*time.Millisecond)))
	for id, flag := range map[gang.ID]string{old: "-peer-timeout 31s", changed: "-peer-timeout 32s"} {
		for _, p := range c.ranks(c.reaches(id, patience, gang.Running)) {
			c.contains(p.cmdline, flag)
		}
	}
	c.reaches(changed, patience, gang.Succeeded)
	after := c.status(old)
	if still := c.ranks(after); fmt.Sprint(pidsOf(still)) != fmt.Sprint(pidsOf(ranks)) || after.Attempt != 1 || after.Progress.Step <= before.Progress.Step {
		c.t.Errorf("when the template changed, ranks %v had done step %d; now, in attempt %d, ranks %v have done step %d",
			pidsOf(ranks), before.Progress.Step, after.Attempt, pidsOf(still), after.Progress.Step)
	}
	c.run("gangd", "cancel", string(old))
}
