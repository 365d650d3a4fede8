package runner

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

const (
	// HelloTimeout bounds how long a runner that has connected may take to say hello.
	HelloTimeout = 10 * time.Second

	// MaxSocketPath is the longest path of a Unix socket that Linux takes (sun_path, less its NUL).
	MaxSocketPath = 107
)

// Listener is the keeper's end of one rank's socket, before its runner has connected.
type Listener struct {
	socket *net.UnixListener
}

// Listen opens a rank's socket for its owner alone (mode 0600). A socket file that a dead keeper left is replaced; one
// that somebody listens on is not. Close removes the file.
func Listen(path string) (*Listener, error) {
	if len(path) > MaxSocketPath {
		return nil, fmt.Errorf("listen for a runner: the socket path has %d bytes, Linux takes %d: choose a shorter directory than %s", len(path), MaxSocketPath, path)
	}
	if err := removeStale(path); err != nil {
		return nil, fmt.Errorf("listen for a runner on %s: %w", path, err)
	}
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for a runner: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		socket.Close()
		return nil, fmt.Errorf("listen for a runner: %w", err)
	}
	return &Listener{socket: socket}, nil
}

func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSocket == 0 {
		return errors.New("a file that is no socket is in the way: remove it")
	}
	if nc, err := net.DialTimeout("unix", path, time.Second); err == nil {
		nc.Close()
		return errors.New("another process listens there")
	}
	return os.Remove(path)
}

// Accept waits for the runner to connect and to say hello. It fails when ctx ends, when the hello does not come within
// HelloTimeout, and, wrapping ErrProtocol, when it is no hello of this protocol.
func (l *Listener) Accept(ctx context.Context) (*Conn, Hello, error) {
	stop := context.AfterFunc(ctx, func() { l.socket.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	nc, err := l.socket.Accept()
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, Hello{}, fmt.Errorf("wait for the runner to connect to %s: %w", l.socket.Addr(), err)
	}
	conn := NewConn(nc, ToKeeper)
	interrupt := context.AfterFunc(ctx, func() { nc.Close() })
	defer interrupt()
	hello, err := receiveHello(conn)
	if err != nil {
		conn.Close()
		return nil, Hello{}, fmt.Errorf("wait for the runner's hello on %s: %w", l.socket.Addr(), err)
	}
	return conn, hello, nil
}

// Close stops listening and removes the socket file. Connections that were accepted stay.
func (l *Listener) Close() error { return l.socket.Close() }

func receiveHello(c *Conn) (Hello, error) {
	if err := c.SetReceiveDeadline(time.Now().Add(HelloTimeout)); err != nil {
		return Hello{}, err
	}
	m, err := c.Receive()
	if err != nil {
		return Hello{}, err
	}
	hello, ok := m.(Hello)
	if !ok {
		return Hello{}, fmt.Errorf("%w: the first message is %q, want %q", ErrProtocol, m.Type(), Hello{}.Type())
	}
	if hello.Protocol != Protocol {
		return Hello{}, fmt.Errorf("%w: the runner speaks version %d, this keeper %d", ErrProtocol, hello.Protocol, Protocol)
	}
	return hello, c.SetReceiveDeadline(time.Time{})
}
