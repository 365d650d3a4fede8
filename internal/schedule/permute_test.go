package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gangd/gangd/internal/soak"
)

// eventfulPlayer has more happen at one instant, so that there is an order that
// must not matter.
type eventfulPlayer struct{ *player }

// Upheaval: nodes change, gangs end, and others come, all at once.
func (p eventfulPlayer) Upheaval(t *rapid.T) {
	var all Together
	for range rapid.IntRange(1, 4).Draw(t, "nodes") {
		n := p.drawNode(t)
		all = append(slices.DeleteFunc(all, func(ev Event) bool { return ev.(NodeSet).Node.ID == n.ID }), NodeSet{n})
	}
	for _, id := range p.running() {
		if !p.waiting[id] && rapid.Bool().Draw(t, "ends") {
			all = append(all, p.gone(id)...)
		}
	}
	for range rapid.IntRange(0, 4).Draw(t, "submissions") {
		g := p.drawGang(t)
		g.Accepted = true
		all = append(all, Submit{g})
	}
	must(t, p.apply(t, all))
}

// The order in which equal things are told changes no decision: that of tenants,
// models and tiers in the configuration, and of the changes of nodes, arrivals and
// ends of one instant. (Nodes that appear are told in the order that decides
// between equal places.)
func TestTheOrderOfEqualInputsDoesNotMatter(t *testing.T) {
	soak.Check(t, 30_000, func(t *rapid.T) int {
		p := newPlayer(t)
		for range 4 {
			p.Node(t)
		}
		t.Repeat(rapid.StateMachineActions(eventfulPlayer{p}))
		cfg := p.cfg
		cfg.Tenants, cfg.Models, cfg.Tiers = shuffled(t, cfg.Tenants), shuffled(t, append(cfg.Models, Model{Name: "other"})), shuffled(t, cfg.Tiers)
		a, b := New(p.cfg), New(cfg)
		for _, x := range p.events {
			if x.anew {
				a, b = New(p.cfg), New(cfg)
			}
			ev := x.ev
			if all, together := ev.(Together); together {
				ev = rearranged(t, b, all)
			}
			want, err1 := a.Apply(x.ev, x.at)
			got, err2 := b.Apply(ev, x.at)
			if told(got) != told(want) || (err1 == nil) != (err2 == nil) {
				t.Fatalf("after %T%+v\nit decides %s, %v\nafter %+v it decides %s, %v", x.ev, x.ev, told(want), err1, ev, told(got), err2)
			}
		}
		return p.happened
	})
}

func shuffled[E any](t *rapid.T, of []E) []E {
	return rapid.Permutation(of).Draw(t, "order")
}

// rearranged gives events of one instant another order, among those of one kind
// that follow each other. Nodes that the engine does not know stay in theirs.
func rearranged(t *rapid.T, e *Engine, all Together) Together {
	kind := func(ev Event) string {
		if n, is := ev.(NodeSet); is && e.Cluster().Node(n.Node.ID) == nil {
			return n.Node.ID
		}
		return fmt.Sprintf("%T", ev)
	}
	var out Together
	for len(all) > 0 {
		n := 1
		for n < len(all) && kind(all[n]) == kind(all[0]) {
			n++
		}
		out = append(out, shuffled(t, all[:n])...)
		all = all[n:]
	}
	return out
}

// told is what decisions say: who waits for what comes in no order.
func told(decisions []Decision) string {
	var out, waits []string
	for _, d := range decisions {
		w, is := d.(Wait)
		if !is {
			out = append(out, fmt.Sprintf("%T%+v", d, d))
		}
		for _, id := range w.IDs {
			waits = append(waits, fmt.Sprintf("%s waits for %s of %s", id, w.Code, w.For))
		}
	}
	slices.Sort(waits)
	return strings.Join(append(out, waits...), "\n")
}
