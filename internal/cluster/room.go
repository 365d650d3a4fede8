package cluster

import "github.com/gangd/gangd/internal/gang"

// Room is what a node has beside GPUs.
type Room struct {
	CPUMHz    int `json:"cpu_mhz"`
	MemoryMiB int `json:"memory_mib"`
}

// Plus is what two rooms are together.
func (r Room) Plus(o Room) Room { return Room{r.CPUMHz + o.CPUMHz, r.MemoryMiB + o.MemoryMiB} }

// Less is what is left of a room without another.
func (r Room) Less(o Room) Room { return Room{r.CPUMHz - o.CPUMHz, r.MemoryMiB - o.MemoryMiB} }

// Cost is what a need takes of this node: whole cores as much as they have here.
func (n *Node) Cost(need gang.Need) Room {
	return Room{need.CPUMHz + need.Cores*n.CoreMHz, need.MemoryMiB}
}

// Left is what the view shows beside GPUs. It is negative where more is held
// than there is, and means nothing where Capacity is not known.
func (n *Node) Left(v View) Room {
	left := n.Capacity
	if v != Total {
		left = left.Less(n.Foreign)
	}
	if v == Free {
		left = left.Less(n.Cost(n.held))
	}
	return left
}

// Holds reports whether needs fit together into what is left of the node: what
// is not known of it is no limit, and who takes nothing is not held up.
func (n *Node) Holds(left Room, needs gang.Need) bool {
	cost := n.Cost(needs)
	return (n.Capacity.CPUMHz == 0 || cost.CPUMHz == 0 || cost.CPUMHz <= left.CPUMHz) &&
		(n.Capacity.MemoryMiB == 0 || cost.MemoryMiB == 0 || cost.MemoryMiB <= left.MemoryMiB)
}

// Fits reports whether the view shows room for one member's need.
func (n *Node) Fits(v View, need gang.Need) bool {
	return need == gang.Need{} || n.Holds(n.Left(v), need)
}

// Tight nodes may run out of something else before they run out of GPUs.
func (n *Node) Tight() bool { return n.tight }

// Tight counts the tight nodes of a model. Where there is none, GPUs alone
// decide what fits.
func (c *Cluster) Tight(model string) int { return c.tight[model] }

// Expect notes that members on so many GPUs may come that each have a need.
// Which nodes are tight follows from the greatest needs for each GPU that were
// ever expected: members never take more than these for each GPU that they
// hold.
func (c *Cluster) Expect(need gang.Need, gpus int) {
	before := c.most
	up := func(n int) int { return (n + gpus - 1) / gpus }
	c.most.CPUMHz = max(c.most.CPUMHz, up(need.CPUMHz))
	c.most.Cores = max(c.most.Cores, up(need.Cores))
	c.most.MemoryMiB = max(c.most.MemoryMiB, up(need.MemoryMiB))
	if c.most == before {
		return
	}
	for _, n := range c.nodes {
		c.findTight(n)
	}
	c.changed()
}

// Expects reports whether a need for so many GPUs is no greater than was
// expected.
func (c *Cluster) Expects(need gang.Need, gpus int) bool {
	return need.CPUMHz <= gpus*c.most.CPUMHz && need.Cores <= gpus*c.most.Cores && need.MemoryMiB <= gpus*c.most.MemoryMiB
}

// findTight finds whether a node is tight.
func (c *Cluster) findTight(n *Node) {
	c.loosen(n)
	gpus := (n.All() | n.used).Count()
	most := gang.Need{CPUMHz: gpus * c.most.CPUMHz, Cores: gpus * c.most.Cores, MemoryMiB: gpus * c.most.MemoryMiB}
	if n.tight = !n.Fits(Usable, most); n.tight {
		c.tight[n.Model]++
		n.tightAs = n.Model
	}
}

// loosen takes a node out of the count of the tight ones.
func (c *Cluster) loosen(n *Node) {
	if n.tight {
		n.tight = false
		c.tight[n.tightAs]--
	}
}
