package bank

import "math"

// backdrop gives the colour of the scene, without its actor, at a point of the frame.
func (s *stage) backdrop(x, y float64) rgb {
	switch s.scene {
	case Sea:
		return s.sea(x, y)
	case Sky:
		return s.openSky(x, y)
	case Desert:
		return s.desert(x, y)
	case Forest:
		return s.forest(x, y)
	case City:
		return s.city(x, y)
	case Space:
		return s.space(x, y)
	case Snow:
		return s.snow(x, y)
	default:
		return s.meadow(x, y)
	}
}

// lit is a matt surface's colour in the scene's light; facing is how much it faces the sun, 0 to 1.
func (s *stage) lit(ink rgb, facing float64) rgb {
	return ink.mul(s.ambient.add(s.sun.scale(0.75 * facing)))
}

// haze pulls what is far away into the colour of the horizon.
func (s *stage) haze(c rgb, amount float64) rgb { return blend(c, s.horizon.scale(0.92), amount) }

const seaHorizon = 0.50

func (s *stage) sea(x, y float64) rgb {
	shore := ramp(seaHorizon-s.pixel, seaHorizon+s.pixel, y)
	if shore == 0 {
		return s.sky(x, y, seaHorizon)
	}
	water := s.water(x, math.Max(y, seaHorizon+0.002))
	return blend(s.sky(x, math.Min(y, seaHorizon), seaHorizon), water, shore)
}

// slope is the water's slope towards the viewer at a point of the frame, by a few trains of waves in perspective.
func (s *stage) slope(x, y float64) float64 {
	depth := 0.16 / (y - seaHorizon + 0.012)
	u, w := (x-aspect/2)*depth*1.1, depth*3.2
	const turn = 2 * math.Pi
	sum := 0.42 * math.Sin(turn*(0.9*w+0.35*u+2*s.t))
	sum += 0.30 * math.Sin(turn*(1.7*w-0.8*u+3*s.t)+1.3)
	sum += 0.22 * math.Sin(turn*(2.6*w+1.9*u+4*s.t)+4.1)
	sum += 0.34 * (2*valueNoise(3.1*u+1.5*s.t, 5.2*w+3*s.t, 31) - 1)
	return sum * ramp(9, 1.2, depth) // far waves are smaller than a pixel
}

func (s *stage) water(x, y float64) rgb {
	near := (y - seaHorizon) / (1 - seaHorizon)
	slope := s.slope(x, y)
	deep := s.tinted(blend(hex(0x1f78b4), hex(0x0b3f86), near), 0.75)
	body := s.lit(deep, 0.55+0.45*slope).scale(1.15)
	mirror := s.clearSky(x+0.05*slope*near, seaHorizon*(0.92-0.75*near)+0.06*slope, seaHorizon)
	fresnel := 0.16 + 0.62*math.Pow(1-near, 2.6) + 0.10*slope
	c := blend(body, mirror, clamp01(fresnel))
	crest := ramp(0.72, 1.0, slope) * ramp(0.02, 0.2, near) * ramp(1.0, 0.5, near)
	c = blend(c, s.lit(rgb{1, 1, 1}, 0.9), 0.5*crest)
	if s.disc > 0 { // the sun's road
		width := 0.05 + 0.16*near
		across := (x - s.sunX) / width
		road := math.Exp(-across*across) * ramp(0.05, 0.75, slope+0.35*(1-near))
		c = c.add(s.sun.scale(0.9 * road * (1 - 0.9*near)))
	}
	return c
}

func (s *stage) openSky(x, y float64) rgb {
	c := s.sky(x, y, 1.05)
	n := cloudNoise(1.6*x+0.3*s.t, 3.2*y, 4, s.salt+40) // a floor of clouds
	floor := ramp(0.80, 0.98, y+0.22*(n-0.5))
	return blend(c, s.cloud.scale(0.72+0.42*n), 0.95*floor)
}

