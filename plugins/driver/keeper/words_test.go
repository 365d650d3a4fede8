package keeper

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/gangd/gangd/internal/link/linkpb"
	"github.com/gangd/gangd/internal/member"
	"github.com/gangd/gangd/internal/runner"
	"github.com/gangd/gangd/plugins/driver/lane"
	"github.com/gangd/gangd/plugins/driver/process"
)

func TestClip(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"sixteen letters.", "sixteen letters."},
		{"seventeen letters", "seventeen  [cut]"},
		{"a sea, ein Mähhhh", "a sea, ein [cut]"},
		{"a sea, so \u00e4hnlich", "a sea, so  [cut]"},
		{"a sea, in \U0001f30a waves", "a sea, in  [cut]"},
		{"a sea, of\u00e4hnlich!", "a sea, of [cut]"},
		{"half \xf0\x9f\x8c", "half \ufffd"},
		{"\xff\xfe", "\ufffd"},
	} {
		if got := clip(c.text, 16); got != c.want {
			t.Errorf("clip(%q, 16) = %q, want %q", c.text, got, c.want)
		}
	}
}

// anyBytes are what a rank may write, or a path contain.
var anyBytes = rapid.Custom(func(t *rapid.T) string {
	word := rapid.OneOf(
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 30), func(b []byte) string { return string(b) }),
		rapid.StringN(0, 30, -1),
	).Draw(t, "bytes")
	return word + strings.Repeat(rapid.SampledFrom([]string{"", "x", "\u00e4", "\U0001f30a", "\xf0\x9f"}).Draw(t, "filling"),
		rapid.SampledFrom([]int{1, 90, 1500, 5000}).Draw(t, "times"))
})

func anyEvent(t *rapid.T) event {
	local := rapid.IntRange(0, 1).Draw(t, "local")
	text := func(what string) string { return anyBytes.Draw(t, what) }
	failed := func() error { return errors.New(text("error")) }
	switch rapid.IntRange(0, 10).Draw(t, "event") {
	case 0:
		return said{local, runner.Ready{ModelDigest: text("digest")}}
	case 1:
		return said{local, runner.Stage{Attempt: sea1, Stage: text("stage")}}
	case 2:
		attempt := rapid.SampledFrom([]runner.Attempt{{}, sea1}).Draw(t, "attempt")
		return said{local, runner.Failure{Attempt: attempt, Error: runner.Error{Class: text("class"), Message: text("message")}}}
	case 3:
		return exited{local: local, exit: process.Exit{Code: rapid.IntRange(0, 2).Draw(t, "code")}, lastLine: text("last line")}
	case 4:
		return broke{local, failed()}
	case 5:
		return prepared{failed()}
	case 6:
		return dispatched{attempt: sea1, err: failed()}
	case 7:
		return stored{attempt: sea1, err: failed()}
	case 8:
		return stopped{byNomad: true, reason: text("reason")}
	case 9:
		return rapid.SampledFrom([]event{runIt, onAll, resultA, resultB, lostPeer(local)}).Draw(t, "usual event")
	}
	return orderOf(5, &linkpb.Close{Reason: strings.ToValidUTF8(text("close"), "?")})
}

// Whatever bytes come from runners and the node, gangd can be told.
func TestEveryReportMarshals(t *testing.T) {
	begin := [][]event{
		{admit},
		{admit, prepared{}, readyA, readyB},
		{admit, prepared{}, readyA, readyB, runIt},
		{admit, prepared{}, readyA, readyB, runIt, onAll},
		{admit, prepared{}, readyA, readyB, runIt, onAll, resultA, resultB},
	}
	rapid.Check(t, func(t *rapid.T) {
		m := newTestMachine(rapid.SampledFrom([]string{member.ProtocolGangd, member.ProtocolNone}).Draw(t, "protocol"))
		events := append([]event{}, rapid.SampledFrom(begin).Draw(t, "begin")...)
		for range rapid.IntRange(1, 5).Draw(t, "events") {
			events = append(events, anyEvent(t))
		}
		for _, e := range append(events, gone{}) {
			for _, a := range m.apply(t0, e) {
				switch a := a.(type) {
				case report:
					marshals(t, e, a.KeeperReport)
				case tell:
					readable(t, e, a.message)
				case finish:
					readable(t, e, a.exit.Message)
				}
			}
			for _, again := range m.replay() {
				marshals(t, e, again)
			}
		}
	})
}

func marshals(t *rapid.T, e event, r *linkpb.KeeperReport) {
	if wire, err := proto.Marshal(r); err != nil || len(wire) > 3*maxMessageBytes {
		t.Fatalf("after %T: a report of %d bytes, %v", e, len(wire), err)
	}
}

func readable(t *rapid.T, e event, text string) {
	if !utf8.ValidString(text) || len(text) > maxMessageBytes {
		t.Fatalf("after %T: %d bytes, UTF-8: %v", e, len(text), utf8.ValidString(text))
	}
}

// The last words of a rank are cut between two letters.
func TestLastLineIsText(t *testing.T) {
	o := newOutput(lane.Dir(t.TempDir()), lane.Config{}, hclog.NewNullLogger())
	for written, want := range map[string]string{
		strings.Repeat("\u00e4", 400):       strings.Repeat("\u00e4", 147) + cutMark,
		"x" + strings.Repeat("\u00e4", 400): "x" + strings.Repeat("\u00e4", 146) + cutMark,
		"cannot open \xff\xfe.pt":           "cannot open \ufffd.pt",
	} {
		r, write, err := o.attach(0, "stderr")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := write.WriteString(written + "\n\n"); err != nil {
			t.Fatal(err)
		}
		write.Close()
		select {
		case <-r.done:
		case <-time.After(10 * time.Second):
			t.Fatal("the output does not end")
		}
		if got := r.lastLine(); got != want {
			t.Errorf("of %q the last line is %q, want %q", written, got, want)
		}
	}
}
