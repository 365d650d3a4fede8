package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gangd/gangd/internal/runner"
)

// standalone makes one video without a keeper, with all ranks in this process.
type standalone struct {
	prompt string
	params string
	seed   uint64
	world  int
	out    string
}

func (s *standalone) flags(flags *flag.FlagSet) {
	flags.StringVar(&s.prompt, "prompt", "", "by hand: make a video of this `text`")
	flags.StringVar(&s.params, "params", "", "by hand: the params as a JSON `object`; -prompt and -seed go before it")
	flags.Uint64Var(&s.seed, "seed", 0, "by hand: the seed")
	flags.IntVar(&s.world, "world", 1, "by hand: how many ranks to spread the frames over")
	flags.StringVar(&s.out, "out", ".", "by hand: the `directory` for the video")
}

func (s *standalone) wanted() bool { return s.prompt != "" || s.params != "" }

func (s *standalone) run(ctx context.Context, p *program) int {
	orders, err := s.orders()
	if err != nil {
		p.log.Print(err)
		return 2
	}
	began := time.Now()
	if _, err := p.Load(ctx); err != nil {
		p.log.Print(err)
		return 1
	}
	result, err := runTogether(ctx, p, orders, os.Stderr)
	if err != nil {
		p.log.Print(err)
		return 1
	}
	fmt.Printf("video: %s\nthumbnail: %s\ntime: %v\n", result.Path, result.Thumbnail, time.Since(began).Round(time.Millisecond))
	return 0
}

// orders are what the keepers of a gang would send.
func (s *standalone) orders() ([]runner.Order, error) {
	if s.world < 1 || s.world > maxFrames {
		return nil, fmt.Errorf("-world is %d, want 1 to %d", s.world, maxFrames)
	}
	object := map[string]any{"seed": s.seed}
	if s.params != "" {
		if err := json.Unmarshal([]byte(s.params), &object); err != nil {
			return nil, fmt.Errorf("-params: %w", err)
		}
	}
	if s.prompt != "" {
		object["prompt"] = s.prompt
	}
	if s.seed != 0 {
		object["seed"] = s.seed
	}
	params, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("-params: %w", err)
	}
	return ordersFor(runner.Attempt{Gang: "by-hand", Number: 1}, s.world, params, s.out)
}

// ordersFor gives the orders of a gang whose ranks all run on this machine.
func ordersFor(attempt runner.Attempt, world int, params json.RawMessage, dir string) ([]runner.Order, error) {
	port, err := freePort()
	if err != nil {
		return nil, fmt.Errorf("find a port for the ranks: %w", err)
	}
	peers := make([]string, world)
	for i := range peers {
		peers[i] = "127.0.0.1"
	}
	orders := make([]runner.Order, world)
	for rank := range orders {
		orders[rank] = runner.Order{
			Attempt: attempt, Rank: rank, World: world, Peers: peers, Params: params,
			Env: map[string]string{
				"RANK": strconv.Itoa(rank), "WORLD_SIZE": strconv.Itoa(world), "GROUP_RANK": "0",
				"MASTER_ADDR": peers[0], "MASTER_PORT": strconv.Itoa(port),
			},
			OutputDir: dir, CheckpointDir: filepath.Join(dir, "checkpoints"),
		}
	}
	return orders, nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// runTogether carries out all orders of a gang at the same time, and gives rank 0's result.
func runTogether(ctx context.Context, p *program, orders []runner.Order, out io.Writer) (runner.Result, error) {
	group, ctx := errgroup.WithContext(ctx)
	var first runner.Result
	for rank, order := range orders {
		group.Go(func() error {
			progress := &printedProgress{out: io.Discard}
			if rank == 0 {
				progress.out = out
			}
			result, err := p.Run(ctx, order, progress)
			if rank == 0 {
				first = result
			}
			return err
		})
	}
	err := group.Wait()
	return first, err
}

// printedProgress tells a person what happens.
type printedProgress struct{ out io.Writer }

func (p *printedProgress) Stage(stage string) { fmt.Fprintln(p.out, stage) }

func (p *printedProgress) Step(s runner.Step) {
	fmt.Fprintf(p.out, "step %d of %d, %.0f ms, crc %08x\n", s.I, s.N, s.Millis, s.CRC)
}

func (p *printedProgress) Checkpoint(c runner.Checkpoint) { fmt.Fprintln(p.out, "checkpoint", c.Path) }

func (p *printedProgress) CheckpointDue(int) bool { return false }
