package bank

import "math"

// Size of a rendered frame in pixels: the model's latents.
const (
	Width  = 160
	Height = 90

	// Channels of a pixel: red, green and blue, in linear light with sRGB primaries.
	Channels = 3
)

// Renderer draws one frame of many clips. Clips that share a scene share its picture. It is for one goroutine.
type Renderer struct {
	t         float64
	backdrops map[Clip][]rgb
}

// NewRenderer draws frame number frame of clips that are frames long.
func NewRenderer(frame, frames int) *Renderer {
	return &Renderer{t: (float64(frame) + 0.5) / float64(frames), backdrops: map[Clip][]rgb{}}
}

// Draw gives the clip's frame: rows from the top, Width*Height*Channels numbers.
func (r *Renderer) Draw(c Clip) []float32 {
	const pixel = 1.0 / Height
	s := newStage(c, r.t, pixel)
	a := newActor(c, &s)
	key := Clip{Scene: c.Scene, Light: c.Light, Tint: c.Tint, Variant: c.weather()}
	behind, drawn := r.backdrops[key]
	if !drawn {
		behind = make([]rgb, Width*Height)
		for i := range behind {
			behind[i] = s.backdrop((float64(i%Width)+0.5)*pixel, (float64(i/Width)+0.5)*pixel)
		}
		r.backdrops[key] = behind
	}
	out := make([]float32, 0, len(behind)*Channels)
	for i, c := range behind {
		c = a.paint(c, (float64(i%Width)+0.5)*pixel, (float64(i/Width)+0.5)*pixel)
		out = append(out, float32(c.r), float32(c.g), float32(c.b))
	}
	return out
}

// actor is the clip's shape on its stage.
type actor struct {
	pose
	*stage
	draw     func(x, y float64, b brush) surface
	brush    brush
	sin, cos float64
	reach    float64 // radius around the middle beyond which it paints nothing
}

func newActor(c Clip, s *stage) *actor {
	p := c.place(s.t)
	a := &actor{pose: p, stage: s, draw: shapes[c.Shape]}
	a.brush = brush{ink: inks[c.Colour], flap: p.flap, pixel: s.pixel / p.size}
	a.sin, a.cos = math.Sincos(p.turn)
	a.reach = 1.5 * p.size / math.Min(p.squash, 1)
	return a
}

// paint adds the actor, its shadow or its mirror image to a pixel of the backdrop.
func (a *actor) paint(c rgb, x, y float64) rgb {
	switch a.scene {
	case Sea:
		c = a.mirror(c, x, y)
	case Sky, Space:
	default:
		c = a.shadow(c, x, y)
	}
	ink, cover := a.at(x, y)
	return blend(c, ink, cover)
}

// at gives the actor's colour at a point of the frame, and how much of the pixel it covers.
func (a *actor) at(x, y float64) (rgb, float64) {
	if math.Abs(x-a.x) > a.reach || math.Abs(y-a.y) > a.reach {
		return rgb{}, 0
	}
	u, v := a.local(x, y)
	top := a.draw(u, v, a.brush)
	cover := ramp(a.brush.pixel*0.9, -a.brush.pixel*0.9, top.d)
	if cover == 0 {
		return rgb{}, 0
	}
	return a.shade(top, u, v), cover
}

// local turns a point of the frame into the shape's plane.
func (a *actor) local(x, y float64) (u, v float64) {
	dx := (x - a.x) / a.size * math.Sqrt(a.squash)
	dy := (a.y - y) / a.size / a.squash
	u, v = dx*a.cos-dy*a.sin, dx*a.sin+dy*a.cos
	return u * a.facing, v
}

// shade lights a surface as if it were cushioned: it faces the viewer inside, and turns away towards its outline.
func (a *actor) shade(top surface, u, v float64) rgb {
	const e = 0.02
	nx := (a.draw(u+e, v, a.brush).d - top.d) / e
	ny := (a.draw(u, v+e, a.brush).d - top.d) / e
	edge := 1 - clamp01(-top.d/math.Max(top.bevel, 1e-3))
	if length := math.Hypot(nx, ny); length > 1e-6 {
		nx, ny = nx/length*edge, ny/length*edge
	}
	nz := math.Sqrt(math.Max(0, 1-nx*nx-ny*ny))
	nx *= a.facing // back into the frame
	nx, ny = nx*a.cos+ny*a.sin, ny*a.cos-nx*a.sin
	lx, ly, lz := 0.55*sign(a.sunX-aspect/2), 0.62, 0.56
	facing := nx*lx + ny*ly + nz*lz
	wrap := clamp01(0.22 + 0.78*facing)
	bounceLight := 0.16 * clamp01(-ny) // from the ground
	c := top.ink.mul(a.ambient.add(a.sun.scale(0.95 * wrap)).add(a.horizon.scale(bounceLight)))
	if top.ink.r > 1.5 { // it glows by itself
		return top.ink
	}
	half := math.Sqrt(math.Max(1e-9, lx*lx+ly*ly+(lz+1)*(lz+1)))
	spec := math.Max(0, (nx*lx+ny*ly+nz*(lz+1))/half)
	return c.add(a.sun.scale(top.gloss * 0.65 * math.Pow(spec, 42)))
}

// shadow darkens the ground below the actor: small and dark when it is close, wide and faint when it is high.
func (a *actor) shadow(c rgb, x, y float64) rgb {
	high := math.Max(0, a.height)
	width, flat := a.size*(1.0+1.1*high), 0.26*a.size*(1+0.9*high)
	dx := (x - a.x + 0.25*high*sign(a.sunX-aspect/2)) / width
	dy := (y - ground - 0.004) / flat
	d := dx*dx + dy*dy
	if d > 6 || y < 0.66 {
		return c
	}
	strength := 0.62 / (1 + 4.5*high)
	return c.scale(1 - strength*math.Exp(-1.3*d))
}

// mirror is the water's answer: the actor's reflection, broken by the waves, and the rings where it touched.
func (a *actor) mirror(c rgb, x, y float64) rgb {
	if y < seaHorizon+0.02 {
		return c
	}
	slope := a.slope(x, y)
	if y > ground-0.03 {
		depth := y - ground
		mx := x + (0.012+0.05*math.Max(0, depth))*slope
		my := ground - depth*1.15 - 0.02*slope
		if ink, cover := a.at(mx, my); cover > 0 {
			fade := 0.62 * ramp(0.42, 0.0, depth) * ramp(-0.03, 0.01, depth)
			c = blend(c, blend(ink, c, 0.25), cover*fade)
		}
	}
	return a.rings(c, x, y)
}

func (a *actor) rings(c rgb, x, y float64) rgb {
	if a.contact < 0 {
		return c
	}
	const flat = 0.24 // rings lie in the water's plane
	r := math.Hypot(x-a.touchX(), (y-ground)/flat)
	age := a.contact
	if a.contact == 0 { // it floats: ever new rings
		age = 0.05 + 0.10*fract(4*a.t)
	}
	front := 0.06 + 1.1*age
	fade := math.Exp(-age/0.14) * ramp(0, 0.02, age)
	outer, inner := (r-front)/0.035, (r-0.6*front)/0.03
	wave := math.Exp(-outer*outer) + 0.6*math.Exp(-inner*inner)
	return blend(c, a.lit(rgb{0.92, 0.97, 1}, 0.9), clamp01(0.6*wave*fade))
}

// touchX is where the actor last touched the water: it has moved on since.
func (a *actor) touchX() float64 {
	if a.contact == 0 {
		return a.x
	}
	return a.x - a.facing*(aspect-0.34)*a.contact
}
