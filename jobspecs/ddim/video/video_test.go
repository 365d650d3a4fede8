package video

import (
	"bytes"
	"context"
	"errors"
	"image/gif"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// clip is a bright square that crosses a gradient.
func clip(frames int) Stream {
	s := Stream{Width: 128, Height: 72, FPS: 12}
	for n := range frames {
		f := Frame{Width: 32, Height: 18, Pixels: make([]float32, 32*18*channels)}
		for i := range 32 * 18 {
			x, y := i%32, i/32
			p := f.Pixels[channels*i:]
			p[0], p[1], p[2] = 0.05, float32(y)/36, float32(x)/40
			if x/4 == n && y/6 == 1 {
				p[0], p[1], p[2] = 0.9, 0.1, 0.05
			}
		}
		s.Frames = append(s.Frames, f)
	}
	return s
}

func write(t *testing.T, s Stream) (Artifact, []byte, []byte) {
	t.Helper()
	a, err := Write(t.Context(), filepath.Join(t.TempDir(), "out"), s)
	if err != nil {
		t.Fatal(err)
	}
	movie, err := os.ReadFile(a.Path)
	if err != nil {
		t.Fatal(err)
	}
	thumbnail, err := os.ReadFile(a.Thumbnail)
	if err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Dir(a.Path))
	if err != nil || len(left) != 2 {
		t.Errorf("the directory holds %v, %v; want two files", left, err)
	}
	return a, movie, thumbnail
}

func TestMP4IsDeterministicAndStartsWithItsIndex(t *testing.T) {
	if _, err := FindFFmpeg(); err != nil {
		t.Skip(err)
	}
	a, movie, thumbnail := write(t, clip(8))
	if a.ContentType != "video/mp4" || filepath.Base(a.Path) != "video.mp4" {
		t.Errorf("artifact %+v", a)
	}
	if _, again, _ := write(t, clip(8)); !bytes.Equal(movie, again) {
		t.Error("the same frames gave other bytes")
	}
	index, data := bytes.Index(movie, []byte("moov")), bytes.Index(movie, []byte("mdat"))
	if index < 0 || data < index || !bytes.Contains(movie, []byte("avc1")) {
		t.Errorf("moov at %d, mdat at %d: want an H.264 file with its index first", index, data)
	}
	img, err := png.Decode(bytes.NewReader(thumbnail))
	if err != nil || img.Bounds().Dx() != 128 || img.Bounds().Dy() != 72 {
		t.Errorf("thumbnail: %v, %v", img.Bounds(), err)
	}
}

func TestGIFWhereThereIsNoFFmpeg(t *testing.T) {
	t.Setenv("PATH", "")
	a, movie, _ := write(t, clip(8))
	if a.ContentType != "image/gif" || filepath.Base(a.Path) != "video.gif" {
		t.Errorf("artifact %+v", a)
	}
	if _, again, _ := write(t, clip(8)); !bytes.Equal(movie, again) {
		t.Error("the same frames gave other bytes")
	}
	g, err := gif.DecodeAll(bytes.NewReader(movie))
	if err != nil || len(g.Image) != 8 {
		t.Fatalf("decoded %d frames, %v", len(g.Image), err)
	}
	delay := 0
	for _, d := range g.Delay {
		delay += d
	}
	if want := 100 * 8 / 12; delay != want {
		t.Errorf("it lasts %d hundredths, want %d", delay, want)
	}
	r, gr, b, _ := g.Image[3].At(3*16+8, 36).RGBA() // inside the square
	if r>>8 < 200 || gr>>8 > 130 || b>>8 > 100 {
		t.Errorf("the square is %d, %d, %d; want red", r>>8, gr>>8, b>>8)
	}
}

func TestLargeGIFsShrink(t *testing.T) {
	t.Setenv("PATH", "")
	s := clip(1)
	s.Width, s.Height = 960, 540
	_, movie, _ := write(t, s)
	g, err := gif.DecodeConfig(bytes.NewReader(movie))
	if err != nil || g.Width != 480 || g.Height != 270 {
		t.Errorf("%dx%d, %v", g.Width, g.Height, err)
	}
}

func TestWriteFails(t *testing.T) {
	if _, err := Write(t.Context(), t.TempDir(), Stream{Width: 64, Height: 64, FPS: 1}); err == nil {
		t.Error("a video without frames was written")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(t.Context(), file, clip(1)); err == nil {
		t.Error("a video was written into a file")
	}
	if _, err := FindFFmpeg(); err != nil {
		return
	}
	reason := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	dir := t.TempDir()
	if _, err := Write(ctx, dir, clip(2)); !errors.Is(err, reason) {
		t.Errorf("after a cancel: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "video*")); len(left) > 0 {
		t.Errorf("a cancelled encoding left %v", left)
	}
}

func TestScale(t *testing.T) {
	flat := Frame{Width: 16, Height: 9, Pixels: make([]float32, 16*9*channels)}
	for i := range flat.Pixels {
		flat.Pixels[i] = 0.25
	}
	for _, size := range [][2]int{{64, 36}, {40, 100}, {8, 4}, {1, 1}} {
		for i, v := range flat.Scale(size[0], size[1]).Pixels {
			if math.Abs(float64(v)-0.25) > 1e-6 {
				t.Fatalf("%v: value %d of a flat frame is %v", size, i, v)
			}
		}
	}
	f := clip(1).Frames[0]
	back := f.Scale(128, 72).Scale(32, 18)
	for i := range f.Pixels {
		if math.Abs(float64(back.Pixels[i]-f.Pixels[i])) > 0.12 {
			t.Fatalf("value %d went from %v to %v over a larger size", i, f.Pixels[i], back.Pixels[i])
		}
	}
}

func TestToneRisesAndRollsOff(t *testing.T) {
	last := -1
	for i := range 2001 {
		light := float32(i) / 1000
		v := int(tone(light, 0.5))
		if v < last {
			t.Fatalf("tone falls at light %v", light)
		}
		last = v
	}
	for light, want := range map[float32]uint8{-1: 0, 0: 0, 0.2140: 127, 0.5: 188, 2: 255, 99: 255, float32(math.NaN()): 0} {
		if got := tone(light, 0.5); max(got, want)-min(got, want) > 1 {
			t.Errorf("light %v has tone %d, want %d", light, got, want)
		}
	}
	if tone(1, 0.5) == 255 {
		t.Error("light 1 is clipped: there is no room above it")
	}
}
