package keeper

import (
	"strings"
	"unicode/utf8"
)

// Limits of what is told in words, in bytes.
const (
	// maxMessageBytes is for a sentence.
	maxMessageBytes = 4 << 10
	// maxNameBytes is for a name that a runner chose, as of a stage or a model.
	maxNameBytes = 256
	// maxLastLineBytes is for a rank's last words.
	maxLastLineBytes = 300
)

// cutMark ends a text that was cut.
const cutMark = " [cut]"

// clip makes a text of at most n bytes, which must be more than cutMark has, of
// any that came from outside: what a rank wrote, or an error that quotes a path.
// It is always UTF-8: proto3 marshals nothing else, and a report that cannot be
// sent would end each stream to gangd on which it is told again.
func clip(s string, n int) string {
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	if len(s) <= n {
		return s
	}
	end := n - len(cutMark)
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + cutMark
}
