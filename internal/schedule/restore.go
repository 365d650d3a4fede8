package schedule

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// Restore makes an engine that goes on from a snapshot, under the rules of the
// one that it was taken of. An error says what of the snapshot contradicts
// itself.
func Restore(c Config, s Snapshot) (*Engine, error) {
	x := &restoration{e: New(c), snapshot: s}
	x.e.now, x.e.windows = s.Now, slices.Clone(s.Windows)
	for _, step := range []func() error{x.nodes, x.tenants, x.shapes, x.runs, x.seats, x.queue, x.plans, x.claims} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("restore an engine from a snapshot: %w", err)
		}
	}
	e := x.e
	e.accounted, e.plansAt, e.Counts = s.Accounted, slices.Clone(s.PlansAt), s.Counts
	e.decision, e.room, e.starts, e.stopped, e.called = s.Decisions, s.Room, s.Starts, s.Stops, s.CalledOff
	return e, nil
}

// theRound is that of the last decision, in an engine that has restored it.
const theRound = 1

// restoration turns places in lists into pointers again.
type restoration struct {
	e        *Engine
	snapshot Snapshot
	byPlace  []*shape
	running  []*run
}

func (x *restoration) nodes() error {
	c, err := cluster.Restore(x.e.cfg.Levels, x.snapshot.Cluster)
	if err != nil {
		return err
	}
	x.e.cluster = c
	x.e.round, x.e.decided = theRound, theRound
	x.e.findTurn()
	for _, spec := range x.snapshot.Shut {
		x.e.shut[spec.ID] = &spec
	}
	for _, n := range c.Nodes() {
		x.e.setBay(n)
		x.e.foresee(x.e.bay(n))
		if isLeft(n) {
			x.e.leaving[n.ID] = true
		}
	}
	return nil
}

func (x *restoration) tenants() error {
	for _, t := range x.snapshot.Tenants {
		of := x.e.tenant(t.Name)
		of.past, of.told = t.Past, t.Told
	}
	for i, t := range x.snapshot.Tiers {
		of := x.e.tierFor(Gang{Spec: &gang.Spec{Tier: t.Name}, Accepted: true})
		if of.rank != i {
			return fmt.Errorf("tier %q is number %d by priority, and number %d in the rules", t.Name, i, of.rank)
		}
		of.credit = t.Credit
	}
	return nil
}

func (x *restoration) shapes() error {
	for _, s := range x.snapshot.Shapes {
		if len(s.Sizes) == 0 {
			return fmt.Errorf("shape %q has no size", s.Key)
		}
		sh := &shape{key: s.Key, model: s.Model, failed: s.Failed, stuck: s.Stuck, futile: make(map[*tier]uint64)}
		if m, known := x.e.models[s.Model]; known {
			sh.load, sh.speed = m.Load, m.Speed
		}
		for _, z := range s.Sizes {
			if err := x.sound(z); err != nil {
				return fmt.Errorf("shape %q: %w", s.Key, err)
			}
			sh.sizes = append(sh.sizes, z.size())
		}
		for name, stand := range s.Futile {
			t := x.e.tier(name)
			if t == nil {
				return fmt.Errorf("shape %q knows tier %q, which there is not", s.Key, name)
			}
			sh.futile[t] = stand
		}
		if s.Listed {
			x.e.shapes[s.Key] = sh
		}
		x.byPlace = append(x.byPlace, sh)
	}
	return nil
}

// sound finds what no size of a gang is. Members of none that is known yet have no
// GPUs.
func (x *restoration) sound(z SizeState) error {
	levels := len(x.e.cfg.Levels)
	switch {
	case z.Members < 0 || z.PerNode < 0 || z.PerNode > cluster.MaxGPUsPerNode || z.PerNode > 0 && z.Members == 0 || z.Segment < 0:
		return fmt.Errorf("%d members of %d GPUs cannot be", z.Members, z.PerNode)
	case z.Require < -1 || z.Require > z.Narrowest || z.Narrowest >= levels:
		return fmt.Errorf("it is placed from level %d down to level %d, of %d", z.Require, z.Narrowest, levels)
	case !(z.Slower > 0):
		return fmt.Errorf("its run time is %g of what it is", z.Slower)
	}
	return nil
}

func (z SizeState) size() size {
	return size{request{
		members: z.Members, perNode: z.PerNode, model: z.Model, memoryMiB: z.MemoryMiB, need: z.Need, require: z.Require, narrowest: z.Narrowest,
		warm: z.Warm, avoid: z.Avoid, segment: z.Segment, noSpot: z.NoSpot, missing: z.Missing,
	}, z.Slower}
}

