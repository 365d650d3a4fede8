package coordinator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/gangd/gangd/internal/gang"
	"github.com/gangd/gangd/internal/schedule"
)

// bench is a loop with stand-ins around it: they fail when they are told to,
// which the real parts cannot be made to do.
type bench struct {
	loop *Loop

	mu      sync.Mutex
	kv      map[string][]byte
	terms   uint64
	hold    chan struct{} // commits wait while it is set
	deaf    bool          // and do not notice that their term ends
	fail    error         // the next commit's answer, after so many batches
	durable int
	lost    chan struct{} // of the present term
	calls   []string      // to Nomad, as they end
	opening chan struct{} // OpenLane waits while it is set
	purging chan struct{} // PurgeLane, too
	inNomad int           // calls under way
	opened  []OpenLane
	refuse  error // OpenLane's answer where a version is ordered
	check   error // CheckTemplate's answer
	orders  []Action
	pulses  int
	away    error        // Watch's answer, at once
	log     bytes.Buffer // what is logged as an error
}

func newBench() *bench {
	b := &bench{kv: make(map[string][]byte)}
	b.loop = NewLoop(LoopConfig{
		Core: Config{
			Rules:        schedule.Config{Levels: []string{"leaf"}, Tiers: []schedule.Tier{{Name: "production", Priority: 200}}},
			ReadyTimeout: time.Minute, Lease: 15 * time.Second, MaxQueue: 100, MaxFinished: 100,
		},
		Store: b, Nomad: b, Nodes: b, Blobs: b, Log: hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: &b.log}),
	})
	return b
}

func (b *bench) Campaign(ctx context.Context) (Term, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.terms++
	b.lost = make(chan struct{})
	return &benchTerm{b, gang.Fence{Epoch: 1, Index: b.terms}, b.lost}, ctx.Err()
}

func (b *bench) Load(_ context.Context, prefix string) ([]KV, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []KV
	for key, value := range b.kv {
		if len(key) > len(prefix) && key[:len(prefix)] == prefix {
			out = append(out, KV{key, value})
		}
	}
	return out, nil
}

type benchTerm struct {
	*bench
	fence gang.Fence
	lost  chan struct{}
}

func (t *benchTerm) Fence() gang.Fence            { return t.fence }
func (t *benchTerm) Lost() <-chan struct{}        { return t.lost }
func (t *benchTerm) Resign(context.Context) error { return nil }

func (t *benchTerm) Pulse() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pulses++
}

