package keeper

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/plugins/driver/lane"
)

const (
	// maxLineBytes is where a longer line is broken.
	maxLineBytes = 64 << 10
	// maxKeptBytes is the size of an output file; there is one older than the present one.
	maxKeptBytes = 8 << 20
)

// output takes the lines of all ranks: into files of the lane, and on to Nomad.
type output struct {
	streams map[string]*stream // stdout and stderr
	// first is the global number of the lane's first rank; before the first
	// run, ranks are called by their local number.
	first atomic.Int64
}

// stream is one of the two outputs of a lane.
type stream struct {
	kept    *keptFile
	forward *forwarder
}

func newOutput(dir lane.Dir, c lane.Config, log hclog.Logger) *output {
	return &output{streams: map[string]*stream{
		"stdout": {&keptFile{path: dir.Output("stdout"), log: log}, newForwarder(c.StdoutPath)},
		"stderr": {&keptFile{path: dir.Output("stderr"), log: log}, newForwarder(c.StderrPath)},
	}}
}

// run forwards lines until ctx ends.
func (o *output) run(ctx context.Context) {
	for _, s := range o.streams {
		if s.forward.path != "" {
			go s.forward.run(ctx)
		}
	}
}

// flush waits until Nomad has all lines, or ctx ends.
func (o *output) flush(ctx context.Context) {
	for _, s := range o.streams {
		s.forward.flush(ctx)
	}
}

// rankOutput is the reading end of one output of a rank.
type rankOutput struct {
	pipe *os.File
	done chan struct{} // closed at the end of the output
	last atomic.Pointer[string]
}

// attach makes a pipe for a rank's output and returns its writing end.
func (o *output) attach(local int, name string) (*rankOutput, *os.File, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("make a pipe for the %s of rank %d: %w", name, local, err)
	}
	r := &rankOutput{pipe: read, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		defer read.Close()
		o.copyLines(o.streams[name], local, r)
	}()
	return r, write, nil
}

func (o *output) copyLines(s *stream, local int, r *rankOutput) {
	reader := bufio.NewReaderSize(r.pipe, maxLineBytes)
	for {
		text, err := reader.ReadSlice('\n')
		if len(text) > 0 {
			text = bytes.TrimRight(text, "\r\n")
			line := fmt.Appendf(nil, "rank %d | %s\n", o.first.Load()+int64(local), text)
			s.kept.write(line)
			if s.forward.path != "" {
				s.forward.put(line)
			}
			if text = bytes.TrimSpace(text); len(text) > 0 {
				last := clip(string(text), maxLastLineBytes)
				r.last.Store(&last)
			}
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return // io.EOF, or closed
		}
	}
}

// lastLine is the newest line that was not empty.
func (r *rankOutput) lastLine() string {
	if last := r.last.Load(); last != nil {
		return *last
	}
	return ""
}

// keptFile is a file of bounded size with one predecessor.
type keptFile struct {
	path string
	log  hclog.Logger

	mu     sync.Mutex
	file   *os.File
	size   int64
	failed bool
}

// write adds a line. A full disk costs the lines, not the lane.
func (k *keptFile) write(line []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.rotate()
	if err == nil {
		var n int
		n, err = k.file.Write(line)
		k.size += int64(n)
	}
	if err != nil && !k.failed {
		k.log.Warn("a rank's output is not kept", "error", err)
	}
	k.failed = err != nil
}

func (k *keptFile) rotate() error {
	if k.file != nil && k.size < maxKeptBytes {
		return nil
	}
	if k.file != nil {
		k.file.Close()
		k.file = nil
		if err := os.Rename(k.path, k.path+".1"); err != nil {
			return err
		}
	}
	file, err := os.OpenFile(k.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if k.size, err = file.Seek(0, io.SeekEnd); err != nil {
		return errors.Join(err, file.Close())
	}
	k.file = file
	return nil
}
