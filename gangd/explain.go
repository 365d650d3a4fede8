package main

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

func explainCommand(t *terminal) *command {
	flags := newFlags("explain")
	connect := t.addressFlag(flags)
	asJSON := flags.Bool("json", false, "Print what the API answers.")
	return &command{
		name: "explain", arguments: " ID", flags: flags,
		synopsis: "Say why a gang waits, or was stopped",
		text: "Of a gang that waits: why, in numbers, who is before it, and when it should start.\n" +
			"Of one that runs: until when, by its estimate. And how each of its attempts ended:\n" +
			"for whom it was stopped, and the GPU time that was lost by that. The ID may be\n" +
			"shortened.",
		action: func(ctx context.Context, args []string) int {
			if len(args) != 1 {
				return t.misuse("explain takes one ID")
			}
			c, err := connect()
			if err != nil {
				return t.misuse("%v", err)
			}
			var o gang.Outlook
			id, err := c.resolve(ctx, args[0])
			if err == nil {
				err = c.call(ctx, "GET", "/v1/gangs/"+url.PathEscape(string(id))+"/explain", "", nil, &o)
			}
			if err != nil {
				return t.fail(ctx, err)
			}
			if *asJSON {
				return t.printJSON(o)
			}
			t.showOutlook(o)
			return exitOK
		},
	}
}

func (t *terminal) showOutlook(o gang.Outlook) {
	fmt.Fprintln(t.out, clean(t.verdict(o)))
	t.section("Queue", keyValues([][2]string{
		{"Position", ofWaiting(o)}, {"Code", string(o.Code)}, {"Should start", t.ahead(o.Starts)},
	}))
	if len(o.Ahead) > 0 {
		rows := [][]string{{"Before it", "Tier", "Tenant", "GPUs", "Code"}}
		for _, a := range o.Ahead {
			rows = append(rows, []string{string(a.ID), a.Tier, a.Tenant, fmt.Sprint(a.GPUs), string(a.Code)})
		}
		t.section("Order", table(rows))
		if more := o.Position - 1 - len(o.Ahead); more > 0 {
			fmt.Fprintf(t.out, "and %d more\n", more)
		}
	}
	t.section("Run", keyValues([][2]string{
		{"GPUs", runsOn(o)}, {"Started", t.started(o)}, {"Should end", t.ahead(o.Ends)}, {"Not stopped for others before", t.ahead(o.Protected)},
	}))
	t.section("Attempts", t.priceTable(o.Status))
}

// verdict is the one sentence that says most.
func (t *terminal) verdict(o gang.Outlook) string {
	switch {
	case o.Reason != "":
		return fmt.Sprintf("%s waits: %s", o.ID, o.Reason)
	case o.State.Terminal() && o.Why != "":
		return fmt.Sprintf("%s has %s: %s", o.ID, o.State, o.Why)
	case o.State.Terminal():
		return fmt.Sprintf("%s has %s", o.ID, o.State)
	case o.State == gang.Preempting || o.State == gang.Recovering || o.State == gang.Stopping:
		return fmt.Sprintf("%s is %s: %s", o.ID, targetText(o.Status), o.Why)
	}
	return fmt.Sprintf("%s is %s", o.ID, o.State)
}

func ofWaiting(o gang.Outlook) string {
	if o.Position == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d that wait", o.Position, o.Waiting)
}

// ahead is a moment to come, as a duration from now.
func (t *terminal) ahead(at int64) string {
	if at == 0 {
		return ""
	}
	left := millis(at).Sub(t.now())
	if left <= 0 {
		return "now"
	}
	return fmt.Sprintf("in %s, at %s", duration(left), millis(at).UTC().Format("15:04:05 UTC"))
}

func (t *terminal) started(o gang.Outlook) string {
	if !o.State.Placed() {
		return ""
	}
	return t.moment(o.Times.Started)
}

// runsOn says at which size a gang runs, where it could have had others.
func runsOn(o gang.Outlook) string {
	switch gpus := o.Members.GPUs(); {
	case gpus == 0 || !o.State.Placed():
		return ""
	case gpus == o.GPUs:
		return fmt.Sprint(gpus)
	default:
		return fmt.Sprintf("%d of the %d that it prefers", gpus, o.GPUs)
	}
}

// priceTable shows how attempts ended, for whom, and what that cost.
func (t *terminal) priceTable(g gang.Status) string {
	if len(g.Attempts) == 0 {
		return ""
	}
	rows := [][]string{{"Attempt", "Ended", "Ran", "Cause", "For", "GPU time lost", "Why"}}
	for _, a := range g.Attempts {
		ran := ""
		if a.Started > 0 {
			ran = duration(time.Duration(a.Ended-a.Started) * time.Millisecond)
		}
		rows = append(rows, []string{fmt.Sprint(a.N), t.moment(a.Ended), ran, a.Cause, string(a.For), gpuTime(a.LostGPUMillis), a.Why})
	}
	return t.fit(table(rows))
}

// gpuTime shows GPU time: seconds, or hours where it is long.
func gpuTime(ms int64) string {
	switch {
	case ms == 0:
		return ""
	case ms < 3_600_000:
		return fmt.Sprintf("%.0f GPU-s", float64(ms)/1000)
	default:
		return fmt.Sprintf("%.1f GPU-h", float64(ms)/3_600_000)
	}
}
