package bank

import (
	"slices"
	"strings"
	"unicode"
)

// MaxPrompt is the longest prompt in bytes; Parse reads no further.
const MaxPrompt = 4096

// Query is what a prompt asks of each attribute. An attribute without an entry was not mentioned.
type Query struct {
	Shapes  map[Shape]float64 // > 0 wanted, < 0 to be avoided
	Colours map[Colour]float64
	Motions map[Motion]float64
	Scenes  map[Scene]float64
	Lights  map[Light]float64
	Tints   map[Tint]float64

	// starry is set when the word "stars" was read: a shape in "two stars spin", the night in "a boat under the stars".
	starry bool

	// Unknown are the words, in order and once each, that mean nothing to the bank and are no filler.
	Unknown []string
}

// meaning is what one word says. Exactly one of the pointers is set.
type meaning struct {
	shape  *Shape
	colour *Colour
	motion *Motion
	scene  *Scene
	light  *Light
}

// reach is how many words may stand between a colour and the noun that it colours ("a red and shiny ball").
const reach = 2

// Parse reads a prompt and a negative prompt. A colour belongs to the noun that follows it closely: to the shape, or to
// the scene as its tint; a colour without such a noun belongs to the shape.
func Parse(prompt, negative string) Query {
	q := Query{
		Shapes: map[Shape]float64{}, Colours: map[Colour]float64{}, Motions: map[Motion]float64{},
		Scenes: map[Scene]float64{}, Lights: map[Light]float64{}, Tints: map[Tint]float64{},
	}
	q.read(prompt, +1)
	q.read(negative, -1)
	q.settleStars()
	return q
}

// settleStars takes stars for the scenery when something else is the shape.
func (q *Query) settleStars() {
	others := len(q.Shapes)
	if q.Shapes[Star] > 0 {
		others--
	}
	if !q.starry || q.Shapes[Star] <= 0 || others == 0 {
		return
	}
	delete(q.Shapes, Star)
	if anyWanted(q.Scenes) {
		q.Lights[Night]++
	} else {
		q.Scenes[Space]++
	}
}

func (q *Query) read(text string, sign float64) {
	var colour *Colour // seen, not yet bound to a noun
	age := 0
	bind := func() {
		if colour != nil {
			q.Colours[*colour] += sign
			colour = nil
		}
	}
	for _, word := range words(text) {
		if word == clauseEnd {
			bind()
			continue
		}
		q.starry = q.starry || word == "stars" && sign > 0
		m, known := lookup(word)
		age++
		if age > reach+1 {
			bind()
		}
		switch {
		case !known:
			if !fillers[word] && !slices.Contains(q.Unknown, word) {
				q.Unknown = append(q.Unknown, word)
			}
		case m.colour != nil:
			bind()
			colour, age = m.colour, 0
		case m.shape != nil:
			q.Shapes[*m.shape] += sign
			bind()
		case m.scene != nil:
			q.Scenes[*m.scene] += sign
			if colour != nil {
				if *colour != naturalColour[*m.scene] {
					q.Tints[TintOf(*colour)] += sign
				}
				colour = nil
			}
		case m.motion != nil:
			q.Motions[*m.motion] += sign
		case m.light != nil:
			q.Lights[*m.light] += sign
		}
	}
	bind()
}

// clauseEnd stands for punctuation in what words gives. A colour does not reach across it.
const clauseEnd = "."

func words(text string) []string {
	if len(text) > MaxPrompt {
		text = text[:MaxPrompt]
	}
	spaced := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r), strings.ContainsRune(clauseEnd, r):
			return unicode.ToLower(r)
		case strings.ContainsRune(",;:!?", r):
			return rune(clauseEnd[0])
		}
		return ' '
	}, text)
	return strings.Fields(strings.ReplaceAll(spaced, clauseEnd, " "+clauseEnd+" "))
}

// lookup finds a word, or its stem without a plural's or a verb's ending.
func lookup(word string) (meaning, bool) {
	for _, stem := range stems(word) {
		if m, ok := vocabulary[stem]; ok {
			return m, true
		}
	}
	return meaning{}, false
}

func stems(word string) []string {
	out := []string{word}
	for _, e := range []struct{ ending, instead string }{
		{"ies", "y"}, {"es", ""}, {"es", "e"}, {"s", ""}, {"ing", ""}, {"ing", "e"}, {"ed", ""}, {"ed", "e"}, {"ish", ""}, {"ish", "e"}, {"y", ""},
	} {
		stem, found := strings.CutSuffix(word, e.ending)
		if !found || len(stem) < 2 {
			continue
		}
		out = append(out, stem+e.instead)
		if n := len(stem); n > 2 && stem[n-1] == stem[n-2] { // spinning, spin
			out = append(out, stem[:n-1])
		}
	}
	return out
}
