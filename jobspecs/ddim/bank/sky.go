package bank

import "math"

// air is the light of a scene: where it comes from and what it does to colours.
type air struct {
	zenith, horizon rgb
	sun             rgb     // light of the sun or the moon
	ambient         rgb     // light from everywhere
	sunX, sunY      float64 // in the frame
	disc            float64 // radius of the sun or the moon; 0: outside the frame
	cloud           rgb
	stars           float64 // how visible they are
	cover           float64 // how much of the sky clouds take
}

var airs = [lightCount]air{
	Day: {
		zenith: hex(0x2f78d0), horizon: hex(0xbfe0f5), sun: rgb{1.0, 0.95, 0.85}, ambient: rgb{0.42, 0.47, 0.55},
		sunX: 1.42, sunY: 0.15, disc: 0.045, cloud: rgb{0.98, 0.98, 1.0}, cover: 0.42,
	},
	Sunset: {
		zenith: hex(0x3b4a86), horizon: hex(0xf7a25c), sun: rgb{1.05, 0.62, 0.32}, ambient: rgb{0.36, 0.30, 0.36},
		sunX: 1.25, sunY: 0.42, disc: 0.062, cloud: hex(0xf08f78), stars: 0.05, cover: 0.5,
	},
	Night: {
		zenith: hex(0x060a1e), horizon: hex(0x25345e), sun: rgb{0.42, 0.50, 0.66}, ambient: rgb{0.13, 0.16, 0.26},
		sunX: 1.38, sunY: 0.17, disc: 0.048, cloud: hex(0x2a3352), stars: 0.9, cover: 0.35,
	},
}

// stage is one scene in one light and weather, with what its pixels share.
type stage struct {
	air
	scene Scene
	tint  *rgb
	salt  uint64
	t     float64 // time, 0 to 1 over the clip
	pixel float64 // height of a pixel; the frame's is 1
}

func newStage(c Clip, t, pixel float64) stage {
	s := stage{air: airs[c.Light], scene: c.Scene, salt: uint64(1000 + 100*c.weather()), t: t, pixel: pixel}
	if c.weather() == 1 {
		s.sunX = aspect - s.sunX
		s.cover += 0.10
	}
	if c.Scene == Space {
		s.zenith, s.horizon = hex(0x04040f), hex(0x0a0a24)
		s.ambient, s.stars, s.disc, s.cover = rgb{0.22, 0.22, 0.30}, 1, 0, 0
		s.sun = rgb{0.95, 0.93, 1.0}
	}
	if c.Tint != NoTint {
		ink := inks[c.Tint-1]
		s.tint = &ink
	}
	return s
}

// tinted pulls a colour to the stage's tint and keeps its brightness.
func (s *stage) tinted(c rgb, strength float64) rgb {
	if s.tint == nil {
		return c
	}
	light := c.luminance() / math.Max(0.08, s.tint.luminance())
	return blend(c, s.tint.scale(math.Min(light, 1.6)), strength)
}

// sky gives the colour of the sky above a horizon.
func (s *stage) sky(x, y, horizon float64) rgb {
	c := s.clearSky(x, y, horizon)
	if s.stars > 0 {
		c = c.add(rgb{1, 1, 1.05}.scale(s.stars * s.starlight(x, y)))
	}
	if s.disc > 0 {
		c = blend(c, s.sun.scale(1.35), ramp(s.disc+s.pixel, s.disc-s.pixel, math.Hypot(x-s.sunX, y-s.sunY)))
	}
	if s.cover == 0 {
		return c
	}
	return s.clouds(c, x, y, horizon)
}

// clearSky is the sky without anything in it but the glow around the sun: what water mirrors.
func (s *stage) clearSky(x, y, horizon float64) rgb {
	up := clamp01((horizon - y) / horizon)
	c := blend(s.horizon, s.zenith, math.Sqrt(up)*(0.35+0.65*math.Sqrt(up)))
	c = s.tinted(c, 0.6*s.skyTint())
	if s.disc == 0 {
		return c
	}
	square := (x-s.sunX)*(x-s.sunX) + (y-s.sunY)*(y-s.sunY)
	return c.add(s.sun.scale(math.Exp(-square/0.045)*0.35 + math.Exp(-math.Sqrt(square)/0.22)*0.18))
}

// skyTint is how much of a tint the sky takes: all of it where the sky is the scene.
func (s *stage) skyTint() float64 {
	if s.scene == Sky || s.scene == Space {
		return 1
	}
	return 0.15
}

func (s *stage) clouds(c rgb, x, y, horizon float64) rgb {
	depth := 0.25 + (horizon-y)/horizon // flatter towards the horizon
	u, v := x*1.5/(0.55+0.45*depth)+0.22*s.t, y*3.4
	n := cloudNoise(u, v, 4, s.salt)
	dense := ramp(0.62-0.22*s.cover, 0.82-0.12*s.cover, n) * ramp(1.02, 0.75, y/horizon)
	if dense == 0 {
		return c
	}
	toSun := cloudNoise(u+0.09*sign(s.sunX-x), v-0.16, 2, s.salt)
	lit := clamp01(0.62 + 1.6*(n-toSun))
	body := s.cloud.scale(0.62 + 0.45*lit)
	return blend(c, body, 0.92*dense)
}

// starlight is a sparse field of points that twinkle.
func (s *stage) starlight(x, y float64) float64 {
	const cells = 26.0
	ix, iy := math.Floor(x*cells), math.Floor(y*cells)
	i, j := int(ix), int(iy)
	chance := lattice(i, j, 77)
	if chance > 0.34 {
		return 0
	}
	sx := (ix + 0.2 + 0.6*lattice(i, j, 78)) / cells
	sy := (iy + 0.2 + 0.6*lattice(i, j, 79)) / cells
	radius := 0.0035 + 0.005*lattice(i, j, 80)*lattice(i, j, 81)
	twinkle := 0.75 + 0.25*math.Sin(2*math.Pi*(2*s.t+chance*40))
	d := math.Hypot(x-sx, y-sy) / radius
	return math.Exp(-d*d) * twinkle * (0.4 + 0.9*lattice(i, j, 82))
}

func sign(x float64) float64 {
	if x < 0 {
		return -1
	}
	return 1
}
