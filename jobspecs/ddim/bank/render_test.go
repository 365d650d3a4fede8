package bank

import (
	"math"
	"slices"
	"testing"
)

// region gives the mean colour of a part of a frame, in fractions of its width and height.
func region(frame []float32, x0, y0, x1, y1 float64) (r, g, b float64) {
	n := 0.0
	for y := int(y0 * Height); y < int(y1*Height); y++ {
		for x := int(x0 * Width); x < int(x1*Width); x++ {
			p := frame[Channels*(y*Width+x):]
			r, g, b, n = r+float64(p[0]), g+float64(p[1]), b+float64(p[2]), n+1
		}
	}
	return r / n, g / n, b / n
}

// redMiddle gives the middle of the pixels that are much redder than blue.
func redMiddle(frame []float32, rows int) (x, y float64, n int) {
	for i := range rows * Width {
		if p := frame[Channels*i:]; p[0] > 0.25 && p[0] > 3*p[2] {
			x, y, n = x+float64(i%Width), y+float64(i/Width), n+1
		}
	}
	return x / float64(n), y / float64(n), n
}

func TestARedBallOverABlueSeaLooksLikeIt(t *testing.T) {
	const frames = 24
	var xs, ys []float64
	for f := range frames {
		frame := NewRenderer(f, frames).Draw(Clip{})
		if r, _, b := region(frame, 0, 0.55, 1, 0.75); b < 1.5*r {
			t.Fatalf("frame %d: the sea is not blue (red %.2f, blue %.2f)", f, r, b)
		}
		x, y, n := redMiddle(frame, int(ground*Height)) // above the mirror image
		if n < 200 {
			t.Fatalf("frame %d: only %d red pixels", f, n)
		}
		xs, ys = append(xs, x), append(ys, y)
	}
	if !slices.IsSorted(xs) || xs[frames-1]-xs[0] < Width/2 {
		t.Errorf("the ball does not cross the frame: %.0f", xs)
	}
	turns := 0
	for f := 2; f < frames; f++ {
		if ys[f-1] > ys[f-2] && ys[f] < ys[f-1] {
			turns++ // y runs down: it came down and goes up
		}
	}
	if turns < 2 || turns > 4 {
		t.Errorf("the ball bounces %d times: %.0f", turns, ys)
	}
}

// Every part of the bank draws something finite, in range, and different from its neighbours.
func TestEveryAttributeShows(t *testing.T) {
	base := Clip{Shape: Box, Colour: Green, Motion: Drift, Scene: Meadow}
	var clips []Clip
	for v := range shapeCount {
		clips = append(clips, with(base, func(c *Clip) { c.Shape = v }))
	}
	for v := range colourCount {
		clips = append(clips, with(base, func(c *Clip) { c.Colour = v }), with(base, func(c *Clip) { c.Tint = TintOf(v) }))
	}
	for v := range motionCount {
		clips = append(clips, with(base, func(c *Clip) { c.Motion = v }))
	}
	for v := range sceneCount {
		clips = append(clips, with(base, func(c *Clip) { c.Scene = v }))
	}
	for v := range lightCount {
		clips = append(clips, with(base, func(c *Clip) { c.Light = v }))
	}
	for v := range variantCount {
		clips = append(clips, with(base, func(c *Clip) { c.Variant = v }))
	}
	r := NewRenderer(5, 16)
	seen := map[Clip][]float32{}
	for _, c := range clips {
		if seen[c] == nil {
			seen[c] = r.Draw(c)
		}
	}
	for c, frame := range seen {
		for i, v := range frame {
			if f := float64(v); math.IsNaN(f) || f < -0.01 || f > 4 {
				t.Fatalf("%v: value %d is %v", c, i, v)
			}
		}
		for d, other := range seen {
			if c != d && slices.Equal(frame, other) {
				t.Errorf("%v looks like %v", c, d)
			}
		}
	}
}

func with(c Clip, change func(*Clip)) Clip {
	change(&c)
	return c
}

// A renderer that shares backdrops draws what a fresh one draws.
func TestSharedBackdropsChangeNothing(t *testing.T) {
	shared := NewRenderer(3, 16)
	for v := range variantCount {
		c := Clip{Shape: Boat, Motion: Drift, Scene: Sea, Variant: v}
		if !slices.Equal(shared.Draw(c), NewRenderer(3, 16).Draw(c)) {
			t.Errorf("variant %d differs", v)
		}
	}
}
