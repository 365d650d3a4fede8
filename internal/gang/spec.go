package gang

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"
)

// Limits of a specification. They keep a record, a placement search and a
// dispatch bounded.
const (
	MaxGPUs       = 1024
	MaxNameLen    = 40
	MaxLabelLen   = 63 // of a template, tenant, tier or model
	MaxParamsSize = 64 << 10
	// MaxDuration bounds what is said of a run time: what it takes to load or to
	// save, slow GPUs, and estimates that are outgrown, come on top of it.
	MaxDuration = 10 * 365 * 24 * time.Hour
	MaxRetries  = 100
	MaxSizes    = 64 // of an elastic gang
)

// Reuse says which gangs may follow in a lane that ran one of this template.
type Reuse string

const (
	ReuseAny    Reuse = "any"
	ReuseTenant Reuse = "tenant"
	ReuseNever  Reuse = "never"
)

// Topology is what a gang asks of the places of its members.
type Topology struct {
	// Require names the level within one domain of which all members must
	// lie; empty where the whole cluster will do.
	Require string `json:"require,omitempty"`
	// Prefer names the narrowest level worth trying for; empty means the
	// narrowest there is.
	Prefer string `json:"prefer,omitempty"`
	// Segment is a number of nodes: the ranks of each run of so many members lie
	// in one domain of the narrowest level. 0 asks for none.
	Segment int `json:"segment,omitempty"`
}

// Size is one that an elastic gang can run at.
type Size struct {
	GPUs int           `json:"gpus"`
	Run  time.Duration `json:"run_ns"`
}

// Checkpoint says how a gang saves its state.
type Checkpoint struct {
	// Every is the run time after which it saves by itself; 0 means never.
	Every time.Duration `json:"every_ns,omitempty"`
	// Cost is the time to save on demand, Restore that to start from it.
	Cost    time.Duration `json:"cost_ns,omitempty"`
	Restore time.Duration `json:"restore_ns,omitempty"`
}

// Need is what a member takes of its node beside GPUs; 0 is nothing. Who asks for
// whole Cores has them alone, and takes as much of the CPU as the node's cores
// have.
type Need struct {
	CPUMHz    int `json:"cpu_mhz,omitempty"`
	Cores     int `json:"cores,omitempty"`
	MemoryMiB int `json:"memory_mib,omitempty"`
}

// Plus is what two needs are together.
func (n Need) Plus(o Need) Need {
	return Need{CPUMHz: n.CPUMHz + o.CPUMHz, Cores: n.Cores + o.Cores, MemoryMiB: n.MemoryMiB + o.MemoryMiB}
}

// Less is what is left of a sum of needs without one of them.
func (n Need) Less(o Need) Need {
	return Need{CPUMHz: n.CPUMHz - o.CPUMHz, Cores: n.Cores - o.Cores, MemoryMiB: n.MemoryMiB - o.MemoryMiB}
}

