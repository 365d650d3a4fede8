package sampler

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const values = 48

// toy is a sampler for small random clips.
func toy(solver Solver, seed uint64, steps, clips, frames int) *Sampler {
	s := &Sampler{Run: [32]byte{1, byte(steps)}, Solver: solver, Eta: 1, Seed: seed, Sigmas: Schedule(steps), Reducer: Local{}}
	for range clips {
		s.LogPrior = append(s.LogPrior, -math.Log(float64(clips)))
	}
	for f := range frames {
		var row [][]float32
		for k := range clips {
			clip := make([]float32, values)
			gaussian(clip, uint64(k)+99, f, 0)
			row = append(row, clip)
		}
		s.Clips = append(s.Clips, row)
	}
	return s
}

func complete(t *testing.T, s *Sampler, state *State) Outcome {
	t.Helper()
	var last Outcome
	for state.Step < len(s.Sigmas)-1 {
		var err error
		if last, err = s.Step(t.Context(), state); err != nil {
			t.Fatal(err)
		}
		if !last.Finite {
			t.Fatalf("step %d is not finite", state.Step)
		}
	}
	return last
}

// chosen gives the clip that the latents have become, or -1.
func chosen(s *Sampler, state *State) int {
	for k := range s.LogPrior {
		worst := 0.0
		for f, x := range state.Latents {
			for i := range x {
				worst = math.Max(worst, math.Abs(float64(x[i]-s.Clips[f][k][i])))
			}
		}
		if worst < 1e-3 {
			return k
		}
	}
	return -1
}

// Published vectors of Random123 (kat_vectors, philox4x32 10).
func TestPhilox(t *testing.T) {
	const all = math.MaxUint32
	for _, c := range []struct {
		counter [4]uint32
		key     [2]uint32
		want    [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{all, all, all, all}, [2]uint32{all, all}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0}, [4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		if got := philox(c.counter, c.key); got != c.want {
			t.Errorf("philox(%x, %x) = %x, want %x", c.counter, c.key, got, c.want)
		}
	}
}

func TestGaussianMoments(t *testing.T) {
	x := make([]float32, 200_001) // not a multiple of four
	gaussian(x, 5, 2, 3)
	var mean, square, fourth float64
	for _, v := range x {
		f := float64(v)
		mean, square, fourth = mean+f, square+f*f, fourth+f*f*f*f
	}
	n := float64(len(x))
	if mean, square, fourth = mean/n, square/n, fourth/n; math.Abs(mean) > 0.01 || math.Abs(square-1) > 0.015 || math.Abs(fourth-3) > 0.1 {
		t.Errorf("moments 1, 2, 4 are %v, %v, %v; want 0, 1, 3", mean, square, fourth)
	}
}

func TestScheduleFallsToZero(t *testing.T) {
	for _, steps := range []int{1, 2, 30} {
		s := Schedule(steps)
		if len(s) != steps+1 || s[0] != maxSigma && math.Abs(s[0]-maxSigma) > 1e-9 || s[steps] != 0 {
			t.Errorf("%d steps: %v", steps, s)
		}
		for i := 1; i <= steps; i++ {
			if s[i] >= s[i-1] {
				t.Errorf("%d steps: does not fall at %d: %v", steps, i, s)
			}
		}
	}
}

func TestConvergesToClipsByTheirPrior(t *testing.T) {
	for _, solver := range []Solver{DPMpp2M, DPMpp2MSDE} {
		const runs, clips = 300, 3
		counts := make([]int, clips)
		for seed := range uint64(runs) {
			s := toy(solver, seed, 24, clips, 2)
			s.LogPrior = []float64{math.Log(0.6), math.Log(0.3), math.Log(0.1)}
			state := s.Start()
			complete(t, s, state)
			k := chosen(s, state)
			if k < 0 {
				t.Fatalf("%s, seed %d: the latents are no clip", solver, seed)
			}
			counts[k]++
		}
		for k, p := range []float64{0.6, 0.3, 0.1} { // within four standard deviations
			if diff := math.Abs(float64(counts[k]) - runs*p); diff > 4*math.Sqrt(runs*p*(1-p)) {
				t.Errorf("%s: clip %d came %d times in %d runs, its prior is %v", solver, k, counts[k], runs, p)
			}
		}
	}
}

// One clip is a linear problem with the solution x(sigma) = c + sigma (x0 - c) / sigma0: the deterministic solver must follow it.
func TestFollowsTheExactSolution(t *testing.T) {
	s := toy(DPMpp2M, 4, 12, 1, 1)
	state := s.Start()
	start := slices.Clone(state.Latents[0])
	for state.Step < 12 {
		if _, err := s.Step(t.Context(), state); err != nil {
			t.Fatal(err)
		}
		sigma := s.Sigmas[state.Step]
		for i, x := range state.Latents[0] {
			c := float64(s.Clips[0][0][i])
			want := c + sigma*(float64(start[i])-c)/s.Sigmas[0]
			if math.Abs(float64(x)-want) > 1e-5*(1+math.Abs(want)) {
				t.Fatalf("step %d, value %d: %v, want %v", state.Step, i, x, want)
			}
		}
	}
}

// With one clip, latents at sigma are spread around it by sigma: the stochastic solver must keep that.
func TestStochasticSolverKeepsTheSpread(t *testing.T) {
	s := toy(DPMpp2MSDE, 4, 20, 1, 60)
	state := s.Start()
	for state.Step < 19 {
		if _, err := s.Step(t.Context(), state); err != nil {
			t.Fatal(err)
		}
		square := 0.0
		for f, x := range state.Latents {
			for i, v := range x {
				d := (float64(v) - float64(s.Clips[f][0][i])) / s.Sigmas[state.Step]
				square += d * d
			}
		}
		if spread := square / (60 * values); math.Abs(spread-1) > 0.12 {
			t.Errorf("step %d: variance %v sigma^2, want 1", state.Step, spread)
		}
	}
}

func TestStochasticAndDeterministicDiffer(t *testing.T) {
	latents := func(solver Solver, eta float64) [][]float32 {
		s := toy(solver, 11, 10, 4, 2)
		s.Eta = eta
		state := s.Start()
		for range 5 {
			if _, err := s.Step(t.Context(), state); err != nil {
				t.Fatal(err)
			}
		}
		return state.Latents
	}
	if reflect.DeepEqual(latents(DPMpp2M, 1), latents(DPMpp2MSDE, 1)) {
		t.Error("the stochastic solver adds nothing")
	}
	for i, x := range latents(DPMpp2MSDE, 0)[0] { // eta 0 is the deterministic one, but for rounding
		if y := latents(DPMpp2M, 1)[0][i]; math.Abs(float64(x-y)) > 1e-3*(1+math.Abs(float64(x))) {
			t.Fatalf("eta 0: value %d is %v, the deterministic solver has %v", i, x, y)
		}
	}
}

// Resuming at every step, through bytes, gives the bits of the run that was never stopped.
func TestResumeAtEveryStep(t *testing.T) {
	for _, solver := range []Solver{DPMpp2M, DPMpp2MSDE} {
		const steps = 9
		s := toy(solver, 3, steps, 5, 4)
		whole := s.Start()
		complete(t, s, whole)
		for stop := range steps + 1 {
			state := s.Start()
			for state.Step < stop {
				if _, err := s.Step(t.Context(), state); err != nil {
					t.Fatal(err)
				}
			}
			back, err := DecodeState(state.Encode())
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Check(back); err != nil {
				t.Fatal(err)
			}
			complete(t, s, back)
			if !reflect.DeepEqual(back, whole) {
				t.Errorf("%s, stopped after step %d: another result", solver, stop)
			}
		}
	}
}

func TestHistoryMatters(t *testing.T) {
	s := toy(DPMpp2M, 3, 9, 5, 2)
	state := s.Start()
	for state.Step < 4 {
		if _, err := s.Step(t.Context(), state); err != nil {
			t.Fatal(err)
		}
	}
	state.Previous = nil
	if err := s.Check(state); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), "history") {
		t.Errorf("a state without history passed: %v", err)
	}
}

