package main

import (
	"fmt"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

// attemptTable shows the attempts that have ended, where there is more to say
// of them than that the only one went well: of each the member whose log is to
// be read first.
func (t *terminal) attemptTable(g gang.Status) string {
	if len(g.Attempts) == 0 || len(g.Attempts) == 1 && g.Attempts[0].Why == "" {
		return ""
	}
	rows := [][]string{{"Attempt", "Decided", "Lasted", "Member", "Node", "Allocation", "How it ended"}}
	for _, a := range g.Attempts {
		row := []string{
			fmt.Sprint(a.N), millis(a.Decided).Format("2006-01-02 15:04:05 UTC"),
			duration(time.Duration(a.Ended-a.Decided) * time.Millisecond), "", "", "", a.Why,
		}
		if a.Why == "" {
			row[6] = "all members were done"
		}
		if len(a.Members) > 0 {
			m := a.Members[0]
			row[3], row[4], row[5] = fmt.Sprint(m.Member), m.NodeName, short(m.Allocation)
		}
		rows = append(rows, row)
	}
	return table(rows)
}

// logsText is the line to type for the log of the member that made a gang fail;
// empty where there is none.
func logsText(g gang.Status) string {
	a := g.EndedAttempt()
	if g.State != gang.Failed || a == nil || a.Why == "" || len(a.Members) == 0 || a.Members[0].Allocation == "" {
		return ""
	}
	return "nomad alloc logs -stderr " + short(a.Members[0].Allocation)
}
