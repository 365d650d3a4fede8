package picture

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/config"
)

// maxPlaces bounds the rows of the map.
const maxPlaces = 64

// places are the rows of the map, in the order of the topology: nodes where they
// are few, else the domains of the narrowest level, else parts of equal size.
type places struct {
	kind  string // what a row is
	rows  []*place
	of    map[string]*place  // by node
	knows map[string]float64 // capacity by node
}

// place is a row.
type place struct {
	name   string
	domain string // the narrowest that it begins in, as a path
	gpus   float64
	held   *level
	usable *level
}

func newPlaces(s *config.Scenario, on *timeline) *places {
	p := &places{of: make(map[string]*place), knows: make(map[string]float64)}
	nodes := inOrder(s.Nodes)
	p.kind = "a node"
	part := func(i int) string { return nodes[i].ID }
	if domains := distinct(nodes); len(nodes) > maxPlaces && domains <= maxPlaces {
		p.kind = "a " + s.Rules.Levels[len(s.Rules.Levels)-1]
		part = func(i int) string { return domainPath(nodes[i]) }
	} else if len(nodes) > maxPlaces {
		size := (len(nodes) + maxPlaces - 1) / maxPlaces
		p.kind = fmt.Sprintf("%d nodes", size)
		part = func(i int) string { return nodes[i/size*size].ID }
	}
	for i, n := range nodes {
		if i == 0 || part(i) != part(i-1) {
			name := part(i)
			p.rows = append(p.rows, &place{name: name[strings.LastIndexByte(name, '\x00')+1:], domain: domainPath(n), held: newLevel(on), usable: newLevel(on)})
		}
		row := p.rows[len(p.rows)-1]
		row.gpus += float64(len(n.GPUs))
		p.of[n.ID] = row
	}
	return p
}

// domainPath names the narrowest domain of a node, with those around it.
func domainPath(n cluster.Spec) string { return strings.Join(n.Domains, "\x00") }

// distinct counts the narrowest domains.
func distinct(nodes []cluster.Spec) int {
	some := make(map[string]bool)
	for _, n := range nodes {
		some[domainPath(n)] = true
	}
	return len(some)
}

// inOrder puts the nodes of a domain together, at every level; domains come in
// the order of their first node.
func inOrder(nodes []cluster.Spec) []cluster.Spec {
	first := make(map[string]int)
	positions := make(map[string][]int, len(nodes))
	for i, n := range nodes {
		var at []int
		for depth := range n.Domains {
			key := strings.Join(n.Domains[:depth+1], "\x00")
			if _, seen := first[key]; !seen {
				first[key] = i
			}
			at = append(at, first[key])
		}
		positions[n.ID] = append(at, i)
	}
	out := slices.Clone(nodes)
	slices.SortFunc(out, func(a, b cluster.Spec) int { return slices.Compare(positions[a.ID], positions[b.ID]) })
	return out
}

// capacity sets how many GPUs of a node can be held, and returns the change.
func (p *places) capacity(at time.Duration, node string, gpus float64) float64 {
	by := gpus - p.knows[node]
	p.knows[node] = gpus
	p.of[node].usable.add(at, by)
	return by
}

func (p *places) hold(at time.Duration, node string, by float64) { p.of[node].held.add(at, by) }
