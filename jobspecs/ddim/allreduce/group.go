package allreduce

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/gangd/gangd/jobspecs/ddim/sampler"
)

// lostTimeout bounds how long rank 0 takes to tell one peer why the gang is broken.
const lostTimeout = 200 * time.Millisecond

// Group is one rank's place among the others. Its operations are for one goroutine; all ranks call the same ones in the
// same order.
type Group struct {
	cfg    Config
	peers  []*peer // rank 0: by rank, with nil for itself; else only rank 0
	number uint32  // of the next operation

	broken context.Context // ends when the gang is broken, with the reason as its cause
	fail   context.CancelCauseFunc
	stop   func() bool
	once   sync.Once
}

// peer is the connection to another rank, with what it has sent.
type peer struct {
	rank   int
	conn   net.Conn
	inbox  chan frame
	writes sync.Mutex
}

func newGroup(ctx context.Context, cfg Config, conns []net.Conn) *Group {
	g := &Group{cfg: cfg}
	g.broken, g.fail = context.WithCancelCause(context.WithoutCancel(ctx))
	g.stop = context.AfterFunc(ctx, func() { g.breakUp(context.Cause(ctx)) })
	for rank, conn := range conns {
		if conn == nil {
			g.peers = append(g.peers, nil)
			continue
		}
		p := &peer{rank: rank, conn: conn, inbox: make(chan frame, 1)}
		g.peers = append(g.peers, p)
		go g.receive(p)
	}
	return g
}

// Broken is closed when the gang cannot go on: a rank is lost, or the context given to Join has ended.
func (g *Group) Broken() <-chan struct{} { return g.broken.Done() }

// Err tells why the gang is broken.
func (g *Group) Err() error { return context.Cause(g.broken) }

// receive reads all the time, so that a loss is noticed while this rank computes.
func (g *Group) receive(p *peer) {
	for {
		f, err := readFrame(p.conn, maxPayload)
		switch {
		case err != nil:
			g.breakUp(fmt.Errorf("%w: rank %d is gone: %w", ErrPeerLost, p.rank, err))
			return
		case f.kind == kindLost:
			reason := strings.TrimPrefix(string(f.payload), ErrPeerLost.Error()+": ")
			g.breakUp(fmt.Errorf("%w: %s", ErrPeerLost, reason))
			return
		case f.kind == kindBye:
			close(p.inbox)
			return
		}
		select {
		case p.inbox <- f:
		case <-g.broken.Done():
			return
		}
	}
}

// breakUp ends the group for good. Rank 0 tells the others the reason before it hangs up.
func (g *Group) breakUp(reason error) {
	g.once.Do(func() {
		g.fail(reason)
		var wg sync.WaitGroup
		for _, p := range g.peers {
			if p != nil {
				wg.Go(func() { g.hangUp(p, reason) })
			}
		}
		wg.Wait()
	})
}

func (g *Group) hangUp(p *peer, reason error) {
	defer p.conn.Close()
	if g.cfg.Rank != 0 || p.conn.SetWriteDeadline(time.Now().Add(lostTimeout)) != nil {
		return
	}
	p.writes.Lock() // a write that goes on ends at the deadline
	defer p.writes.Unlock()
	_ = writeFrame(p.conn, frame{kind: kindLost, payload: []byte(reason.Error())}) // its loss is seen anyway
}

// Leave ends this rank's part: it has all that it needs. The others are not disturbed.
func (g *Group) Leave() {
	g.stop()
	g.once.Do(func() {
		for _, p := range g.peers {
			if p != nil {
				_ = g.send(p, frame{kind: kindBye}) // a peer that is gone needs no farewell
				p.conn.Close()
			}
		}
		g.fail(net.ErrClosed)
	})
}

// SumInOrder adds one vector a frame over all ranks, in rank order and within a rank in its own order: the order of the
// frames. Each rank gets the same bits, whatever the number of ranks.
func (g *Group) SumInOrder(ctx context.Context, perFrame [][]float64) ([]float64, error) {
	if g.cfg.World == 1 {
		return sampler.SumInOrder(perFrame), nil
	}
	var block []byte
	for _, v := range perFrame {
		block = appendVector(block, v)
	}
	blocks, err := g.Gather(ctx, block)
	if err != nil {
		return nil, err
	}
	if g.cfg.Rank != 0 {
		answer, err := g.await(ctx, g.peers[0])
		return decodeVector(answer), err
	}
	sum, err := addBlocks(blocks, len(perFrame[0]))
	if err != nil {
		g.breakUp(err)
		return nil, err
	}
	return sum, g.answerAll(appendVector(nil, sum))
}

// addBlocks adds vectors of n numbers that lie one after the other in the blocks.
func addBlocks(blocks [][]byte, n int) ([]float64, error) {
	var rows [][]float64
	for rank, block := range blocks {
		if len(block)%(8*n) != 0 {
			return nil, fmt.Errorf("%w: rank %d sent %d bytes, not a multiple of %d numbers", ErrPeerLost, rank, len(block), n)
		}
		for ; len(block) > 0; block = block[8*n:] {
			rows = append(rows, decodeVector(block[:8*n]))
		}
	}
	return sampler.SumInOrder(rows), nil
}

// Gather brings one block of each rank to rank 0, which gets them in rank order; the others get nil as soon as theirs is sent.
func (g *Group) Gather(ctx context.Context, block []byte) ([][]byte, error) {
	number := g.number
	g.number++
	if g.cfg.Rank != 0 {
		return nil, g.send(g.peers[0], frame{kind: kindData, number: number, payload: block})
	}
	blocks := [][]byte{block}
	for rank := 1; rank < g.cfg.World; rank++ {
		theirs, err := g.await(ctx, g.peers[rank])
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, theirs)
	}
	return blocks, nil
}

func (g *Group) answerAll(payload []byte) error {
	for _, p := range g.peers[1:] {
		if err := g.send(p, frame{kind: kindData, number: g.number - 1, payload: payload}); err != nil {
			return err
		}
	}
	return nil
}

func (g *Group) send(p *peer, f frame) error {
	p.writes.Lock()
	err := p.conn.SetWriteDeadline(time.Now().Add(g.cfg.OpTimeout))
	if err == nil && g.broken.Err() == nil {
		err = writeFrame(p.conn, f)
	}
	p.writes.Unlock()
	if err != nil {
		g.breakUp(fmt.Errorf("%w: send to rank %d: %w", ErrPeerLost, p.rank, err))
	}
	return g.Err()
}

// await waits for the peer's block of the current operation.
func (g *Group) await(ctx context.Context, p *peer) ([]byte, error) {
	timeout := time.NewTimer(g.cfg.OpTimeout)
	defer timeout.Stop()
	select {
	case f, open := <-p.inbox:
		if open && f.kind == kindData && f.number == g.number-1 {
			return f.payload, nil
		}
		g.breakUp(fmt.Errorf("%w: rank %d is not at operation %d with the others", ErrPeerLost, p.rank, g.number-1))
	case <-ctx.Done():
		g.breakUp(context.Cause(ctx))
	case <-g.broken.Done():
	case <-timeout.C:
		g.breakUp(fmt.Errorf("%w: rank %d has not answered for %v", ErrPeerLost, p.rank, g.cfg.OpTimeout))
	}
	return nil, g.Err()
}
