package keeper

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// maxForwardBytes bounds what waits for Nomad's log collector.
	maxForwardBytes = 1 << 20
	reopenFirst     = 20 * time.Millisecond
	reopenLimit     = time.Second
)

// forwarder writes lines to a FIFO of Nomad's log collector, which breaks when
// the agent dies and has a reader again when the agent is back. Those who give
// it lines never wait: what does not fit is dropped and counted.
type forwarder struct {
	path string

	mu      sync.Mutex
	waiting [][]byte
	bytes   int
	dropped int
	writing bool
	changed chan struct{}
	idle    chan struct{} // closed while nothing waits; replaced by put
}

func newForwarder(path string) *forwarder {
	f := &forwarder{path: path, changed: make(chan struct{}, 1), idle: make(chan struct{})}
	close(f.idle)
	return f
}

// put takes a line with its newline.
func (f *forwarder) put(line []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bytes+len(line) > maxForwardBytes {
		f.dropped++
		return
	}
	if f.dropped > 0 {
		notice := []byte(f.droppedNotice())
		f.waiting, f.bytes = append(f.waiting, notice), f.bytes+len(notice)
	}
	if len(f.waiting) == 0 && !f.writing {
		f.idle = make(chan struct{})
	}
	f.waiting, f.bytes = append(f.waiting, line), f.bytes+len(line)
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

func (f *forwarder) droppedNotice() string {
	n := f.dropped
	f.dropped = 0
	return fmt.Sprintf("gangd: %d lines are missing here, as nobody read the log for too long\n", n)
}

// take removes the next line; nil if there is none.
func (f *forwarder) take() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.waiting) == 0 {
		if f.writing {
			f.writing = false
			close(f.idle)
		}
		return nil
	}
	line := f.waiting[0]
	f.waiting, f.bytes, f.writing = f.waiting[1:], f.bytes-len(line), true
	return line
}

// flush waits until all is written, or ctx ends.
func (f *forwarder) flush(ctx context.Context) {
	f.mu.Lock()
	idle := f.idle
	f.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// run writes until ctx ends. A line whose writing failed is written again. The
// FIFO is opened even if no line ever comes: the collector of one that nobody
// has opened waits for seconds at the task's end, while Nomad holds its GPUs.
func (f *forwarder) run(ctx context.Context) {
	file := f.open(ctx)
	defer func() { file.Close() }() // (*os.File)(nil).Close only returns an error
	for {
		line := f.take()
		if line == nil {
			select {
			case <-f.changed:
				continue
			case <-ctx.Done():
				return
			}
		}
		for {
			if file == nil {
				if file = f.open(ctx); file == nil {
					return
				}
			}
			stop := context.AfterFunc(ctx, func() { file.SetWriteDeadline(time.Unix(1, 0)) })
			_, err := file.Write(line)
			stop()
			if err == nil {
				break
			}
			file.Close()
			file = nil
		}
	}
}

// open waits until somebody reads the FIFO: without blocking, as an open that
// blocks could not be given up.
func (f *forwarder) open(ctx context.Context) *os.File {
	for wait := reopenFirst; ; wait = min(2*wait, reopenLimit) {
		file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_APPEND|syscall.O_NONBLOCK, 0)
		if err == nil {
			return file
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}
