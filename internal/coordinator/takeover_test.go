package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gangd/gangd/internal/gang"
)

// aGang is what Consul holds of a gang of one member in a state, with its lane.
func aGang(name string, state gang.State, lane gang.LaneState) map[string][]byte {
	spec := simSpec(8, 8)
	spec.Version = gang.SchemaVersion
	r := gang.Record{
		Version: gang.SchemaVersion, ID: gang.NewID(name, [5]byte{}), State: state, Seq: uint64(len(name)), Tenant: "default",
		Tier: "production", Template: "ddim", GPUs: 8, PerNode: 8, Attempt: 1,
	}
	l := gang.Lane{
		Version: gang.SchemaVersion, ID: gang.NewLaneID(r.ID, 1, 0), State: lane, Node: "node-" + name, GPUs: []int{0, 1, 2, 3, 4, 5, 6, 7},
		Template: "ddim", Gang: r.ID, Attempt: 1, Job: "gangd.ddim." + name, Allocation: "alloc-" + name,
	}
	out := map[string][]byte{gang.SpecKey(r.ID): gang.Encode(&spec)}
	if lane != "" {
		r.Members = gang.Placement{{Node: l.Node, GPUs: l.GPUs, Lane: l.ID}}
		out[gang.LaneKey(l.Node, l.ID)] = gang.Encode(&l)
	}
	out[gang.RecordKey(r.ID)] = gang.Encode(&r)
	return out
}

// records is what Consul holds, as it is read; a key without a value is gone.
func records(from ...map[string][]byte) []KV {
	all := make(map[string][]byte)
	for _, m := range from {
		maps.Copy(all, m)
	}
	var out []KV
	for _, prefix := range []string{"gangs/", "specs/", "lanes/"} {
		for _, key := range slices.Sorted(maps.Keys(all)) {
			if strings.HasPrefix(key, prefix) && len(all[key]) > 0 {
				out = append(out, KV{key, all[key]})
			}
		}
	}
	return out
}

func aLane(name string) string {
	return gang.LaneKey("node-"+name, gang.NewLaneID(gang.NewID(name, [5]byte{}), 1, 0))
}

func (h inheritance) String() string {
	var out []string
	for _, g := range h.Gangs {
		out = append(out, fmt.Sprintf("%s %s", strings.TrimSuffix(string(g.ID), "-00000000"), g.State))
	}
	for _, l := range h.Lanes {
		out = append(out, fmt.Sprintf("%s:%s", strings.TrimPrefix(l.Node, "node-"), l.State))
	}
	for _, c := range h.repairs {
		out = append(out, "write "+c.Key[:5])
	}
	for _, d := range h.damages {
		out = append(out, "aside "+d.key[:5])
	}
	return strings.Join(out, ", ")
}

// Of three gangs one is damaged: it alone pays for it.
func TestADamagedRecordIsSetAside(t *testing.T) {
	const others = "a queued, c running"
	for _, c := range []struct {
		name  string
		state gang.State
		lane  gang.LaneState
		key   string // whose value is damaged
		value string // "" deletes it
		want  string
	}{
		{"nothing", gang.Running, gang.LaneBusy, "x", "", "a queued, b running, c running, b:busy, c:busy"},
		{"cut off", gang.Running, gang.LaneBusy, "gangs/b-00000000", `{"v":1,"id":"b-0`, others + ", b:busy, c:busy, aside gangs"},
		{"of no state", gang.Queued, "", "gangs/b-00000000", `{"v":1,"id":"b-00000000","state":"asleep","gpus":8}`, others + ", c:busy, aside gangs"},
		{"without GPUs", gang.Queued, "", "gangs/b-00000000", `{"v":1,"id":"b-00000000","state":"queued"}`, others + ", c:busy, aside gangs"},
		{"another's", gang.Queued, "", "gangs/b-00000000", string(aGang("a", gang.Queued, "")["gangs/a-00000000"]), others + ", c:busy, aside gangs"},
		{"a specification that is needed", gang.Queued, "", "specs/b-00000000", `{}`, others + ", c:busy, aside specs, aside gangs"},
		{"no specification", gang.Queued, "", "specs/b-00000000", "", others + ", c:busy, aside gangs"},
		{"a specification to start again with", gang.Recovering, gang.LaneClosing, "specs/b-00000000", `null`, others + ", b:closing, c:busy, aside specs, aside gangs"},
		{"a specification that has served", gang.Running, gang.LaneBusy, "specs/b-00000000", `[]`, "a queued, b running, c running, b:busy, c:busy, aside specs"},
		{"a lane that runs", gang.Running, gang.LaneBusy, aLane("b"), `{"v":1,"gpus":[-1]}`, "a queued, b preempting, c running, c:busy, b:lost, write gangs, write lanes, aside lanes"},
		{"a lane that opens", gang.Launching, gang.LaneOpening, aLane("b"), `nonsense`, "a queued, b preempting, c running, c:busy, b:lost, write gangs, write lanes, aside lanes"},
		{"a lane that has finished", gang.Finishing, gang.LaneClosing, aLane("b"), `nonsense`, "a queued, b finishing, c running, c:busy, b:lost, write lanes, aside lanes"},
		{"a lane that nobody names", gang.Queued, "", aLane("b"), `nonsense`, "a queued, b queued, c running, c:busy, aside lanes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := inherit(records(aGang("a", gang.Queued, ""), aGang("b", c.state, c.lane), aGang("c", gang.Running, gang.LaneBusy),
				map[string][]byte{c.key: []byte(c.value)}))
			if err != nil || got.String() != c.want {
				t.Errorf("got  %v, %v\nwant %s", got, err, c.want)
			}
		})
	}
}

