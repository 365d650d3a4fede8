package main

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/internal/gpu"
	"github.com/gangd/gangd/internal/nomadplugin"
	"github.com/gangd/gangd/internal/nomadplugin/schema"
)

const (
	pluginName = "gangd-device"
)

// reporter tells gangd of the node's GPUs. Report is called with the whole
// inventory at the start and after each change, and must not block.
type reporter interface{ Report(gpu.Inventory) }

// devicePlugin answers Nomad. Until Nomad asks for the GPUs, it only remembers
// its configuration: agents also start it to ask its name or to try a
// configuration.
type devicePlugin struct {
	// life ends the work that goes on between Nomad's calls. In a plugin that
	// is the process's own.
	life        context.Context
	log         hclog.Logger
	newReporter func(context.Context, config, hclog.Logger) reporter

	mu     sync.Mutex
	config *config
	node   *node
}

func newPlugin(life context.Context, log hclog.Logger, newReporter func(context.Context, config, hclog.Logger) reporter) *devicePlugin {
	return &devicePlugin{life: life, log: log, newReporter: newReporter}
}

func (p *devicePlugin) Info() nomadplugin.Info {
	return nomadplugin.Info{Name: pluginName, Version: version}
}

func (p *devicePlugin) ConfigSchema() *schema.Spec { return configSchema() }

func (p *devicePlugin) SetConfig(encoded nomadplugin.Config) error {
	c, err := decodeConfig(encoded)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.node != nil && !reflect.DeepEqual(*p.config, c) {
		return errors.New("plugin gangd-device: its GPUs are in use under another configuration: restart the agent to change it")
	}
	p.config = &c
	return nil
}

// begin starts the watch of the GPUs with the first call that needs it.
func (p *devicePlugin) begin() (*node, config, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.config == nil {
		return nil, config{}, errors.New("plugin gangd-device was asked for its GPUs before it was configured")
	}
	if p.node == nil {
		p.node = newNode(p.config.gpu(p.log), p.newReporter(p.life, *p.config, p.log), p.log)
		go p.node.run(p.life)
	}
	return p.node, *p.config, nil
}

// Fingerprint reports the GPUs and each change of their health.
func (p *devicePlugin) Fingerprint(ctx context.Context, report func([]nomadplugin.DeviceGroup)) error {
	n, c, err := p.begin()
	if err != nil {
		return err
	}
	for {
		view, changed := n.latest()
		if view.known {
			report(groups(view.inventory, c.Grouping))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// Reserve hands GPUs to a task, or refuses where one has turned bad since Nomad
// placed the task.
func (p *devicePlugin) Reserve(_ context.Context, ids []string) (nomadplugin.Reservation, error) {
	n, c, err := p.begin()
	if err != nil {
		return nomadplugin.Reservation{}, err
	}
	view, _ := n.latest()
	return reserve(view, ids, c.Grouping)
}

// Stats measures the memory in use.
func (p *devicePlugin) Stats(ctx context.Context, interval time.Duration, report func([]nomadplugin.DeviceGroupStats)) error {
	n, c, err := p.begin()
	if err != nil {
		return err
	}
	tick := time.NewTicker(max(interval, time.Second))
	defer tick.Stop()
	for {
		if view, _ := n.latest(); view.library != nil {
			report(stats(view, c.Grouping, time.Now(), p.log))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
