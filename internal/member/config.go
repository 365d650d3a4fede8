package member

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Whom a rank stands for.
const (
	PerGPU  = "gpu"
	PerNode = "node"
)

// What a rank speaks.
const (
	ProtocolGangd = "gangd"
	ProtocolNone  = "none"
)

// Bounds of the durations.
const (
	MaxGrace        = 10 * time.Minute
	MinReadyTimeout = time.Second
	MaxReadyTimeout = 24 * time.Hour
)

// Kind is what an attribute of the block holds.
type Kind int

const (
	Text Kind = iota
	// List is one of texts.
	List
	// Variables is a block with attributes of any names, each a text.
	Variables
)

// Attribute is one of the block's.
type Attribute struct {
	Name     string
	Kind     Kind
	Required bool
	// Default stands for a text that is not given; "" for none.
	Default string
}

// Attributes are all that the block may have, by name.
var Attributes = []Attribute{
	{Name: "args", Kind: List},
	{Name: "command", Kind: Text, Required: true},
	{Name: "env", Kind: Variables},
	{Name: "kill_grace", Kind: Text, Default: "5s"},
	{Name: "processes", Kind: Text, Default: PerGPU},
	{Name: "protocol", Kind: Text, Default: ProtocolGangd},
	{Name: "ready_timeout", Kind: Text},
}

// Config is the block as it is written.
type Config struct {
	Command      string            `codec:"command"`
	Args         []string          `codec:"args"`
	Env          map[string]string `codec:"env"`
	Processes    string            `codec:"processes"`
	Protocol     string            `codec:"protocol"`
	KillGrace    string            `codec:"kill_grace"`
	ReadyTimeout string            `codec:"ready_timeout"`
}

// Default is the block with nothing in it.
func Default() Config {
	var c Config
	for _, a := range Attributes {
		if text := c.text(a.Name); text != nil {
			*text = a.Default
		}
	}
	return c
}

// text is the field of an attribute that is a text; nil for the others.
func (c *Config) text(name string) *string {
	switch name {
	case "command":
		return &c.Command
	case "processes":
		return &c.Processes
	case "protocol":
		return &c.Protocol
	case "kill_grace":
		return &c.KillGrace
	case "ready_timeout":
		return &c.ReadyTimeout
	}
	return nil
}

// Settings are what follows from a block that has no fault.
type Settings struct {
	// KillGrace is between SIGTERM and SIGKILL when Nomad stops the task.
	KillGrace time.Duration
	// ReadyTimeout is how long a gang may take until all its members are ready;
	// 0 where the block does not say.
	ReadyTimeout time.Duration
}

// Fault is what is wrong with one attribute, and what to write instead.
type Fault struct{ Attribute, Problem string }

func (f Fault) Error() string { return f.Attribute + ": " + f.Problem }

// Settings checks the values of a block, and returns every fault, by the order
// of Attributes.
func (c Config) Settings() (Settings, []Fault) {
	var s Settings
	var faults []Fault
	check := func(attribute, problem string) {
		if problem != "" {
			faults = append(faults, Fault{attribute, problem})
		}
	}
	if c.Command == "" {
		check("command", "it is missing: name the runner's program, by a path or as it is found in the node's PATH")
	}
	check("env", variables(c.Env))
	var problem string
	s.KillGrace, problem = duration(c.KillGrace, 0, MaxGrace)
	check("kill_grace", problem)
	check("processes", oneOf(c.Processes, PerGPU, PerNode))
	check("protocol", oneOf(c.Protocol, ProtocolGangd, ProtocolNone))
	if c.ReadyTimeout != "" {
		s.ReadyTimeout, problem = duration(c.ReadyTimeout, MinReadyTimeout, MaxReadyTimeout)
		check("ready_timeout", problem)
	}
	return s, faults
}

func variables(env map[string]string) string {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(env[name], "\x00") {
			return fmt.Sprintf("%q is not a variable that a process can have", name)
		}
	}
	return ""
}

func oneOf(value, a, b string) string {
	if value == a || value == b {
		return ""
	}
	return fmt.Sprintf("%q is neither %q nor %q", value, a, b)
}

func duration(text string, least, most time.Duration) (time.Duration, string) {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, fmt.Sprintf(`%q is not a duration such as "5s"`, text)
	case d < least || d > most:
		return 0, fmt.Sprintf("%q is not between %v and %v", text, least, most)
	}
	return d, ""
}
