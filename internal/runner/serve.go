package runner

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
)

const (
	// EnvSocket names the environment variable with the path of the keeper's socket.
	EnvSocket = "GANGD_RUNNER_SOCKET"

	envLocalRank = "LOCAL_RANK"

	dialTimeout = 5 * time.Second

	// inboxLength is how many of the keeper's messages may wait while the program loads.
	inboxLength = 16

	// recentAttempts is how many accepted orders are remembered to tell a stale one.
	recentAttempts = 64

	// stopTimeout bounds how long Serve waits for a Run that was told to end because Serve itself ends.
	stopTimeout = 5 * time.Second
)

// ErrNoSocket is returned by Serve outside a lane.
var ErrNoSocket = errors.New(EnvSocket + " is not set: this program was not started by a keeper")

// Program is what a runner does. Load is called once, before any Run; Run is called for one order at a time.
type Program interface {
	// Load gets the weights ready and gives their digest.
	Load(ctx context.Context) (modelDigest string, err error)

	// Run carries out an order with fresh state. Its context ends when the attempt is cancelled, with the cause
	// ErrCancelled, or when the keeper is gone; Run then has to return at once, in the middle of a step if need be. An
	// *Error in err's chain is reported as it is; any other error as ClassInternal, not to be retried. Serve fills in
	// the result's attempt.
	Run(ctx context.Context, order Order, progress Progress) (Result, error)
}

// Progress is how a Run tells what it does. Its methods fill in the attempt, and may be called from several goroutines.
type Progress interface {
	Stage(stage string)
	Step(step Step)
	Checkpoint(checkpoint Checkpoint)

	// CheckpointDue tells whether a shard of the state after the given step has to be written.
	CheckpointDue(step int) bool
}

// Serve connects to the keeper, loads the program, and carries out orders until the keeper drains the runner (nil), the
// connection is lost, the load fails or ctx ends. Runs that still go on then are cancelled.
func Serve(ctx context.Context, program Program) error {
	path := os.Getenv(EnvSocket)
	if path == "" {
		return ErrNoSocket
	}
	localRank := 0
	if text := os.Getenv(envLocalRank); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return fmt.Errorf("serve a keeper: %s is %q, want a number from 0", envLocalRank, text)
		}
		localRank = n
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	nc, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("connect to the keeper (%s): %w", EnvSocket, err)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s := &server{
		conn:     NewConn(nc, ToRunner),
		program:  program,
		stop:     stop,
		inbox:    make(chan Message, inboxLength),
		finished: make(chan Message, 1),
	}
	defer s.conn.Close()
	go s.receive(ctx)
	return s.serve(ctx, localRank)
}

// server is the state of one Serve. Apart from receive and the jobs' Runs, all of it belongs to one goroutine.
type server struct {
	conn    *Conn
	program Program
	stop    context.CancelCauseFunc // ends Serve with a cause

	inbox    chan Message
	finished chan Message // the current job's result or failure

	current, next *job
	recent        []Attempt // the newest accepted orders, oldest first
	draining      bool
}

// job is one order in work, or announced. It is the order's Progress.
type job struct {
	order  Order
	server *server
	cancel context.CancelCauseFunc // nil until started

	checkpointAt atomic.Int64 // 0: no checkpoint was ordered
}

func (s *server) receive(ctx context.Context) {
	for {
		m, err := s.conn.Receive()
		if err != nil {
			s.stop(fmt.Errorf("the keeper's connection ended: %w", err))
			return
		}
		select {
		case s.inbox <- m:
		case <-ctx.Done():
			return
		}
	}
}

func (s *server) serve(ctx context.Context, localRank int) error {
	s.send(Hello{Protocol: Protocol, LocalRank: localRank, PID: os.Getpid()})
	digest, err := s.program.Load(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		s.send(Failure{Error: typed(err, ClassLoad)})
		return fmt.Errorf("load the program's weights: %w", err)
	}
	s.send(Ready{ModelDigest: digest})
	for !s.draining || s.current != nil {
		select {
		case m := <-s.inbox:
			s.handle(ctx, m)
		case outcome := <-s.finished:
			s.send(outcome)
			s.current = nil
			if next := s.next; next != nil {
				s.next = nil
				s.start(ctx, next)
			}
		case <-ctx.Done():
			s.awaitCurrent()
			return context.Cause(ctx)
		}
	}
	return nil
}

