package config

import (
	"bytes"
	"errors"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"github.com/gangd/gangd/internal/gang"
)

// IsJSON reports whether a file of gangs is JSON: HCL cannot begin as that does.
func IsJSON(src []byte) bool {
	start := bytes.TrimLeft(src, " \t\r\n")
	return len(start) > 0 && (start[0] == '{' || start[0] == '[')
}

// Locate shows a refusal of one of the gangs of a file as ParseGangs shows
// faults: with file, line and the text that it is about. It leaves any other
// error as it is.
func Locate(filename string, src []byte, err error) error {
	var refused *gang.RefusedError
	if !errors.As(err, &refused) || refused.Gang == "" {
		return err
	}
	read := readGangs
	if IsJSON(src) {
		read = readGangsJSON
	}
	r, unread := read(filename, src)
	if unread != nil {
		return err
	}
	i := slices.IndexFunc(r.gangs, func(g located) bool { return g.name == refused.Gang })
	if i < 0 {
		return err
	}
	at, known := r.gangs[i].at[refused.Field]
	if !known {
		at = r.gangs[i].whole
	}
	reason, shown := *refused, *refused
	if !IsJSON(src) {
		reason.Gang = "" // the place tells it
	}
	shown.Shown = unreadable(hcl.Diagnostics{fault(refused.Field, at, "Refused", reason.Error())}, r.sources).Error()
	return &shown
}
