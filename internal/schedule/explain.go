package schedule

import (
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
	root := e.cluster.Root()
	model := s.model
	if model == "" {
		model = "GPU"
	}
	shape := fmt.Sprintf("needs %d x %d GPUs", r.members, r.perNode)
	if r.perNode == 0 {
		shape = fmt.Sprintf("needs %d GPUs", r.members)
	}
	if r.require >= 0 {
		shape += fmt.Sprintf(" in one %s", e.cluster.Levels()[r.require])
	}
	if avoid := e.relax(r).avoid; len(avoid) > 0 {
		shape += fmt.Sprintf(" outside %s, where it failed", strings.Join(avoid, ", "))
	}
	have := fmt.Sprintf("%d of %d usable %s are free in all", root.GPUs(cluster.Free, s.model), root.GPUs(cluster.Usable, s.model), model)
	switch s.code {
	case gang.CodeGPUModel:
		kind := " of one model"
		if r.model != "" {
			kind = ofModel(r.model)
		}
		if r.memoryMiB > 0 {
			kind += fmt.Sprintf(" with %d MiB each", r.memoryMiB)
		}
		return shape + kind + "; " + have
	case gang.CodeTopology, gang.CodeFragmented:
		return fmt.Sprintf("%s; %s, and the best place, %s, has %d of %d nodes with %d free", shape, have, path(s.domain), s.nodes, r.members, r.perNode)
	default:
		hint := ""
		if !e.couldRun(r) {
			hint = "; it cannot start before nodes or GPUs that are out of order come back"
		}
		return shape + "; " + have + hint
	}
}

// neverFits is the refusal of what could not run on the idle cluster.
func (e *Engine) neverFits(s *gang.Spec, r request) error {
	root := e.cluster.Root()
	gpus, nodes := 0, len(e.cluster.Nodes())
	for _, m := range e.models(r) {
		gpus += root.GPUs(cluster.Total, m)
	}
	if gpus < s.GPUs || r.perNode == 0 {
		return gang.Refuse("gpus: %d are asked for, and the cluster has %d%s on %d nodes", s.GPUs, gpus, ofModel(s.GPU), nodes)
	}
	where := "the cluster"
	if r.require >= 0 {
		where = "one " + e.cluster.Levels()[r.require]
	}
	most := 0
	for _, m := range e.models(r) {
		e.descend(root, -1, r.require, func(*cluster.Domain) bool { return true }, func(d *cluster.Domain) {
			most = max(most, len(e.eligible(d, r, m, cluster.Total)))
		})
	}
	return gang.Refuse("gpus: %d as %d x %d%s within %s are asked for, and there are at most %d nodes with %d such GPUs there: ask for fewer, for a smaller gpus_per_node, or for a wider topology.require",
		s.GPUs, r.members, r.perNode, ofModel(s.GPU), where, most, r.perNode)
}

func ofModel(model string) string {
	if model == "" {
		return ""
	}
	return " of model " + model
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
