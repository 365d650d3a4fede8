package video

import (
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
)

// thumbnailWidth is the width of a thumbnail in pixels; its height follows.
const thumbnailWidth = 320

// Stream is a clip to be written.
type Stream struct {
	Width, Height int // of the video in pixels; even, as 4:2:0 asks
	FPS           int
	Frames        []Frame
}

// Artifact names the files of one video.
type Artifact struct {
	Path        string
	ContentType string
	Thumbnail   string // PNG
}

// each makes the pictures one at a time.
func (s Stream) each(use func(*image.RGBA) error) error {
	for _, f := range s.Frames {
		if err := use(f.Scale(s.Width, s.Height).Image()); err != nil {
			return err
		}
	}
	return nil
}

// Write makes video.mp4, or video.gif where there is no ffmpeg on PATH, and thumbnail.png of the middle frame in dir. A file
// appears under its name only when it is complete.
func Write(ctx context.Context, dir string, s Stream) (Artifact, error) {
	if len(s.Frames) == 0 || s.FPS < 1 || s.Width < 2 || s.Height < 2 {
		return Artifact{}, fmt.Errorf("write a video of %d frames, %dx%d at %d a second: nothing to see", len(s.Frames), s.Width, s.Height, s.FPS)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Artifact{}, fmt.Errorf("write a video: %w", err)
	}
	artifact := Artifact{Path: filepath.Join(dir, "video.mp4"), ContentType: "video/mp4", Thumbnail: filepath.Join(dir, "thumbnail.png")}
	encode := func(path string) error { return writeGIF(path, s) }
	ffmpeg, err := FindFFmpeg()
	switch {
	case err == nil:
		encode = func(path string) error { return writeMP4(ctx, ffmpeg, path, s) }
	case errors.Is(err, ErrNoFFmpeg):
		artifact.Path, artifact.ContentType = filepath.Join(dir, "video.gif"), "image/gif"
	default:
		return Artifact{}, err
	}
	if err := whole(artifact.Thumbnail, func(path string) error { return writeThumbnail(path, s) }); err != nil {
		return Artifact{}, err
	}
	if err := whole(artifact.Path, encode); err != nil {
		return Artifact{}, err
	}
	return artifact, nil
}

func writeThumbnail(path string, s Stream) (err error) {
	width := min(thumbnailWidth, s.Width)
	middle := s.Frames[len(s.Frames)/2].Scale(width, max(1, s.Height*width/s.Width)).Image()
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write the thumbnail: %w", err)
	}
	if err := png.Encode(file, middle); err != nil {
		file.Close()
		return fmt.Errorf("write the thumbnail: %w", err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("write the thumbnail: %w", err)
	}
	return nil
}

// whole lets write make a file beside path, and gives it its name when it is complete.
func whole(path string, write func(path string) error) error {
	partial := path + ".partial"
	if err := write(partial); err != nil {
		os.Remove(partial)
		return err
	}
	if err := os.Rename(partial, path); err != nil {
		return fmt.Errorf("name a finished file: %w", err)
	}
	return nil
}
