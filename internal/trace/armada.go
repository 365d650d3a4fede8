package trace

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/schedule"
)

// What Armada's simulator reads is in simulator.proto of
// github.com/armadaproject/armada, as YAML: a ClusterSpec and a WorkloadSpec. CPU
// and memory, of which a scenario says nothing, are as many as GPUs.

// ArmadaCluster writes the nodes of a scenario. Domains are labels, by which
// gangs can be held together.
func ArmadaCluster(out io.Writer, s *config.Scenario) error {
	w := bufio.NewWriter(out)
	fmt.Fprintf(w, "name: gangd\nclusters:\n  - name: gangd\n    pool: gangd\n    nodeTemplates:\n")
	for start := 0; start < len(s.Nodes); {
		n := 1
		for start+n < len(s.Nodes) && alike(s.Nodes[start], s.Nodes[start+n]) {
			n++
		}
		node := s.Nodes[start]
		fmt.Fprintf(w, "      - number: %d\n        labels:\n", n)
		for i, level := range s.Rules.Levels {
			fmt.Fprintf(w, "          %q: %q\n", armadaLabel(level), strings.Join(node.Domains[:i+1], "/"))
		}
		fmt.Fprintf(w, "          %q: %q\n", armadaLabel("gpu"), node.GPUs[0].Model)
		fmt.Fprintf(w, "        totalResources:\n          resources:\n%s", armadaResources(len(node.GPUs), "            "))
		start += n
	}
	return w.Flush()
}

func alike(a, b cluster.Spec) bool {
	return slices.Equal(a.Domains, b.Domains) && len(a.GPUs) == len(b.GPUs) && a.GPUs[0].Model == b.GPUs[0].Model
}

func armadaLabel(name string) string { return "gangd.io/" + name }

func armadaResources(gpus int, indent string) string {
	return fmt.Sprintf("%scpu: %q\n%smemory: \"%dGi\"\n%snvidia.com/gpu: %q\n", indent, fmt.Sprint(gpus), indent, gpus, indent, fmt.Sprint(gpus))
}

// ArmadaWorkload writes the gangs of a scenario: a queue for each tenant, a
// template for each gang, of one job for each member. Run times are as they are,
// and have no tail. What elastic gangs could run at besides is left out.
func ArmadaWorkload(out io.Writer, s *config.Scenario, seed uint64) error {
	w := bufio.NewWriter(out)
	queues := make(map[string][]*config.ScenarioGang)
	for i := range s.Gangs {
		g := &s.Gangs[i]
		queues[g.Spec.Tenant] = append(queues[g.Spec.Tenant], g)
	}
	largest := 0
	for _, n := range s.Nodes {
		largest = max(largest, len(n.GPUs))
	}
	fmt.Fprintf(w, "name: gangd\nrandomSeed: %d\nqueues:\n", max(seed, 1))
	for _, tenant := range slices.Sorted(maps.Keys(queues)) {
		weight := 1.0
		if at := slices.IndexFunc(s.Rules.Tenants, func(t schedule.Tenant) bool { return t.Name == tenant }); at >= 0 {
			weight = s.Rules.Tenants[at].Weight
		}
		fmt.Fprintf(w, "  - name: %q\n    weight: %g\n    jobTemplates:\n", tenant, weight)
		for _, g := range queues[tenant] {
			writeTemplate(w, g, largest)
		}
	}
	return w.Flush()
}

func writeTemplate(w io.Writer, g *config.ScenarioGang, largest int) {
	perNode := max(g.Spec.PerNode(largest), 1)
	members := max(g.Spec.GPUs/perNode, 1)
	fmt.Fprintf(w, "      - id: %q\n        number: %d\n        jobSet: %q\n        priorityClassName: %q\n", string(g.ID), members, string(g.ID), g.Spec.Tier)
	if members > 1 {
		fmt.Fprintf(w, "        gangCardinality: %d\n", members)
		if level := g.Spec.Topology.Require; level != "" {
			fmt.Fprintf(w, "        gangNodeUniformityLabel: %q\n", armadaLabel(level))
		}
	}
	fmt.Fprintf(w, "        requirements:\n")
	if g.Spec.GPU != "" {
		fmt.Fprintf(w, "          nodeSelector:\n            %q: %q\n", armadaLabel("gpu"), g.Spec.GPU)
	}
	fmt.Fprintf(w, "          resourceRequirements:\n            requests:\n%s", armadaResources(perNode, "              "))
	fmt.Fprintf(w, "        earliestSubmitTime: %q\n        runtimeDistribution:\n          minimum: %q\n", armadaSeconds(g.At), armadaSeconds(g.Duration))
}

func armadaSeconds(d time.Duration) string { return fmt.Sprintf("%gs", d.Seconds()) }
