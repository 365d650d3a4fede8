package nomadplugin

import (
	"path/filepath"
	"time"
)

// TaskConfig is what Nomad tells a driver about a task that it should start.
type TaskConfig struct {
	ID            string // names the task in all later calls
	AllocID       string
	Name          string
	TaskGroupName string
	JobID         string
	JobName       string
	ParentJobID   string // of a dispatched job; Nomad 1.6 does not send it
	Namespace     string
	NodeID        string
	NodeName      string

	Env       map[string]string
	DeviceEnv map[string]string // the part of Env that device plugins gave
	Resources Resources
	Devices   []TaskDevice
	Mounts    []TaskMount

	User             string
	AllocDir         string
	StdoutPath       string // FIFOs: opening one for writing blocks until Nomad's log collector reads
	StderrPath       string
	NetworkNamespace string // path of the group's network namespace; empty for the host's

	DriverConfig Config
}

// TaskDir is the task's own directory; local, secrets and tmp are in it. What
// the tasks of an allocation share is in AllocDir/alloc.
func (c TaskConfig) TaskDir() string { return filepath.Join(c.AllocDir, c.Name) }

// Resources are what a task asked for and got.
type Resources struct {
	CPUMHz       int64
	MemoryMiB    int64
	MemoryMaxMiB int64 // above MemoryMiB where memory may be oversubscribed, else 0
	Linux        LinuxResources
	Ports        []Port
}

// LinuxResources are the same in the kernel's terms, as Nomad computed them.
// Zero and empty are not set.
type LinuxResources struct {
	CPUPeriodMicros  int64
	CPUQuotaMicros   int64
	CPUShares        int64
	MemoryLimitBytes int64
	OOMScoreAdj      int64
	CPUSet           string  // cores, as in cpuset.cpus
	CPUSetCgroup     string  // path of the cgroup that Nomad made
	CPUFraction      float64 // of the node's CPU
}

// Port is a port of the node that the allocation holds; To is the port inside
// its network namespace, 0 for the same.
type Port struct {
	Label     string
	Value, To int
	HostIP    string
}

// TaskDevice is a device file of a Reservation.
type TaskDevice struct {
	TaskPath, HostPath string
	Permissions        string // letters of r, w and m (mknod)
}

// TaskMount is a path of the host that the task should see.
type TaskMount struct {
	TaskPath, HostPath string
	ReadOnly           bool
	Propagation        string
}

// Started is what Nomad keeps of a started task: it gives State back to
// RecoverTask, perhaps to a newer version of the driver.
type Started struct {
	Version int // of the form of State, from 1; 0 is taken for 1
	State   []byte
	Network *Network // nil where the task is reached at its node
}

// TaskHandle is a started task that a driver process does not know yet.
type TaskHandle struct {
	Version int
	Config  TaskConfig
	State   []byte
}

// Network is where a task is reached, where that is not its node.
type Network struct {
	Address       string
	Ports         map[string]int // by label
	AutoAdvertise bool           // services use Address by themselves
}

// ExitResult is how a task ended. With a Message it is a failure to Nomad,
// which shows it in `nomad alloc status`.
type ExitResult struct {
	Code      int
	Signal    int // its number, or 0
	OOMKilled bool
	Message   string
}

// TaskState is the state of a task as its driver sees it.
type TaskState int

// The states of a task.
const (
	TaskUnknown TaskState = iota
	TaskRunning
	TaskExited
)

// TaskStatus describes a task. CompletedAt and Exit are set once it has exited.
type TaskStatus struct {
	ID, Name    string
	State       TaskState
	StartedAt   time.Time
	CompletedAt time.Time
	Exit        ExitResult
	Attributes  map[string]string
	Network     *Network
}

// TaskUsage is a task's use of resources, whole and by process ID.
type TaskUsage struct {
	At        time.Time
	Total     Usage
	Processes map[int]Usage
}

// Usage holds measurements; what is absent was not measured.
type Usage struct {
	CPU    map[CPUMeasure]float64
	Memory map[MemoryMeasure]uint64 // bytes
}

// CPUMeasure is a kind of CPU measurement.
type CPUMeasure int

// The CPU measurements. Percents are of one core.
const (
	CPUSystemPercent CPUMeasure = iota
	CPUUserPercent
	CPUTicksMHz
	CPUThrottledPeriods
	CPUThrottledNanos
	CPUPercent
)

// MemoryMeasure is a kind of memory measurement, in bytes.
type MemoryMeasure int

// The memory measurements.
const (
	MemoryRSS MemoryMeasure = iota
	MemoryCache
	MemoryMaxUsage
	MemoryKernel
	MemoryKernelMax
	MemoryUsage
	MemorySwap
)

// TaskEvent is news of a task for the people who read `nomad alloc status`.
type TaskEvent struct {
	TaskID, AllocID, TaskName string
	At                        time.Time
	Message                   string
	Annotations               map[string]string
}
