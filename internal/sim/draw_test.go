package sim

import (
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"
)

// drawer writes the HCL of a random scenario: all that the format knows, small
// enough that things get into each other's way.
type drawer struct {
	*rapid.T
	text   strings.Builder
	levels []string
	nodes  []string // names
	blocks int
	tiers  []string
}

// drawScenario draws a cluster, a workload and a set of troubles. In the end all
// that broke is in order again.
func drawScenario(t *rapid.T) string {
	d := &drawer{T: t, tiers: []string{"interactive", "production", "background"}}
	d.cluster()
	d.rules()
	for i := range d.number("gangs", 1, 8) {
		d.gang(fmt.Sprint("g", i))
	}
	for i := range d.number("troubles", 0, 8) {
		d.trouble(i)
	}
	return d.text.String()
}

func (d *drawer) add(format string, args ...any) { fmt.Fprintf(&d.text, format+"\n", args...) }

func (d *drawer) number(label string, low, high int) int {
	return rapid.IntRange(low, high).Draw(d.T, label)
}

func (d *drawer) chance(label string, percent int) bool { return d.number(label, 1, 100) <= percent }

// pick draws one of several.
func pick[V any](d *drawer, label string, of ...V) V { return rapid.SampledFrom(of).Draw(d.T, label) }

func (d *drawer) cluster() {
	d.levels = pick(d, "levels", []string{"spine", "leaf"}, []string{"spine", "leaf"}, []string{"leaf"}, []string{"region", "spine", "leaf"})
	quoted := make([]string, len(d.levels))
	for i, l := range d.levels {
		quoted[i] = fmt.Sprintf("%q", l)
	}
	d.add("cluster {")
	if len(d.levels) > 1 || d.chance("levels told", 50) {
		d.add(" levels = [%s]", strings.Join(quoted, ", "))
	}
	for d.blocks == 0 || d.blocks < 3 && d.chance("another block", 30) {
		d.nodeBlock(string(rune('n' + d.blocks)))
		d.blocks++
	}
	d.add("}")
}

func (d *drawer) nodeBlock(name string) {
	d.add(" node %q {", name)
	if count := d.number("nodes", 0, 6); count > 0 {
		d.add(" count = %d", count)
		for i := range count {
			d.nodes = append(d.nodes, fmt.Sprintf("%s-%d", name, i))
		}
	} else {
		d.nodes = append(d.nodes, name)
	}
	switch pick(d, "where", "fanout", "fanout", "at", "") {
	case "fanout":
		parts := fmt.Sprintf("leaf = %d", d.number("leaf", 1, 3))
		if len(d.levels) > 1 {
			parts += ", spine = 2"
		}
		if len(d.levels) > 2 {
			parts += ", region = 1"
		}
		d.add(" fanout = { %s }", parts)
	case "at":
		d.add(" at = { leaf = \"n-l%d\" }", d.number("leaf", 0, 1))
	}
	switch kind := pick(d, "kind", "", "", "islands", "small", "other"); kind {
	case "islands":
		d.add(" nvlink = [[0, 1, 2, 3], [4, 5, 6, 7]]")
	case "small":
		d.add(" gpus = %d\n nvlink = [[1, 0], [2]]", d.number("gpus", 3, 8))
	case "other":
		d.add(" gpus = 4\n gpu = \"L40S-48GB\"\n gpu_memory = \"48GiB\"")
	}
	if d.chance("spot", 60) {
		d.add(" spot = true")
	}
	if d.chance("warm", 20) {
		d.add(" warm = [\"wan\"]")
	}
	d.add(" }")
}

func (d *drawer) rules() {
	d.add("model \"wan\" {\n load = \"%ds\"\n speed = { \"L40S-48GB\" = 0.3 }\n}", d.number("load", 0, 30))
	d.add("tier \"production\" {\n target_wait = \"30s\"\n protected = \"%ds\"\n}", d.number("protected", 0, 5))
	d.add("tier \"background\" {\n min_share = %g\n}", pick(d, "min_share", 0, 0.05, 0.3))
	if d.chance("own tier", 30) {
		d.tiers = append(d.tiers, "own")
		d.add("tier \"own\" {\n priority = %d\n grace = \"%ds\"\n min_share = %g", d.number("priority", 50, 350), d.number("grace", 0, 20), pick(d, "min_share", 0, 0.2))
		d.add(" preempts = [%s]\n}", pick(d, "preempts", "", `"background"`, `"background", "production"`, `"interactive"`))
	}
	for _, tenant := range []string{"a", "b"} {
		d.add("tenant %q {\n weight = %g\n guaranteed = %d", tenant, pick(d, "weight", 0.5, 1, 3), pick(d, "guaranteed", 0, 0, 8, 16))
		if d.chance("capped", 30) {
			d.add(" max_gpus = %d", d.number("max_gpus", 1, 24))
		}
		d.add("}")
	}
	d.add("fairness {\n half_life = \"%dm\"\n preemption_plans_per_minute = %d\n}", d.number("half_life", 0, 2), d.number("plans", 0, 2))
}

