package lane

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"
)

// Limits of the control protocol.
const (
	// MaxEvents is how many task events a keeper keeps for a plugin that is away.
	MaxEvents = 100
	// MaxExecOutput bounds each output of a command, in bytes; the rest is cut.
	MaxExecOutput = 1 << 20
	maxLineBytes  = 8 << 20
	dialTimeout   = time.Second
)

// Operations on a keeper. Each connection carries one request and its answers,
// one JSON object a line. Wait is answered when the lane has ended; Events with
// one line for each event, until the keeper ends.
const (
	OpStatus = "status"
	OpWait   = "wait"
	OpStop   = "stop"
	OpSignal = "signal"
	OpEvents = "events"
	OpUsage  = "usage"
	OpExec   = "exec"
)

// Request asks a keeper for something.
type Request struct {
	Op      string        `json:"op"`
	Timeout time.Duration `json:"timeout_ns,omitempty"` // stop: until KILL; exec
	Signal  string        `json:"signal,omitempty"`     // stop, signal: as "SIGTERM"
	Command []string      `json:"command,omitempty"`
}

// Reply is one line of an answer; which part is set follows from the request.
type Reply struct {
	Error  string  `json:"error,omitempty"`
	Status *Status `json:"status,omitempty"`
	Exit   *Exit   `json:"exit,omitempty"`
	Event  *Event  `json:"event,omitempty"`
	Usage  []Usage `json:"usage,omitempty"`
	Exec   *Exec   `json:"exec,omitempty"`
}

// Status is what a lane is doing.
type Status struct {
	Keeper Keeper `json:"keeper"`
	Lane   string `json:"lane"`
	State  string `json:"state"`
	Gang   string `json:"gang,omitempty"`
	// Attempt is the gang's, where there is one.
	Attempt uint32 `json:"attempt,omitempty"`
	PIDs    []int  `json:"pids"`
}

// Event is news for those who read `nomad alloc status`.
type Event struct {
	// Sequence numbers a lane's events from 1.
	Sequence int       `json:"sequence"`
	At       time.Time `json:"at"`
	Message  string    `json:"message"`
}

// Usage is what one process has used.
type Usage struct {
	PID    int           `json:"pid"`
	User   time.Duration `json:"user_ns"`
	System time.Duration `json:"system_ns"`
	// RSSBytes is the memory that is resident.
	RSSBytes uint64 `json:"rss_bytes"`
}

// Exec is the end and the output of a command that was run beside the ranks.
type Exec struct {
	Stdout []byte `json:"stdout"`
	Stderr []byte `json:"stderr"`
	Code   int    `json:"code"`
	Signal int    `json:"signal,omitempty"`
}

// ErrNoKeeper is wrapped where nobody answers at a lane's control socket.
var ErrNoKeeper = errors.New("no keeper answers")

// Ask sends a request and returns the one answer to it.
func (d Dir) Ask(ctx context.Context, r Request) (Reply, error) {
	var reply Reply
	err := d.ask(ctx, r, func(got Reply) bool { reply = got; return false })
	if err == nil && reply.Error != "" {
		err = fmt.Errorf("the keeper of %s: %s", d, reply.Error)
	}
	return reply, err
}

// Follow reads a lane's events until the keeper or ctx ends.
func (d Dir) Follow(ctx context.Context, each func(Event)) error {
	return d.ask(ctx, Request{Op: OpEvents}, func(got Reply) bool {
		if got.Event != nil {
			each(*got.Event)
		}
		return true
	})
}

func (d Dir) ask(ctx context.Context, r Request, each func(Reply) bool) error {
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "unix", d.ControlSocket())
	if err != nil {
		return fmt.Errorf("ask %s for its %s: %w: %w", d, r.Op, ErrNoKeeper, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := json.NewEncoder(conn).Encode(r); err != nil {
		return fmt.Errorf("ask %s for its %s: %w: %w", d, r.Op, ErrNoKeeper, err)
	}
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, maxLineBytes)
	for lines.Scan() {
		var reply Reply
		if err := json.Unmarshal(lines.Bytes(), &reply); err != nil {
			return fmt.Errorf("ask %s for its %s: read the answer: %w", d, r.Op, err)
		}
		if !each(reply) {
			return nil
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("ask %s for its %s: %w: the connection ended", d, r.Op, ErrNoKeeper)
}
