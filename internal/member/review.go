package member

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Review reads a block as it is in a job that Nomad keeps: values of JSON, in
// which a block is an object or a list of one. It returns every fault, in the
// order of the names. A text with a variable of Nomad's, ${...}, has its value
// on the node alone, and is checked there.
func Review(block map[string]any) (Settings, []Fault) {
	c := Default()
	var faults []Fault
	fault := func(attribute, format string, args ...any) {
		faults = append(faults, Fault{attribute, fmt.Sprintf(format, args...)})
	}
	for _, name := range slices.Sorted(maps.Keys(block)) {
		if !slices.ContainsFunc(Attributes, func(a Attribute) bool { return a.Name == name }) {
			fault(name, "there is no such attribute: there are %s", strings.Join(names(), ", "))
		}
	}
	faulty := make(map[string]bool)
	for _, a := range Attributes {
		if value := block[a.Name]; value != nil {
			if problem := c.read(a, value); problem != "" {
				faulty[a.Name] = true
				fault(a.Name, "%s", problem)
			}
		}
	}
	s, more := c.Settings()
	for _, f := range more {
		if !faulty[f.Attribute] {
			faults = append(faults, f)
		}
	}
	slices.SortStableFunc(faults, func(x, y Fault) int { return strings.Compare(x.Attribute, y.Attribute) })
	return s, faults
}

func names() []string {
	out := make([]string, len(Attributes))
	for i, a := range Attributes {
		out[i] = a.Name
	}
	return out
}

// read takes a value, or says why it cannot.
func (c *Config) read(a Attribute, value any) (problem string) {
	switch a.Kind {
	case List:
		list, is := value.([]any)
		if !is {
			return fmt.Sprintf("a list of texts is expected, found %s", kindOf(value))
		}
		for i, v := range list {
			if _, is := textOf(v); !is {
				return fmt.Sprintf("a list of texts is expected, found %s at index %d", kindOf(v), i)
			}
		}
		return ""
	case Variables:
		return c.readVariables(a, value)
	}
	text, is := textOf(value)
	switch {
	case !is:
		return fmt.Sprintf("a text is expected, found %s", kindOf(value))
	case !open(text):
		*c.text(a.Name) = text
	case a.Name == "ready_timeout":
		return fmt.Sprintf("%q has a variable: write the time as it is, since gangd counts it, and not the node", text)
	case a.Required:
		*c.text(a.Name) = text // is all that can be asked here
	}
	return ""
}

func (c *Config) readVariables(a Attribute, value any) string {
	if list, is := value.([]any); is {
		if len(list) > 1 {
			return "there is more than one such block: join them"
		}
		if len(list) == 0 {
			return ""
		}
		value = list[0]
	}
	block, is := value.(map[string]any)
	if !is {
		return fmt.Sprintf("a block of variables is expected, found %s", kindOf(value))
	}
	c.Env = make(map[string]string, len(block))
	for _, name := range slices.Sorted(maps.Keys(block)) {
		text, is := textOf(block[name])
		if !is {
			return fmt.Sprintf("a text is expected for %s, found %s", name, kindOf(block[name]))
		}
		c.Env[name] = text
	}
	return ""
}

// open reports whether Nomad's client has yet to put values into a text.
func open(text string) bool { return strings.Contains(text, "${") || strings.Contains(text, "%{") }

// textOf is a value as HCL makes a text of it.
func textOf(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	case int:
		return strconv.Itoa(v), true
	}
	return "", false
}

func kindOf(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case string, bool, float64, int:
		text, _ := textOf(value)
		return strconv.Quote(text)
	case []any:
		return "a list"
	}
	return "a block"
}
