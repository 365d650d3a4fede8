package bank

import "math"

// surface is what a shape has to say about one point of its plane: whether it is there, and what it is made of.
type surface struct {
	d     float64 // signed distance to the outline, < 0 inside, in units of the shape's half height
	ink   rgb
	bevel float64 // how far from the outline the surface still curves
	gloss float64 // strength of the highlight
}

// brush is what the shapes' functions need besides the point.
type brush struct {
	ink   rgb
	flap  float64
	pixel float64 // size of a pixel, in units of the shape's half height
}

// over paints top onto base. The edge between them is as soft as a pixel.
func (b brush) over(base, top surface) surface {
	cover := ramp(b.pixel/2, -b.pixel/2, top.d)
	out := top
	if cover < 0.5 {
		out = base
	}
	out.d = math.Min(base.d, top.d)
	out.ink = blend(base.ink, top.ink, cover)
	return out
}

// A shape's function takes a point of its own plane: x to its front, y up, the outline within 1.3 of the middle.
var shapes = [shapeCount]func(x, y float64, b brush) surface{
	Ball: drawBall, Box: drawBox, Triangle: drawTriangle, Star: drawStar, Heart: drawHeart, Ring: drawRing,
	Boat: drawBoat, Bird: drawBird, Fish: drawFish, Balloon: drawBalloon, Rocket: drawRocket,
}

var (
	cream = hex(0xf7efdc)
	dark  = hex(0x16161a)
	wood  = hex(0x8a5a30)
)

// drawBall is a rubber ball with a pale stripe, so that its turning shows.
func drawBall(x, y float64, b brush) surface {
	r := math.Hypot(x, y)
	body := surface{d: r - 1, ink: b.ink, bevel: 1, gloss: 0.9}
	z := math.Sqrt(math.Max(0, 1-r*r))
	stripe := math.Abs(0.8*y+0.6*z-0.42) - 0.10 // a circle of latitude, seen from the side
	body.ink = blend(body.ink, blend(body.ink, cream, 0.85), ramp(b.pixel, -b.pixel, stripe))
	return body
}

func drawBox(x, y float64, b brush) surface {
	face := surface{d: roundedBox(x, y, 0.86, 0.86, 0.14), ink: b.ink, bevel: 0.2, gloss: 0.35}
	inner := surface{d: math.Abs(roundedBox(x, y, 0.52, 0.52, 0.08)) - 0.05, ink: b.ink.scale(0.62), bevel: 0.1}
	return b.over(face, inner)
}

func drawTriangle(x, y float64, b brush) surface {
	d := math.Max(-y-0.62, math.Max(0.866*x+0.5*y-0.52, -0.866*x+0.5*y-0.52))
	return surface{d: d - 0.06, ink: b.ink, bevel: 0.35, gloss: 0.4}
}

func drawStar(x, y float64, b brush) surface {
	return surface{d: starDistance(x, y, 1.05, 0.5) - 0.03, ink: b.ink, bevel: 0.45, gloss: 0.5}
}

// starDistance is the distance to a five-pointed star's outline, exact near its edges.
func starDistance(x, y, outer, inner float64) float64 {
	const sector = 2 * math.Pi / 5
	a := math.Atan2(x, y)
	a = math.Abs(a - sector*math.Round(a/sector))
	r := math.Hypot(x, y)
	px, py := r*math.Sin(a), r*math.Cos(a)
	ex, ey := inner*math.Sin(sector/2), inner*math.Cos(sector/2)-outer
	length := math.Hypot(ex, ey)
	return (px*-ey + (py-outer)*ex) / length
}

func drawHeart(x, y float64, b brush) surface {
	x, y = math.Abs(x)/1.05, (y+0.92)/1.75
	var d float64
	if x+y > 1 {
		d = math.Hypot(x-0.25, y-0.75) - math.Sqrt2/4
	} else {
		m := 0.5 * math.Max(x+y, 0)
		d = math.Min(math.Hypot(x, y-1), math.Hypot(x-m, y-m))
		if x < y {
			d = -d
		}
	}
	return surface{d: 1.6*d - 0.02, ink: b.ink, bevel: 0.55, gloss: 0.8}
}

