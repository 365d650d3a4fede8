package api

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/gangd/gangd/internal/gang"
)

// The events of a stream. The data of status and done is a gang.Status, that
// of progress a gang.Progress.
const (
	EventStatus   = "status"
	EventProgress = "progress"
	EventDone     = "done"
)

// events streams one gang until it has ended. A stream that ends without done
// is to be opened again; as every stream starts with the present status,
// nothing that matters is missed, and IDs go on from Last-Event-ID.
func (s *Server) events(w http.ResponseWriter, r *http.Request) error {
	id, err := gangID(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	changes, err := s.scheduler.Watch(ctx, id)
	if err != nil {
		return err
	}
	s.metrics.streams.Inc()
	defer s.metrics.streams.Dec()

	out := newEventWriter(w, r.Header.Get("Last-Event-ID"))
	if err := out.open(); err != nil {
		return nil // the client has left
	}
	ping := time.NewTicker(s.ping)
	defer ping.Stop()
	for {
		select {
		case g, ok := <-changes:
			if !ok || out.status(g) != nil || g.State.Terminal() {
				return nil
			}
		case <-ping.C:
			if out.comment("ping") != nil {
				return nil
			}
		case <-s.closing:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// eventWriter writes server-sent events.
type eventWriter struct {
	w          http.ResponseWriter
	controller *http.ResponseController
	id         uint64
	last       *gang.Status
}

func newEventWriter(w http.ResponseWriter, lastID string) *eventWriter {
	id, err := strconv.ParseUint(lastID, 10, 63)
	if err != nil {
		id = 0
	}
	return &eventWriter{w: w, controller: http.NewResponseController(w), id: id}
}

func (e *eventWriter) open() error {
	e.w.Header().Set("Content-Type", "text/event-stream")
	e.w.Header().Set("Cache-Control", "no-store")
	e.w.Header().Set("X-Accel-Buffering", "no")
	_, err := fmt.Fprint(e.w, "retry: 1000\n\n")
	return flushed(e, err)
}

// status sends progress alone where nothing else has changed.
func (e *eventWriter) status(g gang.Status) error {
	kind, data := EventStatus, any(g)
	switch {
	case g.State.Terminal():
		kind = EventDone
	case g.Progress != nil && e.last != nil && sameButProgress(*e.last, g):
		kind, data = EventProgress, g.Progress
	}
	e.last = &g
	body, err := encode(data)
	if err != nil {
		return err
	}
	e.id++
	_, err = fmt.Fprintf(e.w, "id: %d\nevent: %s\ndata: %s\n", e.id, kind, body) // body ends its line
	return flushed(e, err)
}

func (e *eventWriter) comment(text string) error {
	_, err := fmt.Fprintf(e.w, ": %s\n\n", text)
	return flushed(e, err)
}

func flushed(e *eventWriter, err error) error {
	if err != nil {
		return err
	}
	return e.controller.Flush()
}

func sameButProgress(a, b gang.Status) bool {
	a.Progress, b.Progress = nil, nil
	return reflect.DeepEqual(a, b)
}
