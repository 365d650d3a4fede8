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
	MaxLabelLen   = 63 // of a template, tenant or tier
	MaxParamsSize = 64 << 10
	MaxRetries    = 100
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
	// InfraRetries bounds the restarts after the loss of a node, a GPU or a
	// runner.
	InfraRetries int             `json:"infra_retries"`
	Reuse        Reuse           `json:"reuse,omitempty"`
	Params       json.RawMessage `json:"params,omitempty"`
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

// Validate checks all that can be checked without a cluster and returns every
// fault that it finds, joined.
func (s *Spec) Validate() error {
	var faults []error
	bad := func(field, format string, args ...any) {
		faults = append(faults, &FieldError{Field: field, Problem: fmt.Sprintf(format, args...)})
	}
	refuse := func(field, format string, args ...any) {
		faults = append(faults, &FieldError{Field: field, Problem: fmt.Sprintf(format, args...), Refusal: true})
	}
	if !validName(s.Name) {
		bad("name", "%q is no name: use up to %d of a-z, 0-9 and '-', neither first nor last a '-'", s.Name, MaxNameLen)
	}
	if s.Template == "" {
		bad("template", "is missing: name the parameterized Nomad job that says how a member runs")
	}
	for _, label := range []struct{ field, value string }{{"template", s.Template}, {"tenant", s.Tenant}, {"tier", s.Tier}} {
		if label.value != "" && !labelRule.MatchString(label.value) {
			bad(label.field, "%q is no name: use up to %d letters, digits, '.', '_', '-' and '/'", label.value, MaxLabelLen)
		}
	}
	switch {
	case s.GPUs < 1:
		bad("gpus", "%d is not between 1 and %d", s.GPUs, MaxGPUs)
	case s.GPUs > MaxGPUs:
		refuse("gpus", "%d is not between 1 and %d", s.GPUs, MaxGPUs)
	}
	switch {
	case s.GPUsPerNode < 0:
		bad("gpus_per_node", "%d is negative", s.GPUsPerNode)
	case s.GPUsPerNode > 0 && s.GPUs%s.GPUsPerNode != 0:
		refuse("gpus", "%d is no multiple of gpus_per_node = %d", s.GPUs, s.GPUsPerNode)
	}
	if s.GPUMemoryMiB < 0 {
		bad("gpu_memory", "is negative")
	}
	if s.Estimate < 0 {
		bad("estimate", "%s is negative", s.Estimate)
	}
	if s.MaxRun < 0 {
		bad("max_run", "%s is negative", s.MaxRun)
	}
	if s.InfraRetries < 0 || s.InfraRetries > MaxRetries {
		bad("infra_retries", "%d is not between 0 and %d", s.InfraRetries, MaxRetries)
	}
	switch s.Reuse {
	case "", ReuseAny, ReuseTenant, ReuseNever:
	default:
		bad("reuse", "%q is none of \"any\", \"tenant\", \"never\"", s.Reuse)
	}
	if len(s.Params) > MaxParamsSize {
		bad("params", "are %d bytes as JSON, at most %d are taken: put large input into the blob store", len(s.Params), MaxParamsSize)
	} else if len(s.Params) > 0 && !isObject(s.Params) {
		bad("params", "are not a JSON object")
	}
	return errors.Join(faults...)
}

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