func drawRing(x, y float64, b brush) surface {
	r := math.Hypot(x, y)
	ink := b.ink
	if math.Mod(math.Atan2(y, x)+2*math.Pi, math.Pi/2) < math.Pi/4 {
		ink = blend(ink, cream, 0.22)
	}
	return surface{d: math.Abs(r-0.72) - 0.28, ink: ink, bevel: 0.28, gloss: 0.8}
}

func drawBoat(x, y float64, b brush) surface {
	hullTop, keel := -0.42, -0.92
	half := 0.98 - 0.42*ramp(hullTop, keel-0.1, y)
	hull := surface{d: math.Max(math.Max(y-hullTop-0.10*x*x, keel-y), math.Abs(x)-half) * 0.9, ink: b.ink, bevel: 0.25, gloss: 0.3}
	line := surface{d: math.Max(math.Abs(y-hullTop+0.13)-0.035, hull.d), ink: cream, bevel: 0.1}
	mast := surface{d: roundedBox(x-0.02, y-0.28, 0.035, 0.72, 0.02), ink: wood, bevel: 0.05}
	main := surface{d: halfPlanes(x, y, 0.07, -0.26, 0.88), ink: cream, bevel: 0.3, gloss: 0.1}
	jib := surface{d: halfPlanes(-x, y, 0.06, -0.26, 0.62), ink: blend(b.ink, cream, 0.35), bevel: 0.3, gloss: 0.1}
	return b.over(b.over(b.over(b.over(mast, jib), main), hull), line)
}

// halfPlanes is a sail: a right triangle with its upright edge at x = left and its foot at y = foot.
func halfPlanes(x, y, left, foot, top float64) float64 {
	slope := (x-left)*0.86 + (y-top)*0.5
	return math.Max(math.Max(left-x, foot-y), slope)
}

func drawBird(x, y float64, b brush) surface {
	body := surface{d: ellipse(x, y, 0.72, 0.30), ink: b.ink, bevel: 0.4, gloss: 0.15}
	belly := surface{d: math.Max(ellipse(x-0.05, y+0.14, 0.55, 0.18), body.d), ink: blend(b.ink, cream, 0.55), bevel: 0.3}
	head := surface{d: math.Hypot(x-0.66, y-0.20) - 0.24, ink: b.ink, bevel: 0.25, gloss: 0.2}
	beak := surface{d: wedge(x-0.84, y-0.18, 0.34, 0.10), ink: hex(0xf0a020), bevel: 0.1}
	eye := surface{d: math.Hypot(x-0.73, y-0.27) - 0.055, ink: dark, bevel: 0.05, gloss: 1}
	tail := surface{d: wedge(-x-0.45, y-0.08, -0.62, 0.26), ink: b.ink.scale(0.8), bevel: 0.2}
	beat := math.Sin(b.flap * 1.7)
	near := surface{d: wing(x-0.05, y-0.10, beat), ink: b.ink.scale(0.86), bevel: 0.25, gloss: 0.1}
	far := surface{d: wing(x-0.20, y-0.12, 0.85*beat+0.2), ink: b.ink.scale(0.55), bevel: 0.25}
	out := b.over(b.over(far, tail), beak)
	out = b.over(b.over(b.over(out, body), head), belly)
	return b.over(b.over(out, eye), near)
}

// wing is a blade from the shoulder at the origin, raised (beat 1) or lowered (-1).
func wing(x, y, beat float64) float64 {
	length := 0.35 + 0.75*math.Abs(beat)
	if beat < 0 {
		y = -y
	}
	v := y / length
	middle := -0.30 * v * v
	half := 0.30 * (1 - v) * (1 + 0.4*v)
	return math.Max(math.Max(-0.08-y, y-length), math.Abs(x-middle)-math.Max(half, 0)) * 0.85
}

func drawFish(x, y float64, b brush) surface {
	y += 0.05 * math.Sin(b.flap*1.5+2.5*x) * ramp(0.3, -1, x)
	body := surface{d: ellipse(x-0.12, y, 0.82, 0.46), ink: b.ink, bevel: 0.5, gloss: 0.6}
	stripes := surface{d: math.Max(math.Abs(math.Abs(x-0.05)-0.26)-0.07, body.d), ink: blend(b.ink, cream, 0.7), bevel: 0.5, gloss: 0.6}
	tail := surface{d: wedge(-x-0.55, y, -0.60, 0.42), ink: b.ink.scale(0.75), bevel: 0.2}
	fin := surface{d: wedge(y-0.30, x+0.05, -0.42, 0.30), ink: b.ink.scale(0.75), bevel: 0.2}
	eyeWhite := surface{d: math.Hypot(x-0.62, y-0.10) - 0.12, ink: cream, bevel: 0.1}
	pupil := surface{d: math.Hypot(x-0.65, y-0.10) - 0.06, ink: dark, bevel: 0.1, gloss: 1}
	return b.over(b.over(b.over(b.over(b.over(tail, fin), body), stripes), eyeWhite), pupil)
}