// errPlace is that of a place that a list does not have.
var errPlace = errors.New("it names a place in a list that is shorter")

func (x *restoration) shape(at int) (*shape, error) {
	if at < 0 || at >= len(x.byPlace) {
		return nil, errPlace
	}
	return x.byPlace[at], nil
}

func (x *restoration) runs() error {
	for _, r := range x.snapshot.Runs {
		sh, err := x.shape(r.Shape)
		if err == nil {
			err = x.soundRun(r)
		}
		if err != nil {
			return fmt.Errorf("attempt %d of gang %s: %w", r.Attempt, r.ID, err)
		}
		e := x.e
		of := &run{
			id: r.ID, seq: r.Seq, attempt: r.Attempt, spec: r.Spec, tier: e.tier(r.Spec.Tier), tenant: e.tenant(r.Spec.Tenant), shape: sh,
			place: r.Place, size: r.Size.size(), seats: make([]*seat, len(r.Place)), gpu: r.GPU, began: r.Began, ready: r.Ready, done: r.Done, rate: r.Rate,
			saved: r.Saved, tellsSaves: r.TellsSaves, estimate: r.Estimate, end: r.End, owed: r.Owed, passing: r.Passing, at: len(e.ends),
		}
		if of.tier == nil {
			return fmt.Errorf("attempt %d of gang %s: tier %q is not among the tiers", r.Attempt, r.ID, r.Spec.Tier)
		}
		if r.Stop != nil {
			stop := *r.Stop
			of.stop = &stop
		}
		if r.Newest {
			e.runs[r.ID] = of
		}
		x.running = append(x.running, of)
		e.ends = append(e.ends, of)
		e.mayResize(of)
	}
	return nil
}

func (x *restoration) soundRun(r RunState) error {
	switch {
	case r.Spec == nil:
		return errors.New("it has no specification")
	case !(r.Rate > 0):
		return fmt.Errorf("it runs at %g times its speed", r.Rate)
	}
	return errors.Join(r.Spec.Sound(), x.sound(r.Size))
}

func (x *restoration) seats() error {
	for _, s := range x.snapshot.Seats {
		n, _, err := x.e.untaken(s.Seat, gang.Member{Node: s.Node, GPUs: s.GPUs.Indexes()})
		if err == nil && s.Run != nil && (*s.Run < 0 || *s.Run >= len(x.running)) {
			err = fmt.Errorf("member %d of gang %s, attempt %d: %w", s.Seat.Member, s.Seat.ID, s.Seat.Attempt, errPlace)
		}
		if err != nil {
			return err
		}
		taken := &seat{node: n, gpus: s.GPUs, need: s.Need}
		if s.Run != nil {
			taken.run = x.running[*s.Run]
			if s.Seat.Member < 0 || s.Seat.Member >= len(taken.run.seats) {
				return fmt.Errorf("member %d of gang %s, attempt %d: %w", s.Seat.Member, s.Seat.ID, s.Seat.Attempt, errPlace)
			}
			x.e.sit(s.Seat, taken)
			continue
		}
		x.e.cluster.Take(n, s.GPUs, s.Need)
		x.e.seats[s.Seat] = taken
		x.e.setUntil(n, s.GPUs, time.Unix(0, s.Until))
	}
	return nil
}

// queue restores who waits, and what they were told.
func (x *restoration) queue() error {
	if err := x.piles(); err != nil {
		return err
	}
	for _, w := range x.snapshot.Waiting {
		if err := x.waiter(w); err != nil {
			return fmt.Errorf("gang %s, which waits: %w", w.Gang.ID, err)
		}
	}
	for i, t := range x.snapshot.Tiers {
		x.e.tiers[i].first, x.e.tiers[i].kept = x.e.waiting[t.First], x.e.waiting[t.Kept]
	}
	for i, r := range x.snapshot.Runs {
		for _, id := range r.Behind {
			w := x.e.waiting[id]
			if w == nil {
				return fmt.Errorf("attempt %d of gang %s passed gang %s, which does not wait", r.Attempt, r.ID, id)
			}
			x.running[i].behind = append(x.running[i].behind, w)
		}
	}
	return nil
}

