package sampler

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// Solver names a way from one noise scale to the next.
type Solver string

const (
	DPMpp2M    Solver = "dpmpp_2m"     // DPM-Solver++(2M): deterministic given the first noise
	DPMpp2MSDE Solver = "dpmpp_2m_sde" // its stochastic relative: fresh noise at every step
)

// Reducer adds up, over all ranks and in frame order, one vector a frame. Each rank gives the vectors of its own frames
// and gets the sum.
type Reducer interface {
	SumInOrder(ctx context.Context, perFrame [][]float64) ([]float64, error)
}

// Local is the Reducer of a single rank that has all frames.
type Local struct{}

// SumInOrder adds the vectors from the first to the last.
func (Local) SumInOrder(_ context.Context, perFrame [][]float64) ([]float64, error) {
	return SumInOrder(perFrame), nil
}

// SumInOrder adds vectors of one length from the first to the last: the order that every Reducer has to keep.
func SumInOrder(perFrame [][]float64) []float64 {
	if len(perFrame) == 0 {
		return nil
	}
	sum := make([]float64, len(perFrame[0]))
	for _, frame := range perFrame {
		for k, v := range frame {
			sum[k] += v
		}
	}
	return sum
}

// Sampler carries one rank's frames from noise to a clip.
type Sampler struct {
	Run    [32]byte // fingerprint, for State
	Solver Solver
	Eta    float64 // how much of the noise the SDE solver renews: 0 makes it deterministic, 1 is the usual
	Seed   uint64
	Sigmas []float64 // see Schedule

	First    int           // number of this rank's first frame
	LogPrior []float64     // of each clip
	Clips    [][][]float32 // [frame of this rank][clip], linear RGB

	Reducer Reducer
}

// Outcome is what a step says about itself.
type Outcome struct {
	Weights []float64 // the posterior of the clips: equal on all ranks
	CRC     uint32    // of Weights
	Finite  bool      // no NaN and no infinity in this rank's latents
}

// Start gives the state before the first step: noise at the schedule's first scale.
func (s *Sampler) Start() *State {
	state := &State{Run: s.Run, First: s.First, Latents: make([][]float32, len(s.Clips))}
	for f := range state.Latents {
		x := make([]float32, len(s.Clips[f][0]))
		gaussian(x, s.Seed, 0, s.First+f)
		for i := range x {
			x[i] = float32(float64(x[i]) * s.Sigmas[0])
		}
		state.Latents[f] = x
	}
	return state
}

// Check tells whether the state fits this sampler. Its errors wrap ErrState.
func (s *Sampler) Check(state *State) error {
	switch {
	case state.Run != s.Run:
		return fmt.Errorf("%w: it belongs to a run with other parameters", ErrState)
	case state.Step < 0 || state.Step >= len(s.Sigmas):
		return fmt.Errorf("%w: step %d of %d", ErrState, state.Step, len(s.Sigmas)-1)
	case state.First != s.First || len(state.Latents) != len(s.Clips):
		return fmt.Errorf("%w: it holds frames %d to %d, this rank has %d to %d", ErrState,
			state.First, state.First+len(state.Latents)-1, s.First, s.First+len(s.Clips)-1)
	case (state.Step > 0) != (state.Previous != nil):
		return fmt.Errorf("%w: the solver's history is missing, or comes before the first step", ErrState)
	}
	for f, x := range state.Latents {
		if len(x) != len(s.Clips[f][0]) {
			return fmt.Errorf("%w: frames of %d values, want %d", ErrState, len(x), len(s.Clips[f][0]))
		}
	}
	return nil
}