// Spec is what a user asks for. It does not change once it is accepted.
type Spec struct {
	// Version is the schema's, filled in when the gang is accepted.
	Version  int    `json:"v,omitempty"`
	Name     string `json:"name"`
	Template string `json:"template"`
	Tenant   string `json:"tenant"`
	Tier     string `json:"tier"`
	// GPUs in all, and on each node; GPUs is a multiple of GPUsPerNode. A
	// GPUsPerNode of 0 asks for the largest divisor that fits the largest node.
	GPUs        int `json:"gpus"`
	GPUsPerNode int `json:"gpus_per_node,omitempty"`
	// GPU is the model that is required, e.g. "H100-80GB"; empty for any one
	// model.
	GPU          string        `json:"gpu,omitempty"`
	GPUMemoryMiB int           `json:"gpu_memory_mib,omitempty"`
	Topology     Topology      `json:"topology,omitzero"`
	Estimate     time.Duration `json:"estimate_ns,omitempty"`
	// MaxRun ends a gang as failed when its run time over all attempts reaches
	// it; 0 means no such end.
	MaxRun time.Duration `json:"max_run_ns,omitempty"`
	// ReadyTimeout is how long the members may take from the decision until all
	// are ready, as the template said when the gang was accepted; 0 where it did
	// not.
	ReadyTimeout time.Duration `json:"ready_timeout_ns,omitempty"`
	// MemberNeed is what each member takes of its node beside GPUs, as the
	// template said when the gang was accepted.
	MemberNeed Need `json:"member_need,omitzero"`
	// InfraRetries bounds the restarts after the loss of a node, a GPU or a
	// runner.
	InfraRetries int `json:"infra_retries"`
	// Elastic lists the sizes at which it can run, ascending, GPUs among them;
	// empty where that is the only one.
	Elastic []Size `json:"elastic,omitempty"`
	// Model names what its runner loads.
	Model string `json:"model,omitempty"`
	// Checkpoint is nil for a gang that cannot save its state.
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
	// Pinned gangs are never stopped for another.
	Pinned bool            `json:"pinned,omitempty"`
	Reuse  Reuse           `json:"reuse,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
}

// WithoutParams is the specification without what is for its runner alone: users'
// prompts are nobody else's business.
func (s *Spec) WithoutParams() *Spec {
	if s == nil || s.Params == nil {
		return s
	}
	lean := *s
	lean.Params = nil
	return &lean
}

// Members returns the number of members: one a node.
func (s *Spec) Members() int {
	if s.GPUsPerNode == 0 {
		return 0
	}
	return s.GPUs / s.GPUsPerNode
}

var nameRule = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

func validName(name string) bool { return len(name) <= MaxNameLen && nameRule.MatchString(name) }

var labelRule = regexp.MustCompile(fmt.Sprintf(`^[A-Za-z0-9._/-]{1,%d}$`, MaxLabelLen))

// PerNode is the number of GPUs of each member where the largest node has so
// many: what is asked for, or else the largest divisor of GPUs that fits.
// It is 0 where there is no node.
func (s *Spec) PerNode(largest int) int {
	if s.GPUsPerNode > 0 {
		return s.GPUsPerNode
	}
	for k := min(largest, s.GPUs); k > 0; k-- {
		if s.GPUs%k == 0 {
			return k
		}
	}
	return 0
}

// SpeedAt is the run time at the preferred size that is done in one second of
// run at another; 1 for a gang of one size.
func (s *Spec) SpeedAt(gpus int) float64 {
	var preferred, at time.Duration
	for _, size := range s.Elastic {
		if size.GPUs == s.GPUs {
			preferred = size.Run
		}
		if size.GPUs == gpus {
			at = size.Run
		}
	}
	if preferred <= 0 || at <= 0 {
		return 1
	}
	return float64(preferred) / float64(at)
}

// faults collects what is wrong with a specification.
type faults []error

func (f *faults) bad(field, format string, args ...any) {
	*f = append(*f, &FieldError{Field: field, Problem: fmt.Sprintf(format, args...)})
}

func (f *faults) refuse(field, format string, args ...any) {
	*f = append(*f, &FieldError{Field: field, Problem: fmt.Sprintf(format, args...), Refusal: true})
}

// Validate checks all that can be checked without a cluster and returns every
// fault that it finds, joined.
func (s *Spec) Validate() error {
	var f faults
	if !validName(s.Name) {
		f.bad("name", "%q is no name: use up to %d of a-z, 0-9 and '-', neither first nor last a '-'", s.Name, MaxNameLen)
	}
	if s.Template == "" {
		f.bad("template", "is missing: name the parameterized Nomad job that says how a member runs")
	}
	f.label("template", s.Template)
	switch {
	case s.GPUs < 1:
		f.bad("gpus", "%d is not between 1 and %d", s.GPUs, MaxGPUs)
	case s.GPUs > MaxGPUs:
		f.refuse("gpus", "%d is not between 1 and %d", s.GPUs, MaxGPUs)
	}
	if s.InfraRetries < 0 || s.InfraRetries > MaxRetries {
		f.bad("infra_retries", "%d is not between 0 and %d", s.InfraRetries, MaxRetries)
	}
	s.demand(&f)
	switch s.Reuse {
	case "", ReuseAny, ReuseTenant, ReuseNever:
	default:
		f.bad("reuse", "%q is none of \"any\", \"tenant\", \"never\"", s.Reuse)
	}
	if len(s.Params) > MaxParamsSize {
		f.bad("params", "are %d bytes as JSON, at most %d are taken: put large input into the blob store", len(s.Params), MaxParamsSize)
	} else if len(s.Params) > 0 && !isObject(s.Params) {
		f.bad("params", "are not a JSON object")
	}
	return errors.Join(f...)
}

// ValidateDemand checks what the gang asks of a cluster alone: a scenario has
// gangs without templates, by other names, and of any number of GPUs.
func (s *Spec) ValidateDemand() error {
	var f faults
	if s.GPUs < 1 {
		f.bad("gpus", "%d is less than 1", s.GPUs)
	}
	if s.InfraRetries < 0 {
		f.bad("infra_retries", "%d is negative", s.InfraRetries)
	}
	s.demand(&f)
	return errors.Join(f...)
}

func (s *Spec) demand(f *faults) {
	f.label("tenant", s.Tenant)
	f.label("tier", s.Tier)
	f.label("model", s.Model)
	if s.GPUsPerNode > 0 && s.Topology.Segment > 0 && s.divides(s.GPUs) && s.Members()%s.Topology.Segment != 0 {
		f.refuse("segment", "%d nodes do not divide the %d members", s.Topology.Segment, s.Members())
	}
	s.numbers(f)
	for _, d := range s.durations() {
		if d.value > MaxDuration {
			f.refuse(d.field, "%s is more than %d days", d.value, MaxDuration/(24*time.Hour))
		}
	}
	for _, size := range s.Elastic {
		if size.Run > MaxDuration {
			f.refuse("elastic", "the run time on %d GPUs is %s, and more than %d days", size.GPUs, size.Run, MaxDuration/(24*time.Hour))
		}
	}
}

// Sound finds what those would stumble over who take a specification for checked
// that was written once and is read again.
func (s *Spec) Sound() error {
	var f faults
	if s.GPUs < 1 {
		f.bad("gpus", "%d is less than 1", s.GPUs)
	}
	s.numbers(&f)
	return errors.Join(f...)
}

func (s *Spec) numbers(f *faults) {
	s.shape(f)
	for _, number := range []struct {
		field string
		value int
	}{{"gpu_memory", s.GPUMemoryMiB}, {"segment", s.Topology.Segment}, {"cpu", s.MemberNeed.CPUMHz}, {"cores", s.MemberNeed.Cores}, {"memory", s.MemberNeed.MemoryMiB}} {
		if number.value < 0 {
			f.bad(number.field, "is negative")
		}
	}
	for _, d := range s.durations() {
		if d.value < 0 {
			f.bad(d.field, "%s is negative", d.value)
		}
	}
}

// shape checks how the GPUs divide into members, at every size.
func (s *Spec) shape(f *faults) {
	switch {
	case s.GPUsPerNode < 0:
		f.bad("gpus_per_node", "%d is negative", s.GPUsPerNode)
		return
	case !s.divides(s.GPUs):
		f.refuse("gpus", "%d is no multiple of gpus_per_node = %d", s.GPUs, s.GPUsPerNode)
	}
	if len(s.Elastic) > MaxSizes {
		f.bad("elastic", "has %d sizes, at most %d are taken", len(s.Elastic), MaxSizes)
		return
	}
	preferred := len(s.Elastic) == 0
	for i, size := range s.Elastic {
		preferred = preferred || size.GPUs == s.GPUs
		switch {
		case size.GPUs < 1 || i > 0 && size.GPUs <= s.Elastic[i-1].GPUs:
			f.bad("elastic", "the sizes must be positive and ascend")
		case size.Run <= 0:
			f.bad("elastic", "the run time on %d GPUs is %s, and must be more than 0s", size.GPUs, size.Run)
		case size.GPUs > s.GPUsPerNode && !s.divides(size.GPUs):
			f.refuse("elastic", "%d is no multiple of gpus_per_node = %d", size.GPUs, s.GPUsPerNode)
		}
	}
	if !preferred {
		f.bad("elastic", "lacks the preferred size, gpus = %d", s.GPUs)
	}
}

func (s *Spec) divides(gpus int) bool { return s.GPUsPerNode == 0 || gpus%s.GPUsPerNode == 0 }

type namedDuration struct {
	field string
	value time.Duration
}

func (s *Spec) durations() []namedDuration {
	all := []namedDuration{{"estimate", s.Estimate}, {"max_run", s.MaxRun}}
	if c := s.Checkpoint; c != nil {
		all = append(all, namedDuration{"every", c.Every}, namedDuration{"cost", c.Cost}, namedDuration{"restore", c.Restore})
	}
	return all
}

func (f *faults) label(field, value string) {
	if value != "" && !labelRule.MatchString(value) {
		f.bad(field, "%q is no name: use up to %d letters, digits, '.', '_', '-' and '/'", value, MaxLabelLen)
	}
}

// IsLabel reports whether the text can name a tenant, a tier, a model, a
// template, or a gang or node of a scenario.
func IsLabel(text string) bool { return labelRule.MatchString(text) }

func isObject(raw json.RawMessage) bool {
	var o map[string]json.RawMessage
	return json.Unmarshal(raw, &o) == nil && o != nil
}

// FieldError is a fault in one field of a specification.
type FieldError struct {
	Field, Problem string
	// Refusal: it is written as it should be, and asks for what cannot be.
	Refusal bool
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }
