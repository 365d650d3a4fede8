package allreduce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

const (
	// DefaultJoinTimeout bounds how long ranks wait for each other at the start.
	DefaultJoinTimeout = 30 * time.Second

	// DefaultOpTimeout bounds one reduction or gathering. The ranks come to it with different loads behind them.
	DefaultOpTimeout = 30 * time.Second

	// handshakeTimeout bounds one handshake, so that a silent stranger takes nobody's place.
	handshakeTimeout = 5 * time.Second

	// Pauses between two attempts to dial, or to listen on a port that is not free yet.
	firstPause = 10 * time.Millisecond
	longPause  = 250 * time.Millisecond
)

var (
	// ErrPeerLost is wrapped by errors about a rank that is gone, silent or confused. Another attempt may succeed.
	ErrPeerLost = errors.New("peer lost")

	// ErrRefused is wrapped by the error of a rank that rank 0 did not accept.
	ErrRefused = errors.New("refused by rank 0")
)

// Config says who this rank is and where rank 0 is to be found.
type Config struct {
	Addr    string // host:port that rank 0 listens on
	Gang    string
	Attempt int
	Rank    int
	World   int
	Model   string // ranks of another model are refused

	JoinTimeout time.Duration // 0: DefaultJoinTimeout
	OpTimeout   time.Duration // 0: DefaultOpTimeout
}

// Join brings the ranks together, and returns when this rank is in: on rank 0, when all are. The group breaks when ctx ends.
func Join(ctx context.Context, cfg Config) (*Group, error) {
	if cfg.JoinTimeout == 0 {
		cfg.JoinTimeout = DefaultJoinTimeout
	}
	if cfg.OpTimeout == 0 {
		cfg.OpTimeout = DefaultOpTimeout
	}
	joining, cancel := context.WithTimeoutCause(ctx, cfg.JoinTimeout,
		fmt.Errorf("%w: not all of %d ranks came together within %v", ErrPeerLost, cfg.World, cfg.JoinTimeout))
	defer cancel()
	var conns []net.Conn
	var err error
	switch {
	case cfg.World == 1:
	case cfg.Rank == 0:
		conns, err = gather(joining, cfg)
	default:
		conns, err = dial(joining, cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("join gang %q attempt %d as rank %d at %s: %w", cfg.Gang, cfg.Attempt, cfg.Rank, cfg.Addr, err)
	}
	return newGroup(ctx, cfg, conns), nil
}

// newcomer is the outcome of one handshake on rank 0.
type newcomer struct {
	conn net.Conn
	rank int // 0: refused
}

// gather is rank 0's side: it accepts connections until every other rank has one.
func gather(ctx context.Context, cfg Config) ([]net.Conn, error) {
	listener, err := listen(ctx, cfg.Addr)
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()

	arrivals := make(chan newcomer)
	go acceptAll(ctx, listener, cfg, arrivals)
	conns := make([]net.Conn, cfg.World)
	for missing := cfg.World - 1; missing > 0; {
		select {
		case n := <-arrivals:
			if conns[n.rank] != nil {
				refuse(n.conn, fmt.Sprintf("rank %d is here already", n.rank))
				continue
			}
			if err := accept(n.conn); err != nil {
				n.conn.Close()
				continue
			}
			conns[n.rank] = n.conn
			missing--
		case <-ctx.Done():
			closeAll(conns)
			return nil, context.Cause(ctx)
		}
	}
	return conns, nil
}

// acceptAll shakes hands with everybody who comes, at most twice the world's size at a time.
func acceptAll(ctx context.Context, listener net.Listener, cfg Config, arrivals chan<- newcomer) {
	slots := make(chan struct{}, 2*cfg.World)
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			conn.Close()
			return
		}
		go func() {
			defer func() { <-slots }()
			rank, reason := meet(conn, cfg)
			if reason != "" {
				refuse(conn, reason)
				return
			}
			select {
			case arrivals <- newcomer{conn, rank}:
			case <-ctx.Done():
				conn.Close()
			}
		}()
	}
}