func TestDecodeStateRefusesDamage(t *testing.T) {
	s := toy(DPMpp2M, 3, 4, 2, 1)
	state := s.Start()
	if _, err := s.Step(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	data := state.Encode()
	for n := range data { // cut anywhere, as by a crash in the middle of a write
		if _, err := DecodeState(data[:n]); !errors.Is(err, ErrState) {
			t.Fatalf("the first %d bytes: %v", n, err)
		}
	}
	for i := range data {
		bad := slices.Clone(data)
		bad[i] ^= 0x10
		if _, err := DecodeState(bad); !errors.Is(err, ErrState) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
	}
	other := *s
	other.Run[0]++
	if err := other.Check(state); !errors.Is(err, ErrState) {
		t.Errorf("a state of another run passed: %v", err)
	}
}

func TestAssembleAcrossWorldSizes(t *testing.T) {
	s := toy(DPMpp2M, 3, 4, 2, 6)
	state := s.Start()
	if _, err := s.Step(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	part := func(first, end int) *State {
		return &State{Run: state.Run, Step: state.Step, First: first, Latents: state.Latents[first:end], Previous: state.Previous[first:end]}
	}
	shards := []*State{part(4, 6), part(0, 2), part(2, 4)}
	for _, cut := range [][2]int{{0, 6}, {0, 1}, {1, 5}, {3, 6}} {
		got, err := Assemble(shards, cut[0], cut[1]-cut[0])
		if err != nil || !reflect.DeepEqual(got, part(cut[0], cut[1])) {
			t.Errorf("frames %v: %v", cut, err)
		}
	}
	stale := part(2, 4)
	stale.Step++
	for name, bad := range map[string][]*State{
		"none": nil, "a gap": {shards[0], shards[1]}, "another step": {shards[0], shards[1], stale},
	} {
		if _, err := Assemble(bad, 0, 6); !errors.Is(err, ErrState) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
