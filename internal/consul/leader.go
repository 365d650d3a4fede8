package consul

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/hashicorp/consul/api"
)

// Leadership is who leads, if anyone does.
type Leadership struct {
	Identity
	// Held is false where nobody leads.
	Held bool
}

// Leader says who leads now.
func (s *Store) Leader(ctx context.Context) (leader Identity, held bool, err error) {
	pair, _, err := s.get(ctx, leaderKey, &api.QueryOptions{RequireConsistent: true})
	if err != nil {
		return Identity{}, false, err
	}
	l, err := leadership(pair)
	return l.Identity, l.Held, err
}

func leadership(pair *api.KVPair) (Leadership, error) {
	if pair == nil || pair.Session == "" {
		return Leadership{}, nil
	}
	l := Leadership{Held: true}
	if err := json.Unmarshal(pair.Value, &l.Identity); err != nil {
		return Leadership{}, fmt.Errorf("read who leads from %s: %w", pair.Key, err)
	}
	return l, nil
}

// WatchLeader sends who leads, now and after each change. A receiver that is
// late gets only the newest. The channel is closed when ctx ends.
func (s *Store) WatchLeader(ctx context.Context) <-chan Leadership {
	out := make(chan Leadership, 1)
	go func() {
		defer close(out)
		s.watchLeader(ctx, out)
	}()
	return out
}

func (s *Store) watchLeader(ctx context.Context, out chan Leadership) {
	var index uint64
	var last Leadership
	sent := false
	wait := retryMin
	for ctx.Err() == nil {
		opts := &api.QueryOptions{WaitIndex: index, WaitTime: watchTime}
		pair, meta, err := s.get(ctx, leaderKey, opts)
		var now Leadership
		if err == nil {
			now, err = leadership(pair)
		}
		if err != nil {
			if ctx.Err() == nil {
				s.log.Warn("cannot see who leads, will look again", "error", err, "wait", wait)
			}
			index = 0
			_ = pause(ctx, wait) // only ends early
			wait = min(2*wait, retryMax)
			continue
		}
		wait, index = retryMin, nextIndex(index, meta.LastIndex)
		if !sent || now != last {
			replace(out, now)
			sent, last = true, now
		}
	}
}

// replace puts l into a channel of which this is the only sender, in the place
// of what was not received yet.
func replace(out chan Leadership, l Leadership) {
	select {
	case <-out:
	default:
	}
	out <- l
}
