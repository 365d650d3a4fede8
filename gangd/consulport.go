package main

import (
	"context"

	"github.com/gangd/gangd/internal/consul"
	"github.com/gangd/gangd/internal/coordinator"
)

// consulPort makes Consul the coordinator's store.
type consulPort struct{ store *consul.Store }

// Campaign implements coordinator.Store.
func (p consulPort) Campaign(ctx context.Context) (coordinator.Term, error) {
	return p.store.Campaign(ctx)
}

// Load implements coordinator.Store.
func (p consulPort) Load(ctx context.Context, prefix string) ([]coordinator.KV, error) {
	found, err := p.store.Load(ctx, prefix)
	out := make([]coordinator.KV, len(found))
	for i, kv := range found {
		out[i] = coordinator.KV{Key: kv.Key, Value: kv.Value}
	}
	return out, err
}
