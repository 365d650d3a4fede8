package schedule

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// Window is a time in which nodes are out of use, known ahead: a maintenance
// window. What would run into it does not start there; from its beginning to its
// end the nodes take nothing, and are left by those that can save their state.
type Window struct {
	Name  string    `json:"name"`
	From  time.Time `json:"from"`
	Until time.Time `json:"until"`
	// Nodes are IDs. Level and Domain name all nodes of a domain, those that come
	// later too. Without either it is of the whole cluster.
	Nodes  []string `json:"nodes,omitempty"`
	Level  string   `json:"level,omitempty"`
	Domain string   `json:"domain,omitempty"`
}

// WindowSet: a window is planned, or another than before under its name.
type WindowSet struct {
	Window Window `json:"window"`
}

// WindowGone: a window is called off. One that is over goes by itself.
type WindowGone struct {
	Name string `json:"name"`
}

// MaxWindows bounds the windows that are planned.
const MaxWindows = 100

func (ev WindowSet) apply(e *Engine) error {
	w := ev.Window
	refuse := func(text string, args ...any) error {
		return fmt.Errorf("plan maintenance window %q: "+text, append([]any{w.Name}, args...)...)
	}
	at := slices.IndexFunc(e.windows, func(o Window) bool { return o.Name == w.Name })
	switch _, known := e.cluster.Level(w.Level); {
	case !w.Until.After(w.From):
		return refuse("it ends at %s, and begins at %s", w.Until.Format(time.RFC3339), w.From.Format(time.RFC3339))
	case !w.Until.After(e.now):
		return refuse("it was over at %s", w.Until.Format(time.RFC3339))
	case w.Level != "" && !known:
		return refuse("the cluster has no level %q", w.Level)
	case at < 0 && len(e.windows) >= MaxWindows:
		return refuse("there are %d already, and may be no more", MaxWindows)
	}
	if at >= 0 {
		e.windows = slices.Delete(e.windows, at, at+1)
	}
	e.windows = append(e.windows, w)
	slices.SortFunc(e.windows, func(a, b Window) int { return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.Name, b.Name)) })
	return e.heedWindows()
}

func (ev WindowGone) apply(e *Engine) error {
	at := slices.IndexFunc(e.windows, func(o Window) bool { return o.Name == ev.Name })
	if at < 0 {
		return fmt.Errorf("call maintenance window %q off: %w", ev.Name, ErrUnknown)
	}
	e.windows = slices.Delete(e.windows, at, at+1)
	return e.heedWindows()
}

// turnWindows has those begin that are due, and forgets those that are over.
func (e *Engine) turnWindows() error {
	if len(e.windows) == 0 || e.now.Before(e.windowsTurn) {
		return nil
	}
	e.windows = slices.DeleteFunc(e.windows, func(w Window) bool { return !w.Until.After(e.now) })
	return e.heedWindows()
}

// heedWindows has each node be what the windows make of it, and notes when that
// changes next.
func (e *Engine) heedWindows() error {
	e.findTurn()
	var refused []error
	for _, n := range slices.Clone(e.cluster.Nodes()) {
		if spec := e.seen(n); e.during(&spec) != nil || e.shut[n.ID] != nil {
			refused = append(refused, e.setNode(spec))
		} else {
			e.foresee(e.bay(n))
		}
	}
	e.called++ // what ends may start who could not
	return errors.Join(refused...)
}

// findTurn notes when a window begins or ends next.
func (e *Engine) findTurn() {
	e.windowsTurn = time.Time{}
	for _, w := range e.windows {
		for _, at := range []time.Time{w.From, w.Until} {
			if at.After(e.now) && (e.windowsTurn.IsZero() || at.Before(e.windowsTurn)) {
				e.windowsTurn = at
			}
		}
	}
}

// seen is a node as it was observed, whatever windows make of it.
func (e *Engine) seen(n *cluster.Node) cluster.Spec {
	if s := e.shut[n.ID]; s != nil {
		return *s
	}
	return n.Spec
}

// heeding is a node as it is by the windows: within one it is like one that is
// drained.
func (e *Engine) heeding(s cluster.Spec) cluster.Spec {
	w := e.during(&s)
	if w == nil {
		delete(e.shut, s.ID)
		return s
	}
	observed := s
	e.shut[s.ID] = &observed
	s.Schedulable, s.Draining = false, true
	if s.Why == "" {
		s.State, s.Why = cluster.NodeMaintenance, fmt.Sprintf("maintenance window %s, until %s", w.Name, w.Until.UTC().Format("2006-01-02 15:04 UTC"))
	}
	return s
}

