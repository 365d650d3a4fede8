package video

import "math"

// Frame is a picture in linear light with sRGB primaries: rows from the top, three numbers a pixel.
type Frame struct {
	Width, Height int
	Pixels        []float32
}

const channels = 3

// lobes of the Lanczos window: how many source pixels a pixel draws on, to each side.
const lobes = 3

// tap is one output position's share of the source: weights for consecutive pixels from first.
type tap struct {
	first   int
	weights []float64
}

// lanczos gives the taps that resample n pixels to m. Where it shrinks, the window widens.
func lanczos(n, m int) []tap {
	scale := math.Max(1, float64(n)/float64(m))
	taps := make([]tap, m)
	for i := range taps {
		center := (float64(i)+0.5)*float64(n)/float64(m) - 0.5
		first := int(math.Ceil(center - lobes*scale))
		last := int(math.Floor(center + lobes*scale))
		t := tap{first: first}
		total := 0.0
		for j := first; j <= last; j++ {
			w := window((float64(j) - center) / scale)
			t.weights = append(t.weights, w)
			total += w
		}
		for k := range t.weights {
			t.weights[k] /= total
		}
		taps[i] = t
	}
	return taps
}

func window(x float64) float64 {
	if x == 0 {
		return 1
	}
	if math.Abs(x) >= lobes {
		return 0
	}
	x *= math.Pi
	return lobes * math.Sin(x) * math.Sin(x/lobes) / (x * x)
}

// Scale enlarges or shrinks a frame, separably. Pixels outside count as their nearest neighbours inside.
func (f Frame) Scale(width, height int) Frame {
	if width == f.Width && height == f.Height {
		return f
	}
	wide := Frame{width, f.Height, make([]float32, width*f.Height*channels)}
	for x, t := range lanczos(f.Width, width) {
		for y := range f.Height {
			resample(wide.Pixels[(y*width+x)*channels:], f.Pixels[y*f.Width*channels:], t, f.Width, channels)
		}
	}
	out := Frame{width, height, make([]float32, width*height*channels)}
	for y, t := range lanczos(f.Height, height) {
		for x := range width {
			resample(out.Pixels[(y*width+x)*channels:], wide.Pixels[x*channels:], t, f.Height, width*channels)
		}
	}
	return out
}

// resample mixes one pixel from n source pixels that lie stride numbers apart.
func resample(dst, src []float32, t tap, n, stride int) {
	var r, g, b float64
	for k, w := range t.weights {
		i := max(0, min(n-1, t.first+k)) * stride
		r += w * float64(src[i])
		g += w * float64(src[i+1])
		b += w * float64(src[i+2])
	}
	dst[0], dst[1], dst[2] = float32(r), float32(g), float32(b)
}
