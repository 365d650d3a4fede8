package main

import (
	"context"
	"fmt"
	"net/url"

	"github.com/gangd/gangd/internal/gang"
)

func cancelCommand(t *terminal) *command {
	flags := newFlags("cancel")
	connect := t.addressFlag(flags)
	asJSON := flags.Bool("json", false, "Print what the API answers.")
	return &command{
		name: "cancel", arguments: " ID", flags: flags,
		synopsis: "Cancel a gang",
		text: "Takes a gang out of the queue, or ends its processes. The ID may be shortened, as\n" +
			"long as it fits one gang, or one that has not ended. It returns once the order is\n" +
			"given.",
		action: func(ctx context.Context, args []string) int {
			if len(args) != 1 {
				return t.misuse("cancel takes one ID")
			}
			c, err := connect()
			if err != nil {
				return t.misuse("%v", err)
			}
			g, err := cancel(ctx, c, args[0])
			if err != nil {
				return t.fail(ctx, err)
			}
			if *asJSON {
				return t.printJSON(g)
			}
			if g.State == gang.Cancelled {
				fmt.Fprintf(t.out, "%s is cancelled\n", g.ID)
			} else {
				fmt.Fprintf(t.out, "%s is stopping; its GPUs are free once its processes are gone\n", g.ID)
			}
			return exitOK
		},
	}
}

func cancel(ctx context.Context, c *client, prefix string) (gang.Status, error) {
	var g gang.Status
	id, err := c.resolve(ctx, prefix)
	if err != nil {
		return g, err
	}
	return g, c.call(ctx, "POST", "/v1/gangs/"+url.PathEscape(string(id))+"/cancel", "", nil, &g)
}
