package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/record"
	"github.com/gangd/gangd/internal/schedule"
	"github.com/gangd/gangd/internal/sim"
)

// replayLog prints a recording as a log that a person can read: what the engine
// was told, and, indented, what it decided.
type replayLog struct {
	out    io.Writer
	asJSON bool // prints the recording's own lines instead
	quiet  bool // prints nothing
	titled bool
	// only is the gang whose history is kept.
	only    gang.ID
	history [][]string

	// names are those of nodes, by ID.
	names     map[string]string
	last      record.Step
	decisions int
	// until is the time at which the replay was ended, between two events.
	until time.Time
}

// moment is the time that is looked at: of a recording without events, its
// beginning.
func (l *replayLog) moment(began time.Time) time.Time {
	switch {
	case !l.until.IsZero():
		return l.until
	case l.last.N > 0:
		return l.last.At
	}
	return began
}

func (l *replayLog) take(s record.Step) error {
	l.last = s
	l.decisions += len(s.Decisions)
	if l.asJSON {
		text, err := s.Encode()
		if err == nil && !l.quiet {
			_, err = l.out.Write(text)
		}
		return err
	}
	if err := l.told(s, s.Event); err != nil {
		return err
	}
	if s.Refused != "" {
		if err := l.line(s.At, "", "  refused", s.Refused); err != nil {
			return err
		}
	}
	for _, d := range s.Decisions {
		if err := l.decided(s.At, d); err != nil {
			return err
		}
	}
	return nil
}

func (l *replayLog) line(at time.Time, id gang.ID, event, text string) error {
	event = strings.ReplaceAll(event, "_", " ")
	when := at.UTC().Format("01-02 15:04:05.000")
	if id != "" && id == l.only {
		if l.history == nil {
			l.history = [][]string{{"Time", "Event", "Detail"}}
		}
		l.history = append(l.history, []string{when, event, text})
	}
	if l.quiet {
		return nil
	}
	if !l.titled {
		l.titled = true
		if err := l.print("Time (UTC)", "Gang", "Event", "Detail"); err != nil {
			return err
		}
	}
	return l.print(when, string(id), event, text)
}

func (l *replayLog) print(at, id, event, text string) error {
	_, err := fmt.Fprintln(l.out, strings.TrimRight(fmt.Sprintf("%-18s  %-20s  %-12s  %s", at, id, event, clean(text)), " "))
	return err
}

// told prints an event.
func (l *replayLog) told(s record.Step, ev schedule.Event) error {
	switch ev := ev.(type) {
	case schedule.Together:
		return l.toldAll(s, ev)
	case schedule.Tick:
		if len(s.Decisions) == 0 {
			return nil // most are no news
		}
	case schedule.Reorder:
		for _, place := range ev {
			if err := l.line(s.At, place.ID, "reorder", fmt.Sprintf("to place %d", place.Seq)); err != nil {
				return err
			}
		}
		return nil
	}
	id, text := l.eventText(ev)
	return l.line(s.At, id, record.Kind(ev), text)
}

// toldAll prints events that came together, the releases of one attempt as one.
func (l *replayLog) toldAll(s record.Step, all []schedule.Event) error {
	for i := 0; i < len(all); i++ {
		first, is := all[i].(schedule.Release)
		if !is {
			if err := l.told(s, all[i]); err != nil {
				return err
			}
			continue
		}
		members := []int{first.Seat.Member}
		for ; i+1 < len(all); i++ {
			next, is := all[i+1].(schedule.Release)
			if !is || next.Seat.ID != first.Seat.ID || next.Seat.Attempt != first.Seat.Attempt {
				break
			}
			members = append(members, next.Seat.Member)
		}
		if err := l.line(s.At, first.Seat.ID, record.Kind(first), releaseText(first.Seat.Attempt, members)); err != nil {
			return err
		}
	}
	return nil
}

func releaseText(attempt int, members []int) string {
	word := "member"
	if len(members) > 1 {
		word = "members"
	}
	return fmt.Sprintf("attempt %d, %s %s", attempt, word, ranges(members))
}

// eventText says whom an event is about, and what it says.
func (l *replayLog) eventText(ev schedule.Event) (gang.ID, string) {
	attempt := func(n int) string { return fmt.Sprintf("attempt %d", n) }
	switch ev := ev.(type) {
	case schedule.NodeSet:
		l.name(ev.Node)
		return "", nodeText(ev.Node)
	case schedule.NodeGone:
		return "", l.nameOf(ev.ID)
	case schedule.Submit:
		g := ev.Gang
		text := fmt.Sprintf("%s, %d GPUs, tenant %s, for attempt %d", g.Spec.Tier, g.Spec.GPUs, g.Spec.Tenant, g.Attempt)
		if g.Done > 0 {
			text += ", from " + clockText(g.Done)
		}
		return g.ID, text
	case schedule.Withdraw:
		return ev.ID, ""
	case schedule.Adopt:
		return ev.Gang.ID, l.placedText(ev.Gang.Attempt, ev.Placement)
	case schedule.Occupy:
		return ev.Seat.ID, l.placedText(ev.Seat.Attempt, gang.Placement{ev.Place})
	case schedule.Began:
		return ev.ID, attempt(ev.Attempt)
	case schedule.Ending:
		return ev.ID, attempt(ev.Attempt)
	case schedule.Hold:
		if !ev.Held {
			return ev.ID, "no longer"
		}
		return ev.ID, ""
	case schedule.Past:
		return "", fmt.Sprintf("tenant %s has used %.1f GPUs", ev.Tenant, ev.GPUs)
	case schedule.Release:
		return ev.Seat.ID, releaseText(ev.Seat.Attempt, []int{ev.Seat.Member})
	case schedule.WindowSet:
		return "", l.windowText(ev.Window)
	case schedule.WindowGone:
		return "", ev.Name
	case schedule.Saved:
		return ev.ID, fmt.Sprintf("attempt %d, %s done", ev.Attempt, clockText(ev.Done))
	}
	return "", ""
}

