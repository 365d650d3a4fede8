package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/api"
	"github.com/gangd/gangd/internal/cluster"
)

func nodesCommand(t *terminal) *command {
	flags := newFlags("nodes")
	connect := t.addressFlag(flags)
	asJSON := flags.Bool("json", false, "Print what the API answers.")
	return &command{
		name: "nodes", arguments: " [NAME|ID]", flags: flags,
		synopsis: "Show nodes and their GPUs",
		text: "Without an argument, lists the nodes. With the name of one, or its ID or the\n" +
			"beginning of that, shows its GPUs and who holds them.",
		action: func(ctx context.Context, args []string) int {
			if len(args) > 1 {
				return t.misuse("nodes takes one name or ID")
			}
			c, err := connect()
			if err != nil {
				return t.misuse("%v", err)
			}
			var answer api.Cluster
			if err = c.call(ctx, "GET", "/v1/cluster", "", nil, &answer); err == nil {
				err = t.showNodes(answer, args, *asJSON)
			}
			if err != nil {
				return t.fail(ctx, err)
			}
			return exitOK
		},
	}
}

func (t *terminal) showNodes(c api.Cluster, args []string, asJSON bool) error {
	switch {
	case len(args) == 1:
		n, err := findNode(c.Nodes, args[0])
		if err != nil {
			return err
		}
		if asJSON {
			t.printJSON(n)
			return nil
		}
		t.showNode(n, c.Levels)
	case asJSON:
		t.printJSON(c)
	case len(c.Nodes) == 0:
		fmt.Fprintln(t.out, "No nodes")
	default:
		fmt.Fprintln(t.out, table(t.nodeRows(c)))
	}
	return nil
}

func findNode(nodes []cluster.NodeStatus, name string) (cluster.NodeStatus, error) {
	ambiguous := &ambiguousError{what: "nodes", prefix: name}
	var found cluster.NodeStatus
	for _, n := range nodes {
		if n.Name == name || n.ID == name {
			return n, nil
		}
		if !strings.HasPrefix(n.ID, name) {
			continue
		}
		found = n
		if ambiguous.total++; ambiguous.total <= maxCandidates {
			ambiguous.candidates = append(ambiguous.candidates, clean(n.ID+"  "+n.Name))
		}
	}
	switch ambiguous.total {
	case 0:
		return found, fmt.Errorf("no node has the name %q, or an ID that begins with it", name)
	case 1:
		return found, nil
	}
	return found, ambiguous
}

func (t *terminal) nodeRows(c api.Cluster) [][]string {
	title := []string{"ID", "Name"}
	for _, level := range c.Levels {
		title = append(title, titled(level))
	}
	rows := [][]string{append(title, "State", "GPUs", "Free", "Bad", "Model", "Heard", "Why")}
	for _, n := range slices.SortedFunc(slices.Values(c.Nodes), byPlace) {
		row := []string{short(n.ID), n.Name}
		for i := range c.Levels {
			row = append(row, domainAt(n, i))
		}
		rows = append(rows, append(row, string(n.State), fmt.Sprint(len(n.GPUs)), fmt.Sprint(n.Free), fmt.Sprint(bad(n)),
			models(n), heard(n), ellipsis(n.Why, 60)))
	}
	return rows
}

