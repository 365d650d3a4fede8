package keeper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/internal/link/linkpb"
	"github.com/gangd/gangd/internal/member"
	"github.com/gangd/gangd/internal/runner"
	"github.com/gangd/gangd/plugins/driver/cgroup"
	"github.com/gangd/gangd/plugins/driver/lane"
	"github.com/gangd/gangd/plugins/driver/process"
)

const (
	// drainTimeout is how long the rest of a dead rank's output is awaited; a
	// child of its may hold the pipe open.
	drainTimeout = 200 * time.Millisecond
	// partingTimeout is how long a rank that closed its socket may take to end.
	partingTimeout = 2 * time.Second
)

// Directories of a runner, below the task's.
const (
	outputDir     = "local/output"
	checkpointDir = "local/checkpoints"
)

var errEnding = errors.New("the lane is ending")

// ranks are the runner's processes and their sockets.
type ranks struct {
	dir     lane.Dir
	cfg     lane.Config
	user    *process.Credential
	group   cgroup.Group
	spawner *process.Spawner
	output  *output
	gpus    func() (gpuUsage, error) // opens NVML
	post    func(event)
	log     hclog.Logger

	mu       sync.Mutex
	children map[int]*process.Child // by local rank
	conns    map[int]*runner.Conn
	ending   *terminator
}

// prepare answers the action prepare.
func (r *ranks) prepare(ctx context.Context) error {
	if err := awaitFree(ctx, r.gpus, r.cfg.GPUs); err != nil {
		return err
	}
	for _, name := range []string{outputDir, checkpointDir} {
		if err := makeDir(r.cfg.TaskDir, name, r.user); err != nil {
			return err
		}
	}
	if r.cfg.Protocol == member.ProtocolNone {
		return nil
	}
	for local := range r.cfg.Ranks() {
		if err := r.startResident(ctx, local); err != nil {
			return err
		}
	}
	return nil
}

// startResident starts a rank that speaks the protocol.
func (r *ranks) startResident(ctx context.Context, local int) error {
	path := r.dir.RunnerSocket(local)
	listener, err := runner.Listen(path)
	if err != nil {
		return err
	}
	if r.user != nil {
		if err := os.Lchown(path, r.user.UID, r.user.GID); err != nil {
			return errors.Join(fmt.Errorf("give rank %d its socket: %w", local, err), listener.Close())
		}
	}
	child, err := r.start(local, map[string]string{runner.EnvSocket: path})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	go r.converse(ctx, local, listener, child)
	return nil
}

// start starts a rank's process. Under the lock, which an end takes too, is
// only what does not wait for a file system.
func (r *ranks) start(local int, env map[string]string) (*process.Child, error) {
	reached, err := r.spawner.Reach(r.command(local, env))
	if err != nil {
		return nil, fmt.Errorf("start rank %d: %w", local, err)
	}
	stdout, out, err := r.output.attach(local, "stdout")
	if err != nil {
		return nil, err
	}
	defer out.Close()
	stderr, errOut, err := r.output.attach(local, "stderr")
	if err != nil {
		return nil, err
	}
	defer errOut.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ending != nil {
		return nil, errEnding
	}
	kills := r.group.OOMKills()
	child, err := reached.Start(out, errOut)
	if err != nil {
		return nil, fmt.Errorf("start rank %d: %w", local, err)
	}
	r.children[local] = child
	go r.watch(local, child, kills, stdout, stderr)
	return child, nil
}

// watch tells of a rank's end, with its last words.
func (r *ranks) watch(local int, child *process.Child, oomKills int, outputs ...*rankOutput) {
	<-child.Done()
	timeout := time.After(drainTimeout)
	for _, o := range outputs {
		select {
		case <-o.done:
		case <-timeout:
		}
	}
	exit := child.Exit()
	r.log.Info("rank ended", "rank", local, "pid", child.PID, "code", exit.Code, "signal", int(exit.Signal))
	r.post(exited{
		local: local, exit: exit, lastLine: outputs[len(outputs)-1].lastLine(),
		outOfMemory: exit.Signal != 0 && r.group.OOMKills() > oomKills,
	})
}

func (r *ranks) command(local int, env map[string]string) process.Command {
	return process.Command{
		Path: r.cfg.Command, Argv: append([]string{r.cfg.Command}, r.cfg.Args...),
		Env: r.env(local, env), Dir: r.cfg.TaskDir,
		Credential: r.user, OOMScoreAdj: r.cfg.OOMScoreAdj,
	}
}

// env is torchrun's convention: every rank sees all GPUs of its lane, and
// LOCAL_RANK selects one.
func (r *ranks) env(local int, more map[string]string) []string {
	env := maps.Clone(r.cfg.Env)
	if env == nil {
		env = make(map[string]string)
	}
	maps.Copy(env, map[string]string{
		"LOCAL_RANK":           strconv.Itoa(local),
		"LOCAL_WORLD_SIZE":     strconv.Itoa(r.cfg.Ranks()),
		"CUDA_VISIBLE_DEVICES": strings.Join(r.cfg.UUIDs(), ","),
		"GANGD_LANE":           r.cfg.Lane,
		lane.EnvDir:            string(r.dir),
	})
	maps.Copy(env, more)
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// converse passes on what a rank says until it ends.
func (r *ranks) converse(ctx context.Context, local int, listener *runner.Listener, child *process.Child) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-child.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	err := r.listen(ctx, local, listener)
	select {
	case <-child.Done(): // its exit says it all
	case <-time.After(partingTimeout):
		r.post(broke{local: local, err: err})
	}
}