func (s *stage) desert(x, y float64) rgb {
	c := s.sky(x, y, 0.62)
	sand := s.tinted(hex(0xe2b36a), 0.7)
	for i, dune := range []struct{ top, height, width, far float64 }{{0.52, 0.05, 1.9, 0.45}, {0.57, 0.07, 1.2, 0.22}, {0.66, 0.05, 0.8, 0}} {
		k := 2 * math.Pi / dune.width
		offset := 1.7*float64(i) + 0.01*float64(s.salt%7)
		crest := dune.top - dune.height*math.Sin(k*x+offset) - 0.3*dune.height*math.Sin(2.3*k*x+2*offset)
		inside := ramp(crest-s.pixel, crest+s.pixel, y)
		if inside == 0 {
			continue
		}
		lee := 0.5 + 0.45*math.Cos(k*x+offset)*sign(s.sunX-aspect/2)
		below := y - crest
		ripple := 0.5 + 0.5*math.Sin(2*math.Pi*(26*below/(0.35+below)+1.2*valueNoise(4*x, 9*y, 51)))
		facing := clamp01(0.25+0.65*lee) + 0.10*ripple*ramp(0, 0.12, below)
		c = blend(c, s.haze(s.lit(sand, facing), dune.far), inside)
	}
	return c
}

func (s *stage) forest(x, y float64) rgb {
	c := s.haze(s.sky(x, y, 0.7), 0.25)
	for layer := range 3 {
		depth := float64(layer) / 2 // 0: far
		tree := s.conifers(x, y, layer)
		if tree > 0 {
			ink := s.tinted(blend(hex(0x3c7a55), hex(0x12361f), depth), 0.5)
			c = blend(c, s.haze(s.lit(ink, 0.35+0.3*lattice(int(x*7), layer, 61)), 0.55*(1-depth)), tree)
		}
	}
	floor := ramp(0.70, 0.76, y+0.02*math.Sin(5*x))
	if floor == 0 {
		return c
	}
	return blend(c, s.grass(x, y, s.tinted(hex(0x3f6b2a), 0.5)), floor)
}

// conifers is how much of a point a row of firs covers.
func (s *stage) conifers(x, y float64, layer int) float64 {
	spacing := []float64{0.075, 0.13, 0.24}[layer]
	foot := []float64{0.68, 0.73, 0.79}[layer]
	cover := 0.0
	for i := int(math.Floor(x/spacing)) - 1; i <= int(math.Floor(x/spacing))+1; i++ {
		salt := s.salt + uint64(62+layer)
		middle := (float64(i) + 0.5 + 0.35*spread(i, salt)) * spacing
		height := spacing * (2.5 + 1.1*lattice(i, 1, salt))
		up := (foot - y) / height
		if up < -0.1 || up > 1 {
			continue
		}
		tier := fract(up * 5)
		half := spacing * 0.62 * (1 - up) * (1.12 - 0.45*tier)
		cover = math.Max(cover, ramp(half+s.pixel, half-s.pixel, math.Abs(x-middle)))
	}
	return cover
}

func (s *stage) grass(x, y float64, ink rgb) rgb {
	depth := 0.25 / (y - 0.45)
	blades := valueNoise(70*x*depth, 24*depth*y, 71)
	patches := cloudNoise(3*x*depth, 6*depth, 3, s.salt+72)
	return s.lit(ink.scale(0.78+0.30*blades+0.35*(patches-0.5)), 0.72)
}

func (s *stage) city(x, y float64) rgb {
	c := s.sky(x, y, 0.72)
	for layer := range 3 {
		c = s.buildings(c, x, y, layer)
	}
	street := ramp(0.715-s.pixel, 0.715+s.pixel, y)
	if street == 0 {
		return c
	}
	asphalt := s.tinted(hex(0x54565c), 0.5).scale(0.9 + 0.15*valueNoise(60*x, 60*y, 81))
	road := s.lit(asphalt, 0.6)
	depth := 0.2 / (y - 0.60)
	dash := ramp(0.5, 0.42, math.Abs(fract((x-aspect/2)*depth*1.4)-0.5)*2) * ramp(0.018, 0.010, math.Abs(y-0.90))
	road = blend(road, s.lit(cream, 0.8), 0.8*dash)
	kerb := ramp(0.012, 0.006, math.Abs(y-0.728))
	return blend(c, blend(road, s.lit(hex(0xb9b6ae), 0.7), kerb), street)
}

