package sampler

import "math"

// mixture is one solver step as a sum: x' = keep x + fresh D + change (D - D_previous) + noise n.
type mixture struct {
	keep, fresh, change, noise float64
}

// coefficients gives the mixture of the step after the given number of complete steps. With t = -log sigma, h is the
// step's width in t and r the ratio of the last width to it; exp(-h) is the ratio of the noise scales.
func (s *Sampler) coefficients(step int) mixture {
	now, next := s.Sigmas[step], s.Sigmas[step+1]
	if next == 0 {
		return mixture{fresh: 1} // the limit of both solvers: the denoised clip itself
	}
	ratio := next / now
	h := math.Log(now / next)
	inverseR := 0.0 // no history yet: a first-order step
	if step > 0 {
		inverseR = h / math.Log(s.Sigmas[step-1]/now)
	}
	if s.Solver != DPMpp2MSDE {
		return mixture{keep: ratio, fresh: 1 - ratio, change: (1 - ratio) * inverseR / 2}
	}
	decay := math.Exp(-s.Eta * h)
	fresh := 1 - float64(ratio*decay)
	return mixture{
		keep:   ratio * decay,
		fresh:  fresh,
		change: fresh * inverseR / 2,
		noise:  next * math.Sqrt(math.Max(0, 1-float64(decay*decay))),
	}
}

// advance takes x, one frame, to the next noise scale.
func (s *Sampler) advance(x, denoised, previous []float32, m mixture, step, frame int) {
	var noise []float32
	if m.noise > 0 {
		noise = make([]float32, len(x))
		gaussian(noise, s.Seed, step+1, frame)
	}
	for i := range x {
		d := float64(denoised[i])
		v := float64(m.keep*float64(x[i])) + float64(m.fresh*d)
		if previous != nil {
			v += float64(m.change * (d - float64(previous[i])))
		}
		if noise != nil {
			v += float64(m.noise * float64(noise[i]))
		}
		x[i] = float32(v)
	}
}
