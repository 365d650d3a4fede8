package task

import (
	"context"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/internal/gpu"
	"github.com/gangd/gangd/internal/link"
	"github.com/gangd/gangd/internal/link/linkpb"
	"github.com/gangd/gangd/plugins/driver/lane"
)

const (
	inventoryFirst = time.Second
	inventoryLimit = 30 * time.Second
	// collectAge is after how long the remains of a lane whose keeper is dead
	// are of no more use to Nomad; maxCollected bounds one collection.
	collectAge   = time.Hour
	maxCollected = 256
)

// beat tells gangd that the node lives. gangd knows nodes by their GPUs, so
// that it begins once NVML has told them.
func (d *Driver) beat(ctx context.Context, c nodeConfig) {
	uuids := d.inventory(ctx, c)
	resolver := link.Static(c.GangdAddrs)
	if c.ConsulAddr != "" {
		resolver = link.Chain(resolver, link.ConsulCatalog(c.ConsulAddr, c.ConsulToken))
	}
	host, err := os.Hostname()
	if err != nil {
		d.log.Warn("the node's name is not known", "error", err)
	}
	host = strings.ToValidUTF8(host, "?") // Linux takes any bytes, a message does not
	hello := func() *linkpb.NodeHello {
		return &linkpb.NodeHello{
			Protocol: link.Protocol, Host: host, BootId: link.BootID(), PluginVersion: d.version,
			GpuUuids: uuids, BeatMillis: uint32(c.BeatMillis),
		}
	}
	lanes := &living{stateDir: c.StateDir, known: make(map[lane.Dir]livingLane)}
	interval := time.Duration(c.BeatMillis) * time.Millisecond
	err = link.RunNode(ctx, link.ClientConfig{Resolver: resolver, Log: d.log}, interval, hello, lanes.list)
	d.log.Info("the node's beat has ended", "error", err)
}

// inventory returns the UUIDs of the node's GPUs as soon as they can be read.
func (d *Driver) inventory(ctx context.Context, c nodeConfig) []string {
	for wait := inventoryFirst; ; wait = min(2*wait, inventoryLimit) {
		uuids, err := readInventory(c, d.log)
		if len(uuids) > 0 {
			return uuids
		}
		d.log.Warn("the node's GPUs are not known yet, so that gangd cannot be told of the node", "error", err, "again_in", wait)
		if !pause(ctx, wait) {
			return nil
		}
	}
}

func readInventory(c nodeConfig, log hclog.Logger) ([]string, error) {
	config := c.gpus()
	config.Log = log
	library, err := gpu.Open(config)
	if err != nil {
		return nil, err
	}
	defer library.Close()
	gpus, err := library.GPUs() // with an error, those that can be read
	uuids := make([]string, len(gpus))
	for i, g := range gpus {
		uuids[i] = g.UUID
	}
	return uuids, err
}

// living lists the lanes whose keepers live, whoever started them.
type living struct {
	stateDir string

	mu    sync.Mutex
	known map[lane.Dir]livingLane
}

type livingLane struct {
	keeper lane.Keeper
	lane   string
}

func (l *living) list() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	dirs, err := lane.List(l.stateDir)
	if err != nil {
		return nil
	}
	var lanes []string
	seen := make(map[lane.Dir]livingLane, len(dirs))
	for _, dir := range dirs {
		known, ok := l.known[dir]
		if !ok || !known.keeper.Alive() {
			if known, ok = readLiving(dir); !ok {
				continue
			}
		}
		seen[dir] = known
		if known.keeper.Alive() {
			lanes = append(lanes, known.lane)
		}
	}
	l.known = seen
	return lanes
}

func readLiving(dir lane.Dir) (livingLane, bool) {
	k, err := dir.Keeper()
	if err != nil {
		return livingLane{}, false // just starting, or no lane
	}
	c, err := dir.Config()
	return livingLane{keeper: k, lane: c.Lane}, err == nil
}

// collect removes lanes that nobody destroyed: Nomad's agent, or its data, was
// gone when they ended.
func collect(stateDir string, log hclog.Logger) {
	dirs, err := lane.List(stateDir)
	if err != nil {
		log.Warn("old lanes are not collected", "error", err)
	}
	collected := 0
	for _, dir := range dirs {
		info, err := os.Stat(string(dir))
		if err != nil || time.Since(info.ModTime()) < collectAge {
			continue
		}
		if _, err := dir.Config(); err != nil {
			continue // no lane
		}
		k, err := dir.Keeper()
		if err == nil && k.Alive() {
			continue
		}
		if err := (&task{dir: dir, keeper: k.Ref}).destroy(); err != nil {
			log.Warn("an old lane is not collected", "lane", dir, "error", err)
			continue
		}
		if collected++; collected == maxCollected {
			return
		}
	}
}