func (t *benchTerm) Commit(ctx context.Context, batches []gang.Batch) (int, error) {
	t.mu.Lock()
	hold, fail, durable := t.hold, t.fail, t.durable
	if t.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	t.fail = nil
	t.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	if fail != nil {
		batches = batches[:durable]
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, batch := range batches {
		for _, c := range batch {
			if c.Value == nil {
				delete(t.kv, c.Key)
			} else {
				t.kv[c.Key] = c.Value
			}
		}
	}
	return len(batches), fail
}

func (b *bench) CheckTemplate(_ context.Context, name string) (Template, error) {
	if b.check != nil {
		return Template{}, b.check
	}
	if name != "ddim" {
		return Template{}, fmt.Errorf("no job %q: %w", name, ErrTemplate)
	}
	return Template{Version: 7, Estimate: 90 * time.Second, ReadyTimeout: 10 * time.Minute}, nil
}

func (b *bench) OpenLane(_ context.Context, o OpenLane) (uint64, error) {
	b.called("open "+o.Job, &b.opening)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opened = append(b.opened, o)
	if o.TemplateVersion != 0 {
		return o.TemplateVersion, b.refuse
	}
	return 1, nil
}

func (b *bench) PurgeLane(_ context.Context, job string) error {
	b.called("purge "+job, &b.purging)
	return nil
}

func (b *bench) called(what string, gate *chan struct{}) {
	b.mu.Lock()
	b.inNomad++
	wait := *gate
	b.mu.Unlock()
	if wait != nil {
		<-wait
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inNomad--
	b.calls = append(b.calls, what)
}

// Watch shows one node with 8 GPUs.
func (b *bench) Watch(ctx context.Context, observe func(Input)) error {
	b.mu.Lock()
	away := b.away
	b.mu.Unlock()
	if away != nil {
		return away
	}
	showNode(observe)
	<-ctx.Done()
	return ctx.Err()
}

func showNode(observe func(Input)) {
	v := NodeView{ID: "node-0", Name: "n", Ready: true, Eligible: true, Domains: []string{"l0"}, Devices: make(map[string]GPUView)}
	var gpus []GPUView
	var uuids []string
	for i := range 8 {
		g := GPUView{UUID: fmt.Sprint("GPU-", i), Index: i, Model: "H100-80GB", MemoryMiB: 81559, Healthy: true}
		v.Devices[g.UUID] = g
		gpus, uuids = append(gpus, g), append(uuids, g.UUID)
	}
	observe(NodesListed{[]NodeView{v}})
	observe(Inventory{gpus})
	observe(DriverUp{uuids})
}

func (b *bench) Order(a Action) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.orders = append(b.orders, a)
	return true
}

func (b *bench) Lead(bool, gang.Fence)              {}
func (b *bench) Heard(string) (time.Duration, bool) { return time.Second, true }

func (b *bench) Publish(_ context.Context, key string, _ Manifest) error {
	b.set(func() { b.calls = append(b.calls, "publish "+key) })
	return nil
}

func (b *bench) set(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// inBubble runs a loop in virtual time until f returns.
func inBubble(t *testing.T, f func(t *testing.T, ctx context.Context, b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := newBench()
		done := make(chan error, 1)
		go func() { done <- b.loop.Run(ctx) }()
		b.decides(t, ctx)
		f(t, ctx, b)
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
}

// decides waits until the loop leads and takes submissions.
func (b *bench) decides(t *testing.T, ctx context.Context) {
	t.Helper()
	for range 100 {
		if n, err := b.loop.Nodes(ctx); err == nil && len(n) == 1 && n[0].Free == 8 {
			return
		}
		time.Sleep(100 * time.Millisecond) // virtual
	}
	t.Fatal("the loop does not begin to decide")
}

func TestASubmissionIsAnsweredOnceItIsDurable(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *bench) {
		hold := make(chan struct{})
		b.set(func() { b.hold = hold })
		answered := make(chan []gang.Status, 1)
		go func() {
			statuses, err := b.loop.Submit(ctx, []gang.Spec{simSpec(8, 8)})
			if err != nil {
				t.Error(err)
			}
			answered <- statuses
		}()
		synctest.Wait()
		select {
		case <-answered:
			t.Fatal("it is answered while the commit waits")
		default:
		}
		if len(b.calls) > 0 {
			t.Fatalf("Nomad is called before the intent is written: %v", b.calls)
		}
		b.set(func() { b.hold = nil })
		close(hold)
		id := (<-answered)[0].ID
		if b.kv[gang.RecordKey(id)] == nil || b.kv[gang.SpecKey(id)] == nil {
			t.Errorf("the store has no record of %s", id)
		}
	})
}

func TestWhatIsReadIsDurable(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *bench) {
		statuses, err := b.loop.Submit(ctx, []gang.Spec{simSpec(8, 8), simSpec(8, 8)})
		if err != nil {
			t.Fatal(err)
		}
		hold := make(chan struct{})
		b.set(func() { b.hold = hold })
		go b.loop.Cancel(ctx, statuses[1].ID)
		synctest.Wait()
		seen := make(chan gang.Status, 1)
		go func() {
			s, _ := b.loop.Gang(ctx, statuses[1].ID)
			seen <- s
		}()
		synctest.Wait()
		select {
		case s := <-seen:
			t.Fatalf("%s is shown before that is durable", s.State)
		default:
		}
		b.set(func() { b.hold = nil })
		close(hold)
		if s := <-seen; s.State != gang.Cancelled {
			t.Errorf("it is %s", s.State)
		}
	})
}

