package gang

import (
	"errors"
	"slices"
	"testing"
)

func TestWindows(t *testing.T) {
	whole := Window{Version: 1, Name: "night", From: 1000, Until: 2000, Level: "leaf", Domain: "l0"}
	if w, err := DecodeWindow("maintenance/night", Encode(&whole)); err != nil || w.Domain != "l0" {
		t.Errorf("%+v, %v", w, err)
	}
	if _, err := DecodeWindow("maintenance/day", Encode(&whole)); err == nil {
		t.Error("a window of another name is taken")
	}
	for what, spoil := range map[string]func(*Window){
		"a name":         func(w *Window) { w.Name = "Night!" },
		"its beginning":  func(w *Window) { w.From = 0 },
		"its end":        func(w *Window) { w.Until = w.From },
		"half a domain":  func(w *Window) { w.Level = "" },
		"nodes and more": func(w *Window) { w.Nodes = []string{"n"} },
		"many nodes":     func(w *Window) { w.Level, w.Domain, w.Nodes = "", "", slices.Repeat([]string{"n"}, MaxWindowNodes+1) },
	} {
		w := whole
		spoil(&w)
		refused := new(RefusedError)
		if err := w.Validate(); !errors.As(err, &refused) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
