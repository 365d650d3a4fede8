package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/gangd/gangd/internal/api"
	"github.com/gangd/gangd/internal/gang"
)

func holdCommand(t *terminal) *command {
	return t.wish("hold", "Keep a gang that waits from starting",
		"The gang keeps its place in the queue, and does not start before \"gangd release\". The\n"+
			"ID may be shortened.", "is held in its place")
}

func releaseCommand(t *terminal) *command {
	return t.wish("release", "Let a gang start that was held",
		"Ends what \"gangd hold\" began. The ID may be shortened.", "is released")
}

// wish makes a command that asks for one thing of a gang that waits.
func (t *terminal) wish(name, synopsis, text, done string) *command {
	flags := newFlags(name)
	connect := t.addressFlag(flags)
	asJSON := flags.Bool("json", false, "Print what the API answers.")
	return &command{
		name: name, arguments: " ID", flags: flags, synopsis: synopsis, text: text,
		action: func(ctx context.Context, args []string) int {
			if len(args) != 1 {
				return t.misuse("%s takes one ID", name)
			}
			c, err := connect()
			if err != nil {
				return t.misuse("%v", err)
			}
			return t.ask(ctx, c, args[0], name, nil, done, *asJSON)
		},
	}
}

// ask asks for something of a gang, and tells that it is done.
func (t *terminal) ask(ctx context.Context, c *client, prefix, what string, body []byte, done string, asJSON bool) int {
	var g gang.Status
	id, err := c.resolve(ctx, prefix)
	if err == nil {
		err = c.call(ctx, "POST", "/v1/gangs/"+url.PathEscape(string(id))+"/"+what, "application/json", body, &g)
	}
	if err != nil {
		return t.fail(ctx, err)
	}
	if asJSON {
		return t.printJSON(g)
	}
	if g.Position > 0 {
		done += fmt.Sprintf(", #%d in the queue", g.Position)
	}
	fmt.Fprintf(t.out, "%s %s\n", g.ID, done)
	return exitOK
}

func reorderCommand(t *terminal) *command {
	flags := newFlags("reorder")
	connect := t.addressFlag(flags)
	before := flags.String("before", "", "Move it before the gang with this `ID`.")
	first := flags.Bool("first", false, "Move it before all of its tenant and tier.")
	last := flags.Bool("last", false, "Move it behind all of its tenant and tier.")
	asJSON := flags.Bool("json", false, "Print what the API answers.")
	return &command{
		name: "reorder", arguments: " ID", flags: flags,
		synopsis: "Move a gang among those of its tenant and tier",
		text: "The gangs of one tenant and tier that wait exchange their places: no other tenant\n" +
			"is before or behind more of them than it was. IDs may be shortened.",
		action: func(ctx context.Context, args []string) int {
			if chosen := btoi(*before != "") + btoi(*first) + btoi(*last); len(args) != 1 || chosen != 1 {
				return t.misuse("reorder takes one ID, and one of -before, -first and -last")
			}
			c, err := connect()
			if err != nil {
				return t.misuse("%v", err)
			}
			want := api.Reorder{To: api.ToFirst}
			if *last {
				want.To = api.ToLast
			}
			if *before != "" {
				other, err := c.resolve(ctx, *before)
				if err != nil {
					return t.fail(ctx, err)
				}
				want = api.Reorder{Before: other}
			}
			body, err := json.Marshal(want)
			if err != nil {
				return t.fail(ctx, err)
			}
			return t.ask(ctx, c, args[0], "reorder", body, "is moved", *asJSON)
		},
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
