package video

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"io"
	"os/exec"
	"strconv"
	"time"
)

// ErrNoFFmpeg is returned by FindFFmpeg where there is none on PATH.
var ErrNoFFmpeg = errors.New("no ffmpeg on PATH")

// FindFFmpeg gives the path of ffmpeg.
func FindFFmpeg() (string, error) {
	path, err := exec.LookPath("ffmpeg")
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoFFmpeg, err)
	}
	return path, nil
}

// stderrLimit bounds what is kept of ffmpeg's complaints.
const stderrLimit = 4 << 10

// writeMP4 pipes the frames through ffmpeg to a new file: H.264, 4:2:0, index first. One thread and the bitexact flags make
// the bytes depend on nothing but the frames and ffmpeg's version.
func writeMP4(ctx context.Context, ffmpeg, path string, s Stream) error {
	args := []string{
		"-hide_banner", "-loglevel", "error", "-nostdin", "-y",
		"-f", "rawvideo", "-pix_fmt", "rgba", "-video_size", fmt.Sprintf("%dx%d", s.Width, s.Height),
		"-framerate", strconv.Itoa(s.FPS), "-i", "pipe:0", "-an", "-map_metadata", "-1",
		"-vf", "scale=in_range=full:out_range=tv:out_color_matrix=bt709:flags=bitexact+accurate_rnd",
		"-c:v", "libx264", "-preset", "fast", "-crf", "17", "-pix_fmt", "yuv420p", "-threads", "1",
		"-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "iec61966-2-1", "-color_range", "tv",
		"-fflags", "+bitexact", "-flags:v", "+bitexact", "-movflags", "+faststart", "-f", "mp4", path,
	}
	cmd := exec.CommandContext(ctx, ffmpeg, args...)
	cmd.WaitDelay = time.Second
	var complaints cappedBuffer
	cmd.Stderr = &complaints
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", ffmpeg, err)
	}
	if err := cmd.Start(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("start %s: %w", ffmpeg, err)
	}
	feedErr := feed(stdin, s)
	err = cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("encode %s with %s: %w: %s", path, ffmpeg, err, complaints.Bytes())
	case feedErr != nil:
		return fmt.Errorf("encode %s with %s: %w", path, ffmpeg, feedErr)
	}
	return nil
}

func feed(w io.WriteCloser, s Stream) error {
	err := s.each(func(img *image.RGBA) error {
		_, err := w.Write(img.Pix)
		return err
	})
	return errors.Join(err, w.Close())
}

// cappedBuffer keeps the first bytes of what is written to it.
type cappedBuffer struct{ bytes.Buffer }

func (b *cappedBuffer) Write(p []byte) (int, error) {
	if room := stderrLimit - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}
