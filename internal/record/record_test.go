package record

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

var (
	noon  = time.Date(2026, 12, 1, 12, 0, 0, 123456789, time.UTC)
	rules = schedule.Config{
		Levels: []string{"leaf"}, Tiers: []schedule.Tier{{Name: "high", Priority: 2, Preempts: []string{"low"}}, {Name: "low", Priority: 1, MinShare: 0.1}},
		HalfLife: time.Hour,
	}
)

func aNode(id string) cluster.Spec {
	s := cluster.Spec{ID: id, Name: id, Domains: []string{"l0"}, Schedulable: true, Capacity: cluster.Room{MemoryMiB: 1 << 20}}
	for i := range 8 {
		s.GPUs = append(s.GPUs, cluster.GPU{UUID: fmt.Sprint(id, "/", i), Index: i, Model: "H100", MemoryMiB: 81559, Healthy: true})
	}
	return s
}

func aGang(id string, seq uint64, tier string) schedule.Gang {
	return schedule.Gang{ID: gang.ID(id), Seq: seq, Attempt: 1, Spec: &gang.Spec{
		Name: id, Tier: tier, Tenant: "t<&>", GPUs: 8, GPUsPerNode: 8, Estimate: time.Minute, Params: []byte(`{"prompt":"a < b"}`),
	}}
}

// play has an engine take events a second apart.
func play(e *schedule.Engine, take func(schedule.Event, time.Time, []schedule.Decision, error), from int, events ...schedule.Event) {
	for i, ev := range events {
		at := noon.Add(time.Duration(from+i) * time.Second)
		decisions, refused := e.Apply(ev, at)
		take(ev, at, decisions, refused)
	}
}

var story = []schedule.Event{
	schedule.Together{schedule.NodeSet{Node: aNode("n1")}, schedule.Past{Tenant: "t<&>", GPUs: 0.1}},
	schedule.Submit{Gang: aGang("a", 1, "low")},
	schedule.Submit{Gang: aGang("b", 2, "high")},
	schedule.Submit{Gang: aGang("b", 2, "high")}, // refused
	schedule.Tick{},
	schedule.Release{Seat: schedule.Seat{ID: "a", Attempt: 1}},
	schedule.Withdraw{ID: "none"},
}

// recorded is a recording of the story.
func recorded(t testing.TB) []byte {
	e := schedule.New(rules)
	var out bytes.Buffer
	tape, err := NewTape(&out, "1.2.3", rules, e.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	play(e, func(ev schedule.Event, at time.Time, d []schedule.Decision, refused error) {
		if err := tape.Take(ev, at, d, refused); err != nil {
			t.Fatal(err)
		}
	}, 0, story...)
	return out.Bytes()
}

// Whatever an event or a decision says is there again when it is read.
func TestEachKindIsReadAsItWasWritten(t *testing.T) {
	g := aGang("g", 7, "low")
	g.Spec.Params = nil
	g.NotBefore, g.Avoid, g.Held, g.Accepted, g.Done = noon, []string{"n"}, true, true, time.Second
	place := gang.Placement{{Node: "n", GPUs: []int{0, 1}}}
	seat := schedule.Seat{ID: "g", Attempt: 2, Member: 1}
	all := schedule.Together{
		schedule.NodeSet{Node: aNode("n")}, schedule.NodeGone{ID: "n"}, schedule.Submit{Gang: g}, schedule.Withdraw{ID: "g"},
		schedule.Adopt{Gang: g, Placement: place, Held: []int{0}, Began: noon, Ready: noon, Owed: true, Ending: true},
		schedule.Occupy{Seat: seat, Place: place[0], Need: gang.Need{MemoryMiB: 5}}, schedule.Began{ID: "g", Attempt: 2}, schedule.Ending{ID: "g", Attempt: 2},
		schedule.Hold{ID: "g", Held: true}, schedule.Reorder{{ID: "g", Seq: 3}, {ID: "h", Seq: 4}}, schedule.Past{Tenant: "t", GPUs: 1.0 / 3},
		schedule.Release{Seat: seat}, schedule.Saved{ID: "g", Attempt: 2, Done: time.Hour}, schedule.Tick{}, schedule.Together{schedule.Tick{}},
		schedule.WindowSet{Window: schedule.Window{Name: "w", From: noon, Until: noon.Add(time.Hour), Nodes: []string{"n"}, Level: "leaf", Domain: "l0"}},
		schedule.WindowGone{Name: "w"},
	}
	if len(all) != len(events) {
		t.Errorf("%d events are tried, there are %d", len(all), len(events))
	}
	want := Step{N: 3, At: noon, Event: all, Refused: "no", Decisions: []schedule.Decision{
		schedule.Start{ID: "g", Attempt: 2, Placement: place, GPUs: 2, Warm: 1, Done: time.Second, Owed: true},
		schedule.Stop{ID: "g", Attempt: 2, Cause: schedule.Preempted, Mode: schedule.Hard, For: "h", To: 4, By: noon}, schedule.CallOff{ID: "g", Attempt: 2},
		schedule.Wait{IDs: []gang.ID{"g", "h"}, Code: gang.CodeQuota, For: "i"}, schedule.Reserve{ID: "g", Start: noon, MovedBy: "order"},
	}}
	if len(want.Decisions) != len(decisions) {
		t.Errorf("%d decisions are tried, there are %d", len(want.Decisions), len(decisions))
	}
	text, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeStep(text)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, %v\nwant %+v", got, err, want)
	}
}

