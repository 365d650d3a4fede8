package gang

import (
	"errors"
	"fmt"
	"time"
)

// Window is what Consul keeps of a maintenance window under maintenance/<name>:
// a time in which nodes are out of use, known ahead.
type Window struct {
	Version int    `json:"v,omitempty"`
	Name    string `json:"name"`
	// From and Until are in Unix milliseconds.
	From  int64 `json:"from_ms"`
	Until int64 `json:"until_ms"`
	// Nodes are of it, by their IDs in Nomad, or all of a Domain at a Level, those
	// that come later too; where neither is given, the whole cluster.
	Nodes  []string `json:"nodes,omitempty"`
	Level  string   `json:"level,omitempty"`
	Domain string   `json:"domain,omitempty"`
}

// WindowStatus is a window as an operator sees it.
type WindowStatus struct {
	Window
	// NodeNames are those of Nodes.
	NodeNames []string `json:"node_names,omitempty"`
}

// MaxWindowNodes bounds the nodes that a window names: more of them are a domain.
const MaxWindowNodes = 1000

// Validate returns a *RefusedError where the window makes no sense.
func (w *Window) Validate() error {
	switch {
	case !validName(w.Name):
		return RefuseField("name", "%q is not made of at most %d lower-case letters, digits and hyphens", w.Name, MaxNameLen)
	case w.From <= 0 || w.Until <= w.From:
		return RefuseField("until_ms", "it ends at %s, which is not after its beginning at %s", windowTime(w.Until), windowTime(w.From))
	case (w.Level == "") != (w.Domain == ""):
		return RefuseField("domain", "a domain is named by its level and its name")
	case w.Level != "" && len(w.Nodes) > 0:
		return RefuseField("nodes", "a window is of nodes or of a domain: plan two")
	case len(w.Nodes) > MaxWindowNodes:
		return RefuseField("nodes", "%d are named, and at most %d can be: name a domain", len(w.Nodes), MaxWindowNodes)
	}
	return nil
}

func windowTime(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05 UTC") }

// WindowKey is where a window lies.
func WindowKey(name string) string { return "maintenance/" + name }

// DecodeWindow reads a window.
func DecodeWindow(key string, value []byte) (*Window, error) {
	w := new(Window)
	return w, decode(key, value, w)
}

func (w *Window) damage(key string) error {
	if WindowKey(w.Name) != key {
		return fmt.Errorf("it is of window %q", w.Name)
	}
	return w.Validate()
}

// ErrNoWindow is wrapped where there is no window of the name that was asked for.
var ErrNoWindow = errors.New("no such maintenance window")
