package nomadplugin

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/proto"
)

// pauses are the waits before a part of a plugin that ended too early is
// called again: they double from first to longest.
type pauses struct {
	first, longest time.Duration
}

var usualPauses = pauses{first: time.Second, longest: 30 * time.Second}

// holder keeps the streams open on which Nomad waits for a plugin's word.
type holder struct {
	logger hclog.Logger
	pauses pauses
}

// hold calls serve until ctx ends, and again after a pause when it returns
// before. The stream stays open meanwhile, so that Nomad keeps the last state
// it was told: an ended stream would cost the plugin its devices.
func (h holder) hold(ctx context.Context, name string, serve func(context.Context) error) error {
	pause := h.pauses.first
	for {
		began := time.Now()
		err := serve(ctx)
		if ctx.Err() != nil {
			return wireError(ctx, ctx.Err())
		}
		if time.Since(began) > h.pauses.longest {
			pause = h.pauses.first
		}
		h.logger.Error(name+" ended while Nomad listens; what it last reported stands, and it is called again",
			"error", err, "pause", pause.String())
		select {
		case <-ctx.Done():
			return wireError(ctx, ctx.Err())
		case <-time.After(pause):
		}
		pause = min(2*pause, h.pauses.longest)
	}
}

// sender serialises the messages of one stream, and stops with its call: a
// plugin may report from any goroutine, at any time.
type sender[M proto.Message] struct {
	mu     sync.Mutex
	send   func(M) error
	last   M
	sent   bool
	closed bool
}

// always sends message. A failed send is the end of the stream, of which the
// plugin hears by its context.
func (s *sender[M]) always(message M) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deliver(message)
}

// changed sends message unless it says what the last one said: for each
// message Nomad registers its node anew.
func (s *sender[M]) changed(message M) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent && proto.Equal(s.last, message) {
		return
	}
	s.deliver(message)
}

func (s *sender[M]) deliver(message M) {
	if s.closed {
		return
	}
	if err := s.send(message); err != nil {
		s.closed = true
		return
	}
	s.last, s.sent = message, true
}

// close makes later reports do nothing; gRPC forbids sending after a call has ended.
func (s *sender[M]) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}
