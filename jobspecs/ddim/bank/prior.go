package bank

import (
	"cmp"
	"math"
	"slices"
)

const (
	// The prior is a product over the attributes: a clip pays a log penalty for each one in which it is not what the
	// prompt wants. Eight lets about one video in a thousand go astray in one attribute.
	mismatchPenalty = 8.0

	// An attribute that the prompt does not mention follows the shape's habits, loosely.
	unusualPenalty = 3.0

	// MaxClips bounds the clips that Select gives, and with them memory and time.
	MaxClips = 64
)

// Weighted is a clip with its share of the prior.
type Weighted struct {
	Clip
	LogPrior float64 // the shares of one Select sum to 1
}

// Select gives the n clips with the largest prior, largest first. Clips of equal prior come in an order that depends on
// the seed alone, so that a vague prompt draws on another part of the bank for each seed.
func (q Query) Select(seed uint64, n int) []Weighted {
	n = max(1, min(n, MaxClips))
	all := q.score()
	for i := range all {
		all[i].draw = mix64(seed ^ all[i].key()*0x9E3779B97F4A7C15)
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.LogPrior, a.LogPrior), cmp.Compare(a.draw, b.draw), cmp.Compare(a.key(), b.key()))
	})
	var picked []Weighted
	for _, c := range all[:min(n, len(all))] {
		picked = append(picked, c.Weighted)
	}
	total := 0.0
	for _, w := range picked {
		total += math.Exp(w.LogPrior - picked[0].LogPrior)
	}
	norm := picked[0].LogPrior + math.Log(total)
	for i := range picked {
		picked[i].LogPrior -= norm
	}
	return picked
}

// candidate is a clip with its place among those of equal prior.
type candidate struct {
	Weighted
	draw uint64
}

// score gives every clip that could be wanted its unnormalised log prior. Lights and tints are only considered when they
// are mentioned: nobody gets a purple night by chance.
func (q Query) score() []candidate {
	lights, tints := []Light{Day}, []Tint{NoTint}
	for l := Sunset; l < lightCount; l++ {
		if q.Lights[l] > 0 || q.Lights[Day] < 0 {
			lights = append(lights, l)
		}
	}
	for t := TintOf(Red); t <= TintOf(Black); t++ {
		if q.Tints[t] > 0 {
			tints = append(tints, t)
		}
	}
	var all []candidate
	for c := (Clip{}); c.Shape < shapeCount; c.Shape++ {
		shape := penalty(q.Shapes, c.Shape)
		for c.Motion = 0; c.Motion < motionCount; c.Motion++ {
			motion := penaltyOr(q.Motions, c.Motion, usualMotions[c.Shape])
			for c.Scene = 0; c.Scene < sceneCount; c.Scene++ {
				scene := penaltyOr(q.Scenes, c.Scene, usualScenes[c.Shape])
				all = q.scoreLooks(all, c, -(shape + motion + scene), lights, tints)
			}
		}
	}
	return all
}

// scoreLooks adds the clips that share c's shape, motion and scene, whose log prior so far is base.
func (q Query) scoreLooks(all []candidate, c Clip, base float64, lights []Light, tints []Tint) []candidate {
	for c.Colour = 0; c.Colour < colourCount; c.Colour++ {
		colour := penalty(q.Colours, c.Colour)
		for _, c.Light = range lights {
			light := penalty(q.Lights, c.Light)
			for _, c.Tint = range tints {
				tint := penalty(q.Tints, c.Tint)
				for c.Variant = range variantCount {
					all = append(all, candidate{Weighted: Weighted{c, base - colour - light - tint}})
				}
			}
		}
	}
	return all
}

// penalty is what value costs: nothing when it is wanted, or when nothing is wanted and it is not avoided.
func penalty[T comparable](wants map[T]float64, value T) float64 {
	if wants[value] < 0 {
		return mismatchPenalty
	}
	if wants[value] > 0 || !anyWanted(wants) {
		return 0
	}
	return mismatchPenalty
}

func penaltyOr[T comparable](wants map[T]float64, value T, usual []T) float64 {
	p := penalty(wants, value)
	if p == 0 && !anyWanted(wants) && len(usual) > 0 && !slices.Contains(usual, value) {
		return unusualPenalty
	}
	return p
}

func anyWanted[T comparable](wants map[T]float64) bool {
	for _, w := range wants {
		if w > 0 {
			return true
		}
	}
	return false
}

// key numbers the clips of the bank.
func (c Clip) key() uint64 {
	k := uint64(c.Shape)
	k = k*uint64(colourCount) + uint64(c.Colour)
	k = k*uint64(motionCount) + uint64(c.Motion)
	k = k*uint64(sceneCount) + uint64(c.Scene)
	k = k*uint64(lightCount) + uint64(c.Light)
	k = k*uint64(colourCount+1) + uint64(c.Tint)
	return k*variantCount + uint64(c.Variant)
}