// Step completes one step and changes the state in place. After an error the state is as it was.
func (s *Sampler) Step(ctx context.Context, state *State) (Outcome, error) {
	distances := make([][]float64, len(state.Latents))
	eachFrame(len(distances), func(f int) {
		row := make([]float64, len(s.Clips[f]))
		for k, clip := range s.Clips[f] {
			row[k] = squaredDistance(state.Latents[f], clip)
		}
		distances[f] = row
	})
	total, err := s.Reducer.SumInOrder(ctx, distances)
	if err != nil {
		return Outcome{}, fmt.Errorf("reduce the distances of step %d: %w", state.Step+1, err)
	}
	if len(total) != len(s.LogPrior) {
		return Outcome{}, fmt.Errorf("reduce the distances of step %d: got %d sums for %d clips", state.Step+1, len(total), len(s.LogPrior))
	}
	weights := posterior(s.LogPrior, total, s.Sigmas[state.Step])
	mix := s.coefficients(state.Step)
	finite := make([]bool, len(state.Latents))
	denoised := make([][]float32, len(state.Latents))
	eachFrame(len(denoised), func(f int) {
		denoised[f] = mean(weights, s.Clips[f])
		var previous []float32
		if state.Previous != nil {
			previous = state.Previous[f]
		}
		s.advance(state.Latents[f], denoised[f], previous, mix, state.Step, state.First+f)
		finite[f] = allFinite(state.Latents[f])
	})
	state.Previous = denoised
	state.Step++
	outcome := Outcome{Weights: weights, CRC: checksum(weights), Finite: true}
	for _, ok := range finite {
		outcome.Finite = outcome.Finite && ok
	}
	return outcome, nil
}

// squaredDistance adds in an order that depends on nothing but the length: four interleaved sums, which the processor can
// work on at the same time.
func squaredDistance(x, c []float32) float64 {
	var sum [4]float64
	c = c[:len(x)]
	n := len(x) &^ 3
	for i := 0; i < n; i += 4 {
		d0 := float64(x[i]) - float64(c[i])
		d1 := float64(x[i+1]) - float64(c[i+1])
		d2 := float64(x[i+2]) - float64(c[i+2])
		d3 := float64(x[i+3]) - float64(c[i+3])
		sum[0] += float64(d0 * d0)
		sum[1] += float64(d1 * d1)
		sum[2] += float64(d2 * d2)
		sum[3] += float64(d3 * d3)
	}
	for i := n; i < len(x); i++ {
		d := float64(x[i]) - float64(c[i])
		sum[0] += float64(d * d)
	}
	return (sum[0] + sum[1]) + (sum[2] + sum[3])
}

func posterior(logPrior, distance []float64, sigma float64) []float64 {
	w := make([]float64, len(logPrior))
	top := math.Inf(-1)
	for k := range w {
		w[k] = logPrior[k] - distance[k]/(2*sigma*sigma)
		top = math.Max(top, w[k])
	}
	total := 0.0
	for k := range w {
		w[k] = math.Exp(w[k] - top)
		total += w[k]
	}
	for k := range w {
		w[k] /= total
	}
	return w
}

// mean gives sum_k weights[k] clips[k]. Clips whose weight cannot change a pixel are left out.
func mean(weights []float64, clips [][]float32) []float32 {
	const negligible = 1e-12
	sum := make([]float64, len(clips[0]))
	for k, w := range weights {
		if w < negligible {
			continue
		}
		for i, v := range clips[k] {
			sum[i] += float64(w * float64(v))
		}
	}
	out := make([]float32, len(sum))
	for i, v := range sum {
		out[i] = float32(v)
	}
	return out
}

func allFinite(x []float32) bool {
	for _, v := range x {
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return false
		}
	}
	return true
}

func checksum(weights []float64) uint32 {
	var bytes []byte
	for _, w := range weights {
		bytes = binary.LittleEndian.AppendUint64(bytes, math.Float64bits(w))
	}
	return crc32.Checksum(bytes, castagnoli)
}

// eachFrame calls work for 0 to n-1 on as many processors as there are. Frames are independent, so the order is free.
func eachFrame(n int, work func(f int)) {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for f := range n {
		group.Go(func() error {
			work(f)
			return nil
		})
	}
	_ = group.Wait() // work returns no errors
}
