package bank

import "fmt"

// The attributes of a clip. The zero value of each is a valid choice.
type (
	Shape  int
	Colour int
	Motion int
	Scene  int
	Light  int
	Tint   int // NoTint, or 1 + the Colour that the scene is tinted with
)

const (
	Ball Shape = iota
	Box
	Triangle
	Star
	Heart
	Ring
	Boat
	Bird
	Fish
	Balloon
	Rocket
	shapeCount
)

const (
	Red Colour = iota
	Orange
	Yellow
	Green
	Teal
	Blue
	Purple
	Pink
	White
	Grey
	Brown
	Black
	colourCount
)

const (
	Bounce Motion = iota
	Roll
	Fly
	Drift
	Orbit
	Rise
	Fall
	Spin
	motionCount
)

const (
	Sea Scene = iota
	Sky
	Desert
	Forest
	City
	Space
	Snow
	Meadow
	sceneCount
)

const (
	Day Light = iota
	Sunset
	Night
	lightCount
)

// NoTint leaves a scene its natural colours.
const NoTint Tint = 0

// variantCount is how many clips share all other attributes. A variant's bits are direction, size with phase, and weather.
const variantCount = 8

var (
	shapeNames  = [shapeCount]string{"ball", "box", "triangle", "star", "heart", "ring", "boat", "bird", "fish", "balloon", "rocket"}
	colourNames = [colourCount]string{"red", "orange", "yellow", "green", "teal", "blue", "purple", "pink", "white", "grey", "brown", "black"}
	motionNames = [motionCount]string{"bounce", "roll", "fly", "drift", "orbit", "rise", "fall", "spin"}
	sceneNames  = [sceneCount]string{"sea", "sky", "desert", "forest", "city", "space", "snow", "meadow"}
	lightNames  = [lightCount]string{"day", "sunset", "night"}
)

func (s Shape) String() string  { return shapeNames[s] }
func (c Colour) String() string { return colourNames[c] }
func (m Motion) String() string { return motionNames[m] }
func (s Scene) String() string  { return sceneNames[s] }
func (l Light) String() string  { return lightNames[l] }

func (t Tint) String() string {
	if t == NoTint {
		return "natural"
	}
	return Colour(t - 1).String()
}

// TintOf is the tint of a colour.
func TintOf(c Colour) Tint { return Tint(c) + 1 }

// Clip is one entry of the bank.
type Clip struct {
	Shape   Shape
	Colour  Colour
	Motion  Motion
	Scene   Scene
	Light   Light
	Tint    Tint
	Variant int // 0 to 7
}

func (c Clip) String() string {
	return fmt.Sprintf("%s %s, %s, %s %s by %s, variant %d", c.Colour, c.Shape, c.Motion, c.Tint, c.Scene, c.Light, c.Variant)
}

func (c Clip) leftward() bool { return c.Variant&1 != 0 }
func (c Clip) small() bool    { return c.Variant&2 != 0 }
func (c Clip) weather() int   { return c.Variant >> 2 & 1 }

// at home: what a shape does, and where, when the prompt does not say.
var (
	usualMotions = [shapeCount][]Motion{
		Ball: {Bounce, Roll}, Box: {Spin, Bounce}, Triangle: {Spin, Orbit}, Star: {Spin, Orbit}, Heart: {Rise, Spin}, Ring: {Roll, Spin},
		Boat: {Drift}, Bird: {Fly}, Fish: {Drift}, Balloon: {Rise, Drift}, Rocket: {Rise},
	}
	usualScenes = [shapeCount][]Scene{
		Ball: {Meadow, Sea, Desert}, Star: {Space, Sky}, Heart: {Sky, Meadow}, Boat: {Sea}, Bird: {Sky, Forest, Meadow, Sea}, Fish: {Sea},
		Balloon: {Sky, Meadow, Desert}, Rocket: {Space, City},
	}
)