func (s *server) awaitCurrent() {
	if s.current == nil {
		return
	}
	timeout := time.NewTimer(stopTimeout)
	defer timeout.Stop()
	select {
	case <-s.finished:
	case <-timeout.C:
	}
}

func (s *server) handle(ctx context.Context, m Message) {
	switch m := m.(type) {
	case Order:
		s.take(ctx, m)
	case Cancel:
		s.cancelAttempt(m.Attempt)
	case CheckpointOrder:
		for _, j := range []*job{s.current, s.next} {
			if j != nil && j.order.Attempt == m.Attempt {
				j.checkpointAt.Store(int64(m.AtStep))
			}
		}
	case Drain:
		s.draining = true
		if s.next != nil {
			s.refuse(s.next.order.Attempt, Error{Class: ClassDraining, Retryable: true, Message: "the runner drains"})
			s.next = nil
		}
	}
}

func (s *server) take(ctx context.Context, order Order) {
	if s.stale(order.Attempt) {
		return
	}
	switch {
	case s.draining:
		s.refuse(order.Attempt, Error{Class: ClassDraining, Retryable: true, Message: "the runner drains"})
		return
	case s.next != nil:
		s.refuse(order.Attempt, Error{Class: ClassBusy, Retryable: true, Message: fmt.Sprintf(
			"gang %q runs and gang %q is announced; a runner takes one more order at a time", s.current.order.Gang, s.next.order.Gang)})
		return
	}
	s.recent = append(s.recent, order.Attempt)
	if len(s.recent) > recentAttempts {
		s.recent = slices.Delete(s.recent, 0, 1)
	}
	j := &job{order: order, server: s}
	if s.current != nil {
		s.next = j
		return
	}
	s.start(ctx, j)
}

// stale tells whether the attempt, or a later one of its gang, was accepted before.
func (s *server) stale(a Attempt) bool {
	return slices.ContainsFunc(s.recent, func(r Attempt) bool { return r.Gang == a.Gang && r.Number >= a.Number })
}

func (s *server) start(ctx context.Context, j *job) {
	runCtx, cancel := context.WithCancelCause(ctx)
	j.cancel = cancel
	s.current = j
	go func() {
		defer cancel(nil)
		result, err := s.program.Run(runCtx, j.order, j)
		if err != nil {
			s.finished <- Failure{Attempt: j.order.Attempt, Error: classify(runCtx, err)}
			return
		}
		result.Attempt = j.order.Attempt
		s.finished <- result
	}()
}

// cancelAttempt ends the current or the announced run. Any other attempt is over or was never ordered: nothing to do.
func (s *server) cancelAttempt(a Attempt) {
	switch {
	case s.current != nil && s.current.order.Attempt == a:
		s.current.cancel(ErrCancelled)
	case s.next != nil && s.next.order.Attempt == a:
		s.next = nil
		s.refuse(a, Error{Class: ClassCancelled, Message: ErrCancelled.Error()})
	}
}

func (s *server) refuse(a Attempt, why Error) { s.send(Failure{Attempt: a, Error: why}) }

// send ends Serve when the message cannot be sent: a runner that cannot report is of no use.
func (s *server) send(m Message) {
	if err := s.conn.Send(m); err != nil {
		s.stop(fmt.Errorf("report to the keeper: %w", err))
	}
}

func (j *job) Stage(stage string) { j.server.send(Stage{Attempt: j.order.Attempt, Stage: stage}) }

func (j *job) Step(step Step) {
	step.Attempt = j.order.Attempt
	j.server.send(step)
}

func (j *job) Checkpoint(checkpoint Checkpoint) {
	checkpoint.Attempt = j.order.Attempt
	j.server.send(checkpoint)
}

func (j *job) CheckpointDue(step int) bool { return int64(step) == j.checkpointAt.Load() }
