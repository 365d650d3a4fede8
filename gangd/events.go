package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/api"
	"github.com/gangd/gangd/internal/gang"
)

const (
	// maxEventBytes holds the status of the widest gang.
	maxEventBytes = 8 << 20
	// maxSilence bounds how long an agent may be out of reach while a gang is
	// followed: longer than it takes another to lead.
	maxSilence = time.Minute
	// maxQuiet bounds how long a stream may bring nothing at all: an agent that
	// lives sends something every 15 s.
	maxQuiet   = 45 * time.Second
	firstRetry = 200 * time.Millisecond
	lastRetry  = 2 * time.Second
)

// update is what is heard of a gang: a status, or progress, or that its agent
// is out of reach, or that it cannot be followed any longer.
type update struct {
	id       gang.ID
	status   *gang.Status
	progress *gang.Progress
	retrying error
	err      error
}

// watch sends what happens to a gang until it has ended. Streams that break
// off are opened again.
func (c *client) watch(ctx context.Context, id gang.ID, updates chan<- update) {
	lastEvent, retry, heard, told := "", firstRetry, time.Now(), false
	for {
		before := lastEvent
		done, err := c.stream(ctx, id, &lastEvent, updates)
		if done || ctx.Err() != nil {
			return
		}
		if lastEvent != before {
			retry, heard, told = firstRetry, time.Now(), false
		}
		var answer *agentError
		final := errors.As(err, &answer) && answer.status < 500 && answer.retryAfter == 0
		if final || time.Since(heard) > maxSilence {
			if err == nil {
				err = errors.New("its events break off again and again")
			}
			send(ctx, updates, update{id: id, err: fmt.Errorf("follow %s: %w", id, err)})
			return
		}
		if err != nil && !told {
			told = true
			send(ctx, updates, update{id: id, retrying: err})
		}
		select {
		case <-time.After(retry):
			retry = min(2*retry, lastRetry)
		case <-ctx.Done():
			return
		}
	}
}

// errQuiet ends a stream whose agent may be stopped, or cut off: its connection
// would stand for ever.
var errQuiet = errors.New("its agent says nothing any more")

func send(ctx context.Context, updates chan<- update, u update) {
	select {
	case updates <- u:
	case <-ctx.Done():
	}
}

// stream reads one stream of events; done says that the gang has ended.
func (c *client) stream(ctx context.Context, id gang.ID, lastEvent *string, updates chan<- update) (done bool, err error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	quiet := time.AfterFunc(c.quiet, func() { end(errQuiet) })
	defer quiet.Stop()
	defer func() {
		if err != nil && errors.Is(context.Cause(ctx), errQuiet) {
			err = errQuiet
		}
	}()
	answer, err := c.open(ctx, "GET", "/v1/gangs/"+url.PathEscape(string(id))+"/events", "", nil, *lastEvent)
	if err != nil {
		return false, err
	}
	defer answer.Body.Close()
	return readEvents(listener{answer.Body, func() { quiet.Reset(c.quiet) }}, func(e event) (bool, error) {
		u := update{id: id}
		switch e.kind {
		case api.EventStatus, api.EventDone:
			err = json.Unmarshal([]byte(e.data), &u.status)
		case api.EventProgress:
			err = json.Unmarshal([]byte(e.data), &u.progress)
		default:
			return false, nil // of a later gangd
		}
		if err != nil {
			return false, fmt.Errorf("read event %s of %s: %w", e.id, id, err)
		}
		if e.id != "" {
			*lastEvent = e.id
		}
		send(ctx, updates, u)
		return e.kind == api.EventDone, nil
	})
}

// listener calls said whenever something was read.
type listener struct {
	io.Reader
	said func()
}

// Read implements io.Reader.
func (h listener) Read(b []byte) (int, error) {
	n, err := h.Reader.Read(b)
	if n > 0 {
		h.said()
	}
	return n, err
}

// event is a server-sent event.
type event struct{ id, kind, data string }

// readEvents calls handle for each event until it says that it has enough, or
// the stream ends.
func readEvents(r io.Reader, handle func(event) (enough bool, err error)) (enough bool, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxEventBytes)
	var e event
	for lines.Scan() {
		if lines.Text() == "" {
			if e.data != "" {
				if enough, err = handle(e); enough || err != nil {
					return enough, err
				}
			}
			e = event{}
			continue
		}
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			e.id = value
		case "event":
			e.kind = value
		case "data":
			e.data += value
		}
	}
	return false, lines.Err()
}
