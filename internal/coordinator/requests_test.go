package coordinator

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// answer is what a request was told.
type answer struct {
	gangs []gang.Status
	err   error
}

// asks makes a request, and goes on.
func asks(f func() ([]gang.Status, error)) <-chan answer {
	out := make(chan answer, 1)
	go func() {
		gangs, err := f()
		out <- answer{gangs, err}
	}()
	synctest.Wait()
	return out
}

// answered returns an answer that has to be there.
func answered(t *testing.T, of <-chan answer) answer {
	t.Helper()
	synctest.Wait()
	select {
	case a := <-of:
		return a
	default:
		t.Fatal("it waits on")
		return answer{}
	}
}

func (b *bench) submits(ctx context.Context) <-chan answer {
	return asks(func() ([]gang.Status, error) { return b.loop.Submit(ctx, []gang.Spec{simSpec(8, 8)}) })
}

func (b *bench) cancels(ctx context.Context, id gang.ID) <-chan answer {
	return asks(func() ([]gang.Status, error) {
		g, err := b.loop.Cancel(ctx, id)
		return []gang.Status{g}, err
	})
}

func (b *bench) reads(ctx context.Context, id gang.ID) <-chan answer {
	return asks(func() ([]gang.Status, error) {
		g, err := b.loop.Gang(ctx, id)
		return []gang.Status{g}, err
	})
}

// loses ends the term as Consul does.
func (b *bench) loses() {
	b.set(func() { close(b.lost) })
	synctest.Wait()
}

func TestAWatchEndsWithItsTerm(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *bench) {
		id := answered(t, b.submits(ctx)).gangs[0].ID
		slow, err := b.loop.Watch(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		quick, err := b.loop.Watch(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		<-quick
		b.loses()
		if _, open := <-quick; open {
			t.Error("who waits for news is told some of an ended term")
		}
		<-slow // what was sent before may be read
		if _, open := <-slow; open {
			t.Error("who has not read yet is told more of an ended term")
		}
		if b.loop.watchers.count != 0 {
			t.Errorf("%d watchers are left", b.loop.watchers.count)
		}
	})
}

// When much changes at once, all followers ask at once, and there is room for
// some: the others ask again.
func TestAFollowerOutlastsAMomentOfTooManyRequests(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *bench) {
		b.loop.cfg.MaxRequests = 2 // of the next term
		b.loses()
		b.decidesAgain(t, ctx)
		b.decides(t, ctx)
		id := answered(t, b.submits(ctx)).gangs[0].ID
		var watches []<-chan gang.Status
		for range 4 {
			w, err := b.loop.Watch(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			<-w
			watches = append(watches, w)
		}
		hold := make(chan struct{})
		b.set(func() { b.hold = hold })
		cancel := b.cancels(ctx, id)
		b.loop.watchers.poke(id) // one of them finds room, which it holds
		synctest.Wait()
		if a := answered(t, b.submits(ctx)); !errors.Is(a.err, gang.ErrOverloaded) {
			t.Errorf("where there is no room: %v", a.err)
		}
		b.set(func() { b.hold = nil })
		close(hold)
		if a := answered(t, cancel); a.err != nil {
			t.Error(a.err)
		}
		for i, w := range watches {
			last := gang.Status{}
			for s := range w {
				last = s
			}
			if last.State != gang.Cancelled {
				t.Errorf("follower %d saw %s last", i, last.State)
			}
		}
	})
}

// Until the commit under way has come to an end nobody knows whether what it
// writes was done; who only reads need not wait for that.
func TestWhatIsBeingWrittenWhenATermEndsIsAnsweredTruly(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *bench) {
		id := answered(t, b.submits(ctx)).gangs[0].ID
		hold := make(chan struct{})
		b.set(func() { b.hold, b.deaf = hold, true })
		cancel, read := b.cancels(ctx, id), b.reads(ctx, id)
		b.loses()
		if a := answered(t, read); !errors.Is(a.err, gang.ErrNotLeading) || errors.Is(a.err, gang.ErrOutcomeUnknown) {
			t.Errorf("who reads is told %v", a.err)
		}
		select {
		case a := <-cancel:
			t.Fatalf("the cancel is answered while it is written: %v", a.err)
		default:
		}
		close(hold)
		if a := answered(t, cancel); a.err != nil || a.gangs[0].State != gang.Cancelled {
			t.Errorf("the cancel is durable, and answered with %+v", a)
		}
	})
}

