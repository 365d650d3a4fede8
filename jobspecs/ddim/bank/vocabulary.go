package bank

import "strings"

// naturalColour is a scene's colour of its own: "a blue sea" is a sea, not a tinted one.
var naturalColour = [sceneCount]Colour{
	Sea: Blue, Sky: Blue, Desert: Yellow, Forest: Green, City: Grey, Space: Black, Snow: White, Meadow: Green,
}

var shapeWords = [shapeCount]string{
	Ball:     "ball sphere globe orb bubble marble planet",
	Box:      "box square cube block crate",
	Triangle: "triangle pyramid cone wedge",
	Star:     "star starfish asterisk",
	Heart:    "heart love",
	Ring:     "ring hoop donut doughnut torus circle wheel tire",
	Boat:     "boat ship sailboat yacht vessel canoe",
	Bird:     "bird gull seagull eagle dove sparrow swallow crow parrot duck",
	Fish:     "fish goldfish whale dolphin shark",
	Balloon:  "balloon airship blimp zeppelin",
	Rocket:   "rocket spaceship missile spacecraft",
}

var colourWords = [colourCount]string{
	Red:    "red crimson scarlet ruby",
	Orange: "orange amber copper",
	Yellow: "yellow gold golden lemon",
	Green:  "green emerald lime olive",
	Teal:   "teal cyan turquoise aqua",
	Blue:   "blue azure navy cobalt sapphire",
	Purple: "purple violet lilac lavender magenta indigo",
	Pink:   "pink rose rosy salmon",
	White:  "white ivory",
	Grey:   "grey gray silver",
	Brown:  "brown wooden bronze chocolate",
	Black:  "black ebony",
}

var motionWords = [motionCount]string{
	Bounce: "bounce hop jump skip leap dribble",
	Roll:   "roll slide drive tumble rush race",
	Fly:    "fly flies flight soar glide flap flying",
	Drift:  "drift float sail swim hover wander cruise",
	Orbit:  "orbit circling revolve loop round around",
	Rise:   "rise rising ascend climb launch lift up upward",
	Fall:   "fall falling drop descend sink down downward",
	Spin:   "spin rotate turn twirl whirl pirouette",
}

var sceneWords = [sceneCount]string{
	Sea:    "sea ocean water lake wave river beach bay harbour harbor",
	Sky:    "sky cloud air heaven",
	Desert: "desert dune sand sahara",
	Forest: "forest wood tree jungle pine",
	City:   "city town street skyline skyscraper road building downtown",
	Space:  "space galaxy cosmos universe nebula starry",
	Snow:   "snow mountain winter ice glacier arctic alps snowy",
	Meadow: "meadow field grass hill prairie garden lawn park",
}

var lightWords = [lightCount]string{
	Day:    "day daylight noon sunny morning bright",
	Sunset: "sunset sunrise dusk dawn evening twilight",
	Night:  "night midnight moonlight moon moonlit dark nocturnal",
}

// fillers are words that say nothing about a clip, and so deserve no warning.
var fillers = wordSet(`a an the and or of on in at over under above below across through into onto from to with by for near beside
	behind along off out is are was be being it its this that there very big small large little tiny huge one two some slowly
	quickly gently softly fast slow smooth among video clip film movie scene shot view picture animation background shiny soft nice
	beautiful cute against while as`)

// vocabulary maps each word to the one attribute value that it stands for.
var vocabulary = func() map[string]meaning {
	v := map[string]meaning{}
	for i, words := range shapeWords {
		addWords(v, words, meaning{shape: ptr(Shape(i))})
	}
	for i, words := range colourWords {
		addWords(v, words, meaning{colour: ptr(Colour(i))})
	}
	for i, words := range motionWords {
		addWords(v, words, meaning{motion: ptr(Motion(i))})
	}
	for i, words := range sceneWords {
		addWords(v, words, meaning{scene: ptr(Scene(i))})
	}
	for i, words := range lightWords {
		addWords(v, words, meaning{light: ptr(Light(i))})
	}
	return v
}()

func addWords(v map[string]meaning, words string, m meaning) {
	for _, word := range strings.Fields(words) {
		if _, taken := v[word]; taken {
			panic("bank: the word " + word + " has two meanings")
		}
		v[word] = m
	}
}

func ptr[T any](v T) *T { return &v }

func wordSet(text string) map[string]bool {
	set := map[string]bool{}
	for _, word := range strings.Fields(text) {
		set[word] = true
	}
	return set
}
