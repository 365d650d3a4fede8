package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"runtime"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/runner"
	"github.com/gangd/gangd/jobspecs/ddim/allreduce"
	"github.com/gangd/gangd/jobspecs/ddim/bank"
	"github.com/gangd/gangd/jobspecs/ddim/sampler"
	"github.com/gangd/gangd/jobspecs/ddim/video"
)

// modelDigest names the bank, and the processor that draws it: pictures have the same bits on one architecture only.
const modelDigest = bank.Digest + "/" + runtime.GOARCH

// clipsConsidered is how many clips of the bank a run weighs: the wanted ones and their nearest relatives.
const clipsConsidered = 16

const (
	classNotFinite = "not_finite"
	classWrite     = "write_failed"
)

// program is the reference runner.
type program struct {
	load        time.Duration // how long it pretends to load weights
	joinTimeout time.Duration
	peerTimeout time.Duration
	log         *log.Logger
}

// Load has nothing to load: it takes as long as it was told to.
func (p *program) Load(ctx context.Context) (string, error) {
	if p.load > 0 {
		timer := time.NewTimer(p.load)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
	return modelDigest, nil
}

// Run makes one video, as one rank.
func (p *program) Run(ctx context.Context, order runner.Order, progress runner.Progress) (runner.Result, error) {
	params, err := parseParams(order.Params)
	if err != nil {
		return runner.Result{}, err
	}
	if params.Frames < order.World {
		return runner.Result{}, badParams("params: %d frames cannot be spread over %d ranks", params.Frames, order.World)
	}
	r := &run{program: p, params: params, order: order, progress: progress}
	r.first = order.Rank * params.Frames / order.World
	r.frames = (order.Rank+1)*params.Frames/order.World - r.first
	result, err := r.carryOut(ctx)
	if err != nil && ctx.Err() == nil && errors.Is(err, allreduce.ErrPeerLost) {
		err = &runner.Error{Class: runner.ClassPeerLost, Retryable: true, Message: err.Error()}
	}
	return result, err
}

// run is one order on its way.
type run struct {
	*program
	params
	order    runner.Order
	progress runner.Progress

	first, frames int // this rank's share of the clip
	group         *allreduce.Group
}

func (r *run) carryOut(ctx context.Context) (runner.Result, error) {
	r.progress.Stage(runner.StageLoad)
	if err := r.params.strike(r.order, 0); err != nil {
		return runner.Result{}, err
	}
	if err := r.join(ctx); err != nil {
		return runner.Result{}, err
	}
	defer r.group.Leave()
	var state *sampler.State
	if r.order.Resume != nil {
		var err error
		if state, err = readShards(r.order.Resume, r.first, r.frames); err != nil {
			return runner.Result{}, err
		}
	}
	r.progress.Stage(runner.StageEncodeText)
	s, err := r.condition(ctx)
	if err != nil {
		return runner.Result{}, err
	}
	if state == nil {
		state = s.Start()
	}
	r.progress.Stage(runner.StageDenoise)
	if err := r.denoise(ctx, s, state); err != nil {
		return runner.Result{}, err
	}
	return r.finish(ctx, state)
}

func (r *run) join(ctx context.Context) (err error) {
	r.group, err = allreduce.Join(ctx, allreduce.Config{
		Addr:        net.JoinHostPort(r.order.Env["MASTER_ADDR"], r.order.Env["MASTER_PORT"]),
		Gang:        r.order.Gang,
		Attempt:     r.order.Number,
		Rank:        r.order.Rank,
		World:       r.order.World,
		Model:       modelDigest,
		JoinTimeout: r.joinTimeout,
		OpTimeout:   r.peerTimeout,
	})
	return err
}

// condition turns the prompt into a prior, and draws this rank's frames of the clips that it allows.
func (r *run) condition(ctx context.Context) (*sampler.Sampler, error) {
	query := bank.Parse(r.Prompt, r.NegativePrompt)
	if len(query.Unknown) > 0 && r.order.Rank == 0 {
		r.log.Printf("gang %s: the bank knows nothing of %s: the prior stays broad there", r.order.Gang, strings.Join(query.Unknown, ", "))
	}
	clips := query.Select(r.Seed, clipsConsidered)
	s := &sampler.Sampler{
		Run:     r.params.fingerprint(modelDigest),
		Solver:  r.Sampler,
		Eta:     r.Eta,
		Seed:    r.Seed,
		Sigmas:  sampler.Schedule(r.Steps),
		First:   r.first,
		Reducer: r.group,
	}
	for _, c := range clips {
		s.LogPrior = append(s.LogPrior, c.LogPrior)
	}
	for f := r.first; f < r.first+r.frames; f++ {
		renderer := bank.NewRenderer(f, r.Frames)
		var drawn [][]float32
		for _, c := range clips {
			if err := r.alive(ctx); err != nil {
				return nil, err
			}
			drawn = append(drawn, renderer.Draw(c.Clip))
		}
		s.Clips = append(s.Clips, drawn)
	}
	return s, nil
}

// alive tells why the run cannot go on.
func (r *run) alive(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return r.group.Err()
}

// denoise takes the state to the last step.
func (r *run) denoise(ctx context.Context, s *sampler.Sampler, state *sampler.State) error {
	if err := s.Check(state); err != nil {
		return &runner.Error{Class: classResume, Message: err.Error()}
	}
	for state.Step < r.Steps {
		if err := r.step(ctx, s, state); err != nil {
			return err
		}
	}
	return nil
}

// step completes one step, takes its time, tells of it, and writes a shard if one is due.
func (r *run) step(ctx context.Context, s *sampler.Sampler, state *sampler.State) error {
	began := time.Now()
	outcome, err := s.Step(ctx, state)
	if err != nil {
		return err
	}
	if err := r.lastAtLeast(ctx, began, time.Duration(r.StepMillis)*time.Millisecond); err != nil {
		return err
	}
	r.progress.Step(runner.Step{
		I: state.Step, N: r.Steps, Millis: float64(time.Since(began).Microseconds()) / 1000,
		CRC: outcome.CRC, Finite: outcome.Finite,
	})
	if !outcome.Finite {
		return &runner.Error{Class: classNotFinite, Message: fmt.Sprintf("rank %d has numbers that are not finite after step %d", r.order.Rank, state.Step)}
	}
	if r.progress.CheckpointDue(state.Step) {
		shard, err := writeShard(r.order, state)
		if err != nil {
			return err
		}
		r.progress.Checkpoint(shard)
	}
	return r.params.strike(r.order, state.Step)
}

// lastAtLeast waits until the step has taken its least time, or cannot go on.
func (r *run) lastAtLeast(ctx context.Context, began time.Time, least time.Duration) error {
	timer := time.NewTimer(least - time.Since(began))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-r.group.Broken():
	}
	return r.alive(ctx)
}

