package runner

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// sendQueue is how many lines may wait to be written.
	sendQueue = 64

	// SendTimeout bounds how long Send waits for room in the queue, and how long one line may take to be written. A peer
	// that reads nothing for that long is taken for dead.
	SendTimeout = 10 * time.Second

	// closeTimeout bounds how long Close waits for the lines still queued.
	closeTimeout = 2 * time.Second
)

// ErrSlowPeer is returned by Send when the peer has not read for SendTimeout. The connection is closed then.
var ErrSlowPeer = errors.New("peer does not read")

// Conn is one end of a runner's socket. Send and Close may be called from several goroutines, Receive from one.
type Conn struct {
	nc      net.Conn
	reader  *bufio.Reader
	receive Receiver // whose messages are read here

	queue   chan []byte
	closing chan struct{} // closed by Close: write what is queued, then end
	done    chan struct{} // closed when the writer has ended
	once    sync.Once
	failure error // why the writer ended; read after done
}

// NewConn takes over a connected socket. self is the side that calls: a keeper passes ToKeeper.
func NewConn(nc net.Conn, self Receiver) *Conn {
	c := &Conn{
		nc:      nc,
		reader:  bufio.NewReaderSize(nc, 64<<10),
		receive: self,
		queue:   make(chan []byte, sendQueue),
		closing: make(chan struct{}),
		done:    make(chan struct{}),
	}
	go c.write()
	return c
}

// Send queues a message. It returns before the message is written; a failed write is told by the next Send and ends
// Receive. It waits at most SendTimeout for room.
func (c *Conn) Send(m Message) error {
	line, err := Encode(m)
	if err != nil {
		return err
	}
	select { // a closed connection takes nothing, even while its queue has room
	case <-c.closing:
		return fmt.Errorf("send %s: %w", m.Type(), net.ErrClosed)
	case <-c.done:
		return fmt.Errorf("send %s: %w", m.Type(), c.failure)
	default:
	}
	timeout := time.NewTimer(SendTimeout)
	defer timeout.Stop()
	select {
	case c.queue <- line:
		return nil
	case <-c.closing:
		return fmt.Errorf("send %s: %w", m.Type(), net.ErrClosed)
	case <-c.done:
		return fmt.Errorf("send %s: %w", m.Type(), c.failure)
	case <-timeout.C:
		c.nc.Close()
		return fmt.Errorf("send %s: %w for %v", m.Type(), ErrSlowPeer, SendTimeout)
	}
}

// Receive waits for the next message. It returns io.EOF when the peer has closed the connection between two messages,
// and an error that wraps ErrProtocol when the peer sent what this side does not understand.
func (c *Conn) Receive() (Message, error) {
	line, err := c.readLine()
	if err != nil {
		return nil, err
	}
	return Decode(c.receive, line)
}

// SetReceiveDeadline makes a Receive that is not done by t fail with os.ErrDeadlineExceeded. Zero means no deadline.
func (c *Conn) SetReceiveDeadline(t time.Time) error { return c.nc.SetReadDeadline(t) }

// Close writes what is queued, for at most two seconds, and closes the socket. Later calls wait for the first one.
func (c *Conn) Close() error {
	c.once.Do(func() { close(c.closing) })
	<-c.done
	if errors.Is(c.failure, net.ErrClosed) {
		return nil
	}
	return c.failure
}

func (c *Conn) readLine() ([]byte, error) {
	var line []byte
	for {
		part, err := c.reader.ReadSlice('\n')
		if len(line)+len(part) > MaxLine {
			return nil, fmt.Errorf("%w: a line of more than %d bytes", ErrProtocol, MaxLine)
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return nil, fmt.Errorf("read from the %s's peer, in the middle of a line: %w", c.receive, io.ErrUnexpectedEOF)
		case errors.Is(err, io.EOF):
			return nil, io.EOF
		default:
			return nil, fmt.Errorf("read from the %s's peer: %w", c.receive, err)
		}
	}
}

func (c *Conn) write() {
	c.failure = c.writeQueue()
	c.nc.Close()
	close(c.done)
}

// writeQueue returns net.ErrClosed once Close was called and nothing is queued any more.
func (c *Conn) writeQueue() error {
	for {
		select {
		case line := <-c.queue:
			if err := c.writeLine(line, time.Now().Add(SendTimeout)); err != nil {
				return err
			}
		case <-c.closing:
			return c.flush(time.Now().Add(closeTimeout))
		}
	}
}

func (c *Conn) flush(deadline time.Time) error {
	for {
		select {
		case line := <-c.queue:
			if err := c.writeLine(line, deadline); err != nil {
				return err
			}
		default:
			return net.ErrClosed
		}
	}
}

func (c *Conn) writeLine(line []byte, deadline time.Time) error {
	if err := c.nc.SetWriteDeadline(deadline); err != nil {
		return fmt.Errorf("set the write deadline of a runner socket: %w", err)
	}
	if _, err := c.nc.Write(line); err != nil {
		return fmt.Errorf("write to a runner socket: %w", err)
	}
	return nil
}