// windowText says when a window is, and where.
func (l *replayLog) windowText(w schedule.Window) string {
	where := "the whole cluster"
	switch {
	case len(w.Nodes) > 0:
		names := make([]string, len(w.Nodes))
		for i, id := range w.Nodes {
			names[i] = l.nameOf(id)
		}
		where = strings.Join(names, ", ")
	case w.Level != "":
		where = w.Level + " " + w.Domain
	}
	const form = "01-02 15:04:05"
	return fmt.Sprintf("%s, %s, from %s to %s", w.Name, where, w.From.UTC().Format(form), w.Until.UTC().Format(form))
}

func nodeText(n cluster.Spec) string {
	healthy := 0
	for _, g := range n.GPUs {
		if g.Healthy {
			healthy++
		}
	}
	text := fmt.Sprintf("%s in %s: %d of %d GPUs in order", n.Name, strings.Join(n.Domains, "/"), healthy, len(n.GPUs))
	if n.Name == "" {
		text = fmt.Sprintf("%s: no GPUs seen", short(n.ID))
	}
	switch {
	case !n.GoneAt.IsZero():
		text += ", gone at " + n.GoneAt.UTC().Format("15:04:05")
	case n.Draining:
		text += ", draining"
	case !n.Schedulable:
		text += ", takes nothing"
	}
	if n.Why != "" {
		text += ": " + n.Why
	}
	return text
}

func (l *replayLog) placedText(attempt int, p gang.Placement) string {
	return startedText(sim.Started{Attempt: attempt, GPUs: p.GPUs(), Members: l.members(p)})
}

// name notes the name of a node.
func (l *replayLog) name(n cluster.Spec) {
	if n.Name != "" {
		l.names[n.ID] = n.Name
	}
}

// nameOf is the name of a node, or the beginning of its ID where none is known.
func (l *replayLog) nameOf(id string) string {
	if name := l.names[id]; name != "" {
		return name
	}
	return short(id)
}

// members are a placement with the names of its nodes.
func (l *replayLog) members(p gang.Placement) sim.Members {
	out := make(sim.Members, len(p))
	for i, m := range p {
		out[i] = gang.Member{Node: l.nameOf(m.Node), GPUs: m.GPUs}
	}
	return out
}

// maxGangsShown bounds the gangs of one line.
const maxGangsShown = 4

// decided prints a decision.
func (l *replayLog) decided(at time.Time, d schedule.Decision) error {
	kind := "  " + record.Kind(d)
	switch d := d.(type) {
	case schedule.Start:
		return l.line(at, d.ID, kind, startedText(sim.Started{
			Attempt: d.Attempt, GPUs: d.GPUs, Members: l.members(d.Placement), Warm: d.Warm, ResumedFrom: sim.Seconds(d.Done),
		}))
	case schedule.Stop:
		text := fmt.Sprintf("%s, %s", d.Cause, d.Mode)
		if d.For != "" {
			text += ", for " + string(d.For)
		}
		if d.To > 0 {
			text += fmt.Sprintf(", to %d GPUs", d.To)
		}
		return l.line(at, d.ID, kind, text)
	case schedule.CallOff:
		return l.line(at, d.ID, kind, "it carries on")
	case schedule.Reserve:
		text := "to start at " + d.Start.UTC().Format("15:04:05.000")
		if d.MovedBy != "" {
			text += ", moved by " + d.MovedBy
		}
		return l.line(at, d.ID, kind, text)
	case schedule.Wait:
		return l.waits(at, kind, d)
	}
	return nil
}

func (l *replayLog) waits(at time.Time, kind string, d schedule.Wait) error {
	text := string(d.Code)
	if d.For != "" {
		text += ", " + string(d.For) + " is ahead"
	}
	for i, id := range d.IDs {
		if i >= maxGangsShown && id != l.only {
			continue
		}
		if err := l.line(at, id, kind, text); err != nil {
			return err
		}
	}
	if more := len(d.IDs) - maxGangsShown; more > 0 {
		return l.line(at, "", kind, fmt.Sprintf("%s, %d more", text, more))
	}
	return nil
}
