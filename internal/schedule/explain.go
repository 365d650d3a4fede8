package schedule

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// shortage is what keeps a request from being placed now.
type shortage struct {
	code   gang.Code
	domain *cluster.Domain // the one that comes nearest
	model  string
	nodes  int // with enough free GPUs there
}

// code finds in one word why a request that does not fit does not: for plain ones
// of an outline it is the same word.
func (e *Engine) code(r request) gang.Code {
	r = e.relax(r)
	model, plain := e.plain(&r)
	if !plain || r.perNode == 0 || r.missing != "" || e.cluster.Root().GPUs(cluster.Usable, model) == 0 {
		return e.shortage(r).code
	}
	key := outline{members: r.members, perNode: r.perNode, require: r.require, model: model}
	c, known := e.codes[key]
	if !known || c.version != e.cluster.Version() {
		c = codeOf{e.cluster.Version(), e.shortage(r).code}
		if len(e.codes) >= maxSpots {
			clear(e.codes)
		}
		e.codes[key] = c
	}
	return c.code
}

// codeOf is why the requests of an outline have no room in a state of the cluster.
type codeOf struct {
	version uint64
	code    gang.Code
}

func (e *Engine) shortage(r request) shortage {
	r = e.relax(r)
	root := e.cluster.Root()
	if r.perNode == 0 { // no node was ever seen that could tell
		return shortage{code: gang.CodeCapacity, domain: root, model: r.model}
	}
	if r.missing != "" {
		return shortage{code: gang.CodeTopology, domain: root, model: r.model}
	}
	if r.model != "" && root.GPUs(cluster.Usable, r.model) == 0 {
		return shortage{code: gang.CodeGPUModel, domain: root, model: r.model}
	}
	best := shortage{domain: root, model: r.model, nodes: -1}
	var free room
	anyMemory := r
	anyMemory.memoryMiB = 0
	for _, model := range e.modelsFor(r) {
		free.any += e.suitable(root, anyMemory, model)
		free.one = max(free.one, e.suitable(root, r, model))
		e.descend(root, -1, r.require, func(*cluster.Domain) bool { return true }, func(d *cluster.Domain) {
			free.near = max(free.near, e.suitable(d, r, model))
			if n := e.enough(d, r, model); n > best.nodes {
				best = shortage{domain: d, model: model, nodes: n}
			}
		})
	}
	best.code = free.code(r.members * r.perNode)
	return best
}

// room is how many GPUs are free: of any model and memory, of the one model that
// has most with memory enough, and of one in a domain of the level that is
// required.
type room struct{ any, one, near int }

func (f room) code(need int) gang.Code {
	switch {
	case f.any < need:
		return gang.CodeCapacity
	case f.one < need:
		return gang.CodeGPUModel
	case f.near < need:
		return gang.CodeTopology
	default:
		return gang.CodeFragmented
	}
}

// suitable counts the free GPUs of a domain that the request could use if their
// number on each node did not matter; enough counts the nodes that could take a
// member.
func (e *Engine) suitable(d *cluster.Domain, r request, model string) int {
	if e.exact(&r, model) {
		return d.GPUs(cluster.Free, model)
	}
	gpus := 0
	anywhere := r
	anywhere.perNode, anywhere.need = 1, gang.Need{}
	for _, n := range e.eligible(d, anywhere, model, cluster.Free) {
		if !lacksRoom(n, r) {
			gpus += n.Free().Count()
		}
	}
	return gpus
}

// lacksRoom reports whether a node has GPUs for a member of a request, and not
// the CPU and memory.
func lacksRoom(n *cluster.Node, r request) bool {
	return n.Free().Count() >= r.perNode && !n.Fits(cluster.Free, r.need)
}

func (e *Engine) enough(d *cluster.Domain, r request, model string) int {
	if e.exact(&r, model) {
		return d.NodesWith(cluster.Free, model, r.perNode)
	}
	return len(e.eligible(d, r, model, cluster.Free))
}

// Explain says why a gang waits, with numbers: the code, a sentence, and its
// place in the queue, from 1, as of the last event. It reports false for a gang that
// does not wait.
func (e *Engine) Explain(id gang.ID) (code gang.Code, reason string, position int, waits bool) {
	return e.Explainer(e.now).Explain(id)
}

// Explainer says why gangs wait. What many of them share it finds out once, so
// that to explain the whole queue costs little more than to walk over it. It
// holds until the engine's next event.
type Explainer struct {
	engine *Engine
	now    time.Time
	place  map[gang.ID]int
	shapes map[*shape]string
	behind string // the head of the queue
}

// Explainer makes one for the queue as it stands, at a time since the engine's
// last event, which may be long ago: nothing happens where nothing is decided.
func (e *Engine) Explainer(now time.Time) *Explainer {
	return &Explainer{engine: e, now: now, shapes: make(map[*shape]string)}
}

// Explain is Engine.Explain.
func (x *Explainer) Explain(id gang.ID) (code gang.Code, reason string, position int, waits bool) {
	w := x.engine.waiting[id]
	if w == nil {
		return "", "", 0, false
	}
	if x.place == nil {
		x.place = x.engine.places()
	}
	return w.told(), x.sentence(w), x.place[id], true
}

