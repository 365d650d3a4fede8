package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	consulapi "github.com/hashicorp/consul/api"
)

// Service is the name under which gangd agents register their link in Consul's
// catalog.
const Service = "gangd-link"

// Resolver finds addresses (host:port) at which gangd's link may be reached.
type Resolver interface {
	Addresses(ctx context.Context) ([]string, error)
}

// Static resolves to the given addresses.
func Static(addresses []string) Resolver { return static(addresses) }

type static []string

func (s static) Addresses(context.Context) ([]string, error) { return s, nil }

// ConsulCatalog resolves through the catalog of the Consul agent at address
// (host:port or URL). Agents that Consul thinks ill are listed too: a follower
// is worth asking, and Consul may be wrong. The token needs the right to read
// nodes and the service; where it is empty, CONSUL_HTTP_TOKEN counts.
func ConsulCatalog(address, token string) Resolver { return catalog{address, token} }

type catalog struct{ address, token string }

func (c catalog) Addresses(ctx context.Context) ([]string, error) {
	cfg := consulapi.DefaultConfig()
	cfg.Address = c.address
	if c.token != "" {
		cfg.Token = c.token
	}
	client, err := consulapi.NewClient(cfg)
	if err != nil {
		return nil, fmt.Errorf("look up %s in Consul at %s: %w", Service, c.address, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	found, _, err := client.Catalog().Service(Service, "", (&consulapi.QueryOptions{AllowStale: true}).WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("look up %s in Consul at %s: %w", Service, c.address, err)
	}
	var out []string
	for _, s := range found {
		host := s.ServiceAddress
		if host == "" {
			host = s.Address
		}
		out = append(out, net.JoinHostPort(host, strconv.Itoa(s.ServicePort)))
	}
	return out, nil
}

// Chain asks each resolver in turn and returns all that they found.
func Chain(resolvers ...Resolver) Resolver { return chain(resolvers) }

type chain []Resolver

func (c chain) Addresses(ctx context.Context) ([]string, error) {
	var out []string
	var errs []error
	for _, r := range c {
		found, err := r.Addresses(ctx)
		if err != nil {
			errs = append(errs, err)
		}
		out = append(out, found...)
	}
	if len(out) == 0 {
		return nil, errors.Join(append(errs, errors.New("no address of gangd's link is known: set gangd_addrs, or consul_addr of a Consul in which gangd is registered"))...)
	}
	return out, nil
}

// BootID returns an identifier that differs after each boot of this machine;
// empty where the kernel gives none.
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
