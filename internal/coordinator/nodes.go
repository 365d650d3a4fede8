package coordinator

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// node is a node as Nomad shows it, with the last thing that the engine was
// told of it.
type node struct {
	view NodeView
	gone bool
	// changed orders nodes by when Nomad told of them last.
	changed uint64
	told    cluster.Spec
	// noRoomUntil ends the time in which nothing is placed here because Nomad
	// found no room, as noRoomWhy says.
	noRoomUntil time.Time
	noRoomWhy   string
}

// host is what the processes of a machine say, found by the GPUs it has.
type host struct {
	gpus   []GPUView
	driver bool // its driver plugin can be reached
	silent bool
}

// observeNode takes in what Nomad or a host says of a node, and tells the
// engine where that makes a difference.
func (c *Core) observeNode(in Input) {
	switch in := in.(type) {
	case NodesListed:
		c.listNodes(in.Nodes)
	case NodeChanged:
		c.setNode(in.Node)
	case NodeRemoved:
		c.removeNode(in.ID)
	case Inventory:
		c.takeInventory(in.GPUs)
	case DriverUp:
		c.host(in.UUIDs).driver = true
		c.refresh(in.UUIDs)
	case DriverDown:
		c.host(in.UUIDs).driver = false
		c.refresh(in.UUIDs)
	case HostSilent:
		c.silence(in.UUIDs)
	case HostHeard:
		c.host(in.UUIDs).silent = false
		c.refresh(in.UUIDs)
	}
	c.beginDeciding()
}

func (c *Core) listNodes(views []NodeView) {
	c.listed = true
	listed := make(map[string]bool, len(views))
	for _, v := range views {
		listed[v.ID] = true
		c.setNode(v)
	}
	for _, n := range slices.Clone(c.engine.Cluster().Nodes()) {
		if !listed[n.ID] {
			c.removeNode(n.ID)
		}
	}
}

func (c *Core) setNode(v NodeView) {
	n := c.nodes[v.ID]
	if n == nil {
		n = new(node)
		c.nodes[v.ID] = n
	}
	if !n.noRoomUntil.IsZero() && mayHaveRoom(n.view, v) {
		n.noRoomUntil, n.noRoomWhy = zeroTime, "" // it may be another matter now
		delete(c.noRoom, v.ID)
	}
	c.show(n, v)
	if v.Down {
		c.nodeDown(v.ID)
	}
	c.tell(n)
}

// mayHaveRoom reports whether a node on which Nomad found no room may have it
// now: other jobs hold less there, or something else has changed.
func mayHaveRoom(before, now NodeView) bool {
	if now.Foreign.CPUMHz < before.Foreign.CPUMHz || now.Foreign.MemoryMiB < before.Foreign.MemoryMiB || len(now.HeldBy) < len(before.HeldBy) {
		return true
	}
	before.Foreign, before.HeldBy = now.Foreign, now.HeldBy
	return !reflect.DeepEqual(before, now)
}

// show notes what Nomad shows of a node. A node that was set up anew has
// another ID and the same GPUs: whoever else shows them is told again.
func (c *Core) show(n *node, v NodeView) {
	c.changes++
	for u := range n.view.Devices {
		if _, still := v.Devices[u]; !still {
			c.hide(n, u)
		}
	}
	n.view, n.gone, n.changed = v, false, c.changes
	shared := make(map[string]*node)
	for u := range v.Devices {
		if !slices.Contains(c.shown[u], n) {
			c.shown[u] = append(c.shown[u], n)
		}
		for _, other := range c.shown[u] {
			if other != n {
				shared[other.view.ID] = other
			}
		}
	}
	for _, id := range sortedIDs(shared) {
		c.tell(shared[id])
	}
}

func (c *Core) hide(n *node, uuid string) {
	c.shown[uuid] = slices.DeleteFunc(c.shown[uuid], func(o *node) bool { return o == n })
	if len(c.shown[uuid]) == 0 {
		delete(c.shown, uuid)
	}
}

func (c *Core) removeNode(id string) {
	n := c.nodes[id]
	if n == nil {
		n = &node{view: NodeView{ID: id, Domains: make([]string, len(c.cfg.Rules.Levels))}}
		c.nodes[id] = n
	}
	if !n.gone {
		n.gone = true
		c.nodeDown(id)
		c.tell(n)
		c.dropNode(id)
	}
}

