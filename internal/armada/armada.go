package armada

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/schedule"
)

// What a scenario does not say of CPU and memory is chosen so that GPUs run out
// first: a node has one core and 1 GiB for each GPU, and a job takes as many.
const pool = "gpu"

// clusterLabel is on every node: gangs that ask for no domain are held together
// by it, which holds back nothing.
const clusterLabel = "gangd.io/cluster"

func label(level string) string { return "gangd.io/" + level }

const gpuLabel = "gangd.io/gpu"

// WriteCluster writes the ClusterSpec: nodes, with their domains as labels. What
// happens to nodes is left out; Armada's simulator has no such thing.
func WriteCluster(out io.Writer, s *config.Scenario) error {
	w := bufio.NewWriter(out)
	fmt.Fprintf(w, "name: \"gangd\"\nclusters:\n  - name: \"gangd\"\n    pool: %q\n    nodeTemplates:\n", pool)
	for start := 0; start < len(s.Nodes); {
		node, end := s.Nodes[start], start+1
		for end < len(s.Nodes) && alike(node, s.Nodes[end]) {
			end++
		}
		fmt.Fprintf(w, "      - number: %d\n        labels:\n          %q: \"gangd\"\n", end-start, clusterLabel)
		for i, level := range s.Rules.Levels {
			fmt.Fprintf(w, "          %q: %q\n", label(level), strings.Join(node.Domains[:i+1], "."))
		}
		fmt.Fprintf(w, "          %q: %q\n        totalResources:\n          resources:\n", gpuLabel, node.GPUs[0].Model)
		writeResources(w, len(node.GPUs), "            ")
		start = end
	}
	return w.Flush()
}

func alike(a, b cluster.Spec) bool {
	return slices.Equal(a.Domains, b.Domains) && len(a.GPUs) == len(b.GPUs) && a.GPUs[0].Model == b.GPUs[0].Model
}

func writeResources(w io.Writer, gpus int, indent string) {
	fmt.Fprintf(w, "%[1]scpu: \"%[2]d\"\n%[1]smemory: \"%[2]dGi\"\n%[1]snvidia.com/gpu: \"%[2]d\"\n", indent, gpus)
}

// WriteWorkload writes the WorkloadSpec: a queue for each tenant, and in it one
// template for each gang, with a job for each member. Run times are those of
// the scenario, without tails. Elastic gangs have their preferred size; models,
// checkpoints and the exits of members are left out.
func WriteWorkload(out io.Writer, s *config.Scenario, seed uint64) error {
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
	// A seed of 0 would be the time of day to Armada.
	fmt.Fprintf(w, "name: \"gangd\"\nrandomSeed: %d\nqueues:\n", max(seed&(1<<62-1), 1))
	for _, tenant := range slices.Sorted(maps.Keys(queues)) {
		fmt.Fprintf(w, "  - name: %q\n    weight: %g\n    jobTemplates:\n", tenant, weight(s, tenant))
		for _, g := range queues[tenant] {
			writeTemplate(w, g, largest)
		}
	}
	return w.Flush()
}

func weight(s *config.Scenario, tenant string) float64 {
	at := slices.IndexFunc(s.Rules.Tenants, func(t schedule.Tenant) bool { return t.Name == tenant })
	if at < 0 || s.Rules.Tenants[at].Weight == 0 {
		return 1
	}
	return s.Rules.Tenants[at].Weight
}

func writeTemplate(w io.Writer, g *config.ScenarioGang, largest int) {
	perNode := max(g.Spec.PerNode(largest), 1)
	members := g.Spec.GPUs / perNode
	fmt.Fprintf(w, "      - id: %q\n        number: %d\n        jobSet: %q\n        priorityClassName: %q\n", g.ID, members, g.ID, g.Spec.Tier)
	if members > 1 {
		uniform := clusterLabel
		if level := g.Spec.Topology.Require; level != "" {
			uniform = label(level)
		}
		fmt.Fprintf(w, "        gangCardinality: %d\n        gangNodeUniformityLabel: %q\n", members, uniform)
	}
	fmt.Fprintf(w, "        requirements:\n")
	if g.Spec.GPU != "" {
		fmt.Fprintf(w, "          nodeSelector:\n            %q: %q\n", gpuLabel, g.Spec.GPU)
	}
	fmt.Fprintf(w, "          resourceRequirements:\n            requests:\n")
	writeResources(w, perNode, "              ")
	fmt.Fprintf(w, "        earliestSubmitTime: %q\n        runtimeDistribution:\n          minimum: %q\n", seconds(g.At), seconds(g.Duration))
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s" }

// WriteConfig writes the scheduling configuration that goes with them: tiers as
// priority classes, and the labels that gangs are held together by. Armada lets
// every higher class preempt; a tier that may not be preempted by any is one
// that may not be preempted there.
func WriteConfig(out io.Writer, s *config.Scenario) error {
	w := bufio.NewWriter(out)
	fmt.Fprintf(w, "priorityClasses:\n")
	for _, t := range s.Rules.Tiers {
		preemptible := slices.ContainsFunc(s.Rules.Tiers, func(o schedule.Tier) bool { return slices.Contains(o.Preempts, t.Name) })
		fmt.Fprintf(w, "  %q:\n    priority: %d\n    preemptible: %t\n", t.Name, t.Priority, preemptible)
	}
	fmt.Fprintf(w, "defaultPriorityClassName: %q\nindexedNodeLabels:\n  - %q\n  - %q\n", config.DefaultTier, clusterLabel, gpuLabel)
	for _, level := range s.Rules.Levels {
		fmt.Fprintf(w, "  - %q\n", label(level))
	}
	fmt.Fprint(w, resources)
	return w.Flush()
}

// resources is what Armada is to count, and no limit on how much it schedules
// at once.
var resources = func() string {
	var b strings.Builder
	for _, list := range []string{"supportedResourceTypes", "indexedResources"} {
		fmt.Fprintf(&b, "%s:\n", list)
		for _, r := range [][2]string{{"cpu", "1"}, {"memory", "1Mi"}, {"nvidia.com/gpu", "1"}} {
			fmt.Fprintf(&b, "  - name: %q\n    resolution: %q\n", r[0], r[1])
		}
	}
	fmt.Fprintf(&b, "dominantResourceFairnessResourcesToConsider:\n  - \"nvidia.com/gpu\"\n")
	for _, limit := range []string{"maximumSchedulingRate", "maximumPerQueueSchedulingRate"} {
		fmt.Fprintf(&b, "%s: \"+inf\"\n", limit)
	}
	for _, limit := range []string{"maximumSchedulingBurst", "maximumPerQueueSchedulingBurst"} {
		fmt.Fprintf(&b, "%s: %d\n", limit, int64(math.MaxInt64))
	}
	return b.String()
}()
