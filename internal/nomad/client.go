package nomad

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"
)

const (
	// requestTimeout bounds one request.
	requestTimeout = 10 * time.Second
	// listTimeout bounds the reading of a whole list, page by page.
	listTimeout = 60 * time.Second
	// pageSize is how many entries of a list come with one request.
	pageSize = 1000
)

// Config of a Client. Empty fields fall back to what Nomad's own tools take
// from the environment (NOMAD_ADDR and so on).
type Config struct {
	Address, Namespace, Token string
	Log                       hclog.Logger
}

// Client speaks to one Nomad agent. It is safe for use by many goroutines; how
// many calls are under way at once is for the caller to bound.
type Client struct {
	api *api.Client
	log hclog.Logger
	// driver runs the templates' tasks; tests have another.
	driver string
	// namespace is that of templates and lanes.
	namespace string
	// narrowed: the token may read the allocations of that one alone.
	narrowed atomic.Bool
}

// Open prepares a Client; it sends nothing yet.
func Open(cfg Config) (*Client, error) {
	conf := api.DefaultConfig()
	override(&conf.Address, cfg.Address)
	override(&conf.Namespace, cfg.Namespace)
	override(&conf.SecretID, cfg.Token)
	client, err := api.NewClient(conf)
	if err != nil {
		return nil, fmt.Errorf("open Nomad at %s: %w", conf.Address, err)
	}
	c := &Client{api: client, log: cfg.Log, driver: Driver, namespace: cmp.Or(conf.Namespace, api.DefaultNamespace)}
	if c.log == nil {
		c.log = hclog.NewNullLogger()
	}
	return c, nil
}

func override(field *string, value string) {
	if value != "" {
		*field = value
	}
}

// query makes the options of a read that ends with ctx or after d. Reads are
// never stale.
func query(ctx context.Context, d time.Duration) (*api.QueryOptions, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, d)
	return new(api.QueryOptions).WithContext(ctx), cancel
}

func write(ctx context.Context) (*api.WriteOptions, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	return new(api.WriteOptions).WithContext(ctx), cancel
}

func isNotFound(err error) bool {
	var response api.UnexpectedResponseError
	return errors.As(err, &response) && response.StatusCode() == http.StatusNotFound
}

// pages calls fetch for one page after the other.
func pages(ctx context.Context, opts api.QueryOptions, fetch func(*api.QueryOptions) (*api.QueryMeta, error)) (index uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	opts.PerPage = pageSize
	for {
		meta, err := fetch(opts.WithContext(ctx))
		if err != nil {
			return 0, err
		}
		// What changed while later pages were read is told by the stream too.
		if index == 0 {
			index = meta.LastIndex
		}
		if meta.NextToken == "" {
			return index, nil
		}
		opts.NextToken = meta.NextToken
	}
}
