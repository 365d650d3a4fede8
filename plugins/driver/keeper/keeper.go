package keeper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/gangd/gangd/internal/link"
	"github.com/gangd/gangd/internal/link/linkpb"
	"github.com/gangd/gangd/internal/runner"
	"github.com/gangd/gangd/plugins/driver/cgroup"
	"github.com/gangd/gangd/plugins/driver/lane"
	"github.com/gangd/gangd/plugins/driver/process"
)

// Argument, as the program's first argument and followed by a lane's
// directory, calls for Main.
const Argument = "keeper"

// LockFD is the descriptor under which a keeper inherits its lane's lock.
const LockFD = 3

const (
	maxQueuedReports = 4096
	maxQueuedOrders  = 64
	maxQueuedEvents  = 1024
	// partingTimeoutLink bounds how long the last words may take to gangd, and
	// sentAfter is how long they take where the stream is up.
	partingTimeoutLink = time.Second
	sentAfter          = 100 * time.Millisecond
	// linkUp is how recent gangd's last word is while the stream is up.
	linkUp = 3 * time.Second
	// flushTimeout bounds how long the last lines and events may take to Nomad.
	flushTimeout = 500 * time.Millisecond
)

// keeper runs a machine in the world.
type keeper struct {
	dir     lane.Dir
	cfg     lane.Config
	log     hclog.Logger
	self    lane.Keeper
	ranks   *ranks
	output  *output
	journal *journal
	queue   *link.Queue
	relay   *relay
	orders  chan *linkpb.KeeperOrder
	events  chan event
	ended   chan struct{} // closed when exit is set
	exit    lane.Exit
	answers sync.WaitGroup // requests being answered

	machine *machine // of the loop alone
	heard   time.Time

	mu    sync.Mutex // what other goroutines see of the machine
	hello *linkpb.Admit
	late  []*linkpb.KeeperReport
	// dropped is how many reports the log says that the queue had no room for.
	dropped int
}

// Main is the life of a keeper's process. It returns the exit code.
func Main(directory string) int {
	log := hclog.New(&hclog.LoggerOptions{Name: "keeper", Level: hclog.Info, Output: os.Stderr})
	// Nothing that happens to terminals, pipes or parents ends a keeper.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE, syscall.SIGHUP)
	dir := lane.Dir(filepath.Clean(directory))
	lock, err := dir.Inherit(LockFD)
	if err != nil {
		log.Error("keeper does not start", "error", err)
		return 1
	}
	defer lock.Close()
	k, err := prepareKeeper(dir, log)
	if err == nil {
		err = k.run()
	}
	if err != nil {
		log.Error("keeper failed", "error", err)
		exit := lane.Exit{Code: 1, Message: fmt.Sprintf("the lane's keeper failed: %v", err), At: time.Now()}
		if err := dir.SetExit(exit); err != nil {
			log.Error("how the lane ended cannot be recorded", "error", err)
		}
		return 1
	}
	return 0
}

func prepareKeeper(dir lane.Dir, log hclog.Logger) (*keeper, error) {
	cfg, err := dir.Config()
	if err != nil {
		return nil, err
	}
	user, err := process.Lookup(cfg.User)
	if err != nil {
		return nil, err
	}
	ref, err := process.Find(os.Getpid())
	if err != nil {
		return nil, err
	}
	hierarchies := cgroup.Detect()
	group, err := hierarchies.Create(dir.Name(), cfg.MemoryBytes)
	if err != nil {
		log.Warn("not all of control groups can be used here; processes are found as descendants, too",
			"mode", hierarchies.Mode(), "error", err)
	}
	log = log.With("lane", cfg.Lane)
	k := &keeper{
		dir: dir, cfg: cfg, log: log, output: newOutput(dir, cfg, log), journal: newJournal(log),
		self:   lane.Keeper{Ref: ref, StartedAt: time.Now(), Group: group},
		queue:  link.NewQueue(maxQueuedReports),
		orders: make(chan *linkpb.KeeperOrder, maxQueuedOrders),
		events: make(chan event, maxQueuedEvents),
		ended:  make(chan struct{}),
	}
	k.relay = newRelay(k.queue.Put)
	k.machine = newMachine(cfg, time.Now())
	k.ranks = &ranks{
		dir: dir, cfg: cfg, user: user, group: group, output: k.output,
		gpus: openGPUs(cfg.Node, log), post: k.post, log: log,
		children: make(map[int]*process.Child), conns: make(map[int]*runner.Conn),
	}
	k.ranks.spawner, err = process.NewSpawner(group)
	return k, err
}