// meet reads a hello and gives its rank, or the reason to refuse it.
func meet(conn net.Conn, cfg Config) (rank int, reason string) {
	if err := conn.SetReadDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return 0, err.Error()
	}
	f, err := readFrame(conn, maxHello)
	if err != nil {
		return 0, "no hello: " + err.Error()
	}
	h, err := decodeHello(f)
	switch {
	case err != nil:
		return 0, "no hello: " + err.Error()
	case h.Gang != cfg.Gang:
		return 0, fmt.Sprintf("this is gang %q, not %q", cfg.Gang, h.Gang)
	case h.Attempt != cfg.Attempt:
		return 0, fmt.Sprintf("this is attempt %d, not %d", cfg.Attempt, h.Attempt)
	case h.World != cfg.World:
		return 0, fmt.Sprintf("this is a world of %d ranks, not of %d", cfg.World, h.World)
	case h.Rank < 1 || h.Rank >= cfg.World:
		return 0, fmt.Sprintf("there is no place for a rank %d", h.Rank)
	case h.Model != cfg.Model:
		return 0, fmt.Sprintf("this is model %q, not %q", cfg.Model, h.Model)
	}
	return h.Rank, ""
}

func accept(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	if err := writeFrame(conn, frame{kind: kindAccept}); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// refuse tells the reason to a peer that may not read: what it does with it is its own affair.
func refuse(conn net.Conn, reason string) {
	if conn.SetWriteDeadline(time.Now().Add(handshakeTimeout)) == nil {
		_ = writeFrame(conn, frame{kind: kindRefuse, payload: []byte(reason)})
	}
	conn.Close()
}

// listen waits, within ctx, for the port of an attempt that has just ended.
func listen(ctx context.Context, addr string) (net.Listener, error) {
	var config net.ListenConfig
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		listener, err := config.Listen(ctx, "tcp", addr)
		if err == nil {
			return listener, nil
		}
		if waitErr := wait(ctx, pause); waitErr != nil {
			return nil, fmt.Errorf("%w (last: %w)", waitErr, err)
		}
	}
}

// dial is the other ranks' side. Rank 0 may come later, and the port may still belong to an attempt that ends: so it tries
// again, and tells why when its time is over: what rank 0 said, if it said anything, else the last error.
func dial(ctx context.Context, cfg Config) ([]net.Conn, error) {
	var refusal error
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		conn, err := dialOnce(ctx, cfg)
		if err == nil {
			return []net.Conn{conn}, nil
		}
		if errors.Is(err, ErrRefused) {
			refusal = err
		}
		if waitErr := wait(ctx, pause); waitErr != nil {
			return nil, fmt.Errorf("%w (last: %w)", waitErr, cmp.Or(refusal, err))
		}
	}
}

func dialOnce(ctx context.Context, cfg Config) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", cfg.Addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := introduce(conn, cfg); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// introduce says hello and waits for rank 0's word, which may take until another handshake is done.
func introduce(conn net.Conn, cfg Config) error {
	payload, err := encodeHello(hello{Gang: cfg.Gang, Attempt: cfg.Attempt, Rank: cfg.Rank, World: cfg.World, Model: cfg.Model})
	if err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	if err := writeFrame(conn, frame{kind: kindHello, payload: payload}); err != nil {
		return fmt.Errorf("send the hello: %w", err)
	}
	f, err := readFrame(conn, maxHello)
	if err != nil {
		return fmt.Errorf("wait for rank 0's answer: %w", err)
	}
	switch f.kind {
	case kindAccept:
		return conn.SetDeadline(time.Time{})
	case kindRefuse:
		return fmt.Errorf("%w: %s", ErrRefused, f.payload)
	}
	return fmt.Errorf("rank 0 answered with a frame of kind %d", f.kind)
}

// wait pauses, and fails with ctx's cause when that ends first.
func wait(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func closeAll(conns []net.Conn) {
	for _, c := range conns {
		if c != nil {
			c.Close()
		}
	}
}