func drawBalloon(x, y float64, b brush) surface {
	width := 0.72 * (1 - 0.30*ramp(0.1, -0.5, y))
	envelope := surface{d: ellipse(x, y-0.32, width, 0.68), ink: b.ink, bevel: 0.65, gloss: 0.5}
	gore := math.Asin(math.Max(-1, math.Min(1, x/width/math.Sqrt(math.Max(0.05, 1-math.Pow((y-0.32)/0.68, 2))))))
	if int(math.Floor(gore/0.55+0.5))&1 != 0 {
		envelope.ink = blend(b.ink, cream, 0.8)
	}
	ropes := surface{d: math.Max(math.Abs(math.Abs(x)-lerp(0.13, 0.30, ramp(-0.72, -0.3, y)))-0.018, math.Abs(y+0.52)-0.24), ink: dark, bevel: 0.02}
	basket := surface{d: roundedBox(x, y+0.86, 0.17, 0.13, 0.04), ink: wood, bevel: 0.1}
	return b.over(b.over(ropes, envelope), basket)
}

func drawRocket(x, y float64, b brush) surface {
	half := 0.34 * math.Sqrt(math.Max(0, 1-math.Pow(math.Max(0, y-0.05)/0.98, 2)))
	body := surface{d: math.Max(math.Abs(x)-half, math.Abs(y-0.18)-0.86) * 0.9, ink: cream, bevel: 0.32, gloss: 0.5}
	nose := surface{d: math.Max(body.d, 0.52-y), ink: b.ink, bevel: 0.32, gloss: 0.5}
	fins := surface{d: math.Max(wedge(y+0.10, math.Abs(x)-0.22, -0.62, 0.42), 0.18-math.Abs(x)), ink: b.ink, bevel: 0.2, gloss: 0.3}
	window := surface{d: math.Hypot(x, y-0.20) - 0.15, ink: hex(0x2a6fae), bevel: 0.15, gloss: 1}
	frame := surface{d: math.Abs(math.Hypot(x, y-0.20)-0.16) - 0.035, ink: b.ink.scale(0.8), bevel: 0.05}
	flicker := 0.9 + 0.1*math.Sin(b.flap*7)
	flame := surface{d: ellipse(x, y+0.82, 0.19, 0.42*flicker), ink: rgb{2.2, 0.9, 0.15}, bevel: 0.02}
	core := surface{d: ellipse(x, y+0.76, 0.09, 0.26*flicker), ink: rgb{2.6, 2.0, 0.9}, bevel: 0.02}
	out := b.over(b.over(flame, core), fins)
	return b.over(b.over(b.over(b.over(out, body), nose), window), frame)
}

func roundedBox(x, y, halfWidth, halfHeight, radius float64) float64 {
	dx, dy := math.Abs(x)-halfWidth+radius, math.Abs(y)-halfHeight+radius
	return math.Hypot(math.Max(dx, 0), math.Max(dy, 0)) + math.Min(math.Max(dx, dy), 0) - radius
}

// ellipse is close to the distance near the outline, which is where it matters.
func ellipse(x, y, a, b float64) float64 {
	k := math.Hypot(x/a, y/b)
	slope := math.Hypot(x/(a*a), y/(b*b))
	if slope == 0 {
		return -math.Min(a, b)
	}
	return k * (k - 1) / slope
}

// wedge is a triangle with its base on x = 0 and its tip at x = length > 0, or with its tip on x = 0 and its base at
// x = -length. Its base is 2 half wide.
func wedge(x, y, length, half float64) float64 {
	at := 1 - x/length
	if length < 0 {
		length = -length
		at = x / length
	}
	return math.Max(math.Max(-x, x-length), math.Abs(y)-half*math.Max(at, 0)) * 0.9
}
