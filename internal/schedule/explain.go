package schedule

import (
	"cmp"
	"fmt"
	"strings"

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

// code finds in one word why a request that does not fit does not.
func (e *Engine) code(r request) gang.Code { return e.shortage(r).code }

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
	for _, model := range e.models(r) {
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
	if r.exact() {
		return d.GPUs(cluster.Free, model)
	}
	gpus := 0
	r.perNode = 1
	for _, n := range e.eligible(d, r, model, cluster.Free) {
		gpus += n.Free().Count()
	}
	return gpus
}

func (e *Engine) enough(d *cluster.Domain, r request, model string) int {
	if r.exact() {
		return d.NodesWith(cluster.Free, model, r.perNode)
	}
	return len(e.eligible(d, r, model, cluster.Free))
}

// Explain says why a gang waits, with numbers: the code, a sentence, and its
// place in the queue, from 1. It reports false for a gang that does not wait.
func (e *Engine) Explain(id gang.ID) (code gang.Code, reason string, position int, waits bool) {
	return e.Explainer().Explain(id)
}

// Explainer says why gangs wait. What many of them share it finds out once, so
// that to explain the whole queue costs little more than to walk over it. It
// holds until the engine's next event.
type Explainer struct {
	engine *Engine
	looked bool
	// first is the gang that the others wait for, at its place in the queue;
	// behind is the sentence about it. It is nil where none is held back by
	// another.
	first   *waiter
	firstAt int
	behind  string
	// shapes holds what was found of those that wait for no other gang.
	shapes map[string]explanation
}

type explanation struct {
	code   gang.Code
	reason string
}

// Explainer makes one for the queue as it stands.
func (e *Engine) Explainer() *Explainer {
	return &Explainer{engine: e, shapes: make(map[string]explanation)}
}

// Explain is Engine.Explain.
func (x *Explainer) Explain(id gang.ID) (code gang.Code, reason string, position int, waits bool) {
	w := x.engine.waiting[id]
	if w == nil {
		return "", "", 0, false
	}
	if !x.looked {
		x.look()
	}
	position = x.engine.position(w)
	if x.first != nil && x.firstAt < position {
		if x.behind == "" {
			x.behind = fmt.Sprintf("waits behind %s (%s), which is first in the order and does not fit yet: %s",
				x.first.ID, x.first.tier.Name, x.own(x.first.want).reason)
		}
		return gang.CodeReservedOther, x.behind, position, true
	}
	own := x.own(w.want)
	return own.code, own.reason, position, true
}

// look finds the first gang that holds back those behind it.
func (x *Explainer) look() {
	x.looked = true
	for _, t := range x.engine.tiers {
		for _, w := range t.queue {
			x.firstAt++
			if !w.stuck {
				x.first = w
				return
			}
		}
	}
}

// own explains a request by itself.
func (x *Explainer) own(r request) explanation {
	shape := fmt.Sprintf("%#v", r)
	known, is := x.shapes[shape]
	if !is {
		s := x.engine.shortage(r)
		known = explanation{s.code, x.engine.sentence(r, s)}
		x.shapes[shape] = known
	}
	return known
}

// position is a gang's place in the queue, from 1.
func (e *Engine) position(w *waiter) int {
	position := 1
	for _, t := range e.tiers {
		if t == w.tier {
			break
		}
		position += len(t.queue)
	}
	at, _ := w.tier.find(w.Seq)
	return position + at
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
		return "needs " + shape(r, kind+withMemory(r.memoryMiB)) + e.bounds(r) + "; " + have
	}
	if !e.couldRun(r) {
		have += "; it cannot start before nodes or GPUs that are out of order come back"
	}
	return "needs " + shape(r, "") + e.bounds(r) + "; " + have
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

// shape is the GPUs of a request, of a kind, and how they are to lie.
func shape(r request, kind string) string {
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
