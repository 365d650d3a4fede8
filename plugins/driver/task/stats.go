package task

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gangd/gangd/internal/nomadplugin"
	"github.com/gangd/gangd/plugins/driver/lane"
)

// minStatsInterval keeps a mistaken interval from making a node busy.
const minStatsInterval = 100 * time.Millisecond

// TaskStats implements nomadplugin.DriverPlugin.
func (d *Driver) TaskStats(ctx context.Context, id string, interval time.Duration, report func(nomadplugin.TaskUsage)) error {
	t, err := d.find(id)
	if err != nil {
		return err
	}
	interval = max(interval, minStatsInterval)
	var last sample
	for {
		reply, err := t.dir.Ask(ctx, lane.Request{Op: lane.OpUsage})
		if err == nil {
			next := sample{at: time.Now(), processes: make(map[int]lane.Usage, len(reply.Usage))}
			for _, u := range reply.Usage {
				next.processes[u.PID] = u
			}
			report(usageBetween(last, next, coreMHz()))
			last = next
		} else if _, ended := t.exited(); ended {
			return nil
		}
		if !pause(ctx, interval) {
			return ctx.Err()
		}
	}
}

// sample is what the processes of a task had used at one moment.
type sample struct {
	at        time.Time
	processes map[int]lane.Usage
}

// usageBetween turns two samples into rates; a process that is in one of them
// only has its memory counted.
func usageBetween(last, next sample, mhz float64) nomadplugin.TaskUsage {
	usage := nomadplugin.TaskUsage{At: next.at, Processes: make(map[int]nomadplugin.Usage, len(next.processes))}
	var user, system float64
	var rss uint64
	elapsed := next.at.Sub(last.at).Seconds()
	for pid, now := range next.processes {
		before, known := last.processes[pid]
		u, s := 0.0, 0.0
		if known && elapsed > 0 {
			u = max(0, (now.User-before.User).Seconds()/elapsed*100)
			s = max(0, (now.System-before.System).Seconds()/elapsed*100)
		}
		user, system, rss = user+u, system+s, rss+now.RSSBytes
		usage.Processes[pid] = usageOf(u, s, now.RSSBytes, mhz)
	}
	usage.Total = usageOf(user, system, rss, mhz)
	return usage
}

func usageOf(userPercent, systemPercent float64, rss uint64, mhz float64) nomadplugin.Usage {
	percent := userPercent + systemPercent
	return nomadplugin.Usage{
		CPU: map[nomadplugin.CPUMeasure]float64{
			nomadplugin.CPUUserPercent: userPercent, nomadplugin.CPUSystemPercent: systemPercent,
			nomadplugin.CPUPercent: percent, nomadplugin.CPUTicksMHz: percent / 100 * mhz,
		},
		Memory: map[nomadplugin.MemoryMeasure]uint64{nomadplugin.MemoryRSS: rss, nomadplugin.MemoryUsage: rss},
	}
}

// coreMHz is the clock of one core, as Nomad counts CPU; 0 where it is not told.
var coreMHz = sync.OnceValue(func() float64 {
	content, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(content)) {
		name, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(name) == "cpu MHz" {
			mhz, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				return 0
			}
			return mhz
		}
	}
	return 0
})
