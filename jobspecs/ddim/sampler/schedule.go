package sampler

import "math"

// The ends of the noise schedule, in units of linear light. Clips of the bank are some hundred apart, so that all of them
// are equally likely at maxSigma; at minSigma the nearest one has all the weight, and pixels are off by less than a step of
// an 8-bit picture.
const (
	maxSigma = 2000.0
	minSigma = 0.004
	rho      = 7.0
)

// Schedule gives the noise scales of a run: steps+1 of them, falling, the last one 0.
func Schedule(steps int) []float64 {
	sigmas := make([]float64, steps+1)
	high, low := math.Pow(maxSigma, 1/rho), math.Pow(minSigma, 1/rho)
	for i := range steps {
		ramp := 0.0
		if steps > 1 {
			ramp = float64(i) / float64(steps-1)
		}
		sigmas[i] = math.Pow(high+float64(ramp*(low-high)), rho)
	}
	return sigmas
}
