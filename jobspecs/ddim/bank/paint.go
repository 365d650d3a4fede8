package bank

import "math"

// rgb is a colour in linear light, with sRGB primaries; 1 is the white of the screen, and more is allowed.
type rgb struct{ r, g, b float64 }

func (c rgb) add(d rgb) rgb         { return rgb{c.r + d.r, c.g + d.g, c.b + d.b} }
func (c rgb) mul(d rgb) rgb         { return rgb{c.r * d.r, c.g * d.g, c.b * d.b} }
func (c rgb) scale(s float64) rgb   { return rgb{c.r * s, c.g * s, c.b * s} }
func (c rgb) luminance() float64    { return 0.2126*c.r + 0.7152*c.g + 0.0722*c.b }
func blend(a, b rgb, t float64) rgb { return a.scale(1 - t).add(b.scale(t)) }

// hex gives the linear colour of an sRGB colour written 0xRRGGBB.
func hex(v uint32) rgb { return rgb{linear[v>>16&0xff], linear[v>>8&0xff], linear[v&0xff]} }

// linear is the light of each value of an 8-bit sRGB channel (IEC 61966-2-1).
var linear = func() (table [256]float64) {
	for i := range table {
		c := float64(i) / 255
		if c <= 0.04045 {
			table[i] = c / 12.92
		} else {
			table[i] = math.Pow((c+0.055)/1.055, 2.4)
		}
	}
	return table
}()

var inks = [colourCount]rgb{
	Red: hex(0xd8201c), Orange: hex(0xf07a12), Yellow: hex(0xf6c915), Green: hex(0x2f9e3a), Teal: hex(0x18a9a0), Blue: hex(0x2455d6),
	Purple: hex(0x7c34c0), Pink: hex(0xf06a9b), White: hex(0xf2f2ee), Grey: hex(0x8a8f96), Brown: hex(0x7a4a25), Black: hex(0x1c1c20),
}

func clamp01(x float64) float64 { return math.Max(0, math.Min(1, x)) }

// ramp rises smoothly from 0 at a to 1 at b; it falls where a > b.
func ramp(a, b, x float64) float64 {
	t := clamp01((x - a) / (b - a))
	return t * t * (3 - 2*t)
}

func lerp(a, b, t float64) float64 { return a + (b-a)*t }

func fract(x float64) float64 { return x - math.Floor(x) }

// mix64 is the finaliser of splitmix64: each bit of z changes half of the bits of the result.
func mix64(z uint64) uint64 {
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// lattice is a random number in [0, 1) for a point of the integer plane and a salt.
func lattice(x, y int, salt uint64) float64 {
	h := mix64(uint64(int64(x))*0x9E3779B97F4A7C15 ^ uint64(int64(y))*0xC2B2AE3D27D4EB4F ^ salt*0x165667B19E3779F9)
	return float64(h>>11) / (1 << 53)
}

// valueNoise interpolates the lattice smoothly.
func valueNoise(x, y float64, salt uint64) float64 {
	fx, fy := math.Floor(x), math.Floor(y)
	ix, iy := int(fx), int(fy)
	u, v := x-fx, y-fy
	u, v = u*u*(3-2*u), v*v*(3-2*v)
	top := lerp(lattice(ix, iy, salt), lattice(ix+1, iy, salt), u)
	bottom := lerp(lattice(ix, iy+1, salt), lattice(ix+1, iy+1, salt), u)
	return lerp(top, bottom, v)
}

// cloudNoise is a sum of octaves of value noise, in [0, 1).
func cloudNoise(x, y float64, octaves int, salt uint64) float64 {
	sum, weight, total := 0.0, 1.0, 0.0
	for o := range octaves {
		sum += weight * valueNoise(x, y, salt+uint64(o))
		total += weight
		weight *= 0.5
		x, y = 2.03*x+17.1, 2.03*y+9.7
	}
	return sum / total
}

// spread gives a random number in [-1, 1) for each i: jitter for things in a row.
func spread(i int, salt uint64) float64 { return 2*lattice(i, 0, salt) - 1 }
