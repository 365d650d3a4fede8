package consul

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/hashicorp/go-hclog"
)

// Keys below the prefix.
const (
	leaderKey = "leader"
	epochKey  = "epoch"
	logPrefix = "log/"
	headKey   = logPrefix + "head"
)

const (
	defaultPrefix = "gangd/"
	// requestTimeout bounds a request that does not wait for a change.
	requestTimeout = 5 * time.Second
	// loadTimeout bounds the reading of a whole prefix: 100,000 records take
	// 10 to 18 s.
	loadTimeout = 60 * time.Second
	// watchTime is how long Consul holds a query that waits for a change.
	watchTime = 30 * time.Second
	retryMin  = 100 * time.Millisecond
	retryMax  = 2 * time.Second
)

// Identity says who leads and where it is reached. It is the value of the
// lock's key.
type Identity struct {
	// Name is the agent's own and unlike that of every other agent.
	Name string `json:"name"`
	// HTTPAddr and LinkAddr are host:port, as others reach them.
	HTTPAddr string `json:"http"`
	LinkAddr string `json:"link"`
}

// Config of a Store. Address and Token fall back to what Consul's own tools
// take from the environment (CONSUL_HTTP_ADDR and so on).
type Config struct {
	Address, Token string
	// Prefix of all keys; "gangd/" if empty.
	Prefix   string
	Identity Identity
	Log      hclog.Logger
}

// Store speaks to one Consul agent. It is safe for use by many goroutines.
type Store struct {
	client   *api.Client
	prefix   string
	identity Identity
	log      hclog.Logger
}

// Open prepares a Store; it sends nothing yet.
func Open(cfg Config) (*Store, error) {
	conf := api.DefaultConfig()
	if cfg.Address != "" {
		conf.Address = cfg.Address
	}
	if cfg.Token != "" {
		conf.Token = cfg.Token
	}
	client, err := api.NewClient(conf)
	if err != nil {
		return nil, fmt.Errorf("open Consul at %s: %w", conf.Address, err)
	}
	s := &Store{client: client, prefix: cfg.Prefix, identity: cfg.Identity, log: cfg.Log}
	if s.prefix == "" {
		s.prefix = defaultPrefix
	}
	if strings.HasPrefix(s.prefix, "/") || !strings.HasSuffix(s.prefix, "/") {
		return nil, fmt.Errorf("open Consul: prefix %q must end with a '/' and not begin with one", s.prefix)
	}
	if s.identity.Name == "" {
		return nil, errors.New("open Consul: the agent has no name")
	}
	for _, addr := range []string{s.identity.HTTPAddr, s.identity.LinkAddr} {
		if _, _, err := splitAddr(addr); err != nil {
			return nil, fmt.Errorf("open Consul: advertised address %q: %w", addr, err)
		}
	}
	if s.log == nil {
		s.log = hclog.NewNullLogger()
	}
	return s, nil
}

func splitAddr(addr string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return host, int(n), err
}

// KV is one key with its value.
type KV struct {
	// Key is below the prefix.
	Key         string
	Value       []byte
	ModifyIndex uint64
}

// Get reads one key as it is now, whoever wrote it last.
func (s *Store) Get(ctx context.Context, key string) (kv KV, found bool, err error) {
	pair, _, err := s.get(ctx, key, &api.QueryOptions{RequireConsistent: true})
	if err != nil || pair == nil {
		return KV{}, false, err
	}
	return s.kv(pair), true, nil
}

// Load reads all keys that begin with prefix, as they are now. It holds the
// whole answer in memory.
func (s *Store) Load(ctx context.Context, prefix string) ([]KV, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	opts := &api.QueryOptions{RequireConsistent: true}
	pairs, _, err := s.client.KV().List(s.prefix+prefix, opts.WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("load %s from Consul: %w", s.prefix+prefix, err)
	}
	all := make([]KV, len(pairs))
	for i, pair := range pairs {
		all[i] = s.kv(pair)
	}
	return all, nil
}

func (s *Store) kv(pair *api.KVPair) KV {
	return KV{Key: strings.TrimPrefix(pair.Key, s.prefix), Value: pair.Value, ModifyIndex: pair.ModifyIndex}
}

// get reads one key; the pair is nil if there is none. A query that waits gets
// the time for it.
func (s *Store) get(ctx context.Context, key string, opts *api.QueryOptions) (*api.KVPair, *api.QueryMeta, error) {
	// Consul adds up to a sixteenth of the wait to spread the load.
	ctx, cancel := context.WithTimeout(ctx, requestTimeout+opts.WaitTime+opts.WaitTime/8)
	defer cancel()
	pair, meta, err := s.client.KV().Get(s.prefix+key, opts.WithContext(ctx))
	if err != nil {
		return nil, nil, fmt.Errorf("read %s from Consul: %w", s.prefix+key, err)
	}
	return pair, meta, nil
}

// pause waits, or returns ctx's error if that ends first.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