// dropNode forgets a node that is gone from Nomad, once nothing is held there.
// What its host said is kept while the host is alive: the node may have left
// gangd's pool only, and come back.
func (c *Core) dropNode(id string) {
	n, known := c.nodes[id], c.engine.Cluster().Node(id)
	if n == nil || !n.gone || known == nil || known.Used() != 0 {
		return
	}
	if err := c.decide(schedule.NodeGone{ID: id}); err != nil {
		c.fault("forget node %s: %w", id, err)
		return
	}
	delete(c.nodes, id)
	delete(c.noRoom, id)
	for u := range n.view.Devices {
		c.hide(n, u)
		if h := c.hosts[u]; h != nil && h.silent {
			delete(c.hosts, u)
		}
	}
}

// noRoomOn keeps a node from taking lanes for a while: Nomad places none
// there, which may be for what other jobs of its hold.
func (c *Core) noRoomOn(id, why string) {
	if n := c.nodes[id]; n != nil {
		n.noRoomUntil, n.noRoomWhy = c.now.Add(noRoomFor), why
		c.noRoom[id] = n
		c.tell(n)
	}
}

// roomAgain ends that.
func (c *Core) roomAgain(n *node) {
	n.noRoomUntil, n.noRoomWhy = zeroTime, ""
	delete(c.noRoom, n.view.ID)
	c.tell(n)
}

// host finds the host that has one of the GPUs, or makes it.
func (c *Core) host(uuids []string) *host {
	var h *host
	for _, u := range uuids {
		if h = c.hosts[u]; h != nil {
			break
		}
	}
	if h == nil {
		h = new(host)
	}
	for _, u := range uuids {
		c.hosts[u] = h
	}
	return h
}

func (c *Core) takeInventory(gpus []GPUView) {
	uuids := make([]string, len(gpus))
	for i, g := range gpus {
		uuids[i] = g.UUID
	}
	h := c.host(uuids)
	for _, was := range h.gpus {
		ill := func(g GPUView) bool { return g.UUID == was.UUID && !g.Healthy }
		if was.Healthy && slices.ContainsFunc(gpus, ill) {
			c.faults.add(was.UUID, c.now)
		}
	}
	h.gpus = gpus
	c.refresh(uuids)
}

// silence suspects a host at once: its gangs stop and start elsewhere, and its
// own GPUs wait until it answers, its lease has run out, or Nomad gives it up.
func (c *Core) silence(uuids []string) {
	h := c.host(uuids)
	h.silent = true
	c.refresh(uuids)
	needed := slices.ContainsFunc(uuids, func(u string) bool { return len(c.shown[u]) > 0 })
	for _, l := range c.lanesInOrder() {
		if len(l.rec.UUIDs) > 0 && c.hosts[l.rec.UUIDs[0]] == h {
			needed = true
			c.loseLane(l, "its node went silent")
		}
	}
	if !needed { // its machine was taken away
		for _, u := range uuids {
			delete(c.hosts, u)
		}
	}
}

// silent reports whether nothing is heard from a lane's host.
func (c *Core) silent(l *lane) bool {
	return slices.ContainsFunc(l.rec.UUIDs, func(u string) bool { h := c.hosts[u]; return h != nil && h.silent })
}

// nodeDown: Nomad has given the node up, so nothing of gangd runs there but
// what its own lease will end, or has ended.
func (c *Core) nodeDown(id string) {
	for _, l := range c.lanesInOrder() {
		if l.rec.Node != id || c.mayReturn(l) {
			continue
		}
		c.loseLane(l, "its node is down")
	}
}

// mayReturn reports whether a lane's keeper is there, or is expected back: what
// Nomad supposes of it does not count before that time is over.
func (c *Core) mayReturn(l *lane) bool {
	return l.connected || l.rec.Allocation != "" && c.now.Before(l.awayUntil)
}

// holds notes that a lane has its GPUs, until free.
func (c *Core) holds(l *lane) {
	for _, u := range l.rec.UUIDs {
		c.holders[u] = l
	}
}

