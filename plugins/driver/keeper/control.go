package keeper

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gangd/gangd/plugins/driver/lane"
	"github.com/gangd/gangd/plugins/driver/process"
)

const (
	// maxControlConns bounds the connections of driver plugins.
	maxControlConns = 64
	requestTimeout  = 5 * time.Second
	maxRequestBytes = 1 << 20
	// execLimit bounds a command that came without a timeout.
	execLimit = 10 * time.Minute
)

// listenControl opens the lane's control socket for this user alone.
func listenControl(dir lane.Dir) (net.Listener, error) {
	path := dir.ControlSocket()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("open the control socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("open the control socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("open the control socket: %w", err), l.Close())
	}
	return l, nil
}

// serveControl answers driver plugins until the listener is closed.
func (k *keeper) serveControl(ctx context.Context, l net.Listener) {
	slots := make(chan struct{}, maxControlConns)
	refused := 0 // since there was last a slot
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		select {
		case slots <- struct{}{}:
		default:
			conn.Close()
			if refused++; refused == 1 {
				k.log.Warn("requests of driver plugins are refused, as too many wait for an answer", "limit", maxControlConns)
			}
			continue
		}
		if refused > 0 {
			k.log.Warn("requests of driver plugins are answered again", "refused", refused)
			refused = 0
		}
		k.answers.Add(1)
		go func() {
			defer k.answers.Done()
			defer func() { <-slots }()
			defer conn.Close()
			k.answer(ctx, conn)
		}()
	}
}

func (k *keeper) answer(ctx context.Context, conn net.Conn) {
	conn.SetReadDeadline(time.Now().Add(requestTimeout))
	line, err := bufio.NewReader(io.LimitReader(conn, maxRequestBytes)).ReadBytes('\n')
	if err != nil {
		return
	}
	conn.SetReadDeadline(time.Time{})
	var request lane.Request
	send := func(r lane.Reply) error {
		conn.SetWriteDeadline(time.Now().Add(requestTimeout))
		return json.NewEncoder(conn).Encode(r)
	}
	if err := json.Unmarshal(line, &request); err != nil {
		send(lane.Reply{Error: "unreadable request: " + err.Error()})
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // the other side sends no more: the end of input is the end of its interest
		io.Copy(io.Discard, conn)
		cancel()
	}()
	if request.Op == lane.OpEvents {
		k.journal.follow(ctx, func(e lane.Event) error { return send(lane.Reply{Event: &e}) })
		return
	}
	reply, err := k.reply(ctx, request)
	if err != nil {
		reply.Error = err.Error()
	}
	send(reply)
}

func (k *keeper) reply(ctx context.Context, r lane.Request) (lane.Reply, error) {
	switch r.Op {
	case lane.OpStatus:
		status := k.status()
		return lane.Reply{Status: &status}, nil
	case lane.OpWait:
		select {
		case <-k.ended:
		case <-ctx.Done():
		}
		select {
		case <-k.ended:
			return lane.Reply{Exit: &k.exit}, nil
		default:
			return lane.Reply{}, ctx.Err()
		}
	case lane.OpStop:
		return lane.Reply{}, k.stop(r)
	case lane.OpSignal:
		s, err := signalOf(r.Signal)
		if err != nil {
			return lane.Reply{}, err
		}
		return lane.Reply{}, k.ranks.signal(s)
	case lane.OpUsage:
		usage, err := usageBelow(os.Getpid())
		return lane.Reply{Usage: usage}, err
	case lane.OpExec:
		result, err := k.ranks.exec(ctx, r.Command, r.Timeout)
		return lane.Reply{Exec: result}, err
	}
	return lane.Reply{}, fmt.Errorf("unknown request %q: this keeper is older than its driver plugin", r.Op)
}

func (k *keeper) stop(r lane.Request) error {
	e := stopped{byNomad: true, reason: "Nomad stopped the task", grace: min(k.cfg.KillGrace, r.Timeout), signal: syscall.SIGTERM}
	if r.Signal != "" {
		s, err := signalOf(r.Signal)
		if err != nil {
			return err
		}
		e.signal = s
	}
	k.post(e)
	return nil
}

func signalOf(name string) (syscall.Signal, error) {
	upper := strings.ToUpper(name)
	if !strings.HasPrefix(upper, "SIG") {
		upper = "SIG" + upper
	}
	if s := unix.SignalNum(upper); s != 0 {
		return s, nil
	}
	return 0, fmt.Errorf("there is no signal %q", name)
}

func usageBelow(pid int) ([]lane.Usage, error) {
	stats, err := process.Descendants(pid)
	usage := make([]lane.Usage, 0, len(stats))
	for _, s := range stats {
		usage = append(usage, lane.Usage{PID: s.PID, User: s.User, System: s.System, RSSBytes: s.RSSBytes})
	}
	return usage, err
}

// exec runs a command beside the ranks, with the environment of the first.
func (r *ranks) exec(ctx context.Context, argv []string, timeout time.Duration) (*lane.Exec, error) {
	if len(argv) == 0 {
		return nil, errors.New("there is no command to run")
	}
	if timeout <= 0 || timeout > execLimit {
		timeout = execLimit
	}
	command := r.command(0, nil)
	path, err := process.LookPath(argv[0], r.cfg.Env["PATH"], r.cfg.TaskDir)
	if err != nil {
		return nil, err
	}
	command.Path, command.Argv = path, argv
	stdout, out, err := capture()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	stderr, errOut, err := capture()
	if err != nil {
		return nil, err
	}
	defer errOut.Close()
	child, err := r.startBeside(command, out, errOut)
	if err != nil {
		return nil, err
	}
	out.Close()
	errOut.Close()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case <-child.Done():
	case <-ctx.Done():
		child.Signal(syscall.SIGKILL)
		<-child.Done()
		return nil, fmt.Errorf("%s did not end in %v and was killed", filepath.Base(path), timeout)
	}
	exit := child.Exit()
	return &lane.Exec{Stdout: stdout(), Stderr: stderr(), Code: exit.Code, Signal: int(exit.Signal)}, nil
}

func (r *ranks) startBeside(c process.Command, stdout, stderr *os.File) (*process.Child, error) {
	reached, err := r.spawner.Reach(c)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ending != nil {
		return nil, errEnding
	}
	return reached.Start(stdout, stderr)
}

// capture makes a pipe, and a function that waits for what came out of it. A
// child that lives on may keep it open, and is not waited for.
func capture() (func() []byte, *os.File, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("make a pipe: %w", err)
	}
	var content bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer read.Close()
		io.Copy(&content, io.LimitReader(read, lane.MaxExecOutput))
		io.Copy(io.Discard, read)
	}()
	return func() []byte {
		read.SetReadDeadline(time.Now().Add(drainTimeout))
		<-done
		return content.Bytes()
	}, write, nil
}