func TestReplay(t *testing.T) {
	text := recorded(t)
	if bytes.Contains(text, []byte("prompt")) {
		t.Error("what a user gave the runner is recorded")
	}
	r, err := NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	steps, refused := 0, 0
	e, err := r.Replay(func(s Step) (bool, error) {
		steps++
		if s.Refused != "" {
			refused++
		}
		return true, nil
	})
	if err != nil || steps != len(story) || refused != 2 || r.CutOff || r.Head.Version != "1.2.3" {
		t.Errorf("%d steps, %d refused, %v", steps, refused, err)
	}
	if e.Waits("a") || e.Waits("b") {
		t.Error("somebody waits")
	}
	// up to a moment
	if r, err = NewReader(bytes.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	if e, err = r.Replay(func(s Step) (bool, error) { return s.N <= 3, nil }); err != nil || !e.Waits("b") {
		t.Errorf("after event 3 b waits: %t, %v", e.Waits("b"), err)
	}
}

func TestADecisionThatComesOutOtherwise(t *testing.T) {
	text := strings.Replace(string(recorded(t)), `"mode":"hard"`, `"mode":"graceful"`, 1)
	r, err := NewReader(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	other := new(DifferenceError)
	if _, err := r.Replay(nil); !errors.As(err, &other) || other.Recorded.N != 3 || !strings.Contains(err.Error(), `"mode":"graceful"`) || !strings.Contains(err.Error(), `"mode":"hard"`) {
		t.Errorf("%v", err)
	}
}

func TestWhatIsNoRecording(t *testing.T) {
	lines := strings.SplitAfter(string(recorded(t)), "\n")
	head := lines[0]
	for name, c := range map[string]struct{ text, want string }{
		"nothing":         {"", "line 1: it is empty"},
		"another format":  {strings.Replace(head, `"gangd_record":1`, `"gangd_record":9`, 1), "line 1: it has the format 9"},
		"an unknown rule": {strings.Replace(head, `"rules":{`, `"rules":{"magic":1,`, 1), `line 1: json: unknown field "magic"`},
		"a bad snapshot":  {strings.Replace(head, `"seen":0`, `"nodes":[{"spec":{"id":"n","name":"n","schedulable":true},"index":0}],"seen":1`, 1), "line 1: restore an engine"},
		"no JSON":         {head + "here\n", "line 2: invalid character"},
		"a step too many": {head + lines[1] + lines[1], "line 3: event 1 follows event 1"},
		"two on a line":   {head + strings.TrimSpace(lines[1]) + lines[2], "line 2: more than one value"},
		"an unknown kind": {head + `{"n":1,"at":"2026-12-01T12:00:00Z","event":{"magic":{}}}` + "\n", `line 2: unknown kind "magic"`},
		"two kinds":       {head + `{"n":1,"at":"2026-12-01T12:00:00Z","event":{"tick":{},"withdraw":{}}}` + "\n", "line 2: an object with 2 fields"},
		"no event":        {head + `{"n":1,"at":"2026-12-01T12:00:00Z"}` + "\n", "line 2: "},
		"null":            {head + `{"n":1,"at":"2026-12-01T12:00:00Z","event":null}` + "\n", "line 2: an object with 0 fields"},
		"no spec":         {head + `{"n":1,"at":"2026-12-01T12:00:00Z","event":{"submit":{"gang":{"id":"a"}}}}` + "\n", "line 2: gang a has no specification"},
		"a spec of none":  {head + `{"n":1,"at":"2026-12-01T12:00:00Z","event":{"submit":{"gang":{"id":"a","spec":{}}}}}` + "\n", "line 2: gang a: gpus: 0 is less than 1"},
		"a time too late": {head + `{"n":1,"at":"2926-12-01T12:00:00Z","event":{"tick":{}}}` + "\n", "line 2: 2926-12-01T12:00:00Z is no time"},
		"no such GPU":     {head + `{"n":1,"at":"2026-12-01T12:00:00Z","event":{"occupy":{"seat":{"id":"a"},"place":{"node":"n","gpus":[64]}}}}` + "\n", "line 2: place: [64] are no indexes"},
		"deep":            {head + `{"n":1,"at":"2026-12-01T12:00:00Z","event":` + strings.Repeat(`{"together":[`, 20) + strings.Repeat(`]}`, 20) + `}` + "\n", "line 2: events lie in each other"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := NewReader(strings.NewReader(c.text))
			if err == nil {
				_, err = r.Replay(nil)
			}
			if !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// A program that was killed leaves half a line.
func TestALineThatIsCutOffIsLeftOut(t *testing.T) {
	text := recorded(t)
	r, err := NewReader(bytes.NewReader(text[:len(text)-5]))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if _, err := r.Replay(func(Step) (bool, error) { n++; return true, nil }); err != nil || n != len(story)-1 || !r.CutOff {
		t.Errorf("%d steps, cut off: %t, %v", n, r.CutOff, err)
	}
}

// A full file makes room for another; each can be replayed alone, and together
// they have all.
func TestFilesRotate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record.jsonl")
	w := NewWriter(Options{Path: path, MaxBytes: 3000, Keep: 2, Log: hclog.NewNullLogger()})
	e := schedule.New(rules)
	begins, n := 0, 0
	for begins < 6 {
		if w.WantsBeginning() {
			w.Begin(rules, e.Snapshot())
			begins++
		}
		play(e, w.Take, n, schedule.NodeSet{Node: aNode(fmt.Sprint("n", n%50))}, schedule.Submit{Gang: aGang(fmt.Sprint("g", n), uint64(n+1), "low")})
		n += 2
		for len(w.queue) > 0 { // the disk is slower than a loop
			runtime.Gosched()
		}
	}
	w.Close()
	if w.Lost() > 0 {
		t.Errorf("%d steps were lost", w.Lost())
	}
	for _, name := range []string{path, path + ".1", path + ".2"} {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		r, err := NewReader(f)
		if err == nil {
			_, err = r.Replay(nil)
		}
		if err != nil || name != path && r.n == 0 {
			t.Errorf("%s: %d steps, %v", name, r.n, err)
		}
	}
	if _, err := os.Stat(path + ".3"); err == nil {
		t.Error("more files are kept than were asked for")
	}
}

// A disk that fails makes nobody wait, and nothing is recorded that does not
// belong to a beginning.
func TestADiskThatFails(t *testing.T) {
	var log bytes.Buffer
	w := NewWriter(Options{Path: filepath.Join(t.TempDir(), "none", "record.jsonl"), MaxBytes: 1000, Log: hclog.New(&hclog.LoggerOptions{Output: &log})})
	e := schedule.New(rules)
	w.Begin(rules, e.Snapshot())
	play(e, w.Take, 0, story...)
	w.Close()
	if w.Lost() != uint64(len(story)) || strings.Count(log.String(), "the recording rests") != 1 {
		t.Errorf("%d of %d steps were lost; log: %s", w.Lost(), len(story), log.String())
	}
}

// A disk that is full when a file should begin costs none of those that are there.
func TestAFullDiskCostsNoRecording(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record.jsonl")
	f := &file{o: Options{Path: path, Keep: 2}, create: create}
	for n := range 3 {
		if err := f.begin(&Head{Format: Format, Version: fmt.Sprint(n)}); err != nil {
			t.Fatal(err)
		}
	}
	f.create = func(path string) (io.WriteCloser, error) {
		out, err := create(path)
		return fullDisk{out}, err
	}
	for range 5 {
		if err := f.begin(&Head{Format: Format, Version: "none"}); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("on a full disk: %v", err)
		}
	}
	for name, version := range map[string]string{path: "2", path + ".1": "1", path + ".2": "0"} {
		text, err := os.ReadFile(name)
		if r, bad := NewReader(bytes.NewReader(text)); err != nil || bad != nil || r.Head.Version != version {
			t.Errorf("%s has %q, %v, %v; want that of %s", name, text, err, bad, version)
		}
	}
	if left, err := filepath.Glob(path + ".new*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// fullDisk takes the half of what is written to it.
type fullDisk struct{ io.WriteCloser }

func (d fullDisk) Write(p []byte) (int, error) {
	n, err := d.WriteCloser.Write(p[:len(p)/2])
	return n, cmp.Or(err, error(syscall.ENOSPC))
}

// What waits for a disk that hangs has a bound in bytes: a step may be large, and so
// is a beginning.
func TestADiskThatHangs(t *testing.T) {
	large := schedule.Wait{IDs: []gang.ID{gang.ID(strings.Repeat("g", 1<<20))}}
	w := &Writer{o: Options{Log: hclog.NewNullLogger()}, queue: make(chan any, maxQueued)}
	w.Begin(rules, schedule.Snapshot{})
	for range 2 * maxQueuedBytes >> 20 {
		w.Take(schedule.Tick{}, noon, []schedule.Decision{large}, nil)
	}
	if queued := w.bytes.Load(); queued > maxQueuedBytes || w.Lost() == 0 || w.WantsBeginning() {
		t.Errorf("%d bytes wait, %d steps are lost; it wants to begin: %t", queued, w.Lost(), w.WantsBeginning())
	}
	for range 100 { // each time that the agent leads
		w.Begin(rules, schedule.Snapshot{})
	}
	if queued := w.bytes.Load(); queued > maxQueuedBytes {
		t.Errorf("%d bytes wait", queued)
	}
}

// Steps that come faster than the disk takes them are lost, up to the next
// beginning.
func TestADiskThatIsSlow(t *testing.T) {
	w := &Writer{o: Options{Log: hclog.NewNullLogger()}, queue: make(chan any, 2)}
	if !w.WantsBeginning() {
		t.Error("nothing is begun, and it wants no beginning")
	}
	e := schedule.New(rules)
	w.Begin(rules, e.Snapshot())
	play(e, w.Take, 0, story...) // one fits
	if got := w.Lost(); got != uint64(len(story))-1 {
		t.Errorf("%d steps were lost", got)
	}
	<-w.queue
	if last := <-w.queue; !bytes.Contains(last.([]byte), []byte(`"n":1,`)) {
		t.Errorf("after the beginning comes %s", last)
	}
	if w.Begin(rules, e.Snapshot()); w.WantsBeginning() {
		t.Error("it has begun, and wants to again")
	}
	play(e, w.Take, 10, schedule.Tick{})
	<-w.queue
	if next := <-w.queue; !bytes.Contains(next.([]byte), []byte(`"n":1,`)) {
		t.Errorf("after the second beginning comes %s", next)
	}
}

// What is no recording is refused, and nothing panics, whatever a file has.
func FuzzReader(f *testing.F) {
	f.Add(recorded(f))
	f.Add([]byte(`{"gangd_record":1,"version":"","rules":{},"snapshot":{}}` + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := NewReader(bytes.NewReader(text))
		if err != nil {
			return
		}
		if again, err := NewReader(bytes.NewReader(text)); err == nil {
			_, _ = again.Replay(nil)
		}
		for {
			s, err := r.Next()
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, ErrUnreadable) {
					t.Fatal(err)
				}
				return
			}
			again, err := s.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if back, err := decodeStep(again); err != nil || back.N != s.N {
				t.Fatalf("written again it is %s: %v", again, err)
			}
		}
	})
}