// Waits reports whether a gang waits.
func (e *Engine) Waits(id gang.ID) bool { return e.waiting[id] != nil }

// Reasons says in sentences why gangs wait, in their order; one that does not
// wait has none.
func (e *Engine) Reasons(ids []gang.ID) []string {
	x := e.Explainer(e.now)
	out := make([]string, len(ids))
	for i, id := range ids {
		if w := e.waiting[id]; w != nil {
			out[i] = x.sentence(w)
		}
	}
	return out
}

// places are the gangs that wait by their place in the order, from 1, if none
// started.
func (e *Engine) places() map[gang.ID]int {
	out := make(map[gang.ID]int, len(e.waiting))
	e.round++
	o := e.newOrder()
	o.all = true
	for w := o.next(); w != nil; w = o.next() {
		out[w.ID] = len(out) + 1
		if o.phase == byMinShare {
			o.owed = o.owed[1:]
		}
	}
	return out
}

// sentence says why a gang waits, and what it would take.
func (x *Explainer) sentence(w *waiter) string {
	e := x.engine
	if w.told() == gang.CodeReservedOther && e.cfg.Policy.NoBackfill && e.waiting[w.ahead] != nil {
		return x.behindHead(e.waiting[w.ahead])
	}
	own, known := x.shapes[w.shape]
	if !known {
		r := w.shape.sizes[0].request
		own = e.sentence(r, e.shortage(r)) + e.roomless(r)
		x.shapes[w.shape] = own
	}
	starts := ""
	if w.claims == e.decided && !w.start.IsZero() {
		starts = fmt.Sprintf("; it should start in %s", max(0, w.start.Sub(x.now)).Round(time.Second))
	}
	switch w.told() {
	case gang.CodeHeld:
		return "is held by its user"
	case gang.CodeBackoff:
		return fmt.Sprintf("rests for %s", max(0, w.NotBefore.Sub(x.now)).Round(time.Second))
	case gang.CodeQuota:
		return fmt.Sprintf("tenant %s runs on %d GPUs, and may have at most %d", w.tenant.Name, w.tenant.running, w.tenant.MaxGPUs)
	case gang.CodeVictims:
		return fmt.Sprintf("starts on what others leave, within %s; %s", max(0, w.plan.by.Sub(x.now)).Round(time.Second), x.victims(w.plan))
	case gang.CodeReservedOther:
		ahead := "a gang that is before it"
		if w.ahead != "" {
			ahead = string(w.ahead)
		}
		return fmt.Sprintf("there is room, and to start there would move the start of %s%s", ahead, starts)
	case gang.CodeMaintenance:
		return x.untilWindow(w) + starts
	case gang.CodeFairShare:
		return fmt.Sprintf("another tenant, with less of its share (this one has %.1f GPUs for its weight), took the room%s", e.share(w.tenant), starts)
	}
	return own + starts
}

// untilWindow says which window a gang would run into.
func (x *Explainer) untilWindow(w *waiter) string {
	e := x.engine
	for _, window := range e.windows {
		if left := window.From.Sub(x.now); left > 0 {
			takes := time.Duration(e.latest(w, w.shape.sizes[0], 0) - e.now.UnixNano())
			return fmt.Sprintf("there is room, and maintenance window %s begins there in %s: it takes %s, by its estimate",
				window.Name, left.Round(time.Second), takes.Round(time.Second))
		}
	}
	return "there is room, and a maintenance window begins there before it would be over"
}

// roomless tells of the node that comes nearest of those that have GPUs for a
// member, and not the CPU or memory; it is empty where none is such.
func (e *Engine) roomless(r request) string {
	r = e.relax(r)
	var best *cluster.Node
	others := 0
	for _, model := range e.modelsFor(r) {
		if r.perNode == 0 || !e.scarce(&r, model) {
			continue
		}
		free := r
		free.need = gang.Need{}
		for _, n := range e.eligible(e.cluster.Root(), free, model, cluster.Free) {
			if !lacksRoom(n, r) {
				continue
			}
			others++
			if best == nil || n.Left(cluster.Free).MemoryMiB > best.Left(cluster.Free).MemoryMiB {
				best = n
			}
		}
	}
	if best == nil {
		return ""
	}
	more := ""
	if others--; others > 0 {
		more = fmt.Sprintf(", and so it is on %s more", nodes(others))
	}
	left, takes := beside(best, r.need)
	return fmt.Sprintf("; %s has %d free GPUs and %s left, a member takes %s%s", best.Name, best.Free().Count(), left, takes, more)
}

// beside says what a node has left of what a member needs more of, and how much
// a member takes of that.
func beside(n *cluster.Node, need gang.Need) (left, takes string) {
	has, cost := n.Left(cluster.Free), n.Cost(need)
	if n.Capacity.MemoryMiB > 0 && cost.MemoryMiB > has.MemoryMiB {
		return memory(max(0, has.MemoryMiB)) + " of memory", memory(cost.MemoryMiB)
	}
	takes = fmt.Sprintf("%d MHz", cost.CPUMHz)
	if need.Cores > 0 {
		takes = fmt.Sprintf("%d cores, which are %s there", need.Cores, takes)
	}
	return fmt.Sprintf("%d MHz of CPU", max(0, has.CPUMHz)), takes
}

