package lane

import (
	"time"

	"github.com/gangd/gangd/internal/member"
)

// Config is all that a keeper is told at its start.
type Config struct {
	Lane     string `json:"lane"`
	TaskID   string `json:"task_id"`
	TaskName string `json:"task_name"`
	AllocID  string `json:"alloc_id"`
	JobID    string `json:"job_id"`
	NodeID   string `json:"node_id"`

	// GPUs are in rank order.
	GPUs    []GPU             `json:"gpus"`
	Command string            `json:"command"` // an absolute path
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env"`
	TaskDir string            `json:"task_dir"`
	User    string            `json:"user,omitempty"`

	// Processes and Protocol are of the constants of internal/member.
	Processes    string        `json:"processes"`
	Protocol     string        `json:"protocol"`
	KillGrace    time.Duration `json:"kill_grace_ns"`
	ReadyTimeout time.Duration `json:"ready_timeout_ns"`

	MemoryBytes int64 `json:"memory_bytes,omitempty"` // 0 is no limit
	OOMScoreAdj int64 `json:"oom_score_adj,omitempty"`

	// The FIFOs of Nomad's log collector.
	StdoutPath string `json:"stdout_path"`
	StderrPath string `json:"stderr_path"`

	Node Node `json:"node"`
}

// GPU is one GPU of a lane.
type GPU struct {
	Index int    `json:"index"`
	UUID  string `json:"uuid"`
}

// Node is what the operator set for all lanes of the node.
type Node struct {
	GangdAddresses []string `json:"gangd_addrs,omitempty"`
	ConsulAddress  string   `json:"consul_addr,omitempty"`
	// ConsulToken is for that one alone; empty where CONSUL_HTTP_TOKEN counts.
	ConsulToken string `json:"consul_token,omitempty"`
	// AdvertiseAddress is where other nodes reach this one.
	AdvertiseAddress string `json:"advertise_addr"`
	NVML             string `json:"nvml,omitempty"`
	MockNode         string `json:"mock_node,omitempty"`
	MockGPUs         int    `json:"mock_gpus,omitempty"`
	FaultFile        string `json:"fault_file,omitempty"`
}

// Ranks returns how many processes the lane's runner has.
func (c Config) Ranks() int {
	if c.Processes == member.PerNode {
		return 1
	}
	return len(c.GPUs)
}

// GPUsPerRank returns how many GPUs each of them has.
func (c Config) GPUsPerRank() int {
	if c.Processes == member.PerNode {
		return len(c.GPUs)
	}
	return 1
}

// UUIDs returns the GPUs' UUIDs in rank order.
func (c Config) UUIDs() []string {
	uuids := make([]string, len(c.GPUs))
	for i, g := range c.GPUs {
		uuids[i] = g.UUID
	}
	return uuids
}
