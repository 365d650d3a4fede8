package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/report"
)

// showReports tables how gangs fared under each policy.
func (t *terminal) showReports(reports []report.Report) {
	rows := [][]string{{"Policy", "Held", "Preempted", "Delay mean", "p50", "p99", "Slowdown", "Wait mean", "p99",
		"Unfinished", "Failed", "Rejected", "Lost", "Loading", "Widest: worst wait", "Took"}}
	for _, r := range reports {
		a := r.All
		rows = append(rows, []string{
			r.Policy, fmt.Sprintf("%.1f %%", 100*r.Utilization), some(r.Preemptions),
			seconds(a.Delay.Mean), seconds(a.Delay.P50), seconds(a.Delay.P99), ratio(a.Slowdown.Mean), seconds(a.Wait.Mean), seconds(a.Wait.P99),
			some(a.Unfinished), some(a.Failed), some(a.Rejected), gpuSeconds(a.Lost), gpuSeconds(a.Loading),
			fmt.Sprintf("%s (%s)", seconds(r.Widest.Wait), gpuCount(r.Widest.GPUs)), fmt.Sprintf("%.2fs", r.TookSeconds),
		})
	}
	fmt.Fprintln(t.out, table(rows))
	t.section("By tier", table(classRows(reports, func(r report.Report) []report.Row { return r.ByTier })))
	t.section("By size", table(classRows(reports, func(r report.Report) []report.Row { return r.BySize })))
	fmt.Fprintln(t.out, "\n"+strings.TrimSpace(legend(reports)))
}

// legend says what the numbers are, and what the policies.
func legend(reports []report.Report) string {
	var b strings.Builder
	b.WriteString("Delay is the time from submission to the end, less the run time with the cluster to itself.\n" +
		"Slowdown is bounded: that time, divided by the run time or 10s, whichever is longer; the mean.\n" +
		"Wait is all time in the queue, also after a preemption or a failure. Lost was run twice.\n")
	if len(reports) > 1 {
		b.WriteString("\n")
		rows := make([][2]string, 0, len(reports))
		for _, p := range report.Policies() {
			rows = append(rows, [2]string{p.Name, p.Text})
		}
		b.WriteString(keyValues(rows))
	}
	return b.String()
}

// classRows put the policies below each other, class by class.
func classRows(reports []report.Report, of func(report.Report) []report.Row) [][]string {
	rows := [][]string{{"Class", "Gangs", "Policy", "Delay mean", "p50", "p99", "Slowdown", "Wait mean", "p50", "p99", "Unfinished", "Failed", "Rejected", "Lost", "Loading"}}
	for i := range of(reports[0]) {
		for n, r := range reports {
			c := of(r)[i]
			name, gangs := c.Class, fmt.Sprint(c.Gangs)
			if n > 0 {
				name, gangs = "", ""
			}
			row := []string{
				name, gangs, r.Policy, seconds(c.Delay.Mean), seconds(c.Delay.P50), seconds(c.Delay.P99), ratio(c.Slowdown.Mean),
				seconds(c.Wait.Mean), seconds(c.Wait.P50), seconds(c.Wait.P99),
				some(c.Unfinished), some(c.Failed), some(c.Rejected), gpuSeconds(c.Lost), gpuSeconds(c.Loading),
			}
			if c.Gangs == 0 {
				clear(row[3:10]) // of nobody
			}
			rows = append(rows, row)
		}
	}
	return rows
}

func seconds(s float64) string { return duration(time.Duration(s * float64(time.Second))) }

func ratio(r float64) string { return fmt.Sprintf("%.2f", r) }

func gpuSeconds(s float64) string { return gpuTime(int64(s * 1000)) }

func gpuCount(n int) string {
	if n == 1 {
		return "1 GPU"
	}
	return fmt.Sprintf("%d GPUs", n)
}