// byPlace orders nodes by their domains and then by name, numbers in names by
// their value: n-9 comes before n-10.
func byPlace(a, b cluster.NodeStatus) int {
	return cmp.Or(slices.CompareFunc(a.Domains, b.Domains, byNumbers), byNumbers(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
}

func byNumbers(a, b string) int {
	for a != "" && b != "" {
		x, y := leading(a), leading(b)
		if digits(x) && digits(y) {
			m, n := strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
			if c := cmp.Or(cmp.Compare(len(m), len(n)), cmp.Compare(m, n)); c != 0 {
				return c
			}
		} else if c := cmp.Compare(x, y); c != 0 {
			return c
		}
		a, b = a[len(x):], b[len(y):]
	}
	return cmp.Compare(len(a), len(b))
}

// leading is the run of digits, or of anything else, that a text begins with.
func leading(s string) string {
	for i := range s {
		if digits(s[i:i+1]) != digits(s[:1]) {
			return s[:i]
		}
	}
	return s
}

func digits(s string) bool { return s[0] >= '0' && s[0] <= '9' }

func titled(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func domainAt(n cluster.NodeStatus, level int) string {
	if level >= len(n.Domains) || n.Domains[level] == "" {
		return "-"
	}
	return n.Domains[level]
}

func bad(n cluster.NodeStatus) int {
	count := 0
	for _, g := range n.GPUs {
		if !g.Healthy && g.Job == "" {
			count++
		}
	}
	return count
}

// models lists the models of a node's GPUs, which are mostly one.
func models(n cluster.NodeStatus) string {
	var names []string
	for _, g := range n.GPUs {
		if !slices.Contains(names, g.Model) {
			names = append(names, g.Model)
		}
	}
	if len(names) == 0 {
		return "-"
	}
	return strings.Join(names, ", ")
}

func heard(n cluster.NodeStatus) string {
	if n.HeardMillis < 0 {
		return "never"
	}
	return duration(time.Duration(n.HeardMillis)*time.Millisecond) + " ago"
}

func (t *terminal) showNode(n cluster.NodeStatus, levels []string) {
	pairs := [][2]string{{"ID", n.ID}, {"Name", n.Name}, {"State", string(n.State)}, {"Why", n.Why}}
	for i, level := range levels {
		pairs = append(pairs, [2]string{titled(level), domainAt(n, i)})
	}
	fmt.Fprintln(t.out, keyValues(append(pairs, [][2]string{
		{"GPUs", fmt.Sprintf("%d (%d free, %d bad%s)", len(n.GPUs), n.Free, bad(n), ofJobs(n))},
		{"CPU", room(n, cpuText)}, {"Memory", room(n, roomMemoryText)}, {"Heard", heard(n)},
	}...)))
	if len(n.GPUs) == 0 {
		return
	}
	faults := slices.ContainsFunc(n.GPUs, func(g cluster.GPUStatus) bool { return g.Faults > 0 })
	rows := [][]string{{"Index", "UUID", "Model", "Memory", "NUMA", "Island", "Gang", "Lane", "Health"}}
	for _, g := range n.GPUs {
		rows = append(rows, []string{
			fmt.Sprint(g.Index), g.UUID, g.Model, memoryText(g.MemoryMiB), fmt.Sprint(g.NUMA), fmt.Sprint(g.Island),
			g.Gang, short(g.Lane), health(g),
		})
		if faults {
			rows[len(rows)-1] = append(rows[len(rows)-1], fmt.Sprint(g.Faults))
		}
	}
	if faults {
		rows[0] = append(rows[0], "Faults in 24 h")
	}
	t.section("GPUs", table(rows))
}

// ofJobs says how many GPUs other jobs hold, as the end of a list.
func ofJobs(n cluster.NodeStatus) string {
	held := 0
	for _, g := range n.GPUs {
		if g.Job != "" {
			held++
		}
	}
	if held == 0 {
		return ""
	}
	return fmt.Sprintf(", %d of other jobs", held)
}

// room says what is left of something that a node has; it is empty where Nomad
// does not tell.
func room(n cluster.NodeStatus, text func(cluster.Room) string) string {
	if n.Room == nil {
		return ""
	}
	s := fmt.Sprintf("%s of %s left", text(n.Room.Left), text(n.Room.Capacity))
	if n.Room.Foreign != (cluster.Room{}) {
		s += fmt.Sprintf("; other jobs hold %s", text(n.Room.Foreign))
	}
	return s
}

func cpuText(r cluster.Room) string { return fmt.Sprintf("%d MHz", r.CPUMHz) }

func roomMemoryText(r cluster.Room) string { return memoryText(r.MemoryMiB) }

func health(g cluster.GPUStatus) string {
	switch {
	case g.Healthy:
		return "ok"
	case g.Job != "":
		return g.Reason
	case g.Reason == "":
		return "bad"
	}
	return "bad: " + g.Reason
}
