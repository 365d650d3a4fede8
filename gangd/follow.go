package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

// redrawInterval is how often the live line counts down between two steps.
const redrawInterval = 250 * time.Millisecond

// follower prints what happens to gangs: a line for each change and, on a
// terminal, a last line that is drawn again and again.
type follower struct {
	t     *terminal
	c     *client
	quiet bool
	gangs []*followed
	// drawn says that the cursor is on a live line.
	drawn bool
}

// followed is one gang, as it was last heard of and shown.
type followed struct {
	gang.Status
	// heard is when the progress came.
	heard time.Time
	// said is what the last line was about, tenths the progress last printed
	// where no line can be drawn again.
	said   phase
	tenths int
	ended  bool
}

// phase is what a change of is worth a line. A place in the queue, and the
// numbers in a reason, change too often for that.
type phase struct {
	state gang.State
	code  gang.Code
	why   string
}

func newFollower(t *terminal, c *client, gangs []gang.Status, quiet bool) *follower {
	f := &follower{t: t, c: c, quiet: quiet}
	for _, g := range gangs {
		f.gangs = append(f.gangs, &followed{Status: g})
	}
	return f
}

// follow returns the gangs once all have ended. An error says that they could
// not be followed so long; they go on.
func (f *follower) follow(ctx context.Context) ([]gang.Status, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	updates := make(chan update)
	for _, g := range f.gangs {
		f.print("==> %s accepted: %s", g.ID, requestText(g.Status))
		go f.c.watch(ctx, g.ID, updates)
	}
	redraw := make(<-chan time.Time)
	if f.t.live && !f.quiet && f.t.redraw > 0 {
		ticker := time.NewTicker(f.t.redraw)
		defer ticker.Stop()
		redraw = ticker.C
	}
	defer f.erase()
	for left := len(f.gangs); left > 0; {
		select {
		case u := <-updates:
			if u.err != nil {
				return nil, u.err
			}
			if f.apply(u) {
				left--
			}
			f.draw()
		case <-redraw:
			f.draw()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	var ended []gang.Status
	for _, g := range f.gangs {
		ended = append(ended, g.Status)
	}
	return ended, nil
}

func requestText(g gang.Status) string {
	return fmt.Sprintf("%d GPUs%s, template %s, tier %s", g.GPUs, shapeText(g), g.Template, g.Tier)
}

// apply takes in an update, and reports whether the gang has ended by it.
func (f *follower) apply(u update) bool {
	var g *followed
	for _, each := range f.gangs {
		if each.ID == u.id {
			g = each
		}
	}
	if g == nil || g.ended {
		return false
	}
	if u.retrying != nil {
		f.say(g, fmt.Sprintf("out of reach, trying again: %v", u.retrying))
		return false
	}
	if u.progress != nil {
		g.Progress = u.progress
	}
	if u.status != nil {
		g.Status = *u.status
	}
	g.heard = f.t.now()
	if g.State.Terminal() {
		g.ended = true
		f.conclude(g.Status)
		return true
	}
	if now := (phase{g.State, g.Code, g.Why}); now != g.said {
		g.said = now
		f.say(g, changeText(g.Status))
	}
	f.plainProgress(g)
	return false
}

// changeText says in a line where a gang stands, without what changes at
// every step.
func changeText(g gang.Status) string {
	switch g.State {
	case gang.Queued, gang.Reserved:
		text := string(g.State)
		if g.Position > 0 {
			text += fmt.Sprintf(" at position %d", g.Position)
		}
		if why := whyText(g); why != "" {
			text += ": " + why
		}
		return text
	case gang.Launching:
		return "launching on " + placementText(g)
	case gang.Running, gang.Finishing:
		return string(g.State) // what ended an earlier attempt was told then
	}
	if g.Why != "" {
		return string(g.State) + ": " + g.Why
	}
	return string(g.State)
}

// maxPlacementShown bounds the nodes that a line names.
const maxPlacementShown = 8

func placementText(g gang.Status) string {
	var parts []string
	for i, m := range g.Lanes {
		if i == maxPlacementShown {
			parts = append(parts, fmt.Sprintf("and %d more nodes", len(g.Lanes)-i))
			break
		}
		parts = append(parts, fmt.Sprintf("%s[%s]", m.NodeName, ranges(m.GPUs)))
	}
	if len(parts) == 0 {
		return fmt.Sprintf("%d GPUs%s", g.GPUs, shapeText(g))
	}
	return strings.Join(parts, " ")
}

// plainProgress prints every tenth of the steps where there is no live line.
func (f *follower) plainProgress(g *followed) {
	if f.t.live || g.State != gang.Running || g.Progress == nil || g.Progress.Steps == 0 {
		return
	}
	tenths := 10 * g.Progress.Step / g.Progress.Steps
	if tenths == g.tenths {
		return
	}
	g.tenths = tenths
	f.say(g, progressText(*g.Progress, 0, 20))
}

// say prints a line about a gang, with its age; its ID is of use only where
// there are several.
func (f *follower) say(g *followed, line string) {
	id := ""
	if len(f.gangs) > 1 {
		id = string(g.ID) + "  "
	}
	f.print("    %s%8s  %s", id, "+"+duration(f.t.now().Sub(millis(g.Accepted))), strings.ReplaceAll(line, "\n", " "))
}

// conclude prints the end of a gang.
func (f *follower) conclude(g gang.Status) {
	f.print("==> %s %s%s", g.ID, g.State, spentText(g))
	if g.State != gang.Succeeded && g.Why != "" {
		f.print("    %s", strings.ReplaceAll(g.Why, "\n", "\n    "))
	}
	if logs := logsText(g); logs != "" {
		f.print("    logs      %s", logs)
	}
	if a := g.Artifact; a != nil {
		f.print("    artifact  %s (%s, %s)", a.Key, bytesText(a.Bytes), a.ContentType)
		f.print("    sha256    %s", a.SHA256)
	}
}

// spentText says where the time went.
func spentText(g gang.Status) string {
	at := g.Times
	if at.Ended == 0 {
		return ""
	}
	text := " after " + duration(millis(at.Ended).Sub(millis(g.Accepted)))
	if at.Decided == 0 || at.Started == 0 {
		return text
	}
	// Before a later attempt was decided, the gang did more than wait.
	before := fmt.Sprintf("waited %s, started", duration(millis(at.Decided).Sub(millis(g.Accepted))))
	if g.Attempt > 1 {
		before = fmt.Sprintf("attempt %d started", g.Attempt)
	}
	return text + fmt.Sprintf(": %s in %s, ran %s", before,
		duration(millis(at.Started).Sub(millis(at.Decided))), duration(millis(at.Ended).Sub(millis(at.Started))))
}

// goesOn says that leaving does not end the gangs.
func (f *follower) goesOn() {
	for _, g := range f.gangs {
		if !g.ended {
			fmt.Fprintf(f.t.err, "%s goes on. Look at it with: gangd status %s\nEnd it with: gangd cancel %s\n", g.ID, g.ID, g.ID)
		}
	}
}

func (f *follower) print(format string, args ...any) {
	if f.quiet {
		return
	}
	f.erase()
	fmt.Fprintln(f.t.out, clean(fmt.Sprintf(format, args...)))
}

// draw puts the live line on a terminal.
func (f *follower) draw() {
	if !f.t.live || f.quiet {
		return
	}
	f.erase()
	if text := f.liveText(); text != "" {
		fmt.Fprint(f.t.out, ellipsis(clean(text), max(f.t.width()-1, 0)))
		f.drawn = true
	}
}

// erase takes the live line away.
func (f *follower) erase() {
	if f.drawn {
		fmt.Fprint(f.t.out, "\r\x1b[K")
		f.drawn = false
	}
}

// since is when the present state of a gang began, as its record tells.
func since(g gang.Status) int64 {
	switch g.State {
	case gang.Queued, gang.Reserved:
		return cmp.Or(g.Times.Queued, g.Accepted)
	case gang.Launching:
		return g.Times.Decided
	case gang.Running:
		return g.Times.Started
	}
	if a := g.EndedAttempt(); a != nil {
		return a.Ended
	}
	return g.Accepted
}

func (f *follower) liveText() string {
	var parts []string
	for _, g := range f.gangs {
		switch {
		case g.ended:
		case len(f.gangs) > 1:
			parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %s %s", g.ID, stateText(g.Status), stepText(g.Progress))))
		case g.State == gang.Running && g.Progress != nil:
			return "    " + progressText(*g.Progress, f.t.now().Sub(g.heard), 30)
		default:
			text := fmt.Sprintf("    %s for %s", stateText(g.Status), duration(f.t.now().Sub(millis(since(g.Status)))))
			if g.Reason != "" {
				text += ": " + g.Reason
			}
			return text
		}
	}
	return strings.Join(parts, " | ")
}
