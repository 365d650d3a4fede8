package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"

	"github.com/gangd/gangd/internal/runner"
	"github.com/gangd/gangd/jobspecs/ddim/bank"
	"github.com/gangd/gangd/jobspecs/ddim/sampler"
)

// params is what a gang asks of this runner: the gang's "params", with these defaults.
type params struct {
	Prompt         string         `json:"prompt"`
	NegativePrompt string         `json:"negative_prompt"`
	Seed           uint64         `json:"seed"`
	Steps          int            `json:"steps"`
	Sampler        sampler.Solver `json:"sampler"`
	Eta            float64        `json:"eta"`
	Width          int            `json:"width"`  // of the video, in pixels
	Height         int            `json:"height"` // of the video, in pixels
	Frames         int            `json:"frames"`
	FPS            int            `json:"fps"`
	StepMillis     int            `json:"step_ms"` // a step takes at least this long

	Fail *failFault `json:"fail"`
	Exit *exitFault `json:"exit"`
	Hang *hangFault `json:"hang"`
}

func defaultParams() params {
	return params{
		Steps: 30, Sampler: sampler.DPMpp2M, Eta: 1,
		Width: 640, Height: 360, Frames: 40, FPS: 20,
	}
}

// Limits, so that one gang cannot take a node's memory or its day.
const (
	maxSteps      = 1000
	maxFrames     = 512
	maxEdge       = 1920
	maxStepMillis = 10 * 60 * 1000
	classParams   = "bad_params"
)

// parseParams reads a gang's params. Its errors are *runner.Error, not to be retried.
func parseParams(raw json.RawMessage) (params, error) {
	p := defaultParams()
	if len(bytes.TrimSpace(raw)) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&p); err != nil {
			return p, badParams("params: %v", err)
		}
		if _, err := decoder.Token(); err != io.EOF {
			return p, badParams("params: more than one JSON value")
		}
	}
	return p, p.check()
}

func (p params) check() error {
	for _, limit := range []struct {
		name           string
		got, low, high int
	}{
		{"steps", p.Steps, 1, maxSteps},
		{"frames", p.Frames, 1, maxFrames},
		{"width", p.Width, 64, maxEdge},
		{"height", p.Height, 64, maxEdge},
		{"fps", p.FPS, 1, 60},
		{"step_ms", p.StepMillis, 0, maxStepMillis},
		{"length of prompt", len(p.Prompt), 0, bank.MaxPrompt},
		{"length of negative_prompt", len(p.NegativePrompt), 0, bank.MaxPrompt},
	} {
		if limit.got < limit.low || limit.got > limit.high {
			return badParams("params: %s is %d, want %d to %d", limit.name, limit.got, limit.low, limit.high)
		}
	}
	switch {
	case p.Width%2 != 0 || p.Height%2 != 0:
		return badParams("params: width and height are %d and %d, want even numbers (H.264 halves the colour planes)", p.Width, p.Height)
	case p.Sampler != sampler.DPMpp2M && p.Sampler != sampler.DPMpp2MSDE:
		return badParams("params: sampler is %q, want %q or %q", p.Sampler, sampler.DPMpp2M, sampler.DPMpp2MSDE)
	case !(p.Eta >= 0 && p.Eta <= 4):
		return badParams("params: eta is %v, want 0 to 4", p.Eta)
	}
	return nil
}

// fingerprint names the trajectory: everything that the latents depend on, and nothing else.
func (p params) fingerprint(model string) [32]byte {
	identity := fmt.Sprintf("%q %q %q %d %d %q %x %d", model, p.Prompt, p.NegativePrompt, p.Seed, p.Steps, p.Sampler, p.Eta, p.Frames)
	return sha256.Sum256([]byte(identity))
}

func badParams(format string, args ...any) error {
	return &runner.Error{Class: classParams, Message: fmt.Sprintf(format, args...)}
}