// behindHead is the sentence of all that wait behind a blocked gang.
func (x *Explainer) behindHead(head *waiter) string {
	if x.behind == "" {
		x.behind = fmt.Sprintf("waits behind %s (%s), which is first in the order and does not fit yet: %s", head.ID, head.tier.Name, x.sentence(head))
	}
	return x.behind
}

func (x *Explainer) victims(p *plan) string {
	var who []string
	for _, v := range p.victims {
		who = append(who, string(v.id))
	}
	if len(who) == 0 {
		return "it is being resized"
	}
	return "stopping: " + strings.Join(who, ", ")
}

// sentence says what the request needs, what is there, and so what is short.
func (e *Engine) sentence(r request, s shortage) string {
	if r.missing != "" {
		return fmt.Sprintf("topology.require: the cluster no longer has the level %q: it has %v, widest first", r.missing, e.cluster.Levels())
	}
	have := e.have(s.model)
	switch s.code {
	case gang.CodeTopology, gang.CodeFragmented:
		each := ""
		if r.members > 1 {
			each = " each"
		}
		return fmt.Sprintf("needs %s with %d free GPUs%s%s; %s (%s)", nodes(r.members), r.perNode, each, e.bounds(r), e.nearest(r, s), have)
	case gang.CodeGPUModel:
		kind := " of one model"
		if r.model != "" {
			kind = ofModel(r.model)
		}
		if r.memoryMiB > 0 {
			have = fmt.Sprintf("%s such are free (%s)", numberOf(e.suitable(e.cluster.Root(), r, s.model)), have)
		}
		return "needs " + gpusOf(r, kind+withMemory(r.memoryMiB)) + e.bounds(r) + "; " + have
	}
	bare := r
	bare.need = gang.Need{} // that is told by itself
	if !e.couldRun(bare) {
		have += "; it cannot start before nodes or GPUs that are out of order come back"
	}
	return "needs " + gpusOf(r, "") + e.bounds(r) + "; " + have
}

// have says how many GPUs of a model there are, whatever their places.
func (e *Engine) have(model string) string {
	root := e.cluster.Root()
	free, usable := root.GPUs(cluster.Free, model), root.GPUs(cluster.Usable, model)
	model = cmp.Or(model, "GPU")
	if usable == 0 {
		return fmt.Sprintf("no %s is in working order", model)
	}
	return fmt.Sprintf("%d of %d usable %s are free in all", free, usable, model)
}

// bounds says where the members of a request may lie, as the end of a phrase.
func (e *Engine) bounds(r request) string {
	text := ""
	if r.require >= 0 {
		text = " in one " + e.cluster.Levels()[r.require]
	}
	var avoid []string
	for _, id := range e.relax(r).avoid {
		if n := e.cluster.Node(id); n != nil {
			id = n.Name
		}
		avoid = append(avoid, id)
	}
	if len(avoid) > 0 {
		text += fmt.Sprintf(" outside %s, where it failed", strings.Join(avoid, ", "))
	}
	return text
}

// nearest says how far the best domain is from what the request needs.
func (e *Engine) nearest(r request, s shortage) string {
	switch {
	case s.nodes <= 0:
		return "none has that"
	case r.require < 0 && s.nodes == 1:
		return "only 1 has that"
	case r.require < 0:
		return fmt.Sprintf("only %d have that", s.nodes)
	}
	return fmt.Sprintf("%s comes nearest, with %d", path(s.domain), s.nodes)
}

// gpusOf names the GPUs of a request, of a kind, and how they are to lie.
func gpusOf(r request, kind string) string {
	gpus := fmt.Sprintf("%d GPUs%s", r.members*max(r.perNode, 1), kind)
	switch {
	case r.perNode == 0: // unknown yet
		return gpus
	case r.members == 1:
		return gpus + " on one node"
	}
	return fmt.Sprintf("%s (%s x %d)", gpus, nodes(r.members), r.perNode)
}

// numberOf begins a sentence about so many.
func numberOf(n int) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprint(n)
}

func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

func ofModel(model string) string {
	if model == "" {
		return ""
	}
	return " of model " + model
}

func withMemory(mib int) string {
	if mib == 0 {
		return ""
	}
	return " with " + memory(mib) + " each"
}

func memory(mib int) string {
	if mib%1024 == 0 {
		return fmt.Sprintf("%d GiB", mib/1024)
	}
	return fmt.Sprintf("%d MiB", mib)
}

// path names a domain with those around it, e.g. "s0/l1".
func path(d *cluster.Domain) string {
	if d == nil || d.Parent == nil {
		return "the cluster"
	}
	if d.Parent.Parent == nil {
		return d.Name
	}
	return path(d.Parent) + "/" + d.Name
}