func TestAFailedCommitEndsTheTermAndTheNextOneGoesOn(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *bench) {
		first, err := b.loop.Submit(ctx, []gang.Spec{simSpec(8, 8)})
		if err != nil {
			t.Fatal(err)
		}
		b.set(func() { b.fail = errors.New("deposed") })
		if _, err := b.loop.Submit(ctx, []gang.Spec{simSpec(8, 8)}); !errors.Is(err, gang.ErrNotLeading) {
			t.Errorf("the submission that was not written is answered with %v", err)
		}
		b.decidesAgain(t, ctx)
		all, _, err := b.loop.Gangs(ctx, gang.Selection{Limit: 10})
		if err != nil || len(all) != 1 || all[0].ID != first[0].ID || all[0].State != gang.Launching {
			t.Errorf("the next term knows %+v, %v", all, err)
		}
		if b.terms != 2 {
			t.Errorf("%d terms", b.terms)
		}
	})
}

// decidesAgain waits for the next term.
func (b *bench) decidesAgain(t *testing.T, ctx context.Context) {
	t.Helper()
	for range 100 {
		if n, err := b.loop.Nodes(ctx); err == nil && len(n) == 1 {
			return
		}
		time.Sleep(100 * time.Millisecond) // virtual
	}
	t.Fatal("no next term")
}

func TestALostLockEndsTheTerm(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *bench) {
		b.set(func() { close(b.lost) })
		synctest.Wait()
		b.decidesAgain(t, ctx)
		if b.terms != 2 {
			t.Errorf("%d terms", b.terms)
		}
	})
}

func (b *bench) campaigns() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.terms
}

// What ends every term at once, as Nomad's absence, must not make the agent
// spin.
func TestTermsThatEndAtOnceAreFollowedByARest(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *bench) {
		within := func(d time.Duration) uint64 { // virtual
			before := b.campaigns()
			time.Sleep(d)
			synctest.Wait()
			return b.campaigns() - before
		}
		b.set(func() { b.away = errors.New("no servers") })
		b.loses()
		if n := within(time.Minute); n < 10 || n > 20 {
			t.Errorf("%d terms in a minute, want 6, and then one in 5 s", n)
		}
		b.set(func() { b.away = nil })
		within(2 * longTerm)
		for range 5 { // the lock may go to and fro
			b.loses()
			if n := within(2 * restFirst); n != 1 {
				t.Fatalf("%d terms soon after the lock was lost", n)
			}
		}
		b.set(func() { b.away = errors.New("no servers") })
		b.loses()
		within(time.Minute)
	})
}

func TestTheRestBetweenTermsEndsWithTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := newBench()
		b.away = errors.New("no servers")
		done := make(chan error, 1)
		go func() { done <- b.loop.Run(ctx) }()
		time.Sleep(time.Minute) // virtual: the rests are long by now
		synctest.Wait()
		at := time.Now()
		cancel()
		if err := <-done; err != nil || time.Since(at) > 0 {
			t.Errorf("Run ends after %s: %v", time.Since(at), err)
		}
	})
}

// A lane that is cancelled while its opening is under way is purged after it:
// the other way round its jobs would stay.
func TestCallsForOneLaneKeepTheirOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *bench) {
		opening := make(chan struct{})
		b.set(func() { b.opening = opening })
		statuses, err := b.loop.Submit(ctx, []gang.Spec{simSpec(8, 8)})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, err := b.loop.Cancel(ctx, statuses[0].ID); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		b.set(func() { b.opening = nil })
		close(opening)
		synctest.Wait()
		job := gang.LaneJobID("ddim", "node-0", gang.NewLaneID(statuses[0].ID, 1, 0))
		if want := []string{"open " + job, "purge " + job}; !slices.Equal(b.calls, want) {
			t.Errorf("calls %v, want %v", b.calls, want)
		}
	})
}

func TestTheLoopPulsesWhileNothingHappens(t *testing.T) {
	inBubble(t, func(t *testing.T, _ context.Context, b *bench) {
		b.set(func() { b.pulses = 0 })
		time.Sleep(10 * time.Second) // virtual
		synctest.Wait()
		b.set(func() {
			if b.pulses < 20 {
				t.Errorf("%d pulses in 10 s: the lock is lost after 1.5 s without one", b.pulses)
			}
		})
	})
}