func TestACallToNomadHoldsUpNoAnswerAtTheEndOfATerm(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *bench) {
		opening := make(chan struct{})
		b.set(func() { b.opening = opening })
		id := answered(t, b.submits(ctx)).gangs[0].ID
		b.set(func() { b.hold = make(chan struct{}) })
		cancel, behind := b.cancels(ctx, id), b.submits(ctx)
		b.loses()
		if a := answered(t, behind); !errors.Is(a.err, gang.ErrNotLeading) || errors.Is(a.err, gang.ErrOutcomeUnknown) {
			t.Errorf("the submission that nobody began to write is told %v", a.err)
		}
		if a := answered(t, cancel); !errors.Is(a.err, gang.ErrNotLeading) || !errors.Is(a.err, gang.ErrOutcomeUnknown) {
			t.Errorf("the cancel whose commit broke off is told %v", a.err)
		}
		b.set(func() { b.hold, b.opening = nil, nil })
		close(opening)
	})
}

// Of several requests in one transaction those that came first may be durable.
func TestAFailedCommitIsToldToThoseWhomItConcerns(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *bench) {
		hold := make(chan struct{})
		b.set(func() { b.hold = hold })
		first := b.submits(ctx)
		second, third := b.submits(ctx), b.submits(ctx) // wait for the first
		fourth := b.reads(ctx, "nobody-00000000")
		b.set(func() { b.hold, b.fail, b.durable = nil, errors.New("refused"), 1 })
		close(hold)
		for _, durable := range []<-chan answer{first, second} {
			a := answered(t, durable)
			if a.err != nil || b.kv[gang.RecordKey(a.gangs[0].ID)] == nil {
				t.Errorf("a durable submission is told %+v", a)
			}
		}
		if a := answered(t, third); !errors.Is(a.err, gang.ErrOutcomeUnknown) {
			t.Errorf("the one that was not written is told %v", a.err)
		}
		if a := answered(t, fourth); !errors.Is(a.err, gang.ErrNotLeading) || errors.Is(a.err, gang.ErrOutcomeUnknown) {
			t.Errorf("who read what was not written is told %v", a.err)
		}
	})
}

// After its end a term may have dropped effects: what came behind them must not
// be written.
func TestNothingIsWrittenAfterTheEndOfATerm(t *testing.T) {
	for range 50 { // select is fair
		b := newBench()
		ctx, end := context.WithCancelCause(t.Context())
		w := newWriter(b.loop, &term{ctx: ctx, end: end, full: b.loop.cfg.Metrics.full, replies: newReplies(1)}, &benchTerm{bench: b})
		effects := make(chan Effects, 1)
		effects <- Effects{Batches: []gang.Batch{{{Key: "gangs/a-1", Value: []byte("{}")}}}}
		end(errors.New("over"))
		w.run(effects)
		if len(b.kv) > 0 {
			t.Fatalf("%v is written", b.kv)
		}
	}
}

func TestALimitIsToldApartFromWhatPasses(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *bench) {
		b.loop.cfg.Core.MaxQueue = 1 // of the next term
		b.loses()
		b.decidesAgain(t, ctx)
		b.decides(t, ctx)
		b.check = errors.New("Nomad does not answer")
		if a := answered(t, b.submits(ctx)); !errors.Is(a.err, gang.ErrNotNow) || errors.Is(a.err, gang.ErrOverloaded) || !errors.Is(a.err, b.check) {
			t.Errorf("while Nomad is away: %v", a.err)
		}
		b.check = nil
		if a := answered(t, b.submits(ctx)); a.err != nil {
			t.Errorf("the first of a queue of one: %v", a.err)
		}
		if a := answered(t, b.submits(ctx)); !errors.Is(a.err, gang.ErrOverloaded) || errors.Is(a.err, gang.ErrNotNow) {
			t.Errorf("the second: %v", a.err)
		}
		if n := b.counted(t, "gangd_queue_full_total"); n != 1 {
			t.Errorf("%v times a queue was full, want once", n)
		}
	})
}

func TestALeaderThatStillLearnsSaysSo(t *testing.T) {
	c := NewCore(Config{Rules: schedule.Config{Levels: []string{"leaf"}}, MaxQueue: 10})
	c.Step(simStart, Restored{})
	out := c.Step(simStart, SubmitRequest{Specs: []gang.Spec{simSpec(8, 8)}, Random: make([][5]byte, 1)})
	if err := out.Actions[0].(Answer).Err; !errors.Is(err, gang.ErrNotNow) || errors.Is(err, gang.ErrOverloaded) {
		t.Errorf("it says %v", err)
	}
}
