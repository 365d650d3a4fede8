package runner

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const patience = 5 * time.Second

// program is a runner whose loads and runs the test steers.
type program struct {
	load func(ctx context.Context) (string, error)
	run  func(ctx context.Context, order Order, progress Progress) (Result, error)
}

func (p program) Load(ctx context.Context) (string, error) {
	if p.load == nil {
		return "sha256:bank", nil
	}
	return p.load(ctx)
}

func (p program) Run(ctx context.Context, order Order, progress Progress) (Result, error) {
	return p.run(ctx, order, progress)
}

// lane is a keeper's end of a socket that a Serve is connected to.
type lane struct {
	t     *testing.T
	conn  *Conn
	hello Hello
	ended chan error // what Serve returned
}

func openLane(t *testing.T, p program) *lane {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rank.sock")
	listener, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	t.Setenv(EnvSocket, path)
	t.Setenv("LOCAL_RANK", "3")
	l := &lane{t: t, ended: make(chan error, 1)}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() { l.ended <- Serve(t.Context(), p) }()
	if l.conn, l.hello, err = listener.Accept(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.conn.Close() })
	return l
}

func (l *lane) send(m Message) {
	l.t.Helper()
	if err := l.conn.Send(m); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lane) expect(want Message) {
	l.t.Helper()
	if err := l.conn.SetReceiveDeadline(time.Now().Add(patience)); err != nil {
		l.t.Fatal(err)
	}
	got, err := l.conn.Receive()
	if err != nil || got != want {
		l.t.Fatalf("the runner sent %+v, %v; want %+v", got, err, want)
	}
}

func (l *lane) end() error {
	l.t.Helper()
	select {
	case err := <-l.ended:
		return err
	case <-time.After(patience):
		l.t.Fatal("Serve does not return")
		return nil
	}
}

func order(gang string, attempt int) Order {
	return Order{Attempt: Attempt{gang, attempt}, World: 1, Peers: []string{"localhost"}}
}

func untilCancelled(ctx context.Context, _ Order, progress Progress) (Result, error) {
	progress.Stage(StageDenoise)
	<-ctx.Done()
	return Result{}, ctx.Err()
}

func TestServeCarriesOutOneOrderAfterAnother(t *testing.T) {
	l := openLane(t, program{run: func(_ context.Context, o Order, progress Progress) (Result, error) {
		progress.Stage(StageDenoise)
		progress.Step(Step{I: 1, N: 1, CRC: 7, Finite: true})
		progress.Checkpoint(Checkpoint{I: 1, Path: "/c", SHA256: "ab", Bytes: 3})
		return Result{Path: "/out/" + o.Gang}, nil
	}})
	if want := (Hello{Protocol: 1, LocalRank: 3, PID: os.Getpid()}); l.hello != want {
		t.Errorf("hello %+v, want %+v", l.hello, want)
	}
	l.expect(Ready{ModelDigest: "sha256:bank"})
	for _, a := range []Attempt{{"sea", 1}, {"sea", 2}, {"sky", 1}} {
		l.send(order(a.Gang, a.Number))
		l.expect(Stage{Attempt: a, Stage: StageDenoise})
		l.expect(Step{Attempt: a, I: 1, N: 1, CRC: 7, Finite: true})
		l.expect(Checkpoint{Attempt: a, I: 1, Path: "/c", SHA256: "ab", Bytes: 3})
		l.expect(Result{Attempt: a, Path: "/out/" + a.Gang})
	}
	l.send(Drain{})
	if err := l.end(); err != nil {
		t.Errorf("Serve after a drain: %v", err)
	}
}

func TestStaleOrdersAndCancelsAreIgnored(t *testing.T) {
	l := openLane(t, program{run: untilCancelled})
	l.expect(Ready{ModelDigest: "sha256:bank"})
	l.send(Cancel{Attempt{"sea", 1}}) // before there is any run: must not kill the next one
	l.send(order("sea", 2))
	l.expect(Stage{Attempt: Attempt{"sea", 2}, Stage: StageDenoise})
	l.send(order("sea", 2))           // told twice
	l.send(order("sea", 1))           // an older attempt
	l.send(Cancel{Attempt{"sea", 1}}) // of the attempt before
	l.send(Cancel{Attempt{"sky", 2}}) // of another gang
	l.send(Cancel{Attempt{"sea", 2}})
	l.expect(Failure{Attempt: Attempt{"sea", 2}, Error: Error{Class: ClassCancelled, Message: ErrCancelled.Error()}})
	l.send(order("sea", 2)) // over already
	l.send(Drain{})
	if err := l.end(); err != nil {
		t.Errorf("Serve after a drain: %v", err)
	}
	if m, err := l.conn.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end came %+v, %v", m, err)
	}
}