func (d *drawer) gang(name string) {
	perNode, members := pick(d, "per_node", 1, 2, 3, 4, 8), d.number("members", 1, 4)
	told := d.chance("per node told", 80)
	d.add("gang %q {\n count = %d\n at = \"%ds\"\n every = \"%ds\"\n gpus = %d", name, d.number("count", 1, 3), d.number("at", 0, 60), d.number("every", 0, 9), perNode*members)
	if told {
		d.add(" gpus_per_node = %d", perNode)
	}
	d.add(" duration = \"%dms\"", d.number("duration", 0, 90_000))
	d.add(" tier = %q\n tenant = %q", pick(d, "tier", d.tiers...), pick(d, "tenant", "a", "b", "c"))
	if d.chance("elastic", 25) {
		if told {
			d.elastic(perNode, members)
		} else {
			d.elastic(perNode*members, 1)
		}
	}
	if d.chance("estimate", 20) {
		d.add(" estimate = \"%ds\"", d.number("guess", 0, 90))
	}
	if d.chance("model", 40) {
		d.add(" model = \"wan\"")
	}
	if d.chance("GPU model", 15) {
		d.add(" gpu = %q", pick(d, "gpu", "H100-80GB", "L40S-48GB"))
	}
	if d.chance("memory", 15) {
		d.add(" gpu_memory = \"%dGiB\"", pick(d, "gpu_memory", 40, 60))
	}
	if d.chance("saves", 60) {
		d.add(" checkpoint {\n every = \"%ds\"\n cost = \"%ds\"\n restore = \"%ds\"\n}", d.number("period", 0, 20), d.number("cost", 0, 12), d.number("restore", 0, 9))
	}
	if d.chance("max_run", 20) {
		d.add(" max_run = \"%ds\"", d.number("limit", 1, 90))
	}
	if d.chance("exit", 20) {
		last := 0 // where the nodes say how many members there are, there is one at least
		if told {
			last = members - 1
		}
		d.add(" exit {\n member = %d\n after = \"%ds\"\n retryable = %t\n}", d.number("member", 0, last), d.number("after", 0, 60), d.chance("retryable", 70))
	}
	d.topology(told && members%2 == 0)
	d.add(" infra_retries = %d\n preemptible = %t\n}", d.number("retries", 0, 3), d.chance("preemptible", 80))
}

// elastic draws sizes: fewer members, or less than one, or more than preferred.
func (d *drawer) elastic(perNode, members int) {
	sizes := map[int]bool{perNode * members: true}
	for range d.number("sizes", 1, 3) {
		sizes[pick(d, "size", 1, perNode, 2*perNode, (members+1)*perNode)] = true
	}
	var table []string
	for gpus := range 64 {
		if sizes[gpus] && (gpus < perNode || gpus%perNode == 0) {
			table = append(table, fmt.Sprintf("%q = \"%ds\"", fmt.Sprint(gpus), d.number("run", 20, 200)))
		}
	}
	d.add(" elastic = { %s }", strings.Join(table, ", "))
}

func (d *drawer) topology(even bool) {
	if !d.chance("topology", 40) {
		return
	}
	d.add(" topology {")
	if d.chance("require", 60) {
		d.add(" require = %q", pick(d, "level", d.levels...))
	}
	if d.chance("prefer", 40) {
		d.add(" prefer = %q", pick(d, "level", d.levels...))
	}
	if even && d.chance("segment", 50) {
		d.add(" segment = 2")
	}
	d.add(" }")
}

// trouble draws something that breaks, and its end.
func (d *drawer) trouble(i int) {
	undo := map[string]string{"node_down": "node_up", "gpu_bad": "gpu_ok", "drain": "undrain", "spot_notice": "node_up", "slow": "slow"}
	kind := pick(d, "kind", "node_down", "gpu_bad", "drain", "spot_notice", "slow", "cancel")
	at, lasts := d.number("begins", 0, 150), d.number("lasts", 0, 60)
	where, more, after := fmt.Sprintf("node = %q", pick(d, "node", d.nodes...)), "", ""
	switch kind {
	case "cancel":
		d.add("gang \"c%d\" {\n gpus = %d\n duration = \"60s\"\n at = \"%ds\"\n tier = %q\n}", i, pick(d, "gpus", 1, 8, 16), at, pick(d, "tier", d.tiers...))
		d.add("event {\n at = \"%ds\"\n kind = \"cancel\"\n gang = \"c%d\"\n}", max(0, at+lasts-5), i)
		return
	case "gpu_bad":
		more = fmt.Sprintf("gpu = %d", d.number("gpu", 0, 2))
		after = more
	case "spot_notice":
		more = fmt.Sprintf("notice = \"%ds\"", d.number("notice", 0, 30))
	case "slow":
		more, after = fmt.Sprintf("factor = %g", rapid.Float64Range(0.5, 4).Draw(d.T, "factor")), "factor = 1"
	}
	d.add("event {\n at = \"%ds\"\n kind = %q\n %s\n %s\n}", at, kind, where, more)
	for _, end := range slices.Compact([]int{at + lasts, 300}) {
		d.add("event {\n at = \"%ds\"\n kind = %q\n %s\n %s\n}", end, undo[kind], where, after)
	}
}
