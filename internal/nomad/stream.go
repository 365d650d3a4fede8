package nomad

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
)

const (
	topicNode       = "Node"
	topicAllocation = "Allocation"
	topicEvaluation = "Evaluation"
	topicJob        = "Job"

	typeNodeDeregistration = "NodeDeregistration"

	streamPath = "/v1/event/stream?topic=" + topicNode + "&topic=" + topicAllocation + "&topic=" + topicEvaluation + "&topic=" + topicJob
	// foreignPath is of what happens to allocations in other namespaces, too.
	foreignPath = "/v1/event/stream?topic=" + topicAllocation
)

const (
	// maxBatches bounds what waits for a slow receiver.
	maxBatches = 4096
	// maxBatchBytes bounds one line of the stream.
	maxBatchBytes = 32 << 20
	// streamSilence is after how long a stream is taken for dead. Nomad sends
	// a heartbeat every 30 s; one may be lost.
	streamSilence = 75 * time.Second
	// openPatience is how long the first word of a stream is waited for. Nomad
	// sends nothing, not even headers, before it has an event; it begins with
	// those that it still has.
	openPatience = time.Second
)

// rawEvent is one event of the stream. Payloads are decoded only where they
// are of interest, and only as far: the types of Nomad's servers are not those
// of its API.
type rawEvent struct {
	Topic, Type, Key string
	FilterKeys       []string
	Index            uint64
	Payload          json.RawMessage
}

type batch struct {
	Index  uint64
	Events []rawEvent
}

// stream is a subscription that reads ahead.
type stream struct {
	// batches is closed when the stream ends; err then says why.
	batches chan batch
	err     error
	opened  chan struct{}
	once    sync.Once
}

var errTooSlow = errors.New("events came faster than they were taken")

// subscribe opens a stream of a namespace in the background; it ends with ctx.
func (c *Client) subscribe(ctx context.Context, path, namespace string) *stream {
	s := &stream{batches: make(chan batch, maxBatches), opened: make(chan struct{})}
	go func() {
		defer close(s.batches)
		defer s.markOpen() // nobody is to wait for one that failed
		if s.err = s.read(ctx, c.api, path, namespace); s.err != nil {
			s.err = fmt.Errorf("read Nomad's events: %w", s.err)
		}
	}()
	return s
}

func (s *stream) markOpen() { s.once.Do(func() { close(s.opened) }) }

// awaitOpen waits for the first word of each stream, but not for long.
func awaitOpen(ctx context.Context, streams ...*stream) {
	ctx, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	for _, s := range streams {
		select {
		case <-s.opened:
		case <-ctx.Done():
		}
	}
}

func (s *stream) read(ctx context.Context, client *api.Client, path, namespace string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(streamSilence, func() {
		cancel(fmt.Errorf("nothing was heard for %s", streamSilence))
	})
	defer silence.Stop()
	body, err := client.Raw().Response(path, (&api.QueryOptions{Namespace: namespace}).WithContext(ctx))
	if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 64<<10), maxBatchBytes)
	for lines.Scan() {
		silence.Reset(streamSilence)
		s.markOpen()
		if err := s.take(lines.Bytes()); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return io.ErrUnexpectedEOF
}

func (s *stream) take(line []byte) error {
	if line = bytes.TrimSpace(line); len(line) == 0 {
		return nil
	}
	var b batch
	if err := json.Unmarshal(line, &b); err != nil {
		return err
	}
	if len(b.Events) == 0 {
		return nil // a heartbeat
	}
	select {
	case s.batches <- b:
		return nil
	default:
		return errTooSlow
	}
}