// A later gangd's records are not damaged, and without them this one would know
// but a part of the truth.
func TestARecordOfALaterSchemaStopsTheTakeOver(t *testing.T) {
	for _, key := range []string{"gangs/b-00000000", "specs/b-00000000", aLane("b")} {
		_, err := inherit(records(aGang("b", gang.Running, gang.LaneBusy), map[string][]byte{key: []byte(`{"v":2,"id":{"name":"b"}}`)}))
		if !errors.Is(err, gang.ErrLaterSchema) || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "run that one") {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func (b *bench) faults(t *testing.T) float64 { return b.counted(t, "gangd_faults_total") }

// counted is the sum of a counter, whatever its labels.
func (b *bench) counted(t *testing.T, name string) (n float64) {
	t.Helper()
	r := prometheus.NewRegistry()
	if err := b.loop.cfg.Metrics.Register(r); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

func TestADamagedRecordIsAFaultThatTheLogNames(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *bench) {
		b.set(func() {
			maps.Copy(b.kv, aGang("whole", gang.Queued, ""))
			b.kv["gangs/torn-00000000"] = []byte(`{"v":1,"id":"to`)
		})
		b.loses()
		b.decidesAgain(t, ctx)
		if a := answered(t, b.reads(ctx, "whole-00000000")); a.err != nil {
			t.Errorf("the whole gang: %v", a.err)
		}
		if a := answered(t, b.reads(ctx, "torn-00000000")); !errors.Is(a.err, gang.ErrNotFound) {
			t.Errorf("the damaged gang: %v", a.err)
		}
		if n := b.faults(t); n != 1 {
			t.Errorf("%v faults are counted", n)
		}
		for _, words := range []string{"gangs/torn-00000000", "its 15 bytes begin with", "delete it"} {
			if !strings.Contains(b.log.String(), words) {
				t.Errorf("%q is not in the log: %s", words, b.log.String())
			}
		}
		if string(b.kv["gangs/torn-00000000"]) != `{"v":1,"id":"to` {
			t.Error("the damaged record is gone, or another")
		}
	})
}

// The next term, too, must find that its GPUs are held.
func TestWhatIsRepairedIsWritten(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *bench) {
		b.set(func() {
			maps.Copy(b.kv, aGang("0", gang.Running, gang.LaneBusy))
			b.kv[aLane("0")] = []byte("{")
		})
		b.loses()
		time.Sleep(2 * restFirst) // virtual
		synctest.Wait()
		b.set(func() {
			if l, err := gang.DecodeLane(aLane("0"), b.kv[aLane("0")]); err != nil || l.State != gang.LaneLost {
				t.Errorf("the lane's record is %s, %v", b.kv[aLane("0")], err)
			}
			if r, err := gang.DecodeRecord("gangs/0-00000000", b.kv["gangs/0-00000000"]); err != nil || r.State == gang.Running {
				t.Errorf("the gang's record is %+v, %v", r, err)
			}
		})
	})
}

// An agent that is too old goes on asking, seldom, and leads once the record is
// gone.
func TestAnOlderGangdDoesNotLeadOverNewerRecords(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, b *bench) {
		b.set(func() { b.kv["gangs/new-00000000"] = []byte(`{"v":2}`) })
		b.loses()
		before := b.campaigns()
		time.Sleep(time.Minute) // virtual
		synctest.Wait()
		if b.loop.Leading() {
			t.Error("it leads")
		}
		if n := b.campaigns() - before; n > 20 {
			t.Errorf("%d campaigns in a minute", n)
		}
		b.set(func() { delete(b.kv, "gangs/new-00000000") })
		b.decidesAgain(t, ctx)
	})
}

// A gang whose lane's record is damaged while gangd is away is stopped whole,
// and starts again: elsewhere, or where it was once its keepers are gone.
func TestAGangWhoseLanesRecordIsDamagedStartsAgain(t *testing.T) {
	for _, c := range []struct {
		name  string
		state gang.State
		nodes int
	}{{"running", gang.Running, 4}, {"running, and no other nodes", gang.Running, 2}, {"launching", gang.Launching, 4}} {
		t.Run(c.name, func(t *testing.T) {
			w := ready(t, 7, c.nodes, 2)
			id := w.submit(simSpec(16, 8))
			w.until(2, "placed", func() bool { return w.state(id) == c.state })
			member := w.core.gangs[id].rec.Members[1]
			key := gang.LaneKey(member.Node, member.Lane)
			w.kv[key] = []byte(`{"v":1,"state":`)
			w.boot(2)
			if g, l := w.core.gangs[id], w.core.lanes[member.Lane]; g.rec.State != gang.Preempting && g.rec.State != gang.Queued || l.rec.State != gang.LaneLost {
				t.Errorf("the gang is %s, its lane %s", g.rec.State, l.rec.State)
			}
			held := w.now.Add(simLease)
			w.until(2, "second attempt", func() bool {
				if _, refused := w.keepers[member.Lane]; refused && w.now.After(held) {
					t.Fatal("the keeper runs on")
				}
				if _, lives := w.keepers[member.Lane]; lives && w.core.engine.Cluster().Node(member.Node).Free().Count() > 0 {
					t.Fatal("GPUs are free that are in use")
				}
				return w.core.gangs[id].rec.Attempt == 2 && w.state(id) == gang.Running
			})
			w.until(2, "success", func() bool { return w.state(id) == gang.Succeeded && len(w.core.lanes) == 0 })
			if g := w.core.gangs[id].rec; g.Failures != 0 || w.kv[key] != nil {
				t.Errorf("failures %d, the lane's record %s", g.Failures, w.kv[key])
			}
		})
	}
}
