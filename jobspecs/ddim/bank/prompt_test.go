package bank

import (
	"math"
	"slices"
	"testing"
)

func TestPromptsChooseTheirClips(t *testing.T) {
	for _, c := range []struct {
		prompt, negative string
		want             Clip // but for the variant
	}{
		{"a red ball bounces over a blue sea", "", Clip{Shape: Ball, Colour: Red, Motion: Bounce, Scene: Sea}},
		{"Two yellow stars spinning in space!", "", Clip{Shape: Star, Colour: Yellow, Motion: Spin, Scene: Space}},
		{"a small wooden boat sails on the ocean at sunset", "", Clip{Shape: Boat, Colour: Brown, Motion: Drift, Scene: Sea, Light: Sunset}},
		{"a white gull is flying over the forest", "", Clip{Shape: Bird, Colour: White, Motion: Fly, Scene: Forest}},
		{"the balloon rises from a meadow; it is orange", "", Clip{Shape: Balloon, Colour: Orange, Motion: Rise, Scene: Meadow}},
		{"a green cube rolls along the street at night", "", Clip{Shape: Box, Colour: Green, Motion: Roll, Scene: City, Light: Night}},
		{"a purple ring rolling on a pink desert", "", Clip{Shape: Ring, Colour: Purple, Motion: Roll, Scene: Desert, Tint: TintOf(Pink)}},
		{"hearts falling onto snowy mountains, red hearts", "", Clip{Shape: Heart, Colour: Red, Motion: Fall, Scene: Snow}},
		{"a white boat drifting under the stars on a sea", "", Clip{Shape: Boat, Colour: White, Motion: Drift, Scene: Sea, Light: Night}},
		{"a pink bird flies among stars", "", Clip{Shape: Bird, Colour: Pink, Motion: Fly, Scene: Space}},
		{"a red, shiny ball rolls, snow", "", Clip{Shape: Ball, Colour: Red, Motion: Roll, Scene: Snow}},
		{"a teal rocket launches in the city", "day", Clip{Shape: Rocket, Colour: Teal, Motion: Rise, Scene: City, Light: Sunset}},
	} {
		q := Parse(c.prompt, c.negative)
		got := q.Select(7, 1)[0].Clip
		got.Variant = 0
		if c.negative == "day" && got.Light != Day { // any other light will do
			got.Light = c.want.Light
		}
		if got != c.want {
			t.Errorf("%q, not %q: got %v, want %v", c.prompt, c.negative, got, c.want)
		}
		if len(q.Unknown) > 0 {
			t.Errorf("%q: unknown words %q", c.prompt, q.Unknown)
		}
	}
}

func TestNegativePromptWeighsAgainst(t *testing.T) {
	q := Parse("a ball", "red, sea")
	for _, w := range q.Select(3, MaxClips) {
		if w.Colour == Red || w.Scene == Sea || w.Shape != Ball {
			t.Errorf("%v was picked against the prompt", w.Clip)
		}
	}
}

func TestUnknownWordsAreToldAndLeaveThePriorBroad(t *testing.T) {
	q := Parse("a frobnicating wombat, frobnicating", "quux")
	if want := []string{"frobnicating", "wombat", "quux"}; !slices.Equal(q.Unknown, want) {
		t.Errorf("unknown words %q, want %q", q.Unknown, want)
	}
	scenes, shapes := map[Scene]bool{}, map[Shape]bool{}
	for seed := range uint64(4) {
		for _, w := range q.Select(seed, MaxClips) {
			scenes[w.Scene], shapes[w.Shape] = true, true
		}
	}
	if len(scenes) < 4 || len(shapes) < 6 {
		t.Errorf("a prompt without meaning draws on %d scenes and %d shapes only", len(scenes), len(shapes))
	}
}

func TestSelectIsADistributionAndDeterministic(t *testing.T) {
	q := Parse("a red ball bounces over a blue sea", "")
	first := q.Select(7, 24)
	if !slices.Equal(first, q.Select(7, 24)) {
		t.Error("two calls differ")
	}
	total, wanted := 0.0, 0.0
	for i, w := range first {
		if i > 0 && w.LogPrior > first[i-1].LogPrior {
			t.Errorf("clip %d has more prior than the one before", i)
		}
		p := math.Exp(w.LogPrior)
		total += p
		if w.Shape == Ball && w.Colour == Red && w.Motion == Bounce && w.Scene == Sea {
			wanted += p
		}
	}
	if math.Abs(total-1) > 1e-12 || wanted < 0.99 {
		t.Errorf("the prior sums to %v, of which %v for what was asked", total, wanted)
	}
}

// Two words for one meaning would panic when the vocabulary is built; a word that its own stemming hides would not.
func TestEveryWordOfTheVocabularyIsFound(t *testing.T) {
	for word, want := range vocabulary {
		if got, ok := lookup(word); !ok || got != want {
			t.Errorf("%q is not found", word)
		}
	}
	for _, word := range []string{"balls", "ponies", "bouncing", "bounced", "spinning", "bounces", "gliding", "bluish", "buildings"} {
		if _, ok := lookup(word); ok == (word == "ponies") {
			t.Errorf("%q: found %v", word, ok)
		}
	}
}
