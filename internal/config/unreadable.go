package config

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
)

const (
	// maxShown bounds how many faults of one input are printed.
	maxShown = 20
	// maxShownLine bounds how many bytes of a source line are printed.
	maxShownLine = 160
)

// UnreadableError is input that could not be read as what it should be: the
// caller exits with 2, or answers 400. Its text is made for people, with
// several lines to a fault.
type UnreadableError struct {
	Diagnostics hcl.Diagnostics
	sources     map[string]*hcl.File
}

// Error shows each fault with file, line and the offending text.
func (e *UnreadableError) Error() string {
	var b strings.Builder
	for i, d := range e.Diagnostics {
		if i > 0 {
			b.WriteByte('\n')
		}
		if i == maxShown {
			fmt.Fprintf(&b, "And %d more.\n", len(e.Diagnostics)-i)
			break
		}
		e.write(&b, d)
	}
	return strings.TrimRight(b.String(), "\n")
}

// Field names the attribute of the first fault that concerns one; empty where
// none does.
func (e *UnreadableError) Field() string { return fieldOf(e.Diagnostics) }

func fieldOf(diags hcl.Diagnostics) string {
	for _, d := range diags {
		if field, ok := d.Extra.(attributeName); ok {
			return string(field)
		}
	}
	return ""
}

// attributeName is put into a diagnostic's Extra.
type attributeName string

func (e *UnreadableError) write(b *strings.Builder, d *hcl.Diagnostic) {
	if d.Subject == nil {
		fmt.Fprintf(b, "%s: %s\n", d.Summary, d.Detail)
		return
	}
	at := *d.Subject
	fmt.Fprintf(b, "%s:%d: %s%s\n", at.Filename, at.Start.Line, d.Summary, e.place(at))
	if file := e.sources[at.Filename]; file != nil {
		writeLine(b, file.Bytes, at)
	}
	if d.Detail != "" {
		fmt.Fprintf(b, "  %s\n", strings.ReplaceAll(d.Detail, "\n", "\n  "))
	}
}

// place says in which block a range lies, where the syntax knows it.
func (e *UnreadableError) place(at hcl.Range) string {
	file := e.sources[at.Filename]
	if file == nil {
		return ""
	}
	nav, ok := file.Nav.(interface{ ContextString(offset int) string })
	if !ok {
		return ""
	}
	if s := nav.ContextString(at.Start.Byte); s != "" {
		return " (in " + s + ")"
	}
	return ""
}

// writeLine prints the line on which a range starts, with the range's part of
// it underlined.
func writeLine(b *strings.Builder, src []byte, at hcl.Range) {
	from := min(max(at.Start.Byte, 0), len(src))
	lineStart := bytes.LastIndexByte(src[:from], '\n') + 1
	lineEnd := len(src)
	if i := bytes.IndexByte(src[from:], '\n'); i >= 0 {
		lineEnd = from + i
	}
	to := min(max(at.End.Byte, from+1), max(lineEnd, from+1))
	if from-lineStart > maxShownLine/2 {
		lineStart = from - maxShownLine/2
	}
	lineEnd = min(lineEnd, lineStart+maxShownLine)
	to = min(to, max(lineEnd, from+1))

	gutter := fmt.Sprintf("  %d | ", at.Start.Line)
	fmt.Fprintf(b, "%s%s\n", gutter, printable(src[lineStart:lineEnd]))
	marks := 1
	if to <= lineEnd {
		marks = max(1, utf8.RuneCount(src[from:to]))
	}
	indent := utf8.RuneCount(src[lineStart:from])
	fmt.Fprintf(b, "%s| %s%s\n", strings.Repeat(" ", len(gutter)-2), strings.Repeat(" ", indent), strings.Repeat("^", marks))
}

// printable keeps source from steering a terminal, one rune for one.
func printable(src []byte) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0:
			return utf8.RuneError
		}
		return r
	}, string(src))
}

// fault makes a diagnostic; field may be empty.
func fault(field string, at hcl.Range, summary, detail string) *hcl.Diagnostic {
	d := &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: detail, Subject: &at}
	if field != "" {
		d.Extra = attributeName(field)
	}
	return d
}

// unreadable makes an error of what was found wrong, in the order of the
// text; nil if nothing was.
func unreadable(diags hcl.Diagnostics, sources map[string]*hcl.File) error {
	if !diags.HasErrors() {
		return nil
	}
	slices.SortStableFunc(diags, func(a, b *hcl.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Subject.Filename, b.Subject.Filename), cmp.Compare(a.Subject.Start.Byte, b.Subject.Start.Byte))
	})
	return &UnreadableError{Diagnostics: diags, sources: sources}
}

// unreadableFile is a file of which no part could be read.
func unreadableFile(summary, format string, args ...any) error {
	return &UnreadableError{Diagnostics: hcl.Diagnostics{{
		Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(format, args...),
	}}}
}
