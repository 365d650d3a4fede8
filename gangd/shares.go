package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

func sharesCommand(t *terminal) *command {
	flags := newFlags("shares")
	connect := t.addressFlag(flags)
	asJSON := flags.Bool("json", false, "Print what the API answers.")
	return &command{
		name: "shares", flags: flags,
		synopsis: "Show who has, wants and is entitled to how much",
		text: "Tenants: the GPUs that they run on, those that their waiting gangs want, their\n" +
			"weighted max-min share of the GPUs in order (Entitled), their use that fades\n" +
			"(Past), and all GPU time that was charged. Tiers: what they run and want, and how\n" +
			"long gangs waited for their first start, of the last 256 since gangd leads.",
		action: func(ctx context.Context, args []string) int {
			if len(args) > 0 {
				return t.misuse("shares takes no argument")
			}
			c, err := connect()
			if err != nil {
				return t.misuse("%v", err)
			}
			var s gang.Shares
			if err := c.call(ctx, "GET", "/v1/shares", "", nil, &s); err != nil {
				return t.fail(ctx, err)
			}
			if *asJSON {
				return t.printJSON(s)
			}
			t.showShares(s)
			return exitOK
		},
	}
}

func (t *terminal) showShares(s gang.Shares) {
	rows := [][]string{{"Tenant", "Weight", "Guaranteed", "Cap", "Running", "Waiting", "Wanted", "Entitled", "Past", "Charged"}}
	var sum gang.TenantShare
	for _, r := range s.Tenants {
		rows = append(rows, []string{
			r.Name, strconv.FormatFloat(r.Weight, 'g', -1, 64), some(r.Guaranteed), some(r.MaxGPUs),
			fmt.Sprint(r.Running), fmt.Sprint(r.Waiting), fmt.Sprint(r.Wanted), gpus(r.Entitled), gpus(r.Past), gpuTime(r.GPUMillis),
		})
		sum.Running += r.Running
		sum.Waiting += r.Waiting
		sum.Wanted += r.Wanted
		sum.Entitled += r.Entitled
		sum.Past += r.Past
		sum.GPUMillis += r.GPUMillis
	}
	rows = append(rows, []string{
		"all", "", "", "", fmt.Sprint(sum.Running), fmt.Sprint(sum.Waiting), fmt.Sprint(sum.Wanted), gpus(sum.Entitled), gpus(sum.Past), gpuTime(sum.GPUMillis),
	})
	fmt.Fprintln(t.out, table(rows))
	fmt.Fprintln(t.out)
	fmt.Fprintln(t.out, table(tierRows(s)))
	fmt.Fprintf(t.out, "\n%d GPUs in order, %d of them free\n", s.Capacity, s.Free)
}

func tierRows(s gang.Shares) [][]string {
	rows := [][]string{{"Tier", "Priority", "Min share", "Credit", "Running", "Waiting", "Wanted", "Oldest", "Median wait", "Target", "Met"}}
	for _, r := range s.Tiers {
		share, met := "", ""
		if r.MinShare > 0 {
			share = strconv.FormatFloat(r.MinShare*100, 'g', 3, 64) + " %"
		}
		if r.TargetMillis > 0 && r.Starts > 0 {
			met = fmt.Sprintf("%d of %d", r.Met, r.Starts)
		}
		median := ""
		if r.Starts > 0 {
			median = span(r.MedianMillis)
		}
		rows = append(rows, []string{
			r.Name, fmt.Sprint(r.Priority), share, gpuTime(int64(r.CreditGPUSeconds * 1000)),
			fmt.Sprint(r.Running), fmt.Sprint(r.Waiting), fmt.Sprint(r.Wanted), unlessZero(r.OldestMillis), median, unlessZero(r.TargetMillis), met,
		})
	}
	return rows
}

// span is a short time in milliseconds, or a long one.
func span(ms int64) string {
	if ms < 1000 {
		return fmt.Sprintf("%d ms", ms)
	}
	return duration(time.Duration(ms) * time.Millisecond)
}

func unlessZero(ms int64) string {
	if ms == 0 {
		return ""
	}
	return span(ms)
}

func some(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func gpus(n float64) string { return strconv.FormatFloat(n, 'f', 1, 64) }
