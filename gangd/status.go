package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/api"
	"github.com/gangd/gangd/internal/gang"
)

func statusCommand(t *terminal) *command {
	flags := newFlags("status")
	connect := t.addressFlag(flags)
	asJSON := flags.Bool("json", false, "Print what the API answers.")
	return &command{
		name: "status", arguments: " [ID]", flags: flags,
		synopsis: "Show gangs, or one of them",
		text: "Without an ID, lists the gangs: those that live first, in queue order. With the\n" +
			"ID of one, or the beginning of its ID, shows all that is known of it. Of several\n" +
			"that begin so, the only one that has not ended is shown.",
		action: func(ctx context.Context, args []string) int {
			if len(args) > 1 {
				return t.misuse("status takes one ID")
			}
			c, err := connect()
			if err != nil {
				return t.misuse("%v", err)
			}
			if len(args) == 0 {
				err = t.listGangs(ctx, c, *asJSON)
			} else {
				err = t.showGang(ctx, c, args[0], *asJSON)
			}
			if err != nil {
				return t.fail(ctx, err)
			}
			return exitOK
		},
	}
}

func (t *terminal) listGangs(ctx context.Context, c *client, asJSON bool) error {
	var list api.Gangs
	if err := c.call(ctx, "GET", "/v1/gangs", "", nil, &list); err != nil {
		return err
	}
	if asJSON {
		t.printJSON(list)
		return nil
	}
	if len(list.Gangs) == 0 {
		fmt.Fprintln(t.out, "No gangs")
		return nil
	}
	rows := [][]string{{"ID", "Tier", "Tenant", "GPUs", "State", "Step", "Age", "Why"}}
	for _, g := range list.Gangs {
		rows = append(rows, []string{
			string(g.ID), g.Tier, g.Tenant, fmt.Sprint(g.GPUs), stateText(g), stepText(g.Progress),
			duration(t.now().Sub(millis(g.Accepted))), whyText(g),
		})
	}
	fmt.Fprintln(t.out, t.fit(table(rows)))
	if n := list.Total - len(list.Gangs); n > 0 {
		fmt.Fprintf(t.out, "\n%d more are not shown; the API narrows the list with ?state=, ?tenant= and ?prefix=, and lengthens it with ?limit=\n", n)
	}
	return nil
}

func stateText(g gang.Status) string {
	if g.Position > 0 {
		return fmt.Sprintf("%s #%d", g.State, g.Position)
	}
	return string(g.State)
}

func stepText(p *gang.Progress) string {
	if p == nil || p.Steps == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", p.Step, p.Steps)
}

// whyText is the sentence that says most: why it waits, else what led here.
func whyText(g gang.Status) string {
	switch {
	case g.Reason != "":
		return g.Reason
	case g.Why != "" && overcome(g):
		return "last attempt ended: " + g.Why
	}
	return g.Why
}

// overcome tells that what a gang says of itself ended its last attempt, and it
// goes on.
func overcome(g gang.Status) bool {
	switch g.State {
	case gang.Queued, gang.Reserved, gang.Launching, gang.Running, gang.Finishing, gang.Succeeded:
		return true
	}
	return false
}

func (t *terminal) showGang(ctx context.Context, c *client, prefix string, asJSON bool) error {
	id, err := c.resolve(ctx, prefix)
	if err != nil {
		return err
	}
	var g gang.Status
	if err := c.call(ctx, "GET", "/v1/gangs/"+url.PathEscape(string(id)), "", nil, &g); err != nil {
		return err
	}
	if asJSON {
		t.printJSON(g)
		return nil
	}
	fmt.Fprintln(t.out, keyValues(t.facts(g)))
	if g.Reason != "" {
		t.section("Queue", keyValues([][2]string{{"Position", positionText(g)}, {"Code", string(g.Code)}, {"Reason", g.Reason}}))
	}
	if g.Progress != nil {
		t.section("Progress", progressText(*g.Progress, 0, 40))
	}
	if len(g.Lanes) > 0 {
		t.section("Placement", table(placementRows(g, domains(ctx, c, g))))
	}
	t.section(startTitle(g), startTable(g))
	t.section("Attempts", t.attemptTable(g))
	t.section("Artifact", artifactText(g.Artifact))
	t.section("Thumbnail", artifactText(g.Thumbnail))
	return nil
}

func positionText(g gang.Status) string {
	if g.Position == 0 {
		return ""
	}
	return fmt.Sprint(g.Position)
}

// facts are the lines at the top.
func (t *terminal) facts(g gang.Status) [][2]string {
	why := "Why"
	if overcome(g) {
		why = "Last attempt ended"
	}
	pairs := [][2]string{
		{"ID", string(g.ID)}, {"State", targetText(g)}, {why, g.Why}, {"Logs", logsText(g)},
		{"Tier", g.Tier}, {"Tenant", g.Tenant}, {"Template", g.Template}, {"GPUs", gpusText(g)},
	}
	if s := g.Spec; s != nil {
		pairs = append(pairs, [][2]string{
			{"GPU", s.GPU}, {"GPU memory", atLeast(s.GPUMemoryMiB)}, {"Require", s.Topology.Require}, {"Prefer", s.Topology.Prefer},
			{"Estimate", set(s.Estimate)}, {"Max run", set(s.MaxRun)}, {"Reuse", string(s.Reuse)},
		}...)
	}
	return append(pairs, [][2]string{
		{"Accepted", t.moment(g.Accepted)}, {"Ended", t.moment(endOf(g))}, {"Attempt", attemptText(g)}, {"Run time", t.runText(g)},
		{"Avoids nodes", strings.Join(g.AvoidNames, ", ")}, {"Params", paramsText(g.Spec)},
	}...)
}

