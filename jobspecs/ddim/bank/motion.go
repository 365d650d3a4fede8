package bank

import "math"

// aspect is the width of a frame; its height is 1. x runs to the right, y down.
const aspect = 16.0 / 9

// pose is where an actor is at one time, and how.
type pose struct {
	x, y    float64 // of its middle
	size    float64 // half its height
	turn    float64 // rotation, clockwise, in radians
	squash  float64 // height by rest height; the width grows by as much
	flap    float64 // phase of wings and fins, in radians
	facing  float64 // 1: to the right, -1: to the left
	height  float64 // of its lowest point above the ground; below 0 it is in front of no ground
	contact float64 // time since it last touched the ground, in clip lengths; < 0: never
}

// ground is the y where things stand.
const ground = 0.80

// place gives the pose at time t, which runs from 0 to 1 over a clip.
func (c Clip) place(t float64) pose {
	p := pose{size: 0.135, squash: 1, facing: 1, contact: -1, flap: 2 * math.Pi * 3 * t}
	phase := 0.0
	if c.small() {
		p.size, phase = 0.105, 0.35
	}
	if c.Shape == Boat || c.Shape == Balloon || c.Shape == Rocket {
		p.size *= 1.35
	}
	switch c.Motion {
	case Bounce:
		p.bounce(t, phase)
	case Roll:
		p.x = lerp(0.14, aspect-0.14, t)
		p.y = ground - p.size
		p.turn = (p.x - aspect/2) / p.size
		p.contact = 0
	case Fly:
		p.x = lerp(0.02, aspect-0.02, t)
		p.y = 0.33 + 0.07*math.Sin(2*math.Pi*(t+phase))
		p.turn = 0.25 * math.Cos(2*math.Pi*(t+phase))
	case Drift:
		p.drift(t, phase, c.Scene)
	case Orbit:
		a := 2 * math.Pi * (t + phase)
		p.x, p.y = aspect/2+0.5*math.Cos(a), 0.45+0.22*math.Sin(a)
		p.size *= 1 + 0.3*math.Sin(a)
		p.turn = 0.3 * math.Sin(a)
	case Rise:
		p.x = aspect/2 + 0.25*(phase-0.15) + 0.03*math.Sin(2*math.Pi*(t+phase))
		p.y = lerp(ground-p.size, 0.12, ramp(0, 1.15, t))
	case Fall:
		p.x = aspect/2 + 0.25*(phase-0.15) + 0.08*math.Sin(2*math.Pi*(1.5*t+phase))
		p.y = lerp(0.05, ground-p.size, t*t)
		p.turn = 0.5 * math.Sin(2*math.Pi*(1.5*t+phase))
	case Spin:
		p.x, p.y = aspect/2+0.25*(phase-0.15), 0.5+0.02*math.Sin(2*math.Pi*t)
		p.turn = 2 * math.Pi * (t + phase)
	}
	p.height = ground - (p.y + p.size*p.squash)
	if c.leftward() {
		p.x, p.turn, p.facing = aspect-p.x, -p.turn, -1
	}
	return p
}

// bounce crosses the frame in three parabolas. Near the ground the actor is pressed flat.
func (p *pose) bounce(t, phase float64) {
	const bounces, top = 3.0, 0.46
	s := bounces*t + 0.5 + phase
	b := fract(s)
	p.x = lerp(0.17, aspect-0.17, t)
	p.turn = 1.1 * (p.x - aspect/2) / p.size
	rise := 4 * b * (1 - b) * top
	p.squash = 1 - 0.30*ramp(0.075, 0, rise) + 0.07*ramp(0.06, 0.2, rise)*ramp(0.42, 0.25, rise)
	p.y = ground - rise - p.size*p.squash
	p.contact = b / bounces
	if s < 1 {
		p.contact = -1
	}
}

// drift moves a little, on the water where there is some, and in the air elsewhere.
func (p *pose) drift(t, phase float64, scene Scene) {
	sway := 2 * math.Pi * (t + phase)
	p.x = lerp(0.36*aspect, 0.64*aspect, t)
	p.turn = 0.07 * math.Sin(sway)
	p.y = 0.46 + 0.04*math.Sin(sway)
	if scene == Sea {
		p.y = ground - 0.86*p.size + 0.012*math.Sin(2*sway)
		p.contact = 0
	}
}