// free notes that a lane has given its GPUs back.
func (c *Core) free(l *lane) {
	l.freed = true
	c.charge(l)
	for _, u := range l.rec.UUIDs {
		if c.holders[u] == l {
			delete(c.holders, u)
		}
	}
}

// elsewhere says who has a GPU that a node shows: a lane that was opened while
// its node had another ID, or the node that shows it by now; empty for nobody.
func (c *Core) elsewhere(n *node, uuid string) string {
	if l := c.holders[uuid]; l != nil && l.rec.Node != n.view.ID {
		return fmt.Sprintf("lane %s holds it, from when this was node %s", l.rec.ID, l.rec.Node)
	}
	for _, o := range c.shown[uuid] {
		if o != n && !o.gone && o.newer(n) {
			return fmt.Sprintf("node %s shows it too, and later", o.view.ID)
		}
	}
	return ""
}

// newer reports whether of two nodes with one GPU this one has it.
func (n *node) newer(o *node) bool {
	if n.view.Ready != o.view.Ready {
		return n.view.Ready
	}
	return n.changed > o.changed
}

// refresh tells the engine of the nodes that have these GPUs.
func (c *Core) refresh(uuids []string) {
	found := make(map[string]*node)
	for _, u := range uuids {
		for _, n := range c.shown[u] {
			found[n.view.ID] = n
		}
	}
	for _, id := range sortedIDs(found) {
		c.tell(found[id])
	}
}

// tell hands a node to the engine, if what counts has changed.
func (c *Core) tell(n *node) {
	spec := c.compose(n)
	if reflect.DeepEqual(spec, n.told) {
		return
	}
	n.told = spec
	if err := c.decide(schedule.NodeSet{Node: spec}); err != nil {
		c.fault("take in node: %w", err)
	}
}

// compose makes one description of a node out of Nomad's view and its host's
// words.
func (c *Core) compose(n *node) cluster.Spec {
	spec := cluster.Spec{ID: n.view.ID, Name: n.view.Name, Domains: n.view.Domains, Draining: n.view.Draining,
		Capacity: n.view.Capacity, CoreMHz: n.view.CoreMHz, Foreign: n.view.Foreign}
	h := c.hostOf(n)
	if h != nil && len(h.gpus) > 0 {
		for _, g := range h.gpus {
			spec.GPUs = append(spec.GPUs, c.gpu(n, g))
		}
	} else { // what Nomad remembers of a node that has not spoken
		for _, u := range sortedIDs(n.view.Devices) {
			spec.GPUs = append(spec.GPUs, c.gpu(n, n.view.Devices[u]))
		}
	}
	spec.State, spec.Why = n.state(h)
	spec.Schedulable = spec.State == cluster.NodeReady
	return spec
}

func (c *Core) hostOf(n *node) *host {
	for _, u := range sortedIDs(n.view.Devices) {
		if h := c.hosts[u]; h != nil {
			return h
		}
	}
	return nil
}

// gpu is a GPU as the engine should see it: in order if its host and Nomad say
// so. A client tells Nomad's servers of its devices 5 to 10 s after a change
// (nodeUpdateRetryIntv in client/client.go of Nomad 1.6, and up to as much at
// random): until then Nomad would not place a lane there.
func (c *Core) gpu(n *node, g GPUView) cluster.GPU {
	out := cluster.GPU{UUID: g.UUID, Index: g.Index, Model: g.Model, MemoryMiB: g.MemoryMiB, Island: g.Island, NUMA: g.NUMA, Healthy: g.Healthy, Reason: g.Reason, Faults: c.faults.of(g.UUID)}
	if !out.Healthy {
		return out
	}
	if device, listed := n.view.Devices[g.UUID]; !listed {
		out.Healthy, out.Reason = false, "Nomad does not list it yet"
	} else if !device.Healthy {
		out.Healthy, out.Reason = false, "it is sound again; its Nomad client tells the servers so within 10 s"
	} else if job := n.view.HeldBy[g.UUID]; job != "" {
		out.Healthy, out.Reason = false, heldByJob(job)
	} else if by := c.elsewhere(n, g.UUID); by != "" {
		out.Healthy, out.Reason = false, by
	}
	return out
}

func heldByJob(job string) string { return "held by Nomad job " + job }