func (s *stage) buildings(c rgb, x, y float64, layer int) rgb {
	width := []float64{0.10, 0.155, 0.23}[layer]
	salt := s.salt + uint64(83+layer)
	i := int(math.Floor(x/width + 0.37*float64(layer)))
	left := (float64(i) - 0.37*float64(layer)) * width
	top := []float64{0.26, 0.38, 0.50}[layer] + 0.13*spread(i, salt)
	inside := ramp(top-s.pixel, top+s.pixel, y) * ramp(0, s.pixel, x-left) * ramp(0, s.pixel, left+0.94*width-x)
	if inside == 0 {
		return c
	}
	tone := []rgb{hex(0x8c99ad), hex(0x6f7887), hex(0x565b66)}[layer].scale(0.8 + 0.4*lattice(i, 3, salt))
	wall := s.haze(s.lit(s.tinted(tone, 0.5), 0.45), []float64{0.5, 0.25, 0.05}[layer])
	const panes = 0.036
	wx, wy := (x-left)/panes, (y-top)/panes
	inPane := ramp(0.36, 0.26, math.Abs(fract(wx)-0.5)) * ramp(0.36, 0.26, math.Abs(fract(wy)-0.5))
	if inPane == 0 || wy < 0.4 {
		return blend(c, wall, inside)
	}
	glass := blend(wall, s.horizon, 0.35)
	if lamp := lattice(i*64+int(wx), int(wy), salt+5); lamp < 0.45*(1-s.ambient.luminance()*1.6)+0.04 {
		glass = rgb{1.0, 0.78, 0.40}.scale(0.9)
	}
	return blend(c, blend(wall, glass, 0.8*inPane), inside)
}

func (s *stage) space(x, y float64) rgb {
	c := s.sky(x, y, 1.2)
	n := cloudNoise(1.3*x+0.05*s.t, 1.6*y+0.9*x, 5, s.salt+90)
	m := cloudNoise(2.1*x, 2.3*y-0.6*x, 4, s.salt+95)
	nebula := s.tinted(blend(hex(0x5b2a86), hex(0x1f5f9a), m), 0.8)
	c = c.add(nebula.scale(0.55 * ramp(0.42, 0.85, n)))
	px, py := x-0.22*aspect, y-1.18 // a planet's limb at the lower edge
	r := math.Hypot(px, py)
	const radius = 0.62
	limb := ramp(radius+s.pixel, radius-s.pixel, r)
	c = c.add(hex(0x5aa0ff).scale(0.55 * math.Exp(-math.Max(0, r-radius)/0.025) * (1 - limb)))
	if limb == 0 {
		return c
	}
	bands := cloudNoise(2*px, 9*py+2*px, 4, s.salt+98)
	ground := blend(hex(0x2c5f9e), hex(0xc9b48a), ramp(0.42, 0.62, bands))
	facing := clamp01((0.35*px - 0.9*py) / radius)
	return blend(c, ground.scale(0.06+0.9*math.Pow(facing, 1.4)), limb)
}

