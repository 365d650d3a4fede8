package consul

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/hashicorp/consul/api"
)

// Names of the services in Consul's catalog.
const (
	// HTTPService is where gangd's API is.
	HTTPService = "gangd"
	// LinkService is what the nodes connect to.
	LinkService = "gangd-link"
)

const (
	// checkTTL is how long an agent that says nothing counts as alive.
	checkTTL = 1500 * time.Millisecond
	// passEvery keeps the check passing with room for a lost request, and is
	// the least time between two refreshes.
	passEvery = 300 * time.Millisecond
	// passTimeout bounds one refresh.
	passTimeout = time.Second
	// forgetAfter is when Consul removes an agent that died without a word.
	forgetAfter = "30m"
)

func (s *Store) httpID() string { return HTTPService + ":" + s.identity.Name }
func (s *Store) linkID() string { return LinkService + ":" + s.identity.Name }

// registerCheck makes the agent's two services known, with a check of the given
// ID and no other, which the link's service follows. A session that hangs on an
// earlier check, of this process or of one before it, ends with that check; else
// a restarted agent would keep alive the lock that its predecessor died with.
func (s *Store) registerCheck(ctx context.Context, checkID string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	alive := &api.AgentServiceCheck{
		CheckID: checkID, Name: "gangd's loop turns", TTL: checkTTL.String(),
		Status: api.HealthPassing, DeregisterCriticalServiceAfter: forgetAfter,
	}
	likewise := &api.AgentServiceCheck{
		CheckID: s.linkID() + ":alias", Name: alive.Name, AliasService: s.httpID(),
		Status: api.HealthPassing, DeregisterCriticalServiceAfter: forgetAfter,
	}
	opts := api.ServiceRegisterOpts{ReplaceExistingChecks: true}.WithContext(ctx)
	for _, service := range []*api.AgentServiceRegistration{
		s.service(s.httpID(), HTTPService, s.identity.HTTPAddr, alive),
		s.service(s.linkID(), LinkService, s.identity.LinkAddr, likewise),
	} {
		if err := s.client.Agent().ServiceRegisterOpts(service, opts); err != nil {
			return fmt.Errorf("register service %s in Consul: %w", service.ID, err)
		}
	}
	return nil
}

func (s *Store) service(id, name, addr string, check *api.AgentServiceCheck) *api.AgentServiceRegistration {
	host, port, _ := splitAddr(addr) // was checked by Open
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "" // stands for the address of Consul's agent
	}
	return &api.AgentServiceRegistration{ID: id, Name: name, Address: host, Port: port, Check: check}
}

// Deregister removes the agent's services, and with them its lock. An agent that
// ends calls it, so that no node looks for it.
func (s *Store) Deregister(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var faults []error
	for _, id := range []string{s.httpID(), s.linkID()} {
		err := s.client.Agent().ServiceDeregisterOpts(id, new(api.QueryOptions).WithContext(ctx))
		if err != nil && !hasStatus(err, http.StatusNotFound) {
			faults = append(faults, fmt.Errorf("deregister service %s in Consul: %w", id, err))
		}
	}
	return errors.Join(faults...)
}

func hasStatus(err error, code int) bool {
	var status api.StatusError
	return errors.As(err, &status) && status.Code == code
}

// pass says that the agent is alive.
func (s *Store) pass(ctx context.Context, checkID string) error {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	// The output must not change: Consul writes a new one through Raft.
	err := s.client.Agent().UpdateTTLOpts(checkID, "", api.HealthPassing, new(api.QueryOptions).WithContext(ctx))
	if err != nil {
		return fmt.Errorf("refresh check %s in Consul: %w", checkID, err)
	}
	return nil
}

// waitPassing waits until the servers know that the check passes: a session
// that hangs on an unknown or failing check is refused.
func (s *Store) waitPassing(ctx context.Context, checkID string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var index uint64
	for {
		opts := &api.QueryOptions{RequireConsistent: true, WaitIndex: index, WaitTime: requestTimeout}
		checks, meta, err := s.client.Health().Checks(HTTPService, opts.WithContext(ctx))
		if err != nil {
			return fmt.Errorf("wait for check %s in Consul: %w", checkID, err)
		}
		for _, check := range checks {
			if check.CheckID == checkID && check.Status == api.HealthPassing {
				return nil
			}
		}
		index = meta.LastIndex
	}
}
