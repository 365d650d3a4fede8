package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gangd/gangd/internal/runner"
)

func quiet() *program {
	return &program{joinTimeout: 20 * time.Second, peerTimeout: 20 * time.Second, log: log.New(io.Discard, "", 0)}
}

// short is a clip that is drawn quickly; more is added to its params.
func short(more string) json.RawMessage {
	return json.RawMessage(`{"prompt":"a red ball bounces over a blue sea","seed":7,"steps":6,"frames":5,"width":160,"height":90` + more + `}`)
}

// recorder is a rank's progress, with a checkpoint after one step (0: none).
type recorder struct {
	checkpointAt int

	mu     sync.Mutex
	stages []string
	steps  []runner.Step
	shards []runner.Checkpoint
}

func (r *recorder) Stage(stage string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stages = append(r.stages, stage)
}
func (r *recorder) Step(s runner.Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, s)
}
func (r *recorder) Checkpoint(c runner.Checkpoint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shards = append(r.shards, c)
}
func (r *recorder) CheckpointDue(step int) bool { return step == r.checkpointAt }

// outcome is what the ranks of a gang came to.
type outcome struct {
	results  []runner.Result
	errs     []error
	progress []*recorder
}

func gang(t *testing.T, ctx context.Context, world int, params json.RawMessage, change func(*runner.Order), checkpointAt int) outcome {
	t.Helper()
	orders, err := ordersFor(runner.Attempt{Gang: "sea", Number: 1}, world, params, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	o := outcome{results: make([]runner.Result, world), errs: make([]error, world), progress: make([]*recorder, world)}
	var wg sync.WaitGroup
	for rank := range orders {
		if change != nil {
			change(&orders[rank])
		}
		o.progress[rank] = &recorder{checkpointAt: checkpointAt}
		wg.Go(func() { o.results[rank], o.errs[rank] = quiet().Run(ctx, orders[rank], o.progress[rank]) })
	}
	wg.Wait()
	return o
}

func (o outcome) video(t *testing.T) string {
	t.Helper()
	for rank, err := range o.errs {
		if err != nil {
			t.Fatalf("rank %d: %v", rank, err)
		}
		if rank > 0 && o.results[rank] != (runner.Result{}) {
			t.Errorf("rank %d claims an artifact: %+v", rank, o.results[rank])
		}
	}
	data, err := os.ReadFile(o.results[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestTheVideoIsTheSameAtEveryWorldSize(t *testing.T) {
	for _, solver := range []string{"dpmpp_2m", "dpmpp_2m_sde"} {
		var want string
		for _, world := range []int{1, 2, 3, 5} {
			o := gang(t, t.Context(), world, short(`,"sampler":"`+solver+`"`), nil, 0)
			got := o.video(t)
			if want == "" {
				want = got
			}
			if got != want {
				t.Errorf("%s: another video at world size %d", solver, world)
			}
			for rank, p := range o.progress {
				if len(p.steps) != 6 || p.steps[5].I != 6 || p.steps[5].N != 6 || !p.steps[5].Finite {
					t.Errorf("rank %d of %d: steps %+v", rank, world, p.steps)
				}
				for i := range p.steps {
					if p.steps[i].CRC != o.progress[0].steps[i].CRC {
						t.Errorf("rank %d of %d: step %d has another CRC than rank 0's", rank, world, i+1)
					}
				}
			}
			if got := strings.Join(o.progress[0].stages, " "); got != "load encode_text denoise decode write" {
				t.Errorf("rank 0's stages are %q", got)
			}
		}
	}
}

// A run that stops after step 3 on four ranks goes on, on another number of ranks, to the same video.
func TestResumeOnAnotherWorldSize(t *testing.T) {
	params := short(`,"sampler":"dpmpp_2m_sde"`)
	first := gang(t, t.Context(), 4, params, nil, 3)
	want := first.video(t)
	resume := &runner.Resume{Step: 3}
	for rank, p := range first.progress {
		if len(p.shards) != 1 {
			t.Fatalf("rank %d wrote %d shards", rank, len(p.shards))
		}
		c := p.shards[0]
		resume.Shards = append(resume.Shards, runner.Shard{Rank: rank, Path: c.Path, SHA256: c.SHA256, Bytes: c.Bytes})
	}
	for _, world := range []int{1, 3, 4} {
		second := gang(t, t.Context(), world, params, func(o *runner.Order) { o.Number, o.Resume = 2, resume }, 0)
		if second.video(t) != want {
			t.Errorf("another video when resumed on %d ranks", world)
		}
		if steps := second.progress[0].steps; len(steps) != 3 || steps[0].I != 4 {
			t.Errorf("resumed on %d ranks: steps %+v", world, steps)
		}
	}

	refused := func(why string, params json.RawMessage, resume *runner.Resume) {
		t.Helper()
		o := gang(t, t.Context(), 1, params, func(o *runner.Order) { o.Resume = resume }, 0)
		var e *runner.Error
		if !errors.As(o.errs[0], &e) || e.Class != classResume || e.Retryable {
			t.Errorf("%s: %v", why, o.errs[0])
		}
	}
	refused("a state of another seed", json.RawMessage(strings.Replace(string(params), `"seed":7`, `"seed":8`, 1)), resume)
	refused("a shard is missing", params, &runner.Resume{Step: 3, Shards: resume.Shards[1:]})
	refused("of another step", params, &runner.Resume{Step: 4, Shards: resume.Shards})
	data, err := os.ReadFile(resume.Shards[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(resume.Shards[0].Path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	refused("a bit flipped on disk", params, resume)
}

// One rank fails with an error of its own; the others report a lost peer, which another attempt may mend.
func TestAFailingRankBreaksTheGang(t *testing.T) {
	o := gang(t, t.Context(), 3, short(`,"fail":{"rank":2,"step":2,"class":"out_of_memory","retryable":false,"message":"no room"}`), nil, 0)
	var e *runner.Error
	if !errors.As(o.errs[2], &e) || *e != (runner.Error{Class: "out_of_memory", Message: "no room"}) {
		t.Errorf("rank 2: %v", o.errs[2])
	}
	for rank := range 2 {
		if !errors.As(o.errs[rank], &e) || e.Class != runner.ClassPeerLost || !e.Retryable {
			t.Errorf("rank %d: %v", rank, o.errs[rank])
		}
	}
	again := gang(t, t.Context(), 2, short(`,"fail":{"rank":1,"step":2,"attempt":1}`), func(o *runner.Order) { o.Number = 2 }, 0)
	again.video(t) // the fault was for attempt 1
}

func TestBadParamsAreRefused(t *testing.T) {
	for params, says := range map[string]string{
		`{"prompt":1}`:              "prompt",
		`{"promt":"x"}`:             `unknown field "promt"`,
		`{"steps":0}`:               "steps is 0, want 1 to 1000",
		`{"frames":100000}`:         "frames is 100000",
		`{"width":641}`:             "even numbers",
		`{"sampler":"euler"}`:       `sampler is "euler"`,
		`{"eta":-1}`:                "eta is -1",
		`{"step_ms":-5}`:            "step_ms is -5",
		`{"fps":0}`:                 "fps is 0",
		`{"seed":-1}`:               "seed",
		`{"fail":{"nowhere":true}}`: "nowhere",
	} {
		_, err := parseParams(json.RawMessage(params))
		var e *runner.Error
		if !errors.As(err, &e) || e.Class != classParams || e.Retryable || !strings.Contains(e.Message, says) {
			t.Errorf("%s: %v, want an error with %q", params, err, says)
		}
	}
	o := gang(t, t.Context(), 6, short(""), nil, 0)
	if err := o.errs[0]; err == nil || !strings.Contains(err.Error(), "5 frames cannot be spread over 6 ranks") {
		t.Errorf("more ranks than frames: %v", err)
	}
}

// Under a keeper: a cancel ends a step that takes minutes, a stale one does nothing, and the same process makes the next
// video with fresh state.
func TestServedByAKeeper(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rank.sock")
	listener, err := runner.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	t.Setenv(runner.EnvSocket, path)
	code := make(chan int, 1)
	go func() { code <- start(t.Context(), []string{"-load", "1ms"}) }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, hello, err := listener.Accept(ctx)
	if err != nil || hello.Protocol != runner.Protocol {
		t.Fatalf("%+v, %v", hello, err)
	}
	defer conn.Close()
	next := func() runner.Message {
		t.Helper()
		conn.SetReceiveDeadline(time.Now().Add(20 * time.Second))
		m, err := conn.Receive()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	order := func(attempt int, more string) {
		t.Helper()
		orders, err := ordersFor(runner.Attempt{Gang: "sea", Number: attempt}, 1, short(more), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Send(orders[0]); err != nil {
			t.Fatal(err)
		}
	}
	if m := next(); m != (runner.Ready{ModelDigest: modelDigest}) {
		t.Fatalf("got %+v", m)
	}
	order(1, `,"step_ms":600000`)
	for m := next(); m.Type() != "stage" || m.(runner.Stage).Stage != runner.StageDenoise; m = next() {
	}
	for _, a := range []runner.Attempt{{Gang: "sea", Number: 2}, {Gang: "sea", Number: 1}} {
		if err := conn.Send(runner.Cancel{Attempt: a}); err != nil {
			t.Fatal(err)
		}
	}
	if m, ok := next().(runner.Failure); !ok || m.Class != runner.ClassCancelled || m.Number != 1 {
		t.Fatalf("got %+v", m)
	}
	order(2, "")
	for m := next(); ; m = next() {
		if result, ok := m.(runner.Result); ok {
			if info, err := os.Stat(result.Path); err != nil || info.Size() == 0 || result.Number != 2 || result.Thumbnail == "" {
				t.Errorf("result %+v: %v", result, err)
			}
			break
		}
		if m.Type() == "error" {
			t.Fatalf("got %+v", m)
		}
	}
	if err := conn.Send(runner.Drain{}); err != nil {
		t.Fatal(err)
	}
	if got := <-code; got != 0 {
		t.Errorf("exit code %d after a drain", got)
	}
}

func TestUsage(t *testing.T) {
	t.Setenv(runner.EnvSocket, "")
	for _, c := range []struct {
		args []string
		want int
	}{
		{nil, 2},
		{[]string{"-nonsense"}, 2},
		{[]string{"stray"}, 2},
		{[]string{"-prompt", "a ball", "-world", "0"}, 2},
		{[]string{"-params", "{"}, 2},
		{[]string{"-params", `{"steps":0}`}, 1},
	} {
		if got := start(t.Context(), c.args); got != c.want {
			t.Errorf("%q: exit code %d, want %d", c.args, got, c.want)
		}
	}
	dir := t.TempDir()
	args := []string{"-params", string(short("")), "-seed", fmt.Sprint(3), "-world", "2", "-out", dir}
	if got := start(t.Context(), args); got != 0 {
		t.Errorf("by hand: exit code %d", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "thumbnail.png")); err != nil {
		t.Error(err)
	}
}
