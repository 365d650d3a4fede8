package link

import (
	"context"
	"slices"
	"time"

	"github.com/gangd/gangd/internal/link/linkpb"
)

// host is the machine whose processes speak of the same GPUs.
type host struct {
	uuids  []string
	heard  time.Time
	silent bool
	// driver counts the streams of its driver plugin; the last one counts.
	driver int
}

// hosts finds a host by any of its GPUs.
type hosts struct{ byUUID map[string]*host }

func newHosts() hosts { return hosts{byUUID: make(map[string]*host)} }

// join returns the host that has one of the GPUs, or makes one. A fuller
// inventory widens the host.
func (s *Server) join(uuids []string) *host {
	s.mu.Lock()
	var h *host
	for _, u := range uuids {
		if h = s.hosts.byUUID[u]; h != nil {
			break
		}
	}
	if h == nil {
		h = &host{heard: time.Now()}
	}
	for _, u := range uuids {
		if s.hosts.byUUID[u] != h {
			s.hosts.byUUID[u] = h
			h.uuids = append(h.uuids, u)
		}
	}
	s.mu.Unlock()
	s.hear(h)
	return h
}

// hear notes a sign of life.
func (s *Server) hear(h *host) {
	s.mu.Lock()
	h.heard = time.Now()
	back := h.silent
	s.mu.Unlock()
	if !back {
		return
	}
	s.tell.Lock()
	defer s.tell.Unlock()
	s.mu.Lock()
	back = h.silent
	h.silent = false
	uuids := slices.Clone(h.uuids)
	s.mu.Unlock()
	if back {
		s.observe(HostHeard{uuids})
	}
}

// LastHeard returns when something was last heard from the host with this GPU.
func (s *Server) LastHeard(uuid string) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.hosts.byUUID[uuid]; h != nil {
		return h.heard, true
	}
	return time.Time{}, false
}

// watchHosts suspects hosts that say nothing. It gives everybody time to be
// heard before it judges when it was itself held up (the process was stopped,
// the machine slept), and when this agent has ended all streams to lead.
func (s *Server) watchHosts(ctx context.Context) {
	tick := time.NewTicker(s.silentAfter / 9)
	defer tick.Stop()
	last := time.Now()
	grace := last
	restart := s.restarted()
	for {
		select {
		case <-ctx.Done():
			return
		case <-restart:
			restart = s.restarted()
			grace = time.Now().Add(s.silentAfter + backoffMax)
			continue
		case <-tick.C:
		}
		now := time.Now()
		if now.Sub(last) > s.silentAfter/2 {
			grace = later(grace, now.Add(s.silentAfter))
		}
		last = now
		if now.Before(grace) {
			continue
		}
		s.tell.Lock()
		for _, uuids := range s.silentSince(now.Add(-s.silentAfter)) {
			s.observe(HostSilent{uuids})
		}
		s.tell.Unlock()
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// forgetAfter is how long a silent host is remembered.
const forgetAfter = 24 * time.Hour

// silentSince marks and returns the hosts last heard before then, by their
// GPUs, and forgets those that have been silent for long.
func (s *Server) silentSince(then time.Time) [][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out [][]string
	for u, h := range s.hosts.byUUID {
		switch {
		case !h.silent && h.heard.Before(then):
			h.silent = true
			out = append(out, slices.Clone(h.uuids))
		case h.silent && h.heard.Before(then.Add(-forgetAfter)):
			delete(s.hosts.byUUID, u)
		}
	}
	slices.SortFunc(out, slices.Compare[[]string])
	return out
}

// driverUp notes a new stream of the host's driver plugin, tells of it, and
// returns its number.
func (s *Server) driverUp(h *host, hello *linkpb.NodeHello) int {
	s.tell.Lock()
	defer s.tell.Unlock()
	s.mu.Lock()
	h.driver++
	stream := h.driver
	s.mu.Unlock()
	s.observe(DriverHello{hello})
	return stream
}

func (s *Server) driverGone(h *host, stream int) {
	s.tell.Lock()
	defer s.tell.Unlock()
	s.mu.Lock()
	newest := h.driver == stream
	uuids := slices.Clone(h.uuids)
	s.mu.Unlock()
	if newest {
		s.observe(DriverGone{uuids})
	}
}
