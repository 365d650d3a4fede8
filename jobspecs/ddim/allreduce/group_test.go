package allreduce

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gangd/gangd/jobspecs/ddim/sampler"
)

func config(t *testing.T, world int) Config {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return Config{Addr: l.Addr().String(), Gang: "sea", Attempt: 2, World: world, Model: "m",
		JoinTimeout: 10 * time.Second, OpTimeout: 10 * time.Second}
}

func as(cfg Config, rank int) Config {
	cfg.Rank = rank
	return cfg
}

// together joins all ranks and gives their groups.
func together(t *testing.T, ctx context.Context, cfg Config) []*Group {
	t.Helper()
	groups := make([]*Group, cfg.World)
	each(t, cfg.World, func(rank int) error {
		var err error
		groups[rank], err = Join(ctx, as(cfg, rank))
		return err
	})
	return groups
}

func each(t *testing.T, n int, do func(rank int) error) {
	t.Helper()
	var wg sync.WaitGroup
	for rank := range n {
		wg.Go(func() {
			if err := do(rank); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// The summands differ by orders of magnitude, so that another order would give other bits.
func TestSumsHaveTheSameBitsAtEveryWorldSize(t *testing.T) {
	const frames, clips = 16, 5
	random := rand.New(rand.NewPCG(1, 2))
	perFrame := make([][]float64, frames)
	for f := range perFrame {
		for range clips {
			perFrame[f] = append(perFrame[f], math.Exp(40*random.Float64()))
		}
	}
	want := sampler.SumInOrder(perFrame)
	for _, world := range []int{1, 2, 3, 4, 5, 8, 16} {
		groups := together(t, t.Context(), config(t, world))
		for range 3 {
			each(t, world, func(rank int) error {
				got, err := groups[rank].SumInOrder(t.Context(), perFrame[rank*frames/world:(rank+1)*frames/world])
				if err == nil && !reflect.DeepEqual(got, want) {
					err = fmt.Errorf("world %d: got %v, want %v", world, got, want)
				}
				return err
			})
		}
		each(t, world, func(rank int) error {
			blocks, err := groups[rank].Gather(t.Context(), []byte{byte(rank)})
			groups[rank].Leave() // the others may be gone before rank 0 has read
			if rank == 0 && len(blocks) != world || rank != 0 && blocks != nil {
				return fmt.Errorf("gathered %v", blocks)
			}
			for i, b := range blocks {
				if len(b) != 1 || b[0] != byte(i) {
					return fmt.Errorf("gathered %v", blocks)
				}
			}
			return err
		})
	}
}

// Strangers and ranks of a stale attempt are refused with the reason, and do not disturb the gang.
func TestStrangersAreRefused(t *testing.T) {
	cfg := config(t, 2)
	joined := make(chan *Group, 2)
	join := func(rank int) {
		g, err := Join(t.Context(), as(cfg, rank))
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
		joined <- g
	}
	go join(0)
	for _, c := range []struct {
		change func(*Config)
		says   string
	}{
		{func(c *Config) { c.Attempt = 1 }, "this is attempt 2, not 1"},
		{func(c *Config) { c.Gang = "sky" }, `this is gang "sea", not "sky"`},
		{func(c *Config) { c.World = 3 }, "a world of 2 ranks, not of 3"},
		{func(c *Config) { c.Model = "other" }, `this is model "m", not "other"`},
		{func(c *Config) { c.World, c.Rank = 2, 9 }, "no place for a rank 9"},
	} {
		wrong := as(cfg, 1)
		wrong.JoinTimeout = 400 * time.Millisecond
		c.change(&wrong)
		if g, err := Join(t.Context(), wrong); g != nil || !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("got %v, want a refusal that says %q", err, c.says)
		}
	}
	silent, err := net.Dial("tcp", cfg.Addr) // says nothing, and holds nobody up
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	browser, err := net.Dial("tcp", cfg.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer browser.Close()
	if _, err := browser.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	join(1)
	for range 2 {
		if g := <-joined; g != nil {
			defer g.Leave()
		}
	}
}

func TestASecondRankOfTheSameNumberIsRefused(t *testing.T) {
	cfg := config(t, 3)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go Join(ctx, as(cfg, 0))
	if _, err := Join(ctx, as(cfg, 1)); err != nil {
		t.Fatal(err)
	}
	twin := as(cfg, 1)
	twin.JoinTimeout = 300 * time.Millisecond
	if _, err := Join(ctx, twin); !errors.Is(err, ErrRefused) && !errors.Is(err, ErrPeerLost) {
		t.Errorf("got %v", err)
	}
}

func TestAPartialGangDoesNotStart(t *testing.T) {
	cfg := config(t, 3)
	cfg.JoinTimeout = 300 * time.Millisecond
	for _, rank := range []int{0, 1} {
		if _, err := Join(t.Context(), as(cfg, rank)); !errors.Is(err, ErrPeerLost) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// When one rank dies all others know at once, though none of them waits for it, and though its neighbour is silent.
func TestALostRankIsSeenByAll(t *testing.T) {
	groups := together(t, t.Context(), config(t, 4))
	began := time.Now()
	groups[3].peers[0].conn.Close() // as when its process is killed
	for rank, g := range groups {
		select {
		case <-g.Broken():
		case <-time.After(5 * time.Second):
			t.Fatalf("rank %d does not know", rank)
		}
		if _, err := g.SumInOrder(t.Context(), [][]float64{{1}}); !errors.Is(err, ErrPeerLost) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("that took %v", took)
	}
	if err := groups[1].Err(); !strings.Contains(err.Error(), "rank 3") && !strings.Contains(err.Error(), "rank 0") {
		t.Errorf("rank 1 was told %v", err)
	}
}

func TestASilentRankIsGivenUp(t *testing.T) {
	cfg := config(t, 3)
	cfg.OpTimeout = 200 * time.Millisecond
	groups := together(t, t.Context(), cfg)
	each(t, 2, func(rank int) error { // rank 2 hangs
		if _, err := groups[rank].SumInOrder(t.Context(), [][]float64{{1}}); !errors.Is(err, ErrPeerLost) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}

func TestCancelBreaksTheGang(t *testing.T) {
	reason := errors.New("cancelled by the user")
	ctx, cancel := context.WithCancelCause(t.Context())
	groups := together(t, ctx, config(t, 2))
	cancel(reason)
	each(t, 2, func(rank int) error {
		if _, err := groups[rank].SumInOrder(ctx, [][]float64{{1}}); !errors.Is(err, reason) && !errors.Is(err, ErrPeerLost) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}

func TestRanksOutOfStepAreNotAdded(t *testing.T) {
	groups := together(t, t.Context(), config(t, 2))
	if _, err := groups[1].Gather(t.Context(), []byte{1, 2, 3}); err != nil { // no multiple of a vector
		t.Fatal(err)
	}
	if _, err := groups[0].SumInOrder(t.Context(), [][]float64{{1}}); !errors.Is(err, ErrPeerLost) {
		t.Errorf("got %v", err)
	}
}
