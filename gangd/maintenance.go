package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/api"
	"github.com/gangd/gangd/internal/gang"
)

// windowFlags are what a maintenance window is made of.
type windowFlags struct {
	from, until, domain string
	nodes               paths
	all, remove, asJSON bool
}

func maintenanceCommand(t *terminal) *command {
	flags := newFlags("maintenance")
	connect := t.addressFlag(flags)
	var o windowFlags
	flags.StringVar(&o.from, "from", "now", "The window begins at this `TIME`: now, in so long, as 90m, or at a time such as\n2026-12-24T22:00:00Z.")
	flags.StringVar(&o.until, "until", "", "It ends at this `TIME`, or so long after its beginning, as 4h.")
	flags.Var(&o.nodes, "node", "It is of the node with this `NAME` or ID. May be given several times.")
	flags.StringVar(&o.domain, "domain", "", "It is of all nodes of a domain, as `LEVEL=NAME`, those that come later too.")
	flags.BoolVar(&o.all, "all", false, "It is of the whole cluster.")
	flags.BoolVar(&o.remove, "delete", false, "Call it off, or end it now.")
	flags.BoolVar(&o.asJSON, "json", false, "Print what the API answers.")
	return &command{
		name: "maintenance", arguments: " [NAME]", flags: flags,
		synopsis: "Show, plan and call off maintenance windows",
		text: "Without NAME, lists the windows. With NAME, plans one, or another than before under\n" +
			"that name. What would run into it, by its estimate, does not start there; from its\n" +
			"beginning to its end its nodes take nothing new. What runs there then is not stopped:\n" +
			"drain the node in Nomad when the work on it begins.",
		action: func(ctx context.Context, args []string) int {
			c, err := connect()
			if err != nil {
				return t.misuse("%v", err)
			}
			switch {
			case len(args) > 1:
				return t.misuse("maintenance takes one NAME")
			case len(args) == 0 && (o.until != "" || o.remove || o.all || o.domain != "" || len(o.nodes) > 0):
				return t.misuse("which window is this? NAME is missing")
			case len(args) == 0:
				return t.maintain(ctx, c, "GET", "", nil, o.asJSON)
			case o.remove:
				return t.maintain(ctx, c, "DELETE", args[0], nil, o.asJSON)
			}
			w, err := o.window(t.now())
			if err != nil {
				return t.misuse("%v", err)
			}
			body, err := json.Marshal(w)
			if err != nil {
				return t.fail(ctx, err)
			}
			return t.maintain(ctx, c, "PUT", args[0], body, o.asJSON)
		},
	}
}

// window reads the options.
func (o *windowFlags) window(now time.Time) (gang.Window, error) {
	var w gang.Window
	if given := btoi(len(o.nodes) > 0) + btoi(o.domain != "") + btoi(o.all); given != 1 {
		return w, fmt.Errorf("say what it is of, with one of -node, -domain and -all")
	}
	if o.until == "" {
		return w, fmt.Errorf("-until is missing")
	}
	from, err := timeOrDelay(o.from, now)
	if err != nil {
		return w, fmt.Errorf("-from: %w", err)
	}
	until, err := timeOrDelay(o.until, from)
	if err != nil {
		return w, fmt.Errorf("-until: %w", err)
	}
	w.From, w.Until, w.Nodes = gang.Millis(from), gang.Millis(until), o.nodes
	if o.domain != "" {
		var found bool
		if w.Level, w.Domain, found = strings.Cut(o.domain, "="); !found || w.Level == "" || w.Domain == "" {
			return w, fmt.Errorf("-domain %q is not of the form LEVEL=NAME, as leaf=l3", o.domain)
		}
	}
	return w, nil
}

// timeOrDelay reads a time, or so long after another.
func timeOrDelay(text string, after time.Time) (time.Time, error) {
	if text == "now" {
		return after, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return after.Add(d), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fmt.Errorf("%q is neither a time such as 2026-12-24T22:00:00Z nor a duration such as 90m", text)
	}
	return at, nil
}

// maintain asks for something of a window, and shows all of them.
func (t *terminal) maintain(ctx context.Context, c *client, method, name string, body []byte, asJSON bool) int {
	path := "/v1/maintenance"
	if name != "" {
		path += "/" + url.PathEscape(name)
	}
	var m api.Maintenance
	if err := c.call(ctx, method, path, "application/json", body, &m); err != nil {
		return t.fail(ctx, err)
	}
	if asJSON {
		return t.printJSON(m)
	}
	if len(m.Windows) == 0 {
		fmt.Fprintln(t.out, "No maintenance is planned.")
		return exitOK
	}
	rows := [][]string{{"Window", "From", "Until", "Begins", "Of"}}
	for _, w := range m.Windows {
		rows = append(rows, []string{w.Name, windowTime(w.From), windowTime(w.Until), t.begins(w), windowOf(w)})
	}
	fmt.Fprintln(t.out, t.fit(table(rows)))
	return exitOK
}

func windowTime(ms int64) string { return millis(ms).Format("2006-01-02 15:04 UTC") }

func (t *terminal) begins(w gang.WindowStatus) string {
	if left := millis(w.From).Sub(t.now()); left > 0 {
		return "in " + duration(left)
	}
	return "it has begun, ends in " + duration(millis(w.Until).Sub(t.now()))
}

func windowOf(w gang.WindowStatus) string {
	switch {
	case w.Level != "":
		return w.Level + " " + w.Domain
	case len(w.NodeNames) == 0:
		return "the whole cluster"
	case len(w.NodeNames) > maxMembersShown:
		return fmt.Sprintf("%s and %d more", strings.Join(w.NodeNames[:maxMembersShown], ", "), len(w.NodeNames)-maxMembersShown)
	}
	return strings.Join(w.NodeNames, ", ")
}
