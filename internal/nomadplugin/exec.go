package nomadplugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc"

	"github.com/gangd/gangd/internal/nomadplugin/proto/driverpb"
)

// execChunkBytes bounds one message of a command's output.
const execChunkBytes = 32 << 10

var errExecUnsupported = errors.New("driver does not support exec")

func (s *driverServer) ExecTask(
	ctx context.Context, request *driverpb.ExecTaskRequest,
) (*driverpb.ExecTaskResponse, error) {
	executor, ok := s.plugin.(Executor)
	if !ok {
		return nil, wireError(ctx, errExecUnsupported)
	}
	result, err := executor.ExecTask(ctx, request.GetTaskId(), request.GetCommand(), request.GetTimeout().AsDuration())
	if err != nil {
		return nil, wireError(ctx, err)
	}
	return &driverpb.ExecTaskResponse{Stdout: result.Stdout, Stderr: result.Stderr, Result: exitToWire(result.Exit)}, nil
}

type execServer = grpc.BidiStreamingServer[driverpb.ExecTaskStreamingRequest, driverpb.ExecTaskStreamingResponse]

func (s *driverServer) ExecTaskStreaming(stream execServer) error {
	ctx := stream.Context()
	executor, ok := s.plugin.(Executor)
	if !ok {
		return wireError(ctx, errExecUnsupported)
	}
	first, err := stream.Recv()
	if err != nil {
		return wireError(ctx, fmt.Errorf("receive what to execute: %w", err))
	}
	setup := first.GetSetup()
	if setup == nil {
		return wireError(ctx, errors.New("execute in a task: the first message is not a setup"))
	}

	stdin, stdinEnd := io.Pipe()
	defer stdin.Close() // ends receiveExec's last write
	resize := make(chan TerminalSize, 1)
	go receiveExec(stream, stdinEnd, resize)

	var sending sync.Mutex
	stdout := &execWriter{stream: stream, sending: &sending}
	stderr := &execWriter{stream: stream, sending: &sending, toStderr: true}
	exit, err := executor.ExecTaskStreaming(ctx, setup.GetTaskId(), ExecStream{
		Command: setup.GetCommand(), TTY: setup.GetTty(),
		Stdin: stdin, Stdout: stdout, Stderr: stderr, Resize: resize,
	})
	if err != nil {
		return wireError(ctx, err)
	}
	if err := errors.Join(stdout.close(), stderr.close()); err != nil {
		return wireError(ctx, err)
	}
	return stream.Send(&driverpb.ExecTaskStreamingResponse{Exited: true, Result: exitToWire(exit)})
}

// receiveExec passes on what the client sends until the call ends. Messages
// with nothing set are signs of life.
func receiveExec(stream execServer, stdin *io.PipeWriter, resize chan TerminalSize) {
	for {
		message, err := stream.Recv()
		if err != nil {
			stdin.CloseWithError(err) // io.EOF where the client has no more input
			return
		}
		if data := message.GetStdin().GetData(); len(data) > 0 {
			if _, err := stdin.Write(data); err != nil {
				return // the command has ended
			}
		}
		if message.GetStdin().GetClose() {
			stdin.Close()
		}
		if size := message.GetTtySize(); size != nil {
			replaceSize(resize, TerminalSize{Height: int(size.GetHeight()), Width: int(size.GetWidth())})
		}
	}
}

// replaceSize leaves only the newest size in a channel of one place, of which
// it is the only writer.
func replaceSize(resize chan TerminalSize, size TerminalSize) {
	select {
	case <-resize:
	default:
	}
	resize <- size
}

// execWriter sends one of a command's outputs; both share a stream.
type execWriter struct {
	stream   execServer
	sending  *sync.Mutex
	toStderr bool
}

func (w *execWriter) Write(data []byte) (int, error) {
	written := 0
	for written < len(data) {
		chunk := data[written:min(len(data), written+execChunkBytes)]
		if err := w.send(&driverpb.ExecTaskStreamingIOOperation{Data: chunk}); err != nil {
			return written, err
		}
		written += len(chunk)
	}
	return written, nil
}

func (w *execWriter) close() error {
	return w.send(&driverpb.ExecTaskStreamingIOOperation{Close: true})
}

func (w *execWriter) send(operation *driverpb.ExecTaskStreamingIOOperation) error {
	w.sending.Lock()
	defer w.sending.Unlock()
	if err := w.stream.Context().Err(); err != nil {
		return err
	}
	if w.toStderr {
		return w.stream.Send(&driverpb.ExecTaskStreamingResponse{Stderr: operation})
	}
	return w.stream.Send(&driverpb.ExecTaskStreamingResponse{Stdout: operation})
}
