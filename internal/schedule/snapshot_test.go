package schedule

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gangd/gangd/internal/gang"
)

// restored is the engine that a snapshot of another gives, by way of its JSON.
func restored(t interface{ Fatal(...any) }, e *Engine, cfg Config) *Engine {
	text, err := json.Marshal(e.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	var s Snapshot
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	twin, err := Restore(cfg, s)
	if err != nil {
		t.Fatal(err)
	}
	return twin
}

// Restored makes an engine from a snapshot: from then on both get the same events.
func (p *player) Restored(t *rapid.T) {
	p.sameState(t)
	p.twin = restored(t, p.e, p.cfg)
	p.sameState(t)
	must(t, p.apply(t, Tick{}))
}

// sameState: what an engine keeps step by step is what its twin has that was
// made anew.
func (p *player) sameState(t *rapid.T) {
	if p.twin == nil {
		return
	}
	one, err := json.Marshal(p.e.Snapshot())
	other, again := json.Marshal(p.twin.Snapshot())
	if err != nil || again != nil {
		t.Fatal(err, again)
	}
	if !bytes.Equal(one, other) {
		t.Fatalf("it keeps %s\nrestored, it has %s\n%s", one, other, p.story())
	}
}

// sameDecisions holds those of the restored engine against what was decided.
func (p *player) sameDecisions(t *rapid.T, ev Event, decisions []Decision, refused error) {
	if p.twin == nil {
		return
	}
	again, refusedAgain := p.twin.Apply(ev, p.now)
	one, other := fmt.Sprintf("%+v %v", decisions, refused), fmt.Sprintf("%+v %v", again, refusedAgain)
	if one != other {
		t.Fatalf("it decides %s\nrestored, it decides %s\n%s", one, other, p.story())
	}
}

// Each field is in the snapshot, or follows from what is, or matters only while an
// event is applied. Who adds one says which.
func TestNoFieldIsForgottenInASnapshot(t *testing.T) {
	const kept, derived, passing = "kept", "derived", "passing"
	fields := map[reflect.Type]map[string]string{
		reflect.TypeFor[Engine](): {
			kept:    "cluster tiers tenants waiting runs seats ends plans calendar now decision room starts stopped called plansAt looked Counts windows shut",
			derived: "cfg models shapes leaving elastic unknown limited decided round spots codes windowsTurn",
			passing: "gained lessRoom overran ordered leaves head passed begun out scratch firsts heads reclaim borrowers hunt spare changed",
		},
		reflect.TypeFor[calendar](): {kept: "accounted claims", derived: "bays claimed edition times stale closing"},
		reflect.TypeFor[bay]():      {kept: "until", derived: "node after overlaid claimed stakes dirty closed"},
		reflect.TypeFor[claim]():    {kept: "owner run from until start at", derived: "idle place"},
		reflect.TypeFor[tier](): {
			kept: "Tier piles credit first kept", derived: "rank over lines gangs running",
			passing: "reserved candidates listed listedAt potential",
		},
		reflect.TypeFor[line]():   {derived: "tenant waiters", passing: "at round"},
		reflect.TypeFor[tenant](): {kept: "Tenant told past", derived: "running planned"},
		reflect.TypeFor[pile]():   {kept: "shape tier least code lostIn lostAt spared", derived: "stacks guaranteed next"},
		reflect.TypeFor[stack]():  {derived: "tenant waiters", passing: "at"},
		reflect.TypeFor[shape](): {
			kept: "key sizes model failed stuck futile", derived: "load speed gangs piles coded code", passing: "failedIn longRound long longWhy",
		},
		reflect.TypeFor[size]():    {kept: "request slower"},
		reflect.TypeFor[request](): {kept: "members perNode model memoryMiB need require narrowest warm avoid segment noSpot missing"},
		reflect.TypeFor[waiter](): {
			kept: "Gang shape estimate code own ahead seen entered phase start claims since due passed leading plan", derived: "tier tenant shortest pile held",
			passing: "judged why round",
		},
		reflect.TypeFor[run](): {
			kept:    "id seq attempt spec shape place size gpu began ready done rate saved tellsSaves estimate end owed passing behind stop plan",
			derived: "tier tenant seats left at",
		},
		reflect.TypeFor[seat]():  {kept: "run node gpus need"},
		reflect.TypeFor[plan]():  {kept: "owner resizes found victims by tenant more", derived: "at"},
		reflect.TypeFor[found](): {kept: "place size gpu warm end"},
	}
	for of, said := range fields {
		names := strings.Fields(said[kept] + " " + said[derived] + " " + said[passing])
		for i := range of.NumField() {
			name := of.Field(i).Name
			at := -1
			for k := range names {
				if names[k] == name {
					at = k
				}
			}
			if at < 0 {
				t.Errorf("%s.%s is not said to be kept, derived or passing", of.Name(), name)
				continue
			}
			names = append(names[:at], names[at+1:]...)
		}
		if len(names) > 0 {
			t.Errorf("%s has no fields %v", of.Name(), names)
		}
	}
}

// Why a gang waits is of now, whatever it was that took the room, such as GPUs that
// others are found to hold. An engine that was restored in between says the same.
func TestCodesAreOfTheClusterAsItIs(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	another := aNode()
	another.ID = "m"
	held := func(member int, node string, gpus ...int) Occupy {
		return Occupy{Seat: Seat{"other", 1, member}, Place: gang.Member{Node: node, GPUs: gpus}}
	}
	e := anEngine(t, now, NodeSet{another}, held(0, "n", 0), held(1, "m", 0), Submit{aGang("wide", 1, 8)})
	if code, _, _, _ := e.Explain("wide"); code != gang.CodeFragmented {
		t.Fatalf("on two nodes with 7 free GPUs each it waits for %s", code)
	}
	twin := restored(t, e, e.cfg)
	for _, ev := range []Event{held(2, "n", 1, 2, 3, 4), held(3, "m", 1, 2, 3, 4)} {
		one, _ := e.Apply(ev, now)
		other, _ := twin.Apply(ev, now)
		if fmt.Sprint(one) != fmt.Sprint(other) {
			t.Errorf("it decides %+v; restored, it decides %+v", one, other)
		}
	}
	if code, reason, _, _ := e.Explain("wide"); code != gang.CodeCapacity {
		t.Errorf("it waits for %s: %s", code, reason)
	}
}