// While Consul elects a leader of its own, commits wait for seconds, and more and
// more waits for the writer: the lock is kept.
func TestTheLoopPulsesWhileTheWriterWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *bench) {
		hold := make(chan struct{})
		b.set(func() { b.hold = hold })
		submitted := b.submits(ctx)
		for range maxEffects + 100 {
			b.loop.Observe(CancelRequest{ID: "nobody-00000000"}) // which is answered
		}
		synctest.Wait()
		b.set(func() { b.pulses = 0 })
		time.Sleep(5 * time.Second) // virtual
		synctest.Wait()
		b.set(func() {
			if b.pulses < 20 {
				t.Errorf("%d pulses in 5 s: the lock is lost after 1.5 s without one", b.pulses)
			}
			b.hold = nil
		})
		close(hold)
		if a := answered(t, submitted); a.err != nil {
			t.Errorf("the submission: %v", a.err)
		}
	})
}

func TestAWatcherSeesTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *bench) {
		statuses, err := b.loop.Submit(ctx, []gang.Spec{simSpec(8, 8), simSpec(8, 8)})
		if err != nil {
			t.Fatal(err)
		}
		id := statuses[1].ID
		watch, err := b.loop.Watch(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if s := <-watch; s.State != gang.Queued || s.Code == "" || s.Position != 1 {
			t.Errorf("first it is %s, %q, %d", s.State, s.Code, s.Position)
		}
		if _, err := b.loop.Cancel(ctx, id); err != nil {
			t.Fatal(err)
		}
		last := gang.Status{}
		for s := range watch {
			last = s
		}
		if last.State != gang.Cancelled {
			t.Errorf("last it is %s", last.State)
		}
		if _, err := b.loop.Watch(ctx, "nobody-1"); !errors.Is(err, gang.ErrNotFound) {
			t.Errorf("a gang that is not there is watched: %v", err)
		}
	})
}

func TestWhatIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *bench) {
		many := make([]gang.Spec, MaxSpecs+1)
		for i := range many {
			many[i] = simSpec(1, 1)
		}
		large := simSpec(1, 1)
		large.Params = fmt.Appendf(nil, `{"x":"%s"}`, bytes.Repeat([]byte("x"), 60<<10))
		template := simSpec(8, 8)
		template.Template = "nosuch"
		tier := simSpec(8, 8)
		tier.Tier = "gold"
		second := simSpec(16, 8)
		second.Name = "second"
		for name, c := range map[string]struct {
			specs       []gang.Spec
			gang, field string
		}{
			"none": {nil, "", ""}, "too many": {many, "", ""}, "too large": {[]gang.Spec{large, large, large, large}, "", ""},
			"a template": {[]gang.Spec{template}, "sim", "template"}, "a tier": {[]gang.Spec{tier}, "sim", "tier"},
			"too wide": {[]gang.Spec{simSpec(16, 8)}, "sim", "gpus"}, "one of two": {[]gang.Spec{simSpec(8, 8), second}, "second", "gpus"},
		} {
			var refused *gang.RefusedError
			if _, err := b.loop.Submit(ctx, c.specs); !errors.As(err, &refused) || refused.Gang != c.gang || refused.Field != c.field {
				t.Errorf("%s: %#v, want %q of %q", name, err, c.field, c.gang)
			}
		}
		if all, _, err := b.loop.Gangs(ctx, gang.Selection{Limit: 10}); err != nil || len(all) != 0 {
			t.Errorf("%d gangs are there, %v", len(all), err)
		}
	})
}

func TestARequestThatMeetsTheEndOfATermIsAnswered(t *testing.T) {
	r := newReplies(2)
	_, waits, err := r.expect()
	if err != nil {
		t.Fatal(err)
	}
	r.abandon(gang.ErrNotLeading)
	if err, _ := (<-waits).(error); !errors.Is(err, gang.ErrNotLeading) {
		t.Errorf("who waited is answered with %v", err)
	}
	if _, _, err := r.expect(); !errors.Is(err, gang.ErrNotLeading) {
		t.Errorf("who comes later is told %v", err)
	}
}