func (k *keeper) post(e event) { k.events <- e }

// run returns when the lane has ended and its end is recorded.
func (k *keeper) run() error {
	control, err := listenControl(k.dir)
	if err != nil {
		return err
	}
	if err := k.dir.SetKeeper(k.self); err != nil {
		return errors.Join(err, control.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	k.publish()
	k.queue.Replay(k.replay)
	go k.serveControl(ctx, control)
	go k.output.run(ctx)
	go k.ranks.gpus() // takes its time, as admission does
	go link.RunKeeper(ctx, link.ClientConfig{Resolver: resolver(k.cfg.Node), Log: k.log}, k.admit, k.queue, k.orders)
	k.log.Info("keeper started", "pid", k.self.PID, "allocation", k.cfg.AllocID)
	exit := k.loop(ctx)
	return k.part(ctx, func() { control.Close(); cancel() }, exit)
}

// resolver finds gangd where the operator said, or in Consul.
func resolver(n lane.Node) link.Resolver {
	var resolvers []link.Resolver
	if len(n.GangdAddresses) > 0 {
		resolvers = append(resolvers, link.Static(n.GangdAddresses))
	}
	if n.ConsulAddress != "" {
		resolvers = append(resolvers, link.ConsulCatalog(n.ConsulAddress, n.ConsulToken))
	}
	return link.Chain(resolvers...)
}

// loop feeds the machine until it finishes.
func (k *keeper) loop(ctx context.Context) lane.Exit {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM, syscall.SIGINT)
	timer := time.NewTimer(0)
	for {
		var e event
		select {
		case e = <-k.events:
		case order := <-k.orders:
			k.heard = time.Now()
			e = ordered{order}
		case s := <-asked:
			e = stopped{reason: fmt.Sprintf("the keeper was sent %s", unix.SignalName(s.(syscall.Signal))), grace: k.cfg.KillGrace, signal: syscall.SIGTERM}
		case <-timer.C:
			e = tick{}
		}
		now := time.Now()
		actions := k.machine.apply(now, e)
		k.publish() // before gangd can hear of it
		for _, a := range actions {
			if f, ok := a.(finish); ok {
				k.relay.flush(now, true)
				return f.exit
			}
			k.perform(ctx, now, a)
		}
		k.relay.flush(now, false)
		timer.Reset(k.nextTick(now))
	}
}

func (k *keeper) nextTick(now time.Time) time.Duration {
	next := now.Add(time.Hour)
	for _, due := range []time.Time{k.machine.deadline(), k.relay.due()} {
		if !due.IsZero() && due.Before(next) {
			next = due
		}
	}
	return max(next.Sub(now), 0)
}

// perform does what the machine decided. What takes time is done beside the
// loop, and answered by an event.
func (k *keeper) perform(ctx context.Context, now time.Time, a action) {
	switch a := a.(type) {
	case report:
		k.relay.send(now, a.KeeperReport)
	case tell:
		k.log.Info(a.message)
		k.journal.add(now, a.message)
	case prepare:
		go func() { k.post(prepared{k.ranks.prepare(ctx)}) }()
	case dispatch:
		go func() {
			port, err := k.ranks.dispatch(ctx, a.run)
			k.post(dispatched{attempt: attemptOf(a.run.GetGang(), a.run.GetAttempt()), masterPort: port, err: err})
		}()
	case store:
		go func() {
			e := stored{attempt: attemptOf(a.run.GetGang(), a.run.GetAttempt())}
			if !k.machine.resident {
				e.err = k.ranks.sweep(ctx) // children that the ranks left
			}
			if e.err == nil {
				e.artifact, e.thumbnail, e.err = storeResults(ctx, a.run, a.results, k.cfg.TaskDir)
			}
			k.post(e)
		}()
	case end:
		k.ranks.end(ctx, a.signal, a.grace)
	}
}

// publish shows others what the machine is at.
func (k *keeper) publish() {
	hello := k.machine.hello()
	hello.Protocol = link.Protocol
	hello.Lane, hello.Allocation = k.cfg.Lane, k.cfg.AllocID
	hello.NomadNode, hello.NomadJob = k.cfg.NodeID, k.cfg.JobID
	hello.GpuUuids, hello.BootId = k.cfg.UUIDs(), link.BootID()
	hello.KeeperPid, hello.Address = int32(k.self.PID), k.cfg.Node.AdvertiseAddress
	late := k.machine.replay()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hello, k.late = hello, late
}

func (k *keeper) admit() *linkpb.Admit {
	k.mu.Lock()
	defer k.mu.Unlock()
	return proto.CloneOf(k.hello)
}

// replay gives what gangd may not have heard, at each start of a stream. What is
// lost for good, since it found no room while there was none, is logged then.
func (k *keeper) replay() []*linkpb.KeeperReport {
	k.mu.Lock()
	defer k.mu.Unlock()
	if all := k.queue.Dropped(); all > k.dropped {
		k.log.Warn("reports to gangd were dropped, as too many waited for a stream", "dropped", all-k.dropped, "limit", maxQueuedReports)
		k.dropped = all
	}
	return k.late
}

var stateNames = map[linkpb.LaneState]string{
	linkpb.LaneState_LANE_STATE_NEW:     "waiting for admission",
	linkpb.LaneState_LANE_STATE_LOADING: "loading",
	linkpb.LaneState_LANE_STATE_IDLE:    "idle",
	linkpb.LaneState_LANE_STATE_BUSY:    "busy",
	linkpb.LaneState_LANE_STATE_CLOSING: "closing",
}

func (k *keeper) status() lane.Status {
	hello := k.admit()
	return lane.Status{
		Keeper: k.self, Lane: k.cfg.Lane, State: stateNames[hello.GetState()],
		Gang: hello.GetGang(), Attempt: hello.GetAttempt(), PIDs: k.ranks.pids(),
	}
}

// part says the last words, to gangd first, and leaves the lane.
func (k *keeper) part(ctx context.Context, stop context.CancelFunc, exit lane.Exit) error {
	k.awaitSent(ctx)
	flush, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	k.output.flush(flush)
	k.journal.flush(flush)
	exit.Events = k.journal.unread()
	err := k.dir.SetExit(exit)
	k.exit = exit
	close(k.ended)
	stop()
	answered := make(chan struct{})
	go func() {
		k.answers.Wait()
		close(answered)
	}()
	select {
	case <-answered:
	case <-time.After(flushTimeout):
	}
	k.log.Info("keeper ends", "code", exit.Code, "message", exit.Message)
	return err
}

// awaitSent gives the last reports time to reach gangd: at once where the
// stream is up, after its return where it comes back soon enough.
func (k *keeper) awaitSent(ctx context.Context) {
	limit := time.NewTimer(partingTimeoutLink)
	defer limit.Stop()
	for time.Since(k.heard) > linkUp {
		select {
		case <-k.orders:
			k.heard = time.Now()
		case <-k.events:
		case <-limit.C:
			return
		}
	}
	select {
	case <-time.After(sentAfter):
	case <-limit.C:
	}
}