func targetText(g gang.Status) string {
	if g.Target != "" {
		return fmt.Sprintf("%s (then %s)", g.State, g.Target)
	}
	return string(g.State)
}

func gpusText(g gang.Status) string {
	return fmt.Sprint(g.GPUs) + shapeText(g)
}

// shapeText says how the GPUs of a gang lie, where it takes several nodes.
func shapeText(g gang.Status) string {
	if g.PerNode <= 0 || g.PerNode == g.GPUs {
		return ""
	}
	return fmt.Sprintf(" (%d nodes x %d)", g.GPUs/g.PerNode, g.PerNode)
}

func atLeast(mib int) string {
	if mib == 0 {
		return ""
	}
	return "at least " + memoryText(mib)
}

func set(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

func attemptText(g gang.Status) string {
	if g.Attempt == 0 {
		return ""
	}
	text := fmt.Sprint(g.Attempt)
	switch s := g.Spec; {
	case g.Failures == 0 || s == nil:
	case g.Failures > s.InfraRetries:
		text += fmt.Sprintf(" (infra_retries = %d is used up)", s.InfraRetries)
	default:
		text += fmt.Sprintf(" (%d of %d infra_retries used)", g.Failures, s.InfraRetries)
	}
	return text
}

// endOf is the end of a gang, not of an attempt after which it goes on.
func endOf(g gang.Status) int64 {
	if !g.State.Terminal() {
		return 0
	}
	return g.Times.Ended
}

// runText is the run time of all attempts, with what the present one has run.
func (t *terminal) runText(g gang.Status) string {
	run := time.Duration(g.RunMillis) * time.Millisecond
	if g.Times.Started != 0 && g.Times.Ended == 0 {
		run += max(0, t.now().Sub(millis(g.Times.Started)))
	}
	if run == 0 {
		return ""
	}
	return duration(run)
}

func paramsText(s *gang.Spec) string {
	if s == nil {
		return ""
	}
	return ellipsis(string(s.Params), 200)
}

// domains asks where the nodes of a gang lie. The answer is a help to the
// reader, and left out where it cannot be had.
func domains(ctx context.Context, c *client, g gang.Status) map[string]string {
	query := url.Values{}
	for _, m := range g.Lanes {
		query.Add("node", m.Node)
	}
	var answer api.Cluster
	if c.once(ctx, "GET", "/v1/cluster?"+query.Encode(), "", nil, &answer) != nil {
		return nil
	}
	out := map[string]string{}
	for _, n := range answer.Nodes {
		out[n.ID] = strings.Join(n.Domains, "/")
	}
	return out
}

func placementRows(g gang.Status, domains map[string]string) [][]string {
	rows := [][]string{{"Member", "Node", "Domain", "GPUs", "Lane", "Lane state", "Allocation"}}
	for _, m := range g.Lanes {
		rows = append(rows, []string{
			fmt.Sprint(m.Member), m.NodeName, domains[m.Node], ranges(m.GPUs),
			short(string(m.Lane)), string(m.LaneState), short(m.Allocation),
		})
	}
	return rows
}

func startTitle(g gang.Status) string { return fmt.Sprintf("Start of attempt %d", g.Attempt) }

// startTable shows the parts of a start: when each was reached after the gang
// was accepted, or queued again, and how long it took.
func startTable(g gang.Status) string {
	parts := []struct {
		name string
		at   int64
	}{
		{"decided", g.Times.Decided}, {"dispatched", g.Times.Dispatched}, {"allocated", g.Times.Allocated},
		{"admitted", g.Times.Admitted}, {"ready", g.Times.Ready}, {"started", g.Times.Started},
	}
	if g.Attempt == 0 || g.Times.Decided == 0 {
		return ""
	}
	from, begin := "accepted", g.Accepted
	if g.Times.Queued != 0 {
		from, begin = "queued again", g.Times.Queued
	}
	rows := [][]string{{"Part", "Since " + from, "Took"}, {from, "0 ms", "-"}}
	last := begin
	for _, p := range parts {
		if p.at == 0 {
			continue
		}
		rows = append(rows, []string{p.name, fmt.Sprintf("+%d ms", p.at-begin), fmt.Sprintf("%d ms", p.at-last)})
		last = p.at
	}
	return table(rows)
}

func artifactText(a *gang.Artifact) string {
	if a == nil {
		return ""
	}
	return keyValues([][2]string{{"Key", a.Key}, {"SHA-256", a.SHA256}, {"Size", bytesText(a.Bytes)}, {"Type", a.ContentType}})
}
