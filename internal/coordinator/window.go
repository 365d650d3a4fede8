package coordinator

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// WindowRequest plans a maintenance window, or another than before under its name.
// Its nodes may be named by their names.
type WindowRequest struct {
	Window gang.Window
	Reply  int
}

// WindowGoneRequest calls one off.
type WindowGoneRequest struct {
	Name  string
	Reply int
}

func (WindowRequest) input()     {}
func (WindowGoneRequest) input() {}

// window is one that is planned.
type window struct {
	rec     gang.Window
	gone    bool
	touched bool
}

func (w *window) forEngine() schedule.Window {
	return schedule.Window{
		Name: w.rec.Name, From: time.UnixMilli(w.rec.From).UTC(), Until: time.UnixMilli(w.rec.Until).UTC(),
		Nodes: w.rec.Nodes, Level: w.rec.Level, Domain: w.rec.Domain,
	}
}

func (c *Core) planWindow(in WindowRequest) {
	rec := in.Window
	rec.Version = gang.SchemaVersion
	err := rec.Validate()
	if err == nil && !c.listed {
		err = fmt.Errorf("gangd has just taken over and knows no nodes yet: %w", gang.ErrNotNow)
	}
	if err == nil {
		rec.Nodes, err = c.nodesNamed(rec.Nodes)
	}
	w := &window{rec: rec}
	if err == nil {
		if refused := c.decide(schedule.WindowSet{Window: w.forEngine()}); refused != nil {
			err = gang.Refuse("%v", refused)
		}
	}
	if err != nil {
		c.act(Answer{Reply: in.Reply, Err: fmt.Errorf("plan maintenance: %w", err)})
		return
	}
	c.windows[rec.Name] = w
	c.touchWindow(w)
	c.act(Answer{Reply: in.Reply})
}

// nodesNamed are the IDs of nodes that are named by them, or by their names.
func (c *Core) nodesNamed(names []string) ([]string, error) {
	var out []string
	for _, name := range names {
		ids := make([]string, 0, 1)
		for _, n := range c.engine.Cluster().Nodes() {
			if n.ID == name || n.Name == name {
				ids = append(ids, n.ID)
			}
		}
		switch len(ids) {
		case 0:
			return nil, gang.RefuseField("nodes", "there is no node %q: gangd nodes lists them", name)
		case 1:
			out = append(out, ids[0])
		default:
			return nil, gang.RefuseField("nodes", "%d nodes have the name %q: name one by its ID, %s", len(ids), name, strings.Join(ids, " or "))
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func (c *Core) callWindowOff(in WindowGoneRequest) {
	w := c.windows[in.Name]
	if w == nil {
		c.act(Answer{Reply: in.Reply, Err: fmt.Errorf("call maintenance window %q off: %w", in.Name, gang.ErrNoWindow)})
		return
	}
	c.forgetWindow(w)
	if err := c.decide(schedule.WindowGone{Name: in.Name}); err != nil && !errors.Is(err, schedule.ErrUnknown) { // it may be over
		c.fault("call maintenance off: %w", err)
	}
	c.act(Answer{Reply: in.Reply})
}

// endWindows forgets the windows that are over; the engine has by itself.
func (c *Core) endWindows() {
	for _, name := range sortedIDs(c.windows) {
		if w := c.windows[name]; !c.now.Before(time.UnixMilli(w.rec.Until)) {
			c.forgetWindow(w)
		}
	}
}

func (c *Core) forgetWindow(w *window) {
	delete(c.windows, w.rec.Name)
	w.gone = true
	c.touchWindow(w)
}

func (c *Core) touchWindow(w *window) {
	if !w.touched {
		w.touched = true
		c.touchedWindows = append(c.touchedWindows, w)
	}
}

// restoreWindows takes over what was planned and is not over.
func (c *Core) restoreWindows(recs []*gang.Window) {
	for _, rec := range recs {
		w := &window{rec: *rec}
		c.windows[rec.Name] = w
		if !c.now.Before(time.UnixMilli(rec.Until)) {
			continue // the next tick forgets it
		}
		if err := c.decide(schedule.WindowSet{Window: w.forEngine()}); err != nil {
			c.fault("take a maintenance window over: %w", err)
		}
	}
}

// windowStatuses lists the windows by their beginning.
func (c *Core) windowStatuses() []gang.WindowStatus {
	out := []gang.WindowStatus{}
	for _, name := range sortedIDs(c.windows) {
		w := c.windows[name]
		s := gang.WindowStatus{Window: w.rec}
		for _, id := range w.rec.Nodes {
			name := id
			if n := c.engine.Cluster().Node(id); n != nil {
				name = cmp.Or(n.Name, id)
			}
			s.NodeNames = append(s.NodeNames, name)
		}
		out = append(out, s)
	}
	slices.SortStableFunc(out, func(a, b gang.WindowStatus) int { return cmp.Compare(a.From, b.From) })
	return out
}