func (x *restoration) piles() error {
	for i, t := range x.snapshot.Tiers {
		for _, p := range t.Piles {
			sh, err := x.shape(p.Shape)
			if err != nil {
				return fmt.Errorf("those of one shape in tier %q: %w", t.Name, err)
			}
			of := &pile{shape: sh, tier: x.e.tiers[i], least: p.Least, code: p.Code, next: p.Code, lostIn: p.LostIn, lostAt: p.LostAt}
			if p.Spared != "" {
				of.spared = x.e.tenant(p.Spared)
			}
			sh.piles, of.tier.piles = append(sh.piles, of), append(of.tier.piles, of)
		}
	}
	return nil
}

func (x *restoration) waiter(s WaiterState) error {
	e := x.e
	sh, err := x.shape(s.Shape)
	switch {
	case err != nil:
		return err
	case s.Gang.Spec == nil:
		return errors.New("it has no specification")
	case s.Gang.Spec.Sound() != nil:
		return s.Gang.Spec.Sound()
	case e.waiting[s.Gang.ID] != nil:
		return errors.New("it is there twice")
	case e.tier(s.Gang.Spec.Tier) == nil:
		return fmt.Errorf("tier %q is not among the tiers", s.Gang.Spec.Tier)
	}
	w := &waiter{
		Gang: s.Gang, tier: e.tier(s.Gang.Spec.Tier), tenant: e.tenant(s.Gang.Spec.Tenant), shape: sh, estimate: s.Estimate,
		code: s.Code, own: s.Own, ahead: s.For, entered: s.Entered, phase: phase(s.Phase), start: s.Start,
		since: s.Since, due: s.Due, passed: s.Passed, leading: s.Leading,
	}
	w.shortest = w.atLeast()
	if s.Holds {
		w.claims = theRound
	}
	sh.gangs++
	e.waiting[w.ID] = w
	w.tier.insert(w)
	e.unknown = e.unknown || sh.unknown()
	if s.Look {
		e.look(w)
	}
	return nil
}

func (x *restoration) plans() error {
	planned := make(map[*bay]cluster.Mask)
	for i, p := range x.snapshot.Plans {
		at, err := x.holds(p.Place)
		if err == nil {
			err = x.sound(p.Size)
		}
		for _, h := range at {
			if planned[h.bay]&h.gpus != 0 && err == nil {
				err = fmt.Errorf("GPUs %v of node %s are held twice", (planned[h.bay] & h.gpus).Indexes(), h.bay.node.ID)
			}
			planned[h.bay] |= h.gpus
		}
		if err != nil {
			return fmt.Errorf("what is held for gang %s: %w", p.Owner, err)
		}
		of := &plan{
			owner: p.Owner, resizes: p.Resizes, found: &found{place: p.Place, size: p.Size.size(), gpu: p.GPU, warm: p.Warm, end: p.End},
			at: at, by: p.By, tenant: x.e.tenant(p.Tenant), more: p.More,
		}
		for _, v := range p.Victims {
			if v < 0 || v >= len(x.running) {
				return fmt.Errorf("what is held for gang %s: %w", p.Owner, errPlace)
			}
			of.victims = append(of.victims, x.running[v])
		}
		if w := x.e.waiting[p.Owner]; w != nil && p.Begun {
			w.plan = of
		}
		for at, r := range x.snapshot.Runs {
			if r.Plan != nil && *r.Plan == i {
				x.running[at].plan = of
			}
		}
		x.e.keep(of)
	}
	return nil
}

func (x *restoration) holds(p gang.Placement) ([]hold, error) {
	for _, m := range p {
		if x.e.cluster.Node(m.Node) == nil {
			return nil, fmt.Errorf("there is no node %s", m.Node)
		}
	}
	return x.e.holdsOf(p), nil
}

func (x *restoration) claims() error {
	for _, s := range x.snapshot.Claims {
		c := &claim{from: s.From, until: s.Until, start: s.Start}
		if c.owner = x.e.waiting[s.Owner]; s.Run {
			c.owner, c.run = nil, x.e.runs[s.Owner]
		}
		if c.owner == nil && c.run == nil {
			return fmt.Errorf("gang %s has a claim, and neither waits nor runs", s.Owner)
		}
		for _, h := range s.At {
			n := x.e.cluster.Node(h.Node)
			if n == nil {
				return fmt.Errorf("gang %s has a claim on node %s, which there is not", s.Owner, h.Node)
			}
			c.at = append(c.at, hold{x.e.bay(n), h.GPUs})
		}
		x.e.addClaim(c)
		if c.owner != nil && c.owner.plan == nil && c.from == math.MinInt64 {
			c.idle, c.owner.held = c.free(), c
		}
	}
	return nil
}