func (s *stage) snow(x, y float64) rgb {
	c := s.sky(x, y, 0.66)
	for layer, peak := range []struct{ base, height, scale float64 }{{0.58, 0.62, 2.3}, {0.66, 0.34, 3.7}} {
		ridge := peak.base - peak.height*(cloudNoise(peak.scale*x+9*float64(layer), 0.5, 5, s.salt+101)-0.25)
		inside := ramp(ridge-s.pixel, ridge+s.pixel, y)
		if inside == 0 {
			continue
		}
		grain := cloudNoise(9*x, 9*y, 3, 103+s.salt)
		facing := clamp01(0.5 + 2.2*(cloudNoise(7*x+0.12*sign(s.sunX-aspect/2), 5*y, 3, 104)-cloudNoise(7*x, 5*y, 3, 104)))
		cap := ramp(0.11, 0.02, y-ridge+0.16*(grain-0.5))
		ink := blend(hex(0x5d6a7e), hex(0xf4f7fb), cap)
		c = blend(c, s.haze(s.lit(ink, 0.25+0.75*facing), 0.40-0.25*float64(layer)), inside)
	}
	field := ramp(0.64, 0.67, y+0.012*math.Sin(4*x+1))
	if field > 0 {
		drifts := cloudNoise(2.5*x, 10*y, 3, s.salt+105)
		c = blend(c, s.lit(s.tinted(hex(0xeef3fa), 0.5), 0.55+0.45*drifts), field)
	}
	return c.add(s.flakes(x, y))
}

// flakes are three curtains of falling snow, the nearer the larger and the faster. Each falls a whole number of cells over
// a clip.
func (s *stage) flakes(x, y float64) rgb {
	sum := 0.0
	for layer, cells := range []float64{18, 12, 7} {
		fall := float64(3+layer) * s.t
		u, v := x*cells+0.5*math.Sin(2*math.Pi*s.t+float64(layer)), y*cells-fall
		i, j := int(math.Floor(u)), int(math.Floor(v))
		if lattice(i, j, uint64(110+layer)) > 0.22 {
			continue
		}
		dx := fract(u) - 0.3 - 0.4*lattice(i, j, 113)
		dy := fract(v) - 0.3 - 0.4*lattice(i, j, 114)
		d := math.Hypot(dx, dy) / (0.10 + 0.05*lattice(i, j, 115))
		sum += math.Exp(-d * d)
	}
	return s.ambient.add(s.sun).scale(0.45 * sum)
}

func (s *stage) meadow(x, y float64) rgb {
	c := s.sky(x, y, 0.64)
	for i, hill := range []struct {
		top, height, width, far float64
		ink                     uint32
	}{{0.54, 0.045, 1.5, 0.45, 0x6fa84a}, {0.60, 0.05, 1.05, 0.2, 0x5fa03a}} {
		k := 2 * math.Pi / hill.width
		crest := hill.top - hill.height*math.Sin(k*x+2.1*float64(i)+0.01*float64(s.salt%9))
		inside := ramp(crest-s.pixel, crest+s.pixel, y)
		if inside > 0 {
			facing := 0.55 + 0.3*math.Cos(k*x+2.1*float64(i))*sign(s.sunX-aspect/2)
			c = blend(c, s.haze(s.lit(s.tinted(hex(hill.ink), 0.6), facing), hill.far), inside)
		}
	}
	crest := 0.66 + 0.012*math.Sin(3*x)
	field := ramp(crest-s.pixel, crest+s.pixel, y)
	if field == 0 {
		return c
	}
	green := s.grass(x, y, s.tinted(hex(0x5a9a34), 0.6))
	return blend(c, s.flowers(green, x, y), field)
}

func (s *stage) flowers(c rgb, x, y float64) rgb {
	depth := 0.25 / (y - 0.45)
	u, v := 16*(x-aspect/2)*depth, 30*depth
	i, j := int(math.Floor(u)), int(math.Floor(v))
	if lattice(i, j, 121) > 0.16 {
		return c
	}
	d := math.Hypot(fract(u)-0.5, (fract(v)-0.5)*0.8)
	petals := []rgb{hex(0xffffff), hex(0xffd84a), hex(0xf58ab8)}[int(3*lattice(i, j, 122))%3]
	return blend(c, s.lit(petals, 0.8), ramp(0.26, 0.12, d))
}
