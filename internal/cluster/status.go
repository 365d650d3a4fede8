package cluster

// NodeState says in one word whether a node takes members, or what keeps it from
// that.
type NodeState string

const (
	NodeReady       NodeState = "ready"
	NodeDraining    NodeState = "draining"    // as was ordered in Nomad
	NodeIneligible  NodeState = "ineligible"  // as was ordered in Nomad
	NodeDown        NodeState = "down"        // by Nomad's word
	NodeMaintenance NodeState = "maintenance" // a window that was planned in gangd
	NodeSilent      NodeState = "silent"      // nothing is heard from its plugins and keepers
	// NodeFull: Nomad found no room for a lane a moment ago.
	NodeFull NodeState = "full"
	// NodeUnknown: one of Nomad and the node's plugins has not spoken for it.
	NodeUnknown NodeState = "unknown"
)

// NodeStatus is a node as an operator sees it.
type NodeStatus struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Domains has the node's domain at each level, widest first.
	Domains []string  `json:"domains"`
	State   NodeState `json:"state"`
	// Why explains a state other than ready.
	Why  string      `json:"why,omitempty"`
	GPUs []GPUStatus `json:"gpus"`
	Free int         `json:"free"`
	// Room is nil where Nomad does not tell what the node has beside GPUs.
	Room *RoomStatus `json:"room,omitempty"`
	// HeardMillis is the age of the last word from the node; -1 if none came.
	HeardMillis int64 `json:"heard_ms"`
}

// RoomStatus is what a node has beside GPUs: for tasks in all, held by other jobs
// than lanes, and left.
type RoomStatus struct {
	Capacity Room `json:"capacity"`
	Foreign  Room `json:"foreign"`
	Left     Room `json:"left"`
}

// GPUStatus is one GPU of a node.
type GPUStatus struct {
	Index     int    `json:"index"`
	UUID      string `json:"uuid"`
	Model     string `json:"model"`
	MemoryMiB int    `json:"memory_mib"`
	Island    int    `json:"island"`
	NUMA      int    `json:"numa"`
	Healthy   bool   `json:"healthy"`
	Reason    string `json:"reason,omitempty"`
	// Faults counts what befell it in the last 24 hours: that it fell ill, or was
	// of a member that was lost.
	Faults int `json:"faults_24h,omitempty"`
	// Job is one of Nomad's that is no lane of gangd, and holds it.
	Job string `json:"job,omitempty"`
	// Gang holds it, in Lane; empty when it is free.
	Gang string `json:"gang,omitempty"`
	Lane string `json:"lane,omitempty"`
}
