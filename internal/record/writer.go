package record

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/internal/schedule"
)

// Options say where a recording is kept.
type Options struct {
	// Path is the file that is written. When its steps have MaxBytes it becomes
	// Path.1, what was that Path.2, and so on; Keep of these stay.
	Path     string
	MaxBytes int64
	Keep     int
	Version  string // of the program
	Log      hclog.Logger
}

const (
	// maxQueued and maxQueuedBytes bound the steps that wait for the disk. What comes
	// then is lost, up to the next beginning: no decision waits for the recording of
	// another. A beginning, whose size is not known before it is written, counts as
	// headBytes.
	maxQueued      = 8192
	maxQueuedBytes = 64 << 20
	headBytes      = maxQueuedBytes / 4
	// closeWithin bounds how long the end of a recording waits for the disk.
	closeWithin = 5 * time.Second
	// restAfterFault is how long a disk that failed is left alone.
	restAfterFault = 30 * time.Second
	// flushEvery bounds how old the file is, while there is nothing more to write.
	flushEvery = 200 * time.Millisecond
)

// Writer records what one goroutine tells it, and never makes it wait.
type Writer struct {
	o     Options
	queue chan any // *Head or []byte
	bytes atomic.Int64
	done  chan struct{}
	// begun: what comes belongs to a beginning that was queued.
	begun bool
	n     uint64
	// full: the file has all that it may have, or the disk failed and has rested.
	full atomic.Bool
	// lost counts the steps that were left out.
	lost atomic.Uint64
}

// NewWriter makes a recorder. It opens nothing before the first beginning.
func NewWriter(o Options) *Writer {
	w := &Writer{o: o, queue: make(chan any, maxQueued), done: make(chan struct{})}
	go w.run()
	return w
}

// Close writes what is queued, and ends the recording. A disk that hangs does not
// have it hang.
func (w *Writer) Close() {
	close(w.queue)
	select {
	case <-w.done:
	case <-time.After(closeWithin):
		w.o.Log.Warn("the end of the recording is lost: the disk does not answer", "file", w.o.Path, "waited", closeWithin)
	}
}

// Lost counts the steps that were not recorded.
func (w *Writer) Lost() uint64 { return w.lost.Load() }

// WantsBeginning reports whether Begin should be called before the next step:
// nothing is recorded yet, the file is full, or steps were lost.
func (w *Writer) WantsBeginning() bool {
	return w.full.Load() || !w.begun && len(w.queue) < maxQueued/2 && w.bytes.Load() < maxQueuedBytes/2
}

// Begin starts a new file with the rules and the state that the next step meets.
func (w *Writer) Begin(rules schedule.Config, s schedule.Snapshot) {
	w.full.Store(false)
	w.n = 0
	w.begun = w.offer(&Head{Format: Format, Version: w.o.Version, Rules: rules, Snapshot: s})
}

// Take records a step.
func (w *Writer) Take(ev schedule.Event, at time.Time, decisions []schedule.Decision, refused error) {
	if !w.begun {
		w.lost.Add(1)
		return
	}
	w.n++
	text, err := newStep(w.n, ev, at, decisions, refused).Encode()
	switch {
	case err != nil:
		w.o.Log.Error("an event cannot be recorded: what comes is left out, up to a new file", "error", err)
	case w.offer(text):
		return
	default:
		w.o.Log.Warn("the disk is slower than what is recorded: what comes is left out, up to a new file", "file", w.o.Path)
	}
	w.begun = false
	w.lost.Add(1)
}

func (w *Writer) offer(what any) bool {
	if w.bytes.Load()+sizeOf(what) > maxQueuedBytes {
		return false
	}
	select {
	case w.queue <- what:
		w.bytes.Add(sizeOf(what))
		return true
	default:
		return false
	}
}

func sizeOf(what any) int64 {
	if text, is := what.([]byte); is {
		return int64(len(text))
	}
	return headBytes
}

// run is the goroutine that writes.
func (w *Writer) run() {
	defer close(w.done)
	f := &file{o: w.o, create: create}
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	var until time.Time // a disk that failed rests
	fault := func(err error) {
		if err != nil {
			w.o.Log.Warn("the recording rests", "error", err, "rest", restAfterFault)
			until = time.Now().Add(restAfterFault)
			f.drop()
		}
	}
	for {
		select {
		case what, more := <-w.queue:
			if !more {
				fault(f.close())
				return
			}
			fault(w.write(f, what))
			w.bytes.Add(-sizeOf(what))
		case <-tick.C:
			fault(f.flush())
			if !until.IsZero() && time.Now().After(until) {
				until = time.Time{}
				w.full.Store(true)
			}
		}
	}
}

// write writes a head to a new file, or a step to the one that is open; without
// one the step is lost.
func (w *Writer) write(f *file, what any) error {
	if head, is := what.(*Head); is {
		if err := f.begin(head); err != nil {
			return fmt.Errorf("begin the recording %s: %w", w.o.Path, err)
		}
		return nil
	}
	if f.out == nil {
		w.lost.Add(1)
		return nil
	}
	if err := f.add(what.([]byte)); err != nil {
		return fmt.Errorf("write to the recording %s: %w", w.o.Path, err)
	}
	if f.steps >= w.o.MaxBytes && !f.told {
		f.told = true
		w.full.Store(true)
	}
	return nil
}

// file is the one that is written.
type file struct {
	o      Options
	create func(path string) (io.WriteCloser, error)
	out    io.WriteCloser
	buf    *bufio.Writer
	steps  int64 // bytes
	told   bool  // that it is full
}

// begin opens a new file, and moves the others on by one once its head is written:
// a full disk has room for the name of a file, and each try would cost a recording.
func (f *file) begin(h *Head) error {
	if err := f.close(); err != nil {
		return err
	}
	text, err := h.Encode()
	if err != nil {
		return err
	}
	fresh := f.o.Path + ".new"
	out, err := f.create(fresh)
	if err != nil {
		return err
	}
	if _, err = out.Write(text); err == nil {
		err = f.rotate()
	}
	if err == nil {
		err = os.Rename(fresh, f.o.Path)
	}
	if err != nil {
		return errors.Join(err, out.Close(), os.Remove(fresh))
	}
	f.out, f.buf, f.steps, f.told = out, bufio.NewWriterSize(out, 1<<16), 0, false
	return nil
}

func create(path string) (io.WriteCloser, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
}

func (f *file) rotate() error {
	for i := f.o.Keep - 1; i >= 0; i-- {
		err := os.Rename(f.name(i), f.name(i+1))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (f *file) name(i int) string {
	if i == 0 {
		return f.o.Path
	}
	return fmt.Sprintf("%s.%d", f.o.Path, i)
}

func (f *file) add(text []byte) error {
	n, err := f.buf.Write(text)
	f.steps += int64(n)
	return err
}

func (f *file) flush() error {
	if f.out == nil {
		return nil
	}
	return f.buf.Flush()
}

func (f *file) close() error {
	if f.out == nil {
		return nil
	}
	err := errors.Join(f.buf.Flush(), f.out.Close())
	f.out = nil
	return err
}

// drop leaves a file that cannot be written as it is.
func (f *file) drop() {
	if f.out != nil {
		_ = f.out.Close() // it has failed already
		f.out = nil
	}
}