// covers reports whether a window is of a node.
func (w *Window) covers(s *cluster.Spec, c *cluster.Cluster) bool {
	if slices.Contains(w.Nodes, s.ID) {
		return true
	}
	if w.Level == "" {
		return len(w.Nodes) == 0
	}
	at, known := c.Level(w.Level)
	return known && at < len(s.Domains) && s.Domains[at] == w.Domain
}

// during is the window in which a node is now; nil for none.
func (e *Engine) during(s *cluster.Spec) *Window {
	for i := range e.windows {
		if w := &e.windows[i]; !w.From.After(e.now) && w.covers(s, e.cluster) {
			return w
		}
	}
	return nil
}

// span is a time in which a node will be out of use, in nanoseconds of Unix time.
type span struct{ from, until int64 }

// foresee notes the windows that lie ahead of a node.
func (e *Engine) foresee(b *bay) {
	b.closed = b.closed[:0]
	for i := range e.windows {
		w := &e.windows[i]
		if w.From.After(e.now) && w.covers(&b.node.Spec, e.cluster) {
			b.closed = append(b.closed, span{w.From.UnixNano(), w.Until.UnixNano()})
		}
	}
	at := slices.Index(e.closing, b)
	switch {
	case at < 0 && len(b.closed) > 0:
		e.closing = append(e.closing, b)
	case at >= 0 && len(b.closed) == 0:
		e.closing = slices.Delete(e.closing, at, at+1)
	}
}

// shuts reports whether one of the nodes of a placement will be out of use before
// an end.
func shuts(p []hold, end int64) bool {
	return slices.ContainsFunc(p, func(h hold) bool { return h.bay.shuts(end) })
}

func (b *bay) shuts(end int64) bool { return len(b.closed) > 0 && b.closed[0].from < end }

// bar takes, within a trial, what is free of nodes that will be out of use before
// an end.
func (e *Engine) bar(end int64) {
	for _, b := range e.closing {
		if free := b.node.Free(); free != 0 && b.shuts(end) {
			e.cluster.Take(b.node, free, gang.Need{})
		}
	}
}

// latest is when a gang would be over at a size, on whatever GPUs, if it began
// after a delay.
func (e *Engine) latest(w *waiter, z size, delay time.Duration) int64 {
	var takes time.Duration
	for _, model := range e.modelsFor(z.request) {
		takes = max(takes, w.left(z, model))
	}
	return e.now.Add(delay + w.startup(false) + takes).UnixNano()
}

// wouldEnd is when the gang of a plan would be over if it started now.
func (e *Engine) wouldEnd(p *plan) int64 {
	w := e.waiting[p.owner]
	if w == nil {
		w = e.afterStop(e.runs[p.owner])
	}
	return e.now.Add(w.startup(false) + w.left(p.found.size, p.found.gpu)).UnixNano()
}

// open is the first time, no sooner than one, from which a node is in use for so
// long.
func (b *bay) open(at int64, takes time.Duration) int64 {
	for _, s := range b.closed {
		if at < s.until && nanos(at, takes) > s.from {
			at = s.until
		}
	}
	return at
}

// change is a time from which so many nodes more of a group, or less, could take
// a member.
type change struct {
	at    int64
	group int
	by    int
}

// whenOpen is the first time at which so many nodes are free, and stay in use for
// so long, as a request has members; each segment is within one leaf.
func (e *Engine) whenOpen(open []opening, r request, by int64, takes time.Duration) int64 {
	segment := max(1, r.segment)
	groups := make(map[*cluster.Domain]int)
	var changes []change
	for _, o := range open {
		group := 0
		if last := len(e.cluster.Levels()) - 1; r.segment > 0 && last >= 0 {
			leaf := o.bay.node.Domain(last)
			if _, known := groups[leaf]; !known {
				groups[leaf] = len(groups)
			}
			group = groups[leaf]
		}
		changes = o.bay.changes(changes, group, max(o.at, e.now.UnixNano()), takes)
	}
	slices.SortFunc(changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.group, b.group), cmp.Compare(b.by, a.by))
	})
	counts := make([]int, max(1, len(groups)))
	members := 0
	for i, c := range changes {
		members -= counts[c.group] / segment * segment
		counts[c.group] += c.by
		members += counts[c.group] / segment * segment
		if members >= r.members && c.at <= by && (i+1 == len(changes) || changes[i+1].at > c.at) {
			return c.at
		}
	}
	return never
}

// changes appends when a node that is free from a time could take a member that
// takes so long, and when no longer.
func (b *bay) changes(out []change, group int, at int64, takes time.Duration) []change {
	for _, s := range b.closed {
		switch last := s.from - int64(takes); {
		case at >= s.until:
		case at <= last:
			out = append(out, change{at, group, 1}, change{last + 1, group, -1})
			at = s.until
		default:
			at = s.until
		}
	}
	return append(out, change{at, group, 1})
}
