package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/sim"
)

// simLog prints a simulation as a log that a person can read, and its summary
// as tables.
type simLog struct {
	out io.Writer
	// width is that of the longest gang's name.
	width  int
	tiers  []string
	titled bool
}

func newSimLog(out io.Writer, s *config.Scenario) *simLog {
	l := &simLog{out: out, width: len("Gang")}
	for _, g := range s.Gangs {
		l.width = max(l.width, len(g.ID))
	}
	for _, t := range s.Rules.Tiers {
		l.tiers = append(l.tiers, t.Name)
	}
	return l
}

func (l *simLog) tell(r sim.Record) error {
	if !l.titled {
		l.titled = true
		if err := l.line("Time", "Gang", "Event", "Detail"); err != nil {
			return err
		}
	}
	if s, last := r.Fact.(*sim.Summary); last {
		return l.summary(s)
	}
	return l.line(clockText(r.At), string(r.Gang), strings.ReplaceAll(r.Fact.Event(), "_", " "), factText(r.Fact))
}

func (l *simLog) line(at, id, event, text string) error {
	line := fmt.Sprintf("%10s  %-*s  %-12s  %s", at, l.width, id, event, text)
	_, err := fmt.Fprintln(l.out, strings.TrimRight(line, " "))
	return err
}

// clockText is a moment of virtual time, to the millisecond.
func clockText(d time.Duration) string { return d.Round(time.Millisecond).String() }

func factText(f sim.Fact) string {
	switch f := f.(type) {
	case sim.Submitted:
		return fmt.Sprintf("%s, %d GPUs, tenant %s", f.Tier, f.GPUs, f.Tenant)
	case sim.Rejected:
		return f.Reason
	case sim.Pending:
		return fmt.Sprintf("%s: %s", f.Code, f.Reason)
	case sim.Reserved:
		text := "to start at " + clockText(time.Duration(f.Start))
		if f.MovedBy != "" {
			text += ", moved by " + f.MovedBy
		}
		return text
	case sim.Started:
		return startedText(f)
	case sim.Preempting:
		return fmt.Sprintf("for %s, %s", f.For, f.Mode)
	case sim.CalledOff:
		return "it carries on"
	case sim.Checkpointed:
		return clockText(time.Duration(f.Done)) + " done"
	case sim.Resizing:
		return fmt.Sprintf("from %d to %d GPUs", f.From, f.To)
	case sim.Stopped:
		text := string(f.Cause)
		if f.Lost > 0 {
			text += fmt.Sprintf(", %.10g GPU-seconds lost", float64(f.Lost))
		}
		return text
	case sim.Finished:
		return string(f.Outcome)
	}
	return ""
}

// maxMembersShown bounds the places that a line of the log names.
const maxMembersShown = 4

func startedText(f sim.Started) string {
	var b strings.Builder
	fmt.Fprintf(&b, "attempt %d on %d GPUs:", f.Attempt, f.GPUs)
	for i, m := range f.Members {
		if i == maxMembersShown {
			fmt.Fprintf(&b, " and %d more", len(f.Members)-i)
			break
		}
		fmt.Fprintf(&b, " %s[%s]", m.Node, ranges(m.GPUs))
	}
	if f.Warm > 0 {
		fmt.Fprintf(&b, ", %d warm", f.Warm)
	}
	if f.ResumedFrom > 0 {
		fmt.Fprintf(&b, ", from %s", clockText(time.Duration(f.ResumedFrom)))
	}
	return b.String()
}

func (l *simLog) summary(s *sim.Summary) error {
	g := s.GPUSeconds
	_, err := fmt.Fprintf(l.out, "\n%s\n", keyValues([][2]string{
		{"Makespan", clockText(time.Duration(s.Makespan))},
		{"Capacity", amountText(g.Capacity) + " GPU-seconds"},
		{"Held", fmt.Sprintf("%.1f%%", 100*float64(s.Utilization))},
		{"Useful", amountText(g.Useful)}, {"Lost", amountText(g.Lost)}, {"Wasted", amountText(g.Wasted)},
		{"Loading", amountText(g.Loading)}, {"Saving", amountText(g.Saving)},
		{"Idle while gangs waited", amountText(g.IdleWhilePending)},
		{"Preemptions", fmt.Sprint(s.Preemptions)},
	}))
	if err != nil || len(s.PerTier) == 0 {
		return err
	}
	tiers := [][]string{{"Tier", "Gangs", "Started", "Mean wait", "p50", "p99", "Target met"}}
	for _, name := range l.tiers {
		if t, some := s.PerTier[name]; some {
			tiers = append(tiers, []string{name, fmt.Sprint(t.Gangs), fmt.Sprint(t.Started),
				waitText(t.MeanWait), waitText(t.P50Wait), waitText(t.P99Wait), shareText(t.TargetMet)})
		}
	}
	tenants := [][]string{{"Tenant", "GPU-seconds", "Mean wait", "p99"}}
	for _, name := range slices.Sorted(maps.Keys(s.PerTenant)) {
		t := s.PerTenant[name]
		tenants = append(tenants, []string{name, amountText(t.GPUSeconds), waitText(t.MeanWait), waitText(t.P99Wait)})
	}
	_, err = fmt.Fprintf(l.out, "\n%s\n\n%s\n", table(tiers), table(tenants))
	return err
}

func amountText(a sim.Amount) string { return fmt.Sprintf("%.0f", float64(a)) }

func waitText(s *sim.Seconds) string {
	if s == nil {
		return "-"
	}
	return duration(time.Duration(*s))
}

func shareText(a *sim.Amount) string {
	if a == nil {
		return ""
	}
	return fmt.Sprintf("%.1f%%", 100*float64(*a))
}
