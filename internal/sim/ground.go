package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/config"
	"github.com/gangd/gangd/internal/gang"
)

// ground is the cluster as a checker sees it: what is out of order when, and
// what is held.
type ground struct {
	at     time.Duration
	levels []string
	plots  map[string]*plot
	order  []*plot
	// changes are what happens to it, by time; those before next have happened.
	changes []change
	next    int
}

// plot is a node.
type plot struct {
	spec   cluster.Spec
	down   bool
	closed int // by what: nothing new starts
	goneAt time.Duration
	bad    cluster.Mask
	held   cluster.Mask
	// uses are what ran here, oldest first.
	uses []use
}

type use struct {
	model string
	gpus  cluster.Mask
}

type change struct {
	at   time.Duration
	line int
	do   func()
}

// The bits of plot.closed.
const (
	byDrain = 1 << iota
	byNotice
)

func newGround(s *config.Scenario) *ground {
	g := &ground{levels: s.Rules.Levels, plots: make(map[string]*plot)}
	for _, spec := range s.Nodes {
		p := &plot{spec: spec}
		g.plots[spec.ID] = p
		g.order = append(g.order, p)
	}
	for _, e := range s.Events {
		if p := g.plots[e.Node]; p != nil {
			g.changes = append(g.changes, change{e.At, e.Line, func() { p.befall(e) }})
		}
		if p := g.plots[e.Node]; p != nil && e.Kind == config.SpotNotice {
			gone := e.At + e.Notice
			g.changes = append(g.changes, change{gone, e.Line, func() { p.down = p.down || p.closed&byNotice != 0 && p.goneAt == gone }})
		}
	}
	slices.SortStableFunc(g.changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.line, b.line))
	})
	return g
}

func (p *plot) befall(e config.ScenarioEvent) {
	switch e.Kind {
	case config.NodeDown:
		p.down = true
	case config.NodeUp:
		p.down, p.closed = false, p.closed&^byNotice
	case config.GPUBad:
		p.bad |= 1 << e.GPU
	case config.GPUOK:
		p.bad &^= 1 << e.GPU
	case config.Drain:
		p.closed |= byDrain
	case config.Undrain:
		p.closed &^= byDrain
	case config.SpotNotice:
		p.closed |= byNotice
		p.goneAt = e.At + e.Notice // a later notice replaces an earlier one
	}
}

// lost are the held GPUs that nobody can hold.
func (p *plot) lost() cluster.Mask {
	if p.down {
		return p.held
	}
	return p.held & p.bad
}

// pass goes on to a moment. What was lost at the one before it must not be
// held any more.
func (g *ground) pass(to time.Duration) error {
	for ; g.next < len(g.changes) && g.changes[g.next].at <= to; g.next++ {
		if err := g.leave(g.changes[g.next].at); err != nil {
			return err
		}
		g.changes[g.next].do()
	}
	return g.leave(to)
}

// leave ends a moment.
func (g *ground) leave(to time.Duration) error {
	if to == g.at {
		return nil
	}
	for _, p := range g.order {
		if lost := p.lost(); lost != 0 {
			return fmt.Errorf("GPUs %v of node %s are out of order at %s, and are held beyond that", lost.Indexes(), p.spec.ID, g.at)
		}
	}
	g.at = to
	return nil
}

func (g *ground) model(node string) string { return g.plots[node].spec.GPUs[0].Model }

// take gives an attempt its GPUs, which must be there, free, and such as the
// gang asked for.
func (g *ground) take(s *gang.Spec, f Started) error {
	first := g.plots[f.Members[0].Node]
	warm := 0
	for _, m := range f.Members {
		p, gpus := g.plots[m.Node], cluster.MaskOf(m.GPUs)
		switch {
		case p == nil || !cluster.MaskOf(all(p.spec)).Has(gpus) || gpus.Count() != len(m.GPUs):
			return fmt.Errorf("GPUs %v of node %s are not in the cluster", m.GPUs, m.Node)
		case p.held&gpus != 0:
			return fmt.Errorf("GPUs %v of node %s are held already", (p.held & gpus).Indexes(), m.Node)
		case p.down || p.closed != 0 || p.bad&gpus != 0:
			return fmt.Errorf("GPUs %v of node %s are out of order, or the node takes nothing new", m.GPUs, m.Node)
		case s.GPU != "" && g.model(m.Node) != s.GPU || g.model(m.Node) != g.model(first.spec.ID):
			return fmt.Errorf("it has GPUs of model %s", g.model(m.Node))
		case p.spec.GPUs[0].MemoryMiB < s.GPUMemoryMiB:
			return fmt.Errorf("the GPUs of node %s have too little memory", m.Node)
		}
		if p.warm(s.Model, gpus) {
			warm++
		}
		p.held |= gpus
		p.uses = append(p.uses, use{s.Model, gpus})
	}
	if f.Warm > warm {
		return fmt.Errorf("%d members are said to be warm, and %d can be", f.Warm, warm)
	}
	return g.near(s, f)
}

func (g *ground) release(f Started) {
	for _, m := range f.Members {
		g.plots[m.Node].held &^= cluster.MaskOf(m.GPUs)
	}
}

func all(s cluster.Spec) []int {
	var out []int
	for _, g := range s.GPUs {
		out = append(out, g.Index)
	}
	return out
}

// warm reports whether the model's weights can be on exactly these GPUs.
func (p *plot) warm(model string, gpus cluster.Mask) bool {
	if model == "" {
		return false
	}
	warm := slices.Contains(p.spec.Warm, model)
	for _, u := range p.uses {
		warm = u.model == model && u.gpus == gpus || warm && (u.model == model || u.gpus&gpus == 0)
	}
	return warm
}

// near checks what the gang requires of the topology.
func (g *ground) near(s *gang.Spec, f Started) error {
	domain := func(i, level int) string {
		return fmt.Sprintf("%q", g.plots[f.Members[i].Node].spec.Domains[:level+1])
	}
	required := slices.Index(g.levels, s.Topology.Require)
	for i := range f.Members {
		if required >= 0 && domain(i, required) != domain(0, required) {
			return fmt.Errorf("its members are not in one %s", s.Topology.Require)
		}
		segment := s.Topology.Segment
		if segment > 0 && f.GPUs == s.GPUs && domain(i, len(g.levels)-1) != domain(i-i%segment, len(g.levels)-1) {
			return errors.New("a segment of it is not in one domain")
		}
	}
	return nil
}