func TestTheNextOrderIsAnnouncedWhileOneRuns(t *testing.T) {
	l := openLane(t, program{run: untilCancelled})
	l.expect(Ready{ModelDigest: "sha256:bank"})
	cancelled := Error{Class: ClassCancelled, Message: ErrCancelled.Error()}

	l.send(order("a", 1))
	l.expect(Stage{Attempt: Attempt{"a", 1}, Stage: StageDenoise})
	l.send(order("b", 1))
	l.send(order("c", 1))
	l.expect(Failure{Attempt: Attempt{"c", 1}, Error: Error{Class: ClassBusy, Retryable: true,
		Message: `gang "a" runs and gang "b" is announced; a runner takes one more order at a time`}})
	l.send(Cancel{Attempt{"a", 1}})
	l.expect(Failure{Attempt: Attempt{"a", 1}, Error: cancelled})
	l.expect(Stage{Attempt: Attempt{"b", 1}, Stage: StageDenoise})

	l.send(order("d", 1))
	l.send(Cancel{Attempt{"d", 1}}) // never started
	l.expect(Failure{Attempt: Attempt{"d", 1}, Error: cancelled})
	l.send(order("e", 1))
	l.send(Drain{})
	l.expect(Failure{Attempt: Attempt{"e", 1}, Error: Error{Class: ClassDraining, Retryable: true, Message: "the runner drains"}})
	l.send(order("f", 1))
	l.expect(Failure{Attempt: Attempt{"f", 1}, Error: Error{Class: ClassDraining, Retryable: true, Message: "the runner drains"}})
	l.send(Cancel{Attempt{"b", 1}})
	l.expect(Failure{Attempt: Attempt{"b", 1}, Error: cancelled})
	if err := l.end(); err != nil {
		t.Errorf("Serve after a drain: %v", err)
	}
}

func TestErrorsAreTyped(t *testing.T) {
	typed := Error{Class: "peer_lost", Retryable: true, Message: "rank 3 is gone"}
	for _, c := range []struct {
		err  error
		want Error
	}{
		{errors.Join(errors.New("step 4"), &typed), typed},
		{errors.New("index out of range"), Error{Class: ClassInternal, Message: "index out of range"}},
		{errors.New(strings.Repeat("\x01", 2*MaxLine)), Error{Class: ClassInternal, Message: strings.Repeat("\x01", 16<<10) + " [cut]"}},
	} {
		l := openLane(t, program{run: func(context.Context, Order, Progress) (Result, error) { return Result{}, c.err }})
		l.expect(Ready{ModelDigest: "sha256:bank"})
		l.send(order("sea", 1))
		l.expect(Failure{Attempt: seaOne, Error: c.want})
	}
}

func TestCheckpointOrdersReachTheirRun(t *testing.T) {
	asked := make(chan int)
	l := openLane(t, program{run: func(ctx context.Context, _ Order, progress Progress) (Result, error) {
		progress.Stage(StageDenoise)
		for step := range asked {
			progress.Step(Step{I: step, N: 9, Finite: progress.CheckpointDue(step)})
		}
		return Result{}, nil
	}})
	l.expect(Ready{ModelDigest: "sha256:bank"})
	l.send(order("sea", 2))
	l.expect(Stage{Attempt: Attempt{"sea", 2}, Stage: StageDenoise})
	l.send(CheckpointOrder{Attempt: Attempt{"sea", 2}, AtStep: 5})
	l.send(CheckpointOrder{Attempt: Attempt{"sea", 1}, AtStep: 4}) // stale
	l.send(order("sky", 1))
	l.send(order("sun", 1)) // its refusal shows that all before it was read
	l.expect(Failure{Attempt: Attempt{"sun", 1}, Error: Error{Class: ClassBusy, Retryable: true,
		Message: `gang "sea" runs and gang "sky" is announced; a runner takes one more order at a time`}})
	for step := 4; step <= 6; step++ {
		asked <- step
		l.expect(Step{Attempt: Attempt{"sea", 2}, I: step, N: 9, Finite: step == 5})
	}
	close(asked)
	l.expect(Result{Attempt: Attempt{"sea", 2}})
}

func TestALostKeeperEndsTheRun(t *testing.T) {
	cause := make(chan error, 1)
	l := openLane(t, program{run: func(ctx context.Context, o Order, progress Progress) (Result, error) {
		_, err := untilCancelled(ctx, o, progress)
		cause <- context.Cause(ctx)
		return Result{}, err
	}})
	l.expect(Ready{ModelDigest: "sha256:bank"})
	l.send(order("sea", 1))
	l.expect(Stage{Attempt: seaOne, Stage: StageDenoise})
	l.conn.Close()
	if err := l.end(); !errors.Is(err, io.EOF) {
		t.Errorf("Serve returned %v", err)
	}
	if err := <-cause; !errors.Is(err, io.EOF) || errors.Is(err, ErrCancelled) {
		t.Errorf("the run ended because of %v", err)
	}
}