// finish brings the frames to rank 0, which makes the files.
func (r *run) finish(ctx context.Context, state *sampler.State) (runner.Result, error) {
	r.progress.Stage(runner.StageDecode)
	var block []byte
	for _, frame := range state.Latents {
		block = sampler.AppendFrame(block, frame)
	}
	blocks, err := r.group.Gather(ctx, block)
	if err != nil || r.order.Rank != 0 {
		return runner.Result{}, err
	}
	r.group.Leave()
	const values = bank.Width * bank.Height * bank.Channels
	stream := video.Stream{Width: r.Width, Height: r.Height, FPS: r.FPS}
	for _, block := range blocks {
		for ; len(block) >= 4*values; block = block[4*values:] {
			stream.Frames = append(stream.Frames, video.Frame{Width: bank.Width, Height: bank.Height, Pixels: sampler.DecodeFrame(block[:4*values])})
		}
	}
	if len(stream.Frames) != r.Frames {
		return runner.Result{}, fmt.Errorf("gather the clip: got %d frames of %d", len(stream.Frames), r.Frames)
	}
	r.progress.Stage(runner.StageWrite)
	artifact, err := video.Write(ctx, r.order.OutputDir, stream)
	if err != nil {
		if ctx.Err() != nil {
			return runner.Result{}, context.Cause(ctx)
		}
		return runner.Result{}, &runner.Error{Class: classWrite, Retryable: true, Message: err.Error()}
	}
	return runner.Result{Path: artifact.Path, Thumbnail: artifact.Thumbnail, ContentType: artifact.ContentType}, nil
}
