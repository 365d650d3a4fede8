package video

import (
	"image"
	"math"
)

// toneSteps is how finely the tone curve is tabulated between black and the brightest light that still has a tone.
const (
	toneSteps = 4096
	brightest = 2.0
	knee      = 0.80 // above it, light is rolled off instead of clipped
)

// tones maps light to sRGB values from 0 to 255, not rounded. The table is spaced by the root of the light, where sRGB is
// nearly straight.
var tones = func() (table [toneSteps + 1]float32) {
	for i := range table {
		root := float64(i) / toneSteps
		light := rollOff(root * root * brightest)
		if light <= 0.0031308 {
			table[i] = float32(255 * 12.92 * light)
		} else {
			table[i] = float32(255 * (1.055*math.Pow(light, 1/2.4) - 0.055))
		}
	}
	return table
}()

// rollOff leaves light below the knee alone, and bends what is above it so that brightest becomes 1.
func rollOff(light float64) float64 {
	if light <= knee {
		return light
	}
	const room = 1 - knee
	x := (light - knee) / (brightest - knee)
	return knee + room*x*(brightest-knee)/room/(1+x*((brightest-knee)/room-1))
}

// bayer is the 8x8 ordered dither of Bayer 1973, as thresholds in (0, 1).
var bayer = func() (m [8][8]float32) {
	for y := range 8 {
		for x := range 8 {
			v := 0
			for bit := range 3 {
				v = v<<2 | (x^y)>>bit&1<<1 | y>>bit&1
			}
			m[y][x] = (float32(v) + 0.5) / 64
		}
	}
	return m
}()

// Image gives the frame as 8-bit sRGB, opaque. A dither of half a step keeps smooth skies free of bands.
func (f Frame) Image() *image.RGBA {
	img := image.NewRGBA(image.Rect(0, 0, f.Width, f.Height))
	for i := range f.Width * f.Height {
		dither := bayer[i/f.Width&7][i%f.Width&7]/2 + 0.25
		for c := range channels {
			img.Pix[4*i+c] = tone(f.Pixels[channels*i+c], dither)
		}
		img.Pix[4*i+3] = 255
	}
	return img
}

func tone(light, dither float32) uint8 {
	clamped := math.Max(0, math.Min(1, float64(light)/brightest)) // NaN stays NaN
	if clamped != clamped {
		return 0
	}
	return uint8(min(255, tones[int(math.Sqrt(clamped)*toneSteps+0.5)]+dither))
}