func TestAKeeperThatTalksNonsenseIsLeft(t *testing.T) {
	l := openLane(t, program{run: untilCancelled})
	l.expect(Ready{ModelDigest: "sha256:bank"})
	if _, err := l.conn.nc.Write([]byte(`{"type":"explode"}` + "\n")); err != nil {
		t.Fatal(err)
	}
	if err := l.end(); !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), `"explode"`) {
		t.Errorf("Serve returned %v", err)
	}
}

func TestALoadThatFailsIsReported(t *testing.T) {
	l := openLane(t, program{load: func(context.Context) (string, error) { return "", errors.New("no weights in /models") }})
	l.expect(Failure{Error: Error{Class: ClassLoad, Message: "no weights in /models"}})
	if err := l.end(); err == nil || !strings.Contains(err.Error(), "no weights in /models") {
		t.Errorf("Serve returned %v", err)
	}
}

func TestServeOutsideALane(t *testing.T) {
	t.Setenv(EnvSocket, "")
	if err := Serve(t.Context(), program{}); !errors.Is(err, ErrNoSocket) {
		t.Errorf("without a socket: %v", err)
	}
	t.Setenv(EnvSocket, filepath.Join(t.TempDir(), "nobody.sock"))
	if err := Serve(t.Context(), program{}); err == nil || !strings.Contains(err.Error(), EnvSocket) {
		t.Errorf("with nobody listening: %v", err)
	}
}

func TestListen(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	live, err := Listen(stale)
	if err != nil {
		t.Fatalf("over a dead keeper's socket: %v", err)
	}
	defer live.Close()
	if info, err := os.Stat(stale); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	file := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, says := range map[string]string{
		stale: "another process listens",
		file:  "no socket",
		filepath.Join(dir, strings.Repeat("d", 120)): "Linux takes 107",
	} {
		if l, err := Listen(path); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("Listen(%s) gave %v, %v; want an error with %q", path, l, err, says)
		}
	}
}

func TestAcceptRefuses(t *testing.T) {
	for _, c := range []struct{ line, says string }{
		{`{"type":"ready"}`, `the first message is "ready"`},
		{`{"type":"hello","protocol":2}`, `the runner speaks version 2`},
		{`GET / HTTP/1.1`, `invalid character`},
	} {
		path := filepath.Join(t.TempDir(), "rank.sock")
		listener, err := Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		nc, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if _, err := nc.Write([]byte(c.line + "\n")); err != nil {
			t.Fatal(err)
		}
		if _, _, err := listener.Accept(t.Context()); !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.line, err)
		}
	}
}

func TestAcceptEndsWithItsContext(t *testing.T) {
	listener, err := Listen(filepath.Join(t.TempDir(), "rank.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	late := errors.New("admission withdrawn")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(late)
	if _, _, err := listener.Accept(ctx); !errors.Is(err, late) {
		t.Errorf("Accept returned %v", err)
	}
}

func TestReceiveRefusesAnEndlessLine(t *testing.T) {
	near, far := net.Pipe()
	conn := NewConn(near, ToKeeper)
	defer conn.Close()
	go func() {
		defer far.Close()
		far.Write([]byte(strings.Repeat(" ", MaxLine+1)))
	}()
	if _, err := conn.Receive(); !errors.Is(err, ErrProtocol) {
		t.Errorf("Receive returned %v", err)
	}
}

func TestReceiveTellsATornLine(t *testing.T) {
	near, far := net.Pipe()
	conn := NewConn(near, ToKeeper)
	defer conn.Close()
	go func() {
		defer far.Close()
		far.Write([]byte(`{"type":"rea`))
	}()
	if _, err := conn.Receive(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Receive returned %v", err)
	}
}

// Close must not lose a result that was sent just before it, and nothing can be sent after it.
func TestCloseFlushes(t *testing.T) {
	near, far := net.Pipe()
	sender, receiver := NewConn(near, ToRunner), NewConn(far, ToKeeper)
	defer receiver.Close()
	const n = 40
	for i := range n {
		if err := sender.Send(Step{Attempt: seaOne, I: i + 1, N: n}); err != nil {
			t.Fatal(err)
		}
	}
	closed := make(chan error, 1)
	go func() { closed <- sender.Close() }()
	for i := range n {
		if m, err := receiver.Receive(); err != nil || m.(Step).I != i+1 {
			t.Fatalf("message %d is %+v, %v", i+1, m, err)
		}
	}
	if _, err := receiver.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last message: %v", err)
	}
	if err := <-closed; err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := sender.Send(Drain{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Send after Close: %v", err)
	}
}