func (r *ranks) listen(ctx context.Context, local int, listener *runner.Listener) error {
	conn, hello, err := listener.Accept(ctx)
	listener.Close()
	if err != nil {
		return err
	}
	defer conn.Close()
	if hello.LocalRank != local {
		return fmt.Errorf("it says that it is local rank %d and not %d", hello.LocalRank, local)
	}
	r.mu.Lock()
	r.conns[local] = conn
	r.mu.Unlock()
	for {
		message, err := conn.Receive()
		if err != nil {
			return err
		}
		r.post(said{local: local, message: message})
	}
}

// dispatch answers the action dispatch: it hands a run to all ranks, and
// returns the port that member 0 reserved.
func (r *ranks) dispatch(ctx context.Context, run *linkpb.Run) (masterPort uint32, err error) {
	address, port := run.GetMasterAddress(), run.GetMasterPort()
	if run.GetMember() == 0 {
		if port, err = reservePort(); err != nil {
			return 0, err
		}
		address, masterPort = r.cfg.Node.AdvertiseAddress, port
	}
	output := runOutputDir(run)
	if err := makeDir(r.cfg.TaskDir, output, r.user); err != nil {
		return 0, err
	}
	r.output.first.Store(int64(run.GetFirstRank()))
	if r.cfg.Protocol == member.ProtocolNone {
		if err := awaitFree(ctx, r.gpus, r.cfg.GPUs); err != nil {
			return 0, err
		}
	}
	for local := range r.cfg.Ranks() {
		env := runEnv(run, local, address, port)
		if r.cfg.Protocol == member.ProtocolNone {
			if _, err := r.start(local, env); err != nil {
				return 0, err
			}
			continue
		}
		if err := r.send(local, r.order(run, local, env)); err != nil {
			return 0, fmt.Errorf("order rank %d to run: %w", local, err)
		}
	}
	return masterPort, nil
}

func (r *ranks) order(run *linkpb.Run, local int, env map[string]string) runner.Order {
	return runner.Order{
		Attempt: attemptOf(run.GetGang(), run.GetAttempt()),
		Rank:    int(run.GetFirstRank()) + local, World: int(run.GetWorld()), Peers: run.GetPeers(),
		Env: env, Params: run.GetParams(),
		OutputDir:     filepath.Join(r.cfg.TaskDir, runOutputDir(run)),
		CheckpointDir: filepath.Join(r.cfg.TaskDir, checkpointDir),
	}
}

func (r *ranks) send(local int, m runner.Message) error {
	r.mu.Lock()
	conn := r.conns[local]
	r.mu.Unlock()
	if conn == nil {
		return net.ErrClosed
	}
	return conn.Send(m)
}

// runEnv is what torchrun sets for one rank of a run.
func runEnv(run *linkpb.Run, local int, address string, port uint32) map[string]string {
	return map[string]string{
		"RANK":        strconv.Itoa(int(run.GetFirstRank()) + local),
		"WORLD_SIZE":  strconv.Itoa(int(run.GetWorld())),
		"GROUP_RANK":  strconv.Itoa(int(run.GetMember())),
		"MASTER_ADDR": address,
		"MASTER_PORT": strconv.Itoa(int(port)),
	}
}

// runOutputDir is where a run's files go, below the task's directory. It is
// removed when they are stored.
func runOutputDir(run *linkpb.Run) string {
	return filepath.Join(outputDir, fmt.Sprintf("%s-%d", filepath.Base(run.GetGang()), run.GetAttempt()))
}

// reservePort finds a port for the first rank to listen on. It is free now, and
// another process may take it before the rank does, or connect from it: then the
// rank fails to listen and its peers lose it. Both are errors that gangd retries,
// with another port: an exit of a program without protocol always is, a runner
// that speaks it says so.
func reservePort() (uint32, error) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return 0, fmt.Errorf("reserve the master port: %w", err)
	}
	defer l.Close()
	return uint32(l.Addr().(*net.TCPAddr).Port), nil
}

// signal sends a signal to all ranks and what is in their process groups.
func (r *ranks) signal(s syscall.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, local := range slices.Sorted(maps.Keys(r.children)) {
		err := r.children[local].Signal(s)
		if err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, fmt.Errorf("signal rank %d: %w", local, err))
		}
	}
	return errors.Join(errs...)
}

// pids returns the ranks' processes, in rank order.
func (r *ranks) pids() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	pids := []int{}
	for _, local := range slices.Sorted(maps.Keys(r.children)) {
		pids = append(pids, r.children[local].PID)
	}
	return pids
}