// state is that of a node; why says why it may take no new members, and is empty
// when it may.
func (n *node) state(h *host) (state cluster.NodeState, why string) {
	switch {
	case n.gone:
		return cluster.NodeDown, "Nomad no longer knows it"
	case n.view.Down:
		return cluster.NodeDown, "Nomad calls it down"
	case !n.view.Ready:
		return cluster.NodeDown, "Nomad does not call it ready"
	case n.view.Draining:
		return cluster.NodeDraining, "a drain was ordered in Nomad"
	case !n.view.Eligible:
		return cluster.NodeIneligible, "it was made ineligible in Nomad"
	case h == nil:
		return cluster.NodeUnknown, "no plugin of gangd has spoken for it; see the logs of its Nomad agent"
	case h.silent:
		return cluster.NodeSilent, "nothing is heard from its plugins and keepers"
	case !h.driver:
		return cluster.NodeUnknown, "its driver plugin is not connected; see the logs of its Nomad agent"
	case len(h.gpus) == 0:
		return cluster.NodeUnknown, "its device plugin has not told its GPUs"
	case !n.noRoomUntil.IsZero():
		return cluster.NodeFull, "Nomad finds no room for lanes there: " + n.noRoomWhy
	}
	return cluster.NodeReady, ""
}

// beginDeciding hands the queue to the engine once the nodes have reported,
// so that a narrow gang does not start ahead of a wide one only because the
// wide one's nodes were late.
func (c *Core) beginDeciding() {
	if !c.restored || c.deciding || !c.listed {
		return
	}
	if c.now.Before(c.warmUntil) {
		if len(c.nodes) == 0 {
			return
		}
		for _, n := range c.nodes {
			if n.view.Ready && n.view.Eligible && !n.told.Schedulable {
				return
			}
		}
	}
	c.deciding = true
	var together schedule.Together
	for _, g := range c.bySeq {
		if !g.rec.State.Placed() && !g.rec.State.Terminal() && !c.now.Before(g.notBefore) {
			together = append(together, schedule.Submit{Gang: g.forEngine()})
			g.inEngine = true
		}
	}
	if err := c.decide(together); err != nil {
		c.fault("take the queue over: %w", err)
	}
}

// nodeStatuses lists the nodes as an operator sees them.
func (c *Core) nodeStatuses() []cluster.NodeStatus {
	out := []cluster.NodeStatus{}
	for _, n := range c.engine.Cluster().Nodes() {
		s := cluster.NodeStatus{ID: n.ID, Name: n.Name, Domains: n.Domains, State: n.State, Why: n.Why, Free: n.Free().Count(), HeardMillis: -1}
		if n.Capacity != (cluster.Room{}) {
			s.Room = &cluster.RoomStatus{Capacity: n.Capacity, Foreign: n.Foreign, Left: n.Left(cluster.Free)}
		}
		for _, g := range n.GPUs {
			gs := cluster.GPUStatus{Index: g.Index, UUID: g.UUID, Model: g.Model, MemoryMiB: g.MemoryMiB, Island: g.Island, NUMA: g.NUMA, Healthy: g.Healthy, Reason: g.Reason, Faults: g.Faults}
			if known := c.nodes[n.ID]; known != nil && g.Reason == heldByJob(known.view.HeldBy[g.UUID]) {
				gs.Job = known.view.HeldBy[g.UUID]
			}
			if l := c.holders[g.UUID]; l != nil {
				gs.Gang, gs.Lane = string(l.rec.Gang), string(l.rec.ID)
			}
			s.GPUs = append(s.GPUs, gs)
		}
		out = append(out, s)
	}
	return out
}

// nodeName is the name of a node, or its ID where none is known.
func (c *Core) nodeName(id string) string {
	if n := c.nodes[id]; n != nil && n.view.Name != "" {
		return n.view.Name
	}
	return id
}

// uuids are those of the GPUs of a placed member, in rank order.
func (c *Core) uuids(m gang.Member) []string {
	out := make([]string, 0, len(m.GPUs))
	n := c.engine.Cluster().Node(m.Node)
	for _, index := range m.GPUs {
		for _, g := range n.GPUs {
			if g.Index == index {
				out = append(out, g.UUID)
			}
		}
	}
	return out
}
