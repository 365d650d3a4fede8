package video

import (
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"os"
	"slices"
)

// A GIF has 256 colours, and its pixels are coarse anyway: larger frames are shrunk to this width.
const gifMaxWidth = 480

// writeGIF encodes the frames as an endless animation with one palette, found by median cut over all frames.
func writeGIF(path string, s Stream) (err error) {
	if s.Width > gifMaxWidth {
		s.Width, s.Height = gifMaxWidth, s.Height*gifMaxWidth/s.Width
	}
	counts := map[uint16]int{}
	if err := s.each(func(img *image.RGBA) error { countColours(counts, img); return nil }); err != nil {
		return err
	}
	palette := medianCut(counts, 256)
	nearest := newMatcher(palette)
	out := &gif.GIF{}
	if err := s.each(func(img *image.RGBA) error {
		out.Image = append(out.Image, nearest.dither(img))
		n := len(out.Image) // delays are hundredths of a second: spread the rounding
		out.Delay = append(out.Delay, 100*n/s.FPS-100*(n-1)/s.FPS)
		return nil
	}); err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write the animation: %w", err)
	}
	if err := gif.EncodeAll(file, out); err != nil {
		file.Close()
		return fmt.Errorf("encode %s: %w", path, err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("write the animation: %w", err)
	}
	return nil
}

// A bucket is a colour with five bits a channel.
func bucket(r, g, b uint8) uint16 { return uint16(r>>3)<<10 | uint16(g>>3)<<5 | uint16(b>>3) }

func channel(b uint16, c int) int { return int(b>>(10-5*c)) & 31 }

func countColours(counts map[uint16]int, img *image.RGBA) {
	for i := 0; i < len(img.Pix); i += 4 * 3 { // every third pixel is enough
		counts[bucket(img.Pix[i], img.Pix[i+1], img.Pix[i+2])]++
	}
}

// medianCut gives at most n colours for the buckets: the box with the widest spread, weighed by its pixels, is cut in two at
// its median until there are enough.
func medianCut(counts map[uint16]int, n int) color.Palette {
	var all []uint16
	for b := range counts {
		all = append(all, b)
	}
	slices.Sort(all) // a map's order is random, the palette's must not be
	boxes := [][]uint16{all}
	for len(boxes) < n {
		widest, axis, best := -1, 0, 0
		for i, box := range boxes {
			c, spread := widestChannel(box)
			if score := spread * (1 + isqrt(pixels(counts, box))); len(box) > 1 && score > best {
				widest, axis, best = i, c, score
			}
		}
		if widest < 0 {
			break
		}
		low, high := cut(counts, boxes[widest], axis)
		boxes[widest] = low
		boxes = append(boxes, high)
	}
	var palette color.Palette
	for _, box := range boxes {
		palette = append(palette, average(counts, box))
	}
	return palette
}

func widestChannel(box []uint16) (c, spread int) {
	for i := range channels {
		low, high := 31, 0
		for _, b := range box {
			low, high = min(low, channel(b, i)), max(high, channel(b, i))
		}
		if high-low > spread {
			c, spread = i, high-low
		}
	}
	return c, spread
}

func cut(counts map[uint16]int, box []uint16, axis int) (low, high []uint16) {
	slices.SortFunc(box, func(a, b uint16) int {
		return cmp.Or(cmp.Compare(channel(a, axis), channel(b, axis)), cmp.Compare(a, b))
	})
	half, seen, at := pixels(counts, box)/2, 0, 1
	for i, b := range box[:len(box)-1] {
		at = i + 1
		if seen += counts[b]; seen >= half {
			break
		}
	}
	return box[:at:at], box[at:]
}

func pixels(counts map[uint16]int, box []uint16) (n int) {
	for _, b := range box {
		n += counts[b]
	}
	return n
}

func average(counts map[uint16]int, box []uint16) color.Color {
	var sum [channels]int
	for _, b := range box {
		for c := range channels {
			sum[c] += counts[b] * (channel(b, c)*255*2 + 31) / (2 * 31)
		}
	}
	n := max(1, pixels(counts, box))
	return color.RGBA{uint8(sum[0] / n), uint8(sum[1] / n), uint8(sum[2] / n), 255}
}

func isqrt(n int) int {
	r := 0
	for (r+1)*(r+1) <= n {
		r++
	}
	return r
}

// matcher finds the palette's nearest colour, and remembers it.
type matcher struct {
	palette color.Palette
	known   [1 << 15]int16 // by bucket; -1: not looked up yet
}

func newMatcher(palette color.Palette) *matcher {
	m := &matcher{palette: palette}
	for i := range m.known {
		m.known[i] = -1
	}
	return m
}

// dither draws the image with the palette, with an ordered pattern that stands still from frame to frame.
func (m *matcher) dither(img *image.RGBA) *image.Paletted {
	const strength = 14
	out := image.NewPaletted(img.Rect, m.palette)
	width := img.Rect.Dx()
	for i := range out.Pix {
		shift := int((bayer[i/width&7][i%width&7] - 0.5) * strength)
		p := img.Pix[4*i:]
		b := bucket(shifted(p[0], shift), shifted(p[1], shift), shifted(p[2], shift))
		if m.known[b] < 0 {
			m.known[b] = int16(m.palette.Index(color.RGBA{expand(b, 0), expand(b, 1), expand(b, 2), 255}))
		}
		out.Pix[i] = uint8(m.known[b])
	}
	return out
}

func shifted(v uint8, by int) uint8 { return uint8(max(0, min(255, int(v)+by))) }

func expand(b uint16, c int) uint8 { return uint8(channel(b, c) * 255 / 31) }
