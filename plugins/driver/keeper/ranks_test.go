package keeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/internal/link/linkpb"
	"github.com/gangd/gangd/internal/member"
	"github.com/gangd/gangd/internal/runner"
	"github.com/gangd/gangd/plugins/driver/cgroup"
	"github.com/gangd/gangd/plugins/driver/lane"
	"github.com/gangd/gangd/plugins/driver/process"
)

// newSpawner: a process has one.
var newSpawner = sync.OnceValues(func() (*process.Spawner, error) { return process.NewSpawner(cgroup.Group{}) })

func theSpawner(t *testing.T) *process.Spawner {
	t.Helper()
	s, err := newSpawner()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// newTestRanks are ranks of one GPU without control groups, and what they post.
func newTestRanks(t *testing.T, cfg lane.Config) (*ranks, <-chan event) {
	t.Helper()
	cfg.GPUs, cfg.Processes, cfg.TaskDir = []lane.GPU{{UUID: "a"}}, member.PerGPU, t.TempDir()
	cfg.Env = map[string]string{"PATH": os.Getenv("PATH")}
	dir, log := lane.Dir(cfg.TaskDir), hclog.NewNullLogger()
	events := make(chan event, 10)
	return &ranks{
		dir: dir, cfg: cfg, spawner: theSpawner(t), output: newOutput(dir, cfg, log),
		post: func(e event) { events <- e }, log: log,
		children: make(map[int]*process.Child), conns: make(map[int]*runner.Conn),
	}, events
}

func awaitGone(t *testing.T, events <-chan event) {
	t.Helper()
	eventually(t, "all are gone", func() bool {
		select {
		case e := <-events:
			_, is := e.(gone)
			return is
		default:
			return false
		}
	})
}

// TestEndWithoutControlGroups: where none are permitted, processes that left
// their session and lost their parent are still found.
func TestEndWithoutControlGroups(t *testing.T) {
	r, events := newTestRanks(t, lane.Config{
		Command: "/bin/sh",
		Args:    []string{"-c", `setsid sh -c 'trap "" TERM; echo $$ > orphan; sleep 600; :' & sleep 600`},
	})
	if _, err := r.start(0, nil); err != nil {
		t.Fatal(err)
	}
	orphan := 0
	eventually(t, "the orphan runs", func() bool {
		content, _ := os.ReadFile(filepath.Join(r.cfg.TaskDir, "orphan"))
		orphan, _ = strconv.Atoi(strings.TrimSpace(string(content)))
		return orphan > 0
	})
	ref, err := process.Find(orphan)
	if err != nil {
		t.Fatal(err)
	}
	r.end(t.Context(), syscall.SIGTERM, 50*time.Millisecond)
	if _, err := r.start(1, nil); !errors.Is(err, errEnding) {
		t.Errorf("a rank of an ending lane started: %v", err)
	}
	awaitGone(t, events)
	if ref.Alive() {
		t.Errorf("process %d lives", orphan)
	}
	if left, err := process.Descendants(os.Getpid()); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestAnEndDoesNotWaitForAStart: while the file system of a runner's program
// hangs, an order to end the lane is obeyed at once. A FIFO that says nothing
// reads as slowly as a file of a server that is gone.
func TestAnEndDoesNotWaitForAStart(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "runner")
	if err := syscall.Mkfifo(fifo, 0o700); err != nil {
		t.Fatal(err)
	}
	r, events := newTestRanks(t, lane.Config{Command: fifo})
	started := make(chan error, 2)
	go func() {
		_, err := r.start(0, nil)
		started <- err
	}()
	go func() {
		_, err := r.startBeside(process.Command{Path: fifo, Dir: "/"}, os.Stdout, os.Stderr)
		started <- err
	}()
	var writer *os.File
	eventually(t, "the start hangs", func() (hangs bool) {
		var err error
		writer, err = os.OpenFile(fifo, os.O_WRONLY|syscall.O_NONBLOCK, 0) // only if somebody reads
		return err == nil
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.end(t.Context(), syscall.SIGKILL, 0)
	}()
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.Error("the end waits for the start")
	}
	awaitGone(t, events)
	defer writer.Close()
	if _, err := writer.WriteString("go"); err != nil { // a byte for each
		t.Fatal(err)
	}
	for range 2 {
		if err := <-started; !errors.Is(err, errEnding) {
			t.Errorf("a command of an ending lane started: %v", err)
		}
	}
}

// TestWhatDoesNotDieIsLogged: a process may be in the kernel's hands. Whoever
// waits for it says so every ten seconds, and no longer than it lives itself.
func TestWhatDoesNotDieIsLogged(t *testing.T) {
	for name, c := range map[string]struct {
		killAt time.Duration // from the start
		killed bool
	}{"due": {0, true}, "not yet due": {time.Minute, false}} {
		synctest.Test(t, func(t *testing.T) {
			var said bytes.Buffer
			log := hclog.New(&hclog.LoggerOptions{Output: &said})
			ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
			defer cancel()
			began, killed := time.Now(), false
			err := killUntilGone(ctx, &terminator{killAt: began.Add(c.killAt)}, log,
				func() []int { return []int{7} }, func([]int) { killed = true })
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 25*time.Second {
				t.Errorf("%s: it ended after %v with %v", name, time.Since(began), err)
			}
			if n := strings.Count(said.String(), "pids=[7]"); n != 2 || killed != c.killed {
				t.Errorf("%s: killed: %v; %d complaints: %s", name, killed, n, said.String())
			}
		})
	}
}

func TestLinesAreDroppedAndCounted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f := newForwarder(path)
	line := []byte(strings.Repeat("x", 1023) + "\n")
	for range maxForwardBytes/len(line) + 7 {
		f.put(line) // nobody reads, and it does not wait
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go f.run(ctx)
	reader, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	buffer := make([]byte, maxForwardBytes/2)
	total := 0
	for total < len(buffer) {
		n, err := reader.Read(buffer[total:])
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	f.put([]byte("at last\n"))
	var rest strings.Builder
	eventually(t, "the notice and the newest line came", func() bool {
		n, err := reader.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		rest.Write(buffer[:n])
		return strings.HasSuffix(rest.String(), "gangd: 7 lines are missing here, as nobody read the log for too long\nat last\n")
	})
}

func TestTheJournalKeepsTheNewestUntilTheyAreRead(t *testing.T) {
	var log bytes.Buffer
	j := newJournal(hclog.New(&hclog.LoggerOptions{Output: &log}))
	for i := range lane.MaxEvents + 5 {
		j.add(t0, fmt.Sprint(i))
	}
	if unread := j.unread(); len(unread) != lane.MaxEvents || unread[0].Message != "5" || unread[0].Sequence != 6 {
		t.Errorf("kept %d events from %+v", len(unread), unread[0])
	}
	var read []string
	broken := errors.New("the plugin was killed")
	j.follow(context.Background(), func(e lane.Event) error {
		if len(read) == 2 {
			return broken
		}
		read = append(read, e.Message)
		return nil
	})
	if unread := j.unread(); fmt.Sprint(read) != "[5 6]" || unread[0].Message != "7" {
		t.Errorf("read %v, kept %+v", read, unread[0])
	}
	if strings.Count(log.String(), "[WARN]") != 1 || !strings.Contains(log.String(), "dropped=5") {
		t.Errorf("logged: %s", log.String())
	}
}

func TestResultsComeFromTheOutputDirectoryOnly(t *testing.T) {
	taskDir, blobs := t.TempDir(), t.TempDir()
	run := &linkpb.Run{Gang: "sea-1", Attempt: 2, BlobUrl: "file://" + blobs}
	output := filepath.Join(taskDir, runOutputDir(run))
	secret := filepath.Join(taskDir, "secret.txt")
	fill := func() {
		t.Helper()
		err := errors.Join(makeDir(taskDir, runOutputDir(run), nil), os.WriteFile(secret, []byte("s"), 0o600),
			os.WriteFile(filepath.Join(output, "v.MP4"), []byte("v"), 0o600), os.WriteFile(filepath.Join(output, "t.png"), []byte("t"), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	fill()
	if err := errors.Join(os.Symlink(secret, filepath.Join(output, "link.mp4")), syscall.Mkfifo(filepath.Join(output, "fifo.mp4"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{secret, "../../../secret.txt", "link.mp4", "fifo.mp4", "absent.mp4", "."} {
		if a, _, err := storeResults(t.Context(), run, []runner.Result{{Path: path}}, taskDir); err == nil {
			t.Errorf("%s was stored as %v", path, a)
		}
	}
	for range 2 { // a second attempt of the same content succeeds
		fill()
		a, thumb, err := storeResults(t.Context(), run, []runner.Result{{}, {Path: filepath.Join(output, "v.MP4"), ContentType: "video/\xff", Thumbnail: "t.png"}}, taskDir)
		if err != nil || a.GetContentType() != "video/\ufffd" || a.GetKey() != "artifacts/"+a.GetSha256()+".mp4" || a.GetBytes() != 1 || thumb.GetContentType() != "image/png" {
			t.Errorf("stored %v and %v, %v", a, thumb, err)
		}
		if _, err := os.Stat(output); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the stored files remain on the node: %v", err)
		}
	}
	if a, thumb, err := storeResults(t.Context(), run, []runner.Result{{}}, taskDir); a != nil || thumb != nil || err != nil {
		t.Errorf("a member without artifact: %v, %v, %v", a, thumb, err)
	}
}
